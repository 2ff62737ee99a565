/* SPDX-License-Identifier: Apache-2.0 */
/* test_composites.c - activations, softmax, norms, losses and dropout on the reference, against closed forms written
 * here. */
#include "tests/evaluate.h"

#include "core/base/hash.h"
#include "core/base/philox.h"

static void test_activations(void **state)
{
    (void)state;
    tern_graph *g;
    evaluate_open(&g);
    tern_tensor *x = tern_input_1d(g, "x", TERN_F32, 7);
    tern_tensor *gelu = tern_gelu(x), *gelu_tanh = tern_gelu_tanh(x), *relu = tern_relu(x), *silu = tern_silu(x),
                *sigmoid = tern_sigmoid(x);
    evaluate_prepare(g);
    evaluate_put(x, (double[]){-30, -2, -0.5, 0, 0.5, 3, 40});
    evaluate_compute();
    for (int32_t i = 0; i < 7; i++) {
        double v = evaluate_data(x)[i], s = 1 / (1 + exp(-v)), k = 7.978845608028654e-1;
        /* The graph's constants are f32: 1 / sqrt 2 is off by 2e-8 of itself. */
        TEST_NEAR(evaluate_data(gelu)[i], 0.5 * v * (1 + erf(v / sqrt(2.0))), 1e-7);
        TEST_NEAR(evaluate_data(gelu_tanh)[i], 0.5 * v * (1 + tanh(k * (v + 0.044715 * v * v * v))), 1e-6);
        TEST_NEAR(evaluate_data(relu)[i], v > 0 ? v : 0, 0);
        TEST_NEAR(evaluate_data(silu)[i], v * s, 1e-14);
        TEST_NEAR(evaluate_data(sigmoid)[i] / s, 1, 1e-14);
    }
    evaluate_data(x)[0] = NAN;
    evaluate_compute();
    assert_true(isnan(evaluate_data(relu)[0]) && isnan(evaluate_data(gelu)[0]) && isnan(evaluate_data(sigmoid)[0]));
    evaluate_close(g);
}

static void test_softmax(void **state)
{
    (void)state;
    tern_graph *g;
    evaluate_open(&g);
    tern_tensor *x = tern_input_2d(g, "x", TERN_F32, 3, 4), *p = tern_softmax(x, -1), *l = tern_log_softmax(x, -1);
    evaluate_prepare(g);
    evaluate_put(x, (double[]){1, 2, 3, 4, 200, -200, 199, 0, -INFINITY, -INFINITY, 5, -INFINITY});
    evaluate_compute();
    for (int32_t row = 0; row < 2; row++)
        for (int32_t i = 0; i < 4; i++) {
            const double *z = evaluate_data(x) + row * 4;
            double sum = 0;
            for (int32_t k = 0; k < 4; k++) sum += exp(z[k] - z[i]);
            TEST_NEAR(evaluate_data(p)[row * 4 + i], 1 / sum, 1e-15);
            TEST_NEAR(evaluate_data(l)[row * 4 + i], -log(sum), 1e-12);
        }
    for (int32_t i = 0; i < 4; i++) assert_true(evaluate_data(p)[8 + i] == (i == 2));
    evaluate_close(g);
}

/* Values and gradient, softmax - one-hot, with an ignored label; a wide row of -inf beside one number; every integer
 * type. */
static void check_cross_entropy(int32_t dtype, int64_t ignored)
{
    tern_graph *g;
    tern_tensor *d;
    evaluate_open(&g);
    tern_tensor *x = tern_input_2d(g, "x", TERN_F32, 4, 3), *labels = tern_input_1d(g, "labels", dtype, 4),
                *seed = tern_input_1d(g, "seed", TERN_F32, 4);
    tern_tensor *loss = tern_cross_entropy(x, labels, ignored);
    tern_tensor *weight = loss->weight;
    TEST_OK(tern_backward_to(g, loss, seed, &x, 1, &d));
    evaluate_prepare(g);
    evaluate_put(x, (double[]){0.5, -1, 2, 200, -200, 0, 1, 2, 3, -INFINITY, 4, -INFINITY});
    evaluate_put(labels, (double[]){2, 0, (double)ignored, 1});
    evaluate_compute();
    for (int32_t row = 0; row < 4; row++) {
        const double *z = evaluate_data(x) + row * 3;
        int32_t label = (int32_t)evaluate_data(labels)[row];
        double sum = 0, top = fmax(z[0], fmax(z[1], z[2]));
        for (int32_t k = 0; k < 3; k++) sum += exp(z[k] - top);
        TEST_NEAR(evaluate_data(loss)[row], row == 2 ? 0 : top + log(sum) - z[label], 1e-13);
        TEST_NEAR(evaluate_data(weight)[row], row != 2, 0);
        for (int32_t k = 0; k < 3; k++)
            TEST_NEAR(evaluate_data(d)[row * 3 + k],
                      row == 2 ? 0 : evaluate_data(seed)[row] * (exp(z[k] - top) / sum - (k == label)), 1e-13);
    }
    evaluate_close(g);
}

