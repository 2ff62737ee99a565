/* SPDX-License-Identifier: Apache-2.0 */
/* step_profile.c - where one training step's device time goes, by kind of kernel, on any backend.
 *
 * usage: bench_step_profile [device] [preset] [batch] [rounds] [list]     default: cpu gpt-s 8 20
 * Prints each kind's share (lower quartile over the rounds) of micro + update, and with "list" every launch. Rates
 * compare only within one run; the machine is shared. Input is random ids: the time does not depend on them. */
#include "core/kernel/lowered.h"
#include "core/models/gpt2.h"
#include "core/train/step.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const kind_names[TERN_KERNEL_KIND_COUNT] = {"tape",         "matmul",        "attention",
                                                               "attention dq", "attention dkv", "scatter add"};

static tern_status build(void *context, tern_graph *graph, uint32_t batch)
{
    tern_gpt2_options options = *(const tern_gpt2_options *)context;
    options.batch = batch;
    return tern_gpt2_build_loss(graph, &options);
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The lower quartile: on a shared machine the slow rounds measure the neighbours. */
static double typical(double *values, size_t count)
{
    qsort(values, count, sizeof *values, compare);
    return values[count / 4];
}

typedef struct profile {
    uint32_t rounds;
    double *samples[TERN_PROGRAM_COUNT]; /* launch x round */
} profile;

static tern_status sample(tern_stepper *stepper, const tern_setup *setup, profile *p, uint32_t round, uint32_t slot)
{
    for (int k = 0; k < TERN_PROGRAM_EVAL; k++) {
        const uint32_t n = setup->programs[k].lowered->launch_count;
        double *seconds = malloc(n * sizeof *seconds);
        const tern_status status =
            seconds ? tern_executable_times(tern_stepper_executable(stepper, (tern_program_kind)k), slot, seconds)
                    : tern_error_memory("times", n * sizeof *seconds);
        for (uint32_t i = 0; status == TERN_OK && i < n; i++) p->samples[k][(size_t)i * p->rounds + round] = seconds[i];
        free(seconds);
        if (status < 0) return status;
    }
    return TERN_OK;
}

static void print_profile(const tern_setup *setup, profile *p, bool list)
{
    double by_kind[TERN_KERNEL_KIND_COUNT] = {0}, update = 0, total = 0, flops = 0;
    for (int k = 0; k < TERN_PROGRAM_EVAL; k++) {
        const tern_lowered *lowered = setup->programs[k].lowered;
        for (uint32_t i = 0; i < lowered->launch_count; i++) {
            const tern_launch *launch = &lowered->launches[i];
            const tern_kernel_kind kind = lowered->kernels[launch->kernel]->kind;
            const double t = typical(&p->samples[k][(size_t)i * p->rounds], p->rounds);
            if (k == TERN_PROGRAM_MICRO)
                by_kind[kind] += t;
            else
                update += t;
            if (kind == TERN_KERNEL_MATMUL) flops += launch->flops;
            total += t;
            if (list)
                printf("%-7s %9.1f us %7.1f GFLOP/s %6.1f GB/s  %s %s\n", tern_program_names[k], 1e6 * t,
                       1e-9 * launch->flops / t, 1e-9 * launch->bytes / t, kind_names[kind], launch->label);
        }
    }
    for (int kind = 0; kind < TERN_KERNEL_KIND_COUNT; kind++)
        printf("%-14s %9.1f us  %5.1f %%\n", kind_names[kind], 1e6 * by_kind[kind], 100 * by_kind[kind] / total);
    printf("%-14s %9.1f us  %5.1f %%\n", "update", 1e6 * update, 100 * update / total);
    printf("step %.2f ms, matmuls %.1f GFLOP/s, everything else %.1f %% of the step\n", 1e3 * total,
           1e-9 * flops / by_kind[TERN_KERNEL_MATMUL], 100 * (1 - by_kind[TERN_KERNEL_MATMUL] / total));
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "cpu", *preset = argc > 2 ? argv[2] : "gpt-s";
    const uint32_t batch = argc > 3 ? (uint32_t)atoi(argv[3]) : 8, rounds = argc > 4 ? (uint32_t)atoi(argv[4]) : 20;
    tern_status status;
    tern_device *device = NULL;
    tern_setup *setup = NULL;
    tern_stepper *stepper = NULL;
    tern_gpt2_options model;
    profile p = {.rounds = rounds};
    int32_t *ids = NULL;
    TERN_TRY(tern_gpt2_preset(preset, &model));
    TERN_TRY(tern_device_open(name, &device));
    const tern_setup_options options = {
        .model = {build, &model},
        .batch = batch,
        .optimizer = {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1},
        .update = {.clip = 1}};
    TERN_TRY(tern_setup_create(device, &options, &setup));
    TERN_TRY(tern_stepper_create(setup, 1, &stepper));
    const size_t tokens = (size_t)batch * model.context;
    ids = malloc(tokens * sizeof *ids);
    for (size_t i = 0; ids && i < tokens; i++) ids[i] = (int32_t)((i * 2654435761u >> 7) % model.vocab);
    const tern_feed feeds[] = {{"ids", ids, tokens * sizeof *ids}, {"labels", ids, tokens * sizeof *ids}};
    for (int k = 0; k < TERN_PROGRAM_EVAL; k++)
        p.samples[k] = calloc((size_t)setup->programs[k].lowered->launch_count * rounds, sizeof(double));
    for (uint32_t round = 0; round < rounds + 2; round++) { /* micro uses slot round % 2, as does update */
        tern_step_report report;
        TERN_TRY(tern_stepper_micro(stepper, feeds, 2, 0));
        TERN_TRY(tern_stepper_update(stepper, 1e-4, &report));
        TERN_TRY(tern_stepper_finish(stepper, &report));
        if (round >= 2) TERN_TRY(sample(stepper, setup, &p, round - 2, round % TERN_SLOTS));
    }
    printf("%s, %s, batch %u, context %u\n", tern_device_name(device), preset, batch, model.context);
    print_profile(setup, &p, argc > 5);
fail:
    if (status < 0) fprintf(stderr, "%s\n", tern_error_message());
    for (int k = 0; k < TERN_PROGRAM_EVAL; k++) free(p.samples[k]);
    free(ids);
    tern_stepper_destroy(stepper);
    tern_setup_destroy(setup);
    tern_device_close(device);
    return status < 0;
}
