/* SPDX-License-Identifier: Apache-2.0 */
/* plugin_device.c - see plugin_device.h. */
#include "core/base/plugin_device.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/status.h"
#include "core/base/time.h"

static const tern_plugin_device *base_of(const tern_backend_device *device)
{
    return (const tern_plugin_device *)(const void *)device;
}

static const tern_buffer_shape *shape_of(const tern_backend_buffer *buffer)
{
    return (const tern_buffer_shape *)(const void *)buffer;
}

tern_status tern_plugin_enter(const tern_plugin_device *device)
{
    if (device->pid != getpid())
        return tern_error(TERN_ERROR_INVALID,
                          "%s was opened by process %ld, and %s does not survive a fork; open it again in process %ld",
                          device->info.name, (long)device->pid, device->api, (long)getpid());
    if (atomic_load(&device->lost))
        return tern_error(TERN_ERROR_DEVICE_LOST, "%s was lost by an earlier call; close it and open it again",
                          device->info.name);
    return TERN_OK;
}

bool tern_plugin_may_release(const tern_plugin_device *device)
{
    return device->pid == getpid() && !atomic_load(&device->hung);
}

/* ------------------------------------------------------------------ waiting */

void tern_plugin_patience_read(tern_plugin_device *device, const char *variable, uint32_t seconds)
{
    device->patience_ns = tern_patience_ns(variable, seconds);
    device->work_patience_ns = tern_patience_ns(variable, 0);
}

tern_status tern_plugin_poll(const tern_plugin_device *device, tern_plugin_look look, void *context,
                             uint64_t timeout_ns)
{
    const uint64_t start = tern_time_ns();
    for (;;) {
        const int ended = look(context);
        if (ended != 0) return ended < 0 ? (tern_status)ended : TERN_OK;
        const uint64_t waited = tern_time_ns() - start;
        if (waited >= timeout_ns)
            return tern_error(TERN_ERROR_TIMEOUT, "%s: still running after %.3f s", device->info.name,
                              (double)waited * 1e-9);
        tern_poll_sleep(waited);
    }
}

static tern_status give_up(tern_plugin_device *device, uint64_t waited_ns)
{
    atomic_store(&device->hung, true);
    atomic_store(&device->lost, true);
    return tern_error(TERN_ERROR_DEVICE_LOST,
                      "%s: no progress for %.0f s; the device is taken for lost, open it again (dmesg may say why)",
                      device->info.name, (double)waited_ns * 1e-9);
}

tern_status tern_plugin_finish(tern_plugin_device *device, tern_plugin_look look, void *context)
{
    const tern_status status = tern_plugin_poll(device, look, context, device->patience_ns);
    return status == TERN_ERROR_TIMEOUT ? give_up(device, device->patience_ns) : status;
}

/* Since when waits for this ticket have ended without it; `start` unless an earlier one is known. */
static uint64_t awaited_since(tern_plugin_device *device, uint64_t ticket, uint64_t start)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    if (device->awaited != ticket) {
        device->awaited = ticket;
        device->awaited_since_ns = start;
    }
    const uint64_t since = device->awaited_since_ns;
    pthread_mutex_unlock(&lock);
    return since;
}

tern_status tern_plugin_wait(tern_plugin_device *device, uint64_t ticket, tern_plugin_look look, void *context,
                             uint64_t timeout_ns)
{
    const uint64_t start = tern_time_ns(), limit = device->work_patience_ns;
    const tern_status status = tern_plugin_poll(device, look, context, timeout_ns);
    if (status != TERN_ERROR_TIMEOUT) return status;
    if (limit && tern_time_ns() - awaited_since(device, ticket, start) >= limit) return give_up(device, limit);
    return tern_error_prefix(status, "ticket %" PRIu64, ticket);
}

tern_status tern_plugin_finish_failed(tern_backend_device *device, tern_status status,
                                      tern_status (*finish)(tern_backend_device *device))
{
    char sentence[1024];
    if (atomic_load(&base_of(device)->lost)) return status;
    snprintf(sentence, sizeof sentence, "%s", tern_error_message());
    (void)finish(device);
    return tern_error(status, "%s", sentence);
}

tern_status tern_plugin_times_check(const tern_plugin_device *device, bool timestamps, const char *program,
                                    uint64_t ticket)
{
    if (!timestamps)
        return tern_error(TERN_ERROR_UNSUPPORTED, "%s was opened without timestamps; set tern_open_options.timestamps",
                          device->info.name);
    if (ticket == 0)
        return tern_error(TERN_ERROR_INVALID, "program \"%s\" has not run yet; submit it and wait", program);
    return TERN_OK;
}

