/* SPDX-License-Identifier: Apache-2.0 */
/* test_step.c - micro, update and eval as they run: gradients against the reference, bitwise promises, counts, faults.
 *
 * Values come from the cpu backend, counts and faults from null. No GPU. */
#include "core/base/philox.h"
#include "core/passes/accumulate.h"
#include "core/reference/reference.h"
#include "tests/test.h"
#include "tests/train_fixture.h"

#include <stdlib.h>

/* All gradients, one parameter after another, as doubles; free() it. */
static double *read_gradients(test_run *f, size_t *out_count)
{
    const tern_store_layout *layout = f->setup->layout;
    size_t count = 0;
    double *all = calloc((size_t)tern_store_layout_elements(layout) + 1, sizeof *all);
    assert_non_null(all);
    for (uint32_t i = 0; i < layout->parameter_count; i++) {
        char name[160];
        const size_t elements = (size_t)layout->parameters[i].bytes / 4;
        float *values = malloc(elements * sizeof *values);
        assert_non_null(values);
        snprintf(name, sizeof name, "acc.%s", layout->parameters[i].name);
        TEST_OK(tern_store_read(tern_stepper_store(f->stepper), name, values, elements * 4));
        for (size_t k = 0; k < elements; k++) all[count++] = (double)values[k];
        free(values);
    }
    *out_count = count;
    return all;
}

static double distance(const double *a, const double *b, size_t count)
{
    double difference = 0, norm = 0;
    for (size_t i = 0; i < count; i++) {
        difference += (a[i] - b[i]) * (a[i] - b[i]);
        norm += b[i] * b[i];
    }
    return sqrt(difference / norm);
}

/* ------------------------------------------------------------------- values */

/* Copies the store's weights and the batch into a reference run of the very graph that the device runs. */
static void run_reference(test_run *f, tern_reference *reference, const tern_graph *graph)
{
    const size_t tokens = (size_t)f->data.options.batch * f->data.options.context;
    uint32_t key[2];
    tern_philox_step_key(11, 0, key);
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const tern_tensor *node = graph->nodes[i];
        if (node->op != TERN_OP_PARAMETER && node->op != TERN_OP_INPUT) continue;
        double *to = tern_reference_data(reference, node);
        if (node->op == TERN_OP_PARAMETER) {
            const size_t count = (size_t)tern_count(node);
            float *values = malloc(count * sizeof *values);
            assert_non_null(values);
            TEST_OK(tern_store_read(tern_stepper_store(f->stepper), node->label, values, count * 4));
            for (size_t k = 0; k < count; k++) to[k] = (double)values[k];
            free(values);
        } else if (strcmp(node->label, TERN_CONTROL_NAME) == 0) {
            to[TERN_CONTROL_KEY0] = key[0];
            to[TERN_CONTROL_KEY1] = key[1];
        } else if (strcmp(node->label, "ids") == 0) {
            for (size_t k = 0; k < tokens; k++) to[k] = f->batch.ids[k];
        } else if (strcmp(node->label, "labels") == 0) {
            for (size_t k = 0; k < tokens; k++) to[k] = f->batch.labels[k];
        } else if (strcmp(node->label, "ids.order") == 0) {
            for (size_t k = 0; k < tokens; k++) to[k] = f->batch.order[k];
        } else {
            for (size_t k = 0; k <= f->data.options.vocab; k++) to[k] = f->batch.offsets[k];
        }
    }
    tern_reference_data(reference, tern_graph_find(graph, TERN_OP_STATE, TERN_STATE_SCALE))[0] = 1;
    TEST_OK(tern_reference_run(reference));
}

