/* SPDX-License-Identifier: Apache-2.0 */
/* test_conformance_alu.c - every arithmetic op of the tape on every backend, value by value.
 *
 * f32 results are compared with libm in double, in units of the last place of the exact result; integers and bits
 * exactly. A device that flushes f32's subnormals (a probe asks it; the cpu must not) may treat them as zeros, as
 * argument and as result. Inputs: all edges (zeros, subnormals, the largest, infinities, NaN), a sweep over the
 * exponents and random bit patterns. A new op without a row here fails "every op has a row". */
#include <stdlib.h>

#include "core/base/dtype.h"
#include "core/base/philox.h"
#include "tests/conformance.h"

enum { READ = TERN_ACCESS_READ, WRITE = TERN_ACCESS_WRITE, SAMPLES = 20000 };

static float bits_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static uint32_t random_bits(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(*seed >> 32);
}

static const uint32_t edges[] = {0x00000000, 0x00000001, 0x00000200, 0x007fffff, 0x00800000, 0x00800001, 0x33800000,
                                 0x3f7fffff, 0x3f800000, 0x3f800001, 0x3fc90fdb, 0x40490fdb, 0x42b0c0a5, 0x42b17218,
                                 0x42b20000, 0x42cff1b4, 0x42d00000, 0x4b000000, 0x4b7fffff, 0x4effffff, 0x7e800000,
                                 0x7f7fffff, 0x7f800000, 0x7fc00000, 0x7f800001};
#define EDGES (sizeof edges / sizeof *edges)

/* Edges of both signs first, then a third each: random bits, exponents near 1, [-100, 100). */
static void fill_floats(float *x, uint64_t seed)
{
    for (uint32_t i = 0; i < SAMPLES; i++) {
        const uint32_t bits = random_bits(&seed);
        if (i < 2 * EDGES)
            x[i] = bits_float(edges[i / 2] | (i % 2) << 31);
        else if (i % 3 == 0)
            x[i] = bits_float(bits);
        else if (i % 3 == 1)
            x[i] = bits_float((bits & 0x80ffffffu) + 0x3e000000u + (bits >> 24 & 7u) * 0x00800000u);
        else
            x[i] = 100.0f * ((float)(bits >> 8) / 8388608.0f - 1.0f);
    }
}

/* Distance in units of the last place of the exact result; 0 where both are NaN or the same infinity. An infinity for a
 * finite result counts as 2^128, the float that would follow the largest. */
static double ulps(float value, double exact)
{
    const double beyond = 0x1p128;
    double reached = (double)value;
    int exponent;
    if (isnan(exact) || isnan(value)) return isnan(exact) && isnan(value) ? 0 : INFINITY;
    if (isinf(exact)) return reached == exact ? 0 : INFINITY;
    if (isinf(reached)) reached = copysign(beyond, reached);
    if (fabs(exact) > beyond) exact = copysign(beyond, exact);
    frexp(exact, &exponent);
    exponent = exponent > 128 ? 128 : exponent;
    return fabs(reached - exact) / ldexp(1, exponent - 24 < -149 ? -149 : exponent - 24);
}

/* ------------------------------------------------------------- subnormals */

static bool is_subnormal(double x) { return fabs(x) < 0x1p-126; }

/* Does this device make a zero of a subnormal? */
static bool flushes(const conformance *c)
{
    float x[4] = {0x1p-127f, -0x1p-127f, 0x1p-149f, 1}, y[4] = {7, 7, 7, 7};
    tape_maker m;
    tape_maker_start(&m, 1, 0, 1);
    const uint32_t tx = tape_maker_tensor(&m, TERN_F32, READ), ty = tape_maker_tensor(&m, TERN_F32, WRITE);
    const uint16_t doubled = tape_maker_op(&m, TERN_TAPE_MUL, tape_maker_load(&m, tx, 1), tape_maker_constant(&m, 2));
    tape_maker_store(&m, ty, 1, tape_maker_op(&m, TERN_TAPE_MUL, doubled, tape_maker_constant(&m, 0.5f)));
    conformance_array arrays[] = {{x, sizeof x}, {y, sizeof y}};
    conformance_tape(c, &m, (const uint32_t[]){4}, arrays);
    assert_true(y[3] == 1);
    return strcmp(c->name, "cpu") != 0 && y[2] == 0;
}

