/* SPDX-License-Identifier: Apache-2.0 */
/* contraction.c - see contraction.h. */
#include "core/kernel/contraction.h"

#include "core/base/dtype.h"
#include "core/kernel/trace_internal.h"

#include <string.h>

typedef struct resolver {
    const bool *stored;
    const tern_tensor *need;
    tern_contraction *out;
} resolver;

/* An operand seen through its views, over its own axes. */
typedef struct walked {
    const tern_tensor *base;
    tern_space space;
    tern_affine element;
} walked;

/* Templates load f16 and bf16 as f32, so a widening CAST is walked through like a view; attention, whose operands have
 * one dtype, is built without any. */
static bool is_walkable(const resolver *r, const tern_tensor *x)
{
    if (r->stored[x->id] || x->op == TERN_OP_SECOND) return false;
    return tern_ops[x->op].kind == TERN_KIND_VIEW || x->op == TERN_OP_DETACH ||
           (tern_is_widening(x) && r->out->has_epilogue);
}

static bool is_loadable(const resolver *r, const tern_tensor *x)
{
    switch (tern_ops[x->op].kind) {
    case TERN_KIND_LEAF: return (x->op != TERN_OP_CONSTANT && x->op != TERN_OP_INDEX) || r->stored[x->id];
    case TERN_KIND_EFFECT: return true;
    default: return r->stored[x->id];
    }
}

static tern_trace_result need(resolver *r, const tern_tensor *x)
{
    r->need = x;
    return TERN_TRACE_STORE;
}

static tern_trace_result walk(resolver *r, const tern_tensor *x, walked *out)
{
    const tern_tensor *operand = x;
    tern_access access, through;
    memset(out, 0, sizeof *out);
    out->space.dim_count = (uint32_t)x->rank;
    memcpy(out->space.extent, x->shape, (size_t)x->rank * sizeof x->shape[0]);
    tern_access_full(&out->space, &access);
    while (is_walkable(r, x)) {
        tern_split split;
        if (tern_is_widening(x)) {
            x = x->in[0];
            continue;
        }
        if (tern_access_through(&out->space, x, &access, &through, &split) != TERN_ACCESS_OK || through.mask_count > 0)
            return need(r, operand);
        access = through;
        x = x->in[0];
    }
    if (!is_loadable(r, x)) return need(r, x->op == TERN_OP_CONSTANT || x->op == TERN_OP_INDEX ? operand : x);
    out->base = x;
    out->element = access.element;
    return TERN_TRACE_OK;
}

static void add_operand(resolver *r, const walked *from, uint32_t mode)
{
    int64_t low, high;
    tern_access_range(&from->space, &from->element, &low, &high);
    r->out->operands[r->out->operand_count++] = (tern_contraction_operand){.storage = tern_storage_of(from->base),
                                                                           .offset = from->element.offset,
                                                                           .low = low,
                                                                           .high = high + 1,
                                                                           .mode = mode,
                                                                           .dtype = from->base->dtype};
}

/* An output of count elements; node NULL: scratch. */
static void add_output(resolver *r, const tern_tensor *node, int32_t dtype, int64_t count)
{
    r->out->operands[r->out->operand_count++] =
        (tern_contraction_operand){.storage = node,
                                   .high = count,
                                   .scratch_bytes = tern_dtype_bytes(dtype, (uint64_t)count),
                                   .mode = TERN_ACCESS_WRITE,
                                   .dtype = dtype};
}

/* An operand that the template takes row-major only. */
static tern_trace_result add_contiguous(resolver *r, const tern_tensor *x)
{
    walked w;
    tern_access full;
    TERN_TRACE_TRY(walk(r, x, &w));
    tern_access_full(&w.space, &full);
    full.element.offset = w.element.offset;
    if (memcmp(&full.element, &w.element, sizeof w.element) != 0) return need(r, x);
    add_operand(r, &w, TERN_ACCESS_READ);
    return TERN_TRACE_OK;
}

/* A matrix (batch, rows, columns) with unit stride along one of the two. */
static tern_trace_result add_matrix(resolver *r, const tern_tensor *x, uint32_t batch_word, bool *out_transposed)
{
    walked w;
    TERN_TRACE_TRY(walk(r, x, &w));
    const int64_t rows = w.space.extent[1], columns = w.space.extent[2];
    const int64_t row = w.element.coef[1], column = w.element.coef[2];
    int64_t ld;
    if (columns == 1 || column == 1) {
        *out_transposed = false;
        ld = rows == 1 ? columns : row;
    } else if (rows == 1 || row == 1) {
        *out_transposed = true;
        ld = column;
    } else {
        return need(r, x);
    }
    if (ld < 1) return need(r, x);
    r->out->words[batch_word] = (uint32_t)w.element.coef[0];
    r->out->words[batch_word + 1] = (uint32_t)ld;
    add_operand(r, &w, TERN_ACCESS_READ);
    return TERN_TRACE_OK;
}

