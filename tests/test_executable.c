/* SPDX-License-Identifier: Apache-2.0 */
/* test_executable.c - plans that run: against private memory in launch order, on the fixture's interpreting device.
 *
 * Forward, reversed and guarded executions of random programs must give the same bytes; every backend call fails once.
 */
#include "core/device/device.h"
#include "core/plan/hazard.h"
#include "tests/plan_fixture.h"
#include "tests/test.h"

#include <stdlib.h>

/* A program with everything around it that a run needs. */
typedef struct rig {
    tern_device *device;
    tern_lowered *lowered;
    tern_plan *plan;
    tern_arena *arena;
    tern_executable *executable;
    tern_backend_buffer *store;
    tern_binding bindings[8];
    uint32_t binding_count;
} rig;

/* Packs the bound values into one buffer; returns its bytes. */
static uint64_t lay_out_store(rig *r)
{
    uint64_t at = 0;
    for (uint32_t v = 0; v < r->lowered->value_count; v++) {
        const tern_value *value = &r->lowered->values[v];
        if (value->storage != TERN_STORAGE_BOUND) continue;
        r->bindings[r->binding_count++] = (tern_binding){.name = value->name, .offset = at, .bytes = value->bytes};
        at += tern_align(value->bytes, 64);
    }
    return at;
}

static tern_status rig_create(rig *r, tern_lowered *lowered, const tern_plan_options *planning, bool reverse)
{
    tern_status status;
    r->lowered = lowered;
    const uint64_t store_bytes = lay_out_store(r);
    TERN_TRY(tern_plan_create(lowered, &r->device->info, planning, &r->plan));
    if (store_bytes)
        TERN_TRY(r->device->backend->buffer_create(r->device->handle, store_bytes, TERN_BUFFER_DEVICE, &r->store));
    for (uint32_t b = 0; b < r->binding_count; b++) r->bindings[b].buffer = r->store;
    TERN_TRY(tern_arena_create(r->device, (const tern_plan *const *)&r->plan, 1, &r->arena));
    const tern_executable_options options = {.label = "test",
                                             .bindings = r->bindings,
                                             .binding_count = r->binding_count,
                                             .read_back = true,
                                             .reverse = reverse};
    TERN_TRY(tern_executable_create(r->device, r->plan, r->arena, &options, &r->executable));
fail:
    return status;
}

static void rig_destroy(rig *r)
{
    tern_executable_destroy(r->executable);
    tern_arena_destroy(r->arena);
    if (r->store) r->device->backend->buffer_destroy(r->device->handle, r->store);
    tern_plan_destroy(r->plan);
    fixture_free(r->lowered);
}

static void feed(const rig *r, fixture_memory *memory, uint32_t slot, uint32_t seed)
{
    for (uint32_t v = 0; v < r->lowered->value_count; v++) {
        const tern_value *value = &r->lowered->values[v];
        if (value->storage != TERN_STORAGE_INPUT) continue;
        uint64_t bytes = 0;
        void *input = tern_executable_input(r->executable, slot, value->name, &bytes);
        assert_non_null(input);
        assert_int_equal(bytes, value->bytes);
        fixture_fill(input, bytes, seed, value->name);
        fixture_fill(memory->data[v], bytes, seed, value->name);
    }
}

static void expect_same(const rig *r, const fixture_memory *memory, uint32_t slot, uint32_t seed)
{
    for (uint32_t o = 0; o < r->lowered->output_count; o++) {
        const uint32_t v = r->lowered->outputs[o].value;
        const uint64_t bytes = r->lowered->values[v].bytes;
        uint64_t found = 0;
        const void *result = tern_executable_result(r->executable, slot, r->lowered->outputs[o].name, &found);
        assert_int_equal(found, bytes);
        if (memcmp(result, memory->data[v], (size_t)bytes) != 0)
            fail_msg("seed %u: output '%s' differs", seed, r->lowered->outputs[o].name);
        unsigned char *read = malloc((size_t)bytes);
        TEST_OK(tern_executable_read(r->executable, r->lowered->outputs[o].name, read, bytes));
        assert_memory_equal(read, memory->data[v], (size_t)bytes);
        free(read);
    }
    for (uint32_t b = 0, v = 0; b < r->binding_count; b++, v++) {
        while (r->lowered->values[v].storage != TERN_STORAGE_BOUND) v++;
        unsigned char *read = malloc((size_t)r->bindings[b].bytes);
        TEST_OK(r->device->backend->buffer_read(r->device->handle, r->store, r->bindings[b].offset, read,
                                                r->bindings[b].bytes));
        if (memcmp(read, memory->data[v], (size_t)r->bindings[b].bytes) != 0)
            fail_msg("seed %u: '%s' differs", seed, r->bindings[b].name);
        free(read);
    }
}

