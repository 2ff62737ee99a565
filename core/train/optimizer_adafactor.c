/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer_adafactor.c - second moments of a matrix as a row and a column; t from 1, k = t^-0.8:
 *
 *     q = g^2 + 1e-30
 *     matrix   R = R + k (mean of q's rows - R)       C = C + k (mean of q's columns - C)
 *              u = g / sqrt(R C / mean(R))            rank above 2: the first axis and all others together
 *     vector   v = v + k (q - v)                      u = g / sqrt(v)
 *     u = u / max(1, rms(u))                          over the parameter, so each is a segment of its own
 *     w = w - lr (u + decay w)
 *
 * No first moment, no relative step, no scaling by the parameter's size: lr is the schedule's. The quotient is taken as
 * two factors 1 / sqrt(R / mean R) and 1 / sqrt(C), since R C leaves f32 where gradients vanish.
 * States "row.<parameter>" and "column.<parameter>", slab v of vectors.
 * Source: Shazeer, Stern, "Adafactor: adaptive learning rates with sublinear memory cost", 2018, algorithms 4 and 5,
 * with the decay of section 7.2 and d = 1. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/train/optimizer_build.h"

#define DECAY_POWER -0.8
#define SMALLEST    1e-30

tern_tensor *tern_adafactor_rate(tern_tensor *t)
{
    tern_tensor *next = tern_cast(tern_add(t, tern_constant_u32(t->graph, 1)), TERN_F32);
    return tern_exp(tern_mul(tern_log(next), tern_constant(t->graph, DECAY_POWER)));
}

/* old + k (value - old) */
static tern_tensor *toward(const tern_segment_build *b, tern_tensor *old, tern_tensor *value)
{
    return tern_add(old, tern_mul(tern_sub(value, old), tern_segment_scalar(b, TERN_SCALAR_BIAS2)));
}

/* The statistic "<which>.<parameter>" of q's means along an axis, moved on and stored. */
static tern_tensor *statistic(const tern_segment_build *b, const char *which, tern_tensor *q, int32_t axis)
{
    const tern_store_parameter *p = &b->layout->parameters[b->layout->segments[b->segment].parameter];
    tern_tensor *mean = tern_mean(q, axis);
    const size_t bytes = strlen(which) + strlen(p->name) + 2;
    char *name = malloc(bytes);
    if (!name) return tern_graph_fail(b->graph, TERN_ERROR_MEMORY, "adafactor: no host memory for a name");
    snprintf(name, bytes, "%s.%s", which, p->name);
    tern_tensor *old = tern_state(b->graph, name, TERN_F32, mean->rank, mean->shape);
    free(name);
    tern_tensor *now = toward(b, old, mean);
    tern_assign(old, tern_where(b->ok, now, old));
    return now;
}

void tern_optimizer_build_adafactor(const tern_segment_build *b)
{
    const tern_store_parameter *p = &b->layout->parameters[b->layout->segments[b->segment].parameter];
    tern_tensor *g = tern_segment_matrix(b, b->g), *u;
    tern_tensor *q = tern_add(tern_mul(g, g), tern_segment_number(b, SMALLEST));
    if (p->rank >= 2) {
        tern_tensor *row = statistic(b, "row", q, 1), *column = statistic(b, "column", q, 0);
        tern_tensor *share = tern_rsqrt(tern_div(row, tern_mean(row, 0)));
        u = tern_mul(tern_mul(g, share), tern_rsqrt(column));
    } else {
        tern_tensor *v = toward(b, tern_segment_matrix(b, tern_segment_moment(b, TERN_SLAB_V)), q);
        tern_segment_store_moment(b, TERN_SLAB_V, tern_segment_flat(b, v));
        u = tern_mul(g, tern_rsqrt(v));
    }
    tern_tensor *rms = tern_sqrt(tern_mean(tern_mean(tern_mul(u, u), 1), 0));
    u = tern_div(u, tern_max(rms, tern_segment_number(b, 1)));
    tern_tensor *step = tern_segment_decay(b, tern_segment_flat(b, u));
    tern_segment_store_weight(b, tern_sub(b->w, tern_mul(step, tern_segment_rate(b))));
}
