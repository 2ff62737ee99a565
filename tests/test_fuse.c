/* SPDX-License-Identifier: Apache-2.0 */
/* test_fuse.c - the fuser against the reference: lowered graphs run on the host, fused and unfused, and how many
 * launches they take. */
#include "core/kernel/lowered.h"
#include "core/models/gpt2.h"
#include "core/passes/accumulate.h"
#include "core/passes/save_rule.h"
#include "tests/evaluate.h"
#include "tests/lowered_runner.h"
#include "tests/paper_device.h"

#include <stdlib.h>

static void copy_in(const tern_tensor *x, const double *from, void *to)
{
    for (int64_t i = 0; i < tern_count(x); i++) {
        if (x->dtype == TERN_F32)
            ((float *)to)[i] = (float)from[i];
        else if (x->dtype == TERN_I32)
            ((int32_t *)to)[i] = (int32_t)from[i];
        else
            ((uint32_t *)to)[i] = (uint32_t)from[i];
    }
}

static void copy_leaves(const tern_graph *graph, tern_reference *reference, lowered_runner *runner)
{
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const tern_tensor *x = graph->nodes[i];
        if (x->op != TERN_OP_INPUT && x->op != TERN_OP_PARAMETER && x->op != TERN_OP_STATE) continue;
        void *to = lowered_runner_leaf(runner, x->label);
        double *from = tern_reference_data(reference, x);
        if (x->dtype == TERN_F32) /* both sides start from the same f32 */
            for (int64_t k = 0; k < tern_count(x); k++) from[k] = (double)(float)from[k];
        if (to) copy_in(x, from, to);
    }
}

static void check_values(const tern_tensor *x, const double *wanted, const void *got, double tolerance)
{
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < tern_count(x); i++) {
        const double value = x->dtype == TERN_F32   ? (double)((const float *)got)[i]
                             : x->dtype == TERN_I32 ? (double)((const int32_t *)got)[i]
                                                    : (double)((const uint32_t *)got)[i];
        difference += (value - wanted[i]) * (value - wanted[i]);
        norm += wanted[i] * wanted[i];
    }
    if (!(sqrt(difference) <= tolerance * fmax(sqrt(norm), 1e-3)))
        fail_msg("%s: relative error %.3g (norm %.3g)", x->label, sqrt(difference) / fmax(sqrt(norm), 1e-3),
                 sqrt(norm));
}

/* Runs the graph both ways; outputs and states agree. Returns the number of launches. */
static uint32_t check_graph(const tern_graph *graph, bool fuse)
{
    tern_lowered *lowered = NULL;
    lowered_runner runner;
    const tern_lower_options options = {.fuse = fuse};
    TEST_OK(tern_graph_status(graph));
    TEST_OK(tern_lower(graph, &paper_device, &options, &lowered));
    tern_reference *reference = evaluate_create(graph, -1, 1);
    lowered_runner_create(lowered, &runner);
    for (uint32_t i = 0; i < graph->node_count; i++) { /* ids and their sort */
        const tern_tensor *x = graph->nodes[i];
        if (x->op != TERN_OP_INPUT || x->dtype != TERN_I32) continue;
        double *ids = tern_reference_data(reference, x);
        for (int64_t k = 0; k < tern_count(x); k++) ids[k] = (double)((k * 7 + 3) % 5);
    }
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const tern_tensor *x = graph->nodes[i];
        if (x->op != TERN_OP_INPUT || !x->at.input.sort_of) continue;
        const tern_tensor *ids = x->at.input.sort_of;
        const int64_t n = tern_count(ids), rows = x->at.input.rows;
        int32_t *values = malloc((size_t)n * sizeof *values);
        uint32_t *order = malloc((size_t)n * sizeof *order), *offsets = malloc((size_t)(rows + 1) * sizeof *offsets);
        copy_in(ids, tern_reference_data(reference, ids), values);
        tern_counting_sort(values, TERN_I32, n, rows, order, offsets);
        const uint32_t *part = x->at.input.part == 0 ? order : offsets;
        for (int64_t k = 0; k < tern_count(x); k++) tern_reference_data(reference, x)[k] = part[k];
        free(values);
        free(order);
        free(offsets);
    }
    copy_leaves(graph, reference, &runner);
    TEST_OK(tern_reference_run(reference));
    lowered_runner_run(&runner);
    for (uint32_t o = 0; o < graph->output_count; o++) {
        const void *got = lowered_runner_output(&runner, graph->outputs[o].name);
        assert_non_null(got);
        check_values(graph->outputs[o].tensor, tern_reference_data(reference, graph->outputs[o].tensor), got, 2e-5);
    }
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const tern_tensor *x = graph->nodes[i];
        if (x->op == TERN_OP_STATE)
            check_values(x, tern_reference_data(reference, x), lowered_runner_leaf(&runner, x->label), 2e-5);
    }
    const uint32_t launches = lowered->launch_count;
    lowered_runner_destroy(&runner);
    tern_reference_destroy(reference);
    tern_lowered_destroy(lowered);
    return launches;
}

