/* SPDX-License-Identifier: Apache-2.0 */
/* test_graph.c - building: shapes, broadcasting, foldings, names, and errors that name the op and both shapes. */
#include "tests/evaluate.h"

#include <stdlib.h>

static tern_tensor *f32(tern_graph *g, const char *name, int32_t rank, const int64_t *shape)
{
    return tern_input(g, name, TERN_F32, rank, shape);
}

static void assert_shape(const tern_tensor *x, int32_t rank, const int64_t *shape)
{
    assert_int_equal(tern_rank(x), rank);
    for (int32_t i = 0; i < rank; i++) assert_int_equal(tern_size(x, i), shape[i]);
}

/* -------------------------------------------------------------------- shapes */

static void test_shapes(void **state)
{
    (void)state;
    tern_graph *g;
    TEST_OK(tern_graph_create(&g));
    tern_tensor *a = f32(g, "a", SHAPE(2, 3, 4)), *row = f32(g, "row", SHAPE(4)), *b = f32(g, "b", SHAPE(5, 1, 3, 1));
    assert_shape(tern_add(a, row), SHAPE(2, 3, 4));
    assert_shape(tern_mul(row, a), SHAPE(2, 3, 4));
    assert_shape(tern_sub(a, b), SHAPE(5, 2, 3, 4));
    assert_shape(tern_where(tern_less(row, row), a, tern_constant(g, 0)), SHAPE(2, 3, 4));
    assert_shape(tern_reshape(a, SHAPE(-1, 6)), SHAPE(4, 6));
    assert_shape(tern_reshape(a, SHAPE(24, -1)), SHAPE(24, 1));
    assert_shape(tern_reshape(f32(g, "one", SHAPE(1, 1)), 0, NULL), 0, NULL);
    assert_shape(tern_permute(a, (int32_t[]){2, 0, -2}), SHAPE(4, 2, 3));
    assert_shape(tern_transpose(a, 0, -1), SHAPE(4, 3, 2));
    assert_shape(tern_expand(row, SHAPE(7, 1, 4)), SHAPE(7, 1, 4));
    assert_shape(tern_slice(a, -1, 1, 2), SHAPE(2, 3, 2));
    assert_shape(tern_pad(a, 0, 1, 2), SHAPE(5, 3, 4));
    assert_shape(tern_concat((tern_tensor *[]){a, a, tern_slice(a, 1, 0, 1)}, 3, 1), SHAPE(2, 7, 4));
    assert_shape(tern_sum(a, -1), SHAPE(2, 3, 1));
    assert_shape(tern_reduce_max(a, 5), SHAPE(1, 3, 1));
    assert_shape(tern_matmul(a, f32(g, "w", SHAPE(4, 9))), SHAPE(2, 3, 9));
    assert_shape(tern_matmul(f32(g, "p", SHAPE(2, 5, 3, 4)), f32(g, "q", SHAPE(2, 5, 4, 6))), SHAPE(2, 5, 3, 6));
    assert_shape(tern_gather(f32(g, "t", SHAPE(10, 8)), tern_input_2d(g, "ids", TERN_U8, 2, 3)), SHAPE(2, 3, 8));
    assert_shape(tern_linear(a, "fc", 6), SHAPE(2, 3, 6));
    assert_shape(tern_linear(row, "fc_row", 6), SHAPE(6));
    assert_int_equal(tern_size(a, -3), 2);
    assert_int_equal(tern_tensor_dtype(tern_less(a, row)), TERN_U32);
    TEST_OK(tern_graph_status(g));
    tern_graph_destroy(g);
}

