/* SPDX-License-Identifier: Apache-2.0 */
/* check_contractions.c - cases of matmul, attention, gather and its gradient, and of what is fused into their ends. */
#include "core/cli/check.h"

#include <math.h>
#include <stdio.h>

#include "core/base/philox.h"

#define SHAPE(...)                                                                                                     \
    (int32_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]) { __VA_ARGS__ }
#define P(name, ...) tern_check_parameter(graph, c, name, SHAPE(__VA_ARGS__))
#define BUILD(name)                                                                                                    \
    static void name(tern_graph *graph, __attribute__((unused)) const tern_check_case *c,                              \
                     __attribute__((unused)) uint64_t seed)
#define OUT(y) tern_check_output(graph, y)

/* -------------------------------------------------------------------- matmul */

enum { PLAIN = 0, B_TRANSPOSED = 1, A_TRANSPOSED = 2, BOTH_TRANSPOSED = 3 };
#define TRIPLES_PER_TRANSPOSE 16 /* 64 in all */
#define TRIPLE_MOST           160u

static const int64_t sizes[] = {1, 31, 33, 65, 127, 257};
#define SIZE_COUNT 6

/* c = a b with a (m, k) and b (k, n), each stored as the transpose says; the names number the pair. */
static void add_matmul(tern_graph *graph, const tern_check_case *c, int32_t number, int64_t m, int64_t n, int64_t k,
                       int32_t transpose)
{
    char name[2][16];
    snprintf(name[0], sizeof name[0], "a%d", number);
    snprintf(name[1], sizeof name[1], "b%d", number);
    tern_tensor *a = transpose & A_TRANSPOSED ? tern_transpose(P(name[0], k, m), 0, 1) : P(name[0], m, k);
    tern_tensor *b = transpose & B_TRANSPOSED ? tern_transpose(P(name[1], n, k), 0, 1) : P(name[1], k, n);
    OUT(tern_matmul(a, b));
}

/* All pairs (m, n); k goes through the sizes too, at a different pace for every transpose. argument: transpose */
BUILD(matmul_pairs)
{
    int32_t number = 0;
    for (int32_t i = 0; i < SIZE_COUNT; i++)
        for (int32_t j = 0; j < SIZE_COUNT; j++, number++)
            add_matmul(graph, c, number, sizes[i], sizes[j], sizes[(i + j + c->argument) % SIZE_COUNT], c->argument);
}

BUILD(matmul_triples)
{
    for (int32_t i = 0; i < TRIPLES_PER_TRANSPOSE; i++) {
        const uint32_t counter[4] = {(uint32_t)i, (uint32_t)c->argument, 0x7419u, 0},
                       key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
        uint32_t words[4];
        tern_philox(counter, key, words);
        add_matmul(graph, c, i, 1 + words[0] % TRIPLE_MOST, 1 + words[1] % TRIPLE_MOST, 1 + words[2] % TRIPLE_MOST,
                   c->argument);
    }
}

BUILD(matmul_batched)
{
    OUT(tern_matmul(P("a", 3, 33, 17), P("b", 3, 17, 65)));
    OUT(tern_matmul(tern_transpose(P("c", 2, 3, 17, 31), 2, 3), P("d", 2, 3, 17, 5)));
    OUT(tern_matmul(P("e", 5, 7, 33), P("f", 33, 31)));
    OUT(tern_matmul(P("g", 3, 5, 33), tern_transpose(P("h", 65, 33), 0, 1)));
}

/* More matrices than any driver has groups on one axis. */
BUILD(matmul_many) { OUT(tern_matmul(P("a", 66001, 2, 3), P("b", 66001, 3, 2))); }

/* A slice of a wider matrix: rows further apart than they are long. */
BUILD(matmul_strided)
{
    OUT(tern_matmul(tern_slice(P("a", 33, 97), 1, 5, 65), tern_slice(P("b", 70, 31), 0, 3, 65)));
    OUT(tern_matmul(tern_permute(P("c", 5, 3, 33), (int32_t[]){1, 0, 2}), P("d", 3, 33, 17)));
}

/* Bias, activation, residual; and a sum into what is there already. */
BUILD(matmul_epilogue)
{
    tern_tensor *x = P("x", 33, 65);
    OUT(tern_add(x, tern_linear(tern_gelu_tanh(tern_linear(x, "up", 129)), "down", 65)));
    OUT(tern_relu(tern_linear(P("z", 31, 17), "relu", 5)));
    tern_tensor *state = tern_state(graph, "acc", TERN_F32, SHAPE(31, 33));
    OUT(tern_assign(state, tern_add(state, tern_matmul(P("p", 31, 65), P("q", 65, 33)))));
}

BUILD(matmul_dropout)
{
    tern_tensor *x = P("x", 33, 65);
    OUT(tern_add(x, tern_dropout(tern_linear(x, "fc", 65), 0.2, "drop")));
}

/* ----------------------------------------------------------------- attention */

typedef struct attention_shape {
    int64_t batch, tq, tk, heads, dim;
    bool causal;
} attention_shape;

