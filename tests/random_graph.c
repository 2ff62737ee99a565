/* SPDX-License-Identifier: Apache-2.0 */
/* random_graph.c - see random_graph.h. */
#include "tests/random_graph.h"

#include "core/graph/build.h"
#include "tests/test.h"

#include <stdlib.h>

#define POOL           256u
#define STATES         3u
#define LARGEST_VALUE  4.0

/* A tensor to build on. */
typedef struct entry {
    tern_tensor *x;
    double bound;      /* |f32 value| stays below; integers: values stay below, 0: all bits */
    bool exact;        /* no rounding so far: may be compared, floored, cast */
    bool distinct;     /* no two elements tie, none is 0: kinks are safe to differentiate */
    uint32_t versions; /* per state three bits: reads its old, first new, second new version */
} entry;

typedef struct maker {
    tern_graph *graph;
    entry pool[POOL];
    uint32_t count;
    uint32_t step;     /* names what this step makes */
    uint64_t noise;
    uint32_t states, assigned[STATES];
    int64_t most;      /* elements of a tensor */
    bool train;
} maker;

/* ------------------------------------------------------------------- drawing */

static uint32_t draw(maker *m, uint32_t below)
{
    m->noise = m->noise * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(((m->noise >> 33) * below) >> 31);
}

static bool chance(maker *m, uint32_t percent) { return draw(m, 100) < percent; }

static int64_t draw_size(maker *m)
{
    static const int64_t odd[] = {1, 1, 2, 3, 5, 7, 8, 13, 16, 17, 31, 33, 64, 65, 70};
    return chance(m, 60) ? (int64_t)(1u + draw(m, 6)) : odd[draw(m, sizeof odd / sizeof odd[0])];
}

static int32_t draw_shape(maker *m, int32_t most, int64_t *shape)
{
    const int32_t rank = (int32_t)draw(m, (uint32_t)most + 1u);
    int64_t count = 1;
    for (int32_t i = 0; i < rank; i++) {
        do shape[i] = draw_size(m);
        while (count * shape[i] > m->most);
        count *= shape[i];
    }
    return rank;
}

static bool mixes_versions(uint32_t versions)
{
    for (uint32_t s = 0; s < STATES; s++) {
        const uint32_t three = versions >> 3 * s & 7u;
        if (three & (three - 1u)) return true;
    }
    return false;
}

static void add(maker *m, tern_tensor *x, double bound, bool exact, bool distinct, uint32_t versions)
{
    if (m->count == POOL || m->graph->status < 0) return;
    m->pool[m->count++] = (entry){x, bound, exact, distinct, versions};
}

static bool accepts(const entry *e, int32_t dtype, uint32_t versions)
{
    return e->x->dtype == dtype && !mixes_versions(versions | e->versions);
}

static const char *name_of(maker *m, const char *prefix)
{
    static char name[32];
    snprintf(name, sizeof name, "%s%u.%u", prefix, m->step, m->graph->node_count);
    return name;
}

static entry new_leaf(maker *m, int32_t rank, const int64_t *shape)
{
    tern_tensor *x = m->train && chance(m, 60)
                         ? tern_parameter(m->graph, name_of(m, "w"), rank, shape, TERN_INIT_NORMAL, 1)
                         : tern_input(m->graph, name_of(m, "x"), TERN_F32, rank, shape);
    const entry e = {x, 1, true, true, 0};
    add(m, x, 1, true, true, 0);
    return e;
}

/* An f32 tensor that may be read together with `versions`; mostly recent ones. */
static entry pick(maker *m, uint32_t versions)
{
    for (uint32_t tries = 0; tries < 12 && m->count > 0; tries++) {
        const uint32_t near = m->count < 8 ? m->count : 8;
        const entry *e = &m->pool[m->count - 1u - (chance(m, 60) ? draw(m, near) : draw(m, m->count))];
        if (accepts(e, TERN_F32, versions)) return *e;
    }
    int64_t shape[TERN_MAX_RANK];
    const int32_t rank = draw_shape(m, 4, shape);
    return new_leaf(m, rank, shape);
}

static bool pick_integers(maker *m, uint32_t versions, entry *out)
{
    for (uint32_t tries = 0; tries < 20 && m->count > 0; tries++) {
        const entry *e = &m->pool[draw(m, m->count)];
        if (!accepts(e, TERN_U32, versions)) continue;
        *out = *e;
        return true;
    }
    return false;
}

