/* SPDX-License-Identifier: Apache-2.0 */
/* build_leaf.c - the tensors made from nothing: inputs, parameters, states, constants, indices, random bits; and
 * assign.
 *
 * Invariant: a leaf's label is its name, unique among inputs, parameters and states. Names that begin with "tern." are
 * tern's. */
#include "core/base/dtype.h"
#include "core/base/hash.h"
#include "core/graph/build.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tern_tensor *find_named(const tern_graph *graph, const char *name)
{
    static const tern_op named[] = {TERN_OP_INPUT, TERN_OP_PARAMETER, TERN_OP_STATE};
    for (size_t i = 0; i < sizeof named / sizeof named[0]; i++) {
        tern_tensor *x = tern_graph_find(graph, named[i], name);
        if (x) return x;
    }
    return NULL;
}

static bool shape_given(tern_graph *graph, const char *op, int32_t rank, const int64_t *shape)
{
    if (rank <= 0 || shape) return true;
    tern_graph_fail(graph, TERN_ERROR_INVALID, "%s: the shape is NULL although the rank is %d", op, rank);
    return false;
}

tern_tensor *tern_build_leaf(tern_graph *graph, tern_op op, const char *name, int32_t dtype, int32_t rank,
                             const int64_t *shape)
{
    const char *kind = tern_ops[op].name;
    if (!name || !name[0]) return tern_graph_fail(graph, TERN_ERROR_INVALID, "%s: its name is empty", kind);
    if (!shape_given(graph, kind, rank, shape)) return graph->inert;
    if (!tern_dtype(dtype))
        return tern_graph_fail(graph, TERN_ERROR_INVALID, "%s \"%s\": %d is no dtype", kind, name, dtype);
    tern_tensor *taken = find_named(graph, name);
    if (taken)
        return tern_graph_fail(
            graph, TERN_ERROR_INVALID, "%s \"%s\" %s: the %s %s has that name already; choose another", kind, name,
            tern_describe_shape(rank, shape).text, tern_ops[taken->op].name, tern_describe(taken).text);
    return tern_graph_node(graph, op, dtype, rank, shape, 0, NULL, name);
}

static bool name_is_ours(tern_graph *graph, const char *op, const char *name)
{
    if (!name || strncmp(name, "tern.", 5) != 0) return false;
    tern_graph_fail(graph, TERN_ERROR_INVALID, "%s \"%s\": names that begin with \"tern.\" are reserved", op, name);
    return true;
}

tern_tensor *tern_input(tern_graph *graph, const char *name, int32_t dtype, int32_t rank, const int64_t *shape)
{
    if (!tern_build_open("input", graph)) return graph ? graph->inert : NULL;
    if (name_is_ours(graph, "input", name)) return graph->inert;
    return tern_build_leaf(graph, TERN_OP_INPUT, name, dtype, rank, shape);
}

tern_tensor *tern_input_1d(tern_graph *graph, const char *name, int32_t dtype, int64_t d0)
{
    return tern_input(graph, name, dtype, 1, &d0);
}

tern_tensor *tern_input_2d(tern_graph *graph, const char *name, int32_t dtype, int64_t d0, int64_t d1)
{
    return tern_input(graph, name, dtype, 2, (int64_t[]){d0, d1});
}

tern_tensor *tern_parameter(tern_graph *graph, const char *name, int32_t rank, const int64_t *shape, int32_t init,
                            double scale)
{
    if (!tern_build_open("parameter", graph)) return graph ? graph->inert : NULL;
    if (name_is_ours(graph, "parameter", name) || !shape_given(graph, "parameter", rank, shape)) return graph->inert;
    if (init < TERN_INIT_ZEROS || init > TERN_INIT_UNIFORM)
        return tern_graph_fail(graph, TERN_ERROR_INVALID, "parameter \"%s\": %d is no TERN_INIT_ value",
                               name ? name : "", init);
    tern_tensor *known = name ? tern_graph_find(graph, TERN_OP_PARAMETER, name) : NULL;
    if (known) {
        if (tern_has_shape(known, rank, shape)) return known;
        return tern_graph_fail(graph, TERN_ERROR_INVALID,
                               "parameter \"%s\": used with shape %s here and with %s before; "
                               "tied weights need one shape",
                               name, tern_describe_shape(rank, shape).text,
                               tern_describe_shape(known->rank, known->shape).text);
    }
    tern_tensor *x = tern_build_leaf(graph, TERN_OP_PARAMETER, name, TERN_F32, rank, shape);
    if (x == graph->inert) return x;
    x->at.parameter.init = init;
    x->at.parameter.scale = scale;
    x->at.parameter.trainable = true;
    x->needs_gradient = true;
    return x;
}

void tern_parameter_freeze(tern_tensor *parameter)
{
    tern_tensor *instead;
    if (!tern_build_ready("parameter_freeze", 1, &parameter, &instead)) return;
    if (parameter->op != TERN_OP_PARAMETER) {
        tern_graph_fail(parameter->graph, TERN_ERROR_INVALID,
                        "parameter_freeze: %s is no parameter but the result of %s", tern_describe(parameter).text,
                        tern_ops[parameter->op].name);
        return;
    }
    parameter->at.parameter.trainable = false;
    parameter->needs_gradient = false;
}

