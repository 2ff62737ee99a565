/* SPDX-License-Identifier: Apache-2.0 */
/* test_precision.c - what a precision comes to on a device, with its reason; nothing is dropped silently. */
#include "core/device/device.h"
#include "core/train/precision.h"
#include "tests/test.h"

enum { STORES = TERN_FEATURE_STORAGE_16, COMPUTES = TERN_FEATURE_ARITHMETIC_F16 };

static tern_device_info device(tern_device_kind kind, uint32_t features)
{
    return (tern_device_info){.name = "Card", .kind = kind, .features = features};
}

static void test_choices(void **state)
{
    (void)state;
    static const struct {
        int32_t precision;
        tern_device_kind kind;
        uint32_t features;
        int32_t dtype; /* 0: refused */
        const char *part;
    } rows[] = {
        {TERN_PRECISION_AUTO, TERN_DEVICE_DISCRETE_GPU, STORES | COMPUTES, TERN_F16, "Card, which computes with f16"},
        {TERN_PRECISION_AUTO, TERN_DEVICE_INTEGRATED_GPU, STORES | COMPUTES, TERN_F16, "computes with f16"},
        {TERN_PRECISION_AUTO, TERN_DEVICE_DISCRETE_GPU, STORES, TERN_F32, "does not compute with 16 bits"},
        {TERN_PRECISION_AUTO, TERN_DEVICE_DISCRETE_GPU, 0, TERN_F32, "does not store 16 bits"},
        {TERN_PRECISION_AUTO, TERN_DEVICE_CPU, STORES, TERN_F32, "gains no time from 16 bits"},
        {TERN_PRECISION_AUTO, TERN_DEVICE_SOFTWARE_GPU, STORES | COMPUTES, TERN_F32, "gains no time from 16 bits"},
        {TERN_PRECISION_F32, TERN_DEVICE_DISCRETE_GPU, STORES | COMPUTES, TERN_F32, "f32, as asked for"},
        {TERN_PRECISION_BF16, TERN_DEVICE_CPU, STORES, TERN_BF16, "bf16, as asked for"},
        {TERN_PRECISION_F16, TERN_DEVICE_SOFTWARE_GPU, STORES, TERN_F16, "f16, as asked for"},
        {TERN_PRECISION_BF16, TERN_DEVICE_SOFTWARE_GPU, 0, 0,
         "needs 16-bit storage, which Card does not have; use f32"},
        {TERN_PRECISION_F16, TERN_DEVICE_DISCRETE_GPU, COMPUTES, 0, "use f32"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const tern_device_info info = device(rows[i].kind, rows[i].features);
        tern_precision_choice choice;
        if (!rows[i].dtype) {
            TEST_ERROR(tern_precision_choose(rows[i].precision, &info, &choice), TERN_ERROR_UNSUPPORTED, rows[i].part);
            continue;
        }
        TEST_OK(tern_precision_choose(rows[i].precision, &info, &choice));
        assert_int_equal(choice.dtype, rows[i].dtype);
        if (!strstr(choice.reason, rows[i].part)) fail_msg("row %zu lacks \"%s\": %s", i, rows[i].part, choice.reason);
    }
    const tern_device_info info = device(TERN_DEVICE_CPU, STORES);
    tern_precision_choice choice;
    TEST_ERROR(tern_precision_choose(7, &info, &choice), TERN_ERROR_INVALID, "precision 7");
}

static void test_names(void **state)
{
    (void)state;
    int32_t precision;
    TEST_OK(tern_precision_parse("auto", &precision));
    assert_int_equal(precision, TERN_PRECISION_AUTO);
    TEST_OK(tern_precision_parse("bf16", &precision));
    assert_int_equal(precision, TERN_PRECISION_BF16);
    TEST_ERROR(tern_precision_parse("fp16", &precision), TERN_ERROR_INVALID, "use auto, f32, bf16 or f16");
}

/* Matrix units decide where there are any. */
static void test_matrix_units(void **state)
{
    (void)state;
    const tern_matrix_shape bf16 = {TERN_BF16, 16, 16, 16, 32}, f16 = {TERN_F16, 16, 16, 16, 32},
                            tf32 = {TERN_F32, 16, 16, 8, 32}, registers = {TERN_BF16, 4, 4, 2, 1};
    const struct {
        tern_device_kind kind;
        tern_matrix_shape shapes[2];
        int32_t dtype;
        const char *part;
    } rows[] = {
        {TERN_DEVICE_DISCRETE_GPU, {f16, bf16}, TERN_BF16, "bf16, chosen for Card, whose matrix units multiply it"},
        {TERN_DEVICE_DISCRETE_GPU, {f16, tf32}, TERN_F16, "f16, chosen for Card, whose matrix units multiply it and"},
        {TERN_DEVICE_DISCRETE_GPU, {registers, tf32}, TERN_F32, "does not compute with 16 bits"},
        {TERN_DEVICE_SOFTWARE_GPU, {f16, bf16}, TERN_F32, "gains no time from 16 bits"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tern_device_info info = device(rows[i].kind, STORES);
        info.matrix_count = 2;
        memcpy(info.matrix, rows[i].shapes, sizeof rows[i].shapes);
        tern_precision_choice choice;
        TEST_OK(tern_precision_choose(TERN_PRECISION_AUTO, &info, &choice));
        assert_int_equal(choice.dtype, rows[i].dtype);
        if (!strstr(choice.reason, rows[i].part)) fail_msg("row %zu lacks \"%s\": %s", i, rows[i].part, choice.reason);
    }
}

/* A card on paper is chosen for as the card would be. */
static void test_paper(void **state)
{
    (void)state;
    static const struct {
        const char *profile;
        int32_t dtype;
    } rows[] = {{"rtx-4090", TERN_F16}, {"arc-a770", TERN_F16}, {"lavapipe", TERN_F32}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tern_device *paper;
        tern_precision_choice choice;
        TEST_OK(tern_device_open_paper(rows[i].profile, &paper));
        TEST_OK(tern_precision_choose(TERN_PRECISION_AUTO, &paper->info, &choice));
        assert_int_equal(choice.dtype, rows[i].dtype);
        tern_device_close(paper);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choices),
        cmocka_unit_test(test_matrix_units),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_paper),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
