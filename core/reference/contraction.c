/* SPDX-License-Identifier: Apache-2.0 */
/* contraction.c - matmul, gather, scatter-add, attention and its two gradients, as the formulas are written.
 *
 * With call->magnitude each adds |terms| of its outermost sum instead of terms. */
#include "core/reference/ops.h"

#include <math.h>
#include <string.h>

static double term(const tern_reference_call *call, double value) { return call->magnitude ? fabs(value) : value; }

/* c(b, m, n) = sum_k a(b, m, k) b(b, k, n) */
void tern_reference_matmul(const tern_reference_call *call)
{
    const tern_tensor *y = call->node;
    int64_t M = y->shape[1], N = y->shape[2], K = y->in[0]->shape[2];
    for (int64_t batch = 0; batch < y->shape[0]; batch++)
        for (int64_t m = 0; m < M; m++)
            for (int64_t n = 0; n < N; n++) {
                const double *a = call->in[0] + (batch * M + m) * K, *b = call->in[1] + batch * K * N + n;
                double sum = 0;
                for (int64_t k = 0; k < K; k++) sum += term(call, a[k] * b[k * N]);
                call->out[(batch * M + m) * N + n] = sum;
            }
}

/* An id at or above rows reads the last row; a negative i32 is a large u32. */
static int64_t row_of(double id, int64_t rows)
{
    uint32_t row = (uint32_t)(int64_t)id;
    return row < rows ? (int64_t)row : rows - 1;
}

void tern_reference_gather(const tern_reference_call *call)
{
    int64_t rows = call->node->in[0]->shape[0], D = call->node->in[0]->shape[1], N = tern_count(call->node->in[1]);
    for (int64_t n = 0; n < N; n++)
        memcpy(call->out + n * D, call->in[0] + row_of(call->in[1][n], rows) * D, (size_t)D * sizeof(double));
}

/* The sorted form's order and offsets are not looked at: they are only another way to find the same rows. */
void tern_reference_scatter_add(const tern_reference_call *call)
{
    int64_t rows = call->node->shape[0], D = call->node->shape[1], N = tern_count(call->node->in[1]);
    memset(call->out, 0, (size_t)(rows * D) * sizeof(double));
    for (int64_t n = 0; n < N; n++) {
        double *row = call->out + row_of(call->in[1][n], rows) * D;
        for (int64_t d = 0; d < D; d++) row[d] += term(call, call->in[0][n * D + d]);
    }
}

/* ---------------------------------------------------------------- attention */

typedef struct heads {
    int64_t B, Tq, Tk, H, D;
    double scale;
    bool causal;
} heads;

static heads heads_of(const tern_tensor *y)
{
    const int64_t *q = y->in[0]->shape;
    return (heads){q[0], q[1], y->in[1]->shape[1], q[2], q[3], (double)y->at.attention.scale, y->at.attention.causal};
}

/* Element (b, t, h, 0) of a (B, T, H, D) tensor. */
static int64_t vector_at(const heads *s, int64_t T, int64_t b, int64_t t, int64_t h)
{
    return ((b * T + t) * s->H + h) * s->D;
}

static double dot(const double *a, const double *b, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += a[i] * b[i];
    return sum;
}

static bool sees(const heads *s, int64_t i, int64_t j) { return !s->causal || j <= i; }

/* o_i = sum_j exp(s_ij - lse_i) v_j,  s = scale q k^T,  lse_i = log sum_j exp(s_ij) */
static void attention_row(const tern_reference_call *call, const heads *s, int64_t b, int64_t i, int64_t h)
{
    int64_t at = vector_at(s, s->Tq, b, i, h);
    double top = -INFINITY, sum = 0, lse;
    double *o = call->out + at;
    for (int64_t j = 0; j < s->Tk; j++) {
        double score = s->scale * dot(call->in[0] + at, call->in[1] + vector_at(s, s->Tk, b, j, h), s->D);
        if (sees(s, i, j) && !(score <= top)) top = score;
    }
    for (int64_t j = 0; j < s->Tk; j++)
        if (sees(s, i, j))
            sum += exp(s->scale * dot(call->in[0] + at, call->in[1] + vector_at(s, s->Tk, b, j, h), s->D) - top);
    lse = top + log(sum);
    if (call->second) call->second[at / s->D] = call->magnitude ? fabs(lse) : lse;
    for (int64_t d = 0; d < s->D; d++) o[d] = 0;
    for (int64_t j = 0; j < s->Tk; j++) {
        int64_t from = vector_at(s, s->Tk, b, j, h);
        if (!sees(s, i, j)) continue;
        double p = exp(s->scale * dot(call->in[0] + at, call->in[1] + from, s->D) - lse);
        for (int64_t d = 0; d < s->D; d++) o[d] += term(call, p * call->in[2][from + d]);
    }
}

