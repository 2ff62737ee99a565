/* SPDX-License-Identifier: Apache-2.0 */
/* test_promote.c - 16-bit floats in the graph: which dtype an op gives, where the one rounding happens, what casts
 * fold, and that fused, unfused and on the CPU they are the same bits. */
#include "core/base/dtype.h"
#include "core/graph/build.h"
#include "core/passes/accumulate.h"
#include "core/plan/session.h"
#include "tests/evaluate.h"
#include "tests/narrow_trial.h"
#include "tests/random_graph.h"

#include <stdlib.h>

static const int32_t narrow[2] = {TERN_F16, TERN_BF16};

static double rounded(double value, int32_t dtype) { return (double)tern_f32_round_to((float)value, dtype); }

/* ------------------------------------------------------------------ dtypes */

/* graph.h: where 16-bit floats occur, as a node's own dtype and as what it reads. */
static void expect_only_storage(const tern_graph *g)
{
    for (uint32_t i = 0; i < g->node_count; i++) {
        const tern_tensor *x = g->nodes[i];
        bool reads = false;
        for (int32_t k = 0; k < x->in_count; k++) reads = reads || tern_dtype_is_16bit_float(x->in[k]->dtype);
        const bool gives = tern_dtype_is_16bit_float(x->dtype);
        const bool moves = tern_ops[x->op].kind == TERN_KIND_VIEW || x->op == TERN_OP_DETACH ||
                           x->op == TERN_OP_GATHER || x->op == TERN_OP_ASSIGN || x->op == TERN_OP_CAST ||
                           x->op == TERN_OP_ATTENTION || x->op == TERN_OP_ATTENTION_DQ ||
                           x->op == TERN_OP_ATTENTION_DKV;
        const bool leaf = x->op == TERN_OP_INPUT || x->op == TERN_OP_STATE;
        const bool sums = x->op == TERN_OP_MATMUL || x->op == TERN_OP_SCATTER_ADD;
        if (gives && !moves && !leaf) fail_msg("%s gives 16 bits", tern_describe(x).text);
        if (reads && !moves && !sums) fail_msg("%s reads 16 bits", tern_describe(x).text);
        if (x->op == TERN_OP_CAST && gives && reads) fail_msg("%s rounds what is rounded", tern_describe(x).text);
    }
}

