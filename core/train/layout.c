/* SPDX-License-Identifier: Apache-2.0 */
/* layout.c - places parameters into segments: pure arithmetic on the graph's leaves and the device's limits. */
#include "core/train/layout.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/array.h"

#define SEGMENT_BYTES ((uint64_t)1 << 30)       /* default: below every allocation limit that cards have */
#define ELEMENT_BYTES ((uint64_t)sizeof(float)) /* of the widest slab, which the limits are about */

static uint64_t round_up(uint64_t value, uint64_t step) { return (value + step - 1) / step * step; }

static uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* -------------------------------------------------------------------- groups */

static int compare_rules(const void *a, const void *b)
{
    const tern_group_rule *x = a, *y = b;
    const double difference[4] = {(double)x->frozen - (double)y->frozen, (double)(x->kind - y->kind),
                                  y->weight_decay - x->weight_decay, y->lr_scale - x->lr_scale};
    for (int i = 0; i < 4; i++)
        if (difference[i] != 0) return difference[i] < 0 ? -1 : 1;
    return 0;
}

static uint32_t find_group(const tern_store_layout *layout, const tern_group_rule *rule)
{
    uint32_t i = 0;
    while (i < layout->group_count && compare_rules(&layout->groups[i], rule) != 0) i++;
    return i;
}

/* rules: one per parameter. Sorted, so that the segments' order does not depend on the graph's. */
static tern_status make_groups(tern_store_layout *layout, const tern_group_rule *rules)
{
    uint32_t capacity = 0;
    for (uint32_t i = 0; i < layout->parameter_count; i++) {
        if (find_group(layout, &rules[i]) < layout->group_count) continue;
        const tern_status status = tern_array_grow((void **)&layout->groups, layout->group_count, &capacity,
                                                   sizeof *layout->groups, "the parameter groups");
        if (status < 0) return status;
        layout->groups[layout->group_count++] = rules[i];
    }
    if (layout->group_count > 0) qsort(layout->groups, layout->group_count, sizeof *layout->groups, compare_rules);
    for (uint32_t i = 0; i < layout->parameter_count; i++) layout->parameters[i].group = find_group(layout, &rules[i]);
    return TERN_OK;
}

static tern_status add_parameter(tern_store_layout *layout, const tern_tensor *node)
{
    tern_store_parameter *p = &layout->parameters[layout->parameter_count];
    p->name = strdup(node->label);
    if (!p->name) return tern_error_memory("a parameter's name", strlen(node->label));
    layout->parameter_count++;
    p->rank = node->rank;
    memcpy(p->shape, node->shape, sizeof p->shape);
    p->init = node->at.parameter.init;
    p->scale = node->at.parameter.scale;
    p->count = (uint64_t)tern_count(node);
    p->bytes = p->count * sizeof(float);
    return TERN_OK;
}

static tern_status collect(tern_store_layout *layout, const tern_graph *graph)
{
    tern_status status = TERN_OK;
    uint32_t count = 0;
    const tern_store_options *o = &layout->options;
    for (uint32_t i = 0; i < graph->node_count; i++) count += graph->nodes[i]->op == TERN_OP_PARAMETER;
    bool *hidden = calloc((size_t)graph->node_count + 1, sizeof *hidden);
    tern_group_rule *rules = calloc((size_t)count + 1, sizeof *rules);
    layout->parameters = calloc((size_t)count + 1, sizeof *layout->parameters);
    if (!hidden || !rules || !layout->parameters) {
        status = tern_error_memory("the parameter table", count * sizeof *layout->parameters);
        goto fail;
    }
    TERN_TRY(tern_groups_hidden(graph, hidden));
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const tern_tensor *node = graph->nodes[i];
        if (node->op != TERN_OP_PARAMETER) continue;
        tern_groups_rule(o->groups, o->group_count, &o->optimizer, node, hidden[i], &rules[layout->parameter_count]);
        TERN_TRY(add_parameter(layout, node));
    }
    TERN_TRY(make_groups(layout, rules));
fail:
    free(hidden);
    free(rules);
    return status;
}

/* ------------------------------------------------------------------ segments */