/* graph.h's invariants, over everything that a small network and its gradients make. */
static void test_invariants(void **state)
{
    (void)state;
    tern_graph *g;
    tern_gradients gradients;
    TEST_OK(tern_graph_create(&g));
    tern_tensor *x = tern_gather(tern_parameter(g, "wte", SHAPE(11, 8), TERN_INIT_NORMAL, 0.02),
                                 tern_input_2d(g, "ids", TERN_I32, 2, 4));
    x = tern_dropout(tern_gelu(tern_linear(tern_layer_norm(x, NULL, NULL, 1e-5), "fc", 8)), 0.1, "drop");
    tern_tensor *heads = tern_reshape(x, SHAPE(2, 4, 2, 4));
    x = tern_reshape(tern_attention(heads, heads, heads, 0.5, true), SHAPE(2, 4, 8));
    x = tern_cross_entropy(tern_linear(x, "head", 11), tern_input_2d(g, "labels", TERN_U16, 2, 4), 3);
    tern_loss(x, NULL);
    TEST_OK(tern_backward(g, x, tern_expand(tern_constant(g, 1), SHAPE(2, 4)), &gradients));
    assert_int_equal(gradients.count, 5);
    for (uint32_t id = 0; id < g->node_count; id++) {
        const tern_tensor *y = g->nodes[id];
        assert_int_equal(y->id, id);
        assert_non_null(y->label);
        assert_true(tern_ops[y->op].inputs < 0 || tern_ops[y->op].inputs == y->in_count);
        for (int32_t i = 0; i < y->in_count; i++) {
            assert_true(y->in[i]->id < id);
            if (tern_ops[y->op].kind == TERN_KIND_MAP && y->op != TERN_OP_RANDOM && y->op != TERN_OP_GATHER)
                assert_shape(y->in[i], y->rank, y->shape);
        }
        if (y->op == TERN_OP_MATMUL) assert_true(y->in[0]->rank == 3 && y->in[0]->shape[2] == y->in[1]->shape[1]);
    }
    tern_gradients_finish(&gradients);
    tern_graph_destroy(g);
}

/* What changes nothing adds no node, and views of views are one view. */
static void test_folding(void **state)
{
    (void)state;
    tern_graph *g;
    TEST_OK(tern_graph_create(&g));
    tern_tensor *a = f32(g, "a", SHAPE(2, 3, 4)), *one = tern_constant(g, 1);
    assert_ptr_equal(tern_reshape(a, SHAPE(2, -1, 4)), a);
    assert_ptr_equal(tern_reshape(tern_reshape(a, SHAPE(24)), SHAPE(2, 3, 4)), a);
    assert_ptr_equal(tern_reshape(tern_reshape(a, SHAPE(24)), SHAPE(4, 6))->in[0], a);
    assert_ptr_equal(tern_permute(a, (int32_t[]){0, 1, 2}), a);
    assert_ptr_equal(tern_transpose(tern_transpose(a, 0, 2), 2, 0), a);
    assert_ptr_equal(tern_expand(a, SHAPE(2, 3, 4)), a);
    assert_ptr_equal(tern_slice(a, 1, 0, 3), a);
    assert_ptr_equal(tern_pad(a, 1, 0, 0), a);
    assert_ptr_equal(tern_mul(a, one), a);
    assert_ptr_equal(tern_mul(one, a), a);
    assert_ptr_equal(tern_div(a, one), a);
    assert_shape(tern_mul(tern_slice(a, 0, 0, 1), tern_expand(one, SHAPE(2, 3, 4))), SHAPE(2, 3, 4));
    assert_ptr_equal(tern_cast(a, TERN_F32), a);
    assert_ptr_equal(tern_sum(tern_slice(a, 0, 1, 1), 0)->in[0], a); /* nothing to sum: the slice itself */
    assert_ptr_equal(tern_dropout(a, 0, "none"), a);
    g->training = false;
    assert_ptr_equal(tern_dropout(a, 0.5, "none"), a);
    assert_ptr_not_equal(tern_div(one, a), a);
    tern_graph_destroy(g);
}

/* --------------------------------------------------------------------- names */

/* More names than one table holds: each is found, and only as the kind that it is. */
static void test_many_names(void **state)
{
    (void)state;
    tern_graph *g;
    tern_tensor *made[1000];
    char name[32];
    TEST_OK(tern_graph_create(&g));
    assert_null(tern_graph_find(g, TERN_OP_STATE, "s0"));
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "%s%d", i % 2 ? "s" : "p", i);
        made[i] =
            i % 2 ? tern_state(g, name, TERN_F32, SHAPE(2)) : tern_parameter(g, name, SHAPE(2), TERN_INIT_ZEROS, 0);
    }
    tern_tensor *bits = tern_random(g, "s1000", SHAPE(2));
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "%s%d", i % 2 ? "s" : "p", i);
        assert_ptr_equal(tern_graph_find(g, i % 2 ? TERN_OP_STATE : TERN_OP_PARAMETER, name), made[i]);
        assert_null(tern_graph_find(g, i % 2 ? TERN_OP_PARAMETER : TERN_OP_STATE, name));
    }
    assert_ptr_equal(tern_graph_find(g, TERN_OP_RANDOM, "s1000"), bits);
    assert_null(tern_graph_find(g, TERN_OP_STATE, "s1000"));
    TEST_OK(tern_graph_status(g));
    tern_graph_destroy(g);
}

