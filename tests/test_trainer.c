/* SPDX-License-Identifier: Apache-2.0 */
/* test_trainer.c - the public trainer's windows: partial batches, evaluation, states, numbers, other devices, threads.
 *
 * Values come from the cpu backend, which opencl and vulkan are compared with where a driver is there. No GPU. */
#include <pthread.h>
#include <stdlib.h>

#include "tests/test.h"
#include "tests/trainer_fixture.h"

static void test_it_learns(void **state)
{
    (void)state;
    classifier f;
    tern_train_options o;
    tern_report r = {.struct_bytes = sizeof r};
    double before, after, weight;
    tern_train_options_init(&o, sizeof o);
    o.lr = 1e-2;
    o.accumulate = 2;
    classifier_start(&f, BATCH, 0.1, &o);
    TEST_OK(classifier_evaluate(&f, BATCH, &before, &weight));
    assert_true(weight == BATCH && before > 1);
    for (uint32_t i = 0; i < 400; i++) {
        classifier_fill(i, f.x, f.y, BATCH);
        TEST_OK(classifier_step(&f, BATCH, &r));
        assert_int_equal(r.updated, i % 2);
        assert_int_equal(r.step, (i + 1) / 2);
        assert_int_equal(r.examples, (i + 1) * BATCH);
        assert_int_equal(r.reported, i < 3 ? 0 : (i + 1) / 2 - 1); /* one window late */
        assert_true(r.reported ? r.weight == 2 * BATCH && r.loss > 0 && r.grad_norm > 0 && r.lr == 1e-2
                               : isnan(r.loss));
    }
    TEST_OK(tern_trainer_finish(f.trainer, &r));
    assert_true(r.reported == 200 && !r.updated && !r.skipped && r.skips == 0 && r.loss_scale == 1);
    classifier_fill(1000, f.x, f.y, BATCH);
    TEST_OK(classifier_evaluate(&f, BATCH, &after, NULL));
    if (!(after < 0.7 * before)) fail_msg("loss %g before and %g after", before, after);
    classifier_stop(&f);
}

/* A batch given in part weighs its examples alone: the same gradients as a graph of just so many, whatever the rest
 * holds, and the same window. Compared by the loss, weight and norm that the report holds. */
static void test_partial_batch(void **state)
{
    (void)state;
    classifier whole, part;
    tern_train_options o;
    tern_report a = {.struct_bytes = sizeof a}, b = a;
    float fc1[3][FC1];
    tern_train_options_init(&o, sizeof o);
    o.accumulate = 2;
    classifier_start(&whole, 5, 0.3, &o); /* dropout: numbers follow the example, so 5 + 5 is 8 + 2 */
    classifier_start(&part, BATCH, 0.3, &o);
    classifier_fill(7, whole.x, whole.y, 5);
    classifier_fill(7, part.x, part.y, 5);
    TEST_OK(classifier_step(&whole, 5, &a));
    TEST_OK(classifier_step(&part, 5, &b));
    TEST_OK(classifier_step(&whole, 3, &a));
    TEST_OK(classifier_step(&part, 3, &b));
    TEST_OK(tern_trainer_finish(whole.trainer, &a));
    TEST_OK(tern_trainer_finish(part.trainer, &b));
    assert_true(a.weight == 8 && b.weight == 8 && a.examples == 8 && b.examples == 8 && a.step == 1 && b.step == 1);
    TEST_NEAR(b.loss, a.loss, 1e-6 * a.loss);
    TEST_NEAR(b.grad_norm, a.grad_norm, 1e-6 * a.grad_norm);
    classifier_stop(&whole);
    classifier_stop(&part);
    for (int round = 0; round < 3; round++) { /* bits do not depend on what stands in the rest */
        classifier_start(&part, BATCH, 0.3, &o);
        for (int64_t i = 5; i < BATCH; i++) {
            part.y[i] = round ? -7 : 1;
            for (int64_t k = 0; k < WIDTH; k++) part.x[i * WIDTH + k] = round == 2 ? INFINITY : round ? NAN : 3;
        }
        const tern_feed feeds[] = {{"x", part.x, sizeof part.x}, {"y", part.y, sizeof part.y}};
        TEST_OK(tern_trainer_step(part.trainer, feeds, 2, 5, NULL));
        TEST_OK(tern_trainer_step(part.trainer, feeds, 2, 5, NULL));
        classifier_fc1(&part, fc1[round]);
        assert_memory_equal(fc1[round], fc1[0], sizeof fc1[0]);
        classifier_stop(&part);
    }
}

