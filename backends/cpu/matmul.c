/* SPDX-License-Identifier: Apache-2.0 */
/* matmul.c - batched C = A B with any transposes and strides, cut into fixed tiles, with the fused epilogue on each
 * tile.
 *
 *     job 1 (when several tiles share B)   B's panels packed once: (K block, 2 vectors wide), rows contiguous
 *     job 2, per tile of 128 x 256         for each K block of 256: A's rows packed, register tiles over the panels;
 *                                          then the epilogue row by row while the tile is in the second cache
 *
 * f16 and bf16 operands become f32 while they are packed (exactly: every product then is f32's own), so all sums are
 * the f32 ones. Where the epilogue only stores, or adds to what is stored, and columns fill whole vectors, products go
 * straight to their place. Large tiles are computed by oneDNN instead where it was found (onednn.c): each call is one
 * thread on one tile, or, for 16-bit operands, on one K block of a tile whose operands were widened into scratch.
 * Invariant: a tile's bits depend on nothing outside the tile; tiles depend on the extents only. */
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/cpu.h"
#include "backends/cpu/onednn.h"
#include "core/base/dtype.h"

#define TILE_M         128u
#define TILE_N         256u
#define BLOCK_K        256u
#define A_PAD          16u /* keeps packed rows off a power of two, which would fall into few sets of the first cache */
#define SHARED_B_LIMIT (16u << 20)
#define WIDENED_K      1024u /* most of K that oneDNN gets of 16-bit operands at once: 1.5 MiB of f32 */

typedef enum finish { FINISH_TAPE = 0, FINISH_STORE, FINISH_ADD } finish;

/* A as rows over m or, transposed, over k; B as rows over k or, transposed, over n. */
typedef struct matrix {
    uint32_t dtype, bytes; /* f32, f16 or bf16; bytes per element */
    uint32_t batch, ld;
    bool transposed;
} matrix;

/* oneDNN computes K in blocks: one, or for 16-bit operands a few; each block but the first adds. */
enum { FIRST = 0, MIDDLE, LAST, BLOCK_KINDS };

struct tern_cpu_matmul {
    const tern_cpu_isa *isa;
    uint32_t batch, M, N, K;
    matrix a, b;
    finish finish;
    bool direct; /* products go to C without a copy of the tile */
    bool share_b;
    uint32_t c_tensor; /* FINISH_STORE, _ADD: among the step's ranges */
    int64_t c_offset, c_batch, c_ld;
    uint32_t m_tiles, n_tiles;
    uint32_t panel, panels, blocks; /* columns per panel; panels and K blocks of the whole of B */
    tern_cpu_nest *nest;
    tern_cpu_onednn *onednn[BLOCK_KINDS]; /* [FIRST] NULL: own loops */
    uint32_t one_k, one_blocks;           /* oneDNN's K block and how many there are */
};

typedef struct job {
    const tern_cpu_matmul *mm;
    const tern_cpu_range *range;
    float *shared_b;
} job;

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }
static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

static bool is_narrow(const matrix *m) { return m->dtype != TERN_F32; }

/* Element (row, column) of a batch in memory, rows as they are stored. */
static const void *element(const job *j, uint32_t operand, uint32_t batch, uint32_t row, uint32_t column)
{
    const matrix *m = operand == 0 ? &j->mm->a : &j->mm->b;
    return (const char *)j->range[operand].data + ((size_t)batch * m->batch + (size_t)row * m->ld + column) * m->bytes;
}

/* ------------------------------------------------------------------ packing */

/* rows x columns from s, as they are stored, to f32 rows d_ld apart. */
static void widen_rows(const tern_cpu_isa *isa, const matrix *m, const void *s, uint32_t rows, uint32_t columns,
                       float *d, size_t d_ld)
{
    const char *from = s;
    for (uint32_t r = 0; r < rows; r++, from += (size_t)m->ld * m->bytes, d += d_ld)
        isa->widen[m->dtype](columns, d, from, 1);
}

