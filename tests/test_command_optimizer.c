/* SPDX-License-Identifier: Apache-2.0 */
/* test_command_optimizer.c - the optimizer's flags of `tern train` and `tern plan`, as users see them. cpu backend. */
#include <stdlib.h>

#include "tests/command.h"
#include "tests/test.h"

#include "core/train/optimizer.h"

#define SMALL                                                                                                          \
    "train --backend cpu --threads 1 --layers 2 --width 16 --heads 2 --context 16 --batch 4 --warmup 3 --seed 2 "      \
    "--data " TERN_SOURCE_DIR "/LICENSE --val-split 0 --log-every 1 --json "

/* Every optimizer lowers the loss; none is another one's path. */
static void test_kinds(void **state)
{
    static const double rates[TERN_OPTIMIZER_COUNT] = {0.01, 0.01, 0.3, 0.002, 0.01, 0.02};
    double last[TERN_OPTIMIZER_COUNT];
    (void)state;
    for (int kind = 0; kind < TERN_OPTIMIZER_COUNT; kind++) {
        const command_result *r =
            command_runf(SMALL "--steps 40 --lr %g --optimizer %s", rates[kind], tern_optimizers[kind].name);
        assert_int_equal(r->code, 0);
        const double first = command_number(r->out, 0, "loss");
        last[kind] = command_number(r->out, 39, "loss");
        print_message("%-10s %.4f -> %.4f\n", tern_optimizers[kind].name, first, last[kind]);
        assert_true(last[kind] < first - 0.5);
        for (int other = 0; other < kind; other++) assert_true(last[other] != last[kind]);
    }
    command_refuses(SMALL "--optimizer newton", 2, "no optimizer is named \"newton\"; there are adamw, adam, sgd");
    command_refuses(SMALL "--optimizer sgd --momentum 1", 2, "--momentum");
}

/* Rules change the run; one that names nothing or says nothing is refused. */
static void test_groups(void **state)
{
    (void)state;
    const command_result *r = command_run(SMALL "--steps 5");
    const double all = command_number(r->out, 4, "loss");
    r = command_run(SMALL "--steps 5 --groups *.h.0.*:lr=0.1,decay=0;*.bias:frozen");
    assert_int_equal(r->code, 0);
    assert_true(command_number(r->out, 0, "grad_norm") > 0);
    assert_true(command_number(r->out, 4, "loss") != all);
    r = command_run(SMALL "--steps 5 --groups *:lr=0");
    assert_int_equal(r->code, 0);
    command_refuses(SMALL "--groups *.h.7.*:frozen", 1, "no parameter matches \"*.h.7.*\"");
    command_refuses(SMALL "--groups *.h.*:rate=2", 2, "rate=2");
}

/* A number of the plan's object "bytes". */
static double bytes_of(const char *json, const char *name)
{
    char key[32];
    snprintf(key, sizeof key, "\"%s\":", name);
    const char *at = strstr(json, "\"bytes\":\t{"); /* the first is a number, of stored tensors */
    at = at ? strstr(at, key) : NULL;
    assert_non_null(at);
    return strtod(at + strlen(key), NULL);
}

/* Bytes of weights, gradients and moments: 16 per parameter in f32, about 8 in 16 and 8 bit. */
static void test_bytes(void **state)
{
    static const char *const flags[] = {"--precision f32", "--precision bf16",
                                        "--precision bf16 --moments 8bit --masters none"};
    double bytes[3];
    (void)state;
    for (int i = 0; i < 3; i++) {
        const command_result *r = command_runf("plan --backend cpu --model gpt2 --batch 1 --json %s", flags[i]);
        assert_int_equal(r->code, 0);
        bytes[i] = bytes_of(r->out, "weights") + bytes_of(r->out, "low") + bytes_of(r->out, "gradients") +
                   bytes_of(r->out, "moments");
    }
    print_message("of f32: bf16 %.3f, bf16 with 8-bit moments and no masters %.3f\n", bytes[1] / bytes[0],
                  bytes[2] / bytes[0]);
    TEST_NEAR(bytes[1] / bytes[0], 1.125, 1e-3);
    assert_true(bytes[2] <= 0.55 * bytes[0]);
    command_refuses("plan --moments f64", 2, "--moments is f64; it must be f32 or 8bit");
    command_refuses(SMALL "--masters bf16", 2, "--masters is bf16; it must be f32 or none");
}

/* The same run in a quarter of the moments' bytes ends about where it would have. */
static void test_narrow_run(void **state)
{
    (void)state;
    const command_result *r = command_run(SMALL "--steps 40 --lr 0.01 --precision bf16");
    const double wide = command_number(r->out, 39, "loss");
    r = command_run(SMALL "--steps 40 --lr 0.01 --precision bf16 --moments 8bit --masters none");
    assert_int_equal(r->code, 0);
    TEST_NEAR(command_number(r->out, 39, "loss"), wide, 0.1 * wide);
    command_refuses(SMALL "--steps 2 --precision f32 --masters none", 1, "masters");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_narrow_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
