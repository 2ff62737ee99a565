/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors_write.c - writes a .safetensors file tensor by tensor, so that no second copy of a model is needed.
 *
 * What it is not: it chooses no names or order; the caller's entries are the file.
 * Invariant: the final name holds a whole file or what it held before (base/file.h). */
#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/file.h"
#include "core/formats/safetensors.h"

static uint64_t entry_bytes(const tern_safetensors_entry *entry)
{
    uint64_t count = 1;
    for (int32_t i = 0; i < entry->rank; i++) count *= (uint64_t)entry->shape[i];
    return tern_dtype_bytes(entry->dtype, count);
}

static bool add_entry(cJSON *header, const tern_safetensors_entry *entry, uint64_t offset)
{
    cJSON *item = cJSON_AddObjectToObject(header, entry->name);
    const char *dtype = tern_safetensors_dtype_name(entry->dtype);
    if (!item || !cJSON_AddStringToObject(item, "dtype", dtype)) return false;
    cJSON *shape = cJSON_AddArrayToObject(item, "shape");
    cJSON *offsets = cJSON_AddArrayToObject(item, "data_offsets");
    if (!shape || !offsets) return false;
    for (int32_t i = 0; i < entry->rank; i++)
        if (!cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)entry->shape[i]))) return false;
    return cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)offset)) &&
           cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)(offset + entry_bytes(entry))));
}

/* The header text, padded with spaces so that the data start on a multiple of 8; NULL when out of memory. */
static char *make_header(const tern_safetensors_entry *entries, uint32_t count, size_t *out_bytes)
{
    uint64_t offset = 0;
    char *padded = NULL, *text = NULL;
    cJSON *header = cJSON_CreateObject();
    cJSON *metadata = header ? cJSON_AddObjectToObject(header, "__metadata__") : NULL;
    if (!metadata || !cJSON_AddStringToObject(metadata, "format", "pt")) goto end;
    for (uint32_t i = 0; i < count; i++) {
        if (!add_entry(header, &entries[i], offset)) goto end;
        offset += entry_bytes(&entries[i]);
    }
    text = cJSON_PrintUnformatted(header);
    if (!text) goto end;
    size_t bytes = strlen(text);
    *out_bytes = (bytes + 7) / 8 * 8;
    padded = malloc(*out_bytes);
    if (!padded) goto end;
    memset(padded, ' ', *out_bytes);
    memcpy(padded, text, bytes);
end:
    cJSON_free(text);
    cJSON_Delete(header);
    return padded;
}

static tern_status write_tensors(tern_file_writer *writer, const tern_safetensors_entry *entries, uint32_t count,
                                 tern_safetensors_source read, void *context)
{
    tern_status status = TERN_OK;
    void *buffer = NULL;
    uint64_t largest = 1;
    for (uint32_t i = 0; i < count; i++)
        if (entry_bytes(&entries[i]) > largest) largest = entry_bytes(&entries[i]);
    buffer = malloc(largest);
    if (!buffer) return tern_error_memory("a tensor to be written", largest);
    for (uint32_t i = 0; i < count; i++) {
        TERN_TRY(read(context, i, buffer, entry_bytes(&entries[i])));
        TERN_TRY(tern_file_append(writer, buffer, entry_bytes(&entries[i])));
    }
fail:
    free(buffer);
    return status;
}

tern_status tern_safetensors_write(const char *path, const tern_safetensors_entry *entries, uint32_t count,
                                   tern_safetensors_source read, void *context)
{
    tern_status status = TERN_OK;
    tern_file_writer *writer = NULL;
    size_t header_bytes = 0;
    unsigned char length[8];
    for (uint32_t i = 0; i < count; i++)
        if (!tern_safetensors_dtype_name(entries[i].dtype))
            return tern_error(TERN_ERROR_INVALID, "tensor \"%s\" has dtype %d, which a safetensors file cannot hold",
                              entries[i].name, entries[i].dtype);
    char *header = make_header(entries, count, &header_bytes);
    if (!header) return tern_error_memory("a safetensors header", count * sizeof *entries);
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t)header_bytes >> 8 * i);
    TERN_TRY(tern_file_begin(path, &writer));
    TERN_TRY(tern_file_append(writer, length, sizeof length));
    TERN_TRY(tern_file_append(writer, header, header_bytes));
    TERN_TRY(write_tensors(writer, entries, count, read, context));
    status = tern_file_commit(writer);
    writer = NULL;
fail:
    tern_file_abandon(writer);
    free(header);
    return status;
}