/* The error of one result, the least over what a flushing device may have made of its arguments; there a result may be
 * off by what is flushed. */
static double error_of(float y, double (*exact)(const void *op, double a, double b), const void *op, double a, double b,
                       bool flush)
{
    double least = ulps(y, exact(op, a, b));
    for (int turn = 0; turn < 4 && flush; turn++) {
        const double fa = turn & 1 && is_subnormal(a) ? copysign(0, a) : a,
                     fb = turn & 2 && is_subnormal(b) ? copysign(0, b) : b, wanted = exact(op, fa, fb);
        const double error = is_subnormal((double)y - wanted) ? 0 : ulps(y, wanted); /* an inner value was flushed */
        if (error < least) least = error;
    }
    return least;
}

/* ------------------------------------------------------------------- unary */

static double f_neg(double a) { return -a; }
static double f_rsqrt(double a) { return 1 / sqrt(a); }
static double f_recip(double a) { return 1 / a; }

/* The bounds are shaders/math.k's and backends/cpu/maths.h's; sqrt, 1 / x and a / b are what Vulkan and OpenCL 1.2
 * without correct rounding allow (2.5 ulp, sqrt 3), the rest is exact. */
static const struct unary {
    tern_tape_op op;
    double (*exact)(double);
    double allowed;
} unaries[] = {
    {TERN_TAPE_NEG, f_neg, 0},     {TERN_TAPE_ABS, fabs, 0},        {TERN_TAPE_FLOOR, floor, 0},
    {TERN_TAPE_EXP, exp, 4},       {TERN_TAPE_LOG, log, 4},         {TERN_TAPE_SQRT, sqrt, 3},
    {TERN_TAPE_RSQRT, f_rsqrt, 4}, {TERN_TAPE_RECIP, f_recip, 2.5}, {TERN_TAPE_TANH, tanh, 4},
    {TERN_TAPE_ERF, erf, 4},       {TERN_TAPE_SIN, sin, 4},         {TERN_TAPE_COS, cos, 4},
};

static double unary_exact(const void *op, double a, double b)
{
    (void)b;
    return ((const struct unary *)op)->exact(a);
}

static void unary_ops(const conformance *c)
{
    const bool flush = flushes(c);
    static float x[SAMPLES], y[SAMPLES];
    const uint32_t words[] = {SAMPLES};
    int failures = 0;
    fill_floats(x, 1);
    for (size_t u = 0; u < sizeof unaries / sizeof *unaries; u++) {
        const char *name = tern_tape_op_name(unaries[u].op);
        double worst = 0;
        uint32_t at = 0;
        tape_maker m;
        tape_maker_start(&m, 1, 0, 1);
        const uint32_t tx = tape_maker_tensor(&m, TERN_F32, READ), ty = tape_maker_tensor(&m, TERN_F32, WRITE);
        tape_maker_store(&m, ty, 1, tape_maker_op(&m, unaries[u].op, tape_maker_load(&m, tx, 1), NO));
        conformance_array arrays[] = {{x, sizeof x}, {y, sizeof y}};
        conformance_tape(c, &m, words, arrays);
        for (uint32_t i = 0; i < SAMPLES; i++) {
            const double error = error_of(y[i], unary_exact, &unaries[u], (double)x[i], 1, flush);
            if (!(error <= worst)) worst = error, at = i;
        }
        print_message("    %s %-6s %.3g ulp (allowed %.3g)\n", c->name, name, worst, unaries[u].allowed);
        if (!(worst <= unaries[u].allowed)) {
            print_message("    %s(%.9g = 0x%08x) gave %.9g, wanted %.9g\n", name, (double)x[at], float_bits(x[at]),
                          (double)y[at], unaries[u].exact((double)x[at]));
            failures++;
        }
    }
    assert_int_equal(failures, 0);
}

