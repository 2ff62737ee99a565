/* SPDX-License-Identifier: Apache-2.0 */
/* test_calibrate.c - the same micro-batch in half precision and in f32: right numbers, no trace in the training, no
 * wait. */
#include "core/passes/accumulate.h"
#include "tests/test.h"
#include "tests/toy_model.h"

#include <stdlib.h>

enum { BATCH = 8, WINDOWS = 6 };

static void fill(toy_batch *batch, uint32_t number)
{
    for (uint32_t i = 0; i < BATCH; i++) {
        for (uint32_t k = 0; k < TOY_IN; k++) batch->x[i * TOY_IN + k] = (float)sin(number + i * 1.3 + k * 2.1);
        for (uint32_t k = 0; k < TOY_OUT; k++) batch->y[i * TOY_OUT + k] = (float)cos(number * 0.7 + i + k);
        batch->weight[i] = 0.5f + (float)(i % 3);
    }
}

static tern_status calibrate(toy_run *run, const toy_batch *batch)
{
    const tern_feed feeds[3] = {{"x", batch->x, BATCH * TOY_IN * 4},
                                {"y", batch->y, BATCH * TOY_OUT * 4},
                                {"weight", batch->weight, BATCH * 4}};
    return tern_stepper_calibrate(run->stepper, feeds, 3, 0);
}

/* Windows of two micro-batches, the first calibrated or not; all that training owns at the end. */
static unsigned char *train(tern_device *device, const tern_setup_options *options, bool calibrated,
                            uint64_t *out_bytes)
{
    toy_run run;
    toy_batch batch;
    tern_step_report report;
    tern_calibration c;
    toy_start(&run, device, options);
    toy_batch_create(&batch, BATCH);
    for (uint32_t w = 0; w < WINDOWS; w++) {
        for (uint32_t micro = 0; micro < 2; micro++) {
            fill(&batch, 2 * w + micro);
            if (calibrated && micro == 0) TEST_OK(calibrate(&run, &batch));
            TEST_OK(toy_micro(&run, &batch, micro * BATCH));
        }
        TEST_OK(tern_stepper_update(run.stepper, 1e-2, &report));
        tern_stepper_calibration(run.stepper, &c);
        assert_int_equal(c.valid, calibrated); /* three submissions ago */
        if (calibrated) assert_true(c.attempt == w && c.loss_off < 0.05 && c.norm_off < 0.05 && c.norm_f32 > 0);
    }
    TEST_OK(tern_stepper_finish(run.stepper, &report));
    assert_true(report.good_steps == WINDOWS);
    toy_batch_finish(&batch);
    unsigned char *all = toy_read_all(&run, out_bytes);
    toy_stop(&run);
    return all;
}

static void test_no_trace(void **state)
{
    (void)state;
    static const struct {
        int32_t precision;
        bool no_masters;
    } rows[] = {{TERN_BF16, false}, {TERN_F16, false}, {TERN_BF16, true}};
    const toy_model model = {.dropout = 0.3, .running = true};
    tern_device *device = NULL;
    TEST_OK(tern_device_open("cpu", &device));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tern_setup_options options = toy_options(&model, BATCH);
        uint64_t with_bytes, without_bytes;
        options.precision = rows[i].precision;
        options.no_masters = rows[i].no_masters;
        unsigned char *without = train(device, &options, false, &without_bytes);
        options.calibrate = true;
        unsigned char *with = train(device, &options, true, &with_bytes);
        assert_int_equal(with_bytes, without_bytes);
        assert_memory_equal(with, without, with_bytes);
        free(with);
        free(without);
    }
    tern_device_close(device);
}

/* One window of one micro-batch: what the step itself reports, in this precision. */
static tern_step_report one_window(toy_run *run, const toy_batch *batch)
{
    tern_step_report report;
    TEST_OK(toy_micro(run, batch, 0));
    TEST_OK(tern_stepper_update(run->stepper, 1e-2, &report));
    TEST_OK(tern_stepper_finish(run->stepper, &report));
    return report;
}

