/* SPDX-License-Identifier: Apache-2.0 */
/* buffer.c - USM memory of the device and of the host.
 *
 *     DEVICE              zeMemAllocDevice; above the device's limit with the extension's description, where it has it
 *     UPLOAD, READBACK    zeMemAllocHost: its address is the map
 *     write, read         in pieces through the device's own host memory, each waited for with an end
 *
 * Invariant: bytes counted here are the bytes asked for, so that a test can compare them with the plan. */
#include "backends/level_zero/level_zero.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"

/* One command of the immediate list, to its end. `from` NULL: fills with zeros. With the transfer lock held. */
static tern_status move(tern_backend_device *device, char *to, const char *from, size_t bytes)
{
    const uint32_t zero = 0;
    tern_status status;
    TERN_TRY(ZE_CALL(device, zeEventHostReset, device->transfer));
    if (from)
        TERN_TRY(ZE_CALL(device, zeCommandListAppendMemoryCopy, device->immediate, to, from, bytes, device->transfer, 0,
                         NULL));
    else
        TERN_TRY(ZE_CALL(device, zeCommandListAppendMemoryFill, device->immediate, to, &zero, sizeof zero, bytes,
                         device->transfer, 0, NULL));
    TERN_TRY(zero_event_finish(device, device->transfer));
fail:
    return status;
}

static tern_status memory_make(tern_backend_device *device, tern_backend_buffer *buffer)
{
    ze_relaxed_allocation_limits_exp_desc_t relaxed = {.stype = ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC,
                                                       .flags = ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE};
    const ze_device_mem_alloc_desc_t device_desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC,
                                                    .pNext = zero_is_large(device, buffer) ? &relaxed : NULL};
    const ze_host_mem_alloc_desc_t host_desc = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};
    const size_t whole = (size_t)(buffer->shape.bytes + 3) & ~(size_t)3; /* fills come in words */
    void *address = NULL;
    tern_status status;
    if (buffer->shape.kind == TERN_BUFFER_DEVICE)
        TERN_TRY(ZE_CALL(device, zeMemAllocDevice, device->context, &device_desc, whole, 256, device->entry.device,
                         &address));
    else
        TERN_TRY(ZE_CALL(device, zeMemAllocHost, device->context, &host_desc, whole, 256, &address));
    buffer->address = address;
    if (buffer->shape.kind != TERN_BUFFER_DEVICE) {
        memset(address, 0, whole);
        return TERN_OK;
    }
    pthread_mutex_lock(&device->transfer_lock);
    status = move(device, address, NULL, whole);
    pthread_mutex_unlock(&device->transfer_lock);
fail:
    return status;
}

bool zero_is_large(const tern_backend_device *device, const tern_backend_buffer *buffer)
{
    return buffer->shape.bytes > device->plain_allocation_bytes;
}

tern_status zero_buffer_create(tern_backend_device *device, uint64_t bytes, tern_buffer_kind kind,
                               tern_backend_buffer **out_buffer)
{
    const tern_device_info *info = &device->info;
    tern_backend_buffer *buffer = NULL;
    tern_status status;
    *out_buffer = NULL;
    TERN_TRY(zero_enter(device));
    if (bytes == 0)
        return tern_error(TERN_ERROR_INVALID, "%s: a buffer of 0 bytes was asked for; ask for 1 or more", info->name);
    if (bytes > info->max_allocation_bytes)
        return tern_error(TERN_ERROR_UNSUPPORTED,
                          "%s: %" PRIu64 " bytes asked for in one buffer, the driver allows %" PRIu64
                          " (maxMemAllocSize%s); split it",
                          info->name, bytes, info->max_allocation_bytes,
                          device->relaxed ? ", relaxed to all of the memory" : "");
    const uint64_t before = atomic_fetch_add(&device->allocated, bytes);
    if (kind == TERN_BUFFER_DEVICE && before + bytes > info->memory_bytes) {
        atomic_fetch_sub(&device->allocated, bytes);
        return tern_error(TERN_ERROR_DEVICE_MEMORY,
                          "%s: %" PRIu64 " bytes asked for, %" PRIu64 " of %" PRIu64
                          " free; use a smaller batch or model",
                          info->name, bytes, info->memory_bytes - before, info->memory_bytes);
    }
    buffer = calloc(1, sizeof *buffer);
    if (!buffer) {
        atomic_fetch_sub(&device->allocated, bytes);
        return tern_error_memory("a Level Zero buffer", sizeof *buffer);
    }
    buffer->shape.bytes = bytes;
    buffer->shape.kind = kind;
    TERN_TRY(memory_make(device, buffer));
    *out_buffer = buffer;
    return TERN_OK;
fail:
    zero_buffer_destroy(device, buffer);
    return status == TERN_ERROR_DEVICE_MEMORY ? tern_error_prefix(status, "a buffer of %" PRIu64 " bytes", bytes)
                                              : status;
}

