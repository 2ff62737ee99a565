/* SPDX-License-Identifier: Apache-2.0 */
/* promote.c - 16-bit floats among the builders: casts, and the rule by which ops take and give them.
 *
 *     f16 ──┐                                            every float operand f16   ──> the result is CAST to f16
 *     f16 ──┴─ CAST to f32 ── the op, in f32 ── y (f32) ─┤
 *                                                        any of them f32, or bf16  ──> y stays f32
 *
 * f16 and bf16 are storage: a primitive that computes takes and gives f32, so that no op, rule or kernel has a case per
 * dtype, and a composite widens once at its entry and rounds once at its end. Constants have no dtype of their own
 * here: x * 0.5 has x's.
 *
 * CAST nodes are single steps: f32 to or from a 16-bit float, u32 to or from u8 and u16, and between f32, i32 and u32.
 * What lies further apart is several of them, with at most one rounding. Invariant: no value is rounded to the dtype it
 * already comes from: narrowing what was widened, views in between included, gives the tensor from before. */
#include "core/base/dtype.h"
#include "core/graph/build.h"

#define FOLDED_VIEWS 16 /* between a widening and the narrowing that undoes it */

bool tern_is_widening(const tern_tensor *x)
{
    return x->op == TERN_OP_CAST && x->dtype == TERN_F32 && tern_dtype_is_16bit_float(x->in[0]->dtype);
}

bool tern_is_narrowing(const tern_tensor *x) { return x->op == TERN_OP_CAST && tern_dtype_is_16bit_float(x->dtype); }

bool tern_is_view(const tern_tensor *x) { return tern_ops[x->op].kind == TERN_KIND_VIEW && x->op != TERN_OP_SECOND; }

tern_tensor *tern_view_again(const tern_tensor *view, tern_tensor *x)
{
    tern_tensor *y = tern_graph_node(x->graph, view->op, x->dtype, view->rank, view->shape, 1, &x, NULL);
    if (y != x->graph->inert) y->at = view->at;
    return y;
}

/* The tensor of this dtype whose widening x is, with x's views applied to it; NULL: there is none. */
static tern_tensor *before_widening(tern_tensor *x, int32_t dtype)
{
    tern_tensor *views[FOLDED_VIEWS];
    int32_t count = 0;
    for (; tern_is_view(x) && count < FOLDED_VIEWS; x = x->in[0]) views[count++] = x;
    if (!tern_is_widening(x) || x->in[0]->dtype != dtype) return NULL;
    x = x->in[0];
    while (count > 0) x = tern_view_again(views[--count], x);
    return x;
}

/* The dtype of the next step from one dtype to another. */
static int32_t next_dtype(int32_t from, int32_t to)
{
    const bool narrow_integer = to == TERN_U8 || to == TERN_U16;
    if (tern_dtype_is_16bit_float(from) || (tern_dtype_is_16bit_float(to) && from != TERN_F32)) return TERN_F32;
    return narrow_integer && from != TERN_U32 ? TERN_U32 : to;
}

tern_tensor *tern_cast(tern_tensor *x, int32_t dtype)
{
    tern_tensor *instead;
    if (!tern_build_ready("cast", 1, &x, &instead)) return instead;
    if (!tern_dtype(dtype))
        return tern_graph_fail(x->graph, TERN_ERROR_INVALID, "cast: %s to %d, which is no dtype; use a TERN_ constant",
                               tern_describe(x).text, dtype);
    while (x->dtype != dtype && x->graph->status >= 0) {
        const int32_t next = next_dtype(x->dtype, dtype);
        tern_tensor *before = tern_dtype_is_16bit_float(next) ? before_widening(x, next) : NULL;
        x = before ? before : tern_graph_node(x->graph, TERN_OP_CAST, next, x->rank, x->shape, 1, &x, NULL);
    }
    return x;
}

tern_tensor *tern_widen(tern_tensor *x) { return tern_dtype_is_16bit_float(x->dtype) ? tern_cast(x, TERN_F32) : x; }

int32_t tern_widen_all(int32_t count, tern_tensor **in)
{
    int32_t common = 0; /* none seen yet */
    for (int32_t i = 0; i < count; i++) {
        uint32_t bits;
        if (!in[i] || !tern_dtype(in[i]->dtype)->is_float || tern_constant_bits(in[i], &bits)) continue;
        common = common && common != in[i]->dtype ? TERN_F32 : in[i]->dtype;
        in[i] = tern_widen(in[i]);
    }
    return common ? common : TERN_F32;
}

tern_tensor *tern_narrow(tern_tensor *y, int32_t dtype)
{
    return y && y->dtype == TERN_F32 && tern_dtype_is_16bit_float(dtype) ? tern_cast(y, dtype) : y;
}

tern_tensor *tern_keep_f32(tern_tensor *x)
{
    tern_tensor *instead;
    if (!tern_build_ready("keep_f32", 1, &x, &instead)) return instead;
    x->keep_f32 = true;
    return x;
}