static void test_gradients_match_reference(void **state)
{
    (void)state;
    test_run f;
    test_run_start(&f, "cpu", 2, &test_tiny);
    TEST_OK(test_run_micro(&f, 0, 0));
    test_run_drain(&f);
    size_t count = 0;
    double *got = read_gradients(&f, &count), *expected = calloc(count, sizeof *expected);
    assert_non_null(expected);
    const tern_graph *graph = f.setup->programs[TERN_PROGRAM_MICRO].graph;
    tern_reference *reference = NULL;
    TEST_OK(tern_reference_create(graph, &reference));
    run_reference(&f, reference, graph);
    size_t at = 0;
    for (uint32_t i = 0; i < f.setup->layout->parameter_count; i++) {
        char name[160];
        snprintf(name, sizeof name, "acc.%s", f.setup->layout->parameters[i].name);
        const tern_tensor *acc = tern_graph_find(graph, TERN_OP_STATE, name);
        memcpy(expected + at, tern_reference_data(reference, acc), (size_t)tern_count(acc) * sizeof *expected);
        const double error = distance(got + at, expected + at, (size_t)tern_count(acc));
        if (!(error <= 1e-5)) fail_msg("%s differs from the reference by %.3g", name, error);
        at += (size_t)tern_count(acc);
    }
    float n = 0, loss = 0;
    TEST_OK(tern_store_read(tern_stepper_store(f.stepper), TERN_STATE_N, &n, 4));
    TEST_OK(tern_store_read(tern_stepper_store(f.stepper), TERN_STATE_LOSS, &loss, 4));
    assert_true(n == 48);
    const double exact = tern_reference_data(reference, tern_graph_find(graph, TERN_OP_STATE, TERN_STATE_LOSS))[0];
    TEST_NEAR(loss, exact, 1e-6 * exact);
    tern_reference_destroy(reference);
    free(got);
    free(expected);
    test_run_stop(&f);
}

/* A window is the same whether it is one batch of 4 or four of 1, dropout included. Compared on gradients, since Adam
 * makes a full step of the noise of a gradient that is zero in theory. */
static void test_accumulation_is_the_big_batch(void **state)
{
    (void)state;
    test_run whole, split;
    tern_gpt2_options single = test_tiny;
    single.batch = 1;
    test_run_start(&whole, "cpu", 2, &test_tiny);
    test_run_start(&split, "cpu", 2, &single);
    TEST_OK(test_run_micro(&whole, 0, 0));
    for (uint32_t i = 0; i < 4; i++) TEST_OK(test_run_micro(&split, i, i));
    test_run_drain(&whole);
    test_run_drain(&split);
    size_t count = 0;
    double *a = read_gradients(&whole, &count), *b = read_gradients(&split, &count);
    const double error = distance(a, b, count);
    if (!(error <= 1e-6)) fail_msg("accumulated gradients differ by %.3g of their norm", error);
    free(a);
    free(b);
    test_run_stop(&whole);
    test_run_stop(&split);
}

static void *read_leaf(test_run *f, const char *name, uint64_t *out_bytes)
{
    tern_binding at;
    TEST_OK(tern_store_find(tern_stepper_store(f->stepper), name, &at));
    void *data = malloc(at.bytes);
    assert_non_null(data);
    TEST_OK(tern_store_read(tern_stepper_store(f->stepper), name, data, at.bytes));
    *out_bytes = at.bytes;
    return data;
}

static void run_steps(test_run *f, uint32_t steps)
{
    tern_step_report report;
    for (uint32_t i = 0; i < steps; i++) {
        TEST_OK(test_run_micro(f, i * 4, 0));
        TEST_OK(tern_stepper_update(f->stepper, 1e-2, &report));
        assert_int_equal(report.valid, i > 0);
        if (report.valid) assert_int_equal(report.attempt, i - 1);
    }
    TEST_OK(tern_stepper_finish(f->stepper, &report));
    assert_true(report.valid && report.attempt == steps - 1 && report.good_steps == steps && report.skips == 0);
    assert_true(report.n == 48 && report.loss > 0 && report.loss < 6 && report.norm > 0);
}

/* Same bits from run to run and for any number of threads. */
static void test_bitwise(void **state)
{
    (void)state;
    static const uint32_t threads[] = {1, 1, 2, 3};
    void *first = NULL;
    uint64_t bytes = 0;
    for (size_t i = 0; i < 4; i++) {
        test_run f;
        test_run_start(&f, "cpu", threads[i], &test_tiny);
        run_steps(&f, 5);
        void *weights = read_leaf(&f, "slab.weight.0", &bytes);
        if (first) assert_memory_equal(first, weights, bytes);
        if (!first)
            first = weights;
        else
            free(weights);
        test_run_stop(&f);
    }
    free(first);
}