/* Values within LARGEST_VALUE, so that no op leaves its safe range. */
static entry tame(maker *m, entry e)
{
    if (e.bound <= LARGEST_VALUE) return e;
    if (chance(m, 50)) e.x = tern_mul(e.x, tern_constant(m->graph, 1 / e.bound));
    else e.x = tern_tanh(tern_mul(e.x, tern_constant(m->graph, 2 / e.bound)));
    e.bound = 1;
    e.exact = false;
    return e;
}

static entry pick_tame(maker *m, uint32_t versions) { return tame(m, pick(m, versions)); }

/* A tensor that broadcasts with x: x's trailing axes, some of them 1. */
static entry partner(maker *m, const entry *x)
{
    for (uint32_t tries = 0; tries < 6; tries++) {
        const entry e = pick(m, x->versions);
        bool fits = e.x->rank <= x->x->rank;
        for (int32_t i = 1; fits && i <= e.x->rank; i++) {
            const int64_t a = e.x->shape[e.x->rank - i], b = x->x->shape[x->x->rank - i];
            fits = a == b || a == 1;
        }
        if (fits) return tame(m, e);
    }
    int64_t shape[TERN_MAX_RANK];
    const int32_t rank = x->x->rank - (int32_t)draw(m, (uint32_t)x->x->rank + 1u);
    for (int32_t i = 0; i < rank; i++) shape[i] = chance(m, 30) ? 1 : x->x->shape[x->x->rank - rank + i];
    return new_leaf(m, rank, shape);
}

/* --------------------------------------------------------------- elementwise */

static void step_unary(maker *m)
{
    const entry e = pick_tame(m, 0);
    tern_graph *g = m->graph;
    tern_tensor *x = e.x, *half = tern_constant(g, 0.5);
    switch (draw(m, 14)) {
    case 0: add(m, tern_neg(x), e.bound, e.exact, e.distinct, e.versions); break;
    case 1:
        if (e.distinct) add(m, tern_abs(x), e.bound, e.exact, false, e.versions);
        break;
    case 2: add(m, tern_exp(tern_mul(x, half)), exp(e.bound / 2), false, e.distinct, e.versions); break;
    case 3: add(m, tern_log(tern_add(tern_mul(x, x), half)), log(e.bound * e.bound + 1.5), false, false, e.versions); break;
    case 4: add(m, tern_sqrt(tern_add(tern_mul(x, x), half)), e.bound + 1, false, false, e.versions); break;
    case 5: add(m, tern_rsqrt(tern_add(tern_mul(x, x), half)), 1.5, false, false, e.versions); break;
    case 6: add(m, tern_recip(tern_add(tern_mul(x, x), half)), 2, false, false, e.versions); break;
    case 7: add(m, tern_tanh(x), 1, false, e.distinct, e.versions); break;
    case 8: add(m, tern_erf(x), 1, false, e.distinct, e.versions); break;
    case 9: add(m, tern_sin(x), 1, false, e.distinct, e.versions); break;
    case 10: add(m, tern_cos(x), 1, false, false, e.versions); break;
    case 11:
        if (e.exact) add(m, tern_floor(tern_mul(x, tern_constant(g, 4))), 4 * e.bound + 1, true, false, e.versions);
        break;
    case 12: add(m, tern_detach(x), e.bound, e.exact, e.distinct, e.versions); break;
    default: add(m, tern_sigmoid(x), 1, false, false, e.versions); break;
    }
}

static void step_binary(maker *m)
{
    entry a = pick_tame(m, 0), b = partner(m, &a);
    const uint32_t versions = a.versions | b.versions;
    const bool distinct = a.distinct && b.distinct && a.x != b.x;
    tern_graph *g = m->graph;
    if (chance(m, 50)) {
        const entry swap = a;
        a = b;
        b = swap;
    }
    switch (draw(m, 7)) {
    case 0:
    case 1: add(m, tern_add(a.x, b.x), a.bound + b.bound, false, distinct, versions); break;
    case 2: add(m, tern_sub(a.x, b.x), a.bound + b.bound, false, distinct, versions); break;
    case 3: add(m, tern_mul(a.x, b.x), a.bound * b.bound, false, distinct, versions); break;
    case 4:
        add(m, tern_div(a.x, tern_add(tern_mul(b.x, b.x), tern_constant(g, 0.5))), 2 * a.bound, false, false, versions);
        break;
    case 5:
        if (distinct) add(m, tern_max(a.x, b.x), fmax(a.bound, b.bound), false, false, versions);
        break;
    default:
        if (distinct) add(m, tern_min(a.x, b.x), fmax(a.bound, b.bound), false, false, versions);
    }
}

