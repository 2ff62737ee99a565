/* SPDX-License-Identifier: Apache-2.0 */
/* opencl.h - inside the OpenCL plug-in: objects, the symbol table and how a driver call is made.
 *
 *     driver.c  library, symbols, platforms, error codes      device.c  what a device is and can do
 *     queue.c   tickets, events, finite waits                 buffer.c  memory
 *     kernel.c  text to cl_program   cache.c  on disk         program.c recorded steps
 *
 * Needs OpenCL 1.2 and nothing else; whatever is newer is probed. One in-order queue per device, so that the order of
 * submission is the order of execution and waits between steps cost nothing.
 * Invariants: every driver call goes through CL_CALL, CL_MAKE or CL_RELEASE, so each result is looked at, each object
 * is counted and each call can be made to fail. No call blocks inside the driver without an end: events are polled. */
#ifndef TERN_OPENCL_H
#define TERN_OPENCL_H

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <CL/cl_ext.h>

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "core/backend.h"
#include "core/base/status.h"
#include "core/base/step_check.h"

/* ------------------------------------------------------------------ driver.c */

typedef struct tern_opencl_symbols {
#define SYMBOL(name, runs, object) __typeof__(&name) name;
#include "backends/opencl/symbols.def"
#undef SYMBOL
} tern_opencl_symbols;
extern tern_opencl_symbols tern_cl;

typedef enum tern_opencl_call {
#define SYMBOL(name, runs, object) TERN_CALL_##name,
#include "backends/opencl/symbols.def"
#undef SYMBOL
    TERN_CALL_COUNT
} tern_opencl_call;

#define TERN_OPENCL_DEVICES 64
typedef struct tern_opencl_entry {
    cl_platform_id platform;
    cl_device_id device;
} tern_opencl_entry;

tern_status tern_opencl_load(void);
void tern_opencl_unload(void);
tern_status tern_opencl_device_count(uint32_t *out_count);
/* The index-th device; TERN_ERROR_NOT_FOUND with the count. */
tern_status tern_opencl_entry_find(uint32_t index, tern_opencl_entry *out_entry);

/* Counts a driver call; true when it is the one to fail. */
bool tern_opencl_fault(tern_opencl_call call);
/* Starts counting anew, with what TERN_OPENCL_FAIL_CALL says now. */
void tern_opencl_fault_reset(void);
/* `code` as a status with its sentence; latches a loss in `device` (NULL: none opened yet). */
tern_status tern_opencl_result(tern_backend_device *device, tern_opencl_call call, cl_int code);
/* The same for a call that made `object`, counting it. */
tern_status tern_opencl_made(tern_backend_device *device, tern_opencl_call call, const void *object, cl_int code);
void tern_opencl_released(tern_opencl_call call, cl_int code);
/* Objects that come out of enqueues (events), which no CL_MAKE sees. */
void tern_opencl_object_add(int64_t count);
void tern_opencl_built(bool from_cache);

