/* SPDX-License-Identifier: Apache-2.0 */
/* schedule.h - the learning rate as a function of the attempt number (skipped windows count).
 *
 *     lr ┤   ______            constant   1
 *        │  /      \           linear     1 - p
 *        │ /        \          cosine     (1 + cos(pi p)) / 2
 *     0  ┼────────────         wsd        1, and over the last `decay` of the way down in a straight line
 *        0  warmup   steps     rate = min_lr + (lr - min_lr) f(p),  p = (attempt - warmup) / (steps - 1 - warmup)
 *
 * What it is not: it keeps no state, so a resumed run needs the attempt number only.
 * Source: cosine: Loshchilov, Hutter, "SGDR", 2016, one cycle; wsd (warm-up, stable, decay): Hu et al., "MiniCPM",
 * 2024. */
#ifndef TERN_TRAIN_SCHEDULE_H
#define TERN_TRAIN_SCHEDULE_H

#include "core/base/status.h"

typedef enum tern_schedule_kind {
    TERN_SCHEDULE_COSINE = 0,
    TERN_SCHEDULE_CONSTANT,
    TERN_SCHEDULE_LINEAR,
    TERN_SCHEDULE_WSD,
    TERN_SCHEDULE_COUNT
} tern_schedule_kind;

typedef struct tern_schedule {
    double lr, min_lr;
    uint64_t warmup, steps; /* attempts */
    tern_schedule_kind kind;
    double decay; /* wsd: the last part of the way, in (0, 1]; 0: 0.2 */
} tern_schedule;

/* One row per kind. */
typedef struct tern_schedule_info {
    const char *name;                                 /* as on the command line */
    double (*shape)(const tern_schedule *, double p); /* f: 1 at p = 0, and but for `constant` 0 at p = 1 */
    const char *words;                                /* for help texts */
} tern_schedule_info;
extern const tern_schedule_info tern_schedules[TERN_SCHEDULE_COUNT];

/* "cosine" and so on. TERN_ERROR_NOT_FOUND naming all of them. */
TERN_MUST_USE tern_status tern_schedule_parse(const char *name, tern_schedule_kind *out_kind);
/* lr in (0, 1000], min_lr in [0, lr], decay in [0, 1], a kind of the table; TERN_ERROR_INVALID with the values. */
TERN_MUST_USE tern_status tern_schedule_check(const tern_schedule *schedule);

/* attempt counts from 0.
 *   attempt < warmup      lr (attempt + 1) / warmup            (never 0)
 *   attempt < steps - 1   by the kind, from lr down
 *   later                 min_lr, which the last step (attempt steps - 1) has reached; `constant` stays at lr, and a
 *                         run of one step has lr
 * Computed in double. */
double tern_schedule_lr(const tern_schedule *schedule, uint64_t attempt);

#endif
