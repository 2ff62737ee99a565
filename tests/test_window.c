/* SPDX-License-Identifier: Apache-2.0 */
/* test_window.c - a window of micro-batches: it is the one big batch, an evaluation inside it touches nothing, state
 * tensors go through their shadows, and all of it costs a fixed number of launches and no wait.
 *
 *     big     [ a b c d e f g . . . ]          the same examples, the same dropout masks: gradients equal to 1e-6
 *     micro   [ a b . . ] [ . . . . ] [ c d e f ] [ g . . . ]        uneven, padded with rubbish of weight 0
 *
 * cpu, opencl and vulkan for values, null for counts. No GPU. */
#include "backends/null/null.h"
#include "core/base/philox.h"
#include "core/passes/accumulate.h"
#include "core/passes/state_shadow.h"
#include "tests/test.h"
#include "tests/toy_model.h"

#include <stdlib.h>

enum { MICRO = 4, MOST = 6, BIG = MICRO * MOST, REFRESH = 16 };

/* ------------------------------------------------------------------- random */

typedef struct source {
    uint32_t window, next;
} source;

static double draw(source *s)
{
    const uint32_t counter[4] = {s->next++, s->window, 77, 0}, key[2] = {1, 2};
    uint32_t words[4];
    tern_philox(counter, key, words);
    return words[0] * 0x1p-32;
}

static uint32_t draw_below(source *s, uint32_t end) { return (uint32_t)(draw(s) * end); }

static void draw_example(source *s, toy_batch *batch, uint32_t at, bool real, bool masked)
{
    for (int k = 0; k < TOY_IN; k++) batch->x[at * TOY_IN + (uint32_t)k] = (float)(2 * draw(s) - 1) * (real ? 1 : 50);
    for (int k = 0; k < TOY_OUT; k++) batch->y[at * TOY_OUT + (uint32_t)k] = (float)(4 * draw(s) - 2);
    const double weight = draw(s), off = draw(s);
    batch->weight[at] = !real || masked || off < 0.25 ? 0.0f : (float)(0.1 + 2 * weight);
}

static void copy_example(toy_batch *to, uint32_t at, const toy_batch *from, uint32_t source_at)
{
    memcpy(to->x + at * TOY_IN, from->x + source_at * TOY_IN, TOY_IN * sizeof *to->x);
    memcpy(to->y + at * TOY_OUT, from->y + source_at * TOY_OUT, TOY_OUT * sizeof *to->y);
    to->weight[at] = from->weight[source_at];
}

/* The same new weights for both. */
static void refresh_weights(toy_run *a, toy_run *b, source *s)
{
    for (uint32_t i = 0; i < a->setup->layout->parameter_count; i++) {
        const tern_store_parameter *p = &a->setup->layout->parameters[i];
        float *values = malloc(p->bytes);
        assert_non_null(values);
        for (uint64_t k = 0; k < p->bytes / 4; k++) values[k] = (float)(2 * draw(s) - 1);
        TEST_OK(tern_store_write(tern_stepper_store(a->stepper), p->name, values, p->bytes));
        TEST_OK(tern_store_write(tern_stepper_store(b->stepper), p->name, values, p->bytes));
        free(values);
    }
}

/* ----------------------------------------------------------------- property */

static void compare(toy_run *split, toy_run *whole, uint32_t window)
{
    size_t count = 0;
    double *a = toy_gradients(split, &count), *b = toy_gradients(whole, &count);
    const double error = toy_distance(a, b, count - 2);
    if (!(error <= 1e-6)) fail_msg("window %u: gradients differ by %.3g of their norm", window, error);
    TEST_NEAR(a[count - 2], b[count - 2], 1e-6 * b[count - 2]); /* n */
    TEST_NEAR(a[count - 1], b[count - 1], 1e-6 * b[count - 1]); /* the loss */
    free(a);
    free(b);
}

static void end_window(toy_run *run)
{
    tern_step_report report;
    TEST_OK(tern_stepper_update(run->stepper, 0, &report)); /* at rate 0 no weight moves */
    TEST_OK(tern_stepper_finish(run->stepper, &report));
    assert_false(report.skipped);
}

