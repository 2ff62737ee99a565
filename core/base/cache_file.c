/* SPDX-License-Identifier: Apache-2.0 */
/* cache_file.c - reading and writing the files that cache.h describes. Folders: cache.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cache.h"
#include "core/base/file.h"
#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/base/status.h"

#define CACHE_MAGIC 0x32306e7265746e74ull /* the layout's version is in it */
#define CACHE_LIMIT ((size_t)256 << 20)

typedef struct cache_head {
    uint64_t magic, key, bytes, checksum;
} cache_head;

static tern_status cache_path(const char *part, const char *kind, uint64_t key, char *out_path, size_t bytes)
{
    char folder[3072];
    const tern_status status = tern_cache_directory(part, folder, sizeof folder);
    if (status < 0) return status;
    (void)snprintf(out_path, bytes, "%s/%s-%016llx", folder, kind, (unsigned long long)key);
    return TERN_OK;
}

static bool head_matches(const char *file, size_t bytes, uint64_t key)
{
    cache_head head;
    if (bytes <= sizeof head) return false;
    memcpy(&head, file, sizeof head);
    return head.magic == CACHE_MAGIC && head.key == key && head.bytes == bytes - sizeof head &&
           head.checksum == tern_hash(TERN_HASH_START, file + sizeof head, head.bytes);
}

tern_status tern_cache_read(const char *part, const char *kind, uint64_t key, char **out_data, size_t *out_bytes)
{
    char path[4096], *file = NULL;
    size_t bytes = 0;
    tern_status status;
    TERN_TRY(cache_path(part, kind, key, path, sizeof path));
    TERN_TRY(tern_file_read(path, CACHE_LIMIT, &file, &bytes));
    if (!head_matches(file, bytes, key))
        TERN_TRY(tern_error(TERN_ERROR_NOT_FOUND, "the cached file %s is damaged (%zu bytes); delete it", path, bytes));
    *out_bytes = bytes - sizeof(cache_head);
    memmove(file, file + sizeof(cache_head), *out_bytes);
    *out_data = file;
    return TERN_OK;
fail:
    free(file);
    return status;
}

void tern_cache_write(const char *part, const char *kind, uint64_t key, const void *data, size_t bytes)
{
    const cache_head head = {CACHE_MAGIC, key, bytes, tern_hash(TERN_HASH_START, data, bytes)};
    char path[4096];
    tern_file_writer *writer = NULL;
    tern_status status;
    if (bytes == 0 || bytes > CACHE_LIMIT) return;
    TERN_TRY(cache_path(part, kind, key, path, sizeof path));
    TERN_TRY(tern_file_begin(path, &writer));
    TERN_TRY(tern_file_append(writer, &head, sizeof head));
    TERN_TRY(tern_file_append(writer, data, bytes));
    status = tern_file_commit(writer);
    writer = NULL;
fail:
    tern_file_abandon(writer);
    if (status < 0) tern_log_write(TERN_LOG_INFO, "%s: nothing kept for the next run: %s", part, tern_error_message());
}
