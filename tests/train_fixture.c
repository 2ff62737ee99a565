/* SPDX-License-Identifier: Apache-2.0 */
/* train_fixture.c - see train_fixture.h. */
#include "tests/train_fixture.h"
#include "tests/test.h"

#include <stdlib.h>

const tern_gpt2_options test_tiny = {2, 2, 16, 256, 12, 12, 4, 0.2, 1e-5};
static const tern_optimizer adamw = {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};

tern_device *test_open_device(const char *name, uint32_t threads)
{
    tern_device *device = NULL;
    const tern_open_options options = {.threads = threads};
    TEST_OK(tern_device_open_with(name, &options, &device));
    return device;
}

static tern_status build(void *context, tern_graph *graph, uint32_t batch)
{
    tern_gpt2_options options = *(const tern_gpt2_options *)context;
    options.batch = batch;
    return tern_gpt2_build_loss(graph, &options);
}

tern_setup_options test_setup_options(const tern_gpt2_options *model)
{
    return (tern_setup_options){.model = {build, (void *)(uintptr_t)model},
                                .batch = model->batch,
                                .optimizer = adamw,
                                .update = {.clip = 1},
                                .evaluate = true};
}

void test_run_start(test_run *run, const char *backend, uint32_t threads, const tern_gpt2_options *model)
{
    memset(run, 0, sizeof *run);
    run->device = test_open_device(backend, threads);
    const tern_setup_options options = test_setup_options(model);
    TEST_OK(tern_setup_create(run->device, &options, &run->setup));
    TEST_OK(tern_stepper_create(run->setup, 11, &run->stepper));
    run->text.byte_count = 2000;
    run->text.bytes = malloc(run->text.byte_count);
    assert_non_null(run->text.bytes);
    for (uint64_t i = 0; i < run->text.byte_count; i++)
        run->text.bytes[i] = (unsigned char)("the quick brown fox "[i * i % 20]);
    const tern_data_options data = {
        .context = model->context, .batch = model->batch, .vocab = model->vocab, .val_split = 0.2, .seed = 5};
    TEST_OK(tern_data_init(&run->text, &data, &run->data));
    TEST_OK(tern_batch_create(&data, &run->batch));
}

void test_run_stop(test_run *run)
{
    tern_batch_finish(&run->batch);
    free(run->text.bytes);
    tern_stepper_destroy(run->stepper);
    tern_setup_destroy(run->setup);
    tern_device_close(run->device);
}

tern_status test_run_micro(test_run *run, uint64_t sample, uint32_t sample_base)
{
    const uint64_t tokens = (uint64_t)run->data.options.batch * run->data.options.context;
    tern_data_fill(&run->data, sample, &run->batch);
    const tern_feed feeds[4] = {{"ids", run->batch.ids, tokens * 4},
                                {"labels", run->batch.labels, tokens * 4},
                                {"ids.order", run->batch.order, tokens * 4},
                                {"ids.offsets", run->batch.offsets, ((uint64_t)run->data.options.vocab + 1) * 4}};
    return tern_stepper_micro(run->stepper, feeds, 4, sample_base);
}

void test_run_drain(test_run *run)
{
    tern_step_report report;
    TEST_OK(tern_stepper_finish(run->stepper, &report));
}

const tern_null_hooks *test_null_hooks(const tern_device *device)
{
    return ((const tern_null_backend *)device->backend)->hooks;
}
