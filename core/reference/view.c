/* SPDX-License-Identifier: Apache-2.0 */
/* view.c - leaves that are computed, movement, and reductions: what is done with coordinates.
 *
 * Each element's coordinates are worked out by division, without strides or special cases. */
#include "core/reference/ops.h"

#include <math.h>
#include <string.h>

static void unravel(const tern_tensor *x, int64_t index, int64_t *out_coordinates)
{
    for (int32_t d = x->rank - 1; d >= 0; d--) {
        out_coordinates[d] = index % x->shape[d];
        index /= x->shape[d];
    }
}

static int64_t ravel(const tern_tensor *x, const int64_t *coordinates)
{
    int64_t index = 0;
    for (int32_t d = 0; d < x->rank; d++) index = index * x->shape[d] + coordinates[d];
    return index;
}

void tern_reference_leaf(const tern_reference_call *call)
{
    const tern_tensor *y = call->node;
    int64_t count = tern_count(y), at[TERN_MAX_RANK];
    for (int64_t i = 0; i < count; i++) {
        unravel(y, i, at);
        call->out[i] = y->op == TERN_OP_INDEX ? (double)at[y->at.index.axis]
                                              : tern_reference_from_bits(y->at.constant.bits, y->dtype);
    }
}

/* Where R's element `at` comes from; false: from nowhere, it is zero. */
static bool source_of(const tern_tensor *y, const int64_t *at, int64_t *from)
{
    const tern_tensor *x = y->in[0];
    for (int32_t d = 0; d < y->rank; d++) {
        switch (y->op) {
        case TERN_OP_PERMUTE: from[y->at.permute.axes[d]] = at[d]; break;
        case TERN_OP_EXPAND: from[d] = x->shape[d] == 1 ? 0 : at[d]; break;
        case TERN_OP_SLICE: from[d] = at[d] + y->at.slice.starts[d]; break;
        default: /* PAD */
            from[d] = at[d] - y->at.pad.before[d];
            if (from[d] < 0 || from[d] >= x->shape[d]) return false;
        }
    }
    return true;
}

void tern_reference_view(const tern_reference_call *call)
{
    const tern_tensor *y = call->node, *x = y->in[0];
    int64_t count = tern_count(y), at[TERN_MAX_RANK], from[TERN_MAX_RANK];
    for (int64_t i = 0; i < count; i++) {
        if (y->op == TERN_OP_RESHAPE) {
            call->out[i] = call->in[0][i];
            continue;
        }
        unravel(y, i, at);
        call->out[i] = source_of(y, at, from) ? call->in[0][ravel(x, from)] : 0;
    }
}

void tern_reference_reduce(const tern_reference_call *call)
{
    const tern_tensor *y = call->node, *x = y->in[0];
    int64_t count = tern_count(x), results = tern_count(y), at[TERN_MAX_RANK];
    for (int64_t i = 0; i < results; i++) call->out[i] = y->op == TERN_OP_SUM ? 0 : -INFINITY;
    for (int64_t i = 0; i < count; i++) {
        double value = call->in[0][i];
        unravel(x, i, at);
        for (int32_t d = 0; d < x->rank; d++)
            if (y->at.reduce.axes >> d & 1u) at[d] = 0;
        double *result = &call->out[ravel(y, at)];
        if (y->op == TERN_OP_SUM)
            *result += call->magnitude ? fabs(value) : value;
        else if (value > *result || value != value)
            *result = value; /* a NaN stays: nothing is above it */
    }
}
