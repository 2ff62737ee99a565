/* SPDX-License-Identifier: Apache-2.0 */
/* test_clip.c - clipping by value and by norm, and outliers, against plain loops in double.
 *
 * Gradient sums are written straight into the accumulators; Adam's first moment after one step is (1 - beta1) g, which
 * shows the gradient that the optimizer saw. cpu backend. */
#include "core/passes/accumulate.h"
#include "tests/test.h"
#include "tests/toy_model.h"

#include <stdlib.h>

static void start(toy_run *run, tern_device **device, const tern_update_options *update)
{
    static const toy_model model = {0};
    tern_setup_options options = toy_options(&model, 2);
    options.update = *update;
    TEST_OK(tern_device_open("cpu", device));
    toy_start(run, *device, &options);
}

static void stop(toy_run *run, tern_device *device)
{
    toy_stop(run);
    tern_device_close(device);
}

/* Ends a window whose mean gradient is `factor` times a fixed one of norm 1. *out_g: that gradient, free() it. */
static void end_window(toy_run *run, double factor, double **out_g, size_t *out_count, tern_step_report *report)
{
    const tern_store_layout *layout = run->setup->layout;
    tern_store *store = tern_stepper_store(run->stepper);
    const float n = 3.5f;
    double *g = calloc((size_t)(layout->segments[0].elements + layout->segments[1].elements), sizeof *g), square = 0;
    size_t count = 0;
    assert_non_null(g);
    for (int pass = 0; pass < 2; pass++) {
        count = 0;
        for (uint32_t s = 0; s < 2; s++) {
            const size_t elements = (size_t)layout->segments[s].elements;
            float *acc = calloc(elements, sizeof *acc);
            char name[32];
            assert_non_null(acc);
            for (size_t i = 0; i < elements && i < 40; i++, count++) {
                const double shape = sin((double)count * 1.7) + (count == 7 ? 6 : 0);
                if (pass == 0) square += shape * shape;
                acc[i] = (float)((double)n * factor * shape / sqrt(square));
                g[s * elements + i] = (double)acc[i] / (double)n;
            }
            snprintf(name, sizeof name, "slab.acc.%u", s);
            if (pass == 1) TEST_OK(tern_store_write(store, name, acc, elements * 4));
            free(acc);
        }
    }
    TEST_OK(tern_store_write(store, TERN_STATE_N, &n, sizeof n));
    TEST_OK(tern_stepper_update(run->stepper, 1e-3, report));
    TEST_OK(tern_stepper_finish(run->stepper, report));
    *out_count = (size_t)(layout->segments[0].elements + layout->segments[1].elements);
    *out_g = g;
}

static double norm_of(const double *g, size_t count, double limit)
{
    double square = 0;
    for (size_t i = 0; i < count; i++) {
        const double x = limit > 0 ? fmax(fmin(g[i], limit), -limit) : g[i];
        square += x * x;
    }
    return sqrt(square);
}

static void check_clip(double value, double clip)
{
    toy_run run;
    tern_device *device;
    tern_step_report report;
    double *g;
    size_t count, at = 0;
    const tern_update_options update = {.clip = clip, .clip_value = value};
    start(&run, &device, &update);
    end_window(&run, 2.0, &g, &count, &report);
    const double clamped = norm_of(g, count, value), factor = clip > 0 ? fmin(1, clip / clamped) : 1;
    TEST_NEAR(report.norm, 2.0, 1e-6); /* what is reported is the raw one */
    TEST_NEAR(report.clip, factor, 1e-6);
    for (uint32_t s = 0; s < 2; s++) {
        char name[32];
        uint64_t bytes;
        snprintf(name, sizeof name, "slab.m.%u", s);
        float *m = toy_read(&run, name, &bytes);
        for (uint64_t i = 0; i < bytes / 4; i++, at++) {
            const double x = value > 0 ? fmax(fmin(g[at], value), -value) : g[at];
            TEST_NEAR(m[i] / 0.1, x * factor, 1e-6);
        }
        free(m);
    }
    free(g);
    stop(&run, device);
}

static void test_clip(void **state)
{
    (void)state;
    check_clip(0, 0);
    check_clip(0, 0.5);  /* by norm */
    check_clip(0.2, 0);  /* by value */
    check_clip(0.2, 1);  /* value first, then the norm of what is left */
    check_clip(0.2, 50); /* ... which need not be cut any more */
    check_clip(9, 1);
}

/* Outliers as outlier.h writes them. */
typedef struct statistics {
    double mean, var;
    uint32_t count, outliers;
} statistics;