static void test_result_dtypes(void **state)
{
    (void)state;
    tern_graph *g;
    evaluate_open(&g);
    tern_tensor *h = tern_input_2d(g, "h", TERN_F16, 4, 6), *k = tern_input_2d(g, "k", TERN_F16, 4, 6);
    tern_tensor *b = tern_input_2d(g, "b", TERN_BF16, 4, 6), *f = tern_input_2d(g, "f", TERN_F32, 4, 6);
    tern_tensor *ids = tern_input_1d(g, "ids", TERN_U16, 5), *labels = tern_input_1d(g, "labels", TERN_U8, 4);
    tern_tensor *w = tern_parameter(g, "w", SHAPE(6), TERN_INIT_ONES, 0);
    tern_tensor *q = tern_reshape(h, SHAPE(1, 4, 2, 3)), *image = tern_reshape(h, SHAPE(1, 1, 4, 6));
    tern_tensor *filter = tern_parameter(g, "filter", SHAPE(2, 1, 3, 3), TERN_INIT_ONES, 0);
    const struct {
        const char *what;
        tern_tensor *y;
        int32_t dtype;
    } rows[] = {
        {"h + k", tern_add(h, k), TERN_F16},
        {"h + b", tern_add(h, b), TERN_F32},
        {"h + f", tern_add(h, f), TERN_F32},
        {"h * 0.5", tern_scale(h, 0.5), TERN_F16},
        {"max(b, 0)", tern_max(b, tern_constant(g, 0)), TERN_BF16},
        {"h < k", tern_less(h, k), TERN_U32},
        {"where", tern_where(tern_less(h, k), h, k), TERN_F16},
        {"exp", tern_exp(b), TERN_BF16},
        {"sum", tern_sum(h, 1), TERN_F16},
        {"mean", tern_mean(h, 0), TERN_F16},
        {"maximum", tern_maximum(b, 1), TERN_BF16},
        {"concat", tern_concat((tern_tensor *[]){h, k}, 2, 1), TERN_F16},
        {"slice", tern_slice(b, 0, 1, 2), TERN_BF16},
        {"detach", tern_detach(tern_exp(h)), TERN_F16},
        {"matmul", tern_matmul(h, tern_transpose(k, 0, 1)), TERN_F16},
        {"mixed matmul", tern_matmul(h, tern_transpose(b, 0, 1)), TERN_F32},
        {"attention", tern_attention(q, q, q, 1, true), TERN_F16},
        {"mixed attention", tern_attention(q, q, tern_cast(q, TERN_BF16), 1, true), TERN_F32},
        {"gather", tern_gather(b, ids), TERN_BF16},
        {"softmax", tern_softmax(h, 1), TERN_F16},
        {"log softmax", tern_log_softmax(b, 1), TERN_BF16},
        {"relu", tern_relu(h), TERN_F16},
        {"gelu", tern_gelu(h), TERN_F16},
        {"gelu tanh", tern_gelu_tanh(b), TERN_BF16},
        {"silu", tern_silu(h), TERN_F16},
        {"layer norm", tern_layer_norm(h, w, w, 1e-5), TERN_F16},
        {"dropout", tern_dropout(b, 0.5, "drop"), TERN_BF16},
        {"linear", tern_linear(h, "fc", 3), TERN_F16},
        {"conv2d", tern_conv2d(image, filter, NULL, 1, 1, 1), TERN_F16},
        {"average pool", tern_avg_pool2d(image, 2), TERN_F16},
        {"maximum pool", tern_max_pool2d(image, 2), TERN_F16},
        {"cross-entropy", tern_cross_entropy(h, labels, -1), TERN_F32},
        {"mse", tern_mse(h, k), TERN_F32},
        {"f16 to bf16", tern_cast(h, TERN_BF16), TERN_BF16},
        {"u8 to f16", tern_cast(labels, TERN_F16), TERN_F16},
        {"f16 to u8", tern_cast(h, TERN_U8), TERN_U8},
    };
    TEST_OK(tern_graph_status(g));
    expect_only_storage(g);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].y->dtype != rows[i].dtype)
            fail_msg("%s is %s, wanted %s", rows[i].what, tern_dtype_name(rows[i].y->dtype),
                     tern_dtype_name(rows[i].dtype));
    tern_graph_destroy(g);
}

static void test_only_storage(void **state)
{
    (void)state;
    uint32_t found = 0;
    for (uint32_t seed = 1; seed <= 200; seed++) {
        tern_graph *g = random_graph_create(&(random_graph_options){.seed = seed, .train = seed % 2 == 1});
        TEST_OK(tern_graph_status(g));
        if (g->loss) TEST_OK(tern_pass_accumulate(g));
        expect_only_storage(g);
        for (uint32_t i = 0; i < g->node_count; i++) found += tern_dtype_is_16bit_float(g->nodes[i]->dtype);
        tern_graph_destroy(g);
    }
    assert_true(found > 100);
}

/* Undoing a widening gives the tensor from before, through views too; rounding is never folded away. */
static void test_casts_fold(void **state)
{
    (void)state;
    tern_graph *g;
    evaluate_open(&g);
    tern_tensor *h = tern_input_2d(g, "h", TERN_F16, 4, 6);
    tern_tensor *wide = tern_cast(h, TERN_F32), *view = tern_transpose(tern_slice(wide, 0, 1, 2), 0, 1);
    assert_ptr_equal(tern_cast(wide, TERN_F16), h);
    const tern_tensor *again = tern_cast(view, TERN_F16);
    assert_int_equal(again->op, TERN_OP_PERMUTE);
    assert_int_equal(again->dtype, TERN_F16);
    assert_ptr_equal(again->in[0]->in[0], h);
    assert_int_equal(tern_cast(wide, TERN_BF16)->op, TERN_OP_CAST);
    tern_tensor *f = tern_input_2d(g, "f", TERN_F32, 4, 6), *there = tern_cast(f, TERN_F16);
    assert_ptr_not_equal(tern_cast(there, TERN_F32), f);
    assert_true(tern_is_narrowing(there) && tern_is_widening(tern_cast(there, TERN_F32)));
    tern_graph_destroy(g);
}

/* ------------------------------------------------------------------ values */

