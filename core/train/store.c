/* SPDX-License-Identifier: Apache-2.0 */
/* store.c - the layout's buffers on a device, found by leaf name; the two forms of a weight. */
#include "core/train/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tern_store {
    tern_device *device;
    const tern_store_layout *layout;
    tern_backend_buffer **slabs[TERN_SLAB_COUNT]; /* per segment; NULL where a slab does not exist */
    tern_backend_buffer *states;                  /* NULL without states */
    uint64_t bytes;
};

static uint64_t slab_bytes(const tern_store *store, uint32_t segment, tern_store_slab slab)
{
    const uint64_t count = tern_store_layout_count(store->layout, segment, slab);
    return count == 0 ? 0 : tern_dtype_bytes(tern_store_layout_dtype(store->layout, slab), count);
}

static tern_status make_buffer(tern_store *store, uint64_t bytes, tern_backend_buffer **out_buffer)
{
    if (bytes == 0) return TERN_OK;
    const tern_status status =
        store->device->backend->buffer_create(store->device->handle, bytes, TERN_BUFFER_DEVICE, out_buffer);
    if (status >= 0) store->bytes += bytes;
    return status;
}

static tern_status make_buffers(tern_store *store)
{
    tern_status status = TERN_OK;
    const tern_store_layout *layout = store->layout;
    for (int slab = 0; slab < TERN_SLAB_COUNT; slab++) {
        store->slabs[slab] = calloc(layout->segment_count + 1, sizeof *store->slabs[slab]);
        if (!store->slabs[slab])
            return tern_error_memory("the store", layout->segment_count * sizeof *store->slabs[slab]);
        for (uint32_t i = 0; i < layout->segment_count; i++)
            TERN_TRY(make_buffer(store, slab_bytes(store, i, (tern_store_slab)slab), &store->slabs[slab][i]));
    }
    TERN_TRY(make_buffer(store, layout->state_bytes, &store->states));
fail:
    return status;
}

/* ------------------------------------------------------- two forms of a weight */

static bool find_leaf(const tern_store *store, tern_store_slab slab, uint32_t parameter, tern_binding *out)
{
    const tern_store_parameter *p = &store->layout->parameters[parameter];
    if (!store->slabs[slab][p->segment]) return false;
    const int32_t dtype = tern_store_layout_dtype(store->layout, slab);
    const bool scale = slab == TERN_SLAB_M_SCALE || slab == TERN_SLAB_V_SCALE;
    const uint64_t per = scale ? TERN_STORE_BLOCK : 1;
    *out = (tern_binding){NULL, store->slabs[slab][p->segment], tern_dtype_bytes(dtype, p->first / per),
                          tern_dtype_bytes(dtype, (p->count + per - 1) / per)};
    return true;
}

static void narrow(int32_t dtype, const float *values, uint64_t count, uint16_t *out)
{
    for (uint64_t i = 0; i < count; i++)
        out[i] = dtype == TERN_F16 ? tern_f32_to_f16(values[i]) : tern_f32_to_bf16(values[i]);
}

static void widen(int32_t dtype, const uint16_t *bits, uint64_t count, float *out)
{
    for (uint64_t i = 0; i < count; i++)
        out[i] = dtype == TERN_F16 ? tern_f16_to_f32(bits[i]) : tern_bf16_to_f32(bits[i]);
}

static tern_status write_parameter(tern_store *store, uint32_t parameter, const float *values)
{
    tern_status status = TERN_OK;
    tern_binding at;
    uint16_t *bits = NULL;
    const uint64_t count = store->layout->parameters[parameter].count;
    const tern_backend *backend = store->device->backend;
    if (find_leaf(store, TERN_SLAB_WEIGHT, parameter, &at))
        TERN_TRY(backend->buffer_write(store->device->handle, at.buffer, at.offset, values, at.bytes));
    if (!find_leaf(store, TERN_SLAB_LOW, parameter, &at)) return TERN_OK;
    bits = malloc(at.bytes);
    if (!bits) return tern_error_memory("a parameter in 16 bits", at.bytes);
    narrow(store->layout->options.low, values, count, bits);
    TERN_TRY(backend->buffer_write(store->device->handle, at.buffer, at.offset, bits, at.bytes));
fail:
    free(bits);
    return status;
}

