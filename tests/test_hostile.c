/* SPDX-License-Identifier: Apache-2.0 */
/* test_hostile.c - graphs that nobody should write and somebody will: impossible shapes, endless chains, in-place
 * knots, NaN and infinities. Each is either refused with one clear sentence or computed as the reference does, in every
 * way of graph_trial.h. */
#include "core/plan/session.h"
#include "tests/evaluate.h"
#include "tests/graph_trial.h"
#include "tests/random_graph.h"

#include <stdlib.h>

static tern_device *device;

static tern_graph *new_graph(void)
{
    tern_graph *graph = NULL;
    TEST_OK(tern_graph_create(&graph));
    return graph;
}

static tern_tensor *input(tern_graph *graph, const char *name, int32_t rank, const int64_t *shape)
{
    return tern_input(graph, name, TERN_F32, rank, shape);
}

static void expect_right_with(tern_graph *graph, void (*fill)(const tern_graph *, tern_reference *))
{
    graph_trial trial = {.device = device, .fill = fill};
    TEST_OK(tern_graph_status(graph));
    if (graph_trial_run(&trial, graph) != TRIAL_PASSED) fail_msg("%s", trial.text);
    tern_graph_destroy(graph);
}

static void expect_right(tern_graph *graph) { expect_right_with(graph, random_graph_fill); }

/* The graph is in error with this sentence, for everything that compiles it. */
static void expect_refused(tern_graph *graph, const char *words)
{
    tern_lowered *lowered;
    tern_session *session;
    TEST_ERROR(tern_graph_status(graph), TERN_ERROR_INVALID, words);
    TEST_ERROR(tern_lower(graph, &device->info, NULL, &lowered), TERN_ERROR_INVALID, words);
    TEST_ERROR(tern_session_create(device, graph, NULL, &session), TERN_ERROR_INVALID, words);
    assert_null(lowered);
    tern_graph_destroy(graph);
}

/* Compiles to an error although the graph is well formed. */
static void expect_no_session(tern_graph *graph, tern_status status, const char *words)
{
    tern_session *session;
    TEST_OK(tern_graph_status(graph));
    TEST_ERROR(tern_session_create(device, graph, NULL, &session), status, words);
    tern_graph_destroy(graph);
}

/* -------------------------------------------------------------------- shapes */

