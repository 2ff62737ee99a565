/* SPDX-License-Identifier: Apache-2.0 */
/* program.c - a program: steps made ready once, enqueued one after the other at each submission.
 *
 *     create   every step checked; a dispatch gets a cl_kernel of its own, whose arguments stay set
 *     submit   enqueue ... enqueue | flush at a cut | enqueue ... flush; the last command's event is the ticket's
 *
 * The queue runs in order, so waits and lanes between steps hold by themselves. A recorded command buffer
 * (cl_khr_command_buffer) was measured and gains nothing: 2-3 us a kernel either way. With timestamps every step keeps
 * its event (measured on PoCL: 0.5 to 1 us more per step), else only the last. Invariant: a program that was created
 * cannot touch a byte outside the ranges of its buffers' sizes by a copy or fill, nor start a kernel with arguments
 * missing. */
#include "backends/opencl/opencl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"

typedef enum step_kind { STEP_DISPATCH, STEP_COPY, STEP_UPLOAD, STEP_READBACK, STEP_FILL } step_kind;

typedef struct step {
    step_kind kind;
    bool cut_before;
    cl_kernel kernel; /* DISPATCH */
    size_t items[3], group[3];
    cl_mem source, destination; /* COPY both; UPLOAD, FILL: destination; READBACK: source */
    char *host;                 /* UPLOAD, READBACK */
    size_t source_offset, destination_offset, bytes;
    cl_uint pattern;
} step;

struct tern_backend_program {
    char label[96];
    uint32_t step_count, cut_count;
    step *steps;
    cl_event *events; /* step_count with timestamps, of the last submission; else NULL */
    uint64_t ticket;  /* of the last submission, 0: none yet */
};

/* ------------------------------------------------------------------ create */

static tern_status argument_check(const char *label, uint32_t index, const tern_argument *argument, uint32_t alignment)
{
    const tern_backend_buffer *buffer = argument->buffer;
    if (!buffer) return tern_error(TERN_ERROR_INVALID, "step \"%s\": argument %u has no buffer", label, index);
    if (argument->offset > buffer->bytes || argument->bytes > buffer->bytes - argument->offset)
        return tern_error(TERN_ERROR_INVALID,
                          "step \"%s\": argument %u is bytes %" PRIu64 " to %" PRIu64 " of a buffer of %" PRIu64, label,
                          index, argument->offset, argument->offset + argument->bytes, buffer->bytes);
    if (argument->offset % alignment)
        return tern_error(TERN_ERROR_INVALID,
                          "step \"%s\": argument %u starts at byte %" PRIu64 ", not a multiple of %u", label, index,
                          argument->offset, alignment);
    return TERN_OK;
}

static tern_status arguments_set(tern_backend_device *device, const tern_step *from, cl_kernel kernel)
{
    tern_status status = TERN_OK;
    cl_uint at = 0;
    for (uint32_t i = 0; i < from->argument_count; i++) {
        const tern_argument *argument = &from->arguments[i];
        const uint64_t elements = argument->offset / from->kernel->shape.element_bytes[i];
        const cl_uint offset = (cl_uint)elements;
        TERN_TRY(argument_check(from->label, i, argument, from->kernel->shape.element_bytes[i]));
        if (argument->buffer->kind != TERN_BUFFER_DEVICE)
            TERN_TRY(tern_error(TERN_ERROR_INVALID,
                                "step \"%s\": argument %u is an upload or read-back buffer; kernels take device "
                                "buffers, so copy first",
                                from->label, i));
        if (elements != offset)
            TERN_TRY(tern_error(TERN_ERROR_UNSUPPORTED,
                                "step \"%s\": argument %u starts at element %" PRIu64 "; kernels count to %u",
                                from->label, i, elements, UINT32_MAX));
        TERN_TRY(CL_CALL(device, clSetKernelArg, kernel, at++, sizeof(cl_mem), &argument->buffer->memory));
        TERN_TRY(CL_CALL(device, clSetKernelArg, kernel, at++, sizeof offset, &offset));
    }
    if (from->word_count)
        TERN_TRY(CL_CALL(device, clSetKernelArg, kernel, at, 4 * (size_t)from->word_count, from->words));
fail:
    return status;
}