/* Evaluation in the middle of a window changes no bit of the training around it and sees no dropout. */
static void test_evaluation_in_a_window(void **state)
{
    (void)state;
    float fc1[2][FC1];
    double loss[3] = {0}, weight = 0;
    tern_train_options o;
    tern_train_options_init(&o, sizeof o);
    o.accumulate = 3;
    o.seed = 5;
    for (int round = 0; round < 2; round++) {
        classifier f;
        classifier_start(&f, BATCH, 0.5, &o);
        for (uint32_t i = 0; i < 9; i++) {
            classifier_fill(i, f.x, f.y, BATCH);
            TEST_OK(classifier_step(&f, BATCH, NULL));
            if (round == 0) continue;
            classifier_fill(99, f.x, f.y, BATCH);
            TEST_OK(classifier_evaluate(&f, 3, &loss[i % 3], &weight));
            assert_true(weight == 3);
        }
        assert_true(loss[0] == loss[1]); /* windows 3: between updates the same weights, no random bits */
        classifier_fc1(&f, fc1[round]);
        classifier_stop(&f);
    }
    assert_memory_equal(fc1[0], fc1[1], sizeof fc1[0]);
}

/* A state that the graph assigns moves with training and stays in evaluation, which reads it. */
static void test_states(void **state)
{
    (void)state;
    static const int64_t one = 1;
    float x[4] = {1, 2, 3, 4}, seen = -1, counted = -1;
    double loss;
    tern_graph *graph = NULL;
    tern_trainer *trainer = NULL;
    tern_device *device = test_open_device("cpu", 1);
    TEST_OK(tern_graph_create(&graph));
    tern_tensor *y = tern_linear(tern_input_2d(graph, "x", TERN_F32, 4, 1), "l", 1);
    tern_tensor *count = tern_state(graph, "count", TERN_F32, 1, &one);
    tern_output(tern_assign(count, tern_add(count, tern_constant(graph, 1))), "seen");
    tern_loss(y, NULL);
    TEST_OK(tern_trainer_create(device, graph, NULL, &trainer));
    const tern_feed feed = {"x", x, sizeof x};
    for (int i = 0; i < 3; i++) {
        TEST_OK(tern_trainer_step(trainer, &feed, 1, 4, NULL));
        TEST_OK(tern_trainer_evaluate(trainer, &feed, 1, 4, &loss, NULL));
        TEST_OK(tern_trainer_read(trainer, "count", TERN_F32, &counted, sizeof counted));
        TEST_OK(tern_trainer_read(trainer, "seen", TERN_F32, &seen, sizeof seen));
        assert_true(counted == (float)(i + 1) && seen == (float)(i + 2)); /* computed, not kept */
    }
    counted = 7;
    TEST_OK(tern_trainer_write(trainer, "count", TERN_F32, &counted, sizeof counted));
    TEST_OK(tern_trainer_step(trainer, &feed, 1, 4, NULL));
    TEST_OK(tern_trainer_read(trainer, "count", TERN_F32, &counted, sizeof counted));
    assert_true(counted == 8);
    tern_trainer_destroy(trainer);
    tern_graph_destroy(graph);
    tern_device_close(device);
}

/* The last window may be short: finish and save end it with what it has, by its own weight. */
static void test_last_window(void **state)
{
    (void)state;
    classifier f, g;
    tern_train_options o;
    tern_report r = {.struct_bytes = sizeof r};
    float a[FC1], b[FC1];
    tern_train_options_init(&o, sizeof o);
    o.accumulate = 4;
    classifier_start(&f, BATCH, 0, &o);
    TEST_OK(classifier_step(&f, BATCH, &r));
    assert_true(!r.updated && r.step == 0);
    TEST_OK(tern_trainer_finish(f.trainer, &r));
    assert_true(r.updated && r.step == 1 && r.reported == 1 && r.weight == BATCH);
    TEST_OK(tern_trainer_finish(f.trainer, &r)); /* nothing has begun since */
    assert_true(!r.updated && r.step == 1);
    o.accumulate = 1;
    classifier_start(&g, BATCH, 0, &o);
    TEST_OK(classifier_step(&g, BATCH, &r));
    classifier_fc1(&f, a);
    classifier_fc1(&g, b);
    assert_memory_equal(a, b, sizeof a);
    classifier_stop(&f);
    classifier_stop(&g);
}

