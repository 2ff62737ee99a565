/* SPDX-License-Identifier: Apache-2.0 */
/* test_conv.c - convolution and pooling: values against loops written here from the definition, gradients against
 * differences, a small network on every backend against the reference, and how many launches it takes. */
#include "core/device/device.h"
#include "core/graph/graph.h"
#include "core/plan/session.h"
#include "tests/evaluate.h"

#include <stdlib.h>

typedef struct conv_case {
    int64_t n, c, h, w, o, kh, kw, stride, padding, groups;
    bool bias;
} conv_case;

static const conv_case cases[] = {
    {2, 3, 4, 5, 4, 1, 1, 1, 0, 1, true},  /* a matmul over channels */
    {2, 3, 5, 5, 2, 1, 1, 2, 0, 1, false}, /* stride above the kernel */
    {1, 2, 7, 5, 3, 3, 3, 1, 1, 1, true},  /* one image */
    {2, 2, 7, 5, 3, 3, 3, 2, 1, 1, true},  /* phases of a padded, odd image */
    {2, 2, 6, 8, 3, 3, 3, 2, 0, 1, false}, /* a last row and column that nobody reads */
    {1, 3, 9, 7, 2, 5, 5, 2, 2, 1, true},  {1, 1, 6, 5, 2, 5, 3, 1, 1, 1, false}, /* a kernel that is not square */
    {2, 1, 8, 11, 1, 2, 3, 3, 1, 1, true}, /* stride between the kernel's sizes */
    {1, 2, 8, 5, 2, 3, 2, 3, 0, 1, true},  /* two rows that nobody reads, a column that is not there */
    {1, 2, 2, 2, 2, 5, 5, 1, 2, 1, false}, /* kernel above the image, padding on every side of it */
    {2, 2, 5, 5, 3, 5, 5, 1, 0, 1, true},  /* one output pixel */
    {2, 4, 5, 4, 6, 3, 3, 1, 1, 2, true},  /* groups */
    {2, 3, 5, 6, 3, 3, 3, 1, 1, 3, true},  /* one filter per channel */
    {1, 3, 7, 5, 3, 5, 5, 2, 2, 3, false}, /* the same with phases */
    {2, 2, 3, 4, 2, 3, 3, 1, 0, 2, true},  /* the same with one row of output */
    {1, 2, 5, 5, 4, 3, 3, 1, 1, 2, true},  /* two filters per channel */
};
#define CASE_COUNT (sizeof cases / sizeof cases[0])

static tern_tensor *parameter(tern_graph *graph, const char *name, int32_t rank, const int64_t *shape)
{
    return tern_parameter(graph, name, rank, shape, TERN_INIT_ZEROS, 0);
}

typedef struct built {
    tern_tensor *x, *weight, *bias, *y;
} built;

static built build(tern_graph *graph, const conv_case *k)
{
    built b = {.x = parameter(graph, "x", SHAPE(k->n, k->c, k->h, k->w)),
               .weight = parameter(graph, "weight", SHAPE(k->o, k->c / k->groups, k->kh, k->kw))};
    if (k->bias) b.bias = parameter(graph, "bias", SHAPE(k->o));
    b.y = tern_conv2d(b.x, b.weight, b.bias, k->stride, k->padding, k->groups);
    TEST_OK(tern_graph_status(graph));
    return b;
}

/* One output pixel from the definition. */
static double pixel(const conv_case *k, const double *x, const double *weight, const double *bias, int64_t n, int64_t o,
                    int64_t row, int64_t column)
{
    const int64_t inner = k->c / k->groups, group = o / (k->o / k->groups);
    double sum = bias ? bias[o] : 0;
    for (int64_t c = 0; c < inner; c++)
        for (int64_t a = 0; a < k->kh; a++)
            for (int64_t b = 0; b < k->kw; b++) {
                const int64_t h = row * k->stride + a - k->padding, w = column * k->stride + b - k->padding;
                if (h < 0 || h >= k->h || w < 0 || w >= k->w) continue;
                sum += weight[((o * inner + c) * k->kh + a) * k->kw + b] *
                       x[((n * k->c + group * inner + c) * k->h + h) * k->w + w];
            }
    return sum;
}