static tern_trace_result resolve_matmul(resolver *r, const tern_tensor *x)
{
    const tern_tensor *a = x->in[0];
    uint32_t *words = r->out->words;
    words[TERN_WORD_BATCH] = (uint32_t)x->shape[0];
    words[TERN_WORD_M] = (uint32_t)x->shape[1];
    words[TERN_WORD_N] = (uint32_t)x->shape[2];
    words[TERN_WORD_K] = (uint32_t)a->shape[2];
    r->out->kind = TERN_KERNEL_MATMUL;
    r->out->word_count = TERN_MATMUL_WORDS;
    r->out->has_epilogue = true;
    r->out->flops = 2.0 * (double)tern_count(x) * (double)a->shape[2];
    TERN_TRACE_TRY(add_matrix(r, a, TERN_WORD_A_BATCH, &r->out->a_transposed));
    return add_matrix(r, x->in[1], TERN_WORD_B_BATCH, &r->out->b_transposed);
}

static tern_trace_result resolve_scatter(resolver *r, const tern_tensor *x)
{
    r->out->kind = TERN_KERNEL_SCATTER_ADD;
    r->out->sorted = x->in_count == 4;
    r->out->word_count = 4;
    r->out->words[0] = 1;
    r->out->words[1] = (uint32_t)x->shape[0];
    r->out->words[2] = (uint32_t)x->shape[1];
    r->out->words[3] = (uint32_t)tern_count(x->in[1]);
    r->out->has_epilogue = true;
    r->out->flops = (double)tern_count(x->in[0]);
    TERN_TRACE_TRY(add_contiguous(r, x->in[0]));
    if (!r->out->sorted) return add_contiguous(r, x->in[1]);
    TERN_TRACE_TRY(add_contiguous(r, x->in[2]));
    return add_contiguous(r, x->in[3]);
}

/* q, k or v: (B, T, H, D), D contiguous; its three strides go to words. */
static tern_trace_result add_heads(resolver *r, const tern_tensor *x, uint32_t first_word)
{
    walked w;
    TERN_TRACE_TRY(walk(r, x, &w));
    if (w.space.extent[3] > 1 && w.element.coef[3] != 1) return need(r, x);
    for (uint32_t i = 0; i < 3; i++) r->out->words[first_word + i] = (uint32_t)w.element.coef[i];
    add_operand(r, &w, TERN_ACCESS_READ);
    return TERN_TRACE_OK;
}

static tern_trace_result resolve_attention(resolver *r, const tern_tensor *x, const tern_tensor *second)
{
    const tern_tensor *q = x->in[0], *k = x->in[1];
    uint32_t *words = r->out->words;
    const float scale = x->at.attention.scale;
    words[TERN_WORD_B] = (uint32_t)q->shape[0];
    words[TERN_WORD_H] = (uint32_t)q->shape[2];
    words[TERN_WORD_TQ] = (uint32_t)q->shape[1];
    words[TERN_WORD_TK] = (uint32_t)k->shape[1];
    memcpy(&words[TERN_WORD_SCALE], &scale, sizeof scale);
    r->out->word_count = TERN_ATTENTION_WORDS;
    r->out->head_dim = (uint32_t)q->shape[3];
    r->out->causal = x->at.attention.causal;
    const double scores = (double)tern_count(q) * (double)k->shape[1] * (r->out->causal ? 0.5 : 1.0); /* B H Tq Tk D */
    TERN_TRACE_TRY(add_heads(r, q, TERN_WORD_Q_B));
    TERN_TRACE_TRY(add_heads(r, k, TERN_WORD_K_B));
    TERN_TRACE_TRY(add_heads(r, x->in[2], TERN_WORD_V_B));
    if (x->op == TERN_OP_ATTENTION) {
        r->out->kind = TERN_KERNEL_ATTENTION;
        r->out->flops = 4.0 * scores;
        add_output(r, x, x->dtype, tern_count(x));
        add_output(r, second, TERN_F32, tern_count(x) / x->shape[3]);
        return TERN_TRACE_OK;
    }
    for (int32_t i = 3; i < 6; i++) TERN_TRACE_TRY(add_contiguous(r, x->in[i]));
    add_output(r, x, x->dtype, tern_count(x));
    r->out->kind = TERN_KERNEL_ATTENTION_DQ;
    r->out->flops = 6.0 * scores;
    if (x->op == TERN_OP_ATTENTION_DKV) {
        r->out->kind = TERN_KERNEL_ATTENTION_DKV;
        r->out->flops = 8.0 * scores;
        add_output(r, second, x->dtype, tern_count(x));
    }
    return TERN_TRACE_OK;
}

tern_trace_result tern_contraction_resolve(const tern_tensor *x, const tern_tensor *second, const bool *stored,
                                           tern_contraction *out_contraction, const tern_tensor **out_need)
{
    memset(out_contraction, 0, sizeof *out_contraction);
    resolver r = {.stored = stored, .out = out_contraction};
    tern_trace_result result;
    switch (x->op) {
    case TERN_OP_MATMUL: result = resolve_matmul(&r, x); break;
    case TERN_OP_SCATTER_ADD: result = resolve_scatter(&r, x); break;
    default: result = resolve_attention(&r, x, second); break;
    }
    *out_need = r.need;
    return result;
}

void tern_contraction_frame(const tern_tensor *x, tern_frame *out_frame)
{
    memset(out_frame, 0, sizeof *out_frame);
    tern_space *space = &out_frame->space;
    space->dim_count = 3;
    for (uint32_t i = 0; i < 3; i++) space->extent[i] = 1;
    for (int32_t i = 0; i < x->rank; i++) space->extent[3 - x->rank + i] = x->shape[i];
    tern_access full;
    tern_access_full(space, &full);
    out_frame->full = full.element;
}
