/* SPDX-License-Identifier: Apache-2.0 */
/* program.c - a program: steps appended to command lists once and replayed, or, on a device that has only immediate
 * lists, appended anew at each submission.
 *
 *     part (between cuts)   barrier | steps, a barrier before one that waits for something after the last barrier |
 *     the last part         ... | a barrier that signals the program's event
 *
 * A barrier stands for all waits behind it, as in a Vulkan command buffer. All steps are in one lane: a copy engine of
 * its own is not used. With timestamps every step signals an event, whose time it is. Invariant: a program that was
 * created touches no byte outside the ranges of its buffers by a copy or fill, and starts no kernel with arguments
 * missing. */
#include "backends/level_zero/level_zero.h"

#include <stdlib.h>
#include <string.h>

typedef struct step {
    tern_step what; /* without its waits */
    ze_kernel_handle_t kernel;
    bool barrier_before;
    uint32_t part_end; /* of the part that begins here */
} step;

struct tern_backend_program {
    char label[96];
    uint32_t step_count, part_count;
    step *steps;
    ze_command_list_handle_t *lists; /* of each part; NULL with immediate lists */
    ze_event_pool_handle_t pool;
    ze_event_handle_t *events; /* [0] the end; with timestamps [1 + i] step i */
    uint32_t event_count;
    uint64_t ticket; /* of the last submission, 0: none yet */
};

/* ------------------------------------------------------------------ commands */

/* The event that a step signals, NULL without timestamps. */
static ze_event_handle_t event_of(const tern_backend_program *program, uint32_t index)
{
    return program->event_count > 1 ? program->events[1 + index] : NULL;
}

/* Arguments stay with the kernel until others are set, and are taken when the launch is appended: so a lock is held. */
static tern_status dispatch_append(tern_backend_device *device, const step *at, ze_command_list_handle_t list,
                                   ze_event_handle_t event)
{
    const tern_step *what = &at->what;
    const ze_group_count_t groups = {what->groups[0], what->groups[1], what->groups[2]};
    tern_status status = TERN_OK;
    uint32_t index = 0;
    for (uint32_t i = 0; i < what->argument_count; i++) {
        const tern_argument *argument = &what->arguments[i];
        const uint64_t whole = argument->offset & ~UINT64_C(255);
        char *const address = argument->buffer->address + whole;
        const uint32_t offset = (uint32_t)((argument->offset - whole) / what->kernel->shape.element_bytes[i]);
        TERN_TRY(ZE_CALL(device, zeKernelSetArgumentValue, at->kernel, index++, sizeof address, &address));
        TERN_TRY(ZE_CALL(device, zeKernelSetArgumentValue, at->kernel, index++, sizeof offset, &offset));
    }
    if (what->word_count)
        TERN_TRY(
            ZE_CALL(device, zeKernelSetArgumentValue, at->kernel, index, 4 * (size_t)what->word_count, what->words));
    TERN_TRY(ZE_CALL(device, zeCommandListAppendLaunchKernel, list, at->kernel, &groups, event, 0, NULL));
fail:
    return status;
}

static tern_status step_append(tern_backend_device *device, const step *at, ze_command_list_handle_t list,
                               ze_event_handle_t event)
{
    const tern_argument *a = &at->what.arguments[0], *b = &at->what.arguments[1];
    tern_status status = TERN_OK;
    if (at->barrier_before) TERN_TRY(ZE_CALL(device, zeCommandListAppendBarrier, list, NULL, 0, NULL));
    if (at->what.kind == TERN_STEP_DISPATCH)
        TERN_TRY(dispatch_append(device, at, list, event));
    else if (at->what.kind == TERN_STEP_COPY)
        TERN_TRY(ZE_CALL(device, zeCommandListAppendMemoryCopy, list, b->buffer->address + b->offset,
                         a->buffer->address + a->offset, (size_t)a->bytes, event, 0, NULL));
    else
        TERN_TRY(ZE_CALL(device, zeCommandListAppendMemoryFill, list, a->buffer->address + a->offset, &at->what.fill,
                         sizeof at->what.fill, (size_t)a->bytes, event, 0, NULL));
fail:
    return status;
}

