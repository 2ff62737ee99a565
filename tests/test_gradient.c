/* SPDX-License-Identifier: Apache-2.0 */
/* test_gradient.c - autograd against finite differences in double, every op that has a gradient and every composite.
 *
 * The objective is sum of seed * y with a fixed uneven seed. Values are distinct and lie off the kinks (evaluate_fill),
 * except where a test is about a kink. Tolerance 1e-7 of the largest gradient, floor 1: constants of the graph are f32
 * (erf's rule has 2/sqrt(pi), off by 5e-8); the five-point rule's own error is about 1e-11. */
#include "tests/evaluate.h"

#include "core/graph/gradient.h"

#define P(name, ...) parameter(g, name, (int64_t[]){__VA_ARGS__}, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

static tern_tensor *parameter(tern_graph *g, const char *name, const int64_t *shape, size_t rank)
{
    return tern_parameter(g, name, (int32_t)rank, shape, TERN_INIT_ZEROS, 0);
}

#define UNARY(name)                                                                                                    \
    static tern_tensor *build_##name(tern_graph *g) { return tern_##name(P("a", 2, 3)); }
UNARY(neg)
UNARY(abs)
UNARY(exp)
UNARY(log)
UNARY(sqrt)
UNARY(rsqrt)
UNARY(recip)
UNARY(tanh)
UNARY(erf)
UNARY(sin)
UNARY(cos)
UNARY(relu)
UNARY(silu)
UNARY(sigmoid)
UNARY(gelu)
UNARY(gelu_tanh)

#define BINARY(name)                                                                                                   \
    static tern_tensor *build_##name(tern_graph *g) { return tern_##name(P("a", 2, 1, 3), P("b", 4, 1)); }
BINARY(add)
BINARY(sub)
BINARY(mul)
BINARY(div)
BINARY(max)
BINARY(min)
BINARY(mse)

static tern_tensor *build_square(tern_graph *g) /* one tensor as both operands */
{
    tern_tensor *a = P("a", 5);
    return tern_mul(a, a);
}

static tern_tensor *build_where(tern_graph *g)
{
    tern_tensor *a = P("a", 3, 4), *b = P("b", 4);
    return tern_where(tern_less(tern_index(g, 2, a->shape, 1), tern_constant_u32(g, 2)), a, b);
}

static tern_tensor *build_cast(tern_graph *g) /* the public builder folds f32 to f32, so the node is made by hand */
{
    tern_tensor *a = P("a", 3);
    return tern_graph_node(g, TERN_OP_CAST, TERN_F32, a->rank, a->shape, 1, &a, NULL);
}

static tern_tensor *build_views(tern_graph *g)
{
    tern_tensor *x = tern_permute(P("a", 2, 3, 4), (int32_t[]){2, 0, 1});
    x = tern_pad(tern_slice(x, 0, 1, 2), 2, 1, 2);
    x = tern_reshape(tern_transpose(x, 0, -1), 2, (int64_t[]){-1, 4});
    x = tern_expand(x, 3, (int64_t[]){2, 6, 4});
    return tern_mul(x, x);
}

static tern_tensor *build_concat(tern_graph *g)
{
    tern_tensor *xs[3] = {P("a", 2, 3), P("b", 2, 1), P("c", 2, 2)}, *y = tern_concat(xs, 3, -1);
    return tern_mul(y, y);
}

static tern_tensor *build_reductions(tern_graph *g)
{
    tern_tensor *a = P("a", 2, 3, 4), *b = tern_reduce_max(a, 5);
    return tern_mul(tern_mul(tern_sum(a, 1), tern_mean(a, -1)), tern_mul(b, tern_sum(a, 1)));
}

static tern_tensor *build_maximum(tern_graph *g) { return tern_maximum(P("a", 3, 5), -1); }

static tern_tensor *build_matmul(tern_graph *g) { return tern_matmul(P("a", 2, 3, 4), P("b", 4, 5)); }