/* The sign of zero, which a distance does not see, where it decides an infinity or a selection later on. */
static void signs_of_zero(const conformance *c)
{
    static const tern_tape_op ops[] = {TERN_TAPE_NEG,   TERN_TAPE_ABS,  TERN_TAPE_FLOOR, TERN_TAPE_SQRT,
                                       TERN_TAPE_RECIP, TERN_TAPE_TANH, TERN_TAPE_ERF};
    static double (*const exact[])(double) = {f_neg, fabs, floor, sqrt, f_recip, tanh, erf};
    const uint32_t words[] = {4};
    for (size_t u = 0; u < sizeof ops / sizeof *ops; u++) {
        float x[4] = {0.0f, -0.0f, INFINITY, -INFINITY}, y[4] = {7, 7, 7, 7};
        tape_maker m;
        tape_maker_start(&m, 1, 0, 1);
        const uint32_t tx = tape_maker_tensor(&m, TERN_F32, READ), ty = tape_maker_tensor(&m, TERN_F32, WRITE);
        tape_maker_store(&m, ty, 1, tape_maker_op(&m, ops[u], tape_maker_load(&m, tx, 1), NO));
        conformance_array arrays[] = {{x, sizeof x}, {y, sizeof y}};
        conformance_tape(c, &m, words, arrays);
        for (size_t i = 0; i < 4; i++) {
            const double wanted = exact[u]((double)x[i]);
            if (!isnan(wanted) && wanted == 0 && (y[i] != 0 || !signbit(y[i]) != !signbit(wanted)))
                fail_msg("%s(%g) gave %g, wanted %g", tern_tape_op_name(ops[u]), (double)x[i], (double)y[i], wanted);
        }
    }
}

/* ------------------------------------------------------------------ binary */

static double f_add(double a, double b) { return a + b; }
static double f_sub(double a, double b) { return a - b; }
static double f_mul(double a, double b) { return a * b; }
static double f_div(double a, double b) { return a / b; }
static double f_max(double a, double b) { return isnan(a) || isnan(b) ? NAN : a > b ? a : b; }
static double f_min(double a, double b) { return isnan(a) || isnan(b) ? NAN : a < b ? a : b; }

static const struct binary {
    tern_tape_op op;
    double (*exact)(double, double);
    double allowed; /* 0.5: the nearest float */
} binaries[] = {{TERN_TAPE_ADD, f_add, 0.5}, {TERN_TAPE_SUB, f_sub, 0.5}, {TERN_TAPE_MUL, f_mul, 0.5},
                {TERN_TAPE_DIV, f_div, 2.5}, {TERN_TAPE_MAX, f_max, 0},   {TERN_TAPE_MIN, f_min, 0}};

/* Edges against edges, then random pairs. */
static void fill_pairs(float *a, float *b)
{
    fill_floats(a, 2);
    fill_floats(b, 3);
    for (uint32_t i = 0; i < 4 * EDGES * EDGES; i++) {
        a[i] = bits_float(edges[i / 4 / EDGES] | (i & 1u) << 31);
        b[i] = bits_float(edges[i / 4 % EDGES] | (i & 2u) << 30);
    }
}

static double binary_exact(const void *op, double a, double b) { return ((const struct binary *)op)->exact(a, b); }

static void binary_ops(const conformance *c)
{
    const bool flush = flushes(c);
    static float a[SAMPLES], b[SAMPLES], y[SAMPLES];
    const uint32_t words[] = {SAMPLES};
    int failures = 0;
    fill_pairs(a, b);
    for (size_t u = 0; u < sizeof binaries / sizeof *binaries; u++) {
        const char *name = tern_tape_op_name(binaries[u].op);
        double worst = 0;
        uint32_t at = 0;
        tape_maker m;
        tape_maker_start(&m, 1, 0, 1);
        const uint32_t ta = tape_maker_tensor(&m, TERN_F32, READ), tb = tape_maker_tensor(&m, TERN_F32, READ);
        const uint32_t ty = tape_maker_tensor(&m, TERN_F32, WRITE);
        tape_maker_store(&m, ty, 1,
                         tape_maker_op(&m, binaries[u].op, tape_maker_load(&m, ta, 1), tape_maker_load(&m, tb, 1)));
        conformance_array arrays[] = {{a, sizeof a}, {b, sizeof b}, {y, sizeof y}};
        conformance_tape(c, &m, words, arrays);
        for (uint32_t i = 0; i < SAMPLES; i++) {
            const double error = error_of(y[i], binary_exact, &binaries[u], (double)a[i], (double)b[i], flush);
            if (!(error <= worst)) worst = error, at = i;
        }
        print_message("    %s %-6s %.3g ulp (allowed %.3g)\n", c->name, name, worst, binaries[u].allowed);
        if (!(worst <= binaries[u].allowed)) {
            print_message("    %s(%.9g, %.9g) gave %.9g, wanted %.9g\n", name, (double)a[at], (double)b[at],
                          (double)y[at], binaries[u].exact((double)a[at], (double)b[at]));
            failures++;
        }
    }
    assert_int_equal(failures, 0);
}

