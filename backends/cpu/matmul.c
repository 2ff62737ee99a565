/* SPDX-License-Identifier: Apache-2.0 */
/* matmul.c - batched C = A B with any transposes and strides, cut into fixed tiles, with the fused epilogue on each
 * tile.
 *
 *     job 1 (when several tiles share B)   B's panels packed once: (K block, 2 vectors wide), rows contiguous
 *     job 2, per tile of 128 x 256         for each K block of 256: A's rows packed, register tiles over the panels;
 *                                          then the epilogue row by row while the tile is in the second cache
 *
 * Where the epilogue only stores, or adds to what is stored, and columns fill whole vectors, products go straight to
 * their place. Large tiles are computed by oneDNN instead where it was found (onednn.c): each call is one thread on one
 * tile. Invariant: a tile's bits depend on nothing outside the tile; tiles depend on the extents only. */
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/cpu.h"
#include "backends/cpu/onednn.h"

#define TILE_M         128u
#define TILE_N         256u
#define BLOCK_K        256u
#define A_PAD          16u /* keeps packed rows off a power of two, which would fall into few sets of the first cache */
#define SHARED_B_LIMIT (16u << 20)

typedef enum finish { FINISH_TAPE = 0, FINISH_STORE, FINISH_ADD } finish;

struct tern_cpu_matmul {
    const tern_cpu_isa *isa;
    uint32_t batch, M, N, K, a_batch, a_ld, b_batch, b_ld;
    bool a_transposed, b_transposed;
    finish finish;
    bool direct; /* products go to C without a copy of the tile */
    bool share_b;
    uint32_t c_tensor; /* FINISH_STORE, _ADD: among the step's ranges */
    int64_t c_offset, c_batch, c_ld;
    uint32_t m_tiles, n_tiles;
    uint32_t panel, panels, blocks; /* columns per panel; panels and K blocks of the whole of B */
    tern_cpu_nest *nest;
    tern_cpu_onednn *onednn; /* NULL: own loops */
};

typedef struct job {
    const tern_cpu_matmul *mm;
    const tern_cpu_range *range;
    float *shared_b;
} job;

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }
static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

/* ------------------------------------------------------------------ packing */

/* B(k0 .. k0 + K, n0 .. n0 + columns) as rows of `panel` floats; missing columns are 0. */
static void pack_panel(const tern_cpu_matmul *mm, const float *b, uint32_t k0, uint32_t K, uint32_t n0,
                       uint32_t columns, float *d)
{
    const uint32_t panel = mm->panel;
    if (columns < panel) memset(d, 0, sizeof(float) * K * panel);
    if (mm->b_transposed) {
        mm->isa->transpose(columns, K, b + (size_t)n0 * mm->b_ld + k0, mm->b_ld, d, panel);
        return;
    }
    const float *s = b + (size_t)k0 * mm->b_ld + n0;
    if (columns == panel && panel == 32) { /* a literal length: two or four vector moves instead of a call */
        for (uint32_t k = 0; k < K; k++, s += mm->b_ld, d += 32) memcpy(d, s, 32 * sizeof(float));
        return;
    }
    for (uint32_t k = 0; k < K; k++, s += mm->b_ld, d += panel) memcpy(d, s, columns * sizeof(float));
}

/* Where panel p of K block kb lies in the packed whole of B. */
static float *panel_at(const tern_cpu_matmul *mm, float *packed, uint32_t kb, uint32_t p)
{
    const uint32_t rows = least(BLOCK_K, mm->K - kb * BLOCK_K);
    return packed + ((size_t)kb * BLOCK_K * mm->panels + (size_t)p * rows) * mm->panel;
}

static void pack_tile(void *context, uint32_t tile, void *scratch)
{
    const job *j = context;
    const tern_cpu_matmul *mm = j->mm;
    (void)scratch;
    const uint32_t kb = tile / mm->panels, p = tile % mm->panels, k0 = kb * BLOCK_K, n0 = p * mm->panel;
    pack_panel(mm, j->range[1].data, k0, least(BLOCK_K, mm->K - k0), n0, least(mm->panel, mm->N - n0),
               panel_at(mm, j->shared_b, kb, p));
}

