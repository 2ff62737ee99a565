/* SPDX-License-Identifier: Apache-2.0 */
/* random_steps.c - elementwise ops and views of a random graph; see random_maker.h. */
#include "tests/random_maker.h"

#include "tests/test.h"

/* --------------------------------------------------------------- elementwise */

void step_unary(maker *m)
{
    const entry e = maker_pick_tame(m, 0);
    tern_graph *g = m->graph;
    tern_tensor *x = e.x, *half = tern_constant(g, 0.5);
    switch (maker_draw(m, 14)) {
    case 0: maker_add(m, tern_neg(x), e.bound, e.exact, e.distinct, e.versions); break;
    case 1:
        if (e.distinct) maker_add(m, tern_abs(x), e.bound, e.exact, false, e.versions);
        break;
    case 2: maker_add(m, tern_exp(tern_mul(x, half)), exp(e.bound / 2), false, e.distinct, e.versions); break;
    case 3:
        maker_add(m, tern_log(tern_add(tern_mul(x, x), half)), log(e.bound * e.bound + 1.5), false, false, e.versions);
        break;
    case 4: maker_add(m, tern_sqrt(tern_add(tern_mul(x, x), half)), e.bound + 1, false, false, e.versions); break;
    case 5: maker_add(m, tern_rsqrt(tern_add(tern_mul(x, x), half)), 1.5, false, false, e.versions); break;
    case 6: maker_add(m, tern_recip(tern_add(tern_mul(x, x), half)), 2, false, false, e.versions); break;
    case 7: maker_add(m, tern_tanh(x), 1, false, e.distinct, e.versions); break;
    case 8: maker_add(m, tern_erf(x), 1, false, e.distinct, e.versions); break;
    case 9: maker_add(m, tern_sin(x), 1, false, e.distinct, e.versions); break;
    case 10: maker_add(m, tern_cos(x), 1, false, false, e.versions); break;
    case 11:
        if (e.exact)
            maker_add(m, tern_floor(tern_mul(x, tern_constant(g, 4))), 4 * e.bound + 1, true, false, e.versions);
        break;
    case 12: maker_add(m, tern_detach(x), e.bound, e.exact, e.distinct, e.versions); break;
    default: maker_add(m, tern_sigmoid(x), 1, false, false, e.versions); break;
    }
}

void step_binary(maker *m)
{
    entry a = maker_pick_tame(m, 0), b = maker_partner(m, &a);
    const uint32_t versions = a.versions | b.versions;
    const bool distinct = a.distinct && b.distinct && a.x != b.x;
    tern_graph *g = m->graph;
    if (maker_chance(m, 50)) {
        const entry swap = a;
        a = b;
        b = swap;
    }
    switch (maker_draw(m, 7)) {
    case 0:
    case 1: maker_add(m, tern_add(a.x, b.x), a.bound + b.bound, false, distinct, versions); break;
    case 2: maker_add(m, tern_sub(a.x, b.x), a.bound + b.bound, false, distinct, versions); break;
    case 3: maker_add(m, tern_mul(a.x, b.x), a.bound * b.bound, false, distinct, versions); break;
    case 4:
        maker_add(m, tern_div(a.x, tern_add(tern_mul(b.x, b.x), tern_constant(g, 0.5))), 2 * a.bound, false, false,
                  versions);
        break;
    case 5:
        if (distinct) maker_add(m, tern_max(a.x, b.x), fmax(a.bound, b.bound), false, false, versions);
        break;
    default:
        if (distinct) maker_add(m, tern_min(a.x, b.x), fmax(a.bound, b.bound), false, false, versions);
    }
}

void step_choose(maker *m)
{
    const entry a = maker_pick_tame(m, 0), b = maker_partner(m, &a);
    entry bits;
    tern_graph *g = m->graph;
    if (a.exact && b.exact) {
        tern_tensor *c = maker_chance(m, 70) ? tern_less(a.x, b.x) : tern_equal(a.x, b.x);
        maker_add(m, c, 2, true, false, a.versions | b.versions);
        maker_add(m, tern_where(c, a.x, b.x), fmax(a.bound, b.bound), true, false, a.versions | b.versions);
    } else if (maker_pick_integers(m, a.versions, &bits) && bits.x->rank <= a.x->rank) {
        for (int32_t i = 1; i <= bits.x->rank; i++)
            if (bits.x->shape[bits.x->rank - i] != a.x->shape[a.x->rank - i] && bits.x->shape[bits.x->rank - i] != 1)
                return;
        tern_tensor *c = tern_and(bits.x, tern_constant_u32(g, 1u << maker_draw(m, 3)));
        maker_add(m, tern_where(c, a.x, tern_constant(g, 0.25)), fmax(a.bound, 0.25), false, false,
                  a.versions | bits.versions);
    }
}

