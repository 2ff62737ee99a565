/* SPDX-License-Identifier: Apache-2.0 */
/* diagnose.h - which tensor of a micro-batch is the first that is not finite.
 *
 *     micro graph, no assigns ──+ per float tensor: "an exponent is all ones" ──> private program ──> flags
 *
 *     x ── f ── inf ── exp ── 0 ── ...           an infinity that is masked away harms nothing:
 *     y ── g ── NaN ── h ── NaN ── gradient      named is the first of an unbroken line to the gradient or the loss
 *
 * The program is made when asked for, with one kernel per op where that fits beside the training, in an arena of its
 * own, with the present weights and loss scale, and freed again. Nothing of the training changes.
 * What it is not: fast; a run asks once, when it has given up. */
#ifndef TERN_TRAIN_DIAGNOSE_H
#define TERN_TRAIN_DIAGNOSE_H

#include "core/train/step.h"

typedef struct tern_diagnosis {
    bool found;             /* false: every tensor is finite (what overflowed then is a sum over the window) */
    tern_pass pass;         /* FORWARD or BACKWARD */
    char label[160];        /* the tensor's, "op#id" if it has none */
    char shape[64];         /* "(4, 12, 16)" */
    char near[160];         /* the nearest named tensor that it is made of, "" when it has a name itself */
    uint32_t flagged, seen; /* tensors that are not finite, and all that were looked at */
} tern_diagnosis;

/* Runs one micro-batch again: feeds as for tern_stepper_micro; attempt: its window's, and sample_base its first
 * example's number there, so that random tensors have the bits they had. TERN_ERROR_DEVICE_MEMORY when the program does
 * not fit beside the training. Waits for the device. */
TERN_MUST_USE tern_status tern_stepper_diagnose(tern_stepper *stepper, const tern_feed *feeds, uint32_t count,
                                                uint64_t attempt, uint32_t sample_base, tern_diagnosis *out_diagnosis);
/* "transformer.h.0.mlp.c_fc" (4, 12, 64), forward; one phrase for messages. */
void tern_diagnosis_print(const tern_diagnosis *diagnosis, char *out, size_t bytes);

#endif
