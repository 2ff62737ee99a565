/* SPDX-License-Identifier: Apache-2.0 */
/* step.c - a training step of GPT-2 124M as `tern train` runs it, and the memory it takes against what was planned.
 *
 * Time is the host's, between the ends of two steps: what a user waits. The batch is the largest of a short list that
 * takes no more than MEMORY_SHARE of what is free. Input is random ids: the time does not depend on them. The loss is
 * recorded so that a step that computes nothing would show. */
#include "bench/device/device.h"

#include "core/base/time.h"
#include "core/models/gpt2.h"
#include "core/train/step.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define MEMORY_SHARE 0.8
#define WARM_UP      3
#define LEAST        3 /* steps measured */
#define MOST         200

static const uint32_t batches[] = {8, 4, 2, 1};

typedef struct trial {
    tern_gpt2_options model;
    tern_setup *setup;
    tern_stepper *stepper;
    int32_t *ids;
    uint32_t batch, skipped;
    double samples[MOST], first_loss, last_loss;
    uint32_t steps;
} trial;

static tern_status build(void *context, tern_graph *graph, uint32_t batch)
{
    tern_gpt2_options options = *(const tern_gpt2_options *)context;
    options.batch = batch;
    return tern_gpt2_build_loss(graph, &options);
}

static tern_status create_setup(const device_task *task, trial *t)
{
    tern_setup_options options = {.model = {build, &t->model},
                                  .batch = t->batch,
                                  .update = {.clip = 1},
                                  .precision = task->dtype == TERN_F32 ? 0 : task->dtype};
    tern_optimizer_init(&options.optimizer, TERN_OPTIMIZER_ADAMW);
    return tern_setup_create_fitting(task->device, &options, &t->setup);
}

/* The largest batch that leaves some memory to others; a batch that does not fit at all is no error but the last's. */
static tern_status choose_batch(const device_task *task, trial *t)
{
    const uint32_t first = task->small ? 2 : 0;
    tern_status status = TERN_ERROR_DEVICE_MEMORY;
    for (uint32_t i = first; i < sizeof batches / sizeof *batches; i++) {
        tern_setup_memory memory;
        t->batch = batches[i];
        status = create_setup(task, t);
        if (status == TERN_ERROR_DEVICE_MEMORY || status == TERN_ERROR_UNSUPPORTED) continue;
        if (status < 0) return status;
        tern_setup_measure(t->setup, &memory);
        if ((double)memory.total <= MEMORY_SHARE * (double)memory.budget) return TERN_OK;
        status = tern_error(TERN_ERROR_DEVICE_MEMORY,
                            "batch %u takes %llu bytes, more than %.0f %% of %llu that are free", t->batch,
                            (unsigned long long)memory.total, 100 * MEMORY_SHARE, (unsigned long long)memory.budget);
        tern_setup_destroy(t->setup);
        t->setup = NULL;
    }
    return status;
}

static tern_status run_step(trial *t, tern_step_report *report)
{
    const size_t bytes = (size_t)t->batch * t->model.context * sizeof *t->ids;
    const tern_feed feeds[] = {{"ids", t->ids, bytes}, {"labels", t->ids, bytes}};
    const tern_status status = tern_stepper_micro(t->stepper, feeds, 2, 0);
    return status < 0 ? status : tern_stepper_update(t->stepper, 1e-4, report);
}

static tern_status run(trial *t, double seconds)
{
    tern_status status;
    tern_step_report report = {0};
    uint64_t start = 0, last = 0;
    for (uint32_t i = 0; t->steps < MOST; i++) {
        TERN_TRY(run_step(t, &report));
        const uint64_t now = tern_time_ns();
        if (report.valid && report.attempt == 0) t->first_loss = report.loss;
        if (i > WARM_UP) t->samples[t->steps++] = 1e-9 * (double)(now - last);
        last = now;
        if (i == 0) start = now;
        if (t->steps >= LEAST && 1e-9 * (double)(now - start) > seconds) break;
    }
    TERN_TRY(tern_stepper_finish(t->stepper, &report));
    t->last_loss = report.loss;
    t->skipped = report.skips;
    if (!isfinite(t->first_loss) || !isfinite(t->last_loss) || report.skips == report.attempt + 1)
        status = tern_error(TERN_ERROR_KERNEL,
                            "the loss went from %g to %g with %u of %llu steps skipped: it does not train",
                            t->first_loss, t->last_loss, report.skips, (unsigned long long)report.attempt + 1);
fail:
    return status;
}

static void add_figure(const device_task *task, trial *t, cJSON *section)
{
    tern_setup_memory memory;
    const tern_backend *backend = task->device->backend;
    const double seconds = device_median(t->samples, t->steps);
    uint32_t launches = 0;
    tern_setup_measure(t->setup, &memory);
    for (int k = 0; k <= TERN_PROGRAM_UPDATE; k++) launches += t->setup->programs[k].lowered->launch_count;
    cJSON *figure = device_add_figure(section, task->small ? "small GPT" : "GPT-2 124M");
    cJSON_AddNumberToObject(figure, "parameters", (double)tern_gpt2_parameter_count(&t->model));
    cJSON_AddNumberToObject(figure, "batch", t->batch);
    cJSON_AddNumberToObject(figure, "context", t->model.context);
    cJSON_AddNumberToObject(figure, "launches", launches);
    cJSON_AddNumberToObject(figure, "repeats", t->steps);
    cJSON_AddNumberToObject(figure, "skipped", t->skipped);
    cJSON_AddNumberToObject(figure, "seconds", seconds);
    cJSON_AddNumberToObject(figure, "tokens_per_s", seconds > 0 ? (double)t->batch * t->model.context / seconds : 0);
    cJSON_AddNumberToObject(figure, "first_loss", t->first_loss);
    cJSON_AddNumberToObject(figure, "last_loss", t->last_loss);
    cJSON_AddNumberToObject(figure, "planned_bytes", (double)memory.total);
    if (backend->allocated_bytes)
        cJSON_AddNumberToObject(figure, "allocated_bytes", (double)backend->allocated_bytes(task->device->handle));
    device_set_timing(section, false);
}

tern_status device_measure_step(const device_task *task, cJSON *section)
{
    tern_status status;
    trial t = {.first_loss = NAN, .last_loss = NAN};
    TERN_TRY(tern_gpt2_preset(task->small ? "gpt-s" : "gpt2", &t.model));
    if (task->small) { /* what PoCL compiles and runs in seconds */
        t.model.layers = 2;
        t.model.width = 64;
        t.model.heads = 2;
        t.model.context = t.model.positions = 64;
    }
    TERN_TRY(choose_batch(task, &t));
    TERN_TRY(tern_stepper_create(t.setup, 1, &t.stepper));
    const size_t tokens = (size_t)t.batch * t.model.context;
    t.ids = malloc(tokens * sizeof *t.ids);
    if (!t.ids) {
        status = tern_error_memory("ids", tokens * sizeof *t.ids);
        goto fail;
    }
    for (size_t i = 0; i < tokens; i++) t.ids[i] = (int32_t)((i * 2654435761u >> 7) % t.model.vocab);
    TERN_TRY(run(&t, task->seconds));
    add_figure(task, &t, section);
fail:
    free(t.ids);
    tern_stepper_destroy(t.stepper);
    tern_setup_destroy(t.setup);
    return status;
}
