/* SPDX-License-Identifier: Apache-2.0 */
/* contraction_trial.c - see contraction_trial.h. */
#include "tests/contraction_trial.h"

#include "core/base/dtype.h"

#include <stdlib.h>

enum { READ = TERN_ACCESS_READ, WRITE = TERN_ACCESS_WRITE };
#define TOLERANCE 1e-5

static uint8_t or_f32(uint8_t dtype) { return dtype ? dtype : TERN_F32; }

/* ------------------------------------------------------------------ stored */

static float rounded(uint8_t dtype, float x)
{
    if (dtype == TERN_F16) return tern_f16_to_f32(tern_f32_to_f16(x));
    return dtype == TERN_BF16 ? tern_bf16_to_f32(tern_f32_to_bf16(x)) : x;
}

stored stored_random(uint8_t dtype, size_t count, uint64_t seed, float scale)
{
    stored x = {.dtype = or_f32(dtype), .count = count, .value = malloc(count * sizeof(float))};
    x.data = malloc(tern_dtype_bytes(x.dtype, count));
    assert_true(x.value && x.data);
    conformance_fill(x.value, count, seed);
    for (size_t i = 0; i < count; i++) x.value[i] *= scale;
    stored_write(&x);
    return x;
}

void stored_write(stored *x)
{
    uint16_t *narrow = x->data;
    if (x->dtype == TERN_F32) memcpy(x->data, x->value, x->count * sizeof *x->value);
    for (size_t i = 0; i < x->count && x->dtype != TERN_F32; i++)
        narrow[i] = x->dtype == TERN_F16 ? tern_f32_to_f16(x->value[i]) : tern_f32_to_bf16(x->value[i]);
    stored_read(x);
}

void stored_read(stored *x)
{
    const uint16_t *narrow = x->data;
    if (x->dtype == TERN_F32) memcpy(x->value, x->data, x->count * sizeof *x->value);
    for (size_t i = 0; i < x->count && x->dtype != TERN_F32; i++)
        x->value[i] = x->dtype == TERN_F16 ? tern_f16_to_f32(narrow[i]) : tern_bf16_to_f32(narrow[i]);
}

conformance_array stored_array(const stored *x)
{
    return (conformance_array){x->data, tern_dtype_bytes(x->dtype, x->count)};
}

void stored_free(stored *x)
{
    free(x->value), free(x->data);
    x->value = NULL, x->data = NULL;
}

static double *doubles(size_t count)
{
    double *data = calloc(count, sizeof *data);
    assert_non_null(data);
    return data;
}

/* Distance of two neighbours at |x|. */
static double unit(uint8_t dtype, double x)
{
    int exponent;
    (void)frexp(x, &exponent); /* |x| < 2^exponent */
    const int digits = dtype == TERN_F16 ? 11 : 8, least = dtype == TERN_F16 ? -24 : -133;
    return ldexp(1.0, exponent - digits < least ? least : exponent - digits);
}

static double allowed(const stored *got, const double *wanted, double floor)
{
    if (got->dtype == TERN_F32) return TOLERANCE;
    double lost = 0, norm = 0, largest = 0;
    for (size_t i = 0; i < got->count; i++) {
        const double d = (double)rounded(got->dtype, (float)wanted[i]) - wanted[i];
        lost += d * d;
        norm += wanted[i] * wanted[i];
        largest = fabs(wanted[i]) > largest ? fabs(wanted[i]) : largest;
    }
    norm = sqrt(norm) > floor ? sqrt(norm) : floor;
    const double twice = 2 * sqrt(lost) / norm, least = unit(got->dtype, largest) / norm;
    return TOLERANCE + (twice > least ? twice : least);
}

void stored_check(const char *what, stored *got, const double *wanted, double floor)
{
    stored_check_more(what, got, wanted, floor, 0);
}

void stored_check_more(const char *what, stored *got, const double *wanted, double floor, double more)
{
    stored_read(got);
    const double error = test_relative_error(got->value, wanted, got->count, floor);
    const double most = allowed(got, wanted, floor) + more;
    if (!(error <= most))
        fail_msg("%s (%s): error %.3g of the norm, allowed %.3g", what, tern_dtype(got->dtype)->name, error, most);
}

/* ------------------------------------------------------------------ matmul */

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

