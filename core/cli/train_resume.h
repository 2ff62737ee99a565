/* SPDX-License-Identifier: Apache-2.0 */
/* train_resume.h - from where `tern train` goes on: --resume and what lies in the folders.
 *
 *     never    a new run; --out must not hold one
 *     auto     --out holds a run: goes on with it, in its folder; else a new run
 *     FOLDER   a run's or a checkpoint's folder: goes on from there; --out is the same folder or a new one
 *
 * What it is not: it trains nothing; whether the flags fit the checkpoint is the trainer's to say (text_save.c).
 * Invariant: until the trainer exists nothing of an earlier run is changed but its lock and its half-written files. */
#ifndef TERN_CLI_TRAIN_RESUME_H
#define TERN_CLI_TRAIN_RESUME_H

#include "core/cli/train_flags.h"
#include "core/train/checkpoints.h"

typedef struct tern_train_origin {
    tern_checkpoint *checkpoint; /* NULL: from the start */
    tern_text_resume resume;     /* for the trainer, with it */
    bool in_place;               /* --out is a run's folder and belongs to this process now */
    int lock;                    /* of it, else -1 */
    bool complete;               /* it has done its steps already, which was said, and ended: nothing is to be done */
} tern_train_origin;

/* Looks, locks and opens; refuses what cannot be gone on with. */
TERN_MUST_USE tern_status tern_train_origin_find(const tern_train_flags *flags, tern_train_origin *out_origin);
/* Says on stderr from where the run goes on and how exactly. */
void tern_train_origin_say(const tern_train_origin *origin, const tern_train_flags *flags, const tern_text_info *info);
/* The lock stays the caller's. */
void tern_train_origin_finish(tern_train_origin *origin);

#endif
