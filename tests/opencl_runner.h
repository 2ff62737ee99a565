/* SPDX-License-Identifier: Apache-2.0 */
/* opencl_runner.h - compiles rendered kernels on the first OpenCL device and runs them on host arrays.
 *
 * For tests of the renderer alone: it shares no code with backends/opencl. One device per process. */
#ifndef TERN_TESTS_OPENCL_RUNNER_H
#define TERN_TESTS_OPENCL_RUNNER_H

#include "core/backend.h"

typedef struct runner_argument {
    void *data; /* uploaded before, downloaded after */
    size_t bytes;
    uint32_t offset; /* elements */
} runner_argument;

/* False without a device; *out_why then says why. */
bool opencl_runner_open(const char **out_why);
void opencl_runner_close(void);
/* Renders desc and runs it once. False with a message on stderr. */
bool opencl_runner_run(const tern_kernel_desc *desc, const uint32_t *words, const uint32_t groups[3],
                       const runner_argument *arguments);

#endif
