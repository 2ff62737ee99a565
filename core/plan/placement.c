/* SPDX-License-Identifier: Apache-2.0 */
/* placement.c - offsets in the arena's blocks.
 *
 *     offset ^
 *            |  +--logits--+            a value takes the lowest gap that no value alive
 *            | +--h1----+ +--dh1--+     at the same time covers
 *            +------------------------> launch
 *
 * Several fixed orders are tried (by size, breadth, size x lifetime, first use, lifetime). If none meets the lower
 * bound, the largest sum of live bytes, the values that end at a block's top are moved forward in the best order and
 * all are placed again, a bounded number of times. Everything is deterministic: the same program gets the same offsets
 * on every machine.
 * Invariant: values alive at one launch share no byte; a value lies within one block; no block exceeds the limit.
 * Source: Pisarchyk, Lee, "Efficient memory management for deep neural net inference", 2020 (greedy by size and
 * by breadth). */
#include "core/plan/hazard.h"

#include <stdlib.h>
#include <string.h>

#define TRIES_MOST 128u
#define TRIES_WORK 60000000.0 /* tries * values^2 stays below: about 0.1 s */

typedef struct item {
    uint32_t value, first, last;
    uint64_t bytes;   /* aligned, guards included */
    uint64_t breadth; /* the largest sum of live bytes during its life */
} item;

typedef struct placed {
    uint64_t begin, end;
    uint32_t first, last, block;
} placed;

typedef struct packer {
    item *items;
    uint32_t count;
    uint64_t limit, bound;          /* block's most bytes; total that no placement can beat */
    placed *map;                    /* this pass's items, ascending by begin */
    uint64_t *blocks, *best_blocks; /* bytes of each; room for `count` */
    uint32_t block_count, best_block_count;
    tern_placement *spots, *best_spots; /* per item */
    uint32_t *order, *best_order;
    uint64_t best_bytes;
    uint32_t *tops; /* items that end at a block's top in the best placement */
    uint32_t top_count;
} packer;

static void packer_finish(packer *p)
{
    void *owned[] = {p->items,      p->map,   p->blocks,     p->best_blocks, p->spots,
                     p->best_spots, p->order, p->best_order, p->tops};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) free(owned[i]);
}

/* Lowest offset in `block` at which the item fits; UINT64_MAX if it would pass the limit. */
static uint64_t lowest_gap(const packer *p, uint32_t placed_count, uint32_t block, const item *it)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < placed_count; i++) {
        const placed *other = &p->map[i];
        if (other->block != block || other->last < it->first || other->first > it->last) continue;
        if (other->begin >= at + it->bytes) break;
        if (other->end > at) at = other->end;
    }
    return at + it->bytes <= p->limit ? at : UINT64_MAX;
}

static void put(packer *p, uint32_t placed_count, placed what)
{
    uint32_t i = placed_count;
    for (; i > 0 && p->map[i - 1u].begin > what.begin; i--) p->map[i] = p->map[i - 1u];
    p->map[i] = what;
    if (what.end > p->blocks[what.block]) p->blocks[what.block] = what.end;
}

static void keep_best(packer *p, uint64_t total)
{
    p->best_bytes = total;
    p->best_block_count = p->block_count;
    memcpy(p->best_blocks, p->blocks, p->block_count * sizeof *p->blocks);
    memcpy(p->best_spots, p->spots, p->count * sizeof *p->spots);
    memcpy(p->best_order, p->order, p->count * sizeof *p->order);
    p->top_count = 0;
    for (uint32_t o = 0; o < p->count; o++) {
        const uint32_t i = p->order[o];
        if (p->spots[i].offset + p->items[i].bytes == p->blocks[p->spots[i].block]) p->tops[p->top_count++] = i;
    }
}

