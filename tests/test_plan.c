/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan.c - plans alone: placement, waits, cuts, limits, and that the checker finds every single corruption. */
#include "core/plan/hazard.h"
#include "tests/plan_fixture.h"
#include "tests/test.h"

#include <stdlib.h>

#define MIB (1024u * 1024u)

static tern_device_info roomy(void)
{
    return (tern_device_info){.name = "card",
                              .memory_bytes = (uint64_t)24 << 30,
                              .memory_free_bytes = (uint64_t)24 << 30,
                              .max_allocation_bytes = (uint64_t)4 << 30,
                              .max_buffer_bytes = (uint64_t)4 << 30,
                              .max_binding_bytes = (uint64_t)4 << 30,
                              .max_groups = {65535, 65535, 65535},
                              .offset_alignment = 256};
}

/* Programs, alignments and block sizes that vary with the seed. */
static tern_lowered *program(uint32_t seed, tern_device_info *info, tern_plan_options *options)
{
    static const uint32_t alignments[] = {64, 256, 4096};
    const fixture_shape shape = {
        .launches = 1u + seed % 70u, .bound = seed % 5u, .inputs = seed % 4u, .largest_bytes = 4u + seed % 7u * 1000u};
    *info = roomy();
    info->offset_alignment = alignments[seed % 3u];
    *options = (tern_plan_options){.block_bytes = seed % 2u ? 32768 : 0, .guard = seed % 5u == 0};
    return fixture_random(seed, &shape);
}

/* ---------------------------------------------------------------- placement */

static void test_random_plans_verify(void **state)
{
    (void)state;
    for (uint32_t seed = 0; seed < 400; seed++) {
        tern_device_info info;
        tern_plan_options options;
        tern_plan *plan;
        tern_lowered *lowered = program(seed, &info, &options);
        TEST_OK(tern_plan_create(lowered, &info, &options, &plan));
        TEST_OK(tern_plan_verify(plan));
        uint64_t sum = 0;
        for (uint32_t b = 0; b < plan->block_count; b++) {
            sum += plan->block_bytes[b];
            if (options.block_bytes) assert_true(plan->block_bytes[b] <= options.block_bytes);
        }
        assert_int_equal(sum, plan->arena_bytes);
        assert_true(plan->arena_bytes >= plan->live_peak_bytes);
        tern_plan_destroy(plan);
        fixture_free(lowered);
    }
}

static void expect_dense(uint32_t layers, uint64_t batch, uint64_t context, uint64_t width, uint64_t heads,
                         uint64_t vocabulary)
{
    const tern_device_info info = roomy();
    tern_lowered *lowered = fixture_transformer(layers, batch, context, width, heads, vocabulary);
    tern_plan *plan;
    TEST_OK(tern_plan_create(lowered, &info, NULL, &plan));
    TEST_OK(tern_plan_verify(plan));
    const double ratio = (double)plan->arena_bytes / (double)plan->live_peak_bytes;
    print_message("%u layers, %llu x %llu, width %llu: peak %.1f MiB, arena %.1f MiB in %u blocks, ratio %.4f\n",
                  layers, (unsigned long long)batch, (unsigned long long)context, (unsigned long long)width,
                  (double)plan->live_peak_bytes / MIB, (double)plan->arena_bytes / MIB, plan->block_count, ratio);
    if (!(ratio <= 1.05)) fail_msg("the arena is %.4f times the largest sum of live bytes, allowed 1.05", ratio);
    tern_plan_destroy(plan);
    fixture_free(lowered);
}

static void test_arena_is_dense(void **state)
{
    (void)state;
    expect_dense(12, 4, 1024, 768, 12, 50257); /* GPT-2 124M */
    expect_dense(12, 1, 1024, 768, 12, 50257);
    expect_dense(12, 8, 512, 768, 12, 50257);
    expect_dense(24, 2, 1024, 1024, 16, 50257);
    expect_dense(4, 8, 128, 256, 8, 256);
    expect_dense(2, 4, 64, 64, 4, 256);
    expect_dense(48, 1, 512, 1600, 25, 50257);
}

