/* SPDX-License-Identifier: Apache-2.0 */
/* executable.c - a plan made runnable: bindings resolved, slots allocated, programs recorded, then submitted and read.
 *
 *     slot 0   upload ──> program 0 ──> read-back      the host fills one slot and reads the other's results
 *     slot 1   upload ──> program 1 ──> read-back      while the device works
 *
 * Both programs use the same arena and the same store; the backend runs submissions one after another.
 * Invariant: nothing is allocated or compiled after tern_executable_create. */
#include "core/plan/executable.h"
#include "core/base/dtype.h"
#include "core/base/time.h"
#include "core/plan/hazard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_SLICE_NS 100000000u /* one backend wait; between two a lost device is noticed */

typedef unsigned long long ull;

/* ----------------------------------------------------------------- bindings */

static const tern_binding *find_binding(const tern_executable_options *options, const char *name)
{
    for (uint32_t i = 0; options && name && i < options->binding_count; i++)
        if (strcmp(options->bindings[i].name, name) == 0) return &options->bindings[i];
    return NULL;
}

static tern_status bind(tern_executable *e, const tern_executable_options *options, uint32_t v)
{
    const tern_value *value = &e->plan->lowered->values[v];
    const char *name = value->name ? value->name : "";
    const tern_binding *binding = find_binding(options, value->name);
    if (!binding)
        return tern_error(TERN_ERROR_NOT_FOUND, "program '%s' needs '%s' (%llu bytes), but no binding has that name",
                          e->label, name, (ull)value->bytes);
    if (binding->bytes != value->bytes)
        return tern_error(TERN_ERROR_INVALID, "program '%s' needs '%s' with %llu bytes, but its binding has %llu",
                          e->label, name, (ull)value->bytes, (ull)binding->bytes);
    const tern_dtype_info *dtype = tern_dtype(value->dtype);
    if (dtype && binding->offset % dtype->bytes != 0)
        return tern_error(TERN_ERROR_INVALID,
                          "the binding of '%s' starts at byte %llu, not a multiple of its element size %u", name,
                          (ull)binding->offset, dtype->bytes);
    e->places[v] = (tern_place){.buffer = binding->buffer, .offset = binding->offset};
    return TERN_OK;
}

static tern_status resolve_places(tern_executable *e, const tern_executable_options *options)
{
    const tern_lowered *lowered = e->plan->lowered;
    for (uint32_t v = 0; v < lowered->value_count; v++) {
        if (lowered->values[v].storage == TERN_STORAGE_BOUND) {
            tern_status status = bind(e, options, v);
            if (status < 0) return status;
        } else if (tern_plan_in_arena(e->plan, v)) {
            const tern_placement at = e->plan->placements[v];
            e->places[v] = (tern_place){.buffer = e->arena->blocks[at.block], .offset = at.offset};
        }
    }
    for (uint32_t o = 0; o < lowered->output_count; o++)
        if (!e->places[lowered->outputs[o].value].buffer)
            return tern_error(TERN_ERROR_INTERNAL, "no launch of program '%s' makes its output '%s'; please report it",
                              e->label, lowered->outputs[o].name);
    return TERN_OK;
}

/* The plan must have been among those the arena was made for. */
static tern_status check_arena(const tern_executable *e)
{
    for (uint32_t b = 0; b < e->plan->block_count; b++)
        if (b >= e->arena->block_count || e->arena->block_bytes[b] < e->plan->block_bytes[b])
            return tern_error(
                TERN_ERROR_INVALID,
                "program '%s' needs %llu bytes in arena block %u, which has %llu; create the arena with its plan",
                e->label, (ull)e->plan->block_bytes[b], b,
                (ull)(b < e->arena->block_count ? e->arena->block_bytes[b] : 0));
    return TERN_OK;
}

/* -------------------------------------------------------------------- slots */

