/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer_sgd.c - gradient descent, with momentum mu (no dampening) and Nesterov's look ahead:
 *
 *     g = g + decay w
 *     m = mu m + g                           m starts as 0, so that the first m is g
 *     w = w - lr (nesterov ? g + mu m : m)
 *
 * Slab m where mu > 0. Source: Sutskever, Martens, Dahl, Hinton, "On the importance of initialization and momentum in
 * deep learning", 2013, in the form where the learning rate stays outside m. */
#include "core/train/optimizer_build.h"

void tern_optimizer_build_sgd(const tern_segment_build *b)
{
    const tern_optimizer *o = b->optimizer;
    tern_tensor *g = tern_segment_decay(b, b->g), *step = g;
    if (o->momentum > 0) {
        tern_tensor *mu = tern_segment_number(b, o->momentum);
        tern_tensor *m = tern_add(tern_mul(tern_segment_moment(b, TERN_SLAB_M), mu), g);
        step = o->nesterov ? tern_add(g, tern_mul(m, mu)) : m;
        tern_segment_store_moment(b, TERN_SLAB_M, m);
    }
    tern_segment_store_weight(b, tern_sub(b->w, tern_mul(step, tern_segment_rate(b))));
}