static void test_plans_are_deterministic(void **state)
{
    (void)state;
    for (uint32_t seed = 0; seed < 20; seed++) {
        tern_device_info info;
        tern_plan_options options;
        tern_plan *a, *b;
        tern_lowered *lowered = program(seed, &info, &options);
        TEST_OK(tern_plan_create(lowered, &info, &options, &a));
        TEST_OK(tern_plan_create(lowered, &info, &options, &b));
        assert_memory_equal(a->placements, b->placements, lowered->value_count * sizeof *a->placements);
        assert_memory_equal(a->wait_starts, b->wait_starts, (lowered->launch_count + 1u) * sizeof *a->wait_starts);
        tern_plan_destroy(a);
        tern_plan_destroy(b);
        fixture_free(lowered);
    }
}

/* ---------------------------------------------------------------- mutations */

static void expect_caught(const tern_plan *plan, const char *what, uint32_t seed, uint32_t index)
{
    const tern_status status = tern_plan_verify(plan);
    if (status != TERN_ERROR_INTERNAL)
        fail_msg("seed %u: %s %u was not noticed (%s)", seed, what, index, tern_status_name(status));
}

/* Drops each wait in turn, then points each at every other earlier launch. */
static void mutate_waits(tern_plan *plan, uint32_t seed)
{
    const uint32_t launches = plan->lowered->launch_count, total = plan->wait_starts[launches];
    for (uint32_t w = 0; w < total; w++) {
        const uint32_t kept = plan->waits[w];
        uint32_t owner = 0;
        while (plan->wait_starts[owner + 1u] <= w) owner++;
        for (uint32_t i = w; i + 1u < total; i++) plan->waits[i] = plan->waits[i + 1u];
        for (uint32_t i = owner + 1u; i <= launches; i++) plan->wait_starts[i]--;
        expect_caught(plan, "dropped wait", seed, w);
        for (uint32_t i = owner + 1u; i <= launches; i++) plan->wait_starts[i]++;
        for (uint32_t i = total - 1u; i > w; i--) plan->waits[i] = plan->waits[i - 1u];
        for (uint32_t other = 0; other <= owner; other++) {
            plan->waits[w] = other;
            if (other != kept) expect_caught(plan, "redirected wait", seed, w);
        }
        plan->waits[w] = kept;
    }
}

static void mutate_offsets(tern_plan *plan, uint32_t seed)
{
    const uint32_t values = plan->lowered->value_count;
    for (uint32_t a = 0; a < values; a++) {
        if (!tern_plan_in_arena(plan, a)) continue;
        const tern_placement kept = plan->placements[a];
        plan->placements[a].offset += 4;
        expect_caught(plan, "misaligned value", seed, a);
        plan->placements[a].offset = tern_align(plan->block_bytes[kept.block], plan->alignment);
        expect_caught(plan, "value outside of its block", seed, a);
        plan->placements[a] = (tern_placement){.block = plan->block_count, .offset = 0};
        expect_caught(plan, "value in a missing block", seed, a);
        for (uint32_t b = 0; b < values; b++) {
            if (b == a || !tern_plan_in_arena(plan, b) || plan->first_use[a] > plan->last_use[b] ||
                plan->first_use[b] > plan->last_use[a])
                continue;
            plan->placements[a] = plan->placements[b];
            expect_caught(plan, "value on top of another", seed, a);
        }
        plan->placements[a] = kept;
    }
}

static void mutate_lifetimes(tern_plan *plan, uint32_t seed)
{
    for (uint32_t v = 0; v < plan->lowered->value_count; v++) {
        if (!tern_plan_in_arena(plan, v)) continue;
        plan->last_use[v]++;
        expect_caught(plan, "prolonged value", seed, v);
        plan->last_use[v]--;
        plan->first_use[v]++;
        if (plan->first_use[v] <= plan->last_use[v]) expect_caught(plan, "shortened value", seed, v);
        plan->first_use[v]--;
    }
}

static void test_checker_finds_every_corruption(void **state)
{
    (void)state;
    uint32_t waits = 0;
    for (uint32_t seed = 0; seed < 40; seed++) {
        tern_device_info info;
        tern_plan_options options;
        tern_plan *plan;
        tern_lowered *lowered = program(seed, &info, &options);
        TEST_OK(tern_plan_create(lowered, &info, &options, &plan));
        mutate_waits(plan, seed);
        mutate_offsets(plan, seed);
        mutate_lifetimes(plan, seed);
        TEST_OK(tern_plan_verify(plan));
        waits += plan->wait_starts[lowered->launch_count];
        tern_plan_destroy(plan);
        fixture_free(lowered);
    }
    print_message("%u waits corrupted\n", waits);
    assert_true(waits > 500);
}

