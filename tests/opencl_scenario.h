/* SPDX-License-Identifier: Apache-2.0 */
/* opencl_scenario.h - the whole life of the OpenCL plug-in in one function: open, buffers, kernel, program, run, check.
 *
 * For tests that run it under changed environments and with failing driver calls. */
#ifndef TERN_TESTS_OPENCL_SCENARIO_H
#define TERN_TESTS_OPENCL_SCENARIO_H

#include "backends/opencl/hooks.h"
#include "core/backend.h"

enum { OPENCL_SCENARIO_COUNT = 1000, OPENCL_SCENARIO_BYTES = 4 * OPENCL_SCENARIO_COUNT };

/* Everything that a run uses, so that one place cleans up however far it came. */
typedef struct opencl_scenario {
    const tern_backend *backend;
    tern_backend_device *device;
    tern_backend_buffer *up, *x, *down;
    tern_backend_kernel *kernel; /* x = 3 x + 1 */
    tern_backend_program *program;
} opencl_scenario;

/* Opens device `index`, runs the kernel on data that goes up and comes down, checks it. TERN_ERROR_INTERNAL: wrong
 * result. */
tern_status opencl_scenario_run(opencl_scenario *s, uint32_t index, bool timestamps);
void opencl_scenario_end(opencl_scenario *s);
tern_kernel_desc opencl_triple_desc(void);
tern_step opencl_triple_step(tern_backend_kernel *kernel, tern_backend_buffer *x);
/* The plug-in's hooks, through the module that its table lies in. False where it has none. */
bool opencl_counts(const tern_backend *backend, tern_opencl_counts *out_counts);

#endif