/* Three runs on alternating slots; the store carries over. */
static void run_random(uint32_t seed, bool guard, bool reverse)
{
    const fixture_shape shape = {
        .launches = 1u + seed % 60u, .bound = seed % 5u, .inputs = seed % 4u, .largest_bytes = 4u + seed % 7u * 300u};
    const tern_plan_options planning = {
        .guard = guard, .block_bytes = seed % 3u ? 0 : 8192, .flops = 1e9, .submit_seconds = 2};
    rig r = {.device = fixture_device()};
    TEST_OK(rig_create(&r, fixture_random(seed, &shape), &planning, reverse));
    fixture_memory memory = fixture_memory_create(r.lowered);
    for (uint32_t run = 0; run < 3; run++) {
        uint64_t ticket = 0;
        feed(&r, &memory, run % TERN_SLOTS, seed + run);
        fixture_memory_run(&memory);
        TEST_OK(tern_executable_submit(r.executable, run % TERN_SLOTS, &ticket));
        TEST_OK(tern_device_wait(r.device, ticket, 1));
        expect_same(&r, &memory, run % TERN_SLOTS, seed);
        if (guard) TEST_OK(tern_executable_check_guards(r.executable));
    }
    fixture_memory_free(&memory);
    rig_destroy(&r);
    assert_int_equal(fixture.objects, 0);
    free(r.device);
}

static void test_random_programs_run(void **state)
{
    (void)state;
    for (uint32_t seed = 0; seed < 150; seed++) run_random(seed, false, false);
}

static void test_reverse_order_gives_the_same(void **state)
{
    (void)state;
    for (uint32_t seed = 0; seed < 150; seed++) run_random(seed, false, true);
}

static void test_guarded_reverse_gives_the_same(void **state)
{
    (void)state;
    for (uint32_t seed = 0; seed < 100; seed++) run_random(seed, true, seed % 2u);
}

/* Steps that nothing orders really run the other way round. */
static void test_reverse_reverses(void **state)
{
    (void)state;
    rig r = {.device = fixture_device()};
    const tern_plan_options planning = {.guard = true};
    tern_lowered *lowered = fixture_empty(8, 8);
    uint32_t last = 0;
    for (uint32_t i = 0; i < 5; i++) {
        const uint32_t v = fixture_value(lowered, TERN_STORAGE_TRANSIENT, TERN_VALUE_ACTIVATION, "v", 64);
        tern_launch *launch = fixture_launch(lowered, "l");
        if (i == 3) fixture_use(lowered, launch, last, TERN_ACCESS_READ); /* 3 needs 2 */
        fixture_use(lowered, launch, v, TERN_ACCESS_WRITE);
        last = v;
    }
    TEST_OK(rig_create(&r, lowered, &planning, true));
    static const uint32_t expected[] = {4, 2, 3, 1, 0};
    assert_memory_equal(tern_executable_order(r.executable), expected, sizeof expected);
    rig_destroy(&r);
    free(r.device);
}

/* ------------------------------------------------------------------- guards */

static void expect_guard(int64_t overrun, const char *sentence)
{
    rig r = {.device = fixture_device()};
    const tern_plan_options planning = {.guard = true};
    uint64_t ticket = 0;
    tern_lowered *lowered = fixture_empty(4, 4);
    const uint32_t a = fixture_value(lowered, TERN_STORAGE_TRANSIENT, TERN_VALUE_ACTIVATION, "alpha", 100);
    const uint32_t b = fixture_value(lowered, TERN_STORAGE_TRANSIENT, TERN_VALUE_ACTIVATION, "beta", 300);
    fixture_use(lowered, fixture_launch(lowered, "l"), a, TERN_ACCESS_WRITE);
    fixture_use(lowered, fixture_launch(lowered, "m"), b, TERN_ACCESS_WRITE);
    TEST_OK(rig_create(&r, lowered, &planning, false));
    fixture.overrun = overrun;
    TEST_OK(tern_executable_submit(r.executable, 0, &ticket));
    TEST_OK(tern_device_wait(r.device, ticket, 1));
    TEST_ERROR(tern_executable_check_guards(r.executable), TERN_ERROR_INTERNAL, sentence);
    rig_destroy(&r);
    free(r.device);
}

