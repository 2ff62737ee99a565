/* SPDX-License-Identifier: Apache-2.0 */
/* conformance.h - one suite for every backend: what core/backend.h promises, asked of each plug-in in the same words.
 *
 *     test_conformance_buffer   memory            test_conformance_alu          every tape op against libm in double
 *     test_conformance_tape     fused kernels     test_conformance_contraction  matmul, attention, scatter
 *     test_conformance_program  order, copies, fills, cuts, tickets, errors
 *
 * Each executable runs its cases on cpu, opencl and vulkan in turn (TERN_TEST_BACKENDS="opencl cpu" narrows that); a
 * backend that does not open here is skipped with its own sentence as the reason. A case that a backend cannot pass
 * stands in its list of exceptions with a reason, which is printed. Every dispatch made through conformance_dispatch
 * has sentinels around each tensor, starts at an offset that is aligned to one element only, and runs twice: the bits
 * must be the same. */
#ifndef TERN_TESTS_CONFORMANCE_H
#define TERN_TESTS_CONFORMANCE_H

#include "core/device/device.h"
#include "core/kernel/lowered.h"
#include "tests/tape_maker.h"
#include "tests/test.h"

typedef struct conformance {
    const char *name; /* "opencl" */
    tern_device *device;
    const tern_backend *backend;
    tern_backend_device *handle;
} conformance;

typedef struct conformance_case {
    const char *name;
    void (*run)(const conformance *c);
} conformance_case;

/* A case that a backend may not be asked, and why. */
typedef struct conformance_exception {
    const char *backend, *name, *reason;
    const char *device; /* only where the device's name contains it; NULL: on any */
} conformance_exception;

/* Runs the cases on every backend; the number of failures. */
int conformance_main(const char *topic, const conformance_case *cases, size_t case_count,
                     const conformance_exception *exceptions, size_t exception_count);

/* ------------------------------------------------------------------- tapes */

#define NO TERN_TAPE_NONE

/* One instruction with typed operands, where tape_maker's shorter forms do not do. */
uint16_t conformance_op(tape_maker *maker, tern_tape_op op, int32_t type, int32_t from, uint16_t a, uint16_t b,
                        uint16_t c);
/* A store through an access that is more than row-major. */
void conformance_store(tape_maker *maker, uint16_t access, uint16_t value);

/* -------------------------------------------------------------- dispatches */

typedef struct conformance_array {
    void *data; /* in: the tensor's first content; out: its last, where the kernel writes it */
    size_t bytes;
} conformance_array;

/* A desc of the finished tape, checked, with the variant core chooses for this device and these extents. */
void conformance_tape_desc(const conformance *c, const tape_maker *maker, const uint32_t *words,
                           tern_kernel_desc *out_desc);
/* Fills variant, render and key of a desc whose other members stand. */
void conformance_choose(const conformance *c, const uint32_t *words, tern_kernel_desc *desc);
/* Builds the kernel, runs it twice on fresh buffers between sentinels, compares the bits, copies results to `arrays`.
 */
void conformance_dispatch(const conformance *c, const tern_kernel_desc *desc, const uint32_t *words,
                          conformance_array *arrays);
/* Both of the above for a tape. */
void conformance_tape(const conformance *c, const tape_maker *maker, const uint32_t *words, conformance_array *arrays);

/* Waits at most 60 s. */
void conformance_wait(const conformance *c, uint64_t ticket);

/* [-1, 1), from a seeded generator of its own, the same on every machine. */
float conformance_random(uint64_t *seed);
void conformance_fill(float *data, size_t count, uint64_t seed);

#endif