/* ---------------------------------------------------------------- integers */

static uint32_t u_add(uint32_t a, uint32_t b) { return a + b; }
static uint32_t u_sub(uint32_t a, uint32_t b) { return a - b; }
static uint32_t u_mul(uint32_t a, uint32_t b) { return a * b; }
static uint32_t u_max(uint32_t a, uint32_t b) { return a > b ? a : b; }
static uint32_t u_min(uint32_t a, uint32_t b) { return a < b ? a : b; }
static uint32_t i_max(uint32_t a, uint32_t b) { return (int32_t)a > (int32_t)b ? a : b; }
static uint32_t i_min(uint32_t a, uint32_t b) { return (int32_t)a < (int32_t)b ? a : b; }
static uint32_t u_and(uint32_t a, uint32_t b) { return a & b; }
static uint32_t u_or(uint32_t a, uint32_t b) { return a | b; }
static uint32_t u_xor(uint32_t a, uint32_t b) { return a ^ b; }
static uint32_t u_left(uint32_t a, uint32_t b) { return a << (b & 31u); }
static uint32_t u_right(uint32_t a, uint32_t b) { return a >> (b & 31u); }
static uint32_t u_high(uint32_t a, uint32_t b) { return (uint32_t)((uint64_t)a * b >> 32); }
static uint32_t u_less(uint32_t a, uint32_t b) { return a < b; }
static uint32_t i_less(uint32_t a, uint32_t b) { return (int32_t)a < (int32_t)b; }
static uint32_t u_equal(uint32_t a, uint32_t b) { return a == b; }
static uint32_t f_less(uint32_t a, uint32_t b) { return bits_float(a) < bits_float(b); }
static uint32_t f_equal(uint32_t a, uint32_t b) { return bits_float(a) == bits_float(b); }

static const struct integer {
    tern_tape_op op;
    int32_t operands, result;
    uint32_t (*exact)(uint32_t, uint32_t);
} integers[] = {
    {TERN_TAPE_ADD, TERN_U32, TERN_U32, u_add},
    {TERN_TAPE_ADD, TERN_I32, TERN_I32, u_add},
    {TERN_TAPE_SUB, TERN_U32, TERN_U32, u_sub},
    {TERN_TAPE_SUB, TERN_I32, TERN_I32, u_sub},
    {TERN_TAPE_MUL, TERN_U32, TERN_U32, u_mul},
    {TERN_TAPE_MUL, TERN_I32, TERN_I32, u_mul},
    {TERN_TAPE_MAX, TERN_U32, TERN_U32, u_max},
    {TERN_TAPE_MAX, TERN_I32, TERN_I32, i_max},
    {TERN_TAPE_MIN, TERN_U32, TERN_U32, u_min},
    {TERN_TAPE_MIN, TERN_I32, TERN_I32, i_min},
    {TERN_TAPE_AND, TERN_U32, TERN_U32, u_and},
    {TERN_TAPE_OR, TERN_U32, TERN_U32, u_or},
    {TERN_TAPE_XOR, TERN_U32, TERN_U32, u_xor},
    {TERN_TAPE_XOR, TERN_I32, TERN_I32, u_xor},
    {TERN_TAPE_SHIFT_LEFT, TERN_U32, TERN_U32, u_left},
    {TERN_TAPE_SHIFT_RIGHT, TERN_U32, TERN_U32, u_right},
    {TERN_TAPE_MULTIPLY_HIGH, TERN_U32, TERN_U32, u_high},
    {TERN_TAPE_LESS, TERN_U32, TERN_U32, u_less},
    {TERN_TAPE_LESS, TERN_I32, TERN_U32, i_less},
    {TERN_TAPE_LESS, TERN_F32, TERN_U32, f_less},
    {TERN_TAPE_EQUAL, TERN_U32, TERN_U32, u_equal},
    {TERN_TAPE_EQUAL, TERN_I32, TERN_U32, u_equal},
    {TERN_TAPE_EQUAL, TERN_F32, TERN_U32, f_equal},
};

