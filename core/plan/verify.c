/* SPDX-License-Identifier: Apache-2.0 */
/* verify.c - the checker: re-derives lifetimes, overlaps and hazards from a finished plan, by the plainest algorithms.
 *
 * It shares no code with liveness.c, placement.c and hazards.c beyond the list of accesses, and compares every pair:
 *   - two arena values whose lifetimes overlap share no byte; offsets are aligned and inside their block;
 *   - every RAW, WAR and WAW pair is ordered by a path of waits (depth-first search, not the hazards' bit sets);
 *   - every wait is such a pair and no other path makes it superfluous, so that a wrong wait cannot hide behind a right
 * one. */
#include "core/plan/hazard.h"

#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ hazards */

static bool conflict(const tern_access *a, const tern_access *b)
{
    return a->space == b->space && ((a->mode | b->mode) & TERN_ACCESS_WRITE) && a->begin < b->end && b->begin < a->end;
}

/* Marks in `seen` every step on a path of waits from `step`, itself excluded. `skip` hides one of its own waits. */
static void mark_ordered(const uint32_t *starts, const uint32_t *list, uint32_t step, uint32_t skip, bool *seen,
                         uint32_t *stack)
{
    uint32_t depth = 0;
    for (uint32_t w = starts[step]; w < starts[step + 1u]; w++)
        if (w != skip && !seen[list[w]]) seen[list[w]] = true, stack[depth++] = list[w];
    while (depth > 0) {
        const uint32_t at = stack[--depth];
        for (uint32_t w = starts[at]; w < starts[at + 1u]; w++)
            if (!seen[list[w]]) seen[list[w]] = true, stack[depth++] = list[w];
    }
}

static bool well_formed(const uint32_t *starts, const uint32_t *list, uint32_t step_count, tern_hazard *out)
{
    if (starts[0] != 0) *out = (tern_hazard){.kind = TERN_HAZARD_MALFORMED};
    for (uint32_t i = 0; i < step_count; i++) {
        if (starts[i + 1u] < starts[i]) *out = (tern_hazard){.kind = TERN_HAZARD_MALFORMED, .later = i};
        for (uint32_t w = starts[i]; w < starts[i + 1u]; w++)
            if (list[w] >= i || (w > starts[i] && list[w] <= list[w - 1u]))
                *out = (tern_hazard){.kind = TERN_HAZARD_MALFORMED, .earlier = list[w], .later = i};
    }
    return out->kind == TERN_HAZARD_NONE;
}

/* All pairs (earlier access, access of step `later`): unordered ones are the fault; ordered or not, `touched` collects
 * the partners. */
static bool check_step(const tern_access *accesses, uint32_t from, uint32_t to, const bool *ordered, bool *touched,
                       tern_hazard *out)
{
    for (uint32_t b = from; b < to; b++)
        for (uint32_t a = 0; a < from; a++) {
            if (!conflict(&accesses[a], &accesses[b])) continue;
            touched[accesses[a].step] = true;
            if (ordered[accesses[a].step]) continue;
            *out = (tern_hazard){.kind = TERN_HAZARD_UNORDERED,
                                 .earlier = accesses[a].step,
                                 .later = accesses[b].step,
                                 .space = accesses[a].space};
            out->begin = accesses[a].begin > accesses[b].begin ? accesses[a].begin : accesses[b].begin;
            out->end = accesses[a].end < accesses[b].end ? accesses[a].end : accesses[b].end;
            return false;
        }
    return true;
}

tern_status tern_hazards_check(const tern_access *accesses, uint32_t access_count, uint32_t step_count,
                               const uint32_t *starts, const uint32_t *list, tern_hazard *out_hazard)
{
    *out_hazard = (tern_hazard){0};
    if (!well_formed(starts, list, step_count, out_hazard)) return TERN_OK;
    bool *ordered = calloc(step_count + 1u, 1), *touched = calloc(step_count + 1u, 1),
         *other = calloc(step_count + 1u, 1);
    uint32_t *stack = calloc(step_count + 1u, sizeof *stack);
    tern_status status = TERN_OK;
    if (!ordered || !touched || !other || !stack) {
        status = tern_error_memory("the hazard checker", (step_count + 1u) * (3u + sizeof *stack));
        goto fail;
    }
    for (uint32_t i = 0, from = 0; i < step_count && out_hazard->kind == TERN_HAZARD_NONE; i++) {
        uint32_t to = from;
        while (to < access_count && accesses[to].step == i) to++;
        memset(ordered, 0, step_count);
        memset(touched, 0, step_count);
        mark_ordered(starts, list, i, UINT32_MAX, ordered, stack);
        if (!check_step(accesses, from, to, ordered, touched, out_hazard)) break;
        for (uint32_t w = starts[i]; w < starts[i + 1u]; w++) {
            memset(other, 0, step_count);
            mark_ordered(starts, list, i, w, other, stack);
            if (!touched[list[w]] || other[list[w]])
                *out_hazard = (tern_hazard){.kind = TERN_HAZARD_NEEDLESS, .earlier = list[w], .later = i};
        }
        from = to;
    }
fail:
    free(ordered);
    free(touched);
    free(other);
    free(stack);
    return status;
}

/* --------------------------------------------------------------- placements */

static const char *value_name(const tern_plan *plan, uint32_t v)
{
    const char *name = plan->lowered->values[v].name;
    return name ? name : "";
}

static const char *launch_label(const tern_plan *plan, uint32_t i)
{
    const char *label = i < plan->lowered->launch_count ? plan->lowered->launches[i].label : NULL;
    return label ? label : "";
}

