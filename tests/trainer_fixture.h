/* SPDX-License-Identifier: Apache-2.0 */
/* trainer_fixture.h - a small classifier behind the public trainer, and examples that it can learn. */
#ifndef TERN_TESTS_TRAINER_FIXTURE_H
#define TERN_TESTS_TRAINER_FIXTURE_H

#include "tests/train_fixture.h"

#define BATCH   8
#define WIDTH   12
#define CLASSES 5
#define FC1     (16 * WIDTH) /* elements of fc1.weight */

typedef struct classifier {
    tern_device *device;
    tern_trainer *trainer;
    float x[BATCH * WIDTH];
    int32_t y[BATCH];
} classifier;

/* Inputs "x" (batch, WIDTH) and "y" (batch) i32, layers fc1 (16) and fc2 (CLASSES), output "logits"; dropout when p >
 * 0. */
tern_graph *classifier_graph(int64_t batch, double p);
/* `count` examples whose label is the largest of the first CLASSES numbers. */
void classifier_fill(uint32_t seed, float *x, int32_t *y, int64_t count);
/* On cpu with two threads; the examples are those of seed 1. */
void classifier_start(classifier *f, int64_t batch, double dropout, const tern_train_options *options);
void classifier_stop(classifier *f);
/* With the fixture's first `examples` examples. */
tern_status classifier_step(classifier *f, int64_t examples, tern_report *report);
tern_status classifier_evaluate(classifier *f, int64_t examples, double *loss, double *weight);
void classifier_fc1(classifier *f, float out[FC1]);
/* The trainer is not made, with this status and a sentence that has `part`. */
void classifier_refused(tern_device *device, tern_graph *graph, const tern_train_options *options, tern_status status,
                        const char *part);

#endif
