/* SPDX-License-Identifier: Apache-2.0 */
/* program.c - programs, the queue, and the driver thread that takes submissions in order.
 *
 *     program_submit ──> queue ──> driver thread ──> steps in turn, each shared over the pool ──> done
 *
 * Steps run in the order in which they stand in the program. That satisfies every lane and every wait, since waits name
 * earlier steps only. Cuts part the run into pieces that are counted but need nothing else here: nothing kills a long
 * one. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/cpu.h"
#include "core/base/time.h"

typedef struct tern_cpu_submission {
    struct tern_cpu_submission *next;
    tern_backend_program *program;
    uint64_t ticket;
} tern_cpu_submission;

/* -------------------------------------------------------------------- steps */

static void destroy_step(tern_cpu_step *step)
{
    tern_cpu_nest_destroy(step->nest);
    tern_cpu_matmul_destroy(step->matmul);
    tern_cpu_attend_destroy(step->attend);
    tern_cpu_scatter_destroy(step->scatter);
}

static tern_status bind_ranges(const tern_step *from, tern_cpu_step *step)
{
    for (uint32_t i = 0; i < from->argument_count; i++) {
        const tern_argument *argument = &from->arguments[i];
        if (!argument->buffer)
            return tern_error(TERN_ERROR_INVALID, "step \"%s\" has no buffer for argument %u", from->label, i);
        if (argument->offset > argument->buffer->bytes || argument->bytes > argument->buffer->bytes - argument->offset)
            return tern_error(TERN_ERROR_INVALID,
                              "step \"%s\" uses bytes %llu to %llu of argument %u's buffer, which has %llu",
                              from->label, (unsigned long long)argument->offset,
                              (unsigned long long)(argument->offset + argument->bytes), i,
                              (unsigned long long)argument->buffer->bytes);
        step->range[i] = (tern_cpu_range){(char *)argument->buffer->data + argument->offset, argument->bytes};
    }
    return TERN_OK;
}

static tern_status create_dispatch(tern_backend_device *device, const tern_step *from, tern_cpu_step *step)
{
    const tern_kernel_desc *desc = &from->kernel->desc;
    if (from->argument_count != desc->tensor_count || from->word_count < desc->word_count)
        return tern_error(TERN_ERROR_INVALID, "step \"%s\" passes %u tensors and %u words to a kernel of %u and %u",
                          from->label, from->argument_count, from->word_count, desc->tensor_count, desc->word_count);
    switch (desc->kind) {
    case TERN_KERNEL_TAPE: {
        tern_status status =
            tern_cpu_nest_create(device->isa, &desc->tape, from->words, step->range, false, &step->nest);
        if (status < 0) return status;
        step->scratch_bytes =
            step->nest->scratch_bytes * (step->nest->split ? 2 : 1); /* split: the row's state and a tile's */
        return TERN_OK;
    }
    case TERN_KERNEL_MATMUL:
        return tern_cpu_matmul_create(device->isa, desc, from->words, tern_cpu_pool_threads(device->pool), step);
    case TERN_KERNEL_ATTENTION:
    case TERN_KERNEL_ATTENTION_DQ:
    case TERN_KERNEL_ATTENTION_DKV: return tern_cpu_attend_create(device->isa, desc, from->words, step);
    case TERN_KERNEL_SCATTER_ADD: return tern_cpu_scatter_create(device->isa, desc, from->words, step);
    case TERN_KERNEL_KIND_COUNT: break;
    }
    return tern_error(TERN_ERROR_UNSUPPORTED, "the cpu backend has no kernel of kind %d", (int)desc->kind);
}

