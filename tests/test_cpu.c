/* SPDX-License-Identifier: Apache-2.0 */
/* test_cpu.c - what only the cpu backend promises: the same bits for any number of threads, the same values on every
 * instruction set, and every way in which it walks a tape.
 *
 * Each case runs on five devices: 1, 2 and 3 threads with the machine's best instruction set (bits must be equal), and
 * 2 threads with AVX2 and with the baseline (values must be right). The expected value comes from plain loops in
 * double. What all backends share is asked by test_conformance_*. */
#include "tests/conformance.h"

#include <stdlib.h>

#include "core/base/dtype.h"

#define READ   TERN_ACCESS_READ
#define WRITE  TERN_ACCESS_WRITE
#define UPDATE (TERN_ACCESS_READ | TERN_ACCESS_WRITE)

enum { DEVICES = 5 };
static conformance devices[DEVICES];

static int open_devices(void **state)
{
    static const struct {
        uint32_t threads;
        const char *isa;
    } wanted[DEVICES] = {{1, "avx512"}, {2, "avx512"}, {3, "avx512"}, {2, "avx2"}, {2, "baseline"}};
    (void)state;
    for (int i = 0; i < DEVICES; i++) {
        const tern_open_options options = {.threads = wanted[i].threads};
        setenv("TERN_CPU_ISA", wanted[i].isa, 1);
        if (tern_device_open_with("cpu", &options, &devices[i].device) < 0) {
            print_error("%s\n", tern_error_message());
            return -1;
        }
        devices[i].name = "cpu", devices[i].backend = devices[i].device->backend,
        devices[i].handle = devices[i].device->handle;
    }
    unsetenv("TERN_CPU_ISA");
    return 0;
}
static int close_devices(void **state)
{
    (void)state;
    for (int i = 0; i < DEVICES; i++) tern_device_close(devices[i].device);
    return 0;
}

static void *copy_of(const void *data, size_t bytes)
{
    void *copy = malloc(bytes ? bytes : 1);
    assert_non_null(copy);
    memcpy(copy, data, bytes);
    return copy;
}
static float *floats(size_t count, uint64_t seed)
{
    float *data = malloc(count * sizeof *data);
    assert_non_null(data);
    conformance_fill(data, count, seed);
    return data;
}
static double *doubles(size_t count)
{
    double *data = calloc(count, sizeof *data);
    assert_non_null(data);
    return data;
}

/* Dispatches on every device from the same content; arrays end as the two-thread device left them. `check` sees each
 * device's. */
static void on_all(const tern_kernel_desc *desc, const uint32_t *words, conformance_array *arrays,
                   void (*check)(const conformance_array *, void *), void *context)
{
    void *first[TERN_TAPE_TENSORS], *start[TERN_TAPE_TENSORS];
    for (uint32_t i = 0; i < desc->tensor_count; i++) start[i] = copy_of(arrays[i].data, arrays[i].bytes);
    for (int d = 0; d < DEVICES; d++) {
        conformance_array mine[TERN_TAPE_TENSORS];
        for (uint32_t i = 0; i < desc->tensor_count; i++)
            mine[i] = (conformance_array){copy_of(start[i], arrays[i].bytes), arrays[i].bytes};
        tern_kernel_desc chosen = *desc;
        conformance_choose(&devices[d], words, &chosen);
        conformance_dispatch(&devices[d], &chosen, words, mine);
        check(mine, context);
        for (uint32_t i = 0; i < desc->tensor_count; i++) {
            if (d == 0)
                first[i] = copy_of(mine[i].data, mine[i].bytes);
            else if (d < 3 && memcmp(first[i], mine[i].data, mine[i].bytes) != 0)
                fail_msg("argument %u: other bits with %d threads than with 1", i, d + 1);
            if (d == 1) memcpy(arrays[i].data, mine[i].data, mine[i].bytes);
            free(mine[i].data);
        }
    }
    for (uint32_t i = 0; i < desc->tensor_count; i++) free(first[i]), free(start[i]);
}

