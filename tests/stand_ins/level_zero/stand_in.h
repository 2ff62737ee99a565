/* SPDX-License-Identifier: Apache-2.0 */
/* stand_in.h - the pieces of the Level Zero stand-in and what they ask of each other.
 *
 *     tables.c     the tables that the loader asks for <- entries.def
 *     faults.c     every entry begins here: one lock, call counter, failures on demand, complaints
 *     object.c     what a handle points to; live counts; handles used after destroy
 *     device.c     driver, devices and their limits, contexts
 *     memory.c     allocations: guarded, poisoned, closed to the host
 *     spirv.c      what a module says about its kernels        translate.c  SPIR-V to LLVM bitcode, cached
 *     flow.c       a module's control flow as PoCL compiles it rightly
 *     module.c     modules and kernels on OpenCL
 *     list.c       command lists: recording, with what may be recorded
 *     queue.c      queues: when and in which order commands run; waits
 *     sync.c       fences, events, timestamps
 *
 * Invariants: an entry point holds the one lock from its first line to its last (waits give it away while they sleep);
 * an object once destroyed is never given out again, so that a stale handle is always told. */
#ifndef TERN_TESTS_STAND_INS_LEVEL_ZERO_STAND_IN_H
#define TERN_TESTS_STAND_INS_LEVEL_ZERO_STAND_IN_H

#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <level_zero/ze_api.h>
#include <stdbool.h>
#include <stdint.h>

#include "tests/stand_ins/level_zero/control.h"
#include "tests/stand_ins/level_zero/spirv.h"

#define STANDIN_OK          ZE_RESULT_SUCCESS
#define STANDIN_MAX_DEVICES 8u
#define STANDIN_MAX_VALUE   256u /* bytes of an argument by value */
#define STANDIN_MAX_PATTERN 16u  /* bytes of a fill's pattern */
#define STANDIN_GROUPS      2u   /* queue groups: 0 computes and copies, 1 copies */

/* ----------------------------------------------------------------- entries */