/* A(m0 .. m0 + M, k0 .. k0 + K) to d; how to walk it comes back in the two strides. */
static void pack_a(const tern_cpu_matmul *mm, const float *a, uint32_t m0, uint32_t M, uint32_t k0, uint32_t K,
                   float *d, size_t *row, size_t *column)
{
    if (mm->a_transposed) {
        const float *s = a + (size_t)k0 * mm->a_ld + m0;
        *row = 1, *column = TILE_M + A_PAD;
        for (uint32_t k = 0; k < K; k++) memcpy(d + k * *column, s + (size_t)k * mm->a_ld, M * sizeof(float));
        return;
    }
    const float *s = a + (size_t)m0 * mm->a_ld + k0;
    *row = BLOCK_K + A_PAD, *column = 1;
    for (uint32_t m = 0; m < M; m++) memcpy(d + m * *row, s + (size_t)m * mm->a_ld, K * sizeof(float));
}

/* -------------------------------------------------------------------- tiles */

/* C (M, N) at c, rows c_ld apart = or += the product; c's rows reach to a whole vector. */
static void own_product(const job *j, uint32_t b, uint32_t m0, uint32_t M, uint32_t n0, uint32_t N, float *c,
                        size_t c_ld, bool add, float *scratch)
{
    const tern_cpu_matmul *mm = j->mm;
    const float *a = (const float *)j->range[0].data + (size_t)b * mm->a_batch,
                *bs = (const float *)j->range[1].data + (size_t)b * mm->b_batch;
    float *packed_a = scratch, *packed_b = scratch + (TILE_M + A_PAD) * (BLOCK_K + A_PAD);
    const uint32_t lanes = mm->isa->lanes;
    for (uint32_t k0 = 0; k0 < mm->K; k0 += BLOCK_K) {
        const uint32_t K = least(BLOCK_K, mm->K - k0);
        size_t a_row, a_column;
        pack_a(mm, a, m0, M, k0, K, packed_a, &a_row, &a_column);
        for (uint32_t n = 0; n < N; n += mm->panel) {
            const uint32_t columns = least(mm->panel, N - n);
            const float *panel = packed_b;
            if (mm->share_b)
                panel = panel_at(mm, j->shared_b, k0 / BLOCK_K, (n0 + n) / mm->panel);
            else
                pack_panel(mm, bs, k0, K, n0 + n, columns, packed_b);
            mm->isa->gemm(M, (uint32_t)round_up(columns, lanes), K, packed_a, a_row, a_column, panel, mm->panel, c + n,
                          c_ld, add || k0 > 0);
        }
    }
}

static void finish_tile(const job *j, uint32_t b, uint32_t m0, uint32_t M, uint32_t n0, uint32_t N, const float *c,
                        size_t c_ld, void *scratch)
{
    const tern_cpu_matmul *mm = j->mm;
    if (mm->finish == FINISH_TAPE) {
        tern_cpu_lanes *s = tern_cpu_nest_begin(mm->nest, j->range + 2, scratch);
        for (uint32_t m = 0; m < M; m++) tern_cpu_nest_epilogue(s, b, m0 + m, n0, N, c + m * c_ld);
        return;
    }
    const tern_cpu_loop add = mm->isa->loop[TERN_TAPE_ADD][TERN_TYPE_F32][TERN_FORM_VV];
    for (uint32_t m = 0; m < M; m++) {
        float *d = (float *)j->range[mm->c_tensor].data +
                   (mm->c_offset + (int64_t)b * mm->c_batch + (int64_t)(m0 + m) * mm->c_ld + n0);
        if (mm->finish == FINISH_ADD)
            add(N, d, d, c + m * c_ld, NULL, 0);
        else
            memcpy(d, c + m * c_ld, N * sizeof(float));
    }
}

static size_t tile_floats(void) { return TILE_M * (TILE_N + A_PAD); }
static size_t own_floats(uint32_t panel) { return (TILE_M + A_PAD) * (BLOCK_K + A_PAD) + (size_t)BLOCK_K * panel; }

