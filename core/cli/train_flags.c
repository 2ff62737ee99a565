/* SPDX-License-Identifier: Apache-2.0 */
/* train_flags.c - the table of `tern train`; train_flags.h has the picture. */
#include "core/cli/train_flags.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/models/gpt2_text.h"

static void fill_table(tern_train_flags *f)
{
    const tern_cli_option rows[] = {
        {"data", TERN_CLI_TEXT, &f->data, "PATH", 0, 0, "a text file, or a folder whose text files are read"},
        {"out", TERN_CLI_TEXT, &f->out, "FOLDER", 0, 0,
         "a new folder for weights, checkpoints and metrics; without it nothing is kept"},
        {"resume", TERN_CLI_TEXT, &f->resume, "WHAT", 0, 0,
         "auto: go on with the run in --out if there is one; FOLDER: from that run or checkpoint; never: a new run"},
        {"steps", TERN_CLI_INTEGER, &f->steps, "N", 1, 1e9, "optimizer steps"},
        {"lr", TERN_CLI_REAL, &f->lr, "X", 1e-12, 1000, "highest learning rate"},
        {"min-lr", TERN_CLI_REAL, &f->min_lr, "X", 0, 1000, "learning rate at the end (default a tenth of --lr)"},
        {"warmup", TERN_CLI_INTEGER, &f->warmup, "N", 0, 1e9,
         "steps until the highest learning rate (default a tenth of --steps, at most 100)"},
        {"clip", TERN_CLI_REAL, &f->clip, "X", 0, 1e6, "largest norm of the gradient, 0: any"},
        {"seed", TERN_CLI_INTEGER, &f->seed, "N", 0, 9007199254740992.0,
         "of the weights, the order of the data, dropout"},
        {"val-split", TERN_CLI_REAL, &f->val_split, "X", 0, 0.9, "fraction of the data held out, its end; 0: none"},
        {"log-every", TERN_CLI_INTEGER, &f->log_every, "N", 1, 1e9, "steps between lines"},
        {"eval-every", TERN_CLI_INTEGER, &f->eval_every, "N", 0, 1e9, "steps between validations, 0: at the end only"},
        {"save-every", TERN_CLI_INTEGER, &f->save_every, "N", 0, 1e9, "steps between checkpoints, 0: by time only"},
        {"save-minutes", TERN_CLI_REAL, &f->save_minutes, "X", 0, 1e6,
         "minutes between checkpoints, 0: by steps only; the end of a run is always saved"},
        {"save-every-micro", TERN_CLI_INTEGER, &f->save_every_micro, "N", 0, 1e9,
         "micro-batches between checkpoints, also inside a step; for tests"},
        {"keep", TERN_CLI_INTEGER, &f->keep, "N", 1, 1000, "newest checkpoints that stay, beside the best validated"},
        {"allow-other-data", TERN_CLI_FLAG, &f->allow_other_data, NULL, 0, 0,
         "go on though --data or --val-split are not those of the checkpoint"},
        {"new-settings", TERN_CLI_FLAG, &f->new_settings, NULL, 0, 0,
         "go on with the learning rate, schedule, clipping and decay given now, not with the checkpoint's"},
        {"json", TERN_CLI_FLAG, &f->json, NULL, 0, 0, "one JSON object per logged step on stdout, and a last one"},
        {"limits", TERN_CLI_TEXT, &f->limits, "PROFILE", 0, 0,
         "believe no more of the device than lavapipe, arc-a770, rtx-3090, rtx-4090, a100 or a JSON file says"},
        TERN_CLI_DEVICE_OPTIONS(&f->device),
    };
    enum {
        AFTER_MODEL = TERN_CLI_MODEL_OPTION_COUNT,
        AFTER_OPTIMIZER = AFTER_MODEL + TERN_TRAIN_OPTIMIZER_ROWS,
        AFTER_STEP = AFTER_OPTIMIZER + TERN_TRAIN_STEP_ROWS
    };
    enum { BEFORE = AFTER_STEP, COUNT = sizeof rows / sizeof *rows };
    _Static_assert(BEFORE + COUNT <= TERN_TRAIN_FLAGS_MAX, "a longer table");
    tern_cli_model_options(&f->model, f->options);
    tern_train_optimizer_init(&f->optimizer, f->options + AFTER_MODEL);
    tern_train_step_init(&f->step, f->options + AFTER_OPTIMIZER);
    memcpy(f->options + BEFORE, rows, sizeof rows);
    f->usage =
        (tern_cli_usage){"train", NULL,
                         "Trains a GPT on text, its bytes being the tokens. Progress goes to stderr. Ctrl-C finishes "
                         "the step, saves and exits with 130; --resume auto goes on from there.",
                         f->options, BEFORE + COUNT};
}

