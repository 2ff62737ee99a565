/* SPDX-License-Identifier: Apache-2.0 */
/* gradient.c - reverse mode: one walk from the loss to the leaves, each node's rule (gradient_rules.c) called once.
 *
 *     loss ── seed ──> node ids descending: dy = sum of contributions, rule(y, dy) ──> contributions of the inputs
 *
 * Contributions to a 16-bit tensor are summed in f32 and rounded once; dy is then 16-bit as well.
 * A parameter's contributions stay unsummed (parts), so that the accumulator can add each where it is made; those of
 * inner nodes are summed by ADD in the order in which they arrived, which is fixed by the graph.
 * Invariant: no node is built for a tensor that leads to nothing wanted, and the forward part of the graph is not
 * changed. */
#include "core/graph/gradient.h"

#include "core/base/dtype.h"
#include "core/graph/build.h"

#include <stdlib.h>
#include <string.h>

typedef struct adjoint {
    tern_tensor **parts;
    uint32_t count, capacity;
    bool wanted; /* leads to something whose gradient was asked for */
    bool target; /* was itself asked for: its parts are kept */
} adjoint;

struct tern_backprop {
    tern_graph *graph;
    adjoint *adjoints; /* one per node up to the loss */
    uint32_t count;
};

bool tern_backprop_wants(const tern_backprop *walk, const tern_tensor *y, int32_t i)
{
    return walk->adjoints[y->in[i]->id].wanted;
}

static void add_part(tern_backprop *walk, uint32_t id, tern_tensor *part)
{
    adjoint *a = &walk->adjoints[id];
    if (a->count == a->capacity) {
        uint32_t capacity = a->capacity ? a->capacity * 2 : 2;
        tern_tensor **parts = realloc(a->parts, capacity * sizeof *parts);
        if (!parts) {
            tern_graph_fail(walk->graph, TERN_ERROR_MEMORY,
                            "backward: no host memory for the gradients of %s; free some",
                            tern_describe(walk->graph->nodes[id]).text);
            return;
        }
        a->parts = parts;
        a->capacity = capacity;
    }
    a->parts[a->count++] = part;
}

void tern_backprop_give(tern_backprop *walk, const tern_tensor *y, int32_t i, tern_tensor *dx)
{
    tern_graph *graph = walk->graph;
    if (graph->status < 0) return;
    if (!tern_same_shape(dx, y->in[i]))
        tern_graph_fail(graph, TERN_ERROR_INTERNAL,
                        "backward: the rule of %s \"%s\" made the gradient %s for its input %s; please report it",
                        tern_ops[y->op].name, y->label, tern_describe(dx).text, tern_describe(y->in[i]).text);
    else
        add_part(walk, y->in[i]->id, dx);
}

/* In f32, whatever the parts are. */
static tern_tensor *sum_parts(tern_tensor *const *parts, uint32_t count)
{
    tern_tensor *sum = tern_widen(parts[0]);
    for (uint32_t i = 1; i < count; i++) sum = tern_add(sum, tern_widen(parts[i]));
    return sum;
}

/* Whether y's gradient stays f32 although y has 16 bits: a view's is its base's, which is rounded there; and a cast
 * parameter's is the parameter's, so that it goes unrounded into the f32 accumulator. */
static bool keeps_wide_gradient(const tern_tensor *y)
{
    if (tern_is_view(y)) return true;
    if (!tern_is_narrowing(y)) return false;
    const tern_tensor *base = y->in[0];
    while (tern_is_view(base)) base = base->in[0];
    return base->op == TERN_OP_PARAMETER;
}

/* The whole gradient of y: its parts' sum, rounded once to y's dtype. */
static tern_tensor *total(const tern_tensor *y, tern_tensor *const *parts, uint32_t count)
{
    tern_tensor *sum = sum_parts(parts, count);
    return keeps_wide_gradient(y) ? sum : tern_narrow(sum, y->dtype);
}

/* Marks all that lies between the loss and the targets. Ops that pass nothing on (ops.def: 0) and integers end a path;
 * ops without a gradient (-1) do not, so that reaching one is an error and not a silent zero. */
static void mark_wanted(tern_backprop *walk)
{
    for (uint32_t id = 0; id < walk->count; id++) {
        const tern_tensor *x = walk->graph->nodes[id];
        const tern_dtype_info *type = tern_dtype(x->dtype);
        adjoint *a = &walk->adjoints[id];
        a->wanted = a->target;
        if (tern_ops[x->op].has_gradient == 0 || !type || !type->is_float) continue;
        for (int32_t i = 0; i < x->in_count && !a->wanted; i++) a->wanted = walk->adjoints[x->in[i]->id].wanted;
    }
}

static void visit(tern_backprop *walk, tern_tensor *y)
{
    adjoint *a = &walk->adjoints[y->id];
    if (!a->wanted || !a->count) return;
    bool passes_on = false;
    for (int32_t i = 0; i < y->in_count; i++) passes_on = passes_on || tern_backprop_wants(walk, y, i);
    if (!passes_on || tern_ops[y->op].has_gradient == 0) return;
    if (!tern_gradient_rules[y->op]) {
        const tern_tensor *below = y;
        for (int32_t i = y->in_count - 1; i >= 0; i--)
            if (tern_backprop_wants(walk, y, i)) below = y->in[i];
        tern_graph_fail(walk->graph, TERN_ERROR_UNSUPPORTED,
                        "backward: %s \"%s\" has no gradient and stands between the loss and %s; "
                        "detach its input or freeze the parameters below it",
                        tern_ops[y->op].name, y->label, tern_describe(below).text);
        return;
    }
    tern_tensor *dy = total(y, a->parts, a->count);
    if (a->target) {
        a->parts[0] = dy;
        a->count = 1;
    }
    if (walk->graph->status >= 0) tern_gradient_rules[y->op](walk, y, dy);
}

