/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoints.h - the checkpoints of one run: numbered in the order they were made, the last few and the best kept.
 *
 *     <run>/model.safetensors                    the newest one's weights, one file with them
 *     <run>/checkpoints/00007-step-700/          made 7th, after 700 steps
 *                       00008-step-712+3/        3 micro-batches into step 713
 *
 * What it is not: it knows no data, no metrics and no lock (run.h); one process at a time works on a run's folder.
 * Invariant: an older checkpoint is removed only once `keep` newer good ones are on the disk, so at any moment,
 * whatever is killed, one whole checkpoint is there if ever there was one. Serial numbers only grow: the newest is the
 * one with the largest, whatever its step. */
#ifndef TERN_TRAIN_CHECKPOINTS_H
#define TERN_TRAIN_CHECKPOINTS_H

#include "core/train/checkpoint.h"

#define TERN_CHECKPOINTS_FOLDER "checkpoints"

typedef struct tern_checkpoints_kept {
    char name[64];    /* of the one just made, below the run's folder: "checkpoints/00007-step-700" */
    char best[64];    /* of the one with the smallest validation loss; "" without one */
    double best_loss; /* its loss, else NaN */
} tern_checkpoints_kept;

/* Makes the next checkpoint and the weights' link beside it, then removes what is older than the last `keep` (>= 1)
 * good ones and not the best. *out_kept may be NULL. On failure all older ones are as they were. */
TERN_MUST_USE tern_status tern_checkpoints_save(tern_stepper *stepper, const char *run,
                                                const tern_checkpoint_content *content, uint32_t keep,
                                                tern_checkpoints_kept *out_kept);

/* Opens the newest good checkpoint of a run, passing over damaged and spoilt ones with a warning in the log. A
 * checkpoint's own folder is opened as it is. TERN_ERROR_NOT_FOUND: there is no checkpoint at all;
 * TERN_ERROR_FORMAT: none that can be used, saying what is wrong with the newest. */
TERN_MUST_USE tern_status tern_checkpoints_open(const char *folder, tern_checkpoint **out_checkpoint);
/* Smallest validation loss of the run's checkpoints; NaN without one. */
double tern_checkpoints_best_loss(const char *run);

/* Removes what killed processes left half done. */
void tern_checkpoints_clean(const char *run);

#endif
