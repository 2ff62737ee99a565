/* SPDX-License-Identifier: Apache-2.0 */
/* copy.c - how fast memory is: a program of copy steps between two buffers, and one elementwise kernel.
 *
 * bytes_per_s counts every byte read and every byte written. The larger of the two figures is what the other sections'
 * traffic can be held against. */
#include "bench/device/device.h"

#include "core/base/time.h"
#include "core/graph/graph.h"
#include "core/plan/plan.h"

#include <stdlib.h>

#define COPIES    8 /* steps of one program, each after the one before */
#define LEAST     5
#define MOST      100
#define TIMEOUT_S 60.0

typedef struct copier {
    const tern_backend *backend;
    tern_backend_device *device;
    tern_backend_buffer *buffers[2];
    tern_backend_program *program;
} copier;

static uint64_t block_bytes(const device_task *task)
{
    const tern_device_info *info = &task->device->info;
    uint64_t bytes = task->small ? (uint64_t)8 << 20 : (uint64_t)256 << 20;
    if (info->max_buffer_bytes && bytes > info->max_buffer_bytes) bytes = info->max_buffer_bytes;
    if (info->max_allocation_bytes && bytes > info->max_allocation_bytes) bytes = info->max_allocation_bytes;
    if (info->max_binding_bytes && bytes > info->max_binding_bytes) bytes = info->max_binding_bytes;
    if (info->memory_free_bytes && bytes > info->memory_free_bytes / 8) bytes = info->memory_free_bytes / 8;
    return bytes / 4096 * 4096;
}

/* To and fro, so that no copy can be left out. */
static tern_status create_copier(copier *c, uint64_t bytes)
{
    tern_status status = TERN_OK;
    tern_step steps[COPIES];
    uint32_t before[COPIES];
    for (int i = 0; i < 2; i++)
        TERN_TRY(c->backend->buffer_create(c->device, bytes, TERN_BUFFER_DEVICE, &c->buffers[i]));
    for (uint32_t i = 0; i < COPIES; i++) {
        before[i] = i - 1;
        steps[i] = (tern_step){.kind = TERN_STEP_COPY,
                               .label = "copy",
                               .wait_count = i > 0,
                               .waits = &before[i],
                               .argument_count = 2,
                               .arguments = {{c->buffers[i % 2], 0, bytes, TERN_ACCESS_READ},
                                             {c->buffers[1 - i % 2], 0, bytes, TERN_ACCESS_WRITE}}};
    }
    const tern_program_desc desc = {.label = "copies", .step_count = COPIES, .steps = steps};
    TERN_TRY(c->backend->program_create(c->device, &desc, &c->program));
fail:
    return status;
}

static void destroy_copier(copier *c)
{
    if (c->program) c->backend->program_destroy(c->device, c->program);
    for (int i = 0; i < 2; i++)
        if (c->buffers[i]) c->backend->buffer_destroy(c->device, c->buffers[i]);
}

/* Seconds of one copy: the device's clock, else the host's around the whole program. */
static tern_status time_program(const copier *c, tern_device *device, double *out_seconds, bool *out_timestamps)
{
    tern_status status;
    uint64_t ticket, ns[COPIES], sum = 0;
    const uint64_t start = tern_time_ns();
    TERN_TRY(c->backend->program_submit(c->device, c->program, &ticket));
    TERN_TRY(tern_device_wait(device, ticket, TIMEOUT_S));
    const uint64_t end = tern_time_ns();
    *out_timestamps = c->backend->program_times && c->backend->program_times(c->device, c->program, ns) == TERN_OK;
    for (int i = 0; i < COPIES && *out_timestamps; i++) sum += ns[i];
    *out_seconds = 1e-9 * (double)(*out_timestamps ? sum : end - start) / COPIES;
fail:
    return status;
}

static void add_figure(cJSON *section, const char *what, uint64_t bytes, uint32_t launches, uint32_t repeats,
                       double seconds)
{
    cJSON *figure = device_add_figure(section, what);
    cJSON_AddNumberToObject(figure, "bytes", (double)bytes);
    cJSON_AddNumberToObject(figure, "launches", launches);
    cJSON_AddNumberToObject(figure, "repeats", repeats);
    cJSON_AddNumberToObject(figure, "seconds", seconds);
    cJSON_AddNumberToObject(figure, "bytes_per_s", seconds > 0 ? (double)bytes / seconds : 0);
}

static tern_status measure_copies(const device_task *task, uint64_t bytes, cJSON *section)
{
    tern_status status;
    copier c = {.backend = task->device->backend, .device = task->device->handle};
    double samples[MOST], first;
    uint32_t repeats = 0;
    bool timestamps = false;
    TERN_TRY(create_copier(&c, bytes));
    TERN_TRY(time_program(&c, task->device, &first, &timestamps)); /* memory is touched for the first time */
    const uint64_t start = tern_time_ns();
    while (repeats < MOST && (repeats < LEAST || 1e-9 * (double)(tern_time_ns() - start) < task->seconds / 2))
        TERN_TRY(time_program(&c, task->device, &samples[repeats++], &timestamps));
    add_figure(section, "copy steps", 2 * bytes, COPIES * repeats, repeats, device_median(samples, repeats));
    device_set_timing(section, timestamps);
fail:
    destroy_copier(&c);
    return status;
}

/* y = a b + c, three loads and a store per element. */
static tern_status measure_elementwise(const device_task *task, uint64_t bytes, cJSON *section)
{
    tern_status status;
    tern_graph *graph = NULL;
    replay *r = NULL;
    replay_times times;
    const int64_t count = (int64_t)(bytes / sizeof(float));
    TERN_TRY(tern_graph_create(&graph));
    tern_tensor *a = tern_state(graph, "a", TERN_F32, 1, &count), *b = tern_state(graph, "b", TERN_F32, 1, &count),
                *c = tern_state(graph, "c", TERN_F32, 1, &count);
    tern_output(tern_add(tern_mul(a, b), c), "y");
    TERN_TRY(replay_create(task->device, graph, &r));
    TERN_TRY(replay_time(r, task->seconds / 2, &times));
    add_figure(section, "elementwise a b + c", 4 * bytes, times.launches * times.repeats, times.repeats,
               times.timestamps ? times.by_kind[TERN_KERNEL_TAPE] : times.wall);
    device_set_timing(section, times.timestamps);
fail:
    replay_destroy(r);
    tern_graph_destroy(graph);
    return status;
}

tern_status device_measure_copy(const device_task *task, cJSON *section)
{
    const uint64_t bytes = block_bytes(task);
    const tern_status status = measure_copies(task, bytes, section);
    return status < 0 ? status : measure_elementwise(task, bytes, section);
}
