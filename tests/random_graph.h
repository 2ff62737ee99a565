/* SPDX-License-Identifier: Apache-2.0 */
/* random_graph.h - seeded random graphs over the public builder, for tests that compare two ways to run them.
 *
 * A graph is made by steps; each draws from its own numbers, (seed, step), and picks its operands from what the steps
 * before it made. So leaving a step out gives another valid graph, which is how a failing one is made smaller.
 * Invariant: values stay in ranges where every op is well conditioned; kinks and comparisons only see values that do
 * not tie; nothing reads two versions of one state, which is an error (random_graph's users test that by hand). */
#ifndef TERN_TESTS_RANDOM_GRAPH_H
#define TERN_TESTS_RANDOM_GRAPH_H

#include "core/graph/graph.h"
#include "core/reference/reference.h"

#define RANDOM_GRAPH_STEPS 48u /* at most */

typedef struct random_graph_options {
    uint32_t seed;
    uint64_t skip; /* bit i: step i is left out */
    bool train;    /* ends in a loss over at least one parameter, when the steps made one */
} random_graph_options;

/* How many steps this seed has. */
uint32_t random_graph_steps(uint32_t seed);
/* A healthy graph with outputs, unless a builder failed: see tern_graph_status. */
tern_graph *random_graph_create(const random_graph_options *options);
/* Gives every leaf its values, those of f32 leaves exact in f32, and sorts what is to be sorted. */
void random_graph_fill(const tern_graph *graph, tern_reference *reference);
/* The graph as text, one node a line. */
void random_graph_print(const tern_graph *graph);

#endif