static void test_names(void **state)
{
    (void)state;
    tern_graph *g;
    TEST_OK(tern_graph_create(&g));
    tern_tensor *w = tern_parameter(g, "wte.weight", SHAPE(5, 3), TERN_INIT_NORMAL, 0.02);
    assert_ptr_equal(tern_parameter(g, "wte.weight", SHAPE(5, 3), TERN_INIT_ZEROS, 0), w);
    assert_ptr_equal(tern_graph_find(g, TERN_OP_PARAMETER, "wte.weight"), w);
    assert_null(tern_graph_find(g, TERN_OP_INPUT, "wte.weight"));
    tern_tensor *e = tern_label(tern_exp(w), "powers");
    assert_string_equal(e->label, "powers");
    assert_string_equal(tern_label(w, "other")->label, "wte.weight"); /* its name in files */
    assert_int_equal(strncmp(tern_neg(w)->label, "neg#", 4), 0);
    tern_parameter_freeze(w);
    assert_false(w->at.parameter.trainable);
    tern_output(e, "e");
    TEST_OK(tern_graph_status(g));
    (void)tern_parameter(g, "wte.weight", SHAPE(5, 4), TERN_INIT_ZEROS, 0);
    TEST_ERROR(tern_graph_status(g), TERN_ERROR_INVALID,
               "parameter \"wte.weight\": used with shape (5, 4) here and with (5, 3) before");
    tern_graph_destroy(g);
}

static void test_sort(void **state)
{
    (void)state;
    const int32_t ids[9] = {2, 0, -1, 2, 7, 0, 3, 2, 4}; /* -1 and 7 count as 4, the last of 5 rows */
    const uint32_t order[9] = {1, 5, 0, 3, 7, 6, 2, 4, 8}, offsets[6] = {0, 2, 2, 5, 6, 9};
    uint32_t out_order[9], out_offsets[6];
    tern_counting_sort(ids, TERN_I32, 9, 5, out_order, out_offsets);
    assert_memory_equal(out_order, order, sizeof order);
    assert_memory_equal(out_offsets, offsets, sizeof offsets);
    const uint8_t bytes[4] = {1, 0, 1, 9};
    const uint32_t byte_order[4] = {1, 0, 2, 3}, byte_offsets[3] = {0, 1, 4};
    tern_counting_sort(bytes, TERN_U8, 4, 2, out_order, out_offsets);
    assert_memory_equal(out_order, byte_order, sizeof byte_order);
    assert_memory_equal(out_offsets, byte_offsets, sizeof byte_offsets);
    const uint16_t words[2] = {600, 1};
    uint32_t *wide = malloc(sizeof *wide * 1002);
    assert_non_null(wide);
    tern_counting_sort(words, TERN_U16, 2, 1001, out_order, wide);
    assert_true(out_order[0] == 1 && out_order[1] == 0 && wide[600] == 1 && wide[601] == 2 && wide[1001] == 2);
    free(wide);
}

/* The loss weights: none, the ignore mask, the caller's, or their product; a reshape keeps the mask. */
static void test_loss(void **state)
{
    (void)state;
    tern_graph *g;
    TEST_OK(tern_graph_create(&g));
    tern_tensor *logits = f32(g, "logits", SHAPE(2, 3, 5)), *labels = tern_input_2d(g, "labels", TERN_U8, 2, 3);
    assert_null(tern_cross_entropy(logits, labels, -100)->weight); /* no u8 is -100 */
    assert_null(tern_cross_entropy(logits, labels, 256)->weight);
    tern_tensor *loss = tern_reshape(tern_cross_entropy(logits, labels, 255), SHAPE(6)),
                *weight = f32(g, "weight", SHAPE(6));
    assert_non_null(loss->weight);
    assert_shape(loss->weight, SHAPE(6));
    tern_loss(loss, weight);
    TEST_OK(tern_graph_status(g));
    assert_ptr_equal(g->loss, loss);
    assert_int_equal(g->loss_weight->op, TERN_OP_DETACH);
    assert_int_equal(g->loss_weight->in[0]->op, TERN_OP_MUL);
    tern_loss(loss, NULL);
    TEST_ERROR(tern_graph_status(g), TERN_ERROR_INVALID, "loss: the graph already has the loss");
    tern_graph_destroy(g);
}

