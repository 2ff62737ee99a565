/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer_adam.c - Adam and AdamW, which differ in where the decay acts; t from 1:
 *
 *     adam    g = g + decay w
 *             m = b1 m + (1 - b1) g          v = b2 v + (1 - b2) g^2
 *             s = m B1(t) / (sqrt(v B2(t)) + eps)
 *     adamw   s = s + decay w
 *             w = w - lr s
 *
 * Slabs m and v. Sources: Kingma, Ba, "Adam: a method for stochastic optimization", 2015, algorithm 1; Loshchilov,
 * Hutter, "Decoupled weight decay regularization", 2019, algorithm 2. */
#include "core/train/optimizer_build.h"

void tern_optimizer_build_adam(const tern_segment_build *b)
{
    const tern_optimizer *o = b->optimizer;
    const bool coupled = b->group->kind == TERN_OPTIMIZER_ADAM;
    tern_tensor *g = coupled ? tern_segment_decay(b, b->g) : b->g;
    tern_tensor *m = tern_segment_average(b, tern_segment_moment(b, TERN_SLAB_M), g, o->beta1);
    tern_tensor *v = tern_segment_average(b, tern_segment_moment(b, TERN_SLAB_V), tern_mul(g, g), o->beta2);
    tern_tensor *m_hat = tern_mul(m, tern_segment_scalar(b, TERN_SCALAR_BIAS1));
    tern_tensor *v_hat = tern_mul(v, tern_segment_scalar(b, TERN_SCALAR_BIAS2));
    tern_tensor *step = tern_div(m_hat, tern_add(tern_sqrt(v_hat), tern_segment_number(b, o->epsilon)));
    if (!coupled) step = tern_segment_decay(b, step);
    tern_segment_store_weight(b, tern_sub(b->w, tern_mul(step, tern_segment_rate(b))));
    tern_segment_store_moment(b, TERN_SLAB_M, m);
    tern_segment_store_moment(b, TERN_SLAB_V, v);
}
