/* SPDX-License-Identifier: Apache-2.0 */
/* test_optimizer.c - what holds for every optimizer and every way of keeping its numbers: skips, launches, coordinates
 * that must not move, rounding that is right on average, bytes.
 *
 * The formulas are test_optimizer_goldens.c's. */
#include "core/kernel/lowered.h"
#include "tests/test.h"
#include "tests/update_run.h"

#include <stdlib.h>

static tern_device *device;

/* Kinds and ways of keeping; which go together is decided by `allowed`. */
static const struct {
    const char *name;
    tern_optimizer optimizer;
} kinds[] = {
    {"adamw", {TERN_OPTIMIZER_ADAMW, 0.9, 0.95, 1e-8, 0.1, .momentum = 0}},
    {"adam", {TERN_OPTIMIZER_ADAM, 0.9, 0.999, 1e-8, 0.1, .momentum = 0}},
    {"sgd", {.kind = TERN_OPTIMIZER_SGD, .weight_decay = 0.1}},
    {"nesterov", {.kind = TERN_OPTIMIZER_SGD, .weight_decay = 0.1, .momentum = 0.9, .nesterov = true}},
    {"lion", {.kind = TERN_OPTIMIZER_LION, .beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.1}},
    {"adafactor", {.kind = TERN_OPTIMIZER_ADAFACTOR, .weight_decay = 0.1}},
    {"muon", {TERN_OPTIMIZER_MUON, 0.9, 0.95, 1e-8, 0.1, .momentum = 0.95, .nesterov = true}},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static const struct {
    const char *name;
    int32_t low;
    bool no_masters, eight_bit, round_nearest;
} ways[] = {
    {"f32", 0, false, false, false},
    {"masters and bf16", TERN_BF16, false, false, false},
    {"masters and f16", TERN_F16, false, false, false},
    {"bf16 only", TERN_BF16, true, false, false},
    {"bf16 only, nearest", TERN_BF16, true, false, true},
    {"f16 only", TERN_F16, true, false, false},
    {"8-bit moments", 0, false, true, false},
    {"bf16 only, 8-bit moments", TERN_BF16, true, true, false},
};
enum { WAYS = sizeof ways / sizeof *ways };

static bool allowed(size_t kind, size_t way)
{
    return !(kinds[kind].optimizer.kind == TERN_OPTIMIZER_ADAFACTOR && ways[way].eight_bit);
}

static tern_store_options store_options(const tern_optimizer *optimizer, size_t way)
{
    tern_store_options o = {
        .training = true, .low = ways[way].low, .no_masters = ways[way].no_masters, .optimizer = *optimizer};
    o.optimizer.eight_bit = ways[way].eight_bit;
    o.optimizer.round_nearest = ways[way].round_nearest;
    return o;
}

/* Muon's hidden matrix is named, since this graph has no matmul. */
static void start(update_run *run, size_t kind, size_t way)
{
    tern_parameter_group group;
    tern_store_options options = store_options(&kinds[kind].optimizer, way);
    TEST_OK(tern_parameter_group_parse("w:muon", &group));
    if (options.optimizer.kind == TERN_OPTIMIZER_MUON) {
        options.groups = &group;
        options.group_count = 1;
    }
    update_run_start(run, device, &options);
}

/* ---------------------------------------------------------------------- skips */

static void expect_kept(update_run *run, const char *what, float n, float value)
{
    uint64_t before_bytes, after_bytes;
    float w[2000];
    unsigned char *before = update_run_kept(run, &before_bytes);
    update_run_fill(run, 3, 0.5f);
    TEST_OK(tern_store_read(run->store, "acc.w", w, sizeof w));
    w[777] = value;
    TEST_OK(tern_store_write(run->store, "acc.w", w, sizeof w));
    update_run_window(run, n, 0.01f);
    unsigned char *after = update_run_kept(run, &after_bytes);
    assert_int_equal(before_bytes, after_bytes);
    for (uint64_t i = 0; i < before_bytes; i++)
        if (before[i] != after[i])
            fail_msg("%s: byte %llu of %llu changed", what, (unsigned long long)i, (unsigned long long)before_bytes);
    free(before);
    free(after);
}

static void test_skips(void **state)
{
    (void)state;
    for (size_t kind = 0; kind < KINDS; kind++)
        for (size_t way = 0; way < WAYS; way++) {
            update_run run;
            char what[80];
            uint64_t bytes, later_bytes;
            if (!allowed(kind, way)) continue;
            snprintf(what, sizeof what, "%s, %s", kinds[kind].name, ways[way].name);
            start(&run, kind, way);
            for (int i = 0; i < 3; i++) {
                update_run_fill(&run, 4, (float)i);
                update_run_window(&run, 4, 0.01f);
            }
            unsigned char *now = update_run_kept(&run, &bytes);
            expect_kept(&run, what, 4, INFINITY);
            expect_kept(&run, what, 4, -INFINITY);
            expect_kept(&run, what, 4, NAN);
            expect_kept(&run, what, 0, 1);
            update_run_fill(&run, 4, 3);
            update_run_window(&run, 4, 0.01f);
            unsigned char *later = update_run_kept(&run, &later_bytes);
            assert_true(bytes == later_bytes && memcmp(now, later, bytes) != 0); /* it does move when it may */
            free(now);
            free(later);
            update_run_stop(&run);
        }
}

/* ------------------------------------------------------------------- launches */

/* Two segments too large to be merged into one kernel; planned only, for a card that exists on paper. */
static tern_graph *large_leaves(void)
{
    tern_graph *graph = NULL;
    TEST_OK(tern_graph_create(&graph));
    (void)tern_parameter(graph, "w", 2, (const int64_t[]){1024, 1024}, TERN_INIT_NORMAL, 0.5);
    (void)tern_parameter(graph, "u", 2, (const int64_t[]){1024, 1024}, TERN_INIT_NORMAL, 0.5);
    (void)tern_parameter(graph, "b", 1, (const int64_t[]){1 << 20}, TERN_INIT_ONES, 0);
    TEST_OK(tern_graph_status(graph));
    return graph;
}

static uint32_t count_launches(const tern_device *paper, const tern_store_options *options)
{
    tern_graph *leaves = large_leaves(), *graph = NULL;
    tern_store_layout *layout = NULL;
    tern_lowered *lowered = NULL;
    const tern_update_options update = {.clip = 1};
    const tern_lower_options lower = {.fuse = true};
    TEST_OK(tern_store_layout_create(leaves, &paper->info, options, &layout));
    TEST_OK(tern_graph_create(&graph));
    TEST_OK(tern_update_build(graph, layout, &update));
    TEST_OK(tern_lower(graph, &paper->info, &lower, &lowered));
    const uint32_t count = lowered->launch_count;
    tern_lowered_destroy(lowered);
    tern_store_layout_destroy(layout);
    tern_graph_destroy(graph);
    tern_graph_destroy(leaves);
    return count;
}

/* As many kernels as AdamW in f32, whatever the numbers are kept as; Muon and Adafactor apart. */
static void test_launches(void **state)
{
    (void)state;
    tern_device *paper = NULL;
    TEST_OK(tern_device_open_paper("rtx-4090", &paper));
    const tern_store_options plain = store_options(&kinds[0].optimizer, 0);
    const uint32_t usual = count_launches(paper, &plain);
    print_message("adamw in f32: %u launches for 2 segments\n", usual);
    for (size_t kind = 0; kind < KINDS; kind++)
        for (size_t way = 0; way < WAYS; way++) {
            if (!allowed(kind, way) || kinds[kind].optimizer.kind == TERN_OPTIMIZER_ADAFACTOR ||
                kinds[kind].optimizer.kind == TERN_OPTIMIZER_MUON)
                continue;
            const tern_store_options options = store_options(&kinds[kind].optimizer, way);
            const uint32_t count = count_launches(paper, &options);
            if (count > usual) fail_msg("%s, %s: %u launches", kinds[kind].name, ways[way].name, count);
        }
    tern_device_close(paper);
}

/* ----------------------------------------------------------------- codes of moments */

/* Writes the same value into a slice of "acc.g". */
static void write_g(update_run *run, const float *values)
{
    TEST_OK(tern_store_write(run->store, "acc.g", values, 600 * sizeof *values));
}

/* Where the gradient is always 0, beside ones, nothing moves in 500 steps: 0 is a code of its own. */
static void test_still_coordinates(void **state)
{
    (void)state;
    for (size_t kind = 0; kind < KINDS; kind++) {
        if (!allowed(kind, 6) || kinds[kind].optimizer.kind == TERN_OPTIMIZER_MUON) continue;
        for (size_t way = 6; way < WAYS; way++) {
            update_run run;
            tern_store_options options = store_options(&kinds[kind].optimizer, way);
            float g[600], w[600];
            options.optimizer.weight_decay = 0;
            update_run_start(&run, device, &options);
            for (int i = 0; i < 600; i++) g[i] = i % 7 == 3 ? 0.0f : i % 2 ? 1.0f : -1.0f;
            for (int step = 0; step < 500; step++) {
                write_g(&run, g);
                update_run_window(&run, 1, 0.01f);
            }
            TEST_OK(tern_store_read(run.store, "g", w, sizeof w));
            for (int i = 0; i < 600; i++)
                if ((w[i] == 1.0f) != (g[i] == 0.0f))
                    fail_msg("%s, %s: element %d with gradient %g is %.9g, from 1", kinds[kind].name, ways[way].name, i,
                             (double)g[i], (double)w[i]);
            update_run_stop(&run);
        }
    }
}

/* Decoded here from the description at the head of optimizer_codes.c, not by its code. */
static double decode(uint8_t code, float scale, bool is_v)
{
    const int fraction = is_v ? 4 : 3, magnitude = is_v ? code : code & 127;
    const int e = magnitude >> fraction, f = magnitude & ((1 << fraction) - 1);
    const double part = (double)f / (1 << fraction);
    const double value = (e == 0 ? ldexp(part, -14) : ldexp(1 + part, e - 15)) * (double)scale;
    return is_v ? value * value : code & 128 ? -value : value;
}

static void read_codes(update_run *run, const char *slab, double *out, bool is_v)
{
    char name[16];
    uint8_t codes[600];
    float scales[3];
    snprintf(name, sizeof name, "%s.g", slab);
    TEST_OK(tern_store_read(run->store, name, codes, sizeof codes));
    snprintf(name, sizeof name, "%s_scale.g", slab);
    TEST_OK(tern_store_read(run->store, name, scales, sizeof scales));
    for (int i = 0; i < 600; i++) out[i] = decode(codes[i], scales[i / 256], is_v);
}

/* With beta 0 the moments are g and g^2, so what is read back is their rounding: of a normal distribution, over 5
 * decades, and exactly 0, largest and negative values. */
static void check_codes(void)
{
    enum { TIMES = 400 };
    update_run run;
    const tern_optimizer optimizer = {.kind = TERN_OPTIMIZER_ADAM, .epsilon = 1e-8};
    const tern_store_options options = store_options(&optimizer, 6);
    float g[600];
    double got[600], m_sum[600] = {0}, v_sum[600] = {0}, m_error = 0, v_error = 0, m_norm = 0, v_norm = 0, worst_m = 0,
                     worst_v = 0;
    const double spread = 1.0 / 8, tiny = ldexp(1, -17) / 1.875; /* spacing: of a magnitude, of the block's largest */
    update_run_start(&run, device, &options);
    for (int i = 0; i < 600; i++) g[i] = (float)(sin(i * 12.9898) * pow(10, -(i % 11) * 0.5));
    g[0] = g[300] = 0;
    g[1] = -1;
    g[299] = 1;
    g[520] = 1;
    for (int time = 0; time < TIMES; time++) {
        write_g(&run, g);
        update_run_window(&run, 1, 0);
        read_codes(&run, "m", got, false);
        for (int i = 0; i < 600; i++) {
            const double x = (double)g[i], e = fabs(got[i] - x);
            assert_true(e <= 1.0001 * fmax(fabs(x) * spread, tiny) && (x != 0 || got[i] == 0));
            if (fabs(x) > 1e-3) worst_m = fmax(worst_m, e / fabs(x));
            m_sum[i] += got[i] / TIMES;
            m_error += e * e;
            m_norm += x * x;
        }
        TEST_NEAR(got[1], -1, 1e-6); /* the largest of its block is kept */
        TEST_NEAR(got[299], 1, 1e-6);
        TEST_NEAR(got[520], 1, 1e-6);
        read_codes(&run, "v", got, true);
        for (int i = 0; i < 600; i++) {
            const double x = (double)g[i], root = sqrt(got[i]), e = fabs(root - fabs(x));
            assert_true(e <= 1.0001 * fmax(fabs(x) * spread / 2, tiny / 2) && (x == 0) == (got[i] == 0));
            if (fabs(x) > 1e-3) worst_v = fmax(worst_v, e / fabs(x));
            v_sum[i] += root / TIMES;
            v_error += e * e;
            v_norm += x * x;
        }
    }
    print_message("m: error %.2f %% of the norm, at most %.2f %% of a value above 1e-3; sqrt(v): %.2f %%, %.2f %%\n",
                  100 * sqrt(m_error / m_norm), 100 * worst_m, 100 * sqrt(v_error / v_norm), 100 * worst_v);
    for (int i = 0; i < 600; i++) { /* on average right, within 5 standard errors of a rounding */
        const double x = (double)g[i], m_step = fmax(fabs(x) * spread, tiny);
        assert_true(fabs(m_sum[i] - x) <= 5 * m_step / 2 / sqrt(TIMES));
        if (fabs(x) > 1e-4) assert_true(fabs(v_sum[i] - fabs(x)) <= 5 * m_step / 4 / sqrt(TIMES));
    }
    update_run_stop(&run);
}

static void test_codes(void **state)
{
    (void)state;
    check_codes();
}

/* An average that moves by less than half a code's spacing each step must still arrive: rounded to nearest, v would
 * stop at 0.02 on its way from 0.01 to 0.137, the block's largest standing still. */
static void test_slow_averages(void **state)
{
    (void)state;
    update_run run;
    const tern_optimizer optimizer = {.kind = TERN_OPTIMIZER_ADAM, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8};
    const tern_store_options options = store_options(&optimizer, 6);
    float g[600];
    double v[600], mean = 0;
    update_run_start(&run, device, &options);
    for (int step = 0; step < 1500; step++) {
        for (int i = 0; i < 600; i++) g[i] = i % 3 == 0 ? 1.0f : step < 700 ? 0.1f : 0.37f;
        write_g(&run, g);
        update_run_window(&run, 1, 0);
    }
    read_codes(&run, "v", v, true);
    for (int i = 0; i < 600; i++) mean += g[i] < 1 ? v[i] / 400 : 0;
    print_message("v, 800 steps after g became 0.37: %.4f, wanted %.4f\n", mean, 0.37 * 0.37);
    TEST_NEAR(mean, 0.37 * 0.37, 0.03 * 0.37 * 0.37);
    update_run_stop(&run);
}

/* ------------------------------------------------------------------ stochastic rounding */

/* w = 1 in bf16 (spacing 1/128 above) minus lr g, with lr g = -share / 128. */
static double share_of_ups(size_t way, float share, uint16_t *out_bits)
{
    update_run run;
    const tern_optimizer optimizer = {.kind = TERN_OPTIMIZER_SGD};
    const tern_store_options options = store_options(&optimizer, way);
    float g[600];
    double ups = 0;
    update_run_start(&run, device, &options);
    for (int i = 0; i < 600; i++) g[i] = -share;
    write_g(&run, g);
    update_run_window(&run, 1, 0x1p-7f);
    TEST_OK(tern_store_read(run.store, "low.g", out_bits, 600 * sizeof *out_bits));
    for (int i = 0; i < 600; i++) {
        assert_true(out_bits[i] == 0x3f80 || out_bits[i] == 0x3f81); /* 1, 1 + 1/128 */
        ups += out_bits[i] == 0x3f81;
    }
    update_run_stop(&run);
    return ups / 600;
}

static void test_stochastic_rounding(void **state)
{
    (void)state;
    static const float shares[] = {0, 0.125f, 0.3f, 0.5f, 0.9f};
    uint16_t bits[600];
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        const double p = (double)shares[i], ups = share_of_ups(3, shares[i], bits);
        TEST_NEAR(ups, p, 4.5 * sqrt(p * (1 - p) / 600)); /* 0: exactly, what is representable stays */
        TEST_NEAR(share_of_ups(4, shares[i], bits), p > 0.5 ? 1 : 0, 0);
    }
}

