/* SPDX-License-Identifier: Apache-2.0 */
/* schedule.h - the learning rate as a function of the attempt number (skipped steps count). */
#ifndef TERN_TRAIN_SCHEDULE_H
#define TERN_TRAIN_SCHEDULE_H

#include <stdint.h>

typedef struct tern_schedule {
    double lr, min_lr;
    uint64_t warmup, steps; /* attempts */
} tern_schedule;

/* attempt counts from 0.
 *   attempt < warmup   lr (attempt + 1) / warmup                                        (never 0)
 *   attempt < steps    min_lr + (lr - min_lr) (1 + cos(pi (attempt - warmup) / (steps - 1 - warmup))) / 2
 *   later              min_lr, which the last step (attempt steps - 1) has reached; a run of one step has lr
 * Source: Loshchilov, Hutter, "SGDR", 2016, one cycle. */
double tern_schedule_lr(const tern_schedule *schedule, uint64_t attempt);

#endif
