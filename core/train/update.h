/* SPDX-License-Identifier: Apache-2.0 */
/* update.h - the update program: what ends a window, built from graph primitives over whole slab segments.
 *
 *     n == 0 ?  nothing changes, counters included
 *     g    = acc / (S n)                                     S is a power of two: exact
 *     norm = sqrt(sum g^2)                                   two stages: rows of a chunk, then rows
 *     bad  = an exponent of acc or of the norm is all ones   bits, since v != v is folded away by fast maths
 *     bad ?  weights and moments stay bit for bit, skips += 1
 *     else   AdamW(g min(1, clip / norm)), t += 1
 *     acc, n, loss = 0
 *
 * AdamW, t from 1:   m = b1 m + (1 - b1) g          v = b2 v + (1 - b2) g^2
 *                    w = w - lr (m B1(t) / (sqrt(v B2(t)) + eps) + decay w)      Bi(t) = 1 / (1 - bi^t)
 * Decay acts on the segments of group DECAY. The learning rate comes with the control block; B is a table in a state.
 * Three launches per segment and a few for the scalars.
 * What it is not: it knows no parameter, only segments; it draws no learning rate.
 * Source: Loshchilov, Hutter, "Decoupled weight decay regularization", 2019. */
#ifndef TERN_TRAIN_UPDATE_H
#define TERN_TRAIN_UPDATE_H

#include "core/train/store.h"

typedef struct tern_adamw {
    double beta1, beta2, epsilon, weight_decay;
    double clip; /* largest norm of the whole gradient; 0: no clipping */
} tern_adamw;

/* States beside those of passes/accumulate.h: u32 counters (1), the table (rows, 2), the scalars (TERN_SCALAR_COUNT).
 */
#define TERN_STATE_T       "step.t"     /* good steps so far */
#define TERN_STATE_SKIPS   "step.skips" /* windows skipped so far */
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

#define TERN_REPORT_NAME "report"
enum { /* the program's output, u32; the first five hold f32 bits, since devices may flush counters seen as floats to
          zero */
       TERN_REPORT_LOSS = 0, /* sum w loss */
       TERN_REPORT_N,        /* sum w */
       TERN_REPORT_NORM,     /* before clipping */
       TERN_REPORT_CLIP,     /* factor applied */
       TERN_REPORT_SCALE,
       TERN_REPORT_BAD,   /* 1 when the window was skipped */
       TERN_REPORT_T,     /* after this window */
       TERN_REPORT_SKIPS, /* after this window */
       TERN_REPORT_COUNT
};

/* Rows that the bias table needs until all further ones round to 1 in f32. At most 2^20. */
uint32_t tern_adamw_table_rows(const tern_adamw *adamw);
/* Fills rows x 2 floats: row t - 1 holds B1(t), B2(t), from double. */
void tern_adamw_table_fill(const tern_adamw *adamw, uint32_t rows, float *out);
/* betas in [0, 1), epsilon > 0, weight_decay and clip >= 0, each finite. */
TERN_MUST_USE tern_status tern_adamw_check(const tern_adamw *adamw);

/* Appends the program to an empty graph. */
TERN_MUST_USE tern_status tern_update_build(tern_graph *graph, const tern_store_layout *layout,
                                            const tern_adamw *adamw);

#endif
