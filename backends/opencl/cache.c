/* SPDX-License-Identifier: Apache-2.0 */
/* cache.c - compiled kernels on disk (core/base/cache.h), the driver's binary of each.
 *
 * The key covers the text, the build options, the device, the driver and the platform's version. A binary that the
 * driver refuses is as good as absent and is written again. Measured with PoCL 3.1: 1 ms from here instead of 30 ms
 * from its own cache and up to 1.5 s from nothing. */
#include "backends/opencl/opencl.h"

#include <stdlib.h>

#include "core/base/cache.h"
#include "core/base/hash.h"
#include "core/base/log.h"

#define TERN_OPENCL_BINARY_LIMIT ((size_t)256 << 20)

uint64_t tern_opencl_cache_key(const tern_backend_device *device, const tern_source *source)
{
    return tern_hash(device->driver_hash, source->text, source->bytes);
}

static tern_status binary_build(tern_backend_device *device, const char *binary, size_t bytes, cl_program *out_program)
{
    const unsigned char *binaries[] = {(const unsigned char *)binary};
    cl_int code = CL_SUCCESS, taken = CL_SUCCESS;
    tern_status status;
    TERN_TRY(CL_MAKE(device, out_program, clCreateProgramWithBinary, device->context, 1, &device->id, &bytes, binaries,
                     &taken));
    TERN_TRY(tern_opencl_result(device, TERN_CALL_clCreateProgramWithBinary, taken));
    TERN_TRY(CL_CALL(device, clBuildProgram, *out_program, 1, &device->id, device->build_options, NULL, NULL));
    return TERN_OK;
fail:
    CL_RELEASE(clReleaseProgram, *out_program);
    return status;
}

cl_program tern_opencl_cache_load(tern_backend_device *device, uint64_t key)
{
    char *data = NULL;
    size_t bytes = 0;
    cl_program program = NULL;
    if (tern_cache_read("opencl", "binary", key, &data, &bytes) < 0) return NULL;
    if (binary_build(device, data, bytes, &program) < 0)
        tern_log_write(TERN_LOG_WARNING, "opencl: the driver refused a cached binary: %s", tern_error_message());
    free(data);
    return program;
}

void tern_opencl_cache_store(tern_backend_device *device, uint64_t key, cl_program program)
{
    size_t bytes = 0;
    unsigned char *data = NULL;
    tern_status status;
    TERN_TRY(CL_CALL(device, clGetProgramInfo, program, CL_PROGRAM_BINARY_SIZES, sizeof bytes, &bytes, NULL));
    if (bytes == 0 || bytes > TERN_OPENCL_BINARY_LIMIT) return;
    data = malloc(bytes);
    if (!data) TERN_TRY(tern_error_memory("a kernel binary", bytes));
    TERN_TRY(CL_CALL(device, clGetProgramInfo, program, CL_PROGRAM_BINARIES, sizeof data, &data, NULL));
    tern_cache_write("opencl", "binary", key, data, bytes);
fail:
    if (status < 0) tern_log_write(TERN_LOG_INFO, "opencl: not cached: %s", tern_error_message());
    free(data);
}
