/* SPDX-License-Identifier: Apache-2.0 */
/* toy_model.h - a regression so small that hundreds of windows run in a second, with everything the step must mind:
 * loss weights that may be 0, dropout, a vector parameter, a frozen one and a running statistic.
 *
 *     x (B, 6) ─ up ─ tanh ─ dropout ─┬─ layer norm ─ down ─ (y - .)^2 mean ─ loss (B), weight (B)
 *                                     └─ running.mean := 0.75 running.mean + 0.25 mean over the batch
 */
#ifndef TERN_TESTS_TOY_MODEL_H
#define TERN_TESTS_TOY_MODEL_H

#include "core/train/step.h"

enum { TOY_IN = 6, TOY_HIDDEN = 16, TOY_OUT = 3 };

typedef struct toy_model {
    double dropout;
    bool running; /* with the running statistic */
} toy_model;

/* Examples of one micro-batch; count x TOY_IN and so on. */
typedef struct toy_batch {
    float *x, *y, *weight;
} toy_batch;

typedef struct toy_run {
    tern_device *device;
    tern_setup *setup;
    tern_stepper *stepper;
    uint32_t batch;
} toy_run;

/* AdamW, no clipping, segments of one chunk, without validation unless changed afterwards. The model must outlive the
 * result. */
tern_setup_options toy_options(const toy_model *model, uint32_t batch);
/* Seed 3. */
void toy_start(toy_run *run, tern_device *device, const tern_setup_options *options);
void toy_stop(toy_run *run);
tern_status toy_micro(toy_run *run, const toy_batch *batch, uint32_t sample_base);
/* A leaf of the store; free() it. */
void *toy_read(toy_run *run, const char *name, uint64_t *out_bytes);
/* Every byte that training owns, slabs and states, one after another; free() it. */
unsigned char *toy_read_all(toy_run *run, uint64_t *out_bytes);
/* All accumulators, then n and the loss, as doubles; free() it. */
double *toy_gradients(toy_run *run, size_t *out_count);
/* ||a - b|| / ||b||, 0 when both are 0. */
double toy_distance(const double *a, const double *b, size_t count);

void toy_batch_create(toy_batch *batch, uint32_t count);
void toy_batch_finish(toy_batch *batch);

#endif
