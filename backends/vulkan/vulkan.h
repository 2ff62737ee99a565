/* SPDX-License-Identifier: Apache-2.0 */
/* vulkan.h - the Vulkan plug-in's hooks for tests; nothing here is needed to train.
 *
 * Exported by the plug-in beside tern_backend_get and found with dlsym. The environment does the same without code:
 *
 *     TERN_VULKAN_VALIDATE=1        run every device under the Khronos validation layer, core + synchronization
 *     TERN_VULKAN_ADDRESSES=1       pass tensors as device addresses even where bindings would do
 *     TERN_VULKAN_FAIL_CALL=n[:r]   the n-th Vulkan call (from 1) is not made and returns VkResult r (default -1) */
#ifndef TERN_BACKENDS_VULKAN_VULKAN_H
#define TERN_BACKENDS_VULKAN_VULKAN_H

#include "core/tern.h"

/* Messages (errors and warnings) that the validation layer has sent since the plug-in was loaded. */
TERN_API uint64_t tern_vulkan_validation_messages(void);

/* Call number `call` from now on, counted from 1, is not made and returns `result` (a negative VkResult). 0: none.
 * Returns how many calls were made since the last call of this function. */
TERN_API uint64_t tern_vulkan_fail_call(uint64_t call, int32_t result);

/* What building kernels has cost since the plug-in was loaded: texts compiled, texts found compiled on disk, and
 * whether the device opened last found a usable pipeline cache on disk. */
typedef struct tern_vulkan_cache_counts {
    uint64_t compiled, found;
    uint64_t pipelines_found;
} tern_vulkan_cache_counts;
TERN_API void tern_vulkan_cache_counts_get(tern_vulkan_cache_counts *out_counts);

#endif
