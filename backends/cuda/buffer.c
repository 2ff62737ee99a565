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

#include "core/base/log.h"

static tern_status zero_device(tern_backend_device *device, CUdeviceptr address, size_t bytes)
{
    const tern_status status = CU_CALL(device, cuMemsetD32Async, address, 0, bytes / 4, device->stream);
    return status < 0 ? status : cuda_drain(device);
}

static tern_status memory_make(tern_backend_device *device, tern_backend_buffer *buffer)
{
    const size_t whole = (size_t)(buffer->shape.bytes + 3) & ~(size_t)3; /* fills come in words */
    void *host = NULL;
    tern_status status;
    if (buffer->shape.kind == TERN_BUFFER_DEVICE) {
        TERN_TRY(CU_CALL(device, cuMemAlloc, &buffer->address, whole));
        TERN_TRY(zero_device(device, buffer->address, whole));
    } else {
        TERN_TRY(CU_CALL(device, cuMemHostAlloc, &host, whole, CU_HOST_PORTABLE));
        buffer->host = host;
        memset(host, 0, whole);
    }
fail:
    return status;
}

tern_status cuda_buffer_create(tern_backend_device *device, uint64_t bytes, tern_buffer_kind kind,
                               tern_backend_buffer **out_buffer)
{
    tern_backend_buffer *buffer = NULL;
    tern_status status;
    *out_buffer = NULL;
    TERN_TRY(cuda_enter(device));
    if (bytes == 0)
        return tern_error(TERN_ERROR_INVALID, "%s: a buffer of 0 bytes was asked for; ask for 1 or more",
                          device->info.name);
    if (bytes > device->info.max_allocation_bytes)
        return tern_error(TERN_ERROR_UNSUPPORTED,
                          "%s: %" PRIu64 " bytes asked for in one buffer; the card has %" PRIu64 " in all, split it",
                          device->info.name, bytes, device->info.max_allocation_bytes);
    buffer = calloc(1, sizeof *buffer);
    if (!buffer) return tern_error_memory("a CUDA buffer", sizeof *buffer);
    buffer->shape.bytes = bytes;
    buffer->shape.kind = kind;
    atomic_fetch_add(&device->allocated, bytes);
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
    if (!buffer) return;
    if (cuda_may_release(device)) {
        /* Freeing waits inside the driver for what still runs; so that wait is done here, with an end. */
        if (!atomic_load(&device->lost) && cuda_drain(device) < 0)
            tern_log_write(TERN_LOG_WARNING, "cuda: freeing a buffer: %s", tern_error_message());
        if (!atomic_load(&device->hung)) {
            CU_RELEASE(cuMemFree, buffer->address);
            CU_RELEASE(cuMemFreeHost, buffer->host);
        }
    }
    atomic_fetch_sub(&device->allocated, buffer->shape.bytes);
    free(buffer);
}

static tern_status range_check(const tern_backend_device *device, const tern_backend_buffer *buffer, uint64_t offset,
                               uint64_t bytes)
{
    if (offset <= buffer->shape.bytes && bytes <= buffer->shape.bytes - offset) return TERN_OK;
    return tern_error(TERN_ERROR_INVALID, "%s: bytes %" PRIu64 " to %" PRIu64 " of a buffer of %" PRIu64,
                      device->info.name, offset, offset + bytes, buffer->shape.bytes);
}

/* One piece, with the transfer lock held; everything submitted before has ended. */
static tern_status piece(tern_backend_device *device, CUdeviceptr at, void *read_to, const void *write_from,
                         size_t bytes)
{
    tern_status status;
    if (write_from) {
        memcpy(device->staging, write_from, bytes);
        TERN_TRY(CU_CALL(device, cuMemcpyHtoDAsync, at, device->staging, bytes, device->stream));
    } else {
        TERN_TRY(CU_CALL(device, cuMemcpyDtoHAsync, device->staging, at, bytes, device->stream));
    }
    TERN_TRY(cuda_drain_locked(device));
    if (read_to) memcpy(read_to, device->staging, bytes);
fail:
    return status;
}

static tern_status transfer(tern_backend_device *device, tern_backend_buffer *buffer, uint64_t offset, char *read_to,
                            const char *write_from, uint64_t bytes)
{
    tern_status status;
    TERN_TRY(cuda_enter(device));
    TERN_TRY(range_check(device, buffer, offset, bytes));
    TERN_TRY(cuda_drain(device));
    if (bytes == 0) return TERN_OK;
    if (buffer->host) {
        if (read_to) memcpy(read_to, buffer->host + offset, (size_t)bytes);
        if (write_from) memcpy(buffer->host + offset, write_from, (size_t)bytes);
        return TERN_OK;
    }
    pthread_mutex_lock(&device->transfer_lock);
    for (uint64_t done = 0; done < bytes && status >= 0;) {
        const uint64_t left = bytes - done;
        const size_t now = left < CUDA_STAGING_BYTES ? (size_t)left : CUDA_STAGING_BYTES;
        status = piece(device, buffer->address + offset + done, read_to ? read_to + done : NULL,
                       write_from ? write_from + done : NULL, now);
        done += now;
    }
    pthread_mutex_unlock(&device->transfer_lock);
fail:
    return status;
}

tern_status cuda_buffer_write(tern_backend_device *device, tern_backend_buffer *buffer, uint64_t offset,
                              const void *data, uint64_t bytes)
{
    return transfer(device, buffer, offset, NULL, data, bytes);
}

tern_status cuda_buffer_read(tern_backend_device *device, tern_backend_buffer *buffer, uint64_t offset, void *out_data,
                             uint64_t bytes)
{
    return transfer(device, buffer, offset, out_data, NULL, bytes);
}

tern_status cuda_buffer_map(tern_backend_device *device, tern_backend_buffer *buffer, void **out_address)
{
    const tern_status status = cuda_enter(device);
    if (status < 0) return status;
    if (!buffer->host)
        return tern_error(TERN_ERROR_INVALID,
                          "%s: a device buffer has no host address; use an upload or read-back buffer and a copy step",
                          device->info.name);
    *out_address = buffer->host;
    return TERN_OK;
}

uint64_t cuda_allocated_bytes(tern_backend_device *device) { return atomic_load(&device->allocated); }