/* B(k0 .. k0 + K, n0 .. n0 + columns) as rows of `panel` floats; missing columns are 0. wide: room for a panel. */
static void pack_panel(const job *j, uint32_t batch, uint32_t k0, uint32_t K, uint32_t n0, uint32_t columns, float *d,
                       float *wide)
{
    const tern_cpu_matmul *mm = j->mm;
    const uint32_t panel = mm->panel;
    if (columns < panel) memset(d, 0, sizeof(float) * K * panel);
    if (mm->b.transposed) {
        const float *s = element(j, 1, batch, n0, k0);
        size_t ld = mm->b.ld;
        if (is_narrow(&mm->b)) {
            widen_rows(mm->isa, &mm->b, s, columns, K, wide, K);
            s = wide, ld = K;
        }
        mm->isa->transpose(columns, K, s, ld, d, panel);
        return;
    }
    const float *s = element(j, 1, batch, k0, n0);
    if (!is_narrow(&mm->b) && columns == panel && panel == 32) {
        /* a literal length: two or four vector moves instead of a call */
        for (uint32_t k = 0; k < K; k++, s += mm->b.ld, d += 32) memcpy(d, s, 32 * sizeof(float));
        return;
    }
    widen_rows(mm->isa, &mm->b, s, K, columns, d, panel);
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
    const uint32_t kb = tile / mm->panels, p = tile % mm->panels, k0 = kb * BLOCK_K, n0 = p * mm->panel;
    pack_panel(j, 0, k0, least(BLOCK_K, mm->K - k0), n0, least(mm->panel, mm->N - n0), panel_at(mm, j->shared_b, kb, p),
               scratch);
}

/* A(m0 .. m0 + M, k0 .. k0 + K) to d; how to walk it comes back in the two strides. */
static void pack_a(const job *j, uint32_t batch, uint32_t m0, uint32_t M, uint32_t k0, uint32_t K, float *d,
                   size_t *row, size_t *column)
{
    const tern_cpu_matmul *mm = j->mm;
    if (mm->a.transposed) {
        *row = 1, *column = TILE_M + A_PAD;
        widen_rows(mm->isa, &mm->a, element(j, 0, batch, k0, m0), K, M, d, *column);
    } else {
        *row = BLOCK_K + A_PAD, *column = 1;
        widen_rows(mm->isa, &mm->a, element(j, 0, batch, m0, k0), M, K, d, *row);
    }
}

/* -------------------------------------------------------------------- tiles */

/* Rows of a widened operand: padded off powers of two. */
static uint32_t onednn_ld(const tern_cpu_matmul *mm, uint32_t operand)
{
    const matrix *m = operand == 0 ? &mm->a : &mm->b;
    if (!is_narrow(m)) return m->ld;
    if (operand == 0) return (m->transposed ? TILE_M : mm->one_k) + A_PAD;
    return (m->transposed ? mm->one_k : TILE_N) + A_PAD;
}

static size_t widened_floats(const tern_cpu_matmul *mm, uint32_t operand)
{
    if (!is_narrow(operand == 0 ? &mm->a : &mm->b)) return 0;
    return ((operand == 0 ? TILE_M : TILE_N) + A_PAD) * ((size_t)mm->one_k + A_PAD);
}

/* C (M, N) at c, rows c_ld apart = or += the product; c's rows reach to a whole vector. */
static void own_product(const job *j, uint32_t b, uint32_t m0, uint32_t M, uint32_t n0, uint32_t N, float *c,
                        size_t c_ld, bool add, float *scratch)
{
    const tern_cpu_matmul *mm = j->mm;
    float *packed_a = scratch, *packed_b = packed_a + (TILE_M + A_PAD) * (BLOCK_K + A_PAD),
          *wide = packed_b + BLOCK_K * mm->panel;
    const uint32_t lanes = mm->isa->lanes;
    for (uint32_t k0 = 0; k0 < mm->K; k0 += BLOCK_K) {
        const uint32_t K = least(BLOCK_K, mm->K - k0);
        size_t a_row, a_column;
        pack_a(j, b, m0, M, k0, K, packed_a, &a_row, &a_column);
        for (uint32_t n = 0; n < N; n += mm->panel) {
            const uint32_t columns = least(mm->panel, N - n);
            const float *panel = packed_b;
            if (mm->share_b)
                panel = panel_at(mm, j->shared_b, k0 / BLOCK_K, (n0 + n) / mm->panel);
            else
                pack_panel(j, b, k0, K, n0 + n, columns, packed_b, wide);
            mm->isa->gemm(M, (uint32_t)round_up(columns, lanes), K, packed_a, a_row, a_column, panel, mm->panel, c + n,
                          c_ld, add || k0 > 0);
        }
    }
}

