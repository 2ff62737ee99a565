/* SPDX-License-Identifier: Apache-2.0 */
/* test_autocast.c - what becomes 16-bit and what stays f32, in a small GPT: by structure, by value and bit for bit. */
#include "core/base/dtype.h"
#include "core/models/gpt2.h"
#include "core/passes/accumulate.h"
#include "core/passes/autocast.h"
#include "core/passes/save_rule.h"
#include "tests/evaluate.h"
#include "tests/graph_trial.h"
#include "tests/narrow_trial.h"
#include "tests/random_graph.h"

#include <stdlib.h>

static const tern_gpt2_options tiny = {.layers = 2,
                                       .heads = 2,
                                       .width = 16,
                                       .vocab = 19,
                                       .positions = 12,
                                       .context = 10,
                                       .batch = 2,
                                       .dropout = 0.2,
                                       .epsilon = 1e-5};
static const int32_t narrow[2] = {TERN_F16, TERN_BF16};

static tern_graph *model(void)
{
    tern_graph *g;
    TEST_OK(tern_graph_create(&g));
    TEST_OK(tern_gpt2_build_loss(g, &tiny));
    return g;
}

/* The micro program's graph before the save rule; dtype 0: f32. */
static tern_graph *micro(int32_t dtype)
{
    tern_graph *g = model(), *low = NULL;
    if (dtype) {
        TEST_OK(tern_pass_autocast(g, dtype, &low));
        tern_graph_destroy(g);
        g = low;
    }
    TEST_OK(tern_pass_accumulate(g));
    return g;
}

static bool is_contraction(const tern_tensor *x) { return tern_ops[x->op].kind == TERN_KIND_CONTRACTION; }

/* ---------------------------------------------------------------- structure */

/* Forward and backward: every matmul and attention takes 16 bits, nothing that computes does; the rest of the step does
 * not know. */
static void test_operands(void **state)
{
    (void)state;
    for (int32_t k = 0; k < 2; k++) {
        tern_graph *g = micro(narrow[k]);
        uint32_t matmuls = 0, attentions = 0;
        for (uint32_t i = 0; i < g->node_count; i++) {
            const tern_tensor *x = g->nodes[i];
            const bool computes = tern_ops[x->op].kind == TERN_KIND_REDUCE ||
                                  (tern_ops[x->op].kind == TERN_KIND_MAP && x->op != TERN_OP_CAST &&
                                   x->op != TERN_OP_DETACH && x->op != TERN_OP_GATHER);
            for (int32_t j = 0; j < x->in_count; j++) {
                if (computes) assert_false(tern_dtype_is_16bit_float(x->in[j]->dtype));
                if (x->op == TERN_OP_MATMUL) assert_int_equal(x->in[j]->dtype, narrow[k]);
                if (is_contraction(x) && x->op != TERN_OP_MATMUL && x->op != TERN_OP_SCATTER_ADD && j < 4)
                    assert_int_equal(x->in[j]->dtype, narrow[k]);
            }
            matmuls += x->op == TERN_OP_MATMUL;
            attentions += x->op == TERN_OP_ATTENTION;
        }
        assert_int_equal(matmuls, 3 * (4 * tiny.layers + 1));
        assert_int_equal(attentions, tiny.layers);
        assert_int_equal(g->loss->dtype, TERN_F32);
        tern_graph_destroy(g);
    }
}

