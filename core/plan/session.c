/* SPDX-License-Identifier: Apache-2.0 */
/* session.c - lower, plan, allocate, record and run one graph; see session.h.
 *
 *     graph ─ tern_lower ─ tern_plan ─ tern_arena ─ tern_executable
 *       └─ parameters, states ─> packed into buffers of the session's own, or the caller's bindings
 *
 * Every run uses slot 0 and is waited for. What it is not: fast. A trainer keeps two slots busy and reads one step
 * late.
 * Invariant: a leaf's storage never moves, so what a run assigned is what the next one reads. */
#include "core/plan/session.h"
#include "core/base/dtype.h"
#include "core/plan/hazard.h"

#include <stdlib.h>
#include <string.h>

#define BUFFER_MOST   ((uint64_t)2 << 30)
#define RUN_TIMEOUT_S 600.0

typedef unsigned long long ull;

struct tern_session {
    tern_device *device;
    const tern_graph *graph;
    bool guard;
    tern_lowered *lowered;
    tern_plan *plan;
    tern_arena *arena;
    tern_executable *executable;
    tern_binding *bindings; /* one per PARAMETER and STATE of the graph */
    uint32_t binding_count;
    tern_backend_buffer **buffers; /* own ones */
    uint32_t buffer_count;
};

/* ------------------------------------------------------------------ storage */

static bool is_stored(const tern_tensor *node) { return node->op == TERN_OP_PARAMETER || node->op == TERN_OP_STATE; }

static uint64_t node_bytes(const tern_tensor *node)
{
    return tern_dtype_bytes(node->dtype, (uint64_t)tern_count(node));
}

static const tern_binding *find_binding(const tern_binding *bindings, uint32_t count, const char *name)
{
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(bindings[i].name, name) == 0) return &bindings[i];
    return NULL;
}

/* Allocates one buffer and gives it to the bindings [from, to), whose offsets in it are already there. */
static tern_status create_buffer(tern_session *session, uint32_t from, uint32_t to, uint64_t bytes)
{
    if (bytes == 0) return TERN_OK;
    tern_backend_buffer *buffer = NULL;
    tern_status status =
        session->device->backend->buffer_create(session->device->handle, bytes, TERN_BUFFER_DEVICE, &buffer);
    if (status < 0) return tern_error_prefix(status, "parameters and states (%llu bytes)", (ull)bytes);
    session->buffers[session->buffer_count++] = buffer;
    for (uint32_t i = from; i < to; i++)
        if (!session->bindings[i].buffer) session->bindings[i].buffer = buffer;
    return TERN_OK;
}

/* Packs the leaves that the caller did not bind one behind the other, a new buffer whenever the limit is reached. */
static tern_status allocate(tern_session *session, const tern_session_options *options)
{
    const tern_device_info *info = &session->device->info;
    const uint64_t alignment = info->offset_alignment > 64u ? info->offset_alignment : 64u;
    uint64_t limit = BUFFER_MOST, at = 0;
    if (info->max_allocation_bytes && info->max_allocation_bytes < limit) limit = info->max_allocation_bytes;
    if (info->max_buffer_bytes && info->max_buffer_bytes < limit) limit = info->max_buffer_bytes;
    uint32_t from = 0;
    for (uint32_t n = 0; n < session->graph->node_count; n++) {
        const tern_tensor *node = session->graph->nodes[n];
        if (!is_stored(node)) continue;
        const tern_binding *given =
            options ? find_binding(options->bindings, options->binding_count, node->label) : NULL;
        if (given) {
            session->bindings[session->binding_count++] = *given;
            continue;
        }
        const uint64_t bytes = node_bytes(node);
        if (at > 0 && at + bytes > limit) {
            tern_status status = create_buffer(session, from, session->binding_count, at);
            if (status < 0) return status;
            from = session->binding_count;
            at = 0;
        }
        session->bindings[session->binding_count++] = (tern_binding){.name = node->label, .offset = at, .bytes = bytes};
        at = tern_align(at + bytes, alignment);
    }
    return create_buffer(session, from, session->binding_count, at);
}

static tern_status prepare_storage(tern_session *session, const tern_session_options *options)
{
    uint32_t count = 0;
    for (uint32_t n = 0; n < session->graph->node_count; n++) count += is_stored(session->graph->nodes[n]);
    session->bindings = calloc(count + 1u, sizeof *session->bindings);
    session->buffers = calloc(count + 1u, sizeof(tern_backend_buffer *));
    if (!session->bindings || !session->buffers)
        return tern_error_memory("the session", (count + 1u) * sizeof *session->bindings);
    return allocate(session, options);
}

/* ------------------------------------------------------------------ session */

static bool accepts_epilogue(void *context, const tern_kernel_desc *desc)
{
    const tern_device *device = context;
    return device->backend->accepts_epilogue(device->handle, desc);
}

