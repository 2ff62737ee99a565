/* SPDX-License-Identifier: Apache-2.0 */
/* test_models.c - GPT-2: names, counts, tying, causality and config.json. Values come from the reference executor. */
#include "tests/test.h"

#include <stdlib.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/models/gpt2.h"
#include "core/reference/reference.h"

static const tern_gpt2_options small = {2, 2, 8, 11, 6, 5, 2, 0.0, 1e-5};

static uint64_t count_parameters(const tern_graph *graph)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < graph->node_count; i++)
        if (graph->nodes[i]->op == TERN_OP_PARAMETER) count += (uint64_t)tern_count(graph->nodes[i]);
    return count;
}

static void test_preset_counts(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint64_t count;
    } known[] = {{"gpt2", 124439808}, {"gpt2-medium", 354823168}, {"gpt2-large", 774030080}, {"gpt2-xl", 1557611200}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        tern_gpt2_options options;
        TEST_OK(tern_gpt2_preset(known[i].name, &options));
        assert_int_equal(tern_gpt2_parameter_count(&options), known[i].count);
    }
    tern_gpt2_options options;
    tern_graph *graph = NULL;
    TEST_OK(tern_gpt2_preset("gpt2", &options));
    TEST_OK(tern_graph_create(&graph));
    TEST_OK(tern_gpt2_build_loss(graph, &options));
    assert_int_equal(count_parameters(graph), 124439808);
    tern_graph_destroy(graph);
    TEST_ERROR(tern_gpt2_preset("gpt3", &options), TERN_ERROR_NOT_FOUND, "known are gpt2, gpt2-medium");
}

static void test_names_and_layouts(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int32_t rank;
        int64_t shape[2];
    } expected[] = {
        {"transformer.wte.weight", 2, {11, 8}},
        {"transformer.wpe.weight", 2, {6, 8}},
        {"transformer.h.1.ln_1.weight", 1, {8}},
        {"transformer.h.1.attn.c_attn.weight", 2, {8, 24}},
        {"transformer.h.1.attn.c_attn.bias", 1, {24}},
        {"transformer.h.0.attn.c_proj.weight", 2, {8, 8}},
        {"transformer.h.0.mlp.c_fc.weight", 2, {8, 32}},
        {"transformer.h.0.mlp.c_proj.weight", 2, {32, 8}},
        {"transformer.ln_f.bias", 1, {8}},
    };
    tern_graph *graph = NULL;
    TEST_OK(tern_graph_create(&graph));
    TEST_OK(tern_gpt2_build_loss(graph, &small));
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        const tern_tensor *p = tern_graph_find(graph, TERN_OP_PARAMETER, expected[i].name);
        if (!p) fail_msg("no parameter %s", expected[i].name);
        assert_int_equal(p->rank, expected[i].rank);
        for (int32_t axis = 0; axis < p->rank; axis++) assert_int_equal(p->shape[axis], expected[i].shape[axis]);
    }
    assert_null(tern_graph_find(graph, TERN_OP_PARAMETER, "lm_head.weight")); /* tied */
    assert_int_equal(count_parameters(graph), tern_gpt2_parameter_count(&small));
    tern_graph_destroy(graph);
}

static void test_bad_options(void **state)
{
    (void)state;
    static const struct {
        tern_gpt2_options options;
        const char *sentence;
    } cases[] = {
        {{2, 3, 8, 11, 6, 5, 2, 0, 1e-5}, "3 heads do not divide a width of 8"},
        {{2, 1, 512, 11, 6, 5, 2, 0, 1e-5}, "at most 256"},
        {{2, 2, 8, 11, 4, 5, 2, 0, 1e-5}, "context of 5 is longer than the model's 4"},
        {{0, 2, 8, 11, 6, 5, 2, 0, 1e-5}, "layers is 0"},
        {{2, 2, 8, 11, 6, 5, 0, 0, 1e-5}, "batch is 0"},
        {{2, 2, 8, 11, 6, 5, 2, 1, 1e-5}, "dropout is 1"},
        {{2, 2, 8, 11, 6, 5, 2, 0, 0}, "epsilon is 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tern_graph *graph = NULL;
        TEST_OK(tern_graph_create(&graph));
        TEST_ERROR(tern_gpt2_build_loss(graph, &cases[i].options), TERN_ERROR_INVALID, cases[i].sentence);
        tern_graph_destroy(graph);
    }
}

/* ------------------------------------------------------------------- values */

static void fill(tern_reference *reference, const tern_tensor *x, uint32_t seed)
{
    double *data = tern_reference_data(reference, x);
    for (int64_t i = 0; i < tern_count(x); i++) {
        seed = seed * 1664525u + 1013904223u;
        data[i] = ((double)(seed >> 8) / 16777216.0 - 0.5) * 0.6;
    }
}

static void fill_parameters(tern_reference *reference, const tern_graph *graph)
{
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const tern_tensor *node = graph->nodes[i];
        if (node->op != TERN_OP_PARAMETER) continue;
        uint32_t seed = 17; /* from the name, so that two graphs agree */
        for (const char *c = node->label; *c; c++) seed = seed * 31 + (unsigned char)*c;
        fill(reference, node, seed);
    }
}

