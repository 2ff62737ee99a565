/* SPDX-License-Identifier: Apache-2.0 */
/* level_zero.h - inside the Level Zero plug-in: its objects, the loader's entries and how one is called.
 *
 *     driver.c   loader, entries, result codes, devices     device.c   what a device is, open and close
 *     queue.c    tickets, events, finite waits              buffer.c   USM memory, transfers
 *     spirv.c    OpenCL C to SPIR-V                         kernel.c   SPIR-V to modules, caches on disk
 *     program.c  steps recorded into command lists, replayed
 *
 * Nothing in Level Zero is ordered but by barriers and events, not even two lists of one queue; so every list begins
 * with a barrier, which makes the order of submission the order of execution. A device that has only immediate lists
 * gets a program's commands anew at each submission; all else is the same there.
 * Invariants: each driver call goes through ZE_CALL or ZE_RELEASE, so each result is looked at and named. No wait is
 * without an end: events are waited for in slices. */
#ifndef TERN_LEVEL_ZERO_LEVEL_ZERO_H
#define TERN_LEVEL_ZERO_LEVEL_ZERO_H

#include <level_zero/ze_api.h>

#include "core/base/plugin_device.h"
#include "core/base/status.h"

/* ------------------------------------------------------------------ driver.c */

typedef struct zero_loader {
#define SYMBOL(name) __typeof__(&name) name;
#include "backends/level_zero/symbols.def"
#undef SYMBOL
} zero_loader;
extern zero_loader tern_ze;

typedef struct zero_entry {
    ze_driver_handle_t driver;
    ze_device_handle_t device;
} zero_entry;

tern_status zero_load(void);
void zero_unload(void);
tern_status zero_device_count(uint32_t *out_count);
/* The index-th GPU of all drivers; TERN_ERROR_NOT_FOUND with the count. */
tern_status zero_entry_find(uint32_t index, zero_entry *out_entry);

/* `result` of `call` as a status with its sentence; latches a loss in `device` (NULL: none opened yet). */
tern_status zero_result(tern_backend_device *device, const char *call, ze_result_t result);
/* For calls that undo: logs a failure. */
void zero_released(const char *call, ze_result_t result);