static void matmul_tile(void *context, uint32_t tile, void *scratch)
{
    const job *j = context;
    const tern_cpu_matmul *mm = j->mm;
    const uint32_t nt = tile % mm->n_tiles, mt = tile / mm->n_tiles % mm->m_tiles, b = tile / mm->n_tiles / mm->m_tiles;
    const uint32_t m0 = mt * TILE_M, n0 = nt * TILE_N, M = least(TILE_M, mm->M - m0), N = least(TILE_N, mm->N - n0);
    float *c = scratch, *work = c + tile_floats();
    size_t c_ld = TILE_N + A_PAD;
    if (mm->direct) {
        c = (float *)j->range[mm->c_tensor].data +
            (mm->c_offset + (int64_t)b * mm->c_batch + (int64_t)m0 * mm->c_ld + n0);
        c_ld = (size_t)mm->c_ld;
    }
    const bool add = mm->direct && mm->finish == FINISH_ADD;
    if (mm->onednn) {
        const float *a =
            (const float *)j->range[0].data + (size_t)b * mm->a_batch + (mm->a_transposed ? m0 : (size_t)m0 * mm->a_ld);
        const float *bs =
            (const float *)j->range[1].data + (size_t)b * mm->b_batch + (mm->b_transposed ? (size_t)n0 * mm->b_ld : n0);
        tern_cpu_onednn_run(mm->onednn, M < TILE_M, N < TILE_N, a, bs, c, work);
    } else {
        own_product(j, b, m0, M, n0, N, c, c_ld, add, work);
    }
    if (!mm->direct) finish_tile(j, b, m0, M, n0, N, c, c_ld, work);
}

/* -------------------------------------------------------------- preparation */

static bool same_access(const tern_cpu_access *a, const tern_cpu_access *b)
{
    return a->tensor == b->tensor && a->offset == b->offset && a->stride[0] == b->stride[0] &&
           a->stride[1] == b->stride[1] && a->stride[2] == b->stride[2] && a->mask_count == 0 && b->mask_count == 0;
}

/* STORE of ACC, or of ACC plus what stands there already, to f32 rows without gaps: no tape is needed. */
static void find_finish(tern_cpu_matmul *mm, const tern_tape *tape)
{
    const tern_tape_insn *insn = tape->insn;
    uint32_t acc = TERN_TAPE_NONE, load = TERN_TAPE_NONE, sum = TERN_TAPE_NONE, store = TERN_TAPE_NONE;
    for (uint32_t i = 0; i < tape->insn_count; i++) {
        if (insn[i].op == TERN_TAPE_ACC && acc == TERN_TAPE_NONE)
            acc = i;
        else if (insn[i].op == TERN_TAPE_LOAD && insn[i].in[0] == TERN_TAPE_NONE && load == TERN_TAPE_NONE)
            load = i;
        else if (insn[i].op == TERN_TAPE_ADD && sum == TERN_TAPE_NONE)
            sum = i;
        else if (insn[i].op == TERN_TAPE_STORE && store == TERN_TAPE_NONE)
            store = i;
        else
            return;
    }
    if (acc == TERN_TAPE_NONE || store == TERN_TAPE_NONE) return;
    const tern_cpu_access *to = &mm->nest->access[insn[store].access];
    if (tape->tensors[to->tensor].dtype != TERN_F32 || (to->stride[2] != 1 && mm->N > 1) || to->stride[1] < 0) return;
    if (tape->insn_count == 2 && insn[store].in[0] == acc) {
        mm->finish = FINISH_STORE;
    } else if (tape->insn_count == 4 && sum != TERN_TAPE_NONE && load != TERN_TAPE_NONE && insn[store].in[0] == sum) {
        const bool both =
            (insn[sum].in[0] == acc && insn[sum].in[1] == load) || (insn[sum].in[0] == load && insn[sum].in[1] == acc);
        if (!both || !same_access(to, &mm->nest->access[insn[load].access])) return;
        mm->finish = FINISH_ADD;
    } else {
        return;
    }
    mm->c_tensor = 2 + to->tensor;
    mm->c_offset = to->offset, mm->c_batch = to->stride[0], mm->c_ld = to->stride[1];
    mm->direct = mm->N % mm->isa->lanes == 0;
}