static void test_guards_catch_overruns(void **state)
{
    (void)state;
    expect_guard(0, "1 bytes behind the end of 'alpha'");
    expect_guard(200, "201 bytes behind the end of 'alpha'");
    expect_guard(-1, "1 bytes before the start of 'alpha'");
    expect_guard(-256, "256 bytes before the start of 'alpha'");
}

static void test_guards_need_a_guarded_plan(void **state)
{
    (void)state;
    rig r = {.device = fixture_device()};
    const fixture_shape shape = {.launches = 3, .largest_bytes = 64};
    TEST_OK(rig_create(&r, fixture_random(1, &shape), NULL, false));
    TEST_ERROR(tern_executable_check_guards(r.executable), TERN_ERROR_INVALID, "planned without guards");
    rig_destroy(&r);
    free(r.device);
}

/* ----------------------------------------------------------------- bindings */

/* Two names, one range: the executable orders steps by buffers, which the plan could not know. */
static void test_aliasing_bindings_are_ordered(void **state)
{
    (void)state;
    rig r = {.device = fixture_device()};
    tern_lowered *lowered = fixture_empty(4, 4);
    const uint32_t x = fixture_value(lowered, TERN_STORAGE_BOUND, TERN_VALUE_WEIGHT, "x", 64);
    const uint32_t y = fixture_value(lowered, TERN_STORAGE_BOUND, TERN_VALUE_WEIGHT, "y", 64);
    fixture_use(lowered, fixture_launch(lowered, "l"), x, TERN_ACCESS_WRITE);
    fixture_use(lowered, fixture_launch(lowered, "m"), y, TERN_ACCESS_READ | TERN_ACCESS_WRITE);
    fixture_use(lowered, fixture_launch(lowered, "n"), x, TERN_ACCESS_READ | TERN_ACCESS_WRITE);
    TEST_OK(rig_create(&r, lowered, NULL, false));
    tern_executable_destroy(r.executable);
    r.executable = NULL;
    r.bindings[1].offset = r.bindings[0].offset;
    const tern_executable_options options = {
        .label = "alias", .bindings = r.bindings, .binding_count = 2, .reverse = true};
    TEST_OK(tern_executable_create(r.device, r.plan, r.arena, &options, &r.executable));
    static const uint32_t expected[] = {0, 1, 2};
    assert_memory_equal(tern_executable_order(r.executable), expected, sizeof expected);
    rig_destroy(&r);
    free(r.device);
}

static void test_bad_bindings_are_refused(void **state)
{
    (void)state;
    rig r = {.device = fixture_device()};
    const fixture_shape shape = {.launches = 5, .bound = 2, .inputs = 1, .largest_bytes = 64};
    TEST_OK(rig_create(&r, fixture_random(3, &shape), NULL, false));
    tern_executable *other = NULL;
    tern_executable_options options = {.label = "bad", .bindings = r.bindings, .binding_count = 1};
    TEST_ERROR(tern_executable_create(r.device, r.plan, r.arena, &options, &other), TERN_ERROR_NOT_FOUND,
               "program 'bad' needs 'bound1'");
    options.binding_count = 2;
    r.bindings[1].bytes += 4;
    char sizes[96];
    snprintf(sizes, sizeof sizes, "'bound1' with %llu bytes, but its binding has %llu",
             (unsigned long long)r.bindings[1].bytes - 4, (unsigned long long)r.bindings[1].bytes);
    TEST_ERROR(tern_executable_create(r.device, r.plan, r.arena, &options, &other), TERN_ERROR_INVALID, sizes);
    r.bindings[1].bytes -= 4;
    r.bindings[1].offset += 2;
    TEST_ERROR(tern_executable_create(r.device, r.plan, r.arena, &options, &other), TERN_ERROR_INVALID,
               "not a multiple of its element size 4");
    r.bindings[1].offset -= 2;
    r.lowered->launches[2].groups[1] = 70000;
    TEST_ERROR(tern_executable_create(r.device, r.plan, r.arena, &options, &other), TERN_ERROR_UNSUPPORTED,
               "'launch2' needs 70000 work-groups on axis 1");
    r.lowered->launches[2].groups[1] = 1;
    tern_arena *foreign = NULL;
    TEST_OK(tern_arena_create(r.device, NULL, 0, &foreign));
    TEST_ERROR(tern_executable_create(r.device, r.plan, foreign, &options, &other), TERN_ERROR_INVALID,
               "create the arena with its plan");
    tern_arena_destroy(foreign);
    assert_null(other);
    rig_destroy(&r);
    free(r.device);
}

