/* SPDX-License-Identifier: Apache-2.0 */
/* graph_trial.h - one graph in every way there is to run it, against the reference: lowered op by op and fused, run on
 * the host, and on a device, plain and with guarded memory in reverse order.
 *
 * Tolerance: the unfused form rounds every op's result to f32, which is what computing in f32 costs; it must stay close
 * to the reference. Everything else may be off by 1e-5 of the norm or by a few times that cost, so that a graph which
 * happens to cancel does not fail, and nothing has to be loosened for the others. Integers must be equal; NaN and
 * infinities are only good where the reference has the same. */
#ifndef TERN_TESTS_GRAPH_TRIAL_H
#define TERN_TESTS_GRAPH_TRIAL_H

#include "core/device/device.h"
#include "core/graph/graph.h"
#include "core/reference/reference.h"

typedef enum trial_outcome {
    TRIAL_PASSED,
    TRIAL_FAILED,
    TRIAL_CYCLE /* refused: something needs two versions of one state */
} trial_outcome;

typedef struct graph_trial {
    tern_device *device; /* NULL: the host's ways only */
    void (*fill)(const tern_graph *graph, tern_reference *reference);
    char text[600]; /* out: what went wrong */
    /* during a run */
    tern_graph *graph;
    tern_reference *reference;
    bool rounds;  /* something is in 16 bit */
    double *cost; /* ||unfused - reference||: outputs first, then nodes */
} graph_trial;

/* A graph with a loss is made a training program first (backward, accumulators, save rule). The caller keeps the graph.
 */
trial_outcome graph_trial_run(graph_trial *trial, tern_graph *graph);

#endif
