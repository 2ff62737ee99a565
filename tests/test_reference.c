/* SPDX-License-Identifier: Apache-2.0 */
/* test_reference.c - the specification against closed forms written here, independently of core/reference. */
#include "tests/evaluate.h"

#include <stdlib.h>

/* --------------------------------------------------------------- elementwise */

static double one_over_root(double x) { return 1 / sqrt(x); }
static double one_over(double x) { return 1 / x; }
static double negative(double x) { return -x; }

static void test_unary(void **state)
{
    (void)state;
    static const struct {
        tern_tensor *(*op)(tern_tensor *);
        double (*closed)(double);
    } rows[] = {
        {tern_neg, negative},   {tern_abs, fabs},  {tern_exp, exp},
        {tern_log, log},        {tern_sqrt, sqrt}, {tern_rsqrt, one_over_root},
        {tern_recip, one_over}, {tern_tanh, tanh}, {tern_erf, erf},
        {tern_sin, sin},        {tern_cos, cos},   {tern_floor, floor},
    };
    static const double values[8] = {0, 0.25, 1, 2.5, 300, -0.75, -3, INFINITY};
    tern_graph *g;
    tern_tensor *results[12];
    evaluate_open(&g);
    tern_tensor *x = tern_input_1d(g, "x", TERN_F32, 8);
    for (int32_t i = 0; i < 12; i++) results[i] = rows[i].op(x);
    evaluate_prepare(g);
    evaluate_put(x, values);
    evaluate_compute();
    for (int32_t i = 0; i < 12; i++) {
        double expected[8];
        for (int32_t k = 0; k < 8; k++) expected[k] = rows[i].closed(values[k]);
        evaluate_assert(results[i]->label, results[i], expected);
    }
    evaluate_close(g);
}

static void test_float_pairs(void **state)
{
    (void)state;
    tern_graph *g;
    evaluate_open(&g);
    tern_tensor *a = tern_input_1d(g, "a", TERN_F32, 4), *b = tern_input_1d(g, "b", TERN_F32, 4);
    tern_tensor *results[9] = {tern_add(a, b),  tern_sub(a, b),   tern_mul(a, b),
                               tern_div(a, b),  tern_max(a, b),   tern_min(a, b),
                               tern_less(a, b), tern_equal(a, b), tern_where(tern_less(a, b), a, b)};
    evaluate_prepare(g);
    evaluate_put(a, (double[]){1, -2, 3, NAN});
    evaluate_put(b, (double[]){4, -8, 3, 1});
    evaluate_compute();
    const double expected[9][4] = {{5, -10, 6, NAN},     {-3, 6, 0, NAN}, {4, 16, 9, NAN},
                                   {0.25, 0.25, 1, NAN}, {4, -2, 3, NAN}, {1, -8, 3, NAN},
                                   {1, 0, 0, 0},         {0, 0, 1, 0},    {1, -8, 3, 1}};
    for (int32_t i = 0; i < 9; i++) evaluate_assert(results[i]->label, results[i], expected[i]);
    evaluate_close(g);
}

/* u32 and i32 wrap; signed and unsigned order differ. */
static void test_integers(void **state)
{
    (void)state;
    tern_graph *g;
    evaluate_open(&g);
    tern_tensor *a = tern_input_1d(g, "a", TERN_U32, 3), *b = tern_input_1d(g, "b", TERN_U32, 3);
    tern_tensor *i = tern_bitcast(a, TERN_I32), *j = tern_bitcast(b, TERN_I32);
    tern_tensor *results[] = {tern_add(a, b),
                              tern_sub(a, b),
                              tern_mul(a, b),
                              tern_multiply_high(a, b),
                              tern_and(a, b),
                              tern_or(a, b),
                              tern_xor(a, b),
                              tern_shift_left(a, tern_constant_u32(g, 4)),
                              tern_shift_right(a, tern_constant_u32(g, 31)),
                              tern_max(a, b),
                              tern_min(a, b),
                              tern_less(a, b),
                              i,
                              tern_max(i, j),
                              tern_less(i, j),
                              tern_add(i, j),
                              tern_mul(i, i)};
    evaluate_prepare(g);
    evaluate_put(a, (double[]){4294967295.0, 7, 2147483648.0});
    evaluate_put(b, (double[]){2, 9, 2147483648.0});
    evaluate_compute();
    const double expected[][3] = {
        {1, 16, 0},
        {4294967293.0, 4294967294.0, 0},
        {4294967294.0, 63, 0},
        {1, 0, 1073741824.0},
        {2, 1, 2147483648.0},
        {4294967295.0, 15, 2147483648.0},
        {4294967293.0, 14, 0},
        {4294967280.0, 112, 0},
        {1, 0, 1},
        {4294967295.0, 9, 2147483648.0},
        {2, 7, 2147483648.0},
        {0, 1, 0},
        {-1, 7, -2147483648.0},
        {2, 9, -2147483648.0},
        {1, 1, 0},
        {1, 16, 0},
        {1, 49, 0},
    };
    for (size_t k = 0; k < sizeof results / sizeof results[0]; k++)
        evaluate_assert(results[k]->label, results[k], expected[k]);
    evaluate_close(g);
}