static uint32_t check_both(const tern_graph *graph)
{
    (void)check_graph(graph, false);
    return check_graph(graph, true);
}

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

static void test_softmax_is_one_kernel(void **state)
{
    (void)state;
    tern_graph *graph = new_graph();
    tern_output(tern_softmax(input(graph, "x", 2, (const int64_t[]){7, 33}), -1), "y");
    assert_int_equal(check_both(graph), 1);
    tern_graph_destroy(graph);
}

static void test_layer_norm_is_one_kernel(void **state)
{
    (void)state;
    tern_graph *graph = new_graph();
    const int64_t c = 24;
    tern_tensor *w = tern_parameter(graph, "w", 1, &c, TERN_INIT_ONES, 0),
                *b = tern_parameter(graph, "b", 1, &c, TERN_INIT_ZEROS, 0);
    tern_output(tern_layer_norm(input(graph, "x", 3, (const int64_t[]){2, 5, 24}), w, b, 1e-5), "y");
    assert_int_equal(check_both(graph), 1);
    tern_graph_destroy(graph);
}

static void test_softmax_over_inner_axis(void **state)
{
    (void)state;
    tern_graph *graph = new_graph();
    tern_output(tern_softmax(input(graph, "x", 3, (const int64_t[]){3, 9, 4}), 1), "y");
    (void)check_both(graph);
    tern_graph_destroy(graph);
}

static void test_views(void **state)
{
    (void)state;
    tern_graph *graph = new_graph();
    tern_tensor *x = input(graph, "x", 3, (const int64_t[]){2, 6, 8});
    tern_tensor *heads = tern_permute(tern_reshape(x, 4, (const int64_t[]){2, 6, 4, 2}), (const int32_t[]){0, 2, 1, 3});
    tern_output(tern_exp(heads), "heads");
    tern_output(tern_reshape(tern_permute(heads, (const int32_t[]){0, 2, 1, 3}), 3, (const int64_t[]){2, 6, 8}),
                "back");
    tern_output(tern_pad(tern_exp(tern_slice(x, 1, 2, 3)), 1, 1, 2), "padded");
    tern_tensor *parts[3] = {tern_slice(x, 2, 0, 3), tern_slice(x, 2, 5, 2), x};
    tern_output(tern_concat(parts, 3, 2), "concat");
    tern_output(tern_reshape(tern_transpose(x, 1, 2), 2, (const int64_t[]){4, 24}), "mixed");
    (void)check_both(graph);
    tern_graph_destroy(graph);
}

/* An axis of size 1 stands between a kept axis and a repeated one: they must not be taken as one. */
static void test_expand_beside_a_size_of_one(void **state)
{
    (void)state;
    tern_graph *graph = new_graph();
    tern_tensor *x = input(graph, "x", 4, (const int64_t[]){5, 1, 1, 4});
    tern_output(tern_exp(tern_expand(x, 4, (const int64_t[]){5, 1, 3, 4})), "repeated");
    (void)check_both(graph);
    tern_graph_destroy(graph);
}

/* Nothing varies over the row: one value, no loop. */
static void test_sum_of_a_constant(void **state)
{
    (void)state;
    tern_graph *graph = new_graph();
    const int64_t n = 300;
    tern_output(tern_sum(tern_expand(tern_constant(graph, 0.5), 1, &n), 0), "n");
    assert_int_equal(check_both(graph), 1);
    tern_graph_destroy(graph);
}

/* The permuted result does not follow the order in which its rows are reduced. */
static void test_permuted_result_of_a_row(void **state)
{
    (void)state;
    tern_graph *graph = new_graph();
    tern_tensor *x = input(graph, "x", 3, (const int64_t[]){1, 18, 33});
    tern_tensor *mixed = tern_reshape(tern_layer_norm(x, NULL, NULL, 0.1), 3, (const int64_t[]){6, 33, 3});
    tern_output(tern_permute(mixed, (const int32_t[]){1, 0, 2}), "y");
    (void)check_both(graph);
    tern_graph_destroy(graph);
}

/* What a slice sees of padding is known when the kernel is made. */
static void test_slices_of_padding(void **state)
{
    (void)state;
    tern_graph *graph = new_graph();
    tern_tensor *x = tern_exp(input(graph, "x", 2, (const int64_t[]){3, 8})),
                *padded = tern_pad(tern_pad(x, 1, 4, 2), 0, 2, 0);
    tern_output(tern_slice(padded, 0, 0, 2), "padding");
    tern_output(tern_slice(tern_slice(padded, 0, 2, 3), 1, 5, 6), "inside");
    tern_output(tern_slice(padded, 1, 1, 7), "both");
    (void)check_both(graph);
    tern_graph_destroy(graph);
}

/* Square: the column sums have the size of a kernel that walks the transposed rows, and must not join it. */
static void test_softmax_over_square_columns(void **state)
{
    (void)state;
    tern_graph *graph = new_graph();
    tern_tensor *x = input(graph, "x", 2, (const int64_t[]){70, 70});
    tern_output(tern_log_softmax(x, 0), "y");
    tern_output(tern_sum(tern_exp(x), 1), "rows");
    (void)check_both(graph);
    tern_graph_destroy(graph);
}