typedef struct wanted {
    uint32_t argument;
    const double *values;
    size_t count;
    double tolerance;
    const char *what;
} wanted;
static void check_wanted(const conformance_array *arrays, void *context)
{
    for (const wanted *w = context; w->values; w++) {
        const double error = test_relative_error(arrays[w->argument].data, w->values, w->count, 1e-6);
        if (!(error <= w->tolerance))
            fail_msg("%s: error %.3g of the norm, allowed %.3g", w->what, error, w->tolerance);
    }
}

/* ------------------------------------------------------------------ matmul */

static double gelu(double x) { return 0.5 * x * (1 + erf(x * 0.70710678118654752)); }

/* (batch, m, n) with bias over n, GELU, a residual: what a transformer's linear layers fuse. */
static void epilogue_tape(tape_maker *m)
{
    tape_maker_start(m, 3, 0, 1);
    const uint32_t bias = tape_maker_tensor(m, TERN_F32, READ), residual = tape_maker_tensor(m, TERN_F32, READ),
                   y = tape_maker_tensor(m, TERN_F32, WRITE);
    const uint16_t acc = tape_maker_insn(m, (tern_tape_insn){.op = TERN_TAPE_ACC, .type = TERN_F32});
    const uint16_t x = tape_maker_op(m, TERN_TAPE_ADD, acc, tape_maker_load(m, bias, 4));
    const uint16_t e =
        tape_maker_op(m, TERN_TAPE_ERF, tape_maker_op(m, TERN_TAPE_MUL, x, tape_maker_constant(m, 0.70710678f)), NO);
    const uint16_t half = tape_maker_op(m, TERN_TAPE_MUL, x, tape_maker_constant(m, 0.5f));
    const uint16_t g =
        tape_maker_op(m, TERN_TAPE_MUL, half, tape_maker_op(m, TERN_TAPE_ADD, e, tape_maker_constant(m, 1.0f)));
    tape_maker_store(m, y, 7, tape_maker_op(m, TERN_TAPE_ADD, g, tape_maker_load(m, residual, 7)));
}
static void accumulate_tape(tape_maker *m)
{
    tape_maker_start(m, 3, 0, 1);
    const uint32_t y = tape_maker_tensor(m, TERN_F32, UPDATE);
    const uint16_t acc = tape_maker_insn(m, (tern_tape_insn){.op = TERN_TAPE_ACC, .type = TERN_F32});
    tape_maker_store(m, y, 7, tape_maker_op(m, TERN_TAPE_ADD, tape_maker_load(m, y, 7), acc));
}