static void test_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < CASE_COUNT; i++) {
        const conv_case *k = &cases[i];
        const int64_t oh = (k->h + 2 * k->padding - k->kh) / k->stride + 1,
                      ow = (k->w + 2 * k->padding - k->kw) / k->stride + 1;
        tern_graph *graph;
        evaluate_open(&graph);
        const built b = build(graph, k);
        const int64_t wanted[4] = {k->n, k->o, oh, ow};
        assert_int_equal(tern_rank(b.y), 4);
        for (int32_t d = 0; d < 4; d++) assert_int_equal(tern_size(b.y, d), wanted[d]);
        evaluate_prepare(graph);
        evaluate_compute();
        const double *y = evaluate_data(b.y), *x = evaluate_data(b.x), *weight = evaluate_data(b.weight);
        const double *bias = b.bias ? evaluate_data(b.bias) : NULL;
        for (int64_t at = 0; at < tern_count(b.y); at++) {
            const double value =
                pixel(k, x, weight, bias, at / (ow * oh * k->o), at / (ow * oh) % k->o, at / ow % oh, at % ow);
            if (!(fabs(y[at] - value) <= 1e-13 * (1 + fabs(value))))
                fail_msg("case %zu, y[%lld] is %.17g, wanted %.17g", i, (long long)at, y[at], value);
        }
        evaluate_close(graph);
    }
}

/* ---------------------------------------------------------------- gradients */

/* Every element of every leaf's gradient, for the objective sum of seed * y with an uneven seed. */
static void check_gradients(const char *what, tern_graph *graph, tern_tensor *y, tern_tensor *const *leaves,
                            int32_t count)
{
    tern_tensor *seed = tern_input(graph, "seed", TERN_F32, y->rank, y->shape), *gradients[3];
    TEST_OK(tern_backward_to(graph, y, seed, leaves, count, gradients));
    evaluate_prepare(graph);
    for (int32_t l = 0; l < count; l++) {
        assert_non_null(gradients[l]);
        const int64_t elements = tern_count(leaves[l]);
        double *found = malloc((size_t)elements * sizeof *found);
        assert_non_null(found);
        evaluate_compute(); /* the differences of the leaf before left their last step behind */
        memcpy(found, evaluate_data(gradients[l]), (size_t)elements * sizeof *found);
        for (int64_t i = 0; i < elements; i++) {
            const double wanted = evaluate_difference(evaluate_current(), y, seed, leaves[l], i);
            if (!(fabs(found[i] - wanted) <= 1e-8 * (1 + fabs(wanted))))
                fail_msg("%s: d %s[%lld] is %.12g, by differences %.12g", what, leaves[l]->label, (long long)i,
                         found[i], wanted);
        }
        free(found);
    }
    evaluate_close(graph);
}

static void test_gradients(void **state)
{
    (void)state;
    for (size_t i = 0; i < CASE_COUNT; i++) {
        char what[32];
        tern_graph *graph;
        evaluate_open(&graph);
        const built b = build(graph, &cases[i]);
        snprintf(what, sizeof what, "case %zu", i);
        check_gradients(what, graph, b.y, (tern_tensor *[]){b.x, b.weight, b.bias}, b.bias ? 3 : 2);
    }
}

/* ------------------------------------------------------------------ pooling */

