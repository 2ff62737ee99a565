/* SPDX-License-Identifier: Apache-2.0 */
/* build_contraction.c - matmul, attention, gather and the sorted ids that gather's gradient needs.
 *
 * The primitives are narrow (MATMUL has rank 3, SCATTER_ADD rank 2); these builders reach them through RESHAPEs, which
 * copy nothing where the operand is contiguous. */
#include "core/base/dtype.h"
#include "core/graph/build.h"

#include <stdio.h>
#include <string.h>

/* ------------------------------------------------------------------ matmul */

tern_tensor *tern_matmul_3d(tern_tensor *a, tern_tensor *b)
{
    tern_tensor *in[2] = {a, b}, *instead;
    if (!tern_build_ready("matmul", 2, in, &instead)) return instead;
    tern_graph *graph = a->graph;
    if (!tern_dtype(a->dtype)->is_float || !tern_dtype(b->dtype)->is_float)
        return tern_graph_fail(graph, TERN_ERROR_INVALID, "matmul: %s and %s must be f32, f16 or bf16; cast them first",
                               tern_describe(a).text, tern_describe(b).text);
    if (a->rank != 3 || b->rank != 3 || a->shape[0] != b->shape[0] || a->shape[2] != b->shape[1])
        return tern_graph_fail(graph, TERN_ERROR_INVALID,
                               "matmul: %s and %s do not multiply; (B, M, K) and (B, K, N) do", tern_describe(a).text,
                               tern_describe(b).text);
    int64_t shape[3] = {a->shape[0], a->shape[1], b->shape[2]};
    return tern_graph_node(graph, TERN_OP_MATMUL, TERN_F32, 3, shape, 2, in, NULL);
}

static bool multiplies(const tern_tensor *a, const tern_tensor *b)
{
    if (a->rank < 2 || b->rank < 2 || a->shape[a->rank - 1] != b->shape[b->rank - 2]) return false;
    if (b->rank == 2) return true;
    bool equal = a->rank == b->rank;
    for (int32_t i = 0; equal && i < a->rank - 2; i++) equal = a->shape[i] == b->shape[i];
    return equal;
}

tern_tensor *tern_matmul_wide(tern_tensor *a, tern_tensor *b)
{
    tern_tensor *in[2] = {a, b}, *instead;
    if (!tern_build_ready("matmul", 2, in, &instead)) return instead;
    if (!multiplies(a, b))
        return tern_graph_fail(a->graph, TERN_ERROR_INVALID,
                               "matmul: %s and %s do not multiply; a's last size must be b's last but one, "
                               "and the axes before them equal (or b of rank 2)",
                               tern_describe(a).text, tern_describe(b).text);
    int64_t m = a->shape[a->rank - 2], k = a->shape[a->rank - 1], n = b->shape[b->rank - 1], shape[TERN_MAX_RANK];
    memcpy(shape, a->shape, sizeof shape);
    shape[a->rank - 1] = n;
    /* One matrix b for all of a: the leading axes are rows. */
    int64_t batch = b->rank == 2 ? 1 : tern_count(a) / (m * k);
    tern_tensor *c = tern_matmul_3d(tern_reshape(a, 3, (int64_t[]){batch, tern_count(a) / (batch * k), k}),
                                    tern_reshape(b, 3, (int64_t[]){batch, k, n}));
    return tern_reshape(c, a->rank, shape);
}

tern_tensor *tern_matmul(tern_tensor *a, tern_tensor *b)
{
    tern_tensor *c = tern_matmul_wide(a, b);
    return c && c->graph->status >= 0 && a->dtype == b->dtype ? tern_narrow(c, a->dtype) : c;
}

/* --------------------------------------------------------------- attention */

tern_tensor *tern_attention(tern_tensor *q, tern_tensor *k, tern_tensor *v, double scale, bool causal)
{
    tern_tensor *in[3] = {q, k, v}, *instead;
    if (!tern_build_ready("attention", 3, in, &instead)) return instead;
    tern_graph *graph = q->graph;
    if (q->dtype != k->dtype || q->dtype != v->dtype)
        for (int32_t i = 0; i < 3; i++) in[i] = tern_widen(in[i]);
    bool fits = q->rank == 4 && k->rank == 4 && tern_same_shape(k, v) && q->shape[0] == k->shape[0] &&
                q->shape[2] == k->shape[2] && q->shape[3] == k->shape[3] && tern_dtype(q->dtype)->is_float &&
                in[0]->dtype == in[1]->dtype && in[0]->dtype == in[2]->dtype;
    if (!fits)
        return tern_graph_fail(graph, TERN_ERROR_INVALID,
                               "attention: q %s, k %s and v %s do not fit; q is (B, Tq, H, D), k and v are "
                               "(B, Tk, H, D), all floats",
                               tern_describe(q).text, tern_describe(k).text, tern_describe(v).text);
    if (causal && q->shape[1] != k->shape[1])
        return tern_graph_fail(graph, TERN_ERROR_INVALID,
                               "attention: causal needs as many queries as keys; q is %s and k %s",
                               tern_describe(q).text, tern_describe(k).text);
    if (q->shape[3] > 256)
        return tern_graph_fail(graph, TERN_ERROR_UNSUPPORTED,
                               "attention: the head size of q %s and k %s is above 256; use more heads",
                               tern_describe(q).text, tern_describe(k).text);
    tern_tensor *o = tern_graph_node(graph, TERN_OP_ATTENTION, in[0]->dtype, 4, q->shape, 3, in, NULL);
    if (o == graph->inert) return o;
    o->at.attention.scale = (float)scale;
    o->at.attention.causal = causal;
    return o;
}

