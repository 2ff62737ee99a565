/* SPDX-License-Identifier: Apache-2.0 */
/* test_checkpoint.c - everything that a stepper is comes back from a folder: slabs and states of every precision and
 * optimizer, from inside a window and between two; and another precision goes on from f32 masters.
 *
 *     a: n micro-batches ── save ── m more ─────────────────────> same bytes
 *     b:                      └─── restore: same bytes ── m more ──┘
 *
 * What it is not: files that are damaged or too many are test_checkpoints.c's. On the cpu. No GPU. */
#include "core/passes/accumulate.h"
#include "core/train/checkpoint.h"
#include "tests/resume_fixture.h"
#include "tests/test.h"
#include "tests/toy_model.h"
#include "tests/train_fixture.h"

#include <stdlib.h>

enum { BATCH = 4, WINDOW = 3, BEFORE = 10, AFTER = 8 };

static const toy_model model = {.dropout = 0.25, .running = true};
static tern_device *cpu;

/* Micro-batch number `number` of the training, with updates where windows end. */
static void train(toy_run *run, uint32_t from, uint32_t to)
{
    toy_batch batch;
    tern_step_report report;
    toy_batch_create(&batch, BATCH);
    for (uint32_t number = from; number < to; number++) {
        uint32_t seed = number * 2654435761u + 1;
        for (int i = 0; i < BATCH * TOY_IN; i++) batch.x[i] = (float)((seed = seed * 69069u + 1) >> 8) * 0x1p-23f - 1;
        for (int i = 0; i < BATCH * TOY_OUT; i++) batch.y[i] = (float)((seed = seed * 69069u + 1) >> 8) * 0x1p-23f - 1;
        for (int i = 0; i < BATCH; i++) batch.weight[i] = (float)((i + (int)number) % 3); /* some are 0 */
        TEST_OK(toy_micro(run, &batch, number % WINDOW * BATCH));
        if (number % WINDOW == WINDOW - 1) TEST_OK(tern_stepper_update(run->stepper, 1e-2, &report));
    }
    TEST_OK(tern_stepper_finish(run->stepper, &report));
    toy_batch_finish(&batch);
}

static void expect_same(toy_run *a, toy_run *b, const char *when)
{
    uint64_t bytes_a = 0, bytes_b = 0;
    unsigned char *x = toy_read_all(a, &bytes_a), *y = toy_read_all(b, &bytes_b);
    assert_int_equal(bytes_a, bytes_b);
    assert_true(bytes_a > 0);
    for (uint64_t i = 0; i < bytes_a; i++)
        if (x[i] != y[i]) fail_msg("%s: byte %llu of all differs", when, (unsigned long long)i);
    free(x);
    free(y);
}

static tern_checkpoint *save_and_open(toy_run *run, const char *name)
{
    tern_checkpoint *checkpoint = NULL;
    cJSON *facts = cJSON_CreateObject();
    assert_true(tern_facts_add_setup(facts, &run->setup->options));
    const tern_checkpoint_content content = {.facts = facts, .val_loss = NAN};
    const char *path = resume_path(name);
    TEST_OK(tern_checkpoint_save(run->stepper, path, &content));
    cJSON_Delete(facts);
    TEST_OK(tern_checkpoint_open(path, &checkpoint));
    return checkpoint;
}

/* ------------------------------------------------------------------ same bits */

static const struct {
    const char *name;
    tern_optimizer_kind kind;
    int32_t precision;
    bool no_masters, eight_bit;
    double outlier;
} kinds[] = {
    {"adamw-f32", TERN_OPTIMIZER_ADAMW, TERN_F32, false, false, 0},
    {"adamw-outliers", TERN_OPTIMIZER_ADAMW, TERN_F32, false, false, 3},
    {"adamw-8bit", TERN_OPTIMIZER_ADAMW, TERN_F32, false, true, 0},
    {"adamw-f16", TERN_OPTIMIZER_ADAMW, TERN_F16, false, false, 0},
    {"adamw-bf16", TERN_OPTIMIZER_ADAMW, TERN_BF16, false, false, 0},
    {"adamw-bf16-alone-8bit", TERN_OPTIMIZER_ADAMW, TERN_BF16, true, true, 0},
    {"sgd", TERN_OPTIMIZER_SGD, TERN_F32, false, false, 0},
    {"lion-8bit", TERN_OPTIMIZER_LION, TERN_F16, false, true, 0},
    {"adafactor", TERN_OPTIMIZER_ADAFACTOR, TERN_F32, false, false, 0},
    {"muon", TERN_OPTIMIZER_MUON, TERN_F32, false, false, 0},
    {"muon-bf16-alone", TERN_OPTIMIZER_MUON, TERN_BF16, true, false, 0},
};