/* -------------------------------------------------------------------- errors */

/* Each mistake in a graph of its own; a: (2, 3) f32, b: (4, 5) f32, n: (2, 3) i32. */
typedef struct mistake {
    const char *what;
    tern_tensor *(*make)(tern_graph *g, tern_tensor *a, tern_tensor *b, tern_tensor *n);
    const char *parts[3]; /* that the sentence holds */
} mistake;

#define MAKE(name, expression)                                                                                         \
    static tern_tensor *make_##name(tern_graph *g, tern_tensor *a, tern_tensor *b, tern_tensor *n)                     \
    {                                                                                                                  \
        (void)g, (void)a, (void)b, (void)n;                                                                            \
        return expression;                                                                                             \
    }
MAKE(add, tern_add(a, b))
MAKE(dtypes, tern_mul(a, n))
MAKE(exp_integer, tern_exp(n))
MAKE(matmul, tern_matmul(a, b))
MAKE(matmul_batch, tern_matmul(tern_reshape(a, SHAPE(1, 2, 3)), tern_reshape(a, SHAPE(2, 3, 1))))
MAKE(reshape, tern_reshape(a, SHAPE(4, -1)))
MAKE(expand, tern_expand(a, SHAPE(4, 3)))
MAKE(slice, tern_slice(a, 1, 2, 2))
MAKE(pad, tern_pad(a, 0, -1, 0))
MAKE(permute, tern_permute(a, (int32_t[]){1, 1}))
MAKE(axis, tern_sum(a, 2))
MAKE(concat, tern_concat((tern_tensor *[]){a, b}, 2, 0))
MAKE(where, tern_where(a, a, a))
MAKE(attention, tern_attention(tern_reshape(a, SHAPE(1, 2, 1, 3)), tern_reshape(b, SHAPE(1, 4, 1, 5)),
                               tern_reshape(b, SHAPE(1, 4, 1, 5)), 1, false))
MAKE(causal, tern_attention(tern_reshape(a, SHAPE(1, 2, 1, 3)), tern_reshape(a, SHAPE(1, 1, 2, 3)),
                            tern_reshape(a, SHAPE(1, 1, 2, 3)), 1, true))
MAKE(heads,
     tern_attention(tern_reshape(a, SHAPE(1, 2, 1, 3)),
                    tern_expand(tern_reshape(tern_slice(a, 0, 0, 1), SHAPE(1, 1, 1, 3)), SHAPE(1, 3, 1, 3)),
                    tern_expand(tern_reshape(tern_slice(a, 0, 0, 1), SHAPE(1, 1, 1, 3)), SHAPE(1, 3, 1, 3)), 1, true))
MAKE(gather, tern_gather(a, b))
MAKE(layer_norm, tern_layer_norm(a, tern_parameter(g, "ln", SHAPE(2), TERN_INIT_ONES, 0), NULL, 1e-5))
MAKE(cross_entropy, tern_cross_entropy(a, n, -1))
MAKE(dropout, tern_dropout(a, 1, "d"))
MAKE(random, tern_add(tern_random(g, "r", SHAPE(2)), tern_random(g, "r", SHAPE(2))))
MAKE(name, tern_input_1d(g, "b", TERN_F32, 3))
MAKE(reserved, tern_input_1d(g, "tern.control", TERN_U32, 16))
MAKE(size, tern_input_1d(g, "c", TERN_F32, 0))
MAKE(large, tern_input_2d(g, "c", TERN_F32, 65536, 32768))
MAKE(null, tern_add(a, NULL))
MAKE(assign, tern_assign(a, a))
MAKE(assign_shape, tern_assign(tern_state(g, "s", TERN_F32, SHAPE(3)), a))
MAKE(state_dtype, tern_state(g, "s", TERN_I32, SHAPE(3)))
MAKE(linear_shape, tern_linear(b, "fc", (tern_linear(a, "fc", 4), 4)))
MAKE(cast, tern_cast(a, 99))
MAKE(second, tern_second(a))

