/* SPDX-License-Identifier: Apache-2.0 */
/* save_rule.c - the pass of save_rule.h: one scan decides what is kept, a second copies the graph and adds the clones.
 *
 * Invariant: ids stay a valid order, because a clone is appended just before the node that asks for it and after its
 * own inputs. */
#include "core/passes/save_rule.h"

#include "core/passes/absorb.h"
#include "core/passes/junction.h"

#include <stdlib.h>

typedef struct save_pass {
    const tern_graph *in;
    tern_graph *out;
    bool *late;           /* per node of `in`: BACKWARD or UPDATE, or made from such a node */
    bool *keeps;          /* late nodes may read it; holds the junctions at first */
    bool *carries;        /* holds a contraction's result that nothing else holds */
    uint32_t *readers;    /* how often nodes and outputs read it */
    tern_tensor **copies; /* in `out` */
    tern_tensor **clones; /* in `out`, marked BACKWARD; NULL until asked for */
    const tern_tensor **stack;
} save_pass;

/* ---------------------------------------------------------- what is kept */

static void find_late(save_pass *pass)
{
    for (uint32_t id = 0; id < pass->in->node_count; id++) {
        const tern_tensor *x = pass->in->nodes[id];
        pass->late[id] = x->pass != TERN_PASS_FORWARD;
        for (int32_t i = 0; i < x->in_count; i++) pass->late[id] = pass->late[id] || pass->late[x->in[i]->id];
    }
}

static void decide(save_pass *pass)
{
    for (uint32_t id = 0; id < pass->in->node_count; id++) {
        const tern_tensor *x = pass->in->nodes[id];
        tern_op_kind kind = tern_ops[x->op].kind;
        pass->carries[id] = tern_carries(x, pass->readers, pass->carries);
        /* A view costs nothing to clone, so its base is kept rather than the view. */
        pass->keeps[id] = pass->keeps[id] || kind == TERN_KIND_LEAF || kind == TERN_KIND_REDUCE ||
                          kind == TERN_KIND_CONTRACTION || kind == TERN_KIND_EFFECT || x->op == TERN_OP_SECOND ||
                          (kind == TERN_KIND_MAP && pass->carries[id]);
    }
    for (uint32_t i = 0; i < pass->in->output_count; i++) pass->keeps[pass->in->outputs[i].tensor->id] = true;
}

/* -------------------------------------------------------- copy and clone */

/* What a late node reads for node x of `in`; NULL: a clone that does not exist yet. */
static tern_tensor *read_late(const save_pass *pass, const tern_tensor *x)
{
    return pass->late[x->id] || pass->keeps[x->id] ? pass->copies[x->id] : pass->clones[x->id];
}

/* Clones x and what it needs, without recursion: the stack holds a path of nodes, each an input of the one before. */
static void clone(save_pass *pass, const tern_tensor *x)
{
    uint32_t depth = 0;
    pass->stack[depth++] = x;
    while (depth) {
        const tern_tensor *top = pass->stack[depth - 1];
        tern_tensor *in[TERN_MAX_INPUTS];
        const tern_tensor *missing = NULL;
        for (int32_t i = 0; i < top->in_count && !missing; i++) {
            in[i] = read_late(pass, top->in[i]);
            if (!in[i]) missing = top->in[i];
        }
        if (missing) {
            pass->stack[depth++] = missing;
        } else {
            pass->clones[top->id] = tern_graph_copy(pass->out, top, in, TERN_PASS_BACKWARD);
            depth--;
        }
    }
}

static void copy_node(save_pass *pass, const tern_tensor *x)
{
    tern_tensor *in[TERN_MAX_INPUTS];
    for (int32_t i = 0; i < x->in_count; i++) {
        bool late = pass->late[x->id];
        if (late && !read_late(pass, x->in[i])) clone(pass, x->in[i]);
        in[i] = late ? read_late(pass, x->in[i]) : pass->copies[x->in[i]->id];
    }
    pass->copies[x->id] = tern_graph_copy(pass->out, x, in, x->pass);
}

tern_status tern_pass_save_rule(const tern_graph *in, tern_graph **out_graph)
{
    tern_status status;
    save_pass pass = {.in = in};
    char *memory = NULL;

    *out_graph = NULL;
    TERN_TRY(tern_graph_status(in));
    TERN_TRY(tern_graph_create_like(in, &pass.out));
    size_t count = in->node_count + 1u, pointer = sizeof(void *);
    size_t bytes = count * (3 * pointer + sizeof(uint32_t) + 3 * sizeof(bool));
    memory = calloc(1, bytes); /* one piece for all tables, the widest first */
    if (!memory) {
        status = tern_error_memory("the save rule's tables", bytes);
        goto fail;
    }
    pass.copies = (tern_tensor **)(void *)memory;
    pass.clones = pass.copies + count;
    pass.stack = (const tern_tensor **)(void *)(pass.clones + count);
    pass.readers = (uint32_t *)(void *)(pass.stack + count);
    pass.keeps = (bool *)(pass.readers + count);
    pass.carries = pass.keeps + count;
    pass.late = pass.carries + count;
    TERN_TRY(tern_junctions(in, pass.keeps));
    tern_count_readers(in, pass.readers);
    find_late(&pass);
    decide(&pass);
    for (uint32_t id = 0; id < in->node_count && pass.out->status >= 0; id++) copy_node(&pass, in->nodes[id]);
    TERN_TRY(tern_graph_copy_rest(in, pass.out, pass.copies));
    *out_graph = pass.out;
    pass.out = NULL;
fail:
    free(memory);
    tern_graph_destroy(pass.out);
    return status;
}