/* Defines an entry point; entries.def puts it into its table. */
#define ENTRY(name) ze_result_t standin_##name
/* The first line of an entry that does something, and the last one of an entry that destroys. */
#define ENTER(name)                                                                                                    \
    STANDIN_HOLD;                                                                                                      \
    const ze_result_t injected_ = standin_enter(#name);                                                                \
    if (injected_) return injected_
#define LEAVE(name) return standin_enter(#name)
/* The one lock, recursive, until the end of the block. */
#define STANDIN_HOLD __attribute__((cleanup(standin_unlock))) const int hold_ = standin_lock()
/* Finds the object that a handle names, or leaves the entry. */
#define FIND(type, variable, handle, kind)                                                                             \
    type *const variable = standin_find(handle, kind);                                                                 \
    if (!variable) return ZE_RESULT_ERROR_INVALID_NULL_HANDLE
#define NEED(pointer)                                                                                                  \
    if (!(pointer)) return standin_complain(ZE_RESULT_ERROR_INVALID_NULL_POINTER, "%s: " #pointer " is NULL", __func__)

#define TABLE(group, type, calls) calls
#define CALL(group, name)         __typeof__(ze##group##name) standin_ze##group##name;
#include "tests/stand_ins/level_zero/entries.def"
#undef TABLE
#undef CALL

int standin_lock(void);
void standin_unlock(const int *hold);
void standin_sleep(void); /* gives the lock away for a moment */
ze_result_t standin_enter(const char *name);
/* Counts and prints what the host did wrong; returns result. */
ze_result_t standin_complain(ze_result_t result, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* TERN_STANDIN_ZE_<name>, or the other value; read anew each time, so that a test may change it. */
const char *standin_setting(const char *name, const char *other);
uint64_t standin_number(const char *name, uint64_t other);

/* ----------------------------------------------------------------- objects */

typedef enum standin_kind {
    STANDIN_DEAD = 0,
    STANDIN_CONTEXT,
    STANDIN_MEMORY,
    STANDIN_MODULE,
    STANDIN_LOG,
    STANDIN_KERNEL,
    STANDIN_LIST,
    STANDIN_QUEUE,
    STANDIN_FENCE,
    STANDIN_POOL,
    STANDIN_EVENT,
    STANDIN_KINDS
} standin_kind;

typedef struct standin_object standin_object;
struct standin_object {
    standin_kind kind;
    uint32_t children;      /* that must be destroyed before it */
    standin_object *parent; /* NULL: none */
    standin_object *grave;  /* the one destroyed before it */
};

/* Zeroed, counted; NULL when there is no memory. The object is the struct's first member. */
void *standin_create(standin_kind kind, size_t bytes, void *parent);
/* Complains about another kind, a destroyed object and NULL. */
void *standin_find(const void *handle, standin_kind kind);
/* False, with a complaint, while children live. */
bool standin_may_destroy(const standin_object *object, const char *name);
void standin_destroy(void *object);

/* ------------------------------------------------------------------ device */

typedef struct standin_device {
    uint32_t index;
} standin_device;

typedef struct standin_context {
    standin_object object;
} standin_context;

/* The OpenCL device below; all NULL until standin_device_start. */
typedef struct standin_opencl {
    cl_context context;
    cl_device_id device;
    cl_command_queue queue;
    bool takes_spirv, f16;
    size_t max_group;
    uint64_t shared_bytes;
} standin_opencl;

extern standin_opencl standin_cl;
ze_result_t standin_device_start(void);
standin_device *standin_device_find(ze_device_handle_t handle); /* complains */
uint64_t standin_device_ticks(void);

/* ------------------------------------------------------------------ memory */

typedef struct standin_memory standin_memory;
struct standin_memory {
    standin_object object;
    unsigned char *data, *mapping;
    size_t bytes, mapping_bytes;
    ze_memory_type_t type;
    const standin_device *device; /* NULL: host */
    uint64_t id;
    standin_memory *next;
};

standin_memory *standin_memory_of(const void *address); /* NULL: none */
void standin_memory_open(bool open);                    /* device memory, to the CPU that plays the device */
/* What lies at [address, address + bytes) may be used by the device: an allocation, whole, of its own or of the host.
 */
ze_result_t standin_memory_check(const standin_device *device, const void *address, size_t bytes, const char *what);

/* ----------------------------------------------------------------- modules */

typedef struct standin_log {
    standin_object object;
    char *text;
} standin_log;

typedef struct standin_module {
    standin_object object;
    const standin_device *device;
    cl_program program;
    standin_spirv spirv;
    unsigned char *code; /* the SPIR-V, for the native binary */
    size_t code_bytes;
    bool large; /* built for buffers above 4 GiB */
} standin_module;

typedef struct standin_value {
    bool set;
    size_t bytes;
    uint64_t memory_id; /* of a pointer's allocation */
    unsigned char data[STANDIN_MAX_VALUE];
} standin_value;

typedef struct standin_kernel {
    standin_object object;
    standin_module *module;
    const standin_spirv_kernel *info;
    cl_kernel kernel;
    uint32_t group[3];
    standin_value *values; /* info->argument_count */
} standin_kernel;

/* A checked module, rewritten for PoCL; free() it. False: no memory. */
bool standin_flow_prepare(const void *code, size_t bytes, uint32_t **out_words, size_t *out_bytes);
/* SPIR-V as LLVM bitcode; free() it. False: *out_log (never NULL, free() it) says why. */
bool standin_translate(const void *code, size_t bytes, unsigned char **out_code, size_t *out_bytes, char **out_log);
/* Runs on the OpenCL device, memory open. False, with a complaint, if it cannot. */
bool standin_kernel_run(const standin_kernel *kernel, const standin_value *values, const standin_device *device,
                        const uint32_t group[3], const ze_group_count_t *groups);

/* ------------------------------------------------------------------ commands */

typedef struct standin_event standin_event;
typedef struct standin_fence standin_fence;
typedef struct standin_list standin_list;

typedef enum standin_op {
    STANDIN_LAUNCH,
    STANDIN_COPY,
    STANDIN_FILL,
    STANDIN_SIGNAL,
    STANDIN_RESET,
    STANDIN_WAIT,    /* holds back what comes after it */
    STANDIN_BARRIER, /* waits for all before it and holds back what comes after it */
    STANDIN_FENCED   /* waits for all before it; its fence is signalled */
} standin_op;

typedef struct standin_command {
    standin_op op;
    standin_kernel *kernel; /* LAUNCH, with group, arguments and counts of the time when it was appended */
    standin_value *values;
    uint32_t group[3];
    ze_group_count_t groups;
    unsigned char *target; /* COPY, FILL */
    const unsigned char *source;
    uint64_t target_id, source_id;
    size_t bytes, pattern_bytes;
    unsigned char pattern[STANDIN_MAX_PATTERN];
    standin_event *signal; /* NULL: none */
    standin_event **waits;
    uint32_t wait_count;
    standin_fence *fence; /* FENCED */
} standin_command;

/* A submitted command: a list's own, which stays in the list. */
typedef struct standin_entry {
    const standin_command *command;
    standin_list *list; /* whose `pending` counts it; NULL: the queue's own */
    bool done;
} standin_entry;

typedef struct standin_queue standin_queue;
struct standin_queue {
    standin_object object;
    const standin_device *device;
    uint32_t group;
    bool synchronous;
    standin_entry *entries;
    size_t head, count, capacity; /* [head, count) are not all done */
    standin_queue *next;
};

struct standin_list {
    standin_object object;
    const standin_device *device;
    uint32_t group;
    bool closed;
    standin_queue *queue; /* an immediate list's own */
    uint64_t pending;
    standin_command **commands;
    size_t count, capacity;
};

struct standin_fence {
    standin_object object;
    standin_queue *queue;
    bool done;
};

typedef struct standin_pool {
    standin_object object;
    ze_event_pool_flags_t flags;
    uint32_t count;
    standin_event **events; /* NULL: not made */
} standin_pool;

struct standin_event {
    standin_object object;
    standin_pool *pool;
    uint32_t index;
    bool done;
    uint64_t start, end;
};

standin_queue *standin_queue_new(void *parent, const standin_device *device, uint32_t group,
                                 ze_command_queue_mode_t mode);
ze_result_t standin_queue_push(standin_queue *queue, const standin_command *command, standin_list *list);
/* After a submission: a synchronous queue runs it now; so does any where nothing is deferred. */
ze_result_t standin_queue_submitted(standin_queue *queue);
bool standin_queue_empty(const standin_queue *queue);
void standin_queue_delete(standin_queue *queue);
void standin_queue_forget(standin_list *list); /* drops what of it has not run */
/* Nobody can wait for what was submitted: a command could not be run, nothing ever runs, or a call was failed. */
bool standin_queue_is_lost(void);
/* Until *flag, or until the queue is empty (flag NULL). */
ze_result_t standin_wait(const bool *flag, const standin_queue *queue, uint64_t timeout_ns, const char *name);
void standin_queue_heal(bool lost); /* what a lost device was given is dropped; a well one still runs it */
uint64_t standin_now(void);         /* ns */

#endif
