/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c - from a lowered graph to a finished plan, and what the plan tells about itself.
 *
 *     check operands against limits ─> liveness ─> placement ─> accesses ─> waits ─> cuts
 *
 * Not here: device memory (arena.c) and recording (record.c). Nothing in a plan depends on a driver being present. */
#include "core/plan/hazard.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK_DEFAULT  ((uint64_t)2 << 30)
#define ALIGN_LEAST    64u
#define ALIGN_DEFAULT  256u
#define LAUNCH_SECONDS 5e-6 /* start-up of one kernel; 3 to 10 us on the drivers measured */

typedef unsigned long long ull;

static const char *name_of(const char *name) { return name ? name : ""; }

/* ------------------------------------------------------------------- limits */

static tern_status check_launch(const tern_lowered *lowered, uint32_t i, const tern_device_info *info)
{
    const tern_launch *launch = &lowered->launches[i];
    const char *label = name_of(launch->label);
    if (launch->operand_count > TERN_TAPE_TENSORS || launch->kernel >= lowered->kernel_count ||
        launch->word_count > TERN_KERNEL_WORDS)
        return tern_error(TERN_ERROR_INTERNAL,
                          "launch %u '%s' has %u operands, kernel %u of %u and %u words; please report it", i, label,
                          launch->operand_count, launch->kernel, lowered->kernel_count, launch->word_count);
    for (uint32_t a = 0; a < launch->operand_count; a++) {
        const tern_operand *o = &launch->operands[a];
        if (o->value >= lowered->value_count)
            return tern_error(TERN_ERROR_INTERNAL, "launch %u '%s' uses value %u of %u; please report it", i, label,
                              o->value, lowered->value_count);
        const tern_value *value = &lowered->values[o->value];
        if (o->bytes == 0 || o->offset > value->bytes || o->bytes > value->bytes - o->offset || o->mode == 0)
            return tern_error(TERN_ERROR_INTERNAL,
                              "launch %u '%s' touches bytes [%llu, %llu) of '%s', which has %llu; please report it", i,
                              label, (ull)o->offset, (ull)(o->offset + o->bytes), name_of(value->name),
                              (ull)value->bytes);
        if (info->max_binding_bytes && !(info->features & TERN_FEATURE_BUFFER_ADDRESS) &&
            o->bytes > info->max_binding_bytes)
            return tern_error(TERN_ERROR_UNSUPPORTED,
                              "'%s' in launch '%s' spans %llu bytes, but a kernel argument of %s reaches at most %llu "
                              "bytes; use a smaller batch or context",
                              name_of(value->name), label, (ull)o->bytes, info->name, (ull)info->max_binding_bytes);
    }
    return TERN_OK;
}

static uint64_t smaller(uint64_t limit, uint64_t other)
{
    return limit == 0 ? other : other == 0 || limit < other ? limit : other;
}

/* The largest block: what was asked, within what the device allows in one allocation. An arena value never spans
 * blocks, so that without an explicit block size a larger value raises the default. */
static tern_status choose_block(const tern_plan *plan, const tern_device_info *info, uint64_t asked,
                                uint64_t *out_limit)
{
    const uint64_t hard = smaller(info->max_allocation_bytes, info->max_buffer_bytes);
    uint64_t limit = smaller(asked ? asked : BLOCK_DEFAULT, hard);
    const uint64_t guards = plan->options.guard ? 2 * tern_align(TERN_GUARD_BYTES, plan->alignment) : 0;
    for (uint32_t v = 0; v < plan->lowered->value_count; v++) {
        if (!tern_plan_in_arena(plan, v)) continue;
        const tern_value *value = &plan->lowered->values[v];
        const uint64_t bytes = tern_align(value->bytes, plan->alignment) + guards;
        if (info->memory_bytes && value->bytes > info->memory_bytes)
            return tern_error(
                TERN_ERROR_DEVICE_MEMORY,
                "'%s' alone needs %llu bytes, but %s has %llu bytes of memory; use a smaller batch or context",
                name_of(value->name), (ull)value->bytes, info->name, (ull)info->memory_bytes);
        if (hard && bytes > hard)
            return tern_error(TERN_ERROR_DEVICE_MEMORY,
                              "'%s' needs %llu bytes in one piece, but %s allocates at most %llu bytes at once; use a "
                              "smaller batch or context",
                              name_of(value->name), (ull)bytes, info->name, (ull)hard);
        if (asked && bytes > asked)
            return tern_error(
                TERN_ERROR_INVALID,
                "'%s' needs %llu bytes in one piece, more than the arena's blocks of %llu; ask for larger blocks",
                name_of(value->name), (ull)bytes, (ull)asked);
        if (bytes > limit) limit = bytes;
    }
    *out_limit = limit;
    return TERN_OK;
}

