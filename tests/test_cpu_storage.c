/* SPDX-License-Identifier: Apache-2.0 */
/* test_cpu_storage.c - f16 and bf16 on the cpu backend: the conversions of every instruction set bit for bit, and
 * matmuls that widen their operands, the same for any number of threads. */
#include "core/base/dtype.h"
#include "tests/conformance.h"

#include <stdlib.h>

enum { READ = TERN_ACCESS_READ, WRITE = TERN_ACCESS_WRITE };

typedef struct setting {
    const char *isa;
    uint32_t threads;
} setting;
static const setting settings[] = {{"avx512", 1}, {"avx512", 2}, {"avx512", 3}, {"avx2", 2}, {"baseline", 2}};
#define SETTINGS (sizeof settings / sizeof *settings)

static void open_setting(const setting *s, conformance *out)
{
    const tern_open_options options = {.threads = s->threads};
    setenv("TERN_CPU_ISA", s->isa, 1);
    *out = (conformance){.name = "cpu"};
    TEST_OK(tern_device_open_with("cpu", &options, &out->device));
    unsetenv("TERN_CPU_ISA");
    out->backend = out->device->backend;
    out->handle = out->device->handle;
}

static uint16_t narrowed(uint8_t dtype, float x)
{
    return dtype == TERN_F16 ? tern_f32_to_f16(x) : tern_f32_to_bf16(x);
}
static float widened(uint8_t dtype, uint16_t x) { return dtype == TERN_F16 ? tern_f16_to_f32(x) : tern_bf16_to_f32(x); }

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* ------------------------------------------------------------- conversions */

/* y(i) = x(i) with y's (or x's) elements `stride` apart. */
static void copy_tape(tape_maker *m, uint8_t from, int32_t from_stride, uint8_t to, int32_t to_stride)
{
    tape_maker_start(m, 1, 0, 1);
    const uint32_t x = tape_maker_tensor(m, from, READ), y = tape_maker_tensor(m, to, READ | WRITE);
    const uint16_t in = tape_maker_access(m, x, 1), out = tape_maker_access(m, y, 1);
    m->accesses[in].stride[0].coef = from_stride;
    m->accesses[out].stride[0].coef = to_stride;
    conformance_store(m, out, tape_maker_load_from(m, in, TERN_F32, NO));
}

/* Every upper half of an f32 with lower halves that round down, to even, up, and not at all. */
static void stores_give_dtype_bits(void **state)
{
    static const uint32_t lows[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff, 0x1000, 0x0fff, 0x3000};
    enum { LOWS = sizeof lows / sizeof *lows, COUNT = 65536 * LOWS + 5 };
    (void)state;
    float *x = malloc(sizeof *x * COUNT);
    uint16_t *y = malloc(3 * sizeof *y * COUNT);
    assert_true(x && y);
    for (uint32_t i = 0; i < COUNT; i++) {
        const uint32_t bits = i / LOWS << 16 | lows[i % LOWS];
        memcpy(&x[i], &bits, sizeof bits);
    }
    for (size_t s = 1; s < SETTINGS; s++)
        for (uint32_t turn = 0; turn < 4; turn++) {
            const uint8_t dtype = turn % 2 ? TERN_F16 : TERN_BF16;
            const uint32_t stride = turn < 2 ? 1 : 3;
            tape_maker m;
            conformance c;
            open_setting(&settings[s], &c);
            copy_tape(&m, TERN_F32, 1, dtype, (int32_t)stride);
            memset(y, 0xa5, 3 * sizeof *y * COUNT);
            conformance_array arrays[] = {{x, sizeof *x * COUNT}, {y, stride * sizeof *y * COUNT}};
            conformance_tape(&c, &m, (const uint32_t[]){COUNT}, arrays);
            for (uint32_t i = 0; i < COUNT; i++) {
                if (y[i * stride] != narrowed(dtype, x[i]))
                    fail_msg("%s: 0x%08x is stored as 0x%04x, not 0x%04x (%s)", settings[s].isa, bits_of(x[i]),
                             y[i * stride], narrowed(dtype, x[i]), tern_dtype(dtype)->name);
                for (uint32_t gap = 1; gap < stride; gap++) assert_int_equal(y[i * stride + gap], 0xa5a5);
            }
            tern_device_close(c.device);
        }
    free(x), free(y);
}

static void loads_give_dtype_bits(void **state)
{
    enum { COUNT = 65536 };
    (void)state;
    uint16_t *x = malloc(2 * sizeof *x * COUNT);
    float *y = malloc(sizeof *y * COUNT);
    assert_true(x && y);
    for (size_t s = 1; s < SETTINGS; s++)
        for (uint32_t turn = 0; turn < 4; turn++) {
            const uint8_t dtype = turn % 2 ? TERN_F16 : TERN_BF16;
            const uint32_t stride = turn < 2 ? 1 : 2;
            tape_maker m;
            conformance c;
            open_setting(&settings[s], &c);
            copy_tape(&m, dtype, (int32_t)stride, TERN_F32, 1);
            for (uint32_t i = 0; i < COUNT * stride; i++) x[i] = (uint16_t)(i / stride);
            conformance_array arrays[] = {{x, stride * sizeof *x * COUNT}, {y, sizeof *y * COUNT}};
            conformance_tape(&c, &m, (const uint32_t[]){COUNT}, arrays);
            for (uint32_t i = 0; i < COUNT; i++) {
                const float wanted = widened(dtype, (uint16_t)i);
                /* a signalling NaN may come out quiet */
                if (isnan(wanted) ? !isnan(y[i]) : bits_of(wanted) != bits_of(y[i]))
                    fail_msg("%s: 0x%04x is read as 0x%08x, not 0x%08x (%s)", settings[s].isa, i, bits_of(y[i]),
                             bits_of(wanted), tern_dtype(dtype)->name);
            }
            tern_device_close(c.device);
        }
    free(x), free(y);
}

