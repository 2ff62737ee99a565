/* SPDX-License-Identifier: Apache-2.0 */
/* parity.h - one training graph whose every value can be read, on two devices, and how far they are apart.
 *
 *     GPT loss ── gradients ── every float node a named output ──┬── session on A ── values ──┐
 *                                                                └── session on B ── values ──┴── difference per node
 *
 * Both get the same weights, ids and labels before each step, A's gradient moves the weights of both, so a step starts
 * equal however the last one ended. What it is not: the trainer's own program; nothing is fused here. */
#ifndef TERN_CLI_PARITY_H
#define TERN_CLI_PARITY_H

#include "core/device/device.h"
#include "core/graph/graph.h"
#include "core/models/gpt2.h"
#include "core/plan/session.h"

typedef struct tern_parity_options {
    tern_gpt2_options model;
    int32_t precision; /* TERN_F32, TERN_BF16 or TERN_F16 */
    uint64_t seed;
    double rate; /* of the weights' steps */
} tern_parity_options;

/* Of one node, over all steps so far. */
typedef struct tern_parity_node {
    bool looked; /* a float value that is computed; views and leaves are not */
    double
        difference; /* largest ||a - b|| / max(||a||, share of ||inputs|| for sums); infinity for a NaN on one side */
    uint32_t step;  /* where, from 1 */
    const char *variants[2]; /* of the kernels that compute it on A and B; "" where none does */
} tern_parity_node;

typedef struct tern_parity_step {
    double loss[2], gradient_norm[2]; /* of A and B */
} tern_parity_step;

typedef struct tern_parity tern_parity;
TERN_MUST_USE tern_status tern_parity_create(tern_device *const devices[2], const tern_parity_options *options,
                                             tern_parity **out_parity);
void tern_parity_destroy(tern_parity *parity);
/* One step on both, compared. */
TERN_MUST_USE tern_status tern_parity_run(tern_parity *parity, tern_parity_step *out_step);
/* The graph, and what was found for each of its nodes. */
const tern_graph *tern_parity_graph(const tern_parity *parity);
const tern_parity_node *tern_parity_nodes(const tern_parity *parity);
/* What the graph became on device 0 (A) or 1 (B). */
const tern_lowered *tern_parity_lowered(const tern_parity *parity, int side);
/* The kernel's variant; "own" on a device that runs code of its own instead of the text that core renders (cpu). */
const char *tern_parity_variant(const tern_device *device, const tern_kernel_desc *kernel);
/* The first node that differs by more than the tolerance while nothing that it is made of does; NULL: none. */
const tern_tensor *tern_parity_first(const tern_parity *parity, double tolerance);

#endif
