/* SPDX-License-Identifier: Apache-2.0 */
/* instance.c - one scan in the order of the nodes, since every input precedes its reader; instance.h has the rules. */
#include "core/passes/instance.h"

#include "core/graph/build.h"

#include <stdlib.h>

typedef struct copying {
    const tern_graph *in;
    tern_graph *out;
    tern_tensor **copies; /* by id of `in`; two ids may share a copy in an evaluation copy */
} copying;

static tern_tensor *copy_of(const copying *c, const tern_tensor *x) { return x ? c->copies[x->id] : NULL; }

static tern_tensor *copy_node(const copying *c, const tern_tensor *x)
{
    tern_tensor *in[TERN_MAX_INPUTS];
    if (!c->out->training && x->in_evaluation) return copy_of(c, x->in_evaluation);
    for (int32_t i = 0; i < x->in_count; i++) in[i] = copy_of(c, x->in[i]);
    tern_tensor *copy = tern_graph_copy(c->out, x, in, x->pass);
    if (copy == c->out->inert) return copy;
    copy->weight = copy_of(c, x->weight);
    copy->in_evaluation = copy_of(c, x->in_evaluation);
    if (x->op == TERN_OP_INPUT) copy->at.input.sort_of = copy_of(c, x->at.input.sort_of);
    return copy;
}

tern_status tern_pass_instance(const tern_graph *in, tern_graph *out)
{
    tern_status status = tern_graph_status(in);
    if (status < 0) return status;
    copying c = {.in = in, .out = out, .copies = calloc((size_t)in->node_count + 1, sizeof *c.copies)};
    if (!c.copies) return tern_error_memory("a graph's copy", in->node_count * sizeof *c.copies);
    for (uint32_t id = 0; id < in->node_count && out->status >= 0; id++) c.copies[id] = copy_node(&c, in->nodes[id]);
    status = tern_graph_status(out);
    if (status >= 0) {
        for (uint32_t i = 0; i < in->output_count; i++)
            tern_output(copy_of(&c, in->outputs[i].tensor), in->outputs[i].name);
        out->loss = copy_of(&c, in->loss);
        out->loss_weight = copy_of(&c, in->loss_weight);
        status = tern_graph_status(out);
    }
    free(c.copies);
    return status;
}

tern_status tern_pass_mask_examples(tern_graph *graph, int64_t batch)
{
    tern_status status = tern_graph_status(graph);
    if (status < 0) return status;
    tern_tensor *loss = graph->loss;
    if (!loss)
        return tern_error(TERN_ERROR_INVALID, "the graph has no loss; call tern_loss before making a trainer of it");
    if (loss->rank < 1 || loss->shape[0] % batch != 0)
        return tern_error(TERN_ERROR_INVALID,
                          "the loss %s has no axis of the batch's %lld examples in front; give tern_loss one loss per "
                          "example",
                          tern_describe(loss).text, (long long)batch);
    const int64_t count = tern_count(loss), one = 1;
    const uint32_t per_example = (uint32_t)(count / batch);
    tern_tensor *given = tern_slice(tern_graph_control(graph), 0, TERN_CONTROL_EXAMPLES, 1);
    tern_tensor *limit = tern_mul(given, tern_constant_u32(graph, per_example)); /* elements that count */
    tern_tensor *counts = tern_less(tern_index(graph, 1, &count, 0), tern_reshape(limit, 1, &one));
    counts = tern_reshape(counts, loss->rank, loss->shape);
    tern_tensor *weight = graph->loss_weight ? graph->loss_weight : tern_constant(graph, 1);
    graph->loss_weight = tern_detach(tern_where(counts, weight, tern_constant(graph, 0)));
    graph->loss = tern_where(counts, loss, tern_constant(graph, 0));
    return tern_graph_status(graph);
}