/* Calls `check` with `device` opened on each backend that is here. */
static void on_backends(void (*check)(void))
{
    static const char *const names[] = {"opencl", "vulkan"};
    tern_device *cpu = device;
    uint32_t checked = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (tern_device_open(names[i], &device) < 0) {
            print_message("skipped on %s: %s\n", names[i], tern_error_message());
            continue;
        }
        check();
        checked++;
        tern_device_close(device);
    }
    device = cpu;
    if (checked == 0) TEST_SKIP("there is no second backend to compare with");
}

static uint16_t rounded_on_cpu[600];

static void check_rounding(void)
{
    uint16_t got[600];
    share_of_ups(3, 0.375f, got);
    assert_memory_equal(got, rounded_on_cpu, sizeof got);
}

/* The same bits on every backend: the arithmetic of this step is exact, so that only the rounding could differ. */
static void test_rounding_on_backends(void **state)
{
    (void)state;
    share_of_ups(3, 0.375f, rounded_on_cpu);
    on_backends(check_rounding);
}

static void test_codes_on_backends(void **state)
{
    (void)state;
    on_backends(check_codes);
}

static void test_infinite_weights_stay(void **state)
{
    (void)state;
    update_run run;
    const tern_optimizer optimizer = {.kind = TERN_OPTIMIZER_SGD};
    const tern_store_options options = store_options(&optimizer, 3);
    float w[600];
    uint16_t bits[600];
    update_run_start(&run, device, &options);
    for (int i = 0; i < 600; i++) w[i] = i % 3 == 0 ? INFINITY : i % 3 == 1 ? -INFINITY : 3.3e38f;
    TEST_OK(tern_store_write(run.store, "g", w, sizeof w));
    for (int i = 0; i < 600; i++) w[i] = -1e30f; /* too little to matter beside 3e38 but by rounding up */
    write_g(&run, w);
    update_run_window(&run, 1, 1e-14f);
    TEST_OK(tern_store_read(run.store, "low.g", bits, sizeof bits));
    for (int i = 0; i < 600; i++)
        assert_true(i % 3 == 0 ? bits[i] == 0x7f80 : i % 3 == 1 ? bits[i] == 0xff80 : (bits[i] & 0x7f80u) >= 0x7f00);
    update_run_stop(&run);
}

