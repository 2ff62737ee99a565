/* SPDX-License-Identifier: Apache-2.0 */
/* trainer_internal.h - the trainer's fields, for trainer.c (steps) and run.c (the folder). */
#ifndef TERN_TRAIN_TRAINER_INTERNAL_H
#define TERN_TRAIN_TRAINER_INTERNAL_H

#include "core/train/loader.h"
#include "core/train/trainer.h"

struct tern_trainer {
    tern_device *device;
    tern_train_options options; /* the model's address is given to the setup */
    tern_text *text;
    tern_data data;
    tern_batch eval_batch;
    tern_setup *setup;
    tern_stepper *stepper;
    tern_loader *loader;
    uint64_t attempt;
    const volatile sig_atomic_t *stop; /* ends a validation early; NULL: nothing does */
};

#endif
