/* SPDX-License-Identifier: Apache-2.0 */
/* build_map.c - the elementwise builders: dtype rules, NumPy broadcasting, and the few foldings that save the fuser
 * work. Casts and 16-bit floats: promote.c.
 *
 * Broadcasting is never part of an op: a smaller operand goes through RESHAPE (ones in front) and EXPAND, so that its
 * gradient exists once, in EXPAND's rule. Invariant: a MAP node's inputs have exactly its shape. */
#include "core/base/dtype.h"
#include "core/graph/build.h"

#include <string.h>

enum { TYPE_F32 = 1, TYPE_I32 = 2, TYPE_U32 = 4 };

static int32_t type_bit(int32_t dtype)
{
    return dtype == TERN_F32 ? TYPE_F32 : dtype == TERN_I32 ? TYPE_I32 : dtype == TERN_U32 ? TYPE_U32 : 0;
}

static const char *type_words(int32_t allowed)
{
    switch (allowed) {
    case TYPE_F32: return "f32";
    case TYPE_U32: return "u32";
    default: return "f32, i32 or u32";
    }
}

static bool dtype_allowed(tern_op op, const tern_tensor *x, int32_t allowed)
{
    if (type_bit(x->dtype) & allowed) return true;
    tern_graph_fail(x->graph, TERN_ERROR_INVALID, "%s: %s must be %s; cast it first", tern_ops[op].name,
                    tern_describe(x).text, type_words(allowed));
    return false;
}

/* ------------------------------------------------------------ one operand */

static tern_tensor *unary(tern_op op, tern_tensor *x)
{
    tern_tensor *instead;
    if (!tern_build_ready(tern_ops[op].name, 1, &x, &instead)) return instead;
    const int32_t dtype = tern_widen_all(1, &x);
    if (!dtype_allowed(op, x, TYPE_F32)) return x->graph->inert;
    return tern_narrow(tern_graph_node(x->graph, op, TERN_F32, x->rank, x->shape, 1, &x, NULL), dtype);
}

tern_tensor *tern_neg(tern_tensor *x) { return unary(TERN_OP_NEG, x); }
tern_tensor *tern_abs(tern_tensor *x) { return unary(TERN_OP_ABS, x); }
tern_tensor *tern_exp(tern_tensor *x) { return unary(TERN_OP_EXP, x); }
tern_tensor *tern_log(tern_tensor *x) { return unary(TERN_OP_LOG, x); }
tern_tensor *tern_sqrt(tern_tensor *x) { return unary(TERN_OP_SQRT, x); }
tern_tensor *tern_rsqrt(tern_tensor *x) { return unary(TERN_OP_RSQRT, x); }
tern_tensor *tern_recip(tern_tensor *x) { return unary(TERN_OP_RECIP, x); }
tern_tensor *tern_tanh(tern_tensor *x) { return unary(TERN_OP_TANH, x); }
tern_tensor *tern_erf(tern_tensor *x) { return unary(TERN_OP_ERF, x); }
tern_tensor *tern_sin(tern_tensor *x) { return unary(TERN_OP_SIN, x); }
tern_tensor *tern_cos(tern_tensor *x) { return unary(TERN_OP_COS, x); }
tern_tensor *tern_floor(tern_tensor *x) { return unary(TERN_OP_FLOOR, x); }

tern_tensor *tern_detach(tern_tensor *x)
{
    tern_tensor *instead;
    if (!tern_build_ready("detach", 1, &x, &instead)) return instead;
    if (x->op == TERN_OP_DETACH || tern_ops[x->op].has_gradient == 0) return x; /* no gradient passes x itself */
    return tern_graph_node(x->graph, TERN_OP_DETACH, x->dtype, x->rank, x->shape, 1, &x, NULL);
}

tern_tensor *tern_bitcast(tern_tensor *x, int32_t dtype)
{
    tern_tensor *instead;
    if (!tern_build_ready("bitcast", 1, &x, &instead)) return instead;
    if (x->dtype == dtype) return x;
    if (!type_bit(x->dtype) || !type_bit(dtype))
        return tern_graph_fail(x->graph, TERN_ERROR_INVALID, "bitcast: %s to %s; both must be f32, i32 or u32",
                               tern_describe(x).text, tern_dtype_name(dtype));
    return tern_graph_node(x->graph, TERN_OP_BITCAST, dtype, x->rank, x->shape, 1, &x, NULL);
}

/* ---------------------------------------------------------- two and three */

/* Merges x's shape into the common one by NumPy's rule: aligned at the end, sizes equal or 1. */
static bool merge_shape(int32_t *rank, int64_t *shape, const tern_tensor *x)
{
    int64_t merged[TERN_MAX_RANK];
    int32_t out = *rank > x->rank ? *rank : x->rank;
    for (int32_t i = 0; i < out; i++) {
        int32_t ia = i - (out - *rank), ib = i - (out - x->rank);
        int64_t a = ia >= 0 ? shape[ia] : 1, b = ib >= 0 ? x->shape[ib] : 1;
        if (a != b && a != 1 && b != 1) return false;
        merged[i] = a > b ? a : b;
    }
    memcpy(shape, merged, (size_t)out * sizeof *shape);
    *rank = out;
    return true;
}

