/* SPDX-License-Identifier: Apache-2.0 */
/* test_diagnose.c - the first tensor that is not finite: named, in the right pass, with the masks of its window, and
 * without a trace in the training. */
#include "backends/null/null.h"
#include "core/train/diagnose.h"
#include "tests/test.h"
#include "tests/toy_model.h"

#include <stdlib.h>

enum { N = 4 };

/* h = drop(x + mask); s = sqrt(w) labelled "root"; loss = exp(h) s. mask may be -infinity: exp makes 0 of it. */
static tern_status build_small(void *context, tern_graph *graph, uint32_t batch)
{
    const double *dropout = context;
    const int64_t b = batch, one = 1;
    tern_tensor *x = tern_input_1d(graph, "x", TERN_F32, b), *mask = tern_input_1d(graph, "mask", TERN_F32, b);
    tern_tensor *w = tern_parameter(graph, "w", 1, &one, TERN_INIT_ONES, 0);
    tern_tensor *h = tern_add(*dropout > 0 ? tern_dropout(x, *dropout, "drop") : x, mask);
    tern_tensor *e = tern_label(tern_exp(h), "power");
    tern_loss(tern_mul(e, tern_label(tern_sqrt(w), "root")), NULL);
    return tern_graph_status(graph);
}

static void start_small(toy_run *run, tern_device *device, const double *dropout)
{
    const tern_setup_options options = {.model = {build_small, (void *)(uintptr_t)dropout},
                                        .batch = N,
                                        .optimizer = {.beta1 = 0.9, .beta2 = 0.9, .epsilon = 1e-8}};
    toy_start(run, device, &options);
}

static tern_diagnosis diagnose(toy_run *run, const float *x, const float *mask, uint64_t attempt)
{
    tern_diagnosis d;
    const tern_feed feeds[2] = {{"x", x, N * 4}, {"mask", mask, N * 4}};
    TEST_OK(tern_stepper_diagnose(run->stepper, feeds, 2, attempt, 0, &d));
    return d;
}

static void write_w(toy_run *run, float w)
{
    TEST_OK(tern_store_write(tern_stepper_store(run->stepper), "w", &w, sizeof w));
}

static void expect(const tern_diagnosis *d, const char *label, tern_pass pass, const char *near)
{
    char text[400];
    tern_diagnosis_print(d, text, sizeof text);
    if (!d->found || d->pass != pass || strncmp(d->label, label, strlen(label)) != 0 || strcmp(d->near, near) != 0)
        fail_msg("found %s; wanted \"%s\" in pass %d near \"%s\"", text, label, (int)pass, near);
}

static void test_names(void **state)
{
    (void)state;
    const double none = 0;
    const float good[N] = {1, 2, 3, 4}, large[N] = {1, 200, 3, 4}, nan[N] = {1, NAN, 3, 4}, zero[N] = {0};
    const float masked[N] = {0, -INFINITY, 0, -INFINITY};
    toy_run run;
    tern_device *device = NULL;
    tern_diagnosis d;
    char text[400];
    TEST_OK(tern_device_open("cpu", &device));
    start_small(&run, device, &none);

    d = diagnose(&run, good, zero, 0);
    assert_true(!d.found && d.flagged == 0 && d.seen > 5);
    tern_diagnosis_print(&d, text, sizeof text);
    assert_non_null(strstr(text, "is finite"));
    d = diagnose(&run, good, masked, 0); /* infinities that exp makes 0 of do no harm */
    assert_true(!d.found && d.flagged >= 2);
    d = diagnose(&run, nan, masked, 0); /* and hide no fault */
    expect(&d, "x", TERN_PASS_FORWARD, "");
    d = diagnose(&run, large, zero, 0); /* e^200 */
    expect(&d, "power", TERN_PASS_FORWARD, "");
    assert_string_equal(d.shape, "(4)");
    write_w(&run, 0); /* sqrt is 0, its derivative infinite */
    d = diagnose(&run, good, zero, 0);
    assert_true(d.found && d.pass == TERN_PASS_BACKWARD);
    tern_diagnosis_print(&d, text, sizeof text);
    assert_non_null(strstr(text, "backward"));
    write_w(&run, NAN);
    d = diagnose(&run, good, zero, 0);
    expect(&d, "w", TERN_PASS_FORWARD, "");
    toy_stop(&run);
    tern_device_close(device);
}

/* An infinity that dropout removes in some windows: the diagnosis must find it exactly in the windows that were
 * skipped. */
static void test_same_masks(void **state)
{
    (void)state;
    const double half = 0.5;
    const float x[N] = {1, INFINITY, 1, 1}, zero[N] = {0};
    const tern_feed feeds[2] = {{"x", x, N * 4}, {"mask", zero, N * 4}};
    uint32_t skipped = 0;
    toy_run run;
    tern_device *device = NULL;
    TEST_OK(tern_device_open("cpu", &device));
    start_small(&run, device, &half);
    for (uint64_t attempt = 0; attempt < 12; attempt++) {
        tern_step_report report;
        TEST_OK(tern_stepper_micro(run.stepper, feeds, 2, 0));
        TEST_OK(tern_stepper_update(run.stepper, 0, &report));
        TEST_OK(tern_stepper_finish(run.stepper, &report));
        const tern_diagnosis d = diagnose(&run, x, zero, attempt);
        assert_int_equal(d.found, report.skipped);
        if (d.found) expect(&d, "x", TERN_PASS_FORWARD, "");
        skipped += report.skipped;
    }
    assert_true(skipped > 1 && skipped < 11);
    toy_stop(&run);
    tern_device_close(device);
}

