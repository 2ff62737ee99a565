/* SPDX-License-Identifier: Apache-2.0 */
/* cache.c - what is kept on disk between runs (core/base/cache.h): SPIR-V by text (compile.c) and, here, the driver's
 * pipeline cache by device and driver. */
#include "backends/vulkan/internal.h"

#include "core/base/cache.h"
#include "core/base/log.h"

#include <stdlib.h>

static atomic_uint_fast64_t compiled, found, pipelines_found;

void vulkan_count_compiled(bool was_found) { atomic_fetch_add(was_found ? &found : &compiled, 1); }

void tern_vulkan_cache_counts_get(tern_vulkan_cache_counts *out_counts)
{
    *out_counts = (tern_vulkan_cache_counts){
        .compiled = atomic_load(&compiled),
        .found = atomic_load(&found),
        .pipelines_found = atomic_load(&pipelines_found),
    };
}

tern_status vulkan_pipelines_open(tern_backend_device *device)
{
    tern_status status = TERN_OK;
    char *data = NULL;
    size_t bytes = 0;
    const bool hit = tern_cache_read("vulkan", "pipelines", device->card.key, &data, &bytes) == TERN_OK;
    atomic_store(&pipelines_found, hit);
    VkPipelineCacheCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO,
        .initialDataSize = bytes,
        .pInitialData = data,
    };
    VULKAN_TRY(device, device->vk, CreatePipelineCache, device->logical, &info, NULL, &device->pipelines);
fail:
    free(data);
    return status;
}

static tern_status pipelines_save(tern_backend_device *device)
{
    tern_status status = TERN_OK;
    void *data = NULL;
    size_t bytes = 0;
    VULKAN_TRY(device, device->vk, GetPipelineCacheData, device->logical, device->pipelines, &bytes, NULL);
    data = malloc(bytes ? bytes : 1);
    if (!data) return tern_error_memory("the pipeline cache's copy", bytes);
    VULKAN_TRY(device, device->vk, GetPipelineCacheData, device->logical, device->pipelines, &bytes, data);
    if (bytes > 0) tern_cache_write("vulkan", "pipelines", device->card.key, data, bytes);
fail:
    free(data);
    return status;
}

void vulkan_pipelines_close(tern_backend_device *device)
{
    if (!device->pipelines) return;
    if (device->pipelines_built && !atomic_load(&device->lost) && pipelines_save(device) < 0)
        tern_log_write(TERN_LOG_WARNING, "vulkan: pipelines are not kept for the next run: %s", tern_error_message());
    device->vk.DestroyPipelineCache(device->logical, device->pipelines, NULL);
}
