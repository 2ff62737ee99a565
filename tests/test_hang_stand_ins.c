/* SPDX-License-Identifier: Apache-2.0 */
/* test_hang_stand_ins.c - `tern train` on a device that takes work and never signals that it ended: the command says so
 * within the plug-in's patience, once, and leaves nothing that a later run would stumble over. */
#include <stdlib.h>
#include <unistd.h>

#include "core/base/time.h"
#include "core/device/device.h"
#include "tests/command.h"
#include "tests/test.h"

#define STAND_INS  TERN_BINARY_DIR "/stand_ins"
#define PATIENCE_S "2"
#define MOST_S     60.0 /* far above the patience: what hangs for good, not what a busy machine takes */

#define FEW  4 /* steps of a run that hangs before its first */
#define MANY 100

static char folder[] = "/tmp/tern-hang-XXXXXX";

static const command_result *train(const char *backend, const char *run, int steps)
{
    return command_runf(
        "train --backend %s --precision f32 --seed 7 --steps %d --layers 1 --width 16 --heads 1 --context 16 "
        "--batch 2 --data %s/LICENSE --out %s/%s --log-every 1 --resume auto",
        backend, steps, TERN_SOURCE_DIR, folder, run);
}

/* A run of two steps, one that hangs on its way to `steps`, then one that goes on as if that had not been. */
static void check(const char *backend, const char *run, const char *variable, const char *value, int steps)
{
    tern_device *device = NULL;
    if (tern_device_open(backend, &device) < 0) TEST_SKIP("%s", tern_error_message());
    tern_device_close(device);
    const command_result *r = train(backend, run, 2);
    if (r->code != 0) fail_msg("%s: exit code %d: %s", backend, r->code, r->err);
    command_environment(variable, value);
    command_environment("TERN_CUDA_PATIENCE_S",
                        PATIENCE_S); /* only here: kernels compiled on first sight take their time */
    command_environment("TERN_LEVEL_ZERO_PATIENCE_S", PATIENCE_S);
    const uint64_t start = tern_time_ns();
    r = train(backend, run, steps);
    const double seconds = 1e-9 * (double)(tern_time_ns() - start);
    command_environment(variable, NULL);
    command_environment("TERN_CUDA_PATIENCE_S", NULL);
    command_environment("TERN_LEVEL_ZERO_PATIENCE_S", NULL);
    print_message("%s: reported after %.1f s, patience " PATIENCE_S " s\n", backend, seconds);
    if (r->code == 0 || r->code >= 128) fail_msg("%s: exit code %d: %s", backend, r->code, r->err);
    if (!strstr(r->err, "no progress for " PATIENCE_S " s") || !strstr(r->err, "taken for lost"))
        fail_msg("%s does not say what happened: %s", backend, r->err);
    assert_true(seconds < MOST_S);
    if (steps > FEW && !strstr(r->err, "step 3/")) fail_msg("%s hung before the first step: %s", backend, r->err);
    r = train(backend, run, steps);
    if (r->code != 0) fail_msg("%s after a hang: exit code %d: %s", backend, r->code, r->err);
}

/* Behind what opening and loading give to the device, and in a step, for which the core waits, not the plug-in. */
static void test_cuda(void **state)
{
    (void)state;
    check("cuda", "later", "TERN_STANDIN_CUDA_HANG", "40", FEW);
    check("cuda", "step", "TERN_STANDIN_CUDA_HANG", "300", MANY);
}

static void test_cuda_at_once(void **state)
{
    (void)state;
    check("cuda", "at-once", "TERN_STANDIN_CUDA_HANG", "1", FEW);
}

static void test_level_zero(void **state)
{
    (void)state;
    check("level_zero", "zero", "TERN_STANDIN_ZE_HANG", "1", FEW);
}

static int set_up(void **state)
{
    (void)state;
    (void)setenv("TERN_CUDA_LIBRARY", STAND_INS "/cuda/libcuda.so.1", 1);
    (void)setenv("TERN_NVRTC_LIBRARY", STAND_INS "/cuda/libnvrtc.so", 1);
    (void)setenv("ZE_ENABLE_ALT_DRIVERS", STAND_INS "/level_zero/libtern_ze.so", 1);
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    char line[100];
    (void)state;
    snprintf(line, sizeof line, "rm -rf %s", folder);
    return system(line);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuda),
        cmocka_unit_test(test_cuda_at_once),
        cmocka_unit_test(test_level_zero),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
