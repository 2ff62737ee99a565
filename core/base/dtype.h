/* SPDX-License-Identifier: Apache-2.0 */
/* dtype.h - the element types, as {elements, bytes} per block so that packed types fit later. */
#ifndef TERN_BASE_DTYPE_H
#define TERN_BASE_DTYPE_H

#include "core/tern.h"

typedef struct tern_dtype_info {
    const char *name;  /* "f32", as in safetensors but lower case */
    uint32_t elements; /* per block */
    uint32_t bytes;    /* per block */
    bool is_float;
} tern_dtype_info;

/* NULL for an unknown dtype. */
TERN_API const tern_dtype_info *tern_dtype(int32_t dtype);
/* Bytes of `count` elements, rounded up to whole blocks. */
TERN_API uint64_t tern_dtype_bytes(int32_t dtype, uint64_t count);

/* f16 or bf16: what is only ever stored, arithmetic on it being f32's. */
TERN_API bool tern_dtype_is_16bit_float(int32_t dtype);
/* The f32 value that a 16-bit float dtype holds for `value`; any other dtype: the value itself. */
TERN_API float tern_f32_round_to(float value, int32_t dtype);

/* Round to nearest even; NaN stays NaN. The bit patterns every backend must store. */
TERN_API uint16_t tern_f32_to_f16(float value);
TERN_API float tern_f16_to_f32(uint16_t bits);
TERN_API uint16_t tern_f32_to_bf16(float value);
TERN_API float tern_bf16_to_f32(uint16_t bits);

#endif
