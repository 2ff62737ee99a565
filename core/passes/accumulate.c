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

static tern_tensor *scale_state(tern_graph *graph)
{
    return tern_state(graph, TERN_STATE_SCALE, TERN_F32, 1, (const int64_t[]){1});
}

/* weight * scale, of the loss's shape; scale: f32 (1). */
static tern_tensor *seed(tern_graph *graph, tern_tensor *scale)
{
    scale = tern_expand(tern_reshape(scale, 0, NULL), graph->loss->rank, graph->loss->shape);
    return graph->loss_weight ? tern_mul(tern_detach(graph->loss_weight), scale) : scale;
}

/* Appends the backward pass. Call tern_gradients_finish in every case. */
static tern_status backward(tern_graph *graph, tern_tensor *scale, tern_gradients *out_gradients)
{
    graph->pass = TERN_PASS_BACKWARD;
    const tern_status status = tern_backward(graph, graph->loss, seed(graph, scale), out_gradients);
    if (status < 0 || out_gradients->count > 0) return status;
    return tern_error(TERN_ERROR_INVALID,
                      "no trainable parameter is reached by the loss \"%s\"; there is nothing to train",
                      graph->loss->label);
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
    TERN_TRY(backward(graph, scale_state(graph), &gradients));
    for (uint32_t i = 0; i < gradients.count; i++) TERN_TRY(accumulate_parameter(graph, &gradients.items[i]));
    status = tern_graph_status(graph);
fail:
    graph->pass = TERN_PASS_FORWARD;
    tern_gradients_finish(&gradients);
    return status;
}

/* sum of (gradient / scale)^2, (1). */
static tern_tensor *square(const tern_gradient *gradient, tern_tensor *scale)
{
    tern_tensor *g = tern_reshape(tern_gradient_sum(gradient), 1, (const int64_t[]){-1});
    g = tern_div(g, scale);
    return total(tern_mul(g, g));
}

tern_status tern_pass_probe(tern_graph *graph, bool scaled)
{
    tern_status status;
    tern_tensor *n = NULL, *loss = NULL, *sum = NULL;
    tern_gradients gradients = {0};
    TERN_TRY(tern_pass_loss_sums(graph, &n, &loss));
    tern_tensor *scale = scaled ? scale_state(graph) : tern_expand(tern_constant(graph, 1), 1, (const int64_t[]){1});
    TERN_TRY(backward(graph, scale, &gradients));
    for (uint32_t i = 0; i < gradients.count; i++) {
        tern_tensor *one = square(&gradients.items[i], scale);
        sum = sum ? tern_add(sum, one) : one;
    }
    tern_output(n, TERN_PROBE_N);
    tern_output(loss, TERN_PROBE_LOSS);
    tern_output(sum, TERN_PROBE_SQUARE);
    status = tern_graph_status(graph);
fail:
    graph->pass = TERN_PASS_FORWARD;
    tern_gradients_finish(&gradients);
    return status;
}