/* Per-position losses for these ids; labels are 1 everywhere. */
static void losses(const int32_t *ids, double *out)
{
    tern_graph *graph = NULL;
    tern_reference *reference = NULL;
    TEST_OK(tern_graph_create(&graph));
    TEST_OK(tern_gpt2_build_loss(graph, &small));
    TEST_OK(tern_reference_create(graph, &reference));
    fill_parameters(reference, graph);
    double *to = tern_reference_data(reference, tern_graph_find(graph, TERN_OP_INPUT, "ids"));
    double *labels = tern_reference_data(reference, tern_graph_find(graph, TERN_OP_INPUT, "labels"));
    for (int i = 0; i < 10; i++) {
        to[i] = ids[i];
        labels[i] = 1;
    }
    TEST_OK(tern_reference_run(reference));
    memcpy(out, tern_reference_data(reference, graph->loss), 10 * sizeof *out);
    tern_reference_destroy(reference);
    tern_graph_destroy(graph);
}

static void test_causality(void **state)
{
    (void)state;
    const int32_t ids[10] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3};
    int32_t changed[10];
    double a[10], b[10];
    memcpy(changed, ids, sizeof ids);
    changed[3] = 10; /* example 0, position 3 */
    losses(ids, a);
    losses(changed, b);
    for (int i = 0; i < 10; i++) {
        bool may = i == 3 || i == 4; /* that position and later ones of the example */
        if (may)
            assert_true(fabs(a[i] - b[i]) > 1e-6);
        else
            assert_true(a[i] == b[i]);
        assert_true(a[i] > 0);
    }
}

/* The sampling graph's logits at a position are what the loss graph's loss comes from: loss = lse - logit[1]. */
static void test_logits_match_loss(void **state)
{
    (void)state;
    const int32_t ids[10] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3};
    double loss[10];
    losses(ids, loss);
    tern_graph *graph = NULL;
    tern_reference *reference = NULL;
    TEST_OK(tern_graph_create(&graph));
    graph->training = false;
    TEST_OK(tern_gpt2_build_logits(graph, &small));
    assert_int_equal(graph->output_count, 1);
    TEST_OK(tern_reference_create(graph, &reference));
    fill_parameters(reference, graph);
    double *to = tern_reference_data(reference, tern_graph_find(graph, TERN_OP_INPUT, "ids"));
    double *position = tern_reference_data(reference, tern_graph_find(graph, TERN_OP_INPUT, "position"));
    for (int i = 0; i < 10; i++) to[i] = ids[i];
    position[0] = 2;
    position[1] = 5 + 4;
    TEST_OK(tern_reference_run(reference));
    for (int b = 0; b < 2; b++) {
        const double *logits = tern_reference_data(reference, graph->outputs[0].tensor) + b * 11;
        double sum = 0;
        for (int v = 0; v < 11; v++) sum += exp(logits[v]);
        TEST_NEAR(log(sum) - logits[1], loss[b == 0 ? 2 : 9], 1e-10);
    }
    tern_reference_destroy(reference);
    tern_graph_destroy(graph);
}

static void test_dropout_in_training_only(void **state)
{
    (void)state;
    tern_gpt2_options options = small;
    options.dropout = 0.25;
    for (int training = 0; training < 2; training++) {
        tern_graph *graph = NULL;
        uint32_t randoms = 0;
        TEST_OK(tern_graph_create(&graph));
        graph->training = training == 1;
        TEST_OK(tern_gpt2_build_loss(graph, &options));
        for (uint32_t i = 0; i < graph->node_count; i++) randoms += graph->nodes[i]->op == TERN_OP_RANDOM;
        assert_int_equal(randoms, training ? 1 + 2 * options.layers : 0);
        tern_graph_destroy(graph);
    }
}

/* ------------------------------------------------------------------- config */

static void test_config(void **state)
{
    (void)state;
    char path[] = "/tmp/tern-config-XXXXXX";
    int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    close(descriptor);
    char *text = tern_gpt2_config_write(&small);
    assert_non_null(text);
    assert_non_null(strstr(text, "\"n_embd\":\t8"));
    TEST_OK(tern_file_write(path, text, strlen(text)));
    tern_gpt2_options read;
    TEST_OK(tern_gpt2_config_read(path, &read));
    assert_int_equal(read.layers, small.layers);
    assert_int_equal(read.heads, small.heads);
    assert_int_equal(read.width, small.width);
    assert_int_equal(read.vocab, small.vocab);
    assert_int_equal(read.positions, small.positions);
    assert_int_equal(read.context, small.positions);
    assert_true(read.epsilon == small.epsilon);
    free(text);

    static const struct {
        const char *text, *sentence;
    } bad[] = {
        {"hello", "not a JSON object"},
        {"{\"model_type\":\"llama\"}", "\"llama\"; only \"gpt2\""},
        {"{\"model_type\":\"gpt2\",\"n_layer\":1.5}", "\"n_layer\" must be"},
        {"{\"model_type\":\"gpt2\",\"n_layer\":1,\"n_head\":3,\"n_embd\":8,\"n_positions\":4,\"vocab_size\":5}",
         "3 heads do not divide"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        TEST_OK(tern_file_write(path, bad[i].text, strlen(bad[i].text)));
        assert_true(tern_gpt2_config_read(path, &read) < 0);
        assert_non_null(strstr(tern_error_message(), bad[i].sentence));
        assert_non_null(strstr(tern_error_message(), path));
    }
    unlink(path);
    assert_true(tern_gpt2_config_read(path, &read) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_preset_counts),
        cmocka_unit_test(test_names_and_layouts),
        cmocka_unit_test(test_bad_options),
        cmocka_unit_test(test_causality),
        cmocka_unit_test(test_logits_match_loss),
        cmocka_unit_test(test_dropout_in_training_only),
        cmocka_unit_test(test_config),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