static tern_status dispatch_record(tern_backend_device *device, const tern_step *from, step *to)
{
    const tern_backend_kernel *kernel = from->kernel;
    cl_int code = CL_SUCCESS;
    tern_status status;
    to->kind = STEP_DISPATCH;
    if (!kernel || from->argument_count != kernel->shape.tensor_count || from->word_count != kernel->shape.word_count)
        TERN_TRY(tern_error(TERN_ERROR_INVALID,
                            "step \"%s\": %u arguments and %u words were given; the kernel takes %u and %u",
                            from->label, from->argument_count, from->word_count,
                            kernel ? kernel->shape.tensor_count : 0, kernel ? kernel->shape.word_count : 0));
    for (size_t d = 0; d < 3; d++) {
        if (from->groups[d] == 0 || from->groups[d] > device->info.max_groups[d])
            TERN_TRY(tern_error(TERN_ERROR_INVALID, "step \"%s\": %u groups on axis %zu; the device takes 1 to %u",
                                from->label, from->groups[d], d, device->info.max_groups[d]));
        to->group[d] = kernel->shape.group[d];
        to->items[d] = (size_t)kernel->shape.group[d] * from->groups[d];
    }
    TERN_TRY(CL_MAKE(device, &to->kernel, clCreateKernel, kernel->program, kernel->entry));
    TERN_TRY(arguments_set(device, from, to->kernel));
fail:
    return status;
}

static tern_status copy_record(const tern_step *from, step *to)
{
    const tern_argument *source = &from->arguments[0], *destination = &from->arguments[1];
    tern_status status;
    if (from->argument_count != 2 || source->bytes != destination->bytes || source->bytes == 0)
        TERN_TRY(tern_error(TERN_ERROR_INVALID,
                            "step \"%s\": a copy takes two ranges of equal size; it has %u, of %" PRIu64 " and "
                            "%" PRIu64 " bytes",
                            from->label, from->argument_count, source->bytes, destination->bytes));
    TERN_TRY(argument_check(from->label, 0, source, 4));
    TERN_TRY(argument_check(from->label, 1, destination, 4));
    if (source->buffer->address && destination->buffer->address)
        TERN_TRY(tern_error(TERN_ERROR_UNSUPPORTED,
                            "step \"%s\" copies from host to host; one side must be a device buffer", from->label));
    if (source->buffer == destination->buffer && source->offset < destination->offset + destination->bytes &&
        destination->offset < source->offset + source->bytes)
        TERN_TRY(tern_error(TERN_ERROR_INVALID,
                            "step \"%s\": bytes %" PRIu64 " and %" PRIu64 " of one buffer overlap over %" PRIu64
                            " bytes; copy by way of another",
                            from->label, source->offset, destination->offset, source->bytes));
    to->kind = source->buffer->address ? STEP_UPLOAD : destination->buffer->address ? STEP_READBACK : STEP_COPY;
    to->source = source->buffer->memory;
    to->destination = destination->buffer->memory;
    to->source_offset = (size_t)source->offset;
    to->destination_offset = (size_t)destination->offset;
    to->bytes = (size_t)source->bytes;
    if (to->kind == STEP_UPLOAD) to->host = source->buffer->address + source->offset;
    if (to->kind == STEP_READBACK) to->host = destination->buffer->address + destination->offset;
fail:
    return status;
}

static tern_status fill_record(const tern_step *from, step *to)
{
    const tern_argument *range = &from->arguments[0];
    tern_status status;
    to->kind = STEP_FILL;
    if (from->argument_count != 1 || range->bytes == 0 || range->bytes % 4)
        TERN_TRY(tern_error(TERN_ERROR_INVALID,
                            "step \"%s\": a fill takes one range of whole words; it has %u, of %" PRIu64 " bytes",
                            from->label, from->argument_count, range->bytes));
    TERN_TRY(argument_check(from->label, 0, range, 4));
    if (range->buffer->kind != TERN_BUFFER_DEVICE)
        TERN_TRY(tern_error(TERN_ERROR_UNSUPPORTED,
                            "step \"%s\" fills an upload or read-back buffer; the host does that itself", from->label));
    to->destination = range->buffer->memory;
    to->destination_offset = (size_t)range->offset;
    to->bytes = (size_t)range->bytes;
    to->pattern = from->fill;
fail:
    return status;
}

