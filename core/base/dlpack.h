/* SPDX-License-Identifier: Apache-2.0 */
/* dlpack.h - the binary layout of DLPack's managed tensor, which other libraries hand over their arrays in.
 *
 *     DLManagedTensor ── DLTensor: data + byte_offset, device, dtype, shape, strides (in elements; NULL: compact)
 *                    └── manager_ctx, deleter(self): whoever has the tensor last calls it once
 *
 * What it is not: it is not DLPack's own header, which a program that has it includes instead; struct tags and layout
 * are the same. Not installed.
 * Source: https://github.com/dmlc/dlpack, include/dlpack/dlpack.h, version 0.8 (unversioned struct of 1.0 alike),
 * Apache-2.0. */
#ifndef TERN_BASE_DLPACK_H
#define TERN_BASE_DLPACK_H

#include <stdint.h>

enum { TERN_DL_CPU = 1, TERN_DL_CUDA_HOST = 3 }; /* device types whose data the host reads */
enum { TERN_DL_INT = 0, TERN_DL_UINT = 1, TERN_DL_FLOAT = 2, TERN_DL_BFLOAT = 4 }; /* type codes */

typedef struct DLDevice {
    int32_t device_type;
    int32_t device_id;
} DLDevice;

typedef struct DLDataType {
    uint8_t code, bits;
    uint16_t lanes; /* 1 */
} DLDataType;

typedef struct DLTensor {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} DLTensor;

typedef struct DLManagedTensor {
    DLTensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensor *self);
} DLManagedTensor;

#endif
