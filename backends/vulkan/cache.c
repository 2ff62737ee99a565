/* SPDX-License-Identifier: Apache-2.0 */
/* cache.c - what is kept on disk between runs: SPIR-V by text, the driver's pipeline cache by device and driver.
 *
 *     <cache directory>/vulkan/<kind>-<key>     { magic, key, bytes, checksum } data
 *
 * A driver may crash on a damaged pipeline cache, hence the checksum before it is shown one. Deleting any of these
 * files at any time is harmless; failing to write one is logged and no error. */
#include "backends/vulkan/internal.h"

#include "core/base/file.h"
#include "core/base/hash.h"
#include "core/base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CACHE_MAGIC 0x31306b766e726574ull /* "ternvk01": the layout's version is in it */
#define CACHE_LIMIT (256ull << 20)

typedef struct cache_header {
    uint64_t magic, key, bytes, checksum;
} cache_header;

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

static tern_status cache_path(const char *kind, uint64_t key, char *out_path, size_t bytes)
{
    char directory[3072];
    tern_status status = tern_cache_directory("vulkan", directory, sizeof directory);
    if (status < 0) return status;
    (void)snprintf(out_path, bytes, "%s/%s-%016llx", directory, kind, (unsigned long long)key);
    return TERN_OK;
}

tern_status vulkan_cache_read(const char *kind, uint64_t key, void **out_data, size_t *out_bytes)
{
    char path[4096];
    char *file = NULL;
    size_t bytes = 0;
    tern_status status = TERN_OK;
    cache_header header;
    TERN_TRY(cache_path(kind, key, path, sizeof path));
    TERN_TRY(tern_file_read(path, CACHE_LIMIT, &file, &bytes));
    status = TERN_ERROR_NOT_FOUND;
    if (bytes <= sizeof header) goto fail;
    memcpy(&header, file, sizeof header);
    bytes -= sizeof header;
    if (header.magic != CACHE_MAGIC || header.key != key || header.bytes != bytes) goto fail;
    if (header.checksum != tern_hash(TERN_HASH_START, file + sizeof header, bytes)) goto fail;
    memmove(file, file + sizeof header, bytes);
    *out_data = file;
    *out_bytes = bytes;
    return TERN_OK;
fail:
    free(file);
    return status;
}

void vulkan_cache_write(const char *kind, uint64_t key, const void *data, size_t bytes)
{
    char path[4096];
    tern_status status = TERN_OK;
    cache_header header = {
        .magic = CACHE_MAGIC,
        .key = key,
        .bytes = bytes,
        .checksum = tern_hash(TERN_HASH_START, data, bytes),
    };
    tern_file_writer *writer = NULL;
    if (bytes > CACHE_LIMIT) return;
    TERN_TRY(cache_path(kind, key, path, sizeof path));
    TERN_TRY(tern_file_begin(path, &writer));
    TERN_TRY(tern_file_append(writer, &header, sizeof header));
    TERN_TRY(tern_file_append(writer, data, bytes));
    status = tern_file_commit(writer);
    writer = NULL;
fail:
    tern_file_abandon(writer);
    if (status < 0) tern_log_write(TERN_LOG_WARNING, "vulkan: nothing kept for the next run: %s", tern_error_message());
}

tern_status vulkan_pipelines_open(tern_backend_device *device)
{
    tern_status status = TERN_OK;
    void *data = NULL;
    size_t bytes = 0;
    const bool hit = vulkan_cache_read("pipelines", device->card.key, &data, &bytes) == TERN_OK;
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
    if (bytes > 0) vulkan_cache_write("pipelines", device->card.key, data, bytes);
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
