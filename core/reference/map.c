/* SPDX-License-Identifier: Apache-2.0 */
/* map.c - the elementwise ops, one element at a time.
 *
 * u32 and i32 arithmetic wraps exactly: it is done in uint32_t, in which two's complement agrees for add, sub and mul.
 */
#include "core/base/dtype.h"
#include "core/base/philox.h"
#include "core/reference/ops.h"

#include <math.h>
#include <string.h>

uint32_t tern_reference_to_bits(double value, int32_t dtype)
{
    uint32_t bits;
    if (dtype == TERN_F32) {
        float rounded = (float)value;
        memcpy(&bits, &rounded, sizeof bits);
        return bits;
    }
    return (uint32_t)(int64_t)value;
}

double tern_reference_from_bits(uint32_t bits, int32_t dtype)
{
    if (dtype == TERN_F32) {
        float value;
        memcpy(&value, &bits, sizeof value);
        return (double)value;
    }
    if (dtype == TERN_I32) return bits <= INT32_MAX ? (double)bits : (double)bits - 4294967296.0;
    return (double)bits;
}

double tern_reference_round(double value, int32_t dtype)
{
    return tern_dtype_is_16bit_float(dtype) ? (double)tern_f32_round_to((float)value, dtype) : value;
}

/* Toward zero; what does not fit is unspecified by the op, here the nearest that does (NaN: 0). */
static double to_integer(double value, int32_t dtype)
{
    double low = dtype == TERN_I32 ? -2147483648.0 : 0, high = dtype == TERN_I32 ? 2147483647.0 : 4294967295.0;
    if (value != value) return 0;
    value = trunc(value);
    return value < low ? low : value > high ? high : value;
}

static double cast(const tern_reference_call *call, double a)
{
    const int32_t from = call->node->in[0]->dtype, to = call->node->dtype;
    if (to == TERN_F32 || (call->exact && tern_dtype_is_16bit_float(to))) return a;
    if (tern_dtype_is_16bit_float(to)) return tern_reference_round(a, to);
    if (to == TERN_U8 || to == TERN_U16) /* from u32: the low bits */
        return (double)((uint32_t)(int64_t)a & (to == TERN_U8 ? 0xffu : 0xffffu));
    return from == TERN_I32 || from == TERN_U32 ? tern_reference_from_bits(tern_reference_to_bits(a, from), to)
                                                : to_integer(a, to);
}

static double unary(const tern_reference_call *call, double a)
{
    const tern_tensor *y = call->node;
    switch (y->op) {
    case TERN_OP_NEG: return -a;
    case TERN_OP_ABS: return fabs(a);
    case TERN_OP_EXP: return exp(a);
    case TERN_OP_LOG: return log(a);
    case TERN_OP_SQRT: return sqrt(a);
    case TERN_OP_RSQRT: return 1 / sqrt(a);
    case TERN_OP_RECIP: return 1 / a;
    case TERN_OP_TANH: return tanh(a);
    case TERN_OP_ERF: return erf(a);
    case TERN_OP_SIN: return sin(a);
    case TERN_OP_COS: return cos(a);
    case TERN_OP_FLOOR: return floor(a);
    case TERN_OP_CAST: return cast(call, a);
    case TERN_OP_BITCAST: return tern_reference_from_bits(tern_reference_to_bits(a, y->in[0]->dtype), y->dtype);
    default: return a; /* DETACH */
    }
}

static double binary_float(tern_op op, double a, double b)
{
    switch (op) {
    case TERN_OP_ADD: return a + b;
    case TERN_OP_SUB: return a - b;
    case TERN_OP_MUL: return a * b;
    case TERN_OP_DIV: return a / b;
    case TERN_OP_MAX: return a > b || a != a ? a : b;
    default: return a < b || a != a ? a : b; /* MIN */
    }
}

static uint32_t binary_integer(tern_op op, uint32_t a, uint32_t b, bool is_signed)
{
    /* Flipping the sign bit makes signed order unsigned order. */
    uint32_t flip = is_signed ? 0x80000000u : 0;
    switch (op) {
    case TERN_OP_ADD: return a + b;
    case TERN_OP_SUB: return a - b;
    case TERN_OP_MUL: return a * b;
    case TERN_OP_MAX: return (a ^ flip) > (b ^ flip) ? a : b;
    case TERN_OP_MIN: return (a ^ flip) < (b ^ flip) ? a : b;
    case TERN_OP_AND: return a & b;
    case TERN_OP_OR: return a | b;
    case TERN_OP_XOR: return a ^ b;
    case TERN_OP_SHIFT_LEFT: return b < 32 ? a << b : 0;
    case TERN_OP_SHIFT_RIGHT: return b < 32 ? a >> b : 0;
    default: return (uint32_t)(((uint64_t)a * b) >> 32); /* MULTIPLY_HIGH */
    }
}

static double binary(const tern_tensor *y, double a, double b)
{
    int32_t dtype = y->in[0]->dtype;
    if (y->op == TERN_OP_LESS) return a < b;
    if (y->op == TERN_OP_EQUAL) return a == b;
    if (dtype == TERN_F32) return binary_float(y->op, a, b);
    uint32_t bits =
        binary_integer(y->op, tern_reference_to_bits(a, dtype), tern_reference_to_bits(b, dtype), dtype == TERN_I32);
    return tern_reference_from_bits(bits, dtype);
}

/* base/philox.h: element e = sample_base * per_example + index of the whole window, 64 bits. */
static void random_bits(const tern_reference_call *call, int64_t count)
{
    const double *control = call->in[0];
    const uint32_t key[2] = {(uint32_t)control[TERN_CONTROL_KEY0], (uint32_t)control[TERN_CONTROL_KEY1]};
    uint64_t base = (uint64_t)control[TERN_CONTROL_SAMPLE_BASE] * call->node->at.random.per_example;
    for (int64_t i = 0; i < count; i++) {
        uint64_t e = base + (uint64_t)i;
        uint32_t out[4], counter[4] = {(uint32_t)e, (uint32_t)(e >> 32), call->node->at.random.label_hash, 0};
        tern_philox(counter, key, out);
        call->out[i] = (double)out[0];
    }
}

void tern_reference_map(const tern_reference_call *call)
{
    const tern_tensor *y = call->node;
    int64_t count = tern_count(y);
    if (y->op == TERN_OP_RANDOM) {
        random_bits(call, count);
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        const double *const *in = call->in;
        if (y->in_count == 1)
            call->out[i] = unary(call, in[0][i]);
        else if (y->in_count == 2)
            call->out[i] = binary(y, in[0][i], in[1][i]);
        else
            call->out[i] = in[0][i] != 0 ? in[1][i] : in[2][i]; /* WHERE */
    }
}
