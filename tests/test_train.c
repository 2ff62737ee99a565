/* SPDX-License-Identifier: Apache-2.0 */
/* test_train.c - the update and the accumulation, decided by the reference executor and plain loops; store, schedule,
 * sampling.
 *
 * No device: what runs on one is in test_step.c. */
#include "tests/test.h"

#include <stdlib.h>

#include "core/passes/accumulate.h"
#include "core/passes/save_rule.h"
#include "core/reference/reference.h"
#include "core/train/optimizer_build.h"
#include "core/train/sample.h"
#include "core/train/schedule.h"
#include "core/train/update.h"

static const tern_device_info roomy = {
    .name = "paper", .max_allocation_bytes = 1u << 30, .max_buffer_bytes = 1u << 30, .max_binding_bytes = 1u << 30};

/* ----------------------------------------------------------------- schedule */

static void test_schedule(void **state)
{
    (void)state;
    const tern_schedule s = {.lr = 1.0, .min_lr = 0.1, .warmup = 4, .steps = 13};
    static const double expected[] = {0.25, 0.5, 0.75, 1.0, 1.0};
    for (uint64_t i = 0; i < 5; i++) TEST_NEAR(tern_schedule_lr(&s, i), expected[i], 1e-15);
    TEST_NEAR(tern_schedule_lr(&s, 8), 0.55, 1e-12); /* half way down */
    for (uint64_t i = 5; i < 13; i++) assert_true(tern_schedule_lr(&s, i) < tern_schedule_lr(&s, i - 1));
    assert_true(tern_schedule_lr(&s, 12) == 0.1 && tern_schedule_lr(&s, 1000) == 0.1);
    const tern_schedule none = {.lr = 1.0, .min_lr = 0.5, .warmup = 0, .steps = 2};
    assert_true(tern_schedule_lr(&none, 0) == 1.0 && tern_schedule_lr(&none, 1) == 0.5);
    const tern_schedule one = {.lr = 1.0, .min_lr = 0.5, .warmup = 0, .steps = 1};
    assert_true(tern_schedule_lr(&one, 0) == 1.0 && tern_schedule_lr(&one, 1) == 0.5);
}

/* Each kind at a few attempts: warm-up 4, 21 steps, so that attempt 4 + 16 p is at p of the way down. */
static void test_schedule_kinds(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double decay, at[6]; /* p = 0, 0.25, 0.5, 0.75, 0.875, 1 */
    } rows[] = {
        {"constant", 0, {1, 1, 1, 1, 1, 1}},
        {"linear", 0, {1, 0.775, 0.55, 0.325, 0.2125, 0.1}},
        {"cosine", 0, {1, 0.86819805153394642, 0.55, 0.23180194846605361, 0.13425421036992095, 0.1}},
        {"wsd", 0.25, {1, 1, 1, 1, 0.55, 0.1}},
        {"wsd", 0, {1, 1, 1, 1, 0.6625, 0.1}}, /* the last fifth */
        {"wsd", 1, {1, 0.775, 0.55, 0.325, 0.2125, 0.1}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tern_schedule s = {.lr = 1, .min_lr = 0.1, .warmup = 4, .steps = 21, .decay = rows[i].decay};
        static const uint64_t attempts[6] = {4, 8, 12, 16, 18, 20};
        TEST_OK(tern_schedule_parse(rows[i].name, &s.kind));
        assert_string_equal(tern_schedules[s.kind].name, rows[i].name);
        TEST_OK(tern_schedule_check(&s));
        for (uint64_t k = 0; k < 4; k++) TEST_NEAR(tern_schedule_lr(&s, k), 0.25 * (double)(k + 1), 1e-15);
        for (int k = 0; k < 6; k++) TEST_NEAR(tern_schedule_lr(&s, attempts[k]), rows[i].at[k], 1e-12);
        assert_true(tern_schedule_lr(&s, 1000) == rows[i].at[5]);
    }
    tern_schedule s = {.lr = 1, .min_lr = 2, .steps = 1};
    TEST_ERROR(tern_schedule_parse("step", &s.kind), TERN_ERROR_NOT_FOUND, "cosine, constant, linear, wsd");
    TEST_ERROR(tern_schedule_check(&s), TERN_ERROR_INVALID, "its minimum 2");
    s.min_lr = 0;
    s.decay = 1.5;
    TEST_ERROR(tern_schedule_check(&s), TERN_ERROR_INVALID, "decay is 1.5");
}