tern_status tern_cpu_matmul_create(const tern_cpu_isa *isa, const tern_kernel_desc *desc, const uint32_t *words,
                                   uint32_t threads, tern_cpu_step *step)
{
    tern_status status = TERN_OK;
    TERN_TRY(tern_cpu_need_words(desc, 2));
    tern_cpu_matmul *mm = calloc(1, sizeof *mm);
    step->matmul = mm;
    if (!mm) return tern_error_memory("a matmul", sizeof *mm);
    mm->isa = isa;
    mm->batch = words[TERN_WORD_BATCH], mm->M = words[TERN_WORD_M], mm->N = words[TERN_WORD_N],
    mm->K = words[TERN_WORD_K];
    mm->a_batch = words[TERN_WORD_A_BATCH], mm->a_ld = words[TERN_WORD_A_LD];
    mm->b_batch = words[TERN_WORD_B_BATCH], mm->b_ld = words[TERN_WORD_B_LD];
    mm->a_transposed = desc->a_transposed, mm->b_transposed = desc->b_transposed;
    if (mm->batch == 0 || mm->M == 0 || mm->N == 0 || mm->K == 0)
        return tern_error(TERN_ERROR_INVALID, "matmul of batch %u, M %u, N %u, K %u: no extent may be 0", mm->batch,
                          mm->M, mm->N, mm->K);
    TERN_TRY(tern_cpu_nest_create(isa, &desc->tape, words, step->range + 2, true, &mm->nest));
    find_finish(mm, &desc->tape);
    mm->m_tiles = (mm->M + TILE_M - 1) / TILE_M, mm->n_tiles = (mm->N + TILE_N - 1) / TILE_N;
    mm->panel = isa->gemm_columns;
    mm->panels = (mm->N + mm->panel - 1) / mm->panel, mm->blocks = (mm->K + BLOCK_K - 1) / BLOCK_K;
    const tern_cpu_onednn_shape shape = {.M = mm->M,
                                         .N = mm->N,
                                         .K = mm->K,
                                         .tile_m = TILE_M,
                                         .tile_n = TILE_N,
                                         .a_ld = mm->a_ld,
                                         .b_ld = mm->b_ld,
                                         .c_ld = mm->direct ? (uint32_t)mm->c_ld : TILE_N + A_PAD,
                                         .a_transposed = mm->a_transposed,
                                         .b_transposed = mm->b_transposed,
                                         .add = mm->direct && mm->finish == FINISH_ADD,
                                         .threads = threads};
    TERN_TRY(tern_cpu_onednn_create(&shape, &mm->onednn));
    const size_t packed = (size_t)mm->K * mm->panels * mm->panel * sizeof(float);
    mm->share_b =
        !mm->onednn && (mm->batch == 1 || mm->b_batch == 0) && mm->m_tiles * mm->batch > 1 && packed <= SHARED_B_LIMIT;
    if (mm->share_b) step->shared_bytes = packed;
    size_t work = own_floats(mm->panel) * sizeof(float);
    if (tern_cpu_onednn_scratch(mm->onednn) > work) work = tern_cpu_onednn_scratch(mm->onednn);
    if (mm->nest->scratch_bytes > work) work = mm->nest->scratch_bytes;
    step->scratch_bytes = tile_floats() * sizeof(float) + work;
    return TERN_OK;
fail:
    return status; /* what was made hangs on the step, which its program destroys */
}

void tern_cpu_matmul_run(const tern_cpu_step *step, tern_cpu_pool *pool, void *shared)
{
    const tern_cpu_matmul *mm = step->matmul;
    job j = {.mm = mm, .range = step->range, .shared_b = shared};
    if (mm->share_b) tern_cpu_pool_run(pool, mm->blocks * mm->panels, pack_tile, &j);
    tern_cpu_pool_run(pool, mm->batch * mm->m_tiles * mm->n_tiles, matmul_tile, &j);
}

void tern_cpu_matmul_destroy(tern_cpu_matmul *mm)
{
    if (!mm) return;
    tern_cpu_nest_destroy(mm->nest);
    tern_cpu_onednn_destroy(mm->onednn);
    free(mm);
}
