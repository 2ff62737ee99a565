/* SPDX-License-Identifier: Apache-2.0 */
/* test_groups.c - patterns of names, their text form, and what they do to a graph and its layout; what optimizers are
 * called and which numbers they take. */
#include "core/passes/accumulate.h"
#include "core/train/layout.h"
#include "tests/test.h"

static const tern_device_info roomy = {
    .name = "paper", .max_allocation_bytes = 1u << 30, .max_buffer_bytes = 1u << 30, .max_binding_bytes = 1u << 30};

static void test_patterns(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *name;
        bool matches;
    } rows[] = {
        {"h.0.bias", "h.0.bias", true},
        {"h.0.bias", "h.0.biases", false},
        {"h.0.bias", "h.0.bia", false},
        {"h.*.bias", "h.11.attn.bias", true},
        {"h.*.bias", "h.11.attn.weight", false},
        {"h.?.bias", "h.1.bias", true},
        {"h.?.bias", "h.11.bias", false},
        {"*", "", true},
        {"*", "anything.at.all", true},
        {"", "", true},
        {"", "a", false},
        {"*.weight", "a.weight.weight", true},
        {"*a*b*c", "xxabxxbyc", true},
        {"*a*b*c", "xxabxxby", false},
        {"??*", "a", false},
        {"a**b", "ab", true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (tern_pattern_matches(rows[i].pattern, rows[i].name) != rows[i].matches)
            fail_msg("\"%s\" and \"%s\": not %d", rows[i].pattern, rows[i].name, rows[i].matches);
}

static void test_parse(void **state)
{
    (void)state;
    tern_parameter_group g;
    TEST_OK(tern_parameter_group_parse("h.*.bias:lr=0.1,decay=0,frozen", &g));
    assert_string_equal(g.pattern, "h.*.bias");
    assert_true(g.lr_scale == 0.1 && g.weight_decay == 0 && g.frozen && g.kind == -1);
    TEST_OK(tern_parameter_group_parse("wte", &g));
    assert_true(g.lr_scale == 1 && isnan(g.weight_decay) && !g.frozen);
    TEST_OK(tern_parameter_group_parse("wte:adamw", &g));
    assert_int_equal(g.kind, TERN_OPTIMIZER_ADAMW);
    static const struct {
        const char *text, *sentence;
    } bad[] = {
        {":lr=1", "a name pattern of 1 to 127 characters must come first"},
        {"", "a name pattern"},
        {"a:lr=", "\"lr=\" is not understood"},
        {"a:lr=1x", "\"lr=1x\" is not understood"},
        {"a:lr=1,", "\"\" is not understood"},
        {"a:speed=3", "\"speed=3\" is not understood"},
        {"a:lr=-1", "the learning rate is -1"},
        {"a:decay=-0.5", "weight decay is -0.5"},
        {"a:lr=nan", "the learning rate is nan"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        TEST_ERROR(tern_parameter_group_parse(bad[i].text, &g), TERN_ERROR_INVALID, bad[i].sentence);
}

/* x -> embed (gather) -> h.0.weight, h.0.bias -> h.1.weight -> head.weight -> loss */
static tern_graph *model(void)
{
    tern_graph *graph = NULL;
    TEST_OK(tern_graph_create(&graph));
    tern_tensor *ids = tern_input_1d(graph, "ids", TERN_U32, 4), *y = tern_input_2d(graph, "y", TERN_F32, 4, 2);
    tern_tensor *table = tern_parameter(graph, "embed.weight", 2, (const int64_t[]){8, 6}, TERN_INIT_NORMAL, 1);
    tern_tensor *x = tern_tanh(tern_linear(tern_gather(table, ids), "h.0", 6));
    x = tern_tanh(tern_linear(x, "h.1", 5));
    tern_loss(tern_mse(tern_linear(x, "head", 2), y), NULL);
    TEST_OK(tern_graph_status(graph));
    return graph;
}

static const tern_store_parameter *parameter(const tern_store_layout *layout, const char *name)
{
    for (uint32_t i = 0; i < layout->parameter_count; i++)
        if (strcmp(layout->parameters[i].name, name) == 0) return &layout->parameters[i];
    fail_msg("no parameter %s", name);
    return NULL;
}

static void test_apply(void **state)
{
    (void)state;
    tern_parameter_group groups[3];
    TEST_OK(tern_parameter_group_parse("h.0.*:frozen", &groups[0]));
    TEST_OK(tern_parameter_group_parse("h.*:lr=0.5,decay=0.3", &groups[1]));
    TEST_OK(tern_parameter_group_parse("*.bias:lr=2", &groups[2]));
    tern_graph *graph = model();
    TEST_OK(tern_groups_apply(groups, 3, graph));
    TEST_OK(tern_pass_accumulate(graph));
    assert_null(tern_graph_find(graph, TERN_OP_STATE, "acc.h.0.weight"));
    assert_null(tern_graph_find(graph, TERN_OP_STATE, "acc.h.0.bias"));
    assert_non_null(tern_graph_find(graph, TERN_OP_STATE, "acc.embed.weight")); /* through the frozen layer */

    tern_store_options options = {.training = true, .groups = groups, .group_count = 3};
    tern_optimizer_init(&options.optimizer, TERN_OPTIMIZER_ADAMW);
    tern_store_layout *layout = NULL;
    TEST_OK(tern_store_layout_create(graph, &roomy, &options, &layout));
    static const struct {
        const char *name;
        double lr_scale, decay;
        bool frozen;
    } rows[] = {
        {"embed.weight", 1, 0.1, false}, {"h.0.weight", 0, 0, true},    {"h.0.bias", 0, 0, true},
        {"h.1.weight", 0.5, 0.3, false}, {"h.1.bias", 0.5, 0.3, false}, {"head.weight", 1, 0.1, false},
        {"head.bias", 2, 0, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const tern_store_parameter *p = parameter(layout, rows[i].name);
        const tern_group_rule *rule = &layout->groups[p->group];
        assert_true(rule->frozen == rows[i].frozen && rule->lr_scale == rows[i].lr_scale &&
                    rule->weight_decay == rows[i].decay);
        assert_int_equal(layout->segments[p->segment].trainable, !rows[i].frozen);
    }
    assert_int_equal(layout->group_count, 4);
    tern_store_layout_destroy(layout);
    tern_graph_destroy(graph);
}

static void test_no_match(void **state)
{
    (void)state;
    tern_parameter_group group;
    tern_graph *graph = model();
    tern_parameter_group_init(&group, "h.1.wieght");
    TEST_ERROR(tern_groups_apply(&group, 1, graph), TERN_ERROR_INVALID,
               "no parameter matches \"h.1.wieght\"; the nearest are \"h.1.weight\"");
    tern_parameter_group_init(&group, "haed.*");
    TEST_ERROR(tern_groups_apply(&group, 1, graph), TERN_ERROR_INVALID, "the nearest are \"head.");
    tern_parameter_group_init(&group, "*");
    group.lr_scale = (double)NAN;
    TEST_ERROR(tern_groups_apply(&group, 1, graph), TERN_ERROR_INVALID, "learning rate is nan");
    tern_graph_destroy(graph);
}

static void test_hidden(void **state)
{
    (void)state;
    bool hidden[256] = {false};
    tern_graph *graph = model();
    assert_true(graph->node_count <= 256);
    TEST_OK(tern_groups_hidden(graph, hidden));
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const tern_tensor *x = graph->nodes[i];
        const bool wanted =
            x->op == TERN_OP_PARAMETER && (strcmp(x->label, "h.0.weight") == 0 || strcmp(x->label, "h.1.weight") == 0);
        assert_int_equal(hidden[i], wanted);
    }
    tern_graph_destroy(graph);
}

static void test_names_and_ranges(void **state)
{
    (void)state;
    for (int i = 0; i < TERN_OPTIMIZER_COUNT; i++) {
        tern_optimizer_kind kind;
        tern_optimizer o;
        TEST_OK(tern_optimizer_parse(tern_optimizers[i].name, &kind));
        assert_int_equal(kind, i);
        tern_optimizer_init(&o, kind);
        assert_int_equal(o.kind, i);
        TEST_OK(tern_optimizer_check(&o));
        o.weight_decay = -1;
        TEST_ERROR(tern_optimizer_check(&o), TERN_ERROR_INVALID, "weight decay is -1; it must lie in [0, 1e6]");
    }
    static const struct {
        tern_optimizer optimizer;
        const char *sentence;
    } bad[] = {
        {{.kind = 99}, "optimizer 99 does not exist"},
        {{.kind = TERN_OPTIMIZER_ADAM, .beta1 = 1, .epsilon = 1}, "beta1 is 1"},
        {{.kind = TERN_OPTIMIZER_ADAM, .epsilon = 0}, "epsilon is 0"},
        {{.kind = TERN_OPTIMIZER_LION, .beta2 = NAN}, "beta2 is nan"},
        {{.kind = TERN_OPTIMIZER_SGD, .momentum = 1}, "momentum is 1"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        TEST_ERROR(tern_optimizer_check(&bad[i].optimizer), TERN_ERROR_INVALID, bad[i].sentence);
    tern_optimizer_kind kind;
    TEST_ERROR(tern_optimizer_parse("adma", &kind), TERN_ERROR_INVALID,
               "no optimizer is named \"adma\"; there are adamw, adam, sgd, lion, adafactor, muon");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_patterns), cmocka_unit_test(test_parse),  cmocka_unit_test(test_apply),
        cmocka_unit_test(test_no_match), cmocka_unit_test(test_hidden), cmocka_unit_test(test_names_and_ranges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