/* What the backward pass keeps of the forward pass is 16-bit, but for a number per row. */
static void test_what_is_kept(void **state)
{
    (void)state;
    tern_graph *g = micro(TERN_BF16), *low = NULL, *saved = NULL;
    TEST_OK(tern_pass_low_weights(g, TERN_BF16, true, &low));
    TEST_OK(tern_pass_save_rule(low, &saved));
    uint32_t kept = 0;
    for (uint32_t i = 0; i < saved->node_count; i++) {
        const tern_tensor *x = saved->nodes[i];
        for (int32_t j = 0; x->pass == TERN_PASS_BACKWARD && j < x->in_count; j++) {
            const tern_tensor *value = x->in[j];
            while (tern_is_view(value) || tern_is_widening(value)) value = value->in[0];
            if (value->pass != TERN_PASS_FORWARD || tern_ops[value->op].kind == TERN_KIND_LEAF) continue;
            kept++;
            if (value->dtype == TERN_F32 && tern_count(value) > tiny.batch * tiny.context * tiny.heads)
                fail_msg("%s \"%s\" of %lld elements is kept in f32", tern_ops[value->op].name, value->label,
                         (long long)tern_count(value));
        }
    }
    assert_true(kept > 10);
    tern_graph_destroy(saved);
    tern_graph_destroy(low);
    tern_graph_destroy(g);
}

static void test_policies(void **state)
{
    (void)state;
    assert_int_equal(tern_autocast_policy_of(TERN_OP_MATMUL), TERN_AUTOCAST_LOW);
    assert_int_equal(tern_autocast_policy_of(TERN_OP_ATTENTION), TERN_AUTOCAST_LOW);
    assert_int_equal(tern_autocast_policy_of(TERN_OP_SLICE), TERN_AUTOCAST_FOLLOW);
    assert_int_equal(tern_autocast_policy_of(TERN_OP_SUM), TERN_AUTOCAST_F32);
    assert_int_equal(tern_autocast_policy_of(TERN_OP_EXP), TERN_AUTOCAST_F32);
    tern_graph *g = model(), *low = NULL;
    TEST_ERROR(tern_pass_autocast(g, TERN_F32, &low), TERN_ERROR_INVALID, "neither TERN_F16 nor TERN_BF16");
    TEST_ERROR(tern_pass_low_weights(g, TERN_U8, true, &low), TERN_ERROR_INVALID, "neither TERN_F16 nor TERN_BF16");
    assert_null(low);
    tern_graph_destroy(g);
}

/* y = (x W) V; returns the graph under autocast. pin: W, the first product, or nothing. */
static tern_graph *two_layers(const char *pin, tern_tensor **out_first, tern_tensor **out_second)
{
    tern_graph *g, *low;
    TEST_OK(tern_graph_create(&g));
    tern_tensor *x = tern_input_2d(g, "x", TERN_F32, 5, 4);
    tern_tensor *w = tern_parameter(g, "w", SHAPE(4, 6), TERN_INIT_ONES, 0);
    tern_tensor *v = tern_parameter(g, "v", SHAPE(6, 3), TERN_INIT_ONES, 0);
    if (strcmp(pin, "w") == 0) tern_keep_f32(w);
    tern_tensor *h = tern_exp(tern_matmul(x, w));
    if (strcmp(pin, "h") == 0) tern_keep_f32(h);
    tern_tensor *y = tern_matmul(h, v);
    if (strcmp(pin, "y") == 0) tern_output(y, "y");
    tern_loss(tern_mul(y, y), NULL);
    TEST_OK(tern_graph_status(g));
    TEST_OK(tern_pass_autocast(g, TERN_F16, &low));
    *out_first = *out_second = NULL;
    for (uint32_t i = 0; i < low->node_count; i++)
        if (low->nodes[i]->op == TERN_OP_MATMUL) *(*out_first ? out_second : out_first) = low->nodes[i];
    assert_non_null(*out_second);
    tern_graph_destroy(g);
    return low;
}

