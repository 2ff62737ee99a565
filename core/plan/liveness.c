/* SPDX-License-Identifier: Apache-2.0 */
/* liveness.c - from when to when a value needs its bytes.
 *
 *     launch   0   1   2   3   4
 *     input    ■■■■■■■■■           filled by a copy before launch 0, so it lives from 0
 *     h            ■■■■■
 *     loss                 ■■■■■   kept: lives to the end, where the read-back copies it
 *
 * Positions are launch indices. Values bound to a store are not the arena's business and get the same numbers for the
 * tables only.
 * Invariant: a launch that touches a value lies in [first_use, last_use], both ends included. */
#include "core/plan/hazard.h"

#include <stdlib.h>

bool tern_plan_in_arena(const tern_plan *plan, uint32_t value)
{
    return plan->lowered->values[value].storage != TERN_STORAGE_BOUND &&
           plan->first_use[value] <= plan->last_use[value];
}

static void include(tern_plan *plan, uint32_t value, uint32_t position)
{
    if (position < plan->first_use[value]) plan->first_use[value] = position;
    if (position > plan->last_use[value]) plan->last_use[value] = position;
}

/* A transient that is read before it is written would see what some other value left there. */
static tern_status check_first_touch(const tern_plan *plan)
{
    const tern_lowered *lowered = plan->lowered;
    for (uint32_t v = 0; v < lowered->value_count; v++) {
        const tern_value *value = &lowered->values[v];
        if (value->storage != TERN_STORAGE_TRANSIENT || plan->first_use[v] > plan->last_use[v]) continue;
        bool written = false;
        const tern_launch *launch = lowered->launch_count ? &lowered->launches[plan->first_use[v]] : NULL;
        for (uint32_t a = 0; launch && a < launch->operand_count; a++)
            if (launch->operands[a].value == v && (launch->operands[a].mode & TERN_ACCESS_WRITE)) written = true;
        if (!written)
            return tern_error(TERN_ERROR_INTERNAL,
                              "value %u '%s' (%llu bytes) is read before any launch has written it; please report it",
                              v, value->name ? value->name : "", (unsigned long long)value->bytes);
    }
    return TERN_OK;
}

/* Running sum of live bytes; each value adds at its first use and leaves after its last. */
static tern_status find_peak(tern_plan *plan, uint32_t positions)
{
    const tern_lowered *lowered = plan->lowered;
    uint64_t *arriving = calloc(positions + 1u, sizeof *arriving), *leaving = calloc(positions + 1u, sizeof *leaving);
    if (!arriving || !leaving) {
        free(arriving);
        free(leaving);
        return tern_error_memory("the liveness table", 2 * (positions + 1u) * sizeof *arriving);
    }
    for (uint32_t v = 0; v < lowered->value_count; v++) {
        if (!tern_plan_in_arena(plan, v)) continue;
        arriving[plan->first_use[v]] += lowered->values[v].bytes;
        leaving[plan->last_use[v] + 1u] += lowered->values[v].bytes;
    }
    uint64_t live = 0;
    plan->live_peak_bytes = 0;
    plan->peak_launch = 0;
    for (uint32_t i = 0; i < positions; i++) {
        live += arriving[i];
        live -= leaving[i];
        if (live > plan->live_peak_bytes) {
            plan->live_peak_bytes = live;
            plan->peak_launch = i;
        }
    }
    free(arriving);
    free(leaving);
    return TERN_OK;
}

tern_status tern_liveness_compute(tern_plan *plan)
{
    const tern_lowered *lowered = plan->lowered;
    const uint32_t positions = lowered->launch_count ? lowered->launch_count : 1u;
    for (uint32_t v = 0; v < lowered->value_count; v++) {
        plan->first_use[v] = UINT32_MAX;
        plan->last_use[v] = 0;
        if (lowered->values[v].storage == TERN_STORAGE_INPUT) plan->first_use[v] = 0;
    }
    for (uint32_t i = 0; i < lowered->launch_count; i++)
        for (uint32_t a = 0; a < lowered->launches[i].operand_count; a++)
            include(plan, lowered->launches[i].operands[a].value, i);
    for (uint32_t v = 0; v < lowered->value_count; v++)
        if (lowered->values[v].keep && plan->first_use[v] != UINT32_MAX) plan->last_use[v] = positions - 1u;
    tern_status status = check_first_touch(plan);
    return status < 0 ? status : find_peak(plan, positions);
}