tern_tensor *tern_second(tern_tensor *contraction)
{
    tern_tensor *instead;
    if (!tern_build_ready("second", 1, &contraction, &instead)) return instead;
    tern_graph *graph = contraction->graph;
    if (contraction->op != TERN_OP_ATTENTION && contraction->op != TERN_OP_ATTENTION_DKV)
        return tern_graph_fail(graph, TERN_ERROR_INVALID, "second: %s, the result of %s, has no second output",
                               tern_describe(contraction).text, tern_ops[contraction->op].name);
    /* attention: lse (B, Tq, H); attention_dkv: dv, shaped as dk */
    const bool lse = contraction->op == TERN_OP_ATTENTION;
    const int32_t rank = lse ? 3 : 4, dtype = lse ? TERN_F32 : contraction->dtype;
    tern_tensor *y = tern_graph_node(graph, TERN_OP_SECOND, dtype, rank, contraction->shape, 1, &contraction, NULL);
    if (y != graph->inert) y->pass = contraction->pass; /* made where the contraction was, whoever asks for it */
    return y;
}

/* ------------------------------------------------------------------ gather */

static bool is_integer(int32_t dtype)
{
    return dtype == TERN_I32 || dtype == TERN_U32 || dtype == TERN_U16 || dtype == TERN_U8;
}

tern_tensor *tern_gather(tern_tensor *table, tern_tensor *ids)
{
    tern_tensor *in[2] = {table, ids}, *instead;
    if (!tern_build_ready("gather", 2, in, &instead)) return instead;
    if (table->rank != 2 || !tern_dtype(table->dtype)->is_float || !is_integer(ids->dtype) ||
        ids->rank >= TERN_MAX_RANK)
        return tern_graph_fail(table->graph, TERN_ERROR_INVALID,
                               "gather: table %s must be (V, D) floats and ids %s integers of rank %d at most",
                               tern_describe(table).text, tern_describe(ids).text, TERN_MAX_RANK - 1);
    int64_t shape[TERN_MAX_RANK];
    memcpy(shape, ids->shape, sizeof shape);
    shape[ids->rank] = table->shape[1];
    return tern_graph_node(table->graph, TERN_OP_GATHER, table->dtype, ids->rank + 1, shape, 2, in, NULL);
}

tern_tensor *tern_input_sort(tern_tensor *ids, int64_t rows, int32_t part)
{
    tern_tensor *instead;
    if (!tern_build_ready("input_sort", 1, &ids, &instead)) return instead;
    tern_graph *graph = ids->graph;
    if (ids->op != TERN_OP_INPUT || !is_integer(ids->dtype) || rows < 1 || rows >= INT32_MAX || part < 0 || part > 1)
        return tern_graph_fail(graph, TERN_ERROR_INVALID,
                               "input_sort: part %d of %s for %lld rows; ids must be an integer input, part 0 or 1",
                               part, tern_describe(ids).text, (long long)rows);
    char name[256];
    int length = snprintf(name, sizeof name, "%s.%s", ids->label, part ? "offsets" : "order");
    if (length < 0 || (size_t)length >= sizeof name)
        return tern_graph_fail(graph, TERN_ERROR_INVALID, "input_sort: the name of %s is longer than 240 bytes",
                               tern_describe(ids).text);
    tern_tensor *known = tern_graph_find(graph, TERN_OP_INPUT, name);
    if (known && known->at.input.sort_of == ids && known->at.input.rows == rows) return known;
    tern_tensor *x =
        tern_build_leaf(graph, TERN_OP_INPUT, name, TERN_U32, 1, (int64_t[]){part ? rows + 1 : tern_count(ids)});
    if (x == graph->inert) return x;
    x->at.input.sort_of = ids;
    x->at.input.part = part;
    x->at.input.rows = rows;
    return x;
}

/* A negative i32 counts as a large u32, hence as the last row, exactly as the kernels read it. */
static uint32_t id_at(const void *ids, int32_t dtype, int64_t index, int64_t rows)
{
    uint32_t id = dtype == TERN_U8    ? ((const uint8_t *)ids)[index]
                  : dtype == TERN_U16 ? ((const uint16_t *)ids)[index]
                                      : ((const uint32_t *)ids)[index];
    return id < rows ? id : (uint32_t)(rows - 1);
}

void tern_counting_sort(const void *ids, int32_t dtype, int64_t count, int64_t rows, uint32_t *out_order,
                        uint32_t *out_offsets)
{
    memset(out_offsets, 0, sizeof *out_offsets * (size_t)(rows + 1));
    for (int64_t i = 0; i < count; i++) out_offsets[id_at(ids, dtype, i, rows) + 1]++;
    for (int64_t v = 0; v < rows; v++) out_offsets[v + 1] += out_offsets[v];
    for (int64_t i = 0; i < count; i++) out_order[out_offsets[id_at(ids, dtype, i, rows)]++] = (uint32_t)i;
    /* Each offset has moved to the end of its run, the start of the next: move them back by one. */
    for (int64_t v = rows; v > 0; v--) out_offsets[v] = out_offsets[v - 1];
    out_offsets[0] = 0;
}
