/* SPDX-License-Identifier: Apache-2.0 */
/* random_graph.c - reductions, contractions and states, and how steps become a graph; see random_graph.h. */
#include "tests/random_graph.h"

#include "tests/random_maker.h"
#include "tests/test.h"

/* ---------------------------------------------------------------- reductions */

static void step_reduce(maker *m)
{
    const entry e = maker_pick_tame(m, 0);
    if (e.x->rank == 0) return;
    const uint32_t axes = 1u + maker_draw(m, (1u << e.x->rank) - 1u);
    tern_tensor *y = tern_reduce_sum(e.x, axes);
    if (maker_chance(m, 25) && (e.distinct || !m->train)) {
        maker_add(m, tern_reduce_max(e.x, axes), e.bound, e.exact, false, e.versions);
        return;
    }
    const double times = (double)tern_count(e.x) / (double)tern_count(y);
    maker_add(m, tern_mul(y, tern_constant(m->graph, 1 / sqrt(times))), sqrt(times) * e.bound, false, e.distinct,
              e.versions);
}

static void step_norm(maker *m)
{
    const entry e = maker_pick_tame(m, 0);
    if (e.x->rank == 0) return;
    const int32_t axis = (int32_t)maker_draw(m, (uint32_t)e.x->rank);
    switch (maker_draw(m, 3)) {
    case 0: maker_add(m, tern_softmax(e.x, axis), 1, false, false, e.versions); break;
    case 1: maker_add(m, tern_log_softmax(e.x, axis), 2 * e.bound + 5, false, false, e.versions); break;
    default: {
        const int64_t c = e.x->shape[e.x->rank - 1];
        tern_tensor *w = maker_chance(m, 70) ? maker_new_leaf(m, 1, &c).x : NULL,
                    *b = maker_chance(m, 70) ? maker_new_leaf(m, 1, &c).x : NULL;
        maker_add(m, tern_layer_norm(e.x, w, b, 0.1), 2 * sqrt((double)c) + 1, false, false, e.versions);
    }
    }
}

static void step_loss_rows(maker *m)
{
    const entry e = maker_pick_tame(m, 0);
    static const int32_t types[] = {TERN_I32, TERN_U32, TERN_U16, TERN_U8};
    if (e.x->rank == 0) return;
    tern_tensor *labels =
        tern_input(m->graph, maker_name_of(m, "labels"), types[maker_draw(m, 4)], e.x->rank - 1, e.x->shape);
    tern_tensor *loss = tern_cross_entropy(e.x, labels, maker_chance(m, 50) ? -1 : (int64_t)maker_draw(m, 3));
    maker_add(m, loss, 2 * e.bound + 5, false, false, e.versions);
}

/* -------------------------------------------------------------- contractions */

static tern_tensor *odd_operand(maker *m, tern_tensor *x)
{
    switch (maker_draw(m, 5)) {
    case 0: return tern_pad(tern_slice(x, -1, 0, (x->shape[x->rank - 1] + 1) / 2), -1, 0, x->shape[x->rank - 1] / 2);
    case 1: return tern_tanh(x);
    default: return x;
    }
}

static void step_matmul(maker *m)
{
    entry a = maker_pick_tame(m, 0);
    int64_t shape[TERN_MAX_RANK];
    if (a.x->rank < 2) return;
    if (maker_chance(m, 30)) a.x = tern_transpose(a.x, -1, -2);
    a.x = odd_operand(m, a.x);
    const int32_t rank = a.x->rank;
    const int64_t k = a.x->shape[rank - 1], n = maker_draw_size(m);
    if (tern_count(a.x) / k * n > m->most) return;
    const bool batched = rank > 2 && maker_chance(m, 60), transposed = maker_chance(m, 50), wider = maker_chance(m, 30);
    const int32_t b_rank = batched ? rank : 2;
    memcpy(shape, a.x->shape, sizeof shape);
    shape[b_rank - 2] = transposed ? n : k;
    shape[b_rank - 1] = (transposed ? k : n) + (wider ? 3 : 0);
    tern_tensor *b = maker_new_leaf(m, b_rank, shape).x;
    if (wider) b = tern_slice(b, -1, 2, shape[b_rank - 1] - 3);
    if (transposed) b = tern_transpose(b, -1, -2);
    tern_tensor *y = tern_mul(tern_matmul(a.x, odd_operand(m, b)), tern_constant(m->graph, 1 / sqrt((double)k)));
    maker_add(m, y, sqrt((double)k) * a.bound, false, a.distinct, a.versions);
}

/* a^T a and the like: one operand twice. */
static void step_gram(maker *m)
{
    const entry a = maker_pick_tame(m, 0);
    if (a.x->rank < 2) return;
    const int64_t rows = a.x->shape[a.x->rank - 2], k = a.x->shape[a.x->rank - 1];
    if (tern_count(a.x) / k * rows > m->most) return;
    tern_tensor *y =
        tern_mul(tern_matmul(a.x, tern_transpose(a.x, -1, -2)), tern_constant(m->graph, 1 / sqrt((double)k)));
    maker_add(m, y, sqrt((double)k) * a.bound * a.bound, false, false, a.versions);
}

