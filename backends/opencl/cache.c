/* SPDX-License-Identifier: Apache-2.0 */
/* cache.c - compiled kernels on disk: <cache>/opencl/<key>.bin, one binary each.
 *
 *     magic "ternocl1" | key | bytes | checksum of the bytes | the driver's binary
 *
 * The key covers the text, the build options, the device, the driver and the platform's version. A file that is short,
 * foreign, damaged or refused by the driver is as good as absent and is written again; a cache that cannot be written
 * costs time only. Measured with PoCL 3.1: 1 ms from here instead of 30 ms from its own cache and up to 1.5 s from
 * nothing. */
#include "backends/opencl/opencl.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/hash.h"
#include "core/base/log.h"

#define TERN_OPENCL_BINARY_LIMIT ((size_t)256 << 20)

typedef struct tern_opencl_cache_head {
    char magic[8];
    uint64_t key, bytes, checksum;
} tern_opencl_cache_head;
static const char magic[8] = {'t', 'e', 'r', 'n', 'o', 'c', 'l', '1'};

uint64_t tern_opencl_cache_key(const tern_backend_device *device, const tern_source *source)
{
    return tern_hash(device->driver_hash, source->text, source->bytes);
}

static bool cache_path(uint64_t key, char *path, size_t bytes)
{
    char folder[900];
    if (tern_cache_directory("opencl", folder, sizeof folder) < 0) return false;
    return snprintf(path, bytes, "%s/%016" PRIx64 ".bin", folder, key) < (int)bytes;
}

static bool head_valid(const char *data, size_t bytes, uint64_t key, tern_opencl_cache_head *head)
{
    if (bytes < sizeof *head) return false;
    memcpy(head, data, sizeof *head);
    return memcmp(head->magic, magic, sizeof magic) == 0 && head->key == key && head->bytes == bytes - sizeof *head &&
           head->checksum == tern_hash(TERN_HASH_START, data + sizeof *head, head->bytes);
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
    tern_opencl_cache_head head;
    char path[1024], *data = NULL;
    size_t bytes = 0;
    cl_program program = NULL;
    if (!cache_path(key, path, sizeof path) || tern_file_read(path, TERN_OPENCL_BINARY_LIMIT, &data, &bytes) < 0)
        return NULL;
    if (!head_valid(data, bytes, key, &head))
        tern_log_write(TERN_LOG_WARNING, "opencl: %s is damaged (%zu bytes); compiling again", path, bytes);
    else if (binary_build(device, data + sizeof head, head.bytes, &program) < 0)
        tern_log_write(TERN_LOG_WARNING, "opencl: the driver refused %s: %s", path, tern_error_message());
    free(data);
    return program;
}

static tern_status binary_get(tern_backend_device *device, cl_program program, uint64_t key, char **out_data,
                              size_t *out_bytes)
{
    size_t bytes = 0;
    char *data = NULL;
    tern_status status;
    TERN_TRY(CL_CALL(device, clGetProgramInfo, program, CL_PROGRAM_BINARY_SIZES, sizeof bytes, &bytes, NULL));
    if (bytes == 0 || bytes > TERN_OPENCL_BINARY_LIMIT)
        TERN_TRY(
            tern_error(TERN_ERROR_UNSUPPORTED, "the driver's binary has %zu bytes, which is not worth keeping", bytes));
    tern_opencl_cache_head head = {.key = key, .bytes = bytes};
    data = malloc(sizeof head + bytes);
    if (!data) TERN_TRY(tern_error_memory("a kernel binary", bytes));
    unsigned char *binaries[] = {(unsigned char *)data + sizeof head};
    TERN_TRY(CL_CALL(device, clGetProgramInfo, program, CL_PROGRAM_BINARIES, sizeof binaries, binaries, NULL));
    memcpy(head.magic, magic, sizeof magic);
    head.checksum = tern_hash(TERN_HASH_START, data + sizeof head, bytes);
    memcpy(data, &head, sizeof head);
    *out_data = data;
    *out_bytes = sizeof head + bytes;
    return TERN_OK;
fail:
    free(data);
    return status;
}

void tern_opencl_cache_store(tern_backend_device *device, uint64_t key, cl_program program)
{
    char path[1024], *data = NULL;
    size_t bytes = 0;
    tern_status status = TERN_OK;
    if (!cache_path(key, path, sizeof path)) return;
    TERN_TRY(binary_get(device, program, key, &data, &bytes));
    TERN_TRY(tern_file_write(path, data, bytes));
fail:
    if (status < 0) tern_log_write(TERN_LOG_INFO, "opencl: not cached: %s", tern_error_message());
    free(data);
}
