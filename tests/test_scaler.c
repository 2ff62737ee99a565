/* SPDX-License-Identifier: Apache-2.0 */
/* test_scaler.c - the step as a state machine: patterns of windows against tables of what must come out.
 *
 * A pattern is one letter per window: o a good one, x one with an infinity in it, e one without weight. Every window
 * that is not good must leave weights, moments and state tensors bit for bit; an empty one all counters too. Runs on
 * cpu, and its longest rows on opencl and vulkan. No GPU. */
#include "core/passes/accumulate.h"
#include "core/passes/state_shadow.h"
#include "tests/test.h"
#include "tests/toy_model.h"

#include <stdlib.h>

enum { BATCH = 4, LONGEST = 24 };

typedef struct row {
    const char *pattern;
    tern_scale_options scale;
    int exponents[LONGEST + 1];        /* log2 S before each window, and after the last */
    uint32_t t, skips, in_row, floors; /* at the end; floors: windows that found S at its floor */
    uint32_t good, used;               /* the scaler's own counters at the end */
    bool everywhere;                   /* on every backend */
} row;

static const row rows[] = {
    {"oooo", {.mode = TERN_SCALE_STATIC}, {0, 0, 0, 0, 0}, 4, 0, 0, 0, 0, 0, false},
    {"oxxo", {.mode = TERN_SCALE_STATIC, .initial = 1024}, {10, 10, 10, 10, 10}, 2, 2, 0, 0, 0, 0, false},
    /* the defaults: each bad window halves, nothing grows soon */
    {"xoxxo", {.mode = TERN_SCALE_DYNAMIC}, {12, 11, 11, 10, 9, 9}, 2, 3, 0, 0, 1, 0, false},
    /* growth after 3 good ones in a row; a bad one starts the count again */
    {"ooooooxoooo",
     {.mode = TERN_SCALE_DYNAMIC, .growth_interval = 3},
     {12, 12, 12, 13, 13, 13, 14, 13, 13, 13, 14, 14},
     10,
     1,
     0,
     0,
     1,
     0,
     true},
    /* an empty window is neither good nor bad and breaks no row */
    {"oexexeoeoeo",
     {.mode = TERN_SCALE_DYNAMIC, .growth_interval = 4},
     {12, 12, 12, 11, 11, 10, 10, 10, 10, 10, 10, 10},
     4,
     2,
     0,
     0,
     3,
     0,
     true},
    {"oexex", {.mode = TERN_SCALE_DYNAMIC}, {12, 12, 12, 11, 11, 10}, 1, 2, 2, 0, 0, 0, false},
    /* hysteresis 2: every second bad one since S moved, whether good ones lie between or not */
    {"xoxxxox",
     {.mode = TERN_SCALE_DYNAMIC, .hysteresis = 2},
     {12, 12, 12, 11, 11, 10, 10, 10},
     2,
     5,
     1,
     0,
     0,
     1,
     true},
    /* ... and growth forgets them */
    {"xooxx",
     {.mode = TERN_SCALE_DYNAMIC, .hysteresis = 2, .growth_interval = 2},
     {12, 12, 12, 13, 13, 12},
     2,
     3,
     2,
     0,
     0,
     0,
     false},
    /* the cap: growth goes on counting, S stays */
    {"oooo",
     {.mode = TERN_SCALE_DYNAMIC, .initial = 4, .cap = 8, .growth_interval = 1},
     {2, 3, 3, 3, 3},
     4,
     0,
     0,
     0,
     0,
     0,
     false},
    /* the floor says so, once per window that should have lowered S */
    {"xxxxo", {.mode = TERN_SCALE_DYNAMIC, .initial = 4, .floor = 1}, {2, 1, 0, 0, 0, 0}, 1, 4, 0, 2, 1, 0, true},
    /* larger factors */
    {"xoo",
     {.mode = TERN_SCALE_DYNAMIC, .growth = 16, .backoff = 0.125, .growth_interval = 2},
     {12, 9, 9, 13},
     2,
     1,
     0,
     0,
     0,
     0,
     false},
};

static const char *const kept[] = {"slab.weight.0", "slab.m.0",  "slab.v.0",     "slab.weight.1",
                                   "slab.m.1",      "slab.v.1",  "running.mean", "shadow.running.mean",
                                   "slab.low.0",    "slab.low.1"}; /* the last two in half precision only */
enum { KEPT = sizeof kept / sizeof *kept };