static void test_numbers(void **state)
{
    const char *backend = *state;
    const toy_model model = {.dropout = 0.3};
    tern_setup_options options = toy_options(&model, BATCH);
    tern_device *device = NULL;
    toy_run exact, half;
    toy_batch batch;
    tern_calibration c;
    if (tern_device_open(backend, &device) < 0) TEST_SKIP("%s", tern_error_message());
    toy_start(&exact, device, &options);
    options.precision = TERN_F16;
    options.calibrate = true;
    tern_setup *tried = NULL;
    if (tern_setup_create(device, &options, &tried) == TERN_ERROR_UNSUPPORTED) {
        toy_stop(&exact);
        tern_device_close(device);
        TEST_SKIP("%s", tern_error_message());
    }
    tern_setup_destroy(tried);
    toy_start(&half, device, &options);
    toy_batch_create(&batch, BATCH);
    fill(&batch, 5);
    TEST_OK(calibrate(&half, &batch));
    const tern_step_report in_half = one_window(&half, &batch), in_f32 = one_window(&exact, &batch);
    tern_stepper_calibration(half.stepper, &c);
    assert_true(c.valid && c.attempt == 0);
    TEST_NEAR(c.loss, in_half.loss, 1e-6 * in_half.loss); /* S is 2^12 in both, and undone in both */
    TEST_NEAR(c.norm, in_half.norm, 1e-5 * in_half.norm);
    TEST_NEAR(c.loss_f32, in_f32.loss, 1e-6 * in_f32.loss);
    TEST_NEAR(c.norm_f32, in_f32.norm, 1e-5 * in_f32.norm);
    TEST_NEAR(c.loss_off, fabs(c.loss - c.loss_f32) / c.loss_f32, 1e-12);
    assert_true(c.norm_off > 0 && c.norm_off < 0.02);
    toy_batch_finish(&batch);
    toy_stop(&half);
    toy_stop(&exact);
    tern_device_close(device);
}

/* A scale that f16 cannot bear: the norm is not finite, and says so; f32's is what it was. */
static void test_overflow(void **state)
{
    (void)state;
    const toy_model model = {0};
    tern_setup_options options = toy_options(&model, BATCH);
    tern_device *device = NULL;
    toy_run run;
    toy_batch batch;
    tern_calibration c;
    TEST_OK(tern_device_open("cpu", &device));
    options.precision = TERN_F16;
    options.calibrate = true;
    options.update.scale = (tern_scale_options){.mode = TERN_SCALE_STATIC, .initial = 0x1p24};
    toy_start(&run, device, &options);
    toy_batch_create(&batch, BATCH);
    fill(&batch, 1);
    TEST_OK(calibrate(&run, &batch));
    assert_true(one_window(&run, &batch).skipped);
    tern_stepper_calibration(run.stepper, &c);
    assert_true(c.valid && !isfinite(c.norm) && !isfinite(c.norm_off) && isfinite(c.norm_f32) && c.loss_off < 0.01);
    toy_batch_finish(&batch);
    toy_stop(&run);
    tern_device_close(device);
}

static void test_refusals_and_waits(void **state)
{
    (void)state;
    const toy_model model = {0};
    tern_setup_options options = toy_options(&model, BATCH);
    tern_device *device = NULL;
    tern_setup *setup = NULL;
    toy_run run;
    toy_batch batch;
    tern_step_report report;
    tern_calibration c;
    tern_step_counts counts;
    TEST_OK(tern_device_open("null", &device));
    options.calibrate = true;
    TEST_ERROR(tern_setup_create(device, &options, &setup), TERN_ERROR_INVALID, "this run is f32");
    options.precision = TERN_BF16;
    toy_start(&run, device, &options);
    toy_batch_create(&batch, BATCH);
    tern_stepper_calibration(run.stepper, &c);
    assert_false(c.valid);
    for (uint32_t w = 0; w < 50; w++) {
        TEST_OK(calibrate(&run, &batch));
        TEST_OK(toy_micro(&run, &batch, 0));
        TEST_OK(tern_stepper_update(run.stepper, 1e-2, &report));
        tern_stepper_calibration(run.stepper, &c);
        assert_true(c.valid && c.attempt == w);
    }
    tern_stepper_count(run.stepper, &counts);
    assert_int_equal(counts.late_waits, 0);
    assert_int_equal(counts.submissions, 200);
    TEST_OK(tern_stepper_finish(run.stepper, &report));
    toy_stop(&run);
    options.calibrate = false;
    toy_start(&run, device, &options);
    TEST_ERROR(calibrate(&run, &batch), TERN_ERROR_INVALID, "without calibration");
    toy_batch_finish(&batch);
    toy_stop(&run);
    tern_device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_trace), TEST_ON(test_numbers, "cpu"),    TEST_ON(test_numbers, "opencl"),
        TEST_ON(test_numbers, "vulkan"), cmocka_unit_test(test_overflow), cmocka_unit_test(test_refusals_and_waits),
    };
    return cmocka_run_group_tests_name("calibrate", tests, NULL, NULL);
}