static tern_tensor *build_matmul_batched(tern_graph *g)
{
    return tern_matmul(tern_transpose(P("a", 2, 3, 4, 2), 2, 3), P("b", 2, 3, 4, 3));
}

static tern_tensor *build_attention_full(tern_graph *g)
{
    return tern_attention(P("q", 2, 3, 2, 4), P("k", 2, 5, 2, 4), P("v", 2, 5, 2, 4), 0.5, false);
}

static tern_tensor *build_attention_causal(tern_graph *g)
{
    return tern_attention(P("q", 1, 4, 2, 3), P("k", 1, 4, 2, 3), P("v", 1, 4, 2, 3), 0.7, true);
}

static tern_tensor *build_attention_self(tern_graph *g) /* one tensor as all three operands */
{
    tern_tensor *x = P("x", 1, 3, 1, 2);
    return tern_attention(x, x, x, 1, true);
}

/* Ids 0 2 1 2 ... made on the device; two are above the table and read its last row. */
static tern_tensor *made_ids(tern_graph *g)
{
    tern_tensor *i = tern_index(g, 2, (int64_t[]){2, 4}, 1);
    return tern_mul(i, tern_constant_u32(g, 2));
}

static tern_tensor *build_gather(tern_graph *g) { return tern_gather(P("a", 4, 3), made_ids(g)); }

static tern_tensor *build_gather_input(tern_graph *g) /* ids are an input, all zero here: the sorted form */
{
    return tern_gather(P("a", 4, 3), tern_reshape(tern_input_2d(g, "ids", TERN_U8, 2, 3), 1, (int64_t[]){6}));
}

static tern_tensor *build_linear(tern_graph *g)
{
    return tern_linear(tern_linear(P("a", 2, 2, 3), "fc1", 4), "fc2", 2);
}
static tern_tensor *build_linear_vector(tern_graph *g) { return tern_linear(P("a", 3), "fc", 4); }
static tern_tensor *build_softmax(tern_graph *g) { return tern_softmax(P("a", 3, 5), -1); }
static tern_tensor *build_softmax_first(tern_graph *g) { return tern_softmax(P("a", 3, 5), 0); }
static tern_tensor *build_log_softmax(tern_graph *g) { return tern_log_softmax(P("a", 3, 5), 1); }
static tern_tensor *build_layer_norm(tern_graph *g)
{
    return tern_layer_norm(P("a", 3, 5), P("w", 5), P("b", 5), 1e-5);
}
static tern_tensor *build_layer_norm_bare(tern_graph *g) { return tern_layer_norm(P("a", 2, 2, 4), NULL, NULL, 1e-5); }
static tern_tensor *build_dropout(tern_graph *g) { return tern_dropout(P("a", 6, 7), 0.3, "drop"); }

static tern_tensor *build_cross_entropy(tern_graph *g) /* labels 0 .. 3, label 2 ignored */
{
    tern_tensor *labels = tern_cast(tern_index(g, 2, (int64_t[]){2, 4}, 1), TERN_I32);
    return tern_cross_entropy(P("a", 2, 4, 5), labels, 2);
}

static tern_tensor *build_tied(tern_graph *g) /* an embedding that is also the output matrix */
{
    tern_tensor *table = P("table", 4, 3);
    return tern_matmul(tern_tanh(tern_gather(table, made_ids(g))), tern_transpose(P("table", 4, 3), 0, 1));
}

typedef struct gradient_case {
    const char *name;
    tern_tensor *(*build)(tern_graph *g);
    double low, high;
} gradient_case;

#define CASE(name, low, high)                                                                                          \
    {                                                                                                                  \
#name, build_##name, low, high                                                                                 \
    }
