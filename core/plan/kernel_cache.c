/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_cache.c - a sorted array of (key, kernel); see kernel_cache.h. GPT-2 has some 60 kernels, so an array does. */
#include "core/plan/kernel_cache.h"

#include <stdlib.h>
#include <string.h>

/* Index of the first entry with a key not below `key`. */
static uint32_t position(const tern_kernel_cache *cache, uint64_t key)
{
    uint32_t low = 0, high = cache->count;
    while (low < high) {
        const uint32_t middle = (low + high) / 2u;
        if (cache->entries[middle].key < key)
            low = middle + 1u;
        else
            high = middle;
    }
    return low;
}

tern_status tern_kernel_cache_get(tern_kernel_cache *cache, const tern_kernel_desc *desc,
                                  tern_backend_kernel **out_kernel)
{
    const uint32_t at = position(cache, desc->key);
    if (at < cache->count && cache->entries[at].key == desc->key) {
        *out_kernel = cache->entries[at].kernel;
        return TERN_OK;
    }
    if (cache->count == cache->capacity) { /* before the kernel exists, so that failing leaks nothing */
        const uint32_t larger = cache->capacity * 2u + 16u;
        tern_kernel_entry *moved = realloc(cache->entries, larger * sizeof *moved);
        if (!moved) return tern_error_memory("the kernel table", larger * sizeof *moved);
        cache->entries = moved;
        cache->capacity = larger;
    }
    tern_backend_kernel *kernel = NULL;
    tern_status status = cache->device->backend->kernel_create(cache->device->handle, desc, &kernel);
    if (status < 0) return status;
    memmove(&cache->entries[at + 1u], &cache->entries[at], (cache->count - at) * sizeof *cache->entries);
    cache->entries[at] = (tern_kernel_entry){.key = desc->key, .kernel = kernel};
    cache->count++;
    *out_kernel = kernel;
    return TERN_OK;
}

void tern_kernel_cache_finish(tern_kernel_cache *cache)
{
    for (uint32_t i = 0; i < cache->count; i++)
        cache->device->backend->kernel_destroy(cache->device->handle, cache->entries[i].kernel);
    free(cache->entries);
    cache->entries = NULL;
    cache->count = cache->capacity = 0;
}