/* One random window on both; returns its micro-batches. */
static void run_window(toy_run *split, toy_run *whole, uint32_t window)
{
    source s = {.window = window};
    toy_batch micro, big;
    uint32_t taken = 0;
    toy_batch_create(&micro, MICRO);
    toy_batch_create(&big, BIG);
    if (window % REFRESH == 0) refresh_weights(split, whole, &s);
    const uint32_t micros = 1 + draw_below(&s, MOST);
    for (uint32_t i = 0; i < micros; i++) {
        const uint32_t real = draw_below(&s, MICRO + 1);
        const bool masked = draw(&s) < 0.15; /* the whole micro-batch */
        for (uint32_t k = 0; k < MICRO; k++) draw_example(&s, &micro, k, k < real, masked);
        for (uint32_t k = 0; k < real; k++) copy_example(&big, taken + k, &micro, k);
        TEST_OK(toy_micro(split, &micro, taken)); /* the number of its first example in the window */
        taken += real;
    }
    for (uint32_t k = taken; k < BIG; k++) draw_example(&s, &big, k, false, true);
    TEST_OK(toy_micro(whole, &big, 0));
    tern_step_report report;
    TEST_OK(tern_stepper_finish(split->stepper, &report));
    TEST_OK(tern_stepper_finish(whole->stepper, &report));
    compare(split, whole, window);
    end_window(split);
    end_window(whole);
    toy_batch_finish(&micro);
    toy_batch_finish(&big);
}

static void test_windows_are_the_big_batch(void **state)
{
    const char *backend = *state;
    const toy_model model = {.dropout = 0.3};
    const tern_setup_options small = toy_options(&model, MICRO), large = toy_options(&model, BIG);
    const uint32_t windows = strcmp(backend, "cpu") == 0 ? 400 : 60;
    tern_device *device = NULL;
    toy_run split, whole;
    if (tern_device_open(backend, &device) < 0) TEST_SKIP("%s", tern_error_message());
    toy_start(&split, device, &small);
    toy_start(&whole, device, &large);
    for (uint32_t w = 0; w < windows; w++) run_window(&split, &whole, w);
    toy_stop(&split);
    toy_stop(&whole);
    tern_device_close(device);
}

/* --------------------------------------------------------------- evaluation */

static void test_evaluation_in_mid_window(void **state)
{
    (void)state;
    const toy_model model = {.dropout = 0.3, .running = true};
    tern_setup_options options = toy_options(&model, MICRO);
    tern_device *device = NULL;
    toy_run run;
    toy_batch batch;
    source s = {0};
    tern_step_report report;
    double loss[2], n;
    options.evaluate = true;
    TEST_OK(tern_device_open("cpu", &device));
    toy_start(&run, device, &options);
    toy_batch_create(&batch, MICRO);
    for (uint32_t micro = 0; micro < 7; micro++) {
        for (uint32_t k = 0; k < MICRO; k++) draw_example(&s, &batch, k, true, false);
        TEST_OK(toy_micro(&run, &batch, (micro % 3) * MICRO));
        if (micro % 3 == 2) TEST_OK(tern_stepper_update(run.stepper, 1e-2, &report));
        TEST_OK(tern_stepper_finish(run.stepper, &report));
        uint64_t before_bytes, after_bytes;
        unsigned char *before = toy_read_all(&run, &before_bytes), *after;
        for (int round = 0; round < 2; round++) {
            const tern_feed feeds[3] = {{"x", batch.x, MICRO * TOY_IN * 4},
                                        {"y", batch.y, MICRO * TOY_OUT * 4},
                                        {"weight", batch.weight, MICRO * 4}};
            TEST_OK(tern_stepper_eval(run.stepper, feeds, 3));
            TEST_OK(tern_stepper_eval_finish(run.stepper, &loss[round], &n));
        }
        after = toy_read_all(&run, &after_bytes);
        assert_int_equal(before_bytes, after_bytes);
        assert_memory_equal(before, after, before_bytes);
        assert_true(loss[0] == loss[1] && isfinite(loss[0]));
        free(before);
        free(after);
    }
    toy_batch_finish(&batch);
    toy_stop(&run);
    tern_device_close(device);
}

/* ------------------------------------------------------------------ shadows */