#define ZE_CALL(device, name, ...) zero_result(device, #name, tern_ze.name(__VA_ARGS__))
#define ZE_RELEASE(name, object)                                                                                       \
    do {                                                                                                               \
        if (object) zero_released(#name, tern_ze.name(object));                                                        \
        (object) = NULL;                                                                                               \
    } while (0)

/* ------------------------------------------------------------------ device.c */

#define ZERO_RING          64u /* tickets that may be in flight; core has two */
#define ZERO_STAGING_BYTES ((size_t)4 << 20)

struct tern_backend_device {
    tern_plugin_device base; /* first, for plugin_device.h */
    zero_entry entry;
    ze_context_handle_t context;
    uint32_t ordinal;                   /* the queue group that computes */
    ze_command_queue_handle_t queue;    /* NULL: the device has only immediate lists */
    ze_command_list_handle_t immediate; /* transfers; without a queue, programs too */
    ze_event_pool_handle_t pool;
    bool timestamps;
    uint64_t plain_allocation_bytes;     /* maxMemAllocSize */
    uint64_t ns_per_tick_q32, tick_mask; /* of kernel timestamps: nanoseconds in 32.32 */
    uint64_t driver_hash;
    pthread_mutex_t lock;      /* guards the tickets, kernels' arguments, and keeps one program's commands together */
    uint64_t ticket, finished; /* last one given; all up to this one have ended */
    ze_event_handle_t ring[ZERO_RING]; /* of ticket t at t % RING: its program's, which ends before it is reset */
    pthread_mutex_t transfer_lock;     /* guards these */
    ze_event_handle_t transfer;
    void *staging; /* host USM, ZERO_STAGING_BYTES */
};

tern_status zero_device_info(uint32_t index, tern_device_info *out_info);
tern_status zero_device_notes(uint32_t index, char *out_text, size_t bytes);
tern_status zero_open(uint32_t index, const tern_open_options *options, tern_backend_device **out_device);
void zero_close(tern_backend_device *device);
/* Whether `what` may be given back to the driver now; nothing on the device uses it any more then. */
bool zero_may_release(tern_backend_device *device, const char *what);

/* ------------------------------------------------------------------- queue.c */

/* Events of the one pool of `count`, host visible. */
tern_status zero_pool_create(tern_backend_device *device, uint32_t count, bool timestamps,
                             ze_event_pool_handle_t *out_pool);
tern_status zero_event_create(tern_backend_device *device, ze_event_pool_handle_t pool, uint32_t index,
                              ze_event_handle_t *out_event);
/* Within the device's patience, after which it is lost. */
tern_status zero_event_finish(tern_backend_device *device, ze_event_handle_t event);
tern_status zero_wait(tern_backend_device *device, uint64_t ticket, uint64_t timeout_ns);
/* Both with the lock held: within the device's patience until the ticket has ended; the next ticket, for `event`. */
tern_status zero_ticket_finish(tern_backend_device *device, uint64_t ticket);
uint64_t zero_ticket_give(tern_backend_device *device, ze_event_handle_t event);
/* Everything submitted so far. */
tern_status zero_drain(tern_backend_device *device);
/* The same for commands that got no ticket, because a submission failed half way; with the lock held. */
tern_status zero_partial_finish(tern_backend_device *device);

/* ------------------------------------------------------------------ buffer.c */

struct tern_backend_buffer {
    tern_buffer_shape shape; /* first, for tern_step_check */
    char *address;           /* USM: of the device, or of the host for UPLOAD and READBACK */
};

tern_status zero_buffer_create(tern_backend_device *device, uint64_t bytes, tern_buffer_kind kind,
                               tern_backend_buffer **out_buffer);
void zero_buffer_destroy(tern_backend_device *device, tern_backend_buffer *buffer);
tern_status zero_buffer_write(tern_backend_device *device, tern_backend_buffer *buffer, uint64_t offset,
                              const void *data, uint64_t bytes);
tern_status zero_buffer_read(tern_backend_device *device, tern_backend_buffer *buffer, uint64_t offset, void *out_data,
                             uint64_t bytes);
/* Above the device's plain limit: kernels that get it need their form for that. */
bool zero_is_large(const tern_backend_device *device, const tern_backend_buffer *buffer);

/* --------------------------------------------------------- spirv.c, kernel.c */

/* Which compiler there is: "clang-14 and llvm-spirv-14"; TERN_ERROR_NOT_FOUND with what to install. */
tern_status zero_compiler_find(char *out_text, size_t bytes);
/* Whether it knows Intel's matrix instruction; only Intel's own does. */
bool zero_compiler_knows_dpas(void);
/* OpenCL C as SPIR-V 1.2; free() it. TERN_ERROR_KERNEL with the compiler's log. */
tern_status zero_spirv_compile(const char *label, const tern_source *source, char **out_spirv, size_t *out_bytes);

struct tern_backend_kernel {
    tern_kernel_shape shape;      /* first, for tern_step_check */
    ze_module_handle_t module[2]; /* [1]: for buffers above the allocation limit, made when one is bound */
    ze_kernel_handle_t kernel[2];
    char *spirv;
    size_t spirv_bytes;
    char entry[64];
    bool dpas; /* its text multiplies on matrix units: so must its binary */
};

tern_status zero_kernel_create(tern_backend_device *device, const tern_kernel_desc *desc,
                               tern_backend_kernel **out_kernel);
void zero_kernel_destroy(tern_backend_device *device, tern_backend_kernel *kernel);
/* The form for buffers above the allocation limit, or the plain one. */
tern_status zero_kernel_form(tern_backend_device *device, tern_backend_kernel *kernel, bool large,
                             ze_kernel_handle_t *out_kernel);

/* ----------------------------------------------------------------- program.c */

tern_status zero_program_create(tern_backend_device *device, const tern_program_desc *desc,
                                tern_backend_program **out_program);
void zero_program_destroy(tern_backend_device *device, tern_backend_program *program);
tern_status zero_program_submit(tern_backend_device *device, tern_backend_program *program, uint64_t *out_ticket);
tern_status zero_program_times(tern_backend_device *device, tern_backend_program *program, uint64_t *out_ns);
uint32_t zero_submission_count(tern_backend_device *device, tern_backend_program *program);

#endif