/* One pass in p->order; kept when no worse than the best, so that the search can walk along plateaus. */
static void pack(packer *p)
{
    p->block_count = 0;
    for (uint32_t o = 0; o < p->count; o++) {
        const item *it = &p->items[p->order[o]];
        uint64_t at = UINT64_MAX;
        uint32_t b = 0;
        for (; b < p->block_count; b++)
            if ((at = lowest_gap(p, o, b, it)) != UINT64_MAX) break;
        if (b == p->block_count) {
            p->blocks[p->block_count++] = 0;
            at = 0;
        }
        put(p, o, (placed){.begin = at, .end = at + it->bytes, .first = it->first, .last = it->last, .block = b});
        p->spots[p->order[o]] = (tern_placement){.block = b, .offset = at};
    }
    uint64_t total = 0;
    for (uint32_t b = 0; b < p->block_count; b++) total += p->blocks[b];
    if (total <= p->best_bytes) keep_best(p, total);
}

/* ------------------------------------------------------------------- orders */

typedef enum order_kind {
    ORDER_BYTES = 0,
    ORDER_BREADTH, /* the fullest launches' values first: they decide the total */
    ORDER_AREA,
    ORDER_FIRST_USE,
    ORDER_LIFETIME,
    ORDER_COUNT
} order_kind;

typedef struct rank {
    double key;
    uint64_t bytes;
    uint32_t item;
} rank;

static double rank_key(const item *it, order_kind kind)
{
    const double lifetime = (double)(it->last - it->first) + 1.0;
    switch (kind) {
    case ORDER_BREADTH: return (double)it->breadth;
    case ORDER_AREA: return (double)it->bytes * lifetime;
    case ORDER_FIRST_USE: return -(double)it->first;
    case ORDER_LIFETIME: return lifetime;
    default: return (double)it->bytes;
    }
}

/* Larger keys first, then larger items; the item's number decides ties, so that qsort's instability cannot show. */
static int rank_compare(const void *a, const void *b)
{
    const rank *x = a, *y = b;
    if (x->key != y->key) return x->key > y->key ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return x->item < y->item ? -1 : x->item > y->item;
}

static void order_by(packer *p, rank *ranks, order_kind kind)
{
    for (uint32_t i = 0; i < p->count; i++)
        ranks[i] = (rank){.key = rank_key(&p->items[i], kind), .bytes = p->items[i].bytes, .item = i};
    qsort(ranks, p->count, sizeof *ranks, rank_compare);
    for (uint32_t i = 0; i < p->count; i++) p->order[i] = ranks[i].item;
}

/* Moves an item from its place in the order to `to`, which is earlier. */
static void promote(packer *p, uint32_t which, uint32_t to)
{
    uint32_t from = 0;
    while (p->order[from] != which) from++;
    for (; from > to; from--) p->order[from] = p->order[from - 1u];
    p->order[to] = which;
}

/* The best order with one item of a block's top moved forward, and one pair of neighbours exchanged to leave cycles. */
static void improve(packer *p)
{
    uint32_t tries = TRIES_MOST;
    const double work = (double)p->count * (double)p->count;
    if ((double)tries * work > TRIES_WORK) tries = (uint32_t)(TRIES_WORK / work) + 4u;
    uint32_t noise = 0x9e3779b9u;
    for (uint32_t t = 0; t < tries && p->best_bytes > p->bound; t++) {
        memcpy(p->order, p->best_order, p->count * sizeof *p->order);
        const uint32_t top = p->tops[t % p->top_count];
        uint32_t at = 0;
        while (p->order[at] != top) at++;
        noise = noise * 1664525u + 1013904223u;
        promote(p, top, at ? (uint32_t)(((uint64_t)(noise >> 8) * at) >> 24) : 0u);
        noise = noise * 1664525u + 1013904223u;
        const uint32_t i = (uint32_t)(((uint64_t)(noise >> 8) * (p->count - 1u)) >> 24);
        const uint32_t swap = p->order[i];
        p->order[i] = p->order[i + 1u];
        p->order[i + 1u] = swap;
        pack(p);
    }
}

/* ------------------------------------------------------------------- set-up */

/* Guards stand before and behind a guarded value; there nothing is reused, so every item lives from start to end. */
static void fill_items(packer *p, const tern_plan *plan, uint64_t guard)
{
    for (uint32_t v = 0; v < plan->lowered->value_count; v++) {
        if (!tern_plan_in_arena(plan, v)) continue;
        p->items[p->count++] = (item){
            .value = v,
            .first = guard ? 0 : plan->first_use[v],
            .last = guard ? UINT32_MAX - 1u : plan->last_use[v],
            .bytes = tern_align(plan->lowered->values[v].bytes, plan->alignment) + 2u * guard,
        };
    }
}

