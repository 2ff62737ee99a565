/* SPDX-License-Identifier: Apache-2.0 */
/* text_trainer_internal.h - the trainer's fields, for text_trainer.c (steps), run.c (the folder) and text_diagnose.c.
 */
#ifndef TERN_TRAIN_TEXT_TRAINER_INTERNAL_H
#define TERN_TRAIN_TEXT_TRAINER_INTERNAL_H

#include "core/train/loader.h"
#include "core/train/text_trainer.h"

struct tern_text_trainer {
    tern_device *device;
    tern_text_options options; /* the model's address is given to the setup */
    tern_text *text;
    tern_data data;
    tern_batch eval_batch;
    tern_setup *setup;
    tern_stepper *stepper;
    tern_loader *loader;
    uint64_t attempt;
    const volatile sig_atomic_t *stop; /* ends a validation early; NULL: nothing does */
};

#define TERN_TEXT_FEEDS 4
/* The inputs of a batch, which must outlive them. */
void tern_text_feeds(const tern_text_trainer *trainer, const tern_batch *batch, tern_feed feeds[TERN_TEXT_FEEDS]);

#endif
