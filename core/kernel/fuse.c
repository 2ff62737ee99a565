/* SPDX-License-Identifier: Apache-2.0 */
/* fuse.c - what must be stored, and the loop of trial and storing; see fuse.h. */
#include "core/kernel/fuse.h"

#include "core/passes/junction.h"

#include <stdlib.h>
#include <string.h>

#define LONGEST_CHAIN 256u /* nodes between a stored value and those it is made of */

const tern_tensor *tern_same_elements(const tern_tensor *x)
{
    while (x->op == TERN_OP_RESHAPE || x->op == TERN_OP_DETACH) x = x->in[0];
    return x;
}

const tern_tensor *tern_fuser_output(const tern_tensor *x)
{
    const tern_tensor *base = tern_same_elements(x);
    return base != x && base->replaced ? x : base;
}

bool tern_fuser_is_point(const tern_fuser *fuser, const tern_tensor *x)
{
    if (!fuser->live[x->id] || x->op == TERN_OP_SECOND) return false;
    const tern_op_kind kind = tern_ops[x->op].kind;
    if (kind == TERN_KIND_CONTRACTION || kind == TERN_KIND_EFFECT) return true;
    return fuser->stored[x->id] && (kind != TERN_KIND_LEAF || x->op == TERN_OP_INDEX || x->op == TERN_OP_CONSTANT);
}

static void mark_live(tern_fuser *fuser)
{
    const tern_graph *graph = fuser->graph;
    for (uint32_t o = 0; o < graph->output_count; o++) fuser->live[graph->outputs[o].tensor->id] = true;
    for (uint32_t i = graph->node_count; i-- > 0;) {
        const tern_tensor *x = graph->nodes[i];
        if (x->op == TERN_OP_ASSIGN) fuser->live[i] = true;
        if (!fuser->live[i]) continue;
        for (int32_t k = 0; k < x->in_count; k++) fuser->live[x->in[k]->id] = true;
        if (x->op == TERN_OP_SECOND) fuser->second[x->in[0]->id] = x;
    }
}

static bool is_attention(const tern_tensor *x)
{
    return x->op == TERN_OP_ATTENTION || x->op == TERN_OP_ATTENTION_DQ || x->op == TERN_OP_ATTENTION_DKV;
}

/* Forward values that backward reads (after the save rule only what is worth keeping). */
static void store_kept(tern_fuser *fuser, const tern_tensor *x)
{
    for (int32_t k = 0; k < x->in_count; k++) {
        const tern_tensor *input = tern_same_elements(x->in[k]);
        while (tern_is_widening(input)) input = tern_same_elements(input->in[0]); /* the 16-bit value is what is kept */
        if (input->pass != x->pass && tern_ops[input->op].kind != TERN_KIND_LEAF) fuser->stored[input->id] = true;
    }
}

static void store_required(tern_fuser *fuser)
{
    const tern_graph *graph = fuser->graph;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const tern_tensor *x = graph->nodes[i];
        if (!fuser->live[i]) continue;
        const tern_op_kind kind = tern_ops[x->op].kind;
        if (kind == TERN_KIND_EFFECT || x->op == TERN_OP_SECOND || x->op == TERN_OP_COLUMN_SUMS || is_attention(x))
            fuser->stored[i] = true;
        if (!fuser->fuse && kind != TERN_KIND_LEAF && kind != TERN_KIND_VIEW) fuser->stored[i] = true;
        store_kept(fuser, x);
    }
    for (uint32_t o = 0; o < graph->output_count; o++) {
        const tern_tensor *x = tern_fuser_output(graph->outputs[o].tensor);
        if (tern_ops[x->op].kind != TERN_KIND_LEAF || x->op == TERN_OP_INDEX || x->op == TERN_OP_CONSTANT)
            fuser->stored[x->id] = true;
    }
}

static tern_status store_junctions(tern_fuser *fuser)
{
    bool *junction = malloc(fuser->graph->node_count + 1u);
    if (!junction) return tern_error_memory("the fuser", fuser->graph->node_count);
    const tern_status status = tern_junctions(fuser->graph, junction);
    for (uint32_t i = 0; status == TERN_OK && i < fuser->graph->node_count; i++)
        if (junction[i] && fuser->live[i]) fuser->stored[i] = true;
    free(junction);
    return status;
}

/* Chains longer than LONGEST_CHAIN are cut, which bounds the recursion over them, the length of a kernel and the time
 * to fuse it. Views cost a kernel nothing and their results may be large, so they are cut later. */