/* loss = (w x + total)^2, total := total + x: whoever reads `total` shows in the loss. */
static tern_status build_counting(void *context, tern_graph *graph, uint32_t batch)
{
    (void)context;
    const int64_t one = batch;
    tern_tensor *x = tern_input_1d(graph, "x", TERN_F32, one);
    tern_tensor *w = tern_parameter(graph, "w", 1, &one, TERN_INIT_ONES, 0);
    tern_tensor *total = tern_state(graph, "total", TERN_F32, 1, &one);
    tern_tensor *sum = tern_add(tern_mul(w, x), tern_detach(total));
    tern_assign(total, tern_add(total, x));
    tern_loss(tern_mul(sum, sum), NULL);
    return tern_graph_status(graph);
}

static float read_float(toy_run *run, const char *name)
{
    float value = 0;
    TEST_OK(tern_store_read(tern_stepper_store(run->stepper), name, &value, sizeof value));
    return value;
}

static double count_up(toy_run *run, const float *xs, int count)
{
    tern_step_report report;
    for (int i = 0; i < count; i++) {
        const tern_feed feed = {"x", &xs[i], sizeof xs[i]};
        TEST_OK(tern_stepper_micro(run->stepper, &feed, 1, (uint32_t)i));
    }
    TEST_OK(tern_stepper_finish(run->stepper, &report));
    return (double)read_float(run, TERN_STATE_LOSS);
}

static double evaluate(toy_run *run, float x)
{
    double loss, n;
    const tern_feed feed = {"x", &x, sizeof x};
    TEST_OK(tern_stepper_eval(run->stepper, &feed, 1));
    TEST_OK(tern_stepper_eval_finish(run->stepper, &loss, &n));
    return loss;
}

static void test_shadows(void **state)
{
    (void)state;
    const tern_setup_options options = {.model = {build_counting, NULL},
                                        .batch = 1,
                                        .optimizer = {.beta1 = 0.9, .beta2 = 0.9, .epsilon = 1e-8},
                                        .evaluate = true};
    toy_run run;
    tern_device *device = NULL;
    tern_step_report report;
    const float good[] = {1, 2, 4}, bad[] = {8, INFINITY};
    TEST_OK(tern_device_open("cpu", &device));
    toy_start(&run, device, &options);
    /* reads within the window see the shadow: 1^2 + (2 + 1)^2 + (4 + 3)^2 */
    assert_true(count_up(&run, good, 3) == 59);
    assert_true(read_float(&run, "total") == 0 && read_float(&run, "shadow.total") == 7);
    assert_true(evaluate(&run, 3) == 9); /* the committed one, still 0 */
    TEST_OK(tern_stepper_update(run.stepper, 0, &report));
    TEST_OK(tern_stepper_finish(run.stepper, &report));
    assert_true(read_float(&run, "total") == 7 && read_float(&run, "shadow.total") == 7);
    assert_true(evaluate(&run, 3) == 100);
    (void)count_up(&run, bad, 2);
    TEST_OK(tern_stepper_update(run.stepper, 0, &report));
    TEST_OK(tern_stepper_finish(run.stepper, &report));
    assert_true(report.skipped && read_float(&run, "total") == 7 && read_float(&run, "shadow.total") == 7);
    assert_true(count_up(&run, good, 1) == 64);
    toy_stop(&run);
    tern_device_close(device);
}

static void test_shadow_graphs(void **state)
{
    (void)state;
    tern_graph *graph = NULL, *micro = NULL, *eval = NULL;
    TEST_OK(tern_graph_create(&graph));
    TEST_OK(build_counting(NULL, graph, 2));
    (void)tern_state(graph, "only read", TERN_F32, 1, (const int64_t[]){1});
    TEST_OK(tern_pass_state_shadow(graph, &micro));
    TEST_OK(tern_pass_state_freeze(graph, &eval));
    assert_non_null(tern_graph_find(micro, TERN_OP_STATE, "shadow.total"));
    assert_null(tern_graph_find(micro, TERN_OP_STATE, "total"));
    assert_non_null(tern_graph_find(micro, TERN_OP_STATE, "only read"));
    for (uint32_t i = 0; i < eval->node_count; i++) assert_true(eval->nodes[i]->op != TERN_OP_ASSIGN);
    assert_true(micro->loss && eval->loss && micro->node_count == graph->node_count);
    tern_graph_destroy(micro);
    tern_graph_destroy(eval);
    tern_tensor *w = tern_graph_find(graph, TERN_OP_PARAMETER, "w");
    tern_assign(w, tern_mul(w, w));
    TEST_ERROR(tern_pass_state_shadow(graph, &micro), TERN_ERROR_INVALID, "assigns to the parameter \"w\"");
    assert_null(micro);
    tern_graph_destroy(graph);
}

