/* SPDX-License-Identifier: Apache-2.0 */
/* test_render_math.c - math.k's functions on an OpenCL device against libm in double: ulp, NaN, infinities, subnormals;
 * storage of 16-bit floats and Philox against core/base, bit for bit. */
#include <stdlib.h>

#include "core/base/dtype.h"
#include "core/base/philox.h"
#include "core/kernel/lowered.h"
#include "tests/dialect_check.h"
#include "tests/opencl_runner.h"
#include "tests/tape_maker.h"
#include "tests/test.h"

static bool has_device;
static const char *why;

static float from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t to_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Word 0 is the extent, word 1 the label of random numbers. */
static void run(const tape_maker *maker, uint32_t count, const runner_argument *arguments)
{
    const uint32_t words[] = {count, 0x12345678u};
    tern_kernel_desc desc;
    tern_device_info info;
    uint32_t groups[3];
    tape_maker_desc(maker, &desc);
    desc.word_count = 2;
    TEST_OK(tern_tape_check(&desc.tape, false));
    dialect_device_info(DEVICE_ONE_LANE, &info);
    TEST_OK(tern_variant_choose(&desc, &info, words));
    TEST_OK(tern_variant_groups(&desc, &info, words, groups));
    assert_true(opencl_runner_run(&desc, words, groups, arguments));
}

/* Distance of `got` from the true value in units of the last place of f32 there; subnormals share the smallest. */
static double ulps(float got, double want)
{
    if (isnan(want)) return (to_bits(got) & 0x7fffffffu) > 0x7f800000u ? 0 : INFINITY;
    float rounded = (float)want;
    if (isinf(rounded)) return got == rounded ? 0 : INFINITY;
    double unit = fabs(want) < 0x1p-126 ? 0x1p-149 : ldexp(1.0, ilogb(want) - 23);
    return fabs((double)got - want) / unit;
}

static const uint32_t special[] = {0x00000000u, 0x80000000u, 0x7f800000u, 0xff800000u, 0x7fc00000u, 0xffc00000u,
                                   0x7f800001u, 0x00000001u, 0x80000001u, 0x007fffffu, 0x00800000u, 0x7f7fffffu,
                                   0xff7fffffu, 0x3f800000u, 0xbf800000u, 0x42b17218u, 0xc2cff1b5u};
enum { SPECIAL = sizeof special / sizeof *special, SAMPLES = 200000 };

typedef struct function {
    tern_tape_op op;
    double (*true_value)(double);
    double low, high; /* most of the samples; the rest are all bit patterns */
    double ulp;
} function;

static double reciprocal(double x) { return 1 / x; }
static double reciprocal_root(double x) { return 1 / sqrt(x); }

static void functions_are_accurate(void **state)
{
    (void)state;
    static const function functions[] = {
        {TERN_TAPE_EXP, exp, -104, 89, 2},         {TERN_TAPE_LOG, log, 0, 4, 2},
        {TERN_TAPE_TANH, tanh, -10, 10, 4},        {TERN_TAPE_ERF, erf, -4, 4, 4},
        {TERN_TAPE_SIN, sin, -100, 100, 4},        {TERN_TAPE_COS, cos, -100, 100, 4},
        {TERN_TAPE_SQRT, sqrt, 0, 1e6, 3},         {TERN_TAPE_RSQRT, reciprocal_root, 0, 1e6, 4},
        {TERN_TAPE_RECIP, reciprocal, -9, 9, 2.5}, {TERN_TAPE_FLOOR, floor, -1e4, 1e4, 0},
    };
    if (!has_device) TEST_SKIP("%s", why);
    float *x = malloc(SAMPLES * 4), *y = malloc(SAMPLES * 4);
    assert_true(x && y);
    for (size_t f = 0; f < sizeof functions / sizeof *functions; f++) {
        const function *fn = &functions[f];
        uint32_t seed = 11;
        for (uint32_t i = 0; i < SAMPLES; i++) {
            seed = seed * 1664525u + 1013904223u;
            x[i] = i < SPECIAL  ? from_bits(special[i])
                   : i % 4 == 0 ? from_bits(seed ^ seed << 13)
                                : (float)(fn->low + (fn->high - fn->low) * seed / 4294967296.0);
        }
        tape_maker m;
        tape_maker_start(&m, 1, 0, 1);
        uint32_t in = tape_maker_tensor(&m, TERN_F32, TERN_ACCESS_READ),
                 out = tape_maker_tensor(&m, TERN_F32, TERN_ACCESS_WRITE);
        tape_maker_store(&m, out, 1, tape_maker_op(&m, fn->op, tape_maker_load(&m, in, 1), TERN_TAPE_NONE));
        runner_argument arguments[] = {{x, SAMPLES * 4, 0}, {y, SAMPLES * 4, 0}};
        run(&m, SAMPLES, arguments);
        for (uint32_t i = 0; i < SAMPLES; i++) {
            double error = ulps(y[i], fn->true_value(x[i]));
            if (!(error <= fn->ulp))
                fail_msg("%s(%.9g = 0x%08x) is %.9g, %g ulp from %.17g", tern_tape_op_name(fn->op), (double)x[i],
                         to_bits(x[i]), (double)y[i], error, fn->true_value(x[i]));
        }
    }
    free(x);
    free(y);
}

