/* SPDX-License-Identifier: Apache-2.0 */
/* gradient_rules.c - one rule per primitive: given dy, what its inputs receive. y is the result, a b c the inputs.
 *
 * Every rule is built from public ops, so a gradient fuses like anything else. Contractions get contractions of
 * PERMUTEd views (no copy). Broadcasting's gradient, a sum, exists in one place: EXPAND. Formulas stand beside the
 * code. */
#include "core/graph/build.h"
#include "core/graph/gradient.h"

#include <string.h>

#define RULE(name) static void name##_rule(tern_backprop *walk, tern_tensor *y, tern_tensor *dy)
#define WANTS(i)   tern_backprop_wants(walk, y, i)
#define GIVE(i, d) tern_backprop_give(walk, y, i, d)
#define A          (y->in[0])
#define B          (y->in[1])

static tern_tensor *number(const tern_tensor *x, double value) { return tern_constant(x->graph, value); }

/* ------------------------------------------------------------- one operand */

RULE(neg) { GIVE(0, tern_neg(dy)); }

/* dy sign(a), 0 at 0 */
RULE(abs)
{
    tern_tensor *zero = number(y, 0);
    GIVE(0, tern_where(tern_less(zero, A), dy, tern_where(tern_less(A, zero), tern_neg(dy), zero)));
}

RULE(exp) { GIVE(0, tern_mul(dy, y)); }
RULE(log) { GIVE(0, tern_div(dy, A)); }
RULE(sqrt) { GIVE(0, tern_div(tern_scale(dy, 0.5), y)); }

/* -1/2 a^(-3/2) = -1/2 y^3 */
RULE(rsqrt) { GIVE(0, tern_mul(tern_mul(tern_scale(dy, -0.5), y), tern_mul(y, y))); }

RULE(recip) { GIVE(0, tern_neg(tern_mul(dy, tern_mul(y, y)))); }

/* 1 - y^2 as (1 - y)(1 + y): the first factor is exact near y = 1, where the square would cancel */
RULE(tanh)
{
    tern_tensor *one = number(y, 1);
    GIVE(0, tern_mul(dy, tern_mul(tern_sub(one, y), tern_add(one, y))));
}

/* 2 / sqrt(pi) exp(-a^2) */
RULE(erf) { GIVE(0, tern_mul(dy, tern_scale(tern_exp(tern_neg(tern_mul(A, A))), 1.12837916709551257390))); }

RULE(sin) { GIVE(0, tern_mul(dy, tern_cos(A))); }
RULE(cos) { GIVE(0, tern_neg(tern_mul(dy, tern_sin(A)))); }
/* Between floats, where only the result's rounding would stand between the two: dy as f32. */
RULE(cast) { GIVE(0, tern_widen(dy)); }

/* ------------------------------------------------------------ two and three */

RULE(add)
{
    if (WANTS(0)) GIVE(0, dy);
    if (WANTS(1)) GIVE(1, dy);
}

RULE(sub)
{
    if (WANTS(0)) GIVE(0, dy);
    if (WANTS(1)) GIVE(1, tern_neg(dy));
}

RULE(mul)
{
    if (WANTS(0)) GIVE(0, tern_mul(dy, B));
    if (WANTS(1)) GIVE(1, tern_mul(dy, A));
}

/* d(a / b) = da / b - y db / b */
RULE(div)
{
    tern_tensor *quotient = tern_div(dy, B);
    if (WANTS(0)) GIVE(0, quotient);
    if (WANTS(1)) GIVE(1, tern_neg(tern_mul(quotient, y)));
}

/* Input i gets dy where it won, half of dy on ties, else 0. */
static tern_tensor *winner(tern_tensor *won, const tern_tensor *y, tern_tensor *dy)
{
    return tern_where(won, dy, tern_where(tern_equal(A, B), tern_scale(dy, 0.5), number(y, 0)));
}

RULE(max)
{
    if (WANTS(0)) GIVE(0, winner(tern_less(B, A), y, dy));
    if (WANTS(1)) GIVE(1, winner(tern_less(A, B), y, dy));
}

