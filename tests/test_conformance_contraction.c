/* SPDX-License-Identifier: Apache-2.0 */
/* test_conformance_contraction.c - matmul, attention and scatter on every backend against plain loops in double.
 *
 * Sizes are ragged on purpose: nothing here divides a tile. Tolerance 1e-5 of the result's norm (f32 accumulation). */
#include <stdlib.h>

#include "tests/conformance.h"

enum { READ = TERN_ACCESS_READ, WRITE = TERN_ACCESS_WRITE };
#define TOLERANCE 1e-5

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

/* ------------------------------------------------------------------ matmul */

typedef enum epilogue { STORE_ONLY, BIAS_GELU_RESIDUAL, ACCUMULATE, TRANSPOSED_STORE, EPILOGUES } epilogue;

typedef struct matmul {
    uint32_t batch, m, n, k;
    bool a_transposed, b_transposed, share_b; /* share_b: one B for all batches, stride 0 */
    uint32_t a_pad, b_pad;                    /* added to the leading dimensions */
    epilogue end;
} matmul;

/* x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) */
static uint16_t gelu(tape_maker *m, uint16_t x)
{
    const uint16_t cube = tape_maker_op(m, TERN_TAPE_MUL, tape_maker_op(m, TERN_TAPE_MUL, x, x), x);
    const uint16_t inner =
        tape_maker_op(m, TERN_TAPE_ADD, x, tape_maker_op(m, TERN_TAPE_MUL, cube, tape_maker_constant(m, 0.044715f)));
    const uint16_t t = tape_maker_op(m, TERN_TAPE_TANH,
                                     tape_maker_op(m, TERN_TAPE_MUL, inner, tape_maker_constant(m, 0.797884561f)), NO);
    const uint16_t half = tape_maker_op(m, TERN_TAPE_MUL, x, tape_maker_constant(m, 0.5f));
    return tape_maker_op(m, TERN_TAPE_MUL, half, tape_maker_op(m, TERN_TAPE_ADD, t, tape_maker_constant(m, 1.0f)));
}

static void epilogue_tape(tape_maker *m, epilogue end)
{
    tape_maker_start(m, 3, 0, 1);
    const uint16_t acc = tape_maker_op(m, TERN_TAPE_ACC, NO, NO);
    if (end == BIAS_GELU_RESIDUAL) {
        const uint32_t bias = tape_maker_tensor(m, TERN_F32, READ), residual = tape_maker_tensor(m, TERN_F32, READ);
        const uint32_t y = tape_maker_tensor(m, TERN_F32, WRITE);
        const uint16_t active = gelu(m, tape_maker_op(m, TERN_TAPE_ADD, acc, tape_maker_load(m, bias, 4)));
        tape_maker_store(m, y, 7, tape_maker_op(m, TERN_TAPE_ADD, active, tape_maker_load(m, residual, 7)));
    } else if (end == ACCUMULATE) {
        const uint32_t y = tape_maker_tensor(m, TERN_F32, READ | WRITE);
        tape_maker_store(m, y, 7, tape_maker_op(m, TERN_TAPE_ADD, tape_maker_load(m, y, 7), acc));
    } else if (end == TRANSPOSED_STORE) { /* y(m, b, n), as heads are put back side by side */
        const uint32_t y = tape_maker_tensor(m, TERN_F32, WRITE);
        const uint16_t to = tape_maker_access(m, y, 0);
        m->accesses[to].stride[0] = (tern_tape_stride){1, 4};
        m->accesses[to].stride[1] = (tern_tape_stride){1, 5};
        m->accesses[to].stride[2] = (tern_tape_stride){1, 0};
        conformance_store(m, to, acc);
    } else {
        tape_maker_store(m, tape_maker_tensor(m, TERN_F32, WRITE), 7, acc);
    }
}

static double finish(const matmul *t, double acc, size_t at, size_t column, const float *bias, const float *residual,
                     const float *y)
{
    if (t->end == ACCUMULATE) return acc + (double)y[at];
    if (t->end != BIAS_GELU_RESIDUAL) return acc;
    const double x = acc + (double)bias[column];
    return 0.5 * x * (1 + tanh(0.79788456080286536 * (x + 0.044715 * x * x * x))) + (double)residual[at];
}