static void test_touches_nothing(void **state)
{
    const char *backend = *state;
    const toy_model model = {.dropout = 0.3, .running = true};
    const tern_setup_options options = toy_options(&model, N);
    toy_run run;
    toy_batch batch;
    tern_diagnosis d;
    tern_device *device = NULL;
    tern_step_report report;
    uint64_t before_bytes, after_bytes;
    if (tern_device_open(backend, &device) < 0) TEST_SKIP("%s", tern_error_message());
    toy_start(&run, device, &options);
    toy_batch_create(&batch, N);
    for (int i = 0; i < N; i++) {
        batch.weight[i] = 1;
        batch.x[i * TOY_IN + 1] = (float)i;
    }
    TEST_OK(toy_micro(&run, &batch, 0));
    TEST_OK(tern_stepper_update(run.stepper, 1e-2, &report));
    TEST_OK(toy_micro(&run, &batch, 0)); /* inside a window */
    TEST_OK(tern_stepper_finish(run.stepper, &report));
    unsigned char *before = toy_read_all(&run, &before_bytes);
    batch.y[4] = INFINITY;
    const tern_feed feeds[3] = {
        {"x", batch.x, N * TOY_IN * 4}, {"y", batch.y, N * TOY_OUT * 4}, {"weight", batch.weight, N * 4}};
    TEST_OK(tern_stepper_diagnose(run.stepper, feeds, 3, 1, N, &d));
    expect(&d, "y", TERN_PASS_FORWARD, "");
    unsigned char *after = toy_read_all(&run, &after_bytes);
    assert_int_equal(before_bytes, after_bytes);
    assert_memory_equal(before, after, before_bytes);
    free(before);
    free(after);
    batch.y[4] = 0;
    TEST_OK(toy_micro(&run, &batch, N)); /* the training goes on */
    TEST_OK(tern_stepper_update(run.stepper, 1e-2, &report));
    TEST_OK(tern_stepper_finish(run.stepper, &report));
    assert_true(!report.skipped && report.good_steps == 2);
    toy_batch_finish(&batch);
    toy_stop(&run);
    tern_device_close(device);
}

static void test_refusals(void **state)
{
    (void)state;
    const double none = 0;
    const float x[N] = {0};
    toy_run run;
    tern_device *device = NULL;
    tern_diagnosis d;
    TEST_OK(tern_device_open("cpu", &device));
    start_small(&run, device, &none);
    const tern_feed wrong = {"z", x, N * 4}, two[2] = {{"x", x, N * 4}, {"mask", x, N * 4}};
    TEST_ERROR(tern_stepper_diagnose(run.stepper, &wrong, 1, 0, 0, &d), TERN_ERROR_NOT_FOUND, "'z'");
    const uint64_t free_bytes = device->info.memory_free_bytes;
    device->info.memory_free_bytes = 64;
    TEST_ERROR(tern_stepper_diagnose(run.stepper, two, 2, 0, 0, &d), TERN_ERROR_DEVICE_MEMORY, "does not fit");
    device->info.memory_free_bytes = free_bytes;
    TEST_OK(tern_stepper_diagnose(run.stepper, two, 2, 0, 0, &d));
    toy_stop(&run);
    tern_device_close(device);
}

/* Every call of the driver fails once: the right status comes back, nothing is left, and a diagnosis works afterwards.
 */
static void test_every_failure(void **state)
{
    (void)state;
    const double none = 0;
    const float x[N] = {0};
    const tern_feed feeds[2] = {{"x", x, N * 4}, {"mask", x, N * 4}};
    toy_run run;
    tern_device *device = NULL;
    tern_diagnosis d;
    tern_null_counts before, after;
    TEST_OK(tern_device_open("null", &device));
    const tern_null_hooks *hooks = tern_null_hooks_of(device->backend);
    start_small(&run, device, &none);
    hooks->counts(&before);
    bool done = false;
    for (uint64_t call = 1; !done; call++) {
        hooks->fail_call(call, TERN_ERROR_DRIVER);
        const tern_status status = tern_stepper_diagnose(run.stepper, feeds, 2, 0, 0, &d);
        hooks->fail_call(0, TERN_OK);
        done = status == TERN_OK;
        if (!done) assert_int_equal(status, TERN_ERROR_DRIVER);
        assert_false(d.found);
        hooks->counts(&after);
        assert_true(after.buffers == before.buffers && after.kernels == before.kernels);
        assert_true(after.programs == before.programs && after.misuses == before.misuses);
        assert_true(call < 2000);
    }
    toy_stop(&run);
    tern_device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_same_masks),
        TEST_ON(test_touches_nothing, "cpu"),
        TEST_ON(test_touches_nothing, "opencl"),
        TEST_ON(test_touches_nothing, "vulkan"),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_every_failure),
    };
    return cmocka_run_group_tests_name("diagnose", tests, NULL, NULL);
}