static void test_impossible_shapes_are_refused(void **state)
{
    (void)state;
    static const struct {
        int64_t shape[7];
        int32_t rank;
        const char *words;
    } cases[] = {
        {{3, 0}, 2, "size 0 of axis 1 in (3, 0) is below 1"},
        {{-1, 5}, 2, "size -1 of axis 0"},
        {{INT64_MIN}, 1, "is below 1"},
        {{1 << 16, 1 << 15}, 2, "2^31 elements or more"},
        {{INT64_MAX}, 1, "2^31 elements or more"},
        {{INT64_MAX, INT64_MAX, 2}, 3, "2^31 elements or more"},
        {{1, 1, 1, 1, 1, 1, 1}, 7, "rank 7 is outside 0 .. 6"},
        {{1}, -1, "rank -1 is outside 0 .. 6"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tern_graph *graph = new_graph();
        tern_tensor *x = input(graph, "x", cases[i].rank, cases[i].shape);
        for (int32_t k = 0; k < 3; k++) x = tern_softmax(tern_matmul(tern_add(x, x), tern_transpose(x, 0, 1)), -1);
        tern_output(tern_sum(x, 3), "y"); /* nothing after the first error matters */
        expect_refused(graph, cases[i].words);
    }
}

/* Operands are fine, the result is not. */
static void test_results_too_large_are_refused(void **state)
{
    (void)state;
    const int64_t n = 1 << 16;
    for (int32_t kind = 0; kind < 6; kind++) {
        tern_graph *graph = new_graph();
        tern_tensor *column = input(graph, "column", 2, (const int64_t[]){n, 1});
        tern_tensor *row = input(graph, "row", 2, (const int64_t[]){1, n});
        switch (kind) {
        case 0: tern_output(tern_add(column, row), "y"); break;
        case 1: tern_output(tern_matmul(column, row), "y"); break;
        case 2: tern_output(tern_expand(column, 2, (const int64_t[]){n, n}), "y"); break;
        case 3: tern_output(tern_pad(column, 1, 0, n), "y"); break;
        case 4: tern_output(tern_gather(row, tern_input_1d(graph, "ids", TERN_U32, n)), "y"); break;
        default: tern_output(tern_pad(column, 0, INT32_MAX, INT32_MAX), "y");
        }
        expect_refused(graph, "2^31 elements or more");
    }
}

static void test_misuse_is_refused(void **state)
{
    (void)state;
    const int64_t n = 4;
    tern_graph *graph = new_graph();
    tern_tensor *s = tern_state(graph, "s", TERN_F32, 1, &n);
    (void)tern_assign(s, tern_add(s, s));
    (void)tern_assign(s, tern_mul(s, s));
    expect_refused(graph, "\"s\" (4) f32 is assigned twice");

    graph = new_graph();
    (void)tern_assign(input(graph, "x", 1, &n), tern_constant(graph, 1));
    expect_refused(graph, "only states, parameters");

    graph = new_graph();
    (void)tern_assign(tern_state(graph, "s", TERN_U32, 1, &n), input(graph, "x", 1, &n));
    expect_refused(graph, "differ in shape or dtype");

    graph = new_graph();
    tern_output(input(graph, "x", 1, &n), "y");
    tern_output(input(graph, "z", 1, &n), "y");
    expect_refused(graph, "the name \"y\" is taken");
}

/* --------------------------------------------------------------------- sizes */

static void test_more_tensors_than_a_kernel_takes(void **state)
{
    (void)state;
    const int64_t shape[2] = {5, 7};
    tern_graph *graph = new_graph();
    tern_tensor *y = NULL, *product = NULL;
    for (int32_t i = 0; i < 40; i++) {
        char name[16];
        snprintf(name, sizeof name, "x%d", i);
        tern_tensor *x = i % 3 ? input(graph, name, 2, shape) : input(graph, name, 1, &shape[1]);
        y = y ? tern_add(y, tern_tanh(x)) : tern_tanh(x);
        product = product ? tern_mul(product, tern_cos(x)) : tern_cos(x);
        if (i % 10 == 9) tern_output(tern_softmax(tern_sub(y, product), i % 20 == 9 ? 0 : 1), name);
    }
    expect_right(graph);
}

/* 30 outputs from one input. */
static void test_more_outputs_than_a_kernel_takes(void **state)
{
    (void)state;
    tern_graph *graph = new_graph();
    tern_tensor *x = input(graph, "x", 2, (const int64_t[]){33, 5});
    for (int32_t i = 0; i < 30; i++) {
        char name[16];
        snprintf(name, sizeof name, "y%d", i);
        tern_output(i % 3 == 2 ? tern_sum(tern_mul(x, tern_constant(graph, i)), i % 2)
                               : tern_sin(tern_add(x, tern_constant(graph, i))),
                    name);
    }
    expect_right(graph);
}

/* Reshapes and permutations whose common refinement has far more than six dims. */
static void test_more_dims_than_a_kernel_takes(void **state)
{
    (void)state;
    tern_graph *graph = new_graph();
    tern_tensor *x = input(graph, "x", 1, (const int64_t[]){2 * 2 * 2 * 3 * 3 * 2 * 5});
    for (int32_t i = 0; i < 6; i++) {
        const int64_t wide[6] = {2, 3, 2, 5, 6, 2}, other[6] = {3, 2, 2, 3, 4, 5};
        x = tern_permute(tern_reshape(x, 6, i % 2 ? wide : other), (const int32_t[]){5, 2, 0, 4, 1, 3});
        if (i == 3) tern_output(x, "halfway");
    }
    tern_output(x, "y");
    tern_tensor *s = tern_state(graph, "s", TERN_F32, 1, (const int64_t[]){720});
    (void)tern_assign(s, tern_reshape(x, 1, (const int64_t[]){720}));
    expect_right(graph);
}

static void test_padding_on_every_axis(void **state)
{
    (void)state;
    tern_graph *graph = new_graph();
    tern_tensor *x = input(graph, "x", 6, (const int64_t[]){2, 1, 3, 2, 1, 2}), *y = x;
    for (int32_t axis = 0; axis < 6; axis++) y = tern_pad(y, axis, axis % 2, 1);
    tern_output(y, "padded");
    tern_output(tern_exp(y), "one outside");
    tern_output(tern_slice(tern_exp(y), 0, 2, 1), "outside only");
    tern_output(tern_slice(y, 5, 0, 1), "zeros only");
    expect_right(graph);
}

/* Rows shorter than a vector block, padded parts that begin where a block has ended already. */
static void test_padding_across_blocks(void **state)
{
    (void)state;
    tern_graph *graph = new_graph();
    tern_tensor *a = input(graph, "a", 2, (const int64_t[]){1201, 16}),
                *b = input(graph, "b", 2, (const int64_t[]){1201, 16});
    tern_tensor *sum = tern_add(a, b), *parts[3] = {tern_neg(sum), tern_slice(sum, 1, 0, 8), sum};
    tern_output(tern_concat(parts, 3, 1), "y");
    expect_right(graph);
}

static void test_a_chain_of_20000(void **state)
{
    (void)state;
    tern_graph *graph = new_graph();
    tern_tensor *x = input(graph, "x", 1, (const int64_t[]){3}), *y = x;
    for (int32_t i = 0; i < 5000; i++) y = tern_mul(tern_add(tern_sin(y), x), tern_constant(graph, 0.5));
    tern_output(y, "y");
    for (int32_t i = 0; i < 3000; i++) /* views alone */
        y = i % 2 ? tern_slice(y, 0, 0, 3) : tern_pad(y, 0, 0, 1);
    tern_output(y, "z");
    TEST_OK(tern_graph_status(graph));
    tern_lowered *lowered;
    TEST_OK(tern_lower(graph, &device->info, NULL, &lowered));
    assert_true(lowered->launch_count < 400);
    tern_lowered_destroy(lowered);

    tern_session *session;
    tern_reference *reference;
    TEST_OK(tern_reference_create(graph, &reference));
    random_graph_fill(graph, reference);
    TEST_OK(tern_reference_run(reference));
    TEST_OK(tern_session_create(device, graph, NULL, &session));
    float from[3], got[3];
    for (int32_t i = 0; i < 3; i++) from[i] = (float)tern_reference_data(reference, x)[i];
    TEST_OK(tern_session_write(session, "x", from, sizeof from));
    TEST_OK(tern_session_run(session));
    TEST_OK(tern_session_read(session, "z", got, sizeof got));
    TEST_CLOSE(got, tern_reference_data(reference, y), 3, 1e-5);
    tern_session_destroy(session);
    tern_reference_destroy(reference);
    tern_graph_destroy(graph);
}

static void test_a_deep_backward(void **state)
{
    (void)state;
    const int64_t n = 5;
    tern_graph *graph = new_graph();
    tern_tensor *w = tern_parameter(graph, "w", 1, &n, TERN_INIT_NORMAL, 1), *y = w;
    for (int32_t i = 0; i < 400; i++)
        y = tern_add(tern_mul(tern_sin(y), tern_constant(graph, 0.75)), tern_mul(w, tern_constant(graph, 0.25)));
    tern_loss(y, NULL);
    tern_output(y, "y");
    expect_right(graph);
}

static void test_a_parameter_used_50_times(void **state)
{
    (void)state;
    tern_graph *graph = new_graph();
    tern_tensor *w = tern_parameter(graph, "w", 2, (const int64_t[]){6, 6}, TERN_INIT_NORMAL, 1),
                *b = tern_parameter(graph, "b", 1, (const int64_t[]){6}, TERN_INIT_ZEROS, 0);
    tern_tensor *x = input(graph, "x", 2, (const int64_t[]){70, 6});
    for (int32_t i = 0; i < 50; i++) {
        tern_tensor *y =
            i % 2 ? tern_matmul(x, i % 4 == 1 ? w : tern_transpose(w, 0, 1)) : tern_mul(x, tern_slice(w, 0, i % 6, 1));
        x = tern_tanh(tern_add(tern_mul(y, tern_constant(graph, 0.4)), b));
    }
    tern_loss(x, NULL);
    tern_output(x, "y");
    expect_right(graph);
}

/* -------------------------------------------------------------------- outputs */

static void test_outputs_that_nothing_computes(void **state)
{
    (void)state;
    const int64_t n = 6;
    tern_graph *graph = new_graph();
    tern_tensor *x = input(graph, "x", 2, (const int64_t[]){2, 3}),
                *w = tern_parameter(graph, "w", 1, &n, TERN_INIT_ONES, 0);
    tern_tensor *ids = tern_input_1d(graph, "ids", TERN_U8, 5);
    tern_output(x, "leaf");
    tern_output(x, "leaf again");
    tern_output(w, "parameter");
    tern_output(ids, "bytes");
    tern_output(tern_reshape(x, 1, &n), "reshaped leaf");
    tern_output(tern_transpose(x, 0, 1), "transposed leaf");
    tern_output(tern_slice(w, 0, 2, 3), "sliced parameter");
    tern_output(tern_constant(graph, 2.5), "constant");
    tern_output(tern_constant_u32(graph, 7), "integer");
    tern_output(tern_expand(tern_constant(graph, -1), 2, (const int64_t[]){3, 4}), "expanded constant");
    tern_output(tern_index(graph, 3, (const int64_t[]){3, 1, 4}, 2), "index");
    tern_tensor *y = tern_exp(x);
    tern_output(y, "once");
    tern_output(y, "twice");
    tern_output(tern_detach(y), "detached");
    tern_output(tern_reshape(y, 1, &n), "reshaped");
    expect_right(graph);
}

/* ------------------------------------------------------------------- in place */

static tern_tensor *matrix_state(tern_graph *graph, const char *name)
{
    return tern_state(graph, name, TERN_F32, 2, (const int64_t[]){7, 7});
}

/* Updates whose new value at one place needs the old one at another. */
static void test_in_place_updates_that_read_elsewhere(void **state)
{
    (void)state;
    for (int32_t kind = 0; kind < 10; kind++) {
        tern_graph *graph = new_graph();
        tern_tensor *s = matrix_state(graph, "s"), *value = s;
        switch (kind) {
        case 0: value = tern_transpose(s, 0, 1); break;
        case 1: value = tern_softmax(s, 0); break;
        case 2: value = tern_softmax(s, 1); break;
        case 3: value = tern_matmul(s, s); break;
        case 4:
            value = tern_add(tern_mul(s, tern_constant(graph, 0.9)), tern_matmul(s, tern_transpose(s, 0, 1)));
            break;
        case 5: value = tern_gather(s, tern_input_1d(graph, "ids", TERN_U8, 7)); break;
        case 6: {
            tern_tensor *parts[2] = {tern_slice(s, 0, 3, 4), tern_slice(s, 0, 0, 3)};
            value = tern_concat(parts, 2, 0);
            break;
        }
        case 7: value = tern_sub(s, tern_mul(tern_slice(s, 1, 3, 1), tern_slice(s, 0, 2, 1))); break;
        case 8: value = tern_sub(s, tern_reduce_sum(s, 3)); break;
        default: value = tern_layer_norm(tern_transpose(s, 0, 1), NULL, NULL, 0.1);
        }
        tern_output(tern_sum(s, 0), "before");
        tern_output(tern_sum(tern_exp(tern_assign(s, value)), 1), "after");
        expect_right(graph);
    }
}

static void test_versions_of_a_state(void **state)
{
    (void)state;
    tern_graph *graph = new_graph();
    tern_tensor *s = matrix_state(graph, "s"), *t = matrix_state(graph, "t");
    tern_tensor *first = tern_assign(s, tern_add(s, tern_constant(graph, 1)));
    tern_tensor *second = tern_assign(first, tern_mul(first, first));
    (void)tern_assign(second, second); /* to itself */
    (void)tern_assign(t, t);
    tern_output(tern_reshape(s, 1, (const int64_t[]){49}), "old");
    tern_output(tern_detach(first), "first");
    tern_output(second, "second");
    expect_right(graph);

    graph = new_graph();
    s = matrix_state(graph, "s");
    first = tern_assign(s, tern_add(s, tern_constant(graph, 1)));
    tern_output(first, "first"); /* replaced, yet asked for */
    tern_output(tern_assign(first, tern_mul(first, first)), "second");
    expect_right(graph);

    graph = new_graph();
    s = matrix_state(graph, "s");
    tern_output(tern_add(s, tern_assign(s, tern_exp(s))), "both");
    expect_no_session(graph, TERN_ERROR_INVALID,
                      "\"s\" is assigned, but something needs both its old value and its new one");

    graph = new_graph();
    s = matrix_state(graph, "s");
    t = matrix_state(graph, "t");
    (void)tern_assign(s, tern_exp(t)); /* a swap */
    (void)tern_assign(t, tern_exp(s));
    expect_right(graph);

    graph = new_graph();
    s = matrix_state(graph, "s");
    t = matrix_state(graph, "t");
    (void)tern_assign(s, tern_exp(t));
    (void)tern_assign(t, tern_transpose(s, 0, 1)); /* a swap that no kernel can do element by element */
    expect_no_session(graph, TERN_ERROR_INVALID, "needs both its old value and its new one");
}

/* ------------------------------------------------------------- NaN, infinities */

static void fill_special(const tern_graph *graph, tern_reference *reference)
{
    static const double values[] = {NAN, INFINITY, -INFINITY, 0.0, -0.0, 1, -1, 2.5, -0.5, 1e-3, 7, -30};
    random_graph_fill(graph, reference);
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const tern_tensor *x = graph->nodes[i];
        if (x->op != TERN_OP_INPUT || x->dtype != TERN_F32) continue;
        const int64_t step = strcmp(x->label, "x") == 0 ? 1 : 12; /* x and y together: all pairs */
        for (int64_t k = 0; k < tern_count(x); k++) tern_reference_data(reference, x)[k] = values[k / step % 12];
    }
}