static void read_all(toy_run *run, void *out[KEPT], uint64_t bytes[KEPT])
{
    tern_binding at;
    for (int i = 0; i < KEPT; i++) {
        out[i] = NULL;
        if (i < 8 || tern_store_find(tern_stepper_store(run->stepper), kept[i], &at) == TERN_OK)
            out[i] = toy_read(run, kept[i], &bytes[i]);
    }
}

static void expect_same(void *before[KEPT], void *after[KEPT], const uint64_t bytes[KEPT], bool same)
{
    for (int i = 0; i < KEPT; i++) {
        if (!before[i]) continue;
        const bool equal = memcmp(before[i], after[i], bytes[i]) == 0;
        if (equal != same) fail_msg("%s %s", kept[i], same ? "changed in a skipped window" : "did not move");
        free(before[i]);
        free(after[i]);
    }
}

/* Two micro-batches; the second one carries the infinity. */
static void run_window(toy_run *run, char letter, uint32_t number, tern_step_report *out)
{
    toy_batch batch;
    toy_batch_create(&batch, BATCH);
    for (uint32_t micro = 0; micro < 2; micro++) {
        for (uint32_t i = 0; i < BATCH; i++) {
            for (int k = 0; k < TOY_IN; k++)
                batch.x[i * TOY_IN + (uint32_t)k] = (float)sin(number * 3.1 + micro + i * 0.7 + k);
            for (int k = 0; k < TOY_OUT; k++) batch.y[i * TOY_OUT + (uint32_t)k] = (float)cos(number + i + k * 2.0);
            batch.weight[i] = letter == 'e' ? 0.0f : 1.0f;
        }
        if (letter == 'x' && micro == 1) batch.y[2] = INFINITY;
        TEST_OK(toy_micro(run, &batch, micro * BATCH));
    }
    toy_batch_finish(&batch);
    TEST_OK(tern_stepper_update(run->stepper, 1e-2, out));
    TEST_OK(tern_stepper_finish(run->stepper, out));
}

static uint32_t counter(toy_run *run, const char *name)
{
    uint32_t value = 0;
    TEST_OK(tern_store_read(tern_stepper_store(run->stepper), name, &value, sizeof value));
    return value;
}

static void check_row(tern_device *device, const row *r, int32_t precision)
{
    const toy_model model = {.running = true};
    tern_setup_options options = toy_options(&model, BATCH);
    toy_run run;
    tern_step_report report = {0};
    uint32_t floors = 0;
    options.update.scale = r->scale;
    options.precision = precision;
    toy_start(&run, device, &options);
    for (uint32_t w = 0; r->pattern[w]; w++) {
        void *before[KEPT], *after[KEPT];
        uint64_t bytes[KEPT];
        const tern_step_report last = report;
        const char letter = r->pattern[w];
        read_all(&run, before, bytes);
        run_window(&run, letter, w, &report);
        read_all(&run, after, bytes);
        assert_int_equal(bytes[6], TOY_HIDDEN * 4);
        if (memcmp(after[6], after[7], bytes[6]) != 0)
            fail_msg("%s: shadow and state differ after window %u", r->pattern, w);
        expect_same(before, after, bytes, letter != 'o');
        assert_true(report.attempt == w && report.skipped == (letter == 'x') && !report.outlier);
        if (report.scale != ldexp(1, r->exponents[w]))
            fail_msg("%s: window %u ran with S = 2^%g, wanted 2^%d", r->pattern, w, log2(report.scale),
                     r->exponents[w]);
        if (letter == 'e')
            assert_true(report.good_steps == last.good_steps && report.skips == last.skips &&
                        report.skips_in_row == last.skips_in_row && report.n == 0);
        floors += report.at_floor;
    }
    float scale = 0;
    TEST_OK(tern_store_read(tern_stepper_store(run.stepper), TERN_STATE_SCALE, &scale, sizeof scale));
    assert_true((double)scale == ldexp(1, r->exponents[strlen(r->pattern)]));
    assert_int_equal(report.good_steps, r->t);
    assert_int_equal(report.skips, r->skips);
    assert_int_equal(report.skips_in_row, r->in_row);
    assert_int_equal(floors, r->floors);
    if (r->scale.mode == TERN_SCALE_DYNAMIC) {
        assert_int_equal(counter(&run, TERN_STATE_GOOD), r->good);
        assert_int_equal(counter(&run, TERN_STATE_HYSTERESIS), r->used);
    }
    toy_stop(&run);
}

