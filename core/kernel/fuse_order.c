/* SPDX-License-Identifier: Apache-2.0 */
/* fuse_order.c - an execution order of stored values and contractions.
 *
 * reads[p]: every node that p's definition touches, ending at stored values, contractions and leaves. Order edges: what
 * p reads and is computed comes first; whoever reads a tensor's old version comes before the ASSIGN that replaces it.
 * ASSIGNs that all read each other's old versions (a swap, a code and its scale) can only be one kernel, which reads
 * before it writes: they follow each other in the order and are marked as joint. */
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

static uint32_t collect_points(tern_fuser *fuser, uint32_t *points)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < fuser->graph->node_count; i++)
        if (tern_fuser_is_point(fuser, fuser->graph->nodes[i])) points[count++] = i;
    return count;
}

tern_status tern_fuser_cycle(const char *label)
{
    return tern_error(
        TERN_ERROR_INVALID,
        "\"%s\" is assigned, but something needs both its old value and its new one; copy the old value through "
        "another state first",
        label);
}

/* Who waits for whom, as positions among the points: followers[first[p] .. first[p + 1]) wait for point p. */
typedef struct edges {
    uint32_t *place;                       /* per node id: its position, UINT32_MAX if it is no point */
    uint32_t *replacer;                    /* per node id: the position of the ASSIGN that replaces it, or UINT32_MAX */
    uint32_t *first, *followers, *waiting; /* waiting: how many edges into each point are left */
    bool *done;
} edges;

static void edges_finish(edges *e)
{
    free(e->place);
    free(e->replacer);
    free(e->first);
    free(e->followers);
    free(e->waiting);
    free(e->done);
}

static tern_status edges_create(const tern_fuser *fuser, const uint32_t *points, uint32_t count, edges *e)
{
    const size_t n = fuser->graph->node_count + 1u;
    e->place = malloc(n * sizeof *e->place);
    e->replacer = malloc(n * sizeof *e->replacer);
    e->first = calloc(count + 2u, sizeof *e->first);
    e->waiting = calloc(count + 1u, sizeof *e->waiting);
    e->done = calloc(count + 1u, sizeof *e->done);
    if (!e->place || !e->replacer || !e->first || !e->waiting || !e->done)
        return tern_error_memory("the fuser's order", n * 16u);
    memset(e->place, 0xff, n * sizeof *e->place);
    memset(e->replacer, 0xff, n * sizeof *e->replacer);
    for (uint32_t p = 0; p < count; p++) {
        const tern_tensor *x = fuser->graph->nodes[points[p]];
        e->place[points[p]] = p;
        if (x->op == TERN_OP_ASSIGN) e->replacer[x->in[0]->id] = p;
    }
    return TERN_OK;
}

/* Counts an edge, or where followers is there, writes it; from and to the same: none. */
static void add_edge(edges *e, uint32_t from, uint32_t to)
{
    if (from == UINT32_MAX || to == UINT32_MAX || from == to) return;
    if (!e->followers) {
        e->first[from + 1u]++;
        e->waiting[to]++;
    } else {
        e->followers[e->first[from]++] = to;
    }
}

static void visit_edges(const tern_fuser *fuser, const uint32_t *points, uint32_t count, edges *e)
{
    const uint32_t n = fuser->graph->node_count;
    for (uint32_t p = 0; p < count; p++) {
        const uint64_t *reads = fuser->reads[points[p]];
        for (uint32_t i = 0; (i = tern_bit_next(reads, i, n)) < n; i++) {
            add_edge(e, e->place[i], p);
            add_edge(e, p, e->replacer[i]);
        }
    }
}

static tern_status edges_fill(const tern_fuser *fuser, const uint32_t *points, uint32_t count, edges *e)
{
    visit_edges(fuser, points, count, e);
    uint64_t total = 0;
    for (uint32_t p = 0; p < count; p++) total += e->first[p + 1u];
    e->followers = total < UINT32_MAX ? malloc((total + 1u) * sizeof *e->followers) : NULL;
    if (!e->followers) return tern_error_memory("the fuser's order", total * sizeof *e->followers);
    for (uint32_t p = 0; p < count; p++) e->first[p + 1u] += e->first[p];
    visit_edges(fuser, points, count, e);
    for (uint32_t p = count; p > 0; p--) e->first[p] = e->first[p - 1u]; /* writing moved each to its end */
    e->first[0] = 0;
    return TERN_OK;
}

/* Marks what waits for `from`, directly or not, among the points left; returns how many. stack: count long. */
static uint32_t mark_waiting(const edges *e, uint32_t from, bool *seen, uint32_t *stack, uint32_t count)
{
    uint32_t depth = 0, found = 0;
    memset(seen, 0, count * sizeof *seen);
    stack[depth++] = from;
    while (depth > 0) {
        const uint32_t p = stack[--depth];
        for (uint32_t k = e->first[p]; k < e->first[p + 1u]; k++) {
            const uint32_t follower = e->followers[k];
            if (seen[follower] || e->done[follower]) continue;
            seen[follower] = true;
            stack[depth++] = follower;
            found++;
        }
    }
    return found;
}

