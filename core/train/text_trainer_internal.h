/* SPDX-License-Identifier: Apache-2.0 */
/* text_trainer_internal.h - the trainer's fields, for text_trainer.c (steps), text_save.c (the folder) and
 * text_diagnose.c.
 */
#ifndef TERN_TRAIN_TEXT_TRAINER_INTERNAL_H
#define TERN_TRAIN_TEXT_TRAINER_INTERNAL_H

#include "core/train/checkpoints.h"
#include "core/train/loader.h"
#include "core/train/text_trainer.h"

struct tern_text_trainer {
    tern_device *device;
    tern_text_options options; /* the model's address is given to the setup */
    tern_text *text;
    tern_data data;
    tern_batch eval_batch;
    tern_setup_options setup_options;
    cJSON *facts; /* for checkpoints */
    tern_setup *setup;
    tern_stepper *stepper;
    tern_loader *loader;
    uint64_t sample;                   /* of the data, the next one's number */
    char tolerance[640];               /* of a resumed run: why it goes on within tolerance only; "": to the bit */
    const volatile sig_atomic_t *stop; /* ends a validation early; NULL: nothing does */
};

#define TERN_TEXT_FEEDS 4
/* The inputs of a batch, which must outlive them. */
void tern_text_feeds(const tern_text_trainer *trainer, const tern_batch *batch, tern_feed feeds[TERN_TEXT_FEEDS]);
/* text_save.c: what must be the same in a run that goes on from this one; cJSON_Delete() it. horizon: of a run that is
 * gone on with, else 0. NULL when out of memory. */
cJSON *tern_text_facts(const tern_text_trainer *trainer, uint64_t horizon);
/* text_save.c: whether the run may go on from the checkpoint of its options; takes position and schedule from there.
 * Before anything is compiled. */
TERN_MUST_USE tern_status tern_text_resume_check(tern_text_trainer *trainer);

#endif