static void integer_ops(const conformance *c)
{
    static float a[SAMPLES], b[SAMPLES];
    static uint32_t y[SAMPLES];
    const uint32_t words[] = {SAMPLES};
    fill_pairs(a, b); /* as bit patterns they are all kinds of integers as well */
    for (uint32_t i = SAMPLES - 500; i < SAMPLES; i++) a[i] = b[i];
    const bool flush = flushes(c);
    for (size_t u = 0; u < sizeof integers / sizeof *integers; u++) {
        const bool shifts = integers[u].op == TERN_TAPE_SHIFT_LEFT || integers[u].op == TERN_TAPE_SHIFT_RIGHT;
        tape_maker m;
        tape_maker_start(&m, 1, 0, 1);
        const uint32_t ta = tape_maker_tensor(&m, (uint8_t)integers[u].operands, READ);
        const uint32_t tb = tape_maker_tensor(&m, (uint8_t)integers[u].operands, READ);
        const uint32_t ty = tape_maker_tensor(&m, (uint8_t)integers[u].result, WRITE);
        const uint16_t va = tape_maker_load(&m, ta, 1);
        uint16_t vb = tape_maker_load(&m, tb, 1);
        if (shifts) vb = conformance_op(&m, TERN_TAPE_AND, TERN_U32, 0, vb, tape_maker_constant_u32(&m, 31), NO);
        tape_maker_store(&m, ty, 1,
                         conformance_op(&m, integers[u].op, integers[u].result, integers[u].operands, va, vb, NO));
        conformance_array arrays[] = {{a, sizeof a}, {b, sizeof b}, {y, sizeof y}};
        conformance_tape(c, &m, words, arrays);
        for (uint32_t i = 0; i < SAMPLES; i++) {
            const uint32_t wanted = integers[u].exact(float_bits(a[i]), float_bits(b[i]));
            const bool zeros =
                integers[u].operands == TERN_F32 && flush && (is_subnormal((double)a[i]) || is_subnormal((double)b[i]));
            if (y[i] != wanted && !zeros)
                fail_msg("%s of type %d: (0x%08x, 0x%08x) gave 0x%08x, wanted 0x%08x",
                         tern_tape_op_name(integers[u].op), integers[u].operands, float_bits(a[i]), float_bits(b[i]),
                         y[i], wanted);
        }
    }
}