static tern_status walk_create(tern_graph *graph, const tern_tensor *loss, const tern_tensor *seed,
                               tern_backprop *out_walk)
{
    *out_walk = (tern_backprop){.graph = graph};
    if (!graph) return tern_error(TERN_ERROR_INVALID, "backward: the graph is NULL; create it with tern_graph_create");
    if (graph->status < 0) return tern_graph_status(graph);
    if (!loss || !seed || loss->graph != graph || seed->graph != graph)
        return tern_error(TERN_ERROR_INVALID, "backward: the loss and its seed must be tensors of the graph");
    if (loss->dtype != TERN_F32 || seed->dtype != TERN_F32 || !tern_same_shape(loss, seed))
        return tern_error(TERN_ERROR_INVALID, "backward: loss %s and seed %s must be f32 of one shape",
                          tern_describe(loss).text, tern_describe(seed).text);
    out_walk->count = loss->id + 1;
    out_walk->adjoints = calloc(out_walk->count, sizeof *out_walk->adjoints);
    if (!out_walk->adjoints)
        return tern_error_memory("the gradients' bookkeeping", out_walk->count * sizeof *out_walk->adjoints);
    return TERN_OK;
}

static void walk_finish(tern_backprop *walk)
{
    for (uint32_t i = 0; walk->adjoints && i < walk->count; i++) free(walk->adjoints[i].parts);
    free(walk->adjoints);
}

static tern_status walk_run(tern_backprop *walk, tern_tensor *loss, tern_tensor *seed)
{
    tern_graph *graph = walk->graph;
    tern_pass pass = graph->pass;
    graph->pass = TERN_PASS_BACKWARD;
    mark_wanted(walk);
    add_part(walk, loss->id, seed);
    for (uint32_t id = loss->id + 1; id-- > 0 && graph->status >= 0;) visit(walk, graph->nodes[id]);
    graph->pass = pass;
    return tern_graph_status(graph);
}

/* --------------------------------------------------------- what callers see */

tern_status tern_backward(tern_graph *graph, tern_tensor *loss, tern_tensor *seed, tern_gradients *out_gradients)
{
    tern_backprop walk;
    tern_status status;
    uint32_t reached = 0;

    *out_gradients = (tern_gradients){0};
    TERN_TRY(walk_create(graph, loss, seed, &walk));
    for (uint32_t id = 0; id < walk.count; id++)
        walk.adjoints[id].target =
            graph->nodes[id]->op == TERN_OP_PARAMETER && graph->nodes[id]->at.parameter.trainable;
    TERN_TRY(walk_run(&walk, loss, seed));
    for (uint32_t id = 0; id < walk.count; id++) reached += walk.adjoints[id].target && walk.adjoints[id].count;
    if (reached) {
        out_gradients->items = calloc(reached, sizeof *out_gradients->items);
        if (!out_gradients->items) {
            status = tern_error_memory("the list of gradients", reached * sizeof *out_gradients->items);
            goto fail;
        }
    }
    for (uint32_t id = 0; id < walk.count; id++) {
        adjoint *a = &walk.adjoints[id];
        if (!a->target || !a->count) continue;
        out_gradients->items[out_gradients->count++] = (tern_gradient){graph->nodes[id], a->parts, a->count};
        a->parts = NULL; /* now the caller's */
    }
fail:
    walk_finish(&walk);
    return status;
}

void tern_gradients_finish(tern_gradients *gradients)
{
    if (!gradients) return;
    for (uint32_t i = 0; i < gradients->count; i++) free(gradients->items[i].parts);
    free(gradients->items);
    *gradients = (tern_gradients){0};
}

tern_tensor *tern_gradient_sum(const tern_gradient *gradient)
{
    tern_graph *graph = gradient->parameter->graph;
    tern_pass pass = graph->pass;
    graph->pass = TERN_PASS_BACKWARD; /* whatever the caller is building: the sum belongs to its parts */
    tern_tensor *sum = gradient->part_count ? sum_parts(gradient->parts, gradient->part_count)
                                            : tern_scalar_like(gradient->parameter, 0);
    graph->pass = pass;
    return sum;
}

tern_status tern_backward_to(tern_graph *graph, tern_tensor *loss, tern_tensor *seed, tern_tensor *const *wrt,
                             int32_t count, tern_tensor **out_gradients)
{
    tern_backprop walk;
    tern_status status;

    for (int32_t i = 0; i < count; i++) out_gradients[i] = NULL;
    TERN_TRY(walk_create(graph, loss, seed, &walk));
    for (int32_t i = 0; i < count; i++)
        if (wrt[i]->id < walk.count) walk.adjoints[wrt[i]->id].target = true;
    TERN_TRY(walk_run(&walk, loss, seed));
    tern_pass pass = graph->pass;
    graph->pass = TERN_PASS_BACKWARD;
    for (int32_t i = 0; i < count; i++) {
        const adjoint *a = wrt[i]->id < walk.count ? &walk.adjoints[wrt[i]->id] : NULL;
        if (a && a->count) out_gradients[i] = total(wrt[i], a->parts, a->count);
    }
    graph->pass = pass;
    status = tern_graph_status(graph);
fail:
    walk_finish(&walk);
    return status;
}
