/* SPDX-License-Identifier: Apache-2.0 */
/* test_command_parity.c - `tern parity`: devices that agree, one whose tanh is wrong, what its report holds, refusals.
 */
#include <cjson/cJSON.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/device/device.h"
#include "tests/command.h"
#include "tests/test.h"

#define SMALL "--layers 1 --width 16 --heads 2 --context 16 --batch 2 --steps 2"

static void test_backends_agree(void **state)
{
    const char *backend = *state;
    tern_device *device = NULL;
    if (tern_device_open(backend, &device) < 0) TEST_SKIP("%s", tern_error_message());
    tern_device_close(device);
    const command_result *r = command_runf("parity cpu %s " SMALL, backend);
    if (r->code != 0) fail_msg("%s%s", r->err, r->out);
    assert_non_null(strstr(r->out, "parity: PASS "));
    assert_non_null(strstr(r->out, "no difference beyond 0.0001"));
}

static void test_itself_in_16_bits(void **state)
{
    (void)state;
    const command_result *r = command_run("parity cpu cpu --precision bf16 " SMALL);
    if (r->code != 0) fail_msg("%s%s", r->err, r->out);
    assert_non_null(strstr(r->out, "parity: PASS "));
}

static const char *text_of(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItem(object, name);
    assert_true(cJSON_IsString(item) && item->valuestring[0] != 0);
    return item->valuestring;
}

/* The variant of an op on one device, after a look whether that device's list has it, once. */
static const char *variant_of(const cJSON *report, const cJSON *op, int side)
{
    const cJSON *device = cJSON_GetArrayItem(cJSON_GetObjectItem(report, "devices"), side), *item = NULL;
    const cJSON *variants = cJSON_GetObjectItem(op, "variants");
    assert_int_equal(cJSON_GetArraySize(variants), 2);
    const char *name = cJSON_GetArrayItem(variants, side)->valuestring;
    int found = 0;
    assert_string_equal(text_of(device, "backend"), side == 0 ? "cpu" : "opencl");
    (void)text_of(device, "name"), (void)text_of(device, "driver");
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(device, "variants")) found += strcmp(item->valuestring, name) == 0;
    if (found != 1) fail_msg("\"%s\" is %d times in the list of %s", name, found, text_of(device, "name"));
    return name;
}

/* Its attention, sums and products are the cpu's own: only tanh and what is made of it may differ. */
static void test_a_wrong_tanh_is_named(void **state)
{
    (void)state;
    char path[] = "/tmp/tern-parity-XXXXXX", *text = NULL;
    size_t bytes = 0;
    if (access(TERN_BINARY_DIR "/lib/tern/tern_cpu.so", R_OK) != 0)
        TEST_SKIP("backends are linked in, none can be replaced");
    const int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    command_environment("TERN_BACKEND_PATH", TERN_BINARY_DIR "/tests/plugins_faulty");
    const command_result *r = command_runf("parity cpu opencl " SMALL " --json %s", path);
    command_environment("TERN_BACKEND_PATH", NULL);
    assert_int_equal(r->code, 1);
    const char *verdict = strstr(r->out, "parity: FAIL ");
    if (!verdict) fail_msg("%s%s", r->err, r->out);
    if (!strstr(verdict, "they part at \"tanh#") || !strstr(verdict, "(tanh, forward), by 0.1"))
        fail_msg("%s", verdict);
    TEST_OK(tern_file_read(path, 0, &text, &bytes));
    unlink(path);
    cJSON *json = cJSON_Parse(text);
    free(text);
    assert_string_equal(text_of(cJSON_GetObjectItem(json, "first"), "op"), "tanh");
    cJSON_Delete(json);
}

/* Any difference counts, so that some op is the first to part. */
static void test_variants_are_named(void **state)
{
    (void)state;
    static const char *const starts[][2] = {
        {"tanh", "tape_"}, {"mul", "tape_"}, {"matmul", "matmul_"}, {"attention", "attention_"}};
    char path[] = "/tmp/tern-parity-XXXXXX", *text = NULL;
    size_t bytes = 0;
    tern_device *device = NULL;
    if (tern_device_open("opencl", &device) < 0) TEST_SKIP("%s", tern_error_message());
    tern_device_close(device);
    const int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    const command_result *r = command_runf("parity cpu opencl " SMALL " --tolerance 1e-30 --json %s", path);
    const char *verdict = strstr(r->out, "parity: FAIL ");
    if (!verdict) fail_msg("%s%s", r->err, r->out);
    TEST_OK(tern_file_read(path, 0, &text, &bytes));
    unlink(path);
    cJSON *json = cJSON_Parse(text);
    free(text);
    const cJSON *first = cJSON_GetObjectItem(json, "first"), *op = NULL;
    if (!strstr(verdict, variant_of(json, first, 0)) || !strstr(verdict, variant_of(json, first, 1)))
        fail_msg("%s", verdict);
    cJSON_ArrayForEach(op, cJSON_GetObjectItem(json, "ops"))
    {
        assert_string_equal(variant_of(json, op, 0), "own");
        const char *name = variant_of(json, op, 1);
        for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
            if (strcmp(text_of(op, "op"), starts[i][0]) == 0)
                assert_memory_equal(name, starts[i][1], strlen(starts[i][1]));
    }
    cJSON_Delete(json);
}

static void test_refusals(void **state)
{
    (void)state;
    command_refuses("parity cpu", 2, "name two");
    command_refuses("parity cpu cpu --precision f8", 2, "\"f8\"");
    command_refuses("parity cpu moon", 1, "moon");
    command_refuses("parity cpu cpu --heads 3", 1, "3 heads do not divide");
    command_refuses("parity cpu cpu " SMALL " --json /dev/null/report.json", 1, "/dev/null/report.json");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_ON(test_backends_agree, "opencl"),    TEST_ON(test_backends_agree, "vulkan"),
        cmocka_unit_test(test_itself_in_16_bits),  cmocka_unit_test(test_a_wrong_tanh_is_named),
        cmocka_unit_test(test_variants_are_named), cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("parity", tests, NULL, NULL);
}