static void lay_out_slots(tern_executable *e)
{
    const tern_lowered *lowered = e->plan->lowered;
    uint64_t at = 0;
    for (uint32_t v = 0; v < lowered->value_count; v++) {
        if (lowered->values[v].storage != TERN_STORAGE_INPUT) continue;
        e->upload_offsets[v] = at;
        at += tern_align(lowered->values[v].bytes, e->plan->alignment);
    }
    at = 0;
    for (uint32_t o = 0; e->read_back && o < lowered->output_count; o++) {
        e->output_offsets[o] = at;
        at += tern_align(lowered->values[lowered->outputs[o].value].bytes, e->plan->alignment);
    }
    e->read_back_bytes = at;
}

static tern_status create_host_buffer(tern_executable *e, uint64_t bytes, tern_buffer_kind kind,
                                      tern_backend_buffer **out_buffer, unsigned char **out_map)
{
    if (bytes == 0) return TERN_OK;
    const tern_backend *backend = e->device->backend;
    tern_status status = backend->buffer_create(e->device->handle, bytes, kind, out_buffer);
    if (status < 0) return status;
    void *address = NULL;
    status = backend->buffer_map(e->device->handle, *out_buffer, &address);
    if (status < 0) return status; /* the slot owns the buffer already */
    *out_map = address;
    return TERN_OK;
}

static tern_status create_slots(tern_executable *e)
{
    tern_status status = TERN_OK;
    lay_out_slots(e);
    for (uint32_t s = 0; s < TERN_SLOTS; s++) {
        tern_slot *slot = &e->slots[s];
        TERN_TRY(create_host_buffer(e, e->plan->upload_bytes, TERN_BUFFER_UPLOAD, &slot->upload, &slot->upload_map));
        TERN_TRY(
            create_host_buffer(e, e->read_back_bytes, TERN_BUFFER_READBACK, &slot->read_back, &slot->read_back_map));
    }
fail:
    return status;
}

/* --------------------------------------------------------------- executable */

tern_status tern_executable_create(tern_device *device, const tern_plan *plan, tern_arena *arena,
                                   const tern_executable_options *options, tern_executable **out_executable)
{
    tern_status status = TERN_OK;
    const tern_lowered *lowered = plan->lowered;
    tern_executable *e = calloc(1, sizeof *e);
    if (!e) return tern_error_memory("the executable", sizeof *e);
    e->device = device;
    e->plan = plan;
    e->arena = arena;
    e->read_back = options && options->read_back;
    snprintf(e->label, sizeof e->label, "%s", options && options->label ? options->label : "program");
    e->places = calloc(lowered->value_count + 1u, sizeof *e->places);
    e->upload_offsets = calloc(lowered->value_count + 1u, sizeof *e->upload_offsets);
    e->output_offsets = calloc(lowered->output_count + 1u, sizeof *e->output_offsets);
    e->order = calloc(lowered->launch_count + 1u, sizeof *e->order);
    if (!e->places || !e->upload_offsets || !e->output_offsets || !e->order) {
        status = tern_error_memory("the executable",
                                   (lowered->value_count + 1u) * (sizeof *e->places + sizeof *e->upload_offsets));
        goto fail;
    }
    TERN_TRY(check_arena(e));
    TERN_TRY(resolve_places(e, options));
    TERN_TRY(create_slots(e));
    TERN_TRY(tern_executable_record(e, options && options->reverse));
    *out_executable = e;
    return TERN_OK;
fail:
    tern_executable_destroy(e);
    return status;
}

void tern_executable_destroy(tern_executable *executable)
{
    if (!executable) return;
    const tern_backend *backend = executable->device->backend;
    tern_backend_device *handle = executable->device->handle;
    for (uint32_t s = 0; s < TERN_SLOTS; s++) /* programs first: destroying one waits for its last submission */
        if (executable->slots[s].program) backend->program_destroy(handle, executable->slots[s].program);
    for (uint32_t s = 0; s < TERN_SLOTS; s++) {
        if (executable->slots[s].upload) backend->buffer_destroy(handle, executable->slots[s].upload);
        if (executable->slots[s].read_back) backend->buffer_destroy(handle, executable->slots[s].read_back);
    }
    free(executable->places);
    free(executable->upload_offsets);
    free(executable->output_offsets);
    free(executable->order);
    free(executable);
}