static tern_status create_step(tern_backend_device *device, const tern_step *from, tern_cpu_step *step)
{
    tern_status status = TERN_OK;
    step->kind = from->kind;
    step->fill = from->fill;
    if (from->argument_count > TERN_TAPE_TENSORS)
        return tern_error(TERN_ERROR_INVALID, "step \"%s\" has %u arguments; %u are the most", from->label,
                          from->argument_count, TERN_TAPE_TENSORS);
    const uint32_t needed = from->kind == TERN_STEP_COPY ? 2 : from->kind == TERN_STEP_FILL ? 1 : from->argument_count;
    if (from->argument_count != needed)
        return tern_error(TERN_ERROR_INVALID, "step \"%s\" has %u arguments instead of %u", from->label,
                          from->argument_count, needed);
    TERN_TRY(bind_ranges(from, step));
    if (from->kind == TERN_STEP_DISPATCH) TERN_TRY(create_dispatch(device, from, step));
    if (from->kind == TERN_STEP_COPY && step->range[0].bytes != step->range[1].bytes)
        return tern_error(TERN_ERROR_INVALID, "copy \"%s\" has %llu bytes to read and %llu to write", from->label,
                          (unsigned long long)step->range[0].bytes, (unsigned long long)step->range[1].bytes);
fail:
    return status;
}

#define PIECE (1u << 20) /* copies and fills are shared out in pieces */

static void copy_piece(void *context, uint32_t tile, void *scratch)
{
    const tern_cpu_step *step = context;
    (void)scratch;
    const uint64_t first = (uint64_t)tile * PIECE, left = step->range[0].bytes - first;
    memmove((char *)step->range[1].data + first, (char *)step->range[0].data + first, left < PIECE ? left : PIECE);
}
static void fill_piece(void *context, uint32_t tile, void *scratch)
{
    const tern_cpu_step *step = context;
    (void)scratch;
    const uint64_t first = (uint64_t)tile * PIECE, left = step->range[0].bytes - first,
                   bytes = left < PIECE ? left : PIECE;
    char *d = (char *)step->range[0].data + first;
    for (uint64_t i = 0; i + 4 <= bytes; i += 4) memcpy(d + i, &step->fill, 4);
}

static void run_step(tern_backend_device *device, tern_cpu_step *step)
{
    const uint32_t pieces = (uint32_t)((step->range[0].bytes + PIECE - 1) / PIECE);
    if (step->kind == TERN_STEP_COPY) {
        tern_cpu_pool_run(device->pool, pieces, copy_piece, step);
    } else if (step->kind == TERN_STEP_FILL) {
        tern_cpu_pool_run(device->pool, pieces, fill_piece, step);
    } else if (step->nest) {
        tern_cpu_nest_run(step->nest, step->range, device->pool);
    } else if (step->matmul) {
        tern_cpu_matmul_run(step, device->pool, device->shared);
    } else if (step->attend) {
        tern_cpu_attend_run(step, device->pool);
    } else if (step->scatter) {
        tern_cpu_scatter_run(step, device->pool, device->shared);
    }
}

/* ------------------------------------------------------------------- driver */

static void run_program(tern_backend_device *device, tern_backend_program *program)
{
    uint32_t cut = 0, pieces = 1;
    uint64_t before = tern_time_ns();
    for (uint32_t i = 0; i < program->step_count; i++) {
        if (cut < program->cut_count && program->cuts[cut] == i) pieces += i > 0, cut++;
        run_step(device, &program->steps[i]);
        const uint64_t now = tern_time_ns();
        program->steps[i].last_ns = now - before;
        before = now;
    }
    program->submissions = pieces;
}

static void *drive(void *argument)
{
    tern_backend_device *device = argument;
    pthread_mutex_lock(&device->mutex);
    for (;;) {
        while (!device->first && !device->stop) pthread_cond_wait(&device->queued, &device->mutex);
        tern_cpu_submission *s = device->first;
        if (!s) break; /* stopped, and nothing is left */
        pthread_mutex_unlock(&device->mutex);
        run_program(device, s->program);
        pthread_mutex_lock(&device->mutex);
        s->program->timed = true;
        device->first = s->next;
        if (!device->first) device->last = NULL;
        device->completed = s->ticket;
        s->next = device->free_list, device->free_list = s;
        pthread_cond_broadcast(&device->finished);
    }
    pthread_mutex_unlock(&device->mutex);
    return NULL;
}

