/* SPDX-License-Identifier: Apache-2.0 */
/* test_numbers.c - what is promised in counts: launches, submissions, pipelines, arena, and no growth over a thousand
 * steps.
 *
 * GPT-2 124M at 4 x 1024 is planned only, on a card that exists on paper; nothing of it runs. */
#include "core/base/dtype.h"
#include "core/kernel/trace.h"
#include "tests/test.h"
#include "tests/train_fixture.h"

#include <stdlib.h>
#include <unistd.h>

enum { BLOCK_LAUNCHES = 34, PIPELINES = 60, MICRO_SUBMISSIONS = 4, UPDATE_SUBMISSIONS = 2 };

static tern_status build(void *context, tern_graph *graph, uint32_t batch)
{
    tern_gpt2_options options = *(const tern_gpt2_options *)context;
    options.batch = batch;
    return tern_gpt2_build_loss(graph, &options);
}

static tern_setup *plan_gpt2(tern_device *device, uint32_t layers, double dropout, int32_t precision,
                             tern_gpt2_options *model)
{
    tern_setup *setup = NULL;
    TEST_OK(tern_gpt2_preset("gpt2", model));
    if (layers) model->layers = layers;
    model->dropout = dropout;
    tern_limits limits;
    TEST_OK(tern_limits_load("rtx-4090", &limits));
    const tern_setup_options options = {
        .model = {build, model},
        .batch = 4,
        .optimizer = {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1},
        .update = {.clip = 1},
        .precision = precision,
        .evaluate = true,
        .plan = {.submit_seconds = limits.submit_seconds, .flops = limits.flops, .bytes_per_s = limits.bytes_per_s}};
    TEST_OK(tern_setup_create(device, &options, &setup));
    return setup;
}

/* Different kernels of all three programs together. */
static uint32_t count_pipelines(const tern_setup *setup)
{
    uint64_t seen[4 * PIPELINES];
    uint32_t count = 0;
    for (int p = 0; p < TERN_PROGRAM_COUNT; p++)
        for (uint32_t k = 0; setup->programs[p].lowered && k < setup->programs[p].lowered->kernel_count; k++) {
            const uint64_t key = setup->programs[p].lowered->kernels[k]->key;
            uint32_t i = 0;
            while (i < count && seen[i] != key) i++;
            assert_true(count < 4 * PIPELINES);
            if (i == count) seen[count++] = key;
        }
    return count;
}

/* out_arena: bytes per program, or NULL. Returns the launches per block. */
static uint32_t check_gpt2(double dropout, int32_t precision, uint64_t *out_arena)
{
    tern_device *device = NULL;
    tern_gpt2_options model;
    TEST_OK(tern_device_open_paper("rtx-4090", &device));
    tern_setup *few = plan_gpt2(device, 10, dropout, precision, &model),
               *all = plan_gpt2(device, 0, dropout, precision, &model);
    const tern_program *programs = all->programs;
    const uint32_t blocks = model.layers - 10;
    const uint32_t per_block =
        (programs[TERN_PROGRAM_MICRO].lowered->launch_count - few->programs[TERN_PROGRAM_MICRO].lowered->launch_count) /
        blocks;
    const uint32_t pipelines = count_pipelines(all), micro = programs[TERN_PROGRAM_MICRO].plan->cut_count + 1,
                   update = programs[TERN_PROGRAM_UPDATE].plan->cut_count + 1;
    print_message("%s, dropout %g: %u launches per block, %u + %u submissions, %u pipelines\n",
                  precision ? tern_dtype(precision)->name : "f32", dropout, per_block, micro, update, pipelines);
    assert_true(per_block > 10 && per_block <= BLOCK_LAUNCHES);
    assert_true(pipelines <= PIPELINES);
    assert_true(micro <= MICRO_SUBMISSIONS && update <= UPDATE_SUBMISSIONS);
    for (int p = 0; p < TERN_PROGRAM_COUNT; p++) {
        const tern_plan *plan = programs[p].plan;
        if (!plan) continue;
        print_message("  %s: arena %.1f MiB, live peak %.1f MiB\n", tern_program_names[p],
                      (double)plan->arena_bytes / 1048576, (double)plan->live_peak_bytes / 1048576);
        assert_true((double)plan->arena_bytes <= 1.05 * (double)plan->live_peak_bytes);
        if (out_arena) out_arena[p] = plan->arena_bytes;
        TEST_OK(tern_plan_verify(plan));
    }
    tern_setup_destroy(few);
    tern_setup_destroy(all);
    tern_device_close(device);
    return per_block;
}

