/* SPDX-License-Identifier: Apache-2.0 */
/* reference.h - the specification: runs a graph op by op in double, plain loops, no fusion, no view tricks.
 *
 * Every float tensor is held in double; f32 nodes are not rounded between ops, f16 and bf16 nodes hold what their dtype
 * does, since every consumer sees the rounded value. u32 and i32 tensors hold exact integers.
 * What every backend must agree with. Slow on purpose. */
#ifndef TERN_REFERENCE_REFERENCE_H
#define TERN_REFERENCE_REFERENCE_H

#include "core/graph/graph.h"

typedef struct tern_reference tern_reference;

/* The graph must outlive it. Leaves start at zero (PARAMETERs too). */
TERN_MUST_USE tern_status tern_reference_create(const tern_graph *graph, tern_reference **out_reference);
/* The same, in which f16 and bf16 nodes hold unrounded numbers: what those dtypes cost is the difference of the two. */
TERN_MUST_USE tern_status tern_reference_create_exact(const tern_graph *graph, tern_reference **out_reference);
void tern_reference_destroy(tern_reference *reference);
/* Values of any tensor, tern_count(x) doubles, integers as their value. Valid for leaves before a run, for all after.
 * The second output of a contraction is its SECOND node's. */
double *tern_reference_data(tern_reference *reference, const tern_tensor *x);
/* sum over the contraction of |terms| (matmul, sum, attention), for error bounds; else |value|. */
TERN_MUST_USE tern_status tern_reference_magnitude(tern_reference *reference, const tern_tensor *x,
                                                   double *out_magnitude);
/* Runs all nodes. ASSIGN writes its target's data after every reader of the old version has run. */
TERN_MUST_USE tern_status tern_reference_run(tern_reference *reference);

#endif
