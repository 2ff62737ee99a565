/* SPDX-License-Identifier: Apache-2.0 */
/* train_step.h - the flags of `tern train` that shape a step: window, schedule, loss scale, clipping, skips,
 * calibration.
 *
 *     --accumulate K | --batch-tokens N ──> micro-batches per step        --loss-scale, --clip-value, --skip-outliers,
 *     --schedule NAME, --schedule-decay ──> learning rate                 --max-skips ──> core/train/update.h
 *     --calibrate N, --calibrate-limit, --calibrate-stop ──> train_calibrate.h
 *
 * What it is not: it is no command; train_flags.c puts these rows into its table. */
#ifndef TERN_CLI_TRAIN_STEP_H
#define TERN_CLI_TRAIN_STEP_H

#include "core/cli/cli.h"
#include "core/models/gpt2.h"
#include "core/train/text_trainer.h"

#define TERN_TRAIN_STEP_ROWS 11

typedef struct tern_train_step_flags {
    int64_t accumulate, batch_tokens, max_skips, calibrate;
    const char *schedule, *loss_scale;
    double schedule_decay, clip_value, skip_outliers, calibrate_limit;
    bool calibrate_stop;
    /* made from them by settle */
    tern_schedule_kind schedule_kind;
    tern_scale_options scale;
} tern_train_step_flags;

/* Defaults and rows; the flags must stay where they are while the rows are in use. */
void tern_train_step_init(tern_train_step_flags *flags, tern_cli_option out_rows[TERN_TRAIN_STEP_ROWS]);
/* After parsing: TERN_CLI_GO, or the exit code of a mistake, which was said. accumulate is then the number in use. */
int tern_train_step_settle(tern_train_step_flags *flags, const tern_gpt2_options *shape);
/* Sets accumulate, calibrate, the schedule's kind and decay, and the update's options but for --clip. */
void tern_train_step_apply(const tern_train_step_flags *flags, tern_text_options *options);

#endif