/* Defaults that depend on other flags, and flags that exclude each other. */
static int settle(tern_train_flags *f)
{
    if (!f->data) return tern_cli_misuse("train: there are no data; give --data FILE or --data FOLDER");
    if (strcmp(f->resume, "auto") == 0 && !f->out)
        return tern_cli_misuse("train: --resume auto goes on with the run in --out; give --out FOLDER");
    if (isnan(f->min_lr)) f->min_lr = f->lr / 10;
    if (f->min_lr > f->lr)
        return tern_cli_misuse("train: --min-lr is %g; it must not be above --lr, which is %g", f->min_lr, f->lr);
    if (f->warmup == TERN_CLI_UNSET) f->warmup = f->steps / 10 < 100 ? f->steps / 10 : 100;
    return TERN_CLI_GO;
}

int tern_train_flags_parse(tern_train_flags *f, int argc, char **argv)
{
    *f = (tern_train_flags){.device = TERN_CLI_DEVICE_DEFAULTS,
                            .steps = 1000,
                            .warmup = TERN_CLI_UNSET,
                            .seed = 1,
                            .log_every = 10,
                            .eval_every = 250,
                            .lr = 1e-3,
                            .min_lr = NAN,
                            .clip = 1,
                            .argc = argc,
                            .argv = argv,
                            .val_split = 0.1,
                            .save_minutes = 10,
                            .keep = 2,
                            .resume = "never"};
    fill_table(f);
    int code = tern_cli_model_parse(&f->usage, &f->model, argc, argv);
    if (code == TERN_CLI_GO) code = settle(f);
    if (code == TERN_CLI_GO) code = tern_cli_refuse_null(&f->usage, &f->device);
    if (code == TERN_CLI_GO) code = tern_cli_model_get(&f->model, &f->shape);
    if (code == TERN_CLI_GO) code = tern_train_optimizer_settle("train", &f->optimizer);
    if (code == TERN_CLI_GO) code = tern_train_step_settle(&f->step, &f->shape);
    if (code != TERN_CLI_GO) return code;
    f->model.heads = f->shape.heads;
    f->text = tern_cli_options_json(&f->usage);
    return f->text ? TERN_CLI_GO : tern_cli_fail(tern_error_memory("the list of flags", 1024));
}

void tern_train_flags_finish(tern_train_flags *f)
{
    tern_train_optimizer_finish(&f->optimizer);
    free(f->text);
    f->text = NULL;
}

void tern_train_flags_apply(const tern_train_flags *f, tern_text_options *out_options)
{
    tern_text_options options;
    tern_text_options_init(&options);
    tern_gpt2_text(&f->shape, &options.model);
    options.data_paths = (const char *const *)&f->data;
    options.data_count = 1;
    options.val_split = f->val_split;
    options.seed = (uint64_t)f->seed;
    options.schedule =
        (tern_schedule){.lr = f->lr, .min_lr = f->min_lr, .warmup = (uint64_t)f->warmup, .steps = (uint64_t)f->steps};
    options.optimizer = f->optimizer.numbers;
    options.groups = f->optimizer.rules;
    options.group_count = f->optimizer.rule_count;
    options.no_masters = f->optimizer.no_masters;
    options.update.clip = f->clip;
    tern_train_step_apply(&f->step, &options);
    *out_options = options;
}