/* -------------------------------------------------------------------- waits */

static void expect_waits(const tern_plan *plan, uint32_t launch, uint32_t count, const uint32_t *expected)
{
    assert_int_equal(plan->wait_starts[launch + 1u] - plan->wait_starts[launch], count);
    for (uint32_t w = 0; w < count; w++) assert_int_equal(plan->waits[plan->wait_starts[launch] + w], expected[w]);
}

/* a -> b, a -> c, (b, c) -> d; then e writes a bound value that c read: RAW, the diamond without its long edge, WAR. */
static void test_waits_are_reduced(void **state)
{
    (void)state;
    const tern_device_info info = roomy();
    const tern_plan_options options = {.guard = true}; /* no reuse: true dependencies only */
    tern_lowered *lowered = fixture_empty(8, 8);
    const uint32_t w = fixture_value(lowered, TERN_STORAGE_BOUND, TERN_VALUE_WEIGHT, "w", 1024);
    uint32_t v[4];
    for (uint32_t i = 0; i < 4; i++)
        v[i] = fixture_value(lowered, TERN_STORAGE_TRANSIENT, TERN_VALUE_ACTIVATION, "v", 512);
    tern_launch *a = fixture_launch(lowered, "a");
    fixture_use(lowered, a, v[0], TERN_ACCESS_WRITE);
    tern_launch *b = fixture_launch(lowered, "b");
    fixture_use(lowered, b, v[0], TERN_ACCESS_READ);
    fixture_use(lowered, b, v[1], TERN_ACCESS_WRITE);
    tern_launch *c = fixture_launch(lowered, "c");
    fixture_use(lowered, c, v[0], TERN_ACCESS_READ);
    fixture_use(lowered, c, w, TERN_ACCESS_READ);
    c->operands[1].bytes = 256; /* the first quarter of w */
    fixture_use(lowered, c, v[2], TERN_ACCESS_WRITE);
    tern_launch *d = fixture_launch(lowered, "d");
    for (uint32_t i = 0; i < 3; i++) fixture_use(lowered, d, v[i], TERN_ACCESS_READ);
    fixture_use(lowered, d, v[3], TERN_ACCESS_WRITE);
    tern_launch *e = fixture_launch(lowered, "e"); /* touches the other quarters only */
    fixture_use(lowered, e, w, TERN_ACCESS_WRITE);
    e->operands[0].offset = 256;
    e->operands[0].bytes = 768;
    tern_launch *f = fixture_launch(lowered, "f"); /* overlaps what c read and what e wrote */
    fixture_use(lowered, f, w, TERN_ACCESS_READ | TERN_ACCESS_WRITE);
    f->operands[0].offset = 252;
    f->operands[0].bytes = 8;
    tern_plan *plan;
    TEST_OK(tern_plan_create(lowered, &info, &options, &plan));
    TEST_OK(tern_plan_verify(plan));
    expect_waits(plan, 0, 0, NULL);
    expect_waits(plan, 1, 1, (const uint32_t[]){0});
    expect_waits(plan, 2, 1, (const uint32_t[]){0});
    expect_waits(plan, 3, 2, (const uint32_t[]){1, 2});
    expect_waits(plan, 4, 0, NULL);
    expect_waits(plan, 5, 2, (const uint32_t[]){2, 4});
    tern_plan_destroy(plan);
    fixture_free(lowered);
}

static void test_kept_values_and_inputs_live_long(void **state)
{
    (void)state;
    const tern_device_info info = roomy();
    tern_lowered *lowered = fixture_empty(8, 8);
    const uint32_t input = fixture_value(lowered, TERN_STORAGE_INPUT, TERN_VALUE_INPUT, "ids", 100);
    const uint32_t unused = fixture_value(lowered, TERN_STORAGE_TRANSIENT, TERN_VALUE_SCRATCH, "unused", 1000);
    uint32_t v[4];
    for (uint32_t i = 0; i < 4; i++) {
        v[i] = fixture_value(lowered, TERN_STORAGE_TRANSIENT, TERN_VALUE_ACTIVATION, "v", 1000);
        tern_launch *launch = fixture_launch(lowered, "l");
        fixture_use(lowered, launch, v[i], TERN_ACCESS_WRITE);
        if (i == 2) fixture_use(lowered, launch, input, TERN_ACCESS_READ);
    }
    fixture_output(lowered, v[0]);
    tern_plan *plan;
    TEST_OK(tern_plan_create(lowered, &info, NULL, &plan));
    assert_int_equal(plan->first_use[input], 0);
    assert_int_equal(plan->last_use[input], 2);
    assert_int_equal(plan->first_use[v[0]], 0);
    assert_int_equal(plan->last_use[v[0]], 3);
    assert_false(tern_plan_in_arena(plan, unused));
    assert_int_equal(plan->live_peak_bytes, 2100); /* v[0], one other, the input */
    assert_int_equal(plan->peak_launch, 1);
    assert_int_equal(plan->upload_bytes, 256);
    uint64_t bytes[TERN_VALUE_KIND_COUNT];
    tern_plan_bytes(plan, bytes);
    assert_int_equal(bytes[TERN_VALUE_INPUT], 100);
    assert_int_equal(bytes[TERN_VALUE_ACTIVATION], 2000);
    assert_int_equal(bytes[TERN_VALUE_SCRATCH], 0);
    tern_plan_destroy(plan);
    fixture_free(lowered);
}

