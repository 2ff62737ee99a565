/* SPDX-License-Identifier: Apache-2.0 */
/* replay.c - a graph as a recorded program, replayed and timed.
 *
 *     graph ─ lower ─ plan ─ arena ─ executable      submit 0, submit 1, wait 0, times 0, submit 0, wait 1 ...
 *
 * Two submissions are in flight, as in training, so that the host's waiting is no part of the time: a replay's wall
 * time is that between two completions. Invariant: what is timed is what a trainer would launch for the same graph. */
#include "bench/device/device.h"

#include "core/base/dtype.h"
#include "core/base/time.h"
#include "core/plan/hazard.h"
#include "core/plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPLAY_LEAST  5
#define REPLAY_MOST   200
#define WARM_UP       2
#define TIMEOUT_S     60.0
#define PATTERN_BYTES ((uint64_t)1 << 20)

struct replay {
    tern_device *device;
    tern_lowered *lowered;
    tern_plan *plan;
    tern_arena *arena;
    tern_executable *executable;
    tern_binding *leaves; /* each in a buffer of its own */
    uint32_t leaf_count;
};

/* ------------------------------------------------------------------- leaves */

static void fill_pattern(void *data, int32_t dtype, uint64_t bytes)
{
    for (uint64_t e = 0; e < bytes / (dtype == TERN_F32 ? 4 : 2); e++) {
        const float x = (float)(e * 2654435761u % 2048) / 1024.0f - 1.0f;
        if (dtype == TERN_F32)
            ((float *)data)[e] = x;
        else
            ((uint16_t *)data)[e] = dtype == TERN_F16 ? tern_f32_to_f16(x) : tern_f32_to_bf16(x);
    }
}

static tern_status create_leaf(replay *r, const tern_tensor *x, tern_binding *out)
{
    const tern_backend *backend = r->device->backend;
    const uint64_t bytes = tern_dtype_bytes(x->dtype, (uint64_t)tern_count(x));
    tern_status status = backend->buffer_create(r->device->handle, bytes, TERN_BUFFER_DEVICE, &out->buffer);
    if (status < 0) return tern_error_prefix(status, "'%s'", x->label);
    out->name = x->label;
    out->bytes = bytes;
    void *pattern = malloc(PATTERN_BYTES);
    if (!pattern) return tern_error_memory("a pattern", PATTERN_BYTES);
    fill_pattern(pattern, x->dtype, PATTERN_BYTES);
    for (uint64_t at = 0; at < bytes && status == TERN_OK; at += PATTERN_BYTES)
        status = backend->buffer_write(r->device->handle, out->buffer, at, pattern,
                                       bytes - at < PATTERN_BYTES ? bytes - at : PATTERN_BYTES);
    free(pattern);
    return status;
}

static tern_status create_leaves(replay *r, const tern_graph *graph)
{
    tern_status status = TERN_OK;
    r->leaves = calloc(graph->node_count + 1u, sizeof *r->leaves);
    if (!r->leaves) return tern_error_memory("the leaves", (graph->node_count + 1u) * sizeof *r->leaves);
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const tern_tensor *x = graph->nodes[i];
        if (x->op == TERN_OP_PARAMETER || x->op == TERN_OP_STATE)
            TERN_TRY(create_leaf(r, x, &r->leaves[r->leaf_count++]));
    }
fail:
    return status;
}

/* ------------------------------------------------------------------ program */

static bool accepts_epilogue(void *context, const tern_kernel_desc *desc)
{
    const tern_device *device = context;
    return device->backend->accepts_epilogue(device->handle, desc);
}

tern_status replay_create(tern_device *device, const tern_graph *graph, replay **out_replay)
{
    tern_status status = TERN_OK;
    replay *r = calloc(1, sizeof *r);
    if (!r) return tern_error_memory("a replay", sizeof *r);
    r->device = device;
    tern_limits limits;
    tern_limits_of(&device->info, &limits);
    const tern_lower_options lower = {.fuse = true,
                                      .accepts_epilogue = device->backend->accepts_epilogue ? accepts_epilogue : NULL,
                                      .context = device};
    const tern_plan_options planning = {
        .submit_seconds = limits.submit_seconds, .flops = limits.flops, .bytes_per_s = limits.bytes_per_s};
    TERN_TRY(tern_graph_status(graph));
    TERN_TRY(tern_lower(graph, &device->info, &lower, &r->lowered));
    TERN_TRY(tern_plan_create(r->lowered, &device->info, &planning, &r->plan));
    TERN_TRY(create_leaves(r, graph));
    TERN_TRY(tern_arena_create(device, (const tern_plan *const *)&r->plan, 1, &r->arena));
    const tern_executable_options options = {.label = "replay", .bindings = r->leaves, .binding_count = r->leaf_count};
    TERN_TRY(tern_executable_create(device, r->plan, r->arena, &options, &r->executable));
    *out_replay = r;
    return TERN_OK;
fail:
    replay_destroy(r);
    return status;
}

