/* SPDX-License-Identifier: Apache-2.0 */
/* plugin_device.h - what is the same of an opened device and of its buffers whatever the driver: who may use them,
 * loss, waiting with an end, counted bytes, transfers in pieces.
 *
 *     struct tern_backend_device { tern_plugin_device base; the driver's objects }
 *     struct tern_backend_buffer { tern_buffer_shape shape; the driver's memory }
 *
 *     entry ─ tern_plugin_enter ─ ... ─ the driver ─ work in flight ─ tern_plugin_finish ──> ended, or lost for good
 *
 * Functions that take a tern_backend_device or tern_backend_buffer rely on these first members.
 *
 * What it is not: it calls no driver; what a plug-in gives it to call does. Invariant: `lost` is never taken back, and
 * nothing that work which never ended may use is released (`hung`). */
#ifndef TERN_BASE_PLUGIN_DEVICE_H
#define TERN_BASE_PLUGIN_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "core/backend.h"
#include "core/base/step_check.h"

typedef struct tern_plugin_device {
    const char *api; /* "CUDA", for sentences */
    pid_t pid;       /* of the process that opened it */
    atomic_bool lost;
    atomic_bool hung;     /* work in flight never ended: whatever would wait for it, or it may use, is left alone */
    uint64_t patience_ns; /* how long the plug-in itself waits before it takes the device for lost */
    /* The same for waits for one ticket, counted over all of them; 0: their callers say how long. A program may run for
     * longer than anything that the plug-in waits for, so there is none unless the user names a patience. */
    uint64_t work_patience_ns, awaited, awaited_since_ns;
    _Atomic uint64_t allocated;
    tern_device_info info;
} tern_plugin_device;

/* TERN_ERROR_INVALID in a forked child, TERN_ERROR_DEVICE_LOST after a loss. Every entry starts with it. */
TERN_API TERN_MUST_USE tern_status tern_plugin_enter(const tern_plugin_device *device);
/* For entries that undo: may the driver be called for this device? Not in a forked child, nor where it would hang. */
TERN_API bool tern_plugin_may_release(const tern_plugin_device *device);

/* ------------------------------------------------------------------ waiting */

/* Fills both patiences: from the environment's variable (time.h), or `seconds` and none. */
TERN_API void tern_plugin_patience_read(tern_plugin_device *device, const char *variable, uint32_t seconds);

/* 1: ended, 0: not yet, negative: a status, its sentence set. */
typedef int (*tern_plugin_look)(void *context);

/* Looks with short sleeps between until it has ended; TERN_ERROR_TIMEOUT after timeout_ns. */
TERN_API TERN_MUST_USE tern_status tern_plugin_poll(const tern_plugin_device *device, tern_plugin_look look,
                                                    void *context, uint64_t timeout_ns);
/* The same within the device's patience; after that it is lost and hung, TERN_ERROR_DEVICE_LOST. */
TERN_API TERN_MUST_USE tern_status tern_plugin_finish(tern_plugin_device *device, tern_plugin_look look, void *context);

/* The entry wait, for a ticket that was given: poll, and DEVICE_LOST as above once work_patience_ns is used up. */
TERN_API TERN_MUST_USE tern_status tern_plugin_wait(tern_plugin_device *device, uint64_t ticket, tern_plugin_look look,
                                                    void *context, uint64_t timeout_ns);

/* `finish` after a failure that left work in flight; the failure's status and sentence stay. A lost device is left. */
TERN_API tern_status tern_plugin_finish_failed(tern_backend_device *device, tern_status status,
                                               tern_status (*finish)(tern_backend_device *device));

/* Whether program_times has something to tell: timestamps asked for at open, and a last ticket, 0: none. */
TERN_API TERN_MUST_USE tern_status tern_plugin_times_check(const tern_plugin_device *device, bool timestamps,
                                                           const char *program, uint64_t ticket);

/* The matrix shapes that shaders/dialect/opencl_matrix.h has words for, of a device with Intel's DPAS, in its smallest
 * sub-groups: 8 lanes on Arc A, 16 later, none of other sizes. */
TERN_API void tern_plugin_list_dpas(tern_device_info *info);

/* ------------------------------------------------------------------ buffers */

/* Checks and counts the bytes of a new buffer. TERN_ERROR_INVALID for none, TERN_ERROR_UNSUPPORTED above the device's
 * limit for one, TERN_ERROR_DEVICE_MEMORY for more device memory than there is: some drivers would give it, and move
 * it to the host and back. Nothing is counted then. */
TERN_API TERN_MUST_USE tern_status tern_plugin_buffer_take(tern_plugin_device *device, uint64_t bytes,
                                                           tern_buffer_kind kind, tern_buffer_shape *out_shape);
/* What take counted is no longer. */
TERN_API void tern_plugin_buffer_drop(tern_plugin_device *device, const tern_buffer_shape *shape);
/* The entry buffer_map: the shape's host address. TERN_ERROR_INVALID for a device buffer. */
TERN_API TERN_MUST_USE tern_status tern_plugin_buffer_map(tern_backend_device *device, tern_backend_buffer *buffer,
                                                          void **out_address);
/* The entry allocated_bytes. */
TERN_API uint64_t tern_plugin_allocated_bytes(tern_backend_device *device);

/* How a device buffer is reached: in pieces through host memory that the driver copies to and from. */
typedef struct tern_plugin_staging {
    char *memory;
    size_t bytes;
    pthread_mutex_t *lock; /* held while a piece is in the memory */
    /* Everything that was submitted has ended. */
    tern_status (*drain)(tern_backend_device *device);
    /* `bytes` between the start of the memory and `offset` of the buffer, to the end. */
    tern_status (*move)(tern_backend_device *device, tern_backend_buffer *buffer, uint64_t offset, size_t bytes,
                        bool to_device);
} tern_plugin_staging;

/* buffer_read (read_to) or buffer_write (write_from) of [offset, offset + bytes), after everything that was submitted;
 * TERN_ERROR_INVALID outside the buffer. */
TERN_API TERN_MUST_USE tern_status tern_plugin_transfer(tern_backend_device *device, tern_backend_buffer *buffer,
                                                        const tern_plugin_staging *staging, uint64_t offset,
                                                        void *read_to, const void *write_from, uint64_t bytes);

#endif
