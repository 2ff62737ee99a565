/* SPDX-License-Identifier: Apache-2.0 */
/* scaler.c - the transition of scaler.h in graph primitives; all reads mean the values before this window ended. */
#include "core/train/scaler.h"

#include <math.h>

static double or_default(double value, double fallback) { return value != 0 ? value : fallback; }

tern_scale_options tern_scale_resolve(const tern_scale_options *options, bool needs_scale)
{
    tern_scale_options o = *options;
    if (o.mode == TERN_SCALE_AUTO) o.mode = needs_scale ? TERN_SCALE_DYNAMIC : TERN_SCALE_STATIC;
    o.initial = or_default(o.initial, o.mode == TERN_SCALE_DYNAMIC ? 0x1p12 : 1.0);
    o.growth = or_default(o.growth, 2.0);
    o.backoff = or_default(o.backoff, 0.5);
    o.cap = or_default(o.cap, 0x1p24);
    o.floor = or_default(o.floor, 0x1p-14);
    if (o.growth_interval == 0) o.growth_interval = 2000;
    if (o.hysteresis == 0) o.hysteresis = 1;
    return o;
}

static bool is_power_of_two(double value)
{
    int exponent;
    return value > 0 && isfinite(value) && frexp(value, &exponent) == 0.5;
}

tern_status tern_scale_check(const tern_scale_options *o)
{
    const struct {
        const char *name;
        double value, low, high;
    } checks[] = {
        {"loss scale", o->initial, 0x1p-24, 0x1p64},        {"loss scale's cap", o->cap, 0x1p-24, 0x1p64},
        {"loss scale's floor", o->floor, 0x1p-24, 0x1p64},  {"loss scale's growth", o->growth, 2, 0x1p16},
        {"loss scale's backoff", o->backoff, 0x1p-16, 0.5},
    };
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        const double value = checks[i].value;
        if (!is_power_of_two(value) || value < checks[i].low || value > checks[i].high)
            return tern_error(TERN_ERROR_INVALID, "the %s is %g; it must be a power of two in [%g, %g]", checks[i].name,
                              value, checks[i].low, checks[i].high);
    }
    if (o->mode == TERN_SCALE_DYNAMIC && !(o->floor <= o->initial && o->initial <= o->cap))
        return tern_error(TERN_ERROR_INVALID,
                          "the loss scale starts at %g; it must lie between its floor %g and cap %g", o->initial,
                          o->floor, o->cap);
    return TERN_OK;
}

static tern_tensor *counter(tern_graph *graph, const char *name)
{
    return tern_state(graph, name, TERN_U32, 1, (const int64_t[]){1});
}

tern_scale_step tern_scaler_append(tern_tensor *scale, tern_tensor *ok, tern_tensor *bad, const tern_scale_options *o)
{
    tern_graph *graph = scale->graph;
    tern_tensor *none = tern_constant_u32(graph, 0);
    if (o->mode != TERN_SCALE_DYNAMIC)
        return (tern_scale_step){.scale = scale, .floor = tern_expand(none, 1, (const int64_t[]){1})};
    tern_tensor *good = counter(graph, TERN_STATE_GOOD), *used = counter(graph, TERN_STATE_HYSTERESIS);
    tern_tensor *good_now = tern_add(good, ok), *used_now = tern_add(used, bad);
    tern_tensor *grow = tern_and(ok, tern_less(tern_constant_u32(graph, o->growth_interval - 1), good_now));
    tern_tensor *fall = tern_and(bad, tern_less(tern_constant_u32(graph, o->hysteresis - 1), used_now));
    tern_tensor *up = tern_min(tern_mul(scale, tern_constant(graph, o->growth)), tern_constant(graph, o->cap));
    tern_tensor *down = tern_max(tern_mul(scale, tern_constant(graph, o->backoff)), tern_constant(graph, o->floor));
    tern_tensor *above = tern_less(tern_constant(graph, o->floor), scale);
    return (tern_scale_step){
        .scale = tern_where(fall, down, tern_where(grow, up, scale)),
        .good = tern_where(tern_or(bad, grow), none, good_now),
        .used = tern_where(tern_or(fall, grow), none, used_now),
        .floor = tern_and(fall, tern_xor(above, tern_constant_u32(graph, 1))),
        .good_state = good,
        .used_state = used,
    };
}
