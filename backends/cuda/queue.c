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

#include "core/base/time.h"

/* 1: ended, 0: not yet, negative: a status. */
static int query(tern_backend_device *device, CUevent event)
{
    const CUresult code = tern_cu.cuEventQuery(event);
    if (code == CUDA_ERROR_NOT_READY) return 0;
    const tern_status status = cuda_result(device, "cuEventQuery", code);
    return status < 0 ? (int)status : 1;
}

/* Work that does not end within the plug-in's patience: the device is of no use any more, and nothing that waits for it
 * inside the driver may be called. */
static tern_status give_up(tern_backend_device *device)
{
    atomic_store(&device->hung, true);
    atomic_store(&device->lost, true);
    return tern_error(TERN_ERROR_DEVICE_LOST,
                      "%s: no progress for %.0f s; the device is taken for lost, open it again (nvidia-smi and dmesg "
                      "say more)",
                      device->info.name, (double)device->patience_ns * 1e-9);
}

/* ------------------------------------------------------------------ tickets */

/* With the lock held: whether the ticket has ended. */
static int ticket_query(tern_backend_device *device, uint64_t ticket)
{
    if (ticket <= device->finished || ticket + CUDA_RING <= device->ticket) return 1;
    const int ended = query(device, device->ring[ticket % CUDA_RING]);
    if (ended > 0) device->finished = ticket;
    return ended;
}

tern_status cuda_ticket_prepare(tern_backend_device *device)
{
    const uint64_t next = device->ticket + 1, start = tern_time_ns();
    if (next <= CUDA_RING) return TERN_OK;
    for (;;) {
        const uint64_t former = next - CUDA_RING;
        const int ended = former <= device->finished ? 1 : query(device, device->ring[former % CUDA_RING]);
        if (ended < 0) return (tern_status)ended;
        if (ended > 0) return TERN_OK;
        const uint64_t waited = tern_time_ns() - start;
        if (waited >= device->patience_ns) return give_up(device);
        tern_poll_sleep(waited);
    }
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
    tern_status status;
    const uint64_t start = tern_time_ns();
    TERN_TRY(cuda_enter(device));
    for (;;) {
        pthread_mutex_lock(&device->lock);
        const uint64_t last = device->ticket;
        const int ended = ticket > last ? 0 : ticket_query(device, ticket);
        pthread_mutex_unlock(&device->lock);
        if (ticket > last)
            return tern_error(TERN_ERROR_INVALID, "%s: ticket %" PRIu64 " was never given; the last one is %" PRIu64,
                              device->info.name, ticket, last);
        if (ended != 0) return ended < 0 ? (tern_status)ended : TERN_OK;
        const uint64_t waited = tern_time_ns() - start;
        if (waited >= timeout_ns)
            return tern_error(TERN_ERROR_TIMEOUT, "ticket %" PRIu64 ": %s: still running after %.3f s", ticket,
                              device->info.name, (double)waited * 1e-9);
        tern_poll_sleep(waited);
    }
fail:
    return status;
}

/* ------------------------------------------------------------------ drain */

tern_status cuda_drain_locked(tern_backend_device *device)
{
    tern_status status;
    const uint64_t start = tern_time_ns();
    TERN_TRY(CU_CALL(device, cuEventRecord, device->transfer, device->stream));
    for (;;) {
        const int ended = query(device, device->transfer);
        if (ended != 0) return ended < 0 ? (tern_status)ended : TERN_OK;
        const uint64_t waited = tern_time_ns() - start;
        if (waited >= device->patience_ns) return give_up(device);
        tern_poll_sleep(waited);
    }
fail:
    return status;
}

tern_status cuda_drain(tern_backend_device *device)
{
    pthread_mutex_lock(&device->transfer_lock);
    const tern_status status = cuda_drain_locked(device);
    pthread_mutex_unlock(&device->transfer_lock);
    return status;
}
