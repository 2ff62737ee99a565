/* SPDX-License-Identifier: Apache-2.0 */
/* test_optimizer_goldens.c - 100 steps of each optimizer against PyTorch in double (goldens/make_optimizer_goldens.py).
 *
 * Run twice: by the reference executor, which decides the formulas, and on the CPU in f32, within 1e-6 of the
 * parameters' norm. */
#include "core/passes/accumulate.h"
#include "core/reference/reference.h"
#include "core/train/optimizer_build.h"
#include "core/train/step.h"
#include "tests/golden_file.h"
#include "tests/test.h"

#include <stdlib.h>

enum { STEPS = 100, FEEDS = 3, VALUES = 4096 };

static test_golden_file goldens;

/* ------------------------------------------------------------------- problems */

static tern_status build_quadratic(void *context, tern_graph *graph, uint32_t batch)
{
    (void)context;
    (void)batch;
    tern_tensor *l = tern_input_2d(graph, "L", TERN_F32, 48, 48), *c = tern_input_2d(graph, "c", TERN_F32, 8, 6);
    tern_tensor *d = tern_input_1d(graph, "d", TERN_F32, 5);
    tern_tensor *w = tern_parameter(graph, "w", 2, (const int64_t[]){8, 6}, TERN_INIT_ZEROS, 0);
    tern_tensor *b = tern_parameter(graph, "b", 1, (const int64_t[]){5}, TERN_INIT_ZEROS, 0);
    tern_tensor *x = tern_matmul(tern_reshape(tern_sub(w, c), 2, (const int64_t[]){1, 48}), l);
    tern_tensor *both[2] = {tern_reshape(x, 1, (const int64_t[]){48}), tern_sub(b, d)};
    tern_tensor *all = tern_concat(both, 2, 0);
    tern_loss(tern_mul(tern_mul(all, all), tern_constant(graph, 0.5)), NULL);
    return tern_graph_status(graph);
}

static tern_status build_mlp(void *context, tern_graph *graph, uint32_t batch)
{
    (void)context;
    (void)batch;
    tern_tensor *x = tern_input_2d(graph, "x", TERN_F32, 16, 5), *y = tern_input_2d(graph, "y", TERN_F32, 16, 3);
    x = tern_tanh(tern_linear(x, "fc1", 7));
    x = tern_tanh(tern_linear(x, "fc2", 6));
    tern_loss(tern_mse(tern_linear(x, "fc3", 3), y), NULL);
    return tern_graph_status(graph);
}

static const struct {
    const char *name;
    tern_status (*build)(void *context, tern_graph *graph, uint32_t batch);
    const char *inputs[FEEDS];
    const char *muon; /* a group that names what is no hidden matrix; NULL: none */
} problems[] = {
    {"quadratic", build_quadratic, {"L", "c", "d"}, "w:muon"},
    {"mlp", build_mlp, {"x", "y", NULL}, NULL},
};

static const struct {
    const char *name;
    float lr;
    tern_optimizer optimizer;
    const char *group;
} runs[] = {
    {"sgd", 0.02f, {.kind = TERN_OPTIMIZER_SGD, .weight_decay = 0.1}, NULL},
    {"momentum", 0.01f, {.kind = TERN_OPTIMIZER_SGD, .weight_decay = 0.1, .momentum = 0.9}, NULL},
    {"nesterov", 0.01f, {.kind = TERN_OPTIMIZER_SGD, .weight_decay = 0.1, .momentum = 0.9, .nesterov = true}, NULL},
    {"adam",
     0.001f,
     {.kind = TERN_OPTIMIZER_ADAM, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.1},
     NULL},
    {"adamw",
     0.001f,
     {.kind = TERN_OPTIMIZER_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1},
     NULL},
    {"lion", 0x1p-12f, {.kind = TERN_OPTIMIZER_LION, .beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.1}, NULL},
    {"adafactor", 0.001f, {.kind = TERN_OPTIMIZER_ADAFACTOR, .weight_decay = 0.1}, NULL},
    {"muon", 0.001f, {TERN_OPTIMIZER_MUON, 0.9, 0.95, 1e-8, 0.1, .momentum = 0.95, .nesterov = true}, NULL},
    {"muon_plain", 0.001f, {TERN_OPTIMIZER_MUON, 0.9, 0.95, 1e-8, 0.1, .momentum = 0.95}, NULL},
    {"groups", 0.001f, {TERN_OPTIMIZER_ADAMW, 0.9, 0.95, 1e-8, 0.1, .momentum = 0}, "*b*:lr=0.5,decay=0.2"},
};

typedef struct fixture {
    size_t problem, run;
    tern_device *device;
    tern_setup *setup;
} fixture;

static const test_golden *golden(const fixture *f, const char *run, const char *tensor)
{
    const test_golden *item = test_golden_find(&goldens, problems[f->problem].name, run, tensor);
    if (!item) fail_msg("no golden %s %s %s", problems[f->problem].name, run, tensor);
    return item;
}

