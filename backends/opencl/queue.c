/* SPDX-License-Identifier: Apache-2.0 */
/* queue.c - tickets and finite waits over one in-order queue.
 *
 *     submit ──> ticket t, event of its last command in ring[t % RING] ──> wait polls it ──> slot emptied
 *
 * clFinish and clWaitForEvents have no timeout, and a driver that lost its device may never return from them; so an
 * event's status is polled with short sleeps. Invariant: an empty slot means that its ticket is finished. */
#include "backends/opencl/opencl.h"

#include <inttypes.h>

#include "core/base/time.h"

tern_status tern_opencl_event_wait(tern_backend_device *device, cl_event event, uint64_t timeout_ns)
{
    const uint64_t start = tern_time_ns();
    for (;;) {
        cl_int state = CL_QUEUED;
        const tern_status status =
            CL_CALL(device, clGetEventInfo, event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL);
        if (status < 0) return status;
        if (state == CL_COMPLETE) return TERN_OK;
        if (state < 0) {
            atomic_store(&device->lost, true);
            return tern_error(TERN_ERROR_DEVICE_LOST,
                              "%s: a command ended with OpenCL error %d and what it wrote is unknown; "
                              "look for a reset in `dmesg`, then open the device again",
                              device->info.name, (int)state);
        }
        const uint64_t waited = tern_time_ns() - start;
        if (waited >= timeout_ns)
            return tern_error(TERN_ERROR_TIMEOUT, "%s: still running after %.3f s", device->info.name,
                              (double)waited * 1e-9);
        tern_poll_sleep(waited);
    }
}

/* A lost device gets a short patience: enough for a driver that still works to let go of the caller's memory. */
static uint64_t patience(const tern_backend_device *device)
{
    return atomic_load(&device->lost) ? TERN_OPENCL_LOST_PATIENCE_NS : TERN_OPENCL_PATIENCE_NS;
}

tern_status tern_opencl_event_finish(tern_backend_device *device, cl_event *event)
{
    tern_opencl_object_add(1);
    tern_status status = CL_CALL(device, clFlush, device->queue);
    tern_status waited = tern_opencl_event_wait(device, *event, patience(device));
    if (waited == TERN_ERROR_TIMEOUT) {
        atomic_store(&device->lost, true);
        waited = tern_error(TERN_ERROR_DEVICE_LOST,
                            "%s: a transfer made no progress for %d s; the device is taken for lost, "
                            "open it again",
                            device->info.name, (int)(TERN_OPENCL_PATIENCE_NS / 1000000000u));
    } else if (waited < 0) { /* asking failed; the command may still use the caller's memory */
        (void)tern_opencl_event_wait(device, *event, TERN_OPENCL_LOST_PATIENCE_NS);
    }
    CL_RELEASE(clReleaseEvent, *event);
    return status < 0 ? status : waited;
}

/* Holds the lock. Empties a slot whose event is complete, or waits for it. */
static tern_status slot_finish(tern_backend_device *device, uint64_t ticket)
{
    cl_event *slot = &device->ring[ticket % TERN_OPENCL_RING];
    if (!*slot) return TERN_OK;
    const tern_status status = tern_opencl_event_wait(device, *slot, patience(device));
    if (status >= 0 || atomic_load(&device->lost)) CL_RELEASE(clReleaseEvent, *slot);
    return status;
}

tern_status tern_opencl_ticket_prepare(tern_backend_device *device) { return slot_finish(device, device->ticket + 1); }

uint64_t tern_opencl_ticket_give(tern_backend_device *device, cl_event event)
{
    tern_opencl_object_add(1);
    device->ring[++device->ticket % TERN_OPENCL_RING] = event;
    return device->ticket;
}

/* The event of a ticket with a reference of the caller's own, so that polling needs no lock; NULL: finished. */
static tern_status ticket_event(tern_backend_device *device, uint64_t ticket, cl_event *out_event)
{
    tern_status status = TERN_OK;
    *out_event = NULL;
    pthread_mutex_lock(&device->lock);
    if (ticket == 0)
        status = TERN_OK; /* no ticket */
    else if (ticket > device->ticket)
        status = tern_error(TERN_ERROR_INVALID, "%s: ticket %" PRIu64 " was never given; the last one is %" PRIu64,
                            device->info.name, ticket, device->ticket);
    else if (ticket + TERN_OPENCL_RING > device->ticket && device->ring[ticket % TERN_OPENCL_RING]) {
        cl_event event = device->ring[ticket % TERN_OPENCL_RING];
        status = CL_CALL(device, clRetainEvent, event);
        if (status >= 0) {
            tern_opencl_object_add(1);
            *out_event = event;
        }
    }
    pthread_mutex_unlock(&device->lock);
    return status;
}

tern_status tern_opencl_wait(tern_backend_device *device, uint64_t ticket, uint64_t timeout_ns)
{
    cl_event event = NULL;
    tern_status status;
    TERN_TRY(tern_opencl_enter(device));
    TERN_TRY(ticket_event(device, ticket, &event));
    if (!event) return TERN_OK;
    status = tern_opencl_event_wait(device, event, timeout_ns);
    if (status == TERN_ERROR_TIMEOUT) tern_error_prefix(status, "ticket %" PRIu64, ticket);
    pthread_mutex_lock(&device->lock);
    cl_event *slot = &device->ring[ticket % TERN_OPENCL_RING];
    if (status >= 0 && *slot == event) CL_RELEASE(clReleaseEvent, *slot);
    pthread_mutex_unlock(&device->lock);
    CL_RELEASE(clReleaseEvent, event);
fail:
    return status;
}

tern_status tern_opencl_drain(tern_backend_device *device)
{
    tern_status status = TERN_OK;
    pthread_mutex_lock(&device->lock);
    const uint64_t last = device->ticket, first = last < TERN_OPENCL_RING ? 1 : last - TERN_OPENCL_RING + 1;
    for (uint64_t ticket = first; ticket <= last; ticket++) {
        const tern_status slot = slot_finish(device, ticket);
        if (slot < 0) status = slot;
        if (slot == TERN_ERROR_TIMEOUT) break;
    }
    pthread_mutex_unlock(&device->lock);
    return status;
}
