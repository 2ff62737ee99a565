/* SPDX-License-Identifier: Apache-2.0 */
/* test_tape.c - the rules of tape.h: what tern_tape_check refuses, what two kernels' keys tell apart, how a tape
 * prints. */
#include <stdlib.h>

#include "core/kernel/lowered.h"
#include "tests/tape_maker.h"
#include "tests/test.h"

/* y[row] = sum over columns of x * scale[row]; then x / y: heads, bodies, a reduction, four accesses. */
static void make_valid(tape_maker *m)
{
    tape_maker_start(m, 2, 1, 2);
    uint32_t x = tape_maker_tensor(m, TERN_F32, TERN_ACCESS_READ),
             scale = tape_maker_tensor(m, TERN_F32, TERN_ACCESS_READ);
    uint32_t y = tape_maker_tensor(m, TERN_F32, TERN_ACCESS_WRITE);
    tape_maker_at(m, 0, 0);
    uint16_t s = tape_maker_load(m, scale, 1); /* instruction 0 */
    tape_maker_at(m, 0, 1);
    uint16_t v = tape_maker_load(m, x, 3);
    uint16_t sum =
        tape_maker_op(m, TERN_TAPE_REDUCE_SUM, tape_maker_op(m, TERN_TAPE_MUL, v, s), TERN_TAPE_NONE); /* 2, 3 */
    tape_maker_at(m, 1, 1);
    uint16_t again = tape_maker_load(m, x, 3);                              /* 4 */
    tape_maker_store(m, y, 3, tape_maker_op(m, TERN_TAPE_DIV, again, sum)); /* 5, 6 */
}

static void a_valid_tape_passes(void **state)
{
    (void)state;
    tape_maker m;
    make_valid(&m);
    TEST_OK(tern_tape_check(&m.tape, false));
}

typedef struct fault {
    void (*inject)(tape_maker *m);
    const char *part; /* of the sentence */
} fault;

static void operand_of_later(tape_maker *m) { m->insns[2].in[0] = 5; }
static void operand_of_other_body(tape_maker *m) { m->insns[5].in[0] = 1; }
static void reduction_in_its_own_phase(tape_maker *m)
{
    m->insns[4].phase = 0;
    m->insns[5].phase = 0;
    m->insns[6].phase = 0;
}
static void wrong_type(tape_maker *m) { m->insns[1].type = TERN_U32; }
static void head_after_body(tape_maker *m)
{
    m->insns[0].body = 1;
    m->insns[1].body = 0;
}
static void no_such_access(tape_maker *m) { m->insns[1].access = 60; }
static void no_such_tensor(tape_maker *m) { m->accesses[1].tensor = 3; }
static void write_to_read_only(tape_maker *m) { m->accesses[3].tensor = 0; }
static void read_of_write_only(tape_maker *m) { m->accesses[1].tensor = 2; }
static void stride_over_no_dim(tape_maker *m) { m->accesses[1].stride[0].dims = 8; }
static void inner_index_in_head(tape_maker *m) { m->accesses[0].stride[1].coef = 1; }
static void column_without_chunk(tape_maker *m) { m->insns[6].op = TERN_TAPE_COLUMN; }
static void chunk_without_column(tape_maker *m) { m->tape.chunk_rows = 4; }
static void acc_in_a_kernel(tape_maker *m) { m->insns[1].op = TERN_TAPE_ACC; }
static void no_such_op(tape_maker *m) { m->insns[1].op = TERN_TAPE_OP_COUNT; }
static void too_many_dims(tape_maker *m) { m->tape.dim_count = 7; }
static void bad_dtype(tape_maker *m) { m->tape.tensors[0].dtype = 77; }
static void reduction_in_head(tape_maker *m) { m->insns[0].op = TERN_TAPE_REDUCE_MAX; }
static void integer_exponential(tape_maker *m)
{
    m->insns[2].op = TERN_TAPE_EXP;
    m->insns[2].type = TERN_I32;
}

static void integer_rounding(tape_maker *m)
{
    m->insns[2].op = TERN_TAPE_ROUND;
    m->insns[2].type = TERN_U32;
    m->insns[2].imm = TERN_F16;
}
static void rounding_to_f32(tape_maker *m)
{
    m->insns[2].op = TERN_TAPE_ROUND;
    m->insns[2].imm = TERN_F32;
}

static void faults_are_named(void **state)
{
    (void)state;
    static const fault faults[] = {
        {operand_of_later, "instruction 2"},
        {operand_of_other_body, "another phase's body"},
        {reduction_in_its_own_phase, "another phase's body"},
        {wrong_type, "wrong type"},
        {head_after_body, "out of order"},
        {no_such_access, "access that does not exist"},
        {no_such_tensor, "tensor that does not"},
        {write_to_read_only, "mode forbids"},
        {read_of_write_only, "mode forbids"},
        {stride_over_no_dim, "dim that does not"},
        {inner_index_in_head, "inner index"},
        {column_without_chunk, "chunk_rows"},
        {chunk_without_column, "no COLUMN store"},
        {acc_in_a_kernel, "epilogue"},
        {no_such_op, "no op"},
        {too_many_dims, "out of range"},
        {bad_dtype, "dtype 77"},
        {reduction_in_head, "body of a row tape"},
        {integer_exponential, "f32 only"},
        {integer_rounding, "f32 only"},
        {rounding_to_f32, "neither f16 nor bf16"},
    };
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        tape_maker m;
        make_valid(&m);
        faults[i].inject(&m);
        TEST_ERROR(tern_tape_check(&m.tape, false), TERN_ERROR_INTERNAL, faults[i].part);
    }
}

