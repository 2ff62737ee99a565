/* SPDX-License-Identifier: Apache-2.0 */
/* maths.h - elementary functions on vectors, each within 2 ulp of the real value over all of f32
 * (tests/test_conformance_alu.c measures it).
 *
 * Included by isa_*.c after simd.h. No table, no branch, no libm, except that sine and cosine of |x| above 2^20 (where
 * the reduction by a double pi/2 would lose bits on machines without fma) take libm lane by lane. Subnormals are kept.
 * Sources: Cody and Waite, "Software manual for the elementary functions", 1980 (reductions); Moshier, Cephes (exp,
 * log, tanh, sine coefficients); Juffa, minimax erf in two intervals, 2017. */
#ifndef TERN_CPU_MATHS_H
#define TERN_CPU_MATHS_H

#include <math.h>

/* e^x = 2^n e^r with n = rint(x / ln 2), |r| <= ln 2 / 2. 2^n is applied as two factors so that subnormal results and
 * n = 128 come out right. The clamp lies beyond overflow (88.73) and below half the least subnormal (-103.98). */
TERN_INLINE vf v_exp(vf x)
{
    const vf magic = v_splat(12582912.0f); /* 1.5 2^23: adding it rounds to an integer held in the low bits */
    x = v_clamp(x, -105.0f, 89.0f);
    vf t = v_fma(x, v_splat(1.44269504f), magic);
    vf n = t - magic;
    vf r = v_fma(n, v_splat(-0.693359375f), x);
    r = v_fma(n, v_splat(2.12194440e-4f), r);
    vf p = v_splat(1.9875691500e-4f);
    p = v_fma(p, r, v_splat(1.3981999507e-3f));
    p = v_fma(p, r, v_splat(8.3334519073e-3f));
    p = v_fma(p, r, v_splat(4.1665795894e-2f));
    p = v_fma(p, r, v_splat(1.6666665459e-1f));
    p = v_fma(p, r, v_splat(5.0000001201e-1f));
    vf e = v_fma(p, r * r, r) + 1.0f;
    vi k = (vi)((vu)t - (vu)magic);
    vi k1 = k >> 1;
    return e * (vf)((vu)(k1 + 127) << 23) * (vf)((vu)(k - k1 + 127) << 23);
}