static void test_casts(void **state)
{
    (void)state;
    static const double values[8] = {1.0009765625, -65519, 65520, 1e-8, 6e-8, 3e38, NAN, -0.1};
    for (int32_t i = 0; i < 2; i++) {
        double expected[8];
        tern_graph *g;
        evaluate_open(&g);
        tern_tensor *x = tern_input_1d(g, "x", TERN_F32, 8), *n = tern_input_1d(g, "n", TERN_U32, 8);
        tern_tensor *y = tern_cast(x, narrow[i]), *back = tern_cast(y, TERN_F32);
        tern_tensor *both = tern_cast(tern_cast(x, TERN_F16), TERN_BF16);
        tern_tensor *bytes = tern_cast(n, TERN_U8), *shorts = tern_cast(n, TERN_U16);
        evaluate_prepare(g);
        evaluate_put(x, values);
        evaluate_put(n, (const double[]){0, 255, 256, 511, 65535, 65536, 4294967295.0, 4294901761.0});
        evaluate_compute();
        for (int32_t k = 0; k < 8; k++) expected[k] = rounded(values[k], narrow[i]);
        evaluate_assert("narrowed", y, expected);
        evaluate_assert("widened again", back, expected);
        for (int32_t k = 0; k < 8; k++) expected[k] = rounded(rounded(values[k], TERN_F16), TERN_BF16);
        evaluate_assert("f16 to bf16", both, expected);
        evaluate_assert("u8", bytes, (const double[]){0, 255, 0, 255, 255, 0, 255, 1});
        evaluate_assert("u16", shorts, (const double[]){0, 255, 256, 511, 65535, 0, 65535, 1});
        evaluate_close(g);
    }
}

/* A composite of 16-bit floats is the f32 composite of the same values, rounded once. */
static void test_one_rounding(void **state)
{
    (void)state;
    for (int32_t i = 0; i < 2; i++) {
        tern_graph *g;
        evaluate_open(&g);
        tern_tensor *x = tern_input_2d(g, "x", narrow[i], 4, 6), *wide = tern_cast(x, TERN_F32);
        tern_tensor *z = tern_input_2d(g, "z", narrow[i], 6, 6), *wide_z = tern_cast(z, TERN_F32);
        tern_tensor *q = tern_reshape(x, SHAPE(1, 4, 2, 3)), *wide_q = tern_reshape(wide, SHAPE(1, 4, 2, 3));
        tern_tensor *w = tern_parameter(g, "w", SHAPE(6), TERN_INIT_ONES, 0);
        tern_tensor *image = tern_reshape(x, SHAPE(1, 2, 3, 4)), *wide_image = tern_reshape(wide, SHAPE(1, 2, 3, 4));
        tern_tensor *dense = tern_parameter(g, "dense", SHAPE(3, 2, 2, 2), TERN_INIT_ONES, 0);
        tern_tensor *rounded_dense = tern_cast(tern_cast(dense, narrow[i]), TERN_F32); /* a matmul's operand */
        tern_tensor *each = tern_parameter(g, "each", SHAPE(2, 1, 2, 2), TERN_INIT_ONES, 0);
        tern_tensor *pairs[][2] = {
            {tern_softmax(x, 1), tern_softmax(wide, 1)},
            {tern_log_softmax(x, 0), tern_log_softmax(wide, 0)},
            {tern_gelu(x), tern_gelu(wide)},
            {tern_gelu_tanh(x), tern_gelu_tanh(wide)},
            {tern_silu(x), tern_silu(wide)},
            {tern_layer_norm(x, w, w, 1e-5), tern_layer_norm(wide, w, w, 1e-5)},
            {tern_mean(x, 1), tern_mean(wide, 1)},
            {tern_matmul(x, z), tern_matmul(wide, wide_z)},
            {tern_conv2d(image, dense, NULL, 1, 1, 1), tern_conv2d(wide_image, rounded_dense, NULL, 1, 1, 1)},
            {tern_conv2d(image, each, NULL, 1, 0, 2), tern_conv2d(wide_image, each, NULL, 1, 0, 2)},
            {tern_avg_pool2d(image, 2), tern_avg_pool2d(wide_image, 2)},
            {tern_max_pool2d(image, 2), tern_max_pool2d(wide_image, 2)},
            {tern_attention(q, q, q, 0.7, true), tern_attention(wide_q, wide_q, wide_q, 0.7, true)},
        };
        evaluate_prepare(g);
        evaluate_compute();
        for (size_t p = 0; p < sizeof pairs / sizeof *pairs; p++) {
            const tern_tensor *y = pairs[p][0];
            const double *exact = evaluate_data(pairs[p][1]);
            double *expected = malloc((size_t)tern_count(y) * sizeof *expected);
            for (int64_t k = 0; k < tern_count(y); k++) expected[k] = rounded(exact[k], narrow[i]);
            evaluate_assert(y->label, y, expected);
            free(expected);
        }
        evaluate_close(g);
    }
}

