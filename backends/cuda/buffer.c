/* SPDX-License-Identifier: Apache-2.0 */
/* buffer.c - device memory, and pinned host memory that copies reach at full speed.
 *
 *     DEVICE              cuMemAlloc
 *     UPLOAD, READBACK    cuMemHostAlloc: page-locked, its address is the map
 *     write, read         in pieces through the device's own pinned staging memory, each polled to its end: a copy from
 *                         pageable memory would block inside the driver, without a timeout
 *
 * Invariant: bytes counted here are the bytes asked for, so that a test can compare them with the plan. */
#include "backends/cuda/cuda.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static tern_status memory_make(tern_backend_device *device, tern_backend_buffer *buffer)
{
    const size_t whole = (size_t)(buffer->shape.bytes + 3) & ~(size_t)3; /* fills come in words */
    void *host = NULL;
    tern_status status;
    if (buffer->shape.kind == TERN_BUFFER_DEVICE) {
        TERN_TRY(CU_CALL(device, cuMemAlloc, &buffer->address, whole));
        TERN_TRY(CU_CALL(device, cuMemsetD32Async, buffer->address, 0, whole / 4, device->stream));
        TERN_TRY(cuda_drain(device));
    } else {
        TERN_TRY(CU_CALL(device, cuMemHostAlloc, &host, whole, CU_HOST_PORTABLE));
        buffer->shape.host = host;
        memset(host, 0, whole);
    }
fail:
    return status;
}

tern_status cuda_buffer_create(tern_backend_device *device, uint64_t bytes, tern_buffer_kind kind,
                               tern_backend_buffer **out_buffer)
{
    tern_status status;
    *out_buffer = NULL;
    tern_backend_buffer *buffer = calloc(1, sizeof *buffer);
    if (!buffer) return tern_error_memory("a CUDA buffer", sizeof *buffer);
    TERN_TRY(tern_plugin_buffer_take(&device->base, bytes, kind, &buffer->shape));
    TERN_TRY(memory_make(device, buffer));
    *out_buffer = buffer;
    return TERN_OK;
fail:
    cuda_buffer_destroy(device, buffer);
    return status == TERN_ERROR_DEVICE_MEMORY ? tern_error_prefix(status, "a buffer of %" PRIu64 " bytes", bytes)
                                              : status;
}

void cuda_buffer_destroy(tern_backend_device *device, tern_backend_buffer *buffer)
{
    /* Freeing waits inside the driver for what still runs; so that wait is done here, with an end. */
    if ((buffer->address || buffer->shape.host) && cuda_may_release(device, "a buffer")) {
        CU_RELEASE(cuMemFree, buffer->address);
        CU_RELEASE(cuMemFreeHost, buffer->shape.host);
    }
    tern_plugin_buffer_drop(&device->base, &buffer->shape);
    free(buffer);
}

static tern_status staging_move(tern_backend_device *device, tern_backend_buffer *buffer, uint64_t offset, size_t bytes,
                                bool to_device)
{
    const CUdeviceptr at = buffer->address + offset;
    tern_status status = to_device ? CU_CALL(device, cuMemcpyHtoDAsync, at, device->staging, bytes, device->stream)
                                   : CU_CALL(device, cuMemcpyDtoHAsync, device->staging, at, bytes, device->stream);
    if (status < 0) return status;
    status = cuda_drain_locked(device);
    /* The copy may be running all the same, and the next one to come here uses the memory for its own. */
    return status < 0 ? tern_plugin_finish_failed(device, status, cuda_drain_locked) : TERN_OK;
}

tern_status cuda_buffer_transfer(tern_backend_device *device, tern_backend_buffer *buffer, uint64_t offset,
                                 void *read_to, const void *write_from, uint64_t bytes)
{
    const tern_plugin_staging staging = {.memory = device->staging,
                                         .bytes = CUDA_STAGING_BYTES,
                                         .lock = &device->transfer_lock,
                                         .drain = cuda_drain,
                                         .move = staging_move};
    return tern_plugin_transfer(device, buffer, &staging, offset, read_to, write_from, bytes);
}
