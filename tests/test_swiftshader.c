/* SPDX-License-Identifier: Apache-2.0 */
/* test_swiftshader.c - the weak Vulkan device: sub-groups of four, groups of 256, no storage of 8 or 16 bits.
 *
 * `tern check` over everything: what needs no narrow tensor is right, what does is refused with its reason, and nothing
 * else is skipped. The driver comes from cmake/swiftshader.sh, which `make lab` runs. Not found: skipped. */
#include <stdlib.h>
#include <unistd.h>

#include "tests/command.h"
#include "tests/test.h"

#define ICD TERN_SOURCE_DIR "/build/swiftshader/vk_swiftshader_icd.json"

static int set_up(void **state)
{
    (void)state;
    /* Both names: loaders before 1.3.207 know only the older one. */
    command_environment("VK_DRIVER_FILES", ICD);
    command_environment("VK_ICD_FILENAMES", ICD);
    return 0;
}

/* Each skipped case names the width that the device lacks. */
static void test_right_or_refused(void **state)
{
    (void)state;
#ifdef __SANITIZE_ADDRESS__
    TEST_SKIP("takes minutes, and the driver's code is not instrumented; the optimised build runs it");
#endif
    if (access(ICD, R_OK) != 0) TEST_SKIP("SwiftShader is not there; get it with: sh cmake/swiftshader.sh");
    const command_result *r = command_run("check --backend vulkan");
    print_message("%s%s", r->err, r->out);
    assert_int_equal(r->code, 0);
    assert_non_null(strstr(r->out, "check: PASS "));
    assert_non_null(strstr(r->out, " on vulkan: SwiftShader"));
    assert_non_null(strstr(r->out, " 0 failed, "));
    int skipped = 0;
    for (const char *text = r->err; text; text = text == r->err ? r->out : NULL)
        for (const char *at = text; (at = strstr(at, "skipped ")); at++) {
            const size_t line = strcspn(at, "\n");
            if (at != text && at[-1] != '\n') continue;
            if (!memmem(at, line, "has no 8-bit storage", 20) && !memmem(at, line, "has no 16-bit storage", 21))
                fail_msg("skipped for another reason: %.*s", (int)line, at);
            skipped++;
        }
    assert_true(skipped > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right_or_refused),
    };
    return cmocka_run_group_tests_name("swiftshader", tests, set_up, NULL);
}
