/* SPDX-License-Identifier: Apache-2.0 */
/* toy_model.c - see toy_model.h. */
#include "tests/toy_model.h"
#include "tests/test.h"

#include <stdlib.h>

#include "core/passes/accumulate.h"

static tern_status build(void *context, tern_graph *graph, uint32_t batch)
{
    const toy_model *model = context;
    const int64_t b = batch, h = TOY_HIDDEN;
    tern_tensor *x = tern_input_2d(graph, "x", TERN_F32, b, TOY_IN);
    tern_tensor *y = tern_input_2d(graph, "y", TERN_F32, b, TOY_OUT);
    tern_tensor *weight = tern_input_1d(graph, "weight", TERN_F32, b);
    tern_tensor *shift = tern_parameter(graph, "shift", 1, (const int64_t[]){TOY_IN}, TERN_INIT_ONES, 0);
    tern_parameter_freeze(shift);
    tern_tensor *hidden = tern_label(tern_tanh(tern_linear(tern_add(x, shift), "up", h)), "hidden");
    if (model->running) {
        tern_tensor *mean = tern_state(graph, "running.mean", TERN_F32, 1, &h);
        tern_tensor *now = tern_reshape(tern_mean(hidden, 0), 1, &h);
        tern_assign(mean,
                    tern_add(tern_mul(mean, tern_constant(graph, 0.75)), tern_mul(now, tern_constant(graph, 0.25))));
    }
    if (model->dropout > 0) hidden = tern_dropout(hidden, model->dropout, "drop");
    tern_tensor *scale = tern_parameter(graph, "norm.weight", 1, &h, TERN_INIT_ONES, 0);
    hidden = tern_label(tern_layer_norm(hidden, scale, NULL, 1e-5), "norm");
    tern_tensor *error = tern_mean(tern_mse(tern_label(tern_linear(hidden, "down", TOY_OUT), "prediction"), y), 1);
    tern_loss(tern_label(tern_reshape(error, 1, &b), "loss"), weight);
    return tern_graph_status(graph);
}

tern_setup_options toy_options(const toy_model *model, uint32_t batch)
{
    return (tern_setup_options){
        .model = {build, (void *)(uintptr_t)model},
        .batch = batch,
        .optimizer = {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1},
    };
}

void toy_start(toy_run *run, tern_device *device, const tern_setup_options *options)
{
    *run = (toy_run){.device = device, .batch = options->batch};
    TEST_OK(tern_setup_create(device, options, &run->setup));
    TEST_OK(tern_stepper_create(run->setup, 3, &run->stepper));
}

void toy_stop(toy_run *run)
{
    tern_stepper_destroy(run->stepper);
    tern_setup_destroy(run->setup);
}

tern_status toy_micro(toy_run *run, const toy_batch *batch, uint32_t sample_base)
{
    const uint64_t row = run->batch * sizeof(float);
    const tern_feed feeds[3] = {
        {"x", batch->x, row * TOY_IN}, {"y", batch->y, row * TOY_OUT}, {"weight", batch->weight, row}};
    return tern_stepper_micro(run->stepper, feeds, 3, sample_base);
}

void *toy_read(toy_run *run, const char *name, uint64_t *out_bytes)
{
    tern_binding at;
    TEST_OK(tern_store_find(tern_stepper_store(run->stepper), name, &at));
    void *data = malloc(at.bytes);
    assert_non_null(data);
    TEST_OK(tern_store_read(tern_stepper_store(run->stepper), name, data, at.bytes));
    *out_bytes = at.bytes;
    return data;
}

unsigned char *toy_read_all(toy_run *run, uint64_t *out_bytes)
{
    const tern_store_layout *layout = run->setup->layout;
    unsigned char *all = NULL;
    *out_bytes = 0;
    for (int slab = 0; slab <= TERN_SLAB_COUNT; slab++) {
        const uint32_t count = slab == TERN_SLAB_COUNT ? layout->state_count : layout->segment_count;
        for (uint32_t i = 0; i < count; i++) {
            char name[80];
            tern_binding at;
            uint64_t bytes;
            if (slab < TERN_SLAB_COUNT)
                snprintf(name, sizeof name, "slab.%s.%u", tern_store_slab_names[slab], i);
            else
                snprintf(name, sizeof name, "%s", layout->states[i].name);
            if (tern_store_find(tern_stepper_store(run->stepper), name, &at) < 0) continue; /* a frozen segment's */
            void *one = toy_read(run, name, &bytes);
            all = realloc(all, *out_bytes + bytes);
            assert_non_null(all);
            memcpy(all + *out_bytes, one, bytes);
            *out_bytes += bytes;
            free(one);
        }
    }
    return all;
}

double *toy_gradients(toy_run *run, size_t *out_count)
{
    const tern_store_layout *layout = run->setup->layout;
    size_t count = 0;
    double *all = calloc((size_t)tern_store_layout_elements(layout) + 2, sizeof *all);
    assert_non_null(all);
    for (uint32_t i = 0; i < layout->parameter_count + 2; i++) {
        static const char *const sums[] = {TERN_STATE_N, TERN_STATE_LOSS};
        char name[160];
        uint64_t bytes;
        const bool is_sum = i >= layout->parameter_count;
        if (!is_sum && !layout->segments[layout->parameters[i].segment].trainable) continue;
        snprintf(name, sizeof name, "%s%s", is_sum ? "" : "acc.",
                 is_sum ? sums[i - layout->parameter_count] : layout->parameters[i].name);
        float *values = toy_read(run, name, &bytes);
        for (uint64_t k = 0; k < bytes / sizeof *values; k++) all[count++] = (double)values[k];
        free(values);
    }
    *out_count = count;
    return all;
}

double toy_distance(const double *a, const double *b, size_t count)
{
    double difference = 0, norm = 0;
    for (size_t i = 0; i < count; i++) {
        difference += (a[i] - b[i]) * (a[i] - b[i]);
        norm += b[i] * b[i];
    }
    return difference == 0 ? 0 : sqrt(difference / norm);
}

void toy_batch_create(toy_batch *batch, uint32_t count)
{
    batch->x = calloc(count, TOY_IN * sizeof *batch->x);
    batch->y = calloc(count, TOY_OUT * sizeof *batch->y);
    batch->weight = calloc(count, sizeof *batch->weight);
    assert_true(batch->x && batch->y && batch->weight);
}

void toy_batch_finish(toy_batch *batch)
{
    free(batch->x);
    free(batch->y);
    free(batch->weight);
}
