/* SPDX-License-Identifier: Apache-2.0 */
/* train_step.c - see train_step.h. */
#include "core/cli/train_step.h"

#include <stdlib.h>
#include <string.h>

void tern_train_step_init(tern_train_step_flags *f, tern_cli_option out_rows[TERN_TRAIN_STEP_ROWS])
{
    *f = (tern_train_step_flags){.accumulate = TERN_CLI_UNSET,
                                 .batch_tokens = TERN_CLI_UNSET,
                                 .max_skips = 20,
                                 .schedule = tern_schedules[TERN_SCHEDULE_COSINE].name,
                                 .loss_scale = "auto",
                                 .schedule_decay = 0.2};
    const tern_cli_option rows[TERN_TRAIN_STEP_ROWS] = {
        {"accumulate", TERN_CLI_INTEGER, &f->accumulate, "K", 1, 1e9,
         "micro-batches per step; the step is that of one batch of K times --batch (default 1)"},
        {"batch-tokens", TERN_CLI_INTEGER, &f->batch_tokens, "N", 1, 1e15,
         "instead of --accumulate: as many micro-batches as reach N tokens per step"},
        {"schedule", TERN_CLI_TEXT, &f->schedule, "NAME", 0, 0,
         "after the warm-up: cosine, constant, linear, or wsd, which stays level and falls at the end"},
        {"schedule-decay", TERN_CLI_REAL, &f->schedule_decay, "X", 0.001, 1, "the falling part of wsd"},
        {"loss-scale", TERN_CLI_TEXT, &f->loss_scale, "X", 0, 0,
         "auto (dynamic in f16, else 1), dynamic, or a power of two that stays"},
        {"clip-value", TERN_CLI_REAL, &f->clip_value, "X", 0, 1e6,
         "largest magnitude of one element of the gradient, before --clip; 0: any"},
        {"skip-outliers", TERN_CLI_REAL, &f->skip_outliers, "Z", 0, 1000,
         "skip a step whose gradient's norm lies Z deviations above the usual, Z from 1; 0: none"},
        {"max-skips", TERN_CLI_INTEGER, &f->max_skips, "N", 1, 1e9,
         "steps in a row that are not finite after which the run stops and names the tensor"},
        {"calibrate", TERN_CLI_INTEGER, &f->calibrate, "N", 0, 1e9,
         "steps between comparisons of half precision with f32 on the same micro-batch, 0: none"},
        {"calibrate-limit", TERN_CLI_REAL, &f->calibrate_limit, "X", 0, 1000,
         "warn where loss or gradient norm are off by more than this part of f32's, 0: never"},
        {"calibrate-stop", TERN_CLI_FLAG, &f->calibrate_stop, NULL, 0, 0, "stop there instead"},
    };
    memcpy(out_rows, rows, sizeof rows);
}

/* A text that is a power of two, as f32 holds it. */
static int parse_scale(tern_train_step_flags *f)
{
    char *end = NULL;
    if (strcmp(f->loss_scale, "auto") == 0) return TERN_CLI_GO;
    if (strcmp(f->loss_scale, "dynamic") == 0) {
        f->scale.mode = TERN_SCALE_DYNAMIC;
        return TERN_CLI_GO;
    }
    f->scale = (tern_scale_options){.mode = TERN_SCALE_STATIC, .initial = strtod(f->loss_scale, &end)};
    if (end == f->loss_scale || *end || !(f->scale.initial > 0))
        return tern_cli_misuse("train: --loss-scale is %s; it must be auto, dynamic or a power of two", f->loss_scale);
    const tern_scale_options resolved = tern_scale_resolve(&f->scale, false);
    if (tern_scale_check(&resolved) < 0) return tern_cli_misuse("train: --loss-scale: %s", tern_error_message());
    return TERN_CLI_GO;
}

static int count_micros(tern_train_step_flags *f, const tern_gpt2_options *shape)
{
    const int64_t tokens = (int64_t)shape->batch * shape->context, most = (int64_t)(UINT32_MAX / shape->batch);
    if (f->accumulate != TERN_CLI_UNSET && f->batch_tokens != TERN_CLI_UNSET)
        return tern_cli_misuse("train: --accumulate and --batch-tokens say the same thing; give one of them");
    if (f->batch_tokens != TERN_CLI_UNSET) f->accumulate = (f->batch_tokens + tokens - 1) / tokens;
    if (f->accumulate == TERN_CLI_UNSET) f->accumulate = 1;
    if (f->accumulate > most)
        return tern_cli_misuse("train: a step would be %lld micro-batches of %u windows; at most %lld can be",
                               (long long)f->accumulate, shape->batch, (long long)most);
    return TERN_CLI_GO;
}

int tern_train_step_settle(tern_train_step_flags *f, const tern_gpt2_options *shape)
{
    if (tern_schedule_parse(f->schedule, &f->schedule_kind) < 0)
        return tern_cli_misuse("train: --schedule: %s", tern_error_message());
    const tern_outlier_options outlier = {.z = f->skip_outliers};
    if (tern_outlier_check(&outlier) < 0) return tern_cli_misuse("train: --skip-outliers: %s", tern_error_message());
    if (f->calibrate_stop && !(f->calibrate_limit > 0))
        return tern_cli_misuse("train: --calibrate-stop has no limit to stop at; give --calibrate-limit X");
    if (f->calibrate_limit > 0 && f->calibrate == 0)
        return tern_cli_misuse("train: --calibrate-limit has nothing to compare; give --calibrate N");
    const int code = parse_scale(f);
    return code == TERN_CLI_GO ? count_micros(f, shape) : code;
}

void tern_train_step_apply(const tern_train_step_flags *f, tern_text_options *options)
{
    options->accumulate = (uint32_t)f->accumulate;
    options->calibrate = (uint64_t)f->calibrate;
    options->schedule.kind = f->schedule_kind;
    options->schedule.decay = f->schedule_decay;
    options->update.clip_value = f->clip_value;
    options->update.outlier.z = f->skip_outliers;
    options->update.scale = f->scale;
}
