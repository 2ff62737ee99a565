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

static tern_status transfer_finish(tern_backend_device *device) { return zero_event_finish(device, device->transfer); }

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
    status = zero_event_finish(device, device->transfer);
    /* It may be running all the same, and the next one to come here uses the memory for its own. */
    return status < 0 ? tern_plugin_finish_failed(device, status, transfer_finish) : TERN_OK;
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
        buffer->shape.host = memset(address, 0, whole);
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
    tern_status status;
    *out_buffer = NULL;
    TERN_TRY(tern_plugin_enter(&device->base));
    tern_backend_buffer *buffer = calloc(1, sizeof *buffer);
    if (!buffer) return tern_error_memory("a Level Zero buffer", sizeof *buffer);
    status = tern_plugin_buffer_take(&device->base, bytes, kind, &buffer->shape);
    if (status >= 0) status = memory_make(device, buffer);
    if (status >= 0) {
        *out_buffer = buffer;
        return TERN_OK;
    }
    zero_buffer_destroy(device, buffer);
    if (status == TERN_ERROR_DEVICE_MEMORY) tern_error_prefix(status, "a buffer of %" PRIu64 " bytes", bytes);
fail:
    return status;
}

void zero_buffer_destroy(tern_backend_device *device, tern_backend_buffer *buffer)
{
    if (!buffer) return;
    if (buffer->address && zero_may_release(device, "a buffer")) /* freeing waits for nothing */
        zero_released("zeMemFree", tern_ze.zeMemFree(device->context, buffer->address));
    tern_plugin_buffer_drop(&device->base, &buffer->shape);
    free(buffer);
}

static tern_status staging_move(tern_backend_device *device, tern_backend_buffer *buffer, uint64_t offset, size_t bytes,
                                bool to_device)
{
    char *const at = buffer->address + offset;
    return to_device ? move(device, at, device->staging, bytes) : move(device, device->staging, at, bytes);
}

static tern_status transfer(tern_backend_device *device, tern_backend_buffer *buffer, uint64_t offset, void *read_to,
                            const void *write_from, uint64_t bytes)
{
    const tern_plugin_staging staging = {.memory = device->staging,
                                         .bytes = ZERO_STAGING_BYTES,
                                         .lock = &device->transfer_lock,
                                         .drain = zero_drain,
                                         .move = staging_move};
    const tern_status status = tern_plugin_enter(&device->base);
    return status < 0 ? status : tern_plugin_transfer(device, buffer, &staging, offset, read_to, write_from, bytes);
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