static void test_pins(void **state)
{
    (void)state;
    tern_tensor *first, *second;
    tern_graph *g = two_layers("", &first, &second);
    for (int32_t i = 0; i < 2; i++) assert_int_equal(first->in[i]->dtype, TERN_F16);
    for (int32_t i = 0; i < 2; i++) assert_int_equal(second->in[i]->dtype, TERN_F16);
    tern_graph_destroy(g);

    g = two_layers("w", &first, &second);
    assert_int_equal(first->in[0]->dtype, TERN_F16);
    assert_int_equal(first->in[1]->dtype, TERN_F32);
    assert_int_equal(second->in[1]->dtype, TERN_F16);
    tern_graph_destroy(g);

    g = two_layers("h", &first, &second);
    assert_int_equal(second->in[0]->dtype, TERN_F32);
    assert_int_equal(second->in[1]->dtype, TERN_F16);
    tern_graph_destroy(g);

    g = two_layers("y", &first, &second); /* an output has the dtype it was declared with */
    assert_int_equal(g->outputs[0].tensor->dtype, TERN_F32);
    const tern_tensor *y = g->outputs[0].tensor;
    while (tern_is_view(y)) y = y->in[0];
    assert_ptr_equal(y, second);
    tern_graph_destroy(g);
}

/* A cast stands on the parameter, not on a view of it, so that the optimizer can write it; one per parameter. */
static void test_parameters_are_cast_whole(void **state)
{
    (void)state;
    tern_graph *g = micro(TERN_F16);
    uint32_t casts = 0;
    for (uint32_t i = 0; i < g->node_count; i++) {
        const tern_tensor *x = g->nodes[i], *base = x;
        if (!tern_is_narrowing(x)) continue;
        base = x->in[0];
        while (tern_is_view(base)) base = base->in[0];
        if (base->op != TERN_OP_PARAMETER) continue;
        assert_ptr_equal(base, x->in[0]);
        casts++;
    }
    assert_int_equal(casts, 4 * tiny.layers + 1); /* the tied table once */
    tern_graph_destroy(g);
}

static void test_low_weights(void **state)
{
    (void)state;
    tern_graph *g = micro(TERN_BF16);
    for (int32_t masters = 0; masters < 2; masters++) {
        tern_graph *low = NULL;
        uint32_t states = 0, parameters = 0, all = 0;
        TEST_OK(tern_pass_low_weights(g, TERN_BF16, masters, &low));
        for (uint32_t i = 0; i < g->node_count; i++) all += g->nodes[i]->op == TERN_OP_PARAMETER;
        for (uint32_t i = 0; i < low->node_count; i++) {
            const tern_tensor *x = low->nodes[i];
            parameters += x->op == TERN_OP_PARAMETER;
            if (x->op != TERN_OP_STATE || strncmp(x->label, TERN_LOW_PREFIX, 4) != 0) continue;
            const tern_tensor *of = tern_graph_find(g, TERN_OP_PARAMETER, x->label + 4);
            assert_non_null(of);
            assert_int_equal(x->dtype, TERN_BF16);
            assert_int_equal(tern_count(x), tern_count(of));
            states++;
        }
        for (uint32_t i = 0; i < low->node_count; i++) /* nothing casts a parameter any more */
            if (tern_is_narrowing(low->nodes[i])) assert_int_not_equal(low->nodes[i]->in[0]->op, TERN_OP_PARAMETER);
        assert_int_equal(parameters, masters ? all : 0);
        assert_int_equal(states, masters ? 4 * tiny.layers + 1 : all);
        tern_graph_destroy(low);
    }
    tern_graph_destroy(g);
}

/* A pin is obeyed or refused, never forgotten. */
static void test_pinned_weight_needs_masters(void **state)
{
    (void)state;
    tern_tensor *first, *second;
    tern_graph *g = two_layers("w", &first, &second), *low;
    TEST_OK(tern_pass_low_weights(g, TERN_F16, true, &low));
    assert_null(tern_graph_find(low, TERN_OP_STATE, "low.w"));
    assert_non_null(tern_graph_find(low, TERN_OP_STATE, "low.v"));
    tern_graph_destroy(low);
    TEST_ERROR(tern_pass_low_weights(g, TERN_F16, false, &low), TERN_ERROR_UNSUPPORTED, "\"w\" is to be kept in f32");
    assert_null(low);
    tern_graph_destroy(g);
}