void trial_epilogue_tape(tape_maker *m, trial_epilogue end, uint8_t y_dtype)
{
    y_dtype = or_f32(y_dtype);
    tape_maker_start(m, 3, 0, 1);
    const uint16_t acc = tape_maker_op(m, TERN_TAPE_ACC, NO, NO);
    if (end == BIAS_GELU_RESIDUAL) {
        const uint32_t bias = tape_maker_tensor(m, TERN_F32, READ), residual = tape_maker_tensor(m, y_dtype, READ);
        const uint32_t y = tape_maker_tensor(m, y_dtype, WRITE);
        const uint16_t active = gelu(m, tape_maker_op(m, TERN_TAPE_ADD, acc, tape_maker_load(m, bias, 4)));
        tape_maker_store(m, y, 7, tape_maker_op(m, TERN_TAPE_ADD, active, tape_maker_load(m, residual, 7)));
    } else if (end == ACCUMULATE) {
        const uint32_t y = tape_maker_tensor(m, y_dtype, READ | WRITE);
        tape_maker_store(m, y, 7, tape_maker_op(m, TERN_TAPE_ADD, tape_maker_load(m, y, 7), acc));
    } else if (end == TRANSPOSED_STORE) { /* y(m, b, n), as heads are put back side by side */
        const uint32_t y = tape_maker_tensor(m, y_dtype, WRITE);
        const uint16_t to = tape_maker_access(m, y, 0);
        m->accesses[to].stride[0] = (tern_tape_stride){1, 4};
        m->accesses[to].stride[1] = (tern_tape_stride){1, 5};
        m->accesses[to].stride[2] = (tern_tape_stride){1, 0};
        conformance_store(m, to, acc);
    } else {
        tape_maker_store(m, tape_maker_tensor(m, y_dtype, WRITE), 7, acc);
    }
}

static double finish(const matmul_trial *t, double acc, size_t at, size_t column, const float *bias,
                     const float *residual, const float *y)
{
    if (t->end == ACCUMULATE) return acc + (double)y[at];
    if (t->end != BIAS_GELU_RESIDUAL) return acc;
    const double x = acc + (double)bias[column];
    return 0.5 * x * (1 + tanh(0.79788456080286536 * (x + 0.044715 * x * x * x))) + (double)residual[at];
}

static void matmul_reference(const matmul_trial *t, const uint32_t *w, const float *a, const float *b,
                             const float *bias, const float *residual, const float *y, double *out)
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

void matmul_describe(const conformance *c, const matmul_trial *t, uint32_t *out_words, tape_maker *maker,
                     tern_kernel_desc *out_desc)
{
    const uint32_t a_ld = (t->a_transposed ? t->m : t->k) + t->a_pad, a_rows = t->a_transposed ? t->k : t->m;
    const uint32_t b_ld = (t->b_transposed ? t->k : t->n) + t->b_pad, b_rows = t->b_transposed ? t->n : t->k;
    const uint32_t words[TERN_MATMUL_WORDS] = {
        t->batch, t->m, t->n, t->k, a_ld * a_rows, a_ld, t->share_b ? 0 : b_ld * b_rows, b_ld};
    const tern_tape_tensor own[] = {{or_f32(t->a_dtype), READ}, {or_f32(t->b_dtype), READ}};
    memcpy(out_words, words, sizeof words);
    trial_epilogue_tape(maker, t->end, t->y_dtype);
    tape_maker_contraction(maker, TERN_KERNEL_MATMUL, 2, own, TERN_MATMUL_WORDS, out_desc);
    out_desc->a_transposed = t->a_transposed;
    out_desc->b_transposed = t->b_transposed;
    TEST_OK(tern_tape_check(&out_desc->tape, true));
    conformance_choose(c, words, out_desc);
    if (t->render != NULL) out_desc->render = t->render;
    if (t->variant != NULL && strstr(out_desc->variant.name, t->variant) == NULL)
        fail_msg("the variant is %s, not one of %s", out_desc->variant.name, t->variant);
}

