/* SPDX-License-Identifier: Apache-2.0 */
/* attention.c - causal attention of GPT-2 124M, forward and backward.
 *
 * Operations are counted as the mask leaves them: 2 B H T^2 D forward (two products over half the scores), 5 B H T^2 D
 * backward (five), as Dao, "FlashAttention-2", 2023, counts. With timestamps forward and backward are told apart by
 * kernel, without them as the difference of two programs. */
#include "bench/device/device.h"

#include "core/graph/graph.h"
#include "core/passes/save_rule.h"

typedef struct shape {
    int64_t B, T, H, D;
} shape;
static const shape full = {4, 1024, 12, 64}, small = {1, 64, 2, 32};

static tern_status build(const device_task *task, const shape *s, bool backward, tern_graph **out_graph)
{
    tern_status status;
    tern_graph *graph = NULL, *saved = NULL;
    tern_tensor *gradients[3] = {NULL};
    static const char *const names[3] = {"q", "k", "v"}, *const gradient_names[3] = {"dq", "dk", "dv"};
    tern_tensor *x[3];
    const int64_t size[4] = {s->B, s->T, s->H, s->D};
    TERN_TRY(tern_graph_create(&graph));
    for (int i = 0; i < 3; i++) x[i] = tern_state(graph, names[i], task->dtype, 4, size);
    tern_tensor *y = tern_attention(x[0], x[1], x[2], 0.125, true);
    tern_output(y, "y");
    if (backward) {
        tern_tensor *seed = tern_cast(tern_state(graph, "dy", task->dtype, 4, size), TERN_F32);
        TERN_TRY(tern_backward_to(graph, tern_cast(y, TERN_F32), seed, x, 3, gradients));
        for (int i = 0; i < 3; i++) tern_output(gradients[i], gradient_names[i]);
    }
    TERN_TRY(tern_graph_status(graph));
    TERN_TRY(tern_pass_save_rule(graph, &saved));
    *out_graph = saved;
fail:
    tern_graph_destroy(graph);
    return status;
}

static tern_status time_pass(const device_task *task, const shape *s, bool backward, replay_times *out_times)
{
    tern_status status;
    tern_graph *graph = NULL;
    replay *r = NULL;
    TERN_TRY(build(task, s, backward, &graph));
    TERN_TRY(replay_create(task->device, graph, &r));
    TERN_TRY(replay_time(r, task->seconds / 2, out_times));
fail:
    replay_destroy(r);
    tern_graph_destroy(graph);
    return status;
}

static void add_figure(cJSON *section, const shape *s, const char *what, const char *variant, uint32_t launches,
                       uint32_t repeats, double seconds, double products)
{
    cJSON *figure = device_add_figure(section, what);
    cJSON_AddNumberToObject(figure, "batch", (double)s->B);
    cJSON_AddNumberToObject(figure, "heads", (double)s->H);
    cJSON_AddNumberToObject(figure, "tokens", (double)s->T);
    cJSON_AddNumberToObject(figure, "head_dim", (double)s->D);
    cJSON_AddStringToObject(figure, "variant", variant);
    cJSON_AddNumberToObject(figure, "launches", launches);
    cJSON_AddNumberToObject(figure, "repeats", repeats);
    cJSON_AddNumberToObject(figure, "seconds", seconds);
    const double flops = products * (double)(s->B * s->H * s->T * s->T) * (double)s->D;
    cJSON_AddNumberToObject(figure, "flops_per_s", seconds > 0 ? flops / seconds : 0);
}

/* Backward: the kernels of its own, and what prepares them (the rows' sums of dy y). */
static double backward_seconds(const replay_times *forward, const replay_times *both)
{
    double seconds = 0;
    if (!forward->timestamps || !both->timestamps) return both->wall > forward->wall ? both->wall - forward->wall : 0;
    for (int kind = 0; kind < TERN_KERNEL_KIND_COUNT; kind++)
        if (kind != TERN_KERNEL_ATTENTION) seconds += both->by_kind[kind];
    return seconds;
}

tern_status device_measure_attention(const device_task *task, cJSON *section)
{
    tern_status status;
    replay_times forward, both;
    const shape *s = task->small ? &small : &full;
    TERN_TRY(time_pass(task, s, false, &forward));
    add_figure(section, s, "forward", forward.variant[TERN_KERNEL_ATTENTION], forward.launches * forward.repeats,
               forward.repeats, forward.timestamps ? forward.by_kind[TERN_KERNEL_ATTENTION] : forward.wall, 2);
    device_set_timing(section, forward.timestamps);
    TERN_TRY(time_pass(task, s, true, &both));
    add_figure(section, s, "backward", both.variant[TERN_KERNEL_ATTENTION_DKV],
               (both.launches - both.count[TERN_KERNEL_ATTENTION]) * both.repeats, both.repeats,
               backward_seconds(&forward, &both), 5);
    device_set_timing(section, both.timestamps);
fail:
    return status;
}