/* The largest sum of the items' aligned bytes alive at one position, and each item's breadth. */
static tern_status find_bound(packer *p, uint32_t positions)
{
    uint64_t *live =
        calloc(positions + 2u, sizeof *live); /* first the changes, which wrap below zero; then their sums */
    if (!live) return tern_error_memory("the arena's map", (positions + 2u) * sizeof *live);
    for (uint32_t i = 0; i < p->count; i++) {
        const uint32_t last = p->items[i].last < positions ? p->items[i].last : positions;
        live[p->items[i].first] += p->items[i].bytes;
        live[last + 1u] -= p->items[i].bytes;
    }
    for (uint32_t t = 1; t < positions; t++) live[t] += live[t - 1u];
    for (uint32_t i = 0; i < p->count; i++) {
        item *it = &p->items[i];
        for (uint32_t t = it->first; t <= it->last && t < positions; t++)
            if (live[t] > it->breadth) it->breadth = live[t];
        if (it->breadth > p->bound) p->bound = it->breadth;
    }
    free(live);
    return TERN_OK;
}

static tern_status packer_prepare(packer *p, uint32_t value_count)
{
    const size_t n = (size_t)value_count + 1u;
    p->items = calloc(n, sizeof *p->items);
    p->map = calloc(n, sizeof *p->map);
    p->blocks = calloc(n, sizeof *p->blocks);
    p->best_blocks = calloc(n, sizeof *p->best_blocks);
    p->spots = calloc(n, sizeof *p->spots);
    p->best_spots = calloc(n, sizeof *p->best_spots);
    p->order = calloc(n, sizeof *p->order);
    p->best_order = calloc(n, sizeof *p->best_order);
    p->tops = calloc(n, sizeof *p->tops);
    p->best_bytes = UINT64_MAX;
    if (!p->items || !p->map || !p->blocks || !p->best_blocks || !p->spots || !p->best_spots || !p->order ||
        !p->best_order || !p->tops)
        return tern_error_memory("the arena's map", n * (sizeof *p->items + sizeof *p->map));
    return TERN_OK;
}

static tern_status commit(const packer *p, tern_plan *plan, uint64_t guard)
{
    plan->block_bytes = calloc(p->best_block_count + 1u, sizeof *plan->block_bytes);
    if (!plan->block_bytes)
        return tern_error_memory("the arena's blocks", (p->best_block_count + 1u) * sizeof *plan->block_bytes);
    plan->block_count = p->best_block_count;
    memcpy(plan->block_bytes, p->best_blocks, p->best_block_count * sizeof *plan->block_bytes);
    plan->arena_bytes = p->best_bytes;
    for (uint32_t i = 0; i < p->count; i++) {
        tern_placement spot = p->best_spots[i];
        spot.offset += guard;
        plan->placements[p->items[i].value] = spot;
    }
    return TERN_OK;
}

tern_status tern_placement_compute(tern_plan *plan, uint64_t block_limit)
{
    tern_status status = TERN_OK;
    const uint64_t guard = plan->options.guard ? tern_align(TERN_GUARD_BYTES, plan->alignment) : 0;
    const uint32_t positions = plan->lowered->launch_count ? plan->lowered->launch_count : 1u;
    packer p = {.limit = block_limit};
    rank *ranks = calloc((size_t)plan->lowered->value_count + 1u, sizeof *ranks);
    if (!ranks) return tern_error_memory("the arena's map", ((size_t)plan->lowered->value_count + 1u) * sizeof *ranks);
    TERN_TRY(packer_prepare(&p, plan->lowered->value_count));
    fill_items(&p, plan, guard);
    TERN_TRY(find_bound(&p, positions));
    if (p.count == 0) p.best_bytes = 0;
    for (order_kind kind = ORDER_BYTES; kind < ORDER_COUNT && p.best_bytes > p.bound; kind++) {
        order_by(&p, ranks, kind);
        pack(&p);
    }
    if (p.count > 1u) improve(&p);
    TERN_TRY(commit(&p, plan, guard));
fail:
    free(ranks);
    packer_finish(&p);
    return status;
}