static void test_casts(void **state)
{
    (void)state;
    tern_graph *g;
    evaluate_open(&g);
    tern_tensor *x = tern_input_1d(g, "x", TERN_F32, 4), *signed_x = tern_cast(x, TERN_I32);
    tern_tensor *bits = tern_bitcast(x, TERN_U32), *back = tern_bitcast(bits, TERN_F32),
                *floats = tern_cast(signed_x, TERN_F32);
    tern_tensor *small = tern_cast(tern_input_1d(g, "bytes", TERN_U8, 4), TERN_U32);
    evaluate_prepare(g);
    evaluate_put(x, (double[]){1.75, -1.75, 2, -0.0});
    evaluate_put(small->in[0], (double[]){0, 1, 200, 255});
    evaluate_compute();
    evaluate_assert("cast", signed_x, (double[]){1, -1, 2, 0});
    evaluate_assert("cast back", floats, (double[]){1, -1, 2, 0});
    evaluate_assert("bitcast", bits, (double[]){0x3fe00000, 0xbfe00000, 0x40000000, 0x80000000});
    evaluate_assert("bitcast back", back, (double[]){1.75, -1.75, 2, -0.0});
    evaluate_assert("bytes", small, (double[]){0, 1, 200, 255});
    evaluate_close(g);
}

/* ------------------------------------------------------------ views and sums */

static void test_views(void **state)
{
    (void)state;
    tern_graph *g;
    evaluate_open(&g);
    tern_tensor *x = tern_index(g, SHAPE(6), 0), *m = tern_reshape(x, SHAPE(2, 3)); /* 0 1 2 / 3 4 5 */
    tern_tensor *transposed = tern_transpose(m, 0, 1), *sliced = tern_slice(m, 1, 1, 2),
                *padded = tern_pad(sliced, 1, 1, 1);
    tern_tensor *expanded = tern_expand(tern_slice(m, 1, 2, 1), SHAPE(2, 2, 3));
    tern_tensor *joined = tern_concat((tern_tensor *[]){m, sliced}, 2, 1), *axis = tern_index(g, SHAPE(2, 2), 1);
    evaluate_prepare(g);
    evaluate_compute();
    evaluate_assert("transpose", transposed, (double[]){0, 3, 1, 4, 2, 5});
    evaluate_assert("slice", sliced, (double[]){1, 2, 4, 5});
    evaluate_assert("pad", padded, (double[]){0, 1, 2, 0, 0, 4, 5, 0});
    evaluate_assert("expand", expanded, (double[]){2, 2, 2, 5, 5, 5, 2, 2, 2, 5, 5, 5});
    evaluate_assert("concat", joined, (double[]){0, 1, 2, 1, 2, 3, 4, 5, 4, 5});
    evaluate_assert("index", axis, (double[]){0, 1, 0, 1});
    evaluate_close(g);
}

static void test_reductions(void **state)
{
    (void)state;
    tern_graph *g;
    evaluate_open(&g);
    tern_tensor *x = tern_input(g, "x", TERN_F32, SHAPE(2, 2, 2));
    tern_tensor *last = tern_sum(x, -1), *outer = tern_reduce_sum(x, 5), *top = tern_maximum(x, 0),
                *all = tern_reduce_max(x, 7), *mean = tern_mean(x, 1);
    evaluate_prepare(g);
    evaluate_put(x, (double[]){1, -2, 3, 4, NAN, -6, 7, -8});
    evaluate_compute();
    double magnitude[4];
    evaluate_assert("sum", last, (double[]){-1, 7, NAN, -1});
    evaluate_assert("sum of two axes", outer, (double[]){NAN, 6});
    evaluate_assert("maximum", top, (double[]){NAN, -2, 7, 4});
    evaluate_assert("maximum of all", all, (double[]){NAN});
    evaluate_assert("mean", mean, (double[]){2, 1, NAN, -7});
    TEST_OK(tern_reference_magnitude(evaluate_current(), last, magnitude));
    assert_true(magnitude[0] == 3 && magnitude[1] == 7 && magnitude[3] == 15);
    TEST_OK(tern_reference_magnitude(evaluate_current(), mean, magnitude)); /* elementwise: |value| */
    assert_true(magnitude[0] == 2 && magnitude[3] == 7);
    evaluate_close(g);
}

