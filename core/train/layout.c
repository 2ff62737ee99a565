/* SPDX-License-Identifier: Apache-2.0 */
/* layout.c - which parameter lies where: pure arithmetic on the graph's leaves and the device's limits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/train/store.h"

#define TENSOR_ALIGN  64u                 /* a cache line; vector loads of every backend */
#define STATE_ALIGN   256u                /* binding offsets of every known driver */
#define SEGMENT_BYTES ((uint64_t)1 << 30) /* default: below every allocation limit that cards have */
#define CHUNK_BYTES   (TERN_STORE_CHUNK * (uint64_t)sizeof(float))

const char *const tern_store_slab_names[TERN_SLAB_COUNT] = {"weight", "acc", "m", "v"};

static uint64_t round_up(uint64_t value, uint64_t step) { return (value + step - 1) / step * step; }

static uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

static tern_store_group group_of(const tern_tensor *parameter)
{
    if (!parameter->at.parameter.trainable) return TERN_GROUP_FROZEN;
    return parameter->rank >= 2 ? TERN_GROUP_DECAY : TERN_GROUP_PLAIN;
}

static tern_status collect(tern_store_layout *layout, const tern_graph *graph)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < graph->node_count; i++) count += graph->nodes[i]->op == TERN_OP_PARAMETER;
    layout->parameters = calloc(count + 1, sizeof *layout->parameters);
    if (!layout->parameters) return tern_error_memory("the parameter table", count * sizeof *layout->parameters);
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const tern_tensor *node = graph->nodes[i];
        if (node->op != TERN_OP_PARAMETER) continue;
        tern_store_parameter *p = &layout->parameters[layout->parameter_count];
        p->name = strdup(node->label);
        if (!p->name) return tern_error_memory("a parameter's name", strlen(node->label));
        layout->parameter_count++;
        p->rank = node->rank;
        memcpy(p->shape, node->shape, sizeof p->shape);
        p->init = node->at.parameter.init;
        p->scale = node->at.parameter.scale;
        p->group = group_of(node);
        p->bytes = (uint64_t)tern_count(node) * sizeof(float);
    }
    return TERN_OK;
}

static tern_status add_segment(tern_store_layout *layout, tern_store_group group)
{
    tern_store_segment *grown = realloc(layout->segments, (layout->segment_count + 1) * sizeof *grown);
    if (!grown) return tern_error_memory("the segment table", (layout->segment_count + 1) * sizeof *grown);
    layout->segments = grown;
    layout->segments[layout->segment_count++] = (tern_store_segment){.group = group};
    return TERN_OK;
}

/* Places one group's tensors in the graph's order, opening a segment when the current one would grow beyond `most`. */
static tern_status place_group(tern_store_layout *layout, tern_store_group group, uint64_t most, uint64_t hard,
                               const tern_device_info *info)
{
    tern_status status;
    bool open = false;
    for (uint32_t i = 0; i < layout->parameter_count; i++) {
        tern_store_parameter *p = &layout->parameters[i];
        if (p->group != group) continue;
        if (round_up(p->bytes, CHUNK_BYTES) > hard)
            return tern_error(TERN_ERROR_UNSUPPORTED,
                              "parameter \"%s\" has %llu bytes, but %s allows %llu in one buffer; make it smaller",
                              p->name, (unsigned long long)p->bytes, info->name, (unsigned long long)hard);
        uint64_t end = open ? round_up(layout->segments[layout->segment_count - 1].bytes, TENSOR_ALIGN) + p->bytes : 0;
        if (!open || round_up(end, CHUNK_BYTES) > most) {
            TERN_TRY(add_segment(layout, group));
            open = true;
        }
        tern_store_segment *segment = &layout->segments[layout->segment_count - 1];
        p->segment = layout->segment_count - 1;
        p->offset = round_up(segment->bytes, TENSOR_ALIGN);
        segment->bytes = p->offset + p->bytes;
    }
    return TERN_OK;
fail:
    return status;
}

tern_status tern_store_layout_create(const tern_graph *graph, const tern_device_info *info, uint64_t segment_bytes,
                                     bool training, tern_store_layout **out_layout)
{
    tern_status status;
    tern_store_layout *layout = calloc(1, sizeof *layout);
    *out_layout = NULL;
    if (!layout) return tern_error_memory("the store's layout", sizeof *layout);
    layout->training = training;
    uint64_t hard = smaller(info->max_allocation_bytes, info->max_buffer_bytes);
    if (!(info->features & TERN_FEATURE_BUFFER_ADDRESS)) hard = smaller(hard, info->max_binding_bytes);
    uint64_t most = segment_bytes ? segment_bytes : smaller(SEGMENT_BYTES, info->max_binding_bytes);
    most = smaller(most, hard);
    TERN_TRY(collect(layout, graph));
    for (int group = 0; group < TERN_GROUP_COUNT; group++)
        TERN_TRY(place_group(layout, (tern_store_group)group, most, hard, info));
    for (uint32_t i = 0; i < layout->segment_count; i++)
        layout->segments[i].bytes = round_up(layout->segments[i].bytes, CHUNK_BYTES);
    *out_layout = layout;
    return TERN_OK;
fail:
    tern_store_layout_destroy(layout);
    return status;
}

