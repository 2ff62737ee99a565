/* SPDX-License-Identifier: Apache-2.0 */
/* plan_fixture.h - random lowered programs, and a device that runs them for real.
 *
 * A kernel of the fixture reads every byte that its launch may read, hashes them together with the kernel's key and the
 * words, and fills every byte that it may write from that hash. So one wrong byte, one wrong order or one shared byte
 * anywhere changes all that follows, and running the same program on private memory in launch order tells what is
 * right. */
#ifndef TERN_TESTS_PLAN_FIXTURE_H
#define TERN_TESTS_PLAN_FIXTURE_H

#include "core/plan/plan.h"

/* ----------------------------------------------------------------- programs */

typedef struct fixture_shape {
    uint32_t launches, bound, inputs;
    uint64_t largest_bytes; /* of a value */
} fixture_shape;

/* A valid program drawn from the seed. Sizes are any number of bytes from 1 on for inputs, multiples of 4 else. */
tern_lowered *fixture_random(uint32_t seed, const fixture_shape *shape);
/* The lifetimes of a GPT-2 training step in f32: layers blocks forward, saved activations, backward in reverse order.
 */
tern_lowered *fixture_transformer(uint32_t layers, uint64_t batch, uint64_t context, uint64_t width, uint64_t heads,
                                  uint64_t vocabulary);
/* An empty program with room for this many values and launches, to be filled by fixture_value and fixture_launch. */
tern_lowered *fixture_empty(uint32_t values, uint32_t launches);
uint32_t fixture_value(tern_lowered *lowered, tern_storage storage, tern_value_kind kind, const char *name,
                       uint64_t bytes);
tern_launch *fixture_launch(tern_lowered *lowered, const char *label);
/* The whole value. */
void fixture_use(tern_lowered *lowered, tern_launch *launch, uint32_t value, uint32_t mode);
void fixture_output(tern_lowered *lowered, uint32_t value);
void fixture_free(tern_lowered *lowered);

/* ---------------------------------------------------------------- reference */

/* Values of the program, each in memory of its own; runs the launches in order. */
typedef struct fixture_memory {
    const tern_lowered *lowered;
    unsigned char **data;
} fixture_memory;
fixture_memory fixture_memory_create(const tern_lowered *lowered);
void fixture_memory_run(fixture_memory *memory);
void fixture_memory_free(fixture_memory *memory);
/* Bytes that an input or parameter starts with, from the seed and its name. */
void fixture_fill(void *data, uint64_t bytes, uint32_t seed, const char *name);

/* ------------------------------------------------------------------- device */

typedef struct fixture_control {
    uint64_t calls;        /* that can fail, so far */
    uint64_t fail_call;    /* the call of this number (from 1) fails with DRIVER; 0: none */
    uint64_t objects;      /* alive */
    uint64_t device_bytes; /* in DEVICE buffers now */
    bool hang;             /* wait never succeeds */
    int64_t overrun; /* every dispatch also writes a byte so far behind (>= 0) or before (< 0) its last written range */
    uint32_t submissions;
} fixture_control;
extern fixture_control fixture;

/* A device of the fixture, limits as a discrete card with 8 GiB; resets `fixture`. Close with free(). */
tern_device *fixture_device(void);

#endif