/* A non-finite gradient skips its window: weights and moments stay bit for bit, the next window goes on. */
static void test_skip_on_device(void **state)
{
    (void)state;
    static const char *const names[] = {"slab.weight.0", "slab.m.0", "slab.v.0",
                                        "slab.weight.1", "slab.m.1", "slab.v.1"};
    static const float bad[] = {INFINITY, NAN, 3e38f};
    test_run f;
    test_run_start(&f, "cpu", 2, &test_tiny);
    run_steps(&f, 2);
    for (size_t k = 0; k < 3; k++) {
        void *before[6];
        uint64_t bytes[6], acc_bytes = 0;
        tern_step_report report;
        for (size_t i = 0; i < 6; i++) before[i] = read_leaf(&f, names[i], &bytes[i]);
        TEST_OK(test_run_micro(&f, 8, 0));
        test_run_drain(&f);
        float *acc = read_leaf(&f, "acc.transformer.h.1.mlp.c_fc.weight", &acc_bytes);
        acc[5] = bad[k]; /* 3e38 / 48 is finite, its square is not */
        TEST_OK(tern_store_write(tern_stepper_store(f.stepper), "acc.transformer.h.1.mlp.c_fc.weight", acc, acc_bytes));
        TEST_OK(tern_stepper_update(f.stepper, 1e-2, &report));
        TEST_OK(tern_stepper_finish(f.stepper, &report));
        assert_true(report.skipped && report.skips == k + 1 && report.good_steps == 2);
        for (size_t i = 0; i < 6; i++) {
            void *after = read_leaf(&f, names[i], &bytes[i]);
            assert_memory_equal(before[i], after, bytes[i]);
            free(after);
            free(before[i]);
        }
        free(acc);
    }
    tern_step_report report;
    TEST_OK(test_run_micro(&f, 8, 0));
    TEST_OK(tern_stepper_update(f.stepper, 1e-2, &report));
    TEST_OK(tern_stepper_finish(f.stepper, &report));
    assert_true(!report.skipped && report.good_steps == 3 && report.skips == 3);
    /* an empty window: n == 0 */
    void *before = read_leaf(&f, "slab.weight.0", &(uint64_t){0});
    uint64_t bytes = 0;
    TEST_OK(tern_stepper_update(f.stepper, 1e-2, &report));
    TEST_OK(tern_stepper_finish(f.stepper, &report));
    assert_true(report.n == 0 && !report.skipped && report.good_steps == 3 && report.skips == 3);
    void *after = read_leaf(&f, "slab.weight.0", &bytes);
    assert_memory_equal(before, after, bytes);
    free(before);
    free(after);
    test_run_stop(&f);
}

static void test_evaluation_touches_nothing(void **state)
{
    (void)state;
    static const char *const names[] = {"slab.weight.0", "slab.acc.0", "slab.m.0",     "slab.v.0",
                                        TERN_STATE_N,    TERN_STATE_T, TERN_STATE_LOSS};
    test_run f;
    test_run_start(&f, "cpu", 2, &test_tiny);
    run_steps(&f, 2);
    TEST_OK(test_run_micro(&f, 8, 0)); /* in the middle of a window */
    test_run_drain(&f);
    void *before[7];
    uint64_t bytes[7];
    for (size_t i = 0; i < 7; i++) before[i] = read_leaf(&f, names[i], &bytes[i]);
    const uint64_t tokens = (uint64_t)f.data.options.batch * f.data.options.context;
    const tern_feed feeds[2] = {{"ids", f.batch.ids, tokens * 4}, {"labels", f.batch.labels, tokens * 4}};
    double loss[2], n[2];
    for (int round = 0; round < 2; round++) {
        for (uint64_t i = 0; i < f.data.val_batches; i++) {
            tern_data_fill_validation(&f.data, i, &f.batch);
            TEST_OK(tern_stepper_eval(f.stepper, feeds, 2));
        }
        TEST_OK(tern_stepper_eval_finish(f.stepper, &loss[round], &n[round]));
    }
    assert_true(loss[0] == loss[1] && n[0] == n[1] && loss[0] > 0);
    assert_true(n[0] == (double)((f.data.val_bytes - 1) / f.data.options.context * f.data.options.context));
    for (size_t i = 0; i < 7; i++) {
        void *after = read_leaf(&f, names[i], &bytes[i]);
        assert_memory_equal(before[i], after, bytes[i]);
        free(before[i]);
        free(after);
    }
    test_run_stop(&f);
}

