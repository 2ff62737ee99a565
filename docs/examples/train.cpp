// SPDX-License-Identifier: Apache-2.0
// train.cpp - train.c in C++17: handles in unique_ptr, a failing status becomes an exception. The weights begin random.
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <tern.h>

static void check(tern_status status)
{
    if (status < 0) throw std::runtime_error(tern_error_message());
}
template <auto destroy> struct with {
    template <class T> void operator()(T *p) const { destroy(p); }
};
using device = std::unique_ptr<tern_device, with<tern_device_close>>;
using graph = std::unique_ptr<tern_graph, with<tern_graph_destroy>>;
using trainer = std::unique_ptr<tern_trainer, with<tern_trainer_destroy>>;

int64_t my_next(float *images, int32_t *labels, int64_t most); // yours: how many it filled

int main()
try {
    static float images[64 * 784];
    static int32_t labels[64];
    tern_device *d;
    tern_graph *g;
    tern_trainer *t;
    check(tern_device_open("auto", &d));
    device own_d{d};
    check(tern_graph_create(&g));
    graph own_g{g};
    tern_tensor *x = tern_input_2d(g, "x", TERN_F32, 64, 784), *y = tern_input_1d(g, "y", TERN_I32, 64);
    tern_tensor *z = tern_linear(tern_gelu(tern_linear(x, "fc1", 500)), "fc2", 10);
    tern_loss(tern_cross_entropy(z, y, -1), nullptr);
    tern_train_options options;
    tern_train_options_init(&options, sizeof options);
    options.steps = 2000;
    check(tern_trainer_create(d, g, &options, &t));
    trainer own_t{t};
    tern_report report{};
    report.struct_bytes = sizeof report;
    for (int64_t n; report.step < options.steps && (n = my_next(images, labels, 64)) > 0;) {
        tern_feed feeds[] = {{"x", images, sizeof images}, {"y", labels, sizeof labels}};
        check(tern_trainer_step(t, feeds, 2, n, &report));
    }
    check(tern_trainer_save(t, "out"));
} catch (const std::exception &e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
}
