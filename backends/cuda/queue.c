/* SPDX-License-Identifier: Apache-2.0 */
/* queue.c - tickets and finite waits over one stream.
 *
 *     submit ──> graphs launched ──> event of ticket t, ring[t % RING], recorded ──> wait polls it
 *
 * cuStreamSynchronize and cuEventSynchronize have no timeout, so events are queried with short sleeps. Invariants: the
 * stream runs in order, so an ended ticket means that all before it have ended; an event is recorded again only after
 * the ticket that it stood for has ended. */
#include "backends/cuda/cuda.h"

#include <inttypes.h>

typedef struct look {
    tern_backend_device *device;
    CUevent event;   /* for event_look */
    uint64_t ticket; /* for ticket_look */
} look;

static int event_look(void *context)
{
    const look *l = context;
    const CUresult code = tern_cu.cuEventQuery(l->event);
    if (code == CUDA_ERROR_NOT_READY) return 0;
    const tern_status status = cuda_result(l->device, "cuEventQuery", code);
    return status < 0 ? (int)status : 1;
}

/* ------------------------------------------------------------------ tickets */

/* Takes the lock for each look, so that others may submit meanwhile. */
static int ticket_look(void *context)
{
    look *l = context;
    tern_backend_device *device = l->device;
    int ended = 1;
    pthread_mutex_lock(&device->lock);
    if (l->ticket > device->finished && l->ticket + CUDA_RING > device->ticket) {
        l->event = device->ring[l->ticket % CUDA_RING];
        ended = event_look(l);
        if (ended > 0 && l->ticket > device->finished) device->finished = l->ticket;
    }
    pthread_mutex_unlock(&device->lock);
    return ended;
}

tern_status cuda_ticket_prepare(tern_backend_device *device)
{
    const uint64_t next = device->ticket + 1;
    if (next <= CUDA_RING + device->finished) return TERN_OK;
    look l = {.device = device, .event = device->ring[next % CUDA_RING]};
    return tern_plugin_finish(&device->base, event_look, &l);
}

tern_status cuda_ticket_give(tern_backend_device *device, uint64_t *out_ticket)
{
    const tern_status status =
        CU_CALL(device, cuEventRecord, device->ring[(device->ticket + 1) % CUDA_RING], device->stream);
    if (status >= 0) *out_ticket = ++device->ticket;
    return status;
}

tern_status cuda_wait(tern_backend_device *device, uint64_t ticket, uint64_t timeout_ns)
{
    look l = {.device = device, .ticket = ticket};
    pthread_mutex_lock(&device->lock);
    const uint64_t last = device->ticket;
    pthread_mutex_unlock(&device->lock);
    if (ticket > last)
        return tern_error(TERN_ERROR_INVALID, "%s: ticket %" PRIu64 " was never given; the last one is %" PRIu64,
                          device->base.info.name, ticket, last);
    return tern_plugin_wait(&device->base, ticket, ticket_look, &l, timeout_ns);
}

/* ------------------------------------------------------------------ drain */

tern_status cuda_drain_locked(tern_backend_device *device)
{
    look l = {.device = device, .event = device->transfer};
    const tern_status status = CU_CALL(device, cuEventRecord, device->transfer, device->stream);
    return status < 0 ? status : tern_plugin_finish(&device->base, event_look, &l);
}

tern_status cuda_drain(tern_backend_device *device)
{
    pthread_mutex_lock(&device->transfer_lock);
    const tern_status status = cuda_drain_locked(device);
    pthread_mutex_unlock(&device->transfer_lock);
    return status;
}
