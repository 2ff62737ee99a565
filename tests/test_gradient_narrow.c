/* SPDX-License-Identifier: Apache-2.0 */
/* test_gradient_narrow.c - gradients of f16 and bf16 tensors: those of the f32 op, summed in f32, rounded once.
 *
 * Finite differences cannot see through a rounding, so the f32 rules (test_gradient.c) are the measure: the same op on
 * the widened values, given the rounded dy, must have the gradient whose rounding the 16-bit tensor gets, bit for bit.
 */
#include "core/base/dtype.h"
#include "core/graph/build.h"
#include "tests/evaluate.h"

#include <stdlib.h>

static const int32_t narrow[2] = {TERN_F16, TERN_BF16};

static double rounded(double value, int32_t dtype) { return (double)tern_f32_round_to((float)value, dtype); }

/* a (4, 6), b (6, 6), both floats of one dtype. */
typedef tern_tensor *(*builder)(tern_tensor *a, tern_tensor *b);

static tern_tensor *add(tern_tensor *a, tern_tensor *b) { return tern_add(a, tern_slice(b, 0, 1, 4)); }
static tern_tensor *broadcast(tern_tensor *a, tern_tensor *b) { return tern_mul(a, tern_slice(b, 0, 2, 1)); }
static tern_tensor *quotient(tern_tensor *a, tern_tensor *b) { return tern_div(a, tern_slice(b, 0, 0, 4)); }
static tern_tensor *larger(tern_tensor *a, tern_tensor *b) { return tern_max(a, tern_slice(b, 0, 0, 4)); }
static tern_tensor *views(tern_tensor *a, tern_tensor *b)
{
    (void)b;
    return tern_pad(tern_transpose(tern_slice(a, 1, 1, 4), 0, 1), 1, 1, 0);
}
static tern_tensor *concat(tern_tensor *a, tern_tensor *b) { return tern_concat((tern_tensor *[]){a, b}, 2, 0); }
static tern_tensor *matmul(tern_tensor *a, tern_tensor *b) { return tern_matmul(a, b); }
static tern_tensor *transposed(tern_tensor *a, tern_tensor *b) { return tern_matmul(a, tern_transpose(b, 0, 1)); }
static tern_tensor *softmax(tern_tensor *a, tern_tensor *b)
{
    (void)b;
    return tern_softmax(a, 1);
}
static tern_tensor *norm(tern_tensor *a, tern_tensor *b)
{
    return tern_layer_norm(a, tern_reshape(tern_slice(b, 0, 0, 1), 1, (int64_t[]){6}), NULL, 1e-5);
}
static tern_tensor *rows(tern_tensor *a, tern_tensor *b)
{
    (void)b;
    return tern_gather(a, tern_input_1d(a->graph, a->dtype == TERN_F32 ? "ids" : "ids16", TERN_U32, 5));
}
static tern_tensor *mean(tern_tensor *a, tern_tensor *b)
{
    (void)b;
    return tern_mean(a, 0);
}

static const struct {
    const char *name;
    builder build;
} ops[] = {{"add", add},         {"broadcast", broadcast}, {"quotient", quotient}, {"larger", larger},
           {"views", views},     {"concat", concat},       {"matmul", matmul},     {"transposed", transposed},
           {"softmax", softmax}, {"layer norm", norm},     {"gather", rows},       {"mean", mean}};

/* y of the 16-bit leaves and of the f32 ones, with a seed each. */
static void compare(const char *name, builder build, int32_t dtype)
{
    tern_graph *g;
    evaluate_open(&g);
    tern_tensor *a = tern_input_2d(g, "a", dtype, 4, 6), *b = tern_input_2d(g, "b", dtype, 6, 6);
    tern_tensor *wide_a = tern_input_2d(g, "wide a", TERN_F32, 4, 6),
                *wide_b = tern_input_2d(g, "wide b", TERN_F32, 6, 6);
    tern_tensor *y = build(a, b), *wide_y = build(wide_a, wide_b), *d[2], *wide_d[2];
    assert_int_equal(y->dtype, dtype);
    tern_tensor *seed = tern_input(g, "seed", TERN_F32, y->rank, y->shape);
    tern_tensor *rounded_seed = tern_input(g, "rounded seed", TERN_F32, y->rank, y->shape);
    TEST_OK(tern_backward_to(g, tern_cast(y, TERN_F32), seed, (tern_tensor *[]){a, b}, 2, d));
    TEST_OK(tern_backward_to(g, wide_y, rounded_seed, (tern_tensor *[]){wide_a, wide_b}, 2, wide_d));
    evaluate_prepare(g);
    evaluate_put(wide_a, evaluate_data(a));
    evaluate_put(wide_b, evaluate_data(b));
    for (int64_t i = 0; i < tern_count(seed); i++)
        evaluate_data(rounded_seed)[i] = tern_ops[y->op].kind == TERN_KIND_VIEW
                                             ? evaluate_data(seed)[i] /* rounded where its base is */
                                             : rounded(evaluate_data(seed)[i], dtype);
    evaluate_compute();
    for (int32_t k = 0; k < 2; k++) {
        if (!d[k]) continue;
        assert_int_equal(d[k]->dtype, dtype);
        double *expected = malloc((size_t)tern_count(d[k]) * sizeof *expected);
        for (int64_t i = 0; i < tern_count(d[k]); i++) expected[i] = rounded(evaluate_data(wide_d[k])[i], dtype);
        evaluate_assert(name, d[k], expected);
        free(expected);
    }
    evaluate_close(g);
}

