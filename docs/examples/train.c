/* SPDX-License-Identifier: Apache-2.0 */
/* train.c - a whole training program on tern's library: cc train.c my_data.c $(pkg-config --cflags --libs tern)
 *
 * It begins from pretrained.safetensors, since that is the common case; without one leave tern_trainer_load out. What
 * it does not show is in docs/library.md. The tests build it outside the source tree and run it. */
#include <stdio.h>
#include <tern.h>

/* yours: not part of the header */
#define TRY(e)                                                                                                         \
    do {                                                                                                               \
        status = (e);                                                                                                  \
        if (status < 0) goto fail;                                                                                     \
    } while (0)
int64_t my_next(float *images, int32_t *labels, int64_t most); /* yours: how many it filled */

int main(void)
{
    static float images[64 * 784], head[10 * 500];
    static int32_t labels[64];
    tern_device *device = NULL;
    tern_graph *graph = NULL;
    tern_trainer *trainer = NULL;
    tern_status status;
    tern_report report = {.struct_bytes = sizeof report};
    tern_train_options options;
    tern_train_options_init(&options, sizeof options); /* defaults, visible */
    options.lr = 1e-3;
    options.weight_decay = 0;
    options.accumulate = 4;
    options.steps = 2000;

    TRY(tern_device_open("auto", &device)); /* or "vulkan:A770", "cuda:0" */
    TRY(tern_graph_create(&graph));
    tern_tensor *x = tern_input_2d(graph, "x", TERN_F32, 64, 784);
    tern_tensor *y = tern_input_1d(graph, "y", TERN_I32, 64);
    tern_tensor *z = tern_linear(tern_gelu(tern_linear(x, "fc1", 500)), "fc2", 10); /* fc1.weight ... */
    tern_loss(tern_cross_entropy(z, y, -1), NULL);                                  /* (64) losses; weights optional */
    tern_output(z, "logits");                                     /* unnamed tensors may be overwritten */
    TRY(tern_trainer_create(device, graph, &options, &trainer));  /* every graph error lands here */
    TRY(tern_trainer_load(trainer, "pretrained.safetensors", 0)); /* by name; a miss is an error */
    for (int64_t n; report.step < options.steps && (n = my_next(images, labels, 64)) > 0;) {
        tern_feed feeds[] = {{"x", images, sizeof images}, {"y", labels, sizeof labels}};
        TRY(tern_trainer_step(trainer, feeds, 2, n, &report)); /* copied on return; n < 64 is masked */
        if (report.updated && report.step % 100 == 0) printf("%5d  loss %.4f\n", (int)report.step, report.loss);
    }
    TRY(tern_trainer_read(trainer, "fc2.weight", TERN_F32, head, sizeof head));
    TRY(tern_trainer_save(trainer, "out")); /* closes a partial window; atomic */
fail:
    if (status < 0) fprintf(stderr, "%s\n", tern_error_message());
    tern_trainer_destroy(trainer);
    tern_graph_destroy(graph);
    tern_device_close(device); /* NULL allowed */
    return status < 0;
}
