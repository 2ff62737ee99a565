/* SPDX-License-Identifier: Apache-2.0 */
/* lowered_runner.h - runs a lowered graph on the host, plain loops, no backend: judges the fuser alone.
 *
 * Registers and sums hold f32 values or u32, so that what f32 costs shows here; buffers hold what a device's would. A
 * column partial and a fresh value start as NaN, so that what no launch wrote is seen. */
#ifndef TERN_TESTS_LOWERED_RUNNER_H
#define TERN_TESTS_LOWERED_RUNNER_H

#include "core/kernel/lowered.h"

typedef struct lowered_runner {
    const tern_lowered *lowered;
    void **data; /* per value */
} lowered_runner;

void lowered_runner_create(const tern_lowered *lowered, lowered_runner *out_runner);
void lowered_runner_destroy(lowered_runner *runner);
/* The buffer of the leaf with this name; NULL if no launch uses it. */
void *lowered_runner_leaf(lowered_runner *runner, const char *name);
void lowered_runner_run(lowered_runner *runner);
const void *lowered_runner_output(const lowered_runner *runner, const char *name);

#endif