static const attention_shape attention_shapes[] = {
    {2, 33, 33, 3, 20, true},  {1, 33, 65, 2, 64, false}, {3, 1, 1, 2, 8, true},     {1, 257, 257, 1, 32, true},
    {1, 65, 65, 1, 128, true}, {1, 31, 31, 1, 256, true}, {2, 1, 127, 3, 33, false}, {1, 127, 127, 5, 1, true},
};

/* argument: which shape */
BUILD(attention)
{
    const attention_shape *s = &attention_shapes[c->argument];
    tern_tensor *q = P("q", s->batch, s->tq, s->heads, s->dim), *k = P("k", s->batch, s->tk, s->heads, s->dim),
                *v = P("v", s->batch, s->tk, s->heads, s->dim);
    OUT(tern_attention(q, k, v, 1 / sqrt((double)s->dim), s->causal));
}

/* As in a GPT: q, k and v are slices of one projection. */
BUILD(attention_packed)
{
    tern_tensor *x = tern_linear(P("x", 2, 33, 24), "qkv", 72), *part[3];
    for (int32_t i = 0; i < 3; i++) part[i] = tern_reshape(tern_slice(x, 2, 24 * i, 24), SHAPE(2, 33, 3, 8));
    OUT(tern_attention(part[0], part[1], part[2], 0.35, true));
}

/* -------------------------------------------------------------------- gather */

/* Ids come from the host and are sorted there; some lie behind the table and read its last row. */
BUILD(gather_sorted)
{
    static const int32_t types[] = {TERN_I32, TERN_U32, TERN_U16, TERN_U8};
    static const char *const names[] = {"i32", "u32", "u16", "u8"};
    for (int32_t i = 0; i < 4; i++) {
        char table[16];
        snprintf(table, sizeof table, "table.%s", names[i]);
        OUT(tern_gather(P(table, 31, 33), tern_input_2d(graph, names[i], types[i], 5, 65)));
    }
}

/* Ids made on the device: no order is known. */
BUILD(gather_unsorted)
{
    tern_tensor *ids = tern_index(graph, SHAPE(7, 65), 1);
    ids = tern_shift_right(tern_mul(ids, tern_constant_u32(graph, 2654435769u)), tern_constant_u32(graph, 27));
    OUT(tern_gather(P("table", 33, 17), ids));
}

/* An embedding that is also the output matrix: its gradient has two parts. */
BUILD(gather_tied)
{
    tern_tensor *ids = tern_input_2d(graph, "ids", TERN_I32, 3, 31);
    tern_tensor *x = tern_tanh(tern_gather(P("table", 65, 33), ids));
    OUT(tern_matmul(x, tern_transpose(P("table", 65, 33), 0, 1)));
}

/* Vocabulary 50257, few of whose rows are read; rows of zero gradient stay zero. */
BUILD(gather_wide) { OUT(tern_gather(P("table", 50257, 5), tern_input_1d(graph, "ids", TERN_I32, 65))); }

#define CASE(op_name, case_name, how, which)                                                                           \
    .op = op_name, .name = case_name, .dtype = TERN_F32, .build = how, .argument = which, .gradient = true, .low = -1, \
    .high = 1

const tern_check_case tern_check_contraction_cases[] = {
    {CASE("matmul", "pairs-nn", matmul_pairs, PLAIN)},
    {CASE("matmul", "pairs-nt", matmul_pairs, B_TRANSPOSED)},
    {CASE("matmul", "pairs-tn", matmul_pairs, A_TRANSPOSED)},
    {CASE("matmul", "pairs-tt", matmul_pairs, BOTH_TRANSPOSED)},
    {CASE("matmul", "triples-nn", matmul_triples, PLAIN)},
    {CASE("matmul", "triples-nt", matmul_triples, B_TRANSPOSED)},
    {CASE("matmul", "triples-tn", matmul_triples, A_TRANSPOSED)},
    {CASE("matmul", "triples-tt", matmul_triples, BOTH_TRANSPOSED)},
    {CASE("matmul", "batched", matmul_batched, 0)},
    {CASE("matmul", "66001-matrices", matmul_many, 0)},
    {CASE("matmul", "strided", matmul_strided, 0)},
    {.op = "matmul", .name = "epilogue-assign", .dtype = TERN_F32, .build = matmul_epilogue, .low = -1, .high = 1},
    {CASE("matmul", "epilogue-dropout", matmul_dropout, 0)},
    {CASE("attention", "causal-33", attention, 0)},
    {CASE("attention", "full-33x65", attention, 1)},
    /* One key has all the attention: the gradients of q and k are zero, and on a device what is left of dp - delta. */
    {CASE("attention", "causal-1", attention, 2), .least = 0.1},
    {CASE("attention", "causal-257", attention, 3)},
    {CASE("attention", "head-128", attention, 4)},
    {CASE("attention", "head-256", attention, 5)},
    {CASE("attention", "full-1x127", attention, 6)},
    {CASE("attention", "head-1", attention, 7)},
    {CASE("attention", "packed", attention_packed, 0)},
    {CASE("gather", "sorted", gather_sorted, 0), .below = 33},
    {CASE("gather", "unsorted", gather_unsorted, 0)},
    {CASE("gather", "tied", gather_tied, 0), .below = 65},
    {CASE("gather", "vocab-50257", gather_wide, 0), .below = 50257},
    {.op = NULL},
};