static void test_special_values_elementwise(void **state)
{
    (void)state;
    tern_tensor *(*const unary[])(tern_tensor *) = {
        tern_neg, tern_abs, tern_exp,   tern_log,  tern_sqrt, tern_rsqrt,   tern_recip, tern_tanh,     tern_erf,
        tern_sin, tern_cos, tern_floor, tern_relu, tern_silu, tern_sigmoid, tern_gelu,  tern_gelu_tanh};
    tern_tensor *(*const binary[])(tern_tensor *, tern_tensor *) = {tern_add, tern_sub,  tern_mul,   tern_div, tern_max,
                                                                    tern_min, tern_less, tern_equal, tern_mse};
    char name[16];
    tern_graph *graph = new_graph();
    const int64_t n = 144;
    tern_tensor *x = input(graph, "x", 1, &n), *y = input(graph, "y", 1, &n);
    for (size_t i = 0; i < sizeof unary / sizeof unary[0]; i++) {
        snprintf(name, sizeof name, "unary %zu", i);
        tern_output(unary[i](x), name);
    }
    for (size_t i = 0; i < sizeof binary / sizeof binary[0]; i++) {
        snprintf(name, sizeof name, "binary %zu", i);
        tern_output(binary[i](x, y), name);
    }
    tern_output(tern_where(tern_less(x, y), x, y), "where");
    tern_output(tern_bitcast(tern_bitcast(x, TERN_U32), TERN_F32), "bits");
    tern_output(tern_pad(tern_exp(x), 0, 3, 5), "pad");
    expect_right_with(graph, fill_special);
}

