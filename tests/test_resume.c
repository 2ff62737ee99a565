/* SPDX-License-Identifier: Apache-2.0 */
/* test_resume.c - a run that was stopped, wherever, goes on to the bits of one that was not.
 *
 * On the cpu at every place of a short run; on opencl and vulkan at one inside a step; from one backend to another
 * within tolerance. No GPU. */
#include "core/train/text_trainer_internal.h"
#include "tests/resume_fixture.h"
#include "tests/test.h"
#include "tests/train_fixture.h"

#define STEPS  6u
#define MICROS (STEPS * RESUME_ACCUMULATE)

/* Next of a small generator, below `most`. */
static uint32_t draw(uint32_t *state, uint32_t most)
{
    *state = *state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)*state * most >> 32);
}

/* The undisturbed run of STEPS, saved as `name`. */
static void run_whole(tern_device *device, const char *name)
{
    const tern_text_options options = resume_options(STEPS);
    tern_text_trainer *trainer = resume_start(device, &options);
    resume_advance(trainer, MICROS);
    resume_save(trainer, name);
    tern_text_trainer_destroy(trainer);
}

/* Stopped after `at` micro-batches, gone on with by another trainer; the end saved as `name`. */
static void run_in_two(tern_device *device, uint32_t at, const char *name)
{
    tern_text_info info;
    const tern_text_options options = resume_options(STEPS);
    tern_text_trainer *trainer = resume_start(device, &options);
    resume_advance(trainer, at);
    const char *run = resume_save(trainer, name);
    resume_advance(trainer, MICROS - at > 2 ? 2 : 1); /* what comes after the checkpoint is lost */
    tern_text_trainer_destroy(trainer);

    trainer = resume_continue(device, &options, run);
    tern_text_trainer_info(trainer, &info);
    assert_int_equal(info.steps_done, at / RESUME_ACCUMULATE);
    assert_int_equal(info.micros_done, at % RESUME_ACCUMULATE);
    assert_string_equal(info.tolerance, "");
    resume_advance(trainer, MICROS - at);
    resume_save(trainer, name);
    tern_text_trainer_destroy(trainer);
}

static void test_every_place(void **state)
{
    (void)state;
    tern_device *device = test_open_device("cpu", 1);
    run_whole(device, "whole");
    for (uint32_t at = 1; at < MICROS; at++) {
        char name[32];
        snprintf(name, sizeof name, "at%u", at);
        run_in_two(device, at, name);
        resume_expect_equal(resume_path(name), resume_path("whole"));
    }
    tern_device_close(device);
}

/* Stopped again and again, at places drawn; the number of threads is another each time. */
static void test_many_stops(void **state)
{
    (void)state;
    uint32_t seed = 2024, done = 0, sessions = 0;
    const tern_text_options options = resume_options(STEPS);
    while (done < MICROS) {
        tern_device *device = test_open_device("cpu", 1 + draw(&seed, 3));
        tern_text_trainer *trainer =
            done ? resume_continue(device, &options, resume_path("many")) : resume_start(device, &options);
        const uint32_t some = 1 + draw(&seed, 4), micros = some < MICROS - done ? some : MICROS - done;
        resume_advance(trainer, micros);
        done += micros;
        resume_save(trainer, "many");
        tern_text_trainer_destroy(trainer);
        tern_device_close(device);
        sessions++;
    }
    assert_true(sessions >= 4);
    resume_expect_equal(resume_path("many"), resume_path("whole"));
}

/* On a software device, where there is one: to the bit from inside a step. */
static void test_backend(void **state)
{
    const char *backend = *state;
    char whole[32], halves[32];
    tern_device *device = NULL;
    if (tern_device_open(backend, &device) < 0) TEST_SKIP("%s", tern_error_message());
    snprintf(whole, sizeof whole, "%s-whole", backend);
    snprintf(halves, sizeof halves, "%s-halves", backend);
    run_whole(device, whole);
    run_in_two(device, 7, halves);
    resume_expect_equal(resume_path(halves), resume_path(whole));
    tern_device_close(device);
}