#define CL_CALL(device, name, ...)                                                                                     \
    tern_opencl_result(device, TERN_CALL_##name,                                                                       \
                       tern_opencl_fault(TERN_CALL_##name) ? CL_OUT_OF_RESOURCES : tern_cl.name(__VA_ARGS__))
/* Needs a local `cl_int code`; *out is NULL when it fails. */
#define CL_MAKE(device, out, name, ...)                                                                                \
    (tern_opencl_fault(TERN_CALL_##name) ? (void)(*(out) = NULL, code = CL_OUT_OF_RESOURCES)                           \
                                         : (void)(*(out) = tern_cl.name(__VA_ARGS__, &code)),                          \
     tern_opencl_made(device, TERN_CALL_##name, (const void *)*(out), code))
#define CL_RELEASE(name, object)                                                                                       \
    do {                                                                                                               \
        if (object) tern_opencl_released(TERN_CALL_##name, tern_cl.name(object));                                      \
        (object) = NULL;                                                                                               \
    } while (0)

/* ------------------------------------------------------------------ device.c */

#define TERN_OPENCL_RING 64 /* submissions whose event is kept; core has two in flight */

struct tern_backend_device {
    pid_t pid; /* of the process that opened it */
    atomic_bool lost;
    cl_device_id id;
    cl_context context;
    cl_command_queue queue;
    bool timestamps;
    tern_device_info info;
    size_t max_item_sizes[3];
    char build_options[96];
    uint64_t driver_hash; /* of everything besides the text that a binary depends on */
    _Atomic uint64_t allocated;
    pthread_mutex_t lock;            /* guards what follows and keeps one program's enqueues together */
    uint64_t ticket;                 /* last one given */
    cl_event ring[TERN_OPENCL_RING]; /* of ticket t at t % RING; NULL: finished */
};

tern_status tern_opencl_device_info(uint32_t index, tern_device_info *out_info);
tern_status tern_opencl_device_notes(uint32_t index, char *out_text, size_t bytes);
tern_status tern_opencl_open(uint32_t index, const tern_open_options *options, tern_backend_device **out_device);
void tern_opencl_close(tern_backend_device *device);
/* TERN_ERROR_INVALID in a forked child, TERN_ERROR_DEVICE_LOST after a loss. Every entry starts with it. */
tern_status tern_opencl_enter(tern_backend_device *device);
/* False in a forked child, where the driver's threads do not exist and no call may be made. */
bool tern_opencl_is_own(const tern_backend_device *device);

/* ------------------------------------------------------------------- queue.c */

/* How long the plug-in itself waits (destroy, close, blocking transfers) before it calls the device lost. */
#define TERN_OPENCL_PATIENCE_NS (120ull * 1000000000ull)
/* And how long for a device that is already lost, per wait. */
#define TERN_OPENCL_LOST_PATIENCE_NS (2ull * 1000000000ull)

/* Polls until the event is complete. A negative execution status is a loss. */
tern_status tern_opencl_event_wait(tern_backend_device *device, cl_event event, uint64_t timeout_ns);
/* Waits for an event of a blocking transfer; no end within the patience is a loss. Releases the event. */
tern_status tern_opencl_event_finish(tern_backend_device *device, cl_event *event);
tern_status tern_opencl_wait(tern_backend_device *device, uint64_t ticket, uint64_t timeout_ns);
/* Everything submitted so far. */
tern_status tern_opencl_drain(tern_backend_device *device);
/* Both with the lock held. Makes room for the next ticket before anything is enqueued for it; then gives it to `event`,
 * which the ring takes over. */
tern_status tern_opencl_ticket_prepare(tern_backend_device *device);
uint64_t tern_opencl_ticket_give(tern_backend_device *device, cl_event event);

/* ------------------------------------------------------------------ buffer.c */

struct tern_backend_buffer {
    cl_mem memory;
    char *address; /* UPLOAD, READBACK: mapped for life; NULL for DEVICE */
    uint64_t bytes;
    tern_buffer_kind kind;
};

tern_status tern_opencl_buffer_create(tern_backend_device *device, uint64_t bytes, tern_buffer_kind kind,
                                      tern_backend_buffer **out_buffer);
void tern_opencl_buffer_destroy(tern_backend_device *device, tern_backend_buffer *buffer);
tern_status tern_opencl_buffer_write(tern_backend_device *device, tern_backend_buffer *buffer, uint64_t offset,
                                     const void *data, uint64_t bytes);
tern_status tern_opencl_buffer_read(tern_backend_device *device, tern_backend_buffer *buffer, uint64_t offset,
                                    void *out_data, uint64_t bytes);
tern_status tern_opencl_buffer_map(tern_backend_device *device, tern_backend_buffer *buffer, void **out_address);
uint64_t tern_opencl_allocated_bytes(tern_backend_device *device);

/* --------------------------------------------------------- kernel.c, cache.c */

struct tern_backend_kernel {
    tern_kernel_shape shape;
    cl_program program;
    char entry[64];
};

tern_status tern_opencl_kernel_create(tern_backend_device *device, const tern_kernel_desc *desc,
                                      tern_backend_kernel **out_kernel);
void tern_opencl_kernel_destroy(tern_backend_device *device, tern_backend_kernel *kernel);
/* What the binary of this text is filed under. */
uint64_t tern_opencl_cache_key(const tern_backend_device *device, const tern_source *source);
/* A built program, or NULL when there is none that is whole and that the driver takes. Sets no error. */
cl_program tern_opencl_cache_load(tern_backend_device *device, uint64_t key);
/* Best effort: a cache that cannot be written costs time, not correctness. */
void tern_opencl_cache_store(tern_backend_device *device, uint64_t key, cl_program program);

/* ----------------------------------------------------------------- program.c */

tern_status tern_opencl_program_create(tern_backend_device *device, const tern_program_desc *desc,
                                       tern_backend_program **out_program);
void tern_opencl_program_destroy(tern_backend_device *device, tern_backend_program *program);
tern_status tern_opencl_program_submit(tern_backend_device *device, tern_backend_program *program,
                                       uint64_t *out_ticket);
tern_status tern_opencl_program_times(tern_backend_device *device, tern_backend_program *program, uint64_t *out_ns);
uint32_t tern_opencl_submission_count(tern_backend_device *device, tern_backend_program *program);

#endif
