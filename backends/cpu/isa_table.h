/* SPDX-License-Identifier: Apache-2.0 */
/* isa_table.h - fills one tern_cpu_isa from the loops above it; included last by isa_*.c, which defines TERN_ISA_NAME.
 */
#include "backends/cpu/simd.h"

#include "backends/cpu/convert.h"

#include "backends/cpu/maths.h"

#include "backends/cpu/tape_loops.h"

#include "backends/cpu/gemm.h"

#include "backends/cpu/attention_tiles.h"

#define JOIN_(a, b) a##b
#define JOIN(a, b)  JOIN_(a, b)
#define TEXT_(a)    #a
#define TEXT(a)     TEXT_(a)
/* clang-format off: a table, one row a line */
#define ONE(f)                                                                                                         \
    {                                                                                                                  \
        {f}, {NULL}, { NULL }                                                                                          \
    }
#define EACH(f, g)                                                                                                     \
    {                                                                                                                  \
        {f}, {g}, { g }                                                                                                \
    }
#define TWO(f)                                                                                                         \
    {                                                                                                                  \
        f##_vv, f##_vs, f##_sv                                                                                         \
    }

const tern_cpu_isa
    JOIN(tern_cpu_isa_, TERN_ISA_NAME) =
        {
            .name = TEXT(TERN_ISA_NAME),
            .lanes = W,
            .loop =
                {
                    [TERN_TAPE_NEG] = EACH(loop_neg_f32, loop_neg_int),
                    [TERN_TAPE_ABS] = {{loop_abs_f32}, {loop_abs_i32}, {loop_copy}},
                    [TERN_TAPE_EXP] = ONE(loop_exp),
                    [TERN_TAPE_LOG] = ONE(loop_log),
                    [TERN_TAPE_SQRT] = ONE(loop_sqrt),
                    [TERN_TAPE_RSQRT] = ONE(loop_rsqrt),
                    [TERN_TAPE_RECIP] = ONE(loop_recip),
                    [TERN_TAPE_TANH] = ONE(loop_tanh),
                    [TERN_TAPE_ERF] = ONE(loop_erf),
                    [TERN_TAPE_SIN] = ONE(loop_sin),
                    [TERN_TAPE_COS] = ONE(loop_cos),
                    [TERN_TAPE_FLOOR] = ONE(loop_floor),
                    [TERN_TAPE_ADD] = {TWO(loop_add_f32), TWO(loop_add_int), TWO(loop_add_int)},
                    [TERN_TAPE_SUB] = {TWO(loop_sub_f32), TWO(loop_sub_int), TWO(loop_sub_int)},
                    [TERN_TAPE_MUL] = {TWO(loop_mul_f32), TWO(loop_mul_int), TWO(loop_mul_int)},
                    [TERN_TAPE_DIV] = {TWO(loop_div_f32)},
                    [TERN_TAPE_MAX] = {TWO(loop_max_f32), TWO(loop_max_i32), TWO(loop_max_u32)},
                    [TERN_TAPE_MIN] = {TWO(loop_min_f32), TWO(loop_min_i32), TWO(loop_min_u32)},
                    [TERN_TAPE_LESS] = {TWO(loop_less_f32), TWO(loop_less_i32), TWO(loop_less_u32)},
                    [TERN_TAPE_EQUAL] = {TWO(loop_equal_f32), TWO(loop_equal_int), TWO(loop_equal_int)},
                    [TERN_TAPE_WHERE] = EACH(loop_where, loop_where),
                    [TERN_TAPE_AND] = {{NULL}, TWO(loop_and), TWO(loop_and)},
                    [TERN_TAPE_OR] = {{NULL}, TWO(loop_or), TWO(loop_or)},
                    [TERN_TAPE_XOR] = {{NULL}, TWO(loop_xor), TWO(loop_xor)},
                    [TERN_TAPE_SHIFT_LEFT] = {{NULL}, {NULL}, TWO(loop_shift_left)},
                    [TERN_TAPE_SHIFT_RIGHT] = {{NULL}, {NULL}, TWO(loop_shift_right)},
                    [TERN_TAPE_MULTIPLY_HIGH] = {{NULL}, {NULL}, TWO(loop_multiply_high)},
                },
            .cast = {{NULL, loop_f32_to_i32, loop_f32_to_u32},
                     {loop_i32_to_f32, NULL, NULL},
                     {loop_u32_to_f32, NULL, NULL}},
            .round_f16 = loop_round_f16,
            .round_bf16 = loop_round_bf16,
            .philox = loop_philox,
            .widen = {[TERN_F32] = widen_f32, [TERN_F16] = widen_f16, [TERN_BF16] = widen_bf16},
            .narrow = {[TERN_F32] = narrow_f32, [TERN_F16] = narrow_f16, [TERN_BF16] = narrow_bf16},
            .sum = loop_sum,
            .maximum = loop_maximum,
            .fill = loop_fill,
            .gemm = gemm,
            .transpose = transpose,
            .gemm_columns = 2 * W,
            .attention = attention_forward,
            .attention_dq = attention_dq,
            .attention_dkv = attention_dkv,
};
/* clang-format on */
