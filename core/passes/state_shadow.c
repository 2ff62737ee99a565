/* SPDX-License-Identifier: Apache-2.0 */
/* state_shadow.c - copies a graph node by node and changes its states or assigns on the way. */
#include "core/passes/state_shadow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"

typedef struct shadow_pass {
    const tern_graph *in;
    tern_graph *out;
    tern_tensor **copies;                                                   /* per node of `in`, in `out` */
    tern_tensor *(*change)(struct shadow_pass *pass, const tern_tensor *x); /* NULL: copy it as it is */
} shadow_pass;

static void copy_node(shadow_pass *pass, const tern_tensor *x)
{
    tern_tensor *in[TERN_MAX_INPUTS] = {0}, *changed = pass->change(pass, x);
    for (int32_t i = 0; i < x->in_count; i++) in[i] = pass->copies[x->in[i]->id];
    pass->copies[x->id] = changed ? changed : tern_graph_copy(pass->out, x, in, x->pass);
}

static tern_status run(shadow_pass *pass, tern_graph **out_graph)
{
    tern_status status;
    *out_graph = NULL;
    TERN_TRY(tern_graph_status(pass->in));
    TERN_TRY(tern_graph_create_like(pass->in, &pass->out));
    pass->copies = calloc(pass->in->node_count + 1u, sizeof(tern_tensor *));
    if (!pass->copies) {
        status = tern_error_memory("the copy of a graph", pass->in->node_count * sizeof *pass->copies);
        goto fail;
    }
    for (uint32_t id = 0; id < pass->in->node_count && pass->out->status >= 0; id++)
        copy_node(pass, pass->in->nodes[id]);
    TERN_TRY(tern_graph_copy_rest(pass->in, pass->out, pass->copies));
    *out_graph = pass->out;
    pass->out = NULL;
fail:
    free(pass->copies);
    tern_graph_destroy(pass->out);
    return status;
}

/* ------------------------------------------------------------------ changes */

static tern_tensor *shadow_state(shadow_pass *pass, const tern_tensor *x)
{
    if (x->op != TERN_OP_STATE || !x->replaced) return NULL;
    const size_t bytes = sizeof TERN_SHADOW_PREFIX + strlen(x->label);
    char *name = malloc(bytes);
    if (!name)
        return tern_graph_fail(pass->out, TERN_ERROR_MEMORY, "no host memory for the name of state \"%s\"; free some",
                               x->label);
    snprintf(name, bytes, "%s%s", TERN_SHADOW_PREFIX, x->label);
    tern_tensor *shadow = tern_state(pass->out, name, x->dtype, x->rank, x->shape);
    free(name);
    return shadow;
}

static tern_tensor *drop_assign(shadow_pass *pass, const tern_tensor *x)
{
    return x->op == TERN_OP_ASSIGN ? pass->copies[x->in[1]->id] : NULL;
}

static tern_status check_assigned(const tern_graph *graph)
{
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const tern_tensor *x = graph->nodes[i];
        if (!x->replaced) continue;
        if (x->op == TERN_OP_PARAMETER)
            return tern_error(TERN_ERROR_INVALID,
                              "the model assigns to the parameter \"%s\", which a skipped step could not take back; "
                              "make it a tern_state",
                              x->label);
        const uint64_t bytes = tern_dtype_bytes(x->dtype, (uint64_t)tern_count(x));
        if (x->op == TERN_OP_STATE && bytes % 4 != 0)
            return tern_error(TERN_ERROR_INVALID,
                              "the model assigns to the state \"%s\" of %llu bytes; make it a multiple of 4 bytes",
                              x->label, (unsigned long long)bytes);
    }
    return TERN_OK;
}

tern_status tern_pass_state_shadow(const tern_graph *in, tern_graph **out_graph)
{
    *out_graph = NULL;
    tern_status status = tern_graph_status(in);
    if (status >= 0) status = check_assigned(in);
    return status < 0 ? status : run(&(shadow_pass){.in = in, .change = shadow_state}, out_graph);
}

tern_status tern_pass_state_freeze(const tern_graph *in, tern_graph **out_graph)
{
    return run(&(shadow_pass){.in = in, .change = drop_assign}, out_graph);
}