/* Outputs of q's dtype are rounded to it when they are complete. */
static void round_all(const tern_reference_call *call, double *values, int64_t count)
{
    for (int64_t i = 0; values && !call->magnitude && !call->exact && i < count; i++)
        values[i] = tern_reference_round(values[i], call->node->dtype);
}

void tern_reference_attention(const tern_reference_call *call)
{
    heads s = heads_of(call->node);
    for (int64_t b = 0; b < s.B; b++)
        for (int64_t i = 0; i < s.Tq; i++)
            for (int64_t h = 0; h < s.H; h++) attention_row(call, &s, b, i, h);
    round_all(call, call->out, tern_count(call->node));
}

/* The probability and the score's gradient of one pair: ds = p (do_i . v_j - delta_i). in: q k v do lse delta. */
static double pair_gradient(const tern_reference_call *call, const heads *s, int64_t query, int64_t key, double *out_p)
{
    double score = s->scale * dot(call->in[0] + query, call->in[1] + key, s->D);
    *out_p = exp(score - call->in[4][query / s->D]);
    return *out_p * (dot(call->in[3] + query, call->in[2] + key, s->D) - call->in[5][query / s->D]);
}

/* dq_i = scale sum_j ds_ij k_j */
void tern_reference_attention_dq(const tern_reference_call *call)
{
    heads s = heads_of(call->node);
    memset(call->out, 0, (size_t)(s.B * s.Tq * s.H * s.D) * sizeof(double));
    for (int64_t b = 0; b < s.B; b++)
        for (int64_t h = 0; h < s.H; h++)
            for (int64_t i = 0; i < s.Tq; i++)
                for (int64_t j = 0; j < s.Tk; j++) {
                    int64_t query = vector_at(&s, s.Tq, b, i, h), key = vector_at(&s, s.Tk, b, j, h);
                    double p;
                    if (!sees(&s, i, j)) continue;
                    double ds = pair_gradient(call, &s, query, key, &p);
                    for (int64_t d = 0; d < s.D; d++)
                        call->out[query + d] += term(call, s.scale * ds * call->in[1][key + d]);
                }
    round_all(call, call->out, tern_count(call->node));
}

/* dk_j = scale sum_i ds_ij q_i,  dv_j = sum_i p_ij do_i */
void tern_reference_attention_dkv(const tern_reference_call *call)
{
    heads s = heads_of(call->node);
    size_t bytes = (size_t)(s.B * s.Tk * s.H * s.D) * sizeof(double);
    memset(call->out, 0, bytes);
    if (call->second) memset(call->second, 0, bytes);
    for (int64_t b = 0; b < s.B; b++)
        for (int64_t h = 0; h < s.H; h++)
            for (int64_t j = 0; j < s.Tk; j++)
                for (int64_t i = 0; i < s.Tq; i++) {
                    int64_t query = vector_at(&s, s.Tq, b, i, h), key = vector_at(&s, s.Tk, b, j, h);
                    double p;
                    if (!sees(&s, i, j)) continue;
                    double ds = pair_gradient(call, &s, query, key, &p);
                    for (int64_t d = 0; d < s.D; d++) {
                        call->out[key + d] += term(call, s.scale * ds * call->in[0][query + d]);
                        if (call->second) call->second[key + d] += term(call, p * call->in[3][query + d]);
                    }
                }
    round_all(call, call->out, tern_count(call->node));
    round_all(call, call->second, tern_count(call->node));
}
