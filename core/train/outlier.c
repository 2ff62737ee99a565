/* SPDX-License-Identifier: Apache-2.0 */
/* outlier.c - the statistics of outlier.h in graph primitives. */
#include "core/train/outlier.h"

#define WARMUP_DEFAULT 50u
#define MEMORY         100u /* windows */
#define LEAST_SPREAD   0.02
#define LEAST_NORM     1e-30 /* a norm of 0 has no logarithm */

tern_status tern_outlier_check(const tern_outlier_options *o)
{
    if (o->z == 0 || (o->z >= 1 && o->z <= 1000)) return TERN_OK;
    return tern_error(TERN_ERROR_INVALID, "the outliers' threshold is %g; it must be 0 or lie in [1, 1000]", o->z);
}

static tern_tensor *state(tern_graph *graph, const char *name, int32_t dtype)
{
    return tern_state(graph, name, dtype, 1, (const int64_t[]){1});
}

tern_outlier_step tern_outlier_append(tern_tensor *norm, tern_tensor *finite, const tern_outlier_options *o)
{
    tern_graph *graph = norm->graph;
    const uint32_t warmup = o->warmup ? o->warmup : WARMUP_DEFAULT;
    tern_outlier_step s = {.total_state = state(graph, TERN_STATE_OUTLIERS, TERN_U32),
                           .count_state = state(graph, TERN_STATE_NORM_COUNT, TERN_U32),
                           .mean_state = state(graph, TERN_STATE_NORM_MEAN, TERN_F32),
                           .var_state = state(graph, TERN_STATE_NORM_VAR, TERN_F32)};
    tern_tensor *count = s.count_state, *mean = s.mean_state, *var = s.var_state;
    tern_tensor *x = tern_log(tern_max(norm, tern_constant(graph, LEAST_NORM)));
    tern_tensor *spread = tern_max(tern_sqrt(var), tern_constant(graph, LEAST_SPREAD));
    tern_tensor *range = tern_mul(spread, tern_constant(graph, o->z));
    tern_tensor *most = tern_add(mean, range), *least = tern_sub(mean, range);
    tern_tensor *warm = tern_less(tern_constant_u32(graph, warmup - 1), count);
    tern_tensor *cut = tern_where(warm, tern_min(tern_max(x, least), most), x);
    s.outlier = tern_and(finite, tern_and(warm, tern_less(most, x)));
    tern_tensor *next = tern_add(count, tern_constant_u32(graph, 1));
    tern_tensor *rate = tern_recip(tern_cast(tern_min(next, tern_constant_u32(graph, MEMORY)), TERN_F32));
    tern_tensor *d = tern_sub(cut, mean);
    tern_tensor *kept = tern_sub(tern_constant(graph, 1), rate);
    tern_tensor *var_now = tern_mul(kept, tern_add(var, tern_mul(rate, tern_mul(d, d))));
    s.mean = tern_where(finite, tern_add(mean, tern_mul(rate, d)), mean);
    s.var = tern_where(finite, var_now, var);
    s.count = tern_add(count, finite);
    s.total = tern_add(s.total_state, s.outlier);
    return s;
}
