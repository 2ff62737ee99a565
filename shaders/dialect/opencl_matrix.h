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
/* What a lane holds of a row of a, whose lines are rows or columns. */
#if SUBGROUP == 8u
#define FRAGMENT_ROWS int8
#define A_LANE_ROWS(tile, start, ROW, m, k) as_int(tile[LINE_AT(start, ROW, m, (k) + 2u * LANE)])
#define A_LANE_COLUMNS(tile, start, ROW, m, k)                                                                         \
    as_int(BITS_AT(tile, start, ROW, (k) + 2u * LANE, m) | BITS_AT(tile, start, ROW, (k) + 2u * LANE + 1u, m) << 16u)
#else
#define FRAGMENT_ROWS short8
#define A_LANE_ROWS(tile, start, ROW, m, k) as_short((ushort)BITS_AT(tile, start, ROW, m, (k) + LANE))
#define A_LANE_COLUMNS(tile, start, ROW, m, k) as_short((ushort)BITS_AT(tile, start, ROW, (k) + LANE, m))
#endif
float8 __attribute__((overloadable)) DPAS(FRAGMENT_ROWS a, int8 b, float8 sum);

/* A pair of b along k. */
#define B_LANE_ROWS(tile, start, ROW, n, k)                                                                            \
    as_int(BITS_AT(tile, start, ROW, k, n) | BITS_AT(tile, start, ROW, (k) + 1u, n) << 16u)
#define B_LANE_COLUMNS(tile, start, ROW, n, k) as_int(tile[LINE_AT(start, ROW, n, k)])
#define FRAGMENTS_A(name, count)   FRAGMENT_ROWS name[count]
#define FRAGMENTS_B(name, count)   int8 name[count]
#define FRAGMENTS_SUM(name, count) float8 name[count]
#define FRAGMENT_ZERO(sum) sum = (float8)(0.0f);
#define EIGHT(type, PART, tile, start, ROW, x, k, dx, dk)                                                              \
    (type)(PART(tile, start, ROW, (x) + 0u * dx, (k) + 0u * dk), PART(tile, start, ROW, (x) + 1u * dx, (k) + 1u * dk), \
           PART(tile, start, ROW, (x) + 2u * dx, (k) + 2u * dk), PART(tile, start, ROW, (x) + 3u * dx, (k) + 3u * dk), \
           PART(tile, start, ROW, (x) + 4u * dx, (k) + 4u * dk), PART(tile, start, ROW, (x) + 5u * dx, (k) + 5u * dk), \
           PART(tile, start, ROW, (x) + 6u * dx, (k) + 6u * dk), PART(tile, start, ROW, (x) + 7u * dx, (k) + 7u * dk))
#define FRAGMENT_LOAD_A_ROWS(a, tile, start, ROW, m, k)                                                                \
    a = EIGHT(FRAGMENT_ROWS, A_LANE_ROWS, tile, start, ROW, m, k, 1u, 0u);
#define FRAGMENT_LOAD_A_COLUMNS(a, tile, start, ROW, m, k)                                                             \
    a = EIGHT(FRAGMENT_ROWS, A_LANE_COLUMNS, tile, start, ROW, m, k, 1u, 0u);
#define FRAGMENT_LOAD_B_ROWS(b, tile, start, ROW, n, k)                                                                \
    b = EIGHT(int8, B_LANE_ROWS, tile, start, ROW, (n) + LANE, k, 0u, 2u);
#define FRAGMENT_LOAD_B_COLUMNS(b, tile, start, ROW, n, k)                                                             \
    b = EIGHT(int8, B_LANE_COLUMNS, tile, start, ROW, (n) + LANE, k, 0u, 2u);
#define FRAGMENT_MULTIPLY_ADD(sum, a, b) sum = DPAS(a, b, sum);
#define FRAGMENT_STORE(sum, tile, start, ROW)                                                                          \
    tile[(start) + 0u * (ROW) + LANE] = as_uint(sum.s0), tile[(start) + 1u * (ROW) + LANE] = as_uint(sum.s1);          \
    tile[(start) + 2u * (ROW) + LANE] = as_uint(sum.s2), tile[(start) + 3u * (ROW) + LANE] = as_uint(sum.s3);          \
    tile[(start) + 4u * (ROW) + LANE] = as_uint(sum.s4), tile[(start) + 5u * (ROW) + LANE] = as_uint(sum.s5);          \
    tile[(start) + 6u * (ROW) + LANE] = as_uint(sum.s6), tile[(start) + 7u * (ROW) + LANE] = as_uint(sum.s7);
#define FRAGMENT_SCALE(sum, tile, start, ROW)                                                                          \
    sum = sum * as_float8((uint8)(tile[(start) + 0u * (ROW)], tile[(start) + 1u * (ROW)], tile[(start) + 2u * (ROW)],  \
                                  tile[(start) + 3u * (ROW)], tile[(start) + 4u * (ROW)], tile[(start) + 5u * (ROW)],  \
                                  tile[(start) + 6u * (ROW)], tile[(start) + 7u * (ROW)]));