static void step_choose(maker *m)
{
    const entry a = pick_tame(m, 0), b = partner(m, &a);
    entry bits;
    tern_graph *g = m->graph;
    if (a.exact && b.exact) {
        tern_tensor *c = chance(m, 70) ? tern_less(a.x, b.x) : tern_equal(a.x, b.x);
        add(m, c, 2, true, false, a.versions | b.versions);
        add(m, tern_where(c, a.x, b.x), fmax(a.bound, b.bound), true, false, a.versions | b.versions);
    } else if (pick_integers(m, a.versions, &bits) && bits.x->rank <= a.x->rank) {
        for (int32_t i = 1; i <= bits.x->rank; i++)
            if (bits.x->shape[bits.x->rank - i] != a.x->shape[a.x->rank - i] && bits.x->shape[bits.x->rank - i] != 1) return;
        tern_tensor *c = tern_and(bits.x, tern_constant_u32(g, 1u << draw(m, 3)));
        add(m, tern_where(c, a.x, tern_constant(g, 0.25)), fmax(a.bound, 0.25), false, false, a.versions | bits.versions);
    }
}

static void step_integers(maker *m)
{
    entry a;
    tern_graph *g = m->graph;
    int64_t shape[TERN_MAX_RANK];
    if (!pick_integers(m, 0, &a) || chance(m, 20)) {
        const int32_t rank = 1 + (int32_t)draw(m, 4);
        int64_t count = 1;
        for (int32_t i = 0; i < rank; i++) {
            do shape[i] = draw_size(m);
            while (count * shape[i] > m->most);
            count *= shape[i];
        }
        if (chance(m, 50)) add(m, tern_index(g, rank, shape, (int32_t)draw(m, (uint32_t)rank)), 71, true, false, 0);
        else add(m, tern_random(g, name_of(m, "bits"), rank, shape), 0, true, false, 0);
        return;
    }
    tern_tensor *c = tern_constant_u32(g, 1u + draw(m, 1u << draw(m, 30)));
    switch (draw(m, 12)) {
    case 0: add(m, tern_add(a.x, c), 0, true, false, a.versions); break;
    case 1: add(m, tern_sub(c, a.x), 0, true, false, a.versions); break;
    case 2: add(m, tern_mul(a.x, c), 0, true, false, a.versions); break;
    case 3: add(m, tern_xor(a.x, c), 0, true, false, a.versions); break;
    case 4: add(m, tern_or(a.x, c), 0, true, false, a.versions); break;
    case 5: add(m, tern_shift_left(a.x, tern_constant_u32(g, draw(m, 32))), 0, true, false, a.versions); break;
    case 6: add(m, tern_shift_right(a.x, tern_constant_u32(g, draw(m, 32))), 0, true, false, a.versions); break;
    case 7: add(m, tern_multiply_high(a.x, c), 0, true, false, a.versions); break;
    case 8: add(m, tern_max(a.x, c), 0, true, false, a.versions); break;
    case 9: {
        tern_tensor *small = tern_and(a.x, tern_constant_u32(g, 15));
        add(m, tern_mul(tern_cast(small, TERN_F32), tern_constant(g, 0.0625)), 1, true, false, a.versions);
        break;
    }
    case 10: { /* i32 on the way: signed order and conversion */
        tern_tensor *s = tern_sub(tern_cast(tern_and(a.x, tern_constant_u32(g, 31)), TERN_I32), tern_bitcast(c, TERN_I32));
        add(m, tern_less(s, tern_cast(tern_constant(g, 3), TERN_I32)), 2, true, false, a.versions);
        break;
    }
    default: { /* f32 bits of a number in [1, 2) */
        tern_tensor *bits = tern_or(tern_shift_right(a.x, tern_constant_u32(g, 9)), tern_constant_u32(g, 0x3f800000u));
        add(m, tern_bitcast(bits, TERN_F32), 2, true, false, a.versions);
    }
    }
}

