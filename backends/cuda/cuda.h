/* SPDX-License-Identifier: Apache-2.0 */
/* cuda.h - inside the CUDA plug-in: its objects, the driver's entries and how one is called.
 *
 *     driver.c    library, entries, error codes         device.c   what a card is, its context, open and close
 *     queue.c     tickets, events, finite waits         buffer.c   device and pinned memory
 *     compiler.c  NVRTC: which one, text to cubin       kernel.c   cubin to function, cache on disk
 *     program.c   steps become graphs, replayed
 *
 * The driver's interface (libcuda) alone, opened at run time: no CUDA runtime, no toolkit at build time; only the
 * compiler, NVRTC, comes from a toolkit. cuBLASLt is not used.
 * Each device has one stream, so that submissions run in the order of their tickets; inside one, a graph runs whatever
 * its steps' waits allow side by side. It uses the card's primary context, as the CUDA runtime does.
 * Invariants: each driver call goes through CU_CALL or CU_RELEASE, so each result is looked at and named. Nothing waits
 * inside the driver: events are polled. */
#ifndef TERN_CUDA_CUDA_H
#define TERN_CUDA_CUDA_H

#include "backends/cuda/abi.h"
#include "core/base/plugin_device.h"
#include "core/base/status.h"

/* ------------------------------------------------------------------ driver.c */

typedef struct cuda_driver {
    CUresult (*cuInit)(unsigned flags);
#define SYMBOL(name, suffix, parameters) CUresult(*name) parameters;
#include "backends/cuda/symbols.def"
#undef SYMBOL
} cuda_driver;
extern cuda_driver tern_cu;

tern_status cuda_load(void);
void cuda_unload(void);
tern_status cuda_device_count(uint32_t *out_count);
/* The driver's handle of the index-th device; TERN_ERROR_NOT_FOUND with the count. */
tern_status cuda_device_find(uint32_t index, CUdevice *out_device);
/* CUDA's version that the driver implements: 13000 is 13.0. */
int cuda_driver_version(void);

/* `code` of `call` as a status with its sentence; latches a loss in `device` (NULL: none opened yet). */
tern_status cuda_result(tern_backend_device *device, const char *call, CUresult code);
/* For calls that undo: logs a failure. */
void cuda_released(const char *call, CUresult code);

#define CU_CALL(device, name, ...) cuda_result(device, #name, tern_cu.name(__VA_ARGS__))
#define CU_RELEASE(name, object)                                                                                       \
    do {                                                                                                               \
        if (object) cuda_released(#name, tern_cu.name(object));                                                        \
        (object) = 0;                                                                                                  \
    } while (0)

/* ------------------------------------------------------------------ device.c */

#define CUDA_RING          64u /* submissions whose event is kept; core has two in flight */
#define CUDA_STAGING_BYTES ((size_t)4 << 20)

struct tern_backend_device {
    tern_plugin_device base; /* first, for plugin_device.h */
    CUdevice id;
    CUcontext context;
    CUstream stream;
    bool timestamps;
    char architecture[16]; /* "sm_89" */
    uint64_t compiler_hash;
    pthread_mutex_t lock;          /* guards the tickets, and keeps one program's launches together */
    uint64_t ticket, finished;     /* last one given; all up to this one have ended */
    CUevent ring[CUDA_RING];       /* of ticket t at t % RING */
    pthread_mutex_t transfer_lock; /* guards these */
    CUevent transfer;
    void *staging; /* pinned, CUDA_STAGING_BYTES */
};

tern_status cuda_device_info(uint32_t index, tern_device_info *out_info);
tern_status cuda_device_notes(uint32_t index, char *out_text, size_t bytes);
tern_status cuda_open(uint32_t index, const tern_open_options *options, tern_backend_device **out_device);
void cuda_close(tern_backend_device *device);
/* tern_plugin_enter, and the device's context is this thread's; *out_former is the one that was, for leave. Every entry
 * is between the two (cuda.c), since the context belongs to the thread's other users too. */
tern_status cuda_enter(tern_backend_device *device, CUcontext *out_former);
void cuda_leave(tern_backend_device *device, CUcontext former);
/* Enter for what undoes: also a lost device's context; nothing in a forked child, and where calls would hang. */
void cuda_enter_to_release(tern_backend_device *device, CUcontext *out_former);
/* Whether `what` may be given back to the driver now; nothing on the device uses it any more then. */
bool cuda_may_release(tern_backend_device *device, const char *what);

/* ------------------------------------------------------------------- queue.c */

tern_status cuda_wait(tern_backend_device *device, uint64_t ticket, uint64_t timeout_ns);
/* Until everything on the stream has ended, within the device's patience; else the device is lost. */
tern_status cuda_drain(tern_backend_device *device);
/* The same with transfer_lock held. */
tern_status cuda_drain_locked(tern_backend_device *device);
/* Both with the lock held: makes sure that the next ticket's event is free; records it and gives the ticket. */
tern_status cuda_ticket_prepare(tern_backend_device *device);
tern_status cuda_ticket_give(tern_backend_device *device, uint64_t *out_ticket);

/* ------------------------------------------------------------------ buffer.c */

struct tern_backend_buffer {
    tern_buffer_shape shape; /* first, for tern_step_check */
    CUdeviceptr address;     /* DEVICE */
};

tern_status cuda_buffer_create(tern_backend_device *device, uint64_t bytes, tern_buffer_kind kind,
                               tern_backend_buffer **out_buffer);
void cuda_buffer_destroy(tern_backend_device *device, tern_backend_buffer *buffer);
/* buffer_read with read_to, buffer_write with write_from; the other NULL. */
tern_status cuda_buffer_transfer(tern_backend_device *device, tern_backend_buffer *buffer, uint64_t offset,
                                 void *read_to, const void *write_from, uint64_t bytes);

/* ------------------------------------------------------ compiler.c, kernel.c */

/* Finds the newest NVRTC that knows the architecture ("sm_89"), and of those one that is not newer than the driver
 * where there is one. TERN_ERROR_NOT_FOUND with what was found instead. out_hash covers its version and, since a
 * patch of it has the same one, its file. */
tern_status cuda_compiler_find(const char *architecture, uint64_t *out_hash);
/* "NVRTC 13.0 (/usr/local/...)", after a find. */
void cuda_compiler_describe(const char *architecture, char *out_text, size_t bytes);
/* The text as a cubin for that architecture; free() it. TERN_ERROR_KERNEL with the compiler's log. */
tern_status cuda_compile(const char *architecture, const char *label, const char *text, char **out_cubin,
                         size_t *out_bytes);

struct tern_backend_kernel {
    tern_kernel_shape shape; /* first, for tern_step_check */
    CUmodule module;
    CUfunction function;
};

tern_status cuda_kernel_create(tern_backend_device *device, const tern_kernel_desc *desc,
                               tern_backend_kernel **out_kernel);
void cuda_kernel_destroy(tern_backend_device *device, tern_backend_kernel *kernel);

/* ----------------------------------------------------------------- program.c */

tern_status cuda_program_create(tern_backend_device *device, const tern_program_desc *desc,
                                tern_backend_program **out_program);
void cuda_program_destroy(tern_backend_device *device, tern_backend_program *program);
tern_status cuda_program_submit(tern_backend_device *device, tern_backend_program *program, uint64_t *out_ticket);
tern_status cuda_program_times(tern_backend_device *device, tern_backend_program *program, uint64_t *out_ns);
uint32_t cuda_submission_count(tern_backend_device *device, tern_backend_program *program);

#endif