static void step_attention(maker *m)
{
    const int64_t batch = 1 + (int64_t)maker_draw(m, 3), time = 1 + (int64_t)maker_draw(m, 9),
                  heads = 1 + (int64_t)maker_draw(m, 3);
    const int64_t dim = 1 + (int64_t)maker_draw(m, 9),
                  keys = maker_chance(m, 30) ? 1 + (int64_t)maker_draw(m, 9) : time;
    tern_tensor *q, *k, *v;
    uint32_t versions = 0;
    if (keys == time && maker_chance(m, 60)) {
        const int64_t packed[3] = {batch, time, 3 * heads * dim}, split[4] = {batch, time, heads, dim};
        entry qkv = maker_new_leaf(m, 3, packed);
        if (maker_chance(m, 60)) qkv.x = tern_add(qkv.x, maker_new_leaf(m, 1, &packed[2]).x);
        q = tern_reshape(tern_slice(qkv.x, 2, 0, heads * dim), 4, split);
        k = tern_reshape(tern_slice(qkv.x, 2, heads * dim, heads * dim), 4, split);
        v = tern_reshape(tern_slice(qkv.x, 2, 2 * heads * dim, heads * dim), 4, split);
        versions = qkv.versions;
    } else {
        const int64_t by_head[4] = {batch, heads, time, dim}, key_shape[4] = {batch, keys, heads, dim};
        q = tern_transpose(maker_new_leaf(m, 4, by_head).x, 1, 2);
        k = maker_new_leaf(m, 4, key_shape).x;
        v = maker_chance(m, 50) ? k : maker_new_leaf(m, 4, key_shape).x;
    }
    tern_tensor *o = tern_attention(q, k, v, 1 / sqrt((double)dim), keys == time && maker_chance(m, 60));
    maker_add(m, o, 2, false, false, versions);
    if (maker_chance(m, 40))
        maker_add(m, tern_reshape(o, 2, (const int64_t[]){batch * time, heads * dim}), 2, false, false, versions);
}

static void step_gather(maker *m)
{
    static const int32_t types[] = {TERN_I32, TERN_U32, TERN_U16, TERN_U8};
    const int64_t rows = maker_draw_size(m), width = 1 + (int64_t)maker_draw(m, 9);
    int64_t shape[TERN_MAX_RANK];
    entry ids = {0}, table = maker_pick_tame(m, 0);
    if (table.x->rank != 2) table = maker_new_leaf(m, 2, (const int64_t[]){rows, width});
    if (!(maker_chance(m, 40) && maker_pick_integers(m, table.versions, &ids) && ids.x->rank < TERN_MAX_RANK)) {
        int32_t rank;
        do rank = maker_draw_shape(m, 3, shape);
        while (tern_count(table.x) > 0 && rank > 0 && shape[0] > 40);
        ids = (entry){.x = tern_input(m->graph, maker_name_of(m, "ids"), types[maker_draw(m, 4)], rank, shape)};
    } else if (ids.bound == 0) {
        ids.x = tern_and(ids.x, tern_constant_u32(m->graph, 7)); /* else almost all would be the last row */
    }
    if (tern_count(ids.x) * table.x->shape[1] > 2 * m->most) return;
    maker_add(m, tern_gather(table.x, ids.x), table.bound, table.exact, false, table.versions | ids.versions);
}

/* -------------------------------------------------------------------- states */

static void step_state(maker *m)
{
    int64_t shape[TERN_MAX_RANK];
    if (m->states == STATES) return;
    int32_t rank = maker_draw_shape(m, 3, shape);
    if (m->count > 0 && maker_chance(m, 60)) {
        const entry like = maker_pick(m, 0);
        rank = like.x->rank;
        memcpy(shape, like.x->shape, sizeof shape);
    }
    char name[16];
    snprintf(name, sizeof name, "state%u", m->states);
    tern_tensor *s = tern_state(m->graph, name, maker_chance(m, 80) ? TERN_F32 : TERN_U32, rank, shape);
    maker_add(m, s, s->dtype == TERN_F32 ? 1 : 0, true, s->dtype == TERN_F32, 1u << 3 * m->states++);
}

/* A value of the target's shape. versions: what it reads; nothing of another version joins. */
static tern_tensor *value_for(maker *m, const entry *target, uint32_t *versions)
{
    tern_graph *g = m->graph;
    if (target->x->dtype == TERN_U32) return tern_add(target->x, tern_constant_u32(g, 1u + maker_draw(m, 9)));
    tern_tensor *value = maker_chance(m, 80) ? tern_mul(target->x, tern_constant(g, 0.5)) : NULL;
    for (uint32_t tries = 0; tries < 8; tries++) {
        const entry e = maker_pick_tame(m, *versions);
        if (e.x->rank > target->x->rank) continue;
        bool fits = true;
        for (int32_t i = 1; fits && i <= e.x->rank; i++) {
            const int64_t a = e.x->shape[e.x->rank - i], b = target->x->shape[target->x->rank - i];
            fits = a == b || a == 1;
        }
        if (!fits) continue;
        value = value ? tern_add(value, e.x) : tern_expand(e.x, target->x->rank, target->x->shape);
        *versions |= e.versions;
        break;
    }
    if (!value) value = tern_add(target->x, tern_constant(g, 1));
    return tern_detach(value);
}

