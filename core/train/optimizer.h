/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer.h - what turns gradients into new weights: a kind, its numbers, and the tape each kind is.
 *
 *     divisor, clip, ok, t ──> scalars (one small state) ──> per segment: weights, moments := ok ? new : old;  acc := 0
 *
 * A kind is a row of the table in optimizer.c: its name, the slabs it needs and the function that appends its graph for
 * one segment; there is one file per family, with formulas and sources at its head. In all of them
 *
 *     g = clamp(acc / (S n)) * c   the mean gradient, clipped          lr    from the control block
 *     Bi(t) = 1 / (1 - bi^t)       from a table made in double         t     good steps, this one included
 *
 * What it is not: it decides nothing (update.h), knows no parameter (only segments) and draws no learning rate.
 * Invariant: where ok is 0, weights and moments keep their bits; all arithmetic is f32. */
#ifndef TERN_TRAIN_OPTIMIZER_H
#define TERN_TRAIN_OPTIMIZER_H

#include "core/train/store.h"

typedef enum tern_optimizer_kind { TERN_OPTIMIZER_ADAMW = 0, TERN_OPTIMIZER_COUNT } tern_optimizer_kind;

typedef struct tern_optimizer {
    tern_optimizer_kind kind;
    double beta1, beta2, epsilon, weight_decay;
} tern_optimizer;

/* States: the bias table (rows, 2) and the scalars (TERN_SCALAR_COUNT), f32. */
#define TERN_STATE_TABLE   "step.table"
#define TERN_STATE_SCALARS "step.scalars"

enum { /* what the optimizer's kernels read, f32 */
       TERN_SCALAR_DIVISOR = 0,
       TERN_SCALAR_CLIP,
       TERN_SCALAR_LR,
       TERN_SCALAR_BIAS1,
       TERN_SCALAR_BIAS2,
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

/* "adamw" ...; NULL: no such kind. */
const char *tern_optimizer_name(int32_t kind);
/* betas in [0, 1), epsilon in (0, 1], weight_decay >= 0, each finite. */
TERN_MUST_USE tern_status tern_optimizer_check(const tern_optimizer *optimizer);

/* Rows that the bias table needs until all further ones round to 1 in f32. At most 2^20. */
uint32_t tern_optimizer_table_rows(const tern_optimizer *optimizer);
/* Fills rows x 2 floats: row t - 1 holds B1(t), B2(t), from double. */
void tern_optimizer_table_fill(const tern_optimizer *optimizer, uint32_t rows, float *out);

/* Appends the scalars and the assigns of every trainable segment to the graph. Errors are the graph's. */
void tern_optimizer_append(tern_graph *graph, const tern_store_layout *layout, const tern_optimizer *optimizer,
                           const tern_optimizer_inputs *inputs);

#endif
