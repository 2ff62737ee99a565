/* SPDX-License-Identifier: Apache-2.0 */
/* tape_loops.h - one vector loop per tape instruction; included by isa_*.c after maths.h.
 *
 * Each loop reads whole vectors, then one masked part, so it never touches an element outside its n. Integer arithmetic
 * is unsigned and wraps. */
#ifndef TERN_CPU_TAPE_LOOPS_H
#define TERN_CPU_TAPE_LOOPS_H

#include "backends/cpu/isa.h"

#define LOOP_ARGS uint32_t n, void *d, const void *pa, const void *pb, const void *pc, uint32_t scalars

/* Reads A (and B) at i as vectors of u32 into a (and b); `body` leaves its result, a vu, in r. */
#define LOOP(name, load_a, load_b, part_a, part_b, body)                                                               \
    static void name(LOOP_ARGS)                                                                                        \
    {                                                                                                                  \
        (void)pb, (void)pc, (void)scalars;                                                                             \
        uint32_t *out = d;                                                                                             \
        const uint32_t *in_a = pa, *in_b = pb;                                                                         \
        vu sa = v_splat_u(in_a[0]), sb = in_b ? v_splat_u(in_b[0]) : sa, a, b, r;                                      \
        (void)in_b, (void)sa, (void)sb, (void)b;                                                                       \
        uint32_t i = 0;                                                                                                \
        for (; i + W <= n; i += W) {                                                                                   \
            a = load_a, b = load_b;                                                                                    \
            body;                                                                                                      \
            v_store_u(out + i, r);                                                                                     \
        }                                                                                                              \
        if (i < n) {                                                                                                   \
            a = part_a, b = part_b;                                                                                    \
            body;                                                                                                      \
            v_store_part(out + i, r, n - i);                                                                           \
        }                                                                                                              \
    }
