/* SPDX-License-Identifier: Apache-2.0 */
/* low_weights.c - parameters as the optimizer's 16-bit copies of them; see autocast.h.
 *
 *     W (f32) ── CAST ── matmul        becomes       low.W (16-bit state) ── matmul          W: the optimizer's alone
 *     g (f32) ── mul                   becomes       low.g ── CAST ── mul                    without masters only
 *
 * Gradients have been taken, so a state may stand where the parameter stood: none flows through it any more. */
#include "core/passes/autocast.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"

typedef struct weights_pass {
    tern_graph *out;
    int32_t dtype;
    bool masters;
    tern_tensor **copies;
} weights_pass;

/* The state "low.<parameter>", made on first use. */
static tern_tensor *low_weight(weights_pass *pass, const tern_tensor *parameter)
{
    const size_t bytes = sizeof TERN_LOW_PREFIX + strlen(parameter->label);
    char *name = malloc(bytes);
    if (!name)
        return tern_graph_fail(pass->out, TERN_ERROR_MEMORY,
                               "no host memory for the name of parameter \"%s\"; free some", parameter->label);
    snprintf(name, bytes, "%s%s", TERN_LOW_PREFIX, parameter->label);
    tern_tensor *low = tern_graph_find(pass->out, TERN_OP_STATE, name);
    if (!low) low = tern_state(pass->out, name, pass->dtype, parameter->rank, parameter->shape);
    free(name);
    /* For the save rule, which asks whether an op's other operand has a gradient. */
    if (low != pass->out->inert) low->needs_gradient = parameter->at.parameter.trainable;
    return low;
}

/* The 16-bit copy of views of a parameter that are cast; NULL: x is no such cast. */
static tern_tensor *cast_weight(weights_pass *pass, const tern_tensor *x)
{
    if (!tern_is_narrowing(x) || x->dtype != pass->dtype) return NULL;
    const tern_tensor *base = x->in[0];
    while (tern_is_view(base)) base = base->in[0];
    if (base->op != TERN_OP_PARAMETER) return NULL;
    tern_tensor *low = low_weight(pass, base);
    while (base != x->in[0]) { /* the views in order, each found from the cast */
        const tern_tensor *view = x->in[0];
        while (view->in[0] != base) view = view->in[0];
        low = tern_view_again(view, low);
        base = view;
    }
    return low;
}

/* A parameter that is read as f32 although there are no masters. */
static tern_tensor *widened_weight(weights_pass *pass, const tern_tensor *x)
{
    if (!x->keep_f32) return tern_cast(low_weight(pass, x), TERN_F32);
    return tern_graph_fail(
        pass->out, TERN_ERROR_UNSUPPORTED,
        "parameter \"%s\" is to be kept in f32 (tern_keep_f32), but without f32 masters there is only "
        "its %s copy; train with masters or without the pin",
        x->label, tern_dtype(pass->dtype)->name);
}

static tern_tensor *copy_node(weights_pass *pass, const tern_tensor *x)
{
    tern_tensor *in[TERN_MAX_INPUTS] = {NULL}, *low = cast_weight(pass, x);
    if (low) return low;
    if (x->op == TERN_OP_PARAMETER && !pass->masters) return widened_weight(pass, x);
    for (int32_t i = 0; i < x->in_count; i++) in[i] = pass->copies[x->in[i]->id];
    return tern_graph_copy(pass->out, x, in, x->pass);
}

tern_status tern_pass_low_weights(const tern_graph *in, int32_t dtype, bool masters, tern_graph **out_graph)
{
    tern_status status;
    weights_pass pass = {.dtype = dtype, .masters = masters};

    *out_graph = NULL;
    TERN_TRY(tern_graph_status(in));
    if (!tern_dtype_is_16bit_float(dtype)) {
        status = tern_error(TERN_ERROR_INVALID, "low weights: dtype %d is neither TERN_F16 nor TERN_BF16", dtype);
        goto fail;
    }
    TERN_TRY(tern_graph_create_like(in, &pass.out));
    pass.copies = calloc(in->node_count + 1u, sizeof(tern_tensor *));
    if (!pass.copies) {
        status = tern_error_memory("the copy of a graph", in->node_count * sizeof(tern_tensor *));
        goto fail;
    }
    for (uint32_t id = 0; id < in->node_count && pass.out->status >= 0; id++) {
        pass.out->pass = in->nodes[id]->pass;
        pass.copies[id] = copy_node(&pass, in->nodes[id]);
    }
    TERN_TRY(tern_graph_copy_rest(in, pass.out, pass.copies));
    *out_graph = pass.out;
    pass.out = NULL;
fail:
    free(pass.copies);
    tern_graph_destroy(pass.out);
    return status;
}
