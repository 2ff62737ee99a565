/* SPDX-License-Identifier: Apache-2.0 */
/* control.h - inside the null backend: its objects, its counters, and the gate that every call passes.
 *
 * Invariant: null_state is read and written only between null_lock and null_unlock. */
#ifndef TERN_NULL_CONTROL_H
#define TERN_NULL_CONTROL_H

#include <sys/types.h>

#include "backends/null/null.h"
#include "core/base/status.h"

struct tern_backend_device {
    tern_device_info info;
    pid_t pid;          /* that opened it: a child after fork may not use it */
    bool lost;          /* latched */
    uint64_t submitted; /* last ticket given */
    uint64_t finished;  /* last ticket waited for */
    uint64_t bytes;     /* in its buffers */
    uint64_t objects;   /* buffers, kernels and programs alive */
    bool closed;        /* too early: freed with its last object */
};

struct tern_backend_buffer {
    tern_backend_device *device;
    uint64_t bytes;
    tern_buffer_kind kind;
    void *memory;   /* UPLOAD and READBACK; DEVICE buffers have none */
    uint32_t users; /* steps of programs alive */
    bool destroyed; /* too early: freed with its last user */
};

struct tern_backend_kernel {
    tern_backend_device *device;
    tern_kernel_kind kind;
    char label[96];
    uint32_t tensor_count, word_count;
    tern_tape_tensor tensors[TERN_TAPE_TENSORS];
    uint32_t users;
    bool destroyed;
};

/* What a recorded step keeps: enough to count it and to know whom it uses. */
typedef struct null_step {
    tern_step_kind kind;
    tern_backend_kernel *kernel; /* NULL for copies and fills */
    uint32_t buffer_count;
    tern_backend_buffer *buffers[TERN_TAPE_TENSORS];
} null_step;

struct tern_backend_program {
    tern_backend_device *device;
    uint32_t step_count, submission_count;
    uint64_t last_ticket; /* 0: never submitted */
    null_step steps[];
};

typedef struct null_state {
    tern_null_counts counts;
    bool ready;              /* the settings have been filled in */
    tern_null_device device; /* settings */
    uint64_t fail_in;        /* calls until the planned failure, 0: none */
    tern_status fail_status;
} null_state;

/* The state, locked. */
null_state *null_lock(void);
void null_unlock(void);

/* Every entry that can fail begins with this: counts the call, fails it if that was planned, and refuses a lost device
 * and a child after fork. device NULL: the call is about no device. */
tern_status null_enter(tern_backend_device *device, const char *entry);
/* The device of an object must be the one it is used with. */
tern_status null_same_device(const tern_backend_device *device, const tern_backend_device *owner, const char *what);

/* The last user of a buffer or kernel is gone: frees it if it was destroyed too early. */
void null_buffer_release(tern_backend_buffer *buffer);
void null_kernel_release(tern_backend_kernel *kernel);

/* One object of the device less, under the lock. Frees a device that was closed before it. */
void null_forget(tern_backend_device *device);

/* TERN_NULL_FAIL_CALL; TERN_ERROR_INVALID if it is malformed. */
tern_status null_read_environment(void);
extern const tern_null_hooks null_hooks;

/* program.c */
tern_status null_program_create(tern_backend_device *device, const tern_program_desc *desc,
                                tern_backend_program **out_program);
void null_program_destroy(tern_backend_device *device, tern_backend_program *program);
tern_status null_program_submit(tern_backend_device *device, tern_backend_program *program, uint64_t *out_ticket);
tern_status null_wait(tern_backend_device *device, uint64_t ticket, uint64_t timeout_ns);
tern_status null_program_times(tern_backend_device *device, tern_backend_program *program, uint64_t *out_ns);
uint32_t null_submission_count(tern_backend_device *device, tern_backend_program *program);

/* check.c: every rule of core/backend.h about a step. */
tern_status null_check_program(const tern_backend_device *device, const tern_program_desc *desc);

#endif