#define LOOP_1(name, body) LOOP(name, v_load_u(in_a + i), a, v_load_part(in_a + i, n - i), a, body)
#define LOOP_2(name, body)                                                                                             \
    LOOP(name##_vv, v_load_u(in_a + i), v_load_u(in_b + i), v_load_part(in_a + i, n - i),                              \
         v_load_part(in_b + i, n - i), body)                                                                           \
    LOOP(name##_vs, v_load_u(in_a + i), sb, v_load_part(in_a + i, n - i), sb, body)                                    \
    LOOP(name##_sv, sa, v_load_u(in_b + i), sa, v_load_part(in_b + i, n - i), body)

#define FA ((vf)a)
#define FB ((vf)b)
#define IA ((vi)a)
#define IB ((vi)b)

LOOP_1(loop_neg_f32, r = a ^ 0x80000000u)
LOOP_1(loop_neg_int, r = 0u - a)
LOOP_1(loop_abs_f32, r = a & 0x7fffffffu)
LOOP_1(loop_abs_i32, r = v_select_u(IA < 0, 0u - a, a))
LOOP_1(loop_exp, r = (vu)v_exp(FA))
LOOP_1(loop_log, r = (vu)v_log(FA))
LOOP_1(loop_sqrt, r = (vu)v_sqrt(FA))
LOOP_1(loop_rsqrt, r = (vu)(1.0f / v_sqrt(FA)))
LOOP_1(loop_recip, r = (vu)(1.0f / FA))
LOOP_1(loop_tanh, r = (vu)v_tanh(FA))
LOOP_1(loop_erf, r = (vu)v_erf(FA))
LOOP_1(loop_sin, r = (vu)v_sine(FA, 0))
LOOP_1(loop_cos, r = (vu)v_sine(FA, 1))
LOOP_1(loop_floor, r = (vu)v_floor(FA))
LOOP_1(loop_copy, r = a)
LOOP_1(loop_f32_to_i32, r = (vu) __builtin_convertvector(FA, vi))
/* From 2^31 on the signed conversion has no word: take 2^31 off before and put it back after. */
LOOP_1(loop_f32_to_u32, {
    vi high = FA >= 2147483648.0f;
    r = (vu) __builtin_convertvector(v_select(high, FA - 2147483648.0f, FA), vi) ^ ((vu)high & 0x80000000u);
})
LOOP_1(loop_i32_to_f32, r = (vu) __builtin_convertvector(IA, vf))
/* Two exact halves, one rounding in the last addition. */
LOOP_1(loop_u32_to_f32,
       r = (vu)(__builtin_convertvector((vi)(a >> 16), vf) * 65536.0f + __builtin_convertvector((vi)(a & 0xffffu), vf)))
LOOP_1(loop_round_f16, r = v_round_f16(a))
LOOP_1(loop_round_bf16, r = v_round_bf16(a))

LOOP_2(loop_add_f32, r = (vu)(FA + FB))
LOOP_2(loop_sub_f32, r = (vu)(FA - FB))
LOOP_2(loop_mul_f32, r = (vu)(FA * FB))
LOOP_2(loop_div_f32, r = (vu)(FA / FB))
LOOP_2(loop_max_f32, r = (vu)v_max(FA, FB))
LOOP_2(loop_min_f32, r = (vu)v_select((FA < FB) | v_is_nan(FA), FA, FB))
LOOP_2(loop_less_f32, r = (vu)(FA < FB) & 1u)
LOOP_2(loop_equal_f32, r = (vu)(FA == FB) & 1u)
LOOP_2(loop_add_int, r = a + b)
LOOP_2(loop_sub_int, r = a - b)
LOOP_2(loop_mul_int, r = a * b)
LOOP_2(loop_max_i32, r = v_select_u(IA > IB, a, b))
LOOP_2(loop_min_i32, r = v_select_u(IA < IB, a, b))
LOOP_2(loop_less_i32, r = (vu)(IA < IB) & 1u)
LOOP_2(loop_max_u32, r = v_select_u(a > b, a, b))
LOOP_2(loop_min_u32, r = v_select_u(a < b, a, b))
LOOP_2(loop_less_u32, r = (vu)(a < b) & 1u)
LOOP_2(loop_equal_int, r = (vu)(a == b) & 1u)
LOOP_2(loop_and, r = a & b)
LOOP_2(loop_or, r = a | b)
LOOP_2(loop_xor, r = a ^ b)
LOOP_2(loop_shift_left, r = a << (b & 31u))
LOOP_2(loop_shift_right, r = a >> (b & 31u))
LOOP_2(loop_multiply_high, r = v_multiply_high(a, b))

static void loop_where(LOOP_ARGS)
{
    const uint32_t *c = pa, *x = pb, *y = pc;
    uint32_t *out = d;
    const bool one_c = scalars & 1u, one_x = scalars & 2u, one_y = scalars & 4u;
    const vu sc = v_splat_u(c[0]), sx = v_splat_u(x[0]), sy = v_splat_u(y[0]);
    uint32_t i = 0;
    for (; i + W <= n; i += W) {
        vu vc = one_c ? sc : v_load_u(c + i), vx = one_x ? sx : v_load_u(x + i), vy = one_y ? sy : v_load_u(y + i);
        v_store_u(out + i, v_select_u(vc != 0u, vx, vy));
    }
    if (i < n) {
        vu vc = one_c ? sc : v_load_part(c + i, n - i);
        vu vx = one_x ? sx : v_load_part(x + i, n - i), vy = one_y ? sy : v_load_part(y + i, n - i);
        v_store_part(out + i, v_select_u(vc != 0u, vx, vy), n - i);
    }
}

/* Philox4x32-10, word 0; see core/base/philox.h. */
TERN_INLINE vu v_philox(vu c0, vu c1, uint32_t label, vu k0, vu k1)
{
    const vu m0 = v_splat_u(0xD2511F53u), m1 = v_splat_u(0xCD9E8D57u);
    vu c2 = v_splat_u(label), c3 = {0};
    for (int round = 0; round < 10; round++) {
        vu h0 = v_multiply_high(m0, c0), l0 = m0 * c0, h1 = v_multiply_high(m1, c2), l1 = m1 * c2;
        c0 = h1 ^ c1 ^ k0, c1 = l1, c2 = h0 ^ c3 ^ k1, c3 = l0;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    return c0;
}
TERN_INLINE vu philox_word(const uint32_t *in, uint32_t i, uint32_t n, bool one)
{
    if (one) return v_splat_u(in[0]);
    return i + W <= n ? v_load_u(in + i) : v_load_part(in + i, n - i);
}
static void loop_philox(uint32_t n, uint32_t *d, const uint32_t *const in[4], uint32_t label, uint32_t scalars)
{
    for (uint32_t i = 0; i < n; i += W) {
        vu r = v_philox(philox_word(in[0], i, n, scalars & 1u), philox_word(in[1], i, n, scalars & 2u), label,
                        philox_word(in[2], i, n, scalars & 4u), philox_word(in[3], i, n, scalars & 8u));
        if (i + W <= n)
            v_store_u(d + i, r);
        else
            v_store_part(d + i, r, n - i);
    }
}

/* Four accumulators of W lanes, folded in a fixed order; n stays below a few thousand, longer rows come in blocks. */
static float loop_sum(uint32_t n, const float *a)
{
    vf s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
    uint32_t i = 0;
    for (; i + 4 * W <= n; i += 4 * W) {
        s0 += v_load(a + i), s1 += v_load(a + i + W);
        s2 += v_load(a + i + 2 * W), s3 += v_load(a + i + 3 * W);
    }
    for (; i + W <= n; i += W) s0 += v_load(a + i);
    if (i < n) s1 += (vf)v_load_part((const uint32_t *)(const void *)(a + i), n - i);
    return v_sum((s0 + s1) + (s2 + s3));
}
static float loop_maximum(uint32_t n, const float *a)
{
    const vf low = v_splat(-INFINITY);
    vf m = low, m1 = low;
    uint32_t i = 0;
    for (; i + 2 * W <= n; i += 2 * W) m = v_max(v_load(a + i), m), m1 = v_max(v_load(a + i + W), m1);
    for (; i + W <= n; i += W) m = v_max(v_load(a + i), m);
    m = v_max(m1, m);
    if (i < n) m = v_max(v_load_part_low(a + i, n - i), m);
    return v_maximum(m);
}
static void loop_fill(uint32_t n, uint32_t *d, uint32_t bits)
{
    for (uint32_t i = 0; i < n; i++) d[i] = bits;
}

#endif