static void step_activation(maker *m)
{
    const entry e = pick_tame(m, 0);
    switch (draw(m, 5)) {
    case 0:
        if (e.distinct) add(m, tern_relu(e.x), e.bound, e.exact, false, e.versions);
        break;
    case 1: add(m, tern_silu(e.x), e.bound, false, false, e.versions); break;
    case 2: add(m, tern_gelu(e.x), e.bound, false, false, e.versions); break;
    case 3: add(m, tern_gelu_tanh(e.x), e.bound, false, false, e.versions); break;
    default: add(m, tern_dropout(e.x, 0.3, name_of(m, "drop")), 1.5 * e.bound, false, false, e.versions); break;
    }
}

/* --------------------------------------------------------------------- views */

static entry pick_any(maker *m)
{
    entry e;
    if (chance(m, 15) && pick_integers(m, 0, &e)) return e;
    return pick(m, 0);
}

/* A shape of the same count: primes moved between axes. */
static int32_t draw_factors(maker *m, int64_t count, int64_t *shape)
{
    const int32_t rank = 1 + (int32_t)draw(m, TERN_MAX_RANK);
    for (int32_t i = 0; i < rank; i++) shape[i] = 1;
    for (int64_t p = 2; count > 1; p++)
        for (; count % p == 0; count /= p) shape[draw(m, (uint32_t)rank)] *= p;
    return rank;
}

static tern_tensor *draw_permute(maker *m, tern_tensor *x)
{
    int32_t axes[TERN_MAX_RANK];
    for (int32_t i = 0; i < x->rank; i++) axes[i] = i;
    for (int32_t i = x->rank; i-- > 1;) {
        const int32_t j = (int32_t)draw(m, (uint32_t)i + 1u), kept = axes[i];
        axes[i] = axes[j];
        axes[j] = kept;
    }
    return tern_permute(x, axes);
}

static void step_view(maker *m)
{
    entry e = pick_any(m);
    tern_tensor *x = e.x;
    int64_t shape[TERN_MAX_RANK];
    for (uint32_t links = 1u + draw(m, 4); links > 0; links--) {
        const int32_t axis = x->rank ? (int32_t)draw(m, (uint32_t)x->rank) : 0;
        switch (draw(m, x->rank ? 6 : 1)) {
        case 0: {
            const int32_t rank = draw_factors(m, tern_count(x), shape);
            x = tern_reshape(x, rank, shape);
            break;
        }
        case 1: x = draw_permute(m, x); break;
        case 2: {
            const int64_t length = 1 + (int64_t)draw(m, (uint32_t)x->shape[axis]);
            x = tern_slice(x, axis, (int64_t)draw(m, (uint32_t)(x->shape[axis] - length + 1)), length);
            break;
        }
        case 3: {
            const int64_t before = (int64_t)draw(m, 4), after = (int64_t)draw(m, 4);
            if (tern_count(x) / x->shape[axis] * (x->shape[axis] + before + after) > m->most) break;
            x = tern_pad(x, axis, before, after);
            e.distinct = false;
            break;
        }
        case 4: {
            int32_t rank = x->rank < 5 && chance(m, 50) ? x->rank + 1 : x->rank;
            const int64_t wanted = 1 + (int64_t)draw(m, 7);
            if (rank > x->rank) {
                memcpy(shape + 1, x->shape, (size_t)x->rank * sizeof *shape);
                shape[0] = 1;
            } else {
                memcpy(shape, x->shape, (size_t)rank * sizeof *shape);
            }
            for (int32_t i = 0; i < rank; i++)
                if (shape[i] == 1 && tern_count(x) * wanted <= m->most) {
                    shape[i] = wanted;
                    break;
                }
            x = tern_expand(x, rank, shape);
            e.distinct = false;
            break;
        }
        default: {
            tern_tensor *parts[3] = {x, x, x};
            const uint32_t count = 2u + draw(m, 2);
            if (tern_count(x) * count > m->most || x->dtype != TERN_F32) break;
            parts[0] = tern_neg(x);
            if (x->shape[axis] > 1) parts[1] = tern_slice(x, axis, 0, x->shape[axis] / 2);
            x = tern_concat(parts, (int32_t)count, axis);
            e.distinct = false;
        }
        }
    }
    add(m, x, e.bound, e.exact, e.distinct, e.versions);
}