/* ------------------------------------------------------------------------ bytes */

static uint64_t state_bytes(const tern_store_layout *layout)
{
    uint64_t bytes = 0;
    for (int slab = 0; slab < TERN_SLAB_COUNT; slab++) bytes += tern_store_layout_bytes(layout, (tern_store_slab)slab);
    return bytes;
}

/* bf16 weights without masters and 8-bit moments: at most 0.55 of AdamW's f32, by plan and as allocated. */
static void test_state_bytes(void **state)
{
    (void)state;
    tern_device *null = NULL;
    double bytes[2];
    TEST_OK(tern_device_open("null", &null));
    for (size_t k = 0; k < 2; k++) {
        tern_graph *leaves = large_leaves();
        tern_store_layout *layout = NULL;
        tern_store *store = NULL;
        const tern_store_options options = store_options(&kinds[0].optimizer, k == 0 ? 0 : 7);
        TEST_OK(tern_store_layout_create(leaves, &null->info, &options, &layout));
        const uint64_t before = null->backend->allocated_bytes(null->handle);
        TEST_OK(tern_store_create(null, layout, 1, &store));
        bytes[k] = (double)state_bytes(layout);
        assert_int_equal(null->backend->allocated_bytes(null->handle) - before, state_bytes(layout));
        tern_store_destroy(store);
        tern_store_layout_destroy(layout);
        tern_graph_destroy(leaves);
    }
    print_message("bf16 and 8-bit moments: %.4f of f32's bytes\n", bytes[1] / bytes[0]);
    assert_true(bytes[1] <= 0.55 * bytes[0]);
    tern_device_close(null);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_skips),
        cmocka_unit_test(test_launches),
        cmocka_unit_test(test_still_coordinates),
        cmocka_unit_test(test_codes),
        cmocka_unit_test(test_slow_averages),
        cmocka_unit_test(test_stochastic_rounding),
        cmocka_unit_test(test_rounding_on_backends),
        cmocka_unit_test(test_codes_on_backends),
        cmocka_unit_test(test_infinite_weights_stay),
        cmocka_unit_test(test_state_bytes),
    };
    if (tern_device_open("cpu", &device) < 0) {
        print_error("%s\n", tern_error_message());
        return 1;
    }
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tern_device_close(device);
    return failed;
}