/* ----------------------------------------------------------------- sampling */

static void test_draw(void **state)
{
    (void)state;
    const float logits[4] = {0.0f, 2.0f, 1.0f, 2.0f};
    tern_sample_options o = {.temperature = 0};
    uint32_t index = 9, counts[4] = {0};
    TEST_OK(tern_sample_draw(logits, 4, &o, 0.999, &index));
    assert_int_equal(index, 1); /* ties: the smaller index */
    o.temperature = 1;
    o.top_k = 2;
    for (int i = 0; i < 100; i++) {
        TEST_OK(tern_sample_draw(logits, 4, &o, i / 100.0, &index));
        counts[index]++;
    }
    assert_int_equal(counts[1], 50);
    assert_int_equal(counts[3], 50);
    o.top_k = 0;
    memset(counts, 0, sizeof counts);
    for (int i = 0; i < 10000; i++) {
        TEST_OK(tern_sample_draw(logits, 4, &o, i / 10000.0, &index));
        counts[index]++;
    }
    const double total = 1 + 2 * exp(2) + exp(1);
    TEST_NEAR(counts[0], 10000 / total, 1.01);
    TEST_NEAR(counts[2], 10000 * exp(1) / total, 1.01);
    const float broken[2] = {0, NAN};
    TEST_ERROR(tern_sample_draw(broken, 2, &o, 0, &index), TERN_ERROR_INVALID, "logit 1");
}

/* ------------------------------------------------------------------- update */

/* decay: a (40, 50), e (4000, 2); plain: b (7), d (1); frozen: f (9). */
static tern_graph *leaf_graph(void)
{
    tern_graph *graph = NULL;
    TEST_OK(tern_graph_create(&graph));
    (void)tern_parameter(graph, "b", 1, (const int64_t[]){7}, TERN_INIT_ONES, 0);
    (void)tern_parameter(graph, "a", 2, (const int64_t[]){40, 50}, TERN_INIT_NORMAL, 0.5);
    tern_parameter_freeze(tern_parameter(graph, "f", 1, (const int64_t[]){9}, TERN_INIT_UNIFORM, 2));
    (void)tern_parameter(graph, "d", 1, (const int64_t[]){1}, TERN_INIT_ZEROS, 0);
    (void)tern_parameter(graph, "e", 2, (const int64_t[]){4000, 2}, TERN_INIT_NORMAL, 1);
    TEST_OK(tern_graph_status(graph));
    return graph;
}

typedef struct fixture {
    tern_graph *leaves, *graph;
    tern_store_layout *layout;
    tern_reference *reference;
    tern_store_options store;
    tern_update_options options;
} fixture;

static void start(fixture *f, double clip)
{
    memset(f, 0, sizeof *f);
    f->store = (tern_store_options){.training = true,
                                    .optimizer = {.beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8, .weight_decay = 0.1}};
    f->options = (tern_update_options){.clip = clip};
    f->leaves = leaf_graph();
    TEST_OK(tern_store_layout_create(f->leaves, &roomy, &f->store, &f->layout));
    TEST_OK(tern_graph_create(&f->graph));
    TEST_OK(tern_update_build(f->graph, f->layout, &f->options));
    TEST_OK(tern_reference_create(f->graph, &f->reference));
    const uint32_t rows = tern_optimizer_table_rows(&f->store.optimizer);
    float *table = malloc(rows * 2 * sizeof *table);
    assert_non_null(table);
    tern_optimizer_table_fill(&f->store.optimizer, rows, table);
    double *to = tern_reference_data(f->reference, tern_graph_find(f->graph, TERN_OP_STATE, TERN_STATE_TABLE));
    for (uint32_t i = 0; i < rows * 2; i++) to[i] = (double)table[i];
    free(table);
    tern_reference_data(f->reference, tern_graph_find(f->graph, TERN_OP_STATE, TERN_STATE_SCALE))[0] = 1;
}

