/* SPDX-License-Identifier: Apache-2.0 */
/* matmul.c - the products of a GPT-2 124M training step, one by one, and a large square one.
 *
 * The same product stands several times in a program, so that a submission costs little of it. of_best is a product's
 * rate as a share of the best rate of this section: the peak that tern reaches on this device, not the maker's. */
#include "bench/device/device.h"

#include "core/base/dtype.h"
#include "core/graph/graph.h"

#include <stdio.h>

#define COPIES_MOST       8
#define OUTPUT_BYTES_MOST ((uint64_t)256 << 20) /* of all copies together */

typedef struct shape {
    const char *name;
    int64_t M, N, K;
    bool a_transposed, b_transposed;
} shape;

/* 4 windows of 1024 tokens: y = x W, dx = dy W^T, dW = x^T dy. The head for one window. */
static const shape shapes[] = {
    {"qkv", 4096, 2304, 768, false, false},     {"qkv dx", 4096, 768, 2304, false, true},
    {"qkv dw", 768, 2304, 4096, true, false},   {"projection", 4096, 768, 768, false, false},
    {"up", 4096, 3072, 768, false, false},      {"down", 4096, 768, 3072, false, false},
    {"down dw", 3072, 768, 4096, true, false},  {"head", 1024, 50257, 768, false, true},
    {"square", 4096, 4096, 4096, false, false},
};
/* A small GPT's, for a CPU that plays a GPU. */
static const shape small_shapes[] = {
    {"qkv", 256, 192, 64, false, false},
    {"qkv dx", 256, 64, 192, false, true},
    {"qkv dw", 64, 192, 256, true, false},
    {"square", 256, 256, 256, false, false},
};

static tern_tensor *matrix(tern_graph *graph, const char *name, int32_t dtype, int64_t rows, int64_t columns,
                           bool transposed)
{
    const int64_t size[2] = {transposed ? columns : rows, transposed ? rows : columns};
    tern_tensor *x = tern_state(graph, name, dtype, 2, size);
    return transposed ? tern_transpose(x, 0, 1) : x;
}

static tern_status measure(const device_task *task, const shape *s, double seconds, cJSON *section)
{
    tern_status status;
    tern_graph *graph = NULL;
    replay *r = NULL;
    replay_times times;
    char name[16];
    uint64_t copies = OUTPUT_BYTES_MOST / tern_dtype_bytes(task->dtype, (uint64_t)(s->M * s->N));
    copies = copies < 1 ? 1 : copies > COPIES_MOST ? COPIES_MOST : copies;
    TERN_TRY(tern_graph_create(&graph));
    tern_tensor *a = matrix(graph, "a", task->dtype, s->M, s->K, s->a_transposed),
                *b = matrix(graph, "b", task->dtype, s->K, s->N, s->b_transposed);
    for (uint64_t i = 0; i < copies; i++) {
        snprintf(name, sizeof name, "y%u", (unsigned)i);
        tern_output(tern_matmul(a, b), name);
    }
    TERN_TRY(replay_create(task->device, graph, &r));
    TERN_TRY(replay_time(r, seconds, &times));
    if (times.count[TERN_KERNEL_MATMUL] != copies) {
        status = tern_error(TERN_ERROR_INTERNAL, "%u matmuls became %u launches; please report it", (unsigned)copies,
                            times.count[TERN_KERNEL_MATMUL]);
        goto fail;
    }
    const double each = (times.timestamps ? times.by_kind[TERN_KERNEL_MATMUL] : times.wall) / (double)copies;
    cJSON *figure = device_add_figure(section, s->name);
    cJSON_AddNumberToObject(figure, "m", (double)s->M);
    cJSON_AddNumberToObject(figure, "n", (double)s->N);
    cJSON_AddNumberToObject(figure, "k", (double)s->K);
    cJSON_AddStringToObject(figure, "variant", times.variant[TERN_KERNEL_MATMUL]);
    cJSON_AddNumberToObject(figure, "launches", times.count[TERN_KERNEL_MATMUL] * times.repeats);
    cJSON_AddNumberToObject(figure, "repeats", times.repeats);
    cJSON_AddNumberToObject(figure, "seconds", each);
    cJSON_AddNumberToObject(figure, "flops_per_s",
                            each > 0 ? 2.0 * (double)s->M * (double)s->N * (double)s->K / each : 0);
    device_set_timing(section, times.timestamps);
fail:
    replay_destroy(r);
    tern_graph_destroy(graph);
    return status;
}

static void add_shares(cJSON *section)
{
    double best = 0;
    cJSON *figure, *figures = cJSON_GetObjectItem(section, "figures");
    cJSON_ArrayForEach(figure, figures)
    {
        const double rate = cJSON_GetNumberValue(cJSON_GetObjectItem(figure, "flops_per_s"));
        if (rate > best) best = rate;
    }
    cJSON_ArrayForEach(figure, figures)
    {
        const double rate = cJSON_GetNumberValue(cJSON_GetObjectItem(figure, "flops_per_s"));
        cJSON_AddNumberToObject(figure, "of_best", best > 0 ? rate / best : 0);
    }
}

/* A product too large for the device leaves the others as they are; which one is said. */
tern_status device_measure_matmul(const device_task *task, cJSON *section)
{
    const shape *list = task->small ? small_shapes : shapes;
    const uint32_t count =
        (uint32_t)(task->small ? sizeof small_shapes / sizeof *shapes : sizeof shapes / sizeof *shapes);
    char left_out[512] = "";
    for (uint32_t i = 0; i < count; i++) {
        const tern_status status = measure(task, &list[i], task->seconds / count, section);
        if (status == TERN_ERROR_UNSUPPORTED || status == TERN_ERROR_DEVICE_MEMORY)
            snprintf(left_out, sizeof left_out, "%s was left out: %s", list[i].name, tern_error_message());
        else if (status < 0)
            return tern_error_prefix(status, "%s", list[i].name);
    }
    add_shares(section);
    const bool any = cJSON_GetArraySize(cJSON_GetObjectItem(section, "figures")) > 0;
    if (!any) return tern_error(TERN_ERROR_UNSUPPORTED, "%s", left_out);
    cJSON_AddStringToObject(section, "reason", left_out);
    return TERN_OK;
}
