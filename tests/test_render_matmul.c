/* SPDX-License-Identifier: Apache-2.0 */
/* test_render_matmul.c - the three forms of the matmul template against naive sums, with epilogues, on an OpenCL
 * device. */
#include <stdlib.h>

#include "core/kernel/lowered.h"
#include "tests/dialect_check.h"
#include "tests/opencl_runner.h"
#include "tests/tape_maker.h"
#include "tests/test.h"

static bool has_device;
static const char *why;

static float random_float(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / 8388608.0f - 1.0f;
}

static float *random_array(size_t count, uint32_t seed)
{
    float *data = malloc(count * sizeof *data);
    assert_non_null(data);
    for (size_t i = 0; i < count; i++) data[i] = random_float(&seed);
    return data;
}

/* Epilogues by what a transformer asks of them. */
typedef enum epilogue { STORE_ONLY, BIAS_GELU_RESIDUAL, ACCUMULATE, EPILOGUE_COUNT } epilogue;

static void make_epilogue(tape_maker *m, epilogue which)
{
    tape_maker_start(m, 3, 0, 1);
    uint16_t acc = tape_maker_op(m, TERN_TAPE_ACC, TERN_TAPE_NONE, TERN_TAPE_NONE);
    if (which == STORE_ONLY) {
        tape_maker_store(m, tape_maker_tensor(m, TERN_F32, TERN_ACCESS_WRITE), 7, acc);
    } else if (which == ACCUMULATE) {
        uint32_t c = tape_maker_tensor(m, TERN_F32, TERN_ACCESS_READ | TERN_ACCESS_WRITE);
        uint16_t old = tape_maker_load(m, c, 7);
        tape_maker_store(m, c, 7, tape_maker_op(m, TERN_TAPE_ADD, old, acc));
    } else {
        uint32_t c = tape_maker_tensor(m, TERN_F32, TERN_ACCESS_WRITE);
        uint32_t bias = tape_maker_tensor(m, TERN_F32, TERN_ACCESS_READ),
                 residual = tape_maker_tensor(m, TERN_F32, TERN_ACCESS_READ);
        uint16_t x = tape_maker_op(m, TERN_TAPE_ADD, acc, tape_maker_load(m, bias, 4));
        uint16_t e = tape_maker_op(m, TERN_TAPE_TANH, x, TERN_TAPE_NONE);
        tape_maker_store(m, c, 7, tape_maker_op(m, TERN_TAPE_ADD, e, tape_maker_load(m, residual, 7)));
    }
}

typedef struct matmul_case {
    dialect_device device;
    bool a_transposed, b_transposed;
    epilogue which;
    uint32_t batch, m, n, k, pad; /* pad: leading dimensions are this much longer than needed */
    bool shared_b;                /* b has no batch axis */
    uint8_t a_dtype, b_dtype;     /* 0: f32 */
} matmul_case;

static void make_desc(const matmul_case *c, tape_maker *maker, tern_kernel_desc *desc, uint32_t *words,
                      const tern_device_info *info)
{
    const tern_tape_tensor own[] = {{c->a_dtype ? c->a_dtype : TERN_F32, TERN_ACCESS_READ},
                                    {c->b_dtype ? c->b_dtype : TERN_F32, TERN_ACCESS_READ}};
    make_epilogue(maker, c->which);
    tape_maker_contraction(maker, TERN_KERNEL_MATMUL, 2, own, TERN_MATMUL_WORDS, desc);
    desc->a_transposed = c->a_transposed;
    desc->b_transposed = c->b_transposed;
    uint32_t a_ld = (c->a_transposed ? c->m : c->k) + c->pad, b_ld = (c->b_transposed ? c->k : c->n) + c->pad;
    const uint32_t values[] = {c->batch,
                               c->m,
                               c->n,
                               c->k,
                               a_ld * (c->a_transposed ? c->k : c->m),
                               a_ld,
                               c->shared_b ? 0 : b_ld * (c->b_transposed ? c->n : c->k),
                               b_ld};
    memcpy(words, values, sizeof values);
    TEST_OK(tern_variant_choose(desc, info, words));
}

