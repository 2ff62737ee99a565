/* SPDX-License-Identifier: Apache-2.0 */
/* record.c - the step list of an executable.
 *
 *     [fill poison]  [copy input -> arena] ...  [dispatch] ...  [copy output -> read-back] ...
 *      guard only     one per input              one per launch   read_back only
 *
 * The plan's waits are for launches and know no store. Here every step has its real buffers, so that the waits are
 * found again over all of them, copies and bindings included (two bindings may share a buffer), checked pair by pair,
 * and only then recorded, in the given order or, for the test executor, reversed wherever no wait forbids it.
 * Invariant: both slots' programs are the same steps; they differ in the upload and read-back buffers only. */
#include "core/plan/executable.h"
#include "core/plan/hazard.h"

#include <stdlib.h>
#include <string.h>

typedef struct recorder {
    tern_executable *executable;
    tern_step *steps; /* natural order, then step_count more: as recorded */
    uint32_t step_count, first_launch;
    tern_access *accesses;
    uint32_t access_count;
    tern_backend_buffer **spaces;
    uint32_t space_count;
    tern_waits waits;
    uint32_t *order;    /* recorded position -> natural step */
    uint32_t *position; /* natural step -> recorded position */
    uint32_t *list;     /* waits as recorded positions */
    uint32_t *cuts;
} recorder;

static void recorder_finish(recorder *r)
{
    free(r->steps);
    free(r->accesses);
    free(r->spaces);
    tern_waits_finish(&r->waits);
    free(r->order);
    free(r->position);
    free(r->list);
    free(r->cuts);
}

/* -------------------------------------------------------------------- steps */

/* Copies move whole words. Values of odd length have room behind them: every value and slot entry is aligned. */
static uint64_t copy_bytes(const tern_value *value) { return tern_align(value->bytes, 4); }

static const char *text(const char *label) { return label ? label : ""; }

static tern_argument argument(tern_backend_buffer *buffer, uint64_t offset, uint64_t bytes, uint32_t mode)
{
    return (tern_argument){.buffer = buffer, .offset = offset, .bytes = bytes, .mode = mode};
}

static void add_copy(recorder *r, const char *label, tern_argument from, tern_argument to)
{
    tern_step *step = &r->steps[r->step_count++];
    *step = (tern_step){.kind = TERN_STEP_COPY, .label = label, .argument_count = 2};
    step->arguments[0] = from;
    step->arguments[1] = to;
    r->executable->copies++;
}

static void add_poison(recorder *r)
{
    const tern_plan *plan = r->executable->plan;
    for (uint32_t b = 0; plan->options.guard && b < plan->block_count; b++) {
        tern_step *step = &r->steps[r->step_count++];
        *step = (tern_step){.kind = TERN_STEP_FILL, .label = "poison", .argument_count = 1, .fill = TERN_GUARD_POISON};
        step->arguments[0] = argument(r->executable->arena->blocks[b], 0, plan->block_bytes[b], TERN_ACCESS_WRITE);
    }
}

static void add_inputs(recorder *r)
{
    const tern_executable *e = r->executable;
    const tern_lowered *lowered = e->plan->lowered;
    for (uint32_t v = 0; v < lowered->value_count; v++) {
        const tern_value *value = &lowered->values[v];
        if (value->storage != TERN_STORAGE_INPUT) continue;
        add_copy(r, text(value->name),
                 argument(e->slots[0].upload, e->upload_offsets[v], copy_bytes(value), TERN_ACCESS_READ),
                 argument(e->places[v].buffer, e->places[v].offset, copy_bytes(value), TERN_ACCESS_WRITE));
    }
}

static void add_outputs(recorder *r)
{
    const tern_executable *e = r->executable;
    const tern_lowered *lowered = e->plan->lowered;
    for (uint32_t o = 0; e->read_back && o < lowered->output_count; o++) {
        const uint32_t v = lowered->outputs[o].value;
        const uint64_t bytes = copy_bytes(&lowered->values[v]);
        add_copy(r, lowered->outputs[o].name,
                 argument(e->places[v].buffer, e->places[v].offset, bytes, TERN_ACCESS_READ),
                 argument(e->slots[0].read_back, e->output_offsets[o], bytes, TERN_ACCESS_WRITE));
    }
}

