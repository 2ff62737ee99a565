/* SPDX-License-Identifier: Apache-2.0 */
/* test_trainer_faults.c - options and graphs that are refused; drivers whose calls fail one after another; what does
 * not grow. On null and cpu. */
#include <stdlib.h>
#include <unistd.h>

#include "core/train/trainer_internal.h"
#include "tests/test.h"
#include "tests/trainer_fixture.h"

static void test_refused_options(void **state)
{
    (void)state;
    tern_device *device = test_open_device("null", 0);
    tern_graph *graph = classifier_graph(BATCH, 0);
    tern_train_options good, o;
    struct {
        tern_train_options known;
        int64_t unknown;
    } newer;
    tern_trainer *trainer = NULL;
    tern_train_options_init(&good, sizeof good);
    const struct {
        size_t offset, bytes;
        double number;
        int64_t integer;
        const char *part;
    } cases[] = {
#define NUMBER(field, value, part) {offsetof(tern_train_options, field), sizeof good.field, value, 0, part}
#define INTEGER(field, value, part)                                                                                    \
    {                                                                                                                  \
        offsetof(tern_train_options, field), sizeof good.field, 0, value, part                                         \
    }
        NUMBER(lr, 0, "the learning rate 0"),
        NUMBER(lr, NAN, "the learning rate nan"),
        NUMBER(min_lr, 1, "its minimum 1"),
        NUMBER(beta1, 1, "beta1 is 1"),
        NUMBER(beta2, -1, "beta2 is -1"),
        NUMBER(weight_decay, -1, "weight decay is -1"),
        NUMBER(clip_norm, -1, "is -1"),
        NUMBER(clip_value, -1, "is -1"),
        NUMBER(schedule_decay, 2, "decay is 2"),
        NUMBER(loss_scale, 3, "is 3"),
        INTEGER(no_masters, 1, "masters"),
        INTEGER(accumulate, 0, "accumulate is 0"),
        INTEGER(accumulate, 1ll << 40, "accumulate is 1099511627776"),
        INTEGER(warmup, -1, "warmup is -1"),
        INTEGER(precision, 9, "precision 9"),
        INTEGER(struct_bytes, 0, "call tern_train_options_init"),
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        o = good;
        const void *value = cases[i].integer || !strcmp(cases[i].part, "accumulate is 0") || cases[i].bytes == 4
                                ? (const void *)&cases[i].integer
                                : (const void *)&cases[i].number;
        memcpy((char *)&o + cases[i].offset, value, cases[i].bytes);
        classifier_refused(device, graph, &o, TERN_ERROR_INVALID, cases[i].part);
    }
    o = good;
    o.optimizer = "magic";
    classifier_refused(device, graph, &o, TERN_ERROR_INVALID, "no optimizer is named \"magic\"");
    o = good;
    o.schedule = "magic";
    classifier_refused(device, graph, &o, TERN_ERROR_NOT_FOUND, "no schedule \"magic\"; the schedules are ");
    o.schedule = "constant";
    o.groups = "fc1.weight:frozen;nothing.*:lr=2";
    classifier_refused(device, graph, &o, TERN_ERROR_INVALID, "nothing.*");
    o.groups = "fc1.weight:magic";
    classifier_refused(device, graph, &o, TERN_ERROR_INVALID, "magic");
    o.groups = NULL;
    o.schedule = "cosine";
    classifier_refused(device, graph, &o, TERN_ERROR_INVALID, "the schedule \"cosine\" ends at steps, which is 0");
    classifier_refused(NULL, graph, &good, TERN_ERROR_INVALID, "the device is NULL");
    classifier_refused(device, NULL, &good, TERN_ERROR_INVALID, "the graph is NULL");
    /* a structure that has grown, and one from before it did */
    tern_train_options_init(&newer.known, sizeof newer);
    newer.known.steps = 0;
    newer.unknown = 0;
    TEST_OK(tern_trainer_create(device, graph, &newer.known, &trainer));
    tern_trainer_destroy(trainer);
    newer.unknown = 1;
    classifier_refused(device, graph, &newer.known, TERN_ERROR_UNSUPPORTED,
                       "use the header of the library that is loaded");
    memset(&o, 0xff, sizeof o);
    tern_train_options_init(&o, offsetof(tern_train_options, beta1));
    TEST_OK(tern_trainer_create(device, graph, &o, &trainer));
    tern_trainer_destroy(trainer);
    device->info.memory_free_bytes = 1000;
    classifier_refused(device, graph, NULL, TERN_ERROR_DEVICE_MEMORY, "that null has free");
    tern_graph_destroy(graph);
    tern_device_close(device);
}

