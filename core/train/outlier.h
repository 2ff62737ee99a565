/* SPDX-License-Identifier: Apache-2.0 */
/* outlier.h - windows whose gradient norm is far above what was usual are skipped, on the device.
 *
 *     x = log norm            mean, var: of x over the windows so far, forgetting at rate 1 / min(count, 100)
 *     r = z max(sqrt(var), 0.02)                outlier = count >= warmup  and  x > mean + r
 *     x' = count >= warmup ? min(max(x, mean - r), mean + r) : x
 *     d = x' - mean;  mean += a d;  var = (1 - a) (var + a d^2);  count += 1        a = 1 / min(count + 1, 100)
 *
 * Logarithms, because norms are spread over orders of magnitude. Only large norms count. The floor of 0.02 keeps a run
 * whose norm hardly changes from calling 2 % an outlier. What lies beyond the threshold enters the statistics cut to
 * it, so that one window cannot spoil them, yet a lasting change is learnt and not skipped forever. Windows that are
 * empty or not finite leave all of it alone. What it is not: an outlier does not move the loss scale and is counted
 * apart from windows that are not finite. */
#ifndef TERN_TRAIN_OUTLIER_H
#define TERN_TRAIN_OUTLIER_H

#include "core/graph/graph.h"

/* States, each (1). */
#define TERN_STATE_OUTLIERS   "step.outliers"   /* u32: windows skipped as outliers so far */
#define TERN_STATE_NORM_COUNT "step.norm_count" /* u32 */
#define TERN_STATE_NORM_MEAN  "step.norm_mean"  /* f32: of log norm */
#define TERN_STATE_NORM_VAR   "step.norm_var"   /* f32 */

typedef struct tern_outlier_options {
    double z;        /* standard deviations, in [1, 1000]; 0: no window is an outlier */
    uint32_t warmup; /* windows before the first can be one; 0: 50 */
} tern_outlier_options;

TERN_MUST_USE tern_status tern_outlier_check(const tern_outlier_options *options);

typedef struct tern_outlier_step {
    tern_tensor *outlier;       /* u32 (1): 1 for an outlier */
    tern_tensor *total, *count; /* u32 (1): the counters' new values */
    tern_tensor *mean, *var;    /* f32 (1): the statistics' */
    tern_tensor *total_state, *count_state, *mean_state, *var_state;
} tern_outlier_step;

/* Appends the test and the statistics, but no assign: the caller stores the new values where nothing reads the old ones
 * any more. norm: f32 (1); finite: u32 (1), 1 when the window has weight and is finite. Only for z > 0. */
tern_outlier_step tern_outlier_append(tern_tensor *norm, tern_tensor *finite, const tern_outlier_options *options);

#endif