static const gradient_case cases[] = {
    CASE(neg, -1, 1),
    CASE(abs, -1, 1),
    CASE(exp, -1, 1),
    CASE(log, 0.5, 2),
    CASE(sqrt, 0.5, 2),
    CASE(rsqrt, 0.5, 2),
    CASE(recip, 0.5, 2),
    CASE(tanh, -2, 2),
    CASE(erf, -2, 2),
    CASE(sin, -2, 2),
    CASE(cos, -2, 2),
    CASE(add, -1, 1),
    CASE(sub, -1, 1),
    CASE(mul, -1, 1),
    CASE(div, 0.5, 2),
    CASE(max, -1, 1),
    CASE(min, -1, 1),
    CASE(square, -1, 1),
    CASE(where, -1, 1),
    CASE(cast, -1, 1),
    CASE(views, -1, 1),
    CASE(concat, -1, 1),
    CASE(reductions, -1, 1),
    CASE(maximum, -1, 1),
    CASE(matmul, -1, 1),
    CASE(matmul_batched, -1, 1),
    CASE(attention_full, -1, 1),
    CASE(attention_causal, -1, 1),
    CASE(attention_self, -1, 1),
    CASE(gather, -1, 1),
    CASE(gather_input, -1, 1),
    CASE(linear, -1, 1),
    CASE(linear_vector, -1, 1),
    CASE(relu, -1, 1),
    CASE(silu, -3, 3),
    CASE(sigmoid, -3, 3),
    CASE(gelu, -3, 3),
    CASE(gelu_tanh, -3, 3),
    CASE(softmax, -2, 2),
    CASE(softmax_first, -2, 2),
    CASE(log_softmax, -2, 2),
    CASE(layer_norm, -1, 1),
    CASE(layer_norm_bare, -1, 1),
    CASE(dropout, -1, 1),
    CASE(cross_entropy, -2, 2),
    CASE(mse, -1, 1),
    CASE(tied, -1, 1),
};
#define CASE_COUNT (sizeof cases / sizeof cases[0])

static void check_parameter(const gradient_case *c, tern_reference *reference, const tern_tensor *y,
                            const tern_tensor *seed, const tern_gradient *gradient, const tern_tensor *sum)
{
    int64_t count = tern_count(sum);
    double got[256], want[256], largest = 1;
    assert_true(count <= 256);
    TEST_OK(tern_reference_run(reference));
    memcpy(got, tern_reference_data(reference, sum), (size_t)count * sizeof *got);
    for (int64_t i = 0; i < count; i++) {
        want[i] = evaluate_difference(reference, y, seed, gradient->parameter, i);
        largest = fmax(largest, fabs(want[i]));
    }
    for (int64_t i = 0; i < count; i++)
        if (!(fabs(got[i] - want[i]) <= 1e-7 * largest))
            fail_msg("%s: d/d%s[%lld] is %.12g, by differences %.12g", c->name, gradient->parameter->label,
                     (long long)i, got[i], want[i]);
}

static void check_case(const gradient_case *c, bool *out_seen)
{
    tern_graph *g;
    tern_gradients gradients;
    tern_tensor *sums[8];
    TEST_OK(tern_graph_create(&g));
    tern_tensor *y = c->build(g);
    TEST_OK(tern_graph_status(g));
    tern_tensor *seed = tern_input(g, "seed", TERN_F32, y->rank, y->shape);
    uint32_t parameters = 0;
    for (uint32_t i = 0; i < g->node_count; i++) {
        out_seen[g->nodes[i]->op] = true;
        parameters += g->nodes[i]->op == TERN_OP_PARAMETER;
    }
    TEST_OK(tern_backward(g, y, seed, &gradients));
    if (gradients.count != parameters)
        fail_msg("%s: %u gradients of %u parameters", c->name, gradients.count, parameters);
    for (uint32_t i = 0; i < gradients.count; i++) sums[i] = tern_gradient_sum(&gradients.items[i]);
    TEST_OK(tern_graph_status(g));
    tern_reference *reference = evaluate_create(g, c->low, c->high);
    for (uint32_t i = 0; i < gradients.count; i++) check_parameter(c, reference, y, seed, &gradients.items[i], sums[i]);
    tern_reference_destroy(reference);
    tern_gradients_finish(&gradients);
    tern_graph_destroy(g);
}

