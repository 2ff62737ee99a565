/* SPDX-License-Identifier: Apache-2.0 */
/* test_check_stand_ins.c - `tern check` in f32 over one operation of each kind on cuda and level_zero, whose drivers
 * are played by tests/stand_ins. What is compiled anew for each operation is slow there: contractions, reductions,
 * scattering and random numbers, and one of each other kind; everything, in all types, is run by hand
 * (docs/testing.md). */
#include <stdlib.h>

#include "core/device/device.h"
#include "tests/command.h"
#include "tests/test.h"

#define STAND_INS TERN_BINARY_DIR "/stand_ins"

/* A case with a gradient counts twice, as the verdict does. */
static int listed_cases(const char *op)
{
    int count = 0;
    const command_result *r = command_runf("check --list --dtype f32 --op %s", op);
    assert_int_equal(r->code, 0);
    for (const char *at = r->out; (at = strchr(at, '\n')); at++) count++;
    for (const char *at = r->out; (at = strstr(at, ", gradient")); at++) count++;
    return count;
}

static void test_each_kind(void **state)
{
    static const char *const ops[] = {"attention", "matmul", "sum",    "softmax", "layer_norm", "cross_entropy",
                                      "gather",    "gelu",   "assign", "dropout", "view",       "where"};
    const char *backend = *state;
    tern_device *device = NULL;
    if (getenv("TERN_TEST_QUICK"))
        TEST_SKIP("TERN_TEST_QUICK: %s on its stand-in takes minutes; the optimised build runs it", backend);
    if (tern_device_open(backend, &device) < 0) TEST_SKIP("%s", tern_error_message());
    tern_device_close(device);
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        char verdict[64];
        snprintf(verdict, sizeof verdict, "check: PASS %d case", listed_cases(ops[i]));
        const command_result *r = command_runf("check --backend %s --dtype f32 --op %s", backend, ops[i]);
        print_message("%s: %s%s", ops[i], r->err, r->out);
        if (r->code != 0) fail_msg("%s on %s: exit code %d", ops[i], backend, r->code);
        assert_non_null(strstr(r->out, verdict));
        assert_non_null(strstr(r->out, " 0 failed, 0 skipped"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST_ON(test_each_kind, "cuda"), TEST_ON(test_each_kind, "level_zero")};
    (void)setenv("TERN_CUDA_LIBRARY", STAND_INS "/cuda/libcuda.so.1", 1);
    (void)setenv("TERN_NVRTC_LIBRARY", STAND_INS "/cuda/libnvrtc.so", 1);
    (void)setenv("ZE_ENABLE_ALT_DRIVERS", STAND_INS "/level_zero/libtern_ze.so", 1);
    return cmocka_run_group_tests_name("check on stand-ins", tests, NULL, NULL);
}
