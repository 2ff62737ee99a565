/* SPDX-License-Identifier: Apache-2.0 */
/* trainer_internal.h - the fields behind tern_trainer, shared by its files.
 *
 *     trainer.c          life, windows and reports            trainer_options.c  from the options to the setup's
 *     trainer_tensors.c  read, write, load, save by name      trainer_dlpack.c   the same for DLPack's tensors
 *     trainer_feed.c     what goes into an input's slot       feeder.c           tern_trainer_feed_with's thread
 *     trainer_save.c     checkpoints, and going on from them
 *
 * Not for other rooms. Invariant: an argument is refused before anything of the trainer changes; what fails after that
 * is kept in `failed` and returned by every later call. */
#ifndef TERN_TRAIN_TRAINER_INTERNAL_H
#define TERN_TRAIN_TRAINER_INTERNAL_H

#include <cjson/cJSON.h>

#include "core/formats/safetensors.h"
#include "core/train/feeder.h"
#include "core/train/schedule.h"
#include "core/train/step.h"

/* One input of the user's graph. */
typedef struct tern_trainer_input {
    char *name;
    int32_t dtype, rank;
    int64_t shape[TERN_MAX_RANK]; /* shape[0]: the batch */
    uint64_t bytes, example_bytes;
    int64_t sort_rows; /* > 0: the backward pass wants its ids sorted into that many rows */
    void *slot;        /* of the batch in work; NULL: that program does not read it */
    bool staged;       /* its next slot is filled by the caller */
} tern_trainer_input;

struct tern_trainer {
    tern_device *device;
    tern_schedule schedule;
    uint32_t accumulate, batch;
    bool whole_batches; /* the loss cannot be masked by example */
    tern_graph *graph;  /* a copy of the user's; programs are made from it */
    tern_setup *setup;
    tern_stepper *stepper;
    cJSON *facts; /* what a checkpoint must share, facts.h */
    tern_trainer_input *inputs;
    uint32_t input_count;
    tern_feeder *feeder;        /* NULL: none */
    const tern_feed **by_input; /* scratch of one call: each input's feed */
    /* position */
    uint32_t window_micros, window_examples; /* of the window that has begun */
    uint64_t windows, examples;
    tern_step_report last; /* newest finished window */
    tern_status failed;
    char failure[1024];
};

/* The caller's options in the library's own structure. */
TERN_MUST_USE tern_status tern_trainer_options_read(const tern_train_options *given, tern_train_options *out);
/* Checks them and fills the trainer's schedule and accumulation and the setup's numbers. *out_groups (free() it) is
 * what the setup's groups point to. */
TERN_MUST_USE tern_status tern_trainer_options_take(tern_trainer *trainer, const tern_train_options *options,
                                                    tern_setup_options *out_setup, tern_parameter_group **out_groups);

/* Refuses a trainer that has failed, or NULL. */
TERN_MUST_USE tern_status tern_trainer_ready(const tern_trainer *trainer);
/* Keeps a failure of the device for later calls; returns `status`. */
tern_status tern_trainer_keep(tern_trainer *trainer, tern_status status);
/* The facts, from the setup's options while they are whole; NULL when out of memory. */
cJSON *tern_trainer_facts(const tern_trainer *trainer, const tern_setup_options *options);
/* Fills *out (NULL allowed) with where the trainer stands. */
void tern_trainer_report(const tern_trainer *trainer, bool updated, bool ended, tern_report *out);
TERN_MUST_USE tern_status tern_trainer_report_check(const tern_report *out);
/* Ends a window that has begun. */
TERN_MUST_USE tern_status tern_trainer_close_window(tern_trainer *trainer);

/* The inputs of a graph; TERN_ERROR_INVALID when their first axes differ. */
TERN_MUST_USE tern_status tern_trainer_inputs_create(tern_trainer *trainer, const tern_graph *graph);
void tern_trainer_inputs_destroy(tern_trainer *trainer);
/* TERN_ERROR_NOT_FOUND listing the inputs. */
TERN_MUST_USE tern_status tern_trainer_find_input(tern_trainer *trainer, const char *name, tern_trainer_input **out);
/* Checks feeds and examples as tern_trainer_step documents and fills the next slots of micro or eval. */
TERN_MUST_USE tern_status tern_trainer_fill(tern_trainer *trainer, tern_program_kind kind, const tern_feed *feeds,
                                            size_t count, int64_t examples);

/* Opens a .safetensors file whose tensors are all of the trainer's parameters, as tern_trainer_load documents. */
TERN_MUST_USE tern_status tern_trainer_match(const tern_trainer *trainer, const char *path, uint32_t flags,
                                             tern_safetensors **out_file);
/* The micro program's next slots as feeds, sorted forms of ids included; valid until its next submission. free() it. */
TERN_MUST_USE tern_status tern_trainer_filled(tern_trainer *trainer, tern_feed **out_feeds, uint32_t *out_count);

/* A named tensor on the host, waiting for the device: dtype and shape, and where it comes from. */
typedef struct tern_trainer_tensor {
    const char *name;
    int32_t dtype, rank;
    int64_t shape[TERN_MAX_RANK];
    bool stored; /* in the store; else an output */
} tern_trainer_tensor;
TERN_MUST_USE tern_status tern_trainer_find_tensor(tern_trainer *trainer, const char *name, tern_trainer_tensor *out);

#endif
