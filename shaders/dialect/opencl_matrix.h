/* SPDX-License-Identifier: Apache-2.0 */
/* opencl_matrix.h - fragments on Intel's matrix engines (DPAS) by cl_intel_subgroup_matrix_multiply_accumulate: 8 rows,
 * as many columns as the sub-group has lanes (8 or 16), K 16 of f16 or bf16, sums f32.
 *
 * Of d = a b + d lane l holds column l of d, b's column l as pairs along k, and of each row of a the pair l (8 lanes) or
 * the element l (16 lanes). Compilers that work ahead of time lack the declarations, hence these. */
#define SUBGROUP_INDEX   (LOCAL / SUBGROUP)
#define LANE             (LOCAL % SUBGROUP)
#define SUBGROUP_BARRIER sub_group_barrier(CLK_LOCAL_MEM_FENCE)
#define COPY(tile, to, RAW, AT, from) vstore4(as_uint4(vload8(0, AT(from))), 0, tile + (to));
#define FRAGMENT_UNROLL  NO_UNROLL /* a sub-group of 8 has few registers */
#define COPIES_END
#define COPIES_WAIT

#if defined(FRAGMENT_F16)
#define DPAS intel_sub_group_f16_f16_matrix_mad_k16
#else
#define DPAS intel_sub_group_bf16_bf16_matrix_mad_k16
#endif
#if SUBGROUP == 8u
#define FRAGMENT_ROWS int8
#if A_TRANSPOSED != 0
#define A_LANE(tile, start, m, k)                                                                                      \
    as_int(A_BITS(tile, start, m, (k) + 2u * LANE) | A_BITS(tile, start, m, (k) + 2u * LANE + 1u) << 16u)
#else
#define A_LANE(tile, start, m, k) as_int(tile[(start) + A_AT(m, (k) + 2u * LANE)])
#endif
#else
#define FRAGMENT_ROWS short8
#define A_LANE(tile, start, m, k) as_short((ushort)A_BITS(tile, start, m, (k) + LANE))
#endif
float8 __attribute__((overloadable)) DPAS(FRAGMENT_ROWS a, int8 b, float8 sum);

#if B_TRANSPOSED != 0
#define B_LANE(tile, start, n, k) as_int(tile[(start) + B_AT(n, k)])
#else
#define B_LANE(tile, start, n, k) as_int(B_BITS(tile, start, n, k) | B_BITS(tile, start, n, (k) + 1u) << 16u)
#endif
#define FRAGMENTS_A(name, count)   FRAGMENT_ROWS name[count]
#define FRAGMENTS_B(name, count)   int8 name[count]
#define FRAGMENTS_SUM(name, count) float8 name[count]
#define FRAGMENT_ZERO(sum) sum = (float8)(0.0f);
#define EIGHT(type, AT_, tile, start, x, k, dx, dk)                                                                    \
    (type)(AT_(tile, start, (x) + 0u * dx, (k) + 0u * dk), AT_(tile, start, (x) + 1u * dx, (k) + 1u * dk),             \
           AT_(tile, start, (x) + 2u * dx, (k) + 2u * dk), AT_(tile, start, (x) + 3u * dx, (k) + 3u * dk),             \
           AT_(tile, start, (x) + 4u * dx, (k) + 4u * dk), AT_(tile, start, (x) + 5u * dx, (k) + 5u * dk),             \
           AT_(tile, start, (x) + 6u * dx, (k) + 6u * dk), AT_(tile, start, (x) + 7u * dx, (k) + 7u * dk))
#define FRAGMENT_LOAD_A(a, tile, start, m, k) a = EIGHT(FRAGMENT_ROWS, A_LANE, tile, start, m, k, 1u, 0u);
#define FRAGMENT_LOAD_B(b, tile, start, n, k) b = EIGHT(int8, B_LANE, tile, start, (n) + LANE, k, 0u, 2u);
#define FRAGMENT_MULTIPLY_ADD(sum, a, b) sum = DPAS(a, b, sum);
#define FRAGMENT_STORE(sum, tile, start, row)                                                                          \
    tile[(start) + 0u * (row) + LANE] = sum.s0, tile[(start) + 1u * (row) + LANE] = sum.s1;                            \
    tile[(start) + 2u * (row) + LANE] = sum.s2, tile[(start) + 3u * (row) + LANE] = sum.s3;                            \
    tile[(start) + 4u * (row) + LANE] = sum.s4, tile[(start) + 5u * (row) + LANE] = sum.s5;                            \
    tile[(start) + 6u * (row) + LANE] = sum.s6, tile[(start) + 7u * (row) + LANE] = sum.s7;