/* A parameter that is only kept in 16 bits. */
static tern_status read_low(const tern_store *store, uint32_t parameter, float *out_values)
{
    tern_status status;
    tern_binding at;
    if (!find_leaf(store, TERN_SLAB_LOW, parameter, &at))
        return tern_error(TERN_ERROR_INTERNAL, "parameter \"%s\" is nowhere; please report it",
                          store->layout->parameters[parameter].name);
    uint16_t *bits = malloc(at.bytes);
    if (!bits) return tern_error_memory("a parameter in 16 bits", at.bytes);
    TERN_TRY(store->device->backend->buffer_read(store->device->handle, at.buffer, at.offset, bits, at.bytes));
    widen(store->layout->options.low, bits, store->layout->parameters[parameter].count, out_values);
fail:
    free(bits);
    return status;
}

/* ------------------------------------------------------------------ lifetime */

static tern_status write_initial(tern_store *store, uint64_t seed)
{
    tern_status status = TERN_OK;
    float *values = NULL;
    uint64_t largest = 0;
    for (uint32_t i = 0; i < store->layout->parameter_count; i++)
        if (store->layout->parameters[i].bytes > largest) largest = store->layout->parameters[i].bytes;
    values = malloc(largest + 1);
    if (!values) return tern_error_memory("a parameter's initial values", largest);
    for (uint32_t i = 0; i < store->layout->parameter_count; i++) {
        const tern_store_parameter *p = &store->layout->parameters[i];
        if (p->init == TERN_INIT_ZEROS) continue; /* buffers start as zeros */
        tern_store_initial(p, seed, values, p->count);
        TERN_TRY(write_parameter(store, i, values));
    }
fail:
    free(values);
    return status;
}

tern_status tern_store_create(tern_device *device, const tern_store_layout *layout, uint64_t seed,
                              tern_store **out_store)
{
    tern_status status;
    tern_store *store = calloc(1, sizeof *store);
    *out_store = NULL;
    if (!store) return tern_error_memory("the store", sizeof *store);
    store->device = device;
    store->layout = layout;
    TERN_TRY(make_buffers(store));
    TERN_TRY(write_initial(store, seed));
    *out_store = store;
    return TERN_OK;
fail:
    tern_store_destroy(store);
    return status;
}

void tern_store_destroy(tern_store *store)
{
    if (!store) return;
    const tern_backend *backend = store->device->backend;
    for (int slab = 0; slab < TERN_SLAB_COUNT; slab++) {
        for (uint32_t i = 0; store->slabs[slab] && i < store->layout->segment_count; i++)
            if (store->slabs[slab][i]) backend->buffer_destroy(store->device->handle, store->slabs[slab][i]);
        free(store->slabs[slab]);
    }
    if (store->states) backend->buffer_destroy(store->device->handle, store->states);
    free(store);
}

const tern_store_layout *tern_store_get_layout(const tern_store *store) { return store->layout; }

uint64_t tern_store_bytes(const tern_store *store) { return store->bytes; }

/* --------------------------------------------------------------------- names */

/* "slab.<kind>.<segment>" */
static bool find_slab(const tern_store *store, const char *name, tern_binding *out)
{
    char text[48];
    if (strncmp(name, "slab.", 5) != 0) return false;
    for (int slab = 0; slab < TERN_SLAB_COUNT; slab++)
        for (uint32_t i = 0; i < store->layout->segment_count; i++) {
            snprintf(text, sizeof text, "slab.%s.%u", tern_store_slab_names[slab], i);
            if (!store->slabs[slab][i] || strcmp(text, name) != 0) continue;
            *out = (tern_binding){NULL, store->slabs[slab][i], 0, slab_bytes(store, i, (tern_store_slab)slab)};
            return true;
        }
    return false;
}