static void test_bad_access_is_refused(void **state)
{
    (void)state;
    rig r = {.device = fixture_device()};
    const fixture_shape shape = {.launches = 5, .inputs = 1, .largest_bytes = 64};
    unsigned char data[8];
    uint64_t ticket = 77;
    TEST_OK(rig_create(&r, fixture_random(3, &shape), NULL, false));
    assert_null(tern_executable_input(r.executable, 0, "no such", NULL));
    assert_null(tern_executable_input(r.executable, TERN_SLOTS, "input0", NULL));
    assert_null(tern_executable_result(r.executable, 0, "no such", NULL));
    TEST_ERROR(tern_executable_read(r.executable, "no such", data, 8), TERN_ERROR_NOT_FOUND, "no output 'no such'");
    TEST_ERROR(tern_executable_read(r.executable, "value0.0", data, 3), TERN_ERROR_INVALID, "bytes, not 3");
    TEST_ERROR(tern_executable_submit(r.executable, TERN_SLOTS, &ticket), TERN_ERROR_INVALID, "slot 2");
    assert_int_equal(ticket, 77);
    fixture.hang = true;
    TEST_ERROR(tern_device_wait(r.device, 1, 0.01), TERN_ERROR_TIMEOUT, "did not finish submission 1 within 0.01 s");
    rig_destroy(&r);
    free(r.device);
}

/* ------------------------------------------------------------------- memory */

static void test_arena_is_the_maximum_of_plans(void **state)
{
    (void)state;
    tern_device *device = fixture_device();
    const fixture_shape shapes[] = {{.launches = 40, .largest_bytes = 3000}, {.launches = 20, .largest_bytes = 5000}};
    const tern_plan_options planning = {.block_bytes = 16384};
    tern_lowered *lowered[2];
    tern_plan *plans[2];
    for (uint32_t p = 0; p < 2; p++) {
        lowered[p] = fixture_random(p + 1u, &shapes[p]);
        TEST_OK(tern_plan_create(lowered[p], &device->info, &planning, &plans[p]));
    }
    tern_arena *arena;
    TEST_OK(tern_arena_create(device, (const tern_plan *const *)plans, 2, &arena));
    uint64_t expected = 0;
    for (uint32_t b = 0; b < plans[0]->block_count || b < plans[1]->block_count; b++) {
        const uint64_t x = b < plans[0]->block_count ? plans[0]->block_bytes[b] : 0,
                       y = b < plans[1]->block_count ? plans[1]->block_bytes[b] : 0;
        expected += x > y ? x : y;
    }
    assert_int_equal(tern_arena_bytes(arena), expected);
    assert_int_equal(fixture.device_bytes, expected);
    tern_executable *executables[2];
    const tern_executable_options options = {.label = "shared"};
    for (uint32_t p = 0; p < 2; p++)
        TEST_OK(tern_executable_create(device, plans[p], arena, &options, &executables[p]));
    assert_int_equal(fixture.device_bytes, expected);
    tern_executable_counts counts;
    tern_executable_count(executables[1], &counts);
    assert_int_equal(counts.kernels, 5); /* the fixture's five keys, shared by both programs */
    assert_int_equal(counts.dispatches, 20);
    for (uint32_t p = 0; p < 2; p++) {
        tern_executable_destroy(executables[p]);
        tern_plan_destroy(plans[p]);
        fixture_free(lowered[p]);
    }
    tern_arena_destroy(arena);
    assert_int_equal(fixture.objects, 0);
    free(device);
}