static void start(fixture *f, size_t problem, size_t run)
{
    *f = (fixture){.problem = problem, .run = run};
    tern_parameter_group group;
    tern_setup_options options = {
        .model = {problems[problem].build, NULL}, .batch = 1, .optimizer = runs[run].optimizer};
    const bool muon = runs[run].optimizer.kind == TERN_OPTIMIZER_MUON;
    const char *text = muon ? problems[problem].muon : runs[run].group;
    if (text) {
        TEST_OK(tern_parameter_group_parse(text, &group));
        options.groups = &group;
        options.group_count = 1;
    }
    TEST_OK(tern_device_open("cpu", &f->device));
    TEST_OK(tern_setup_create(f->device, &options, &f->setup));
}

static void stop(fixture *f)
{
    tern_setup_destroy(f->setup);
    tern_device_close(f->device);
}

/* ||got - wanted|| <= tolerance ||wanted|| over all parameters. */
static void check_end(const fixture *f, const char *where, double *const *got, double tolerance)
{
    double difference = 0, norm = 0, moved = 0;
    const tern_store_layout *layout = f->setup->layout;
    for (uint32_t i = 0; i < layout->parameter_count; i++) {
        const test_golden *wanted = golden(f, runs[f->run].name, layout->parameters[i].name);
        const test_golden *from = golden(f, "start", layout->parameters[i].name);
        assert_int_equal(wanted->count, layout->parameters[i].count);
        for (size_t k = 0; k < wanted->count; k++) {
            const double d = got[i][k] - wanted->values[k], step = wanted->values[k] - from->values[k];
            difference += d * d;
            norm += wanted->values[k] * wanted->values[k];
            moved += step * step;
        }
    }
    const double error = sqrt(difference / norm);
    print_message("%-10s %-10s %-10s error %.2e of the norm; the steps are %.2e of it\n", problems[f->problem].name,
                  runs[f->run].name, where, error, sqrt(moved / norm));
    assert_true(moved > 1e-4 * norm); /* a test of an optimizer that stands still would pass */
    if (!(error <= tolerance)) fail_msg("the error is above %g", tolerance);
}

/* ------------------------------------------------------------------ reference */

static double *leaf(tern_reference *reference, const tern_graph *graph, tern_op op, const char *name)
{
    const tern_tensor *x = tern_graph_find(graph, op, name);
    return x ? tern_reference_data(reference, x) : NULL;
}

/* The micro program's accumulators into the update's slabs. */
static void hand_over(const fixture *f, tern_reference *micro, tern_reference *update)
{
    const tern_graph *graphs[2] = {f->setup->programs[TERN_PROGRAM_MICRO].graph,
                                   f->setup->programs[TERN_PROGRAM_UPDATE].graph};
    static const char *const sums[] = {TERN_STATE_N, TERN_STATE_LOSS};
    char name[64];
    for (size_t i = 0; i < 2; i++) {
        double *from = leaf(micro, graphs[0], TERN_OP_STATE, sums[i]);
        leaf(update, graphs[1], TERN_OP_STATE, sums[i])[0] = from[0];
        from[0] = 0;
    }
    for (uint32_t i = 0; i < f->setup->layout->parameter_count; i++) {
        const tern_store_parameter *p = &f->setup->layout->parameters[i];
        snprintf(name, sizeof name, "acc.%s", p->name);
        double *from = leaf(micro, graphs[0], TERN_OP_STATE, name);
        snprintf(name, sizeof name, "slab.acc.%u", p->segment);
        memcpy(leaf(update, graphs[1], TERN_OP_STATE, name) + p->first, from, p->count * sizeof *from);
        memset(from, 0, p->count * sizeof *from);
    }
}

static double *weights(const fixture *f, tern_reference *update, uint32_t parameter)
{
    char name[64];
    const tern_store_parameter *p = &f->setup->layout->parameters[parameter];
    snprintf(name, sizeof name, "slab.weight.%u", p->segment);
    return leaf(update, f->setup->programs[TERN_PROGRAM_UPDATE].graph, TERN_OP_STATE, name) + p->first;
}

static void fill_table(const fixture *f, tern_reference *update)
{
    const tern_optimizer *o = &runs[f->run].optimizer;
    const uint32_t rows = tern_optimizer_table_rows(o);
    float *table = malloc(rows * 2 * sizeof *table);
    assert_non_null(table);
    tern_optimizer_table_fill(o, rows, table);
    double *to = leaf(update, f->setup->programs[TERN_PROGRAM_UPDATE].graph, TERN_OP_STATE, TERN_STATE_TABLE);
    for (uint32_t i = 0; i < rows * 2; i++) to[i] = (double)table[i];
    free(table);
}

