/* SPDX-License-Identifier: Apache-2.0 */
/* convert.h - moves between stored f32, f16 and bf16 and f32 vectors; included by isa_*.c after simd.h.
 *
 *     memory (any stride) ── widen_<dtype> ──> f32 lanes ── narrow_<dtype> ──> memory
 *
 * Stores give the bits of core/base/dtype.c for every f32, NaN and subnormals included (tests/test_cpu.c compares).
 * VCVTPS2PH with its rounding given in the instruction does: it looks at neither FTZ nor MXCSR's rounding, and it makes
 * a NaN quiet and keeps its top bits as dtype.c does. A load may make a signalling NaN quiet; nothing else differs. */
#ifndef TERN_CPU_CONVERT_H
#define TERN_CPU_CONVERT_H

typedef uint16_t vh __attribute__((vector_size(2 * W)));
typedef uint16_t vh_any __attribute__((vector_size(2 * W), aligned(2), may_alias));

TERN_INLINE vf v_from_bf16(vh h) { return (vf)(__builtin_convertvector(h, vu) << 16); }
TERN_INLINE vh v_to_bf16(vf x)
{
    const vu u = (vu)x;
    const vu rounded = (u + 0x7fffu + (u >> 16 & 1u)) >> 16; /* to nearest even; carries up to infinity */
    return __builtin_convertvector(v_select_u(v_is_nan(x), u >> 16 | 0x40u, rounded), vh);
}

TERN_INLINE vf v_from_f16(vh h)
{
#if TERN_ISA_LEVEL == 2
    return (vf)_mm512_cvtph_ps((__m256i)h);
#elif TERN_ISA_LEVEL == 1
    return (vf)_mm256_cvtph_ps((__m128i)h);
#else
    const vu u = __builtin_convertvector(h, vu), magnitude = u & 0x7fffu;
    const vf subnormal = __builtin_convertvector((vi)magnitude, vf) * 0x1p-24f; /* exact: a normal f32 */
    vu wide = v_select_u((vi)magnitude < 0x400, (vu)subnormal, (magnitude << 13) + 0x38000000u);
    wide = v_select_u((vi)magnitude < 0x7c00, wide, magnitude << 13 | 0x7f800000u);
    return (vf)(wide | (u & 0x8000u) << 16);
#endif
}
TERN_INLINE vh v_to_f16(vf x)
{
#if TERN_ISA_LEVEL == 2
    return (vh)_mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif TERN_ISA_LEVEL == 1
    return (vh)_mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT);
#else
    const vu u = (vu)x & 0x7fffffffu;
    const vi size = (vi)u;
    const vu normal = (u - 0x38000000u + 0xfffu + (u >> 13 & 1u)) >> 13;
    const vu subnormal = (vu)((vf)u + 0.5f) - 0x3f000000u; /* the unit of 0.5 is f16's least, 2^-24: the sum rounds */
    vu y = v_select_u(size < 0x38800000, subnormal, normal);
    y = v_select_u(size < 0x477ff000, y, v_splat_u(0x7c00u)); /* from 65520 on */
    y = v_select_u(size > 0x7f800000, 0x7e00u | (u >> 13 & 0x1ffu), y);
    return __builtin_convertvector(y | ((vu)x >> 16 & 0x8000u), vh);
#endif
}

/* n elements; `stride` on the memory's side. The last few go through a vector as well, so that bits do not depend on
 * where a block ends. */
#define TERN_CONVERT(dtype)                                                                                            \
    static void widen_##dtype(uint32_t n, void *d, const void *s, int64_t stride)                                      \
    {                                                                                                                  \
        float *to = d;                                                                                                 \
        const uint16_t *from = s;                                                                                      \
        uint32_t i = 0;                                                                                                \
        for (; stride == 1 && i + W <= n; i += W) v_store(to + i, v_from_##dtype(*(const vh_any *)(from + i)));        \
        for (; i < n; i += W) {                                                                                        \
            const uint32_t count = n - i < W ? n - i : W;                                                              \
            vh h = {0};                                                                                                \
            for (uint32_t l = 0; l < count; l++) h[l] = from[(int64_t)(i + l) * stride];                               \
            const vf wide = v_from_##dtype(h);                                                                         \
            for (uint32_t l = 0; l < count; l++) to[i + l] = wide[l];                                                  \
        }                                                                                                              \
    }                                                                                                                  \
    static void narrow_##dtype(uint32_t n, void *d, const void *s, int64_t stride)                                     \
    {                                                                                                                  \
        uint16_t *to = d;                                                                                              \
        const float *from = s;                                                                                         \
        uint32_t i = 0;                                                                                                \
        for (; stride == 1 && i + W <= n; i += W) *(vh_any *)(to + i) = v_to_##dtype(v_load(from + i));                \
        for (; i < n; i += W) {                                                                                        \
            const uint32_t count = n - i < W ? n - i : W;                                                              \
            vf x = {0};                                                                                                \
            for (uint32_t l = 0; l < count; l++) x[l] = from[i + l];                                                   \
            const vh h = v_to_##dtype(x);                                                                              \
            for (uint32_t l = 0; l < count; l++) to[(int64_t)(i + l) * stride] = h[l];                                 \
        }                                                                                                              \
    }
TERN_CONVERT(f16)
TERN_CONVERT(bf16)
#undef TERN_CONVERT

static void widen_f32(uint32_t n, void *d, const void *s, int64_t stride)
{
    uint32_t *to = d;
    const uint32_t *from = s;
    if (stride == 1)
        memcpy(to, from, n * sizeof *to);
    else
        for (uint32_t i = 0; i < n; i++) to[i] = from[(int64_t)i * stride];
}
static void narrow_f32(uint32_t n, void *d, const void *s, int64_t stride)
{
    uint32_t *to = d;
    const uint32_t *from = s;
    if (stride == 1)
        memcpy(to, from, n * sizeof *to);
    else
        for (uint32_t i = 0; i < n; i++) to[(int64_t)i * stride] = from[i];
}

#endif