static void test_cross_entropy(void **state)
{
    (void)state;
    check_cross_entropy(TERN_I32, -100);
    check_cross_entropy(TERN_U32, 4294967295);
    check_cross_entropy(TERN_U16, 65535);
    check_cross_entropy(TERN_U8, 255);
}

/* Rows of 300s with a small ripple: the variance is the ripple's. */
static void test_layer_norm(void **state)
{
    (void)state;
    enum { ROWS = 3, WIDTH = 4096 };
    tern_graph *g;
    evaluate_open(&g);
    tern_tensor *x = tern_input_2d(g, "x", TERN_F32, ROWS, WIDTH), *w = tern_input_1d(g, "w", TERN_F32, WIDTH),
                *b = tern_input_1d(g, "b", TERN_F32, WIDTH);
    tern_tensor *y = tern_layer_norm(x, w, b, 1e-5);
    evaluate_prepare(g);
    for (int32_t i = 0; i < ROWS * WIDTH; i++) evaluate_data(x)[i] = 300 + 0.01 * ((i * 37) % 11);
    evaluate_compute();
    for (int32_t row = 0; row < ROWS; row++) {
        const double *v = evaluate_data(x) + row * WIDTH;
        double mean = 0, variance = 0;
        for (int32_t i = 0; i < WIDTH; i++) mean += v[i] / WIDTH;
        for (int32_t i = 0; i < WIDTH; i++) variance += (v[i] - mean) * (v[i] - mean) / WIDTH;
        for (int32_t i = 0; i < WIDTH; i++)
            TEST_NEAR(evaluate_data(y)[row * WIDTH + i],
                      (v[i] - mean) / sqrt(variance + (double)1e-5f) * evaluate_data(w)[i] + evaluate_data(b)[i], 1e-9);
    }
    evaluate_close(g);
}

/* Bits are philox of (seed words, element of the window, label); dropout drops that many and scales the rest. */
static void test_random(void **state)
{
    (void)state;
    enum { ROWS = 100, WIDTH = 1000 };
    tern_graph *g;
    tern_tensor *d;
    evaluate_open(&g);
    tern_tensor *x = tern_input_2d(g, "x", TERN_F32, ROWS, WIDTH), *y = tern_dropout(x, 0.2, "drop"),
                *bits = tern_graph_find(g, TERN_OP_RANDOM, "drop");
    TEST_OK(tern_backward_to(g, y, tern_expand(tern_constant(g, 1), SHAPE(ROWS, WIDTH)), &x, 1, &d));
    evaluate_prepare(g);
    evaluate_compute();
    int64_t dropped = 0, count = tern_count(x);
    double scale = (double)(float)1.25;
    for (int64_t i = 0; i < count; i++) {
        uint64_t e = 3 * WIDTH + (uint64_t)i; /* evaluate_create: sample base 3 */
        uint32_t out[4], counter[4] = {(uint32_t)e, (uint32_t)(e >> 32), tern_hash_label("drop"), 0},
                         key[2] = {0x12345678, 0xfedcba98};
        tern_philox(counter, key, out);
        if (i < 5000) assert_true(evaluate_data(bits)[i] == (double)out[0]);
        bool drop = out[0] < 858993459u; /* 0.2 of 2^32 */
        assert_true(evaluate_data(y)[i] == (drop ? 0 : evaluate_data(x)[i] * scale));
        assert_true(evaluate_data(d)[i] == (drop ? 0 : scale));
        dropped += drop;
    }
    /* Five standard deviations of a binomial. */
    TEST_NEAR((double)dropped / (double)count, 0.2, 5 * sqrt(0.2 * 0.8 / (double)count));
    evaluate_data(tern_graph_control(g))[TERN_CONTROL_SAMPLE_BASE] = 4294967295.0; /* the element's high word is used */
    evaluate_compute();
    uint64_t e = 4294967295ull * WIDTH + 5;
    uint32_t out[4], counter[4] = {(uint32_t)e, (uint32_t)(e >> 32), tern_hash_label("drop"), 0},
                     key[2] = {0x12345678, 0xfedcba98};
    tern_philox(counter, key, out);
    assert_true(counter[1] > 0 && evaluate_data(bits)[5] == (double)out[0]);
    evaluate_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_activations), cmocka_unit_test(test_softmax), cmocka_unit_test(test_cross_entropy),
        cmocka_unit_test(test_layer_norm),  cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests_name("composites", tests, NULL, NULL);
}