static void matmul_reference(const matmul *t, const uint32_t *w, const float *a, const float *b, const float *bias,
                             const float *residual, const float *y, double *out)
{
    for (size_t batch = 0; batch < t->batch; batch++)
        for (size_t i = 0; i < t->m; i++)
            for (size_t j = 0; j < t->n; j++) {
                const float *pa = a + batch * w[TERN_WORD_A_BATCH] + (t->a_transposed ? i : i * w[TERN_WORD_A_LD]);
                const float *pb = b + batch * w[TERN_WORD_B_BATCH] + (t->b_transposed ? j * w[TERN_WORD_B_LD] : j);
                const size_t sa = t->a_transposed ? w[TERN_WORD_A_LD] : 1, sb = t->b_transposed ? 1 : w[TERN_WORD_B_LD];
                const size_t at = (batch * t->m + i) * t->n + j,
                             to = t->end == TRANSPOSED_STORE ? (i * t->batch + batch) * t->n + j : at;
                double acc = 0;
                for (size_t k = 0; k < t->k; k++) acc += (double)pa[k * sa] * (double)pb[k * sb];
                out[to] = finish(t, acc, at, j, bias, residual, y);
            }
}

static void matmul_check(const conformance *c, const matmul *t)
{
    const uint32_t a_ld = (t->a_transposed ? t->m : t->k) + t->a_pad, a_rows = t->a_transposed ? t->k : t->m;
    const uint32_t b_ld = (t->b_transposed ? t->k : t->n) + t->b_pad, b_rows = t->b_transposed ? t->n : t->k;
    const uint32_t words[TERN_MATMUL_WORDS] = {
        t->batch, t->m, t->n, t->k, a_ld * a_rows, a_ld, t->share_b ? 0 : b_ld * b_rows, b_ld};
    const size_t a_count = (size_t)t->batch * a_rows * a_ld,
                 b_count = (size_t)(t->share_b ? 1 : t->batch) * b_rows * b_ld;
    const size_t count = (size_t)t->batch * t->m * t->n;
    float *a = floats(a_count, 1), *b = floats(b_count, 2), *bias = floats(t->n, 3), *residual = floats(count, 4),
          *y = floats(count, 5);
    double *wanted = doubles(count);
    const tern_tape_tensor own[] = {{TERN_F32, READ}, {TERN_F32, READ}};
    tape_maker maker;
    tern_kernel_desc desc;
    epilogue_tape(&maker, t->end);
    tape_maker_contraction(&maker, TERN_KERNEL_MATMUL, 2, own, TERN_MATMUL_WORDS, &desc);
    desc.a_transposed = t->a_transposed;
    desc.b_transposed = t->b_transposed;
    TEST_OK(tern_tape_check(&desc.tape, true));
    conformance_choose(c, words, &desc);
    matmul_reference(t, words, a, b, bias, residual, y, wanted);
    conformance_array plain[] = {{a, 4 * a_count}, {b, 4 * b_count}, {y, 4 * count}};
    conformance_array full[] = {
        {a, 4 * a_count}, {b, 4 * b_count}, {bias, 4ull * t->n}, {residual, 4 * count}, {y, 4 * count}};
    conformance_dispatch(c, &desc, words, t->end == BIAS_GELU_RESIDUAL ? full : plain);
    const double error = test_relative_error(y, wanted, count, 1e-30);
    if (!(error <= TOLERANCE))
        fail_msg("batch %u, %u x %u x %u, a%s b%s, epilogue %d: error %.3g of the norm, allowed %.3g (variant %s)",
                 t->batch, t->m, t->n, t->k, t->a_transposed ? "^T" : "", t->b_transposed ? "^T" : "", (int)t->end,
                 error, TOLERANCE, desc.variant.name);
    free(a), free(b), free(bias), free(residual), free(y), free(wanted);
}