static void test_matmul_epilogue(void **state)
{
    (void)state;
    tern_graph *graph = new_graph();
    tern_tensor *x = input(graph, "x", 2, (const int64_t[]){9, 6}), *r = input(graph, "r", 2, (const int64_t[]){9, 10});
    tern_tensor *y = tern_add(tern_gelu(tern_linear(x, "fc", 10)), r);
    tern_output(y, "y");
    assert_int_equal(check_both(graph), 1);
    tern_graph_destroy(graph);
}

static void test_two_matmuls_meet(void **state)
{
    (void)state;
    tern_graph *graph = new_graph();
    tern_tensor *x = input(graph, "x", 2, (const int64_t[]){9, 6});
    tern_output(tern_mul(tern_linear(x, "a", 10), tern_silu(tern_linear(x, "b", 10))), "y");
    assert_int_equal(check_both(graph), 2);
    tern_graph_destroy(graph);
}

/* x (N, C) -> loss per row; backward to all; save rule; everything an output of the micro program. */
static tern_graph *micro_of(tern_graph *graph)
{
    tern_graph *saved = NULL;
    TEST_OK(tern_pass_accumulate(graph));
    TEST_OK(tern_pass_save_rule(graph, &saved));
    tern_graph_destroy(graph);
    return saved;
}

static void test_mlp_micro(void **state)
{
    (void)state;
    tern_graph *graph = new_graph();
    tern_tensor *x = input(graph, "x", 2, (const int64_t[]){130, 12});
    tern_tensor *labels = tern_input_1d(graph, "labels", TERN_I32, 130);
    tern_loss(tern_cross_entropy(tern_linear(tern_gelu_tanh(tern_linear(x, "fc1", 20)), "fc2", 7), labels, 2), NULL);
    graph = micro_of(graph);
    const uint32_t launches = check_both(graph);
    print_message("mlp micro: %u launches\n", launches);
    assert_true(launches <= 14);
    tern_graph_destroy(graph);
}

static uint32_t gpt_launches(uint32_t layers, double dropout)
{
    tern_gpt2_options options;
    TEST_OK(tern_gpt2_preset("gpt-s", &options));
    options.layers = layers;
    options.heads = 2;
    options.width = 16;
    options.vocab = 11;
    options.context = options.positions = 12;
    options.batch = 6;
    options.dropout = dropout;
    tern_graph *graph = new_graph();
    TEST_OK(tern_gpt2_build_loss(graph, &options));
    graph = micro_of(graph);
    const uint32_t launches = check_graph(graph, true);
    tern_graph_destroy(graph);
    return launches;
}

static void test_gpt_block_launches(void **state)
{
    (void)state;
    const uint32_t one = gpt_launches(1, 0), three = gpt_launches(3, 0);
    print_message("gpt micro: %u launches with 1 layer, %u with 3\n", one, three);
    assert_true((three - one) / 2 <= 34);
    assert_true((gpt_launches(3, 0.2) - gpt_launches(1, 0.2)) / 2 <= 34);
}

static void test_optimizer_is_one_kernel(void **state)
{
    (void)state;
    tern_graph *graph = new_graph();
    graph->pass = TERN_PASS_UPDATE;
    const int64_t n = 70;
    tern_tensor *w = tern_state(graph, "w", TERN_F32, 1, &n), *m = tern_state(graph, "m", TERN_F32, 1, &n);
    tern_tensor *g = tern_state(graph, "g", TERN_F32, 1, &n),
                *t = tern_state(graph, "t", TERN_U32, 1, (const int64_t[]){1});
    tern_tensor *next_m = tern_add(tern_mul(m, tern_constant(graph, 0.9)), g);
    (void)tern_assign(m, next_m);
    (void)tern_assign(w, tern_sub(w, tern_mul(next_m, tern_add(tern_cast(t, TERN_F32), tern_constant(graph, 1)))));
    (void)tern_assign(g, tern_expand(tern_reshape(tern_constant(graph, 0), 1, (const int64_t[]){1}), 1, &n));
    (void)tern_assign(t, tern_add(t, tern_constant_u32(graph, 1)));
    assert_int_equal(check_both(graph), 2); /* the vector and the scalar */
    tern_graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_softmax_is_one_kernel),
        cmocka_unit_test(test_layer_norm_is_one_kernel),
        cmocka_unit_test(test_softmax_over_inner_axis),
        cmocka_unit_test(test_views),
        cmocka_unit_test(test_matmul_epilogue),
        cmocka_unit_test(test_two_matmuls_meet),
        cmocka_unit_test(test_mlp_micro),
        cmocka_unit_test(test_optimizer_is_one_kernel),
        cmocka_unit_test(test_gpt_block_launches),
        cmocka_unit_test(test_expand_beside_a_size_of_one),
        cmocka_unit_test(test_sum_of_a_constant),
        cmocka_unit_test(test_permuted_result_of_a_row),
        cmocka_unit_test(test_slices_of_padding),
        cmocka_unit_test(test_softmax_over_square_columns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