/* --------------------------------------------------------------------- cuts */

static void test_cuts(void **state)
{
    (void)state;
    const tern_device_info info = roomy();
    static const double seconds[] = {0.2, 0.2, 0.2, 0.9, 0.1, 0.3, 0.05};
    tern_lowered *lowered = fixture_empty(8, 8);
    for (uint32_t i = 0; i < 7; i++) {
        const uint32_t v = fixture_value(lowered, TERN_STORAGE_TRANSIENT, TERN_VALUE_ACTIVATION, "v", 64);
        tern_launch *launch = fixture_launch(lowered, "l");
        fixture_use(lowered, launch, v, TERN_ACCESS_WRITE);
        launch->flops = seconds[i] * 1e10;
        launch->bytes = 0;
    }
    lowered->launches[5].flops = 0;
    lowered->launches[5].bytes = seconds[5] * 1e9; /* bound by traffic */
    const tern_plan_options options = {.submit_seconds = 0.5, .flops = 1e10, .bytes_per_s = 1e9};
    tern_plan *plan;
    TEST_OK(tern_plan_create(lowered, &info, &options, &plan));
    static const uint32_t expected[] = {2, 3, 4}; /* 0.2 0.2 | 0.2 | 0.9 alone | 0.1 0.3 0.05 */
    assert_int_equal(plan->cut_count, 3);
    assert_memory_equal(plan->cuts, expected, sizeof expected);
    TEST_NEAR(plan->predicted_seconds, 1.95, 1e-3);
    TEST_NEAR(tern_plan_launch_seconds(plan, 5), 0.3, 1e-4);
    tern_plan_destroy(plan);
    const tern_plan_options fast = {.flops = 1e13, .bytes_per_s = 1e12};
    TEST_OK(tern_plan_create(lowered, &info, &fast, &plan));
    assert_int_equal(plan->cut_count, 0);
    tern_plan_destroy(plan);
    fixture_free(lowered);
}

/* ------------------------------------------------------------------- limits */

/* One launch that makes `bytes` named "logits". */
static tern_lowered *one_value(uint64_t bytes)
{
    tern_lowered *lowered = fixture_empty(2, 2);
    const uint32_t v = fixture_value(lowered, TERN_STORAGE_TRANSIENT, TERN_VALUE_ACTIVATION, "logits", bytes);
    fixture_use(lowered, fixture_launch(lowered, "lm_head"), v, TERN_ACCESS_WRITE);
    return lowered;
}

