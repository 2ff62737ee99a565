/* SPDX-License-Identifier: Apache-2.0 */
/* update.h - the update program: what ends a window, built from graph primitives over whole slab segments.
 *
 *     n == 0 ?  nothing changes, counters included; shadows of states are thrown away
 *     bad     = an exponent of acc or of the norm is all ones   bits, since v != v is folded away by fast maths
 *     g       = acc / (S n)                                     S is a power of two: exact
 *     norm    = sqrt(sum g^2)                                   reported; two stages: rows of a chunk, then rows
 *     outlier = norm far above what was usual                   outlier.h, when asked for
 *     g       = clamp(g, -v, v)                                 when asked for
 *     c       = min(1, clip / sqrt(sum g^2))                    of the clamped g
 *     bad, outlier ?  weights, moments and state tensors stay bit for bit
 *     else            optimizer(g c), t += 1, state tensors := their shadows (passes/state_shadow.h)
 *     bad     ?  skips += 1, skips in a row += 1  :  skips in a row = 0
 *     S moves as scaler.h says;  acc, n, loss = 0
 *
 * Three launches per segment (norm, its second stage, optimizer) and a few for the scalars.
 * What it is not: it knows no parameter, only segments, and no optimizer's formula (optimizer_build.h). */
#ifndef TERN_TRAIN_UPDATE_H
#define TERN_TRAIN_UPDATE_H

#include "core/train/layout.h"
#include "core/train/outlier.h"
#include "core/train/scaler.h"

typedef struct tern_update_options {
    double clip;       /* largest norm of the whole gradient; 0: no clipping */
    double clip_value; /* largest magnitude of one element of the mean gradient; 0: no clipping */
    tern_outlier_options outlier;
    tern_scale_options scale;
} tern_update_options;

/* States beside those of passes/accumulate.h: u32 counters (1). */
#define TERN_STATE_T     "step.t"            /* windows applied so far */
#define TERN_STATE_SKIPS "step.skips"        /* windows that were not finite so far */
#define TERN_STATE_ROW   "step.skips_in_row" /* of them, those since the last finite window */

#define TERN_REPORT_NAME "report"
enum { /* the program's output, u32, since devices may flush counters seen as floats to zero; "f32" words hold bits.
          Counters and statistics are those after this window, whose states are assigned from here. */
       TERN_REPORT_LOSS = 0, /* f32: sum w loss */
       TERN_REPORT_N,        /* f32: sum w */
       TERN_REPORT_NORM,     /* f32: before clipping of either kind */
       TERN_REPORT_CLIP,     /* f32: factor applied */
       TERN_REPORT_SCALE,    /* f32: S of this window */
       TERN_REPORT_OK,       /* 1: applied */
       TERN_REPORT_BAD,      /* 1: skipped, since it was not finite */
       TERN_REPORT_OUTLIER,  /* 1: skipped as an outlier */
       TERN_REPORT_FLOOR,    /* 1: S should have fallen, but is at its floor */
       TERN_REPORT_T,
       TERN_REPORT_SKIPS,
       TERN_REPORT_ROW,
       TERN_REPORT_NEXT_SCALE, /* f32: S of the next window */
       TERN_REPORT_GOOD,
       TERN_REPORT_HYSTERESIS,
       TERN_REPORT_OUTLIERS,
       TERN_REPORT_NORM_COUNT,
       TERN_REPORT_NORM_MEAN, /* f32 */
       TERN_REPORT_NORM_VAR,  /* f32 */
       TERN_REPORT_COUNT
};

/* clip and clip_value in [0, 1e30]; the scale's options after tern_scale_resolve. */
TERN_MUST_USE tern_status tern_update_check(const tern_update_options *options);

/* Appends the program to an empty graph. A scale of mode AUTO is static. Every state "shadow.<name>" of the layout is
 * committed to its state "<name>". */
TERN_MUST_USE tern_status tern_update_build(tern_graph *graph, const tern_store_layout *layout,
                                            const tern_update_options *options);

#endif