/* All pairs of ragged sizes for (m, n), k going round, each transposition in turn, and 64 seeded triples. */
static void matmul_of_every_size(const conformance *c)
{
    static const uint32_t sizes[] = {1, 31, 33, 65, 127, 257};
    uint32_t turn = 0;
    for (size_t i = 0; i < 6; i++)
        for (size_t j = 0; j < 6; j++, turn++) {
            const matmul t = {.batch = 1,
                              .m = sizes[i],
                              .n = sizes[j],
                              .k = sizes[turn % 5 + (turn % 7 == 0)],
                              .a_transposed = (turn + i) % 2,
                              .b_transposed = (turn + i) / 2 % 2};
            matmul_check(c, &t);
        }
    uint64_t seed = 42;
    for (uint32_t i = 0; i < 64; i++) {
        uint32_t size[3];
        for (size_t d = 0; d < 3; d++) size[d] = 1 + (uint32_t)((conformance_random(&seed) + 1) * 70);
        const matmul t = {.batch = 1 + i % 3,
                          .m = size[0],
                          .n = size[1],
                          .k = size[2],
                          .a_transposed = i / 2 % 2,
                          .b_transposed = i % 2,
                          .a_pad = i % 5,
                          .b_pad = i % 4};
        matmul_check(c, &t);
    }
}

static void matmul_epilogues(const conformance *c)
{
    for (uint32_t end = BIAS_GELU_RESIDUAL; end < EPILOGUES; end++) {
        const matmul t = {.batch = 3,
                          .m = 33,
                          .n = 65,
                          .k = 31,
                          .a_transposed = end / 2 % 2,
                          .b_transposed = end % 2,
                          .end = (epilogue)end};
        matmul_check(c, &t);
    }
}

static void matmul_shares_an_operand(const conformance *c)
{
    const matmul t = {
        .batch = 4, .m = 17, .n = 129, .k = 70, .share_b = true, .a_pad = 3, .b_pad = 1, .end = ACCUMULATE};
    matmul_check(c, &t);
}

static void matmul_of_long_sums(const conformance *c)
{
    const matmul wide = {.batch = 1, .m = 5, .n = 7, .k = 20011, .b_transposed = true};
    const matmul tall = {.batch = 1, .m = 1500, .n = 3, .k = 9, .a_transposed = true};
    matmul_check(c, &wide);
    matmul_check(c, &tall);
}

/* --------------------------------------------------------------- attention */

typedef struct attention {
    uint32_t b, h, tq, tk, d;
    bool causal;
    bool packed;
} attention;

/* Everything of one case: q, k, v inside their arrays by word strides, the double results of forward and backward. */
typedef struct attention_data {
    attention s;
    uint32_t words[TERN_ATTENTION_WORDS];
    size_t q_count, kv_count, o_count, k_out_count, rows;
    float *q, *k, *v, *dout, *o, *lse, *delta;
    double *o_wanted, *lse_wanted, *delta_wanted, *dq_wanted, *dk_wanted, *dv_wanted;
} attention_data;

static size_t q_at(const attention_data *x, size_t b, size_t t, size_t h)
{
    return b * x->words[TERN_WORD_Q_B] + t * x->words[TERN_WORD_Q_T] + h * x->words[TERN_WORD_Q_H];
}
static size_t k_at(const attention_data *x, size_t b, size_t t, size_t h)
{
    return b * x->words[TERN_WORD_K_B] + t * x->words[TERN_WORD_K_T] + h * x->words[TERN_WORD_K_H];
}
static size_t v_at(const attention_data *x, size_t b, size_t t, size_t h)
{
    return b * x->words[TERN_WORD_V_B] + t * x->words[TERN_WORD_V_T] + h * x->words[TERN_WORD_V_H];
}
static size_t dense_at(const attention *s, uint32_t length, size_t b, size_t t, size_t h)
{
    return ((b * length + t) * s->h + h) * s->d;
}