/* From the cpu to another backend and back, inside a step each time; both say why they are within tolerance only. */
static void test_other_backend(void **state)
{
    const char *backend = *state;
    char name[32], why[64];
    tern_text_info info;
    tern_device *other = NULL, *cpu = test_open_device("cpu", 2);
    const tern_text_options options = resume_options(STEPS);
    if (tern_device_open(backend, &other) < 0) {
        tern_device_close(cpu);
        TEST_SKIP("%s", tern_error_message());
    }
    snprintf(name, sizeof name, "over-%s", backend);
    snprintf(why, sizeof why, "the backend was cpu and is %s", backend);
    tern_text_trainer *trainer = resume_start(cpu, &options);
    resume_advance(trainer, 4);
    resume_save(trainer, name);
    tern_text_trainer_destroy(trainer);
    trainer = resume_continue(other, &options, resume_path(name));
    tern_text_trainer_info(trainer, &info);
    assert_string_equal(info.tolerance, why);
    resume_advance(trainer, 7);
    resume_save(trainer, name);
    tern_text_trainer_destroy(trainer);
    trainer = resume_continue(cpu, &options, resume_path(name));
    tern_text_trainer_info(trainer, &info);
    assert_non_null(strstr(info.tolerance, "and is cpu"));
    resume_advance(trainer, MICROS - 11);
    resume_save(trainer, name);
    tern_text_trainer_destroy(trainer);
    const double distance = resume_distance(resume_path(name), resume_path("whole"));
    if (!(distance <= 1e-3)) fail_msg("the weights are %g of their norm away", distance);
    tern_device_close(other);
    tern_device_close(cpu);
}

/* ------------------------------------------------------------- data, schedule */

/* A checkpoint exactly at the end of an epoch: the next one is whole, every window of it once. */
static void test_end_of_epoch(void **state)
{
    (void)state;
    tern_device *device = test_open_device("cpu", 1);
    tern_text_options options = resume_options(1000);
    tern_text_trainer *trainer = resume_start(device, &options);
    const uint64_t windows = trainer->data.windows;
    const uint32_t per_step = RESUME_ACCUMULATE * options.model.batch;
    assert_true(windows > 3 * per_step);
    options.accumulate = 1; /* so that steps end where the epoch does */
    options.model.batch = windows % 2 == 0 ? 2 : 1;
    tern_text_trainer_destroy(trainer);
    const uint32_t micros = (uint32_t)(windows / options.model.batch);

    trainer = resume_start(device, &options);
    resume_advance(trainer, micros);
    assert_int_equal(trainer->sample, windows);
    const char *run = resume_save(trainer, "epoch");
    resume_advance(trainer, micros); /* undisturbed */
    resume_save(trainer, "epochs");
    tern_text_trainer_destroy(trainer);

    trainer = resume_continue(device, &options, run);
    bool *seen = test_calloc(windows, sizeof *seen);
    const uint64_t shift = tern_data_window(&trainer->data, windows) % options.model.context;
    for (uint64_t i = 0; i < windows; i++) {
        const uint64_t start = tern_data_window(&trainer->data, trainer->sample + i);
        const uint64_t first = start % options.model.context;
        assert_int_equal(first, shift); /* one epoch's windows lie on one grid */
        bool *mine = &seen[(start / options.model.context) % windows];
        assert_false(*mine);
        *mine = true;
    }
    test_free(seen);
    const tern_batch *batch = NULL;
    TEST_OK(tern_loader_next(trainer->loader, &batch));
    assert_int_equal(batch->sample, windows); /* the first of the next epoch, not the last of this one again */
    tern_text_trainer_destroy(trainer);

    trainer = resume_continue(device, &options, run);
    resume_advance(trainer, micros);
    resume_save(trainer, "epoch");
    tern_text_trainer_destroy(trainer);
    resume_expect_equal(resume_path("epoch"), resume_path("epochs"));
    tern_device_close(device);
}