static tern_status check_groups(const tern_executable *e, const tern_launch *launch)
{
    const tern_device_info *info = &e->device->info;
    for (uint32_t d = 0; d < 3; d++)
        if (launch->groups[d] == 0 || (info->max_groups[d] && launch->groups[d] > info->max_groups[d]))
            return tern_error(
                TERN_ERROR_UNSUPPORTED,
                "launch '%s' needs %u work-groups on axis %u, %s allows 1 to %u; use a smaller batch or context",
                text(launch->label), launch->groups[d], d, info->name, info->max_groups[d]);
    return TERN_OK;
}

static tern_status add_launch(recorder *r, const tern_launch *launch)
{
    tern_executable *e = r->executable;
    tern_step *step = &r->steps[r->step_count];
    const tern_kernel_desc *desc = e->plan->lowered->kernels[launch->kernel];
    *step = (tern_step){.kind = TERN_STEP_DISPATCH,
                        .label = text(launch->label),
                        .argument_count = launch->operand_count,
                        .word_count = launch->word_count};
    tern_status status = check_groups(e, launch);
    if (status < 0) return status;
    status = tern_kernel_cache_get(&e->arena->kernels, desc, &step->kernel);
    if (status < 0) return tern_error_prefix(status, "kernel of '%s'", text(launch->label));
    for (uint32_t a = 0; a < launch->operand_count; a++) {
        const tern_operand *o = &launch->operands[a];
        step->arguments[a] =
            argument(e->places[o->value].buffer, e->places[o->value].offset + o->offset, o->bytes, o->mode);
    }
    memcpy(step->words, launch->words, sizeof step->words);
    memcpy(step->groups, launch->groups, sizeof step->groups);
    r->step_count++;
    return TERN_OK;
}

/* ------------------------------------------------------------------ hazards */

/* The number of a buffer among those met so far. */
static uint32_t space_of(recorder *r, tern_backend_buffer *buffer)
{
    for (uint32_t s = 0; s < r->space_count; s++)
        if (r->spaces[s] == buffer) return s;
    r->spaces[r->space_count] = buffer;
    return r->space_count++;
}

static tern_status find_waits(recorder *r)
{
    tern_hazard fault;
    for (uint32_t i = 0; i < r->step_count; i++)
        for (uint32_t a = 0; a < r->steps[i].argument_count; a++) {
            const tern_argument *arg = &r->steps[i].arguments[a];
            r->accesses[r->access_count++] = (tern_access){.step = i,
                                                           .space = space_of(r, arg->buffer),
                                                           .mode = arg->mode,
                                                           .begin = arg->offset,
                                                           .end = arg->offset + arg->bytes};
        }
    tern_status status = tern_hazards_find(r->accesses, r->access_count, r->step_count, r->space_count, &r->waits);
    if (status < 0) return status;
    status = tern_hazards_check(r->accesses, r->access_count, r->step_count, r->waits.starts, r->waits.list, &fault);
    if (status < 0 || fault.kind == TERN_HAZARD_NONE) return status;
    return tern_error(TERN_ERROR_INTERNAL,
                      "steps %u '%s' and %u '%s' of '%s' are ordered wrongly (bytes [%llu, %llu)); please report it",
                      fault.earlier, r->steps[fault.earlier].label, fault.later, r->steps[fault.later].label,
                      r->executable->label, (unsigned long long)fault.begin, (unsigned long long)fault.end);
}

/* -------------------------------------------------------------------- order */

static bool ready(const recorder *r, uint32_t step)
{
    for (uint32_t w = r->waits.starts[step]; w < r->waits.starts[step + 1u]; w++)
        if (r->position[r->waits.list[w]] == UINT32_MAX) return false;
    return true;
}

/* reverse: always the last step that is ready, so that whatever no wait orders runs the other way round. */
static void choose_order(recorder *r, bool reverse)
{
    for (uint32_t i = 0; i < r->step_count; i++) r->position[i] = UINT32_MAX;
    for (uint32_t at = 0; at < r->step_count; at++) {
        uint32_t step = at;
        if (reverse)
            for (step = r->step_count - 1u; r->position[step] != UINT32_MAX || !ready(r, step); step--) continue;
        r->order[at] = step;
        r->position[step] = at;
    }
}