/* Parts of one tensor put together in another order, as rotary embeddings and packed projections do. */
static void step_halves(maker *m)
{
    const entry e = pick_tame(m, 0);
    if (e.x->rank == 0) return;
    const int32_t axis = (int32_t)draw(m, (uint32_t)e.x->rank);
    const int64_t size = e.x->shape[axis], at = size / 2;
    if (size < 2) return;
    tern_tensor *parts[2] = {tern_neg(tern_slice(e.x, axis, at, size - at)), tern_slice(e.x, axis, 0, at)};
    add(m, tern_concat(parts, 2, axis), e.bound, false, false, e.versions);
}

/* ---------------------------------------------------------------- reductions */

static void step_reduce(maker *m)
{
    const entry e = pick_tame(m, 0);
    if (e.x->rank == 0) return;
    const uint32_t axes = 1u + draw(m, (1u << e.x->rank) - 1u);
    tern_tensor *y = tern_reduce_sum(e.x, axes);
    if (chance(m, 25) && (e.distinct || !m->train)) {
        add(m, tern_reduce_max(e.x, axes), e.bound, e.exact, false, e.versions);
        return;
    }
    const double times = (double)tern_count(e.x) / (double)tern_count(y);
    add(m, tern_mul(y, tern_constant(m->graph, 1 / sqrt(times))), sqrt(times) * e.bound, false, e.distinct, e.versions);
}

static void step_norm(maker *m)
{
    const entry e = pick_tame(m, 0);
    if (e.x->rank == 0) return;
    const int32_t axis = (int32_t)draw(m, (uint32_t)e.x->rank);
    switch (draw(m, 3)) {
    case 0: add(m, tern_softmax(e.x, axis), 1, false, false, e.versions); break;
    case 1: add(m, tern_log_softmax(e.x, axis), 2 * e.bound + 5, false, false, e.versions); break;
    default: {
        const int64_t c = e.x->shape[e.x->rank - 1];
        tern_tensor *w = chance(m, 70) ? new_leaf(m, 1, &c).x : NULL, *b = chance(m, 70) ? new_leaf(m, 1, &c).x : NULL;
        add(m, tern_layer_norm(e.x, w, b, 0.1), 2 * sqrt((double)c) + 1, false, false, e.versions);
    }
    }
}

static void step_loss_rows(maker *m)
{
    const entry e = pick_tame(m, 0);
    static const int32_t types[] = {TERN_I32, TERN_U32, TERN_U16, TERN_U8};
    if (e.x->rank == 0) return;
    tern_tensor *labels = tern_input(m->graph, name_of(m, "labels"), types[draw(m, 4)], e.x->rank - 1, e.x->shape);
    tern_tensor *loss = tern_cross_entropy(e.x, labels, chance(m, 50) ? -1 : (int64_t)draw(m, 3));
    add(m, loss, 2 * e.bound + 5, false, false, e.versions);
}

/* -------------------------------------------------------------- contractions */

static tern_tensor *odd_operand(maker *m, tern_tensor *x)
{
    switch (draw(m, 5)) {
    case 0: return tern_pad(tern_slice(x, -1, 0, (x->shape[x->rank - 1] + 1) / 2), -1, 0, x->shape[x->rank - 1] / 2);
    case 1: return tern_tanh(x);
    default: return x;
    }
}

static void step_matmul(maker *m)
{
    entry a = pick_tame(m, 0);
    int64_t shape[TERN_MAX_RANK];
    if (a.x->rank < 2) return;
    if (chance(m, 30)) a.x = tern_transpose(a.x, -1, -2);
    a.x = odd_operand(m, a.x);
    const int32_t rank = a.x->rank;
    const int64_t k = a.x->shape[rank - 1], n = draw_size(m);
    if (tern_count(a.x) / k * n > m->most) return;
    const bool batched = rank > 2 && chance(m, 60), transposed = chance(m, 50), wider = chance(m, 30);
    const int32_t b_rank = batched ? rank : 2;
    memcpy(shape, a.x->shape, sizeof shape);
    shape[b_rank - 2] = transposed ? n : k;
    shape[b_rank - 1] = (transposed ? k : n) + (wider ? 3 : 0);
    tern_tensor *b = new_leaf(m, b_rank, shape).x;
    if (wider) b = tern_slice(b, -1, 2, shape[b_rank - 1] - 3);
    if (transposed) b = tern_transpose(b, -1, -2);
    tern_tensor *y = tern_mul(tern_matmul(a.x, odd_operand(m, b)), tern_constant(m->graph, 1 / sqrt((double)k)));
    add(m, y, sqrt((double)k) * a.bound, false, a.distinct, a.versions);
}