/* Steps [start, end); a program without steps has one part all the same, for its event. */
static tern_status part_append(tern_backend_device *device, const tern_backend_program *program, uint32_t start,
                               uint32_t end, ze_command_list_handle_t list)
{
    tern_status status;
    TERN_TRY(ZE_CALL(device, zeCommandListAppendBarrier, list, NULL, 0, NULL));
    for (uint32_t i = start; i < end; i++)
        TERN_TRY(step_append(device, &program->steps[i], list, event_of(program, i)));
    if (end == program->step_count)
        TERN_TRY(ZE_CALL(device, zeCommandListAppendBarrier, list, program->events[0], 0, NULL));
fail:
    return status;
}

/* ------------------------------------------------------------------ create */

static tern_status step_record(tern_backend_device *device, const tern_step *from, uint32_t index, uint32_t barrier,
                               step *to)
{
    bool large = false;
    tern_status status;
    TERN_TRY(tern_step_check(&device->base.info, from, index));
    for (uint32_t w = 0; w < from->wait_count; w++)
        if (from->waits[w] >= barrier) to->barrier_before = true;
    to->what = *from;
    to->what.waits = NULL;
    to->what.wait_count = 0;
    if (from->kind != TERN_STEP_DISPATCH) return TERN_OK;
    for (uint32_t i = 0; i < from->argument_count; i++) large |= zero_is_large(device, from->arguments[i].buffer);
    TERN_TRY(zero_kernel_form(device, from->kernel, large, &to->kernel));
fail:
    return status;
}

static tern_status steps_record(tern_backend_device *device, const tern_program_desc *desc,
                                tern_backend_program *program)
{
    uint32_t barrier = 0; /* steps before it are behind a barrier */
    const tern_status cuts = tern_cuts_check(desc);
    if (cuts < 0) return cuts;
    for (uint32_t start = 0; start < desc->step_count; start = program->steps[start].part_end)
        program->steps[start].part_end = tern_part_end(desc, start);
    for (uint32_t i = 0; i < desc->step_count; i++) {
        step *to = &program->steps[i];
        if (to->part_end) barrier = i;
        const tern_status status = step_record(device, &desc->steps[i], i, barrier, to);
        if (status < 0)
            return tern_error_prefix(status, "step %u \"%s\"", i,
                                     desc->steps[i].label ? desc->steps[i].label : program->label);
        if (to->barrier_before) barrier = i;
    }
    return TERN_OK;
}

static tern_status lists_record(tern_backend_device *device, tern_backend_program *program)
{
    const ze_command_list_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC,
                                         .commandQueueGroupOrdinal = device->ordinal};
    tern_status status = TERN_OK;
    uint32_t start = 0;
    do {
        const uint32_t end = program->steps[start].part_end;
        ze_command_list_handle_t *list = &program->lists[program->part_count];
        if (device->queue) {
            TERN_TRY(ZE_CALL(device, zeCommandListCreate, device->context, device->entry.device, &desc, list));
            TERN_TRY(part_append(device, program, start, end, *list));
            TERN_TRY(ZE_CALL(device, zeCommandListClose, *list));
        }
        program->part_count++;
        start = end;
    } while (start < program->step_count);
fail:
    return status;
}

tern_status zero_program_create(tern_backend_device *device, const tern_program_desc *desc,
                                tern_backend_program **out_program)
{
    const size_t room = (size_t)desc->step_count + 1;
    const uint32_t events = 1 + (device->timestamps ? desc->step_count : 0);
    tern_backend_program *program = NULL;
    tern_status status;
    *out_program = NULL;
    TERN_TRY(tern_plugin_enter(&device->base));
    program = calloc(1, sizeof *program);
    if (!program) return tern_error_memory("a Level Zero program", sizeof *program);
    if (desc->label) strncat(program->label, desc->label, sizeof program->label - 1);
    program->steps = calloc(room, sizeof *program->steps);
    program->lists = calloc((size_t)desc->cut_count + 2, sizeof(ze_command_list_handle_t));
    program->events = calloc(events, sizeof(ze_event_handle_t));
    if (!program->steps || !program->lists || !program->events)
        TERN_TRY(tern_error_memory("a Level Zero program's steps", room * sizeof *program->steps));
    program->step_count = desc->step_count;
    TERN_TRY(zero_pool_create(device, events, device->timestamps, &program->pool));
    for (; program->event_count < events; program->event_count++)
        TERN_TRY(
            zero_event_create(device, program->pool, program->event_count, &program->events[program->event_count]));
    pthread_mutex_lock(&device->lock);
    status = steps_record(device, desc, program);
    if (status >= 0) status = lists_record(device, program);
    pthread_mutex_unlock(&device->lock);
    if (status < 0) goto fail;
    *out_program = program;
    return TERN_OK;
fail:
    zero_program_destroy(device, program);
    return status;
}

