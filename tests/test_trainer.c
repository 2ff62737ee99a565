/* SPDX-License-Identifier: Apache-2.0 */
/* test_trainer.c - the public trainer: windows, partial batches, evaluation, tensors by name, misuse and faults.
 *
 * Everything goes through core/tern.h but for the comparison with the text trainer's step and the null device's hooks.
 * Values come from the cpu backend, which opencl and vulkan are compared with where a driver is there. No GPU. */
#include "tests/test.h"
#include "tests/train_fixture.h"

#include "core/base/dtype.h"
#include "core/train/trainer_internal.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define BATCH   8
#define WIDTH   12
#define CLASSES 5

/* A classifier whose labels depend on the inputs; `batch` examples, dropout when p > 0. */
static tern_graph *make_graph(int64_t batch, double p)
{
    tern_graph *graph = NULL;
    TEST_OK(tern_graph_create(&graph));
    tern_tensor *x = tern_input_2d(graph, "x", TERN_F32, batch, WIDTH), *y = tern_input_1d(graph, "y", TERN_I32, batch);
    tern_tensor *h = tern_dropout(tern_gelu(tern_linear(x, "fc1", 16)), p, "drop");
    tern_tensor *z = tern_linear(h, "fc2", CLASSES);
    tern_loss(tern_cross_entropy(z, y, -1), NULL);
    tern_output(z, "logits");
    return graph;
}

static void fill(uint32_t seed, float *x, int32_t *y, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        int32_t best = 0;
        for (int64_t k = 0; k < WIDTH; k++) {
            seed = seed * 1664525u + 1013904223u;
            x[i * WIDTH + k] = (float)(seed >> 8) / 16777216.0f - 0.5f;
            if (k < CLASSES && x[i * WIDTH + k] > x[i * WIDTH + best]) best = (int32_t)k;
        }
        y[i] = best;
    }
}

typedef struct fixture {
    tern_device *device;
    tern_trainer *trainer;
    float x[BATCH * WIDTH];
    int32_t y[BATCH];
} fixture;

static void start(fixture *f, int64_t batch, double dropout, const tern_train_options *options)
{
    memset(f, 0, sizeof *f);
    f->device = test_open_device("cpu", 2);
    tern_graph *graph = make_graph(batch, dropout);
    TEST_OK(tern_trainer_create(f->device, graph, options, &f->trainer));
    tern_graph_destroy(graph); /* the trainer has its own copy */
    fill(1, f->x, f->y, BATCH);
}

static void stop(fixture *f)
{
    tern_trainer_destroy(f->trainer);
    tern_device_close(f->device);
}

static tern_status step(fixture *f, int64_t examples, tern_report *report)
{
    const tern_feed feeds[] = {{"y", f->y, sizeof *f->y * (size_t)examples},
                               {"x", f->x, sizeof *f->x * WIDTH * (size_t)examples}};
    return tern_trainer_step(f->trainer, feeds, 2, examples, report);
}

static tern_status evaluate(fixture *f, int64_t examples, double *loss, double *weight)
{
    const tern_feed feeds[] = {{"x", f->x, sizeof *f->x * WIDTH * (size_t)examples},
                               {"y", f->y, sizeof *f->y * (size_t)examples}};
    return tern_trainer_evaluate(f->trainer, feeds, 2, examples, loss, weight);
}

#define FC1 (16 * WIDTH)
static void read_fc1(fixture *f, float out[FC1])
{
    TEST_OK(tern_trainer_read(f->trainer, "fc1.weight", TERN_F32, out, FC1 * sizeof *out));
}

/* ------------------------------------------------------------------ windows */

static void test_it_learns(void **state)
{
    (void)state;
    fixture f;
    tern_train_options o;
    tern_report r = {.struct_bytes = sizeof r};
    double before, after, weight;
    tern_train_options_init(&o, sizeof o);
    o.lr = 1e-2;
    o.accumulate = 2;
    start(&f, BATCH, 0.1, &o);
    TEST_OK(evaluate(&f, BATCH, &before, &weight));
    assert_true(weight == BATCH && before > 1);
    for (uint32_t i = 0; i < 400; i++) {
        fill(i, f.x, f.y, BATCH);
        TEST_OK(step(&f, BATCH, &r));
        assert_int_equal(r.updated, i % 2);
        assert_int_equal(r.step, (i + 1) / 2);
        assert_int_equal(r.examples, (i + 1) * BATCH);
        assert_int_equal(r.reported, i < 3 ? 0 : (i + 1) / 2 - 1); /* one window late */
        assert_true(r.reported ? r.weight == 2 * BATCH && r.loss > 0 && r.grad_norm > 0 && r.lr == 1e-2
                               : isnan(r.loss));
    }
    TEST_OK(tern_trainer_finish(f.trainer, &r));
    assert_true(r.reported == 200 && !r.updated && !r.skipped && r.skips == 0 && r.loss_scale == 1);
    fill(1000, f.x, f.y, BATCH);
    TEST_OK(evaluate(&f, BATCH, &after, NULL));
    if (!(after < 0.7 * before)) fail_msg("loss %g before and %g after", before, after);
    stop(&f);
}