/* MAX and MIN: NaN if either is; ordinary otherwise. */
static void max_and_min_keep_nan(void **state)
{
    (void)state;
    if (!has_device) TEST_SKIP("%s", why);
    enum { COUNT = SPECIAL * SPECIAL };
    float a[COUNT], b[COUNT], high[COUNT], low[COUNT];
    for (uint32_t i = 0; i < COUNT; i++) a[i] = from_bits(special[i / SPECIAL]), b[i] = from_bits(special[i % SPECIAL]);
    tape_maker m;
    tape_maker_start(&m, 1, 0, 1);
    for (int i = 0; i < 4; i++) tape_maker_tensor(&m, TERN_F32, i < 2 ? TERN_ACCESS_READ : TERN_ACCESS_WRITE);
    uint16_t va = tape_maker_load(&m, 0, 1), vb = tape_maker_load(&m, 1, 1);
    tape_maker_store(&m, 2, 1, tape_maker_op(&m, TERN_TAPE_MAX, va, vb));
    tape_maker_store(&m, 3, 1, tape_maker_op(&m, TERN_TAPE_MIN, va, vb));
    runner_argument arguments[] = {{a, sizeof a, 0}, {b, sizeof b, 0}, {high, sizeof high, 0}, {low, sizeof low, 0}};
    run(&m, COUNT, arguments);
    for (uint32_t i = 0; i < COUNT; i++) {
        float want_high = a[i] > b[i] || isnan(a[i]) ? a[i] : b[i], want_low = a[i] < b[i] || isnan(a[i]) ? a[i] : b[i];
        if (isnan(want_high) != isnan(high[i]) || isnan(want_low) != isnan(low[i]) ||
            (!isnan(want_high) && (high[i] != want_high || low[i] != want_low)))
            fail_msg("max and min of %g and %g are %g and %g", (double)a[i], (double)b[i], (double)high[i],
                     (double)low[i]);
    }
}

static void storage_rounds_like_core(void **state)
{
    (void)state;
    if (!has_device) TEST_SKIP("%s", why);
    enum { COUNT = 100000 };
    float *x = malloc(COUNT * 4), *back = malloc(COUNT * 4);
    uint16_t *stored = malloc(COUNT * 2);
    assert_true(x && back && stored);
    for (uint8_t dtype = TERN_F16; dtype <= TERN_BF16; dtype++) {
        uint32_t seed = 3;
        for (uint32_t i = 0; i < COUNT; i++) {
            seed = seed * 1664525u + 1013904223u;
            x[i] = i < SPECIAL ? from_bits(special[i])
                   : i % 2     ? from_bits(seed)
                               : from_bits(0x33000000u - 64u + seed % 0x14900000u);
        }
        tape_maker m;
        tape_maker_start(&m, 1, 0, 1);
        uint32_t in = tape_maker_tensor(&m, TERN_F32, TERN_ACCESS_READ),
                 out = tape_maker_tensor(&m, dtype, TERN_ACCESS_WRITE);
        tape_maker_store(&m, out, 1, tape_maker_load(&m, in, 1));
        run(&m, COUNT, (runner_argument[]){{x, COUNT * 4, 0}, {stored, COUNT * 2, 0}});
        for (uint32_t i = 0; i < COUNT; i++) {
            uint16_t want = dtype == TERN_F16 ? tern_f32_to_f16(x[i]) : tern_f32_to_bf16(x[i]);
            if (stored[i] != want)
                fail_msg("%.9g (0x%08x) is stored as 0x%04x, not 0x%04x", (double)x[i], to_bits(x[i]), stored[i], want);
        }
        tape_maker_start(&m, 1, 0, 1);
        in = tape_maker_tensor(&m, dtype, TERN_ACCESS_READ);
        out = tape_maker_tensor(&m, TERN_F32, TERN_ACCESS_WRITE);
        tape_maker_store(&m, out, 1, tape_maker_load(&m, in, 1));
        for (uint32_t i = 0; i < 65536; i++) stored[i] = (uint16_t)i;
        run(&m, 65536, (runner_argument[]){{stored, COUNT * 2, 0}, {back, COUNT * 4, 0}});
        for (uint32_t i = 0; i < 65536; i++) {
            float want = dtype == TERN_F16 ? tern_f16_to_f32((uint16_t)i) : tern_bf16_to_f32((uint16_t)i);
            if (isnan(want) ? !isnan(back[i]) : to_bits(want) != to_bits(back[i]))
                fail_msg("0x%04x is read as %g, not %g", i, (double)back[i], (double)want);
        }
    }
    free(x);
    free(back);
    free(stored);
}

static void philox_is_base_philox(void **state)
{
    (void)state;
    if (!has_device) TEST_SKIP("%s", why);
    enum { COUNT = 1000 };
    uint32_t out[COUNT];
    tape_maker m;
    tape_maker_start(&m, 1, 0, 1);
    uint32_t tensor = tape_maker_tensor(&m, TERN_U32, TERN_ACCESS_WRITE);
    uint16_t low = tape_maker_index(&m, 0), high = tape_maker_constant_u32(&m, 77),
             key0 = tape_maker_constant_u32(&m, 0xdeadbeefu), key1 = tape_maker_constant_u32(&m, 5);
    tape_maker_store(
        &m, tensor, 1,
        tape_maker_insn(
            &m, (tern_tape_insn){.op = TERN_TAPE_PHILOX, .type = TERN_U32, .in = {low, high, key0, key1}, .imm = 1}));
    run(&m, COUNT, (runner_argument[]){{out, sizeof out, 0}});
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t want[4];
        tern_philox((const uint32_t[]){i, 77, 0x12345678u, 0}, (const uint32_t[]){0xdeadbeefu, 5}, want);
        assert_int_equal(out[i], want[0]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_are_accurate),
        cmocka_unit_test(max_and_min_keep_nan),
        cmocka_unit_test(storage_rounds_like_core),
        cmocka_unit_test(philox_is_base_philox),
    };
    has_device = opencl_runner_open(&why);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    opencl_runner_close();
    return failed;
}
