/* SPDX-License-Identifier: Apache-2.0 */
/* train_calibrate.h - what `tern train` does with calibrations: each waits for its step's report, then is said, logged
 * and judged.
 *
 *     step k submitted ── its calibration is there ── step k + 1 submitted ── report of k ──> line, JSON, limit
 *
 * A step that was skipped is not judged: in f16 the loss scale is found by overflowing. */
#ifndef TERN_CLI_TRAIN_CALIBRATE_H
#define TERN_CLI_TRAIN_CALIBRATE_H

#include "core/cli/train_flags.h"
#include "core/cli/train_progress.h"

typedef struct tern_train_calibrate {
    tern_calibration recent[2]; /* by attempt mod 2 */
    bool stop;                  /* beyond the limit, and --calibrate-stop: the run ends */
} tern_train_calibrate;

/* After a step was submitted. */
void tern_train_calibrate_take(tern_train_calibrate *calibrate, tern_text_trainer *trainer);
/* Before tern_progress_step: puts the report's calibration, if it has one, into the progress. */
void tern_train_calibrate_attach(tern_train_calibrate *calibrate, const tern_step_report *report,
                                 tern_progress *progress);
/* After it: warns beyond --calibrate-limit. */
void tern_train_calibrate_judge(tern_train_calibrate *calibrate, const tern_train_flags *flags,
                                const tern_step_report *report, tern_progress *progress);

#endif