static void test_submissions_are_cut(void **state)
{
    (void)state;
    rig r = {.device = fixture_device()};
    const tern_plan_options planning = {.flops = 1e9, .submit_seconds = 1};
    tern_lowered *lowered = fixture_empty(8, 8);
    for (uint32_t i = 0; i < 6; i++) {
        const uint32_t v = fixture_value(lowered, TERN_STORAGE_TRANSIENT, TERN_VALUE_ACTIVATION, "v", 64);
        tern_launch *launch = fixture_launch(lowered, "l");
        fixture_use(lowered, launch, v, TERN_ACCESS_WRITE);
        launch->flops = 0.4e9;
    }
    const uint32_t input = fixture_value(lowered, TERN_STORAGE_INPUT, TERN_VALUE_INPUT, "ids", 64);
    fixture_use(lowered, &lowered->launches[5], input, TERN_ACCESS_READ);
    TEST_OK(rig_create(&r, lowered, &planning, false));
    assert_int_equal(r.plan->cut_count, 2);
    uint64_t ticket = 0;
    TEST_OK(tern_executable_submit(r.executable, 1, &ticket));
    assert_int_equal(fixture.submissions, 3);
    tern_executable_counts counts;
    tern_executable_count(r.executable, &counts);
    assert_int_equal(counts.submissions, 3);
    assert_int_equal(counts.copies, 1);
    rig_destroy(&r);
    free(r.device);
}

/* ------------------------------------------------------------------- faults */

/* Everything once, stopping at the first failure. */
static tern_status whole_life(rig *r, bool guard)
{
    tern_status status;
    const fixture_shape shape = {.launches = 12, .bound = 2, .inputs = 2, .largest_bytes = 400};
    const tern_plan_options planning = {.guard = guard};
    unsigned char data[2048];
    uint64_t ticket = 0;
    TERN_TRY(rig_create(r, fixture_random(7, &shape), &planning, false));
    TERN_TRY(tern_executable_submit(r->executable, 0, &ticket));
    TERN_TRY(tern_device_wait(r->device, ticket, 1));
    TERN_TRY(tern_executable_read(r->executable, r->lowered->outputs[0].name, data,
                                  r->lowered->values[r->lowered->outputs[0].value].bytes));
    if (guard) TERN_TRY(tern_executable_check_guards(r->executable));
fail:
    return status;
}

static void test_every_call_fails_once(void **state)
{
    (void)state;
    for (int guard = 0; guard < 2; guard++) {
        uint64_t calls = 0, failed = 0;
        for (uint64_t n = 0; n == 0 || n <= calls; n++) { /* n == 0: none fails, counts the calls */
            rig r = {.device = fixture_device()};
            fixture.fail_call = n;
            const tern_status status = whole_life(&r, guard);
            if (n == 0) calls = fixture.calls;
            assert_int_equal(status, n ? TERN_ERROR_DRIVER : TERN_OK);
            if (n) assert_non_null(strstr(tern_error_message(), "failed as planned"));
            failed += n > 0;
            rig_destroy(&r);
            assert_int_equal(fixture.objects, 0);
            free(r.device);
        }
        print_message("%llu calls failed in turn\n", (unsigned long long)failed);
        assert_true(failed > 15);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_programs_run),
        cmocka_unit_test(test_reverse_order_gives_the_same),
        cmocka_unit_test(test_guarded_reverse_gives_the_same),
        cmocka_unit_test(test_reverse_reverses),
        cmocka_unit_test(test_guards_catch_overruns),
        cmocka_unit_test(test_guards_need_a_guarded_plan),
        cmocka_unit_test(test_aliasing_bindings_are_ordered),
        cmocka_unit_test(test_bad_bindings_are_refused),
        cmocka_unit_test(test_bad_access_is_refused),
        cmocka_unit_test(test_arena_is_the_maximum_of_plans),
        cmocka_unit_test(test_submissions_are_cut),
        cmocka_unit_test(test_every_call_fails_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
