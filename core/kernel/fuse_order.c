/* SPDX-License-Identifier: Apache-2.0 */
/* fuse_order.c - an execution order of stored values and contractions.
 *
 * reads[p]: every node that p's definition touches, ending at stored values, contractions and leaves. Order edges: what
 * p reads and is computed comes first; whoever reads a tensor's old version comes before the ASSIGN that replaces it.
 */
#include "core/kernel/fuse.h"

#include <stdlib.h>
#include <string.h>

static size_t bit_words(const tern_fuser *fuser) { return fuser->graph->node_count / 64u + 1u; }

/* Marks what lies below x, x included. */
static void mark(const tern_fuser *fuser, uint64_t *reads, const tern_tensor *x)
{
    if (tern_bit(reads, x->id)) return;
    tern_bit_set(reads, x->id);
    if (x->op == TERN_OP_SECOND) {
        tern_bit_set(reads, x->in[0]->id);
        return;
    }
    if (tern_fuser_is_point(fuser, x)) return;
    for (int32_t k = 0; k < x->in_count; k++) mark(fuser, reads, x->in[k]);
}

static tern_status find_reads(tern_fuser *fuser, const tern_tensor *point)
{
    uint64_t *reads = calloc(bit_words(fuser), sizeof *reads);
    if (!reads) return tern_error_memory("the fuser's order", bit_words(fuser) * sizeof *reads);
    free(fuser->reads[point->id]);
    fuser->reads[point->id] = reads;
    for (int32_t k = 0; k < point->in_count; k++) {
        if (point->op == TERN_OP_ASSIGN && k == 0) {
            if (point->in[0]->op == TERN_OP_ASSIGN) tern_bit_set(reads, point->in[0]->id);
            continue; /* the target is written, not read */
        }
        mark(fuser, reads, point->in[k]);
    }
    return TERN_OK;
}

/* Whether b must come before a. */
static bool precedes(const tern_fuser *fuser, const tern_tensor *b, const tern_tensor *a)
{
    if (a == b) return false;
    if (tern_bit(fuser->reads[a->id], b->id)) return true;
    return a->op == TERN_OP_ASSIGN && tern_bit(fuser->reads[b->id], a->in[0]->id);
}

static uint32_t collect_points(tern_fuser *fuser, uint32_t *points)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < fuser->graph->node_count; i++)
        if (tern_fuser_is_point(fuser, fuser->graph->nodes[i])) points[count++] = i;
    return count;
}

static tern_status order_cycle(const tern_fuser *fuser, const uint32_t *points, const uint32_t *waiting, uint32_t count)
{
    const char *label = "?";
    for (uint32_t p = 0; p < count; p++)
        if (waiting[p] > 0 && fuser->graph->nodes[points[p]]->op == TERN_OP_ASSIGN)
            label = fuser->graph->nodes[points[p]]->in[0]->label;
    return tern_error(
        TERN_ERROR_INVALID,
        "\"%s\" is assigned, but something needs both its old value and its new one; copy the old value through "
        "another state first",
        label);
}

/* Kahn's algorithm; among the ready ones the lowest id, so that the order follows the model's text. */
static tern_status sort_points(tern_fuser *fuser, const uint32_t *points, uint32_t *waiting, uint32_t count)
{
    tern_tensor *const *nodes = fuser->graph->nodes;
    for (uint32_t a = 0; a < count; a++) {
        waiting[a] = 0;
        for (uint32_t b = 0; b < count; b++) waiting[a] += precedes(fuser, nodes[points[b]], nodes[points[a]]);
    }
    fuser->order_count = 0;
    while (fuser->order_count < count) {
        uint32_t next = 0;
        while (next < count && waiting[next] != 0) next++;
        if (next == count) return order_cycle(fuser, points, waiting, count);
        fuser->order[fuser->order_count++] = points[next];
        waiting[next] = UINT32_MAX;
        for (uint32_t a = 0; a < count; a++)
            if (waiting[a] != UINT32_MAX && precedes(fuser, nodes[points[next]], nodes[points[a]])) waiting[a]--;
    }
    return TERN_OK;
}

tern_status tern_fuser_order(tern_fuser *fuser)
{
    const uint32_t n = fuser->graph->node_count;
    uint32_t *points = malloc((n + 1u) * sizeof *points), *waiting = malloc((n + 1u) * sizeof *waiting);
    tern_status status = TERN_OK;
    if (!points || !waiting) {
        status = tern_error_memory("the fuser's order", n * 8u);
        goto fail;
    }
    const uint32_t count = collect_points(fuser, points);
    for (uint32_t p = 0; p < count; p++) TERN_TRY(find_reads(fuser, fuser->graph->nodes[points[p]]));
    TERN_TRY(sort_points(fuser, points, waiting, count));
fail:
    free(points);
    free(waiting);
    return status;
}