tern_tensor *tern_state(tern_graph *graph, const char *name, int32_t dtype, int32_t rank, const int64_t *shape)
{
    if (!tern_build_open("state", graph)) return graph ? graph->inert : NULL;
    if (name_is_ours(graph, "state", name)) return graph->inert;
    if (dtype == TERN_I32 || !tern_dtype(dtype))
        return tern_graph_fail(graph, TERN_ERROR_INVALID,
                               "state \"%s\": dtype %s is none of f32, f16, bf16, u32, u16 and u8", name ? name : "",
                               tern_dtype_name(dtype));
    return tern_build_leaf(graph, TERN_OP_STATE, name, dtype, rank, shape);
}

/* --------------------------------------------------------------- constants */

static tern_tensor *constant(tern_graph *graph, int32_t dtype, uint32_t bits)
{
    if (!tern_build_open("constant", graph)) return graph ? graph->inert : NULL;
    tern_tensor *x = tern_graph_node(graph, TERN_OP_CONSTANT, dtype, 0, NULL, 0, NULL, NULL);
    if (x != graph->inert) x->at.constant.bits = bits;
    return x;
}

tern_tensor *tern_constant(tern_graph *graph, double value)
{
    float rounded = (float)value;
    uint32_t bits;
    memcpy(&bits, &rounded, sizeof bits);
    return constant(graph, TERN_F32, bits);
}

tern_tensor *tern_constant_u32(tern_graph *graph, uint32_t value) { return constant(graph, TERN_U32, value); }

bool tern_constant_bits(const tern_tensor *x, uint32_t *out_bits)
{
    while (x->op == TERN_OP_RESHAPE || x->op == TERN_OP_EXPAND) x = x->in[0];
    if (x->op != TERN_OP_CONSTANT) return false;
    *out_bits = x->at.constant.bits;
    return true;
}

tern_tensor *tern_scalar_like(const tern_tensor *x, double value)
{
    return tern_expand_like(tern_constant(x->graph, value), x);
}

tern_tensor *tern_scale(tern_tensor *x, double factor) { return tern_mul(x, tern_constant(x->graph, factor)); }

tern_tensor *tern_index(tern_graph *graph, int32_t rank, const int64_t *shape, int32_t axis)
{
    if (!tern_build_open("index", graph)) return graph ? graph->inert : NULL;
    if (!shape_given(graph, "index", rank, shape)) return graph->inert;
    if (axis < -rank || axis >= rank)
        return tern_graph_fail(graph, TERN_ERROR_INVALID, "index: axis %d does not exist in %s", axis,
                               tern_describe_shape(rank, shape).text);
    tern_tensor *x = tern_graph_node(graph, TERN_OP_INDEX, TERN_U32, rank, shape, 0, NULL, NULL);
    if (x != graph->inert) x->at.index.axis = axis < 0 ? axis + rank : axis;
    return x;
}

/* ---------------------------------------------------- random bits and assign */

tern_tensor *tern_graph_control(tern_graph *graph)
{
    tern_tensor *control = tern_graph_find(graph, TERN_OP_INPUT, TERN_CONTROL_NAME);
    if (control) return control;
    return tern_build_leaf(graph, TERN_OP_INPUT, TERN_CONTROL_NAME, TERN_U32, 1, (int64_t[]){TERN_CONTROL_WORDS});
}

tern_tensor *tern_random(tern_graph *graph, const char *label, int32_t rank, const int64_t *shape)
{
    if (!tern_build_open("random", graph)) return graph ? graph->inert : NULL;
    if (!label || !label[0])
        return tern_graph_fail(graph, TERN_ERROR_INVALID,
                               "random: the label is empty; it keys the numbers, so give each call its own");
    if (!shape_given(graph, "random", rank, shape)) return graph->inert;
    uint32_t hash = tern_hash_label(label);
    const tern_tensor *other = tern_graph_find_random(graph, hash);
    if (other)
        return tern_graph_fail(graph, TERN_ERROR_INVALID,
                               "random \"%s\" %s: %s has the same key and would give the same numbers; "
                               "choose another label",
                               label, tern_describe_shape(rank, shape).text, tern_describe(other).text);
    tern_tensor *control = tern_graph_control(graph);
    tern_tensor *x = tern_graph_node(graph, TERN_OP_RANDOM, TERN_U32, rank, shape, 1, &control, label);
    if (x == graph->inert) return x;
    x->at.random.label_hash = hash;
    x->at.random.per_example = (uint32_t)(rank ? tern_count(x) / shape[0] : 1);
    return x;
}

tern_tensor *tern_assign(tern_tensor *target, tern_tensor *value)
{
    tern_tensor *in[2] = {target, value}, *instead;
    if (!tern_build_ready("assign", 2, in, &instead)) return instead;
    tern_graph *graph = target->graph;
    if (target->op != TERN_OP_STATE && target->op != TERN_OP_PARAMETER && target->op != TERN_OP_ASSIGN)
        return tern_graph_fail(graph, TERN_ERROR_INVALID,
                               "assign: the target %s is the result of %s; only states, parameters and "
                               "their assigned versions can be written",
                               tern_describe(target).text, tern_ops[target->op].name);
    if (target->dtype != value->dtype || !tern_same_shape(target, value))
        return tern_graph_fail(graph, TERN_ERROR_INVALID,
                               "assign: the target %s and the value %s differ in shape or dtype",
                               tern_describe(target).text, tern_describe(value).text);
    if (target->replaced)
        return tern_graph_fail(graph, TERN_ERROR_INVALID,
                               "assign: %s is assigned twice; assign to the tensor that the first "
                               "tern_assign returned",
                               tern_describe(target).text);
    return tern_graph_node(graph, TERN_OP_ASSIGN, target->dtype, target->rank, target->shape, 2, in, NULL);
}
