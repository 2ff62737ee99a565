/* SPDX-License-Identifier: Apache-2.0 */
/* dtype.c - sizes of the element types, and f16 and bf16 in integer code.
 *
 * The conversions use no hardware instruction and no rounding mode, so that their bits are the same on every machine:
 * they are what a kernel's 16-bit LOAD and STORE must agree with. */
#include "core/base/dtype.h"

#include <string.h>

static const tern_dtype_info dtypes[] = {
    [TERN_F32] = {"f32", 1, 4, true},  [TERN_F16] = {"f16", 1, 2, true}, [TERN_BF16] = {"bf16", 1, 2, true},
    [TERN_I32] = {"i32", 1, 4, false}, [TERN_U8] = {"u8", 1, 1, false},  [TERN_U16] = {"u16", 1, 2, false},
    [TERN_U32] = {"u32", 1, 4, false},
};

const tern_dtype_info *tern_dtype(int32_t dtype)
{
    if (dtype < TERN_F32 || dtype > TERN_U32) return NULL;
    return &dtypes[dtype];
}

uint64_t tern_dtype_bytes(int32_t dtype, uint64_t count)
{
    const tern_dtype_info *info = tern_dtype(dtype);
    if (!info) return 0;
    return (count / info->elements + (count % info->elements != 0)) * info->bytes;
}

bool tern_dtype_is_16bit_float(int32_t dtype) { return dtype == TERN_F16 || dtype == TERN_BF16; }

float tern_f32_round_to(float value, int32_t dtype)
{
    if (dtype == TERN_F16) return tern_f16_to_f32(tern_f32_to_f16(value));
    if (dtype == TERN_BF16) return tern_bf16_to_f32(tern_f32_to_bf16(value));
    return value;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* value >> shift, rounded to nearest, ties to even. 1 <= shift <= 31. */
static uint32_t shift_round_even(uint32_t value, uint32_t shift)
{
    uint32_t half = 1u << (shift - 1), kept = value >> shift, rest = value & ((1u << shift) - 1);
    return kept + (rest > half || (rest == half && (kept & 1)));
}

uint16_t tern_f32_to_f16(float value)
{
    uint32_t bits = bits_of(value), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) /* NaN: keep the payload's top bits, made quiet so that it cannot become infinity */
        return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x1ffu));
    if (magnitude >= 0x47800000u) return (uint16_t)(sign | 0x7c00u); /* >= 2^16 */
    if (magnitude >=
        0x38800000u) /* normal, >= 2^-14; rounding may carry into the exponent, up to infinity: as it must */
        return (uint16_t)(sign | shift_round_even(magnitude - (112u << 23), 13));
    if (magnitude < 0x33000000u) return (uint16_t)sign; /* < 2^-25, below half the smallest subnormal */
    uint32_t exponent = magnitude >> 23, mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    return (uint16_t)(sign | shift_round_even(mantissa, 126u - exponent)); /* units of 2^-24; shift 14 .. 24 */
}

float tern_f16_to_f32(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000u) << 16, exponent = bits >> 10 & 0x1fu, mantissa = bits & 0x3ffu;
    if (exponent == 31) return float_of(sign | 0x7f800000u | mantissa << 13);
    if (exponent) return float_of(sign | (exponent + 112u) << 23 | mantissa << 13);
    float magnitude = (float)mantissa * 0x1p-24f; /* exact: a normal f32 */
    return sign ? -magnitude : magnitude;
}

uint16_t tern_f32_to_bf16(float value)
{
    uint32_t bits = bits_of(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40u); /* NaN, made quiet */
    return (uint16_t)shift_round_even(bits, 16); /* carries into the exponent, up to infinity */
}

float tern_bf16_to_f32(uint16_t bits) { return float_of((uint32_t)bits << 16); }