static double expected(const matmul_case *c, const uint32_t *words, const float *a, const float *b, uint32_t batch,
                       uint32_t m, uint32_t n, double *out_size)
{
    double sum = 0;
    *out_size = 0;
    for (uint32_t k = 0; k < c->k; k++) {
        uint32_t a_at = batch * words[4] + (c->a_transposed ? k * words[5] + m : m * words[5] + k);
        uint32_t b_at = batch * words[6] + (c->b_transposed ? n * words[7] + k : k * words[7] + n);
        sum += (double)a[a_at] * b[b_at];
        *out_size += fabs((double)a[a_at] * b[b_at]);
    }
    return sum;
}

static void run_case(const matmul_case *c)
{
    tape_maker maker;
    tern_kernel_desc desc;
    tern_device_info info;
    uint32_t words[TERN_KERNEL_WORDS] = {0}, groups[3];
    dialect_device_info(c->device, &info);
    make_desc(c, &maker, &desc, words, &info);
    TEST_OK(tern_variant_groups(&desc, &info, words, groups));
    size_t outputs = (size_t)c->batch * c->m * c->n;
    size_t a_count = (size_t)c->batch * words[4],
           b_count = (size_t)(c->shared_b ? 1 : c->batch) * words[7] * (c->b_transposed ? c->n : c->k);
    float *a = random_array(a_count + 3, 1), *b = random_array(b_count, 2), *out = random_array(outputs, 3),
          *before = random_array(outputs, 3);
    float *bias = random_array(c->n, 4), *residual = random_array(outputs, 5);
    runner_argument arguments[] = {{a, (a_count + 3) * 4, 3},
                                   {b, b_count * 4, 0},
                                   {out, outputs * 4, 0},
                                   {bias, c->n * 4, 0},
                                   {residual, outputs * 4, 0}};
    assert_true(opencl_runner_run(&desc, words, groups, arguments));
    for (size_t i = 0; i < outputs; i++) {
        uint32_t n = (uint32_t)(i % c->n), m = (uint32_t)(i / c->n % c->m), batch = (uint32_t)(i / c->n / c->m);
        double size, value = expected(c, words, a + 3, b, batch, m, n, &size);
        if (c->which == ACCUMULATE) value += before[i];
        if (c->which == BIAS_GELU_RESIDUAL) value = tanh(value + bias[n]) + residual[i];
        if (!(fabs(out[i] - value) <= 1e-6 * (size + 1)))
            fail_msg("%s %ux%ux%u batch %u t%d%d epilogue %d: (%u, %u, %u) is %.9g, not %.9g", desc.variant.name, c->m,
                     c->n, c->k, c->batch, c->a_transposed, c->b_transposed, (int)c->which, batch, m, n, (double)out[i],
                     value);
    }
    free(a);
    free(b);
    free(out);
    free(before);
    free(bias);
    free(residual);
}

static void all_pairs_and_transposes(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {1, 31, 33, 65, 127, 257};
    if (!has_device) TEST_SKIP("%s", why);
    for (dialect_device device = 0; device < DEVICE_COUNT; device++)
        for (uint32_t i = 0; i < 6; i++)
            for (uint32_t j = 0; j < 6; j++) {
                uint32_t t = (i * 6 + j + device) % 4;
                matmul_case c = {device, t & 1, t >> 1, STORE_ONLY, 1, sizes[i], sizes[j], sizes[(i + 2 * j + 1) % 6],
                                 0,      false, 0,      0};
                run_case(&c);
            }
}

static void epilogues_batches_and_strides(void **state)
{
    (void)state;
    if (!has_device) TEST_SKIP("%s", why);
    for (dialect_device device = 0; device < DEVICE_COUNT; device++)
        for (uint32_t t = 0; t < 3; t++) { /* every device meets every epilogue, every form two transposes and more */
            const matmul_case c = {device, (t + device) & 1, t >> 1, (epilogue)t, 3, 37, 70, 45, 5, t == 1, 0, 0};
            run_case(&c);
        }
}