void step_integers(maker *m)
{
    entry a;
    tern_graph *g = m->graph;
    int64_t shape[TERN_MAX_RANK];
    if (!maker_pick_integers(m, 0, &a) || maker_chance(m, 20)) {
        const int32_t rank = 1 + (int32_t)maker_draw(m, 4);
        int64_t count = 1;
        for (int32_t i = 0; i < rank; i++) {
            do shape[i] = maker_draw_size(m);
            while (count * shape[i] > m->most);
            count *= shape[i];
        }
        if (maker_chance(m, 50))
            maker_add(m, tern_index(g, rank, shape, (int32_t)maker_draw(m, (uint32_t)rank)), 71, true, false, 0);
        else
            maker_add(m, tern_random(g, maker_name_of(m, "bits"), rank, shape), 0, true, false, 0);
        return;
    }
    tern_tensor *c = tern_constant_u32(g, 1u + maker_draw(m, 1u << maker_draw(m, 30)));
    switch (maker_draw(m, 12)) {
    case 0: maker_add(m, tern_add(a.x, c), 0, true, false, a.versions); break;
    case 1: maker_add(m, tern_sub(c, a.x), 0, true, false, a.versions); break;
    case 2: maker_add(m, tern_mul(a.x, c), 0, true, false, a.versions); break;
    case 3: maker_add(m, tern_xor(a.x, c), 0, true, false, a.versions); break;
    case 4: maker_add(m, tern_or(a.x, c), 0, true, false, a.versions); break;
    case 5:
        maker_add(m, tern_shift_left(a.x, tern_constant_u32(g, maker_draw(m, 32))), 0, true, false, a.versions);
        break;
    case 6:
        maker_add(m, tern_shift_right(a.x, tern_constant_u32(g, maker_draw(m, 32))), 0, true, false, a.versions);
        break;
    case 7: maker_add(m, tern_multiply_high(a.x, c), 0, true, false, a.versions); break;
    case 8: maker_add(m, tern_max(a.x, c), 0, true, false, a.versions); break;
    case 9: {
        tern_tensor *small = tern_and(a.x, tern_constant_u32(g, 15));
        maker_add(m, tern_mul(tern_cast(small, TERN_F32), tern_constant(g, 0.0625)), 1, true, false, a.versions);
        break;
    }
    case 10: { /* i32 on the way: signed order and conversion */
        tern_tensor *s =
            tern_sub(tern_cast(tern_and(a.x, tern_constant_u32(g, 31)), TERN_I32), tern_bitcast(c, TERN_I32));
        maker_add(m, tern_less(s, tern_cast(tern_constant(g, 3), TERN_I32)), 2, true, false, a.versions);
        break;
    }
    default: { /* f32 bits of a number in [1, 2) */
        tern_tensor *bits = tern_or(tern_shift_right(a.x, tern_constant_u32(g, 9)), tern_constant_u32(g, 0x3f800000u));
        maker_add(m, tern_bitcast(bits, TERN_F32), 2, true, false, a.versions);
    }
    }
}

void step_activation(maker *m)
{
    const entry e = maker_pick_tame(m, 0);
    switch (maker_draw(m, 5)) {
    case 0:
        if (e.distinct) maker_add(m, tern_relu(e.x), e.bound, e.exact, false, e.versions);
        break;
    case 1: maker_add(m, tern_silu(e.x), e.bound, false, false, e.versions); break;
    case 2: maker_add(m, tern_gelu(e.x), e.bound, false, false, e.versions); break;
    case 3: maker_add(m, tern_gelu_tanh(e.x), e.bound, false, false, e.versions); break;
    default:
        maker_add(m, tern_dropout(e.x, 0.3, maker_name_of(m, "drop")), 1.5 * e.bound, false, false, e.versions);
        break;
    }
}

/* --------------------------------------------------------------------- views */

static entry pick_any(maker *m)
{
    entry e;
    if (maker_chance(m, 15) && maker_pick_integers(m, 0, &e)) return e;
    return maker_pick(m, 0);
}

/* A shape of the same count: primes moved between axes. */
static int32_t draw_factors(maker *m, int64_t count, int64_t *shape)
{
    const int32_t rank = 1 + (int32_t)maker_draw(m, TERN_MAX_RANK);
    for (int32_t i = 0; i < rank; i++) shape[i] = 1;
    for (int64_t p = 2; count > 1; p++)
        for (; count % p == 0; count /= p) shape[maker_draw(m, (uint32_t)rank)] *= p;
    return rank;
}

static tern_tensor *draw_permute(maker *m, tern_tensor *x)
{
    int32_t axes[TERN_MAX_RANK];
    for (int32_t i = 0; i < x->rank; i++) axes[i] = i;
    for (int32_t i = x->rank; i-- > 1;) {
        const int32_t j = (int32_t)maker_draw(m, (uint32_t)i + 1u), kept = axes[i];
        axes[i] = axes[j];
        axes[j] = kept;
    }
    return tern_permute(x, axes);
}