/* ----------------------------------------------------------------- matmul */

typedef struct matmul {
    uint32_t m, n, k;
    bool a_transposed, b_transposed;
    uint8_t a, b;
} matmul;

static void *stored_random(uint8_t dtype, size_t count, uint64_t seed, double *out_values)
{
    float *x = malloc(count * sizeof *x);
    uint16_t *narrow = malloc(count * sizeof *narrow);
    assert_true(x && narrow);
    conformance_fill(x, count, seed);
    for (size_t i = 0; i < count; i++) {
        narrow[i] = narrowed(dtype, x[i]);
        out_values[i] = dtype == TERN_F32 ? (double)x[i] : (double)widened(dtype, narrow[i]);
    }
    free(dtype == TERN_F32 ? (void *)narrow : (void *)x);
    return dtype == TERN_F32 ? (void *)x : (void *)narrow;
}

static void matmul_check(const matmul *t)
{
    const size_t a_count = (size_t)t->m * t->k, b_count = (size_t)t->k * t->n, count = (size_t)t->m * t->n;
    double *va = malloc(a_count * sizeof *va), *vb = malloc(b_count * sizeof *vb), *wanted = calloc(count, sizeof *vb);
    float *y = malloc(count * sizeof *y), *first = malloc(count * sizeof *y);
    assert_true(va && vb && wanted && y && first);
    void *a = stored_random(t->a, a_count, 1, va), *b = stored_random(t->b, b_count, 2, vb);
    const uint32_t a_ld = t->a_transposed ? t->m : t->k, b_ld = t->b_transposed ? t->k : t->n;
    for (size_t i = 0; i < t->m; i++)
        for (size_t k = 0; k < t->k; k++) {
            const double left = va[t->a_transposed ? k * a_ld + i : i * a_ld + k];
            for (size_t j = 0; j < t->n; j++)
                wanted[i * t->n + j] += left * vb[t->b_transposed ? j * b_ld + k : k * b_ld + j];
        }
    const uint32_t words[TERN_MATMUL_WORDS] = {1, t->m, t->n, t->k, 0, a_ld, 0, b_ld};
    const tern_tape_tensor own[] = {{t->a, READ}, {t->b, READ}};
    for (size_t s = 0; s < SETTINGS; s++) {
        conformance c;
        tape_maker maker;
        tern_kernel_desc desc;
        tape_maker_start(&maker, 3, 0, 1);
        const uint16_t acc = tape_maker_op(&maker, TERN_TAPE_ACC, NO, NO);
        const uint32_t to = tape_maker_tensor(&maker, TERN_F32, READ | WRITE);
        tape_maker_store(&maker, to, 7, tape_maker_op(&maker, TERN_TAPE_ADD, tape_maker_load(&maker, to, 7), acc));
        tape_maker_contraction(&maker, TERN_KERNEL_MATMUL, 2, own, TERN_MATMUL_WORDS, &desc);
        desc.a_transposed = t->a_transposed, desc.b_transposed = t->b_transposed;
        open_setting(&settings[s], &c);
        conformance_choose(&c, words, &desc);
        memset(y, 0, count * sizeof *y);
        const size_t a_size = t->a == TERN_F32 ? 4 : 2, b_size = t->b == TERN_F32 ? 4 : 2;
        conformance_array arrays[] = {{a, a_count * a_size}, {b, b_count * b_size}, {y, count * sizeof *y}};
        conformance_dispatch(&c, &desc, words, arrays);
        TEST_CLOSE(y, wanted, count, 2e-6);
        if (s == 0) memcpy(first, y, count * sizeof *y);
        if (s > 0 && s < 3 && memcmp(first, y, count * sizeof *y) != 0)
            fail_msg("%u x %u x %u: other bits with %u threads than with 1", t->m, t->n, t->k, settings[s].threads);
        tern_device_close(c.device);
    }
    free(a), free(b), free(va), free(vb), free(wanted), free(y), free(first);
}

/* Small: own loops, B packed once for two tiles of rows or not. Large: tiles and edges of them, K in one, two and three
 * blocks where oneDNN is there. */
static void matmuls_widen_their_operands(void **state)
{
    static const matmul cases[] = {
        {5, 7, 3, false, false, TERN_F16, TERN_BF16},        {33, 40, 300, false, true, TERN_BF16, TERN_BF16},
        {140, 20, 300, false, false, TERN_F16, TERN_BF16},   {140, 20, 300, true, true, TERN_BF16, TERN_F16},
        {70, 33, 257, true, false, TERN_F16, TERN_F32},      {130, 270, 520, false, true, TERN_F32, TERN_F16},
        {130, 258, 1500, true, false, TERN_BF16, TERN_F16},  {131, 259, 2600, true, true, TERN_F16, TERN_F16},
        {140, 300, 1025, false, false, TERN_BF16, TERN_BF16}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) matmul_check(&cases[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stores_give_dtype_bits),
        cmocka_unit_test(loads_give_dtype_bits),
        cmocka_unit_test(matmuls_widen_their_operands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