tern_status tern_session_create(tern_device *device, const tern_graph *graph, const tern_session_options *options,
                                tern_session **out_session)
{
    tern_status status = TERN_OK;
    tern_session *session = calloc(1, sizeof *session);
    if (!session) return tern_error_memory("the session", sizeof *session);
    session->device = device;
    session->graph = graph;
    session->guard = options && options->guard;
    tern_limits limits;
    tern_limits_of(&device->info, &limits);
    const tern_lower_options lower = {.fuse = !(options && options->no_fuse),
                                      .accepts_epilogue = device->backend->accepts_epilogue ? accepts_epilogue : NULL,
                                      .context = device};
    const tern_plan_options planning = {.submit_seconds = limits.submit_seconds,
                                        .flops = limits.flops,
                                        .bytes_per_s = limits.bytes_per_s,
                                        .guard = session->guard};
    TERN_TRY(tern_graph_status(graph));
    TERN_TRY(tern_lower(graph, &device->info, &lower, &session->lowered));
    TERN_TRY(tern_plan_create(session->lowered, &device->info, &planning, &session->plan));
    TERN_TRY(tern_plan_verify(session->plan));
    if (options && options->arena_limit && session->plan->arena_bytes > options->arena_limit) {
        status = tern_error(TERN_ERROR_DEVICE_MEMORY, "the graph needs %llu bytes beside its leaves, but may have %llu",
                            (ull)session->plan->arena_bytes, (ull)options->arena_limit);
        goto fail;
    }
    TERN_TRY(prepare_storage(session, options));
    TERN_TRY(tern_arena_create(device, (const tern_plan *const *)&session->plan, 1, &session->arena));
    const tern_executable_options recording = {.label = "session",
                                               .bindings = session->bindings,
                                               .binding_count = session->binding_count,
                                               .reverse = options && options->reverse};
    TERN_TRY(tern_executable_create(device, session->plan, session->arena, &recording, &session->executable));
    *out_session = session;
    return TERN_OK;
fail:
    tern_session_destroy(session);
    return status;
}

void tern_session_destroy(tern_session *session)
{
    if (!session) return;
    tern_executable_destroy(session->executable);
    tern_arena_destroy(session->arena);
    for (uint32_t b = 0; b < session->buffer_count; b++)
        session->device->backend->buffer_destroy(session->device->handle, session->buffers[b]);
    free(session->buffers);
    free(session->bindings);
    tern_plan_destroy(session->plan);
    tern_lowered_destroy(session->lowered);
    free(session);
}

const tern_plan *tern_session_plan(const tern_session *session) { return session->plan; }

tern_status tern_session_run(tern_session *session)
{
    uint64_t ticket = 0;
    tern_status status = tern_executable_submit(session->executable, 0, &ticket);
    if (status < 0) return status;
    status = tern_device_wait(session->device, ticket, RUN_TIMEOUT_S);
    if (status < 0 || !session->guard) return status;
    return tern_executable_check_guards(session->executable);
}

/* ------------------------------------------------------------------ feeding */

static tern_tensor *find_leaf(const tern_graph *graph, const char *name)
{
    static const tern_op leaves[] = {TERN_OP_INPUT, TERN_OP_PARAMETER, TERN_OP_STATE};
    for (size_t i = 0; i < sizeof leaves / sizeof *leaves; i++) {
        tern_tensor *leaf = tern_graph_find(graph, leaves[i], name);
        if (leaf) return leaf;
    }
    return NULL;
}

/* An input that no launch reads has no place in the program; feeding it is no mistake. */
static void feed_input(tern_session *session, const char *name, const void *data, uint64_t bytes)
{
    void *to = tern_executable_input(session->executable, 0, name, NULL);
    if (to) memcpy(to, data, bytes);
}

/* Feeds the order and offsets inputs that the graph derives from `ids`. */
static tern_status feed_sorts(tern_session *session, const tern_tensor *ids, const void *data)
{
    for (uint32_t n = 0; n < session->graph->node_count; n++) {
        const tern_tensor *node = session->graph->nodes[n];
        if (node->op != TERN_OP_INPUT || node->at.input.sort_of != ids) continue;
        const int64_t count = tern_count(ids), rows = node->at.input.rows;
        uint32_t *order = calloc((size_t)count + 1u, sizeof *order),
                 *offsets = calloc((size_t)rows + 1u, sizeof *offsets);
        if (!order || !offsets) {
            free(order);
            free(offsets);
            return tern_error_memory("the sorted ids", ((size_t)count + (size_t)rows + 2u) * sizeof *order);
        }
        tern_counting_sort(data, ids->dtype, count, rows, order, offsets);
        feed_input(session, node->label, node->at.input.part == 0 ? order : offsets, node_bytes(node));
        free(order);
        free(offsets);
    }
    return TERN_OK;
}

tern_status tern_session_write(tern_session *session, const char *name, const void *data, uint64_t bytes)
{
    const tern_tensor *leaf = find_leaf(session->graph, name);
    if (!leaf) return tern_error(TERN_ERROR_NOT_FOUND, "the graph has no input, parameter or state '%s'", name);
    if (bytes != node_bytes(leaf))
        return tern_error(TERN_ERROR_INVALID, "'%s' has %llu bytes, not %llu", name, (ull)node_bytes(leaf), (ull)bytes);
    if (leaf->op == TERN_OP_INPUT) {
        feed_input(session, name, data, bytes);
        return feed_sorts(session, leaf, data);
    }
    const tern_binding *at = find_binding(session->bindings, session->binding_count, name);
    return session->device->backend->buffer_write(session->device->handle, at->buffer, at->offset, data, bytes);
}

tern_status tern_session_read(tern_session *session, const char *name, void *out_data, uint64_t bytes)
{
    for (uint32_t o = 0; o < session->lowered->output_count; o++)
        if (strcmp(session->lowered->outputs[o].name, name) == 0)
            return tern_executable_read(session->executable, name, out_data, bytes);
    const tern_binding *at = find_binding(session->bindings, session->binding_count, name);
    if (!at) return tern_error(TERN_ERROR_NOT_FOUND, "the graph has no output, parameter or state '%s'", name);
    if (bytes != at->bytes)
        return tern_error(TERN_ERROR_INVALID, "'%s' has %llu bytes, not %llu", name, (ull)at->bytes, (ull)bytes);
    return session->device->backend->buffer_read(session->device->handle, at->buffer, at->offset, out_data, bytes);
}
