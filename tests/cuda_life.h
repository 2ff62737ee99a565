/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_life.h - the CUDA plug-in on the stand-in driver (tests/stand_ins/cuda), from load to unload: one device, two
 * buffers, one kernel, a program of two submissions, so that tests may break, watch or crowd any part of it. */
#ifndef TERN_TESTS_CUDA_LIFE_H
#define TERN_TESTS_CUDA_LIFE_H

#include "core/backend.h"
#include "tests/cuda_stand_in.h"

#define CUDA_LIFE_COUNT   256u
#define CUDA_LIFE_GROUP   64u
#define CUDA_LIFE_WAIT_NS 60000000000ull

/* The plug-in's table; NULL before cuda_life_find. */
extern const tern_backend *cuda_life_backend;

/* How far a life got, for its end. */
typedef struct cuda_life {
    tern_backend_device *device;
    tern_backend_buffer *x, *y; /* on the device; for reading back */
    tern_backend_kernel *kernel;
    tern_backend_program *program; /* twice 3 x + 1 in place, then a copy for the host, in two submissions */
    tern_device_info info;
} cuda_life;

/* Finds stand-in (cu) and plug-in. False: the reason is printed. */
bool cuda_life_find(void);
/* y[i] = a x[i] + b for i < n; words n, a, b. */
tern_kernel_desc cuda_life_kernel(void);
/* The index-th device; x is 0, 1, 2, ... */
tern_status cuda_life_set_up(cuda_life *life, uint32_t index);
/* Set up, run twice, results checked. */
tern_status cuda_life_run(cuda_life *life);
void cuda_life_end(cuda_life *life);
/* This program again, `mode` its argument, with these variables ("NAME=value", NULL-terminated) in its environment; its
 * exit status. */
int cuda_life_child(const char *mode, const char *const *more);
/* The stand-in has seen no misuse. */
void cuda_life_expect_no_report(void);
/* For tern_log_set, where failures to undo are wanted. */
void cuda_life_no_log(void *context, int32_t level, const char *message);

#define NEED_CUDA_LIFE()                                                                                               \
    if (!cuda_life_find()) TEST_SKIP("the CUDA plug-in or its stand-ins were not built")

#endif
