/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_matrix.h - fragments of 16 x 16 on the tensor cores of compute capability 8.0 and later: mma.sync, ldmatrix and
 * cp.async of the PTX ISA (7.0, "Matrix Fragments for mma.m16n8k16 with floating point type", "ldmatrix", "cp.async").
 *
 * A fragment of sums is two of the instruction's 16 x 8 ones side by side, K is 16 of f16 and bf16 and 8 of tf32. Lane
 * l holds rows l / 4 and l / 4 + 8 and, of every 8 columns, 2 (l % 4) and the next. Copies of 16 bytes need 16-byte
 * addresses, which a slice or an odd leading dimension does not have: those copy by elements. */
#define SUBGROUP_INDEX   (LOCAL / 32u)
#define LANE             (LOCAL % 32u)
#define SUBGROUP_BARRIER __syncwarp()

#ifndef TERN_CUDA_STAND_IN /* the stand-in has these as functions: tests/stand_ins/cuda/kernel_words.h */
FN uint shared_address(const void *at) {
    uint address;
    asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(address) : "l"(at));
    return address;
}
FN void tern_cp_async_16(void *to, const void *from, uint bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes) : "memory");
}
#define tern_cp_async_commit()          asm volatile("cp.async.commit_group;" ::: "memory")
#define tern_cp_async_wait(groups_left) asm volatile("cp.async.wait_group %0;" ::"n"(groups_left) : "memory")
#define TERN_LDMATRIX(name, modifier)                                                                                  \
    FN void name(uint *r, const void *row) {                                                                           \
        asm volatile("ldmatrix.sync.aligned.m8n8.x4" modifier ".shared.b16 {%0, %1, %2, %3}, [%4];"                    \
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])                                                  \
                     : "r"(shared_address(row))                                                                        \
                     : "memory");                                                                                      \
    }
TERN_LDMATRIX(tern_ldmatrix_x4, "")
TERN_LDMATRIX(tern_ldmatrix_x4_trans, ".trans")
#define TERN_MMA(name, type)                                                                                           \
    FN void name(float *d, const uint *a, const uint *b, const float *c) {                                             \
        asm("mma.sync.aligned." type                                                                                   \
            " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"                                     \
            : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])                                                           \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]),       \
              "f"(c[3]));                                                                                              \
    }
TERN_MMA(tern_mma_m16n8k16_f16, "m16n8k16.row.col.f32.f16.f16.f32")
TERN_MMA(tern_mma_m16n8k16_bf16, "m16n8k16.row.col.f32.bf16.bf16.f32")
TERN_MMA(tern_mma_m16n8k8_tf32, "m16n8k8.row.col.f32.tf32.tf32.f32")
FN uint tern_round_tf32(uint bits) { /* to nearest, ties away from zero */
    uint rounded;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(AS_F32(bits)));
    return rounded;
}
#endif

#define FRAGMENT_UNROLL  UNROLL
#define COPIES_END  tern_cp_async_commit()
#define COPIES_WAIT tern_cp_async_wait(1)
#define COPY(tile, to, RAW, AT, from)                                                                                  \
    if (((unsigned long long)AT(from) & 15u) == 0u) {                                                                  \
        tern_cp_async_16(&tile[to], AT(from), 16u);                                                                    \
    } else {                                                                                                           \
        COPY_WORDS(tile, to, RAW, from)                                                                                \
    }

#define FRAGMENTS_A(name, count)   uint name[count][4]
#define FRAGMENTS_B(name, count)   uint name[count][4]
#define FRAGMENTS_SUM(name, count) float name[count][8]
#define FRAGMENT_ZERO(sum) UNROLL for (uint r = 0u; r < 8u; r++) sum[r] = 0.0f;

#ifndef FRAGMENT_F32 /* the order of ldmatrix's four 8 x 8 matrices is that of the instruction's registers */
#define FRAGMENT_LOAD_A_ROWS(a, tile, start, ROW, m, k)                                                                \
    tern_ldmatrix_x4(a, &tile[LINE_AT(start, ROW, (m) + LANE % 16u, (k) + LANE / 16u * 8u)]);
