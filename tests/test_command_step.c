/* SPDX-License-Identifier: Apache-2.0 */
/* test_command_step.c - the flags of `tern train` that shape a step, as users see them. cpu backend. */
#include <stdlib.h>

#include "tests/command.h"
#include "tests/test.h"

#include "core/train/schedule.h"

#define SMALL                                                                                                          \
    "train --backend cpu --threads 1 --layers 1 --width 16 --heads 2 --context 16 --batch 2 --warmup 3 "               \
    "--data " TERN_SOURCE_DIR "/LICENSE --val-split 0 --log-every 1 --json "

static void test_accumulate(void **state)
{
    (void)state;
    const command_result *r = command_run(SMALL "--steps 3 --accumulate 3");
    assert_int_equal(r->code, 0);
    for (int i = 0; i < 3; i++) assert_true(command_number(r->out, i, "tokens") == 96.0 * (i + 1));
    assert_non_null(strstr(r->err, "step    96 tokens: 3 micro-batches of 2 windows of 16"));
    const double loss = command_number(r->out, 0, "loss");
    /* the same three micro-batches as one batch of 6 */
    r = command_run(SMALL "--steps 1 --batch 6");
    TEST_NEAR(command_number(r->out, 0, "loss"), loss, 1e-6 * loss);
    r = command_run(SMALL "--steps 2 --batch-tokens 100"); /* 32 per micro-batch: rounded up */
    assert_int_equal(r->code, 0);
    assert_true(command_number(r->out, 0, "tokens") == 128);
    assert_non_null(strstr(r->err, "4 micro-batches of 2 windows"));
    r = command_run(SMALL "--steps 2 --batch-tokens 32");
    assert_true(command_number(r->out, 0, "tokens") == 32);
    command_refuses(SMALL "--accumulate 2 --batch-tokens 64", 2, "say the same thing");
    command_refuses(SMALL "--batch-tokens 1000000000000000", 2, "micro-batches of 2 windows; at most");
}

/* The rate of step k is schedule(k), whatever a step is made of. */
static void test_rates(void **state)
{
    (void)state;
    enum { STEPS = 12 };
    for (int kind = 0; kind < TERN_SCHEDULE_COUNT; kind++)
        for (int accumulate = 1; accumulate <= 3; accumulate += 2) {
            const tern_schedule s = {
                .lr = 0.01, .min_lr = 0.002, .warmup = 3, .steps = STEPS, .kind = kind, .decay = 0.5};
            const command_result *r = command_runf(
                SMALL "--steps %d --lr 0.01 --min-lr 0.002 --schedule %s --schedule-decay 0.5 --accumulate %d", STEPS,
                tern_schedules[kind].name, accumulate);
            assert_int_equal(r->code, 0);
            for (int k = 0; k < STEPS; k++)
                TEST_NEAR(command_number(r->out, k, "lr"), tern_schedule_lr(&s, (uint64_t)k), 1e-12);
        }
    command_refuses(SMALL "--schedule step", 2, "the schedules are cosine, constant, linear, wsd");
}

static void test_loss_scale(void **state)
{
    (void)state;
    double loss[3];
    static const char *const scales[] = {"1", "1024", "dynamic"};
    static const double values[] = {1, 1024, 4096};
    for (int i = 0; i < 3; i++) {
        const command_result *r = command_runf(SMALL "--steps 5 --loss-scale %s", scales[i]);
        assert_int_equal(r->code, 0);
        assert_true(command_number(r->out, 4, "loss_scale") == values[i]);
        assert_true((strstr(r->err, "scale 2^12") != NULL) == (i == 2));
        loss[i] = command_number(r->out, 4, "loss");
        assert_true(loss[i] == loss[0]); /* powers of two change no digit */
    }
    command_refuses(SMALL "--loss-scale 1000", 2, "the loss scale is 1000; it must be a power of two");
    command_refuses(SMALL "--loss-scale big", 2, "--loss-scale is big");
    command_refuses(SMALL "--skip-outliers 0.5", 2, "threshold is 0.5");
}

/* Steps that are not finite any more: the run stops, names the tensor and says how to see it again. */
static void test_max_skips(void **state)
{
    (void)state;
    const command_result *r =
        command_run(SMALL "--steps 5000 --lr 1000 --min-lr 1000 --warmup 0 --clip 0 --accumulate 2 --max-skips 4");
    assert_int_equal(r->code, 1);
    static const char *const said[] = {"tern: the last 4 steps, up to step ", "were not finite; the run stops",
                                       "tern: to see it again: tern train --backend cpu --threads 1 --layers 1",
                                       " --max-skips 4\n"};
    for (size_t i = 0; i < sizeof said / sizeof *said; i++)
        if (!strstr(r->err, said[i])) fail_msg("train did not say \"%s\": %s", said[i], r->err);
    /* A tensor, or the norm, which is the sum of more squares; which it is hangs on the last digits. */
    assert_true(strstr(r->err, "tern: the first tensor that is not finite is \"") ||
                strstr(r->err, "tensors is finite, so a sum over the step overflowed"));
    assert_true(command_number(r->out, -1, "steps") < 5000);
    assert_non_null(strstr(r->out, "\"diverged\":true"));
}

