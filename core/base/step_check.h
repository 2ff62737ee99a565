/* SPDX-License-Identifier: Apache-2.0 */
/* step_check.h - what core/backend.h demands of a kernel and of a recorded step, for plug-ins that compile text.
 *
 *     kernel_create   tern_kernel_shape_take ──> shape, the kernel's first member
 *     program_create  tern_step_check        reads it, and the buffers' shapes
 *
 * What it is not: it knows no driver and records nothing; lower limits of an API's own are the plug-in's to check.
 * Invariant: a step that passed touches no byte outside its buffers by a copy or fill, waits for earlier steps only,
 * and gives a kernel the arguments that it takes. */
#ifndef TERN_BASE_STEP_CHECK_H
#define TERN_BASE_STEP_CHECK_H

#include "core/backend.h"
#include "core/base/status.h"

/* The first member of a plug-in's struct tern_backend_kernel. */
typedef struct tern_kernel_shape {
    char label[96];
    uint32_t group[3];
    uint32_t tensor_count, word_count;
    uint32_t element_bytes[TERN_TAPE_TENSORS];
} tern_kernel_shape;

/* The first member of a plug-in's struct tern_backend_buffer. */
typedef struct tern_buffer_shape {
    uint64_t bytes;
    tern_buffer_kind kind;
    char *host; /* UPLOAD, READBACK: its address, where the plug-in keeps it here (plugin_device.h) */
} tern_buffer_shape;

/* From the desc. TERN_ERROR_INVALID without a renderer; TERN_ERROR_UNSUPPORTED for too many arguments or an element
 * type that text does not take. api: for the sentence, "CUDA". */
TERN_API TERN_MUST_USE tern_status tern_kernel_shape_take(const tern_kernel_desc *desc, const char *api,
                                                          tern_kernel_shape *out_shape);

/* Whether the variant's group and shared memory are within the limits: of the device, or, `compiled`, of what the
 * compiler made of the text, which may take more of both. TERN_ERROR_UNSUPPORTED with value and limit. */
typedef struct tern_kernel_fit {
    bool compiled;
    uint64_t most_threads; /* of a group */
    uint64_t shared_bytes; /* that it takes */
} tern_kernel_fit;
TERN_API TERN_MUST_USE tern_status tern_kernel_fit_check(const tern_device_info *info, const tern_kernel_desc *desc,
                                                         const tern_kernel_fit *fit);

/* Cuts rise and lie before a step. TERN_ERROR_INVALID naming program and cut. */
TERN_API TERN_MUST_USE tern_status tern_cuts_check(const tern_program_desc *desc);
/* The part that begins with step `start` ends before this one. */
TERN_API uint32_t tern_part_end(const tern_program_desc *desc, uint32_t start);

/* The index-th step of a program; the sentence does not name it. Its kernel and buffers begin with their shapes. */
TERN_API TERN_MUST_USE tern_status tern_step_check(const tern_device_info *info, const tern_step *step, uint32_t index);

#endif