/* linear multiplies in x's dtype: the f32 weight is rounded to it, the sum and the bias are f32's. */
static void test_linear_rounds_its_weight(void **state)
{
    (void)state;
    tern_graph *g;
    evaluate_open(&g);
    tern_tensor *x = tern_input_2d(g, "x", TERN_F16, 1, 3), *y = tern_linear(x, "fc", 1);
    evaluate_prepare(g);
    evaluate_put(x, (const double[]){1, 2, 0.5});
    evaluate_put(tern_graph_find(g, TERN_OP_PARAMETER, "fc.weight"), (const double[]){0.1, 1.0003, 3});
    evaluate_put(tern_graph_find(g, TERN_OP_PARAMETER, "fc.bias"), (const double[]){0.00037});
    evaluate_compute();
    const double sum = rounded(0.1, TERN_F16) + 2 * rounded(1.0003, TERN_F16) + 1.5 + 0.00037;
    evaluate_assert("linear", y, (const double[]){rounded(sum, TERN_F16)});
    evaluate_close(g);
}

/* ------------------------------------------------- fused, unfused, on a device */

/* Everything that has 16-bit storage, in one graph: contractions with chains behind them, views, reductions, a gather,
 * states of 16 and 8 bits updated in place. Outputs are f32 and exact functions of rounded values. */
static tern_graph *mixture(int32_t dtype)
{
    tern_graph *g;
    TEST_OK(tern_graph_create(&g));
    tern_tensor *x = tern_input_2d(g, "x", dtype, 6, 8), *f = tern_input_2d(g, "f", TERN_F32, 6, 8);
    tern_tensor *table = tern_input_2d(g, "table", dtype, 5, 8), *ids = tern_input_1d(g, "ids", TERN_U8, 6);
    tern_tensor *h = tern_add(tern_gather(table, ids), x);
    tern_tensor *y = tern_linear(tern_layer_norm(h, NULL, NULL, 1e-5), "fc", 24);
    tern_tensor *parts[3];
    for (int32_t i = 0; i < 3; i++) parts[i] = tern_reshape(tern_slice(y, 1, 8 * i, 8), SHAPE(1, 6, 2, 4));
    tern_tensor *o = tern_reshape(tern_attention(parts[0], parts[1], parts[2], 0.5, true), SHAPE(6, 8));
    tern_tensor *z = tern_add(h, tern_linear(o, "proj", 8));
    tern_output(tern_cast(z, TERN_F32), "z");
    tern_output(z, "z16");
    tern_output(tern_cast(tern_gelu(tern_linear(z, "mlp", 16)), TERN_F32), "mlp");
    tern_output(tern_matmul(f, tern_transpose(z, 0, 1)), "mixed");
    tern_output(tern_softmax(tern_cast(tern_sum(z, 0), TERN_F32), 1), "softmax");
    tern_tensor *moment = tern_state(g, "moment", dtype, SHAPE(6, 8)), *wide = tern_cast(moment, TERN_F32);
    tern_tensor *moved = tern_add(tern_scale(wide, 0.5), f);
    tern_assign(moment, tern_cast(moved, dtype));
    tern_output(tern_sub(moved, wide), "moved");
    tern_tensor *codes = tern_state(g, "codes", TERN_U8, SHAPE(6, 8)), *code = tern_cast(codes, TERN_U32);
    tern_assign(codes, tern_cast(tern_add(tern_mul(code, tern_constant_u32(g, 5)), tern_constant_u32(g, 77)), TERN_U8));
    tern_output(tern_cast(tern_cast(code, TERN_U8), TERN_F32), "decoded");
    TEST_OK(tern_graph_status(g));
    return g;
}

