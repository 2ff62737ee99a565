/* SPDX-License-Identifier: Apache-2.0 */
/* hooks.h - what the tests may look at inside the OpenCL plug-in; the only symbols besides the table that it exports.
 *
 * TERN_OPENCL_FAIL_CALL=n in the environment makes the n-th driver call after load or open fail with
 * CL_OUT_OF_RESOURCES (releases are not counted, they cannot fail usefully). */
#ifndef TERN_OPENCL_HOOKS_H
#define TERN_OPENCL_HOOKS_H

#include "core/tern.h"

typedef struct tern_opencl_counts {
    int64_t objects;         /* OpenCL objects and references alive */
    uint64_t calls;          /* driver calls counted since the last load or open */
    uint64_t builds;         /* kernels compiled from source */
    uint64_t cache_hits;     /* kernels taken from the disk cache */
    const char *failed_call; /* the one that was made to fail, NULL: none yet */
} tern_opencl_counts;

TERN_API void tern_opencl_count(tern_opencl_counts *out_counts);

#endif