void step_view(maker *m)
{
    entry e = pick_any(m);
    tern_tensor *x = e.x;
    int64_t shape[TERN_MAX_RANK];
    for (uint32_t links = 1u + maker_draw(m, 4); links > 0; links--) {
        const int32_t axis = x->rank ? (int32_t)maker_draw(m, (uint32_t)x->rank) : 0;
        switch (maker_draw(m, x->rank ? 6 : 1)) {
        case 0: {
            const int32_t rank = draw_factors(m, tern_count(x), shape);
            x = tern_reshape(x, rank, shape);
            break;
        }
        case 1: x = draw_permute(m, x); break;
        case 2: {
            const int64_t length = 1 + (int64_t)maker_draw(m, (uint32_t)x->shape[axis]);
            x = tern_slice(x, axis, (int64_t)maker_draw(m, (uint32_t)(x->shape[axis] - length + 1)), length);
            break;
        }
        case 3: {
            const int64_t before = (int64_t)maker_draw(m, 4), after = (int64_t)maker_draw(m, 4);
            if (tern_count(x) / x->shape[axis] * (x->shape[axis] + before + after) > m->most) break;
            x = tern_pad(x, axis, before, after);
            e.distinct = false;
            break;
        }
        case 4: {
            int32_t rank = x->rank < 5 && maker_chance(m, 50) ? x->rank + 1 : x->rank;
            const int64_t wanted = 1 + (int64_t)maker_draw(m, 7);
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
            const uint32_t count = 2u + maker_draw(m, 2);
            if (tern_count(x) * count > m->most || x->dtype != TERN_F32) break;
            parts[0] = tern_neg(x);
            if (x->shape[axis] > 1) parts[1] = tern_slice(x, axis, 0, x->shape[axis] / 2);
            x = tern_concat(parts, (int32_t)count, axis);
            e.distinct = false;
        }
        }
    }
    maker_add(m, x, e.bound, e.exact, e.distinct, e.versions);
}

/* Parts of one tensor put together in another order, as rotary embeddings and packed projections do. */
void step_halves(maker *m)
{
    const entry e = maker_pick_tame(m, 0);
    if (e.x->rank == 0) return;
    const int32_t axis = (int32_t)maker_draw(m, (uint32_t)e.x->rank);
    const int64_t size = e.x->shape[axis], at = size / 2;
    if (size < 2) return;
    tern_tensor *parts[2] = {tern_neg(tern_slice(e.x, axis, at, size - at)), tern_slice(e.x, axis, 0, at)};
    maker_add(m, tern_concat(parts, 2, axis), e.bound, false, false, e.versions);
}

/* ------------------------------------------------------------------------ 16 bit */

/* Something in 16 bit, read as f32 by the steps after it: a chain of values that are each rounded, whatever kernel they
 * end up in. */
void step_half_precision(maker *m)
{
    const entry e = maker_pick_tame(m, 0);
    const int32_t dtype = maker_chance(m, 50) ? TERN_F16 : TERN_BF16;
    tern_tensor *x = tern_cast(e.x, dtype), *y = x;
    double bound = 1.01 * e.bound;
    bool exact = e.exact;
    switch (maker_draw(m, 10)) {
    case 0: y = tern_tanh(x), exact = false; break;
    case 1: y = tern_mul(x, x), bound *= bound, exact = false; break;
    case 2: y = tern_add(tern_neg(x), e.x), bound *= 2, exact = false; break; /* mixed: f32 */
    case 3: y = tern_cast(x, dtype == TERN_F16 ? TERN_BF16 : TERN_F16); break;
    case 4:
        if (x->rank > 0) y = tern_softmax(x, -1), exact = false;
        break;
    case 5:
        if (x->rank > 0) y = tern_mean(x, -1), exact = false;
        break;
    case 6: {
        if (x->rank < 2 || tern_count(x) / x->shape[x->rank - 1] * x->shape[x->rank - 2] > m->most) break;
        tern_tensor *other = maker_chance(m, 50) ? x : tern_cast(e.x, TERN_F32); /* of its own dtype, or f32 */
        y = tern_mul(tern_matmul(x, tern_transpose(other, -1, -2)),
                     tern_constant(m->graph, 1 / (double)x->shape[x->rank - 1]));
        bound *= bound;
        exact = false;
        break;
    }
    case 7: {
        tern_tensor *half = tern_input(m->graph, maker_name_of(m, "half"), dtype, x->rank, x->shape);
        y = tern_sub(x, half), bound += 1, exact = false;
        break;
    }
    default: break;
    }
    maker_add(m, tern_cast(y, TERN_F32), bound, exact, false, e.versions);
}