/* Where oneDNN finds `rows` x `columns` of an operand from (row, column) on, as they are stored: in place, or widened
 * to d. */
static const float *onednn_operand(const job *j, uint32_t operand, uint32_t batch, uint32_t row, uint32_t rows,
                                   uint32_t column, uint32_t columns, float *d)
{
    const matrix *m = operand == 0 ? &j->mm->a : &j->mm->b;
    const void *s = element(j, operand, batch, row, column);
    if (!is_narrow(m)) return s;
    widen_rows(j->mm->isa, m, s, rows, columns, d, onednn_ld(j->mm, operand));
    return d;
}

static void onednn_product(const job *j, uint32_t b, uint32_t m0, uint32_t M, uint32_t n0, uint32_t N, float *c,
                           float *scratch)
{
    const tern_cpu_matmul *mm = j->mm;
    float *wide_a = scratch, *wide_b = wide_a + widened_floats(mm, 0), *work = wide_b + widened_floats(mm, 1);
    for (uint32_t block = 0; block < mm->one_blocks; block++) {
        const uint32_t k0 = block * mm->one_k, K = least(mm->one_k, mm->K - k0);
        const float *a = mm->a.transposed ? onednn_operand(j, 0, b, k0, K, m0, M, wide_a)
                                          : onednn_operand(j, 0, b, m0, M, k0, K, wide_a);
        const float *bs = mm->b.transposed ? onednn_operand(j, 1, b, n0, N, k0, K, wide_b)
                                           : onednn_operand(j, 1, b, k0, K, n0, N, wide_b);
        const uint32_t kind = block == 0 ? FIRST : block + 1 < mm->one_blocks ? MIDDLE : LAST;
        tern_cpu_onednn_run(mm->onednn[kind], M < TILE_M, N < TILE_N, a, bs, c, work);
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
static size_t own_floats(uint32_t panel) { return (TILE_M + A_PAD) * (BLOCK_K + A_PAD) + 2 * (size_t)BLOCK_K * panel; }

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
    if (mm->onednn[FIRST])
        onednn_product(j, b, m0, M, n0, N, c, work);
    else
        own_product(j, b, m0, M, n0, N, c, c_ld, add, work);
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

static matrix matrix_of(const tern_kernel_desc *desc, uint32_t operand, const uint32_t *words)
{
    const uint8_t dtype = desc->tensors[operand].dtype;
    return (matrix){.dtype = dtype,
                    .bytes = (uint32_t)tern_dtype_bytes(dtype, 1),
                    .batch = words[operand == 0 ? TERN_WORD_A_BATCH : TERN_WORD_B_BATCH],
                    .ld = words[operand == 0 ? TERN_WORD_A_LD : TERN_WORD_B_LD],
                    .transposed = operand == 0 ? desc->a_transposed : desc->b_transposed};
}

/* All kinds of K block or, where one of them is too small to pay, none. */
static tern_status create_onednn(tern_cpu_matmul *mm, uint32_t threads)
{
    tern_status status = TERN_OK;
    const bool narrow = is_narrow(&mm->a) || is_narrow(&mm->b);
    mm->one_blocks = narrow ? (mm->K + WIDENED_K - 1) / WIDENED_K : 1;
    mm->one_k = mm->one_blocks == 1 ? mm->K : (uint32_t)round_up((mm->K + mm->one_blocks - 1) / mm->one_blocks, 16);
    if (mm->one_blocks > 1) mm->one_blocks = (mm->K + mm->one_k - 1) / mm->one_k;
    const uint32_t rest = mm->K - (mm->one_blocks - 1) * mm->one_k;
    const bool add = mm->direct && mm->finish == FINISH_ADD;
    const struct {
        bool used, add;
        uint32_t K;
    } kinds[BLOCK_KINDS] = {{true, add, mm->one_blocks == 1 ? rest : mm->one_k},
                            {mm->one_blocks > 2, true, mm->one_k},
                            {mm->one_blocks > 1, true, rest}};
    bool all = true;
    for (uint32_t i = 0; i < BLOCK_KINDS && all; i++) {
        const tern_cpu_onednn_shape shape = {.M = mm->M,
                                             .N = mm->N,
                                             .K = kinds[i].K,
                                             .tile_m = TILE_M,
                                             .tile_n = TILE_N,
                                             .a_ld = onednn_ld(mm, 0),
                                             .b_ld = onednn_ld(mm, 1),
                                             .c_ld = mm->direct ? (uint32_t)mm->c_ld : TILE_N + A_PAD,
                                             .a_transposed = mm->a.transposed,
                                             .b_transposed = mm->b.transposed,
                                             .add = kinds[i].add,
                                             .threads = threads};
        if (kinds[i].used) TERN_TRY(tern_cpu_onednn_create(&shape, &mm->onednn[i]));
        all = !kinds[i].used || mm->onednn[i];
    }
    for (uint32_t i = 0; i < BLOCK_KINDS && !all; i++) {
        tern_cpu_onednn_destroy(mm->onednn[i]);
        mm->onednn[i] = NULL;
    }
fail:
    return status;
}

static size_t greater(size_t a, size_t b) { return a > b ? a : b; }

/* Bytes of one thread behind its tile of C. */
static size_t work_bytes(const tern_cpu_matmul *mm)
{
    size_t one = 0;
    for (uint32_t i = 0; i < BLOCK_KINDS; i++) one = greater(one, tern_cpu_onednn_scratch(mm->onednn[i]));
    if (mm->onednn[FIRST]) one += (widened_floats(mm, 0) + widened_floats(mm, 1)) * sizeof(float);
    return greater(greater(one, own_floats(mm->panel) * sizeof(float)), mm->nest->scratch_bytes);
}

tern_status tern_cpu_matmul_create(const tern_cpu_isa *isa, const tern_kernel_desc *desc, const uint32_t *words,
                                   uint32_t threads, tern_cpu_step *step)
{
    tern_status status = TERN_OK;
    TERN_TRY(tern_cpu_dtypes_check(desc));
    tern_cpu_matmul *mm = calloc(1, sizeof *mm);
    step->matmul = mm;
    if (!mm) return tern_error_memory("a matmul", sizeof *mm);
    mm->isa = isa;
    mm->batch = words[TERN_WORD_BATCH], mm->M = words[TERN_WORD_M], mm->N = words[TERN_WORD_N],
    mm->K = words[TERN_WORD_K];
    mm->a = matrix_of(desc, 0, words), mm->b = matrix_of(desc, 1, words);
    if (mm->batch == 0 || mm->M == 0 || mm->N == 0 || mm->K == 0)
        return tern_error(TERN_ERROR_INVALID, "matmul of batch %u, M %u, N %u, K %u: no extent may be 0", mm->batch,
                          mm->M, mm->N, mm->K);
    TERN_TRY(tern_cpu_nest_create(isa, &desc->tape, words, step->range + 2, true, &mm->nest));
    find_finish(mm, &desc->tape);
    mm->m_tiles = (mm->M + TILE_M - 1) / TILE_M, mm->n_tiles = (mm->N + TILE_N - 1) / TILE_N;
    mm->panel = isa->gemm_columns;
    mm->panels = (mm->N + mm->panel - 1) / mm->panel, mm->blocks = (mm->K + BLOCK_K - 1) / BLOCK_K;
    TERN_TRY(create_onednn(mm, threads));
    const size_t packed = (size_t)mm->K * mm->panels * mm->panel * sizeof(float);
    mm->share_b = !mm->onednn[FIRST] && (mm->batch == 1 || mm->b.batch == 0) && mm->m_tiles * mm->batch > 1 &&
                  packed <= SHARED_B_LIMIT;
    if (mm->share_b) step->shared_bytes = packed;
    step->scratch_bytes = tile_floats() * sizeof(float) + work_bytes(mm);
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
    for (uint32_t i = 0; i < BLOCK_KINDS; i++) tern_cpu_onednn_destroy(mm->onednn[i]);
    free(mm);
}
