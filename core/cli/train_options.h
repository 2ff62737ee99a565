/* SPDX-License-Identifier: Apache-2.0 */
/* train_options.h - the options that `train` and `plan` share: the model's shape and the limits profile.
 *
 * A preset (--model) gives the defaults of the other options, so a line is read twice: once for the preset, once more
 * over its values. What it is not: it opens no device. */
#ifndef TERN_CLI_TRAIN_OPTIONS_H
#define TERN_CLI_TRAIN_OPTIONS_H

#include "core/cli/cli.h"
#include "core/models/gpt2.h"
#include "core/train/precision.h"
#include "core/train/text_trainer.h"

typedef struct tern_cli_model {
    const char *preset, *precision;
    int64_t layers, heads, width, context, batch, vocab; /* heads TERN_CLI_UNSET: follows the width */
    double dropout;
} tern_cli_model;

#define TERN_CLI_MODEL_OPTION_COUNT 9
/* The first TERN_CLI_MODEL_OPTION_COUNT rows of a command's table; fills *model with the default preset's values. */
void tern_cli_model_options(tern_cli_model *model, tern_cli_option *out_options);
/* tern_cli_parse over a table that begins with these rows; the command takes no operands. */
int tern_cli_model_parse(const tern_cli_usage *usage, tern_cli_model *model, int argc, char **argv);
/* The shape, checked: TERN_CLI_GO, or the exit code after its sentence. */
int tern_cli_model_get(const tern_cli_model *model, tern_gpt2_options *out_options);

/* What --precision comes to on this device, with the reason. */
TERN_MUST_USE tern_status tern_cli_precision(const tern_cli_model *model, const tern_device *device,
                                             tern_precision_choice *out_choice);

/* TERN_CLI_GO, or the exit code after its sentence: the null backend, for tests alone, is no device to train on. */
int tern_cli_refuse_null(const tern_cli_usage *usage, const tern_cli_device *options);

/* Opens the device; with a profile its limits are lowered first. out_plan: rates and submission length for the planner.
 * paper: a profile stands for a device of its own unless a backend was named. */
TERN_MUST_USE tern_status tern_cli_open_limited(const tern_cli_device *options, const char *limits, bool paper,
                                                tern_device **out_device, tern_plan_options *out_plan);

/* The text as one word of a shell's line, quoted if it must be; free() it. NULL when out of memory. */
char *tern_cli_quote(const char *text);

/* "124.4 M", "3.3 M", "512"; text holds at least 24 bytes; returns it. */
char *tern_cli_count(uint64_t count, char *text);

#endif
