/* SPDX-License-Identifier: Apache-2.0 */
/* train_saves.h - when `tern train` makes a checkpoint, and what a failed one means.
 *
 *     due    every --save-every steps, --save-minutes after the last, at a new best validation, at the end
 *     fails  in between: said, the run goes on and tries again, after a minute at the latest
 *            at the end: the run's error
 *
 * What it is not: it writes nothing itself (train/text_save.c), and removes nothing (train/checkpoints.c). */
#ifndef TERN_CLI_TRAIN_SAVES_H
#define TERN_CLI_TRAIN_SAVES_H

#include "core/cli/train_flags.h"
#include "core/cli/train_progress.h"

typedef struct tern_train_saves {
    const tern_train_flags *flags;
    tern_text_trainer *trainer;
    tern_progress *progress;
    uint64_t next_ns; /* when the time is up; 0: never */
    uint64_t micros;  /* micro-batches of this session */
    double best;      /* smallest validation loss so far; NaN: none */
    uint64_t step;    /* what the newest checkpoint holds, to save nothing twice */
    uint32_t micro;
    bool any;
} tern_train_saves;

/* in_place: goes on in its folder, whose best validation counts, and which holds the present place already. Without
 * --out nothing is ever due. */
void tern_train_saves_start(tern_train_saves *saves, const tern_train_flags *flags, tern_text_trainer *trainer,
                            tern_progress *progress, bool in_place);
/* After a micro-batch; step: the one that it ended, or 0 inside one. */
bool tern_train_saves_due(tern_train_saves *saves, uint64_t step);
/* Whether this validation is the best so far, which then it is. */
bool tern_train_saves_best(tern_train_saves *saves, double val);
/* The device must be idle. val: NaN if not validated here. last: at the end of the run. */
TERN_MUST_USE tern_status tern_train_saves_make(tern_train_saves *saves, double val, bool spoilt, bool last);

#endif
