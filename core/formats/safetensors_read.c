/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors_read.c - opens a .safetensors file and checks everything about it before anyone may use it.
 *
 * What it is not: no tensor is converted here except on tern_safetensors_read.
 * Invariant: the file is hostile until proven whole; every number of the header is checked against the file's size. */
#include "core/formats/safetensors.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/dtype.h"

typedef struct format_dtype {
    const char *name; /* as the header spells it */
    int32_t dtype;
} format_dtype;

static const format_dtype format_dtypes[] = {
    {"F32", TERN_F32}, {"F16", TERN_F16}, {"BF16", TERN_BF16}, {"I32", TERN_I32},
    {"U8", TERN_U8},   {"U16", TERN_U16}, {"U32", TERN_U32},
};

const char *tern_safetensors_dtype_name(int32_t dtype)
{
    for (size_t i = 0; i < sizeof format_dtypes / sizeof *format_dtypes; i++)
        if (format_dtypes[i].dtype == dtype) return format_dtypes[i].name;
    return NULL;
}

static tern_status map_file(tern_safetensors *file)
{
    tern_status status = TERN_OK;
    struct stat info;
    int descriptor = open(file->path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return tern_error(TERN_ERROR_IO, "cannot open %s: %s", file->path, strerror(errno));
    if (fstat(descriptor, &info) != 0) {
        status = tern_error(TERN_ERROR_IO, "cannot read the size of %s: %s", file->path, strerror(errno));
        goto fail;
    }
    if (!S_ISREG(info.st_mode)) {
        status = tern_error(TERN_ERROR_IO, "%s is not a regular file; give a .safetensors file", file->path);
        goto fail;
    }
    if (info.st_size < 8) {
        status = tern_error(TERN_ERROR_FORMAT,
                            "%s has %lld bytes, but a safetensors file has at least 8; it is truncated or foreign",
                            file->path, (long long)info.st_size);
        goto fail;
    }
    file->map_bytes = (size_t)info.st_size;
    file->map = mmap(NULL, file->map_bytes, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (file->map == MAP_FAILED) {
        file->map = NULL;
        status = tern_error(TERN_ERROR_IO, "cannot map the %zu bytes of %s: %s", file->map_bytes, file->path,
                            strerror(errno));
    }
fail:
    close(descriptor);
    return status;
}

static bool whole_number(const cJSON *item, double limit, uint64_t *out)
{
    if (!cJSON_IsNumber(item)) return false;
    double value = item->valuedouble;
    if (!(value >= 0) || !(value <= limit) || floor(value) != value) return false;
    *out = (uint64_t)value;
    return true;
}

/* The shape's element count in *out_count; sizes are bounded so that the product cannot wrap. */
static tern_status read_shape(const tern_safetensors *file, tern_safetensor *tensor, const cJSON *shape,
                              uint64_t *out_count)
{
    uint64_t count = 1;
    if (!cJSON_IsArray(shape))
        return tern_error(TERN_ERROR_FORMAT, "%s: tensor \"%s\" has no shape", file->path, tensor->name);
    int rank = cJSON_GetArraySize(shape);
    if (rank > TERN_MAX_RANK)
        return tern_error(TERN_ERROR_FORMAT, "%s: tensor \"%s\" has %d axes; at most %d are supported", file->path,
                          tensor->name, rank, TERN_MAX_RANK);
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, shape)
    {
        uint64_t size;
        if (!whole_number(item, 9007199254740992.0, &size))
            return tern_error(TERN_ERROR_FORMAT, "%s: axis %d of tensor \"%s\" is not a whole number >= 0", file->path,
                              tensor->rank, tensor->name);
        if (size != 0 && count > UINT64_MAX / 8 / size)
            return tern_error(TERN_ERROR_FORMAT, "%s: tensor \"%s\" has more elements than any file can hold",
                              file->path, tensor->name);
        count *= size;
        tensor->shape[tensor->rank++] = (int64_t)size;
    }
    *out_count = count;
    return TERN_OK;
}

static tern_status read_entry(const tern_safetensors *file, tern_safetensor *tensor, const cJSON *item,
                              uint64_t data_bytes)
{
    tern_status status;
    uint64_t count = 0, begin = 0, end = 0;
    const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(item, "dtype");
    const cJSON *offsets = cJSON_GetObjectItemCaseSensitive(item, "data_offsets");
    if (!cJSON_IsString(dtype))
        return tern_error(TERN_ERROR_FORMAT, "%s: tensor \"%s\" has no dtype", file->path, tensor->name);
    for (size_t i = 0; i < sizeof format_dtypes / sizeof *format_dtypes; i++)
        if (strcmp(dtype->valuestring, format_dtypes[i].name) == 0) tensor->dtype = format_dtypes[i].dtype;
    if (tensor->dtype == 0)
        return tern_error(TERN_ERROR_FORMAT,
                          "%s: tensor \"%s\" has dtype \"%.16s\"; F32, F16, BF16, I32, U8, U16 and U32 are read",
                          file->path, tensor->name, dtype->valuestring);
    TERN_TRY(read_shape(file, tensor, cJSON_GetObjectItemCaseSensitive(item, "shape"), &count));
    if (!cJSON_IsArray(offsets) || cJSON_GetArraySize(offsets) != 2 ||
        !whole_number(cJSON_GetArrayItem(offsets, 0), 9007199254740992.0, &begin) ||
        !whole_number(cJSON_GetArrayItem(offsets, 1), 9007199254740992.0, &end) || begin > end)
        return tern_error(TERN_ERROR_FORMAT, "%s: tensor \"%s\" has no valid data_offsets [begin, end]", file->path,
                          tensor->name);
    if (end > data_bytes)
        return tern_error(TERN_ERROR_FORMAT,
                          "%s is truncated: tensor \"%s\" ends at byte %llu of the data, but only %llu are there",
                          file->path, tensor->name, (unsigned long long)end, (unsigned long long)data_bytes);
    tensor->offset = begin;
    tensor->bytes = end - begin;
    if (tern_dtype_bytes(tensor->dtype, count) != tensor->bytes)
        return tern_error(TERN_ERROR_FORMAT,
                          "%s: tensor \"%s\" of %llu elements (%s) takes %llu bytes, but its data_offsets hold %llu",
                          file->path, tensor->name, (unsigned long long)count, dtype->valuestring,
                          (unsigned long long)tern_dtype_bytes(tensor->dtype, count),
                          (unsigned long long)tensor->bytes);
    return TERN_OK;
fail:
    return status;
}

static int by_offset(const void *a, const void *b)
{
    const tern_safetensor *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static tern_status check_layout(const tern_safetensors *file, uint64_t data_bytes)
{
    uint64_t end = 0;
    for (uint32_t i = 0; i < file->count; i++) {
        const tern_safetensor *t = &file->tensors[i];
        if (t->offset < end)
            return tern_error(TERN_ERROR_FORMAT, "%s: tensors \"%s\" and \"%s\" overlap at byte %llu of the data",
                              file->path, file->tensors[i - 1].name, t->name, (unsigned long long)t->offset);
        if (t->offset > end)
            return tern_error(TERN_ERROR_FORMAT, "%s: %llu bytes before tensor \"%s\" belong to no tensor", file->path,
                              (unsigned long long)(t->offset - end), t->name);
        end = t->offset + t->bytes;
    }
    if (end != data_bytes)
        return tern_error(TERN_ERROR_FORMAT, "%s: its tensors end at byte %llu of the data, but %llu are there",
                          file->path, (unsigned long long)end, (unsigned long long)data_bytes);
    return TERN_OK;
}

static tern_status check_names(const tern_safetensors *file)
{
    tern_status status = TERN_OK;
    const char **names = malloc(((size_t)file->count + 1) * sizeof *names);
    if (!names) return tern_error_memory("the names of a safetensors file", file->count * sizeof *names);
    for (uint32_t i = 0; i < file->count; i++) names[i] = file->tensors[i].name;
    qsort(names, file->count, sizeof *names, by_name);
    for (uint32_t i = 1; i < file->count; i++)
        if (strcmp(names[i - 1], names[i]) == 0) {
            status = tern_error(TERN_ERROR_FORMAT, "%s: tensor \"%s\" is there twice", file->path, names[i]);
            break;
        }
    free(names);
    return status;
}

static tern_status read_header(tern_safetensors *file, const cJSON *header, uint64_t data_bytes)
{
    tern_status status = TERN_OK;
    const cJSON *item = NULL;
    size_t capacity = (size_t)cJSON_GetArraySize(header);
    file->tensors = calloc(capacity + 1, sizeof *file->tensors);
    if (!file->tensors) return tern_error_memory("a safetensors header", capacity * sizeof *file->tensors);
    cJSON_ArrayForEach(item, header)
    {
        if (strcmp(item->string, "__metadata__") == 0) continue;
        tern_safetensor *tensor = &file->tensors[file->count];
        tensor->name = strdup(item->string);
        if (!tensor->name) return tern_error_memory("a tensor's name", strlen(item->string));
        file->count++;
        TERN_TRY(read_entry(file, tensor, item, data_bytes));
    }
    qsort(file->tensors, file->count, sizeof *file->tensors, by_offset);
    TERN_TRY(check_layout(file, data_bytes));
    TERN_TRY(check_names(file));
fail:
    return status;
}

static tern_status parse(tern_safetensors *file)
{
    const unsigned char *bytes = file->map;
    uint64_t header_bytes = 0;
    for (int i = 7; i >= 0; i--) header_bytes = header_bytes << 8 | bytes[i];
    if (header_bytes > TERN_SAFETENSORS_HEADER_MAX)
        return tern_error(TERN_ERROR_FORMAT,
                          "%s claims a header of %llu bytes; at most %u are allowed, so it is no safetensors file",
                          file->path, (unsigned long long)header_bytes, TERN_SAFETENSORS_HEADER_MAX);
    if (header_bytes > file->map_bytes - 8)
        return tern_error(TERN_ERROR_FORMAT,
                          "%s is truncated or foreign: its header should have %llu bytes, but the file has %zu",
                          file->path, (unsigned long long)header_bytes, file->map_bytes);
    const char *end = NULL;
    cJSON *header = header_bytes == 0 || bytes[8] != '{'
                        ? NULL
                        : cJSON_ParseWithLengthOpts((const char *)bytes + 8, (size_t)header_bytes, &end, 0);
    if (!cJSON_IsObject(header)) {
        cJSON_Delete(header);
        return tern_error(TERN_ERROR_FORMAT, "%s is no safetensors file: its header of %llu bytes is not a JSON object",
                          file->path, (unsigned long long)header_bytes);
    }
    file->data = bytes + 8 + header_bytes;
    tern_status status = read_header(file, header, file->map_bytes - 8 - header_bytes);
    cJSON_Delete(header);
    return status;
}

tern_status tern_safetensors_open(const char *path, tern_safetensors **out_file)
{
    tern_status status;
    tern_safetensors *file = calloc(1, sizeof *file);
    *out_file = NULL;
    if (!file) return tern_error_memory("a safetensors file", sizeof *file);
    file->path = strdup(path);
    if (!file->path) {
        status = tern_error_memory("a path", strlen(path));
        goto fail;
    }
    TERN_TRY(map_file(file));
    TERN_TRY(parse(file));
    *out_file = file;
    return TERN_OK;
fail:
    tern_safetensors_close(file);
    return status;
}

void tern_safetensors_close(tern_safetensors *file)
{
    if (!file) return;
    for (uint32_t i = 0; i < file->count; i++) free(file->tensors[i].name);
    free(file->tensors);
    if (file->map) munmap(file->map, file->map_bytes);
    free(file->path);
    free(file);
}

const tern_safetensor *tern_safetensors_find(const tern_safetensors *file, const char *name)
{
    for (uint32_t i = 0; i < file->count; i++)
        if (strcmp(file->tensors[i].name, name) == 0) return &file->tensors[i];
    return NULL;
}

tern_status tern_safetensors_read(const tern_safetensors *file, const tern_safetensor *tensor, float *out,
                                  uint64_t count)
{
    const unsigned char *from = file->data + tensor->offset;
    const tern_dtype_info *info = tern_dtype(tensor->dtype);
    if (!info || !info->is_float)
        return tern_error(TERN_ERROR_FORMAT, "%s: tensor \"%s\" holds integers where floats are needed", file->path,
                          tensor->name);
    if (tern_dtype_bytes(tensor->dtype, count) != tensor->bytes)
        return tern_error(TERN_ERROR_INVALID,
                          "%s: tensor \"%s\" has %llu bytes, but %llu elements of %s were asked for", file->path,
                          tensor->name, (unsigned long long)tensor->bytes, (unsigned long long)count, info->name);
    if (tensor->dtype == TERN_F32) {
        memcpy(out, from, count * sizeof *out);
        return TERN_OK;
    }
    for (uint64_t i = 0; i < count; i++) {
        uint16_t half = (uint16_t)(from[2 * i] | from[2 * i + 1] << 8);
        out[i] = tensor->dtype == TERN_F16 ? tern_f16_to_f32(half) : tern_bf16_to_f32(half);
    }
    return TERN_OK;
}