/* --------------------------------------------------------------------- cuts */

double tern_plan_launch_seconds(const tern_plan *plan, uint32_t launch)
{
    const tern_launch *l = &plan->lowered->launches[launch];
    const double arithmetic = l->flops / plan->options.flops, traffic = l->bytes / plan->options.bytes_per_s;
    return (arithmetic > traffic ? arithmetic : traffic) + LAUNCH_SECONDS;
}

uint32_t tern_cuts_find(const double *seconds, uint32_t count, double limit, uint32_t *out_cuts)
{
    uint32_t cuts = 0;
    double running = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (running > 0 && running + seconds[i] > limit) {
            out_cuts[cuts++] = i;
            running = 0;
        }
        running += seconds[i];
    }
    return cuts;
}

static tern_status find_cuts(tern_plan *plan)
{
    const uint32_t count = plan->lowered->launch_count;
    double *seconds = calloc(count + 1u, sizeof *seconds);
    if (!seconds) return tern_error_memory("the predicted times", (count + 1u) * sizeof *seconds);
    for (uint32_t i = 0; i < count; i++) {
        seconds[i] = tern_plan_launch_seconds(plan, i);
        plan->predicted_seconds += seconds[i];
    }
    plan->cut_count = tern_cuts_find(seconds, count, plan->options.submit_seconds, plan->cuts);
    free(seconds);
    return TERN_OK;
}

/* -------------------------------------------------------------------- waits */

tern_status tern_plan_accesses(const tern_plan *plan, tern_access **out_accesses, uint32_t *out_count)
{
    const tern_lowered *lowered = plan->lowered;
    uint32_t count = 0;
    for (uint32_t i = 0; i < lowered->launch_count; i++) count += lowered->launches[i].operand_count;
    tern_access *accesses = calloc(count + 1u, sizeof *accesses);
    if (!accesses) return tern_error_memory("the hazard table", (count + 1u) * sizeof *accesses);
    uint32_t n = 0;
    for (uint32_t i = 0; i < lowered->launch_count; i++)
        for (uint32_t a = 0; a < lowered->launches[i].operand_count; a++) {
            const tern_operand *o = &lowered->launches[i].operands[a];
            const bool bound = lowered->values[o->value].storage == TERN_STORAGE_BOUND;
            const uint64_t begin = o->offset + (bound ? 0 : plan->placements[o->value].offset);
            accesses[n++] =
                (tern_access){.step = i,
                              .space = bound ? plan->block_count + o->value : plan->placements[o->value].block,
                              .mode = o->mode,
                              .begin = begin,
                              .end = begin + o->bytes};
        }
    *out_accesses = accesses;
    *out_count = n;
    return TERN_OK;
}

static tern_status find_waits(tern_plan *plan)
{
    tern_access *accesses = NULL;
    uint32_t count = 0;
    tern_status status = tern_plan_accesses(plan, &accesses, &count);
    if (status < 0) return status;
    tern_waits waits = {0};
    status = tern_hazards_find(accesses, count, plan->lowered->launch_count,
                               plan->block_count + plan->lowered->value_count, &waits);
    plan->wait_starts = waits.starts;
    plan->waits = waits.list;
    free(accesses);
    return status;
}

/* --------------------------------------------------------------------- plan */

static void fill_options(tern_plan *plan, const tern_device_info *info, const tern_plan_options *options)
{
    if (options) plan->options = *options;
    tern_plan_options *o = &plan->options;
    if (!(o->submit_seconds > 0)) o->submit_seconds = 0.5;
    if (!(o->flops > 0)) o->flops = 1e12;
    if (!(o->bytes_per_s > 0)) o->bytes_per_s = 1e11;
    plan->alignment = info->offset_alignment ? info->offset_alignment : ALIGN_DEFAULT;
    if (plan->alignment < ALIGN_LEAST) plan->alignment = ALIGN_LEAST;
}

static tern_status reserve(tern_plan *plan)
{
    const size_t values = (size_t)plan->lowered->value_count + 1u, launches = (size_t)plan->lowered->launch_count + 1u;
    plan->placements = calloc(values, sizeof *plan->placements);
    plan->first_use = calloc(values, sizeof *plan->first_use);
    plan->last_use = calloc(values, sizeof *plan->last_use);
    plan->cuts = calloc(launches, sizeof *plan->cuts);
    if (!plan->placements || !plan->first_use || !plan->last_use || !plan->cuts)
        return tern_error_memory("the plan", values * 24u + launches * sizeof *plan->cuts);
    return TERN_OK;
}

