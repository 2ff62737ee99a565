/* SPDX-License-Identifier: Apache-2.0 */
/* simd.h - vectors of W lanes on GCC's vector extension, included once by each isa_*.c.
 *
 * TERN_ISA_LEVEL is 0 (whatever the compiler targets by default), 1 (AVX2 + FMA) or 2 (AVX-512 F, BW, DQ, VL).
 * Everything is static: the same text becomes three sets of functions. Intrinsics stand only where the extension has no
 * word (fma, sqrt, floor, masked tails, high product). A contraction of a * b + c never happens by itself: v_fma is the
 * one way. */
#ifndef TERN_CPU_SIMD_H
#define TERN_CPU_SIMD_H

#include <stdint.h>
#include <string.h>

#if TERN_ISA_LEVEL == 2
#define W 16u
#elif TERN_ISA_LEVEL == 1
#define W 8u
#else
#define W 4u
#endif
#if TERN_ISA_LEVEL > 0
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

#define TERN_INLINE static inline __attribute__((always_inline, unused))

typedef float vf __attribute__((vector_size(4 * W)));
typedef int32_t vi __attribute__((vector_size(4 * W)));
typedef uint32_t vu __attribute__((vector_size(4 * W)));
typedef float vf_any __attribute__((vector_size(4 * W), aligned(4), may_alias));
typedef uint32_t vu_any __attribute__((vector_size(4 * W), aligned(4), may_alias));

TERN_INLINE vf v_load(const float *p) { return *(const vf_any *)p; }
TERN_INLINE void v_store(float *p, vf v) { *(vf_any *)p = v; }
TERN_INLINE vu v_load_u(const uint32_t *p) { return *(const vu_any *)p; }
TERN_INLINE void v_store_u(uint32_t *p, vu v) { *(vu_any *)p = v; }
TERN_INLINE vf v_splat(float x) { return x - (vf){0}; } /* x - 0 keeps -0 and NaN */
TERN_INLINE vu v_splat_u(uint32_t x) { return x + (vu){0}; }
TERN_INLINE vi v_splat_i(int32_t x) { return x + (vi){0}; }

/* First n < W lanes; the others read as 0 and are not written. */
TERN_INLINE vu v_load_part(const uint32_t *p, uint32_t n)
{
#if TERN_ISA_LEVEL == 2
    return (vu)_mm512_maskz_loadu_epi32((__mmask16)((1u << n) - 1u), p);
#elif TERN_ISA_LEVEL == 1
    static const uint32_t masks[16] = {~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u};
    return (vu)_mm256_maskload_epi32((const int *)p, (__m256i)v_load_u(masks + 8 - n));
#else
    vu v = {0};
    for (uint32_t i = 0; i < n; i++) v[i] = p[i];
    return v;
#endif
}
/* The others are -inf. (No local array here or below: GCC 12 takes one for 64-byte aligned where AddressSanitizer made
 * it 32.) */
TERN_INLINE vf v_load_part_low(const float *p, uint32_t n)
{
#if TERN_ISA_LEVEL == 2
    return (vf)_mm512_mask_loadu_ps((__m512)v_splat(-__builtin_inff()), (__mmask16)((1u << n) - 1u), p);
#else
    vf v = v_splat(-__builtin_inff());
    for (uint32_t i = 0; i < n; i++) v[i] = p[i];
    return v;
#endif
}
TERN_INLINE void v_store_part(uint32_t *p, vu v, uint32_t n)
{
#if TERN_ISA_LEVEL == 2
    _mm512_mask_storeu_epi32(p, (__mmask16)((1u << n) - 1u), (__m512i)v);
#elif TERN_ISA_LEVEL == 1
    static const uint32_t masks[16] = {~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u};
    _mm256_maskstore_epi32((int *)p, (__m256i)v_load_u(masks + 8 - n), (__m256i)v);
#else
    for (uint32_t i = 0; i < n; i++) p[i] = v[i];
#endif
}

