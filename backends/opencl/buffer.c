/* SPDX-License-Identifier: Apache-2.0 */
/* buffer.c - device memory, and host memory that the device reaches quickly.
 *
 *     DEVICE              a cl_mem
 *     UPLOAD, READBACK    a cl_mem in host memory (CL_MEM_ALLOC_HOST_PTR: pinned where there is a bus), mapped for life
 *
 * OpenCL leaves commands on a mapped cl_mem undefined. So no command ever names one: its *address* is the host side of
 * a clEnqueueWriteBuffer or clEnqueueReadBuffer on the device buffer at the other end, which is defined everywhere and
 * is how drivers want pinned memory used. Invariant: bytes counted here are the bytes asked for, so that a test can
 * compare them with the plan; limits are checked here, since drivers enforce them unevenly or only at first use. */
#include "backends/opencl/opencl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"

static tern_status reserve(tern_backend_device *device, uint64_t bytes, tern_buffer_kind kind)
{
    const tern_device_info *info = &device->info;
    if (bytes == 0)
        return tern_error(TERN_ERROR_INVALID, "%s: a buffer of 0 bytes was asked for; ask for 1 or more", info->name);
    if (bytes > info->max_allocation_bytes)
        return tern_error(TERN_ERROR_UNSUPPORTED,
                          "%s: %" PRIu64 " bytes asked for in one buffer, the driver allows %" PRIu64
                          " (CL_DEVICE_MAX_MEM_ALLOC_SIZE) of %" PRIu64 " in all; split it",
                          info->name, bytes, info->max_allocation_bytes, info->memory_bytes);
    const uint64_t before = atomic_fetch_add(&device->allocated, bytes);
    if (kind != TERN_BUFFER_DEVICE || before + bytes <= info->memory_bytes) return TERN_OK;
    atomic_fetch_sub(&device->allocated, bytes);
    return tern_error(TERN_ERROR_DEVICE_MEMORY,
                      "%s: %" PRIu64 " bytes asked for, %" PRIu64 " of %" PRIu64 " free; use a "
                      "smaller batch or model",
                      info->name, bytes, info->memory_bytes - before, info->memory_bytes);
}

/* Also makes the driver allocate now: many do so only when a command first touches a buffer. */
static tern_status zero_device(tern_backend_device *device, cl_mem memory, size_t bytes)
{
    const cl_uint zero = 0;
    cl_event event = NULL;
    const tern_status status =
        CL_CALL(device, clEnqueueFillBuffer, device->queue, memory, &zero, sizeof zero, 0, bytes, 0, NULL, &event);
    return status < 0 ? status : tern_opencl_event_finish(device, &event);
}

static tern_status map_host(tern_backend_device *device, tern_backend_buffer *buffer, size_t bytes)
{
    cl_event event = NULL;
    cl_int code = CL_SUCCESS;
    tern_status status;
    void *address;
    TERN_TRY(CL_MAKE(device, &address, clEnqueueMapBuffer, device->queue, buffer->memory, CL_FALSE,
                     CL_MAP_READ | CL_MAP_WRITE, 0, bytes, 0, NULL, &event));
    buffer->address = address;
    TERN_TRY(tern_opencl_event_finish(device, &event));
    memset(address, 0, bytes);
fail:
    return status;
}

tern_status tern_opencl_buffer_create(tern_backend_device *device, uint64_t bytes, tern_buffer_kind kind,
                                      tern_backend_buffer **out_buffer)
{
    tern_backend_buffer *buffer = NULL;
    cl_int code = CL_SUCCESS;
    tern_status status;
    *out_buffer = NULL;
    TERN_TRY(tern_opencl_enter(device));
    TERN_TRY(reserve(device, bytes, kind));
    const size_t whole = (size_t)(bytes + 3) & ~(size_t)3; /* fills come in words */
    buffer = calloc(1, sizeof *buffer);
    if (!buffer) {
        atomic_fetch_sub(&device->allocated, bytes);
        return tern_error_memory("an OpenCL buffer", sizeof *buffer);
    }
    buffer->bytes = bytes;
    buffer->kind = kind;
    TERN_TRY(CL_MAKE(device, &buffer->memory, clCreateBuffer, device->context,
                     CL_MEM_READ_WRITE | (kind == TERN_BUFFER_DEVICE ? 0u : CL_MEM_ALLOC_HOST_PTR), whole, NULL));
    TERN_TRY(kind == TERN_BUFFER_DEVICE ? zero_device(device, buffer->memory, whole) : map_host(device, buffer, whole));
    *out_buffer = buffer;
    return TERN_OK;
fail:
    tern_opencl_buffer_destroy(device, buffer);
    return status == TERN_ERROR_DEVICE_MEMORY ? tern_error_prefix(status, "a buffer of %" PRIu64 " bytes", bytes)
                                              : status;
}