/* Brings all operands to one shape; false after recording which two do not fit. */
static bool broadcast(tern_op op, int32_t count, tern_tensor **in)
{
    int32_t rank = in[0]->rank;
    int64_t shape[TERN_MAX_RANK];
    memcpy(shape, in[0]->shape, sizeof shape);
    for (int32_t i = 1; i < count; i++) {
        if (merge_shape(&rank, shape, in[i])) continue;
        int32_t with = i == 2 && tern_same_shape(in[0], in[2]) ? 1 : i - 1;
        tern_graph_fail(in[0]->graph, TERN_ERROR_INVALID,
                        "%s: shapes do not broadcast: %s and %s; sizes must be equal or 1, counted "
                        "from the last axis",
                        tern_ops[op].name, tern_describe(in[with]).text, tern_describe(in[i]).text);
        return false;
    }
    for (int32_t i = 0; i < count; i++) in[i] = tern_expand(in[i], rank, shape);
    return in[0]->graph->status >= 0;
}

static bool same_dtype(tern_op op, const tern_tensor *a, const tern_tensor *b)
{
    if (a->dtype == b->dtype) return true;
    tern_graph_fail(a->graph, TERN_ERROR_INVALID, "%s: dtypes differ: %s and %s; cast one of them", tern_ops[op].name,
                    tern_describe(a).text, tern_describe(b).text);
    return false;
}

static bool is_one(const tern_tensor *x)
{
    uint32_t bits;
    return tern_constant_bits(x, &bits) && bits == (x->dtype == TERN_F32 ? 0x3f800000u : 1u);
}

/* x * 1, 1 * x and x / 1 are x, bit for bit. */
static tern_tensor *fold(tern_op op, tern_tensor *a, tern_tensor *b)
{
    if ((op == TERN_OP_MUL || op == TERN_OP_DIV) && is_one(b)) return a;
    if (op == TERN_OP_MUL && is_one(a)) return b;
    return NULL;
}

static tern_tensor *binary(tern_op op, tern_tensor *a, tern_tensor *b, int32_t allowed, bool compares)
{
    tern_tensor *in[2] = {a, b}, *instead;
    if (!tern_build_ready(tern_ops[op].name, 2, in, &instead)) return instead;
    tern_graph *graph = a->graph;
    const int32_t dtype = tern_widen_all(2, in);
    if (!dtype_allowed(op, in[0], allowed) || !dtype_allowed(op, in[1], allowed) || !same_dtype(op, in[0], in[1]) ||
        !broadcast(op, 2, in))
        return graph->inert;
    tern_tensor *y = fold(op, in[0], in[1]);
    if (!y) y = tern_graph_node(graph, op, compares ? TERN_U32 : in[0]->dtype, in[0]->rank, in[0]->shape, 2, in, NULL);
    return tern_narrow(y, dtype);
}

#define TYPE_ANY (TYPE_F32 | TYPE_I32 | TYPE_U32)

tern_tensor *tern_add(tern_tensor *a, tern_tensor *b) { return binary(TERN_OP_ADD, a, b, TYPE_ANY, false); }
tern_tensor *tern_sub(tern_tensor *a, tern_tensor *b) { return binary(TERN_OP_SUB, a, b, TYPE_ANY, false); }
tern_tensor *tern_mul(tern_tensor *a, tern_tensor *b) { return binary(TERN_OP_MUL, a, b, TYPE_ANY, false); }
tern_tensor *tern_div(tern_tensor *a, tern_tensor *b) { return binary(TERN_OP_DIV, a, b, TYPE_F32, false); }
tern_tensor *tern_max(tern_tensor *a, tern_tensor *b) { return binary(TERN_OP_MAX, a, b, TYPE_ANY, false); }
tern_tensor *tern_min(tern_tensor *a, tern_tensor *b) { return binary(TERN_OP_MIN, a, b, TYPE_ANY, false); }
tern_tensor *tern_less(tern_tensor *a, tern_tensor *b) { return binary(TERN_OP_LESS, a, b, TYPE_ANY, true); }
tern_tensor *tern_equal(tern_tensor *a, tern_tensor *b) { return binary(TERN_OP_EQUAL, a, b, TYPE_ANY, true); }
tern_tensor *tern_and(tern_tensor *a, tern_tensor *b) { return binary(TERN_OP_AND, a, b, TYPE_U32, false); }
tern_tensor *tern_or(tern_tensor *a, tern_tensor *b) { return binary(TERN_OP_OR, a, b, TYPE_U32, false); }
tern_tensor *tern_xor(tern_tensor *a, tern_tensor *b) { return binary(TERN_OP_XOR, a, b, TYPE_U32, false); }
tern_tensor *tern_shift_left(tern_tensor *a, tern_tensor *b)
{
    return binary(TERN_OP_SHIFT_LEFT, a, b, TYPE_U32, false);
}
tern_tensor *tern_shift_right(tern_tensor *a, tern_tensor *b)
{
    return binary(TERN_OP_SHIFT_RIGHT, a, b, TYPE_U32, false);
}
tern_tensor *tern_multiply_high(tern_tensor *a, tern_tensor *b)
{
    return binary(TERN_OP_MULTIPLY_HIGH, a, b, TYPE_U32, false);
}

tern_tensor *tern_where(tern_tensor *condition, tern_tensor *a, tern_tensor *b)
{
    tern_tensor *in[3] = {condition, a, b}, *instead;
    if (!tern_build_ready("where", 3, in, &instead)) return instead;
    tern_graph *graph = condition->graph;
    const int32_t dtype = tern_widen_all(2, in + 1);
    if (!dtype_allowed(TERN_OP_WHERE, condition, TYPE_U32) || !dtype_allowed(TERN_OP_WHERE, in[1], TYPE_ANY) ||
        !same_dtype(TERN_OP_WHERE, in[1], in[2]) || !broadcast(TERN_OP_WHERE, 3, in))
        return graph->inert;
    return tern_narrow(tern_graph_node(graph, TERN_OP_WHERE, in[1]->dtype, in[0]->rank, in[0]->shape, 3, in, NULL),
                       dtype);
}