static void matmul_case(uint32_t batch, uint32_t M, uint32_t N, uint32_t K, bool ta, bool tb, bool accumulate)
{
    tape_maker m;
    tern_kernel_desc desc;
    const tern_tape_tensor own[2] = {{TERN_F32, READ}, {TERN_F32, READ}};
    if (accumulate)
        accumulate_tape(&m);
    else
        epilogue_tape(&m);
    tape_maker_contraction(&m, TERN_KERNEL_MATMUL, 2, own, TERN_MATMUL_WORDS, &desc);
    desc.a_transposed = ta, desc.b_transposed = tb;
    const uint32_t a_ld = (ta ? M : K) + 3, b_ld = (tb ? K : N) + 1, a_batch = (ta ? K : M) * a_ld,
                   b_batch = (tb ? N : K) * b_ld;
    const uint32_t words[TERN_MATMUL_WORDS] = {batch, M, N, K, a_batch, a_ld, b_batch, b_ld};
    const size_t count = (size_t)batch * M * N, a_count = (size_t)batch * a_batch, b_count = (size_t)batch * b_batch;
    float *a = floats(a_count, 1), *b = floats(b_count, 2), *bias = floats(N, 3), *residual = floats(count, 4),
          *y = floats(count, 5);
    double *expected = doubles(count);
    for (size_t z = 0, i = 0; z < batch; z++)
        for (size_t r = 0; r < M; r++)
            for (size_t c = 0; c < N; c++, i++) {
                double sum = 0;
                for (size_t k = 0; k < K; k++)
                    sum += (double)a[z * a_batch + (ta ? k * a_ld + r : r * a_ld + k)] *
                           (double)b[z * b_batch + (tb ? c * b_ld + k : k * b_ld + c)];
                expected[i] = accumulate ? sum + (double)y[i] : gelu(sum + (double)bias[c]) + (double)residual[i];
            }
    char what[96];
    snprintf(what, sizeof what, "matmul %u x %ux%ux%u%s%s%s", batch, M, N, K, ta ? " A^T" : "", tb ? " B^T" : "",
             accumulate ? " +=" : "");
    wanted check[2] = {{accumulate ? 2 : 4, expected, count, 2e-6, what}};
    conformance_array full[5] = {
        {a, a_count * 4}, {b, b_count * 4}, {bias, N * 4}, {residual, count * 4}, {y, count * 4}};
    conformance_array short_[3] = {full[0], full[1], full[4]};
    on_all(&desc, words, accumulate ? short_ : full, check_wanted, check);
    free(a), free(b), free(bias), free(residual), free(y), free(expected);
}

static void matmul_odd_shapes(void **state)
{
    static const uint32_t sizes[] = {1, 31, 33, 65, 127, 257};
    (void)state;
    uint64_t seed = 9;
    for (uint32_t i = 0; i < 36; i++) {
        const uint32_t M = sizes[i / 6], N = sizes[i % 6],
                       K = sizes[(uint32_t)(fabsf(conformance_random(&seed)) * 5.99f)];
        matmul_case(1, M, N, K, i & 1, i >> 1 & 1, i % 3 == 0);
    }
}
/* Several tiles each way, whole vectors and ragged ends, more than one K block; with oneDNN these are its tiles. */
static void matmul_tiles(void **state)
{
    (void)state;
    matmul_case(1, 300, 520, 300, false, true, false);
    matmul_case(1, 256, 512, 257, false, false, true);
    matmul_case(1, 144, 272, 530, true, false, true);
    matmul_case(1, 129, 257, 64, true, true, false);
    matmul_case(3, 65, 48, 40, false, true, true);
    matmul_case(2, 33, 20, 7, true, false, false);
}

/* --------------------------------------------------------------- attention */