static void test_refused_graphs(void **state)
{
    (void)state;
    tern_device *device = test_open_device("cpu", 1);
    tern_graph *graph = NULL;
    tern_trainer *trainer = NULL;
    float x[4] = {1, 2, 3, 4};
    TEST_OK(tern_graph_create(&graph));
    classifier_refused(device, graph, NULL, TERN_ERROR_INVALID, "has no loss");
    tern_tensor *a = tern_input_2d(graph, "a", TERN_F32, 4, 1), *b = tern_input_2d(graph, "b", TERN_F32, 3, 1);
    tern_loss(tern_linear(a, "l", 1), NULL);
    classifier_refused(device, graph, NULL, TERN_ERROR_INVALID, "has 3 examples, but \"a\" has 4");
    tern_add(a, b); /* the first error of the building comes as it is */
    classifier_refused(device, graph, NULL, TERN_ERROR_INVALID, "add");
    tern_graph_destroy(graph);
    /* a loss without an axis of examples: whole batches only */
    TEST_OK(tern_graph_create(&graph));
    tern_loss(tern_mean(tern_linear(tern_input_2d(graph, "a", TERN_F32, 4, 1), "l", 1), 0), NULL);
    TEST_OK(tern_trainer_create(device, graph, NULL, &trainer));
    const tern_feed feed = {"a", x, sizeof x};
    TEST_OK(tern_trainer_step(trainer, &feed, 1, 4, NULL));
    TEST_ERROR(tern_trainer_step(trainer, &feed, 1, 3, NULL), TERN_ERROR_INVALID, "3 of 4 examples were given");
    tern_trainer_destroy(trainer);
    tern_graph_destroy(graph);
    tern_device_close(device);
}

/* -------------------------------------------------------------------- faults */

static tern_status train_two(tern_device *device, tern_trainer **out)
{
    static float x[BATCH * WIDTH];
    static int32_t y[BATCH];
    const tern_feed feeds[] = {{"x", x, sizeof x}, {"y", y, sizeof y}};
    tern_graph *graph = classifier_graph(BATCH, 0.1);
    double loss;
    tern_status status = tern_trainer_create(device, graph, NULL, out);
    tern_graph_destroy(graph);
    for (int i = 0; i < 2 && status >= 0; i++) status = tern_trainer_step(*out, feeds, 2, BATCH, NULL);
    if (status >= 0) status = tern_trainer_evaluate(*out, feeds, 2, BATCH, &loss, NULL);
    if (status >= 0) status = tern_trainer_read(*out, "fc1.bias", TERN_F32, x, 64);
    if (status >= 0) status = tern_trainer_write(*out, "fc1.bias", TERN_F32, x, 64);
    return status;
}