/* log x = e ln 2 + log m, m in [sqrt(1/2), sqrt 2). */
TERN_INLINE vf v_log(vf x)
{
    vi tiny = x < 1.17549435e-38f;
    vf scaled = v_select(tiny, x * 8388608.0f, x);
    vu bits = (vu)scaled - 0x3f3504f3u;
    vf e = __builtin_convertvector((vi)bits >> 23, vf) - (vf)((vu)tiny & (vu)v_splat(23.0f));
    vf f = (vf)((bits & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
    vf z = f * f;
    vf p = v_splat(7.0376836292e-2f);
    p = v_fma(p, f, v_splat(-1.1514610310e-1f));
    p = v_fma(p, f, v_splat(1.1676998740e-1f));
    p = v_fma(p, f, v_splat(-1.2420140846e-1f));
    p = v_fma(p, f, v_splat(1.4249322787e-1f));
    p = v_fma(p, f, v_splat(-1.6668057665e-1f));
    p = v_fma(p, f, v_splat(2.0000714765e-1f));
    p = v_fma(p, f, v_splat(-2.4999993993e-1f));
    p = v_fma(p, f, v_splat(3.3333331174e-1f));
    vf y = p * f * z;
    y = v_fma(e, v_splat(-2.12194440e-4f), y);
    y = v_fma(z, v_splat(-0.5f), y);
    vf r = v_fma(e, v_splat(0.693359375f), f + y);
    r = v_select(x == (vf){0}, v_splat(-INFINITY), r);
    r = v_select(x == INFINITY, x, r);
    return v_select((x < 0.0f) | v_is_nan(x), v_splat(NAN), r);
}

/* x + x^3 P(x^2) near 0, else 1 - 2 / (e^2|x| + 1). */
TERN_INLINE vf v_tanh(vf x)
{
    vf a = v_abs(x), z = x * x;
    vf p = v_splat(-5.70498872745e-3f);
    p = v_fma(p, z, v_splat(2.06390887954e-2f));
    p = v_fma(p, z, v_splat(-5.37397155531e-2f));
    p = v_fma(p, z, v_splat(1.33314422036e-1f));
    p = v_fma(p, z, v_splat(-3.33332819422e-1f));
    vf small = v_sign_of(v_abs(v_fma(p * z, x, x)), x); /* -0 + 0 would lose the sign of -0 */
    vf large = 1.0f - 2.0f / (v_exp(a + a) + 1.0f);
    return v_select(a < 0.625f, small, v_sign_of(large, x));
}

TERN_INLINE vf v_erf(vf x)
{
    vf t = v_abs(x), s = x * x;
    vf r = v_fma(v_splat(-1.72853470e-5f), t, v_splat(3.83197126e-4f));
    vf u = v_fma(v_splat(-3.88396438e-3f), t, v_splat(2.42546219e-2f));
    r = v_fma(r, s, u);
    r = v_fma(r, t, v_splat(-1.06777877e-1f));
    r = v_fma(r, t, v_splat(-6.34846687e-1f));
    r = v_fma(r, t, v_splat(-1.28717512e-1f));
    r = v_fma(r, t, -t);
    vi far = t > 10.0f; /* there the polynomial turns up again, and infinity would make NaN */
    vf large = v_sign_of(1.0f - v_exp(v_select(far, v_splat(-105.0f), r)), x);
    vf p = v_splat(-5.96761703e-4f);
    p = v_fma(p, s, v_splat(4.99119423e-3f));
    p = v_fma(p, s, v_splat(-2.67681349e-2f));
    p = v_fma(p, s, v_splat(1.12819925e-1f));
    p = v_fma(p, s, v_splat(-3.76125336e-1f));
    p = v_fma(p, s, v_splat(1.28379166e-1f));
    return v_select((t > 0.927734375f) & ~v_is_nan(x), large, v_fma(p, x, x));
}

/* One lane: quadrant q and r = x - q pi/2 in double, then the polynomial of the quadrant. shift 1 makes it a cosine. */
TERN_INLINE float v_sine_lane(float x, uint32_t shift)
{
    if (!(__builtin_fabsf(x) < 1048576.0f)) return shift ? cosf(x) : sinf(x);
    if (x == 0.0f) return shift ? 1.0f : x;
    double n = ((double)x * 0.63661977236758134 + 6755399441055744.0) - 6755399441055744.0;
    double r = ((double)x - n * 1.57079632673412561417) - n * 6.07710050650619224932e-11;
    float f = (float)r, z = (float)(r * r);
    uint32_t q = (uint32_t)(int32_t)n + shift;
    float sine = f + f * z * ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f);
    float cosine =
        1.0f - 0.5f * z + z * z * ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f);
    float y = (q & 1u) ? cosine : sine;
    return (q & 2u) ? -y : y;
}
TERN_INLINE vf v_sine(vf x, uint32_t shift)
{
    for (uint32_t i = 0; i < W; i++) x[i] = v_sine_lane(x[i], shift);
    return x;
}

/* The bits of f32 values as 16-bit storage would hold them, rounded in integers as core/base/dtype.c does. */
TERN_INLINE vu v_round_bf16(vu a)
{
    const vu even = (a + 0x7fffu + (a >> 16 & 1u)) & 0xffff0000u;
    return v_select_u(v_is_nan((vf)a), (a & 0xffff0000u) | 0x400000u, even);
}
TERN_INLINE vu v_round_f16(vu a)
{
    const vu m = a & 0x7fffffffu, normal = (m + 0xfffu + (m >> 13 & 1u)) & ~0x1fffu;
    /* Below 2^-14 the unit is 2^-24, whatever the exponent; shifts of 14 .. 24 count. */
    const vu shift = v_clamp_u(126u - (m >> 23), 1u, 25u), whole = (m & 0x7fffffu) | 0x800000u, one = v_splat_u(1u);
    const vu rest = whole & ((one << shift) - 1u), half = one << (shift - 1u);
    vu units = whole >> shift;
    units -= (vu)((rest > half) | ((rest == half) & ((units & 1u) != 0u)));
    vu r = v_select_u(m < 0x38800000u, (vu)(__builtin_convertvector((vi)units, vf) * 0x1p-24f), normal);
    r = v_select_u(m < 0x33000000u, (vu){0}, r);
    r = v_select_u(m >= 0x477ff000u, v_splat_u(0x7f800000u), r); /* 65520 and above */
    r = v_select_u(m > 0x7f800000u, (m & ~0x1fffu) | 0x7fc00000u, r);
    return r | (a & 0x80000000u);
}

#endif
