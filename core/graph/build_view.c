/* SPDX-License-Identifier: Apache-2.0 */
/* build_view.c - movement and reductions: builders that change coordinates or drop axes.
 *
 * Views of views of one kind are one view, and a view that changes nothing is its operand, so that the fuser sees few
 * nodes. Concatenation is the sum of zero-padded pieces: exact, except that -0 becomes +0. */
#include "core/graph/build.h"

#include <string.h>

/* -------------------------------------------------------- reshape and expand */

/* Replaces one -1 by what is left over. */
static bool resolve_shape(tern_tensor *x, int32_t rank, const int64_t *shape, int64_t *out_shape)
{
    int64_t known = 1, count = tern_count(x);
    int32_t open = -1;
    for (int32_t i = 0; i < rank; i++) {
        out_shape[i] = shape[i];
        if (shape[i] == -1 && open < 0) {
            open = i;
        } else if (shape[i] < 1 || shape[i] > count / known) {
            known = 0;
            break;
        } else {
            known *= shape[i];
        }
    }
    if (open >= 0 && known) out_shape[open] = count / known;
    if (known && (open >= 0 ? count % known == 0 : known == count)) return true;
    tern_graph_fail(x->graph, TERN_ERROR_INVALID,
                    "reshape: %s has %lld elements, which do not make the shape %s (one size may be -1)",
                    tern_describe(x).text, (long long)count, tern_describe_shape(rank, shape).text);
    return false;
}

static bool rank_allowed(const char *op, tern_tensor *x, int32_t rank, const int64_t *shape)
{
    if (rank >= 0 && rank <= TERN_MAX_RANK && (rank == 0 || shape)) return true;
    tern_graph_fail(x->graph, TERN_ERROR_INVALID, "%s: %s to rank %d; ranks are 0 .. %d and the shape must be given",
                    op, tern_describe(x).text, rank, TERN_MAX_RANK);
    return false;
}

tern_tensor *tern_reshape(tern_tensor *x, int32_t rank, const int64_t *shape)
{
    tern_tensor *instead;
    int64_t target[TERN_MAX_RANK];
    if (!tern_build_ready("reshape", 1, &x, &instead)) return instead;
    if (!rank_allowed("reshape", x, rank, shape) || !resolve_shape(x, rank, shape, target)) return x->graph->inert;
    if (tern_has_shape(x, rank, target)) return x;
    tern_tensor *weight = x->weight;
    while (x->op == TERN_OP_RESHAPE) x = x->in[0];
    if (tern_has_shape(x, rank, target)) return x; /* back to where it came from, its own weight with it */
    tern_tensor *y = tern_graph_node(x->graph, TERN_OP_RESHAPE, x->dtype, rank, target, 1, &x, NULL);
    /* A loss keeps its ignore mask through a change of shape. */
    if (weight && y != x->graph->inert) y->weight = tern_reshape(weight, rank, target);
    return y;
}

tern_tensor *tern_expand(tern_tensor *x, int32_t rank, const int64_t *shape)
{
    tern_tensor *instead;
    if (!tern_build_ready("expand", 1, &x, &instead)) return instead;
    if (!rank_allowed("expand", x, rank, shape)) return x->graph->inert;
    int64_t front[TERN_MAX_RANK];
    bool fits = rank >= x->rank;
    for (int32_t i = 0; fits && i < rank; i++) {
        int32_t from = i - (rank - x->rank);
        front[i] = from >= 0 ? x->shape[from] : 1;
        fits = front[i] == shape[i] || front[i] == 1;
    }
    if (!fits)
        return tern_graph_fail(x->graph, TERN_ERROR_INVALID,
                               "expand: %s does not broadcast to %s; sizes must be equal or 1, counted from "
                               "the last axis",
                               tern_describe(x).text, tern_describe_shape(rank, shape).text);
    x = tern_reshape(x, rank, front);
    if (x->graph->status < 0 || tern_has_shape(x, rank, shape)) return x;
    if (x->op == TERN_OP_EXPAND) x = x->in[0];
    return tern_graph_node(x->graph, TERN_OP_EXPAND, x->dtype, rank, shape, 1, &x, NULL);
}

tern_tensor *tern_expand_like(tern_tensor *x, const tern_tensor *like)
{
    return tern_expand(x, like->rank, like->shape);
}

/* --------------------------------------------------------------- permutation */

