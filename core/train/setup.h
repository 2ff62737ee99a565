/* SPDX-License-Identifier: Apache-2.0 */
/* setup.h - everything about a training run that is known before anything is allocated.
 *
 *     model ─┬─ graph ── autocast ── accumulate ── low weights ── save rule ── lower ── plan    micro
 *            ├─ store layout ── update graph ── lower ── plan                                   update
 *            ├─ graph (dropout off) ── autocast ── low weights ── lower ── plan                 eval
 *            └─ graph ── with and without autocast ── probe ── lower ── plan                    probe, probe.f32
 *
 * What it is not: it runs nothing (step.h) and reads no data. It is what `tern plan` prints and what refuses a batch.
 * Invariant: `total` is what a run allocates on the device, to the byte. */
#ifndef TERN_TRAIN_SETUP_H
#define TERN_TRAIN_SETUP_H

#include "core/plan/plan.h"
#include "core/train/store.h"
#include "core/train/update.h"

/* Builds a loss graph for `batch` examples into an empty graph. */
typedef struct tern_model {
    tern_status (*build)(void *context, tern_graph *graph, uint32_t batch);
    void *context;
} tern_model;

typedef struct tern_setup_options {
    tern_model model;
    uint32_t batch; /* examples per micro-batch */
    tern_optimizer optimizer;
    tern_update_options update;
    const tern_parameter_group *groups; /* by name, the first match wins; read while the setup is created */
    uint32_t group_count;
    int32_t precision;      /* TERN_F16 or TERN_BF16: autocast, with 16-bit weights beside f32 masters; 0: f32 */
    bool no_masters;        /* with a 16-bit precision: the 16-bit weights are all there is */
    uint64_t segment_bytes; /* of the store; 0: default */
    bool evaluate;          /* with the eval program */
    bool calibrate;         /* with the two probe programs; refused in f32 */
    bool no_fuse;           /* one kernel per op, for finding a fuser's fault */
    tern_plan_options plan; /* zeros: defaults */
} tern_setup_options;

typedef enum tern_program_kind {
    TERN_PROGRAM_MICRO = 0,
    TERN_PROGRAM_UPDATE,
    TERN_PROGRAM_EVAL,
    TERN_PROGRAM_PROBE,     /* loss and gradient norm of a micro-batch in the run's precision, nothing written */
    TERN_PROGRAM_PROBE_F32, /* the same in f32, from the masters */
    TERN_PROGRAM_COUNT
} tern_program_kind;
extern const char *const tern_program_names[TERN_PROGRAM_COUNT];

/* The eval program's outputs, (1) f32. */
#define TERN_EVAL_N    "eval.n"
#define TERN_EVAL_LOSS "eval.loss"

typedef struct tern_program {
    tern_graph *graph;
    tern_lowered *lowered;
    tern_plan *plan; /* all NULL: the program is not there */
} tern_program;

typedef struct tern_setup {
    tern_device *device;
    tern_setup_options options;
    tern_store_layout *layout;
    tern_program programs[TERN_PROGRAM_COUNT];
} tern_setup;

typedef struct tern_setup_memory {
    uint64_t weights, low;               /* f32 masters, 16-bit weights */
    uint64_t gradients, moments, states; /* moments with their scales; all five are the store's */
    uint64_t arena;                      /* the largest of the programs', block by block */
    uint64_t upload, readback;           /* both slots of all programs */
    uint64_t total, budget;              /* budget: free device memory now */
} tern_setup_memory;

/* The device must outlive it; the model is called before it returns only. Errors of the model's graph come back as they
 * are. */
TERN_MUST_USE tern_status tern_setup_create(tern_device *device, const tern_setup_options *options,
                                            tern_setup **out_setup);
void tern_setup_destroy(tern_setup *setup);
void tern_setup_measure(const tern_setup *setup, tern_setup_memory *out_memory);
/* The same, refused when it does not fit: TERN_ERROR_DEVICE_MEMORY saying by how much and which largest batch does. */
TERN_MUST_USE tern_status tern_setup_create_fitting(tern_device *device, const tern_setup_options *options,
                                                    tern_setup **out_setup);

#endif
