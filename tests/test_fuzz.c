/* SPDX-License-Identifier: Apache-2.0 */
/* test_fuzz.c - random graphs (random_graph.h) in every way to run them (graph_trial.h).
 *
 * TERN_FUZZ_SEED and TERN_FUZZ_COUNT in the environment choose other seeds than the committed ones, TERN_FUZZ_DEVICE
 * another device than the cpu; a failing seed is shrunk by leaving out steps and printed. */
#include "tests/graph_trial.h"
#include "tests/random_graph.h"
#include "tests/test.h"

#include <stdlib.h>

#define SEEDS 600u

static trial_outcome run_options(const random_graph_options *options, tern_device *device, bool print, char *text,
                                 size_t text_bytes)
{
    graph_trial t = {.device = device, .fill = random_graph_fill};
    tern_graph *graph = random_graph_create(options);
    assert_non_null(graph);
    const trial_outcome result = graph_trial_run(&t, graph);
    snprintf(text, text_bytes, "%s", t.text);
    if (print) random_graph_print(graph);
    tern_graph_destroy(graph);
    return result;
}

/* Leaves out steps as long as what remains still fails. */
static void shrink(random_graph_options *options, tern_device *device)
{
    char text[600];
    const uint32_t steps = random_graph_steps(options->seed);
    for (bool smaller = true; smaller;) {
        smaller = false;
        for (uint32_t step = 0; step < steps; step++) {
            random_graph_options less = *options;
            less.skip |= 1ull << step;
            if (less.skip == options->skip || run_options(&less, device, false, text, sizeof text) != TRIAL_FAILED)
                continue;
            *options = less;
            smaller = true;
        }
    }
}

static uint32_t environment(const char *name, uint32_t otherwise)
{
    const char *text = getenv(name);
    return text ? (uint32_t)strtoul(text, NULL, 10) : otherwise;
}

static void test_random_graphs(void **state)
{
    tern_device *device = *state;
    const uint32_t first = environment("TERN_FUZZ_SEED", 1), count = environment("TERN_FUZZ_COUNT", SEEDS);
    uint32_t cycles = 0, failures = 0;
    for (uint32_t seed = first; seed < first + count; seed++) {
        random_graph_options options = {.seed = seed, .train = seed % 2 == 1};
        char text[600];
        const trial_outcome result = run_options(&options, device, false, text, sizeof text);
        cycles += result == TRIAL_CYCLE;
        if (result != TRIAL_FAILED) continue;
        failures++;
        print_message("seed %u: %s\n", seed, text);
        shrink(&options, device);
        (void)run_options(&options, device, true, text, sizeof text);
        print_message("seed %u, steps left out %#llx: %s\n", seed, (unsigned long long)options.skip, text);
    }
    if (cycles > 0) print_message("%u of %u graphs need two versions of one state\n", cycles, count);
    assert_int_equal(failures, 0);
    assert_true(cycles <= count / 10u);
}

static int open_device(void **state)
{
    const char *name = getenv("TERN_FUZZ_DEVICE");
    return tern_device_open(name ? name : "cpu", (tern_device **)state) < 0;
}

static int close_device(void **state)
{
    tern_device_close(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_graphs),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