RULE(min)
{
    if (WANTS(0)) GIVE(0, winner(tern_less(A, B), y, dy));
    if (WANTS(1)) GIVE(1, winner(tern_less(B, A), y, dy));
}

RULE(where)
{
    if (WANTS(1)) GIVE(1, tern_where(A, dy, number(y, 0)));
    if (WANTS(2)) GIVE(2, tern_where(A, number(y, 0), dy));
}

/* ------------------------------------------------------- views and reductions */

RULE(reshape) { GIVE(0, tern_reshape(dy, A->rank, A->shape)); }

RULE(permute)
{
    int32_t inverse[TERN_MAX_RANK];
    for (int32_t i = 0; i < y->rank; i++) inverse[y->at.permute.axes[i]] = i;
    GIVE(0, tern_permute(dy, inverse));
}

/* The gradient of all broadcasting: an element that was read n times gets the sum of n. */
RULE(expand)
{
    uint32_t axes = 0;
    for (int32_t i = 0; i < y->rank; i++)
        if (A->shape[i] != y->shape[i]) axes |= 1u << i;
    GIVE(0, tern_reduce_sum(dy, axes));
}

RULE(slice)
{
    int64_t after[TERN_MAX_RANK];
    for (int32_t i = 0; i < y->rank; i++) after[i] = A->shape[i] - y->at.slice.starts[i] - y->shape[i];
    GIVE(0, tern_pad_all(dy, y->at.slice.starts, after));
}

RULE(pad) { GIVE(0, tern_slice_all(dy, y->at.pad.before, A->shape)); }

RULE(sum) { GIVE(0, tern_expand_like(dy, A)); }

/* Shared evenly by the places that hold the maximum: the count is a per-row number, the division happens there. */
RULE(maximum)
{
    tern_tensor *holds = tern_equal(A, tern_expand_like(y, A));
    tern_tensor *holders = tern_reduce_sum(tern_where(holds, number(y, 1), number(y, 0)), y->at.reduce.axes);
    GIVE(0, tern_where(holds, tern_expand_like(tern_div(dy, holders), A), number(y, 0)));
}

/* ------------------------------------------------------------- contractions */

/* Whether x is a matrix seen transposed, batches and reshapes aside. */
static bool is_transposed(const tern_tensor *x)
{
    while (x->op == TERN_OP_RESHAPE) x = x->in[0];
    return x->op == TERN_OP_PERMUTE && x->at.permute.axes[x->rank - 1] == x->rank - 2;
}

/* left^T right for an operand of a matmul. If the operand is a transposed view, the product is formed transposed, so
 * that undoing the view gives the product as it is stored: the weight gradient of x W^T is written (or accumulated) in
 * W's own layout. */
static tern_tensor *product_for(const tern_tensor *operand, tern_tensor *left, tern_tensor *right)
{
    if (is_transposed(operand)) return tern_transpose(tern_matmul_3d(tern_transpose(right, 1, 2), left), 1, 2);
    return tern_matmul_3d(tern_transpose(left, 1, 2), right);
}

/* da = dy b^T, db = a^T dy; dy is stored as what it is multiplied with. */
RULE(matmul)
{
    tern_tensor *for_a = tern_narrow(dy, B->dtype);
    if (WANTS(0)) GIVE(0, product_for(A, tern_transpose(for_a, 1, 2), tern_transpose(B, 1, 2)));
    if (WANTS(1)) GIVE(1, product_for(B, A, A->dtype == B->dtype ? for_a : tern_narrow(dy, A->dtype)));
}

/* P = exp(S - lse), dV = P^T dO, dS = P o (dO V^T - delta), dQ = scale dS K, dK = scale dS^T Q, delta = rowsum(dO o O).
 * Source: Dao, "FlashAttention-2", 2023, algorithm 2. */
