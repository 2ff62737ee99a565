/* SPDX-License-Identifier: Apache-2.0 */
/* test_optimizer_training.c - whole trainings by every optimizer, in f32 and in 16 bits with and without masters: they
 * learn, to nearly the same loss, in exactly the bytes that were planned.
 *
 * A toy regression; formulas and single steps are tested elsewhere. */
#include "core/models/gpt2.h"
#include "tests/test.h"
#include "tests/toy_model.h"

#include <stdlib.h>

enum { BATCH = 32, WINDOWS = 150 };

static tern_device *device;

static const struct {
    tern_optimizer_kind kind;
    double lr;
} kinds[] = {
    {TERN_OPTIMIZER_ADAMW, 0.01}, {TERN_OPTIMIZER_ADAM, 0.01},      {TERN_OPTIMIZER_SGD, 0.1},
    {TERN_OPTIMIZER_LION, 0.003}, {TERN_OPTIMIZER_ADAFACTOR, 0.01}, {TERN_OPTIMIZER_MUON, 0.01},
};

static const struct {
    const char *name;
    int32_t precision;
    bool no_masters, eight_bit;
    double tolerance; /* of the difference to f32, as a part of the first loss */
} ways[] = {
    {"f32", 0, false, false, 0},
    {"8-bit moments", 0, false, true, 0.01},
    {"bf16", TERN_BF16, false, false, 0.01},
    {"bf16 only", TERN_BF16, true, false, 0.02},
    {"bf16 only, 8-bit moments", TERN_BF16, true, true, 0.02},
};

/* A smooth function of x that the toy can learn most of. */
static void fill(toy_batch *batch)
{
    for (int i = 0; i < BATCH * TOY_IN; i++) batch->x[i] = (float)sin(i * 12.9898 + 1);
    for (int i = 0; i < BATCH; i++) {
        const float *x = batch->x + i * TOY_IN;
        for (int k = 0; k < TOY_OUT; k++) batch->y[i * TOY_OUT + k] = (float)sin((double)(x[k] + x[k + 1] * x[k + 2]));
        batch->weight[i] = 1;
    }
}

/* The mean loss of the last 20 windows; *out_first: of the first. */
static double train(size_t kind, size_t way, const toy_batch *batch, double *out_first)
{
    static const toy_model model = {.dropout = 0};
    toy_run run;
    tern_setup_memory memory;
    tern_step_report report;
    double loss = 0;
    tern_setup_options options = toy_options(&model, BATCH);
    tern_optimizer_init(&options.optimizer, kinds[kind].kind);
    options.optimizer.eight_bit = ways[way].eight_bit;
    options.precision = ways[way].precision;
    options.no_masters = ways[way].no_masters;
    const uint64_t before = device->backend->allocated_bytes(device->handle);
    toy_start(&run, device, &options);
    tern_setup_measure(run.setup, &memory);
    assert_int_equal(device->backend->allocated_bytes(device->handle) - before, memory.total);
    for (int window = 0; window < WINDOWS; window++) {
        TEST_OK(toy_micro(&run, batch, 0));
        TEST_OK(tern_stepper_update(run.stepper, kinds[kind].lr, &report));
        if (window == 1) *out_first = report.loss;
        if (window > WINDOWS - 20) loss += report.loss / 20;
    }
    TEST_OK(tern_stepper_finish(run.stepper, &report));
    loss += report.loss / 20;
    assert_int_equal(report.good_steps, WINDOWS);
    toy_stop(&run);
    return loss;
}

static void test_training(void **state)
{
    (void)state;
    toy_batch batch;
    toy_batch_create(&batch, BATCH);
    fill(&batch);
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        double plain = 0;
        for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
            double first = 0;
            if (kinds[kind].kind == TERN_OPTIMIZER_ADAFACTOR && ways[way].eight_bit) continue; /* refused */
            const double last = train(kind, way, &batch, &first);
            print_message("%-10s %-26s loss %.4f -> %.4f\n", tern_optimizers[kinds[kind].kind].name, ways[way].name,
                          first, last);
            if (way == 0) plain = last;
            assert_true(last < 0.5 * first);
            assert_true(fabs(last - plain) <= ways[way].tolerance * first);
        }
    }
    toy_batch_finish(&batch);
}

/* A group's parameters keep their bits when frozen, and move by a hundredth when their rate is a hundredth; a frozen
 * one has no share in the norm. */