/* Every report's learning rate is the schedule's, resumed or not, also beyond its horizon. */
static void expect_rates(tern_text_trainer *trainer, const tern_schedule *schedule, uint64_t from, uint64_t to)
{
    tern_step_report report;
    for (uint64_t step = from; step < to; step++) {
        TEST_OK(tern_text_trainer_step(trainer, &report));
        assert_int_equal(report.valid, step > from); /* nothing of the session before */
        TEST_OK(tern_text_trainer_finish(trainer, &report));
        assert_int_equal(report.attempt, step);
        assert_true(report.lr == tern_schedule_lr(schedule, step));
        assert_int_equal(report.good_steps, step + 1);
    }
}

static void test_schedule(void **state)
{
    (void)state;
    tern_device *device = test_open_device("cpu", 1);
    tern_text_info info;
    tern_text_options options = resume_options(8), longer = resume_options(20);
    const tern_text_resume settings = {.new_settings = true};
    tern_text_trainer *trainer = resume_start(device, &options);
    expect_rates(trainer, &options.schedule, 0, 4);
    const char *run = resume_save(trainer, "rates");
    tern_text_trainer_destroy(trainer);

    longer.schedule.warmup = 9; /* a default that follows --steps */
    trainer = resume_continue(device, &longer, run);
    tern_text_trainer_info(trainer, &info);
    assert_int_equal(info.horizon, 8);
    expect_rates(trainer, &options.schedule, 4, 12); /* beyond the horizon, too */
    tern_text_trainer_destroy(trainer);

    longer.resume = &settings;
    longer.schedule.lr = 5e-3;
    trainer = resume_continue(device, &longer, run);
    tern_text_trainer_info(trainer, &info);
    assert_int_equal(info.horizon, 20);
    assert_string_equal(info.tolerance, "");
    expect_rates(trainer, &longer.schedule, 4, 12);
    tern_text_trainer_destroy(trainer);
    tern_device_close(device);
}

/* ------------------------------------------------------------------ refusals */

static void change_layers(tern_text_options *o)
{
    (void)o;
    resume_shape.layers = 2;
}

static void change_heads(tern_text_options *o)
{
    (void)o;
    resume_shape.heads = 4;
}

static void change_dropout(tern_text_options *o)
{
    (void)o;
    resume_shape.dropout = 0.1;
}

static void change_batch(tern_text_options *o) { o->model.batch = 4; }
static void change_accumulate(tern_text_options *o) { o->accumulate = 2; }
static void change_seed(tern_text_options *o) { o->seed = 8; }
static void change_split(tern_text_options *o) { o->val_split = 0.25; }
static void change_lr(tern_text_options *o) { o->schedule.lr = 2e-2; }
static void change_kind(tern_text_options *o) { o->schedule.kind = TERN_SCHEDULE_LINEAR; }
static void change_warmup(tern_text_options *o) { o->schedule.warmup = 2; }
static void change_clip(tern_text_options *o) { o->update.clip = 3; }
static void change_decay(tern_text_options *o) { o->optimizer.weight_decay = 0; }
static void change_scale(tern_text_options *o)
{
    o->update.scale.mode = TERN_SCALE_STATIC;
    o->update.scale.initial = 8;
}

static void change_optimizer(tern_text_options *o) { tern_optimizer_init(&o->optimizer, TERN_OPTIMIZER_LION); }