/* Longer than one tile of 64 each way, so that online maxima move between tiles and whole tiles are masked. */
static void attention_case(uint32_t B, uint32_t H, uint32_t Tq, uint32_t Tk, uint32_t D, bool causal)
{
    const uint32_t C = H * D, ld = 3 * C; /* q, k, v of one packed projection */
    const size_t rows = (size_t)B * Tq * H, T = Tq > Tk ? Tq : Tk, packed_count = (size_t)B * T * ld;
    float *packed = floats(packed_count, 1), *dout = floats(rows * D, 2), *o = floats(rows * D, 3),
          *lse = floats(rows, 4), *delta = floats(rows, 5);
    float *dk = floats((size_t)B * Tk * C, 6), *dv = floats((size_t)B * Tk * C, 7), scale = 2.0f / sqrtf((float)D);
    double *po = doubles(rows * D), *pl = doubles(rows), *pdq = doubles(rows * D), *pdk = doubles((size_t)B * Tk * C),
           *pdv = doubles((size_t)B * Tk * C);
    double *s = doubles(Tk), *dp = doubles(Tk);
    for (size_t i = 0; i < packed_count; i++) packed[i] *= 2;
    for (size_t b = 0; b < B; b++)
        for (size_t h = 0; h < H; h++)
            for (size_t t = 0; t < Tq; t++) {
                const float *q = packed + (b * T + t) * ld + h * D, *k = packed + b * T * ld + C + h * D, *v = k + C;
                const size_t row = (b * Tq + t) * H + h, seen = causal ? t + 1 : Tk;
                double top = -INFINITY, sum = 0, mean = 0;
                for (size_t j = 0; j < seen; j++) {
                    s[j] = dp[j] = 0;
                    for (size_t d = 0; d < D; d++)
                        s[j] += (double)scale * (double)q[d] * (double)k[j * ld + d],
                            dp[j] += (double)dout[row * D + d] * (double)v[j * ld + d];
                    if (s[j] > top) top = s[j];
                }
                for (size_t j = 0; j < seen; j++) sum += exp(s[j] - top);
                pl[row] = top + log(sum);
                for (size_t j = 0; j < seen; j++) {
                    s[j] = exp(s[j] - pl[row]), mean += s[j] * dp[j];
                    for (size_t d = 0; d < D; d++) po[row * D + d] += s[j] * (double)v[j * ld + d];
                }
                delta[row] = (float)mean;
                for (size_t j = 0; j < seen; j++) {
                    const size_t key = ((b * Tk + j) * H + h) * D;
                    const double ds = s[j] * (dp[j] - mean) * (double)scale;
                    for (size_t d = 0; d < D; d++) {
                        pdq[row * D + d] += ds * (double)k[j * ld + d];
                        pdk[key + d] += ds * (double)q[d], pdv[key + d] += s[j] * (double)dout[row * D + d];
                    }
                }
            }
    uint32_t words[TERN_ATTENTION_WORDS] = {
        B, H, Tq, Tk, (uint32_t)T * ld, ld, D, (uint32_t)T * ld, ld, D, (uint32_t)T * ld, ld, D};
    memcpy(&words[TERN_WORD_SCALE], &scale, sizeof scale);
    const size_t tail = (packed_count - 2 * C) * 4, rest = rows * 4, wide = rows * D * 4, out = (size_t)B * Tk * C * 4;
    char what[96];
    snprintf(what, sizeof what, "attention B %u H %u Tq %u Tk %u D %u%s", B, H, Tq, Tk, D, causal ? " causal" : "");
    tern_kernel_desc desc;
    tern_tape_tensor tensors[8] = {
        {TERN_F32, READ}, {TERN_F32, READ}, {TERN_F32, READ}, {TERN_F32, WRITE}, {TERN_F32, WRITE}};
    tape_maker_contraction(NULL, TERN_KERNEL_ATTENTION, 5, tensors, TERN_ATTENTION_WORDS, &desc);
    desc.head_dim = D, desc.causal = causal;
    conformance_array forward[5] = {{packed, tail}, {packed + C, tail}, {packed + 2 * C, tail}, {o, wide}, {lse, rest}};
    wanted check_forward[] = {{3, po, rows * D, 3e-6, what}, {4, pl, rows, 1e-6, what}, {0}};
    on_all(&desc, words, forward, check_wanted, check_forward);
    for (int i = 3; i < 8; i++) tensors[i] = (tern_tape_tensor){TERN_F32, i < 6 ? READ : WRITE};
    tape_maker_contraction(NULL, TERN_KERNEL_ATTENTION_DQ, 7, tensors, TERN_ATTENTION_WORDS, &desc);
    desc.head_dim = D, desc.causal = causal;
    conformance_array dq[7] = {{packed, tail}, {packed + C, tail}, {packed + 2 * C, tail}, {dout, wide}, {lse, rest},
                               {delta, rest},  {o, wide}};
    wanted check_dq[] = {{6, pdq, rows * D, 5e-6, what}, {0}};
    on_all(&desc, words, dq, check_wanted, check_dq);
    tape_maker_contraction(NULL, TERN_KERNEL_ATTENTION_DKV, 8, tensors, TERN_ATTENTION_WORDS, &desc);
    desc.head_dim = D, desc.causal = causal;
    conformance_array dkv[8] = {{packed, tail}, {packed + C, tail}, {packed + 2 * C, tail},
                                {dout, wide},   {lse, rest},        {delta, rest},
                                {dk, out},      {dv, out}};
    wanted check_dkv[] = {{6, pdk, (size_t)B * Tk * C, 5e-6, what}, {7, pdv, (size_t)B * Tk * C, 5e-6, what}, {0}};
    on_all(&desc, words, dkv, check_wanted, check_dkv);
    free(packed), free(dout), free(o), free(lse), free(delta), free(dk), free(dv);
    free(po), free(pl), free(pdq), free(pdk), free(pdv), free(s), free(dp);
}