/* The line that repeats it is one that works: the folder that the run was saved into is not in it. */
static void test_repeat_line(void **state)
{
    (void)state;
    char folder[] = "/tmp/tern-stuck-XXXXXX", line[1024];
    assert_non_null(mkdtemp(folder));
    const command_result *r = command_runf(
        SMALL "--steps 5000 --lr 1000 --min-lr 1000 --warmup 0 --clip 0 --out %s/run --max-skips 4", folder);
    assert_int_equal(r->code, 1);
    const char *said = strstr(r->err, "tern: to see it again: tern ");
    assert_non_null(said);
    said += strlen("tern: to see it again: tern ");
    snprintf(line, sizeof line, "%.*s", (int)strcspn(said, "\n"), said);
    assert_null(strstr(line, "--out"));
    r = command_run(line);
    assert_int_equal(r->code, 1);
    assert_non_null(strstr(r->err, "were not finite; the run stops"));
    snprintf(line, sizeof line, "rm -r %s", folder);
    assert_int_equal(system(line), 0);
}

static void test_outliers(void **state)
{
    (void)state;
    const command_result *r = command_run(SMALL "--steps 80 --skip-outliers 1 --clip-value 0.01");
    assert_int_equal(r->code, 0);
    assert_true(command_number(r->out, 79, "outliers") >= 1); /* one deviation is not much */
    assert_true(command_number(r->out, 79, "skips") == 0);
    assert_non_null(strstr(r->err, "SKIPPED: the gradient's norm is an outlier"));
}

static void test_calibrate_refusals(void **state)
{
    (void)state;
    command_refuses(SMALL "--calibrate 2", 1, "this run is f32");
    command_refuses(SMALL "--calibrate-limit 0.1", 2, "give --calibrate N");
    command_refuses(SMALL "--calibrate 2 --calibrate-stop", 2, "give --calibrate-limit X");
}

/* In half precision: the same training with and without, and off by little. */
static void test_calibrate(void **state)
{
    (void)state;
    const command_result *r = command_run(SMALL "--steps 6 --accumulate 2 --precision bf16");
    assert_int_equal(r->code, 0);
    const double loss = command_number(r->out, 5, "loss");
    r = command_run(SMALL "--steps 6 --accumulate 2 --precision bf16 --calibrate 3 --calibrate-limit 0.5");
    assert_int_equal(r->code, 0);
    assert_true(command_number(r->out, 5, "loss") == loss);
    for (int i = 0; i < 6; i++) {
        const bool due = i % 3 == 0;
        assert_true(isnan(command_number(r->out, i, "loss_off")) == !due);
        if (!due) continue;
        assert_true(command_number(r->out, i, "loss_off") < 0.01 && command_number(r->out, i, "grad_norm_off") < 0.05);
        assert_true(command_number(r->out, i, "f32_loss") > 0 && command_number(r->out, i, "f32_grad_norm") > 0);
    }
    assert_non_null(strstr(r->err, "calibration of step 1: loss "));
    assert_non_null(strstr(r->err, "calibration of step 4: loss "));
    assert_null(strstr(r->err, "--calibrate-limit"));
    r = command_run(SMALL "--steps 50 --precision f16 --calibrate 2 --calibrate-limit 1e-9");
    assert_int_equal(r->code, 0);
    assert_non_null(strstr(r->err, "tern: step 1 is further from f32 than --calibrate-limit 1e-09; lower --lr"));
    assert_non_null(strstr(r->err, "  scale 2^12  skips 0"));
    assert_true(command_number(r->out, 0, "loss_scale") == 4096);
    r = command_run(SMALL "--steps 50 --precision f16 --calibrate 2 --calibrate-limit 1e-9 --calibrate-stop");
    assert_int_equal(r->code, 1);
    assert_non_null(strstr(r->err, "the run stops and is saved"));
    assert_true(command_number(r->out, -1, "steps") < 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accumulate),         cmocka_unit_test(test_rates),
        cmocka_unit_test(test_loss_scale),         cmocka_unit_test(test_max_skips),
        cmocka_unit_test(test_repeat_line),        cmocka_unit_test(test_outliers),
        cmocka_unit_test(test_calibrate_refusals), cmocka_unit_test(test_calibrate),
    };
    return cmocka_run_group_tests_name("command_step", tests, NULL, NULL);
}
