/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.h - the plug-in's own structures: device, buffers, kernels, programs, and the steps that programs are made of.
 *
 *     program ── step ── one of: nest (tape.h), matmul, attention, scatter, copy, fill
 *
 * Everything that depends on extents is prepared when a program is recorded; a replay allocates and decides nothing. */
#ifndef TERN_CPU_CPU_H
#define TERN_CPU_CPU_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "backends/cpu/isa.h"
#include "backends/cpu/tape.h"
#include "backends/cpu/threads.h"
#include "core/backend.h"
#include "core/base/status.h"

typedef struct tern_cpu_matmul tern_cpu_matmul;
typedef struct tern_cpu_attend tern_cpu_attend;
typedef struct tern_cpu_scatter tern_cpu_scatter;

struct tern_backend_device {
    pid_t owner; /* a child after fork has no threads of ours */
    const tern_cpu_isa *isa;
    tern_cpu_pool *pool;
    void *shared; /* one step's scratch for all threads; steps run one at a time */
    size_t shared_bytes;
    atomic_ullong allocated_bytes;
    pthread_mutex_t mutex; /* queue, tickets, scratch sizes */
    pthread_cond_t queued, finished;
    pthread_t driver; /* takes submissions in order and runs their steps; thread 0 of the pool */
    struct tern_cpu_submission *first, *last, *free_list;
    uint64_t submitted, completed;
    bool stop;
};

struct tern_backend_buffer {
    void *data;
    uint64_t bytes;
    size_t mapped_bytes; /* 0: from the heap */
    tern_buffer_kind kind;
};

struct tern_backend_kernel {
    tern_kernel_desc desc; /* its tape's arrays are the kernel's own copies */
};

typedef struct tern_cpu_step {
    tern_step_kind kind;
    tern_cpu_range range[TERN_TAPE_TENSORS];
    uint32_t fill;
    tern_cpu_nest *nest;
    tern_cpu_matmul *matmul;
    tern_cpu_attend *attend;
    tern_cpu_scatter *scatter;
    size_t scratch_bytes, shared_bytes; /* what it needs: per thread, and of the device's shared scratch */
    uint64_t last_ns;
} tern_cpu_step;

struct tern_backend_program {
    tern_cpu_step *steps;
    uint32_t step_count, *cuts, cut_count;
    uint32_t submissions; /* of the last run */
    uint64_t last_ticket; /* 0: never submitted */
    bool timed;           /* a submission has finished */
};

/* TERN_ERROR_INVALID in a child after fork. */
TERN_MUST_USE tern_status tern_cpu_device_check(const tern_backend_device *device);
/* Until everything submitted has finished; at most `timeout_ns`. */
TERN_MUST_USE tern_status tern_cpu_device_idle(tern_backend_device *device, uint64_t timeout_ns);

/* program.c */
TERN_MUST_USE tern_status tern_cpu_driver_start(tern_backend_device *device);
void tern_cpu_driver_stop(tern_backend_device *device, bool in_child);
tern_status tern_cpu_program_create(tern_backend_device *device, const tern_program_desc *desc,
                                    tern_backend_program **out_program);
void tern_cpu_program_destroy(tern_backend_device *device, tern_backend_program *program);
tern_status tern_cpu_program_submit(tern_backend_device *device, tern_backend_program *program, uint64_t *out_ticket);
tern_status tern_cpu_program_times(tern_backend_device *device, tern_backend_program *program, uint64_t *out_ns);
uint32_t tern_cpu_submission_count(tern_backend_device *device, tern_backend_program *program);
tern_status tern_cpu_wait(tern_backend_device *device, uint64_t ticket, uint64_t timeout_ns);

/* matmul.c, attention.c, scatter.c: prepared from a dispatch; create also says what scratch the step needs. */
TERN_MUST_USE tern_status tern_cpu_matmul_create(const tern_cpu_isa *isa, const tern_kernel_desc *desc,
                                                 const uint32_t *words, uint32_t threads, tern_cpu_step *step);
void tern_cpu_matmul_run(const tern_cpu_step *step, tern_cpu_pool *pool, void *shared);
void tern_cpu_matmul_destroy(tern_cpu_matmul *matmul);
TERN_MUST_USE tern_status tern_cpu_attend_create(const tern_cpu_isa *isa, const tern_kernel_desc *desc,
                                                 const uint32_t *words, tern_cpu_step *step);
void tern_cpu_attend_run(const tern_cpu_step *step, tern_cpu_pool *pool);
void tern_cpu_attend_destroy(tern_cpu_attend *attend);
TERN_MUST_USE tern_status tern_cpu_scatter_create(const tern_cpu_isa *isa, const tern_kernel_desc *desc,
                                                  const uint32_t *words, tern_cpu_step *step);
void tern_cpu_scatter_run(const tern_cpu_step *step, tern_cpu_pool *pool, void *shared);
void tern_cpu_scatter_destroy(tern_cpu_scatter *scatter);

/* dtypes.c: are the contraction's own tensors of dtypes that its kind takes? Says which is not. */
TERN_MUST_USE tern_status tern_cpu_dtypes_check(const tern_kernel_desc *desc);

#endif
