/* SPDX-License-Identifier: Apache-2.0 */
/* step_check.c - see step_check.h. */
#include "core/base/step_check.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/dtype.h"

tern_status tern_kernel_shape_take(const tern_kernel_desc *desc, const char *api, tern_kernel_shape *out_shape)
{
    if (!desc->render)
        return tern_error(TERN_ERROR_INVALID, "kernel \"%s\" has no renderer, and %s needs its text", desc->label, api);
    if (desc->tensor_count > TERN_TAPE_TENSORS || desc->word_count > TERN_KERNEL_WORDS)
        return tern_error(TERN_ERROR_UNSUPPORTED,
                          "kernel \"%s\" has %u tensors and %u words; at most %d and %d are passed", desc->label,
                          desc->tensor_count, desc->word_count, TERN_TAPE_TENSORS, TERN_KERNEL_WORDS);
    snprintf(out_shape->label, sizeof out_shape->label, "%s", desc->label);
    memcpy(out_shape->group, desc->variant.group, sizeof out_shape->group);
    out_shape->tensor_count = desc->tensor_count;
    out_shape->word_count = desc->word_count;
    for (uint32_t i = 0; i < desc->tensor_count; i++) {
        const tern_dtype_info *dtype = tern_dtype(desc->tensors[i].dtype);
        if (!dtype || dtype->elements != 1)
            return tern_error(TERN_ERROR_UNSUPPORTED,
                              "kernel \"%s\": tensor %u has the element type %d, which %s kernels do not take",
                              desc->label, i, desc->tensors[i].dtype, api);
        out_shape->element_bytes[i] = dtype->bytes;
    }
    return TERN_OK;
}

tern_status tern_kernel_fit_check(const tern_device_info *info, const tern_kernel_desc *desc,
                                  const tern_kernel_fit *fit)
{
    const tern_variant *variant = &desc->variant;
    const char *how = fit->compiled ? ", as compiled," : "";
    const uint64_t threads = (uint64_t)variant->group[0] * variant->group[1] * variant->group[2];
    if (threads == 0 || threads > fit->most_threads)
        return tern_error(TERN_ERROR_UNSUPPORTED,
                          "%s: kernel \"%s\" (%s)%s wants groups of %" PRIu64 " threads, the limit is %" PRIu64
                          "; choose another variant",
                          info->name, desc->label, variant->name, how, threads, fit->most_threads);
    if (fit->shared_bytes > info->shared_bytes)
        return tern_error(TERN_ERROR_UNSUPPORTED,
                          "%s: kernel \"%s\" (%s)%s wants %" PRIu64 " bytes of shared memory, the limit is %u; choose "
                          "another variant",
                          info->name, desc->label, variant->name, how, fit->shared_bytes, info->shared_bytes);
    return TERN_OK;
}

/* -------------------------------------------------------------------- cuts */

tern_status tern_cuts_check(const tern_program_desc *desc)
{
    for (uint32_t i = 0; i < desc->cut_count; i++)
        if (desc->cuts[i] >= desc->step_count || (i > 0 && desc->cuts[i] < desc->cuts[i - 1]))
            return tern_error(TERN_ERROR_INVALID,
                              "program \"%s\": cut %u before step %u is out of order, or past its %u steps",
                              desc->label ? desc->label : "", i, desc->cuts[i], desc->step_count);
    return TERN_OK;
}

uint32_t tern_part_end(const tern_program_desc *desc, uint32_t start)
{
    for (uint32_t i = 0; i < desc->cut_count; i++)
        if (desc->cuts[i] > start) return desc->cuts[i];
    return desc->step_count;
}

/* ------------------------------------------------------------------- steps */

static const tern_buffer_shape *shape_of(const tern_argument *argument)
{
    return (const tern_buffer_shape *)(const void *)argument->buffer;
}