static tern_setup_options options_of(size_t i)
{
    tern_setup_options o = toy_options(&model, BATCH);
    tern_optimizer_init(&o.optimizer, kinds[i].kind);
    o.optimizer.eight_bit = kinds[i].eight_bit;
    o.precision = kinds[i].precision;
    o.no_masters = kinds[i].no_masters;
    o.update.outlier.z = kinds[i].outlier;
    o.update.outlier.warmup = 2;
    o.update.scale.growth_interval = 2; /* so that a dynamic scale moves */
    return o;
}

static void test_kind(size_t i, uint32_t before)
{
    char name[64], why[256];
    const tern_setup_options options = options_of(i);
    tern_step_position at;
    toy_run a, b;
    snprintf(name, sizeof name, "%s-%u", kinds[i].name, before);
    toy_start(&a, cpu, &options);
    toy_start(&b, cpu, &options);
    train(&a, 0, before);
    train(&b, 0, 2); /* a stepper that has done something else meanwhile */
    tern_checkpoint *checkpoint = save_and_open(&a, name);
    assert_int_equal(checkpoint->position.attempt, before / WINDOW);
    assert_int_equal(checkpoint->position.micros, before % WINDOW);
    TEST_OK(tern_checkpoint_restore(checkpoint, b.stepper));
    if (!tern_checkpoint_is_exact(checkpoint, b.setup, why, sizeof why)) fail_msg("%s: %s", name, why);
    expect_same(&a, &b, name);
    tern_stepper_get_position(b.stepper, &at);
    assert_true(at.seed == 3 && at.attempt == before / WINDOW && at.micros == before % WINDOW);
    train(&a, before, before + AFTER);
    train(&b, before, before + AFTER);
    expect_same(&a, &b, name);
    tern_checkpoint_close(checkpoint);
    toy_stop(&a);
    toy_stop(&b);
}

static void test_every_kind(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        test_kind(i, BEFORE);                   /* inside a window */
        test_kind(i, BEFORE - BEFORE % WINDOW); /* between two */
    }
    test_kind(0, 0); /* before the first */
}

/* ----------------------------------------------------------------- other bits */

static float scale_of(toy_run *run)
{
    float scale;
    TEST_OK(tern_store_read(tern_stepper_store(run->stepper), TERN_STATE_SCALE, &scale, sizeof scale));
    return scale;
}

/* From row `from` to row `to`: weights are the same, the loss scale is the new precision's between windows and the
 * sums' own inside one, training goes on, and it is said. */
static void change_precision(size_t from, size_t to, uint32_t before, double new_scale)
{
    char name[64], why[256];
    uint64_t bytes;
    const tern_setup_options old = options_of(from), new = options_of(to);
    toy_run a, b;
    snprintf(name, sizeof name, "change-%zu-%zu-%u", from, to, before);
    toy_start(&a, cpu, &old);
    toy_start(&b, cpu, &new);
    train(&a, 0, before);
    tern_checkpoint *checkpoint = save_and_open(&a, name);
    TEST_OK(tern_checkpoint_restore(checkpoint, b.stepper));
    assert_false(tern_checkpoint_is_exact(checkpoint, b.setup, why, sizeof why));
    if (!strstr(why, "the precision was ")) fail_msg("%s: %s", name, why);
    float *x = toy_read(&a, "up.weight", &bytes), *y = toy_read(&b, "up.weight", &bytes);
    assert_memory_equal(x, y, bytes);
    assert_true(scale_of(&b) == (float)(before % WINDOW > 0 ? scale_of(&a) : new_scale));
    train(&b, before, before + AFTER);
    free(y);
    y = toy_read(&b, "up.weight", &bytes);
    double moved = 0;
    for (uint64_t i = 0; i < bytes / 4; i++) moved += fabs((double)x[i] - (double)y[i]);
    assert_true(moved > 0 && isfinite(moved)); /* windows were applied */
    free(x);
    free(y);
    tern_checkpoint_close(checkpoint);
    toy_stop(&a);
    toy_stop(&b);
}

static void test_other_precision(void **state)
{
    (void)state;
    for (uint32_t before = 6; before <= 7; before++) {
        change_precision(0, 3, before, 4096); /* f32 to f16, whose scale is dynamic */
        change_precision(3, 0, before, 1);    /* and back */
        change_precision(3, 4, before, 1);    /* f16 to bf16 */
    }
}

/* A static scale is a setting: the new one holds between windows, the sums' own inside one. */
static void test_other_static_scale(void **state)
{
    (void)state;
    for (uint32_t before = 6; before <= 7; before++) {
        char name[32];
        toy_run a, b;
        tern_setup_options old = options_of(4), new = options_of(4);
        old.update.scale = (tern_scale_options){.mode = TERN_SCALE_STATIC, .initial = 16};
        new.update.scale = (tern_scale_options){.mode = TERN_SCALE_STATIC, .initial = 2};
        snprintf(name, sizeof name, "static-%u", before);
        toy_start(&a, cpu, &old);
        toy_start(&b, cpu, &new);
        train(&a, 0, before);
        tern_checkpoint *checkpoint = save_and_open(&a, name);
        TEST_OK(tern_checkpoint_restore(checkpoint, b.stepper));
        assert_true(scale_of(&b) == (before % WINDOW > 0 ? 16 : 2));
        tern_checkpoint_close(checkpoint);
        toy_stop(&a);
        toy_stop(&b);
    }
}

