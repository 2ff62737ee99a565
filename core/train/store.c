/* SPDX-License-Identifier: Apache-2.0 */
/* store.c - the layout's buffers on a device, found by leaf name. */
#include "core/train/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tern_store {
    tern_device *device;
    const tern_store_layout *layout;
    tern_backend_buffer **slabs[TERN_SLAB_COUNT]; /* per segment; NULL where a slab does not exist */
    tern_backend_buffer *states;                  /* NULL without states */
};

static bool has_slab(const tern_store_layout *layout, uint32_t segment, int slab)
{
    return slab == TERN_SLAB_WEIGHT || (layout->training && layout->segments[segment].group != TERN_GROUP_FROZEN);
}

static tern_status make_buffers(tern_store *store)
{
    tern_status status = TERN_OK;
    const tern_store_layout *layout = store->layout;
    const tern_backend *backend = store->device->backend;
    for (int slab = 0; slab < TERN_SLAB_COUNT; slab++) {
        store->slabs[slab] = calloc(layout->segment_count + 1, sizeof *store->slabs[slab]);
        if (!store->slabs[slab])
            return tern_error_memory("the store", layout->segment_count * sizeof *store->slabs[slab]);
        for (uint32_t i = 0; i < layout->segment_count; i++)
            if (has_slab(layout, i, slab))
                TERN_TRY(backend->buffer_create(store->device->handle, layout->segments[i].bytes, TERN_BUFFER_DEVICE,
                                                &store->slabs[slab][i]));
    }
    if (layout->state_bytes > 0)
        TERN_TRY(
            backend->buffer_create(store->device->handle, layout->state_bytes, TERN_BUFFER_DEVICE, &store->states));
fail:
    return status;
}

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
        tern_store_initial(p, seed, values, p->bytes / sizeof *values);
        TERN_TRY(store->device->backend->buffer_write(store->device->handle, store->slabs[TERN_SLAB_WEIGHT][p->segment],
                                                      p->offset, values, p->bytes));
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

/* "slab.<kind>.<segment>" */
static bool find_slab(const tern_store *store, const char *name, tern_binding *out)
{
    char text[48];
    if (strncmp(name, "slab.", 5) != 0) return false;
    for (int slab = 0; slab < TERN_SLAB_COUNT; slab++)
        for (uint32_t i = 0; i < store->layout->segment_count; i++) {
            snprintf(text, sizeof text, "slab.%s.%u", tern_store_slab_names[slab], i);
            if (!store->slabs[slab][i] || strcmp(text, name) != 0) continue;
            *out = (tern_binding){NULL, store->slabs[slab][i], 0, store->layout->segments[i].bytes};
            return true;
        }
    return false;
}

static bool find_parameter(const tern_store *store, const char *name, int slab, tern_binding *out)
{
    for (uint32_t i = 0; i < store->layout->parameter_count; i++) {
        const tern_store_parameter *p = &store->layout->parameters[i];
        if (strcmp(p->name, name) != 0 || !store->slabs[slab][p->segment]) continue;
        *out = (tern_binding){NULL, store->slabs[slab][p->segment], p->offset, p->bytes};
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
    if (find_parameter(store, name, TERN_SLAB_WEIGHT, &found) || find_slab(store, name, &found) ||
        find_state(store, name, &found) ||
        (strncmp(name, "acc.", 4) == 0 && find_parameter(store, name + 4, TERN_SLAB_ACC, &found))) {
        found.name = name;
        *out_binding = found;
        return TERN_OK;
    }
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

static tern_status find_whole(const tern_store *store, const char *name, uint64_t bytes, tern_binding *out)
{
    tern_status status = tern_store_find(store, name, out);
    if (status < 0) return status;
    if (out->bytes != bytes)
        return tern_error(TERN_ERROR_INVALID, "\"%s\" has %llu bytes, but %llu were given", name,
                          (unsigned long long)out->bytes, (unsigned long long)bytes);
    return TERN_OK;
}

tern_status tern_store_read(const tern_store *store, const char *name, void *out_data, uint64_t bytes)
{
    tern_status status;
    tern_binding at;
    TERN_TRY(find_whole(store, name, bytes, &at));
    TERN_TRY(store->device->backend->buffer_read(store->device->handle, at.buffer, at.offset, out_data, bytes));
fail:
    return status;
}

tern_status tern_store_write(tern_store *store, const char *name, const void *data, uint64_t bytes)
{
    tern_status status;
    tern_binding at;
    TERN_TRY(find_whole(store, name, bytes, &at));
    TERN_TRY(store->device->backend->buffer_write(store->device->handle, at.buffer, at.offset, data, bytes));
fail:
    return status;
}