/* All cases agree with differences, and together they use every op that ops.def says has a gradient. */
static void test_finite_differences(void **state)
{
    (void)state;
    bool seen[TERN_OP_COUNT] = {false};
    for (size_t i = 0; i < CASE_COUNT; i++) check_case(&cases[i], seen);
    for (int32_t op = 0; op < TERN_OP_COUNT; op++) {
        bool has_rule = tern_gradient_rules[op] != NULL,
             needs_rule = tern_ops[op].has_gradient == 1 && tern_ops[op].kind != TERN_KIND_LEAF;
        if (has_rule != needs_rule) fail_msg("%s: ops.def and the rules disagree", tern_ops[op].name);
        if (has_rule && !seen[op]) fail_msg("%s: no case", tern_ops[op].name);
    }
}

/* Builds f of one parameter and returns its gradient under a seed of ones, run on `values`. */
static void gradient_at(tern_tensor *(*build)(tern_tensor *), int64_t count, const double *values, double *out_gradient)
{
    tern_graph *g;
    tern_gradients gradients;
    TEST_OK(tern_graph_create(&g));
    tern_tensor *x = tern_parameter(g, "x", 1, &count, TERN_INIT_ZEROS, 0), *y = build(x);
    TEST_OK(tern_backward(g, y, tern_expand(tern_constant(g, 1), y->rank, y->shape), &gradients));
    tern_tensor *dx = tern_gradient_sum(&gradients.items[0]);
    tern_reference *reference;
    TEST_OK(tern_reference_create(g, &reference));
    memcpy(tern_reference_data(reference, x), values, (size_t)count * sizeof *values);
    TEST_OK(tern_reference_run(reference));
    memcpy(out_gradient, tern_reference_data(reference, dx), (size_t)count * sizeof *values);
    tern_reference_destroy(reference);
    tern_gradients_finish(&gradients);
    tern_graph_destroy(g);
}

static tern_tensor *max_zero(tern_tensor *x) { return tern_max(x, tern_constant(x->graph, 0)); }
static tern_tensor *row_maximum(tern_tensor *x) { return tern_maximum(x, 0); }
static tern_tensor *first_log_probability(tern_tensor *x) { return tern_slice(tern_log_softmax(x, 0), 0, 0, 1); }

/* What ops.def promises at kinks and ties. */
static void test_kinks(void **state)
{
    (void)state;
    const double values[3] = {-1, 0, 2}, ties[4] = {3, 1, 3, 0};
    double d[4];
    gradient_at(tern_relu, 3, values, d);
    assert_true(d[0] == 0 && d[1] == 0 && d[2] == 1);
    gradient_at(tern_abs, 3, values, d);
    assert_true(d[0] == -1 && d[1] == 0 && d[2] == 1);
    gradient_at(max_zero, 3, values, d);
    assert_true(d[0] == 0 && d[1] == 0.5 && d[2] == 1);
    gradient_at(row_maximum, 4, ties, d);
    assert_true(d[0] == 0.5 && d[1] == 0 && d[2] == 0.5 && d[3] == 0);
}

/* Large arguments overflow nothing: the gradients are the limits, not NaN. */
static void test_extremes(void **state)
{
    (void)state;
    const double far[4] = {-1e4, -800, 800, 1e4}, lonely[3] = {5, -INFINITY, -INFINITY}, wide[3] = {200, -200, 199};
    double d[4];
    gradient_at(tern_sigmoid, 4, far, d);
    for (int32_t i = 0; i < 4; i++) TEST_NEAR(d[i], 0, 1e-300);
    gradient_at(tern_silu, 4, far, d);
    for (int32_t i = 0; i < 4; i++) TEST_NEAR(d[i], i >= 2, 1e-12);
    gradient_at(tern_gelu_tanh, 4, far, d);
    for (int32_t i = 0; i < 4; i++) TEST_NEAR(d[i], i >= 2, 1e-12);
    gradient_at(first_log_probability, 3, lonely, d);
    for (int32_t i = 0; i < 3; i++) TEST_NEAR(d[i], 0, 1e-15);
    gradient_at(first_log_probability, 3, wide, d);
    TEST_NEAR(d[0], 1 - 1 / (1 + exp(-1.0)), 1e-12);
    TEST_NEAR(d[1], 0, 1e-100);
    TEST_NEAR(d[2], -exp(-1.0) / (1 + exp(-1.0)), 1e-12);
}