static void an_epilogue_has_its_own_rules(void **state)
{
    (void)state;
    tape_maker m;
    tape_maker_start(&m, 3, 0, 1);
    uint16_t acc = tape_maker_op(&m, TERN_TAPE_ACC, TERN_TAPE_NONE, TERN_TAPE_NONE);
    tape_maker_store(&m, tape_maker_tensor(&m, TERN_F32, TERN_ACCESS_WRITE), 7, acc);
    TEST_OK(tern_tape_check(&m.tape, true));
    TEST_ERROR(tern_tape_check(&m.tape, false), TERN_ERROR_INTERNAL, "epilogue");
    m.tape.dim_count = 2;
    TEST_ERROR(tern_tape_check(&m.tape, true), TERN_ERROR_INTERNAL, "3 inner dims");
}

static uint64_t key_of(const tape_maker *m, const char *label, const char *variant)
{
    tern_kernel_desc desc;
    tape_maker_desc(m, &desc);
    snprintf(desc.label, sizeof desc.label, "%s", label);
    snprintf(desc.variant.name, sizeof desc.variant.name, "%s", variant);
    tern_kernel_key(&desc);
    return desc.key;
}

static void longer_offset(tape_maker *m) { m->accesses[1].offset = 1; }
static void other_mask(tape_maker *m) { m->accesses[1].mask_count = 1; }
static void other_dtype(tape_maker *m) { m->tape.tensors[0].dtype = TERN_F16; }
static void other_operand(tape_maker *m) { m->insns[2].in[0] = 0; }

static void keys_tell_kernels_apart(void **state)
{
    (void)state;
    static void (*const changes[])(tape_maker *) = {longer_offset, other_mask, other_dtype,
                                                    other_operand, wrong_type, chunk_without_column};
    tape_maker m;
    make_valid(&m);
    uint64_t key = key_of(&m, "first", "a");
    assert_true(key == key_of(&m, "second", "a"));
    assert_true(key != key_of(&m, "first", "b"));
    m.insns[0].in[1] = 9;             /* beyond LOAD's one operand: means nothing */
    m.accesses[0].mask[2].hi = 5;     /* beyond mask_count */
    m.accesses[0].stride[1].dims = 2; /* of a zero coefficient */
    assert_true(key == key_of(&m, "first", "a"));
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        make_valid(&m);
        changes[i](&m);
        assert_true(key != key_of(&m, "first", "a"));
    }
}

static void strides_multiply_extents(void **state)
{
    (void)state;
    const uint32_t dims[TERN_TAPE_DIMS] = {2, 3, 5, 7, 11, 13};
    assert_int_equal(tern_tape_stride_value((tern_tape_stride){4, 0}, dims), 4);
    assert_int_equal(tern_tape_stride_value((tern_tape_stride){1, 1u << 1 | 1u << 3}, dims), 21);
    assert_int_equal(tern_tape_stride_value((tern_tape_stride){0, 63}, dims), 0);
    assert_int_equal(tern_tape_stride_value((tern_tape_stride){-1, 1}, dims), 0xfffffffeu);
    const uint32_t large[TERN_TAPE_DIMS] = {65536, 65537};
    assert_int_equal(tern_tape_stride_value((tern_tape_stride){1, 3}, large), 65536); /* u32 wraps */
}

static void ops_have_names_and_operands(void **state)
{
    (void)state;
    assert_string_equal(tern_tape_op_name(TERN_TAPE_WHERE), "WHERE");
    assert_int_equal(tern_tape_operands(TERN_TAPE_WHERE), 3);
    assert_int_equal(tern_tape_operands(TERN_TAPE_CONST), 0);
    assert_string_equal(tern_tape_op_name(TERN_TAPE_OP_COUNT), "?");
}

static void a_tape_prints(void **state)
{
    (void)state;
    tape_maker m;
    make_valid(&m);
    m.accesses[1].mask_count = 1;
    m.accesses[1].mask[0] = (tern_tape_mask){.coef = {0, 1}, .offset = -2, .lo = 0, .hi = 9};
    char *text = tern_tape_print(&m.tape);
    assert_non_null(text);
    static const char *const parts[] = {"1 outer + 1 inner dims, 2 phases",
                                        "t2 f32 write",
                                        "phase 0 head",
                                        "if 0 <= -2 + 1*i1 < 9",
                                        "v3 = f32 reduce_sum v2",
                                        "store v5 t2[0 + i0*1*d1 + i1*1]"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strstr(text, parts[i]) == NULL) fail_msg("\"%s\" is missing in:\n%s", parts[i], text);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_valid_tape_passes),
        cmocka_unit_test(faults_are_named),
        cmocka_unit_test(an_epilogue_has_its_own_rules),
        cmocka_unit_test(keys_tell_kernels_apart),
        cmocka_unit_test(strides_multiply_extents),
        cmocka_unit_test(ops_have_names_and_operands),
        cmocka_unit_test(a_tape_prints),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
