/* SPDX-License-Identifier: Apache-2.0 */
/* random_graph_values.c - what goes into a random graph's leaves, and the graph as text; see random_graph.h. */
#include "core/graph/build.h"
#include "tests/random_graph.h"
#include "tests/test.h"

#include <stdlib.h>

static uint32_t mix(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ x >> 16;
}

static void fill_leaf(const tern_tensor *x, double *data)
{
    uint32_t hash = 2166136261u;
    for (const char *c = x->label; *c; c++) hash = (hash ^ (uint8_t)*c) * 16777619u;
    for (int64_t i = 0; i < tern_count(x); i++) {
        const uint32_t bits = mix(hash + (uint32_t)i * 0x9e3779b9u);
        if (x->dtype == TERN_F32)
            data[i] = (double)(float)(((double)bits + 0.5) / 2147483648.0 - 1);
        else if (x->dtype == TERN_F16 || x->dtype == TERN_BF16)
            data[i] = (double)(bits % 255u) / 128.0 - 1; /* exact in both */
        else if (strcmp(x->label, TERN_CONTROL_NAME) == 0)
            data[i] = bits;
        else if (x->op == TERN_OP_STATE)
            data[i] = bits % 1000u;
        else
            data[i] = x->dtype == TERN_I32 && bits % 37u == 0 ? -1.0 : (double)(bits % 11u);
    }
    if (strcmp(x->label, "step.scale") == 0) data[0] = 4;
}

static void fill_sorted(const tern_tensor *x, tern_reference *reference)
{
    const tern_tensor *ids = x->at.input.sort_of;
    const int64_t n = tern_count(ids), rows = x->at.input.rows;
    uint32_t *values = malloc((size_t)n * sizeof *values), *order = malloc((size_t)n * sizeof *order);
    uint32_t *offsets = malloc((size_t)(rows + 1) * sizeof *offsets);
    for (int64_t i = 0; i < n; i++) values[i] = (uint32_t)(int64_t)tern_reference_data(reference, ids)[i];
    tern_counting_sort(values, TERN_U32, n, rows, order, offsets);
    for (int64_t i = 0; i < tern_count(x); i++)
        tern_reference_data(reference, x)[i] = x->at.input.part ? offsets[i] : order[i];
    free(values);
    free(order);
    free(offsets);
}

void random_graph_fill(const tern_graph *graph, tern_reference *reference)
{
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const tern_tensor *x = graph->nodes[i];
        if (x->op != TERN_OP_INPUT && x->op != TERN_OP_PARAMETER && x->op != TERN_OP_STATE) continue;
        if (!(x->op == TERN_OP_INPUT && x->at.input.sort_of)) fill_leaf(x, tern_reference_data(reference, x));
    }
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const tern_tensor *x = graph->nodes[i];
        if (x->op == TERN_OP_INPUT && x->at.input.sort_of) fill_sorted(x, reference);
    }
}

/* ----------------------------------------------------------------------- text */

static void print_list(const char *name, const int64_t *values, int32_t count)
{
    print_message(" %s", name);
    for (int32_t i = 0; i < count; i++) print_message("%s%lld", i ? "," : "=", (long long)values[i]);
}

static void print_node(const tern_tensor *x)
{
    print_message("  %%%u = %s(", x->id, tern_ops[x->op].name);
    for (int32_t k = 0; k < x->in_count; k++) print_message("%s%%%u", k ? ", " : "", x->in[k]->id);
    print_message(") %s %s", tern_describe_shape(x->rank, x->shape).text, tern_dtype_name(x->dtype));
    if (x->op == TERN_OP_SLICE) print_list("starts", x->at.slice.starts, x->rank);
    if (x->op == TERN_OP_PAD) {
        print_list("before", x->at.pad.before, x->rank);
        print_list("after", x->at.pad.after, x->rank);
    }
    for (int32_t i = 0; x->op == TERN_OP_PERMUTE && i < x->rank; i++)
        print_message("%s%d", i ? "," : " axes=", x->at.permute.axes[i]);
    if (tern_ops[x->op].kind == TERN_KIND_REDUCE) print_message(" axes=%#x", x->at.reduce.axes);
    if (x->op == TERN_OP_CONSTANT) print_message(" bits=%#x", x->at.constant.bits);
    if (x->op == TERN_OP_INDEX) print_message(" axis=%d", x->at.index.axis);
    if (tern_ops[x->op].kind == TERN_KIND_LEAF && x->op != TERN_OP_CONSTANT) print_message(" \"%s\"", x->label);
    print_message("%s\n", x->pass == TERN_PASS_FORWARD ? "" : " late");
}

void random_graph_print(const tern_graph *graph)
{
    for (uint32_t i = 0; i < graph->node_count; i++) print_node(graph->nodes[i]);
    for (uint32_t o = 0; o < graph->output_count; o++)
        print_message("  output %s = %%%u\n", graph->outputs[o].name, graph->outputs[o].tensor->id);
}