static void test_patterns(void **state)
{
    const char *backend = *state;
    tern_device *device = NULL;
    if (tern_device_open(backend, &device) < 0) TEST_SKIP("%s", tern_error_message());
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].everywhere || strcmp(backend, "cpu") == 0) check_row(device, &rows[i], TERN_F32);
    tern_device_close(device);
}

/* scaler.h once more, in plain C. */
typedef struct machine {
    double scale;
    uint32_t good, used, t, skips, in_row;
} machine;

/* Returns whether the window met S at its floor. */
static bool machine_step(machine *m, char letter, const tern_scale_options *o)
{
    bool floor = false;
    if (letter == 'o') {
        m->t++;
        m->in_row = 0;
        if (++m->good >= o->growth_interval) {
            m->scale = fmin(m->scale * o->growth, o->cap);
            m->good = m->used = 0;
        }
    } else if (letter == 'x') {
        m->skips++;
        m->in_row++;
        m->good = 0;
        if (++m->used >= o->hysteresis) {
            floor = m->scale <= o->floor;
            m->scale = fmax(m->scale * o->backoff, o->floor);
            m->used = 0;
        }
    }
    return floor;
}

static void test_random_patterns(void **state)
{
    (void)state;
    enum { WINDOWS = 400 };
    const toy_model model = {.running = true};
    tern_setup_options options = toy_options(&model, BATCH);
    options.update.scale = (tern_scale_options){.mode = TERN_SCALE_DYNAMIC,
                                                .initial = 0x1p6,
                                                .cap = 0x1p9,
                                                .floor = 0x1p3,
                                                .growth_interval = 3,
                                                .hysteresis = 2};
    const tern_scale_options resolved = tern_scale_resolve(&options.update.scale, false);
    machine m = {.scale = 0x1p6};
    uint32_t random = 1, floors = 0, caps = 0;
    tern_device *device = NULL;
    toy_run run;
    TEST_OK(tern_device_open("cpu", &device));
    toy_start(&run, device, &options);
    for (uint32_t w = 0; w < WINDOWS; w++) {
        tern_step_report report;
        random = random * 1664525u + 1013904223u;
        /* Mostly good for 50 windows, then mostly bad, so that S goes from end to end. */
        const uint32_t dice = random >> 28, bad = w / 50 % 2 ? 8 : 2;
        const char letter = dice < 2 ? 'e' : dice < 2 + bad ? 'x' : 'o';
        const double scale = m.scale;
        run_window(&run, letter, w, &report);
        const bool floor = machine_step(&m, letter, &resolved);
        if (report.scale != scale || report.at_floor != floor || report.good_steps != m.t || report.skips != m.skips ||
            report.skips_in_row != m.in_row)
            fail_msg("window %u (%c): S %g, floor %d, t %u, skips %u, %u in a row; wanted %g, %d, %u, %u, %u", w,
                     letter, report.scale, report.at_floor, report.good_steps, report.skips, report.skips_in_row, scale,
                     floor, m.t, m.skips, m.in_row);
        floors += floor;
        caps += m.scale == resolved.cap;
    }
    assert_true(floors > 0 && caps > 0);
    toy_stop(&run);
    tern_device_close(device);
}

/* In f16 the backward pass itself meets the scale; the machine and the bits are the same. */
static void test_patterns_in_half(void **state)
{
    (void)state;
    tern_device *device = NULL;
    TEST_OK(tern_device_open("cpu", &device));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) check_row(device, &rows[i], TERN_F16);
    tern_device_close(device);
}

/* A power of two leaves no trace: weights after 6 windows at S = 2^10 are those at S = 1, bit for bit. */
static void test_scale_is_exact(void **state)
{
    (void)state;
    const toy_model model = {0};
    const double scales[] = {1, 1024, 0x1p-10};
    void *first = NULL;
    tern_device *device = NULL;
    TEST_OK(tern_device_open("cpu", &device));
    for (size_t i = 0; i < 3; i++) {
        tern_setup_options options = toy_options(&model, BATCH);
        toy_run run;
        uint64_t bytes;
        tern_step_report report;
        options.update.scale = (tern_scale_options){.mode = TERN_SCALE_STATIC, .initial = scales[i]};
        options.update.clip = 0.05;
        toy_start(&run, device, &options);
        for (uint32_t w = 0; w < 6; w++) run_window(&run, 'o', w, &report);
        assert_true(report.clip < 1); /* clipping acts after unscaling */
        void *weights = toy_read(&run, "slab.weight.0", &bytes);
        if (first) assert_memory_equal(first, weights, bytes);
        if (!first)
            first = weights;
        else
            free(weights);
        toy_stop(&run);
    }
    free(first);
    tern_device_close(device);
}