/* ------------------------------------------------------------------- counts */

/* Each matrix's gradient is added to its accumulator by the one matmul that makes it, in its epilogue. */
static void test_accumulators_are_epilogues(void **state)
{
    (void)state;
    const toy_model model = {.dropout = 0.3};
    const tern_setup_options options = toy_options(&model, MICRO);
    tern_device *device = NULL;
    tern_setup *setup = NULL;
    TEST_OK(tern_device_open("null", &device));
    TEST_OK(tern_setup_create(device, &options, &setup));
    const tern_lowered *lowered = setup->programs[TERN_PROGRAM_MICRO].lowered;
    static const char *const names[] = {"acc.up.weight", "acc.down.weight"};
    for (size_t n = 0; n < 2; n++) {
        uint32_t users = 0;
        for (uint32_t l = 0; l < lowered->launch_count; l++)
            for (uint32_t o = 0; o < lowered->launches[l].operand_count; o++) {
                const char *name = lowered->values[lowered->launches[l].operands[o].value].name;
                if (!name || strcmp(name, names[n]) != 0) continue;
                users++;
                assert_int_equal(lowered->kernels[lowered->launches[l].kernel]->kind, TERN_KERNEL_MATMUL);
            }
        assert_int_equal(users, 1);
    }
    tern_setup_destroy(setup);
    tern_device_close(device);
}

static tern_update_options everything(void)
{
    return (tern_update_options){
        .clip = 1, .clip_value = 0.5, .outlier = {.z = 4}, .scale = {.mode = TERN_SCALE_DYNAMIC, .hysteresis = 2}};
}

static uint32_t count_update(tern_device *device, bool all)
{
    const toy_model model = {.running = true};
    tern_setup_options options = toy_options(&model, MICRO);
    tern_setup *setup = NULL;
    if (all) options.update = everything();
    if (all) options.precision = TERN_F16;
    TEST_OK(tern_setup_create(device, &options, &setup));
    const uint32_t launches = setup->programs[TERN_PROGRAM_UPDATE].lowered->launch_count;
    tern_setup_destroy(setup);
    return launches;
}

/* Scaling, clipping and outliers are decided on the device: few launches more, and not one wait. */
static void test_costs(void **state)
{
    (void)state;
    enum { SEGMENTS = 2, WINDOWS = 50 };
    const toy_model model = {.running = true};
    tern_setup_options options = toy_options(&model, MICRO);
    tern_device *device = NULL;
    tern_step_counts counts;
    tern_null_counts null;
    tern_step_report report;
    toy_run run;
    toy_batch batch;
    TEST_OK(tern_device_open("null", &device));
    const uint32_t plain = count_update(device, false), all = count_update(device, true);
    print_message("update: %u launches for %d segments, %u with everything on\n", plain, SEGMENTS, all);
    assert_true(all <= plain + 3 * SEGMENTS && all <= 6 * SEGMENTS + 4);
    options.update = everything();
    toy_start(&run, device, &options);
    toy_batch_create(&batch, MICRO);
    for (uint32_t w = 0; w < WINDOWS; w++) {
        TEST_OK(toy_micro(&run, &batch, 0));
        TEST_OK(toy_micro(&run, &batch, MICRO));
        TEST_OK(tern_stepper_update(run.stepper, 1e-2, &report));
    }
    tern_stepper_count(run.stepper, &counts);
    tern_null_hooks_of(device->backend)->counts(&null);
    assert_int_equal(counts.submissions, 3 * WINDOWS);
    assert_int_equal(counts.late_waits, 0);
    assert_true(null.in_flight_peak <= 2);
    TEST_OK(tern_stepper_finish(run.stepper, &report));
    toy_batch_finish(&batch);
    toy_stop(&run);
    tern_device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_ON(test_windows_are_the_big_batch, "cpu"),
        TEST_ON(test_windows_are_the_big_batch, "opencl"),
        TEST_ON(test_windows_are_the_big_batch, "vulkan"),
        cmocka_unit_test(test_evaluation_in_mid_window),
        cmocka_unit_test(test_shadows),
        cmocka_unit_test(test_shadow_graphs),
        cmocka_unit_test(test_accumulators_are_epilogues),
        cmocka_unit_test(test_costs),
    };
    return cmocka_run_group_tests_name("window", tests, NULL, NULL);
}
