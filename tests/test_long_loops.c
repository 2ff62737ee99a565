/* SPDX-License-Identifier: Apache-2.0 */
/* test_long_loops.c - sums longer than the 65,535 loop turns after which lavapipe leaves every loop without a word.
 *
 * Each graph against the reference, on every backend that is there: a row, a matmul's inner extent, a vocabulary,
 * column sums of wide rows. And the refusal where no form of a kernel stays below the limit. */
#include "core/plan/session.h"
#include "tests/evaluate.h"

#include <stdlib.h>

static const char *const backends[] = {"cpu", "opencl", "vulkan"};

static void fill(tern_session *session, tern_reference *reference, const tern_tensor *x)
{
    const uint64_t count = (uint64_t)tern_count(x);
    float *values = malloc(count * sizeof *values);
    double *wanted = tern_reference_data(reference, x);
    if (x->dtype == TERN_F32) evaluate_fill(x, 0.1, 1, wanted);
    for (uint64_t i = 0; i < count; i++) {
        values[i] = (float)wanted[i];
        wanted[i] = (double)values[i];
    }
    if (x->dtype == TERN_F32) TEST_OK(tern_session_write(session, x->label, values, count * sizeof *values));
    free(values);
}

static void compare(const char *backend, const tern_graph *graph)
{
    tern_device *device = NULL;
    tern_session *session = NULL;
    tern_reference *reference = NULL;
    if (tern_device_open(backend, &device) < 0) {
        print_message("skipped on %s: %s\n", backend, tern_error_message());
        return;
    }
    TEST_OK(tern_session_create(device, graph, NULL, &session));
    TEST_OK(tern_reference_create(graph, &reference));
    for (uint32_t i = 0; i < graph->node_count; i++)
        if (graph->nodes[i]->op == TERN_OP_INPUT || graph->nodes[i]->op == TERN_OP_PARAMETER)
            fill(session, reference, graph->nodes[i]);
    TEST_OK(tern_session_run(session));
    TEST_OK(tern_reference_run(reference));
    for (uint32_t o = 0; o < graph->output_count; o++) {
        const tern_tensor *x = graph->outputs[o].tensor;
        const uint64_t count = (uint64_t)tern_count(x);
        float *found = malloc(count * sizeof *found);
        TEST_OK(tern_session_read(session, graph->outputs[o].name, found, count * sizeof *found));
        TEST_CLOSE(found, tern_reference_data(reference, x), count, 1e-5);
        free(found);
    }
    tern_reference_destroy(reference);
    tern_session_destroy(session);
    tern_device_close(device);
}

static void compare_everywhere(tern_graph *graph)
{
    TEST_OK(tern_graph_status(graph));
    for (size_t b = 0; b < sizeof backends / sizeof *backends; b++) compare(backends[b], graph);
    tern_graph_destroy(graph);
}

static tern_graph *new_graph(void)
{
    tern_graph *graph = NULL;
    TEST_OK(tern_graph_create(&graph));
    return graph;
}

static void test_long_rows(void **state)
{
    (void)state;
    tern_graph *graph = new_graph();
    tern_tensor *x = tern_input_2d(graph, "x", TERN_F32, 3, 70001);
    tern_output(tern_sum(tern_mul(x, x), 1), "squares");
    tern_output(tern_softmax(x, 1), "softmax");
    compare_everywhere(graph);
}

static void test_long_matmul(void **state)
{
    (void)state;
    tern_graph *graph = new_graph();
    tern_tensor *a = tern_input_2d(graph, "a", TERN_F32, 3, 65537), *b = tern_input_2d(graph, "b", TERN_F32, 65537, 5);
    tern_output(tern_matmul(a, b), "c");
    compare_everywhere(graph);
}

static void test_large_vocabulary(void **state)
{
    (void)state;
    tern_graph *graph = new_graph();
    tern_tensor *x = tern_input_2d(graph, "x", TERN_F32, 2, 65537),
                *labels = tern_input_1d(graph, "labels", TERN_I32, 2);
    tern_output(tern_cross_entropy(x, labels, -1), "loss");
    compare_everywhere(graph);
}

/* Layer norm's backward at GPT-2's width: chunks of 64 rows of 768, three phases. */
static void test_column_sums_of_wide_rows(void **state)
{
    (void)state;
    tern_graph *graph = new_graph();
    const int64_t width = 768;
    tern_tensor *x = tern_input_2d(graph, "x", TERN_F32, 130, width),
                *dy = tern_input_2d(graph, "dy", TERN_F32, 130, width);
    tern_tensor *weight = tern_parameter(graph, "weight", 1, &width, TERN_INIT_ONES, 0),
                *bias = tern_parameter(graph, "bias", 1, &width, TERN_INIT_ZEROS, 0);
    tern_tensor *in[3] = {x, weight, bias}, *gradients[3];
    TEST_OK(tern_backward_to(graph, tern_layer_norm(x, weight, bias, 1e-5), dy, in, 3, gradients));
    tern_output(gradients[0], "dx");
    tern_output(gradients[1], "dweight");
    tern_output(gradients[2], "dbias");
    compare_everywhere(graph);
}

/* One number from 20 million would take more turns than the limit in any form: refused, with both numbers. */
static void test_too_long_is_refused(void **state)
{
    (void)state;
    tern_device *device = NULL;
    tern_session *session = NULL;
    if (tern_device_open("vulkan", &device) < 0) TEST_SKIP("%s", tern_error_message());
    if (device->info.max_loop_turns == 0) {
        tern_device_close(device);
        TEST_SKIP("this vulkan device does not stop loops");
    }
    tern_graph *graph = new_graph();
    tern_output(tern_sum(tern_input_1d(graph, "x", TERN_F32, 20000000), 0), "sum");
    TEST_ERROR(tern_session_create(device, graph, NULL, &session), TERN_ERROR_UNSUPPORTED, "stops loops after 65535");
    assert_null(session);
    tern_graph_destroy(graph);
    tern_device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_long_rows),           cmocka_unit_test(test_long_matmul),
        cmocka_unit_test(test_large_vocabulary),    cmocka_unit_test(test_column_sums_of_wide_rows),
        cmocka_unit_test(test_too_long_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
