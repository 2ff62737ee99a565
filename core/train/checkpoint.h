/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint.h - all of a training in one folder, and back, on the same device or another.
 *
 *     stepper ── save ──> model.safetensors   every parameter by name, f32
 *                         state.safetensors   "m.<parameter>", "v.<parameter>" ..., "acc.<parameter>" inside a window,
 *                                             "state.<name>": counters, loss scale, the window's sums, running
 * statistics state.json          position, device, kernels, facts, the caller's notes <more>              files of the
 * caller, such as config.json checksums           the folder is whole or not there (base/sealed.h) folder ── open ──
 * facts compared (facts.h) ── restore ──> stepper
 *
 * Everything is stored by parameter, never by segment: segments depend on the device. Between two windows the
 * accumulators are zero and not stored. What it is not: it knows no data and no schedule (they are the caller's notes),
 * and not which of several checkpoints to keep (checkpoints.h).
 * Invariant: restored on the same device, driver, kernels and version of tern, training goes on to the same bits as if
 * it had never stopped, from any micro-batch. */
#ifndef TERN_TRAIN_CHECKPOINT_H
#define TERN_TRAIN_CHECKPOINT_H

#include "core/train/facts.h"
#include "core/train/step.h"

#define TERN_CHECKPOINT_WEIGHTS "model.safetensors"

typedef struct tern_checkpoint_file {
    const char *name, *text;
} tern_checkpoint_file;

/* What a checkpoint holds beside the stepper. */
typedef struct tern_checkpoint_content {
    const cJSON *facts; /* facts.h */
    const cJSON *notes; /* whatever the caller needs to go on: position in the data, schedule */
    double val_loss;    /* where it was measured at this very place; NaN: it was not */
    bool spoilt;        /* the run has diverged: resumed only on demand */
    const tern_checkpoint_file *files;
    uint32_t file_count;
} tern_checkpoint_content;

/* Waits for the device and writes the folder, which must not be there; its parent must. On failure nothing stays. */
TERN_MUST_USE tern_status tern_checkpoint_save(tern_stepper *stepper, const char *folder,
                                               const tern_checkpoint_content *content);
/* Device memory aside, the bytes that a checkpoint of this layout takes at most. */
uint64_t tern_checkpoint_bytes(const tern_store_layout *layout);

typedef struct tern_checkpoint {
    char *folder;
    cJSON *state; /* state.json */
    const cJSON *facts, *notes;
    tern_step_position position;
    double val_loss; /* NaN: not measured */
    bool spoilt;
} tern_checkpoint;

/* Checks every file. TERN_ERROR_NOT_FOUND: no checkpoint; TERN_ERROR_FORMAT naming what is damaged or unknown. */
TERN_MUST_USE tern_status tern_checkpoint_open(const char *folder, tern_checkpoint **out_checkpoint);
void tern_checkpoint_close(tern_checkpoint *checkpoint);
/* Replaces all of the stepper. TERN_ERROR_INVALID naming the tensor that is missing or has another shape; the stepper
 * is then of no use. */
TERN_MUST_USE tern_status tern_checkpoint_restore(const tern_checkpoint *checkpoint, tern_stepper *stepper);
/* Whether training goes on to the same bits; if not, why, as "the driver was A and is B", cut to `bytes`. */
bool tern_checkpoint_is_exact(const tern_checkpoint *checkpoint, const tern_setup *setup, char *out_why, size_t bytes);

/* checkpoint_state.c: state.json, written and read. The text; free() it. NULL when out of memory. */
char *tern_checkpoint_state_text(tern_stepper *stepper, const tern_checkpoint_content *content);
TERN_MUST_USE tern_status tern_checkpoint_state_read(tern_checkpoint *checkpoint);

#endif
