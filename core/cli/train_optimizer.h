/* SPDX-License-Identifier: Apache-2.0 */
/* train_optimizer.h - the flags of `tern train` and `tern plan` about the optimizer and what it keeps per weight.
 *
 *     --optimizer NAME, --momentum, --weight-decay, --groups RULES ──> how weights move
 *     --moments f32|8bit, --masters f32|none                       ──> bytes per weight
 *
 * What it is not: it is no command; train_flags.c and plan.c put these rows into their tables. */
#ifndef TERN_CLI_TRAIN_OPTIMIZER_H
#define TERN_CLI_TRAIN_OPTIMIZER_H

#include "core/cli/cli.h"
#include "core/train/setup.h"

#define TERN_TRAIN_OPTIMIZER_ROWS 6

typedef struct tern_train_optimizer_flags {
    const char *optimizer, *groups, *moments, *masters;
    double momentum, weight_decay; /* NaN until settled: the optimizer's own */
    /* made from them by settle */
    tern_optimizer numbers;
    tern_parameter_group *rules;
    uint32_t rule_count;
    bool no_masters;
} tern_train_optimizer_flags;

/* Defaults and rows; the flags must stay where they are while the rows are in use. */
void tern_train_optimizer_init(tern_train_optimizer_flags *flags, tern_cli_option out_rows[TERN_TRAIN_OPTIMIZER_ROWS]);
/* After parsing: TERN_CLI_GO, or the exit code of a mistake, which was said. Call finish whatever it returned. */
int tern_train_optimizer_settle(const char *command, tern_train_optimizer_flags *flags);
void tern_train_optimizer_finish(tern_train_optimizer_flags *flags);

#endif