static void stop(fixture *f)
{
    tern_reference_destroy(f->reference);
    tern_graph_destroy(f->graph);
    tern_store_layout_destroy(f->layout);
    tern_graph_destroy(f->leaves);
}

static double *leaf(fixture *f, const char *name)
{
    const tern_tensor *x = tern_graph_find(f->graph, TERN_OP_STATE, name);
    if (!x) fail_msg("no state %s", name);
    return tern_reference_data(f->reference, x);
}

static uint32_t report(fixture *f, int which)
{
    return (uint32_t)tern_reference_data(f->reference, f->graph->outputs[0].tensor)[which];
}

static double report_float(fixture *f, int which)
{
    uint32_t bits = report(f, which);
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

static void set_lr(fixture *f, float lr)
{
    uint32_t bits;
    memcpy(&bits, &lr, sizeof bits);
    tern_reference_data(f->reference, tern_graph_find(f->graph, TERN_OP_INPUT, TERN_CONTROL_NAME))[TERN_CONTROL_LR] =
        bits;
}

static size_t elements(const fixture *f, uint32_t segment) { return (size_t)f->layout->segments[segment].elements; }

/* Gradient sums of one window: n times a smooth pseudo-random gradient, in segments 0 (decay) and 1 (plain). */
static void fill_window(fixture *f, double n, int step)
{
    leaf(f, TERN_STATE_N)[0] = n;
    leaf(f, TERN_STATE_LOSS)[0] = 2.5 * n;
    for (uint32_t segment = 0; segment < 2; segment++) {
        double *acc = leaf(f, segment == 0 ? "slab.acc.0" : "slab.acc.1");
        for (size_t i = 0; i < elements(f, segment); i++)
            acc[i] = n * 0.01 * sin((double)i * 0.37 + step * 1.3 + segment);
    }
}

/* One AdamW step in double, as the literature writes it. */
static double plain_adamw(const fixture *f, bool decays, double *w, double *m, double *v, double g, double lr, int t)
{
    const tern_optimizer *o = &f->store.optimizer;
    *m = o->beta1 * *m + (1 - o->beta1) * g;
    *v = o->beta2 * *v + (1 - o->beta2) * g * g;
    const double m_hat = *m / (1 - pow(o->beta1, t)), v_hat = *v / (1 - pow(o->beta2, t));
    return *w - lr * (m_hat / (sqrt(v_hat) + o->epsilon) + (decays ? o->weight_decay * *w : 0));
}

static void check_steps(double clip)
{
    fixture f;
    start(&f, clip);
    double *w[2], *m[2], *v[2];
    for (uint32_t s = 0; s < 2; s++) {
        w[s] = calloc(elements(&f, s), sizeof *w[s]);
        m[s] = calloc(elements(&f, s), sizeof *m[s]);
        v[s] = calloc(elements(&f, s), sizeof *v[s]);
        assert_true(w[s] && m[s] && v[s]);
        double *to = leaf(&f, s == 0 ? "slab.weight.0" : "slab.weight.1");
        for (size_t i = 0; i < elements(&f, s); i++) to[i] = w[s][i] = cos((double)i);
    }
    for (int step = 0; step < 4; step++) {
        const double n = 3 + step, lr = 0.01f;
        fill_window(&f, n, step);
        double squares = 0;
        for (uint32_t s = 0; s < 2; s++) {
            const double *acc = leaf(&f, s == 0 ? "slab.acc.0" : "slab.acc.1");
            for (size_t i = 0; i < elements(&f, s); i++) squares += acc[i] / n * (acc[i] / n);
        }
        const double factor = clip > 0 ? fmin(1, clip / sqrt(squares)) : 1;
        for (uint32_t s = 0; s < 2; s++) {
            const double *acc = leaf(&f, s == 0 ? "slab.acc.0" : "slab.acc.1");
            for (size_t i = 0; i < elements(&f, s); i++)
                w[s][i] = plain_adamw(&f, s == 0, &w[s][i], &m[s][i], &v[s][i], acc[i] / n * factor, lr, step + 1);
        }
        set_lr(&f, 0.01f);
        TEST_OK(tern_reference_run(f.reference));
        for (uint32_t s = 0; s < 2; s++) {
            const double *got = leaf(&f, s == 0 ? "slab.weight.0" : "slab.weight.1"),
                         *acc = leaf(&f, s == 0 ? "slab.acc.0" : "slab.acc.1");
            for (size_t i = 0; i < elements(&f, s); i++) {
                TEST_NEAR(got[i], w[s][i], 1e-7); /* betas and the table are rounded to f32 */
                assert_true(acc[i] == 0);
            }
        }
        assert_int_equal(report(&f, TERN_REPORT_T), step + 1);
        assert_int_equal(report(&f, TERN_REPORT_BAD), 0);
        TEST_NEAR(report_float(&f, TERN_REPORT_NORM), sqrt(squares), 1e-6 * sqrt(squares));
        TEST_NEAR(report_float(&f, TERN_REPORT_CLIP), factor, 1e-6);
        TEST_NEAR(report_float(&f, TERN_REPORT_LOSS), 2.5 * n, 1e-6);
        TEST_NEAR(report_float(&f, TERN_REPORT_N), n, 0);
        assert_true(leaf(&f, TERN_STATE_N)[0] == 0 && leaf(&f, TERN_STATE_LOSS)[0] == 0);
    }
    for (uint32_t s = 0; s < 2; s++) {
        free(w[s]);
        free(m[s]);
        free(v[s]);
    }
    stop(&f);
}

static void test_adamw_without_clip(void **state)
{
    (void)state;
    check_steps(0);
}

static void test_adamw_with_clip(void **state)
{
    (void)state;
    check_steps(0.05);
}

/* Runs one window whose segment 0 holds `value` at one place; the weights and moments must stay, bit for bit. */
static void check_untouched(double n, double value, uint32_t t, uint32_t skips)
{
    fixture f;
    start(&f, 1);
    static const char *const names[] = {"slab.weight.0", "slab.m.0", "slab.v.0",
                                        "slab.weight.1", "slab.m.1", "slab.v.1"};
    for (uint32_t k = 0; k < 6; k++) {
        double *to = leaf(&f, names[k]);
        for (size_t i = 0; i < elements(&f, k / 3); i++) to[i] = 0.5 + (double)((i + k) % 13);
    }
    fill_window(&f, n, 0);
    leaf(&f, "slab.acc.0")[777] = value;
    leaf(&f, TERN_STATE_T)[0] = 5;
    set_lr(&f, 0.1f);
    TEST_OK(tern_reference_run(f.reference));
    for (uint32_t k = 0; k < 6; k++) {
        const double *got = leaf(&f, names[k]);
        for (size_t i = 0; i < elements(&f, k / 3); i++) assert_true(got[i] == 0.5 + (double)((i + k) % 13));
    }
    assert_int_equal((uint32_t)leaf(&f, TERN_STATE_T)[0], t);
    assert_int_equal((uint32_t)leaf(&f, TERN_STATE_SKIPS)[0], skips);
    assert_int_equal(report(&f, TERN_REPORT_BAD), skips);
    assert_true(leaf(&f, TERN_STATE_N)[0] == 0 && leaf(&f, "slab.acc.0")[777] == 0 && leaf(&f, "slab.acc.0")[3] == 0);
    stop(&f);
}

static void test_skips(void **state)
{
    (void)state;
    check_untouched(4, (double)INFINITY, 5, 1);
    check_untouched(4, -(double)INFINITY, 5, 1);
    check_untouched(4, (double)NAN, 5, 1);
    check_untouched(4, 4e30, 5, 1); /* finite, but its square is not: 1e60 is beyond f32 */
    check_untouched(0, 0, 5, 0);    /* n == 0: no counter moves */
}

static void test_frozen_and_no_parameters(void **state)
{
    (void)state;
    fixture f;
    start(&f, 1);
    assert_null(tern_graph_find(f.graph, TERN_OP_STATE, "slab.weight.2")); /* the frozen segment */
    tern_graph *graph = NULL;
    tern_store_layout *empty = NULL;
    TEST_OK(tern_graph_create(&graph));
    TEST_OK(tern_store_layout_create(graph, &roomy, &f.store, &empty));
    TEST_ERROR(tern_update_build(graph, empty, &f.options), TERN_ERROR_INVALID, "nothing to update");
    tern_update_options bad = {.clip = -1};
    TEST_ERROR(tern_update_build(graph, f.layout, &bad), TERN_ERROR_INVALID, "clip is -1");
    tern_store_layout_destroy(empty);
    tern_graph_destroy(graph);
    stop(&f);
}

static void test_bias_table(void **state)
{
    (void)state;
    tern_optimizer a = {.beta1 = 0.9, .beta2 = 0.999};
    const uint32_t rows = tern_optimizer_table_rows(&a);
    float *table = malloc(rows * 2 * sizeof *table);
    assert_non_null(table);
    tern_optimizer_table_fill(&a, rows, table);
    TEST_NEAR(table[0], 1 / (1 - 0.9), 1e-6);
    TEST_NEAR(table[1], 1 / (1 - 0.999), 1e-4);
    assert_true(table[2 * rows - 1] == 1.0f &&
                table[2 * rows - 2] == 1.0f); /* a clamped gather reads what is exact anyway */
    assert_true(rows > 17000 && rows < 18000);
    free(table);
    a.beta1 = a.beta2 = 0;
    assert_true(tern_optimizer_table_rows(&a) >= 1);
}

/* -------------------------------------------------------------- accumulation */

/* x (4, 3) -> tied "w" used twice -> squared error against y, weight of one row 0. */
static tern_graph *tied_graph(void)
{
    tern_graph *graph = NULL;
    TEST_OK(tern_graph_create(&graph));
    tern_tensor *x = tern_input_2d(graph, "x", TERN_F32, 4, 3), *y = tern_input_2d(graph, "y", TERN_F32, 4, 3);
    tern_tensor *weight = tern_input_2d(graph, "weight", TERN_F32, 4, 3);
    tern_tensor *w = tern_parameter(graph, "w", 2, (const int64_t[]){3, 3}, TERN_INIT_NORMAL, 1);
    (void)tern_parameter(graph, "unused", 1, (const int64_t[]){2}, TERN_INIT_ONES, 0);
    tern_loss(tern_mse(tern_matmul(tern_tanh(tern_matmul(x, w)), tern_transpose(w, 0, 1)), y), weight);
    return graph;
}

static double sum_loss(const double *x, const double *y, const double *weight, const double *w)
{
    double total = 0;
    for (int r = 0; r < 4; r++) {
        double h[3], out;
        for (int j = 0; j < 3; j++) {
            h[j] = 0;
            for (int k = 0; k < 3; k++) h[j] += x[3 * r + k] * w[3 * k + j];
            h[j] = tanh(h[j]);
        }
        for (int j = 0; j < 3; j++) {
            out = 0;
            for (int k = 0; k < 3; k++) out += h[k] * w[3 * j + k];
            total += weight[3 * r + j] * (out - y[3 * r + j]) * (out - y[3 * r + j]);
        }
    }
    return total;
}

/* acc after two micro-batches is twice the finite-difference gradient times S, for the tied parameter as a whole. */
static void test_accumulation(void **state)
{
    (void)state;
    tern_graph *built = tied_graph(), *graph = NULL;
    tern_reference *reference = NULL;
    double x[12], y[12], weight[12], w[9];
    TEST_OK(tern_pass_accumulate(built));
    TEST_OK(tern_pass_save_rule(built, &graph));
    assert_null(tern_graph_find(graph, TERN_OP_STATE, "acc.unused"));
    TEST_OK(tern_reference_create(graph, &reference));
    for (int i = 0; i < 12; i++) {
        x[i] = sin(i * 1.7);
        y[i] = cos(i * 0.9);
        weight[i] = i < 9 ? 0.5 + 0.1 * i : 0;
    }
    for (int i = 0; i < 9; i++) w[i] = 0.3 * sin(i * 2.1 + 1);
    memcpy(tern_reference_data(reference, tern_graph_find(graph, TERN_OP_INPUT, "x")), x, sizeof x);
    memcpy(tern_reference_data(reference, tern_graph_find(graph, TERN_OP_INPUT, "y")), y, sizeof y);
    memcpy(tern_reference_data(reference, tern_graph_find(graph, TERN_OP_INPUT, "weight")), weight, sizeof weight);
    memcpy(tern_reference_data(reference, tern_graph_find(graph, TERN_OP_PARAMETER, "w")), w, sizeof w);
    tern_reference_data(reference, tern_graph_find(graph, TERN_OP_STATE, TERN_STATE_SCALE))[0] = 4;
    TEST_OK(tern_reference_run(reference));
    TEST_OK(tern_reference_run(reference));
    const double *acc = tern_reference_data(reference, tern_graph_find(graph, TERN_OP_STATE, "acc.w"));
    for (int i = 0; i < 9; i++) {
        const double step = 1e-6, old = w[i];
        w[i] = old + step;
        const double up = sum_loss(x, y, weight, w);
        w[i] = old - step;
        const double down = sum_loss(x, y, weight, w);
        w[i] = old;
        TEST_NEAR(acc[i], 2 * 4 * (up - down) / (2 * step), 1e-7);
    }
    double n = 0;
    for (int i = 0; i < 12; i++) n += weight[i];
    TEST_NEAR(tern_reference_data(reference, tern_graph_find(graph, TERN_OP_STATE, TERN_STATE_N))[0], 2 * n, 1e-12);
    TEST_NEAR(tern_reference_data(reference, tern_graph_find(graph, TERN_OP_STATE, TERN_STATE_LOSS))[0],
              2 * sum_loss(x, y, weight, w), 1e-10);
    tern_reference_destroy(reference);
    tern_graph_destroy(graph);
    tern_graph_destroy(built);
}

static void test_accumulate_errors(void **state)
{
    (void)state;
    tern_graph *graph = NULL;
    TEST_OK(tern_graph_create(&graph));
    TEST_ERROR(tern_pass_accumulate(graph), TERN_ERROR_INVALID, "no loss");
    tern_loss(tern_input_1d(graph, "x", TERN_F32, 3), NULL);
    TEST_ERROR(tern_pass_accumulate(graph), TERN_ERROR_INVALID, "nothing to train");
    tern_graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schedule),
        cmocka_unit_test(test_schedule_kinds),
        cmocka_unit_test(test_draw),
        cmocka_unit_test(test_bias_table),
        cmocka_unit_test(test_adamw_without_clip),
        cmocka_unit_test(test_adamw_with_clip),
        cmocka_unit_test(test_skips),
        cmocka_unit_test(test_frozen_and_no_parameters),
        cmocka_unit_test(test_accumulation),
        cmocka_unit_test(test_accumulate_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
