/* SPDX-License-Identifier: Apache-2.0 */
/* test_storage.c - kernels that a device cannot store the tensors of are refused, with op, dtype, device and advice. */
#include "core/kernel/lowered.h"
#include "core/kernel/storage.h"
#include "tests/dialect_check.h"
#include "tests/tape_maker.h"
#include "tests/test.h"

enum { READ = TERN_ACCESS_READ, WRITE = TERN_ACCESS_WRITE, BOTH = TERN_FEATURE_STORAGE_16 | TERN_FEATURE_STORAGE_8 };

static tern_status choose(tern_kernel_desc *desc, uint32_t features)
{
    static const uint32_t words[TERN_KERNEL_WORDS] = {1, 8, 8, 8, 64, 8, 64, 8};
    tern_device_info info;
    dialect_device_info(DEVICE_GPU, &info);
    snprintf(info.name, sizeof info.name, "weak card");
    info.features = (info.features & ~(uint32_t)BOTH) | features;
    snprintf(desc->label, sizeof desc->label, "h0.up");
    return tern_variant_choose(desc, &info, words);
}

static void matmul_desc(tape_maker *maker, uint8_t a, uint8_t stored, tern_kernel_desc *desc)
{
    const tern_tape_tensor own[] = {{a, READ}, {TERN_F32, READ}};
    tape_maker_start(maker, 3, 0, 1);
    const uint16_t acc = tape_maker_op(maker, TERN_TAPE_ACC, TERN_TAPE_NONE, TERN_TAPE_NONE);
    tape_maker_store(maker, tape_maker_tensor(maker, stored, WRITE), 7, acc);
    tape_maker_contraction(maker, TERN_KERNEL_MATMUL, 2, own, TERN_MATMUL_WORDS, desc);
}

/* An operand as well as what an epilogue stores. */
static void narrow_tensors_need_the_feature(void **state)
{
    static const struct {
        uint8_t a, stored;
        uint32_t features; /* one that is missing something */
        const char *part;
    } cases[] = {
        {TERN_F16, TERN_F32, TERN_FEATURE_STORAGE_8,
         "\"h0.up\" keeps a tensor as f16, but device \"weak card\" has no 16-bit storage; train in f32 there "
         "(--precision f32)"},
        {TERN_F32, TERN_BF16, 0, "as bf16, but device \"weak card\" has no 16-bit storage; train in f32"},
        {TERN_F32, TERN_U16, 0, "as u16, but device \"weak card\" has no 16-bit storage; store u32 there"},
        {TERN_F32, TERN_U8, TERN_FEATURE_STORAGE_16,
         "as u8, but device \"weak card\" has no 8-bit storage; store u32 there, or optimizer moments in f32"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tape_maker maker;
        tern_kernel_desc desc;
        matmul_desc(&maker, cases[i].a, cases[i].stored, &desc);
        TEST_ERROR(choose(&desc, cases[i].features), TERN_ERROR_UNSUPPORTED, cases[i].part);
        TEST_OK(choose(&desc, BOTH));
    }
}

static void words_need_nothing(void **state)
{
    (void)state;
    static const uint8_t wide[] = {TERN_F32, TERN_I32, TERN_U32};
    for (size_t i = 0; i < sizeof wide; i++) {
        tape_maker maker;
        tern_kernel_desc desc;
        matmul_desc(&maker, TERN_F32, wide[i], &desc);
        TEST_OK(choose(&desc, 0));
    }
}

static void an_unknown_dtype_is_an_error(void **state)
{
    (void)state;
    tape_maker maker;
    tern_kernel_desc desc;
    matmul_desc(&maker, 200, TERN_F32, &desc);
    TEST_ERROR(choose(&desc, BOTH), TERN_ERROR_INTERNAL, "tensor 0 of kernel \"h0.up\" has the unknown dtype 200");
}

/* A whole graph: lowering stops with the op's own label, before there is a plan. */
static void a_graph_is_refused_by_its_op(void **state)
{
    (void)state;
    tern_graph *graph;
    tern_lowered *lowered = NULL;
    tern_device_info info;
    dialect_device_info(DEVICE_GPU, &info);
    TEST_OK(tern_graph_create(&graph));
    tern_tensor *x = tern_input_2d(graph, "x", TERN_F32, 4, 8);
    tern_output(tern_label(tern_cast(tern_exp(x), TERN_BF16), "stream"), "y");
    TEST_OK(tern_lower(graph, &info, NULL, &lowered));
    tern_lowered_destroy(lowered);
    info.features &= ~(uint32_t)TERN_FEATURE_STORAGE_16;
    TEST_ERROR(tern_lower(graph, &info, NULL, &lowered), TERN_ERROR_UNSUPPORTED, "\"stream\" keeps a tensor as bf16");
    assert_null(lowered);
    tern_graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(narrow_tensors_need_the_feature),
        cmocka_unit_test(words_need_nothing),
        cmocka_unit_test(a_graph_is_refused_by_its_op),
        cmocka_unit_test(an_unknown_dtype_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
