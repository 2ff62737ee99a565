/* SPDX-License-Identifier: Apache-2.0 */
/* update.h - the update program: what ends a window, built from graph primitives over whole slab segments.
 *
 *     n == 0 ?  nothing changes, counters included
 *     g    = acc / (S n)                                     S is a power of two: exact
 *     norm = sqrt(sum g^2)                                   two stages: rows of a chunk, then rows
 *     bad  = an exponent of acc or of the norm is all ones   bits, since v != v is folded away by fast maths
 *     bad ?  weights and moments stay bit for bit, skips += 1
 *     else   optimizer(g min(1, clip / norm)), t += 1
 *     acc, n, loss = 0
 *
 * Three launches per segment (norm, its second stage, AdamW) and a few for the scalars.
 * What it is not: it knows no parameter, only segments, and no optimizer's formula (optimizer.h). */
#ifndef TERN_TRAIN_UPDATE_H
#define TERN_TRAIN_UPDATE_H

#include "core/train/optimizer.h"

typedef struct tern_update_options {
    double clip; /* largest norm of the whole gradient; 0: no clipping */
} tern_update_options;

/* States beside those of passes/accumulate.h: u32 counters (1). */
#define TERN_STATE_T     "step.t"     /* good steps so far */
#define TERN_STATE_SKIPS "step.skips" /* windows skipped so far */

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

/* clip in [0, 1e30]. */
TERN_MUST_USE tern_status tern_update_check(const tern_update_options *options);

/* Appends the program to an empty graph. */
TERN_MUST_USE tern_status tern_update_build(tern_graph *graph, const tern_store_layout *layout,
                                            const tern_optimizer *optimizer, const tern_update_options *options);

#endif
