/* SPDX-License-Identifier: Apache-2.0 */
/* text_trainer.h - a model trained on text: data, schedule, steps, validation and the run's folder in one object.
 *
 *     text ──> data ──> loader thread ──> stepper ──> reports
 *                                          │  └──> checkpoint, model.safetensors, config.json, run.json
 *                       resume: checkpoint ┘
 *
 * What it is not: it prints nothing and parses no command line (cli/train.c does).
 * Invariant: everything that can be refused is refused by tern_text_trainer_create, before the first step. */
#ifndef TERN_TRAIN_TEXT_TRAINER_H
#define TERN_TRAIN_TEXT_TRAINER_H

#include <signal.h>

#include "core/train/checkpoint.h"
#include "core/train/diagnose.h"
#include "core/train/run.h"
#include "core/train/schedule.h"
#include "core/train/step.h"
#include "core/train/text_model.h"

typedef struct tern_text_trainer tern_text_trainer;

/* What a run goes on from. */
typedef struct tern_text_resume {
    const tern_checkpoint *checkpoint; /* need not outlive the trainer's creation */
    bool allow_other_data;
    bool new_settings; /* schedule, clipping and the optimizer's numbers as in the options, not as in the checkpoint */
} tern_text_resume;

typedef struct tern_text_options {
    tern_text_model model;         /* its options must outlive the trainer */
    uint32_t accumulate;           /* micro-batches per step */
    uint64_t calibrate;            /* steps between calibrations by the first micro-batch; 0: none */
    const char *const *data_paths; /* files or folders of text */
    uint32_t data_count;
    double val_split; /* [0, 1) */
    uint64_t seed;
    tern_schedule schedule; /* lr, min_lr, warmup, steps */
    tern_optimizer optimizer;
    const tern_parameter_group *groups; /* by name, the first match wins; need not outlive the trainer's creation */
    uint32_t group_count;
    bool no_masters; /* with a 16-bit precision: no f32 weights beside it */
    tern_update_options update;
    int32_t precision;              /* TERN_F32 (or 0), TERN_BF16 or TERN_F16 */
    tern_plan_options plan;         /* zeros: defaults */
    const tern_text_resume *resume; /* NULL: from the start */
} tern_text_options;

/* No model, accumulate 1, val_split 0.1, lr 1e-3 to 1e-4 over 1000 steps with 100 of warm-up, betas 0.9 and 0.95,
 * epsilon 1e-8, weight decay 0.1, clip 1, no data. */
void tern_text_options_init(tern_text_options *options);

typedef struct tern_text_info {
    uint64_t parameters;
    uint64_t train_bytes, val_bytes, fingerprint;
    uint32_t file_count, skipped_count;
    uint64_t val_batches; /* 0: no validation */
    uint64_t tokens_per_step;
    tern_setup_memory memory;
    uint64_t steps_done;       /* windows ended, those before a resume included */
    uint32_t micros_done;      /* micro-batches of the present window */
    uint64_t horizon;          /* steps of the schedule in use */
    uint64_t checkpoint_bytes; /* of one, at most */
    const char *tolerance;     /* why a resumed run does not go on to the same bits; "": it does, or was not resumed */
} tern_text_info;

/* Reads the data, compiles and plans, refuses what cannot work, allocates. The paths need not outlive the call. */
TERN_MUST_USE tern_status tern_text_trainer_create(tern_device *device, const tern_text_options *options,
                                                   tern_text_trainer **out_trainer);
void tern_text_trainer_destroy(tern_text_trainer *trainer);
void tern_text_trainer_info(const tern_text_trainer *trainer, tern_text_info *out_info);
tern_stepper *tern_text_trainer_stepper(tern_text_trainer *trainer);
const tern_setup *tern_text_trainer_setup(const tern_text_trainer *trainer);

/* One micro-batch, and the update where it was the window's last: then *out_ended is true and *out_report is the step
 * before's (valid is false on the first of a session). */
TERN_MUST_USE tern_status tern_text_trainer_advance(tern_text_trainer *trainer, bool *out_ended,
                                                    tern_step_report *out_report);
/* The rest of a step: advance until it has ended. */
TERN_MUST_USE tern_status tern_text_trainer_step(tern_text_trainer *trainer, tern_step_report *out_report);
/* Waits for the last step; its report. */
TERN_MUST_USE tern_status tern_text_trainer_finish(tern_text_trainer *trainer, tern_step_report *out_report);
/* Mean loss over the first max_batches validation batches (0: all) and how many tokens counted; NaN over none. */
TERN_MUST_USE tern_status tern_text_trainer_evaluate(tern_text_trainer *trainer, uint64_t max_batches, double *out_loss,
                                                     uint64_t *out_tokens);

/* Once *stop is not 0, a validation ends after the batch in work. NULL: never. The flag must outlive the trainer. */
void tern_text_trainer_watch(tern_text_trainer *trainer, const volatile sig_atomic_t *stop);

/* The first tensor that is not finite in the window of a report, which must be the latest: its micro-batches run once
 * more, with the present weights and scale, until one shows it (text_diagnose.c, diagnose.h). *out_micro: which one,
 * from 0. */
TERN_MUST_USE tern_status tern_text_trainer_diagnose(tern_text_trainer *trainer, const tern_step_report *report,
                                                     tern_diagnosis *out_diagnosis, uint32_t *out_micro);

/* Replaces all weights by name from a .safetensors file; a missing tensor or another shape is an error naming it. */
TERN_MUST_USE tern_status tern_text_trainer_load(tern_text_trainer *trainer, const char *path);

/* How to save a run. */
typedef struct tern_text_save {
    const char *flags_json; /* the command's flags as a JSON object, for run.json; NULL: none */
    uint32_t keep;          /* checkpoints, beside the best; 0: 1 */
    double val_loss;        /* measured just now; NaN: it was not */
    bool spoilt;            /* the run has diverged */
} tern_text_save;

/* A checkpoint with the weights' link, config.json and run.json, into a folder that tern_run_prepare or _reopen gave
 * (text_save.c). On failure all that was saved before is as it was. */
TERN_MUST_USE tern_status tern_text_trainer_save(tern_text_trainer *trainer, const char *folder,
                                                 const tern_text_save *how);

#endif