/* -------------------------------------------------------------- contractions */

static void test_matmul(void **state)
{
    (void)state;
    tern_graph *g;
    evaluate_open(&g);
    tern_tensor *a = tern_input(g, "a", TERN_F32, SHAPE(2, 3)), *b = tern_input(g, "b", TERN_F32, SHAPE(2, 3));
    tern_tensor *c = tern_matmul(a, tern_transpose(b, 0, 1));
    evaluate_prepare(g);
    evaluate_put(a, (double[]){1, 2, 3, 4, 5, 6});
    evaluate_put(b, (double[]){1, 0, -1, 2, -2, 2});
    evaluate_compute();
    evaluate_assert("a b^T", c, (double[]){-2, 4, -2, 10});
    double magnitude[4];
    TEST_OK(tern_reference_magnitude(evaluate_current(), c->in[0], magnitude)); /* below the reshape to rank 2 */
    assert_true(magnitude[0] == 4 && magnitude[1] == 12 && magnitude[2] == 10 && magnitude[3] == 30);
    evaluate_close(g);
}

static void test_gather_scatter(void **state)
{
    (void)state;
    tern_graph *g;
    evaluate_open(&g);
    tern_tensor *table = tern_input_2d(g, "table", TERN_F32, 3, 2), *ids = tern_input_1d(g, "ids", TERN_I32, 5);
    tern_tensor *dy = tern_input_2d(g, "dy", TERN_F32, 5, 2), *y = tern_gather(table, ids), *d;
    TEST_OK(tern_backward_to(g, y, dy, &table, 1, &d));
    evaluate_prepare(g);
    evaluate_put(table, (double[]){1, 2, 3, 4, 5, 6});
    evaluate_put(ids, (double[]){2, 0, 0, 9, -1});
    evaluate_put(dy, (double[]){1, 10, 2, -20, 3, 30, 4, 40, 5, 50});
    evaluate_compute();
    double magnitude[6];
    evaluate_assert("gather", y, (double[]){5, 6, 1, 2, 1, 2, 5, 6, 5, 6});
    evaluate_assert("scatter_add", d, (double[]){5, 10, 0, 0, 10, 100});
    TEST_OK(tern_reference_magnitude(evaluate_current(), d, magnitude));
    assert_true(magnitude[0] == 5 && magnitude[1] == 50 && magnitude[2] == 0 && magnitude[5] == 100);
    evaluate_close(g);
}

/* Attention is softmax of the masked scores times v, here composed of primitives: values, lse and all three gradients.
 */
