/* SPDX-License-Identifier: Apache-2.0 */
/* test_train_stand_ins.c - `tern train` on cuda and level_zero, whose drivers are played by tests/stand_ins: cpu's
 * curve, equal bits when repeated, and a run that Vulkan began goes on there. Shows the plug-ins' host code and the
 * kernels' text to be right; nothing about a card. */
#include <stdlib.h>

#include "core/base/file.h"
#include "core/device/device.h"
#include "tests/command.h"
#include "tests/test.h"

#define STEPS     50
#define BEGUN     20 /* steps on Vulkan, before the others go on */
#define STAND_INS TERN_BINARY_DIR "/stand_ins"

typedef struct training {
    double losses[STEPS];
    char *weights;
    size_t weight_bytes;
} training;

static char folder[] = "/tmp/tern-stand-ins-XXXXXX";

static void need(const char *backend)
{
    tern_device *device = NULL;
    if (tern_device_open(backend, &device) < 0) TEST_SKIP("%s", tern_error_message());
    tern_device_close(device);
}

/* Steps `first` + 1 to STEPS into the run's folder, with losses of those. */
static void train(const char *backend, const char *run, int first, int steps, training *out)
{
    char path[160];
    *out = (training){.weight_bytes = 0};
    const command_result *r =
        command_runf("train --backend %s --precision f32 --seed 7 --steps %d --layers 2 --width 32 "
                     "--heads 2 --context 32 "
                     "--batch 2 --data %s/LICENSE --out %s/%s --json --log-every 1 %s",
                     backend, steps, TERN_SOURCE_DIR, folder, run, first > 0 ? "--resume auto" : "");
    if (r->code != 0) fail_msg("%s: exit code %d: %s", backend, r->code, r->err);
    for (int i = first; i < steps; i++) {
        assert_true(command_number(r->out, i - first, "step") == i + 1);
        out->losses[i] = command_number(r->out, i - first, "loss");
        assert_true(out->losses[i] > 0);
    }
    snprintf(path, sizeof path, "%s/%s/model.safetensors", folder, run);
    TEST_OK(tern_file_read(path, 0, &out->weights, &out->weight_bytes));
}

static void forget(const char *run)
{
    char line[200];
    snprintf(line, sizeof line, "rm -rf %s/%s", folder, run);
    assert_int_equal(system(line), 0);
}

static training reference; /* cpu's */

static int set_up(void **state)
{
    (void)state;
    if (!mkdtemp(folder)) return -1;
    (void)setenv("TERN_CUDA_LIBRARY", STAND_INS "/cuda/libcuda.so.1", 1);
    (void)setenv("TERN_NVRTC_LIBRARY", STAND_INS "/cuda/libnvrtc.so", 1);
    (void)setenv("ZE_ENABLE_ALT_DRIVERS", STAND_INS "/level_zero/libtern_ze.so", 1);
    train("cpu", "cpu", 0, STEPS, &reference);
    return 0;
}

static int tear_down(void **state)
{
    char line[100];
    (void)state;
    free(reference.weights);
    snprintf(line, sizeof line, "rm -rf %s", folder);
    return system(line);
}

static void check_curve(const training *t, const training *wanted, int first)
{
    if (first == 0) TEST_NEAR(t->losses[0], wanted->losses[0], 1e-6 * wanted->losses[0]);
    for (int i = first; i < STEPS; i++) TEST_NEAR(t->losses[i], wanted->losses[i], 1e-3 * wanted->losses[i]);
}

static void test_same_curve_same_bits(void **state)
{
    const char *backend = *state;
    training one, two;
    need(backend);
    train(backend, "one", 0, STEPS, &one);
    train(backend, "two", 0, STEPS, &two);
    check_curve(&one, &reference, 0);
    assert_memory_equal(one.losses, two.losses, sizeof one.losses);
    assert_int_equal(one.weight_bytes, two.weight_bytes);
    assert_memory_equal(one.weights, two.weights, one.weight_bytes);
    free(one.weights), free(two.weights);
    forget("one"), forget("two");
}

/* Against cpu, which stops and goes on there too: the learning rate's way is that of the first steps asked for. */
static void test_goes_on_from_vulkan(void **state)
{
    const char *backend = *state;
    training begun, rest, wanted_begun, wanted;
    need("vulkan");
    need(backend);
    train("cpu", "wanted", 0, BEGUN, &wanted_begun);
    train("cpu", "wanted", BEGUN, STEPS, &wanted);
    train("vulkan", "run", 0, BEGUN, &begun);
    train(backend, "run", BEGUN, STEPS, &rest);
    check_curve(&rest, &wanted, BEGUN);
    free(begun.weights), free(rest.weights), free(wanted_begun.weights), free(wanted.weights);
    forget("run"), forget("wanted");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_ON(test_same_curve_same_bits, "cuda"),
        TEST_ON(test_same_curve_same_bits, "level_zero"),
        TEST_ON(test_goes_on_from_vulkan, "cuda"),
        TEST_ON(test_goes_on_from_vulkan, "level_zero"),
    };
    return cmocka_run_group_tests_name("train on stand-ins", tests, set_up, tear_down);
}