static int ascending(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* Steps in recorded order with their waits renumbered; fills the launches' order and each position's predicted time. */
static void arrange(recorder *r, double *seconds)
{
    tern_executable *e = r->executable;
    const uint32_t launches = e->plan->lowered->launch_count;
    tern_step *recorded = r->steps + r->step_count;
    uint32_t used = 0, launch = 0;
    for (uint32_t at = 0; at < r->step_count; at++) {
        const uint32_t step = r->order[at];
        uint32_t *mine = r->list + used;
        for (uint32_t w = r->waits.starts[step]; w < r->waits.starts[step + 1u]; w++)
            r->list[used++] = r->position[r->waits.list[w]];
        recorded[at] = r->steps[step];
        recorded[at].waits = mine;
        recorded[at].wait_count = (uint32_t)(r->list + used - mine);
        qsort(mine, recorded[at].wait_count, sizeof *mine, ascending);
        const bool is_launch = step >= r->first_launch && step - r->first_launch < launches;
        seconds[at] = is_launch ? tern_plan_launch_seconds(e->plan, step - r->first_launch) : 0;
        if (is_launch) e->order[launch++] = step - r->first_launch;
    }
}

/* ----------------------------------------------------------------- programs */

/* Copies that used `from`'s upload and read-back buffers use `to`'s. */
static void aim(recorder *r, const tern_slot *from, const tern_slot *to)
{
    for (uint32_t i = 0; i < r->step_count; i++) {
        tern_step *step = &r->steps[r->step_count + i];
        if (step->kind != TERN_STEP_COPY) continue;
        if (from->upload && step->arguments[0].buffer == from->upload) step->arguments[0].buffer = to->upload;
        if (from->read_back && step->arguments[1].buffer == from->read_back) step->arguments[1].buffer = to->read_back;
    }
}

static tern_status create_programs(recorder *r)
{
    tern_executable *e = r->executable;
    const tern_program_desc desc = {.label = e->label,
                                    .step_count = r->step_count,
                                    .steps = r->steps + r->step_count,
                                    .cut_count = e->cut_count,
                                    .cuts = r->cuts};
    e->step_count = r->step_count;
    e->first_launch = r->first_launch;
    for (uint32_t s = 0; s < TERN_SLOTS; s++) {
        if (s > 0) aim(r, &e->slots[s - 1u], &e->slots[s]);
        tern_status status = e->device->backend->program_create(e->device->handle, &desc, &e->slots[s].program);
        if (status < 0) return tern_error_prefix(status, "program '%s'", e->label);
    }
    return TERN_OK;
}

static tern_status reserve(recorder *r)
{
    const tern_executable *e = r->executable;
    const tern_lowered *lowered = e->plan->lowered;
    const size_t most =
        (size_t)e->plan->block_count + lowered->value_count + lowered->launch_count + lowered->output_count + 1u;
    r->steps = calloc(2u * most, sizeof *r->steps);
    r->accesses = calloc(most * TERN_TAPE_TENSORS, sizeof *r->accesses);
    r->spaces = calloc(e->plan->block_count + (size_t)lowered->value_count + 3u, sizeof(tern_backend_buffer *));
    r->order = calloc(most, sizeof *r->order);
    r->position = calloc(most, sizeof *r->position);
    r->cuts = calloc(most, sizeof *r->cuts);
    if (!r->steps || !r->accesses || !r->spaces || !r->order || !r->position || !r->cuts)
        return tern_error_memory("the program",
                                 most * (2u * sizeof *r->steps + TERN_TAPE_TENSORS * sizeof *r->accesses));
    return TERN_OK;
}

tern_status tern_executable_record(tern_executable *executable, bool reverse)
{
    tern_status status = TERN_OK;
    const tern_lowered *lowered = executable->plan->lowered;
    recorder r = {.executable = executable};
    double *seconds = NULL;
    TERN_TRY(reserve(&r));
    add_poison(&r);
    add_inputs(&r);
    r.first_launch = r.step_count;
    for (uint32_t i = 0; i < lowered->launch_count; i++) TERN_TRY(add_launch(&r, &lowered->launches[i]));
    add_outputs(&r);
    TERN_TRY(find_waits(&r));
    r.list = calloc(r.waits.starts[r.step_count] + 1u, sizeof *r.list);
    seconds = calloc(r.step_count + 1u, sizeof *seconds);
    if (!r.list || !seconds) {
        status = tern_error_memory("the program", r.step_count * sizeof *seconds);
        goto fail;
    }
    choose_order(&r, reverse);
    arrange(&r, seconds);
    executable->cut_count = tern_cuts_find(seconds, r.step_count, executable->plan->options.submit_seconds, r.cuts);
    TERN_TRY(create_programs(&r));
fail:
    free(seconds);
    recorder_finish(&r);
    return status;
}