void matmul_try(const conformance *c, const matmul_trial *t)
{
    uint32_t words[TERN_MATMUL_WORDS];
    tape_maker maker;
    tern_kernel_desc desc;
    matmul_describe(c, t, words, &maker, &desc);
    const uint32_t a_size = t->batch * (t->a_transposed ? t->k : t->m) * words[TERN_WORD_A_LD],
                   b_size = (t->share_b ? 1 : t->batch) * (t->b_transposed ? t->n : t->k) * words[TERN_WORD_B_LD];
    const size_t count = (size_t)t->batch * t->m * t->n;
    stored a = stored_random(t->a_dtype, a_size, 1, 1), b = stored_random(t->b_dtype, b_size, 2, 1),
           bias = stored_random(TERN_F32, t->n, 3, 1), residual = stored_random(t->y_dtype, count, 4, 1),
           y = stored_random(t->y_dtype, count, 5, 1);
    double *wanted = doubles(count);
    matmul_reference(t, words, a.value, b.value, bias.value, residual.value, y.value, wanted);
    conformance_array plain[] = {stored_array(&a), stored_array(&b), stored_array(&y)};
    conformance_array full[] = {stored_array(&a), stored_array(&b), stored_array(&bias), stored_array(&residual),
                                stored_array(&y)};
    conformance_dispatch(c, &desc, words, t->end == BIAS_GELU_RESIDUAL ? full : plain);
    char what[160];
    snprintf(what, sizeof what, "batch %u, %u x %u x %u, a%s %s b%s %s, epilogue %d, variant %s", t->batch, t->m, t->n,
             t->k, t->a_transposed ? "^T" : "", tern_dtype(a.dtype)->name, t->b_transposed ? "^T" : "",
             tern_dtype(b.dtype)->name, (int)t->end, desc.variant.name);
    stored_check_more(what, &y, wanted, 1e-30, t->more);
    stored_free(&a), stored_free(&b), stored_free(&bias), stored_free(&residual), stored_free(&y);
    free(wanted);
}

/* --------------------------------------------------------------- attention */

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
static size_t dense_at(const attention_trial *s, uint32_t length, size_t b, size_t t, size_t h)
{
    return ((b * length + t) * s->h + h) * s->d;
}

