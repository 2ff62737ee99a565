/* SPDX-License-Identifier: Apache-2.0 */
/* glsl_matrix.h - fragments by VK_KHR_cooperative_matrix: matrices of f16 that a sub-group holds, sums f32; who holds
 * which element is the driver's. Words of shared memory are pairs of elements, so offsets and strides count pairs
 * (GLSL_KHR_cooperative_matrix, "coopMatLoad": units of the array's element type). */
#define SUBGROUP_INDEX   gl_SubgroupID
#define LANE             gl_SubgroupInvocationID
#define SUBGROUP_BARRIER subgroupBarrier()
#define COPY(tile, to, RAW, AT, from) COPY_WORDS(tile, to, RAW, from)
#define FRAGMENT_UNROLL  UNROLL
#define COPIES_END
#define COPIES_WAIT

#define FRAGMENTS_A(name, count)   coopmat<float16_t, gl_ScopeSubgroup, FRAGMENT_M, FRAGMENT_K, gl_MatrixUseA> name[count]
#define FRAGMENTS_B(name, count)   coopmat<float16_t, gl_ScopeSubgroup, FRAGMENT_K, FRAGMENT_N, gl_MatrixUseB> name[count]
#define FRAGMENT_SUM               coopmat<float, gl_ScopeSubgroup, FRAGMENT_M, FRAGMENT_N, gl_MatrixUseAccumulator>
#define FRAGMENTS_SUM(name, count) FRAGMENT_SUM name[count]
#define FRAGMENT_ZERO(sum) sum = FRAGMENT_SUM(0.0f);
#define FRAGMENT_LOAD_A_ROWS(a, tile, start, ROW, m, k)                                                                \
    coopMatLoad(a, tile, LINE_AT(start, ROW, m, k), ROW, gl_CooperativeMatrixLayoutRowMajor);
#define FRAGMENT_LOAD_A_COLUMNS(a, tile, start, ROW, m, k)                                                             \
    coopMatLoad(a, tile, LINE_AT(start, ROW, k, m), ROW, gl_CooperativeMatrixLayoutColumnMajor);
#define FRAGMENT_LOAD_B_ROWS(b, tile, start, ROW, n, k)                                                                \
    coopMatLoad(b, tile, LINE_AT(start, ROW, k, n), ROW, gl_CooperativeMatrixLayoutRowMajor);
#define FRAGMENT_LOAD_B_COLUMNS(b, tile, start, ROW, n, k)                                                             \
    coopMatLoad(b, tile, LINE_AT(start, ROW, n, k), ROW, gl_CooperativeMatrixLayoutColumnMajor);
#define FRAGMENT_MULTIPLY_ADD(sum, a, b) sum = coopMatMulAdd(a, b, sum);
#define FRAGMENT_STORE(sum, tile, start, ROW) coopMatStore(sum, tile, start, ROW, gl_CooperativeMatrixLayoutRowMajor);
#define FRAGMENT_SCALE(sum, tile, start, ROW)                                                                          \
    {                                                                                                                  \
        FRAGMENT_SUM factor;                                                                                           \
        coopMatLoad(factor, tile, start, ROW, gl_CooperativeMatrixLayoutRowMajor);                                     \
        for (int r = 0; r < sum.length(); r++) sum[r] = sum[r] * factor[r];                                            \
    }
