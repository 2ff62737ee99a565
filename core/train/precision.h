/* SPDX-License-Identifier: Apache-2.0 */
/* precision.h - which float a run multiplies and stores: what was asked for and what the device has, with the reason.
 *
 *     auto   bf16 where matrix units multiply it, else f16 where they do or the device computes with f16, else f32;
 *            f32 on CPUs and software GPUs, which gain memory but no time from 16 bits
 *
 * Invariant: a precision that was asked for is never dropped silently: it is taken, or refused with what to do. */
#ifndef TERN_TRAIN_PRECISION_H
#define TERN_TRAIN_PRECISION_H

#include "core/backend.h"
#include "core/base/status.h"

typedef struct tern_precision_choice {
    int32_t dtype;    /* TERN_F32, TERN_BF16 or TERN_F16: tern_setup_options.precision */
    char reason[384]; /* "bf16, chosen for NVIDIA ..., whose matrix units multiply it" */
} tern_precision_choice;

/* "auto", "f32", "bf16", "f16" -> a TERN_PRECISION_ value; TERN_ERROR_INVALID naming them. */
TERN_MUST_USE tern_status tern_precision_parse(const char *text, int32_t *out_precision);
/* precision: a TERN_PRECISION_ value. TERN_ERROR_INVALID for another one; TERN_ERROR_UNSUPPORTED for 16 bits on a
 * device that does not store them. */
TERN_MUST_USE tern_status tern_precision_choose(int32_t precision, const tern_device_info *info,
                                                tern_precision_choice *out_choice);

#endif