static void attention_tiles(void **state)
{
    (void)state;
    attention_case(2, 3, 130, 130, 32, true);
    attention_case(1, 2, 70, 200, 64, false);
    attention_case(1, 1, 200, 70, 20, false);
    attention_case(1, 1, 129, 129, 129, true);
    attention_case(1, 1, 65, 65, 256, true);
}

/* ------------------------------------------------------------------- tapes */

/* Every walk: long rows (blocks), short rows side by side (lanes), one huge row (split), short inner runs (flat). */
static void softmax_rows(uint32_t rows, uint32_t columns)
{
    tape_maker m;
    tern_kernel_desc desc;
    tape_maker_start(&m, 2, 1, 3);
    const uint32_t x = tape_maker_tensor(&m, TERN_F32, READ), y = tape_maker_tensor(&m, TERN_F32, WRITE);
    tape_maker_at(&m, 0, 1);
    const uint16_t top = tape_maker_op(&m, TERN_TAPE_REDUCE_MAX, tape_maker_load(&m, x, 3), NO);
    tape_maker_at(&m, 1, 1);
    const uint16_t e =
        tape_maker_op(&m, TERN_TAPE_EXP, tape_maker_op(&m, TERN_TAPE_SUB, tape_maker_load(&m, x, 3), top), NO);
    const uint16_t sum = tape_maker_op(&m, TERN_TAPE_REDUCE_SUM, e, NO);
    tape_maker_at(&m, 2, 0);
    const uint16_t by = tape_maker_op(&m, TERN_TAPE_RECIP, sum, NO);
    tape_maker_at(&m, 2, 1);
    const uint16_t again =
        tape_maker_op(&m, TERN_TAPE_EXP, tape_maker_op(&m, TERN_TAPE_SUB, tape_maker_load(&m, x, 3), top), NO);
    tape_maker_store(&m, y, 3, tape_maker_op(&m, TERN_TAPE_MUL, again, by));
    tape_maker_desc(&m, &desc);
    const size_t count = (size_t)rows * columns;
    float *a = floats(count, 1), *b = floats(count, 2);
    double *expected = doubles(count);
    for (size_t r = 0; r < rows; r++) {
        double total = 0;
        for (size_t c = 0; c < columns; c++) total += exp((double)(a[r * columns + c] *= 5));
        for (size_t c = 0; c < columns; c++) expected[r * columns + c] = exp((double)a[r * columns + c]) / total;
    }
    const uint32_t words[2] = {rows, columns};
    char what[64];
    snprintf(what, sizeof what, "softmax of %u rows of %u", rows, columns);
    wanted check[] = {{1, expected, count, 1e-6, what}, {0}};
    conformance_array arrays[2] = {{a, count * 4}, {b, count * 4}};
    on_all(&desc, words, arrays, check_wanted, check);
    free(a), free(b), free(expected);
}
static void softmax_walks(void **state)
{
    (void)state;
    softmax_rows(3, 1);
    softmax_rows(1000, 5); /* lanes: rows side by side */
    softmax_rows(65, 63);
    softmax_rows(7, 257);
    softmax_rows(9, 5000);   /* several blocks a row */
    softmax_rows(2, 100003); /* split: one row over all threads */
}