void tern_plugin_list_dpas(tern_device_info *info)
{
    const uint32_t lanes = info->subgroup_min;
    if (lanes != 8 && lanes != 16) return;
    info->matrix[info->matrix_count++] = (tern_matrix_shape){TERN_BF16, 8, lanes, 16, lanes};
    info->matrix[info->matrix_count++] = (tern_matrix_shape){TERN_F16, 8, lanes, 16, lanes};
}

/* ------------------------------------------------------------------ buffers */

tern_status tern_plugin_buffer_take(tern_plugin_device *device, uint64_t bytes, tern_buffer_kind kind,
                                    tern_buffer_shape *out_shape)
{
    if (bytes == 0)
        return tern_error(TERN_ERROR_INVALID, "%s: a buffer of 0 bytes was asked for; ask for 1 or more",
                          device->info.name);
    if (bytes > device->info.max_allocation_bytes)
        return tern_error(TERN_ERROR_UNSUPPORTED,
                          "%s: %" PRIu64 " bytes asked for in one buffer, the driver allows %" PRIu64 "; split it",
                          device->info.name, bytes, device->info.max_allocation_bytes);
    const uint64_t all = device->info.memory_bytes, before = atomic_fetch_add(&device->allocated, bytes);
    if (kind == TERN_BUFFER_DEVICE && (before > all || bytes > all - before)) {
        atomic_fetch_sub(&device->allocated, bytes);
        return tern_error(TERN_ERROR_DEVICE_MEMORY,
                          "%s: %" PRIu64 " bytes asked for, %" PRIu64 " of %" PRIu64
                          " free; use a smaller batch or model",
                          device->info.name, bytes, before > all ? 0 : all - before, all);
    }
    *out_shape = (tern_buffer_shape){.bytes = bytes, .kind = kind};
    return TERN_OK;
}

void tern_plugin_buffer_drop(tern_plugin_device *device, const tern_buffer_shape *shape)
{
    atomic_fetch_sub(&device->allocated, shape->bytes);
}

tern_status tern_plugin_buffer_map(tern_backend_device *device, tern_backend_buffer *buffer, void **out_address)
{
    const tern_buffer_shape *shape = shape_of(buffer);
    const tern_status status = tern_plugin_enter(base_of(device));
    if (status < 0) return status;
    if (!shape->host)
        return tern_error(TERN_ERROR_INVALID,
                          "%s: a device buffer has no host address; use an upload or read-back buffer and a copy step",
                          base_of(device)->info.name);
    *out_address = shape->host;
    return TERN_OK;
}

uint64_t tern_plugin_allocated_bytes(tern_backend_device *device) { return atomic_load(&base_of(device)->allocated); }

/* One piece, with the lock held. */
static tern_status piece_move(tern_backend_device *device, tern_backend_buffer *buffer,
                              const tern_plugin_staging *staging, uint64_t offset, char *read_to,
                              const char *write_from, size_t bytes)
{
    if (write_from) memcpy(staging->memory, write_from, bytes);
    const tern_status status = staging->move(device, buffer, offset, bytes, write_from != NULL);
    if (status >= 0 && read_to) memcpy(read_to, staging->memory, bytes);
    return status;
}

tern_status tern_plugin_transfer(tern_backend_device *device, tern_backend_buffer *buffer,
                                 const tern_plugin_staging *staging, uint64_t offset, void *read_to,
                                 const void *write_from, uint64_t bytes)
{
    const tern_plugin_device *base = base_of(device);
    const tern_buffer_shape *shape = shape_of(buffer);
    tern_status status;
    if (offset > shape->bytes || bytes > shape->bytes - offset)
        return tern_error(TERN_ERROR_INVALID, "%s: bytes %" PRIu64 " to %" PRIu64 " of a buffer of %" PRIu64,
                          base->info.name, offset, offset + bytes, shape->bytes);
    TERN_TRY(staging->drain(device));
    if (bytes == 0) return TERN_OK;
    if (shape->host) {
        if (read_to) memcpy(read_to, shape->host + offset, (size_t)bytes);
        if (write_from) memcpy(shape->host + offset, write_from, (size_t)bytes);
        return TERN_OK;
    }
    pthread_mutex_lock(staging->lock);
    for (uint64_t done = 0; done < bytes && status >= 0;) {
        const uint64_t left = bytes - done;
        const size_t now = left < staging->bytes ? (size_t)left : staging->bytes;
        status = piece_move(device, buffer, staging, offset + done, read_to ? (char *)read_to + done : NULL,
                            write_from ? (const char *)write_from + done : NULL, now);
        done += now;
    }
    pthread_mutex_unlock(staging->lock);
fail:
    return status;
}
