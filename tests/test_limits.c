/* SPDX-License-Identifier: Apache-2.0 */
/* test_limits.c - limits profiles: the built-in ones, files, and each kind of bad file. */
#include "core/device/device.h"
#include "tests/test.h"

#include <stdlib.h>
#include <unistd.h>

#define GIB ((uint64_t)1 << 30)

/* Writes the text to a temporary file and loads it as a profile. */
static tern_status load_text(const char *text, tern_limits *out_limits)
{
    char path[] = "/tmp/tern_limits_XXXXXX";
    const int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(write(file, text, strlen(text)), strlen(text));
    close(file);
    const tern_status status = tern_limits_load(path, out_limits);
    if (status < 0) assert_non_null(strstr(tern_error_message(), path));
    unlink(path);
    return status;
}

static void test_profiles(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint64_t memory_bytes, max_binding_bytes;
        uint32_t shared_bytes;
    } known[] = {
        {"lavapipe", 0, GIB / 8u, 32768},           {"arc-a770", 16 * GIB, 4 * GIB - 4096, 65536},
        {"rtx-3090", 24 * GIB, 4 * GIB - 1, 49152}, {"rtx-4090", 24 * GIB, 4 * GIB - 1, 49152},
        {"a100", 40 * GIB, 4 * GIB - 1, 49152},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        tern_limits limits;
        TEST_OK(tern_limits_load(known[i].name, &limits));
        assert_string_equal(limits.name, known[i].name);
        assert_int_equal(limits.memory_bytes, known[i].memory_bytes);
        assert_int_equal(limits.max_binding_bytes, known[i].max_binding_bytes);
        assert_int_equal(limits.shared_bytes, known[i].shared_bytes);
        assert_true(limits.flops > 0 && limits.bytes_per_s > 0 && limits.submit_seconds > 0);
    }
}

static void test_files(void **state)
{
    (void)state;
    tern_limits limits;
    TEST_OK(load_text(
        "{\"name\": \"mine\", \"memory_bytes\": 8589934592, \"max_groups_x\": 65535, \"submit_seconds\": 0.25}",
        &limits));
    assert_string_equal(limits.name, "mine");
    assert_int_equal(limits.memory_bytes, 8 * GIB);
    assert_int_equal(limits.max_groups_x, 65535);
    assert_int_equal(limits.max_binding_bytes, 0);
    TEST_NEAR(limits.submit_seconds, 0.25, 0);
    assert_int_equal(limits.lacks, 0);
    TEST_OK(load_text("{\"storage_16\": false, \"storage_8\": true}", &limits));
    assert_int_equal(limits.lacks, TERN_FEATURE_STORAGE_16);
    tern_device_info info = {.features = TERN_FEATURE_STORAGE_16 | TERN_FEATURE_STORAGE_8};
    tern_limits_apply(&limits, &info);
    assert_int_equal(info.features, TERN_FEATURE_STORAGE_8);
    TEST_OK(load_text("{}", &limits));
    TEST_NEAR(limits.submit_seconds, 0.5, 0);
    assert_non_null(strstr(limits.name, "tern_limits_"));
}

static void test_bad_files(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } bad[] = {
        {"{\"memory_byte\": 1}", "unknown key 'memory_byte'; the keys are name, memory_bytes"},
        {"{\"memory_bytes\": 1000}", "'memory_bytes' must be a whole number from 1048576"},
        {"{\"memory_bytes\": -1}", "'memory_bytes' must be a whole number"},
        {"{\"memory_bytes\": 1e300}", "'memory_bytes' must be a whole number"},
        {"{\"max_group_size\": 128.5}", "'max_group_size' must be a whole number from 64 to 65536"},
        {"{\"shared_bytes\": \"many\"}", "'shared_bytes' must be a whole number"},
        {"{\"submit_seconds\": 0}", "'submit_seconds' must be a number from 0.001"},
        {"{\"flops\": null}", "'flops' must be a number"},
        {"{\"name\": 3}", "'name' must be a text of 1 to 63 bytes"},
        {"{\"name\": \"0123456789012345678901234567890123456789012345678901234567890123\"}", "'name' must be a text"},
        {"{\"flops\": 1e12, \"flops\": 1e13}", "the key 'flops' twice"},
        {"{\"storage_16\": 1}", "'storage_16' must be true or false"},
        {"[1, 2]", "must be one JSON object"},
        {"{\"flops\": 1e12", "is not JSON"},
        {"{} trailing", "is not JSON"},
        {"", "is not JSON"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tern_limits limits = {.name = "untouched"};
        TEST_ERROR(load_text(bad[i].text, &limits), TERN_ERROR_FORMAT, bad[i].part);
        assert_string_equal(limits.name, "untouched");
    }
    tern_limits limits;
    TEST_ERROR(tern_limits_load("rtx-9999", &limits), TERN_ERROR_NOT_FOUND,
               "lavapipe, arc-a770, rtx-3090, rtx-4090, a100");
    TEST_ERROR(tern_limits_load("/no/such/file.json", &limits), TERN_ERROR_IO, "/no/such/file.json");
    char *large = malloc((1u << 20) + 8u);
    memset(large, ' ', (1u << 20) + 7u);
    large[(1u << 20) + 7u] = 0;
    TEST_ERROR(load_text(large, &limits), TERN_ERROR_FORMAT, "larger than 1048576 bytes");
    free(large);
}

static void test_apply_only_lowers(void **state)
{
    (void)state;
    tern_limits limits;
    tern_device_info info = {.memory_bytes = 8 * GIB,
                             .memory_free_bytes = 6 * GIB,
                             .max_allocation_bytes = 64 * GIB,
                             .max_buffer_bytes = 2 * GIB,
                             .max_binding_bytes = 0, /* not limited */
                             .max_groups = {2147483647, 65535, 65535},
                             .max_group_size = 256,
                             .shared_bytes = 98304};
    TEST_OK(tern_limits_load("arc-a770", &limits));
    tern_limits_apply(&limits, &info);
    assert_int_equal(info.memory_bytes, 8 * GIB);
    assert_int_equal(info.memory_free_bytes, 6 * GIB);
    assert_int_equal(info.max_allocation_bytes, 4 * GIB - 4096);
    assert_int_equal(info.max_buffer_bytes, 2 * GIB);
    assert_int_equal(info.max_binding_bytes, 4 * GIB - 4096);
    assert_int_equal(info.max_groups[0], 65535);
    assert_int_equal(info.max_group_size, 256);
    assert_int_equal(info.shared_bytes, 65536);
}

static void test_what_is_believed_without_a_profile(void **state)
{
    (void)state;
    tern_limits limits;
    tern_device_info info = {
        .name = "card", .kind = TERN_DEVICE_DISCRETE_GPU, .memory_bytes = GIB, .max_groups = {65535, 1, 1}};
    tern_limits_of(&info, &limits);
    assert_string_equal(limits.name, "card");
    assert_int_equal(limits.memory_bytes, GIB);
    assert_int_equal(limits.max_groups_x, 65535);
    TEST_NEAR(limits.submit_seconds, 0.5, 0);
    const double card = limits.flops;
    info.kind = TERN_DEVICE_CPU;
    info.threads = 2;
    tern_limits_of(&info, &limits);
    assert_true(limits.submit_seconds > 0.5 && limits.flops < card && limits.flops > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_profiles),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_apply_only_lowers),
        cmocka_unit_test(test_what_is_believed_without_a_profile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
