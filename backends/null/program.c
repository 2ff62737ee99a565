/* SPDX-License-Identifier: Apache-2.0 */
/* program.c - recording, submitting and waiting, for a driver that is always done at once. */
#include <stdlib.h>

#include "backends/null/control.h"

static void use_step(null_step *kept, const tern_step *step)
{
    kept->kind = step->kind;
    kept->kernel = step->kind == TERN_STEP_DISPATCH ? step->kernel : NULL;
    kept->buffer_count = step->argument_count;
    if (kept->kernel) kept->kernel->users++;
    for (uint32_t i = 0; i < step->argument_count; i++) {
        kept->buffers[i] = step->arguments[i].buffer;
        kept->buffers[i]->users++;
    }
}

tern_status null_program_create(tern_backend_device *device, const tern_program_desc *desc,
                                tern_backend_program **out_program)
{
    tern_status status;
    TERN_TRY(null_enter(device, "program_create"));
    TERN_TRY(null_check_program(device, desc));
    const size_t bytes = sizeof(tern_backend_program) + desc->step_count * sizeof(null_step);
    tern_backend_program *program = calloc(1, bytes);
    if (!program) return tern_error_memory("a program", bytes);
    program->device = device;
    program->step_count = desc->step_count;
    program->submission_count = 1 + desc->cut_count;
    null_state *s = null_lock();
    for (uint32_t i = 0; i < desc->step_count; i++) use_step(&program->steps[i], &desc->steps[i]);
    device->objects++;
    s->counts.programs++;
    s->counts.programs_created++;
    null_unlock();
    *out_program = program;
fail:
    return status;
}

void null_program_destroy(tern_backend_device *device, tern_backend_program *program)
{
    if (!program) return;
    null_state *s = null_lock();
    for (uint32_t i = 0; i < program->step_count; i++) {
        const null_step *step = &program->steps[i];
        if (step->kernel) null_kernel_release(step->kernel);
        for (uint32_t a = 0; a < step->buffer_count; a++) null_buffer_release(step->buffers[a]);
    }
    s->counts.programs--;
    null_forget(device);
    null_unlock();
    free(program);
}

tern_status null_program_submit(tern_backend_device *device, tern_backend_program *program, uint64_t *out_ticket)
{
    tern_status status;
    TERN_TRY(null_enter(device, "program_submit"));
    TERN_TRY(null_same_device(device, program->device, "program"));
    null_state *s = null_lock();
    for (uint32_t i = 0; i < program->step_count; i++) {
        s->counts.dispatches += program->steps[i].kind == TERN_STEP_DISPATCH;
        s->counts.copies += program->steps[i].kind == TERN_STEP_COPY;
        s->counts.fills += program->steps[i].kind == TERN_STEP_FILL;
    }
    s->counts.program_submits++;
    s->counts.submissions += program->submission_count;
    program->last_ticket = ++device->submitted;
    const uint64_t in_flight = device->submitted - device->finished;
    if (in_flight > s->counts.in_flight_peak) s->counts.in_flight_peak = in_flight;
    *out_ticket = program->last_ticket;
    null_unlock();
fail:
    return status;
}

tern_status null_wait(tern_backend_device *device, uint64_t ticket, uint64_t timeout_ns)
{
    tern_status status;
    (void)timeout_ns; /* nothing ever takes time here */
    TERN_TRY(null_enter(device, "wait"));
    null_state *s = null_lock();
    const uint64_t submitted = device->submitted;
    if (ticket <= submitted && ticket > device->finished) device->finished = ticket;
    s->counts.waits++;
    null_unlock();
    if (ticket > submitted)
        status = tern_error(TERN_ERROR_INVALID, "null: waiting for ticket %llu; the last one given was %llu",
                            (unsigned long long)ticket, (unsigned long long)submitted);
fail:
    return status;
}

tern_status null_program_times(tern_backend_device *device, tern_backend_program *program, uint64_t *out_ns)
{
    tern_status status;
    TERN_TRY(null_enter(device, "program_times"));
    (void)null_lock();
    const bool finished = program->last_ticket && program->last_ticket <= device->finished;
    null_unlock();
    if (!finished)
        return tern_error(TERN_ERROR_INVALID,
                          "null: times of a program that has not finished; submit it and wait first");
    for (uint32_t i = 0; i < program->step_count; i++) out_ns[i] = 0;
fail:
    return status;
}

uint32_t null_submission_count(tern_backend_device *device, tern_backend_program *program)
{
    (void)device;
    return program->submission_count;
}