static void test_gpt2(void **state)
{
    (void)state;
    check_gpt2(0, 0, NULL);
}

static void test_gpt2_with_dropout(void **state)
{
    (void)state;
    check_gpt2(0.1, 0, NULL);
}

/* Autocast costs no launch and needs little more than half of the arena. */
static void check_16_bits(int32_t precision, double dropout)
{
    uint64_t wide[TERN_PROGRAM_COUNT], narrow[TERN_PROGRAM_COUNT];
    const uint32_t f32 = check_gpt2(dropout, 0, wide), low = check_gpt2(dropout, precision, narrow);
    assert_true(low <= f32 + 2);
    for (int p = TERN_PROGRAM_MICRO; p <= TERN_PROGRAM_EVAL; p += TERN_PROGRAM_EVAL)
        assert_true((double)narrow[p] <= 0.55 * (double)wide[p]);
}

static void test_gpt2_in_bf16(void **state)
{
    (void)state;
    check_16_bits(TERN_BF16, 0);
    check_16_bits(TERN_BF16, 0.1);
}

static void test_gpt2_in_f16(void **state)
{
    (void)state;
    check_16_bits(TERN_F16, 0.1);
}

/* Segments of the slab are updated by at most 6 launches each, the optimizer holds no scratch of the size of the model.
 */
static void test_update_is_small(void **state)
{
    (void)state;
    tern_device *device = NULL;
    tern_gpt2_options model;
    TEST_OK(tern_device_open_paper("rtx-4090", &device));
    tern_setup *setup = plan_gpt2(device, 0, 0, 0, &model);
    const tern_program *update = &setup->programs[TERN_PROGRAM_UPDATE];
    print_message("update: %u launches for %u segments, %.1f MiB of scratch\n", update->lowered->launch_count,
                  setup->layout->segment_count, (double)update->plan->arena_bytes / 1048576);
    assert_true(update->lowered->launch_count <= 6 * setup->layout->segment_count + 4);
    assert_true(update->plan->arena_bytes < 8u << 20);
    tern_setup_destroy(setup);
    tern_device_close(device);
}

static uint64_t resident_bytes(void)
{
    unsigned long size = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lu %lu", &size, &resident), 2);
    fclose(file);
    return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void run_steps(test_run *run, uint32_t count)
{
    tern_step_report report;
    for (uint32_t i = 0; i < count; i++) {
        TEST_OK(test_run_micro(run, i % 8, 0));
        TEST_OK(tern_stepper_update(run->stepper, 1e-3, &report));
    }
    test_run_drain(run);
}

static void no_growth(const char *backend)
{
    test_run run;
    test_run_start(&run, backend, 1, &test_tiny);
    run_steps(&run, 100);
    const uint64_t device_before = run.device->backend->allocated_bytes(run.device->handle),
                   host_before = resident_bytes();
    run_steps(&run, 1000);
    assert_int_equal(run.device->backend->allocated_bytes(run.device->handle), device_before);
    const uint64_t host_after = resident_bytes();
    print_message("%s: host grew by %lld KiB over 1000 steps\n", backend,
                  ((long long)host_after - (long long)host_before) / 1024);
    assert_true(host_after <= host_before + (2u << 20));
    test_run_stop(&run);
}

static void test_no_growth_on_null(void **state)
{
    (void)state;
    no_growth("null");
}

static void test_no_growth_on_cpu(void **state)
{
    (void)state;
    no_growth("cpu");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt2),
        cmocka_unit_test(test_gpt2_with_dropout),
        cmocka_unit_test(test_gpt2_in_bf16),
        cmocka_unit_test(test_gpt2_in_f16),
        cmocka_unit_test(test_update_is_small),
        cmocka_unit_test(test_no_growth_on_null),
        cmocka_unit_test(test_no_growth_on_cpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
