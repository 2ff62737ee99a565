/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.h - the register-tile product that matmul.c and attention.h are built from; included by isa_*.c.
 *
 *     C tile: GEMM_ROWS x (2 vectors) accumulators stay in registers over the whole of K;
 *     per k: 2 loads of B's row, one broadcast of A per row, 2 GEMM_ROWS fused multiply-adds.
 *
 * A is read one number at a time, so its strides are free; B's rows must be contiguous. Sums run over k ascending in
 * one accumulator per element, so a result depends on nothing but its row, column and K. */
#ifndef TERN_CPU_GEMM_H
#define TERN_CPU_GEMM_H

#include "backends/cpu/isa.h"

/* Accumulators must leave room for two B vectors and a broadcast: 24 + 3 of 32 registers, or 12 + 3 of 16. */
#if TERN_ISA_LEVEL == 2
#define GEMM_ROWS 12u
#else
#define GEMM_ROWS 6u
#endif

/* rows and vectors are literals at every call, so the arrays become registers. */
TERN_INLINE void gemm_tile(const uint32_t rows, const uint32_t vectors, uint32_t K, const float *a, size_t a_row,
                           size_t a_column, const float *b, size_t b_ld, float *c, size_t c_ld, bool add)
{
    vf acc[GEMM_ROWS][2];
#pragma GCC unroll 12
    for (uint32_t m = 0; m < rows; m++)
#pragma GCC unroll 2
        for (uint32_t j = 0; j < vectors; j++) acc[m][j] = add ? v_load(c + m * c_ld + j * W) : (vf){0};
    for (uint32_t k = 0; k < K; k++) {
        vf row[2];
#pragma GCC unroll 2
        for (uint32_t j = 0; j < vectors; j++) row[j] = v_load(b + j * W);
#pragma GCC unroll 12
        for (uint32_t m = 0; m < rows; m++) {
            vf x = v_splat(a[m * a_row]);
#pragma GCC unroll 2
            for (uint32_t j = 0; j < vectors; j++) acc[m][j] = v_fma(x, row[j], acc[m][j]);
        }
        a += a_column, b += b_ld;
    }
#pragma GCC unroll 12
    for (uint32_t m = 0; m < rows; m++)
#pragma GCC unroll 2
        for (uint32_t j = 0; j < vectors; j++) v_store(c + m * c_ld + j * W, acc[m][j]);
}

#define GEMM_CASE(rows)                                                                                                \
    case rows:                                                                                                         \
        if (wide)                                                                                                      \
            gemm_tile(rows, 2, K, a, a_row, a_column, b, b_ld, c, c_ld, add);                                          \
        else                                                                                                           \
            gemm_tile(rows, 1, K, a, a_row, a_column, b, b_ld, c, c_ld, add);                                          \
        break;

static void gemm_rows(uint32_t rows, bool wide, uint32_t K, const float *a, size_t a_row, size_t a_column,
                      const float *b, size_t b_ld, float *c, size_t c_ld, bool add)
{
    switch (rows) {
        GEMM_CASE(1)
        GEMM_CASE(2)
        GEMM_CASE(3)
        GEMM_CASE(4)
        GEMM_CASE(5)
        GEMM_CASE(6)
#if TERN_ISA_LEVEL == 2
        GEMM_CASE(7)
        GEMM_CASE(8)
        GEMM_CASE(9)
        GEMM_CASE(10)
        GEMM_CASE(11)
        GEMM_CASE(12)
#endif
    default: break;
    }
}

static void gemm(uint32_t M, uint32_t N, uint32_t K, const float *a, size_t a_row, size_t a_column, const float *b,
                 size_t b_ld, float *c, size_t c_ld, bool add)
{
    /* Rows are shared out evenly: 13 rows are 7 + 6, not 12 + 1, since one row alone waits for its own sums. */
    const uint32_t strips = (M + GEMM_ROWS - 1) / GEMM_ROWS;
    for (uint32_t n = 0; n < N; n += 2 * W) {
        const bool wide = N - n > W;
        for (uint32_t s = 0; s < strips; s++) {
            const uint32_t m0 = (uint32_t)((uint64_t)M * s / strips), m1 = (uint32_t)((uint64_t)M * (s + 1) / strips);
            gemm_rows(m1 - m0, wide, K, a + m0 * a_row, a_row, a_column, b + n, b_ld, c + m0 * c_ld + n, c_ld, add);
        }
    }
}

/* 4 x 4 squares turned in registers: 8 shuffles for 16 elements instead of 16 loads and 16 stores. */
typedef float v4 __attribute__((vector_size(16)));
typedef float v4_any __attribute__((vector_size(16), aligned(4), may_alias));
TERN_INLINE void transpose_square(const float *s, size_t s_ld, float *d, size_t d_ld)
{
    v4 r0 = *(const v4_any *)s, r1 = *(const v4_any *)(s + s_ld), r2 = *(const v4_any *)(s + 2 * s_ld),
       r3 = *(const v4_any *)(s + 3 * s_ld);
    v4 a = {r0[0], r1[0], r0[1], r1[1]}, b = {r0[2], r1[2], r0[3], r1[3]};
    v4 e = {r2[0], r3[0], r2[1], r3[1]}, f = {r2[2], r3[2], r2[3], r3[3]};
    *(v4_any *)d = (v4){a[0], a[1], e[0], e[1]};
    *(v4_any *)(d + d_ld) = (v4){a[2], a[3], e[2], e[3]};
    *(v4_any *)(d + 2 * d_ld) = (v4){b[0], b[1], f[0], f[1]};
    *(v4_any *)(d + 3 * d_ld) = (v4){b[2], b[3], f[2], f[3]};
}
static void transpose(uint32_t rows, uint32_t columns, const float *s, size_t s_ld, float *d, size_t d_ld)
{
    const uint32_t r4 = rows & ~3u, c4 = columns & ~3u;
    for (uint32_t r = 0; r < r4; r += 4) {
        for (uint32_t c = 0; c < c4; c += 4) transpose_square(s + r * s_ld + c, s_ld, d + c * d_ld + r, d_ld);
        for (uint32_t c = c4; c < columns; c++)
            for (uint32_t i = 0; i < 4; i++) d[c * d_ld + r + i] = s[(r + i) * s_ld + c];
    }
    for (uint32_t r = r4; r < rows; r++)
        for (uint32_t c = 0; c < columns; c++) d[c * d_ld + r] = s[r * s_ld + c];
}

#endif