static tern_status step_record(tern_backend_device *device, const tern_program_desc *desc, uint32_t index, step *to)
{
    tern_step from = desc->steps[index];
    if (!from.label) from.label = desc->label ? desc->label : "step";
    for (uint32_t w = 0; w < from.wait_count; w++)
        if (from.waits[w] >= index)
            return tern_error(TERN_ERROR_INVALID, "step %u \"%s\" waits for step %u, which is not before it", index,
                              from.label, from.waits[w]);
    switch (from.kind) {
    case TERN_STEP_DISPATCH: return dispatch_record(device, &from, to);
    case TERN_STEP_COPY: return copy_record(&from, to);
    case TERN_STEP_FILL: return fill_record(&from, to);
    }
    return tern_error(TERN_ERROR_INVALID, "step %u \"%s\" is of the unknown kind %d", index, from.label,
                      (int)from.kind);
}

static tern_status cuts_record(const tern_program_desc *desc, tern_backend_program *program)
{
    for (uint32_t i = 0; i < desc->cut_count; i++) {
        if (desc->cuts[i] >= desc->step_count)
            return tern_error(TERN_ERROR_INVALID, "program \"%s\" is cut before step %u; it has %u steps",
                              program->label, desc->cuts[i], desc->step_count);
        step *at = &program->steps[desc->cuts[i]];
        if (desc->cuts[i] > 0 && !at->cut_before) program->cut_count++; /* nothing stands before step 0 */
        at->cut_before = desc->cuts[i] > 0;
    }
    return TERN_OK;
}

tern_status tern_opencl_program_create(tern_backend_device *device, const tern_program_desc *desc,
                                       tern_backend_program **out_program)
{
    tern_backend_program *program = NULL;
    tern_status status;
    *out_program = NULL;
    TERN_TRY(tern_opencl_enter(device));
    program = calloc(1, sizeof *program);
    if (!program) return tern_error_memory("an OpenCL program", sizeof *program);
    const size_t room = desc->step_count ? desc->step_count : 1;
    if (desc->label) strncat(program->label, desc->label, sizeof program->label - 1);
    program->steps = calloc(room, sizeof *program->steps);
    if (program->steps && device->timestamps) program->events = calloc(room, sizeof *program->events);
    if (!program->steps || (device->timestamps && !program->events))
        TERN_TRY(tern_error_memory("an OpenCL program's steps", room * sizeof *program->steps));
    program->step_count = desc->step_count;
    TERN_TRY(cuts_record(desc, program));
    for (uint32_t i = 0; i < desc->step_count; i++) TERN_TRY(step_record(device, desc, i, &program->steps[i]));
    *out_program = program;
    return TERN_OK;
fail:
    tern_opencl_program_destroy(device, program);
    return status;
}

static void events_release(tern_backend_program *program)
{
    for (uint32_t i = 0; program->events && i < program->step_count; i++)
        CL_RELEASE(clReleaseEvent, program->events[i]);
}

void tern_opencl_program_destroy(tern_backend_device *device, tern_backend_program *program)
{
    if (!program) return;
    if (tern_opencl_is_own(device)) {
        if (program->ticket && tern_opencl_drain(device) < 0)
            tern_log_write(TERN_LOG_WARNING, "opencl: destroying \"%s\": %s", program->label, tern_error_message());
        events_release(program);
        for (uint32_t i = 0; program->steps && i < program->step_count; i++)
            CL_RELEASE(clReleaseKernel, program->steps[i].kernel);
    }
    free(program->events);
    free(program->steps);
    free(program);
}

/* ------------------------------------------------------------------ submit */

