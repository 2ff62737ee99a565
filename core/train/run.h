/* SPDX-License-Identifier: Apache-2.0 */
/* run.h - the folder of a run: one process at a time, metrics that grow line by line.
 *
 *     model.safetensors   all weights by name, of the newest checkpoint     config.json   Hugging Face's shape keys
 *     checkpoints/        what a run goes on from (checkpoints.h)           run.json      flags, device, kernels
 *     metrics.jsonl       one JSON object per line, appended                .lock         while a run goes on
 *
 * What it is not: it writes no weights (text_save.c, checkpoint.c).
 * Invariant: every file is whole or absent; run.json is written last, so that its presence means a whole save. */
#ifndef TERN_TRAIN_RUN_H
#define TERN_TRAIN_RUN_H

#include "core/base/status.h"

/* Makes the folder, or takes one without a run in it; refuses one that holds a run already, that cannot be written or
 * whose disk has less than `bytes` free. With out_lock the folder is this run's alone until tern_run_release: another
 * process that prepares it is refused. NULL: nothing is written. */
TERN_MUST_USE tern_status tern_run_prepare(const char *folder, uint64_t bytes, int *out_lock);
/* Takes the folder of a run to go on with it: locks it and removes what a killed process left half written. */
TERN_MUST_USE tern_status tern_run_reopen(const char *folder, int *out_lock);
/* TERN_ERROR_IO when the folder's disk has less than `bytes` free. */
TERN_MUST_USE tern_status tern_run_check_space(const char *folder, uint64_t bytes);
/* Gives the folder back; lock -1 does nothing. */
void tern_run_release(const char *folder, int lock);

typedef enum tern_run_content {
    TERN_RUN_NOTHING = 0, /* no folder, or none of a run's files in it */
    TERN_RUN_UNSAVED,     /* a run that was ended before its first save */
    TERN_RUN_SAVED,       /* with checkpoints */
    TERN_RUN_OLD          /* weights without a checkpoint, as older versions left them */
} tern_run_content;
tern_run_content tern_run_look(const char *folder);
bool tern_run_has_weights(const char *folder);

/* Appends one line to metrics.jsonl, in one write; of a line that did not fit, nothing stays. */
TERN_MUST_USE tern_status tern_run_append(const char *folder, const char *json_line);
/* Whether the last line is the one that an ended run writes ("steps" in place of "step"). */
bool tern_run_has_ended(const char *folder);
/* Keeps the lines whose "step" is at most `steps`, and only those: half a line, later steps and the last line of an
 * ended run go. The file is replaced whole. Without a file, nothing happens. */
TERN_MUST_USE tern_status tern_run_cut(const char *folder, uint64_t steps);

#endif
