/* SPDX-License-Identifier: Apache-2.0 */
/* schedule.c - linear warm-up, then half a cosine; computed in double on the host. */
#include "core/train/schedule.h"

#include <math.h>

double tern_schedule_lr(const tern_schedule *schedule, uint64_t attempt)
{
    const double pi = 3.14159265358979323846;
    if (attempt < schedule->warmup) return schedule->lr * (double)(attempt + 1) / (double)schedule->warmup;
    if (attempt > 0 && attempt + 1 >= schedule->steps) return schedule->min_lr;
    if (attempt == schedule->warmup) return schedule->lr; /* also of a run of one step, which has no way down */
    double done = (double)(attempt - schedule->warmup) / (double)(schedule->steps - 1 - schedule->warmup);
    return schedule->min_lr + (schedule->lr - schedule->min_lr) * 0.5 * (1.0 + cos(pi * done));
}
