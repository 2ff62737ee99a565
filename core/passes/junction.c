/* SPDX-License-Identifier: Apache-2.0 */
/* junction.c - junctions by immediate post-dominators.
 *
 * In the graph of same-pass uses, a use by a contraction, an assign or the outside is an edge to EXIT. If every path
 * from v to EXIT runs through one node w, w post-dominates v and v's uses meet again in w. v is a junction when only
 * EXIT post-dominates it. */
#include "core/passes/junction.h"

#include <stdlib.h>
#include <string.h>

#define EXIT UINT32_MAX

typedef struct analysis {
    const tern_graph *graph;
    uint32_t *parent; /* immediate post-dominator */
    uint32_t *depth;  /* in the post-dominator tree; EXIT has 0 */
    uint32_t *uses;
    bool *seen;    /* has a use in its own pass */
    bool *crosses; /* has a use in another pass */
    bool *heavy;   /* a contraction or gather is behind it, no junction between */
} analysis;

static uint32_t meet(const analysis *a, uint32_t x, uint32_t y)
{
    while (x != y) {
        if (x == EXIT || y == EXIT) return EXIT;
        if (a->depth[x] >= a->depth[y])
            x = a->parent[x];
        else
            y = a->parent[y];
    }
    return x;
}

static void add_use(analysis *a, uint32_t node, uint32_t target)
{
    a->parent[node] = a->seen[node] ? meet(a, a->parent[node], target) : target;
    a->seen[node] = true;
    a->uses[node]++;
}

static bool leaves_registers(const tern_tensor *user, int32_t input)
{
    const tern_op_kind kind = tern_ops[user->op].kind;
    return kind == TERN_KIND_CONTRACTION || kind == TERN_KIND_EFFECT || (user->op == TERN_OP_GATHER && input == 0);
}

static void find_post_dominators(analysis *a)
{
    const tern_graph *graph = a->graph;
    for (uint32_t o = 0; o < graph->output_count; o++) add_use(a, graph->outputs[o].tensor->id, EXIT);
    for (uint32_t i = graph->node_count; i-- > 0;) {
        const tern_tensor *x = graph->nodes[i];
        if (!a->seen[i] && (a->crosses[i] || x == graph->loss)) { /* a loss that nobody reads yet will be */
            a->seen[i] = true;
            a->parent[i] = EXIT;
        }
        if (a->seen[i]) a->depth[i] = a->parent[i] == EXIT ? 1 : a->depth[a->parent[i]] + 1;
        const bool alive = a->seen[i] || x->op == TERN_OP_ASSIGN;
        for (int32_t k = 0; alive && k < x->in_count; k++) {
            if (x->in[k]->pass == x->pass)
                add_use(a, x->in[k]->id, leaves_registers(x, k) ? EXIT : i);
            else
                a->crosses[x->in[k]->id] = true;
        }
    }
}

static bool is_heavy(const analysis *a, const tern_tensor *x)
{
    if (x->op == TERN_OP_GATHER) return true;
    if (x->op == TERN_OP_ASSIGN) return false; /* in a buffer already */
    if (x->op == TERN_OP_SECOND || tern_ops[x->op].kind == TERN_KIND_CONTRACTION) return true;
    for (int32_t k = 0; k < x->in_count; k++)
        if (a->heavy[x->in[k]->id] && x->in[k]->pass == x->pass) return true; /* what another pass left is stored */
    return false;
}

/* The value itself: a widening is only another way to read what has 16 bits. */
static const tern_tensor *behind_views(const tern_tensor *x)
{
    while (tern_is_view(x) || tern_is_widening(x)) x = x->in[0];
    return x;
}

/* A contraction's result in 16 bits: stored, but as near to the contraction as its f32 result would be. */
static bool is_contraction_result(const tern_tensor *x)
{
    if (!tern_is_narrowing(x)) return false;
    x = behind_views(x->in[0]);
    return x->op == TERN_OP_SECOND || tern_ops[x->op].kind == TERN_KIND_CONTRACTION;
}

static void find_junctions(analysis *a, bool *out_junction)
{
    for (uint32_t i = 0; i < a->graph->node_count; i++) {
        const tern_tensor *x = a->graph->nodes[i], *base = behind_views(x);
        a->heavy[i] = is_heavy(a, x);
        if (a->uses[i] < 2 || a->parent[i] != EXIT || !a->heavy[i] || tern_ops[base->op].kind != TERN_KIND_MAP)
            continue;
        out_junction[base->id] = true;
        if (is_contraction_result(base)) continue;
        a->heavy[i] = a->heavy[base->id] = false;
    }
}

tern_status tern_junctions(const tern_graph *graph, bool *out_junction)
{
    const size_t n = graph->node_count + 1u;
    tern_status status = TERN_OK;
    analysis a = {.graph = graph,
                  .parent = calloc(n, sizeof(uint32_t)),
                  .depth = calloc(n, sizeof(uint32_t)),
                  .uses = calloc(n, sizeof(uint32_t)),
                  .seen = calloc(n, sizeof(bool)),
                  .crosses = calloc(n, sizeof(bool)),
                  .heavy = calloc(n, sizeof(bool))};
    if (!a.parent || !a.depth || !a.uses || !a.seen || !a.crosses || !a.heavy) {
        status = tern_error_memory("the junction analysis", n * 16);
        goto fail;
    }
    memset(out_junction, 0, graph->node_count * sizeof *out_junction);
    find_post_dominators(&a);
    find_junctions(&a, out_junction);
fail:
    free(a.parent);
    free(a.depth);
    free(a.uses);
    free(a.seen);
    free(a.crosses);
    free(a.heavy);
    return status;
}