static void check_attention(bool causal, int64_t queries)
{
    enum { B = 2, TK = 5, H = 3, D = 4 };
    tern_graph *g;
    tern_tensor *fused[3], *composed[3];
    evaluate_open(&g);
    tern_tensor *in[3] = {tern_input(g, "q", TERN_F32, SHAPE(B, queries, H, D)),
                          tern_input(g, "k", TERN_F32, SHAPE(B, TK, H, D)),
                          tern_input(g, "v", TERN_F32, SHAPE(B, TK, H, D))};
    tern_tensor *seed = tern_input(g, "seed", TERN_F32, SHAPE(B, queries, H, D));
    tern_tensor *o = tern_attention(in[0], in[1], in[2], 0.75, causal), *lse = tern_second(o), *by_head[3];
    for (int32_t i = 0; i < 3; i++) by_head[i] = tern_transpose(in[i], 1, 2);
    tern_tensor *scores = tern_mul(tern_matmul(by_head[0], tern_transpose(by_head[1], 2, 3)), tern_constant(g, 0.75));
    tern_tensor *hidden = tern_less(tern_index(g, SHAPE(queries, TK), 0), tern_index(g, SHAPE(queries, TK), 1));
    if (causal) scores = tern_where(hidden, tern_constant(g, -INFINITY), scores);
    tern_tensor *plain = tern_transpose(tern_matmul(tern_softmax(scores, -1), by_head[2]), 1, 2);
    tern_tensor *plain_lse =
        tern_transpose(tern_reshape(tern_log(tern_sum(tern_exp(scores), -1)), SHAPE(B, H, queries)), 1, 2);
    TEST_OK(tern_backward_to(g, o, seed, in, 3, fused));
    TEST_OK(tern_backward_to(g, plain, seed, in, 3, composed));
    evaluate_prepare(g);
    evaluate_compute();
    for (int64_t i = 0; i < tern_count(o); i++) TEST_NEAR(evaluate_data(o)[i], evaluate_data(plain)[i], 1e-14);
    for (int64_t i = 0; i < tern_count(lse); i++) TEST_NEAR(evaluate_data(lse)[i], evaluate_data(plain_lse)[i], 1e-14);
    for (int32_t k = 0; k < 3; k++)
        for (int64_t i = 0; i < tern_count(in[k]); i++)
            TEST_NEAR(evaluate_data(fused[k])[i], evaluate_data(composed[k])[i], 1e-14);
    double *magnitude = malloc((size_t)tern_count(o) * sizeof *magnitude);
    assert_non_null(magnitude);
    TEST_OK(tern_reference_magnitude(evaluate_current(), o, magnitude));
    bool larger = false;
    for (int64_t i = 0; i < tern_count(o); i++) {
        assert_true(magnitude[i] >= fabs(evaluate_data(o)[i]) * (1 - 1e-12));
        larger = larger || magnitude[i] > 1.1 * fabs(evaluate_data(o)[i]);
    }
    assert_true(larger);
    TEST_OK(tern_reference_magnitude(evaluate_current(), lse, magnitude));
    for (int64_t i = 0; i < tern_count(lse); i++) TEST_NEAR(magnitude[i], fabs(evaluate_data(lse)[i]), 1e-14);
    free(magnitude);
    evaluate_close(g);
}

static void test_attention(void **state)
{
    (void)state;
    check_attention(false, 3);
    check_attention(false, 5);
    check_attention(true, 5);
}

/* -------------------------------------------------------- assign, refusals */

/* Readers of the state see the old value in the same run, readers of the new version the new one, the next run the
 * last. */
static void test_assign(void **state)
{
    (void)state;
    tern_graph *g;
    evaluate_open(&g);
    tern_tensor *s = tern_state(g, "s", TERN_F32, SHAPE(2)), *one = tern_expand(tern_constant(g, 1), SHAPE(2));
    tern_tensor *first = tern_assign(s, tern_add(s, one)), *second = tern_assign(first, tern_add(first, first));
    tern_tensor *old = tern_mul(s, tern_constant(g, 10)), *fresh = tern_mul(second, tern_constant(g, 10));
    evaluate_prepare(g);
    evaluate_compute();
    evaluate_assert("old", old, (double[]){0, 0});
    evaluate_assert("fresh", fresh, (double[]){20, 20});
    evaluate_assert("state", s, (double[]){2, 2});
    evaluate_compute();
    evaluate_assert("old", old, (double[]){20, 20});
    evaluate_assert("state", s, (double[]){6, 6});
    (void)tern_assign(first, one);
    TEST_ERROR(tern_graph_status(g), TERN_ERROR_INVALID, "assigned twice");
    evaluate_close(g);
}

static void test_refusals(void **state)
{
    (void)state;
    tern_graph *g, *other;
    tern_reference *reference;
    double out[3];
    evaluate_open(&g);
    evaluate_open(&other);
    tern_tensor *foreign = tern_input_1d(other, "foreign", TERN_F32, 3);
    evaluate_prepare(g);
    assert_null(evaluate_data(foreign));
    TEST_ERROR(tern_reference_magnitude(evaluate_current(), foreign, out), TERN_ERROR_INVALID, "\"foreign\"");
    (void)tern_sum(foreign, 4);
    TEST_ERROR(tern_reference_create(other, &reference), TERN_ERROR_INVALID, "axis 4");
    assert_null(reference);
    tern_graph_destroy(other);
    evaluate_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unary),  cmocka_unit_test(test_float_pairs),    cmocka_unit_test(test_integers),
        cmocka_unit_test(test_casts),  cmocka_unit_test(test_views),          cmocka_unit_test(test_reductions),
        cmocka_unit_test(test_matmul), cmocka_unit_test(test_gather_scatter), cmocka_unit_test(test_attention),
        cmocka_unit_test(test_assign), cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("reference", tests, NULL, NULL);
}