tern_tensor *tern_permute(tern_tensor *x, const int32_t *axes)
{
    tern_tensor *instead;
    if (!tern_build_ready("permute", 1, &x, &instead)) return instead;
    int64_t shape[TERN_MAX_RANK];
    int32_t resolved[TERN_MAX_RANK];
    uint32_t seen = 0;
    bool identity = true;
    for (int32_t i = 0; i < x->rank; i++) {
        if (!axes || !tern_build_axis("permute", x, axes[i], &resolved[i]))
            return tern_graph_fail(x->graph, TERN_ERROR_INVALID, "permute: %s needs an array of axes",
                                   tern_describe(x).text);
        seen |= 1u << resolved[i];
        shape[i] = x->shape[resolved[i]];
        identity = identity && resolved[i] == i;
    }
    if (seen != (1u << x->rank) - 1u)
        return tern_graph_fail(x->graph, TERN_ERROR_INVALID, "permute: an axis of %s is named twice",
                               tern_describe(x).text);
    if (identity) return x;
    if (x->op == TERN_OP_PERMUTE) { /* R axis i is middle axis resolved[i] is base axis inner[resolved[i]] */
        int32_t base_axes[TERN_MAX_RANK];
        for (int32_t i = 0; i < x->rank; i++) base_axes[i] = x->at.permute.axes[resolved[i]];
        return tern_permute(x->in[0], base_axes);
    }
    tern_tensor *y = tern_graph_node(x->graph, TERN_OP_PERMUTE, x->dtype, x->rank, shape, 1, &x, NULL);
    if (y != x->graph->inert) memcpy(y->at.permute.axes, resolved, sizeof resolved[0] * (size_t)x->rank);
    return y;
}

tern_tensor *tern_transpose(tern_tensor *x, int32_t axis_a, int32_t axis_b)
{
    tern_tensor *instead;
    if (!tern_build_ready("transpose", 1, &x, &instead)) return instead;
    int32_t a, b, axes[TERN_MAX_RANK];
    if (!tern_build_axis("transpose", x, axis_a, &a) || !tern_build_axis("transpose", x, axis_b, &b))
        return x->graph->inert;
    for (int32_t i = 0; i < x->rank; i++) axes[i] = i == a ? b : i == b ? a : i;
    return tern_permute(x, axes);
}

/* ------------------------------------------------------ slice, pad and concat */

tern_tensor *tern_slice_all(tern_tensor *x, const int64_t *starts, const int64_t *shape)
{
    tern_tensor *instead;
    if (!tern_build_ready("slice", 1, &x, &instead)) return instead;
    bool whole = true;
    for (int32_t i = 0; i < x->rank; i++) {
        if (starts[i] < 0 || shape[i] < 1 || shape[i] > x->shape[i] - starts[i])
            return tern_graph_fail(x->graph, TERN_ERROR_INVALID, "slice: [%lld, %lld) of axis %d is outside %s",
                                   (long long)starts[i], (long long)(starts[i] + shape[i]), i, tern_describe(x).text);
        whole = whole && shape[i] == x->shape[i];
    }
    if (whole) return x;
    tern_tensor *y = tern_graph_node(x->graph, TERN_OP_SLICE, x->dtype, x->rank, shape, 1, &x, NULL);
    if (y != x->graph->inert) memcpy(y->at.slice.starts, starts, sizeof *starts * (size_t)x->rank);
    return y;
}

tern_tensor *tern_slice(tern_tensor *x, int32_t axis, int64_t start, int64_t length)
{
    tern_tensor *instead;
    if (!tern_build_ready("slice", 1, &x, &instead)) return instead;
    int64_t starts[TERN_MAX_RANK] = {0}, shape[TERN_MAX_RANK];
    if (!tern_build_axis("slice", x, axis, &axis)) return x->graph->inert;
    memcpy(shape, x->shape, sizeof shape);
    starts[axis] = start;
    shape[axis] = length;
    return tern_slice_all(x, starts, shape);
}

tern_tensor *tern_pad_all(tern_tensor *x, const int64_t *before, const int64_t *after)
{
    tern_tensor *instead;
    if (!tern_build_ready("pad", 1, &x, &instead)) return instead;
    int64_t shape[TERN_MAX_RANK];
    bool nothing = true;
    for (int32_t i = 0; i < x->rank; i++) {
        if (before[i] < 0 || after[i] < 0 || before[i] > INT32_MAX || after[i] > INT32_MAX)
            return tern_graph_fail(x->graph, TERN_ERROR_INVALID,
                                   "pad: %lld before and %lld after axis %d of %s; both must be 0 .. 2^31 - 1",
                                   (long long)before[i], (long long)after[i], i, tern_describe(x).text);
        shape[i] = before[i] + x->shape[i] + after[i];
        nothing = nothing && before[i] == 0 && after[i] == 0;
    }
    if (nothing) return x;
    tern_tensor *y = tern_graph_node(x->graph, TERN_OP_PAD, x->dtype, x->rank, shape, 1, &x, NULL);
    if (y == x->graph->inert) return y;
    memcpy(y->at.pad.before, before, sizeof *before * (size_t)x->rank);
    memcpy(y->at.pad.after, after, sizeof *after * (size_t)x->rank);
    return y;
}