tern_status tern_cpu_driver_start(tern_backend_device *device)
{
    const int code = pthread_create(&device->driver, NULL, drive, device);
    if (code != 0)
        return tern_error(TERN_ERROR_MEMORY, "the cpu backend's driver thread could not be started (%s)",
                          strerror(code));
    return TERN_OK;
}

void tern_cpu_driver_stop(tern_backend_device *device, bool in_child)
{
    if (!in_child) {
        pthread_mutex_lock(&device->mutex);
        device->stop = true;
        pthread_cond_broadcast(&device->queued);
        pthread_mutex_unlock(&device->mutex);
        pthread_join(device->driver, NULL);
    }
    for (tern_cpu_submission *s = device->free_list, *next; s; s = next) {
        next = s->next;
        free(s);
    }
}

/* With the mutex held: until `ticket` is done or the moment `until` (monotonic) has come. */
static bool wait_until(tern_backend_device *device, uint64_t ticket, uint64_t until)
{
    const struct timespec at = {.tv_sec = (time_t)(until / 1000000000u), .tv_nsec = (long)(until % 1000000000u)};
    while (device->completed < ticket)
        if (pthread_cond_timedwait(&device->finished, &device->mutex, &at) == ETIMEDOUT) break;
    return device->completed >= ticket;
}

static uint64_t deadline(uint64_t timeout_ns)
{
    const uint64_t now = tern_time_ns(),
                   longest = 3600ull * 24 * 365 * 1000000000ull; /* a year: stays within time_t's seconds */
    return now + (timeout_ns < longest ? timeout_ns : longest);
}

tern_status tern_cpu_wait(tern_backend_device *device, uint64_t ticket, uint64_t timeout_ns)
{
    tern_status status = tern_cpu_device_check(device);
    if (status < 0) return status;
    pthread_mutex_lock(&device->mutex);
    if (ticket > device->submitted)
        status = tern_error(TERN_ERROR_INVALID, "ticket %llu was never given out; the last one is %llu",
                            (unsigned long long)ticket, (unsigned long long)device->submitted);
    else if (!wait_until(device, ticket, deadline(timeout_ns)))
        status =
            tern_error(TERN_ERROR_TIMEOUT, "submission %llu has not finished after %.3f s; %llu finished so far",
                       (unsigned long long)ticket, (double)timeout_ns * 1e-9, (unsigned long long)device->completed);
    pthread_mutex_unlock(&device->mutex);
    return status;
}

tern_status tern_cpu_device_idle(tern_backend_device *device, uint64_t timeout_ns)
{
    pthread_mutex_lock(&device->mutex);
    const uint64_t last = device->submitted;
    pthread_mutex_unlock(&device->mutex);
    return tern_cpu_wait(device, last, timeout_ns);
}

/* ----------------------------------------------------------------- programs */

#define IDLE_NS (60ull * 1000000000ull) /* longest wait for work in flight when memory must be changed under it */

/* Scratch grows to what the new program needs. Nothing may run meanwhile: the queue stays locked and empty. */
static tern_status reserve(tern_backend_device *device, const tern_backend_program *program)
{
    tern_status status = TERN_OK;
    size_t scratch = 0, shared = 0;
    for (uint32_t i = 0; i < program->step_count; i++) {
        if (program->steps[i].scratch_bytes > scratch) scratch = program->steps[i].scratch_bytes;
        if (program->steps[i].shared_bytes > shared) shared = program->steps[i].shared_bytes;
    }
    pthread_mutex_lock(&device->mutex);
    const uint64_t until = deadline(IDLE_NS);
    while (device->first) { /* again, since another thread may submit while this one waits */
        if (wait_until(device, device->submitted, until)) continue;
        status = tern_error(TERN_ERROR_TIMEOUT, "a program was still running after %.0f s", (double)IDLE_NS * 1e-9);
        goto fail;
    }
    TERN_TRY(tern_cpu_pool_reserve(device->pool, scratch));
    if (shared > device->shared_bytes) {
        void *fresh = NULL;
        if (posix_memalign(&fresh, 64, shared) != 0) {
            status = tern_error_memory("a program's shared scratch", shared);
            goto fail;
        }
        free(device->shared);
        device->shared = fresh, device->shared_bytes = shared;
    }
fail:
    pthread_mutex_unlock(&device->mutex);
    return status;
}