/* A view of a parameter that somebody else cast is the view of the 16-bit copy. */
static void test_views_of_weights(void **state)
{
    (void)state;
    tern_graph *g, *low;
    TEST_OK(tern_graph_create(&g));
    tern_tensor *w = tern_parameter(g, "w", SHAPE(4, 6), TERN_INIT_ONES, 0);
    tern_output(tern_cast(tern_transpose(tern_slice(w, 0, 1, 2), 0, 1), TERN_F16), "y");
    TEST_OK(tern_pass_low_weights(g, TERN_F16, true, &low));
    const tern_tensor *y = low->outputs[0].tensor;
    assert_int_equal(y->op, TERN_OP_PERMUTE);
    assert_int_equal(y->dtype, TERN_F16);
    assert_int_equal(y->in[0]->op, TERN_OP_SLICE);
    assert_string_equal(y->in[0]->in[0]->label, "low.w");
    tern_graph_destroy(low);
    tern_graph_destroy(g);
}

/* ------------------------------------------------------------------- values */

static tern_reference *filled(const tern_graph *g)
{
    tern_reference *reference = evaluate_create(g, -0.5, 0.5);
    for (uint32_t i = 0; i < g->node_count; i++) {
        const tern_tensor *x = g->nodes[i];
        double *data = tern_reference_data(reference, x);
        const bool ids = strcmp(x->label, "ids") == 0, labels = strcmp(x->label, "labels") == 0;
        for (int64_t k = 0; (ids || labels) && k < tern_count(x); k++) data[k] = (double)((k * 5 + ids) % tiny.vocab);
        if (strcmp(x->label, TERN_STATE_SCALE) == 0) data[0] = 1024;
        for (int64_t k = 0; x->dtype == TERN_F32 && k < tern_count(x); k++) data[k] = (double)(float)data[k];
    }
    for (uint32_t i = 0; i < g->node_count; i++) { /* the sort that a loader makes */
        const tern_tensor *x = g->nodes[i];
        if (x->op != TERN_OP_INPUT || !x->at.input.sort_of) continue;
        const double *from = tern_reference_data(reference, x->at.input.sort_of);
        const int64_t count = tern_count(x->at.input.sort_of), rows = x->at.input.rows;
        uint32_t *ids = malloc((size_t)count * 4), *order = malloc((size_t)count * 4),
                 *offsets = malloc((size_t)(rows + 1) * 4);
        for (int64_t k = 0; k < count; k++) ids[k] = (uint32_t)from[k];
        tern_counting_sort(ids, TERN_U32, count, rows, order, offsets);
        for (int64_t k = 0; k < tern_count(x); k++)
            tern_reference_data(reference, x)[k] = x->at.input.part ? offsets[k] : order[k];
        free(ids), free(order), free(offsets);
    }
    return reference;
}

/* Gradients under autocast are near those of f32: relative to each tensor's norm, as its dtype is coarse. */
static void test_near_f32(void **state)
{
    (void)state;
    tern_graph *wide = micro(0);
    tern_reference *exact = filled(wide);
    TEST_OK(tern_reference_run(exact));
    for (int32_t k = 0; k < 2; k++) {
        const double unit = narrow[k] == TERN_F16 ? 0x1p-11 : 0x1p-8;
        tern_graph *g = micro(narrow[k]);
        tern_reference *reference = filled(g);
        double worst = 0;
        TEST_OK(tern_reference_run(reference));
        for (uint32_t i = 0; i < wide->node_count; i++) {
            const tern_tensor *x = wide->nodes[i];
            if (x->op != TERN_OP_STATE || strcmp(x->label, TERN_STATE_SCALE) == 0) continue;
            const double *wanted = tern_reference_data(exact, x);
            const double *got = tern_reference_data(reference, tern_graph_find(g, TERN_OP_STATE, x->label));
            double difference = 0, norm = 0;
            for (int64_t j = 0; j < tern_count(x); j++) {
                difference += (got[j] - wanted[j]) * (got[j] - wanted[j]);
                norm += wanted[j] * wanted[j];
            }
            const double error = sqrt(difference / norm);
            if (!(error <= worst)) worst = error;
            if (!(error <= 24 * unit)) fail_msg("%s: %.3g of its norm, allowed %.3g", x->label, error, 24 * unit);
        }
        print_message("    %s: gradients within %.3g units\n", tern_dtype(narrow[k])->name, worst / unit);
        tern_reference_destroy(reference);
        tern_graph_destroy(g);
    }
    tern_reference_destroy(exact);
    tern_graph_destroy(wide);
}