/* a^T a and the like: one operand twice. */
static void step_gram(maker *m)
{
    const entry a = pick_tame(m, 0);
    if (a.x->rank < 2) return;
    const int64_t rows = a.x->shape[a.x->rank - 2], k = a.x->shape[a.x->rank - 1];
    if (tern_count(a.x) / k * rows > m->most) return;
    tern_tensor *y = tern_mul(tern_matmul(a.x, tern_transpose(a.x, -1, -2)), tern_constant(m->graph, 1 / sqrt((double)k)));
    add(m, y, sqrt((double)k) * a.bound * a.bound, false, false, a.versions);
}

static void step_attention(maker *m)
{
    const int64_t batch = 1 + (int64_t)draw(m, 3), time = 1 + (int64_t)draw(m, 9), heads = 1 + (int64_t)draw(m, 3);
    const int64_t dim = 1 + (int64_t)draw(m, 9), keys = chance(m, 30) ? 1 + (int64_t)draw(m, 9) : time;
    tern_tensor *q, *k, *v;
    uint32_t versions = 0;
    if (keys == time && chance(m, 60)) {
        const int64_t packed[3] = {batch, time, 3 * heads * dim}, split[4] = {batch, time, heads, dim};
        entry qkv = new_leaf(m, 3, packed);
        if (chance(m, 60)) qkv.x = tern_add(qkv.x, new_leaf(m, 1, &packed[2]).x);
        q = tern_reshape(tern_slice(qkv.x, 2, 0, heads * dim), 4, split);
        k = tern_reshape(tern_slice(qkv.x, 2, heads * dim, heads * dim), 4, split);
        v = tern_reshape(tern_slice(qkv.x, 2, 2 * heads * dim, heads * dim), 4, split);
        versions = qkv.versions;
    } else {
        const int64_t by_head[4] = {batch, heads, time, dim}, key_shape[4] = {batch, keys, heads, dim};
        q = tern_transpose(new_leaf(m, 4, by_head).x, 1, 2);
        k = new_leaf(m, 4, key_shape).x;
        v = chance(m, 50) ? k : new_leaf(m, 4, key_shape).x;
    }
    tern_tensor *o = tern_attention(q, k, v, 1 / sqrt((double)dim), keys == time && chance(m, 60));
    add(m, o, 2, false, false, versions);
    if (chance(m, 40)) add(m, tern_reshape(o, 2, (const int64_t[]){batch * time, heads * dim}), 2, false, false, versions);
}

static void step_gather(maker *m)
{
    static const int32_t types[] = {TERN_I32, TERN_U32, TERN_U16, TERN_U8};
    const int64_t rows = draw_size(m), width = 1 + (int64_t)draw(m, 9);
    int64_t shape[TERN_MAX_RANK];
    entry ids = {0}, table = pick_tame(m, 0);
    if (table.x->rank != 2) table = new_leaf(m, 2, (const int64_t[]){rows, width});
    if (!(chance(m, 40) && pick_integers(m, table.versions, &ids) && ids.x->rank < TERN_MAX_RANK)) {
        int32_t rank;
        do rank = draw_shape(m, 3, shape);
        while (tern_count(table.x) > 0 && rank > 0 && shape[0] > 40);
        ids = (entry){.x = tern_input(m->graph, name_of(m, "ids"), types[draw(m, 4)], rank, shape)};
    } else if (ids.bound == 0) {
        ids.x = tern_and(ids.x, tern_constant_u32(m->graph, 7)); /* else almost all would be the last row */
    }
    if (tern_count(ids.x) * table.x->shape[1] > 2 * m->most) return;
    add(m, tern_gather(table.x, ids.x), table.bound, table.exact, false, table.versions | ids.versions);
}

/* -------------------------------------------------------------------- states */

static void step_state(maker *m)
{
    int64_t shape[TERN_MAX_RANK];
    if (m->states == STATES) return;
    int32_t rank = draw_shape(m, 3, shape);
    if (m->count > 0 && chance(m, 60)) {
        const entry like = pick(m, 0);
        rank = like.x->rank;
        memcpy(shape, like.x->shape, sizeof shape);
    }
    char name[16];
    snprintf(name, sizeof name, "state%u", m->states);
    tern_tensor *s = tern_state(m->graph, name, chance(m, 80) ? TERN_F32 : TERN_U32, rank, shape);
    add(m, s, s->dtype == TERN_F32 ? 1 : 0, true, s->dtype == TERN_F32, 1u << 3 * m->states++);
}