void zero_buffer_destroy(tern_backend_device *device, tern_backend_buffer *buffer)
{
    if (!buffer) return;
    if (zero_may_release(device)) {
        if (!atomic_load(&device->lost) && zero_drain(device) < 0) /* freeing waits for nothing */
            tern_log_write(TERN_LOG_WARNING, "level_zero: freeing a buffer: %s", tern_error_message());
        if (zero_may_release(device) && buffer->address)
            zero_released("zeMemFree", tern_ze.zeMemFree(device->context, buffer->address));
    }
    atomic_fetch_sub(&device->allocated, buffer->shape.bytes);
    free(buffer);
}

static tern_status transfer(tern_backend_device *device, tern_backend_buffer *buffer, uint64_t offset, char *read_to,
                            const char *write_from, uint64_t bytes)
{
    tern_status status;
    TERN_TRY(zero_enter(device));
    if (offset > buffer->shape.bytes || bytes > buffer->shape.bytes - offset)
        return tern_error(TERN_ERROR_INVALID, "%s: bytes %" PRIu64 " to %" PRIu64 " of a buffer of %" PRIu64,
                          device->info.name, offset, offset + bytes, buffer->shape.bytes);
    TERN_TRY(zero_drain(device));
    if (bytes == 0) return TERN_OK;
    char *at = buffer->address + offset;
    if (buffer->shape.kind != TERN_BUFFER_DEVICE) {
        if (read_to) memcpy(read_to, at, (size_t)bytes);
        if (write_from) memcpy(at, write_from, (size_t)bytes);
        return TERN_OK;
    }
    pthread_mutex_lock(&device->transfer_lock);
    for (uint64_t done = 0; done < bytes && status >= 0;) {
        const uint64_t left = bytes - done;
        const size_t now = left < ZERO_STAGING_BYTES ? (size_t)left : ZERO_STAGING_BYTES;
        if (write_from) memcpy(device->staging, write_from + done, now);
        status =
            write_from ? move(device, at + done, device->staging, now) : move(device, device->staging, at + done, now);
        if (read_to && status >= 0) memcpy(read_to + done, device->staging, now);
        done += now;
    }
    pthread_mutex_unlock(&device->transfer_lock);
fail:
    return status;
}

tern_status zero_buffer_write(tern_backend_device *device, tern_backend_buffer *buffer, uint64_t offset,
                              const void *data, uint64_t bytes)
{
    return transfer(device, buffer, offset, NULL, data, bytes);
}

tern_status zero_buffer_read(tern_backend_device *device, tern_backend_buffer *buffer, uint64_t offset, void *out_data,
                             uint64_t bytes)
{
    return transfer(device, buffer, offset, out_data, NULL, bytes);
}

tern_status zero_buffer_map(tern_backend_device *device, tern_backend_buffer *buffer, void **out_address)
{
    const tern_status status = zero_enter(device);
    if (status < 0) return status;
    if (buffer->shape.kind == TERN_BUFFER_DEVICE)
        return tern_error(TERN_ERROR_INVALID,
                          "%s: a device buffer has no host address; use an upload or read-back buffer and a copy step",
                          device->info.name);
    *out_address = buffer->address;
    return TERN_OK;
}

uint64_t zero_allocated_bytes(tern_backend_device *device) { return atomic_load(&device->allocated); }