/* A real run's device memory is the plan's, to the byte, and steps do not grow it. */
static void test_memory_is_the_plan(void **state)
{
    (void)state;
    test_run f;
    tern_setup_memory memory;
    test_run_start(&f, "cpu", 2, &test_tiny);
    tern_setup_measure(f.setup, &memory);
    if (!f.device->backend->allocated_bytes) TEST_SKIP("the cpu backend does not count its bytes");
    assert_int_equal(f.device->backend->allocated_bytes(f.device->handle), memory.total);
    run_steps(&f, 3);
    assert_int_equal(f.device->backend->allocated_bytes(f.device->handle), memory.total);
    test_run_stop(&f);
}

/* ------------------------------------------------------------------- counts */

static void test_counts(void **state)
{
    (void)state;
    test_run f;
    tern_null_counts before, after;
    tern_step_report report;
    tern_step_counts counts;
    tern_executable_counts micro_counts, update_counts;
    test_run_start(&f, "null", 0, &test_tiny);
    tern_executable_count(tern_stepper_executable(f.stepper, TERN_PROGRAM_MICRO), &micro_counts);
    tern_executable_count(tern_stepper_executable(f.stepper, TERN_PROGRAM_UPDATE), &update_counts);
    assert_true(micro_counts.submissions <= 4 && update_counts.submissions <= 2);
    assert_true(update_counts.dispatches <= 6 * f.setup->layout->segment_count);
    test_null_hooks(f.device)->counts(&before);
    for (uint32_t i = 0; i < 100; i++) {
        TEST_OK(test_run_micro(&f, i * 4, 0));
        TEST_OK(tern_stepper_update(f.stepper, 1e-2, &report));
    }
    tern_stepper_count(f.stepper, &counts);
    test_null_hooks(f.device)->counts(&after);
    assert_int_equal(counts.submissions, 200);
    assert_int_equal(counts.late_waits, 0); /* no host wait reads a value of the current step */
    assert_int_equal(after.program_submits - before.program_submits, 200);
    assert_true(after.in_flight_peak <= 2);
    assert_int_equal(after.bytes, before.bytes);
    assert_int_equal(after.kernels_created, before.kernels_created);
    test_run_drain(&f);
    test_run_stop(&f);
}

/* Every call of the driver fails once: the right status comes back and nothing is left. */
static void test_every_failure(void **state)
{
    (void)state;
    tern_gpt2_options model = test_tiny;
    model.layers = 1;
    bool done = false;
    for (uint64_t call = 1; !done; call++) {
        tern_device *device = test_open_device("null", 0);
        const tern_null_hooks *hooks = test_null_hooks(device);
        const tern_setup_options options = test_setup_options(&model);
        tern_setup *setup = NULL;
        tern_stepper *stepper = NULL;
        tern_null_counts before, after;
        tern_step_report report;
        hooks->counts(&before);
        TEST_OK(tern_setup_create(device, &options, &setup));
        hooks->fail_call(call, TERN_ERROR_DRIVER);
        tern_status status = tern_stepper_create(setup, 1, &stepper);
        for (int i = 0; i < 2 && status >= 0; i++) {
            status = tern_stepper_micro(stepper, NULL, 0, 0);
            if (status >= 0) status = tern_stepper_update(stepper, 1e-3, &report);
        }
        done = status >= 0;
        if (!done) assert_int_equal(status, TERN_ERROR_DRIVER);
        hooks->fail_call(0, TERN_OK);
        tern_stepper_destroy(stepper);
        hooks->counts(&after);
        assert_int_equal(after.buffers, before.buffers);
        assert_int_equal(after.kernels, before.kernels);
        assert_int_equal(after.programs, before.programs);
        assert_int_equal(after.misuses, before.misuses);
        tern_setup_destroy(setup);
        tern_device_close(device);
        assert_true(call < 2000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients_match_reference),
        cmocka_unit_test(test_accumulation_is_the_big_batch),
        cmocka_unit_test(test_bitwise),
        cmocka_unit_test(test_skip_on_device),
        cmocka_unit_test(test_evaluation_touches_nothing),
        cmocka_unit_test(test_memory_is_the_plan),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_every_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