#define FRAGMENT_LOAD_A_COLUMNS(a, tile, start, ROW, m, k)                                                             \
    tern_ldmatrix_x4_trans(a, &tile[LINE_AT(start, ROW, (k) + LANE / 16u * 8u + LANE % 8u, (m) + LANE / 8u % 2u * 8u)]);
#define FRAGMENT_LOAD_B_ROWS(b, tile, start, ROW, n, k)                                                                \
    tern_ldmatrix_x4_trans(b, &tile[LINE_AT(start, ROW, (k) + LANE % 16u, (n) + LANE / 16u * 8u)]);
#define FRAGMENT_LOAD_B_COLUMNS(b, tile, start, ROW, n, k)                                                             \
    tern_ldmatrix_x4(b, &tile[LINE_AT(start, ROW, (n) + LANE / 16u * 8u + LANE % 8u, (k) + LANE / 8u % 2u * 8u)]);
#else
/* Row (a) or column (b) and k of the element in register r. */
#define A_M(m, r) ((m) + LANE / 4u + (r) % 2u * 8u)
#define A_K(k, r) ((k) + LANE % 4u + (r) / 2u * 4u)
#define B_N(n, r) ((n) + LANE / 4u + (r) / 2u * 8u)
#define B_K(k, r) ((k) + LANE % 4u + (r) % 2u * 4u)
#define FRAGMENT_LOAD_A_ROWS(a, tile, start, ROW, m, k)                                                                \
    UNROLL for (uint r = 0u; r < 4u; r++) a[r] = tern_round_tf32(BITS_AT(tile, start, ROW, A_M(m, r), A_K(k, r)));
#define FRAGMENT_LOAD_A_COLUMNS(a, tile, start, ROW, m, k)                                                             \
    UNROLL for (uint r = 0u; r < 4u; r++) a[r] = tern_round_tf32(BITS_AT(tile, start, ROW, A_K(k, r), A_M(m, r)));
#define FRAGMENT_LOAD_B_ROWS(b, tile, start, ROW, n, k)                                                                \
    UNROLL for (uint r = 0u; r < 4u; r++) b[r] = tern_round_tf32(BITS_AT(tile, start, ROW, B_K(k, r), B_N(n, r)));
#define FRAGMENT_LOAD_B_COLUMNS(b, tile, start, ROW, n, k)                                                             \
    UNROLL for (uint r = 0u; r < 4u; r++) b[r] = tern_round_tf32(BITS_AT(tile, start, ROW, B_N(n, r), B_K(k, r)));
#endif

#if defined(FRAGMENT_F16)
#define MMA tern_mma_m16n8k16_f16
#elif defined(FRAGMENT_BF16)
#define MMA tern_mma_m16n8k16_bf16
#else
#define MMA tern_mma_m16n8k8_tf32
#endif
#define FRAGMENT_MULTIPLY_ADD(sum, a, b)                                                                               \
    MMA(&sum[0], a, &b[0], &sum[0]);                                                                                   \
    MMA(&sum[4], a, &b[2], &sum[4]);
/* Row and column of the sum in register r. */
#define SUM_M(r) (LANE / 4u + (r) / 2u % 2u * 8u)
#define SUM_N(r) (LANE % 4u * 2u + (r) % 2u + (r) / 4u * 8u)
#define FRAGMENT_STORE(sum, tile, start, ROW)                                                                          \
    UNROLL for (uint r = 0u; r < 8u; r++) tile[(start) + SUM_M(r) * (ROW) + SUM_N(r)] = AS_U32(sum[r]);
#define FRAGMENT_SCALE(sum, tile, start, ROW)                                                                          \
    UNROLL for (uint r = 0u; r < 8u; r++) sum[r] = sum[r] * AS_F32(tile[(start) + SUM_M(r) * (ROW)]);
