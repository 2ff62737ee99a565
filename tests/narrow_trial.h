/* SPDX-License-Identifier: Apache-2.0 */
/* narrow_trial.h - a graph with 16-bit tensors lowered and run on the host (lowered_runner.h), against the reference
 * and bit for bit against itself in another form. */
#ifndef TERN_TESTS_NARROW_TRIAL_H
#define TERN_TESTS_NARROW_TRIAL_H

#include "core/graph/graph.h"
#include "core/reference/reference.h"
#include "tests/test.h"

/* Runs `graph` from the reference's leaves, and the reference. Outputs must agree within `tolerance` of their norm,
 * which is the unit of the 16-bit dtype where f32 sums in another order may move a rounding. Returns the bytes of all
 * outputs and then of all states, in the graph's order; free() it. */
void *narrow_trial_run(const tern_graph *graph, tern_reference *reference, bool fuse, double tolerance,
                       uint64_t *out_bytes);

#endif