/* Windows of 2 and 3 pixels over 7 x 5: a row and a column, then one row and two columns, are left out. */
static void test_pooling(void **state)
{
    (void)state;
    for (int64_t size = 1; size <= 3; size++) {
        tern_graph *graph;
        evaluate_open(&graph);
        tern_tensor *x = parameter(graph, "x", SHAPE(2, 3, 7, 5));
        tern_tensor *mean = tern_avg_pool2d(x, size), *top = tern_max_pool2d(x, size);
        const int64_t oh = 7 / size, ow = 5 / size;
        evaluate_prepare(graph);
        assert_int_equal(tern_count(mean), 6 * oh * ow);
        assert_int_equal(tern_size(top, 3), ow);
        evaluate_compute();
        for (int64_t at = 0; at < tern_count(mean); at++) {
            const double *image = evaluate_data(x) + at / (oh * ow) * 35;
            double sum = 0, largest = -INFINITY;
            for (int64_t i = 0; i < size * size; i++) {
                const double value = image[(at / ow % oh * size + i / size) * 5 + at % ow * size + i % size];
                sum += value;
                largest = fmax(largest, value);
            }
            TEST_NEAR(evaluate_data(mean)[at], sum / (double)(size * size), 1e-7); /* 1/9 is an f32 constant */
            TEST_NEAR(evaluate_data(top)[at], largest, 0);
        }
        evaluate_close(graph);
        evaluate_open(&graph);
        x = parameter(graph, "x", SHAPE(1, 2, 7, 5));
        check_gradients("avg_pool2d", graph, tern_avg_pool2d(x, size), &x, 1);
        evaluate_open(&graph);
        x = parameter(graph, "x", SHAPE(1, 2, 7, 5));
        check_gradients("max_pool2d", graph, tern_max_pool2d(x, size), &x, 1);
    }
}

static void test_equal_pixels_share_the_gradient(void **state)
{
    (void)state;
    tern_graph *graph;
    evaluate_open(&graph);
    tern_tensor *x = parameter(graph, "x", SHAPE(1, 1, 2, 2)),
                *seed = tern_input(graph, "seed", TERN_F32, SHAPE(1, 1, 1, 1));
    tern_tensor *dx;
    TEST_OK(tern_backward_to(graph, tern_max_pool2d(x, 2), seed, &x, 1, &dx));
    evaluate_prepare(graph);
    evaluate_put(x, (const double[]){3, -1, 3, 2});
    evaluate_put(seed, (const double[]){8});
    evaluate_compute();
    evaluate_assert("dx", dx, (const double[]){4, 0, 4, 0});
    evaluate_close(graph);
}

/* ----------------------------------------------------------------- backends */

/* 5 x 5 with stride 2, relu, one filter per channel with stride 2, two groups, pooling, 1 x 1; the gradients of all
 * parameters. */
static tern_graph *network(void)
{
    tern_graph *graph;
    tern_gradients gradients;
    TEST_OK(tern_graph_create(&graph));
    tern_tensor *x = tern_input(graph, "x", TERN_F32, SHAPE(2, 3, 13, 15));
    tern_tensor *h = tern_relu(
        tern_conv2d(x, parameter(graph, "stem", SHAPE(4, 3, 5, 5)), parameter(graph, "stem.bias", SHAPE(4)), 2, 2, 1));
    h = tern_conv2d(h, parameter(graph, "depthwise", SHAPE(4, 1, 3, 3)), parameter(graph, "depthwise.bias", SHAPE(4)),
                    2, 1, 4);
    h = tern_conv2d(tern_silu(h), parameter(graph, "groups", SHAPE(6, 2, 3, 3)), NULL, 1, 1, 2);
    tern_output(tern_avg_pool2d(h, 3), "mean");
    h = tern_conv2d(tern_max_pool2d(h, 2), parameter(graph, "head", SHAPE(5, 6, 1, 1)),
                    parameter(graph, "head.bias", SHAPE(5)), 1, 0, 1);
    tern_output(h, "y");
    tern_tensor *seed = tern_input(graph, "seed", TERN_F32, h->rank, h->shape);
    graph->pass = TERN_PASS_BACKWARD;
    TEST_OK(tern_backward(graph, h, seed, &gradients));
    assert_int_equal(gradients.count, 7);
    for (uint32_t g = 0; g < gradients.count; g++) {
        char name[40];
        snprintf(name, sizeof name, "d.%s", gradients.items[g].parameter->label);
        tern_output(tern_gradient_sum(&gradients.items[g]), name);
    }
    tern_gradients_finish(&gradients);
    TEST_OK(tern_graph_status(graph));
    return graph;
}