/* y(c) += sum over r of x(r, c): loads along c are contiguous, so lanes run over c though it is the outer dim. */
static void column_combine(void **state)
{
    const uint32_t R = 1000, C = 77, words[2] = {C, R};
    (void)state;
    tape_maker m;
    tern_kernel_desc desc;
    tape_maker_start(&m, 2, 1, 2);
    const uint32_t x = tape_maker_tensor(&m, TERN_F32, READ), y = tape_maker_tensor(&m, TERN_F32, UPDATE);
    const uint16_t access = tape_maker_access(&m, x, 0);
    m.accesses[access].stride[0] = (tern_tape_stride){1, 0}, m.accesses[access].stride[1] = (tern_tape_stride){1, 1};
    tape_maker_at(&m, 0, 1);
    const uint16_t sum = tape_maker_op(&m, TERN_TAPE_REDUCE_SUM, tape_maker_load_from(&m, access, TERN_F32, NO), NO);
    tape_maker_at(&m, 1, 0);
    tape_maker_store(&m, y, 1, tape_maker_op(&m, TERN_TAPE_ADD, sum, tape_maker_load(&m, y, 1)));
    tape_maker_desc(&m, &desc);
    float *a = floats((size_t)R * C, 1), *b = floats(C, 2);
    double *expected = doubles(C);
    for (uint32_t c = 0; c < C; c++) {
        expected[c] = (double)b[c];
        for (uint32_t r = 0; r < R; r++) expected[c] += (double)(a[r * C + c] += 0.5f);
    }
    wanted check[] = {{1, expected, C, 1e-6, "column combine"}, {0}};
    conformance_array arrays[2] = {{a, (size_t)R * C * 4}, {b, C * 4}};
    on_all(&desc, words, arrays, check_wanted, check);
    free(a), free(b), free(expected);
}

/* Two columns sums and a row reduction in one tape, rows not a multiple of the chunk, columns short and long. */
static void column_chunks_of(uint32_t rows, uint32_t columns)
{
    const uint32_t chunk = 8, chunks = (rows + chunk - 1) / chunk, words[2] = {rows, columns};
    tape_maker m;
    tern_kernel_desc desc;
    tape_maker_start(&m, 2, 1, 2);
    m.tape.chunk_rows = chunk;
    const uint32_t x = tape_maker_tensor(&m, TERN_F32, READ), s1 = tape_maker_tensor(&m, TERN_F32, WRITE),
                   s2 = tape_maker_tensor(&m, TERN_F32, WRITE), r = tape_maker_tensor(&m, TERN_F32, WRITE);
    tape_maker_at(&m, 0, 1);
    const uint16_t v = tape_maker_load(&m, x, 3), two = tape_maker_constant(&m, 2.0f);
    tape_maker_column(&m, s1, v);
    tape_maker_column(&m, s2, two);
    const uint16_t sum = tape_maker_op(&m, TERN_TAPE_REDUCE_SUM, tape_maker_op(&m, TERN_TAPE_MUL, v, two), NO);
    tape_maker_at(&m, 1, 0);
    tape_maker_store(&m, r, 1, sum);
    tape_maker_desc(&m, &desc);
    const size_t count = (size_t)rows * columns, parts = (size_t)chunks * columns;
    float *a = floats(count, 1), *b = floats(parts, 2), *c = floats(parts, 3), *d = floats(rows, 4);
    double *e1 = doubles(parts), *e2 = doubles(parts), *er = doubles(rows);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++) {
            e1[i / chunk * columns + j] += (double)a[i * columns + j], e2[i / chunk * columns + j] += 2;
            er[i] += 2 * (double)a[i * columns + j];
        }
    wanted check[] = {{1, e1, parts, 1e-6, "column sums"},
                      {2, e2, parts, 0, "column sums of a constant"},
                      {3, er, rows, 1e-6, "row sums beside column sums"},
                      {0}};
    conformance_array arrays[4] = {{a, count * 4}, {b, parts * 4}, {c, parts * 4}, {d, rows * 4}};
    on_all(&desc, words, arrays, check_wanted, check);
    free(a), free(b), free(c), free(d), free(e1), free(e2), free(er);
}
static void column_chunks(void **state)
{
    (void)state;
    column_chunks_of(27, 5);
    column_chunks_of(100, 300);
    column_chunks_of(1, 4099);
}

