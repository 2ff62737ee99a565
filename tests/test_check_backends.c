/* SPDX-License-Identifier: Apache-2.0 */
/* test_check_backends.c - `tern check` over all cases on the backends that take a while: opencl, and vulkan under its
 * validation layer. Not found: skipped with the driver's reason. No GPU. */
#include <stdlib.h>

#include "core/device/device.h"
#include "tests/command.h"
#include "tests/test.h"

/* "check: PASS 88 cases (...": how many; 0 if that is not what it says. */
static int passed_cases(const char *out)
{
    const char *at = strstr(out, "check: PASS ");
    return at ? atoi(at + strlen("check: PASS ")) : 0;
}

/* A case with a gradient counts twice, as the verdict does. */
static int listed_cases(const char *dtype)
{
    int count = 0;
    const command_result *r = command_runf("check --list --dtype %s", dtype);
    assert_int_equal(r->code, 0);
    for (const char *at = r->out; (at = strchr(at, '\n')); at++) count++;
    for (const char *at = r->out; (at = strstr(at, ", gradient")); at++) count++;
    return count;
}

/* One command per dtype, since a driver that compiles slowly needs minutes for each. */
static void test_all_cases(void **state)
{
    static const char *const dtypes[] = {"f32", "f16", "bf16", "i32", "u32"};
    const char *backend = *state;
    char line[64];
    tern_device *device = NULL;
    if (getenv("TERN_TEST_QUICK"))
        TEST_SKIP("TERN_TEST_QUICK: every case on %s takes minutes; the optimised build on the host runs them",
                  backend);
    if (tern_device_open(backend, &device) < 0) TEST_SKIP("%s", tern_error_message());
    tern_device_close(device);
    command_environment("TERN_VULKAN_VALIDATE", "1");
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        snprintf(line, sizeof line, "check --backend %s --dtype %s", backend, dtypes[i]);
        const command_result *r = command_run(line);
        print_message("%s%s", r->err, r->out);
        if (r->code != 0) fail_msg("tern %s: exit code %d", line, r->code);
        assert_non_null(strstr(r->out, " 0 failed, 0 skipped"));
        const int passed = passed_cases(r->out); /* before the next command takes the output's place */
        assert_int_equal(passed, listed_cases(dtypes[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"test_all_cases on opencl", test_all_cases, NULL, NULL, (void *)(uintptr_t) "opencl"},
        {"test_all_cases on vulkan", test_all_cases, NULL, NULL, (void *)(uintptr_t) "vulkan"},
    };
    return cmocka_run_group_tests_name("check_backends", tests, NULL, NULL);
}