static void test_rounded_once(void **state)
{
    (void)state;
    for (int32_t i = 0; i < 2; i++)
        for (size_t k = 0; k < sizeof ops / sizeof *ops; k++) compare(ops[k].name, ops[k].build, narrow[i]);
}

/* 2048 + 1 + 1 + 1: f16 has only even numbers there, so adding in f16 would stay at 2048. */
static void test_contributions_are_summed_in_f32(void **state)
{
    (void)state;
    tern_graph *g;
    evaluate_open(&g);
    tern_tensor *x = tern_input_1d(g, "x", TERN_F16, 1), *wide = tern_cast(x, TERN_F32), *d;
    tern_tensor *y = tern_mul(wide, tern_constant(g, 2048));
    for (int32_t i = 0; i < 3; i++) y = tern_add(y, tern_cast(tern_mul(x, tern_constant(g, 1.0)), TERN_F32));
    TEST_OK(tern_backward_to(g, y, tern_scalar_like(y, 1), &x, 1, &d));
    evaluate_prepare(g);
    evaluate_compute();
    evaluate_assert("dx", d, (const double[]){2052}); /* 2051, to even */
    evaluate_close(g);
}

/* The gradient of an f32 weight that is multiplied in 16 bits is the f32 product of 16-bit operands, not rounded. */
static void test_weights_get_f32(void **state)
{
    (void)state;
    tern_graph *g;
    tern_gradients gradients;
    evaluate_open(&g);
    tern_tensor *x = tern_input_2d(g, "x", TERN_BF16, 5, 3), *y = tern_linear(x, "fc", 2);
    tern_tensor *seed = tern_input_2d(g, "seed", TERN_F32, 5, 2);
    TEST_OK(tern_backward(g, tern_cast(y, TERN_F32), seed, &gradients));
    assert_int_equal(gradients.count, 2);
    assert_string_equal(gradients.items[0].parameter->label, "fc.weight");
    assert_int_equal(gradients.items[0].part_count, 1);
    tern_tensor *dw = gradients.items[0].parts[0];
    const tern_tensor *product = dw;
    while (tern_ops[product->op].kind == TERN_KIND_VIEW) product = product->in[0];
    assert_int_equal(product->op, TERN_OP_MATMUL); /* nothing between the product and its accumulator */
    for (int32_t i = 0; i < 2; i++) assert_int_equal(product->in[i]->dtype, TERN_BF16);
    evaluate_prepare(g);
    evaluate_compute();
    const double *dy = evaluate_data(seed), *in = evaluate_data(x);
    double expected[6] = {0};
    bool differs = false;
    for (int32_t n = 0; n < 5; n++)
        for (int32_t i = 0; i < 6; i++) expected[i] += rounded(dy[n * 2 + i / 3], TERN_BF16) * in[n * 3 + i % 3];
    for (int32_t i = 0; i < 6; i++) differs = differs || rounded(expected[i], TERN_BF16) != expected[i];
    assert_true(differs);
    evaluate_assert("dW", dw, expected);
    tern_gradients_finish(&gradients);
    evaluate_close(g);
}

/* dy is stored once for both products, and a dy that only went through a widening is not stored again. */
static void test_operands_are_shared(void **state)
{
    (void)state;
    tern_graph *g;
    evaluate_open(&g);
    tern_tensor *x = tern_input_2d(g, "x", TERN_F16, 4, 6), *w = tern_input_2d(g, "w", TERN_F16, 6, 5), *d[2];
    tern_tensor *y = tern_matmul(x, w), *z = tern_exp(tern_cast(y, TERN_F32));
    TEST_OK(tern_backward_to(g, z, tern_scalar_like(z, 1), (tern_tensor *[]){x, w}, 2, d));
    uint32_t casts = 0;
    for (uint32_t i = 0; i < g->node_count; i++)
        casts += g->nodes[i]->pass == TERN_PASS_BACKWARD && tern_is_narrowing(g->nodes[i]);
    assert_int_equal(casts, 3); /* dy, dx and dw */
    tern_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rounded_once),
        cmocka_unit_test(test_contributions_are_summed_in_f32),
        cmocka_unit_test(test_weights_get_f32),
        cmocka_unit_test(test_operands_are_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