/* (a, b, c) read as (b, a, c) shifted and padded along c, times an indirect row; c short (flat) or long (runs). */
static void strided_loads_of(uint32_t A, uint32_t B, uint32_t C)
{
    const uint32_t words[3] = {A, B, C};
    tape_maker m;
    tern_kernel_desc desc;
    tape_maker_start(&m, 3, 0, 1);
    const uint32_t x = tape_maker_tensor(&m, TERN_F32, READ), ids = tape_maker_tensor(&m, TERN_U32, READ),
                   table = tape_maker_tensor(&m, TERN_F32, READ), y = tape_maker_tensor(&m, TERN_F32, WRITE);
    const uint16_t turned = tape_maker_access(&m, x, 0), row = tape_maker_access(&m, table, 4);
    tern_tape_access *t = &m.accesses[turned];
    t->stride[0] = (tern_tape_stride){1, 4}, t->stride[1] = (tern_tape_stride){1, 5},
    t->stride[2] = (tern_tape_stride){-1, 0};
    t->offset = (int32_t)C; /* x(b, a, C - c), 0 for c == 0 and for the last a */
    t->mask_count = 2;
    t->mask[0] = (tern_tape_mask){.coef = {0, 0, -1}, .offset = (int32_t)C, .lo = 0, .hi = (int32_t)C};
    t->mask[1] = (tern_tape_mask){.coef = {2, 0, 0}, .offset = 0, .lo = 0, .hi = 2 * (int32_t)A - 2};
    m.accesses[row].indirect = (tern_tape_stride){1, 4};
    const uint16_t id = tape_maker_load(&m, ids, 3), v = tape_maker_load_from(&m, turned, TERN_F32, NO),
                   w = tape_maker_load_from(&m, row, TERN_F32, id);
    tape_maker_store(&m, y, 7, tape_maker_op(&m, TERN_TAPE_SUB, v, w));
    tape_maker_desc(&m, &desc);
    const size_t count = (size_t)A * B * C;
    float *a = floats(count, 1), *tab = floats(5 * C, 2), *out = floats(count, 3);
    uint32_t *rows = calloc((size_t)A * B, sizeof *rows);
    double *expected = doubles(count);
    assert_non_null(rows);
    for (uint32_t i = 0; i < A * B; i++) rows[i] = i * 7 % 5;
    for (size_t i = 0; i < A; i++)
        for (size_t j = 0; j < B; j++)
            for (size_t k = 0; k < C; k++)
                expected[(i * B + j) * C + k] = (k == 0 || i + 1 == A ? 0.0 : (double)a[(j * A + i) * C + C - k]) -
                                                (double)tab[rows[i * B + j] * C + k];
    wanted check[] = {{3, expected, count, 1e-7, "strided loads"}, {0}};
    conformance_array arrays[4] = {{a, count * 4}, {rows, (size_t)A * B * 4}, {tab, 5ull * C * 4}, {out, count * 4}};
    on_all(&desc, words, arrays, check_wanted, check);
    free(a), free(tab), free(out), free(rows), free(expected);
}
static void strided_loads(void **state)
{
    (void)state;
    strided_loads_of(9, 11, 13);
    strided_loads_of(3, 5, 700);
    strided_loads_of(50, 40, 33);
}

/* In place, values are made right in the tensor they are stored to: not before its old content has been read for the
 * last time. */