static const mistake mistakes[] = {
    {"add", make_add, {"add:", "\"a\" (2, 3) f32", "\"b\" (4, 5) f32"}},
    {"dtypes", make_dtypes, {"mul: dtypes differ", "\"a\" (2, 3) f32", "\"n\" (2, 3) i32"}},
    {"exp of i32", make_exp_integer, {"exp:", "\"n\" (2, 3) i32", "must be f32"}},
    {"matmul", make_matmul, {"matmul:", "\"a\" (2, 3) f32", "\"b\" (4, 5) f32"}},
    {"matmul's batch", make_matmul_batch, {"matmul:", "(1, 2, 3)", "(2, 3, 1)"}},
    {"reshape", make_reshape, {"reshape:", "\"a\" (2, 3) f32", "(4, -1)"}},
    {"expand", make_expand, {"expand:", "\"a\" (2, 3) f32", "(4, 3)"}},
    {"slice", make_slice, {"slice:", "[2, 4) of axis 1", "\"a\" (2, 3) f32"}},
    {"pad", make_pad, {"pad:", "-1 before", "\"a\" (2, 3) f32"}},
    {"permute", make_permute, {"permute:", "named twice", "\"a\""}},
    {"axis", make_axis, {"sum:", "axis 2", "\"a\" (2, 3) f32"}},
    {"concat", make_concat, {"concat:", "\"a\" (2, 3) f32", "\"b\" (4, 5) f32"}},
    {"where", make_where, {"where:", "\"a\" (2, 3) f32", "must be u32"}},
    {"attention", make_attention, {"attention:", "(1, 2, 1, 3)", "(1, 4, 1, 5)"}},
    {"attention's heads", make_causal, {"attention:", "(1, 2, 1, 3)", "(1, 1, 2, 3)"}},
    {"causal", make_heads, {"causal", "(1, 2, 1, 3)", "(1, 3, 1, 3)"}},
    {"gather", make_gather, {"gather:", "\"a\" (2, 3) f32", "\"b\" (4, 5) f32"}},
    {"layer norm", make_layer_norm, {"layer_norm: weight", "\"ln\" (2) f32", "\"a\" (2, 3) f32"}},
    {"cross-entropy", make_cross_entropy, {"cross_entropy:", "\"a\" (2, 3) f32", "\"n\" (2, 3) i32"}},
    {"dropout", make_dropout, {"dropout \"d\"", "probability 1", "[0, 1)"}},
    {"random", make_random, {"random \"r\"", "same key", "another label"}},
    {"a name twice", make_name, {"input \"b\" (3)", "(4, 5)", "choose another"}},
    {"a reserved name", make_reserved, {"input \"tern.control\"", "reserved", ""}},
    {"size 0", make_size, {"input:", "size 0 of axis 0", "(0)"}},
    {"2^31 elements", make_large, {"input:", "(65536, 32768)", "split it"}},
    {"NULL", make_null, {"add:", "operand 1 is NULL", ""}},
    {"assign", make_assign, {"assign:", "\"a\" (2, 3) f32", "result of input"}},
    {"assign's shape", make_assign_shape, {"assign:", "\"s\" (3) f32", "\"a\" (2, 3) f32"}},
    {"state's dtype", make_state_dtype, {"state \"s\"", "i32", "bf16"}},
    {"linear twice", make_linear_shape, {"parameter \"fc.weight\"", "(4, 5)", "(4, 3)"}},
    {"cast", make_cast, {"cast:", "\"a\" (2, 3) f32", "99"}},
    {"second", make_second, {"second:", "\"a\"", "input"}},
};