/* Leaves with something in each; the reference has run. */
static tern_reference *referee(const tern_graph *g)
{
    tern_reference *reference = evaluate_create(g, -1, 1);
    for (uint32_t i = 0; i < g->node_count; i++) {
        const tern_tensor *x = g->nodes[i];
        double *data = tern_reference_data(reference, x);
        if (x->op != TERN_OP_INPUT && x->op != TERN_OP_PARAMETER && x->op != TERN_OP_STATE) continue;
        for (int64_t k = 0; k < tern_count(x); k++) {
            if (x->dtype == TERN_U8) data[k] = (double)(k * 7 % 5);
            if (x->op == TERN_OP_STATE && x->dtype != TERN_U8) data[k] = rounded(0.3 * (double)(k % 7), x->dtype);
            if (x->dtype == TERN_F32) data[k] = (double)(float)data[k];
        }
    }
    return reference;
}

/* A value that stayed in registers is the value that memory would have held. The runner's functions are double's and
 * its sums have one order, so fusing must not change a bit. */
static void test_fusing_changes_no_bit(void **state)
{
    (void)state;
    for (int32_t i = 0; i < 2; i++) {
        uint64_t bytes[2];
        const double unit = narrow[i] == TERN_F16 ? 0x1p-11 : 0x1p-8;
        tern_graph *g = mixture(narrow[i]);
        tern_reference *first = referee(g), *second = referee(g);
        void *fused = narrow_trial_run(g, first, true, unit, &bytes[0]);
        void *unfused = narrow_trial_run(g, second, false, unit, &bytes[1]);
        assert_int_equal(bytes[0], bytes[1]);
        assert_memory_equal(fused, unfused, bytes[0]);
        free(fused);
        free(unfused);
        tern_reference_destroy(first);
        tern_reference_destroy(second);
        tern_graph_destroy(g);
    }
}

/* Rows of 300s of width 4096, where f16 holds neither the sum (1.2e6) nor the squares: the norm is right to its own
 * rounding on every backend that stores f16. */
static void large_rows(const char *backend)
{
    enum { WIDTH = 4096 };
    static double values[WIDTH];
    static uint16_t half[WIDTH];
    tern_device *device;
    tern_session *session;
    tern_graph *g;
    if (tern_device_open(backend, &device) < 0) TEST_SKIP("%s", tern_error_message());
    TEST_OK(tern_graph_create(&g));
    tern_output(tern_layer_norm(tern_input_2d(g, "x", TERN_F16, 1, WIDTH), NULL, NULL, 1e-5), "y");
    double mean = 0, variance = 0;
    for (int32_t i = 0; i < WIDTH; i++) values[i] = 300 + (i * 37 % 64 - 32) * 0.25;
    for (int32_t i = 0; i < WIDTH; i++) mean += values[i] / WIDTH;
    for (int32_t i = 0; i < WIDTH; i++) variance += (values[i] - mean) * (values[i] - mean) / WIDTH;
    for (int32_t i = 0; i < WIDTH; i++) half[i] = tern_f32_to_f16((float)values[i]);
    TEST_OK(tern_session_create(device, g, NULL, &session));
    TEST_OK(tern_session_write(session, "x", half, sizeof half));
    TEST_OK(tern_session_run(session));
    TEST_OK(tern_session_read(session, "y", half, sizeof half));
    for (int32_t i = 0; i < WIDTH; i++)
        TEST_NEAR(tern_f16_to_f32(half[i]), (values[i] - mean) / sqrt(variance + 1e-5), 0x1p-11 * 2 + 1e-4);
    tern_session_destroy(session);
    tern_graph_destroy(g);
    tern_device_close(device);
}

static void test_large_rows_on_cpu(void **state)
{
    (void)state;
    large_rows("cpu");
}

static void test_large_rows_on_opencl(void **state)
{
    (void)state;
    large_rows("opencl");
}

static void test_large_rows_on_vulkan(void **state)
{
    (void)state;
    large_rows("vulkan");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_result_dtypes),
        cmocka_unit_test(test_only_storage),
        cmocka_unit_test(test_casts_fold),
        cmocka_unit_test(test_casts),
        cmocka_unit_test(test_one_rounding),
        cmocka_unit_test(test_linear_rounds_its_weight),
        cmocka_unit_test(test_fusing_changes_no_bit),
        cmocka_unit_test(test_large_rows_on_cpu),
        cmocka_unit_test(test_large_rows_on_opencl),
        cmocka_unit_test(test_large_rows_on_vulkan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
