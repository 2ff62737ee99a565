/* SPDX-License-Identifier: Apache-2.0 */
/* plan.h - every byte and every ordering, decided before anything runs.
 *
 *     lowered ──> tern_plan ──────────> tern_arena ──> tern_executable
 *                 offsets, hazards,     device blocks,  backend programs, one per
 *                 cuts, peak            shared          input slot; upload slots; read-back ring
 *
 * Invariant: two values whose lifetimes overlap never share a byte, and every RAW, WAR and WAW pair of byte ranges is
 * ordered by the steps' waits (tern_plan_verify re-derives both from the finished plan). */
#ifndef TERN_PLAN_PLAN_H
#define TERN_PLAN_PLAN_H

#include "core/device/device.h"
#include "core/kernel/lowered.h"

#define TERN_SLOTS 2

typedef struct tern_plan tern_plan;
typedef struct tern_arena tern_arena;
typedef struct tern_executable tern_executable;

typedef struct tern_plan_options {
    uint64_t block_bytes;      /* arena blocks are no larger; 0: min(device limits, 2 GiB) */
    double submit_seconds;     /* cut so that no submission is predicted to run longer; 0: 0.5 */
    double flops, bytes_per_s; /* predicted rates; 0: 1e12 and 1e11 */
    bool guard;                /* every value its own guarded range, nothing reused (the reverse-order test executor) */
} tern_plan_options;

/* Where a transient or input value lives. */
typedef struct tern_placement {
    uint32_t block;
    uint64_t offset;
} tern_placement;

struct tern_plan {
    const tern_lowered *lowered; /* must outlive the plan */
    tern_placement *placements;  /* per value; unused for BOUND ones */
    uint32_t *first_use,
        *last_use;         /* per value, launch indices; inputs start at 0, kept ones end at launch_count - 1 */
    uint32_t *wait_starts; /* launch i waits for waits[wait_starts[i] .. wait_starts[i + 1]) , launch indices, a
                              transitively reduced set */
    uint32_t *waits;
    uint32_t *cuts;
    uint32_t cut_count;
    uint64_t *block_bytes; /* what each arena block must hold */
    uint32_t block_count;
    uint64_t live_peak_bytes; /* the largest sum of live transient bytes over all launches */
    uint64_t arena_bytes;     /* sum of block_bytes */
    uint64_t upload_bytes;    /* one slot's inputs, each aligned */
    double predicted_seconds;
    uint32_t peak_launch;      /* where live_peak_bytes is reached */
    uint64_t alignment;        /* of every offset */
    tern_plan_options options; /* with every 0 replaced by its default */
};

/* Fails with TERN_ERROR_DEVICE_MEMORY or _UNSUPPORTED, naming value, bytes and the binding limit, when a single value
 * exceeds a limit of `info`. */
TERN_MUST_USE tern_status tern_plan_create(const tern_lowered *lowered, const tern_device_info *info,
                                           const tern_plan_options *options, tern_plan **out_plan);
void tern_plan_destroy(tern_plan *plan);
/* The checker. TERN_ERROR_INTERNAL naming the two launches and the byte range. */
TERN_MUST_USE tern_status tern_plan_verify(const tern_plan *plan);
/* Bytes by tern_value_kind: [kind] = bound bytes for weights and states; for the others the live bytes at the peak
 * launch. */
void tern_plan_bytes(const tern_plan *plan, uint64_t out_bytes[TERN_VALUE_KIND_COUNT]);
/* Label of the launch at which most bytes are live; "" for a plan without launches. */
const char *tern_plan_peak_label(const tern_plan *plan);
/* Predicted duration of one launch in seconds: the larger of arithmetic and traffic, plus a fixed start-up cost. */
double tern_plan_launch_seconds(const tern_plan *plan, uint32_t launch);