static tern_status add_segment(tern_store_layout *layout, uint32_t parameter)
{
    const tern_store_parameter *p = &layout->parameters[parameter];
    const tern_group_rule *group = &layout->groups[p->group];
    const bool matrix = tern_optimizers[group->kind].per_parameter && p->rank >= 2;
    const tern_status status =
        tern_array_grow((void **)&layout->segments, layout->segment_count, &layout->segment_capacity,
                        sizeof *layout->segments, "the segment table");
    if (status < 0) return status;
    layout->segments[layout->segment_count++] = (tern_store_segment){
        .group = p->group,
        .parameter = parameter,
        .moments = group->frozen ? 0 : tern_optimizer_moments(&layout->options.optimizer, group->kind, matrix),
        .trainable = !group->frozen,
    };
    return TERN_OK;
}

/* Places one group's tensors in the graph's order, opening a segment when the current one would grow beyond `most`
 * elements. */
static tern_status place_group(tern_store_layout *layout, uint32_t group, uint64_t most, uint64_t hard,
                               const tern_device_info *info)
{
    tern_status status;
    bool open = false;
    const bool alone = tern_optimizers[layout->groups[group].kind].per_parameter && !layout->groups[group].frozen;
    for (uint32_t i = 0; i < layout->parameter_count; i++) {
        tern_store_parameter *p = &layout->parameters[i];
        if (p->group != group) continue;
        if (round_up(p->count, TERN_STORE_CHUNK) > hard)
            return tern_error(TERN_ERROR_UNSUPPORTED,
                              "parameter \"%s\" has %llu bytes, but %s allows %llu in one buffer; make it smaller",
                              p->name, (unsigned long long)p->bytes, info->name,
                              (unsigned long long)(hard * ELEMENT_BYTES));
        const uint64_t start =
            open ? round_up(layout->segments[layout->segment_count - 1].elements, TERN_STORE_BLOCK) : 0;
        if (!open || alone || round_up(start + p->count, TERN_STORE_CHUNK) > most) {
            TERN_TRY(add_segment(layout, i));
            open = true;
        }
        tern_store_segment *segment = &layout->segments[layout->segment_count - 1];
        p->segment = layout->segment_count - 1;
        p->first = round_up(segment->elements, TERN_STORE_BLOCK);
        segment->elements = p->first + p->count;
    }
    return TERN_OK;
fail:
    return status;
}

static tern_status check_options(const tern_store_options *o)
{
    if (o->low != 0 && o->low != TERN_F16 && o->low != TERN_BF16)
        return tern_error(TERN_ERROR_INVALID, "the low copy of the weights is to be f16 or bf16, not dtype %d", o->low);
    if (o->no_masters && o->low == 0)
        return tern_error(TERN_ERROR_INVALID, "a store without f32 masters needs 16-bit weights; choose f16 or bf16");
    for (uint32_t i = 0; i < o->group_count; i++) {
        const int32_t kind = o->groups[i].kind;
        if (kind < 0 ||
            (o->optimizer.kind == TERN_OPTIMIZER_MUON && (kind == TERN_OPTIMIZER_MUON || kind == TERN_OPTIMIZER_ADAMW)))
            continue;
        return tern_error(TERN_ERROR_INVALID,
                          "group \"%s\" names an optimizer; only muon can be mixed, with muon and adamw in groups",
                          o->groups[i].pattern);
    }
    return o->training ? tern_optimizer_check(&o->optimizer) : TERN_OK;
}

tern_status tern_store_layout_create(const tern_graph *graph, const tern_device_info *info,
                                     const tern_store_options *options, tern_store_layout **out_layout)
{
    tern_status status;
    tern_store_layout *layout = calloc(1, sizeof *layout);
    *out_layout = NULL;
    if (!layout) return tern_error_memory("the store's layout", sizeof *layout);
    layout->options = *options;
    uint64_t hard = smaller(info->max_allocation_bytes, info->max_buffer_bytes);
    if (!(info->features & TERN_FEATURE_BUFFER_ADDRESS)) hard = smaller(hard, info->max_binding_bytes);
    uint64_t most = options->segment_bytes ? options->segment_bytes : smaller(SEGMENT_BYTES, info->max_binding_bytes);
    most = smaller(most, hard);
    TERN_TRY(check_options(options));
    TERN_TRY(collect(layout, graph));
    for (uint32_t group = 0; group < layout->group_count; group++)
        TERN_TRY(place_group(layout, group, most / ELEMENT_BYTES, hard / ELEMENT_BYTES, info));
    for (uint32_t i = 0; i < layout->segment_count; i++)
        layout->segments[i].elements = round_up(layout->segments[i].elements, TERN_STORE_CHUNK);
    layout->options.groups = NULL; /* the caller's */
    layout->options.group_count = 0;
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
    free(layout->groups);
    free(layout->parameters);
    free(layout->segments);
    free(layout->states);
    free(layout);
}