/* The same graph, data, seed and numbers give the text trainer's bits: GPT-2 with dropout, ids sorted by the trainer.
 */
static void test_is_the_text_trainers_step(void **state)
{
    (void)state;
    test_run run;
    tern_graph *graph = NULL;
    tern_trainer *trainer = NULL;
    tern_step_report report;
    tern_train_options o;
    tern_train_options_init(&o, sizeof o);
    o.lr = 1e-2;
    o.seed = 11;
    o.accumulate = 2;
    test_run_start(&run, "cpu", 2, &test_tiny);
    TEST_OK(tern_graph_create(&graph));
    TEST_OK(tern_gpt2_build_loss(graph, &test_tiny));
    TEST_OK(tern_trainer_create(run.device, graph, &o, &trainer));
    const size_t bytes = (size_t)test_tiny.batch * test_tiny.context * sizeof(int32_t);
    for (uint32_t i = 0; i < 6; i++) {
        TEST_OK(test_run_micro(&run, i * test_tiny.batch, i % 2 * test_tiny.batch));
        const tern_feed feeds[] = {{"ids", run.batch.ids, bytes}, {"labels", run.batch.labels, bytes}};
        TEST_OK(tern_trainer_step(trainer, feeds, 2, test_tiny.batch, NULL));
        if (i % 2) TEST_OK(tern_stepper_update(run.stepper, 1e-2, &report));
    }
    test_run_drain(&run);
    for (uint32_t i = 0; i < run.setup->layout->parameter_count; i++) {
        const tern_store_parameter *p = &run.setup->layout->parameters[i];
        void *a = malloc(p->bytes), *b = malloc(p->bytes);
        assert_true(a && b);
        TEST_OK(tern_store_read(tern_stepper_store(run.stepper), p->name, a, p->bytes));
        TEST_OK(tern_trainer_read(trainer, p->name, TERN_F32, b, p->bytes));
        if (memcmp(a, b, p->bytes) != 0) fail_msg("%s differs from the text trainer's", p->name);
        free(a);
        free(b);
    }
    tern_trainer_destroy(trainer);
    tern_graph_destroy(graph);
    test_run_stop(&run);
}

/* The learning rate follows updates, not calls; a frozen group does not move, another optimizer comes with its own
 * numbers. */
static void test_numbers_arrive(void **state)
{
    (void)state;
    classifier f;
    tern_report r = {.struct_bytes = sizeof r};
    tern_train_options o;
    float before[FC1], after[FC1], bias[2][16];
    tern_train_options_init(&o, sizeof o);
    assert_true(strcmp(o.optimizer, "adamw") == 0 && o.beta2 == 0.95 && o.weight_decay == 0.1 && o.momentum == 0);
    TEST_OK(tern_train_options_optimizer(&o, "sgd"));
    assert_true(o.momentum == 0.9 && o.weight_decay == 0 && o.struct_bytes == sizeof o && o.accumulate == 1);
    TEST_ERROR(tern_train_options_optimizer(&o, "magic"), TERN_ERROR_INVALID, "no optimizer is named \"magic\"");
    o.schedule = "linear";
    o.lr = 0.8;
    o.min_lr = 0.2;
    o.warmup = 2;
    o.steps = 5;
    o.accumulate = 2;
    o.groups = " fc1.weight:frozen ; fc?.bias:lr=0.5; ";
    classifier_start(&f, BATCH, 0, &o);
    classifier_fc1(&f, before);
    static const double lr[] = {0.4, 0.8, 0.8, 0.5, 0.2};
    for (int i = 0; i < 5; i++) {
        for (int k = 0; k < 2; k++) TEST_OK(classifier_step(&f, BATCH, NULL));
        TEST_OK(tern_trainer_finish(f.trainer, &r));
        TEST_NEAR(r.lr, lr[i], 1e-12);
        if (i < 2) TEST_OK(tern_trainer_read(f.trainer, "fc1.bias", TERN_F32, bias[i], sizeof bias[i]));
    }
    classifier_fc1(&f, after);
    assert_memory_equal(before, after, sizeof before);
    assert_memory_not_equal(bias[0], bias[1], sizeof bias[0]);
    classifier_stop(&f);
}

/* ------------------------------------------------------------------- devices */