static void test_groups(void **state)
{
    (void)state;
    static const toy_model model = {.dropout = 0};
    static const char *const texts[] = {"*:lr=1", "up.*:frozen", "up.*:lr=0.01"};
    float start[TOY_HIDDEN * TOY_IN], end[TOY_HIDDEN * TOY_IN];
    double moved[3], norms[3];
    toy_batch batch;
    toy_batch_create(&batch, BATCH);
    fill(&batch);
    for (size_t i = 0; i < 3; i++) {
        toy_run run;
        tern_step_report report;
        tern_parameter_group group;
        tern_setup_options options = toy_options(&model, BATCH);
        TEST_OK(tern_parameter_group_parse(texts[i], &group));
        options.optimizer = (tern_optimizer){.kind = TERN_OPTIMIZER_SGD};
        options.groups = &group;
        options.group_count = 1;
        toy_start(&run, device, &options);
        TEST_OK(tern_store_read(tern_stepper_store(run.stepper), "up.weight", start, sizeof start));
        TEST_OK(toy_micro(&run, &batch, 0));
        TEST_OK(tern_stepper_update(run.stepper, 0.1, &report));
        TEST_OK(tern_stepper_finish(run.stepper, &report));
        TEST_OK(tern_store_read(tern_stepper_store(run.stepper), "up.weight", end, sizeof end));
        norms[i] = report.norm;
        moved[i] = 0;
        for (int k = 0; k < TOY_HIDDEN * TOY_IN; k++) moved[i] += fabs((double)end[k] - (double)start[k]);
        toy_stop(&run);
    }
    assert_true(moved[0] > 0 && moved[1] == 0);
    TEST_NEAR(moved[2], 0.01 * moved[0], 1e-4 * moved[0]);
    assert_true(norms[1] < norms[0] && norms[2] == norms[0]);
    toy_batch_finish(&batch);
}

static tern_status build_gpt2(void *context, tern_graph *graph, uint32_t batch)
{
    tern_gpt2_options options = *(const tern_gpt2_options *)context;
    options.batch = batch;
    return tern_gpt2_build_loss(graph, &options);
}

/* GPT-2 124M by plan: what training keeps in bf16 without masters and with 8-bit moments, to what f32 AdamW keeps. */
static void test_bytes_of_gpt2(void **state)
{
    (void)state;
    tern_device *paper = NULL;
    tern_gpt2_options model;
    double bytes[2];
    TEST_OK(tern_device_open_paper("rtx-4090", &paper));
    TEST_OK(tern_gpt2_preset("gpt2", &model));
    for (int small = 0; small < 2; small++) {
        tern_setup *setup = NULL;
        tern_setup_memory m;
        tern_setup_options options = {.model = {build_gpt2, &model}, .batch = 1};
        tern_optimizer_init(&options.optimizer, TERN_OPTIMIZER_ADAMW);
        options.precision = small ? TERN_BF16 : 0;
        options.no_masters = options.optimizer.eight_bit = small;
        TEST_OK(tern_setup_create(paper, &options, &setup));
        tern_setup_measure(setup, &m);
        bytes[small] = (double)(m.weights + m.low + m.gradients + m.moments + m.states);
        print_message("weights %.1f, 16-bit %.1f, gradients %.1f, moments %.1f MB\n", (double)m.weights / 1e6,
                      (double)m.low / 1e6, (double)m.gradients / 1e6, (double)m.moments / 1e6);
        tern_setup_destroy(setup);
    }
    print_message("%.4f of f32's bytes\n", bytes[1] / bytes[0]);
    assert_true(bytes[1] <= 0.55 * bytes[0]);
    tern_device_close(paper);
}

/* Adafactor has nothing that 8 bits could shrink; the sentence says so before anything runs. */
static void test_refused(void **state)
{
    (void)state;
    static const toy_model model = {.dropout = 0};
    tern_setup *setup = NULL;
    tern_parameter_group group;
    tern_setup_options options = toy_options(&model, BATCH);
    tern_optimizer_init(&options.optimizer, TERN_OPTIMIZER_ADAFACTOR);
    options.optimizer.eight_bit = true;
    TEST_ERROR(tern_setup_create(device, &options, &setup), TERN_ERROR_INVALID, "8-bit moments save nothing");
    tern_optimizer_init(&options.optimizer, TERN_OPTIMIZER_ADAMW);
    TEST_OK(tern_parameter_group_parse("up.*:muon", &group));
    options.groups = &group;
    options.group_count = 1;
    TEST_ERROR(tern_setup_create(device, &options, &setup), TERN_ERROR_INVALID, "group \"up.*\" names an optimizer");
    assert_null(setup);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_training), cmocka_unit_test(test_groups),
                                       cmocka_unit_test(test_bytes_of_gpt2), cmocka_unit_test(test_refused)};
    if (tern_device_open("cpu", &device) < 0) {
        print_error("%s\n", tern_error_message());
        return 1;
    }
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tern_device_close(device);
    return failed;
}