tern_status tern_plan_create(const tern_lowered *lowered, const tern_device_info *info,
                             const tern_plan_options *options, tern_plan **out_plan)
{
    tern_status status = TERN_OK;
    uint64_t block_limit = 0;
    tern_plan *plan = calloc(1, sizeof *plan);
    if (!plan) return tern_error_memory("the plan", sizeof *plan);
    plan->lowered = lowered;
    fill_options(plan, info, options);
    TERN_TRY(reserve(plan));
    for (uint32_t i = 0; i < lowered->launch_count; i++) TERN_TRY(check_launch(lowered, i, info));
    TERN_TRY(tern_liveness_compute(plan));
    TERN_TRY(choose_block(plan, info, plan->options.block_bytes, &block_limit));
    plan->options.block_bytes = block_limit;
    TERN_TRY(tern_placement_compute(plan, block_limit));
    TERN_TRY(find_waits(plan));
    TERN_TRY(find_cuts(plan));
    for (uint32_t v = 0; v < lowered->value_count; v++)
        if (lowered->values[v].storage == TERN_STORAGE_INPUT)
            plan->upload_bytes += tern_align(lowered->values[v].bytes, plan->alignment);
    *out_plan = plan;
    return TERN_OK;
fail:
    tern_plan_destroy(plan);
    return status;
}

void tern_plan_destroy(tern_plan *plan)
{
    if (!plan) return;
    free(plan->placements);
    free(plan->first_use);
    free(plan->last_use);
    free(plan->wait_starts);
    free(plan->waits);
    free(plan->cuts);
    free(plan->block_bytes);
    free(plan);
}

/* ------------------------------------------------------------------- tables */

void tern_plan_bytes(const tern_plan *plan, uint64_t out_bytes[TERN_VALUE_KIND_COUNT])
{
    memset(out_bytes, 0, TERN_VALUE_KIND_COUNT * sizeof *out_bytes);
    for (uint32_t v = 0; v < plan->lowered->value_count; v++) {
        const tern_value *value = &plan->lowered->values[v];
        const bool live = plan->first_use[v] <= plan->peak_launch && plan->peak_launch <= plan->last_use[v];
        if (value->storage == TERN_STORAGE_BOUND || (tern_plan_in_arena(plan, v) && live))
            out_bytes[value->kind] += value->bytes;
    }
}

const char *tern_plan_peak_label(const tern_plan *plan)
{
    return plan->lowered->launch_count ? name_of(plan->lowered->launches[plan->peak_launch].label) : "";
}

static void consider(tern_plan_demand *demand, const char *name, uint64_t used, uint64_t limit)
{
    if (limit == 0) return;
    if (demand->limit_bytes &&
        (double)used / (double)limit <= (double)demand->limit_used_bytes / (double)demand->limit_bytes)
        return;
    demand->limit_name = name;
    demand->limit_used_bytes = used;
    demand->limit_bytes = limit;
}

void tern_plan_measure(const tern_plan *plan, const tern_device_info *info, uint64_t extra_bytes,
                       tern_plan_demand *out_demand)
{
    const tern_lowered *lowered = plan->lowered;
    tern_plan_demand demand = {
        .arena_bytes = plan->arena_bytes, .extra_bytes = extra_bytes, .largest_range_name = "", .limit_name = ""};
    tern_plan_bytes(plan, demand.bytes);
    for (uint32_t v = 0; v < lowered->value_count; v++)
        if (lowered->values[v].storage == TERN_STORAGE_BOUND) demand.bound_bytes += lowered->values[v].bytes;
    demand.total_bytes = demand.bound_bytes + demand.arena_bytes + extra_bytes;
    for (uint32_t b = 0; b < plan->block_count; b++)
        if (plan->block_bytes[b] > demand.largest_block_bytes) demand.largest_block_bytes = plan->block_bytes[b];
    for (uint32_t i = 0; i < lowered->launch_count; i++)
        for (uint32_t a = 0; a < lowered->launches[i].operand_count; a++) {
            const tern_operand *o = &lowered->launches[i].operands[a];
            if (o->bytes <= demand.largest_range_bytes) continue;
            demand.largest_range_bytes = o->bytes;
            demand.largest_range_name = name_of(lowered->values[o->value].name);
        }
    consider(&demand, "memory", demand.total_bytes, smaller(info->memory_bytes, info->memory_free_bytes));
    consider(&demand, "allocation", demand.largest_block_bytes,
             smaller(info->max_allocation_bytes, info->max_buffer_bytes));
    if (!(info->features & TERN_FEATURE_BUFFER_ADDRESS))
        consider(&demand, "binding range", demand.largest_range_bytes, info->max_binding_bytes);
    *out_demand = demand;
}