/* Conversions in range, all bit patterns for BITCAST, WHERE on any non-zero condition. */
static void conversions(const conformance *c)
{
    enum { N = 4096 };
    static float x[N], f_of_i[N], f_of_u[N], chosen[N];
    static uint32_t bits[N], u_of_f[N];
    static int32_t i_of_f[N];
    const uint32_t words[] = {N};
    uint64_t seed = 5;
    for (uint32_t i = 0; i < N; i++) {
        bits[i] = i < 64 ? (i % 2 ? 0u : 1u << i / 2) : random_bits(&seed);
        x[i] = (float)(int32_t)(random_bits(&seed) >> (i % 32)) * (i % 2 ? 0.4999f : -0.4999f);
    }
    tape_maker m;
    tape_maker_start(&m, 1, 0, 1);
    const uint32_t tx = tape_maker_tensor(&m, TERN_F32, READ), tb = tape_maker_tensor(&m, TERN_U32, READ);
    const uint32_t ti = tape_maker_tensor(&m, TERN_I32, WRITE), tu = tape_maker_tensor(&m, TERN_U32, WRITE);
    const uint32_t tfi = tape_maker_tensor(&m, TERN_F32, WRITE), tfu = tape_maker_tensor(&m, TERN_F32, WRITE);
    const uint32_t tc = tape_maker_tensor(&m, TERN_F32, WRITE);
    const uint16_t v = tape_maker_load(&m, tx, 1), b = tape_maker_load(&m, tb, 1);
    const uint16_t positive = tape_maker_op(&m, TERN_TAPE_ABS, v, NO);
    const uint16_t as_int = conformance_op(&m, TERN_TAPE_BITCAST, TERN_I32, TERN_U32, b, NO, NO);
    tape_maker_store(&m, ti, 1, conformance_op(&m, TERN_TAPE_CAST, TERN_I32, TERN_F32, v, NO, NO));
    tape_maker_store(&m, tu, 1, conformance_op(&m, TERN_TAPE_CAST, TERN_U32, TERN_F32, positive, NO, NO));
    tape_maker_store(&m, tfi, 1, conformance_op(&m, TERN_TAPE_CAST, TERN_F32, TERN_I32, as_int, NO, NO));
    tape_maker_store(&m, tfu, 1, conformance_op(&m, TERN_TAPE_CAST, TERN_F32, TERN_U32, b, NO, NO));
    const uint16_t as_float = conformance_op(&m, TERN_TAPE_BITCAST, TERN_F32, TERN_U32, b, NO, NO);
    tape_maker_store(&m, tc, 1, conformance_op(&m, TERN_TAPE_WHERE, TERN_F32, 0, b, as_float, v));
    conformance_array arrays[] = {{x, sizeof x},           {bits, sizeof bits},     {i_of_f, sizeof i_of_f},
                                  {u_of_f, sizeof u_of_f}, {f_of_i, sizeof f_of_i}, {f_of_u, sizeof f_of_u},
                                  {chosen, sizeof chosen}};
    conformance_tape(c, &m, words, arrays);
    for (uint32_t i = 0; i < N; i++) {
        assert_int_equal(i_of_f[i], (int32_t)x[i]);
        assert_int_equal(u_of_f[i], (uint32_t)fabsf(x[i]));
        assert_true(f_of_i[i] == (float)(int32_t)bits[i]);
        assert_true(f_of_u[i] == (float)bits[i]);
        assert_int_equal(float_bits(chosen[i]), bits[i] ? bits[i] : float_bits(x[i]));
    }
}

static void philox_is_everyones(const conformance *c)
{
    enum { N = 5000, LABEL = 0x1234abcd };
    static uint32_t counter[N], high[N], y[N];
    uint32_t key[2] = {0xdeadbeef, 0x01234567};
    const uint32_t words[] = {N, LABEL};
    uint64_t seed = 9;
    for (uint32_t i = 0; i < N; i++) counter[i] = random_bits(&seed), high[i] = random_bits(&seed);
    tape_maker m;
    tape_maker_start(&m, 1, 0, 1);
    const uint32_t tc = tape_maker_tensor(&m, TERN_U32, READ), th = tape_maker_tensor(&m, TERN_U32, READ);
    const uint32_t tk = tape_maker_tensor(&m, TERN_U32, READ), ty = tape_maker_tensor(&m, TERN_U32, WRITE);
    const uint16_t second = tape_maker_access(&m, tk, 0);
    m.accesses[second].offset = 1;
    const uint16_t a = tape_maker_load(&m, tc, 1), b = tape_maker_load(&m, th, 1), k0 = tape_maker_load(&m, tk, 0);
    const uint16_t k1 = tape_maker_load_from(&m, second, TERN_U32, NO);
    tape_maker_store(
        &m, ty, 1,
        tape_maker_insn(&m,
                        (tern_tape_insn){.op = TERN_TAPE_PHILOX, .type = TERN_U32, .imm = 1, .in = {a, b, k0, k1}}));
    conformance_array arrays[] = {{counter, sizeof counter}, {high, sizeof high}, {key, sizeof key}, {y, sizeof y}};
    conformance_tape(c, &m, words, arrays);
    for (uint32_t i = 0; i < N; i++) {
        uint32_t out[4];
        tern_philox((const uint32_t[]){counter[i], high[i], LABEL, 0}, key, out);
        assert_int_equal(y[i], out[0]);
    }
}