/* Every device trains the same program: full and partial batches, dropout, evaluation. */
static void compare_with_cpu(const char *backend, int32_t precision, double tolerance)
{
    double loss[2][3], weight;
    tern_report r[2];
    tern_train_options o;
    tern_device *device = NULL;
    if (tern_device_open(backend, &device) < 0) TEST_SKIP("%s", tern_error_message());
    tern_train_options_init(&o, sizeof o);
    o.precision = precision;
    o.accumulate = 2;
    o.lr = 1e-2;
    if (precision != TERN_PRECISION_F32 && !(device->info.features & TERN_FEATURE_STORAGE_16)) {
        tern_graph *graph = classifier_graph(BATCH, 0.2);
        classifier_refused(device, graph, &o, TERN_ERROR_UNSUPPORTED, "16-bit storage");
        tern_graph_destroy(graph);
        tern_device_close(device);
        return;
    }
    for (int i = 0; i < 2; i++) {
        classifier f = {.device = i ? device : test_open_device("cpu", 1)};
        tern_graph *graph = classifier_graph(BATCH, 0.2);
        TEST_OK(tern_trainer_create(f.device, graph, &o, &f.trainer));
        tern_graph_destroy(graph);
        for (uint32_t k = 0; k < 12; k++) {
            classifier_fill(k, f.x, f.y, BATCH);
            TEST_OK(classifier_step(&f, k % 3 ? BATCH : 5, NULL));
            if (k % 5 == 0) TEST_OK(classifier_evaluate(&f, 3, &loss[i][k / 5], &weight));
        }
        r[i].struct_bytes = sizeof r[i];
        TEST_OK(tern_trainer_finish(f.trainer, &r[i]));
        classifier_stop(&f);
    }
    for (int k = 0; k < 3; k++) TEST_NEAR(loss[1][k], loss[0][k], tolerance * loss[0][k]);
    assert_true(r[1].reported == 6 && r[1].weight == r[0].weight && r[1].examples == r[0].examples);
    TEST_NEAR(r[1].loss, r[0].loss, tolerance * r[0].loss);
    TEST_NEAR(r[1].grad_norm, r[0].grad_norm, 10 * tolerance * r[0].grad_norm);
}

static void test_agrees_with_cpu(void **state)
{
    compare_with_cpu(*state, TERN_PRECISION_F32, 1e-5);
    compare_with_cpu(*state, TERN_PRECISION_BF16, 1e-2);
}

/* A device may be shared: two threads, each with a trainer of its own, get the bits that they get alone. */
typedef struct worker {
    tern_device *device;
    uint64_t seed;
    float fc1[FC1];
    tern_status status;
} worker;

static void *train_alone(void *context)
{
    worker *w = context;
    classifier f = {.device = w->device};
    tern_train_options o;
    tern_train_options_init(&o, sizeof o);
    o.seed = w->seed;
    tern_graph *graph = classifier_graph(BATCH, 0.2);
    w->status = tern_trainer_create(f.device, graph, &o, &f.trainer);
    tern_graph_destroy(graph);
    for (uint32_t i = 0; i < 50 && w->status >= 0; i++) {
        classifier_fill(i, f.x, f.y, BATCH);
        w->status = classifier_step(&f, BATCH, NULL);
    }
    if (w->status >= 0) w->status = tern_trainer_read(f.trainer, "fc1.weight", TERN_F32, w->fc1, sizeof w->fc1);
    tern_trainer_destroy(f.trainer);
    return NULL;
}

static void test_two_threads(void **state)
{
    (void)state;
    tern_device *device = test_open_device("cpu", 2);
    worker together[2] = {{.device = device, .seed = 1}, {.device = device, .seed = 2}}, alone[2];
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        alone[i] = together[i];
        assert_int_equal(pthread_create(&threads[i], NULL, train_alone, &together[i]), 0);
    }
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < 2; i++) {
        train_alone(&alone[i]);
        assert_int_equal(together[i].status, TERN_OK);
        assert_int_equal(alone[i].status, TERN_OK);
        assert_memory_equal(together[i].fc1, alone[i].fc1, sizeof alone[i].fc1);
    }
    tern_device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_learns),
        cmocka_unit_test(test_partial_batch),
        cmocka_unit_test(test_evaluation_in_a_window),
        cmocka_unit_test(test_states),
        cmocka_unit_test(test_last_window),
        cmocka_unit_test(test_is_the_text_trainers_step),
        cmocka_unit_test(test_numbers_arrive),
        cmocka_unit_test_prestate(test_agrees_with_cpu, "opencl"),
        cmocka_unit_test_prestate(test_agrees_with_cpu, "vulkan"),
        cmocka_unit_test(test_two_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