/* A batch given in part weighs its examples alone: the same gradients as a graph of just so many, whatever the rest
 * holds, and the same window. Compared by the loss, weight and norm that the report holds. */
static void test_partial_batch(void **state)
{
    (void)state;
    fixture whole, part;
    tern_train_options o;
    tern_report a = {.struct_bytes = sizeof a}, b = a;
    float fc1[3][FC1];
    tern_train_options_init(&o, sizeof o);
    o.accumulate = 2;
    start(&whole, 5, 0.3, &o); /* dropout: numbers follow the example, so 5 + 5 is 8 + 2 */
    start(&part, BATCH, 0.3, &o);
    fill(7, whole.x, whole.y, 5);
    fill(7, part.x, part.y, 5);
    TEST_OK(step(&whole, 5, &a));
    TEST_OK(step(&part, 5, &b));
    TEST_OK(step(&whole, 3, &a));
    TEST_OK(step(&part, 3, &b));
    TEST_OK(tern_trainer_finish(whole.trainer, &a));
    TEST_OK(tern_trainer_finish(part.trainer, &b));
    assert_true(a.weight == 8 && b.weight == 8 && a.examples == 8 && b.examples == 8 && a.step == 1 && b.step == 1);
    TEST_NEAR(b.loss, a.loss, 1e-6 * a.loss);
    TEST_NEAR(b.grad_norm, a.grad_norm, 1e-6 * a.grad_norm);
    stop(&whole);
    stop(&part);
    for (int round = 0; round < 3; round++) { /* bits do not depend on what stands in the rest */
        start(&part, BATCH, 0.3, &o);
        for (int64_t i = 5; i < BATCH; i++) {
            part.y[i] = round ? -7 : 1;
            for (int64_t k = 0; k < WIDTH; k++) part.x[i * WIDTH + k] = round == 2 ? INFINITY : round ? NAN : 3;
        }
        const tern_feed feeds[] = {{"x", part.x, sizeof part.x}, {"y", part.y, sizeof part.y}};
        TEST_OK(tern_trainer_step(part.trainer, feeds, 2, 5, NULL));
        TEST_OK(tern_trainer_step(part.trainer, feeds, 2, 5, NULL));
        read_fc1(&part, fc1[round]);
        assert_memory_equal(fc1[round], fc1[0], sizeof fc1[0]);
        stop(&part);
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
        fixture f;
        start(&f, BATCH, 0.5, &o);
        for (uint32_t i = 0; i < 9; i++) {
            fill(i, f.x, f.y, BATCH);
            TEST_OK(step(&f, BATCH, NULL));
            if (round == 0) continue;
            fill(99, f.x, f.y, BATCH);
            TEST_OK(evaluate(&f, 3, &loss[i % 3], &weight));
            assert_true(weight == 3);
        }
        assert_true(loss[0] == loss[1]); /* windows 3: between updates the same weights, no random bits */
        read_fc1(&f, fc1[round]);
        stop(&f);
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
    fixture f, g;
    tern_train_options o;
    tern_report r = {.struct_bytes = sizeof r};
    float a[FC1], b[FC1];
    tern_train_options_init(&o, sizeof o);
    o.accumulate = 4;
    start(&f, BATCH, 0, &o);
    TEST_OK(step(&f, BATCH, &r));
    assert_true(!r.updated && r.step == 0);
    TEST_OK(tern_trainer_finish(f.trainer, &r));
    assert_true(r.updated && r.step == 1 && r.reported == 1 && r.weight == BATCH);
    TEST_OK(tern_trainer_finish(f.trainer, &r)); /* nothing has begun since */
    assert_true(!r.updated && r.step == 1);
    o.accumulate = 1;
    start(&g, BATCH, 0, &o);
    TEST_OK(step(&g, BATCH, &r));
    read_fc1(&f, a);
    read_fc1(&g, b);
    assert_memory_equal(a, b, sizeof a);
    stop(&f);
    stop(&g);
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

static void refuse(tern_device *device, tern_graph *graph, const tern_train_options *options, tern_status status,
                   const char *part)
{
    tern_trainer *trainer = (tern_trainer *)&trainer;
    TEST_ERROR(tern_trainer_create(device, graph, options, &trainer), status, part);
    assert_null(trainer);
}

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
        tern_graph *graph = make_graph(BATCH, 0.2);
        refuse(device, graph, &o, TERN_ERROR_UNSUPPORTED, "16-bit storage");
        tern_graph_destroy(graph);
        tern_device_close(device);
        return;
    }
    for (int i = 0; i < 2; i++) {
        fixture f = {.device = i ? device : test_open_device("cpu", 1)};
        tern_graph *graph = make_graph(BATCH, 0.2);
        TEST_OK(tern_trainer_create(f.device, graph, &o, &f.trainer));
        tern_graph_destroy(graph);
        for (uint32_t k = 0; k < 12; k++) {
            fill(k, f.x, f.y, BATCH);
            TEST_OK(step(&f, k % 3 ? BATCH : 5, NULL));
            if (k % 5 == 0) TEST_OK(evaluate(&f, 3, &loss[i][k / 5], &weight));
        }
        r[i].struct_bytes = sizeof r[i];
        TEST_OK(tern_trainer_finish(f.trainer, &r[i]));
        stop(&f);
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
    fixture f = {.device = w->device};
    tern_train_options o;
    tern_train_options_init(&o, sizeof o);
    o.seed = w->seed;
    tern_graph *graph = make_graph(BATCH, 0.2);
    w->status = tern_trainer_create(f.device, graph, &o, &f.trainer);
    tern_graph_destroy(graph);
    for (uint32_t i = 0; i < 50 && w->status >= 0; i++) {
        fill(i, f.x, f.y, BATCH);
        w->status = step(&f, BATCH, NULL);
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

/* ------------------------------------------------------------------ feeding */

static void test_stage(void **state)
{
    (void)state;
    fixture f, g;
    float a[FC1], b[FC1];
    start(&f, BATCH, 0.2, NULL);
    start(&g, BATCH, 0.2, NULL);
    for (uint32_t i = 0; i < 4; i++) {
        const int64_t examples = i == 2 ? 3 : BATCH;
        void *x = NULL, *y = NULL;
        size_t bytes = 0;
        fill(i, f.x, f.y, BATCH);
        memcpy(g.y, f.y, sizeof f.y);
        TEST_OK(step(&f, examples, NULL));
        TEST_OK(tern_trainer_stage(g.trainer, "x", &x, &bytes));
        assert_int_equal(bytes, sizeof f.x);
        memcpy(x, f.x, sizeof f.x);
        if (i == 1) { /* an evaluation in between leaves the staged bytes alone */
            double loss;
            TEST_OK(evaluate(&g, BATCH, &loss, NULL));
        }
        const tern_feed feeds[] = {{"x", NULL, 0}, {"y", g.y, sizeof g.y}};
        TEST_OK(tern_trainer_step(g.trainer, feeds, 2, examples, NULL));
        TEST_ERROR(tern_trainer_step(g.trainer, feeds, 2, examples, NULL), TERN_ERROR_INVALID, "fed without data");
        (void)y;
    }
    read_fc1(&f, a);
    read_fc1(&g, b);
    assert_memory_equal(a, b, sizeof a);
    stop(&f);
    stop(&g);
}

typedef struct source {
    uint32_t calls, last; /* the last call gives 3 examples; after it the end, or an error */
    int64_t after;
} source;

static int64_t next(void *context, const tern_feed_slot *slots, size_t count, int64_t most)
{
    source *s = context;
    if (count != 2 || strcmp(slots[0].name, "x") != 0 || strcmp(slots[1].name, "y") != 0 || most != BATCH) return 1000;
    if (s->calls > s->last) return s->after;
    fill(s->calls, slots[0].data, slots[1].data, BATCH);
    return s->calls++ == s->last ? 3 : most;
}

static void test_feed_callback(void **state)
{
    (void)state;
    fixture f, g;
    float a[FC1], b[FC1];
    tern_report r = {.struct_bytes = sizeof r};
    source s = {.last = 10};
    start(&f, BATCH, 0, NULL);
    start(&g, BATCH, 0, NULL);
    TEST_ERROR(tern_trainer_step(f.trainer, NULL, 0, 0, &r), TERN_ERROR_INVALID, "no feed callback");
    TEST_OK(tern_trainer_feed_with(f.trainer, next, &s));
    for (uint32_t i = 0; i <= 10; i++) {
        TEST_OK(tern_trainer_step(f.trainer, NULL, 0, 0, &r));
        assert_true(!r.ended && r.step == i + 1);
        fill(i, g.x, g.y, BATCH);
        TEST_OK(step(&g, i == 10 ? 3 : BATCH, NULL));
    }
    for (int i = 0; i < 2; i++) {
        TEST_OK(tern_trainer_step(f.trainer, NULL, 0, 0, &r));
        assert_true(r.ended && !r.updated && r.step == 11 && r.examples == 83);
    }
    read_fc1(&f, a);
    read_fc1(&g, b);
    assert_memory_equal(a, b, sizeof a);
    /* a callback's failure comes with the next batch that it owes, and stays; the trainer itself is well */
    s = (source){.last = 0, .after = TERN_ERROR_IO};
    TEST_OK(tern_trainer_feed_with(f.trainer, next, &s));
    TEST_OK(tern_trainer_step(f.trainer, NULL, 0, 0, &r));
    for (int i = 0; i < 2; i++)
        TEST_ERROR(tern_trainer_step(f.trainer, NULL, 0, 0, &r), TERN_ERROR_IO,
                   "the feed callback failed: input or output failed");
    s = (source){.last = 0, .after = 9};
    TEST_OK(tern_trainer_feed_with(f.trainer, next, &s));
    TEST_OK(tern_trainer_step(f.trainer, NULL, 0, 0, &r));
    TEST_ERROR(tern_trainer_step(f.trainer, NULL, 0, 0, &r), TERN_ERROR_INVALID, "returned 9 examples");
    TEST_OK(tern_trainer_feed_with(f.trainer, NULL, NULL));
    TEST_OK(step(&f, BATCH, &r));
    stop(&f);
    stop(&g);
}

/* A child after fork has neither the device nor the feeding thread: errors and an end, no deadlock. */
static void test_fork(void **state)
{
    (void)state;
    fixture f;
    int code = -1;
    source s = {.last = 100};
    start(&f, BATCH, 0, NULL);
    TEST_OK(tern_trainer_feed_with(f.trainer, next, &s));
    TEST_OK(tern_trainer_step(f.trainer, NULL, 0, 0, NULL));
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(60); /* a deadlock ends by a signal */
        const tern_status fed = tern_trainer_step(f.trainer, NULL, 0, 0, NULL);
        const tern_status given = step(&f, BATCH, NULL);
        tern_trainer_destroy(f.trainer);
        _exit(fed < 0 && given < 0 ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &code, 0), child);
    if (!WIFEXITED(code) || WEXITSTATUS(code) != 0) fail_msg("the child ended with status 0x%x", (unsigned)code);
    TEST_OK(tern_trainer_step(f.trainer, NULL, 0, 0, NULL)); /* the parent's goes on */
    stop(&f);
}

/* ------------------------------------------------------------------ options */

/* The learning rate follows updates, not calls; a frozen group does not move, another optimizer comes with its own
 * numbers. */
static void test_numbers_arrive(void **state)
{
    (void)state;
    fixture f;
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
    start(&f, BATCH, 0, &o);
    read_fc1(&f, before);
    static const double lr[] = {0.4, 0.8, 0.8, 0.5, 0.2};
    for (int i = 0; i < 5; i++) {
        for (int k = 0; k < 2; k++) TEST_OK(step(&f, BATCH, NULL));
        TEST_OK(tern_trainer_finish(f.trainer, &r));
        TEST_NEAR(r.lr, lr[i], 1e-12);
        if (i < 2) TEST_OK(tern_trainer_read(f.trainer, "fc1.bias", TERN_F32, bias[i], sizeof bias[i]));
    }
    read_fc1(&f, after);
    assert_memory_equal(before, after, sizeof before);
    assert_memory_not_equal(bias[0], bias[1], sizeof bias[0]);
    stop(&f);
}

/* ------------------------------------------------------------------ tensors */

static void test_read_and_write(void **state)
{
    (void)state;
    fixture f;
    float fc1[FC1], logits[BATCH * CLASSES], again[BATCH * CLASSES];
    uint16_t half[FC1];
    double loss;
    start(&f, BATCH, 0, NULL);
    TEST_ERROR(tern_trainer_read(f.trainer, "logits", TERN_F32, logits, sizeof logits), TERN_ERROR_NOT_FOUND,
               "has run yet");
    read_fc1(&f, fc1);
    for (size_t i = 0; i < FC1; i++) fc1[i] = (float)i / 8 - 3;
    TEST_OK(tern_trainer_write(f.trainer, "fc1.weight", TERN_F32, fc1, sizeof fc1));
    TEST_OK(tern_trainer_read(f.trainer, "fc1.weight", TERN_F16, half, sizeof half));
    for (size_t i = 0; i < FC1; i++) assert_int_equal(half[i], tern_f32_to_f16(fc1[i]));
    TEST_OK(tern_trainer_read(f.trainer, "fc1.weight", TERN_BF16, half, sizeof half));
    for (size_t i = 0; i < FC1; i++) assert_int_equal(half[i], tern_f32_to_bf16(fc1[i]));
    TEST_OK(tern_trainer_write(f.trainer, "fc1.weight", TERN_BF16, half, sizeof half));
    read_fc1(&f, fc1);
    for (size_t i = 0; i < FC1; i++) assert_true(fc1[i] == tern_bf16_to_f32(half[i]));
    TEST_OK(evaluate(&f, BATCH, &loss, NULL));
    TEST_OK(tern_trainer_read(f.trainer, "logits", TERN_F32, logits, sizeof logits));
    double mean = 0;
    for (size_t i = 0; i < BATCH; i++) {
        double sum = 0;
        for (size_t k = 0; k < CLASSES; k++) sum += exp((double)logits[i * CLASSES + k]);
        mean += (log(sum) - (double)logits[i * CLASSES + (size_t)f.y[i]]) / BATCH;
    }
    TEST_NEAR(mean, loss, 1e-5 * loss);
    TEST_OK(step(&f, BATCH, NULL)); /* no dropout: the micro-batch made the same logits */
    TEST_OK(tern_trainer_read(f.trainer, "logits", TERN_F32, again, sizeof again));
    for (size_t i = 0; i < BATCH * CLASSES; i++) TEST_NEAR(again[i], logits[i], 1e-5);
    TEST_ERROR(tern_trainer_read(f.trainer, "fc9", TERN_F32, fc1, sizeof fc1), TERN_ERROR_NOT_FOUND, "\"fc9\"");
    TEST_ERROR(tern_trainer_read(f.trainer, "fc1.weight", TERN_U8, fc1, sizeof fc1), TERN_ERROR_INVALID,
               "cannot be had as u8");
    TEST_ERROR(tern_trainer_read(f.trainer, "fc1.weight", TERN_F32, fc1, 12), TERN_ERROR_INVALID,
               "(16, 12) has 768 bytes as f32, but 12 were given");
    TEST_ERROR(tern_trainer_write(f.trainer, "logits", TERN_F32, logits, sizeof logits), TERN_ERROR_INVALID,
               "is an output");
    stop(&f);
}

static void clean(const char *folder)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

static void test_save_and_load(void **state)
{
    (void)state;
    fixture f, g;
    char folder[] = "/tmp/tern-library-XXXXXX", path[96], other[96];
    float a[FC1], b[FC1];
    double loss[2];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    snprintf(other, sizeof other, "%s/deep/er", folder);
    start(&f, BATCH, 0, NULL);
    for (int i = 0; i < 5; i++) TEST_OK(step(&f, BATCH, NULL));
    TEST_OK(tern_trainer_save(f.trainer, folder));
    TEST_OK(tern_trainer_save(f.trainer, other));
    tern_train_options o;
    tern_train_options_init(&o, sizeof o);
    o.seed = 3;
    start(&g, BATCH, 0, &o);
    TEST_OK(tern_trainer_load(g.trainer, path, 0));
    read_fc1(&f, a);
    read_fc1(&g, b);
    assert_memory_equal(a, b, sizeof a);
    TEST_OK(evaluate(&f, BATCH, &loss[0], NULL));
    TEST_OK(evaluate(&g, BATCH, &loss[1], NULL));
    assert_true(loss[0] == loss[1]);
    /* a graph with one parameter more, and one of another shape */
    for (int wider = 0; wider < 2; wider++) {
        tern_graph *graph = NULL;
        tern_trainer *t = NULL;
        TEST_OK(tern_graph_create(&graph));
        tern_tensor *x = tern_input_2d(graph, "x", TERN_F32, 2, WIDTH);
        tern_loss(tern_linear(tern_linear(x, "fc1", wider ? 17 : 16), "fc3", 2), NULL);
        TEST_OK(tern_trainer_create(f.device, graph, NULL, &t));
        if (wider)
            TEST_ERROR(tern_trainer_load(t, path, TERN_LOAD_PARTIAL), TERN_ERROR_INVALID,
                       "\"fc1.weight\" has the shape (16, 12), but the graph's parameter (17, 12)");
        else
            TEST_ERROR(tern_trainer_load(t, path, 0), TERN_ERROR_NOT_FOUND, "holds no tensor \"fc3.weight\"");
        TEST_OK(tern_trainer_read(t, "fc1.bias", TERN_F32, a, wider ? 68 : 64));
        for (int i = 0; i < 16; i++) assert_true(a[i] == 0); /* nothing was written */
        if (!wider) {
            TEST_OK(tern_trainer_load(t, path, TERN_LOAD_PARTIAL));
            TEST_OK(tern_trainer_read(t, "fc1.weight", TERN_F32, a, sizeof a));
            assert_memory_equal(a, b, sizeof a);
        }
        tern_trainer_destroy(t);
        tern_graph_destroy(graph);
    }
    TEST_ERROR(tern_trainer_load(g.trainer, "/nowhere.safetensors", 0), TERN_ERROR_IO, "/nowhere.safetensors");
    TEST_ERROR(tern_trainer_load(g.trainer, path, 6), TERN_ERROR_INVALID, "load flags are 0x6");
    TEST_ERROR(tern_trainer_save(g.trainer, "/proc/nowhere"), TERN_ERROR_IO, "/proc/nowhere");
    TEST_OK(step(&g, BATCH, NULL)); /* files that fail leave the trainer well */
    stop(&f);
    stop(&g);
    clean(folder);
}

/* From any window on, also in a new trainer of another seed, training goes on to the same bits, dropout included. */
static void test_resume(void **state)
{
    (void)state;
    char folder[] = "/tmp/tern-library-XXXXXX", path[96];
    float fc1[2][FC1], other[FC1];
    tern_train_options o;
    tern_report r = {.struct_bytes = sizeof r};
    fixture f;
    assert_non_null(mkdtemp(folder));
    tern_train_options_init(&o, sizeof o);
    o.accumulate = 2;
    o.schedule = "cosine";
    o.steps = 20;
    o.lr = 1e-2;
    for (int round = 0; round < 2; round++) {
        int64_t given = 0;
        start(&f, BATCH, 0.3, &o);
        for (uint32_t i = 0; i < 40; i++) {
            fill(i, f.x, f.y, BATCH);
            TEST_OK(step(&f, BATCH - i % 3, &r));
            given += BATCH - i % 3;
            if (round == 0 || (i != 9 && i != 25 && i != 39)) continue;
            TEST_OK(tern_trainer_save(f.trainer, folder));
            stop(&f);
            o.seed = i; /* the checkpoint's counts */
            start(&f, BATCH, 0.3, &o);
            TEST_OK(tern_trainer_resume(f.trainer, folder, &r));
            assert_true(r.step == (i + 1) / 2 && r.reported == 0 && r.examples == given);
        }
        TEST_OK(tern_trainer_finish(f.trainer, &r));
        assert_int_equal(r.step, 20);
        read_fc1(&f, fc1[round]);
        if (round == 0) stop(&f);
    }
    assert_memory_equal(fc1[0], fc1[1], sizeof fc1[0]);
    /* a short window is ended by a save; a window that has begun is dropped by a resume */
    TEST_OK(step(&f, BATCH, &r));
    TEST_OK(tern_trainer_save(f.trainer, folder));
    read_fc1(&f, fc1[0]);
    TEST_OK(step(&f, BATCH, &r));
    assert_int_equal(r.step, 21);
    TEST_OK(tern_trainer_resume(f.trainer, folder, &r));
    assert_int_equal(r.step, 21);
    read_fc1(&f, other);
    assert_memory_equal(fc1[0], other, sizeof other);
    snprintf(path, sizeof path, "%s/model.safetensors", folder); /* its weights are the newest */
    TEST_OK(tern_trainer_load(f.trainer, path, 0));
    read_fc1(&f, other);
    assert_memory_equal(fc1[0], other, sizeof other);
    stop(&f);
    clean(folder);
}

/* 16 bits: they learn, keep their loss scale, and go on from a checkpoint to the same bits. */
static void test_precisions(void **state)
{
    (void)state;
    static const struct {
        int32_t precision, no_masters, eight_bit;
        double scale;
    } cases[] = {
        {TERN_PRECISION_BF16, 0, 0, 1},
        {TERN_PRECISION_F16, 0, 0, 4096},
        {TERN_PRECISION_BF16, 1, 1, 1},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        char folder[] = "/tmp/tern-library-XXXXXX";
        float fc1[2][FC1], logits[BATCH * CLASSES];
        double before = 0, after = 0;
        tern_report r = {.struct_bytes = sizeof r};
        tern_train_options o;
        fixture f;
        assert_non_null(mkdtemp(folder));
        tern_train_options_init(&o, sizeof o);
        o.precision = cases[c].precision;
        o.no_masters = cases[c].no_masters;
        o.eight_bit = cases[c].eight_bit;
        o.lr = 1e-2;
        for (int round = 0; round < 2; round++) {
            start(&f, BATCH, 0.1, &o);
            if (round == 1) TEST_OK(tern_trainer_resume(f.trainer, folder, &r));
            if (round == 0) fill(1000, f.x, f.y, BATCH);
            if (round == 0) TEST_OK(evaluate(&f, BATCH, &before, NULL));
            for (uint32_t i = round ? 100 : 0; i < 200; i++) {
                fill(i, f.x, f.y, BATCH);
                TEST_OK(step(&f, BATCH - i % 4, &r));
                if (round == 0 && i == 99) TEST_OK(tern_trainer_save(f.trainer, folder));
            }
            TEST_OK(tern_trainer_finish(f.trainer, &r));
            assert_true(r.step == 200 && r.skips == 0 && r.loss_scale == cases[c].scale);
            read_fc1(&f, fc1[round]);
            fill(1000, f.x, f.y, BATCH);
            TEST_OK(evaluate(&f, BATCH, &after, NULL));
            TEST_OK(tern_trainer_read(f.trainer, "logits", TERN_F32, logits, sizeof logits)); /* outputs stay f32 */
            stop(&f);
        }
        assert_memory_equal(fc1[0], fc1[1], sizeof fc1[0]);
        if (!(after < 0.8 * before)) fail_msg("case %zu: loss %g before and %g after", c, before, after);
        for (size_t i = 0; i < FC1 && cases[c].no_masters; i++)
            assert_true(fc1[0][i] == tern_bf16_to_f32(tern_f32_to_bf16(fc1[0][i])));
        clean(folder);
    }
}

static void test_resume_refused(void **state)
{
    (void)state;
    char folder[] = "/tmp/tern-library-XXXXXX", command[128];
    float before[FC1], after[FC1];
    tern_train_options o;
    fixture f;
    assert_non_null(mkdtemp(folder));
    start(&f, BATCH, 0, NULL);
    TEST_ERROR(tern_trainer_resume(f.trainer, folder, NULL), TERN_ERROR_NOT_FOUND, folder);
    TEST_ERROR(tern_trainer_resume(f.trainer, "", NULL), TERN_ERROR_INVALID, "name is empty");
    TEST_OK(step(&f, BATCH, NULL));
    TEST_OK(tern_trainer_save(f.trainer, folder));
    stop(&f);
    tern_train_options_init(&o, sizeof o);
    TEST_OK(tern_train_options_optimizer(&o, "lion"));
    start(&f, BATCH, 0, &o);
    read_fc1(&f, before);
    TEST_ERROR(tern_trainer_resume(f.trainer, folder, NULL), TERN_ERROR_INVALID, "lion");
    stop(&f);
    start(&f, BATCH - 1, 0, NULL);
    TEST_ERROR(tern_trainer_resume(f.trainer, folder, NULL), TERN_ERROR_INVALID, "batch");
    stop(&f);
    start(&f, BATCH, 0, NULL);
    snprintf(command, sizeof command, "for f in %s/checkpoints/*/state.safetensors; do echo x >>$f; done", folder);
    assert_int_equal(system(command), 0);
    TEST_ERROR(tern_trainer_resume(f.trainer, folder, NULL), TERN_ERROR_FORMAT, "state.safetensors");
    read_fc1(&f, after); /* none of it has changed the trainer or ended it */
    assert_memory_equal(before, after, sizeof after);
    TEST_OK(step(&f, BATCH, NULL));
    stop(&f);
    clean(folder);
}

static void test_diagnose(void **state)
{
    (void)state;
    fixture f;
    char phrase[160];
    float before[FC1], after[FC1], bias[16];
    tern_report r = {.struct_bytes = sizeof r};
    start(&f, BATCH, 0.2, NULL);
    const tern_feed feeds[] = {{"x", f.x, sizeof f.x}, {"y", f.y, sizeof f.y}};
    TEST_OK(tern_trainer_diagnose(f.trainer, feeds, 2, 5, phrase, sizeof phrase));
    assert_string_equal(phrase, "");
    for (int i = 0; i < 16; i++) bias[i] = 1e38f;
    TEST_OK(tern_trainer_write(f.trainer, "fc1.bias", TERN_F32, bias, sizeof bias));
    read_fc1(&f, before);
    for (int i = 0; i < 3; i++) TEST_OK(step(&f, BATCH, NULL));
    TEST_OK(tern_trainer_finish(f.trainer, &r));
    assert_true(r.skipped == 1 && r.skips == 3 && r.skips_in_row == 3);
    TEST_OK(tern_trainer_diagnose(f.trainer, feeds, 2, BATCH, phrase, sizeof phrase));
    if (!strstr(phrase, "forward") && !strstr(phrase, "backward")) fail_msg("\"%s\" names no tensor", phrase);
    TEST_ERROR(tern_trainer_diagnose(f.trainer, feeds, 1, BATCH, phrase, sizeof phrase), TERN_ERROR_INVALID,
               "is not fed");
    read_fc1(&f, after);
    assert_memory_equal(before, after, sizeof before);
    stop(&f);
}

/* ------------------------------------------------------------------- misuse */

static void test_refused_steps(void **state)
{
    (void)state;
    fixture f;
    double loss;
    float a[FC1], b[FC1];
    tern_report r = {.struct_bytes = sizeof r};
    start(&f, BATCH, 0, NULL);
    read_fc1(&f, a);
    const tern_feed x = {"x", f.x, sizeof f.x}, y = {"y", f.y, sizeof f.y}, z = {"z", f.y, 4};
    const tern_feed wrong = {"x", f.x, 100}, empty = {"y", NULL, 0}, unnamed = {NULL, f.x, sizeof f.x};
    const struct {
        tern_feed feeds[3];
        size_t count;
        int64_t examples;
        tern_status status;
        const char *part;
    } cases[] = {
        {{x, z}, 2, BATCH, TERN_ERROR_NOT_FOUND, "no input \"z\"; its inputs are \"x\", \"y\""},
        {{x, unnamed}, 2, BATCH, TERN_ERROR_NOT_FOUND, "no input \"\""},
        {{x}, 1, BATCH, TERN_ERROR_INVALID, "input \"y\" of 32 bytes is not fed"},
        {{x, y, x}, 3, BATCH, TERN_ERROR_INVALID, "input \"x\" is fed twice"},
        {{y, wrong}, 2, BATCH, TERN_ERROR_INVALID, "is fed 100 bytes; 384 are the whole batch of 8 and 384"},
        {{y, wrong}, 2, 3, TERN_ERROR_INVALID, "is fed 100 bytes; 384 are the whole batch of 8 and 144 the 3 examples"},
        {{x, y}, 2, 0, TERN_ERROR_INVALID, "0 examples were given; a batch holds 1 to 8"},
        {{x, y}, 2, 9, TERN_ERROR_INVALID, "9 examples were given"},
        {{x, y}, 2, -1, TERN_ERROR_INVALID, "-1 examples were given"},
        {{x, empty}, 2, BATCH, TERN_ERROR_INVALID, "input \"y\" is fed without data"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        TEST_ERROR(tern_trainer_step(f.trainer, cases[i].feeds, cases[i].count, cases[i].examples, &r), cases[i].status,
                   cases[i].part);
        TEST_ERROR(tern_trainer_evaluate(f.trainer, cases[i].feeds, cases[i].count, cases[i].examples, &loss, NULL),
                   cases[i].status, cases[i].part);
    }
    TEST_ERROR(tern_trainer_step(f.trainer, NULL, 2, BATCH, &r), TERN_ERROR_INVALID, "feeds is NULL");
    r.struct_bytes = 3;
    TEST_ERROR(step(&f, BATCH, &r), TERN_ERROR_INVALID, "struct_bytes is 3");
    TEST_ERROR(tern_trainer_step(NULL, NULL, 0, 0, NULL), TERN_ERROR_INVALID, "the trainer is NULL");
    void *data;
    TEST_ERROR(tern_trainer_stage(f.trainer, "q", &data, NULL), TERN_ERROR_NOT_FOUND, "no input \"q\"");
    TEST_ERROR(tern_trainer_stage(f.trainer, TERN_CONTROL_NAME, &data, NULL), TERN_ERROR_NOT_FOUND, "no input");
    read_fc1(&f, b);
    assert_memory_equal(a, b, sizeof a); /* nothing has run */
    TEST_OK(tern_trainer_finish(f.trainer, NULL));
    tern_trainer_destroy(NULL);
    stop(&f);
}

static void test_refused_options(void **state)
{
    (void)state;
    tern_device *device = test_open_device("null", 0);
    tern_graph *graph = make_graph(BATCH, 0);
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
        refuse(device, graph, &o, TERN_ERROR_INVALID, cases[i].part);
    }
    o = good;
    o.optimizer = "magic";
    refuse(device, graph, &o, TERN_ERROR_INVALID, "no optimizer is named \"magic\"");
    o = good;
    o.schedule = "magic";
    refuse(device, graph, &o, TERN_ERROR_NOT_FOUND, "no schedule \"magic\"; the schedules are ");
    o.schedule = "constant";
    o.groups = "fc1.weight:frozen;nothing.*:lr=2";
    refuse(device, graph, &o, TERN_ERROR_INVALID, "nothing.*");
    o.groups = "fc1.weight:magic";
    refuse(device, graph, &o, TERN_ERROR_INVALID, "magic");
    o.groups = NULL;
    o.schedule = "cosine";
    refuse(device, graph, &o, TERN_ERROR_INVALID, "the schedule \"cosine\" ends at steps, which is 0");
    refuse(NULL, graph, &good, TERN_ERROR_INVALID, "the device is NULL");
    refuse(device, NULL, &good, TERN_ERROR_INVALID, "the graph is NULL");
    /* a structure that has grown, and one from before it did */
    tern_train_options_init(&newer.known, sizeof newer);
    newer.known.steps = 0;
    newer.unknown = 0;
    TEST_OK(tern_trainer_create(device, graph, &newer.known, &trainer));
    tern_trainer_destroy(trainer);
    newer.unknown = 1;
    refuse(device, graph, &newer.known, TERN_ERROR_UNSUPPORTED, "use the header of the library that is loaded");
    memset(&o, 0xff, sizeof o);
    tern_train_options_init(&o, offsetof(tern_train_options, beta1));
    TEST_OK(tern_trainer_create(device, graph, &o, &trainer));
    tern_trainer_destroy(trainer);
    device->info.memory_free_bytes = 1000;
    refuse(device, graph, NULL, TERN_ERROR_DEVICE_MEMORY, "that null has free");
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
    refuse(device, graph, NULL, TERN_ERROR_INVALID, "has no loss");
    tern_tensor *a = tern_input_2d(graph, "a", TERN_F32, 4, 1), *b = tern_input_2d(graph, "b", TERN_F32, 3, 1);
    tern_loss(tern_linear(a, "l", 1), NULL);
    refuse(device, graph, NULL, TERN_ERROR_INVALID, "has 3 examples, but \"a\" has 4");
    tern_add(a, b); /* the first error of the building comes as it is */
    refuse(device, graph, NULL, TERN_ERROR_INVALID, "add");
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

/* ------------------------------------------------------------------- faults */

static tern_status train_two(tern_device *device, tern_trainer **out)
{
    static float x[BATCH * WIDTH];
    static int32_t y[BATCH];
    const tern_feed feeds[] = {{"x", x, sizeof x}, {"y", y, sizeof y}};
    tern_graph *graph = make_graph(BATCH, 0.1);
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

/* A hundred steps on null: nothing grows, and no value of the present window is waited for. */
static void test_nothing_grows(void **state)
{
    (void)state;
    fixture f;
    tern_null_counts before, after;
    tern_step_counts counts;
    memset(&f, 0, sizeof f);
    f.device = test_open_device("null", 0);
    tern_graph *graph = make_graph(BATCH, 0.1);
    TEST_OK(tern_trainer_create(f.device, graph, NULL, &f.trainer));
    tern_graph_destroy(graph);
    test_null_hooks(f.device)->counts(&before);
    for (int i = 0; i < 100; i++) TEST_OK(step(&f, 1 + i % BATCH, NULL));
    test_null_hooks(f.device)->counts(&after);
    tern_stepper_count(f.trainer->stepper, &counts);
    assert_int_equal(counts.submissions, 200);
    assert_int_equal(counts.late_waits, 0);
    assert_int_equal(after.bytes, before.bytes);
    assert_int_equal(after.kernels_created, before.kernels_created);
    stop(&f);
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
        cmocka_unit_test_prestate(test_agrees_with_cpu, "opencl"),
        cmocka_unit_test_prestate(test_agrees_with_cpu, "vulkan"),
        cmocka_unit_test(test_two_threads),
        cmocka_unit_test(test_stage),
        cmocka_unit_test(test_feed_callback),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_numbers_arrive),
        cmocka_unit_test(test_read_and_write),
        cmocka_unit_test(test_save_and_load),
        cmocka_unit_test(test_resume),
        cmocka_unit_test(test_precisions),
        cmocka_unit_test(test_resume_refused),
        cmocka_unit_test(test_diagnose),
        cmocka_unit_test(test_refused_steps),
        cmocka_unit_test(test_refused_options),
        cmocka_unit_test(test_refused_graphs),
        cmocka_unit_test(test_every_failure),
        cmocka_unit_test(test_nothing_grows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
