/* SPDX-License-Identifier: Apache-2.0 */
/* reference.c - runs a graph node by node in creation order; every node has its own array of doubles.
 *
 * Invariant: nothing is shared, reused or reordered, so a value can only be wrong if its own op is. ASSIGN keeps its
 * new version in its own array; leaves are overwritten when all nodes have run, so that every reader of the old version
 * saw the old one. */
#include "core/reference/reference.h"

#include "core/reference/ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct tern_reference {
    const tern_graph *graph;
    uint32_t node_count; /* of the graph when this was made */
    bool exact;          /* nothing is rounded to 16 bit */
    double **data;       /* per node */
    double **second;     /* per node: a contraction's second output, where a SECOND node reads it */
};

static const tern_reference_op runs[TERN_OP_COUNT] = {
    [TERN_OP_CONSTANT] = tern_reference_leaf,
    [TERN_OP_INDEX] = tern_reference_leaf,
    [TERN_OP_RESHAPE] = tern_reference_view,
    [TERN_OP_PERMUTE] = tern_reference_view,
    [TERN_OP_EXPAND] = tern_reference_view,
    [TERN_OP_SLICE] = tern_reference_view,
    [TERN_OP_PAD] = tern_reference_view,
    [TERN_OP_GATHER] = tern_reference_gather,
    [TERN_OP_SUM] = tern_reference_reduce,
    [TERN_OP_MAXIMUM] = tern_reference_reduce,
    [TERN_OP_MATMUL] = tern_reference_matmul,
    [TERN_OP_SCATTER_ADD] = tern_reference_scatter_add,
    [TERN_OP_ATTENTION] = tern_reference_attention,
    [TERN_OP_ATTENTION_DQ] = tern_reference_attention_dq,
    [TERN_OP_ATTENTION_DKV] = tern_reference_attention_dkv,
};

void tern_reference_destroy(tern_reference *reference)
{
    if (!reference) return;
    for (uint32_t i = 0; i < reference->node_count; i++) {
        if (reference->data) free(reference->data[i]);
        if (reference->second) free(reference->second[i]);
    }
    free(reference->data);
    free(reference->second);
    free(reference);
}

tern_status tern_reference_create(const tern_graph *graph, tern_reference **out_reference)
{
    tern_status status;
    tern_reference *reference = NULL;
    size_t bytes = sizeof *reference;

    *out_reference = NULL;
    TERN_TRY(tern_graph_status(graph));
    reference = calloc(1, bytes);
    if (!reference) goto memory;
    reference->graph = graph;
    reference->node_count = graph->node_count;
    bytes = (graph->node_count + 1u) * sizeof(double *);
    reference->data = calloc(1, bytes);
    reference->second = calloc(1, bytes);
    if (!reference->data || !reference->second) goto memory;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const tern_tensor *x = graph->nodes[i];
        double **place = &reference->data[i];
        bytes = (size_t)tern_count(x) * sizeof(double);
        *place = calloc(1, bytes);
        if (!*place) goto memory;
        if (x->op != TERN_OP_SECOND || reference->second[x->in[0]->id]) continue;
        reference->second[x->in[0]->id] = calloc(1, bytes);
        if (!reference->second[x->in[0]->id]) goto memory;
    }
    *out_reference = reference;
    return TERN_OK;
memory:
    status = tern_error_memory("the reference's doubles", bytes);
fail:
    tern_reference_destroy(reference);
    return status;
}

tern_status tern_reference_create_exact(const tern_graph *graph, tern_reference **out_reference)
{
    tern_status status = tern_reference_create(graph, out_reference);
    if (status >= 0) (*out_reference)->exact = true;
    return status;
}

double *tern_reference_data(tern_reference *reference, const tern_tensor *x)
{
    return x && x->graph == reference->graph && x->id < reference->node_count ? reference->data[x->id] : NULL;
}

static tern_reference_call call_of(const tern_reference *reference, const tern_tensor *x)
{
    tern_reference_call call = {
        .node = x, .out = reference->data[x->id], .second = reference->second[x->id], .exact = reference->exact};
    for (int32_t i = 0; i < x->in_count; i++) call.in[i] = reference->data[x->in[i]->id];
    return call;
}

static void run_node(tern_reference *reference, const tern_tensor *x)
{
    size_t bytes = (size_t)tern_count(x) * sizeof(double);
    tern_reference_call call = call_of(reference, x);
    switch (x->op) {
    case TERN_OP_INPUT:
    case TERN_OP_PARAMETER:
    case TERN_OP_STATE: return; /* the caller's */
    case TERN_OP_SECOND: memcpy(call.out, reference->second[x->in[0]->id], bytes); return;
    case TERN_OP_ASSIGN: memcpy(call.out, call.in[1], bytes); return;
    default: (runs[x->op] ? runs[x->op] : tern_reference_map)(&call);
    }
}

tern_status tern_reference_run(tern_reference *reference)
{
    tern_tensor *const *nodes = reference->graph->nodes;
    for (uint32_t i = 0; i < reference->node_count; i++) run_node(reference, nodes[i]);
    for (uint32_t i = 0; i < reference->node_count; i++) {
        if (nodes[i]->op != TERN_OP_ASSIGN) continue;
        const tern_tensor *leaf = nodes[i];
        while (leaf->op == TERN_OP_ASSIGN) leaf = leaf->in[0];
        memcpy(reference->data[leaf->id], reference->data[i], (size_t)tern_count(leaf) * sizeof(double));
    }
    return TERN_OK;
}

tern_status tern_reference_magnitude(tern_reference *reference, const tern_tensor *x, double *out_magnitude)
{
    int64_t count;
    if (!tern_reference_data(reference, x))
        return tern_error(TERN_ERROR_INVALID, "reference: the tensor \"%s\" is not one of its graph",
                          x ? x->label : "NULL");
    count = tern_count(x);
    const tern_tensor *source = x->op == TERN_OP_SECOND ? x->in[0] : x;
    if (source->op == TERN_OP_SUM || tern_ops[source->op].kind == TERN_KIND_CONTRACTION) {
        int64_t source_count = tern_count(source);
        double *scratch = calloc((size_t)(count > source_count ? count : source_count), sizeof *scratch);
        if (!scratch) return tern_error_memory("the reference's magnitudes", (size_t)source_count * sizeof *scratch);
        tern_reference_call call = call_of(reference, source);
        call.magnitude = true;
        call.out = source == x ? out_magnitude : scratch;
        call.second = source == x ? NULL : out_magnitude;
        runs[source->op](&call);
        free(scratch);
    } else {
        for (int64_t i = 0; i < count; i++) out_magnitude[i] = fabs(reference->data[x->id][i]);
    }
    return TERN_OK;
}