void zero_program_destroy(tern_backend_device *device, tern_backend_program *program)
{
    if (!program) return;
    if (zero_may_release(device, program->label)) {
        for (uint32_t i = 0; program->lists && i <= program->part_count; i++)
            ZE_RELEASE(zeCommandListDestroy, program->lists[i]);
        for (uint32_t i = 0; program->events && i < program->event_count; i++)
            ZE_RELEASE(zeEventDestroy, program->events[i]);
        ZE_RELEASE(zeEventPoolDestroy, program->pool);
    }
    free(program->events);
    free(program->lists);
    free(program->steps);
    free(program);
}

/* ------------------------------------------------------------------ submit */

static tern_status parts_execute(tern_backend_device *device, tern_backend_program *program, bool *out_begun)
{
    tern_status status = TERN_OK;
    uint32_t start = 0;
    for (uint32_t i = 0; i < program->event_count; i++) TERN_TRY(ZE_CALL(device, zeEventHostReset, program->events[i]));
    for (uint32_t i = 0; i < program->part_count; i++) {
        const uint32_t end = program->steps[start].part_end;
        *out_begun = *out_begun || !device->queue;
        if (device->queue)
            TERN_TRY(ZE_CALL(device, zeCommandQueueExecuteCommandLists, device->queue, 1, &program->lists[i], NULL));
        else
            TERN_TRY(part_append(device, program, start, end, device->immediate));
        *out_begun = true;
        start = end;
    }
fail:
    return status;
}

tern_status zero_program_submit(tern_backend_device *device, tern_backend_program *program, uint64_t *out_ticket)
{
    bool begun = false;
    tern_status status;
    TERN_TRY(tern_plugin_enter(&device->base));
    pthread_mutex_lock(&device->lock);
    /* Its event, and lists that still run, may not be used again before that submission has ended. */
    status = zero_ticket_finish(device, program->ticket);
    if (status >= 0 && device->ticket >= ZERO_RING) status = zero_ticket_finish(device, device->ticket - ZERO_RING + 1);
    if (status >= 0) status = parts_execute(device, program, &begun);
    if (status >= 0) {
        *out_ticket = program->ticket = zero_ticket_give(device, program->events[0]);
    } else if (begun) { /* some of it may be running, with buffers in use */
        status = tern_plugin_finish_failed(device, status, zero_partial_finish);
    }
    pthread_mutex_unlock(&device->lock);
fail:
    return status;
}

uint32_t zero_submission_count(tern_backend_device *device, tern_backend_program *program)
{
    (void)device;
    return program->ticket ? program->part_count : 0;
}

tern_status zero_program_times(tern_backend_device *device, tern_backend_program *program, uint64_t *out_ns)
{
    tern_status status;
    TERN_TRY(tern_plugin_enter(&device->base));
    TERN_TRY(tern_plugin_times_check(&device->base, device->timestamps, program->label, program->ticket));
    TERN_TRY(zero_wait(device, program->ticket, device->base.patience_ns));
    for (uint32_t i = 0; i < program->step_count; i++) {
        ze_kernel_timestamp_result_t times;
        TERN_TRY(ZE_CALL(device, zeEventQueryKernelTimestamp, event_of(program, i), &times));
        const uint64_t ticks = (times.global.kernelEnd - times.global.kernelStart) & device->tick_mask;
        out_ns[i] = (uint64_t)((double)ticks * (double)device->ns_per_tick_q32 / 4294967296.0);
    }
fail:
    return status;
}