/* Loss weights so small that every 16-bit gradient is 0 at S = 1 (f16 ends at 2^-24), trained with and without a scale.
 * Returns the last loss by the first. */
static double train_underflowing(tern_device *device, int32_t precision, tern_scale_mode mode)
{
    enum { STEPS = 150 };
    const toy_model model = {0};
    tern_setup_options options = toy_options(&model, BATCH);
    toy_run run;
    toy_batch batch;
    tern_step_report report;
    double first = 0;
    options.precision = precision;
    options.update.scale = (tern_scale_options){.mode = mode, .growth_interval = 20};
    toy_start(&run, device, &options);
    toy_batch_create(&batch, BATCH);
    for (uint32_t i = 0; i < BATCH; i++) {
        batch.weight[i] = 0x1p-28f;
        for (uint32_t k = 0; k < TOY_IN; k++) batch.x[i * TOY_IN + k] = (float)sin(i * 1.1 + k);
        for (uint32_t k = 0; k < TOY_OUT; k++) batch.y[i * TOY_OUT + k] = (float)cos(i * 0.7 + k);
    }
    for (uint32_t step = 0; step < STEPS; step++) {
        TEST_OK(toy_micro(&run, &batch, 0));
        TEST_OK(tern_stepper_update(run.stepper, 1e-2, &report));
        TEST_OK(tern_stepper_finish(run.stepper, &report));
        if (step == 0) first = report.loss;
    }
    toy_batch_finish(&batch);
    toy_stop(&run);
    return report.loss / first;
}

static void test_underflow(void **state)
{
    (void)state;
    tern_device *device = NULL;
    TEST_OK(tern_device_open("cpu", &device));
    const double exact = train_underflowing(device, TERN_F32, TERN_SCALE_AUTO),
                 without = train_underflowing(device, TERN_F16, TERN_SCALE_STATIC),
                 with = train_underflowing(device, TERN_F16, TERN_SCALE_AUTO);
    print_message("loss left: f32 %.4f, f16 unscaled %.4f, f16 scaled %.4f\n", exact, without, with);
    assert_true(exact < 0.1 && with < 0.1 && without > 0.8);
    tern_device_close(device);
}

static void test_options(void **state)
{
    (void)state;
    tern_scale_options o = tern_scale_resolve(&(tern_scale_options){0}, true);
    assert_true(o.mode == TERN_SCALE_DYNAMIC && o.initial == 4096 && o.growth_interval == 2000 && o.hysteresis == 1);
    TEST_OK(tern_scale_check(&o));
    o = tern_scale_resolve(&(tern_scale_options){0}, false);
    assert_true(o.mode == TERN_SCALE_STATIC && o.initial == 1);
    o.initial = 3;
    TEST_ERROR(tern_scale_check(&o), TERN_ERROR_INVALID, "the loss scale is 3");
    o = tern_scale_resolve(&(tern_scale_options){.mode = TERN_SCALE_DYNAMIC, .cap = 1024}, false);
    TEST_ERROR(tern_scale_check(&o), TERN_ERROR_INVALID, "starts at 4096");
    o = tern_scale_resolve(&(tern_scale_options){.mode = TERN_SCALE_DYNAMIC, .backoff = 2}, false);
    TEST_ERROR(tern_scale_check(&o), TERN_ERROR_INVALID, "backoff is 2");
    const tern_update_options update = {.clip_value = -1};
    TEST_ERROR(tern_update_check(&update), TERN_ERROR_INVALID, "clip value is -1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options),          cmocka_unit_test(test_scale_is_exact),
        cmocka_unit_test(test_patterns_in_half), cmocka_unit_test(test_random_patterns),
        cmocka_unit_test(test_underflow),        TEST_ON(test_patterns, "cpu"),
        TEST_ON(test_patterns, "opencl"),        TEST_ON(test_patterns, "vulkan"),
    };
    return cmocka_run_group_tests_name("scaler", tests, NULL, NULL);
}