static void run_reference(fixture *f)
{
    tern_reference *micro = NULL, *update = NULL;
    const tern_graph *graphs[2] = {f->setup->programs[TERN_PROGRAM_MICRO].graph,
                                   f->setup->programs[TERN_PROGRAM_UPDATE].graph};
    const tern_store_layout *layout = f->setup->layout;
    double *end[16];
    uint32_t bits;
    TEST_OK(tern_reference_create(graphs[0], &micro));
    TEST_OK(tern_reference_create(graphs[1], &update));
    fill_table(f, update);
    leaf(micro, graphs[0], TERN_OP_STATE, TERN_STATE_SCALE)[0] = 1;
    leaf(update, graphs[1], TERN_OP_STATE, TERN_STATE_SCALE)[0] = 1;
    memcpy(&bits, &runs[f->run].lr, sizeof bits);
    leaf(update, graphs[1], TERN_OP_INPUT, TERN_CONTROL_NAME)[TERN_CONTROL_LR] = bits;
    for (size_t i = 0; i < FEEDS && problems[f->problem].inputs[i]; i++) {
        const test_golden *data = golden(f, "data", problems[f->problem].inputs[i]);
        memcpy(leaf(micro, graphs[0], TERN_OP_INPUT, data->tensor), data->values, data->count * sizeof(double));
    }
    for (uint32_t i = 0; i < layout->parameter_count; i++)
        memcpy(weights(f, update, i), golden(f, "start", layout->parameters[i].name)->values,
               layout->parameters[i].count * sizeof(double));
    for (int step = 0; step < STEPS; step++) {
        for (uint32_t i = 0; i < layout->parameter_count; i++)
            memcpy(leaf(micro, graphs[0], TERN_OP_PARAMETER, layout->parameters[i].name), weights(f, update, i),
                   layout->parameters[i].count * sizeof(double));
        TEST_OK(tern_reference_run(micro));
        hand_over(f, micro, update);
        TEST_OK(tern_reference_run(update));
    }
    for (uint32_t i = 0; i < layout->parameter_count; i++) end[i] = weights(f, update, i);
    check_end(f, "reference", end, 1e-6); /* betas, learning rates and tables are f32 constants */
    tern_reference_destroy(micro);
    tern_reference_destroy(update);
}

/* ------------------------------------------------------------------------ cpu */

static void run_device(fixture *f)
{
    const tern_store_layout *layout = f->setup->layout;
    tern_stepper *stepper = NULL;
    tern_step_report report;
    static float values[VALUES], fed[FEEDS][VALUES];
    static double results[16][VALUES];
    double *end[16];
    tern_feed feeds[FEEDS];
    uint32_t feed_count = 0;
    TEST_OK(tern_stepper_create(f->setup, 1, &stepper));
    for (uint32_t i = 0; i < layout->parameter_count; i++) {
        const test_golden *from = golden(f, "start", layout->parameters[i].name);
        for (size_t k = 0; k < from->count; k++) values[k] = (float)from->values[k];
        TEST_OK(tern_store_write(tern_stepper_store(stepper), from->tensor, values, from->count * sizeof(float)));
    }
    for (; feed_count < FEEDS && problems[f->problem].inputs[feed_count]; feed_count++) {
        const test_golden *data = golden(f, "data", problems[f->problem].inputs[feed_count]);
        for (size_t k = 0; k < data->count; k++) fed[feed_count][k] = (float)data->values[k];
        feeds[feed_count] = (tern_feed){data->tensor, fed[feed_count], data->count * sizeof(float)};
    }
    for (int step = 0; step < STEPS; step++) {
        TEST_OK(tern_stepper_micro(stepper, feeds, feed_count, 0));
        TEST_OK(tern_stepper_update(stepper, (double)runs[f->run].lr, &report));
    }
    TEST_OK(tern_stepper_finish(stepper, &report));
    assert_int_equal(report.good_steps, STEPS);
    for (uint32_t i = 0; i < layout->parameter_count; i++) {
        const tern_store_parameter *p = &layout->parameters[i];
        TEST_OK(tern_store_read(tern_stepper_store(stepper), p->name, values, p->bytes));
        for (uint64_t k = 0; k < p->count; k++) results[i][k] = (double)values[k];
        end[i] = results[i];
    }
    check_end(f, "cpu", end, 1e-6);
    tern_stepper_destroy(stepper);
}

static void test_goldens(void **state)
{
    (void)state;
    test_golden_read(TERN_SOURCE_DIR "/tests/goldens/optimizers.txt", &goldens);
    for (size_t problem = 0; problem < sizeof problems / sizeof *problems; problem++)
        for (size_t run = 0; run < sizeof runs / sizeof *runs; run++) {
            fixture f;
            start(&f, problem, run);
            run_reference(&f);
            run_device(&f);
            stop(&f);
        }
    test_golden_finish(&goldens);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_goldens)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
