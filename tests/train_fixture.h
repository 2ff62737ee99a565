/* SPDX-License-Identifier: Apache-2.0 */
/* train_fixture.h - a very small GPT-2 with its three programs on a device, and batches to feed it. */
#ifndef TERN_TESTS_TRAIN_FIXTURE_H
#define TERN_TESTS_TRAIN_FIXTURE_H

#include "backends/null/null.h"
#include "core/models/gpt2.h"
#include "core/train/data.h"
#include "core/train/step.h"

/* 2 layers, width 16, context 12, batch 4, dropout 0.2 */
extern const tern_gpt2_options test_tiny;

typedef struct test_run {
    tern_device *device;
    tern_setup *setup;
    tern_stepper *stepper;
    tern_text text;
    tern_data data;
    tern_batch batch;
} test_run;

tern_device *test_open_device(const char *name, uint32_t threads);
/* Seed 11; the model must outlive the result. */
tern_setup_options test_setup_options(const tern_gpt2_options *model);
void test_run_start(test_run *run, const char *backend, uint32_t threads, const tern_gpt2_options *model);
void test_run_stop(test_run *run);
/* One micro-batch of the run's samples from `sample` on. */
tern_status test_run_micro(test_run *run, uint64_t sample, uint32_t sample_base);
/* Waits for all of it. */
void test_run_drain(test_run *run);
const tern_null_hooks *test_null_hooks(const tern_device *device);

#endif