/* ---------------------------------------------------------------------- run */

tern_status tern_executable_submit(tern_executable *executable, uint32_t slot, uint64_t *out_ticket)
{
    if (slot >= TERN_SLOTS)
        return tern_error(TERN_ERROR_INVALID, "slot %u of '%s'; there are %d", slot, executable->label, TERN_SLOTS);
    tern_status status = executable->device->backend->program_submit(executable->device->handle,
                                                                     executable->slots[slot].program, out_ticket);
    if (status < 0) return tern_error_prefix(status, "program '%s'", executable->label);
    executable->last_submitted = &executable->slots[slot];
    return TERN_OK;
}

tern_status tern_device_wait(tern_device *device, uint64_t ticket, double timeout_s)
{
    const uint64_t start = tern_time_ns();
    const uint64_t limit = timeout_s >= 1e9 ? UINT64_MAX : timeout_s > 0 ? (uint64_t)(timeout_s * 1e9) : 0;
    for (;;) {
        const uint64_t gone = tern_time_ns() - start, left = gone < limit ? limit - gone : 0;
        tern_status status = device->backend->wait(device->handle, ticket, left < WAIT_SLICE_NS ? left : WAIT_SLICE_NS);
        if (status != TERN_ERROR_TIMEOUT) return status;
        if (left == 0)
            return tern_error(TERN_ERROR_TIMEOUT,
                              "%s did not finish submission %llu within %g s; the driver may hang, or the step is too "
                              "large for this device",
                              device->title, (ull)ticket, timeout_s);
    }
}

/* ------------------------------------------------------------------- access */

void *tern_executable_input(tern_executable *executable, uint32_t slot, const char *name, uint64_t *out_bytes)
{
    const tern_lowered *lowered = executable->plan->lowered;
    for (uint32_t v = 0; slot < TERN_SLOTS && v < lowered->value_count; v++) {
        const tern_value *value = &lowered->values[v];
        if (value->storage != TERN_STORAGE_INPUT || !value->name || strcmp(value->name, name) != 0) continue;
        if (out_bytes) *out_bytes = value->bytes;
        return executable->slots[slot].upload_map + executable->upload_offsets[v];
    }
    return NULL;
}

/* Index into the lowered outputs, or output_count. */
static uint32_t find_output(const tern_executable *e, const char *name)
{
    uint32_t o = 0;
    while (o < e->plan->lowered->output_count && strcmp(e->plan->lowered->outputs[o].name, name) != 0) o++;
    return o;
}

const void *tern_executable_result(tern_executable *executable, uint32_t slot, const char *name, uint64_t *out_bytes)
{
    const tern_lowered *lowered = executable->plan->lowered;
    const uint32_t o = find_output(executable, name);
    if (!executable->read_back || slot >= TERN_SLOTS || o == lowered->output_count) return NULL;
    if (out_bytes) *out_bytes = lowered->values[lowered->outputs[o].value].bytes;
    return executable->slots[slot].read_back_map + executable->output_offsets[o];
}

tern_status tern_executable_read(tern_executable *executable, const char *name, void *out_data, uint64_t bytes)
{
    const tern_lowered *lowered = executable->plan->lowered;
    const uint32_t o = find_output(executable, name);
    if (o == lowered->output_count)
        return tern_error(TERN_ERROR_NOT_FOUND,
                          "program '%s' has no output '%s'; name it with tern_output before compiling",
                          executable->label, name);
    const uint32_t v = lowered->outputs[o].value;
    if (bytes != lowered->values[v].bytes)
        return tern_error(TERN_ERROR_INVALID, "output '%s' of program '%s' has %llu bytes, not %llu", name,
                          executable->label, (ull)lowered->values[v].bytes, (ull)bytes);
    return executable->device->backend->buffer_read(executable->device->handle, executable->places[v].buffer,
                                                    executable->places[v].offset, out_data, bytes);
}