static tern_status step_enqueue(tern_backend_device *device, const step *at, cl_event *out_event)
{
    cl_command_queue queue = device->queue;
    switch (at->kind) {
    case STEP_DISPATCH:
        return CL_CALL(device, clEnqueueNDRangeKernel, queue, at->kernel, 3, NULL, at->items, at->group, 0, NULL,
                       out_event);
    case STEP_COPY:
        return CL_CALL(device, clEnqueueCopyBuffer, queue, at->source, at->destination, at->source_offset,
                       at->destination_offset, at->bytes, 0, NULL, out_event);
    case STEP_UPLOAD:
        return CL_CALL(device, clEnqueueWriteBuffer, queue, at->destination, CL_FALSE, at->destination_offset,
                       at->bytes, at->host, 0, NULL, out_event);
    case STEP_READBACK:
        return CL_CALL(device, clEnqueueReadBuffer, queue, at->source, CL_FALSE, at->source_offset, at->bytes, at->host,
                       0, NULL, out_event);
    default:
        return CL_CALL(device, clEnqueueFillBuffer, queue, at->destination, &at->pattern, sizeof at->pattern,
                       at->destination_offset, at->bytes, 0, NULL, out_event);
    }
}

/* The last command's event in *out_event, the caller's to count; for an empty program a marker's. */
static tern_status steps_enqueue(tern_backend_device *device, tern_backend_program *program, cl_event *out_event)
{
    tern_status status = TERN_OK;
    for (uint32_t i = 0; i < program->step_count; i++) {
        const bool last = i + 1 == program->step_count;
        if (program->steps[i].cut_before) TERN_TRY(CL_CALL(device, clFlush, device->queue));
        cl_event *event = program->events ? &program->events[i] : last ? out_event : NULL;
        TERN_TRY(step_enqueue(device, &program->steps[i], event));
        if (program->events) tern_opencl_object_add(1);
    }
    if (program->step_count == 0 || program->events)
        TERN_TRY(CL_CALL(device, clEnqueueMarkerWithWaitList, device->queue, 0, NULL, out_event));
fail:
    return status;
}

/* Some of a program's steps may be running, with host addresses in hand, though the program as a whole failed. */
static void partial_finish(tern_backend_device *device)
{
    cl_event event = NULL;
    if (CL_CALL(device, clEnqueueMarkerWithWaitList, device->queue, 0, NULL, &event) >= 0)
        (void)tern_opencl_event_finish(device, &event);
}

tern_status tern_opencl_program_submit(tern_backend_device *device, tern_backend_program *program, uint64_t *out_ticket)
{
    cl_event last = NULL;
    tern_status status;
    TERN_TRY(tern_opencl_enter(device));
    pthread_mutex_lock(&device->lock);
    status = tern_opencl_ticket_prepare(device);
    if (status >= 0) {
        events_release(program);
        status = steps_enqueue(device, program, &last);
        if (status >= 0)
            program->ticket = tern_opencl_ticket_give(device, last);
        else
            partial_finish(device);
        if (status >= 0) status = CL_CALL(device, clFlush, device->queue);
        if (status >= 0) *out_ticket = program->ticket; /* a failed flush uses the ticket up */
    }
    pthread_mutex_unlock(&device->lock);
fail:
    return status;
}

uint32_t tern_opencl_submission_count(tern_backend_device *device, tern_backend_program *program)
{
    (void)device;
    return program->ticket ? 1 + program->cut_count : 0;
}

tern_status tern_opencl_program_times(tern_backend_device *device, tern_backend_program *program, uint64_t *out_ns)
{
    tern_status status;
    TERN_TRY(tern_opencl_enter(device));
    if (!program->events)
        TERN_TRY(tern_error(TERN_ERROR_UNSUPPORTED,
                            "%s was opened without timestamps; set tern_open_options.timestamps", device->info.name));
    if (program->ticket == 0)
        TERN_TRY(tern_error(TERN_ERROR_INVALID, "program \"%s\" has not run yet; submit it and wait", program->label));
    TERN_TRY(tern_opencl_wait(device, program->ticket, TERN_OPENCL_PATIENCE_NS));
    for (uint32_t i = 0; i < program->step_count; i++) {
        cl_ulong start = 0, end = 0;
        TERN_TRY(CL_CALL(device, clGetEventProfilingInfo, program->events[i], CL_PROFILING_COMMAND_START, sizeof start,
                         &start, NULL));
        TERN_TRY(CL_CALL(device, clGetEventProfilingInfo, program->events[i], CL_PROFILING_COMMAND_END, sizeof end,
                         &end, NULL));
        out_ns[i] = end > start ? end - start : 0;
    }
fail:
    return status;
}
