/* SPDX-License-Identifier: Apache-2.0 */
/* scaler.h - the loss scale S as a machine on the device: what a finished window does to it.
 *
 *                      ok, good + 1 = interval: S = min(S growth, cap), good = bad = 0
 *                     ┌────────┐
 *     ok: good += 1   │   S    │   not finite: good = 0, bad += 1; the hysteresis-th: S = max(S backoff, floor), bad =
 * 0 └────────┘
 *
 * `good` counts windows applied since S moved or a window was not finite, `bad` the ones that were not finite since S
 * moved. A window of no weight (n == 0) and an outlier (outlier.h) are neither. A static S stays what it is.
 * Every S is a power of two, so that scaling and unscaling change no digit above the subnormals.
 * What it is not: it decides no window (update.h), and no value of it comes to the host before the report does.
 * Source: Micikevicius et al., "Mixed precision training", 2018; hysteresis as in Megatron-LM's dynamic scaler. */
#ifndef TERN_TRAIN_SCALER_H
#define TERN_TRAIN_SCALER_H

#include "core/graph/graph.h"

/* States, each (1); S itself is TERN_STATE_SCALE of passes/accumulate.h. */
#define TERN_STATE_GOOD       "step.good"       /* u32; dynamic scales only */
#define TERN_STATE_HYSTERESIS "step.hysteresis" /* u32: `bad`; dynamic scales only */

typedef enum tern_scale_mode {
    TERN_SCALE_AUTO = 0, /* dynamic for f16, static for f32 and bf16, which have f32's range */
    TERN_SCALE_STATIC,
    TERN_SCALE_DYNAMIC
} tern_scale_mode;

/* A zero stands for the default. initial, growth, backoff, cap and floor are powers of two. */
typedef struct tern_scale_options {
    tern_scale_mode mode;
    double initial;           /* 2^12 when dynamic: the loss is a sum, so 2^16 would overflow at once; else 1 */
    double growth, backoff;   /* 2, 0.5 */
    double cap, floor;        /* 2^24, 2^-14 */
    uint32_t growth_interval; /* 2000 windows */
    uint32_t hysteresis;      /* the how many-th window that is not finite lowers S; 1: each one */
} tern_scale_options;

/* Every default filled in; mode AUTO becomes DYNAMIC or STATIC. */
tern_scale_options tern_scale_resolve(const tern_scale_options *options, bool needs_scale);
/* Of resolved options: powers of two, growth in (1, 2^16], backoff in [2^-16, 1), floor <= initial <= cap,
 * all within [2^-24, 2^64]. */
TERN_MUST_USE tern_status tern_scale_check(const tern_scale_options *options);

typedef struct tern_scale_step {
    tern_tensor *scale;                   /* f32 (1): S of the next window */
    tern_tensor *good, *used;             /* u32 (1): the counters' new values; NULL for a static scale */
    tern_tensor *floor;                   /* u32 (1): 1 when S should have fallen below its floor */
    tern_tensor *good_state, *used_state; /* where they belong; NULL for a static scale */
} tern_scale_step;

/* Appends the transition, but no assign: the caller stores the new values where nothing reads the old ones any more.
 * options: resolved. scale: f32 (1); ok, bad: u32 (1), at most one of them 1. */
tern_scale_step tern_scaler_append(tern_tensor *scale, tern_tensor *ok, tern_tensor *bad,
                                   const tern_scale_options *options);

#endif
