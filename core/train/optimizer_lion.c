/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer_lion.c - the sign of an interpolated momentum:
 *
 *     s = sign(b1 m + (1 - b1) g)            sign(0) = 0
 *     w = w - lr (s + decay w)
 *     m = b2 m + (1 - b2) g
 *
 * Every coordinate moves by lr: learning rates are 3 to 10 times smaller than AdamW's, decay as much larger. Slab m.
 * Source: Chen et al., "Symbolic discovery of optimization algorithms", 2023, program 1. */
#include "core/train/optimizer_build.h"

static tern_tensor *sign(const tern_segment_build *b, tern_tensor *x)
{
    tern_tensor *zero = tern_segment_number(b, 0);
    tern_tensor *below = tern_where(tern_less(x, zero), tern_segment_number(b, -1), zero);
    return tern_where(tern_less(zero, x), tern_segment_number(b, 1), below);
}

void tern_optimizer_build_lion(const tern_segment_build *b)
{
    const tern_optimizer *o = b->optimizer;
    tern_tensor *m = tern_segment_moment(b, TERN_SLAB_M);
    tern_tensor *step = tern_segment_decay(b, sign(b, tern_segment_average(b, m, b->g, o->beta1)));
    tern_segment_store_weight(b, tern_sub(b->w, tern_mul(step, tern_segment_rate(b))));
    tern_segment_store_moment(b, TERN_SLAB_M, tern_segment_average(b, m, b->g, o->beta2));
}
