/* SPDX-License-Identifier: Apache-2.0 */
/* layout_leaf.c - the names that graphs use for what the layout placed: slabs, leaves of parameters, other states. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/array.h"
#include "core/train/layout.h"

#define STATE_ALIGN 256u /* binding offsets of every known driver */

const char *const tern_store_slab_names[TERN_SLAB_COUNT] = {"weight", "low", "acc", "m", "v", "m_scale", "v_scale"};

/* --------------------------------------------------------------------- slabs */

bool tern_store_layout_has(const tern_store_layout *layout, uint32_t segment, tern_store_slab slab)
{
    const tern_store_options *o = &layout->options;
    const tern_store_segment *s = &layout->segments[segment];
    const bool trains = o->training && s->trainable;
    switch (slab) {
    case TERN_SLAB_WEIGHT: return !o->no_masters;
    case TERN_SLAB_LOW: return o->low != 0;
    case TERN_SLAB_ACC: return trains;
    case TERN_SLAB_M: return trains && (s->moments & TERN_MOMENT_M);
    case TERN_SLAB_V: return trains && (s->moments & TERN_MOMENT_V);
    case TERN_SLAB_M_SCALE: return o->optimizer.eight_bit && tern_store_layout_has(layout, segment, TERN_SLAB_M);
    case TERN_SLAB_V_SCALE: return o->optimizer.eight_bit && tern_store_layout_has(layout, segment, TERN_SLAB_V);
    default: return false;
    }
}

int32_t tern_store_layout_dtype(const tern_store_layout *layout, tern_store_slab slab)
{
    const bool moment = slab == TERN_SLAB_M || slab == TERN_SLAB_V;
    if (slab == TERN_SLAB_LOW) return layout->options.low;
    return moment && layout->options.optimizer.eight_bit ? TERN_U8 : TERN_F32;
}

/* Parameter elements per element of the slab. */
static uint64_t per_element(tern_store_slab slab)
{
    return slab == TERN_SLAB_M_SCALE || slab == TERN_SLAB_V_SCALE ? TERN_STORE_BLOCK : 1;
}

uint64_t tern_store_layout_count(const tern_store_layout *layout, uint32_t segment, tern_store_slab slab)
{
    if (!tern_store_layout_has(layout, segment, slab)) return 0;
    return layout->segments[segment].elements / per_element(slab);
}

uint64_t tern_store_layout_bytes(const tern_store_layout *layout, tern_store_slab slab)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < layout->segment_count; i++)
        if (tern_store_layout_has(layout, i, slab))
            bytes += tern_dtype_bytes(tern_store_layout_dtype(layout, slab), tern_store_layout_count(layout, i, slab));
    return bytes;
}

uint64_t tern_store_layout_elements(const tern_store_layout *layout)
{
    uint64_t elements = 0;
    for (uint32_t i = 0; i < layout->parameter_count; i++) elements += layout->parameters[i].count;
    return elements;
}

tern_tensor *tern_store_layout_tensor(const tern_store_layout *layout, tern_graph *graph, uint32_t segment,
                                      tern_store_slab slab)
{
    char name[48];
    const int64_t count = (int64_t)tern_store_layout_count(layout, segment, slab);
    snprintf(name, sizeof name, "slab.%s.%u", tern_store_slab_names[slab], segment);
    tern_tensor *known = tern_graph_find(graph, TERN_OP_STATE, name);
    return known ? known : tern_state(graph, name, tern_store_layout_dtype(layout, slab), 1, &count);
}

/* -------------------------------------------------------------------- leaves */

static bool find_parameter(const tern_store_layout *layout, const char *name, uint32_t *out_parameter)
{
    for (uint32_t i = 0; i < layout->parameter_count; i++)
        if (strcmp(layout->parameters[i].name, name) == 0) {
            *out_parameter = i;
            return true;
        }
    return false;
}

bool tern_store_layout_leaf(const tern_store_layout *layout, const char *name, tern_store_slab *out_slab,
                            uint32_t *out_parameter)
{
    *out_slab = TERN_SLAB_WEIGHT;
    if (find_parameter(layout, name, out_parameter)) return true;
    for (int slab = 0; slab < TERN_SLAB_COUNT; slab++) {
        const size_t length = strlen(tern_store_slab_names[slab]);
        if (strncmp(name, tern_store_slab_names[slab], length) != 0 || name[length] != '.') continue;
        *out_slab = (tern_store_slab)slab;
        return find_parameter(layout, name + length + 1, out_parameter);
    }
    return false;
}

/* ------------------------------------------------------------- other graphs */

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
    uint32_t index;
    if (!find_parameter(layout, node->label, &index))
        return tern_error(TERN_ERROR_INVALID,
                          "the store has no parameter \"%s\"; a second graph may use only parameters of the first",
                          node->label);
    const tern_store_parameter *p = &layout->parameters[index];
    if (p->rank == node->rank && memcmp(p->shape, node->shape, (size_t)p->rank * sizeof *p->shape) == 0) return TERN_OK;
    print_shape(here, sizeof here, node->rank, node->shape);
    print_shape(there, sizeof there, p->rank, p->shape);
    return tern_error(TERN_ERROR_INVALID, "parameter \"%s\" is %s in the store, but %s in this graph", node->label,
                      there, here);
}

static tern_status check_leaf(const tern_store_layout *layout, const tern_tensor *node, tern_store_slab slab,
                              uint32_t parameter)
{
    const tern_store_parameter *p = &layout->parameters[parameter];
    if (!tern_store_layout_has(layout, p->segment, slab))
        return tern_error(TERN_ERROR_INVALID, "the store keeps no %s for parameter \"%s\", but a graph uses \"%s\"",
                          tern_store_slab_names[slab], p->name, node->label);
    if (node->dtype == tern_store_layout_dtype(layout, slab)) return TERN_OK;
    return tern_error(TERN_ERROR_INVALID, "\"%s\" is %s in the store, but %s in this graph", node->label,
                      tern_dtype(tern_store_layout_dtype(layout, slab))->name, tern_dtype(node->dtype)->name);
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
    const tern_status status = tern_array_grow((void **)&layout->states, layout->state_count, &layout->state_capacity,
                                               sizeof *layout->states, "the state table");
    if (status < 0) return status;
    char *name = strdup(node->label);
    if (!name) return tern_error_memory("a state's name", strlen(node->label));
    layout->states[layout->state_count++] = (tern_store_state){name, layout->state_bytes, bytes};
    layout->state_bytes = (layout->state_bytes + bytes + STATE_ALIGN - 1) / STATE_ALIGN * STATE_ALIGN;
    return TERN_OK;
}

tern_status tern_store_layout_add(tern_store_layout *layout, const tern_graph *graph)
{
    tern_status status = TERN_OK;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const tern_tensor *node = graph->nodes[i];
        tern_store_slab slab;
        uint32_t parameter;
        if (node->op == TERN_OP_PARAMETER) TERN_TRY(check_parameter(layout, node));
        if (node->op != TERN_OP_STATE || strncmp(node->label, "slab.", 5) == 0) continue;
        if (tern_store_layout_leaf(layout, node->label, &slab, &parameter))
            TERN_TRY(check_leaf(layout, node, slab, parameter));
        else
            TERN_TRY(add_state(layout, node));
    }
fail:
    return status;
}