tern_tensor *tern_pad(tern_tensor *x, int32_t axis, int64_t before, int64_t after)
{
    tern_tensor *instead;
    if (!tern_build_ready("pad", 1, &x, &instead)) return instead;
    int64_t all_before[TERN_MAX_RANK] = {0}, all_after[TERN_MAX_RANK] = {0};
    if (!tern_build_axis("pad", x, axis, &axis)) return x->graph->inert;
    all_before[axis] = before;
    all_after[axis] = after;
    return tern_pad_all(x, all_before, all_after);
}

tern_tensor *tern_concat(tern_tensor *const *xs, int32_t count, int32_t axis)
{
    tern_tensor *instead;
    if (!xs || count < 1) {
        tern_error(TERN_ERROR_INVALID, "concat: %d tensors; give at least one", count);
        return NULL;
    }
    if (!tern_build_ready("concat", count, xs, &instead)) return instead;
    tern_graph *graph = xs[0]->graph;
    int64_t total = 0, before = 0;
    if (!tern_build_axis("concat", xs[0], axis, &axis)) return graph->inert;
    for (int32_t i = 0; i < count; i++) {
        bool fits = xs[i]->rank == xs[0]->rank && xs[i]->dtype == xs[0]->dtype;
        for (int32_t d = 0; fits && d < xs[0]->rank; d++) fits = d == axis || xs[i]->shape[d] == xs[0]->shape[d];
        if (!fits)
            return tern_graph_fail(graph, TERN_ERROR_INVALID, "concat: %s and %s differ outside axis %d",
                                   tern_describe(xs[0]).text, tern_describe(xs[i]).text, axis);
        total += xs[i]->shape[axis];
    }
    tern_tensor *y = NULL;
    for (int32_t i = 0; i < count; i++) {
        int64_t size = xs[i]->shape[axis];
        tern_tensor *piece = tern_pad(tern_widen(xs[i]), axis, before, total - before - size);
        y = y ? tern_add(y, piece) : piece;
        before += size;
    }
    return tern_narrow(y, xs[0]->dtype);
}

/* ---------------------------------------------------------------- reductions */

static tern_tensor *reduce(tern_op op, tern_tensor *x, uint32_t axes)
{
    tern_tensor *instead;
    const char *name = tern_ops[op].name;
    if (!tern_build_ready(name, 1, &x, &instead)) return instead;
    const int32_t dtype = tern_widen_all(1, &x);
    if (x->dtype != TERN_F32)
        return tern_graph_fail(x->graph, TERN_ERROR_INVALID, "%s: %s must be f32; cast it first", name,
                               tern_describe(x).text);
    if (axes >> x->rank)
        return tern_graph_fail(x->graph, TERN_ERROR_INVALID, "%s: axes mask %#x names an axis that %s does not have",
                               name, axes, tern_describe(x).text);
    int64_t shape[TERN_MAX_RANK];
    for (int32_t i = 0; i < x->rank; i++) {
        if (x->shape[i] == 1) axes &= ~(1u << i); /* nothing to reduce there */
        shape[i] = axes >> i & 1u ? 1 : x->shape[i];
    }
    if (!axes) return tern_narrow(x, dtype);
    tern_tensor *y = tern_graph_node(x->graph, op, TERN_F32, x->rank, shape, 1, &x, NULL);
    if (y != x->graph->inert) y->at.reduce.axes = axes;
    return tern_narrow(y, dtype);
}

static tern_tensor *reduce_axis(tern_op op, tern_tensor *x, int32_t axis)
{
    tern_tensor *instead;
    if (!tern_build_ready(tern_ops[op].name, 1, &x, &instead)) return instead;
    if (!tern_build_axis(tern_ops[op].name, x, axis, &axis)) return x->graph->inert;
    return reduce(op, x, 1u << axis);
}

tern_tensor *tern_sum(tern_tensor *x, int32_t axis) { return reduce_axis(TERN_OP_SUM, x, axis); }
tern_tensor *tern_maximum(tern_tensor *x, int32_t axis) { return reduce_axis(TERN_OP_MAXIMUM, x, axis); }
tern_tensor *tern_reduce_sum(tern_tensor *x, uint32_t axes_mask) { return reduce(TERN_OP_SUM, x, axes_mask); }
tern_tensor *tern_reduce_max(tern_tensor *x, uint32_t axes_mask) { return reduce(TERN_OP_MAXIMUM, x, axes_mask); }

tern_tensor *tern_mean(tern_tensor *x, int32_t axis)
{
    tern_tensor *instead;
    if (!tern_build_ready("mean", 1, &x, &instead)) return instead;
    const int32_t dtype = tern_widen_all(1, &x);
    tern_tensor *sum = tern_sum(x, axis);
    if (sum->graph->status < 0) return sum;
    return tern_narrow(tern_scale(sum, (double)tern_count(sum) / (double)tern_count(x)), dtype);
}