void tern_store_layout_destroy(tern_store_layout *layout)
{
    if (!layout) return;
    for (uint32_t i = 0; i < layout->parameter_count; i++) free(layout->parameters[i].name);
    for (uint32_t i = 0; i < layout->state_count; i++) free(layout->states[i].name);
    free(layout->parameters);
    free(layout->segments);
    free(layout->states);
    free(layout);
}

static const tern_store_parameter *find_parameter(const tern_store_layout *layout, const char *name)
{
    for (uint32_t i = 0; i < layout->parameter_count; i++)
        if (strcmp(layout->parameters[i].name, name) == 0) return &layout->parameters[i];
    return NULL;
}

static void print_shape(char *out, size_t bytes, int32_t rank, const int64_t *shape)
{
    size_t used = (size_t)snprintf(out, bytes, "(");
    for (int32_t i = 0; i < rank && used < bytes; i++)
        used += (size_t)snprintf(out + used, bytes - used, "%s%lld", i > 0 ? ", " : "", (long long)shape[i]);
    if (used < bytes) snprintf(out + used, bytes - used, ")");
}

static tern_status check_parameter(const tern_store_layout *layout, const tern_tensor *node)
{
    char here[128], there[128];
    const tern_store_parameter *p = find_parameter(layout, node->label);
    if (!p)
        return tern_error(TERN_ERROR_INVALID,
                          "the store has no parameter \"%s\"; a second graph may use only parameters of the first",
                          node->label);
    if (p->rank == node->rank && memcmp(p->shape, node->shape, (size_t)p->rank * sizeof *p->shape) == 0) return TERN_OK;
    print_shape(here, sizeof here, node->rank, node->shape);
    print_shape(there, sizeof there, p->rank, p->shape);
    return tern_error(TERN_ERROR_INVALID, "parameter \"%s\" is %s in the store, but %s in this graph", node->label,
                      there, here);
}

static tern_status add_state(tern_store_layout *layout, const tern_tensor *node)
{
    uint64_t bytes = tern_dtype_bytes(node->dtype, (uint64_t)tern_count(node));
    for (uint32_t i = 0; i < layout->state_count; i++) {
        if (strcmp(layout->states[i].name, node->label) != 0) continue;
        if (layout->states[i].bytes == bytes) return TERN_OK;
        return tern_error(TERN_ERROR_INVALID, "state \"%s\" has %llu bytes in the store, but %llu in this graph",
                          node->label, (unsigned long long)layout->states[i].bytes, (unsigned long long)bytes);
    }
    if (layout->state_count == layout->state_capacity) {
        uint32_t capacity = layout->state_capacity ? 2 * layout->state_capacity : 16;
        tern_store_state *grown = realloc(layout->states, capacity * sizeof *grown);
        if (!grown) return tern_error_memory("the state table", capacity * sizeof *grown);
        layout->states = grown;
        layout->state_capacity = capacity;
    }
    char *name = strdup(node->label);
    if (!name) return tern_error_memory("a state's name", strlen(node->label));
    layout->states[layout->state_count++] = (tern_store_state){name, layout->state_bytes, bytes};
    layout->state_bytes = round_up(layout->state_bytes + bytes, STATE_ALIGN);
    return TERN_OK;
}

tern_status tern_store_layout_add(tern_store_layout *layout, const tern_graph *graph)
{
    tern_status status = TERN_OK;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const tern_tensor *node = graph->nodes[i];
        if (node->op == TERN_OP_PARAMETER) TERN_TRY(check_parameter(layout, node));
        if (node->op != TERN_OP_STATE || strncmp(node->label, "slab.", 5) == 0) continue;
        if (strncmp(node->label, "acc.", 4) == 0 && find_parameter(layout, node->label + 4)) continue;
        TERN_TRY(add_state(layout, node));
    }
fail:
    return status;
}

uint64_t tern_store_layout_bytes(const tern_store_layout *layout, tern_store_slab slab)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < layout->segment_count; i++)
        if (slab == TERN_SLAB_WEIGHT || (layout->training && layout->segments[i].group != TERN_GROUP_FROZEN))
            bytes += layout->segments[i].bytes;
    return bytes;
}

uint64_t tern_store_layout_elements(const tern_store_layout *layout)
{
    uint64_t elements = 0;
    for (uint32_t i = 0; i < layout->parameter_count; i++) elements += layout->parameters[i].bytes / sizeof(float);
    return elements;
}
