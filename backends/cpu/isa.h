/* SPDX-License-Identifier: Apache-2.0 */
/* isa.h - what is compiled once per instruction set: the vector loops, as a table of functions.
 *
 *     isa_baseline.c  isa_avx2.c  isa_avx512.c  ──>  tern_cpu_isa  ──>  tape_run, matmul, attention, scatter
 *
 * A loop takes n elements of 4 bytes; each operand is a vector or, where its bit in `scalars` (or the form) says so,
 * one element. Destinations may equal an operand, never overlap it otherwise. All loops have n >= 1. */
#ifndef TERN_CPU_ISA_H
#define TERN_CPU_ISA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/kernel/tape.h"
#include "core/tern.h"

/* forms of two-operand loops: which operand is one element */
enum { TERN_FORM_VV = 0, TERN_FORM_VS, TERN_FORM_SV, TERN_FORM_COUNT };
enum { TERN_TYPE_F32 = 0, TERN_TYPE_I32, TERN_TYPE_U32, TERN_TYPE_COUNT };

typedef void (*tern_cpu_loop)(uint32_t n, void *d, const void *a, const void *b, const void *c, uint32_t scalars);
typedef void (*tern_cpu_philox_loop)(uint32_t n, uint32_t *d, const uint32_t *const in[4], uint32_t label,
                                     uint32_t scalars);

/* n elements between memory of some dtype, `stride` elements apart, and a register vector. */
typedef void (*tern_cpu_move)(uint32_t n, void *d, const void *s, int64_t stride);

/* One (b, h) and one tile of queries (forward, dq) or keys (dkv). */
typedef struct tern_cpu_attention {
    uint32_t dtype, bytes; /* of q, k, v, o and their gradients: f32, f16 or bf16; bytes per element */
    const void *q, *k, *v, *dout;
    const float *lse_in, *delta;
    void *o, *dq, *dk, *dv;
    float *lse;
    uint32_t B, H, Tq, Tk, D;
    uint32_t q_b, q_t, q_h, k_b, k_t, k_h, v_b, v_t, v_h;
    float scale;
    bool causal;
} tern_cpu_attention;
#define TERN_ATTENTION_ROWS 64u /* queries and keys per tile */

typedef struct tern_cpu_isa {
    const char *name;
    uint32_t lanes;
    tern_cpu_loop loop[TERN_TAPE_OP_COUNT][TERN_TYPE_COUNT]
                      [TERN_FORM_COUNT];                  /* one- and three-operand loops stand in form VV */
    tern_cpu_loop cast[TERN_TYPE_COUNT][TERN_TYPE_COUNT]; /* [from][to]; NULL: same bits */
    tern_cpu_loop round_f16, round_bf16;                  /* ROUND to that dtype */
    tern_cpu_philox_loop philox;
    tern_cpu_move widen[TERN_BF16 + 1], narrow[TERN_BF16 + 1]; /* by stored dtype, from and to f32 */
    float (*sum)(uint32_t n, const float *a);
    float (*maximum)(uint32_t n, const float *a);
    void (*fill)(uint32_t n, uint32_t *d, uint32_t bits);
    /* C (M, N) = or += A B. A(m, k) at m a_row + k a_column; B row-major, rows of at least N rounded up to lanes
     * readable elements, as are C's writable ones. C's padding gets B's padding times A. */
    void (*gemm)(uint32_t M, uint32_t N, uint32_t K, const float *a, size_t a_row, size_t a_column, const float *b,
                 size_t b_ld, float *c, size_t c_ld, bool add);
    /* d (columns, rows) = transpose of s (rows, columns). */
    void (*transpose)(uint32_t rows, uint32_t columns, const float *s, size_t s_ld, float *d, size_t d_ld);
    uint32_t gemm_columns; /* of the register tile: the width of packed panels */
    void (*attention)(const tern_cpu_attention *at, uint32_t b, uint32_t h, uint32_t tile, float *scratch);
    void (*attention_dq)(const tern_cpu_attention *at, uint32_t b, uint32_t h, uint32_t tile, float *scratch);
    void (*attention_dkv)(const tern_cpu_attention *at, uint32_t b, uint32_t h, uint32_t tile, float *scratch);
} tern_cpu_isa;

extern const tern_cpu_isa tern_cpu_isa_baseline;
#if defined(__x86_64__)
extern const tern_cpu_isa tern_cpu_isa_avx2, tern_cpu_isa_avx512;
#endif
/* The best set that this processor has; the environment's TERN_CPU_ISA (baseline, avx2, avx512) can only lower it. */
const tern_cpu_isa *tern_cpu_isa_choose(void);
/* Floats of scratch that one attention tile needs. */
size_t tern_cpu_attention_floats(uint32_t D);

#endif