/* Of the points left, all of which wait: a set whose members wait for each other and for nothing else. The point for
 * which most wait belongs to one. */
static tern_status find_cycle(const edges *e, uint32_t count, bool *out_members)
{
    uint32_t most = 0, start = 0;
    bool *below = calloc(count + 1u, sizeof *below), *seen = calloc(count + 1u, sizeof *seen);
    uint32_t *stack = malloc((count + 1u) * sizeof *stack);
    tern_status status = TERN_OK;
    if (!below || !seen || !stack) {
        status = tern_error_memory("the fuser's order", count * sizeof *stack);
        goto fail;
    }
    for (uint32_t p = 0; p < count; p++) {
        const uint32_t waiting = e->done[p] ? 0 : mark_waiting(e, p, seen, stack, count);
        if (waiting <= most) continue;
        most = waiting;
        start = p;
    }
    mark_waiting(e, start, below, stack, count);
    for (uint32_t p = 0; p < count; p++) {
        out_members[p] = false;
        if (!below[p]) continue;
        mark_waiting(e, p, seen, stack, count);
        out_members[p] = seen[start];
    }
fail:
    free(below);
    free(seen);
    free(stack);
    return status;
}

/* Appends a point and lets its followers know. */
static void append_point(tern_fuser *fuser, const uint32_t *points, edges *e, uint32_t p, uint64_t *ready)
{
    e->done[p] = true;
    fuser->order[fuser->order_count++] = points[p];
    for (uint32_t k = e->first[p]; k < e->first[p + 1u]; k++) {
        const uint32_t follower = e->followers[k];
        if (--e->waiting[follower] == 0 && !e->done[follower]) tern_bit_set(ready, follower);
    }
}

static tern_status append_cycle(tern_fuser *fuser, const uint32_t *points, uint32_t count, edges *e, uint64_t *ready)
{
    uint32_t first = UINT32_MAX;
    bool *members = calloc(count + 1u, sizeof *members);
    if (!members) return tern_error_memory("the fuser's order", count);
    tern_status status = find_cycle(e, count, members);
    for (uint32_t p = 0; status == TERN_OK && p < count; p++) {
        const tern_tensor *x = fuser->graph->nodes[points[p]];
        if (members[p] && x->op != TERN_OP_ASSIGN) {
            for (uint32_t q = 0; q < count; q++)
                if (members[q] && fuser->graph->nodes[points[q]]->op == TERN_OP_ASSIGN)
                    x = fuser->graph->nodes[points[q]]->in[0];
            status = tern_fuser_cycle(x->label);
        }
        if (members[p]) e->done[p] = true; /* none becomes ready by another */
    }
    for (uint32_t p = 0; status == TERN_OK && p < count; p++) {
        if (!members[p]) continue;
        if (first == UINT32_MAX) first = points[p];
        fuser->joint[points[p]] = first;
        append_point(fuser, points, e, p, ready);
    }
    free(members);
    return status;
}

/* Kahn's algorithm; among the ready ones the lowest id, so that the order follows the model's text. */
static tern_status sort_points(tern_fuser *fuser, const uint32_t *points, uint32_t count, edges *e)
{
    tern_status status = TERN_OK;
    uint64_t *ready = calloc(count / 64u + 1u, sizeof *ready);
    if (!ready) return tern_error_memory("the fuser's order", count / 8u);
    fuser->order_count = 0;
    for (uint32_t p = 0; p < count; p++) {
        fuser->joint[points[p]] = points[p];
        if (e->waiting[p] == 0) tern_bit_set(ready, p);
    }
    while (fuser->order_count < count) {
        const uint32_t p = tern_bit_next(ready, 0, count);
        if (p == count) {
            TERN_TRY(append_cycle(fuser, points, count, e, ready));
            continue;
        }
        ready[p / 64] &= ~(1ull << (p % 64));
        append_point(fuser, points, e, p, ready);
    }
fail:
    free(ready);
    return status;
}

tern_status tern_fuser_order(tern_fuser *fuser)
{
    const uint32_t n = fuser->graph->node_count;
    uint32_t *points = malloc((n + 1u) * sizeof *points);
    edges e = {0};
    tern_status status = TERN_OK;
    if (!points) return tern_error_memory("the fuser's order", (n + 1u) * sizeof *points);
    const uint32_t count = collect_points(fuser, points);
    for (uint32_t p = 0; p < count; p++) TERN_TRY(find_reads(fuser, fuser->graph->nodes[points[p]]));
    TERN_TRY(edges_create(fuser, points, count, &e));
    TERN_TRY(edges_fill(fuser, points, count, &e));
    TERN_TRY(sort_points(fuser, points, count, &e));
fail:
    edges_finish(&e);
    free(points);
    return status;
}
