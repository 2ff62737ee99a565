/* SPDX-License-Identifier: Apache-2.0 */
/* evaluate.h - graphs on the reference, for tests: repeatable leaf values, one call to run, derivatives by differences.
 */
#ifndef TERN_TESTS_EVALUATE_H
#define TERN_TESTS_EVALUATE_H

#include "core/graph/graph.h"
#include "core/reference/reference.h"
#include "tests/test.h"

/* Distinct values in [low, high], in an order shuffled by the name: no two leaves of a graph tie, none is 0 when low =
 * -high. */
void evaluate_fill(const tern_tensor *leaf, double low, double high, double *out_values);

/* A reference of `graph` with every float parameter and input filled by evaluate_fill, the control block set, integers
 * left at 0. */
tern_reference *evaluate_create(const tern_graph *graph, double low, double high);

/* d (sum of seed * y) / d leaf[index] by the five-point rule, h = 1e-3: error about h^4, 1e-12 of the fifth derivative.
 */
double evaluate_difference(tern_reference *reference, const tern_tensor *y, const tern_tensor *seed,
                           const tern_tensor *leaf, int64_t index);

/* One graph at a time: open, build, prepare (leaves filled over [-1, 1]), put, compute, look, close. */
void evaluate_open(tern_graph **out_graph);
void evaluate_prepare(const tern_graph *graph);
void evaluate_put(const tern_tensor *leaf, const double *values);
void evaluate_compute(void);
double *evaluate_data(const tern_tensor *x);
tern_reference *evaluate_current(void);
void evaluate_close(tern_graph *graph);
/* x's values equal `expected`, NaN where it is NaN. */
void evaluate_assert(const char *what, const tern_tensor *x, const double *expected);

/* Rank and sizes, two arguments. */
#define SHAPE(...)                                                                                                     \
    (int32_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) { __VA_ARGS__ }

#endif