static double dot(const float *a, const float *b, uint32_t d)
{
    double sum = 0;
    for (uint32_t i = 0; i < d; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

/* One query row: probabilities, then its share of every result. */
static void attention_row(attention_data *x, size_t b, size_t h, size_t t, double scale, double *p)
{
    const attention *s = &x->s;
    const size_t visible = s->causal ? t + 1 : s->tk, row = (b * s->tq + t) * s->h + h,
                 out = dense_at(s, s->tq, b, t, h);
    const float *q = x->q + q_at(x, b, t, h), *dout = x->dout + out;
    double top = -INFINITY, sum = 0, delta = 0;
    for (size_t i = 0; i < visible; i++) {
        p[i] = scale * dot(q, x->k + k_at(x, b, i, h), s->d);
        top = p[i] > top ? p[i] : top;
    }
    for (size_t i = 0; i < visible; i++) sum += exp(p[i] - top);
    x->lse_wanted[row] = top + log(sum);
    for (size_t i = 0; i < visible; i++) {
        p[i] = exp(p[i] - x->lse_wanted[row]);
        for (uint32_t d = 0; d < s->d; d++) x->o_wanted[out + d] += p[i] * (double)x->v[v_at(x, b, i, h) + d];
    }
    for (uint32_t d = 0; d < s->d; d++) delta += (double)dout[d] * x->o_wanted[out + d];
    x->delta_wanted[row] = delta;
    for (size_t i = 0; i < visible; i++) {
        const double ds = scale * p[i] * (dot(dout, x->v + v_at(x, b, i, h), s->d) - delta);
        const size_t key = dense_at(s, s->tk, b, i, h);
        for (uint32_t d = 0; d < s->d; d++) {
            x->dq_wanted[out + d] += ds * (double)x->k[k_at(x, b, i, h) + d];
            x->dk_wanted[key + d] += ds * (double)q[d];
            x->dv_wanted[key + d] += p[i] * (double)dout[d];
        }
    }
}

static void attention_make(attention_data *x, attention s)
{
    memset(x, 0, sizeof *x);
    x->s = s;
    const uint32_t w = s.h * s.d, step = s.packed ? 3 * w : w;
    const float scale = 1.0f / sqrtf((float)s.d);
    const uint32_t words[TERN_ATTENTION_WORDS] = {s.b,         s.h,  s.tq, s.tk,        s.tq * step, step, s.d,
                                                  s.tk * step, step, s.d,  s.tk * step, step,        s.d,  0};
    memcpy(x->words, words, sizeof words);
    memcpy(&x->words[TERN_WORD_SCALE], &scale, 4);
    x->rows = (size_t)s.b * s.tq * s.h;
    x->o_count = x->rows * s.d;
    x->k_out_count = (size_t)s.b * s.tk * w;
    /* The range a tensor is bound with ends at its last element; packed, q, k and v interleave in rows of 3 w. */
    x->q_count = (size_t)s.b * s.tq * step - (s.packed ? 2 * w : 0);
    x->kv_count = (size_t)s.b * s.tk * step - (s.packed ? 2 * w : 0);
    x->q = floats(x->q_count, 1), x->k = floats(x->kv_count, 2), x->v = floats(x->kv_count, 3),
    x->dout = floats(x->o_count, 4);
    for (size_t i = 0; i < x->q_count; i++) x->q[i] *= 3; /* scores far enough apart that the softmax matters */
    x->o = floats(x->o_count, 5), x->lse = floats(x->rows, 6), x->delta = floats(x->rows, 7);
    x->o_wanted = doubles(x->o_count), x->lse_wanted = doubles(x->rows), x->delta_wanted = doubles(x->rows);
    x->dq_wanted = doubles(x->o_count), x->dk_wanted = doubles(x->k_out_count), x->dv_wanted = doubles(x->k_out_count);
    double *p = doubles(s.tk);
    for (size_t b = 0; b < s.b; b++)
        for (size_t h = 0; h < s.h; h++)
            for (size_t t = 0; t < s.tq; t++) attention_row(x, b, h, t, (double)scale, p);
    free(p);
}

static void attention_free(attention_data *x)
{
    free(x->q), free(x->k), free(x->v), free(x->dout), free(x->o), free(x->lse), free(x->delta);
    free(x->o_wanted), free(x->lse_wanted), free(x->delta_wanted), free(x->dq_wanted), free(x->dk_wanted),
        free(x->dv_wanted);
}

static void attention_dispatch(const conformance *c, const attention_data *x, tern_kernel_kind kind, uint32_t reads,
                               uint32_t writes, conformance_array *arrays)
{
    tern_tape_tensor tensors[TERN_TAPE_TENSORS];
    tern_kernel_desc desc;
    for (uint32_t i = 0; i < reads + writes; i++) tensors[i] = (tern_tape_tensor){TERN_F32, i < reads ? READ : WRITE};
    tape_maker_contraction(NULL, kind, reads + writes, tensors, TERN_ATTENTION_WORDS, &desc);
    desc.head_dim = x->s.d;
    desc.causal = x->s.causal;
    conformance_choose(c, x->words, &desc);
    conformance_dispatch(c, &desc, x->words, arrays);
}

/* floor: a hundredth of what the inputs could give, for gradients that cancel to zero (one key takes all attention). */
static void close_or_fail(const attention *s, const char *what, const float *value, const double *wanted, size_t count)
{
    const double error = test_relative_error(value, wanted, count, 0.01 * sqrt((double)count));
    if (!(error <= TOLERANCE))
        fail_msg("%s of B %u H %u Tq %u Tk %u D %u%s%s: error %.3g of the norm, allowed %.3g", what, s->b, s->h, s->tq,
                 s->tk, s->d, s->causal ? " causal" : "", s->packed ? " packed" : "", error, TOLERANCE);
}

/* Few (D, causal) pairs, since each is a kernel to compile; many lengths, which are not. */
static const attention attentions[] = {{1, 1, 1, 1, 24, false, false},    {2, 3, 70, 70, 36, true, false},
                                       {1, 2, 65, 31, 24, false, false},  {2, 2, 31, 70, 24, false, true},
                                       {2, 3, 33, 33, 64, true, false},   {1, 4, 130, 130, 64, true, true},
                                       {1, 1, 257, 257, 64, true, false}, {1, 2, 40, 40, 256, true, true}};

static void attention_forward(const conformance *c)
{
    for (size_t i = 0; i < sizeof attentions / sizeof *attentions; i++) {
        attention_data x;
        attention_make(&x, attentions[i]);
        conformance_array arrays[] = {{x.q, 4 * x.q_count},
                                      {x.k, 4 * x.kv_count},
                                      {x.v, 4 * x.kv_count},
                                      {x.o, 4 * x.o_count},
                                      {x.lse, 4 * x.rows}};
        attention_dispatch(c, &x, TERN_KERNEL_ATTENTION, 3, 2, arrays);
        close_or_fail(&x.s, "o", x.o, x.o_wanted, x.o_count);
        close_or_fail(&x.s, "lse", x.lse, x.lse_wanted, x.rows);
        attention_free(&x);
    }
}

static void attention_backward(const conformance *c)
{
    for (size_t i = 0; i < sizeof attentions / sizeof *attentions; i++) {
        attention_data x;
        attention_make(&x, attentions[i]);
        for (size_t r = 0; r < x.rows; r++) x.lse[r] = (float)x.lse_wanted[r], x.delta[r] = (float)x.delta_wanted[r];
        float *dq = floats(x.o_count, 8), *dk = floats(x.k_out_count, 9), *dv = floats(x.k_out_count, 10);
        conformance_array arrays[8] = {
            {x.q, 4 * x.q_count}, {x.k, 4 * x.kv_count}, {x.v, 4 * x.kv_count}, {x.dout, 4 * x.o_count},
            {x.lse, 4 * x.rows},  {x.delta, 4 * x.rows}, {dq, 4 * x.o_count},   {NULL, 0}};
        attention_dispatch(c, &x, TERN_KERNEL_ATTENTION_DQ, 6, 1, arrays);
        arrays[6] = (conformance_array){dk, 4 * x.k_out_count};
        arrays[7] = (conformance_array){dv, 4 * x.k_out_count};
        attention_dispatch(c, &x, TERN_KERNEL_ATTENTION_DKV, 6, 2, arrays);
        close_or_fail(&x.s, "dq", dq, x.dq_wanted, x.o_count);
        close_or_fail(&x.s, "dk", dk, x.dk_wanted, x.k_out_count);
        close_or_fail(&x.s, "dv", dv, x.dv_wanted, x.k_out_count);
        free(dq), free(dk), free(dv);
        attention_free(&x);
    }
}

/* ----------------------------------------------------------------- scatter */

typedef struct scatter {
    uint32_t v, d, n;
    bool sorted;
    int32_t id_dtype;
} scatter;

static void scatter_check(const conformance *c, scatter s)
{
    const uint32_t words[] = {1, s.v, s.d, s.n};
    const size_t count = (size_t)s.v * s.d;
    float *dy = floats((size_t)s.n * s.d, 1), *y = floats(count, 2);
    uint32_t *ids = malloc(4 * (size_t)s.n), *order = malloc(4 * (size_t)s.n), *offsets = calloc(s.v + 2, 4);
    double *wanted = doubles(count);
    assert_true(ids && order && offsets);
    uint64_t seed = 3;
    for (uint32_t i = 0; i < s.n; i++) { /* few ids, so that most rows collect many or none */
        ids[i] = (uint32_t)((conformance_random(&seed) + 1) * 0.5f * (float)s.v) % s.v;
        if (i % 3 == 0) ids[i] = s.v / 2;
    }
    for (uint32_t v = 0, at = 0; v < s.v; v++) {
        offsets[v] = at;
        for (uint32_t i = 0; i < s.n; i++)
            if (ids[i] == v) order[at++] = i;
        offsets[v + 1] = at;
    }
    for (size_t i = 0; i < count; i++) wanted[i] = (double)y[i];
    for (size_t i = 0; i < s.n; i++)
        for (size_t d = 0; d < s.d; d++) wanted[ids[i] * s.d + d] += (double)dy[i * s.d + d];
    const tern_tape_tensor sorted[] = {{TERN_F32, READ}, {TERN_U32, READ}, {TERN_U32, READ}};
    const tern_tape_tensor unsorted[] = {{TERN_F32, READ}, {(uint8_t)s.id_dtype, READ}};
    tape_maker maker;
    tern_kernel_desc desc;
    epilogue_tape(&maker, ACCUMULATE);
    tape_maker_contraction(&maker, TERN_KERNEL_SCATTER_ADD, s.sorted ? 3 : 2, s.sorted ? sorted : unsorted, 4, &desc);
    desc.sorted = s.sorted;
    conformance_choose(c, words, &desc);
    const size_t dy_bytes = 4 * (size_t)s.n * s.d;
    conformance_array in_order[] = {
        {dy, dy_bytes}, {order, 4 * (size_t)s.n}, {offsets, 4 * ((size_t)s.v + 1)}, {y, 4 * count}};
    conformance_array by_id[] = {{dy, dy_bytes}, {ids, 4 * (size_t)s.n}, {y, 4 * count}};
    conformance_dispatch(c, &desc, words, s.sorted ? in_order : by_id);
    TEST_CLOSE(y, wanted, count, TOLERANCE);
    free(dy), free(y), free(ids), free(order), free(offsets), free(wanted);
}

static void scatter_adds(const conformance *c)
{
    static const scatter cases[] = {
        {1, 1, 1, true, 0},          {50, 33, 200, true, 0},         {257, 64, 1000, true, 0},
        {1000, 7, 33, true, 0},      {50, 33, 200, false, TERN_U32}, {31, 65, 127, false, TERN_I32},
        {1, 5, 300, false, TERN_U32}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) scatter_check(c, cases[i]);
}

int main(void)
{
    static const conformance_case cases[] = {
        {"matmul of every size", matmul_of_every_size},
        {"matmul epilogues", matmul_epilogues},
        {"matmul shares an operand", matmul_shares_an_operand},
        {"matmul of long sums", matmul_of_long_sums},
        {"attention forward", attention_forward},
        {"attention backward", attention_backward},
        {"scatter adds", scatter_adds},
    };
    return conformance_main("contraction", cases, sizeof cases / sizeof *cases, NULL, 0);
}
