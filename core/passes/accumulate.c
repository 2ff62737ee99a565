/* SPDX-License-Identifier: Apache-2.0 */
/* accumulate.c - the window's sums as in-place updates of states; accumulate.h has the formulas. */
#include "core/passes/accumulate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tern_tensor *total(tern_tensor *x) { return tern_sum(tern_reshape(x, 1, (const int64_t[]){tern_count(x)}), 0); }

/* The loss's weights, or ones. */
static tern_tensor *weights(tern_graph *graph)
{
    if (graph->loss_weight) return graph->loss_weight;
    return tern_expand(tern_constant(graph, 1.0), graph->loss->rank, graph->loss->shape);
}

static tern_status check_loss(const tern_graph *graph)
{
    tern_status status = tern_graph_status(graph);
    if (status < 0) return status;
    if (!graph->loss)
        return tern_error(TERN_ERROR_INVALID, "the graph has no loss; call tern_loss before compiling it");
    return TERN_OK;
}

tern_status tern_pass_loss_sums(tern_graph *graph, tern_tensor **out_n, tern_tensor **out_loss)
{
    tern_status status = check_loss(graph);
    if (status < 0) return status;
    graph->pass = TERN_PASS_FORWARD;
    *out_n = total(weights(graph));
    *out_loss = graph->loss_weight ? total(tern_mul(graph->loss_weight, graph->loss)) : total(graph->loss);
    return tern_graph_status(graph);
}

static void add_to_state(tern_graph *graph, const char *name, tern_tensor *value)
{
    tern_tensor *state = tern_state(graph, name, TERN_F32, 1, (const int64_t[]){1});
    tern_assign(state, tern_add(state, value));
}

static tern_tensor *seed(tern_graph *graph)
{
    tern_tensor *scale = tern_state(graph, TERN_STATE_SCALE, TERN_F32, 1, (const int64_t[]){1});
    scale = tern_expand(tern_reshape(scale, 0, NULL), graph->loss->rank, graph->loss->shape);
    return graph->loss_weight ? tern_mul(tern_detach(graph->loss_weight), scale) : scale;
}

static tern_status accumulate_parameter(tern_graph *graph, const tern_gradient *gradient)
{
    const tern_tensor *parameter = gradient->parameter;
    size_t bytes = strlen(parameter->label) + 5;
    char *name = malloc(bytes);
    if (!name) return tern_error_memory("an accumulator's name", bytes);
    snprintf(name, bytes, "acc.%s", parameter->label);
    tern_tensor *acc = tern_state(graph, name, TERN_F32, parameter->rank, parameter->shape);
    free(name);
    for (uint32_t i = 0; i < gradient->part_count; i++) acc = tern_assign(acc, tern_add(acc, gradient->parts[i]));
    return tern_graph_status(graph);
}

tern_status tern_pass_accumulate(tern_graph *graph)
{
    tern_status status;
    tern_tensor *n = NULL, *loss = NULL;
    tern_gradients gradients = {0};
    TERN_TRY(tern_pass_loss_sums(graph, &n, &loss));
    add_to_state(graph, TERN_STATE_N, n);
    add_to_state(graph, TERN_STATE_LOSS, loss);
    graph->pass = TERN_PASS_BACKWARD;
    TERN_TRY(tern_backward(graph, graph->loss, seed(graph), &gradients));
    if (gradients.count == 0) {
        status = tern_error(TERN_ERROR_INVALID,
                            "no trainable parameter is reached by the loss \"%s\"; there is nothing to train",
                            graph->loss->label);
        goto fail;
    }
    for (uint32_t i = 0; i < gradients.count; i++) TERN_TRY(accumulate_parameter(graph, &gradients.items[i]));
    status = tern_graph_status(graph);
fail:
    graph->pass = TERN_PASS_FORWARD;
    tern_gradients_finish(&gradients);
    return status;
}