/* What does not fit is named. */
static void test_does_not_fit(void **state)
{
    (void)state;
    const toy_model other_model = {.dropout = 0.25};
    const tern_setup_options options = options_of(0), sgd = options_of(6), codes = options_of(2);
    const tern_setup_options smaller = toy_options(&other_model, BATCH);
    toy_run a, b;
    toy_start(&a, cpu, &options);
    tern_checkpoint *checkpoint = save_and_open(&a, "misfit");
    toy_stop(&a);
    toy_start(&b, cpu, &codes);
    TEST_ERROR(tern_checkpoint_restore(checkpoint, b.stepper), TERN_ERROR_INVALID, "tensor \"m.");
    toy_stop(&b);
    tern_checkpoint_close(checkpoint);
    toy_start(&a, cpu, &sgd);
    checkpoint = save_and_open(&a, "misfit-sgd");
    toy_stop(&a);
    toy_start(&b, cpu, &options);
    TEST_ERROR(tern_checkpoint_restore(checkpoint, b.stepper), TERN_ERROR_INVALID, "holds no tensor \"v.");
    toy_stop(&b);
    tern_checkpoint_close(checkpoint);
    toy_start(&a, cpu, &smaller); /* without the running statistic */
    checkpoint = save_and_open(&a, "misfit-state");
    toy_stop(&a);
    toy_start(&b, cpu, &options);
    TEST_ERROR(tern_checkpoint_restore(checkpoint, b.stepper), TERN_ERROR_INVALID, "holds no tensor \"state.");
    toy_stop(&b);
    tern_checkpoint_close(checkpoint);
}

/* --------------------------------------------------------------------- faults */

/* Every call of the driver fails once, while a checkpoint is made and while one is restored: the status comes back, no
 * folder, half or whole, is left by the save that failed, and nothing leaks. */
static void test_every_failure(void **state)
{
    (void)state;
    const tern_setup_options options = options_of(3);
    tern_device *device = test_open_device("null", 0);
    const tern_null_hooks *hooks = test_null_hooks(device);
    const tern_checkpoint_content content = {.val_loss = NAN};
    tern_checkpoint *checkpoint = NULL;
    tern_null_counts before, after;
    uint64_t saves = 0, restores = 0;
    char good[128], bad[128], command[512];
    toy_run run;
    snprintf(good, sizeof good, "%s", resume_path("fault-good"));
    snprintf(bad, sizeof bad, "%s", resume_path("fault"));
    snprintf(command, sizeof command, "test -z \"$(ls -A %s | grep -E '^(fault|[.]new-.*)$')\"", resume_folder);
    toy_start(&run, device, &options);
    TEST_OK(tern_checkpoint_save(run.stepper, good, &content));
    hooks->counts(&before);
    for (tern_status status = TERN_ERROR_DRIVER; status < 0; saves++) {
        hooks->fail_call(saves + 1, TERN_ERROR_DRIVER);
        status = tern_checkpoint_save(run.stepper, bad, &content);
        hooks->fail_call(0, TERN_OK);
        if (status >= 0) break;
        assert_int_equal(status, TERN_ERROR_DRIVER);
        assert_int_equal(system(command), 0);
        assert_true(saves < 1000);
    }
    TEST_OK(tern_checkpoint_open(good, &checkpoint));
    for (tern_status status = TERN_ERROR_DRIVER; status < 0; restores++) {
        hooks->fail_call(restores + 1, TERN_ERROR_DRIVER);
        status = tern_checkpoint_restore(checkpoint, run.stepper);
        hooks->fail_call(0, TERN_OK);
        if (status >= 0) break;
        assert_int_equal(status, TERN_ERROR_DRIVER);
        assert_true(restores < 1000);
    }
    tern_checkpoint_close(checkpoint);
    assert_true(saves > 5 && restores > 5);
    hooks->counts(&after);
    assert_int_equal(after.buffers, before.buffers);
    assert_int_equal(after.bytes, before.bytes);
    toy_stop(&run);
    tern_device_close(device);
}

static int set_up(void **state)
{
    cpu = test_open_device("cpu", 2);
    return resume_set_up(state);
}

static int tear_down(void **state)
{
    tern_device_close(cpu);
    return resume_tear_down(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind),         cmocka_unit_test(test_other_precision),
        cmocka_unit_test(test_other_static_scale), cmocka_unit_test(test_does_not_fit),
        cmocka_unit_test(test_every_failure),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