static void step_assign(maker *m)
{
    if (m->states == 0) return;
    const uint32_t s = maker_draw(m, m->states), version = m->assigned[s];
    if (version == 2) return;
    for (uint32_t i = m->count; i-- > 0;) {
        entry e = m->pool[i];
        if (e.versions != 1u << (3 * s + version) || (e.x->op != TERN_OP_STATE && e.x->op != TERN_OP_ASSIGN)) continue;
        uint32_t versions = e.versions;
        tern_tensor *value = value_for(m, &e, &versions);
        m->assigned[s]++;
        maker_add(m, tern_assign(e.x, value), 4 + e.bound, false, false, 1u << (3 * s + version + 1));
        return;
    }
}

/* --------------------------------------------------------------------- all */

typedef struct step_kind {
    void (*run)(maker *m);
    uint32_t weight;
} step_kind;

static const step_kind kinds[] = {{step_unary, 14},         {step_binary, 20},   {step_choose, 6},  {step_integers, 8},
                                  {step_activation, 6},     {step_view, 20},     {step_halves, 4},  {step_reduce, 14},
                                  {step_norm, 8},           {step_loss_rows, 3}, {step_matmul, 10}, {step_gram, 3},
                                  {step_attention, 4},      {step_gather, 5},    {step_state, 5},   {step_assign, 7},
                                  {step_half_precision, 12}};

static void run_step(maker *m, uint32_t seed, uint32_t step)
{
    uint32_t total = 0, k = 0;
    m->step = step;
    m->noise = ((uint64_t)seed * 0x9e3779b97f4a7c15u) ^ ((uint64_t)(step + 1u) * 0xbf58476d1ce4e5b9u);
    (void)maker_draw(m, 2);
    for (uint32_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) total += kinds[i].weight;
    for (uint32_t at = maker_draw(m, total); at >= kinds[k].weight; k++) at -= kinds[k].weight;
    kinds[k].run(m);
}

/* Some of what was made, the last one always; a storage only in its last version. */
static void add_outputs(maker *m)
{
    char name[16];
    uint32_t named = 0;
    for (uint32_t i = m->count; i-- > 0 && named < 6;) {
        const entry *e = &m->pool[i];
        if (named > 0 && !maker_chance(m, 15)) continue;
        if (e->x->op == TERN_OP_STATE || e->x->op == TERN_OP_ASSIGN) continue; /* compared as states */
        snprintf(name, sizeof name, "out%u", named++);
        tern_output(e->x, name);
        if (!maker_chance(m, 10)) continue;
        snprintf(name, sizeof name, "out%u", named++);
        tern_output(e->x, name);
    }
}

/* The sum of the means of a few tensors that need gradients; none: no loss. */
static void add_loss(maker *m)
{
    tern_tensor *loss = NULL;
    uint32_t versions = 0, parts = 0;
    for (uint32_t i = m->count; i-- > 0 && parts < 4;) {
        const entry *e = &m->pool[i];
        if (!e->x->needs_gradient || e->x->dtype != TERN_F32 || maker_mixes_versions(versions | e->versions)) continue;
        if (parts > 0 && !maker_chance(m, 25)) continue;
        tern_tensor *part = tern_mul(e->x, tern_sin(e->x));
        if (parts++ == 0 && maker_chance(m, 50) && !maker_chance(m, 40)) {
            tern_loss(part, NULL);
            return;
        }
        part = tern_reshape(part, 1, (const int64_t[]){-1});
        part = tern_mul(tern_sum(part, 0), tern_constant(m->graph, 1 / (double)tern_count(part)));
        loss = loss ? tern_add(loss, part) : part;
        versions |= e->versions;
    }
    if (loss) tern_loss(loss, NULL);
}

uint32_t random_graph_steps(uint32_t seed)
{
    maker m = {.noise = (uint64_t)seed * 0x94d049bb133111ebu + 1};
    (void)maker_draw(&m, 2);
    return 3u + maker_draw(&m, maker_chance(&m, 70) ? 14 : RANDOM_GRAPH_STEPS - 3u);
}

tern_graph *random_graph_create(const random_graph_options *options)
{
    maker m = {.train = options->train, .most = options->seed % 16 == 0 ? 6000 : 700};
    if (tern_graph_create(&m.graph) < 0) return NULL;
    const uint32_t steps = random_graph_steps(options->seed);
    for (uint32_t step = 0; step < steps; step++)
        if (!(options->skip >> step & 1u)) run_step(&m, options->seed, step);
    m.noise = (uint64_t)options->seed * 0xd6e8feb86659fd93u + 7;
    (void)maker_draw(&m, 2);
    if (m.count == 0) {
        m.step = steps;
        (void)maker_new_leaf(&m, 1, (const int64_t[]){3});
    }
    if (m.train) add_loss(&m);
    add_outputs(&m);
    return m.graph;
}