/* Every call of the driver fails once: the status comes back, stays with the handle, and nothing is left. */
static void test_every_failure(void **state)
{
    (void)state;
    bool done = false;
    for (uint64_t call = 1; !done; call++) {
        tern_device *device = test_open_device("null", 0);
        const tern_null_hooks *hooks = test_null_hooks(device);
        const tern_status fault = call % 2 ? TERN_ERROR_DRIVER : TERN_ERROR_DEVICE_LOST;
        tern_trainer *trainer = NULL;
        tern_null_counts before, after;
        hooks->counts(&before);
        hooks->fail_call(call, fault);
        tern_status status = train_two(device, &trainer);
        hooks->fail_call(0, TERN_OK);
        done = status >= 0;
        if (!done) assert_int_equal(status, fault);
        if (!done && trainer) {
            TEST_ERROR(tern_trainer_finish(trainer, NULL), fault, "the trainer failed before");
            TEST_ERROR(tern_trainer_save(trainer, "/tmp/tern-none"), fault, "destroy it and make another");
            assert_int_not_equal(access("/tmp/tern-none", F_OK), 0);
        }
        tern_trainer_destroy(trainer);
        hooks->counts(&after);
        assert_int_equal(after.buffers, before.buffers);
        assert_int_equal(after.kernels, before.kernels);
        assert_int_equal(after.programs, before.programs);
        assert_int_equal(after.misuses, before.misuses);
        tern_device_close(device);
        assert_true(call < 2000);
    }
}

/* Each call of the driver fails once while a checkpoint is saved, then while one is restored: no half of one is left,
 * and what was saved before is still there to go on from. */
static void test_failures_around_files(void **state)
{
    (void)state;
    char folder[] = "/tmp/tern-faults-XXXXXX", command[160];
    assert_non_null(mkdtemp(folder));
    for (int resume = 0; resume < 2; resume++) {
        bool done = false;
        for (uint64_t call = 1; !done; call++) {
            classifier f = {.device = test_open_device("null", 0)};
            tern_graph *graph = classifier_graph(BATCH, 0.1);
            TEST_OK(tern_trainer_create(f.device, graph, NULL, &f.trainer));
            tern_graph_destroy(graph);
            TEST_OK(classifier_step(&f, BATCH, NULL));
            TEST_OK(tern_trainer_finish(f.trainer, NULL));
            test_null_hooks(f.device)->fail_call(call, TERN_ERROR_DRIVER);
            const tern_status status =
                resume ? tern_trainer_resume(f.trainer, folder, NULL) : tern_trainer_save(f.trainer, folder);
            test_null_hooks(f.device)->fail_call(0, TERN_OK);
            done = status >= 0;
            if (!done) {
                assert_int_equal(status, TERN_ERROR_DRIVER);
                TEST_ERROR(tern_trainer_finish(f.trainer, NULL), TERN_ERROR_DRIVER, "failed before");
            }
            classifier_stop(&f);
            snprintf(command, sizeof command, "test $(find %s -name 'state.json*' | wc -l) = %d", folder,
                     done || resume);
            assert_int_equal(system(command), 0);
            assert_true(call < 500);
        }
    }
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

/* A hundred steps on null: nothing grows, and no value of the present window is waited for. */
static void test_nothing_grows(void **state)
{
    (void)state;
    classifier f;
    tern_null_counts before, after;
    tern_step_counts counts;
    memset(&f, 0, sizeof f);
    f.device = test_open_device("null", 0);
    tern_graph *graph = classifier_graph(BATCH, 0.1);
    TEST_OK(tern_trainer_create(f.device, graph, NULL, &f.trainer));
    tern_graph_destroy(graph);
    test_null_hooks(f.device)->counts(&before);
    for (int i = 0; i < 100; i++) TEST_OK(classifier_step(&f, 1 + i % BATCH, NULL));
    test_null_hooks(f.device)->counts(&after);
    tern_stepper_count(f.trainer->stepper, &counts);
    assert_int_equal(counts.submissions, 200);
    assert_int_equal(counts.late_waits, 0);
    assert_int_equal(after.bytes, before.bytes);
    assert_int_equal(after.kernels_created, before.kernels_created);
    classifier_stop(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused_options), cmocka_unit_test(test_refused_graphs),
        cmocka_unit_test(test_every_failure),   cmocka_unit_test(test_failures_around_files),
        cmocka_unit_test(test_nothing_grows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