/* The reference's leaves, rounded to f32 on both sides. */
static void feed(tern_session *session, tern_reference *reference, const tern_graph *graph)
{
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const tern_tensor *leaf = graph->nodes[i];
        if (leaf->op != TERN_OP_PARAMETER && leaf->op != TERN_OP_INPUT) continue;
        const size_t count = (size_t)tern_count(leaf);
        double *data = tern_reference_data(reference, leaf);
        float *values = malloc(count * sizeof *values);
        assert_non_null(values);
        for (size_t e = 0; e < count; e++) data[e] = (double)(values[e] = (float)data[e]);
        TEST_OK(tern_session_write(session, leaf->label, values, count * sizeof *values));
        free(values);
    }
}

static void expect_outputs(const char *what, tern_session *session, tern_reference *reference, const tern_graph *graph)
{
    for (uint32_t o = 0; o < graph->output_count; o++) {
        const tern_tensor *x = graph->outputs[o].tensor;
        const size_t count = (size_t)tern_count(x);
        float *found = malloc(count * sizeof *found);
        assert_non_null(found);
        TEST_OK(tern_session_read(session, graph->outputs[o].name, found, count * sizeof *found));
        const double error = test_relative_error(found, tern_reference_data(reference, x), count, 1e-3);
        if (!(error <= 1e-5)) fail_msg("%s, %s: relative error %.3g", what, graph->outputs[o].name, error);
        free(found);
    }
}

static void run_and_compare(const char *what, tern_device *device, const tern_graph *graph,
                            const tern_session_options *options)
{
    tern_session *session;
    tern_reference *reference = evaluate_create(graph, -1, 1);
    const tern_status status = tern_session_create(device, graph, options, &session);
    if (status < 0) fail_msg("%s: %s", what, tern_error_message());
    feed(session, reference, graph);
    TEST_OK(tern_session_run(session));
    TEST_OK(tern_reference_run(reference));
    expect_outputs(what, session, reference, graph);
    tern_session_destroy(session);
    tern_reference_destroy(reference);
}

static void compare(const char *backend, const tern_session_options *options)
{
    tern_device *device;
    if (tern_device_open(backend, &device) < 0) TEST_SKIP("%s", tern_error_message());
    tern_graph *graph = network();
    run_and_compare(backend, device, graph, options);
    tern_graph_destroy(graph);
    tern_device_close(device);
}

static void test_matches_the_reference(void **state) { compare(*state, NULL); }

static void test_guarded_reverse_matches(void **state)
{
    const tern_session_options options = {.guard = true, .reverse = true};
    compare(*state, &options);
}

/* 0 .. count - 1, the same on every machine. */
static int64_t draw(uint32_t *random, uint32_t count)
{
    *random = *random * 1664525u + 1013904223u;
    return (int64_t)((uint64_t)(*random >> 8) * count >> 24);
}

static conv_case draw_case(uint32_t *random)
{
    conv_case k = {
        .n = 1 + draw(random, 3), .h = 1 + draw(random, 9), .w = 1 + draw(random, 9), .groups = 1 + draw(random, 3)};
    k.c = k.groups * (1 + draw(random, 3));
    k.o = k.groups * (1 + draw(random, 3));
    if (draw(random, 3) == 0) k.groups = k.o = k.c; /* one filter per channel */
    k.stride = 1 + draw(random, 4);
    k.padding = draw(random, 4);
    k.kh = 1 + draw(random, (uint32_t)(k.h + 2 * k.padding < 5 ? k.h + 2 * k.padding : 5));
    k.kw = 1 + draw(random, (uint32_t)(k.w + 2 * k.padding < 5 ? k.w + 2 * k.padding : 5));
    k.bias = draw(random, 2) == 0;
    return k;
}