static void seeded_triples(void **state)
{
    (void)state;
    if (!has_device) TEST_SKIP("%s", why);
    uint32_t seed = 7;
    for (uint32_t i = 0; i < 64; i++) {
        uint32_t size[3];
        for (int d = 0; d < 3; d++) {
            seed = seed * 1664525u + 1013904223u;
            size[d] = 1 + (seed >> 16) % 150;
        }
        matmul_case c = {(dialect_device)(i % DEVICE_COUNT),
                         i >> 2 & 1,
                         i >> 3 & 1,
                         STORE_ONLY,
                         1 + i % 2,
                         size[0],
                         size[1],
                         size[2],
                         i % 3,
                         false,
                         0,
                         0};
        run_case(&c);
    }
}

static void compiles_in_every_dialect(void **state)
{
    (void)state;
    for (dialect_device device = DEVICE_LANES; device < DEVICE_COUNT; device++)
        for (uint32_t t = device & 1; t < 4; t += 2) {
            static const uint8_t dtypes[4][2] = {{0, 0}, {TERN_F16, TERN_BF16}, {TERN_BF16, 0}, {TERN_F16, TERN_F16}};
            matmul_case c = {.device = device,
                             .a_transposed = t & 1,
                             .b_transposed = t >> 1,
                             .which = t == 0 ? BIAS_GELU_RESIDUAL : ACCUMULATE,
                             .batch = 2,
                             .m = 512,
                             .n = 512,
                             .k = 64,
                             .a_dtype = dtypes[t][0],
                             .b_dtype = dtypes[t][1]};
            tape_maker maker;
            tern_kernel_desc desc;
            tern_device_info info;
            uint32_t words[TERN_KERNEL_WORDS];
            dialect_device_info(device, &info);
            make_desc(&c, &maker, &desc, words, &info);
            assert_true(dialect_check(&desc));
        }
}

/* More groups than max_groups[0] go to y; the surplus ones must touch nothing. */
static void groups_fold(void **state)
{
    (void)state;
    if (!has_device) TEST_SKIP("%s", why);
    matmul_case c = {DEVICE_SMALL_GPU, false, false, ACCUMULATE, 1, 300, 300, 8, 0, false, 0, 0};
    tape_maker maker;
    tern_kernel_desc desc;
    tern_device_info info;
    uint32_t words[TERN_KERNEL_WORDS], groups[3];
    dialect_device_info(c.device, &info);
    make_desc(&c, &maker, &desc, words, &info);
    info.max_groups[0] = 7;
    TEST_OK(tern_variant_groups(&desc, &info, words, groups));
    assert_true(groups[0] <= 7 && groups[1] > 1 && groups[0] * groups[1] >= 25);
    float *a = random_array(2400, 1), *b = random_array(2400, 2), *out = random_array(90000, 3),
          *before = random_array(90000, 3);
    runner_argument arguments[] = {{a, 9600, 0}, {b, 9600, 0}, {out, 360000, 0}};
    assert_true(opencl_runner_run(&desc, words, groups, arguments));
    for (uint32_t i = 0; i < 90000; i++) {
        double size, value = expected(&c, words, a, b, 0, i / 300, i % 300, &size) + before[i];
        if (!(fabs(out[i] - value) <= 1e-6 * (size + 1)))
            fail_msg("element %u is %g, not %g", i, (double)out[i], value);
    }
    info.max_groups[1] = 2;
    TEST_ERROR(tern_variant_groups(&desc, &info, words, groups), TERN_ERROR_UNSUPPORTED, "groups");
    free(a);
    free(b);
    free(out);
    free(before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_pairs_and_transposes),
        cmocka_unit_test(epilogues_batches_and_strides),
        cmocka_unit_test(seeded_triples),
        cmocka_unit_test(groups_fold),
        cmocka_unit_test(compiles_in_every_dialect),
    };
    has_device = opencl_runner_open(&why);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    opencl_runner_close();
    return failed;
}
