/* SPDX-License-Identifier: Apache-2.0 */
/* trainer_fixture.c - see trainer_fixture.h. */
#include "tests/trainer_fixture.h"
#include "tests/test.h"

tern_graph *classifier_graph(int64_t batch, double p)
{
    tern_graph *graph = NULL;
    TEST_OK(tern_graph_create(&graph));
    tern_tensor *x = tern_input_2d(graph, "x", TERN_F32, batch, WIDTH), *y = tern_input_1d(graph, "y", TERN_I32, batch);
    tern_tensor *h = tern_dropout(tern_gelu(tern_linear(x, "fc1", 16)), p, "drop");
    tern_tensor *z = tern_linear(h, "fc2", CLASSES);
    tern_loss(tern_cross_entropy(z, y, -1), NULL);
    tern_output(z, "logits");
    return graph;
}

void classifier_fill(uint32_t seed, float *x, int32_t *y, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        int32_t best = 0;
        for (int64_t k = 0; k < WIDTH; k++) {
            seed = seed * 1664525u + 1013904223u;
            x[i * WIDTH + k] = (float)(seed >> 8) / 16777216.0f - 0.5f;
            if (k < CLASSES && x[i * WIDTH + k] > x[i * WIDTH + best]) best = (int32_t)k;
        }
        y[i] = best;
    }
}

void classifier_start(classifier *f, int64_t batch, double dropout, const tern_train_options *options)
{
    memset(f, 0, sizeof *f);
    f->device = test_open_device("cpu", 2);
    tern_graph *graph = classifier_graph(batch, dropout);
    TEST_OK(tern_trainer_create(f->device, graph, options, &f->trainer));
    tern_graph_destroy(graph); /* the trainer has its own copy */
    classifier_fill(1, f->x, f->y, BATCH);
}

void classifier_stop(classifier *f)
{
    tern_trainer_destroy(f->trainer);
    tern_device_close(f->device);
}

tern_status classifier_step(classifier *f, int64_t examples, tern_report *report)
{
    const tern_feed feeds[] = {{"y", f->y, sizeof *f->y * (size_t)examples},
                               {"x", f->x, sizeof *f->x * WIDTH * (size_t)examples}};
    return tern_trainer_step(f->trainer, feeds, 2, examples, report);
}

tern_status classifier_evaluate(classifier *f, int64_t examples, double *loss, double *weight)
{
    const tern_feed feeds[] = {{"x", f->x, sizeof *f->x * WIDTH * (size_t)examples},
                               {"y", f->y, sizeof *f->y * (size_t)examples}};
    return tern_trainer_evaluate(f->trainer, feeds, 2, examples, loss, weight);
}

void classifier_fc1(classifier *f, float out[FC1])
{
    TEST_OK(tern_trainer_read(f->trainer, "fc1.weight", TERN_F32, out, FC1 * sizeof *out));
}

void classifier_refused(tern_device *device, tern_graph *graph, const tern_train_options *options, tern_status status,
                        const char *part)
{
    tern_trainer *trainer = (tern_trainer *)&trainer;
    TEST_ERROR(tern_trainer_create(device, graph, options, &trainer), status, part);
    assert_null(trainer);
}