/* What the plan asks of a device and which of its limits is closest, for `tern plan`. */
typedef struct tern_plan_demand {
    uint64_t bytes[TERN_VALUE_KIND_COUNT]; /* as tern_plan_bytes */
    uint64_t bound_bytes, arena_bytes;     /* parameters and states; blocks */
    uint64_t extra_bytes;                  /* the caller's: what other executables and slabs need besides */
    uint64_t total_bytes;                  /* device memory: bound + arena + extra */
    uint64_t largest_block_bytes;
    uint64_t largest_range_bytes;   /* the largest range that one launch argument touches */
    const char *largest_range_name; /* the value it belongs to */
    const char *limit_name;         /* "memory", "allocation" or "binding range": the largest used / limit */
    uint64_t limit_used_bytes, limit_bytes;
} tern_plan_demand;
void tern_plan_measure(const tern_plan *plan, const tern_device_info *info, uint64_t extra_bytes,
                       tern_plan_demand *out_demand);

/* Device memory shared by executables that never run at the same moment: for each block the maximum of the plans'. */
TERN_MUST_USE tern_status tern_arena_create(tern_device *device, const tern_plan *const *plans, uint32_t plan_count,
                                            tern_arena **out_arena);
void tern_arena_destroy(tern_arena *arena);
uint64_t tern_arena_bytes(const tern_arena *arena);

/* A store's range for a parameter or state of the graph. */
typedef struct tern_binding {
    const char *name;
    tern_backend_buffer *buffer;
    uint64_t offset, bytes;
} tern_binding;

typedef struct tern_executable_options {
    const char *label;
    const tern_binding *bindings;
    uint32_t binding_count;
    bool read_back; /* the graph's named outputs are also copied to a read-back slot at the end of the program */
    bool reverse;   /* test executor: steps not ordered by waits are recorded in reverse */
} tern_executable_options;

/* Builds the kernels (once per key and arena, see kernel_cache.h), records one program per slot. plan and arena must
 * outlive it. */
TERN_MUST_USE tern_status tern_executable_create(tern_device *device, const tern_plan *plan, tern_arena *arena,
                                                 const tern_executable_options *options,
                                                 tern_executable **out_executable);
void tern_executable_destroy(tern_executable *executable);
/* Host address of an input in a slot (tern_value bytes long), NULL if the graph has no such input. The caller must not
 * write it while that slot's last submission runs (wait for its ticket first). */
void *tern_executable_input(tern_executable *executable, uint32_t slot, const char *name, uint64_t *out_bytes);
TERN_MUST_USE tern_status tern_executable_submit(tern_executable *executable, uint32_t slot, uint64_t *out_ticket);
/* Polls in short finite waits; a device that makes no progress for `timeout_s` gives TERN_ERROR_TIMEOUT. */
TERN_MUST_USE tern_status tern_device_wait(tern_device *device, uint64_t ticket, double timeout_s);
/* After the slot's ticket: host address of a named output of that slot (read_back only), or NULL. */
const void *tern_executable_result(tern_executable *executable, uint32_t slot, const char *name, uint64_t *out_bytes);
/* Blocking read of a named output from the arena; for tests, after waiting. */
TERN_MUST_USE tern_status tern_executable_read(tern_executable *executable, const char *name, void *out_data,
                                               uint64_t bytes);
/* Seconds that each launch of the slot's last finished run took (launch_count values). TERN_ERROR_UNSUPPORTED where the
 * backend has no timestamps, and for a reversed executable. */
TERN_MUST_USE tern_status tern_executable_times(const tern_executable *executable, uint32_t slot, double *out_seconds);
/* Counts for tests and `tern plan`: dispatches, submissions per run, distinct kernels (pipelines) of the arena
 * so far. */
typedef struct tern_executable_counts {
    uint32_t dispatches, copies, submissions, kernels;
} tern_executable_counts;
void tern_executable_count(const tern_executable *executable, tern_executable_counts *out_counts);
/* Plans made with `guard` only, after waiting: TERN_ERROR_INTERNAL naming the value beside which a byte was
 * overwritten. Each run of such an executable first poisons every range (0x7fc0dead, a NaN), so that reading what
 * nobody wrote shows too. */
TERN_MUST_USE tern_status tern_executable_check_guards(tern_executable *executable);
/* The order in which launches were recorded, launch_count values; for tests. Owned by the executable. */
const uint32_t *tern_executable_order(const tern_executable *executable);

#endif