/* The whole micro step, with low weights, before and after the save rule, fused and not: the same bits in every
 * accumulator. */
static void test_same_bits(void **state)
{
    (void)state;
    for (int32_t k = 0; k < 2; k++) {
        tern_graph *g = micro(narrow[k]), *low, *saved;
        uint64_t bytes[3];
        void *results[3];
        TEST_OK(tern_pass_low_weights(g, narrow[k], true, &low));
        TEST_OK(tern_pass_save_rule(low, &saved));
        const tern_graph *graphs[3] = {low, saved, saved};
        for (int32_t i = 0; i < 3; i++) {
            tern_reference *reference = filled(graphs[i]);
            for (uint32_t n = 0; n < graphs[i]->node_count; n++) { /* weights are the same everywhere */
                const tern_tensor *x = graphs[i]->nodes[n];
                if (x->op == TERN_OP_STATE && strncmp(x->label, TERN_LOW_PREFIX, 4) == 0)
                    evaluate_fill(x, -0.5, 0.5, tern_reference_data(reference, x));
            }
            results[i] = narrow_trial_run(graphs[i], reference, i == 1, 1, &bytes[i]);
            tern_reference_destroy(reference);
        }
        for (int32_t i = 1; i < 3; i++) {
            assert_int_equal(bytes[i], bytes[0]);
            assert_memory_equal(results[i], results[0], bytes[0]);
        }
        for (int32_t i = 0; i < 3; i++) free(results[i]);
        tern_graph_destroy(saved);
        tern_graph_destroy(low);
        tern_graph_destroy(g);
    }
}

/* Random graphs under autocast, in every way to run them (graph_trial.h); odd ones are trained. */
static void test_random_graphs(void **state)
{
    (void)state;
    enum { SEEDS = 200 };
    const char *first = getenv("TERN_FUZZ_SEED"), *many = getenv("TERN_FUZZ_COUNT");
    const uint32_t from = first ? (uint32_t)strtoul(first, NULL, 10) : 1;
    const uint32_t count = many ? (uint32_t)strtoul(many, NULL, 10) : SEEDS;
    uint32_t low_graphs = 0, failures = 0;
    for (uint32_t seed = from; seed < from + count; seed++) {
        const random_graph_options options = {.seed = seed, .train = seed % 2 == 1};
        graph_trial trial = {.fill = random_graph_fill};
        tern_graph *g = random_graph_create(&options), *low;
        TEST_OK(tern_pass_autocast(g, narrow[seed / 2 % 2], &low));
        bool rounds = false;
        for (uint32_t i = 0; i < low->node_count; i++) rounds = rounds || tern_is_narrowing(low->nodes[i]);
        low_graphs += rounds;
        if (rounds && graph_trial_run(&trial, low) == TRIAL_FAILED) {
            failures++;
            print_message("seed %u: %s\n", seed, trial.text);
        }
        tern_graph_destroy(low);
        tern_graph_destroy(g);
    }
    print_message("    %u of %u graphs have 16-bit tensors\n", low_graphs, count);
    assert_int_equal(failures, 0);
    assert_true(low_graphs > count / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operands),
        cmocka_unit_test(test_what_is_kept),
        cmocka_unit_test(test_policies),
        cmocka_unit_test(test_pins),
        cmocka_unit_test(test_parameters_are_cast_whole),
        cmocka_unit_test(test_low_weights),
        cmocka_unit_test(test_pinned_weight_needs_masters),
        cmocka_unit_test(test_views_of_weights),
        cmocka_unit_test(test_near_f32),
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_random_graphs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
