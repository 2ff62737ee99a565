/* SPDX-License-Identifier: Apache-2.0 */
/* check.h - the cases of `tern check`, and the comparison of one of them on a device with the reference.
 *
 *     case ── graph: outputs y0 y1 ..., seeds, gradients of every f32 parameter
 *               ├── reference (double, op by op)
 *               └── save rule ── session on the device, run twice
 *
 * What a case is: one graph that puts an op through its odd shapes; one that has gradients counts twice, as value and
 * as gradient. What it is not: a speed test. */
#ifndef TERN_CLI_CHECK_H
#define TERN_CLI_CHECK_H

#include "core/graph/graph.h"
#include "core/plan/session.h"
#include "core/reference/reference.h"

/* Allowed error, relative to the norm of the whole tensor: about 80 units in the last place of f32, what sums of a few
 * thousand terms in any order and the backends' own erf and tanh need. */
#define TERN_CHECK_TOLERANCE 1e-5
/* A result below this share of what was summed to get it has lost its digits to cancellation, in any order of summing:
 * its error is measured against the sum of |terms| instead, TOLERANCE * SHARE being 1e-7, the unit of f32. */
#define TERN_CHECK_SHARE 1e-2

typedef struct tern_check_case tern_check_case;
struct tern_check_case {
    const char *op, *name;
    int32_t dtype; /* of what is computed, for --dtype; an f32 case is run once more in f16 and in bf16 */
    bool f32_only; /* except this one, whose point is f32 itself */
    void (*build)(tern_graph *graph, const tern_check_case *c, uint64_t seed);
    tern_tensor *(*unary)(tern_tensor *x); /* what build applies, of those that have it */
    tern_tensor *(*binary)(tern_tensor *a, tern_tensor *b);
    int32_t argument; /* what build makes of it */
    bool gradient;
    double low, high;                                      /* f32 leaves are uniform in [low, high) */
    uint32_t below;                                        /* integer leaves are in [0, below); 0: any bits */
    double tolerance;                                      /* 0: TERN_CHECK_TOLERANCE */
    double least;                                          /* norms are taken as at least this, where 0 is expected */
    void (*fill)(const tern_tensor *leaf, double *values); /* changes what the leaf was filled with, or NULL */
};

/* A parameter, cast to the case's dtype when that is f16 or bf16. */
tern_tensor *tern_check_parameter(tern_graph *graph, const tern_check_case *c, const char *name, int32_t rank,
                                  const int64_t *shape);
/* Keeps y as the graph's next output, "y<number>". */
void tern_check_output(tern_graph *graph, tern_tensor *y);
/* The next case, in one of its dtypes; *position is 0 at the start. False behind the last. */
bool tern_check_next(size_t *position, tern_check_case *out_case);

/* The tables that it walks, each ended by an op of NULL. */
extern const tern_check_case tern_check_map_cases[];         /* check_cases.c */
extern const tern_check_case tern_check_row_cases[];         /* check_rows.c */
extern const tern_check_case tern_check_contraction_cases[]; /* check_contractions.c */

typedef struct tern_check_result {
    uint32_t tensors; /* compared */
    bool value_failed, gradient_failed;
    bool skipped;     /* the device cannot do this: reason says why */
    char reason[512]; /* of the first failure or of the skip */
} tern_check_result;

/* One output of a case with what it must be. */
typedef struct tern_check_pair {
    const tern_check_case *c;
    const tern_graph *graph;
    uint32_t output;
    tern_reference *reference;
    tern_reference *exact; /* without rounding to 16 bit; NULL where there is none */
} tern_check_pair;
/* first, second: the output's bytes from the device's two runs. */
TERN_MUST_USE tern_status tern_check_compare(const tern_check_pair *pair, const unsigned char *first,
                                             const unsigned char *second, tern_check_result *result);

/* Runs a case. A status below 0 is a failure of the machinery, not of the case; its sentence says which call. */
TERN_MUST_USE tern_status tern_check_run(tern_device *device, const tern_check_case *c, uint64_t seed,
                                         tern_check_result *out_result);

#endif
