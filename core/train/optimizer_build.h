/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer_build.h - the optimizer's part of the update program, and what the families' files build it from.
 *
 *     divisor, clip, ok, t ──> scalars (one small state)
 *     per trainable segment:   w, g, moments ──> the kind's build function ──> stores where ok;   acc := 0
 *
 * A build function reads with the functions below and ends with tern_segment_store_*, which is where the skip lives: no
 * kind can forget it. Invariant: where ok is 0, weights and moments keep their bits; all arithmetic is f32. */
#ifndef TERN_TRAIN_OPTIMIZER_BUILD_H
#define TERN_TRAIN_OPTIMIZER_BUILD_H

#include "core/train/layout.h"

/* States: the bias table (rows, 2) and the scalars (TERN_SCALAR_COUNT), f32. */
#define TERN_STATE_TABLE   "step.table"
#define TERN_STATE_SCALARS "step.scalars"

enum { /* what the optimizer's kernels read, f32 */
       TERN_SCALAR_DIVISOR = 0,
       TERN_SCALAR_CLIP,
       TERN_SCALAR_LR,
       TERN_SCALAR_BIAS1,
       TERN_SCALAR_BIAS2, /* adafactor: t^-0.8 */
       TERN_SCALAR_OK,
       TERN_SCALAR_COUNT
};

/* What the update decided, each of shape (1). */
typedef struct tern_optimizer_inputs {
    tern_tensor *divisor; /* f32: S n */
    tern_tensor *clip;    /* f32: factor on the gradient */
    tern_tensor *ok;      /* u32: 1 when this window changes anything */
    tern_tensor *t;       /* u32: good steps before this one */
    double clip_value;    /* each element of acc / divisor is clamped to it before `clip` acts; 0: it is not */
} tern_optimizer_inputs;

/* Appends the scalars and the assigns of every trainable segment to the graph. Errors are the graph's. */
void tern_optimizer_append(tern_graph *graph, const tern_store_layout *layout, const tern_optimizer_inputs *inputs);

/* ------------------------------------------------------------ for the families */

typedef struct tern_segment_build {
    tern_graph *graph;
    const tern_store_layout *layout;
    const tern_optimizer *optimizer;
    const tern_group_rule *group;
    tern_tensor *scalars; /* (TERN_SCALAR_COUNT), assigned */
    uint32_t segment;
    tern_tensor *ok; /* u32 (1) */
    tern_tensor *g;  /* the clipped mean gradient; this and w and moments are f32 (elements) */
    tern_tensor *w;
} tern_segment_build;

tern_tensor *tern_segment_scalar(const tern_segment_build *b, int64_t which);
tern_tensor *tern_segment_number(const tern_segment_build *b, double value);
/* The learning rate of this group, (1). */
tern_tensor *tern_segment_rate(const tern_segment_build *b);
/* x + decay * w; x itself where the group does not decay. */
tern_tensor *tern_segment_decay(const tern_segment_build *b, tern_tensor *x);
/* old * beta + value * (1 - beta) */
tern_tensor *tern_segment_average(const tern_segment_build *b, tern_tensor *old, tern_tensor *value, double beta);
/* TERN_SLAB_M or _V as f32. */
tern_tensor *tern_segment_moment(const tern_segment_build *b, tern_store_slab slab);
/* slab := ok ? value : slab */
void tern_segment_store_moment(const tern_segment_build *b, tern_store_slab slab, tern_tensor *value);
void tern_segment_store_weight(const tern_segment_build *b, tern_tensor *value);

void tern_optimizer_build_adam(const tern_segment_build *b); /* adam and adamw */
void tern_optimizer_build_sgd(const tern_segment_build *b);
void tern_optimizer_build_lion(const tern_segment_build *b);
/* (t + 1)^-0.8 of the u32 tensor t, f32. */
tern_tensor *tern_adafactor_rate(tern_tensor *t);
void tern_optimizer_build_adafactor(const tern_segment_build *b);
void tern_optimizer_build_muon(const tern_segment_build *b);

/* optimizer_weights.c: the f32 weights from whichever slab holds them. */
tern_tensor *tern_segment_weight(const tern_segment_build *b);
/* optimizer_codes.c: moments in one byte each. */
tern_tensor *tern_segment_decode(const tern_segment_build *b, tern_store_slab slab);
void tern_segment_encode(const tern_segment_build *b, tern_store_slab slab, tern_tensor *value);

/* For kinds with one parameter per segment: the first `count` elements as (rows, columns), rows the first axis; and
 * back, zeros behind. */
tern_tensor *tern_segment_matrix(const tern_segment_build *b, tern_tensor *x);
tern_tensor *tern_segment_flat(const tern_segment_build *b, tern_tensor *matrix);
tern_tensor *tern_segment_slab(const tern_segment_build *b, tern_store_slab slab);

#endif