static void test_mistakes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
        tern_graph *g;
        TEST_OK(tern_graph_create(&g));
        tern_tensor *a = f32(g, "a", SHAPE(2, 3)), *b = f32(g, "b", SHAPE(4, 5)),
                    *n = tern_input_2d(g, "n", TERN_I32, 2, 3);
        tern_tensor *wrong = mistakes[i].make(g, a, b, n);
        if (wrong != g->inert) fail_msg("%s: accepted", mistakes[i].what);
        tern_status status = tern_graph_status(g);
        assert_true(status < 0);
        for (int32_t p = 0; p < 3; p++)
            if (!strstr(tern_error_message(), mistakes[i].parts[p]))
                fail_msg("%s: the sentence lacks '%s': %s", mistakes[i].what, mistakes[i].parts[p],
                         tern_error_message());
        tern_graph_destroy(g);
    }
}

/* After an error every op is harmless, adds nothing, and the first sentence stays. */
static void test_sticky(void **state)
{
    (void)state;
    tern_graph *g, *other;
    TEST_OK(tern_graph_create(&g));
    TEST_OK(tern_graph_create(&other));
    tern_tensor *a = f32(g, "a", SHAPE(2, 3)), *b = f32(g, "b", SHAPE(4, 5)), *x = tern_add(a, b);
    uint32_t count = g->node_count;
    x = tern_layer_norm(tern_linear(tern_softmax(x, -1), "fc", 7), NULL, NULL, 1e-5);
    x = tern_cross_entropy(tern_dropout(tern_gelu(x), 0.1, "d"), a, -1);
    x = tern_attention(x, x, x, 1, true);
    x = tern_mean(tern_concat((tern_tensor *[]){x, a}, 2, 0), 3);
    x = tern_reshape(x, SHAPE(tern_size(x, 5), -1));
    tern_loss(x, NULL);
    tern_output(x, "y");
    (void)tern_label(tern_index(g, SHAPE(3), 0), "i");
    assert_ptr_equal(x, g->inert);
    assert_int_equal(g->node_count, count);
    TEST_ERROR(tern_graph_status(g), TERN_ERROR_INVALID, "add: shapes do not broadcast");
    tern_gradients gradients;
    TEST_ERROR(tern_backward(g, a, a, &gradients), TERN_ERROR_INVALID, "add: shapes do not broadcast");

    tern_tensor *mine = f32(other, "a", SHAPE(3));
    (void)tern_add(mine, a);
    TEST_ERROR(tern_graph_status(other), TERN_ERROR_INVALID, "belongs to another graph");
    assert_null(tern_add(NULL, NULL));
    assert_non_null(strstr(tern_error_message(), "operand 0 is NULL"));
    assert_null(tern_input_1d(NULL, "x", TERN_F32, 1));
    TEST_ERROR(tern_graph_status(NULL), TERN_ERROR_INVALID, "graph is NULL");
    tern_graph_destroy(NULL);
    tern_graph_destroy(g);
    tern_graph_destroy(other);
}

/* With every smaller amount of memory the same network fails with a sentence, and leaks nothing. */
static void test_out_of_memory(void **state)
{
    (void)state;
    size_t failures = 0;
    tern_status status = TERN_ERROR_MEMORY;
    for (size_t limit = 256; status < 0; limit += 256) {
        tern_graph *g;
        tern_gradients gradients;
        TEST_OK(tern_graph_create(&g));
        g->memory_limit_bytes = limit;
        tern_tensor *x = tern_linear(tern_softmax(f32(g, "x", SHAPE(2, 3)), -1), "fc", 3);
        tern_loss(tern_cross_entropy(x, tern_input_1d(g, "labels", TERN_I32, 2), -1), NULL);
        tern_output(x, "logits");
        status = tern_backward(g, x, x, &gradients);
        if (status < 0) {
            assert_int_equal(status, TERN_ERROR_MEMORY);
            assert_non_null(strstr(tern_error_message(), "host memory"));
            failures++;
        }
        tern_gradients_finish(&gradients);
        tern_graph_destroy(g);
    }
    assert_true(failures > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),     cmocka_unit_test(test_invariants), cmocka_unit_test(test_folding),
        cmocka_unit_test(test_names),      cmocka_unit_test(test_sort),       cmocka_unit_test(test_loss),
        cmocka_unit_test(test_mistakes),   cmocka_unit_test(test_sticky),     cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_many_names),
    };
    return cmocka_run_group_tests_name("graph", tests, NULL, NULL);
}