static const struct {
    void (*change)(tern_text_options *);
    const char *sentence;
    bool data, settings; /* which permission lifts it */
} changes[] = {
    {change_layers, "was trained with the model's n_layer 1, but now it is 2", false, false},
    {change_heads, "was trained with the model's n_head 2, but now it is 4", false, false},
    {change_dropout, "was trained with the model's resid_pdrop 0.2, but now it is 0.1", false, false},
    {change_batch, "was trained with batch 2, but now it is 4", false, false},
    {change_accumulate, "was trained with accumulate 3, but now it is 2", false, false},
    {change_seed, "was trained with seed 7, but now it is 8", false, false},
    {change_split, "was trained with data val_split 0.1, but now it is 0.25", true, false},
    {change_lr, "was trained with schedule lr 0.01, but now it is 0.02", false, true},
    {change_kind, "was trained with schedule kind \"cosine\", but now it is \"linear\"", false, true},
    {change_warmup, "was trained with schedule warmup 3, but now it is 2", false, true},
    {change_clip, "was trained with clip 1, but now it is 3", false, true},
    {change_decay, "was trained with weight_decay 0.1, but now it is 0", false, true},
    {change_scale, "was trained with scale_mode 0, but now it is 1", false, true},
    {change_optimizer, "was trained with optimizer kind \"adamw\", but now it is \"lion\"", false, false},
};

static tern_status try_change(tern_device *device, size_t i, const tern_text_resume *resume)
{
    tern_text_options o = resume_options(STEPS);
    tern_text_trainer *trainer = NULL;
    o.resume = resume;
    changes[i].change(&o);
    const tern_status status = tern_text_trainer_create(device, &o, &trainer);
    tern_text_trainer_destroy(trainer);
    return status;
}

static void test_changes_are_refused(void **state)
{
    (void)state;
    tern_device *device = test_open_device("cpu", 1);
    tern_checkpoint *checkpoint = NULL;
    TEST_OK(tern_checkpoints_open(resume_path("whole"), &checkpoint));
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        tern_text_resume resume = {.checkpoint = checkpoint};
        TEST_ERROR(try_change(device, i, &resume), TERN_ERROR_INVALID, changes[i].sentence);
        assert_non_null(strstr(tern_error_message(), checkpoint->folder));
        resume.allow_other_data = !changes[i].data; /* all that does not concern it */
        resume.new_settings = !changes[i].settings;
        assert_int_equal(try_change(device, i, &resume), TERN_ERROR_INVALID);
        resume.allow_other_data = changes[i].data;
        resume.new_settings = changes[i].settings;
        if (changes[i].data || changes[i].settings) TEST_OK(try_change(device, i, &resume));
    }
    tern_checkpoint_close(checkpoint);
    tern_device_close(device);
}

static void test_other_text(void **state)
{
    (void)state;
    char other[160];
    const char *path = other;
    tern_device *device = test_open_device("cpu", 1);
    tern_text_options o = resume_options(STEPS);
    tern_text_trainer *trainer = NULL;
    tern_checkpoint *checkpoint = NULL;
    snprintf(other, sizeof other, "%s/other.txt", resume_folder);
    FILE *file = fopen(other, "w");
    assert_non_null(file);
    for (int i = 0; i < 500; i++) fprintf(file, "something else, %d\n", i);
    assert_int_equal(fclose(file), 0);
    TEST_OK(tern_checkpoints_open(resume_path("whole"), &checkpoint));
    tern_text_resume resume = {.checkpoint = checkpoint};
    o.data_paths = &path;
    o.resume = &resume;
    TEST_ERROR(tern_text_trainer_create(device, &o, &trainer), TERN_ERROR_INVALID, "data fingerprint \"");
    resume.allow_other_data = true;
    TEST_OK(tern_text_trainer_create(device, &o, &trainer));
    assert_int_equal(trainer->sample, MICROS * o.model.batch);
    resume_advance(trainer, 4);
    tern_text_trainer_destroy(trainer);
    tern_checkpoint_close(checkpoint);
    tern_device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_place),
        cmocka_unit_test(test_many_stops),
        TEST_ON(test_backend, "vulkan"),
        TEST_ON(test_backend, "opencl"),
        TEST_ON(test_other_backend, "vulkan"),
        TEST_ON(test_other_backend, "opencl"),
        cmocka_unit_test(test_end_of_epoch),
        cmocka_unit_test(test_schedule),
        cmocka_unit_test(test_changes_are_refused),
        cmocka_unit_test(test_other_text),
    };
    return cmocka_run_group_tests(tests, resume_set_up, resume_tear_down);
}