RULE(attention)
{
    tern_tensor *delta = tern_reshape(tern_sum(tern_mul(tern_widen(dy), tern_widen(y)), 3), 3, y->shape);
    tern_tensor *in[6] = {A, B, y->in[2], dy, tern_second(y), delta};
    tern_graph *graph = y->graph;
    if (WANTS(0)) {
        tern_tensor *dq = tern_graph_node(graph, TERN_OP_ATTENTION_DQ, y->dtype, 4, A->shape, 6, in, NULL);
        if (dq != graph->inert) dq->at.attention = y->at.attention;
        GIVE(0, dq);
    }
    if (WANTS(1) || WANTS(2)) {
        tern_tensor *dk = tern_graph_node(graph, TERN_OP_ATTENTION_DKV, y->dtype, 4, B->shape, 6, in, NULL);
        if (dk != graph->inert) dk->at.attention = y->at.attention;
        if (WANTS(1)) GIVE(1, dk);
        if (WANTS(2)) GIVE(2, tern_second(dk));
    }
}

/* The loader sorts the ids of an INPUT; two tables of different length cannot share one sort, so the second scans its
 * ids. */
static bool sortable(tern_tensor *ids, int64_t rows)
{
    if (ids->op != TERN_OP_INPUT) return false;
    for (uint32_t i = 0; i < ids->graph->node_count; i++) {
        const tern_tensor *x = ids->graph->nodes[i];
        if (x->op == TERN_OP_INPUT && x->at.input.sort_of == ids && x->at.input.rows != rows) return false;
    }
    return true;
}

/* dtable(v) = sum of dy(n) over ids(n) == v, in the order of n: the same bits in every run, no atomics. */
RULE(gather)
{
    if (!WANTS(0)) return;
    int64_t rows = A->shape[0], n = tern_count(B);
    tern_tensor *source = B;
    while (source->op == TERN_OP_RESHAPE) source = source->in[0];
    bool sorted = sortable(source, rows);
    tern_tensor *in[4] = {tern_reshape(dy, 2, (int64_t[]){n, A->shape[1]}), tern_reshape(B, 1, &n)};
    if (in[1]->dtype == TERN_U8 || in[1]->dtype == TERN_U16) in[1] = tern_cast(in[1], TERN_U32);
    if (sorted) {
        in[2] = tern_input_sort(source, rows, 0);
        in[3] = tern_input_sort(source, rows, 1);
    }
    tern_tensor *d = tern_graph_node(y->graph, TERN_OP_SCATTER_ADD, TERN_F32, 2, A->shape, sorted ? 4 : 2, in, NULL);
    if (d != y->graph->inert) d->at.scatter.rows = rows;
    GIVE(0, d);
}

const tern_gradient_rule tern_gradient_rules[TERN_OP_COUNT] = {
    [TERN_OP_RESHAPE] = reshape_rule,
    [TERN_OP_PERMUTE] = permute_rule,
    [TERN_OP_EXPAND] = expand_rule,
    [TERN_OP_SLICE] = slice_rule,
    [TERN_OP_PAD] = pad_rule,
    [TERN_OP_NEG] = neg_rule,
    [TERN_OP_ABS] = abs_rule,
    [TERN_OP_EXP] = exp_rule,
    [TERN_OP_LOG] = log_rule,
    [TERN_OP_SQRT] = sqrt_rule,
    [TERN_OP_RSQRT] = rsqrt_rule,
    [TERN_OP_RECIP] = recip_rule,
    [TERN_OP_TANH] = tanh_rule,
    [TERN_OP_ERF] = erf_rule,
    [TERN_OP_SIN] = sin_rule,
    [TERN_OP_COS] = cos_rule,
    [TERN_OP_ADD] = add_rule,
    [TERN_OP_SUB] = sub_rule,
    [TERN_OP_MUL] = mul_rule,
    [TERN_OP_DIV] = div_rule,
    [TERN_OP_MAX] = max_rule,
    [TERN_OP_MIN] = min_rule,
    [TERN_OP_WHERE] = where_rule,
    [TERN_OP_CAST] = cast_rule,
    [TERN_OP_GATHER] = gather_rule,
    [TERN_OP_SUM] = sum_rule,
    [TERN_OP_MAXIMUM] = maximum_rule,
    [TERN_OP_MATMUL] = matmul_rule,
    [TERN_OP_ATTENTION] = attention_rule,
};