static void free_program(tern_backend_program *program)
{
    for (uint32_t i = 0; program->steps && i < program->step_count; i++) destroy_step(&program->steps[i]);
    free(program->steps);
    free(program->cuts);
    free(program);
}

tern_status tern_cpu_program_create(tern_backend_device *device, const tern_program_desc *desc,
                                    tern_backend_program **out_program)
{
    tern_status status = TERN_OK;
    tern_backend_program *program = NULL;
    *out_program = NULL;
    TERN_TRY(tern_cpu_device_check(device));
    program = calloc(1, sizeof *program);
    if (!program) return tern_error_memory("a program", sizeof *program);
    program->steps = calloc((size_t)desc->step_count + 1, sizeof *program->steps);
    program->cuts = calloc((size_t)desc->cut_count + 1, sizeof *program->cuts);
    if (!program->steps || !program->cuts) {
        status = tern_error_memory("a program's steps", desc->step_count * sizeof *program->steps);
        goto fail;
    }
    program->step_count = desc->step_count, program->cut_count = desc->cut_count;
    if (desc->cut_count) memcpy(program->cuts, desc->cuts, desc->cut_count * sizeof *program->cuts);
    for (uint32_t i = 0; i < desc->step_count; i++) {
        status = create_step(device, &desc->steps[i], &program->steps[i]);
        if (status < 0) {
            tern_error_prefix(status, "step %u", i);
            goto fail;
        }
    }
    TERN_TRY(reserve(device, program));
    *out_program = program;
    return TERN_OK;
fail:
    if (program) free_program(program);
    return status;
}

void tern_cpu_program_destroy(tern_backend_device *device, tern_backend_program *program)
{
    if (!program) return;
    if (tern_cpu_device_check(device) == TERN_OK) {
        pthread_mutex_lock(&device->mutex);
        const bool done = wait_until(device, program->last_ticket, deadline(IDLE_NS));
        pthread_mutex_unlock(&device->mutex);
        if (!done) return; /* still read by the driver thread: kept, since freeing it would crash */
    }
    free_program(program);
}

tern_status tern_cpu_program_submit(tern_backend_device *device, tern_backend_program *program, uint64_t *out_ticket)
{
    tern_status status = tern_cpu_device_check(device);
    if (status < 0) return status;
    pthread_mutex_lock(&device->mutex);
    tern_cpu_submission *s = device->free_list;
    if (s)
        device->free_list = s->next;
    else
        s = malloc(sizeof *s); /* the first few only: finished ones come back through the free list */
    if (s) {
        *s = (tern_cpu_submission){.program = program, .ticket = ++device->submitted};
        if (device->last)
            device->last->next = s;
        else
            device->first = s;
        device->last = s;
        program->last_ticket = *out_ticket = s->ticket;
        pthread_cond_signal(&device->queued);
    } else {
        status = tern_error_memory("a submission", sizeof *s);
    }
    pthread_mutex_unlock(&device->mutex);
    return status;
}

tern_status tern_cpu_program_times(tern_backend_device *device, tern_backend_program *program, uint64_t *out_ns)
{
    tern_status status = tern_cpu_device_check(device);
    if (status < 0) return status;
    pthread_mutex_lock(&device->mutex);
    if (!program->timed || device->completed < program->last_ticket)
        status =
            tern_error(TERN_ERROR_INVALID,
                       "the program's times are known after its submission has finished; wait for its ticket first");
    else
        for (uint32_t i = 0; i < program->step_count; i++) out_ns[i] = program->steps[i].last_ns;
    pthread_mutex_unlock(&device->mutex);
    return status;
}

uint32_t tern_cpu_submission_count(tern_backend_device *device, tern_backend_program *program)
{
    if (tern_cpu_device_check(device) < 0) return 0;
    pthread_mutex_lock(&device->mutex);
    const uint32_t count = program->submissions;
    pthread_mutex_unlock(&device->mutex);
    return count;
}
