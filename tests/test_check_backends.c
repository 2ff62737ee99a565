/* SPDX-License-Identifier: Apache-2.0 */
/* test_check_backends.c - `tern check` over all cases on the backends that take a while: opencl, and vulkan under its
 * validation layer. Not found: skipped with the driver's reason. No GPU. */
#include <stdlib.h>

#include "core/device/device.h"
#include "tests/command.h"
#include "tests/test.h"

static void test_all_cases(void **state)
{
    const char *backend = *state;
    char line[64];
    tern_device *device = NULL;
    if (tern_device_open(backend, &device) < 0) TEST_SKIP("%s", tern_error_message());
    tern_device_close(device);
    command_environment("TERN_VULKAN_VALIDATE", "1");
    snprintf(line, sizeof line, "check --backend %s", backend);
    const command_result *r = command_run(line);
    print_message("%s%s", r->err, r->out);
    if (r->code != 0) fail_msg("tern %s: exit code %d", line, r->code);
    assert_non_null(strstr(r->out, "check: PASS "));
    assert_non_null(strstr(r->out, " 0 failed, 0 skipped"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"test_all_cases on opencl", test_all_cases, NULL, NULL, (void *)(uintptr_t) "opencl"},
        {"test_all_cases on vulkan", test_all_cases, NULL, NULL, (void *)(uintptr_t) "vulkan"},
    };
    return cmocka_run_group_tests_name("check_backends", tests, NULL, NULL);
}