/* a * b + c and a * b - c are two roundings each: the pairs are chosen so that a fused one would differ. */
static void nothing_is_contracted(const conformance *c)
{
    static float a[SAMPLES], b[SAMPLES], s[SAMPLES], y[SAMPLES];
    const uint32_t words[] = {SAMPLES};
    uint64_t seed = 11;
    uint32_t differs = 0;
    for (uint32_t i = 0; i < SAMPLES; i++) {
        a[i] = 1 + conformance_random(&seed) / 4;
        b[i] = 1 + conformance_random(&seed) / 4;
        const volatile float product = a[i] * b[i];
        s[i] = -product; /* what is left is the rounding error when fused, else zero */
        differs += fmaf(a[i], b[i], s[i]) != 0;
    }
    assert_true(differs > SAMPLES / 2);
    tape_maker m;
    tape_maker_start(&m, 1, 0, 1);
    const uint32_t ta = tape_maker_tensor(&m, TERN_F32, READ), tb = tape_maker_tensor(&m, TERN_F32, READ);
    const uint32_t ts = tape_maker_tensor(&m, TERN_F32, READ), ty = tape_maker_tensor(&m, TERN_F32, WRITE);
    const uint16_t product = tape_maker_op(&m, TERN_TAPE_MUL, tape_maker_load(&m, ta, 1), tape_maker_load(&m, tb, 1));
    tape_maker_store(&m, ty, 1, tape_maker_op(&m, TERN_TAPE_ADD, product, tape_maker_load(&m, ts, 1)));
    conformance_array arrays[] = {{a, sizeof a}, {b, sizeof b}, {s, sizeof s}, {y, sizeof y}};
    conformance_tape(c, &m, words, arrays);
    for (uint32_t i = 0; i < SAMPLES; i++)
        if (y[i] != 0)
            fail_msg("%.9g * %.9g %+.9g gave %.9g: it was fused", (double)a[i], (double)b[i], (double)s[i],
                     (double)y[i]);
}

/* Ops that other cases, named here, hold to account: memory, reductions and moves. */
static void every_op_has_a_row(const conformance *c)
{
    static const tern_tape_op elsewhere[] = {TERN_TAPE_CONST,
                                             TERN_TAPE_INDEX,
                                             TERN_TAPE_LOAD,
                                             TERN_TAPE_STORE,
                                             TERN_TAPE_COLUMN,
                                             TERN_TAPE_REDUCE_SUM,
                                             TERN_TAPE_REDUCE_MAX /* test_conformance_tape */,
                                             TERN_TAPE_ACC /* test_conformance_contraction */,
                                             TERN_TAPE_WHERE,
                                             TERN_TAPE_CAST,
                                             TERN_TAPE_BITCAST /* conversions */,
                                             TERN_TAPE_ROUND /* rounding */,
                                             TERN_TAPE_PHILOX};
    bool covered[TERN_TAPE_OP_COUNT] = {false};
    (void)c;
    for (size_t i = 0; i < sizeof unaries / sizeof *unaries; i++) covered[unaries[i].op] = true;
    for (size_t i = 0; i < sizeof binaries / sizeof *binaries; i++) covered[binaries[i].op] = true;
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++) covered[integers[i].op] = true;
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++) covered[elsewhere[i]] = true;
    for (uint32_t op = 0; op < TERN_TAPE_OP_COUNT; op++)
        if (!covered[op]) fail_msg("no row tests %s", tern_tape_op_name((tern_tape_op)op));
}

int main(void)
{
    static const conformance_case cases[] = {
        {"unary ops", unary_ops},
        {"signs of zero", signs_of_zero},
        {"binary ops", binary_ops},
        {"integer ops", integer_ops},
        {"conversions", conversions},
        {"philox is everyone's", philox_is_everyones},
        {"nothing is contracted", nothing_is_contracted},
        {"every op has a row", every_op_has_a_row},
    };
    return conformance_main("alu", cases, sizeof cases / sizeof *cases, NULL, 0);
}