void replay_destroy(replay *r)
{
    if (!r) return;
    tern_executable_destroy(r->executable);
    tern_arena_destroy(r->arena);
    for (uint32_t i = 0; i < r->leaf_count; i++)
        r->device->backend->buffer_destroy(r->device->handle, r->leaves[i].buffer);
    free(r->leaves);
    tern_plan_destroy(r->plan);
    tern_lowered_destroy(r->lowered);
    free(r);
}

/* -------------------------------------------------------------------- times */

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double device_median(double *values, size_t count)
{
    if (count == 0) return 0;
    qsort(values, count, sizeof *values, compare);
    return count % 2 ? values[count / 2] : 0.5 * (values[count / 2 - 1] + values[count / 2]);
}

typedef struct samples {
    double wall[REPLAY_MOST];
    double by_kind[TERN_KERNEL_KIND_COUNT][REPLAY_MOST];
    double *launch; /* seconds of each launch of one replay */
} samples;

static void describe(const replay *r, replay_times *out)
{
    out->launches = r->lowered->launch_count;
    for (uint32_t i = 0; i < r->lowered->launch_count; i++) {
        const tern_kernel_desc *kernel = r->lowered->kernels[r->lowered->launches[i].kernel];
        if (out->count[kernel->kind]++ == 0)
            snprintf(out->variant[kernel->kind], sizeof out->variant[0], "%s", kernel->variant.name);
    }
}

/* The device's own times of a slot's finished replay; false: it has none. */
static bool take_timestamps(const replay *r, uint32_t slot, samples *s, uint32_t repeat)
{
    if (tern_executable_times(r->executable, slot, s->launch) < 0) return false;
    for (uint32_t i = 0; i < r->lowered->launch_count; i++)
        s->by_kind[r->lowered->kernels[r->lowered->launches[i].kernel]->kind][repeat] += s->launch[i];
    return true;
}

static tern_status sample(replay *r, double seconds, samples *s, replay_times *out)
{
    tern_status status;
    uint64_t tickets[TERN_SLOTS] = {0};
    for (uint32_t slot = 0; slot < TERN_SLOTS; slot++)
        TERN_TRY(tern_executable_submit(r->executable, slot, &tickets[slot]));
    const uint64_t start = tern_time_ns();
    uint64_t last = start;
    out->timestamps = true;
    for (uint32_t i = 0; out->repeats < REPLAY_MOST; i++) {
        const uint32_t slot = i % TERN_SLOTS;
        TERN_TRY(tern_device_wait(r->device, tickets[slot], TIMEOUT_S));
        const uint64_t now = tern_time_ns();
        if (i >= WARM_UP) {
            s->wall[out->repeats] = 1e-9 * (double)(now - last);
            if (out->timestamps) out->timestamps = take_timestamps(r, slot, s, out->repeats);
            out->repeats++;
        }
        last = now;
        if (out->repeats >= REPLAY_LEAST && 1e-9 * (double)(now - start) > seconds) break;
        TERN_TRY(tern_executable_submit(r->executable, slot, &tickets[slot]));
    }
    for (uint32_t slot = 0; slot < TERN_SLOTS; slot++) TERN_TRY(tern_device_wait(r->device, tickets[slot], TIMEOUT_S));
fail:
    return status;
}

tern_status replay_time(replay *r, double seconds, replay_times *out_times)
{
    *out_times = (replay_times){0};
    samples *s = calloc(1, sizeof *s);
    if (s) s->launch = calloc(r->lowered->launch_count + 1u, sizeof *s->launch);
    if (!s || !s->launch) {
        free(s);
        return tern_error_memory("the times", sizeof *s);
    }
    describe(r, out_times);
    const tern_status status = sample(r, seconds, s, out_times);
    if (status == TERN_OK) {
        out_times->wall = device_median(s->wall, out_times->repeats);
        for (int kind = 0; kind < TERN_KERNEL_KIND_COUNT && out_times->timestamps; kind++)
            out_times->by_kind[kind] = device_median(s->by_kind[kind], out_times->repeats);
    }
    free(s->launch);
    free(s);
    return status;
}
