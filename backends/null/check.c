/* SPDX-License-Identifier: Apache-2.0 */
/* check.c - what core/backend.h demands of a recorded program, checked more strictly than any driver does.
 *
 * A mistake of core's shows here as one sentence with the step's label, on every machine, and not as a wrong number on
 * one. */
#include "backends/null/control.h"
#include "core/base/dtype.h"

static tern_status check_range(const tern_backend_device *device, const tern_argument *argument, uint32_t index,
                               uint64_t unit)
{
    if (!argument->buffer) return tern_error(TERN_ERROR_INVALID, "argument %u has no buffer", index);
    tern_status status = null_same_device(device, argument->buffer->device, "buffer");
    if (status < 0) return status;
    const uint64_t size = argument->buffer->bytes;
    if (argument->bytes == 0 || argument->offset > size || argument->bytes > size - argument->offset)
        return tern_error(TERN_ERROR_INVALID, "argument %u is bytes [%llu, +%llu) of a buffer of %llu", index,
                          (unsigned long long)argument->offset, (unsigned long long)argument->bytes,
                          (unsigned long long)size);
    if (argument->offset % unit)
        return tern_error(TERN_ERROR_INVALID, "argument %u starts at byte %llu, no multiple of its %llu-byte element",
                          index, (unsigned long long)argument->offset, (unsigned long long)unit);
    if (argument->bytes > device->info.max_binding_bytes && !(device->info.features & TERN_FEATURE_BUFFER_ADDRESS))
        return tern_error(TERN_ERROR_UNSUPPORTED, "argument %u binds %llu bytes; the device binds at most %llu", index,
                          (unsigned long long)argument->bytes, (unsigned long long)device->info.max_binding_bytes);
    return TERN_OK;
}

static tern_status check_mode(const tern_argument *argument, uint32_t index, uint32_t needed)
{
    if (argument->mode == needed) return TERN_OK;
    return tern_error(TERN_ERROR_INVALID, "argument %u has access mode %u where %u is done (read 1, write 2)", index,
                      argument->mode, needed);
}

static tern_status check_groups(const tern_backend_device *device, const uint32_t groups[3])
{
    for (int axis = 0; axis < 3; axis++)
        if (groups[axis] == 0 || groups[axis] > device->info.max_groups[axis])
            return tern_error(groups[axis] ? TERN_ERROR_UNSUPPORTED : TERN_ERROR_INVALID,
                              "%u groups on axis %d; the device takes 1 to %u", groups[axis], axis,
                              device->info.max_groups[axis]);
    return TERN_OK;
}

static tern_status check_dispatch(const tern_backend_device *device, const tern_step *step)
{
    tern_status status;
    const tern_backend_kernel *kernel = step->kernel;
    if (!kernel) return tern_error(TERN_ERROR_INVALID, "a dispatch without a kernel");
    TERN_TRY(null_same_device(device, kernel->device, "kernel"));
    if (step->argument_count != kernel->tensor_count)
        return tern_error(TERN_ERROR_INVALID, "%u arguments for the %u tensors of kernel \"%s\"", step->argument_count,
                          kernel->tensor_count, kernel->label);
    if (step->word_count != kernel->word_count)
        return tern_error(TERN_ERROR_INVALID, "%u words for the %u of kernel \"%s\"", step->word_count,
                          kernel->word_count, kernel->label);
    TERN_TRY(check_groups(device, step->groups));
    for (uint32_t i = 0; i < step->argument_count; i++) {
        TERN_TRY(check_range(device, &step->arguments[i], i, tern_dtype(kernel->tensors[i].dtype)->bytes));
        TERN_TRY(check_mode(&step->arguments[i], i, kernel->tensors[i].mode));
    }
fail:
    return status;
}

static tern_status check_copy(const tern_backend_device *device, const tern_step *step)
{
    tern_status status;
    const tern_argument *from = &step->arguments[0], *to = &step->arguments[1];
    if (step->argument_count != 2)
        return tern_error(TERN_ERROR_INVALID, "a copy with %u arguments, not 2", step->argument_count);
    TERN_TRY(check_range(device, from, 0, 4));
    TERN_TRY(check_range(device, to, 1, 4));
    TERN_TRY(check_mode(from, 0, TERN_ACCESS_READ));
    TERN_TRY(check_mode(to, 1, TERN_ACCESS_WRITE));
    if (from->bytes != to->bytes || from->bytes % 4)
        return tern_error(TERN_ERROR_INVALID, "a copy of %llu bytes to %llu; both must be one multiple of 4",
                          (unsigned long long)from->bytes, (unsigned long long)to->bytes);
    if (from->buffer == to->buffer && from->offset < to->offset + to->bytes && to->offset < from->offset + from->bytes)
        return tern_error(TERN_ERROR_INVALID, "a copy between overlapping ranges of one buffer");
fail:
    return status;
}

static tern_status check_fill(const tern_backend_device *device, const tern_step *step)
{
    tern_status status;
    if (step->argument_count != 1)
        return tern_error(TERN_ERROR_INVALID, "a fill with %u arguments, not 1", step->argument_count);
    TERN_TRY(check_range(device, &step->arguments[0], 0, 4));
    TERN_TRY(check_mode(&step->arguments[0], 0, TERN_ACCESS_WRITE));
    if (step->arguments[0].bytes % 4)
        return tern_error(TERN_ERROR_INVALID, "a fill of %llu bytes, no multiple of 4",
                          (unsigned long long)step->arguments[0].bytes);
fail:
    return status;
}

static tern_status check_step(const tern_backend_device *device, const tern_step *step, uint32_t index)
{
    for (uint32_t i = 0; i < step->wait_count; i++)
        if (step->waits[i] >= index)
            return tern_error(TERN_ERROR_INVALID, "it waits for step %u, which is not before it", step->waits[i]);
    switch (step->kind) {
    case TERN_STEP_DISPATCH: return check_dispatch(device, step);
    case TERN_STEP_COPY: return check_copy(device, step);
    case TERN_STEP_FILL: return check_fill(device, step);
    }
    return tern_error(TERN_ERROR_INVALID, "it has the unknown kind %d", (int)step->kind);
}

tern_status null_check_program(const tern_backend_device *device, const tern_program_desc *desc)
{
    for (uint32_t i = 0; i < desc->cut_count; i++)
        if (desc->cuts[i] == 0 || desc->cuts[i] >= desc->step_count || (i && desc->cuts[i] <= desc->cuts[i - 1]))
            return tern_error(TERN_ERROR_INVALID,
                              "null: program \"%s\": cut %u before step %u; cuts must rise from 1 to %u", desc->label,
                              i, desc->cuts[i], desc->step_count - 1);
    for (uint32_t i = 0; i < desc->step_count; i++) {
        tern_status status = check_step(device, &desc->steps[i], i);
        if (status < 0)
            return tern_error_prefix(status, "null: program \"%s\", step %u \"%s\"", desc->label, i,
                                     desc->steps[i].label);
    }
    return TERN_OK;
}