void tern_executable_count(const tern_executable *executable, tern_executable_counts *out_counts)
{
    const tern_backend *backend = executable->device->backend;
    *out_counts = (tern_executable_counts){
        .dispatches = executable->plan->lowered->launch_count,
        .copies = executable->copies,
        .submissions = executable->cut_count + 1u,
        .kernels = executable->arena->kernels.count,
    };
    if (backend->submission_count && executable->last_submitted)
        out_counts->submissions =
            backend->submission_count(executable->device->handle, executable->last_submitted->program);
}

const uint32_t *tern_executable_order(const tern_executable *executable) { return executable->order; }

/* ------------------------------------------------------------------- guards */

/* Compares `bytes` bytes from `offset` on with the poison; *out_at is the first that differs. */
static tern_status find_overwritten(tern_executable *e, tern_backend_buffer *buffer, uint64_t offset, uint64_t bytes,
                                    uint64_t *out_at)
{
    unsigned char *found = malloc(bytes);
    if (!found) return tern_error_memory("the guards", bytes);
    tern_status status = e->device->backend->buffer_read(e->device->handle, buffer, offset, found, bytes);
    *out_at = UINT64_MAX;
    const uint32_t poison = TERN_GUARD_POISON;
    for (uint64_t i = 0; status >= 0 && i < bytes && *out_at == UINT64_MAX; i++)
        if (found[i] != ((const unsigned char *)&poison)[(offset + i) % 4u]) *out_at = offset + i;
    free(found);
    return status;
}

tern_status tern_executable_check_guards(tern_executable *executable)
{
    const tern_plan *plan = executable->plan;
    if (!plan->options.guard)
        return tern_error(TERN_ERROR_INVALID, "program '%s' was planned without guards", executable->label);
    for (uint32_t v = 0; v < plan->lowered->value_count; v++) {
        if (!tern_plan_in_arena(plan, v)) continue;
        const tern_value *value = &plan->lowered->values[v];
        const tern_place at = executable->places[v];
        const uint64_t guard = tern_align(TERN_GUARD_BYTES, plan->alignment);
        const uint64_t end = at.offset + tern_align(value->bytes, 4); /* copies move whole words */
        uint64_t before, behind;
        tern_status status = find_overwritten(executable, at.buffer, at.offset - guard, guard, &before);
        if (status < 0) return status;
        status = find_overwritten(executable, at.buffer, end,
                                  at.offset + tern_align(value->bytes, plan->alignment) + guard - end, &behind);
        if (status < 0) return status;
        if (before == UINT64_MAX && behind == UINT64_MAX) continue;
        const bool low = before != UINT64_MAX;
        return tern_error(TERN_ERROR_INTERNAL,
                          "program '%s' wrote %llu bytes %s '%s' (%llu bytes), outside of any value; please report it",
                          executable->label, (ull)(low ? at.offset - before : behind - end + 1u),
                          low ? "before the start of" : "behind the end of", value->name ? value->name : "",
                          (ull)value->bytes);
    }
    return TERN_OK;
}

tern_status tern_executable_times(const tern_executable *executable, uint32_t slot, double *out_seconds)
{
    const tern_backend *backend = executable->device->backend;
    const uint32_t launches = executable->plan->lowered->launch_count;
    bool in_order = backend->program_times != NULL && slot < TERN_SLOTS;
    for (uint32_t i = 0; i < launches; i++) in_order = in_order && executable->order[i] == i;
    if (!in_order)
        return tern_error(TERN_ERROR_UNSUPPORTED, "%s has no times of '%s' by launch", executable->device->title,
                          executable->label);
    uint64_t *ns = calloc(executable->step_count + 1u, sizeof *ns);
    if (!ns) return tern_error_memory("the times", executable->step_count * sizeof *ns);
    const tern_status status = backend->program_times(executable->device->handle, executable->slots[slot].program, ns);
    for (uint32_t i = 0; status == TERN_OK && i < launches; i++)
        out_seconds[i] = 1e-9 * (double)ns[executable->first_launch + i];
    free(ns);
    return status;
}