static bool take(statistics *s, double norm, double z, uint32_t warmup)
{
    const double range = z * fmax(sqrt(s->var), 0.02), x = log(norm);
    const bool warm = s->count >= warmup, outlier = warm && x > s->mean + range;
    const double cut = warm ? fmin(fmax(x, s->mean - range), s->mean + range) : x;
    const double a = 1.0 / fmin(s->count + 1.0, 100.0), d = cut - s->mean;
    s->mean += a * d;
    s->var = (1 - a) * (s->var + a * d * d);
    s->count++;
    s->outliers += outlier;
    return outlier;
}

static void test_outliers(void **state)
{
    (void)state;
    enum { WARMUP = 5 };
    /* level, a spike, level, a lasting change, which is learnt in the end */
    static const double norms[] = {1.0, 1.1, 0.9, 1.05, 0.95, 30, 1.0, 1.1, 0.9, 500, 1.0, 0.001, 1.0};
    const size_t listed = sizeof norms / sizeof *norms;
    const tern_update_options update = {.outlier = {.z = 2, .warmup = WARMUP},
                                        .scale = {.mode = TERN_SCALE_DYNAMIC, .growth_interval = 1000}};
    toy_run run;
    tern_device *device;
    statistics s = {0};
    tern_step_report report = {0};
    start(&run, &device, &update);
    const float one = 1; /* the gradients below are written unscaled */
    TEST_OK(tern_store_write(tern_stepper_store(run.stepper), TERN_STATE_SCALE, &one, sizeof one));
    for (size_t w = 0; w < 100; w++) {
        const double norm = w < listed ? norms[w] : 9;
        uint64_t bytes;
        void *before = toy_read(&run, "slab.weight.0", &bytes), *after;
        double *g;
        size_t count;
        end_window(&run, norm, &g, &count, &report);
        after = toy_read(&run, "slab.weight.0", &bytes);
        const bool outlier = take(&s, norm, 2, WARMUP);
        if (report.outlier != outlier)
            fail_msg("window %zu of norm %g: outlier %d, wanted %d", w, norm, report.outlier, outlier);
        assert_true((memcmp(before, after, bytes) == 0) == outlier);
        assert_true(!report.skipped && report.skips == 0 && report.skips_in_row == 0 && report.scale == 1);
        assert_int_equal(report.outliers, s.outliers);
        assert_int_equal(report.good_steps, s.count - s.outliers);
        float mean, var;
        TEST_OK(tern_store_read(tern_stepper_store(run.stepper), TERN_STATE_NORM_MEAN, &mean, 4));
        TEST_OK(tern_store_read(tern_stepper_store(run.stepper), TERN_STATE_NORM_VAR, &var, 4));
        TEST_NEAR(mean, s.mean, 1e-5);
        TEST_NEAR(var, s.var, 1e-5 + 1e-5 * s.var);
        free(before);
        free(after);
        free(g);
    }
    assert_true(s.outliers >= 3 && !report.outlier); /* the spike after warm-up, and some of the change */
    stop(&run, device);
}

/* A window that is not finite, and an empty one, teach the statistics nothing. */
static void test_outliers_ignore_skips(void **state)
{
    (void)state;
    const tern_update_options update = {.outlier = {.z = 3, .warmup = 1}};
    toy_run run;
    tern_device *device;
    tern_step_report report;
    double *g;
    size_t count;
    start(&run, &device, &update);
    end_window(&run, 1, &g, &count, &report);
    free(g);
    end_window(&run, INFINITY, &g, &count, &report);
    free(g);
    assert_true(report.skipped && !report.outlier && report.skips == 1 && report.outliers == 0);
    TEST_OK(tern_stepper_update(run.stepper, 1e-3, &report));
    TEST_OK(tern_stepper_finish(run.stepper, &report));
    uint32_t taken;
    float mean;
    TEST_OK(tern_store_read(tern_stepper_store(run.stepper), TERN_STATE_NORM_COUNT, &taken, 4));
    TEST_OK(tern_store_read(tern_stepper_store(run.stepper), TERN_STATE_NORM_MEAN, &mean, 4));
    assert_int_equal(taken, 1);
    TEST_NEAR(mean, 0, 1e-6);
    end_window(&run, 1.5, &g, &count, &report); /* log 1.5 is far above 3 times 0.02 */
    free(g);
    assert_true(report.outlier && report.outliers == 1 && report.skips == 1 && report.skips_in_row == 0);
    stop(&run, device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clip),
        cmocka_unit_test(test_outliers),
        cmocka_unit_test(test_outliers_ignore_skips),
    };
    return cmocka_run_group_tests_name("clip", tests, NULL, NULL);
}
