/* SPDX-License-Identifier: Apache-2.0 */
/* resume_fixture.h - a tiny run on text that is stopped and gone on with, in a folder of the test's own. */
#ifndef TERN_TESTS_RESUME_FIXTURE_H
#define TERN_TESTS_RESUME_FIXTURE_H

#include "core/models/gpt2_text.h"
#include "core/train/checkpoints.h"
#include "core/train/text_trainer.h"

#define RESUME_ACCUMULATE 3u

/* Made by resume_set_up, removed by resume_tear_down; in memory where there is such a place, since hundreds of
 * checkpoints with all their fsync take minutes on a busy disk. */
extern char resume_folder[];
int resume_set_up(void **state);
int resume_tear_down(void **state);

/* The model of resume_options, which resets it. */
extern tern_gpt2_options resume_shape;
/* The tiny GPT-2 with dropout, 3 micro-batches a step, AdamW, a horizon of `steps`. */
tern_text_options resume_options(uint64_t steps);
tern_text_trainer *resume_start(tern_device *device, const tern_text_options *options);
/* From the newest checkpoint of a run, or from a checkpoint; fails the test if it is refused. */
tern_text_trainer *resume_continue(tern_device *device, const tern_text_options *options, const char *run);
/* Micro-batches, and updates where windows end. */
void resume_advance(tern_text_trainer *trainer, uint32_t micros);
/* A checkpoint in the test's folder under `run`, keeping 2; returns the run's path, good until the fourth next call. */
const char *resume_save(tern_text_trainer *trainer, const char *run);
const char *resume_path(const char *run);

/* Fails the test unless the newest checkpoints of two runs hold the same tensors, bit for bit. */
void resume_expect_equal(const char *run_a, const char *run_b);
/* ||a - b|| / ||b|| over all weights of two runs' model.safetensors. */
double resume_distance(const char *run_a, const char *run_b);

/* The warnings logged since the last call, one a line. */
const char *resume_warnings(void);

#endif