/* a * b + c, rounded once where the machine can. */
TERN_INLINE vf v_fma(vf a, vf b, vf c)
{
#if TERN_ISA_LEVEL == 2
    return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif TERN_ISA_LEVEL == 1
    return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return a * b + c;
#endif
}
TERN_INLINE vf v_sqrt(vf a)
{
#if TERN_ISA_LEVEL == 2
    return (vf)_mm512_sqrt_ps((__m512)a);
#elif TERN_ISA_LEVEL == 1
    return (vf)_mm256_sqrt_ps((__m256)a);
#elif defined(__SSE2__)
    return (vf)_mm_sqrt_ps((__m128)a);
#else
    for (uint32_t i = 0; i < W; i++) a[i] = __builtin_sqrtf(a[i]);
    return a;
#endif
}
/* mask lanes are all ones or all zeros; where a comparison made them, AVX-512 keeps the mask in a mask register. */
TERN_INLINE vu v_select_u(vi mask, vu a, vu b)
{
#if TERN_ISA_LEVEL == 2
    return (vu)_mm512_mask_blend_epi32(_mm512_movepi32_mask((__m512i)mask), (__m512i)b, (__m512i)a);
#elif TERN_ISA_LEVEL == 1
    return (vu)_mm256_blendv_ps((__m256)b, (__m256)a, (__m256)mask);
#else
    return ((vu)mask & a) | (~(vu)mask & b);
#endif
}
TERN_INLINE vf v_select(vi mask, vf a, vf b) { return (vf)v_select_u(mask, (vu)a, (vu)b); }
TERN_INLINE vf v_abs(vf a) { return (vf)((vu)a & 0x7fffffffu); }
TERN_INLINE vf v_sign_of(vf magnitude, vf sign) { return (vf)((vu)magnitude | ((vu)sign & 0x80000000u)); }
/* x between lo and hi; NaN stays (the machine's min and max return their second operand then). */
TERN_INLINE vf v_clamp(vf x, float lo, float hi)
{
#if TERN_ISA_LEVEL == 2
    return (vf)_mm512_min_ps((__m512)v_splat(hi), _mm512_max_ps((__m512)v_splat(lo), (__m512)x));
#elif TERN_ISA_LEVEL == 1
    return (vf)_mm256_min_ps((__m256)v_splat(hi), _mm256_max_ps((__m256)v_splat(lo), (__m256)x));
#else
    x = v_select(x > hi, v_splat(hi), x);
    return v_select(x < lo, v_splat(lo), x);
#endif
}
TERN_INLINE vu v_clamp_u(vu x, uint32_t lo, uint32_t hi)
{
    x = v_select_u(x > hi, v_splat_u(hi), x);
    return v_select_u(x < lo, v_splat_u(lo), x);
}
/* NaN by its exponent bits, which survive any compiler flag. */
TERN_INLINE vi v_is_nan(vf a) { return ((vu)a & 0x7fffffffu) > 0x7f800000u; }
TERN_INLINE vf v_floor(vf a)
{
#if TERN_ISA_LEVEL == 2
    return (vf)_mm512_roundscale_ps((__m512)a, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
#elif TERN_ISA_LEVEL == 1
    return (vf)_mm256_floor_ps((__m256)a);
#else
    vi small = v_abs(a) < 8388608.0f; /* from 2^23 on every float is an integer; NaN is not small */
    vf t = __builtin_convertvector(__builtin_convertvector(v_select(small, a, (vf){0}), vi), vf);
    t = t - (vf)((vu)(t > a) & (vu)v_splat(1.0f));
    return v_select(small, v_sign_of(v_abs(t), v_select(t < 0.0f, t, a)), a);
#endif
}
/* High words of u32 products. */
TERN_INLINE vu v_multiply_high(vu a, vu b)
{
#if TERN_ISA_LEVEL == 2
    __m512i even = _mm512_srli_epi64(_mm512_mul_epu32((__m512i)a, (__m512i)b), 32);
    __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64((__m512i)a, 32), _mm512_srli_epi64((__m512i)b, 32));
    return (vu)_mm512_mask_blend_epi32(0xaaaa, even, odd);
#elif TERN_ISA_LEVEL == 1
    __m256i even = _mm256_srli_epi64(_mm256_mul_epu32((__m256i)a, (__m256i)b), 32);
    __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64((__m256i)a, 32), _mm256_srli_epi64((__m256i)b, 32));
    return (vu)_mm256_blend_epi32(even, odd, 0xaa);
#else
    for (uint32_t i = 0; i < W; i++) a[i] = (uint32_t)(((uint64_t)a[i] * b[i]) >> 32);
    return a;
#endif
}
/* a > b or a is NaN ? a : b, as tape.h has it. */
TERN_INLINE vf v_max(vf a, vf b)
{
#if TERN_ISA_LEVEL == 2
    const __mmask16 nan = _mm512_cmp_ps_mask((__m512)a, (__m512)a, _CMP_UNORD_Q);
    return (vf)_mm512_mask_mov_ps(_mm512_max_ps((__m512)a, (__m512)b), nan, (__m512)a);
#elif TERN_ISA_LEVEL == 1
    return (vf)_mm256_blendv_ps(_mm256_max_ps((__m256)a, (__m256)b), (__m256)a,
                                _mm256_cmp_ps((__m256)a, (__m256)a, _CMP_UNORD_Q));
#else
    return v_select((a > b) | v_is_nan(a), a, b);
#endif
}
/* Sum and maximum of all lanes, halves folded in a fixed order. */
TERN_INLINE float v_sum(vf a)
{
#if TERN_ISA_LEVEL == 2
    return _mm512_reduce_add_ps((__m512)a);
#else
    float t[W];
    v_store(t, a);
    for (uint32_t half = W / 2; half > 0; half /= 2)
        for (uint32_t i = 0; i < half; i++) t[i] += t[i + half];
    return t[0];
#endif
}
TERN_INLINE float v_maximum(vf a)
{
#if TERN_ISA_LEVEL == 2
    return _mm512_cmp_ps_mask((__m512)a, (__m512)a, _CMP_UNORD_Q) ? __builtin_nanf("")
                                                                  : _mm512_reduce_max_ps((__m512)a);
#else
    float t[W];
    v_store(t, a);
    float m = t[0];
    for (uint32_t i = 1; i < W; i++) m = (t[i] > m || t[i] != t[i]) ? t[i] : m; /* a NaN m stays: no t is greater */
    return m;
#endif
}

#endif