static tern_status check_range(uint32_t index, const tern_argument *argument, uint32_t unit)
{
    if (!argument->buffer) return tern_error(TERN_ERROR_INVALID, "argument %u has no buffer", index);
    const uint64_t bytes = shape_of(argument)->bytes;
    if (argument->bytes == 0 || argument->offset > bytes || argument->bytes > bytes - argument->offset)
        return tern_error(TERN_ERROR_INVALID, "argument %u is bytes %" PRIu64 " to %" PRIu64 " of a buffer of %" PRIu64,
                          index, argument->offset, argument->offset + argument->bytes, bytes);
    if (argument->offset % unit)
        return tern_error(TERN_ERROR_INVALID, "argument %u starts at byte %" PRIu64 ", not a multiple of %u", index,
                          argument->offset, unit);
    return TERN_OK;
}

static tern_status check_dispatch(const tern_device_info *info, const tern_step *step)
{
    const tern_kernel_shape *kernel = (const tern_kernel_shape *)(const void *)step->kernel;
    tern_status status = TERN_OK;
    if (!kernel || step->argument_count != kernel->tensor_count || step->word_count != kernel->word_count)
        return tern_error(TERN_ERROR_INVALID, "%u arguments and %u words were given; the kernel takes %u and %u",
                          step->argument_count, step->word_count, kernel ? kernel->tensor_count : 0,
                          kernel ? kernel->word_count : 0);
    for (uint32_t d = 0; d < 3; d++)
        if (step->groups[d] == 0 || step->groups[d] > info->max_groups[d])
            return tern_error(TERN_ERROR_INVALID, "%u groups on axis %u; the device takes 1 to %u", step->groups[d], d,
                              info->max_groups[d]);
    for (uint32_t i = 0; i < step->argument_count; i++) {
        TERN_TRY(check_range(i, &step->arguments[i], kernel->element_bytes[i]));
        if (shape_of(&step->arguments[i])->kind != TERN_BUFFER_DEVICE)
            return tern_error(
                TERN_ERROR_INVALID,
                "argument %u is an upload or read-back buffer; kernels take device buffers, so copy first", i);
    }
fail:
    return status;
}

static tern_status check_move(const tern_step *step)
{
    const tern_argument *a = &step->arguments[0], *b = &step->arguments[1];
    const uint32_t wanted = step->kind == TERN_STEP_COPY ? 2 : 1;
    tern_status status = TERN_OK;
    if (step->argument_count != wanted || a->bytes % 4 || (wanted == 2 && a->bytes != b->bytes))
        return tern_error(TERN_ERROR_INVALID, "a copy takes two ranges of equal size, a fill one, of whole words");
    for (uint32_t i = 0; i < wanted; i++) TERN_TRY(check_range(i, &step->arguments[i], 4));
    if (wanted == 1 && shape_of(a)->kind != TERN_BUFFER_DEVICE)
        return tern_error(TERN_ERROR_UNSUPPORTED, "it fills an upload or read-back buffer; the host does that itself");
    if (wanted == 2 && a->buffer == b->buffer && a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes)
        return tern_error(TERN_ERROR_INVALID,
                          "bytes %" PRIu64 " and %" PRIu64 " of one buffer overlap over %" PRIu64
                          " bytes; copy by way of another",
                          a->offset, b->offset, a->bytes);
fail:
    return status;
}

tern_status tern_step_check(const tern_device_info *info, const tern_step *step, uint32_t index)
{
    for (uint32_t w = 0; w < step->wait_count; w++)
        if (step->waits[w] >= index)
            return tern_error(TERN_ERROR_INVALID, "it waits for step %u, which is not before it", step->waits[w]);
    switch (step->kind) {
    case TERN_STEP_DISPATCH: return check_dispatch(info, step);
    case TERN_STEP_COPY:
    case TERN_STEP_FILL: return check_move(step);
    }
    return tern_error(TERN_ERROR_INVALID, "it is of the unknown kind %d", (int)step->kind);
}
