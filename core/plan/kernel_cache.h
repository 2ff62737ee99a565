/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_cache.h - kernels of one device, each built once per key.
 *
 * Belongs to an arena, so that the micro, update and eval programs that share one also share their kernels; they are
 * destroyed with it. Not thread-safe: an arena and its executables are used by one thread at a time. */
#ifndef TERN_PLAN_KERNEL_CACHE_H
#define TERN_PLAN_KERNEL_CACHE_H

#include "core/device/device.h"

typedef struct tern_kernel_entry {
    uint64_t key;
    tern_backend_kernel *kernel;
} tern_kernel_entry;

typedef struct tern_kernel_cache {
    tern_device *device;
    tern_kernel_entry *entries; /* ascending by key */
    uint32_t count, capacity;
} tern_kernel_cache;

/* Builds the kernel or returns the one built before. The cache owns it. On failure nothing is added. */
TERN_MUST_USE tern_status tern_kernel_cache_get(tern_kernel_cache *cache, const tern_kernel_desc *desc,
                                                tern_backend_kernel **out_kernel);
void tern_kernel_cache_finish(tern_kernel_cache *cache);

#endif