/* A value of the target's shape that does not read another version of it... of which `versions` has read one. */
static tern_tensor *value_for(maker *m, const entry *target, uint32_t *versions)
{
    tern_graph *g = m->graph;
    if (target->x->dtype == TERN_U32) return tern_add(target->x, tern_constant_u32(g, 1u + draw(m, 9)));
    tern_tensor *value = chance(m, 80) ? tern_mul(target->x, tern_constant(g, 0.5)) : NULL;
    for (uint32_t tries = 0; tries < 8; tries++) {
        const entry e = pick_tame(m, *versions);
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
    const uint32_t s = draw(m, m->states), version = m->assigned[s];
    if (version == 2) return;
    for (uint32_t i = m->count; i-- > 0;) {
        entry e = m->pool[i];
        if (e.versions != 1u << (3 * s + version) || (e.x->op != TERN_OP_STATE && e.x->op != TERN_OP_ASSIGN)) continue;
        uint32_t versions = e.versions;
        tern_tensor *value = value_for(m, &e, &versions);
        m->assigned[s]++;
        add(m, tern_assign(e.x, value), 4 + e.bound, false, false, 1u << (3 * s + version + 1));
        return;
    }
}

/* --------------------------------------------------------------------- all */

typedef struct step_kind {
    void (*run)(maker *m);
    uint32_t weight;
} step_kind;

static const step_kind kinds[] = {{step_unary, 14},     {step_binary, 20}, {step_choose, 6},     {step_integers, 8},
                                  {step_activation, 6}, {step_view, 20},   {step_halves, 4},     {step_reduce, 14},
                                  {step_norm, 8},       {step_loss_rows, 3}, {step_matmul, 10}, {step_gram, 3},
                                  {step_attention, 4},  {step_gather, 5},  {step_state, 5},      {step_assign, 7}};

static void run_step(maker *m, uint32_t seed, uint32_t step)
{
    uint32_t total = 0, k = 0;
    m->step = step;
    m->noise = ((uint64_t)seed * 0x9e3779b97f4a7c15u) ^ ((uint64_t)(step + 1u) * 0xbf58476d1ce4e5b9u);
    (void)draw(m, 2);
    for (uint32_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) total += kinds[i].weight;
    for (uint32_t at = draw(m, total); at >= kinds[k].weight; k++) at -= kinds[k].weight;
    kinds[k].run(m);
}

/* Some of what was made, the last one always; a storage only in its last version. */
static void add_outputs(maker *m)
{
    char name[16];
    uint32_t named = 0;
    for (uint32_t i = m->count; i-- > 0 && named < 6;) {
        const entry *e = &m->pool[i];
        if (named > 0 && !chance(m, 15)) continue;
        if (e->x->op == TERN_OP_STATE || e->x->op == TERN_OP_ASSIGN) continue; /* compared as states */
        snprintf(name, sizeof name, "out%u", named++);
        tern_output(e->x, name);
        if (!chance(m, 10)) continue;
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
        if (!e->x->needs_gradient || e->x->dtype != TERN_F32 || mixes_versions(versions | e->versions)) continue;
        if (parts > 0 && !chance(m, 25)) continue;
        tern_tensor *part = tern_mul(e->x, tern_sin(e->x));
        if (parts++ == 0 && chance(m, 50) && !chance(m, 40)) {
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
    (void)draw(&m, 2);
    return 3u + draw(&m, chance(&m, 70) ? 14 : RANDOM_GRAPH_STEPS - 3u);
}

tern_graph *random_graph_create(const random_graph_options *options)
{
    maker m = {.train = options->train, .most = options->seed % 16 == 0 ? 6000 : 700};
    if (tern_graph_create(&m.graph) < 0) return NULL;
    const uint32_t steps = random_graph_steps(options->seed);
    for (uint32_t step = 0; step < steps; step++)
        if (!(options->skip >> step & 1u)) run_step(&m, options->seed, step);
    m.noise = (uint64_t)options->seed * 0xd6e8feb86659fd93u + 7;
    (void)draw(&m, 2);
    if (m.count == 0) {
        m.step = steps;
        (void)new_leaf(&m, 1, (const int64_t[]){3});
    }
    if (m.train) add_loss(&m);
    add_outputs(&m);
    return m.graph;
}
