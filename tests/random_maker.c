/* SPDX-License-Identifier: Apache-2.0 */
/* random_maker.c - see random_maker.h. */
#include "tests/random_maker.h"

#include "tests/test.h"

uint32_t maker_draw(maker *m, uint32_t below)
{
    m->noise = m->noise * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(((m->noise >> 33) * below) >> 31);
}

bool maker_chance(maker *m, uint32_t percent) { return maker_draw(m, 100) < percent; }

int64_t maker_draw_size(maker *m)
{
    static const int64_t odd[] = {1, 1, 2, 3, 5, 7, 8, 13, 16, 17, 31, 33, 64, 65, 70};
    return maker_chance(m, 60) ? (int64_t)(1u + maker_draw(m, 6)) : odd[maker_draw(m, sizeof odd / sizeof odd[0])];
}

int32_t maker_draw_shape(maker *m, int32_t most, int64_t *shape)
{
    const int32_t rank = (int32_t)maker_draw(m, (uint32_t)most + 1u);
    int64_t count = 1;
    for (int32_t i = 0; i < rank; i++) {
        do shape[i] = maker_draw_size(m);
        while (count * shape[i] > m->most);
        count *= shape[i];
    }
    return rank;
}

bool maker_mixes_versions(uint32_t versions)
{
    for (uint32_t s = 0; s < STATES; s++) {
        const uint32_t three = versions >> 3 * s & 7u;
        if (three & (three - 1u)) return true;
    }
    return false;
}

void maker_add(maker *m, tern_tensor *x, double bound, bool exact, bool distinct, uint32_t versions)
{
    if (m->count == POOL || m->graph->status < 0) return;
    m->pool[m->count++] = (entry){x, bound, exact, distinct, versions};
}

static bool accepts(const entry *e, int32_t dtype, uint32_t versions)
{
    return e->x->dtype == dtype && !maker_mixes_versions(versions | e->versions);
}

const char *maker_name_of(maker *m, const char *prefix)
{
    static char name[32];
    snprintf(name, sizeof name, "%s%u.%u", prefix, m->step, m->graph->node_count);
    return name;
}

entry maker_new_leaf(maker *m, int32_t rank, const int64_t *shape)
{
    tern_tensor *x = m->train && maker_chance(m, 60)
                         ? tern_parameter(m->graph, maker_name_of(m, "w"), rank, shape, TERN_INIT_NORMAL, 1)
                         : tern_input(m->graph, maker_name_of(m, "x"), TERN_F32, rank, shape);
    const entry e = {x, 1, true, true, 0};
    maker_add(m, x, 1, true, true, 0);
    return e;
}

entry maker_pick(maker *m, uint32_t versions)
{
    for (uint32_t tries = 0; tries < 12 && m->count > 0; tries++) {
        const uint32_t near = m->count < 8 ? m->count : 8;
        const entry *e =
            &m->pool[m->count - 1u - (maker_chance(m, 60) ? maker_draw(m, near) : maker_draw(m, m->count))];
        if (accepts(e, TERN_F32, versions)) return *e;
    }
    int64_t shape[TERN_MAX_RANK];
    const int32_t rank = maker_draw_shape(m, 4, shape);
    return maker_new_leaf(m, rank, shape);
}

bool maker_pick_integers(maker *m, uint32_t versions, entry *out)
{
    for (uint32_t tries = 0; tries < 20 && m->count > 0; tries++) {
        const entry *e = &m->pool[maker_draw(m, m->count)];
        if (!accepts(e, TERN_U32, versions)) continue;
        *out = *e;
        return true;
    }
    return false;
}

entry maker_tame(maker *m, entry e)
{
    if (e.bound <= LARGEST_VALUE) return e;
    if (maker_chance(m, 50))
        e.x = tern_mul(e.x, tern_constant(m->graph, 1 / e.bound));
    else
        e.x = tern_tanh(tern_mul(e.x, tern_constant(m->graph, 2 / e.bound)));
    e.bound = 1;
    e.exact = false;
    return e;
}

entry maker_pick_tame(maker *m, uint32_t versions) { return maker_tame(m, maker_pick(m, versions)); }

entry maker_partner(maker *m, const entry *x)
{
    for (uint32_t tries = 0; tries < 6; tries++) {
        const entry e = maker_pick(m, x->versions);
        bool fits = e.x->rank <= x->x->rank;
        for (int32_t i = 1; fits && i <= e.x->rank; i++) {
            const int64_t a = e.x->shape[e.x->rank - i], b = x->x->shape[x->x->rank - i];
            fits = a == b || a == 1;
        }
        if (fits) return maker_tame(m, e);
    }
    int64_t shape[TERN_MAX_RANK];
    const int32_t rank = x->x->rank - (int32_t)maker_draw(m, (uint32_t)x->x->rank + 1u);
    for (int32_t i = 0; i < rank; i++) shape[i] = maker_chance(m, 30) ? 1 : x->x->shape[x->x->rank - rank + i];
    return maker_new_leaf(m, rank, shape);
}