/* What the fuser makes of many shapes, forward and backward. */
static void test_drawn_shapes_on_cpu(void **state)
{
    (void)state;
    tern_device *device;
    uint32_t random = 20;
    if (tern_device_open("cpu", &device) < 0) TEST_SKIP("%s", tern_error_message());
    for (int32_t i = 0; i < 120; i++) {
        const conv_case k = draw_case(&random);
        char what[160];
        snprintf(what, sizeof what, "x (%d, %d, %d, %d), %d filters of %d x %d, stride %d, padding %d, %d groups",
                 (int)k.n, (int)k.c, (int)k.h, (int)k.w, (int)k.o, (int)k.kh, (int)k.kw, (int)k.stride, (int)k.padding,
                 (int)k.groups);
        tern_graph *graph;
        TEST_OK(tern_graph_create(&graph));
        const built b = build(graph, &k);
        tern_tensor *seed = tern_input(graph, "seed", TERN_F32, b.y->rank, b.y->shape), *gradients[3];
        tern_output(b.y, "y");
        graph->pass = TERN_PASS_BACKWARD;
        TEST_OK(
            tern_backward_to(graph, b.y, seed, (tern_tensor *[]){b.x, b.weight, b.bias}, k.bias ? 3 : 2, gradients));
        tern_output(gradients[0], "dx");
        tern_output(gradients[1], "dweight");
        if (k.bias) tern_output(gradients[2], "dbias");
        run_and_compare(what, device, graph, NULL);
        tern_graph_destroy(graph);
    }
    tern_device_close(device);
}

/* Padding, unfolding, the weight's rows, a matmul per kernel row with the bias in the last one's epilogue, and the
 * order (N, O, OH, OW), which only an output asks for. */
static void test_launches(void **state)
{
    (void)state;
    static const struct {
        conv_case shape;
        uint32_t launches;
    } limits[] = {{{8, 16, 14, 14, 32, 3, 3, 1, 1, 1, true}, 7},
                  {{8, 3, 32, 32, 16, 5, 5, 2, 2, 1, true}, 9},
                  {{8, 16, 14, 14, 32, 1, 1, 1, 0, 1, true}, 3},
                  {{8, 16, 14, 14, 16, 3, 3, 1, 1, 16, true}, 3}};
    tern_device *paper;
    TEST_OK(tern_device_open_paper("rtx-3090", &paper));
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        const tern_lower_options options = {.fuse = true};
        tern_lowered *lowered;
        tern_graph *graph;
        TEST_OK(tern_graph_create(&graph));
        tern_output(build(graph, &limits[i].shape).y, "y");
        TEST_OK(tern_lower(graph, &paper->info, &options, &lowered));
        if (lowered->launch_count > limits[i].launches)
            fail_msg("case %zu takes %u launches, at most %u wanted", i, lowered->launch_count, limits[i].launches);
        tern_lowered_destroy(lowered);
        tern_graph_destroy(graph);
    }
    tern_device_close(paper);
}

/* ------------------------------------------------------------------- errors */

static void refuse(const conv_case *k, int64_t weight_channels, int64_t bias_size, const char *part)
{
    tern_graph *graph;
    TEST_OK(tern_graph_create(&graph));
    tern_tensor *x = tern_input(graph, "x", TERN_F32, SHAPE(k->n, k->c, k->h, k->w));
    tern_tensor *weight = parameter(graph, "weight", SHAPE(k->o, weight_channels, k->kh, k->kw));
    tern_tensor *bias = bias_size ? parameter(graph, "bias", SHAPE(bias_size)) : NULL;
    const uint32_t nodes = graph->node_count;
    TEST_OK(tern_graph_status(graph));
    tern_tensor *y = tern_conv2d(x, weight, bias, k->stride, k->padding, k->groups);
    assert_ptr_equal(y, graph->inert);
    assert_int_equal(graph->node_count, nodes);
    const tern_status status = tern_graph_status(graph);
    assert_true(status == TERN_ERROR_INVALID || status == TERN_ERROR_UNSUPPORTED);
    if (!strstr(tern_error_message(), part)) fail_msg("sentence lacks \"%s\": %s", part, tern_error_message());
    assert_non_null(strstr(tern_error_message(), "\"x\" ("));
    assert_non_null(strstr(tern_error_message(), "\"weight\" ("));
    tern_graph_destroy(graph);
}

