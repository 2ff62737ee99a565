/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer_muon.c - momentum whose singular values are all pushed near 1 by a Newton-Schulz iteration:
 *
 *     m = mu m + g                     u = nesterov ? g + mu m : m           as (rows, columns); transposed if rows >
 * columns X = u / (||u|| + 1e-7)           ||.|| over all elements 5 times:  A = X X^T              X = a X + (b A + c
 * A A) X             a, b, c = 3.4445, -4.7750, 2.0315 w = w - lr (max(1, rows / columns)^0.5 X + decay w)
 *
 * rows is the parameter's first axis as it is stored, columns all others together. Applies to hidden matrices
 * (groups.h); what else there is gets AdamW with the same learning rate, times its group's factor: muon's rates are
 * some 10 times larger than AdamW's, so give embeddings and the last layer a group. Slab m; each matrix is a segment.
 * Source: Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024. */
#include "core/train/optimizer_build.h"

#include <math.h>

#define ITERATIONS 5

static const double quintic[3] = {3.4445, -4.7750, 2.0315};

/* x (rows, columns), rows <= columns. */
static tern_tensor *orthogonal(const tern_segment_build *b, tern_tensor *x)
{
    tern_tensor *norm = tern_sqrt(tern_sum(tern_sum(tern_mul(x, x), 1), 0));
    x = tern_div(x, tern_add(norm, tern_segment_number(b, 1e-7)));
    for (int i = 0; i < ITERATIONS; i++) {
        tern_tensor *gram = tern_matmul(x, tern_transpose(x, 0, 1));
        tern_tensor *inner = tern_add(tern_mul(gram, tern_segment_number(b, quintic[1])),
                                      tern_mul(tern_matmul(gram, gram), tern_segment_number(b, quintic[2])));
        x = tern_add(tern_mul(x, tern_segment_number(b, quintic[0])), tern_matmul(inner, x));
    }
    return x;
}

void tern_optimizer_build_muon(const tern_segment_build *b)
{
    const tern_optimizer *o = b->optimizer;
    tern_tensor *mu = tern_segment_number(b, o->momentum);
    tern_tensor *m = tern_add(tern_mul(tern_segment_moment(b, TERN_SLAB_M), mu), b->g);
    tern_segment_store_moment(b, TERN_SLAB_M, m);
    tern_tensor *x = tern_segment_matrix(b, o->nesterov ? tern_add(b->g, tern_mul(m, mu)) : m);
    const double rows = (double)x->shape[0], columns = (double)x->shape[1];
    const bool tall = rows > columns;
    x = orthogonal(b, tall ? tern_transpose(x, 0, 1) : x);
    x = tern_mul(tall ? tern_transpose(x, 0, 1) : x, tern_segment_number(b, sqrt(fmax(1, rows / columns))));
    tern_tensor *step = tern_segment_decay(b, tern_segment_flat(b, x));
    tern_segment_store_weight(b, tern_sub(b->w, tern_mul(step, tern_segment_rate(b))));
}
