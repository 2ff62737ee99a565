/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors.h - reads and writes the .safetensors file format: named tensors, one JSON header, raw bytes.
 *
 *     u64 header_bytes | header JSON {"name": {"dtype", "shape", "data_offsets": [begin, end]}, ...} | data
 *
 * What it is not: it knows no model and no device. Reading maps the file; nothing is copied until asked for.
 * Invariant: a file that opened has every tensor inside the file, none overlapping another, each as long as its dtype
 * and shape say; a file that is being written has its final name only once it is whole. Source:
 * https://github.com/huggingface/safetensors, "Format". */
#ifndef TERN_FORMATS_SAFETENSORS_H
#define TERN_FORMATS_SAFETENSORS_H

#include "core/base/status.h"

/* A header larger than this is not one (the reference implementation's limit). */
#define TERN_SAFETENSORS_HEADER_MAX 100000000u

typedef struct tern_safetensor {
    char *name;
    int32_t dtype; /* TERN_F32, ... */
    int32_t rank;
    int64_t shape[TERN_MAX_RANK];
    uint64_t offset, bytes; /* from the start of the data part */
} tern_safetensor;

typedef struct tern_safetensors {
    char *path;
    tern_safetensor *tensors; /* in the order of their data */
    uint32_t count;
    const unsigned char *data; /* the mapped data part */
    void *map;
    size_t map_bytes;
} tern_safetensors;

/* Fails naming file, tensor and values: TERN_ERROR_IO when it cannot be read, TERN_ERROR_FORMAT when it is malformed.
 */
TERN_MUST_USE tern_status tern_safetensors_open(const char *path, tern_safetensors **out_file);
void tern_safetensors_close(tern_safetensors *file);
/* How the format spells a dtype ("F32"); NULL for one that it does not have. */
const char *tern_safetensors_dtype_name(int32_t dtype);
/* NULL when absent. */
const tern_safetensor *tern_safetensors_find(const tern_safetensors *file, const char *name);
/* The tensor's elements as f32 (`count` of them, exactly the tensor's); F16 and BF16 are converted, integers refused.
 */
TERN_MUST_USE tern_status tern_safetensors_read(const tern_safetensors *file, const tern_safetensor *tensor, float *out,
                                                uint64_t count);

/* What to write; the writer calls `read` once per tensor, in order, for its bytes. */
typedef struct tern_safetensors_entry {
    const char *name;
    int32_t dtype; /* TERN_F32, ... */
    int32_t rank;
    int64_t shape[TERN_MAX_RANK];
} tern_safetensors_entry;
typedef tern_status (*tern_safetensors_source)(void *context, uint32_t index, void *out, uint64_t bytes);

/* On failure nothing named `path` has changed and no temporary file is left. */
TERN_MUST_USE tern_status tern_safetensors_write(const char *path, const tern_safetensors_entry *entries,
                                                 uint32_t count, tern_safetensors_source read, void *context);

#endif