/* A tied matrix has one part per use; a frozen or unreached parameter is absent. */
static void test_parts(void **state)
{
    (void)state;
    tern_graph *g;
    tern_gradients gradients;
    TEST_OK(tern_graph_create(&g));
    tern_tensor *frozen = P("frozen", 3), *unused = P("unused", 3), *cut = P("cut", 3), *table = P("table", 4, 3);
    tern_parameter_freeze(frozen);
    tern_tensor *x = tern_add(tern_mul(tern_gather(table, made_ids(g)), frozen), tern_detach(cut));
    tern_tensor *y = tern_matmul(x, tern_transpose(table, 0, 1));
    (void)unused;
    TEST_OK(tern_backward(g, y, tern_expand(tern_constant(g, 1), y->rank, y->shape), &gradients));
    assert_int_equal(gradients.count, 1);
    assert_ptr_equal(gradients.items[0].parameter, table);
    assert_int_equal(gradients.items[0].part_count, 2);
    tern_tensor *sum = tern_gradient_sum(&gradients.items[0]);
    tern_reference *reference = evaluate_create(g, -1, 1);
    TEST_OK(tern_reference_run(reference));
    const double *total = tern_reference_data(reference, sum);
    double largest[2] = {0, 0};
    for (int64_t i = 0; i < tern_count(table); i++) {
        double a = tern_reference_data(reference, gradients.items[0].parts[0])[i];
        double b = tern_reference_data(reference, gradients.items[0].parts[1])[i];
        TEST_NEAR(total[i], a + b, 1e-15);
        largest[0] = fmax(largest[0], fabs(a));
        largest[1] = fmax(largest[1], fabs(b));
    }
    assert_true(largest[0] > 0.1 && largest[1] > 0.1);
    tern_reference_destroy(reference);
    tern_gradients_finish(&gradients);
    tern_graph_destroy(g);
}

static void test_empty_sum(void **state)
{
    (void)state;
    tern_graph *g;
    TEST_OK(tern_graph_create(&g));
    tern_gradient nothing = {.parameter = P("a", 2, 3)};
    tern_tensor *zero = tern_gradient_sum(&nothing);
    assert_int_equal(tern_count(zero), 6);
    tern_reference *reference = evaluate_create(g, -1, 1);
    TEST_OK(tern_reference_run(reference));
    for (int32_t i = 0; i < 6; i++) assert_true(tern_reference_data(reference, zero)[i] == 0);
    tern_reference_destroy(reference);
    tern_graph_destroy(g);
}

/* An op without gradient between the loss and a parameter is named; beside the path it does not matter. */
static void test_no_gradient(void **state)
{
    (void)state;
    tern_graph *g;
    tern_gradients gradients;
    const int64_t three = 3;
    TEST_OK(tern_graph_create(&g));
    tern_tensor *w = P("w", 3), *s = tern_state(g, "mean", TERN_F32, 1, &three);
    tern_tensor *beside = tern_label(tern_assign(s, tern_detach(w)), "beside");
    TEST_OK(tern_backward(g, tern_mul(w, beside), tern_expand(tern_constant(g, 1), 1, &three), &gradients));
    assert_int_equal(gradients.count, 1);
    tern_gradients_finish(&gradients);
    tern_tensor *between = tern_label(tern_assign(beside, tern_exp(w)), "running mean");
    tern_tensor *y = tern_mul(between, between);
    TEST_ERROR(tern_backward(g, y, tern_expand(tern_constant(g, 1), 1, &three), &gradients), TERN_ERROR_UNSUPPORTED,
               "assign \"running mean\" has no gradient");
    assert_int_equal(gradients.count, 0);
    tern_graph_destroy(g);
}