static void unmap_host(tern_backend_device *device, tern_backend_buffer *buffer)
{
    cl_event event = NULL;
    /* Running programs hold the address, not the cl_mem, so the driver would not keep it for them. */
    tern_status status = tern_opencl_drain(device);
    if (status >= 0)
        status =
            CL_CALL(device, clEnqueueUnmapMemObject, device->queue, buffer->memory, buffer->address, 0, NULL, &event);
    if (status >= 0) status = tern_opencl_event_finish(device, &event);
    if (status < 0) tern_log_write(TERN_LOG_WARNING, "opencl: unmapping a buffer: %s", tern_error_message());
}

void tern_opencl_buffer_destroy(tern_backend_device *device, tern_backend_buffer *buffer)
{
    if (!buffer) return;
    if (tern_opencl_is_own(device)) {
        if (buffer->address) unmap_host(device, buffer);
        CL_RELEASE(clReleaseMemObject, buffer->memory);
        atomic_fetch_sub(&device->allocated, buffer->bytes);
    }
    free(buffer);
}

static tern_status range_check(const tern_backend_device *device, const tern_backend_buffer *buffer, uint64_t offset,
                               uint64_t bytes)
{
    if (offset <= buffer->bytes && bytes <= buffer->bytes - offset) return TERN_OK;
    return tern_error(TERN_ERROR_INVALID,
                      "%s: bytes %" PRIu64 " to %" PRIu64 " were asked of a buffer of %" PRIu64 " bytes",
                      device->info.name, offset, offset + bytes, buffer->bytes);
}

/* Waits for running programs first, so that the driver holds the caller's pointer only while it copies. */
static tern_status transfer(tern_backend_device *device, tern_backend_buffer *buffer, uint64_t offset, void *read_to,
                            const void *write_from, uint64_t bytes)
{
    cl_event event = NULL;
    tern_status status;
    TERN_TRY(tern_opencl_enter(device));
    TERN_TRY(range_check(device, buffer, offset, bytes));
    TERN_TRY(tern_opencl_drain(device));
    if (bytes == 0) return TERN_OK;
    if (buffer->address) {
        if (read_to)
            memcpy(read_to, buffer->address + offset, (size_t)bytes);
        else if (write_from)
            memcpy(buffer->address + offset, write_from, (size_t)bytes);
        return TERN_OK;
    }
    if (read_to)
        TERN_TRY(CL_CALL(device, clEnqueueReadBuffer, device->queue, buffer->memory, CL_FALSE, (size_t)offset,
                         (size_t)bytes, read_to, 0, NULL, &event));
    else
        TERN_TRY(CL_CALL(device, clEnqueueWriteBuffer, device->queue, buffer->memory, CL_FALSE, (size_t)offset,
                         (size_t)bytes, write_from, 0, NULL, &event));
    TERN_TRY(tern_opencl_event_finish(device, &event));
fail:
    return status;
}

tern_status tern_opencl_buffer_write(tern_backend_device *device, tern_backend_buffer *buffer, uint64_t offset,
                                     const void *data, uint64_t bytes)
{
    return transfer(device, buffer, offset, NULL, data, bytes);
}

tern_status tern_opencl_buffer_read(tern_backend_device *device, tern_backend_buffer *buffer, uint64_t offset,
                                    void *out_data, uint64_t bytes)
{
    return transfer(device, buffer, offset, out_data, NULL, bytes);
}

tern_status tern_opencl_buffer_map(tern_backend_device *device, tern_backend_buffer *buffer, void **out_address)
{
    const tern_status status = tern_opencl_enter(device);
    if (status < 0) return status;
    if (!buffer->address)
        return tern_error(TERN_ERROR_INVALID,
                          "%s: a device buffer has no host address; use an upload or read-back buffer and a "
                          "copy step",
                          device->info.name);
    *out_address = buffer->address;
    return TERN_OK;
}

uint64_t tern_opencl_allocated_bytes(tern_backend_device *device) { return atomic_load(&device->allocated); }
