/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer_adam.c - AdamW, t from 1:
 *
 *     m = b1 m + (1 - b1) g          v = b2 v + (1 - b2) g^2
 *     w = w - lr (m B1(t) / (sqrt(v B2(t)) + eps) + decay w)
 *
 * Slabs m and v. Source: Loshchilov, Hutter, "Decoupled weight decay regularization", 2019. */
#include "core/train/optimizer_build.h"

/* old * beta + value * (1 - beta) */
static tern_tensor *average(const tern_segment_build *b, tern_tensor *old, tern_tensor *value, double beta)
{
    return tern_add(tern_mul(old, tern_segment_number(b, beta)), tern_mul(value, tern_segment_number(b, 1.0 - beta)));
}

void tern_optimizer_build_adamw(const tern_segment_build *b)
{
    const tern_optimizer *o = b->optimizer;
    const double decay = tern_segment_decay(b);
    tern_tensor *w = tern_segment_slab(b, TERN_SLAB_WEIGHT);
    tern_tensor *m = average(b, tern_segment_slab(b, TERN_SLAB_M), b->g, o->beta1);
    tern_tensor *v = average(b, tern_segment_slab(b, TERN_SLAB_V), tern_mul(b->g, b->g), o->beta2);
    tern_tensor *m_hat = tern_mul(m, tern_segment_scalar(b, TERN_SCALAR_BIAS1));
    tern_tensor *v_hat = tern_mul(v, tern_segment_scalar(b, TERN_SCALAR_BIAS2));
    tern_tensor *step = tern_div(m_hat, tern_add(tern_sqrt(v_hat), tern_segment_number(b, o->epsilon)));
    if (decay > 0) step = tern_add(step, tern_mul(w, tern_segment_number(b, decay)));
    tern_segment_store(b, TERN_SLAB_WEIGHT, tern_sub(w, tern_mul(step, tern_segment_scalar(b, TERN_SCALAR_LR))));
    tern_segment_store(b, TERN_SLAB_M, m);
    tern_segment_store(b, TERN_SLAB_V, v);
}
