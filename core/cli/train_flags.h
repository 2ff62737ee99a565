/* SPDX-License-Identifier: Apache-2.0 */
/* train_flags.h - what `tern train` can be told: one table, its defaults, and what the trainer makes of them.
 *
 *     argv ──> table ──> tern_train_flags ──> tern_text_options
 *                                   └──> flags in run.json
 *
 * A new flag is a field, a default, a row, and where it concerns the trainer a line of tern_train_flags_apply. What it
 * is not: it opens no device and reads no file. Invariant: after parsing every flag is in range, alone and with the
 * others. */
#ifndef TERN_CLI_TRAIN_FLAGS_H
#define TERN_CLI_TRAIN_FLAGS_H

#include "core/cli/train_optimizer.h"
#include "core/cli/train_options.h"
#include "core/cli/train_step.h"

#define TERN_TRAIN_FLAGS_MAX 64

typedef struct tern_train_flags {
    tern_cli_device device;
    tern_cli_model model;
    tern_train_step_flags step;
    tern_train_optimizer_flags optimizer;
    const char *data, *out, *limits, *resume;
    int64_t steps, warmup, seed, log_every, eval_every, save_every, save_every_micro, keep;
    double lr, min_lr, clip, val_split, save_minutes;
    bool json, allow_other_data, new_settings;
    tern_gpt2_options shape; /* the model's, checked */
    char *text;              /* all flags as JSON, for run.json */
    int argc;                /* the command line itself, */
    char **argv;             /* the caller's */
    tern_cli_option options[TERN_TRAIN_FLAGS_MAX];
    tern_cli_usage usage;
} tern_train_flags;

/* TERN_CLI_GO, or the exit code after --help or a mistake. Call finish whatever it returned. */
int tern_train_flags_parse(tern_train_flags *flags, int argc, char **argv);
void tern_train_flags_finish(tern_train_flags *flags);
/* All that the flags say about the run itself; the plan's options come from the device. */
void tern_train_flags_apply(const tern_train_flags *flags, tern_text_options *out_options);

#endif