static tern_status store_chain_links(tern_fuser *fuser)
{
    const tern_graph *graph = fuser->graph;
    uint32_t *depth = calloc(graph->node_count + 1u, sizeof *depth);
    if (!depth) return tern_error_memory("the fuser", graph->node_count * sizeof *depth);
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const tern_tensor *x = graph->nodes[i];
        const tern_op_kind kind = tern_ops[x->op].kind;
        if (kind == TERN_KIND_LEAF || tern_fuser_is_point(fuser, x)) continue;
        for (int32_t k = 0; k < x->in_count; k++)
            if (depth[x->in[k]->id] >= depth[i]) depth[i] = depth[x->in[k]->id] + 1u;
        if (!fuser->live[i] || depth[i] < (kind == TERN_KIND_VIEW ? 2 * LONGEST_CHAIN : LONGEST_CHAIN)) continue;
        fuser->stored[i] = true;
        depth[i] = 0;
    }
    free(depth);
    return TERN_OK;
}

/* A reduction that several stored values need would be repeated in each kernel; *out_changed: one was newly stored. */
static tern_status store_shared_reductions(tern_fuser *fuser, bool *out_changed)
{
    const uint32_t n = fuser->graph->node_count, words = n / 64u + 1u;
    uint64_t *once = calloc(2u * (size_t)words, sizeof *once),
             *twice = once + words; /* nodes with 1, 2 or more users */
    *out_changed = false;
    if (!once) return tern_error_memory("the fuser", 2u * (size_t)words * sizeof *once);
    for (uint32_t p = 0; p < fuser->order_count; p++) {
        const uint64_t *reads = fuser->reads[fuser->order[p]];
        for (uint32_t w = 0; w < words; w++) {
            twice[w] |= once[w] & reads[w];
            once[w] |= reads[w];
        }
    }
    for (uint32_t i = 0; (i = tern_bit_next(twice, i, n)) < n; i++) {
        if (!fuser->live[i] || fuser->stored[i] || tern_ops[fuser->graph->nodes[i]->op].kind != TERN_KIND_REDUCE)
            continue;
        fuser->stored[i] = *out_changed = true;
    }
    free(once);
    return TERN_OK;
}

static tern_status allocate(tern_fuser *fuser)
{
    const size_t n = fuser->graph->node_count + 1u;
    fuser->live = calloc(n, sizeof *fuser->live);
    fuser->stored = calloc(n, sizeof *fuser->stored);
    fuser->second = calloc(n, sizeof *fuser->second);
    fuser->order = calloc(n, sizeof *fuser->order);
    fuser->reads = calloc(n, sizeof *fuser->reads);
    fuser->group_of = calloc(n, sizeof *fuser->group_of);
    fuser->joint = calloc(n, sizeof *fuser->joint);
    if (!fuser->live || !fuser->stored || !fuser->second || !fuser->order || !fuser->reads || !fuser->group_of ||
        !fuser->joint)
        return tern_error_memory("the fuser", n * 32);
    return TERN_OK;
}

tern_status tern_fuser_run(tern_fuser *fuser, const tern_graph *graph)
{
    fuser->graph = graph;
    tern_status status = allocate(fuser);
    if (status < 0) return status;
    mark_live(fuser);
    store_required(fuser);
    if (fuser->fuse && (status = store_junctions(fuser)) < 0) return status;
    if ((status = store_chain_links(fuser)) < 0) return status;
    for (bool again = true; again;) { /* each round stores at least one value more */
        if ((status = tern_fuser_order(fuser)) < 0) return status;
        if ((status = store_shared_reductions(fuser, &again)) < 0) return status;
        if (again) continue;
        if ((status = tern_fuser_group(fuser, &again)) < 0) return status;
    }
    return TERN_OK;
}

void tern_fuser_clear_groups(tern_fuser *fuser)
{
    for (uint32_t g = 0; g < fuser->group_count; g++) {
        free(fuser->groups[g].roots);
        free(fuser->groups[g].leaves);
    }
    fuser->group_count = 0;
}

void tern_fuser_finish(tern_fuser *fuser)
{
    tern_fuser_clear_groups(fuser);
    free(fuser->groups);
    for (uint32_t i = 0; fuser->reads && i < fuser->graph->node_count; i++) free(fuser->reads[i]);
    free(fuser->live);
    free(fuser->stored);
    free(fuser->second);
    free(fuser->order);
    free(fuser->reads);
    free(fuser->group_of);
    free(fuser->joint);
    memset(fuser, 0, sizeof *fuser);
}