static double dot(const float *a, const float *b, uint32_t d)
{
    double sum = 0;
    for (uint32_t i = 0; i < d; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

/* One query row: probabilities, then its share of every result. Backward kernels are given lse and delta in f32, so
 * their reference has them so. */
static void attention_row(attention_data *x, size_t b, size_t h, size_t t, double scale, double *p)
{
    const attention_trial *s = &x->s;
    const size_t visible = s->causal ? t + 1 : s->tk, row = (b * s->tq + t) * s->h + h,
                 out = dense_at(s, s->tq, b, t, h);
    const float *q = x->q.value + q_at(x, b, t, h), *dout = x->dout.value + out;
    double top = -INFINITY, sum = 0, delta = 0;
    for (size_t i = 0; i < visible; i++) {
        p[i] = scale * dot(q, x->k.value + k_at(x, b, i, h), s->d);
        top = p[i] > top ? p[i] : top;
    }
    for (size_t i = 0; i < visible; i++) sum += exp(p[i] - top);
    x->lse_wanted[row] = top + log(sum);
    for (size_t i = 0; i < visible; i++) {
        p[i] = exp(p[i] - x->lse_wanted[row]);
        for (uint32_t d = 0; d < s->d; d++) x->o_wanted[out + d] += p[i] * (double)x->v.value[v_at(x, b, i, h) + d];
    }
    for (uint32_t d = 0; d < s->d; d++) delta += (double)dout[d] * x->o_wanted[out + d];
    x->delta_wanted[row] = delta;
    const double lost = exp(x->lse_wanted[row] - (double)(float)x->lse_wanted[row]);
    delta = (double)(float)delta;
    for (size_t i = 0; i < visible; i++) p[i] *= lost;
    for (size_t i = 0; i < visible; i++) {
        const double ds = scale * p[i] * (dot(dout, x->v.value + v_at(x, b, i, h), s->d) - delta);
        const size_t key = dense_at(s, s->tk, b, i, h);
        for (uint32_t d = 0; d < s->d; d++) {
            x->dq_wanted[out + d] += ds * (double)x->k.value[k_at(x, b, i, h) + d];
            x->dk_wanted[key + d] += ds * (double)q[d];
            x->dv_wanted[key + d] += p[i] * (double)dout[d];
        }
    }
}

void attention_make(attention_data *x, attention_trial s)
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
    const size_t q_count = (size_t)s.b * s.tq * step - (s.packed ? 2 * w : 0),
                 kv_count = (size_t)s.b * s.tk * step - (s.packed ? 2 * w : 0);
    x->q = stored_random(s.dtype, q_count, 1, 3); /* scores far enough apart that the softmax matters */
    x->k = stored_random(s.dtype, kv_count, 2, 1), x->v = stored_random(s.dtype, kv_count, 3, 1);
    x->dout = stored_random(s.dtype, x->o_count, 4, 1), x->o = stored_random(s.dtype, x->o_count, 5, 1);
    x->lse = stored_random(TERN_F32, x->rows, 6, 1), x->delta = stored_random(TERN_F32, x->rows, 7, 1);
    x->o_wanted = doubles(x->o_count), x->lse_wanted = doubles(x->rows), x->delta_wanted = doubles(x->rows);
    x->dq_wanted = doubles(x->o_count), x->dk_wanted = doubles(x->k_out_count), x->dv_wanted = doubles(x->k_out_count);
}

void attention_solve(attention_data *x)
{
    const attention_trial *s = &x->s;
    float scale;
    memcpy(&scale, &x->words[TERN_WORD_SCALE], sizeof scale);
    double *p = doubles(s->tk);
    for (size_t b = 0; b < s->b; b++)
        for (size_t h = 0; h < s->h; h++)
            for (size_t t = 0; t < s->tq; t++) attention_row(x, b, h, t, (double)scale, p);
    free(p);
}

void attention_free(attention_data *x)
{
    stored_free(&x->q), stored_free(&x->k), stored_free(&x->v), stored_free(&x->dout), stored_free(&x->o);
    stored_free(&x->lse), stored_free(&x->delta);
    free(x->o_wanted), free(x->lse_wanted), free(x->delta_wanted), free(x->dq_wanted), free(x->dk_wanted),
        free(x->dv_wanted);
}

/* Tensors `reads` of which come first. */
static void attention_dispatch(const conformance *c, const attention_data *x, tern_kernel_kind kind, uint32_t reads,
                               uint32_t count, const stored *const *tensors)
{
    tern_tape_tensor kinds[TERN_TAPE_TENSORS];
    conformance_array arrays[TERN_TAPE_TENSORS];
    tern_kernel_desc desc;
    for (uint32_t i = 0; i < count; i++) {
        kinds[i] = (tern_tape_tensor){tensors[i]->dtype, i < reads ? READ : WRITE};
        arrays[i] = stored_array(tensors[i]);
    }
    tape_maker_contraction(NULL, kind, count, kinds, TERN_ATTENTION_WORDS, &desc);
    desc.head_dim = x->s.d;
    desc.causal = x->s.causal;
    conformance_choose(c, x->words, &desc);
    if (x->render != NULL) desc.render = x->render;
    if (x->variant != NULL && strstr(desc.variant.name, x->variant) == NULL)
        fail_msg("the variant is %s, not one of %s", desc.variant.name, x->variant);
    conformance_dispatch(c, &desc, x->words, arrays);
}

/* Least norm: a hundredth of what the inputs could give, for gradients that cancel to zero (one key takes all
 * attention). */
static void attention_check(const attention_data *x, const char *what, stored *got, const double *wanted)
{
    const attention_trial *s = &x->s;
    char text[128];
    snprintf(text, sizeof text, "%s of B %u H %u Tq %u Tk %u D %u%s%s", what, s->b, s->h, s->tq, s->tk, s->d,
             s->causal ? " causal" : "", s->packed ? " packed" : "");
    stored_check_more(text, got, wanted, 0.01 * sqrt((double)got->count), x->more);
}

void attention_forward_run(const conformance *c, attention_data *x)
{
    const stored *tensors[] = {&x->q, &x->k, &x->v, &x->o, &x->lse};
    attention_dispatch(c, x, TERN_KERNEL_ATTENTION, 3, 5, tensors);
    stored_read(&x->o);
    stored_read(&x->lse);
}

void attention_forward_try(const conformance *c, attention_data *x)
{
    attention_forward_run(c, x);
    attention_check(x, "o", &x->o, x->o_wanted);
    attention_check(x, "lse", &x->lse, x->lse_wanted);
}

void attention_backward_try(const conformance *c, attention_data *x)
{
    for (size_t r = 0; r < x->rows; r++)
        x->lse.value[r] = (float)x->lse_wanted[r], x->delta.value[r] = (float)x->delta_wanted[r];
    stored_write(&x->lse);
    stored_write(&x->delta);
    stored dq = stored_random(x->s.dtype, x->o_count, 8, 1), dk = stored_random(x->s.dtype, x->k_out_count, 9, 1),
           dv = stored_random(x->s.dtype, x->k_out_count, 10, 1);
    const stored *tensors[] = {&x->q, &x->k, &x->v, &x->dout, &x->lse, &x->delta, &dq, NULL};
    attention_dispatch(c, x, TERN_KERNEL_ATTENTION_DQ, 6, 7, tensors);
    tensors[6] = &dk, tensors[7] = &dv;
    attention_dispatch(c, x, TERN_KERNEL_ATTENTION_DKV, 6, 8, tensors);
    attention_check(x, "dq", &dq, x->dq_wanted);
    attention_check(x, "dk", &dk, x->dk_wanted);
    attention_check(x, "dv", &dv, x->dv_wanted);
    stored_free(&dq), stored_free(&dk), stored_free(&dv);
}

void attention_try_all(const conformance *c, const attention_trial *trials, size_t count, attention_direction *try_one)
{
    for (size_t i = 0; i < count; i++) {
        attention_data x;
        attention_make(&x, trials[i]);
        attention_solve(&x);
        try_one(c, &x);
        attention_free(&x);
    }
}

/* ----------------------------------------------------------------- scatter */

void scatter_try(const conformance *c, const scatter_trial *s)
{
    const uint32_t words[] = {1, s->v, s->d, s->n};
    const size_t count = (size_t)s->v * s->d;
    stored dy = stored_random(s->dy_dtype, (size_t)s->n * s->d, 1, 1), y = stored_random(s->y_dtype, count, 2, 1);
    uint32_t *ids = malloc(4 * (size_t)s->n), *order = malloc(4 * (size_t)s->n), *offsets = calloc(s->v + 2, 4);
    double *wanted = doubles(count);
    assert_true(ids && order && offsets);
    uint64_t seed = 3;
    for (uint32_t i = 0; i < s->n; i++) { /* few ids, so that most rows collect many or none */
        ids[i] = (uint32_t)((conformance_random(&seed) + 1) * 0.5f * (float)s->v) % s->v;
        if (i % 3 == 0) ids[i] = s->v / 2;
    }
    for (uint32_t v = 0, at = 0; v < s->v; v++) {
        offsets[v] = at;
        for (uint32_t i = 0; i < s->n; i++)
            if (ids[i] == v) order[at++] = i;
        offsets[v + 1] = at;
    }
    for (size_t i = 0; i < count; i++) wanted[i] = (double)y.value[i];
    for (size_t i = 0; i < s->n; i++)
        for (size_t d = 0; d < s->d; d++) wanted[ids[i] * s->d + d] += (double)dy.value[i * s->d + d];
    const tern_tape_tensor sorted[] = {{dy.dtype, READ}, {TERN_U32, READ}, {TERN_U32, READ}};
    const tern_tape_tensor unsorted[] = {{dy.dtype, READ}, {(uint8_t)s->id_dtype, READ}};
    tape_maker maker;
    tern_kernel_desc desc;
    trial_epilogue_tape(&maker, ACCUMULATE, s->y_dtype);
    tape_maker_contraction(&maker, TERN_KERNEL_SCATTER_ADD, s->sorted ? 3 : 2, s->sorted ? sorted : unsorted, 4, &desc);
    desc.sorted = s->sorted;
    conformance_choose(c, words, &desc);
    conformance_array in_order[] = {
        stored_array(&dy), {order, 4 * (size_t)s->n}, {offsets, 4 * ((size_t)s->v + 1)}, stored_array(&y)};
    conformance_array by_id[] = {stored_array(&dy), {ids, 4 * (size_t)s->n}, stored_array(&y)};
    conformance_dispatch(c, &desc, words, s->sorted ? in_order : by_id);
    char what[96];
    snprintf(what, sizeof what, "scatter of %u rows of %u into %u, %s", s->n, s->d, s->v, tern_dtype(dy.dtype)->name);
    stored_check(what, &y, wanted, 1e-30);
    stored_free(&dy), stored_free(&y);
    free(ids), free(order), free(offsets), free(wanted);
}