/* Gradients of any tensor: inner ones (here read twice), inputs, and NULL for what the loss does not reach. */
static void test_backward_to(void **state)
{
    (void)state;
    tern_graph *g;
    TEST_OK(tern_graph_create(&g));
    tern_tensor *x = tern_input_1d(g, "x", TERN_F32, 3), *other = tern_input_1d(g, "other", TERN_F32, 3);
    tern_tensor *inner = tern_mul(x, tern_constant(g, 3)), *y = tern_mul(tern_exp(inner), inner),
                *wrt[4] = {x, inner, other, y}, *d[4];
    tern_tensor *seed = tern_input_1d(g, "seed", TERN_F32, 3);
    TEST_OK(tern_backward_to(g, y, seed, wrt, 4, d));
    assert_null(d[2]);
    assert_ptr_equal(d[3], seed);
    assert_int_equal(d[0]->pass, TERN_PASS_BACKWARD);
    assert_int_equal(g->pass, TERN_PASS_FORWARD);
    tern_reference *reference = evaluate_create(g, -1, 1);
    TEST_OK(tern_reference_run(reference));
    for (int32_t i = 0; i < 3; i++) {
        double w = tern_reference_data(reference, seed)[i], z = 3 * tern_reference_data(reference, x)[i];
        TEST_NEAR(tern_reference_data(reference, d[1])[i], w * exp(z) * (z + 1), 1e-12);
        TEST_NEAR(tern_reference_data(reference, d[0])[i], 3 * w * exp(z) * (z + 1), 1e-12);
    }
    tern_reference_destroy(reference);
    TEST_ERROR(tern_backward_to(g, y, tern_constant(g, 1), wrt, 1, d), TERN_ERROR_INVALID,
               "(3) f32 and seed \"constant#");
    tern_graph_destroy(g);
}

/* ids that are an input get the sorted form, through reshapes; a second table of another length the scanning form. */
static void test_gather_forms(void **state)
{
    (void)state;
    tern_graph *g;
    tern_gradients gradients;
    TEST_OK(tern_graph_create(&g));
    tern_tensor *ids = tern_input_2d(g, "ids", TERN_U16, 2, 3);
    tern_tensor *a = tern_gather(P("a", 5, 4), tern_reshape(ids, 3, (int64_t[]){3, 1, 2}));
    tern_tensor *b = tern_gather(P("b", 7, 4), tern_reshape(ids, 3, (int64_t[]){3, 1, 2}));
    tern_tensor *y = tern_add(a, b);
    TEST_OK(tern_backward(g, y, tern_expand(tern_constant(g, 1), y->rank, y->shape), &gradients));
    uint32_t sorted = 0, scanned = 0;
    for (uint32_t i = 0; i < g->node_count; i++) {
        const tern_tensor *x = g->nodes[i];
        if (x->op != TERN_OP_SCATTER_ADD) continue;
        sorted += x->in_count == 4;
        scanned += x->in_count == 2;
        if (x->in_count == 4) {
            assert_string_equal(x->in[2]->label, "ids.order");
            assert_string_equal(x->in[3]->label, "ids.offsets");
            assert_int_equal(tern_count(x->in[2]), 6);
            assert_int_equal(tern_count(x->in[3]), x->at.scatter.rows + 1);
            assert_ptr_equal(x->in[3]->at.input.sort_of, ids);
        }
    }
    assert_int_equal(sorted, 1);
    assert_int_equal(scanned, 1);
    tern_gradients_finish(&gradients);
    tern_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finite_differences), cmocka_unit_test(test_kinks),
        cmocka_unit_test(test_extremes),           cmocka_unit_test(test_parts),
        cmocka_unit_test(test_empty_sum),          cmocka_unit_test(test_no_gradient),
        cmocka_unit_test(test_backward_to),        cmocka_unit_test(test_gather_forms),
    };
    return cmocka_run_group_tests_name("gradient", tests, NULL, NULL);
}