static void test_special_values_in_rows(void **state)
{
    (void)state;
    tern_graph *graph = new_graph();
    tern_tensor *x = input(graph, "x", 2, (const int64_t[]){12, 12}),
                *y = input(graph, "y", 2, (const int64_t[]){12, 12});
    for (int32_t axis = 0; axis < 2; axis++) {
        char name[32];
        snprintf(name, sizeof name, "sum %d", axis);
        tern_output(tern_sum(y, axis), name);
        snprintf(name, sizeof name, "maximum %d", axis);
        tern_output(tern_maximum(x, axis), name);
        snprintf(name, sizeof name, "maximum of pairs %d", axis);
        tern_output(tern_maximum(tern_max(x, y), axis), name);
        snprintf(name, sizeof name, "softmax %d", axis);
        tern_output(tern_softmax(y, axis), name);
        snprintf(name, sizeof name, "log softmax %d", axis);
        tern_output(tern_log_softmax(x, axis), name);
    }
    tern_output(tern_layer_norm(tern_concat((tern_tensor *[]){x, tern_sin(y)}, 2, 1), NULL, NULL, 1e-2), "norm");
    tern_output(tern_matmul(x, y), "product");
    tern_output(tern_gather(y, tern_input_1d(graph, "ids", TERN_I32, 9)), "gather");
    expect_right_with(graph, fill_special);
}

static int open_device(void **state)
{
    (void)state;
    return tern_device_open("cpu", &device) < 0;
}

static int close_device(void **state)
{
    (void)state;
    tern_device_close(device);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_impossible_shapes_are_refused),
        cmocka_unit_test(test_results_too_large_are_refused),
        cmocka_unit_test(test_misuse_is_refused),
        cmocka_unit_test(test_more_tensors_than_a_kernel_takes),
        cmocka_unit_test(test_more_outputs_than_a_kernel_takes),
        cmocka_unit_test(test_more_dims_than_a_kernel_takes),
        cmocka_unit_test(test_padding_on_every_axis),
        cmocka_unit_test(test_padding_across_blocks),
        cmocka_unit_test(test_a_chain_of_20000),
        cmocka_unit_test(test_a_deep_backward),
        cmocka_unit_test(test_a_parameter_used_50_times),
        cmocka_unit_test(test_outputs_that_nothing_computes),
        cmocka_unit_test(test_in_place_updates_that_read_elsewhere),
        cmocka_unit_test(test_versions_of_a_state),
        cmocka_unit_test(test_special_values_elementwise),
        cmocka_unit_test(test_special_values_in_rows),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