static void test_limits_are_refused_with_values(void **state)
{
    (void)state;
    tern_plan *plan = NULL;
    tern_device_info info = roomy();
    tern_lowered *lowered = one_value((uint64_t)200 * MIB);
    info.max_binding_bytes = 128 * MIB;
    TEST_ERROR(tern_plan_create(lowered, &info, NULL, &plan), TERN_ERROR_UNSUPPORTED,
               "'logits' in launch 'lm_head' spans 209715200 bytes");
    TEST_ERROR(tern_plan_create(lowered, &info, NULL, &plan), TERN_ERROR_UNSUPPORTED, "134217728");
    info.features = TERN_FEATURE_BUFFER_ADDRESS;
    TEST_OK(tern_plan_create(lowered, &info, NULL, &plan));
    tern_plan_destroy(plan);
    plan = NULL;
    info.max_allocation_bytes = 150 * MIB;
    TEST_ERROR(tern_plan_create(lowered, &info, NULL, &plan), TERN_ERROR_DEVICE_MEMORY,
               "at most 157286400 bytes at once");
    info = roomy();
    info.max_buffer_bytes = 150 * MIB;
    TEST_ERROR(tern_plan_create(lowered, &info, NULL, &plan), TERN_ERROR_DEVICE_MEMORY,
               "at most 157286400 bytes at once");
    info = roomy();
    info.memory_bytes = 100 * MIB;
    TEST_ERROR(tern_plan_create(lowered, &info, NULL, &plan), TERN_ERROR_DEVICE_MEMORY,
               "'logits' alone needs 209715200 bytes");
    info = roomy();
    const tern_plan_options small = {.block_bytes = MIB};
    TEST_ERROR(tern_plan_create(lowered, &info, &small, &plan), TERN_ERROR_INVALID, "larger blocks");
    assert_null(plan);
    fixture_free(lowered);
    lowered = one_value((uint64_t)3 << 30); /* above the default block, within the card */
    TEST_OK(tern_plan_create(lowered, &info, NULL, &plan));
    assert_int_equal(plan->block_bytes[0], (uint64_t)3 << 30);
    tern_plan_destroy(plan);
    fixture_free(lowered);
}

static void test_broken_programs_are_refused(void **state)
{
    (void)state;
    const tern_device_info info = roomy();
    tern_plan *plan = NULL;
    tern_lowered *lowered = one_value(1024);
    lowered->launches[0].operands[0].mode = TERN_ACCESS_READ;
    TEST_ERROR(tern_plan_create(lowered, &info, NULL, &plan), TERN_ERROR_INTERNAL,
               "'logits' (1024 bytes) is read before");
    lowered->launches[0].operands[0] =
        (tern_operand){.value = 0, .offset = 1000, .bytes = 25, .mode = TERN_ACCESS_WRITE};
    TEST_ERROR(tern_plan_create(lowered, &info, NULL, &plan), TERN_ERROR_INTERNAL,
               "bytes [1000, 1025) of 'logits', which has 1024");
    lowered->launches[0].operands[0].value = 7;
    TEST_ERROR(tern_plan_create(lowered, &info, NULL, &plan), TERN_ERROR_INTERNAL, "value 7 of 1");
    assert_null(plan);
    fixture_free(lowered);
}

static void test_demand(void **state)
{
    (void)state;
    tern_device_info info = roomy();
    tern_lowered *lowered = fixture_transformer(2, 4, 64, 64, 4, 256);
    const uint32_t w = fixture_value(lowered, TERN_STORAGE_BOUND, TERN_VALUE_WEIGHT, "wte", 65536);
    (void)w;
    tern_plan *plan;
    TEST_OK(tern_plan_create(lowered, &info, NULL, &plan));
    tern_plan_demand demand;
    tern_plan_measure(plan, &info, 1000, &demand);
    assert_int_equal(demand.bound_bytes, 65536);
    assert_int_equal(demand.total_bytes, 65536 + 1000 + plan->arena_bytes);
    uint64_t live = 0;
    for (int k = 0; k < TERN_VALUE_KIND_COUNT; k++) live += demand.bytes[k];
    assert_int_equal(live, 65536 + plan->live_peak_bytes);
    info.memory_free_bytes = demand.total_bytes;
    tern_plan_measure(plan, &info, 1000, &demand);
    assert_string_equal(demand.limit_name, "memory");
    assert_int_equal(demand.limit_used_bytes, demand.limit_bytes);
    assert_true(strlen(tern_plan_peak_label(plan)) > 0);
    info.max_binding_bytes = demand.largest_range_bytes / 2u;
    tern_plan_measure(plan, &info, 1000, &demand);
    assert_string_equal(demand.limit_name, "binding range");
    assert_true(strlen(demand.largest_range_name) > 0);
    tern_plan_destroy(plan);
    fixture_free(lowered);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_plans_verify),
        cmocka_unit_test(test_arena_is_dense),
        cmocka_unit_test(test_plans_are_deterministic),
        cmocka_unit_test(test_checker_finds_every_corruption),
        cmocka_unit_test(test_waits_are_reduced),
        cmocka_unit_test(test_kept_values_and_inputs_live_long),
        cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_limits_are_refused_with_values),
        cmocka_unit_test(test_broken_programs_are_refused),
        cmocka_unit_test(test_demand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
