/* SPDX-License-Identifier: Apache-2.0 */
/* queue.c - tickets and finite waits.
 *
 *     submit ──> lists, each beginning with a barrier ──> a last barrier signals the program's event ──> wait
 *
 * Invariants: submissions end in their order, so an ended ticket means that all before it have ended; a program's event
 * is reset only after the ticket that it stood for has ended. Waits are slices of zeEventHostSynchronize, never 0 long:
 * a driver may do its work inside them. They grow up to a second, since some look for a hang only after half of one. */
#include "backends/level_zero/level_zero.h"

#include <inttypes.h>

#include "core/base/time.h"

#define FIRST_SLICE_NS UINT64_C(100000)
#define LAST_SLICE_NS  UINT64_C(1000000000)

tern_status zero_pool_create(tern_backend_device *device, uint32_t count, bool timestamps,
                             ze_event_pool_handle_t *out_pool)
{
    const ze_event_pool_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_EVENT_POOL_DESC,
                                       .flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE |
                                                (timestamps ? ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP : 0u),
                                       .count = count};
    return ZE_CALL(device, zeEventPoolCreate, device->context, &desc, 1, &device->entry.device, out_pool);
}

tern_status zero_event_create(tern_backend_device *device, ze_event_pool_handle_t pool, uint32_t index,
                              ze_event_handle_t *out_event)
{
    const ze_event_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_EVENT_DESC,
                                  .index = index,
                                  .signal = ZE_EVENT_SCOPE_FLAG_HOST,
                                  .wait = ZE_EVENT_SCOPE_FLAG_HOST};
    return ZE_CALL(device, zeEventCreate, pool, &desc, out_event);
}

typedef struct look {
    tern_backend_device *device;
    ze_event_handle_t event;
    uint64_t slice, until;
} look;

/* As a look's answer. */
static int answer(tern_backend_device *device, const char *call, ze_result_t result)
{
    const tern_status status = result == ZE_RESULT_NOT_READY ? TERN_OK : zero_result(device, call, result);
    return status < 0 ? (int)status : result != ZE_RESULT_NOT_READY;
}

static int event_look(void *context)
{
    look *l = context;
    const int ended = answer(l->device, "zeEventHostSynchronize", tern_ze.zeEventHostSynchronize(l->event, l->slice));
    if (ended != 0) return ended;
    const uint64_t now = tern_time_ns(), left = now < l->until ? l->until - now : 0;
    l->slice = l->slice == 0 ? FIRST_SLICE_NS : 2 * l->slice < LAST_SLICE_NS ? 2 * l->slice : LAST_SLICE_NS;
    if (l->slice > left) l->slice = left;
    return 0;
}

/* A look first, of 0. */
static look look_for(tern_backend_device *device, ze_event_handle_t event, uint64_t timeout_ns)
{
    const uint64_t now = tern_time_ns();
    return (look){device, event, 0, timeout_ns < UINT64_MAX - now ? now + timeout_ns : UINT64_MAX};
}

tern_status zero_event_finish(tern_backend_device *device, ze_event_handle_t event)
{
    look l = look_for(device, event, device->base.patience_ns);
    return tern_plugin_finish(&device->base, event_look, &l);
}

/* ------------------------------------------------------------------ tickets */

tern_status zero_ticket_finish(tern_backend_device *device, uint64_t ticket)
{
    if (ticket <= device->finished) return TERN_OK;
    const tern_status status = zero_event_finish(device, device->ring[ticket % ZERO_RING]);
    if (status >= 0) device->finished = ticket;
    return status;
}

uint64_t zero_ticket_give(tern_backend_device *device, ze_event_handle_t event)
{
    device->ring[++device->ticket % ZERO_RING] = event;
    return device->ticket;
}

tern_status zero_wait(tern_backend_device *device, uint64_t ticket, uint64_t timeout_ns)
{
    tern_status status;
    TERN_TRY(tern_plugin_enter(&device->base));
    pthread_mutex_lock(&device->lock);
    const uint64_t last = device->ticket, finished = device->finished;
    const ze_event_handle_t event = device->ring[ticket % ZERO_RING];
    pthread_mutex_unlock(&device->lock);
    if (ticket > last)
        return tern_error(TERN_ERROR_INVALID, "%s: ticket %" PRIu64 " was never given; the last one is %" PRIu64,
                          device->base.info.name, ticket, last);
    if (ticket <= finished) return TERN_OK;
    look l = look_for(device, event, timeout_ns);
    status = tern_plugin_wait(&device->base, ticket, event_look, &l, timeout_ns);
    pthread_mutex_lock(&device->lock);
    if (status >= 0 && ticket > device->finished) device->finished = ticket;
    pthread_mutex_unlock(&device->lock);
fail:
    return status;
}

tern_status zero_drain(tern_backend_device *device)
{
    pthread_mutex_lock(&device->lock);
    const tern_status status = zero_ticket_finish(device, device->ticket);
    pthread_mutex_unlock(&device->lock);
    return status;
}

static int queue_look(void *context)
{
    tern_backend_device *device = context;
    return answer(device, "zeCommandQueueSynchronize",
                  tern_ze.zeCommandQueueSynchronize(device->queue, FIRST_SLICE_NS));
}

tern_status zero_partial_finish(tern_backend_device *device)
{
    tern_status status;
    if (device->queue) return tern_plugin_finish(&device->base, queue_look, device);
    pthread_mutex_lock(&device->transfer_lock);
    TERN_TRY(ZE_CALL(device, zeEventHostReset, device->transfer));
    TERN_TRY(ZE_CALL(device, zeCommandListAppendBarrier, device->immediate, device->transfer, 0, NULL));
    TERN_TRY(zero_event_finish(device, device->transfer));
fail:
    pthread_mutex_unlock(&device->transfer_lock);
    return status;
}