static void test_bad_shapes_are_refused(void **state)
{
    (void)state;
    refuse(&(conv_case){1, 4, 5, 5, 6, 3, 3, 1, 1, 1, false}, 3, 0,
           "(6, 3, 3, 3) f32 and bias none do not fit with 1 groups");
    refuse(&(conv_case){1, 4, 5, 5, 6, 3, 3, 1, 1, 3, false}, 4, 0, "do not fit with 3 groups");
    refuse(&(conv_case){1, 4, 5, 5, 5, 3, 3, 1, 1, 2, false}, 2, 0, "groups divides C and O");
    refuse(&(conv_case){1, 4, 5, 5, 6, 3, 3, 1, 1, 0, false}, 4, 0, "do not fit with 0 groups");
    refuse(&(conv_case){1, 4, 5, 5, 6, 3, 3, 1, 1, 1, true}, 4, 5, "bias \"bias\" (5) f32 do not fit");
    refuse(&(conv_case){1, 4, 5, 5, 6, 3, 3, 0, 1, 1, false}, 4, 0, "stride 0 and padding 1");
    refuse(&(conv_case){1, 4, 5, 5, 6, 3, 3, 1, -1, 1, false}, 4, 0, "stride 1 and padding -1");
    refuse(&(conv_case){1, 4, 5, 5, 6, 8, 3, 2, 1, 1, false}, 4, 0, "is larger than x");
    refuse(&(conv_case){1, 4, 5, 5, 6, 3, 8, 1, 1, 1, false}, 4, 0, "with 1 pixels of padding");
    refuse(&(conv_case){64, 64, 512, 512, 6, 3, 3, 1, 1, 1, false}, 64, 0, "smaller micro-batch");
    refuse(&(conv_case){1, 1, 5, 5, 1, 1, 1, INT32_MAX, 0, 1, false}, 1, 0, "must stay below 2^31");
}

static void test_bad_operands_are_refused(void **state)
{
    (void)state;
    tern_graph *graph;
    TEST_OK(tern_graph_create(&graph));
    tern_tensor *x = tern_input(graph, "x", TERN_F32, SHAPE(2, 3, 4, 4));
    assert_ptr_equal(tern_conv2d(x, NULL, NULL, 1, 0, 1), graph->inert);
    TEST_ERROR(tern_graph_status(graph), TERN_ERROR_INVALID, "operand 1 is NULL");
    tern_graph_destroy(graph);
    for (int64_t size = 0; size < 6; size += 5) {
        TEST_OK(tern_graph_create(&graph));
        x = tern_input(graph, "x", TERN_F32, SHAPE(2, 3, 4, 9));
        assert_ptr_equal(size ? tern_max_pool2d(x, size) : tern_avg_pool2d(x, size), graph->inert);
        TEST_ERROR(tern_graph_status(graph), TERN_ERROR_INVALID,
                   size ? "max_pool2d: x \"x\" (2, 3, 4, 9) f32 with windows of 5 x 5" : "avg_pool2d");
        tern_graph_destroy(graph);
    }
    TEST_OK(tern_graph_create(&graph));
    x = tern_input(graph, "x", TERN_U32, SHAPE(1, 1, 4, 4));
    (void)tern_conv2d(x, parameter(graph, "weight", SHAPE(1, 1, 1, 1)), NULL, 1, 0, 1);
    TEST_ERROR(tern_graph_status(graph), TERN_ERROR_INVALID, "(1, 1, 4, 4) u32");
    tern_graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_pooling),
        cmocka_unit_test(test_equal_pixels_share_the_gradient),
        TEST_ON(test_matches_the_reference, "cpu"),
        TEST_ON(test_guarded_reverse_matches, "cpu"),
        TEST_ON(test_matches_the_reference, "opencl"),
        TEST_ON(test_matches_the_reference, "vulkan"),
        cmocka_unit_test(test_drawn_shapes_on_cpu),
        cmocka_unit_test(test_launches),
        cmocka_unit_test(test_bad_shapes_are_refused),
        cmocka_unit_test(test_bad_operands_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
