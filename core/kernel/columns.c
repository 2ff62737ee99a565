/* SPDX-License-Identifier: Apache-2.0 */
/* columns.c - see columns.h. */
#include "core/kernel/columns.h"

#include "core/kernel/fuse.h"

#include <stdlib.h>

/* A SUM whose reduced axes all come before the kept ones, over more rows than one chunk. */
static bool splits(const tern_tensor *x, int64_t *out_rows, int64_t *out_columns)
{
    if (x->op != TERN_OP_SUM) return false;
    int64_t rows = 1, columns = 1;
    for (int32_t i = 0; i < x->rank; i++) {
        const int64_t size = x->in[0]->shape[i];
        if (size == 1) continue;
        if (x->at.reduce.axes >> i & 1u) {
            if (columns > 1) return false;
            rows *= size;
        } else {
            columns *= size;
        }
    }
    *out_rows = rows;
    *out_columns = columns;
    return columns > 1 && rows > TERN_CHUNK_ROWS;
}

static tern_tensor *split_sum(tern_graph *graph, const tern_tensor *x, tern_tensor *input, int64_t rows,
                              int64_t columns)
{
    const int64_t chunks = (rows + TERN_CHUNK_ROWS - 1) / TERN_CHUNK_ROWS;
    tern_tensor *partial = tern_graph_node(graph, TERN_OP_COLUMN_SUMS, x->dtype, 2, (const int64_t[]){chunks, columns},
                                           1, &input, x->label);
    partial->at.columns.rows = rows;
    tern_tensor *sum =
        tern_graph_node(graph, TERN_OP_SUM, x->dtype, 2, (const int64_t[]){1, columns}, 1, &partial, x->label);
    sum->at.reduce.axes = 1u;
    return tern_graph_node(graph, TERN_OP_RESHAPE, x->dtype, x->rank, x->shape, 1, &sum, x->label);
}

static tern_tensor *copy(tern_graph *graph, const tern_tensor *x, tern_tensor *const *map)
{
    tern_tensor *in[TERN_MAX_INPUTS] = {NULL};
    for (int32_t k = 0; k < x->in_count; k++) in[k] = map[x->in[k]->id];
    tern_tensor *y = tern_graph_copy(graph, x, in, x->pass);
    if (x->op == TERN_OP_INPUT && x->at.input.sort_of) y->at.input.sort_of = map[x->at.input.sort_of->id];
    return y;
}

static void mark_live(const tern_graph *graph, bool *live)
{
    for (uint32_t o = 0; o < graph->output_count; o++) live[graph->outputs[o].tensor->id] = true;
    for (uint32_t i = graph->node_count; i-- > 0;) {
        const tern_tensor *x = graph->nodes[i];
        if (x->op == TERN_OP_ASSIGN) live[i] = true;
        for (int32_t k = 0; live[i] && k < x->in_count; k++) live[x->in[k]->id] = true;
        if (live[i] && x->op == TERN_OP_INPUT && x->at.input.sort_of) live[x->at.input.sort_of->id] = true;
    }
}

tern_status tern_split_columns(const tern_graph *graph, tern_graph **out_graph)
{
    tern_graph *result = NULL;
    tern_status status = tern_graph_status(graph);
    bool *live = NULL;
    tern_tensor **map = NULL;
    *out_graph = NULL;
    if (status < 0) return status;
    live = calloc(graph->node_count + 1u, sizeof *live);
    map = calloc(graph->node_count + 1u, sizeof *map);
    if (!live || !map) {
        status = tern_error_memory("the graph's copy", graph->node_count * sizeof *map);
        goto fail;
    }
    TERN_TRY(tern_graph_create(&result));
    result->training = graph->training;
    mark_live(graph, live);
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const tern_tensor *x = graph->nodes[i];
        int64_t rows, columns;
        if (!live[i]) continue;
        result->pass = x->pass;
        map[i] =
            splits(x, &rows, &columns) ? split_sum(result, x, map[x->in[0]->id], rows, columns) : copy(result, x, map);
    }
    for (uint32_t o = 0; o < graph->output_count; o++) {
        const tern_tensor *x = graph->outputs[o].tensor;
        tern_tensor *y = map[x->id];
        if (x->op == TERN_OP_ASSIGN && x->replaced) /* a view to copy through */
            y = tern_graph_node(result, TERN_OP_RESHAPE, x->dtype, x->rank, x->shape, 1, &y, x->label);
        tern_output(y, graph->outputs[o].name);
    }
    TERN_TRY(tern_graph_status(result));
    *out_graph = result;
    result = NULL;
fail:
    tern_graph_destroy(result);
    free(live);
    free(map);
    return status;
}