static bool find_state(const tern_store *store, const char *name, tern_binding *out)
{
    for (uint32_t i = 0; i < store->layout->state_count; i++) {
        const tern_store_state *state = &store->layout->states[i];
        if (strcmp(state->name, name) != 0) continue;
        *out = (tern_binding){NULL, store->states, state->offset, state->bytes};
        return true;
    }
    return false;
}

tern_status tern_store_find(const tern_store *store, const char *name, tern_binding *out_binding)
{
    tern_binding found;
    tern_store_slab slab;
    uint32_t parameter;
    const bool leaf = tern_store_layout_leaf(store->layout, name, &slab, &parameter);
    if ((leaf && find_leaf(store, slab, parameter, &found)) || find_slab(store, name, &found) ||
        find_state(store, name, &found)) {
        found.name = name;
        *out_binding = found;
        return TERN_OK;
    }
    if (leaf)
        return tern_error(TERN_ERROR_NOT_FOUND, "the store keeps no %s for parameter \"%s\"",
                          tern_store_slab_names[slab], store->layout->parameters[parameter].name);
    return tern_error(TERN_ERROR_NOT_FOUND, "the store of %u parameters and %u states holds nothing named \"%s\"",
                      store->layout->parameter_count, store->layout->state_count, name);
}

tern_status tern_store_bind(const tern_store *store, const tern_graph *graph, tern_binding **out_bindings,
                            uint32_t *out_count)
{
    tern_status status;
    uint32_t count = 0;
    tern_binding *bindings = calloc((size_t)graph->node_count + 1, sizeof *bindings);
    *out_bindings = NULL;
    *out_count = 0;
    if (!bindings) return tern_error_memory("a graph's bindings", graph->node_count * sizeof *bindings);
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const tern_tensor *node = graph->nodes[i];
        /* without masters the f32 leaf is only the name that its 16-bit form has in the model */
        if (node->op == TERN_OP_PARAMETER && store->layout->options.no_masters) continue;
        if (node->op == TERN_OP_PARAMETER || node->op == TERN_OP_STATE)
            TERN_TRY(tern_store_find(store, node->label, &bindings[count++]));
    }
    *out_bindings = bindings;
    *out_count = count;
    return TERN_OK;
fail:
    free(bindings);
    return status;
}

/* ----------------------------------------------------------------- transfers */

static tern_status check_bytes(const char *name, uint64_t has, uint64_t given)
{
    if (has == given) return TERN_OK;
    return tern_error(TERN_ERROR_INVALID, "\"%s\" has %llu bytes, but %llu were given", name, (unsigned long long)has,
                      (unsigned long long)given);
}

/* A parameter under its own name or as "weight.<parameter>". */
static bool is_parameter(const tern_store *store, const char *name, uint32_t *out_parameter)
{
    tern_store_slab slab;
    return tern_store_layout_leaf(store->layout, name, &slab, out_parameter) && slab == TERN_SLAB_WEIGHT;
}

tern_status tern_store_read(const tern_store *store, const char *name, void *out_data, uint64_t bytes)
{
    tern_status status;
    tern_binding at;
    uint32_t parameter;
    if (store->layout->options.no_masters && is_parameter(store, name, &parameter)) {
        TERN_TRY(check_bytes(name, store->layout->parameters[parameter].bytes, bytes));
        return read_low(store, parameter, out_data);
    }
    TERN_TRY(tern_store_find(store, name, &at));
    TERN_TRY(check_bytes(name, at.bytes, bytes));
    TERN_TRY(store->device->backend->buffer_read(store->device->handle, at.buffer, at.offset, out_data, bytes));
fail:
    return status;
}

tern_status tern_store_write(tern_store *store, const char *name, const void *data, uint64_t bytes)
{
    tern_status status;
    tern_binding at;
    uint32_t parameter;
    if (is_parameter(store, name, &parameter)) {
        TERN_TRY(check_bytes(name, store->layout->parameters[parameter].bytes, bytes));
        return write_parameter(store, parameter, data);
    }
    TERN_TRY(tern_store_find(store, name, &at));
    TERN_TRY(check_bytes(name, at.bytes, bytes));
    TERN_TRY(store->device->backend->buffer_write(store->device->handle, at.buffer, at.offset, data, bytes));
fail:
    return status;
}