static void updates_in_place(void **state)
{
    enum { N = 40001 };
    (void)state;
    tape_maker m;
    tern_kernel_desc desc;
    tape_maker_start(&m, 1, 0, 1);
    const uint32_t w = tape_maker_tensor(&m, TERN_F32, UPDATE), mt = tape_maker_tensor(&m, TERN_F32, UPDATE);
    const uint16_t wv = tape_maker_load(&m, w, 1), mv = tape_maker_load(&m, mt, 1);
    const uint16_t fresh =
        tape_maker_op(&m, TERN_TAPE_ADD, tape_maker_op(&m, TERN_TAPE_MUL, mv, tape_maker_constant(&m, 0.5f)), wv);
    tape_maker_store(&m, mt, 1, fresh);
    tape_maker_store(&m, w, 1, tape_maker_op(&m, TERN_TAPE_SUB, tape_maker_op(&m, TERN_TAPE_MUL, fresh, mv), wv));
    tape_maker_desc(&m, &desc);
    float *a = floats(N, 1), *b = floats(N, 2);
    double *ea = doubles(N), *eb = doubles(N);
    for (int i = 0; i < N; i++) eb[i] = 0.5 * (double)b[i] + (double)a[i], ea[i] = eb[i] * (double)b[i] - (double)a[i];
    wanted check[] = {{0, ea, N, 1e-6, "updated weight"}, {1, eb, N, 1e-6, "updated moment"}, {0}};
    conformance_array arrays[2] = {{a, sizeof(float) * N}, {b, sizeof(float) * N}};
    on_all(&desc, (const uint32_t[]){N}, arrays, check_wanted, check);
    free(a), free(b), free(ea), free(eb);
}

/* ----------------------------------------------------------------- refusals */

static void refusals(void **state)
{
    (void)state;
    const conformance *c = &devices[1];
    tern_kernel_desc desc;
    tern_backend_kernel *kernel = NULL;
    static const struct {
        uint8_t dtype[5];
        const char *part;
    } bad[] = {
        {{TERN_F16, TERN_F16, TERN_F16, TERN_F16, TERN_F16}, "tensor 4 of \"test\" is f16; it must be f32"},
        {{TERN_F16, TERN_BF16, TERN_F16, TERN_F16, TERN_F32}, "tensor 1 of \"test\" is bf16 and its tensor 0 is f16"},
        {{TERN_F32, TERN_F32, TERN_U32, TERN_F32, TERN_F32},
         "tensor 2 of \"test\" is u32; it must be f32, f16 or bf16"},
        {{TERN_F32, TERN_F32, 99, TERN_F32, TERN_F32}, "tensor 2 of \"test\" is of an unknown dtype"},
    };
    for (size_t b = 0; b < sizeof bad / sizeof *bad; b++) {
        tern_tape_tensor tensors[5];
        for (int i = 0; i < 5; i++) tensors[i] = (tern_tape_tensor){bad[b].dtype[i], i < 3 ? READ : WRITE};
        tape_maker_contraction(NULL, TERN_KERNEL_ATTENTION, 5, tensors, TERN_ATTENTION_WORDS, &desc);
        desc.head_dim = 32;
        TEST_ERROR(c->backend->kernel_create(c->handle, &desc, &kernel), TERN_ERROR_UNSUPPORTED, bad[b].part);
        assert_null(kernel);
    }
    tern_backend_device *other = NULL;
    TEST_ERROR(c->backend->open(1, NULL, &other), TERN_ERROR_NOT_FOUND, "device 1");
    assert_null(other);
    TEST_ERROR(c->backend->wait(c->handle, 1u << 30, 1), TERN_ERROR_INVALID, "never given out");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matmul_odd_shapes), cmocka_unit_test(matmul_tiles),     cmocka_unit_test(attention_tiles),
        cmocka_unit_test(softmax_walks),     cmocka_unit_test(column_combine),   cmocka_unit_test(column_chunks),
        cmocka_unit_test(strided_loads),     cmocka_unit_test(updates_in_place), cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
