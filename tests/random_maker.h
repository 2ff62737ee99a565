/* SPDX-License-Identifier: Apache-2.0 */
/* random_maker.h - what the steps of a random graph build with: numbers, and the pool of tensors made so far.
 *
 * For random_*.c only. Every pick may make a fresh leaf when nothing in the pool suits. */
#ifndef TERN_TESTS_RANDOM_MAKER_H
#define TERN_TESTS_RANDOM_MAKER_H

#include "core/graph/graph.h"

#define POOL          256u
#define STATES        3u
#define LARGEST_VALUE 4.0

/* A tensor to build on. */
typedef struct entry {
    tern_tensor *x;
    double bound;      /* |f32 value| stays below; integers: values stay below, 0: all bits */
    bool exact;        /* no rounding so far: may be compared, floored, cast */
    bool distinct;     /* no two elements tie, none is 0: kinks are safe to differentiate */
    uint32_t versions; /* per state three bits: reads its old, first new, second new version */
} entry;

typedef struct maker {
    tern_graph *graph;
    entry pool[POOL];
    uint32_t count;
    uint32_t step; /* names what this step makes */
    uint64_t noise;
    uint32_t states, assigned[STATES];
    int64_t most; /* elements of a tensor */
    bool train;
} maker;

uint32_t maker_draw(maker *m, uint32_t below);
bool maker_chance(maker *m, uint32_t percent);
int64_t maker_draw_size(maker *m);
/* Returns the rank, at most `most`. */
int32_t maker_draw_shape(maker *m, int32_t most, int64_t *shape);
/* Whether two versions of one state are among these. */
bool maker_mixes_versions(uint32_t versions);
/* To the pool. */
void maker_add(maker *m, tern_tensor *x, double bound, bool exact, bool distinct, uint32_t versions);
/* A name of this step's own; valid until the next call. */
const char *maker_name_of(maker *m, const char *prefix);
entry maker_new_leaf(maker *m, int32_t rank, const int64_t *shape);
/* An f32 tensor that may be read together with `versions`; mostly recent ones. */
entry maker_pick(maker *m, uint32_t versions);
/* A u32 one; false if there is none. */
bool maker_pick_integers(maker *m, uint32_t versions, entry *out);
/* Values within LARGEST_VALUE, so that no op leaves its safe range. */
entry maker_tame(maker *m, entry e);
entry maker_pick_tame(maker *m, uint32_t versions);
/* A tensor that broadcasts with x: x's trailing axes, some of them 1. */
entry maker_partner(maker *m, const entry *x);

/* random_steps.c: elementwise ops and views. Each adds what it made, or nothing when its operands do not suit. */
void step_unary(maker *m);
void step_binary(maker *m);
void step_choose(maker *m);
void step_integers(maker *m);
void step_activation(maker *m);
void step_view(maker *m);
void step_halves(maker *m);
void step_half_precision(maker *m);

#endif