/* First and last position at which the value must hold its bytes, by looking through all launches. */
static bool lifetime(const tern_plan *plan, uint32_t v, uint32_t *out_first, uint32_t *out_last)
{
    const tern_lowered *lowered = plan->lowered;
    const uint32_t end = lowered->launch_count ? lowered->launch_count - 1u : 0;
    bool used = lowered->values[v].storage == TERN_STORAGE_INPUT;
    *out_first = 0;
    *out_last = 0;
    for (uint32_t i = 0; i < lowered->launch_count; i++)
        for (uint32_t a = 0; a < lowered->launches[i].operand_count; a++) {
            if (lowered->launches[i].operands[a].value != v) continue;
            if (!used) *out_first = i;
            used = true;
            *out_last = i;
        }
    if (used && lowered->values[v].keep) *out_last = end;
    return used;
}

static tern_status check_place(const tern_plan *plan, uint32_t v)
{
    const tern_placement at = plan->placements[v];
    const uint64_t bytes = plan->lowered->values[v].bytes;
    if (at.block >= plan->block_count || at.offset > plan->block_bytes[at.block] ||
        bytes > plan->block_bytes[at.block] - at.offset)
        return tern_error(TERN_ERROR_INTERNAL,
                          "value %u '%s' lies at block %u bytes [%llu, %llu), outside of the arena; please report it",
                          v, value_name(plan, v), at.block, (unsigned long long)at.offset,
                          (unsigned long long)(at.offset + bytes));
    if (at.offset % plan->alignment != 0)
        return tern_error(TERN_ERROR_INTERNAL,
                          "value %u '%s' lies at offset %llu, not a multiple of %llu; please report it", v,
                          value_name(plan, v), (unsigned long long)at.offset, (unsigned long long)plan->alignment);
    return TERN_OK;
}

/* Every pair of arena values: no common byte while both live (guarded plans: ever). */
static tern_status check_pairs(const tern_plan *plan, const uint32_t *first, const uint32_t *last, const bool *used)
{
    const tern_value *values = plan->lowered->values;
    for (uint32_t b = 0; b < plan->lowered->value_count; b++) {
        if (!used[b]) continue;
        for (uint32_t a = 0; a < b; a++) {
            const tern_placement x = plan->placements[a], y = plan->placements[b];
            if (!used[a] || x.block != y.block || x.offset >= y.offset + values[b].bytes ||
                y.offset >= x.offset + values[a].bytes)
                continue;
            if (!plan->options.guard && (last[a] < first[b] || last[b] < first[a])) continue;
            const uint64_t begin = x.offset > y.offset ? x.offset : y.offset;
            return tern_error(TERN_ERROR_INTERNAL,
                              "values '%s' (launches %u to %u) and '%s' (launches %u to %u) share bytes of block %u "
                              "from %llu on; please report it",
                              value_name(plan, a), first[a], last[a], value_name(plan, b), first[b], last[b], x.block,
                              (unsigned long long)begin);
        }
    }
    return TERN_OK;
}

static tern_status check_placements(const tern_plan *plan)
{
    tern_status status = TERN_OK;
    const uint32_t count = plan->lowered->value_count;
    uint32_t *first = calloc(count + 1u, sizeof *first), *last = calloc(count + 1u, sizeof *last);
    bool *used = calloc(count + 1u, sizeof *used);
    if (!first || !last || !used) {
        status = tern_error_memory("the plan checker", (count + 1u) * 9u);
        goto fail;
    }
    for (uint32_t v = 0; v < count; v++) {
        used[v] = plan->lowered->values[v].storage != TERN_STORAGE_BOUND && lifetime(plan, v, &first[v], &last[v]);
        if (!used[v]) continue;
        TERN_TRY(check_place(plan, v));
        if (plan->first_use[v] != first[v] || plan->last_use[v] != last[v]) {
            status =
                tern_error(TERN_ERROR_INTERNAL,
                           "value %u '%s' is planned for launches %u to %u but used from %u to %u; please report it", v,
                           value_name(plan, v), plan->first_use[v], plan->last_use[v], first[v], last[v]);
            goto fail;
        }
    }
    TERN_TRY(check_pairs(plan, first, last, used));
fail:
    free(first);
    free(last);
    free(used);
    return status;
}

/* --------------------------------------------------------------------- plan */

static tern_status report(const tern_plan *plan, const tern_hazard *fault)
{
    const char *earlier = launch_label(plan, fault->earlier), *later = launch_label(plan, fault->later);
    switch (fault->kind) {
    case TERN_HAZARD_NONE: return TERN_OK;
    case TERN_HAZARD_UNORDERED:
        return tern_error(TERN_ERROR_INTERNAL,
                          "launches %u '%s' and %u '%s' both touch bytes [%llu, %llu) of space %u and no wait orders "
                          "them; please report it",
                          fault->earlier, earlier, fault->later, later, (unsigned long long)fault->begin,
                          (unsigned long long)fault->end, fault->space);
    case TERN_HAZARD_NEEDLESS:
        return tern_error(TERN_ERROR_INTERNAL, "launch %u '%s' waits for %u '%s' without need; please report it",
                          fault->later, later, fault->earlier, earlier);
    default:
        return tern_error(
            TERN_ERROR_INTERNAL,
            "launch %u '%s' waits for %u, which is not an earlier launch or not in order; please report it",
            fault->later, later, fault->earlier);
    }
}

tern_status tern_plan_verify(const tern_plan *plan)
{
    tern_access *accesses = NULL;
    uint32_t count = 0;
    tern_hazard fault;
    tern_status status = TERN_OK;
    TERN_TRY(check_placements(plan));
    TERN_TRY(tern_plan_accesses(plan, &accesses, &count));
    TERN_TRY(tern_hazards_check(accesses, count, plan->lowered->launch_count, plan->wait_starts, plan->waits, &fault));
    status = report(plan, &fault);
fail:
    free(accesses);
    return status;
}
