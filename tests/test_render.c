/* SPDX-License-Identifier: Apache-2.0 */
/* test_render.c - hand-made tapes through every strategy, run on an OpenCL device against naive loops and compiled in
 * every dialect: rows with reductions, column sums, permuted, padded and indirect loads, broadcasts, integers. */
#include <stdlib.h>

#include "core/kernel/lowered.h"
#include "tests/dialect_check.h"
#include "tests/opencl_runner.h"
#include "tests/tape_maker.h"
#include "tests/test.h"

#define NO TERN_TAPE_NONE

static bool has_device;
static const char *why;

static void fill(float *x, size_t count, uint32_t seed)
{
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
    }
}

static float *array(size_t count, uint32_t seed)
{
    float *x = malloc(count * sizeof *x);
    assert_non_null(x);
    fill(x, count, seed);
    return x;
}

static void near(const char *what, const tern_kernel_desc *desc, size_t i, double got, double want)
{
    if (!(fabs(got - want) <= 2e-6 * (fabs(want) + 1)))
        fail_msg("%s, %s: element %zu is %.9g, not %.9g", what, desc->variant.name, i, got, want);
}

/* Chooses the device's variant, compiles everywhere, runs where there is a device; the desc stays for messages. */
static void run(const tape_maker *maker, dialect_device device, const uint32_t *words, const runner_argument *arguments,
                tern_kernel_desc *desc)
{
    tern_device_info info;
    uint32_t groups[3];
    tape_maker_desc(maker, desc);
    TEST_OK(tern_tape_check(&desc->tape, false));
    dialect_device_info(device, &info);
    TEST_OK(tern_variant_choose(desc, &info, words));
    TEST_OK(tern_variant_groups(desc, &info, words, groups));
    assert_true(dialect_check(desc));
    assert_true(opencl_runner_run(desc, words, groups, arguments));
}

/* ------------------------------------------------------------ row reductions */

static void make_softmax(tape_maker *m)
{
    tape_maker_start(m, 2, 1, 3);
    uint32_t x = tape_maker_tensor(m, TERN_F32, TERN_ACCESS_READ),
             y = tape_maker_tensor(m, TERN_F32, TERN_ACCESS_WRITE);
    uint32_t norm = tape_maker_tensor(m, TERN_F32, TERN_ACCESS_WRITE);
    uint16_t top = tape_maker_op(m, TERN_TAPE_REDUCE_MAX, tape_maker_load(m, x, 3), NO);
    tape_maker_at(m, 1, 1);
    uint16_t e = tape_maker_op(m, TERN_TAPE_EXP, tape_maker_op(m, TERN_TAPE_SUB, tape_maker_load(m, x, 3), top), NO);
    uint16_t sum = tape_maker_op(m, TERN_TAPE_REDUCE_SUM, e, NO);
    tape_maker_at(m, 2, 0);
    tape_maker_store(m, norm, 1, sum);
    tape_maker_at(m, 2, 1);
    e = tape_maker_op(m, TERN_TAPE_EXP, tape_maker_op(m, TERN_TAPE_SUB, tape_maker_load(m, x, 3), top), NO);
    tape_maker_store(m, y, 3, tape_maker_op(m, TERN_TAPE_DIV, e, sum));
}

static void softmax_of(const char *what, dialect_device device, uint32_t rows, uint32_t length, float *x)
{
    tape_maker m;
    tern_kernel_desc desc;
    make_softmax(&m);
    float *y = array((size_t)rows * length + 1, 9), *norm = array(rows, 8);
    const uint32_t words[] = {rows, length};
    const float guard = y[rows * length];
    run(&m, device, words,
        (runner_argument[]){{x, 4ul * rows * length, 0}, {y, 4ul * rows * length + 4, 0}, {norm, 4ul * rows, 0}},
        &desc);
    assert_true(memcmp(&y[rows * length], &guard, 4) == 0);
    for (uint32_t r = 0; r < rows; r++) {
        double top = -INFINITY, sum = 0;
        for (uint32_t c = 0; c < length; c++) top = fmax(top, x[r * length + c]);
        for (uint32_t c = 0; c < length; c++) sum += exp(x[r * length + c] - top);
        near(what, &desc, r, norm[r] / sum, 1);
        for (uint32_t c = 0; c < length; c++)
            near(what, &desc, r * length + c, y[r * length + c], exp(x[r * length + c] - top) / sum);
    }
    free(y);
    free(norm);
}

static void softmax_is_one_kernel(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {1, 31, 257, 1000};
    if (!has_device) TEST_SKIP("%s", why);
    for (dialect_device device = 0; device < DEVICE_COUNT; device++) {
        float *x = array(5 * 1000, 3);
        softmax_of("softmax", device, 5, lengths[device], x);
        for (uint32_t i = 0; i < 5000; i++) x[i] = i % 2 ? 200.0f : -200.0f;
        softmax_of("softmax of +-200", device, 5, 999, x);
        for (uint32_t i = 0; i < 5000; i++) x[i] = i % 1000 == 17 ? 3.0f : -INFINITY;
        softmax_of("softmax of -inf with one number", device, 5, 1000, x);
        free(x);
    }
}

static void a_nan_reaches_the_maximum(void **state)
{
    (void)state;
    if (!has_device) TEST_SKIP("%s", why);
    for (dialect_device device = 0; device < DEVICE_COUNT; device++)
        for (uint32_t at = 0; at < 300; at += 99) {
            tape_maker m;
            tern_kernel_desc desc;
            tape_maker_start(&m, 2, 1, 2);
            uint32_t in = tape_maker_tensor(&m, TERN_F32, TERN_ACCESS_READ),
                     out = tape_maker_tensor(&m, TERN_F32, TERN_ACCESS_WRITE);
            uint16_t top = tape_maker_op(&m, TERN_TAPE_REDUCE_MAX, tape_maker_load(&m, in, 3), NO);
            tape_maker_at(&m, 1, 0);
            tape_maker_store(&m, out, 1, top);
            float *x = array(600, at), y[2];
            x[at] = NAN;
            run(&m, device, (const uint32_t[]){2, 300}, (runner_argument[]){{x, 2400, 0}, {y, 8, 0}}, &desc);
            assert_true(isnan(y[0]) && !isnan(y[1]));
            free(x);
        }
}

/* dx of layer norm, and per chunk of rows the column sums for dweight and dbias: reductions, columns and stores in one.
 */
static void make_layer_norm_backward(tape_maker *m, uint32_t chunk_rows)
{
    tape_maker_start(m, 2, 1, 2);
    m->tape.chunk_rows = chunk_rows;
    uint32_t xhat = tape_maker_tensor(m, TERN_F32, TERN_ACCESS_READ),
             dy = tape_maker_tensor(m, TERN_F32, TERN_ACCESS_READ);
    uint32_t weight = tape_maker_tensor(m, TERN_F32, TERN_ACCESS_READ),
             dx = tape_maker_tensor(m, TERN_F32, TERN_ACCESS_WRITE);
    uint32_t dweight = tape_maker_tensor(m, TERN_F32, TERN_ACCESS_WRITE),
             dbias = tape_maker_tensor(m, TERN_F32, TERN_ACCESS_WRITE);
    uint16_t g = tape_maker_op(m, TERN_TAPE_MUL, tape_maker_load(m, dy, 3), tape_maker_load(m, weight, 2));
    uint16_t x = tape_maker_load(m, xhat, 3);
    uint16_t s0 = tape_maker_op(m, TERN_TAPE_REDUCE_SUM, g, NO),
             s1 = tape_maker_op(m, TERN_TAPE_REDUCE_SUM, tape_maker_op(m, TERN_TAPE_MUL, g, x), NO);
    tape_maker_at(m, 1, 1);
    uint16_t d = tape_maker_load(m, dy, 3);
    x = tape_maker_load(m, xhat, 3);
    g = tape_maker_op(m, TERN_TAPE_MUL, d, tape_maker_load(m, weight, 2));
    uint16_t rest = tape_maker_op(m, TERN_TAPE_ADD, s0, tape_maker_op(m, TERN_TAPE_MUL, x, s1));
    tape_maker_store(m, dx, 3, tape_maker_op(m, TERN_TAPE_SUB, g, rest));
    tape_maker_column(m, dweight, tape_maker_op(m, TERN_TAPE_MUL, d, x));
    tape_maker_column(m, dbias, d);
}

static void columns_and_rows_in_one_kernel(void **state)
{
    (void)state;
    enum { ROWS = 37, WIDTH = 300, CHUNK = 8, CHUNKS = 5 };
    if (!has_device) TEST_SKIP("%s", why);
    for (dialect_device device = 0; device < DEVICE_COUNT; device++) {
        tape_maker m;
        tern_kernel_desc desc;
        make_layer_norm_backward(&m, CHUNK);
        float *x = array(ROWS * WIDTH, 1), *dy = array(ROWS * WIDTH, 2), *w = array(WIDTH, 3),
              *dx = array(ROWS * WIDTH, 4);
        float *dw = array(CHUNKS * WIDTH, 5), *db = array(CHUNKS * WIDTH, 6);
        run(&m, device, (const uint32_t[]){ROWS, WIDTH},
            (runner_argument[]){{x, 4 * ROWS * WIDTH, 0},
                                {dy, 4 * ROWS * WIDTH, 0},
                                {w, 4 * WIDTH, 0},
                                {dx, 4 * ROWS * WIDTH, 0},
                                {dw, 4 * CHUNKS * WIDTH, 0},
                                {db, 4 * CHUNKS * WIDTH, 0}},
            &desc);
        for (uint32_t r = 0; r < ROWS; r++) {
            double s0 = 0, s1 = 0, size = 1;
            for (uint32_t c = 0; c < WIDTH; c++) {
                double g = (double)dy[r * WIDTH + c] * w[c];
                s0 += g, s1 += g * x[r * WIDTH + c], size += fabs(g); /* of the terms, which the sums' error follows */
            }
            for (uint32_t c = 0; c < WIDTH; c++) {
                double want = (double)dy[r * WIDTH + c] * w[c] - (s0 + x[r * WIDTH + c] * s1);
                near("dx", &desc, r * WIDTH + c, dx[r * WIDTH + c] / size, want / size);
            }
        }
        for (uint32_t i = 0; i < CHUNKS * WIDTH; i++) {
            float sum = 0, bias = 0; /* in row order, so the bits are those of this loop */
            for (uint32_t r = i / WIDTH * CHUNK; r < ROWS && r < (i / WIDTH + 1) * CHUNK; r++) {
                float product = dy[r * WIDTH + i % WIDTH] * x[r * WIDTH + i % WIDTH];
                sum = r == i / WIDTH * CHUNK ? product : sum + product;
                bias = r == i / WIDTH * CHUNK ? dy[r * WIDTH + i % WIDTH] : bias + dy[r * WIDTH + i % WIDTH];
            }
            if (memcmp(&sum, &dw[i], 4) != 0 || memcmp(&bias, &db[i], 4) != 0)
                fail_msg("%s: column %u is %.9g, not %.9g", desc.variant.name, i, (double)dw[i], (double)sum);
        }
        free(x);
        free(dy);
        free(w);
        free(dx);
        free(dw);
        free(db);
    }
}

/* Pure column sums over chunks, then the tape that combines the chunks (rows that are neighbours in memory). */
static void column_sums_combine(void **state)
{
    (void)state;
    enum { ROWS = 70, WIDTH = 131, CHUNK = 16, CHUNKS = 5 };
    if (!has_device) TEST_SKIP("%s", why);
    for (dialect_device device = 0; device < DEVICE_COUNT; device++) {
        tape_maker m;
        tern_kernel_desc desc;
        float *x = array(ROWS * WIDTH, 1), *partial = array(CHUNKS * WIDTH, 2), *y = array(WIDTH, 3);
        tape_maker_start(&m, 2, 1, 1);
        m.tape.chunk_rows = CHUNK;
        uint32_t in = tape_maker_tensor(&m, TERN_F32, TERN_ACCESS_READ),
                 out = tape_maker_tensor(&m, TERN_F32, TERN_ACCESS_WRITE);
        tape_maker_column(&m, out, tape_maker_load(&m, in, 3));
        run(&m, device, (const uint32_t[]){ROWS, WIDTH},
            (runner_argument[]){{x, 4 * ROWS * WIDTH, 0}, {partial, 4 * CHUNKS * WIDTH, 0}}, &desc);
        tape_maker_start(&m, 2, 1, 2); /* (columns, chunks) */
        in = tape_maker_tensor(&m, TERN_F32, TERN_ACCESS_READ);
        out = tape_maker_tensor(&m, TERN_F32, TERN_ACCESS_WRITE);
        uint16_t access = tape_maker_access(&m, in, 1);
        m.accesses[access].stride[1] = (tern_tape_stride){1, 1};
        uint16_t sum = tape_maker_op(&m, TERN_TAPE_REDUCE_SUM, tape_maker_load_from(&m, access, TERN_F32, NO), NO);
        tape_maker_at(&m, 1, 0);
        tape_maker_store(&m, out, 1, sum);
        run(&m, device, (const uint32_t[]){WIDTH, CHUNKS},
            (runner_argument[]){{partial, 4 * CHUNKS * WIDTH, 0}, {y, 4 * WIDTH, 0}}, &desc);
        assert_true(desc.variant.row_per_thread);
        for (uint32_t c = 0; c < WIDTH; c++) {
            double want = 0;
            for (uint32_t r = 0; r < ROWS; r++) want += x[r * WIDTH + c];
            near("column sum", &desc, c, y[c], want);
        }
        free(x);
        free(partial);
        free(y);
    }
}

/* -------------------------------------------------------------- elementwise */

/* y(a, b, c) = x(c, a, b) permuted + bias(c) + padded(a, b - 2 of 3, c) + table(ids(b), c), at an argument offset. */
static void views_are_index_arithmetic(void **state)
{
    (void)state;
    enum { A = 3, B = 7, C = 50, IDS = 7, V = 9 };
    if (!has_device) TEST_SKIP("%s", why);
    for (dialect_device device = 0; device < DEVICE_COUNT; device++) {
        tape_maker m;
        tern_kernel_desc desc;
        tape_maker_start(&m, 3, 0, 1);
        uint32_t x = tape_maker_tensor(&m, TERN_F32, TERN_ACCESS_READ),
                 bias = tape_maker_tensor(&m, TERN_F32, TERN_ACCESS_READ);
        uint32_t part = tape_maker_tensor(&m, TERN_F32, TERN_ACCESS_READ),
                 table = tape_maker_tensor(&m, TERN_F32, TERN_ACCESS_READ);
        uint32_t ids = tape_maker_tensor(&m, TERN_U8, TERN_ACCESS_READ),
                 y = tape_maker_tensor(&m, TERN_F32, TERN_ACCESS_WRITE);
        uint16_t permuted = tape_maker_access(&m, x, 3);
        m.accesses[permuted].stride[2] = (tern_tape_stride){1, 3};
        uint16_t padded = tape_maker_access(&m, part, 0);
        m.accesses[padded].offset = -2 * C;
        m.accesses[padded].stride[0] = (tern_tape_stride){3, 4};
        m.accesses[padded].stride[1] = (tern_tape_stride){1, 4};
        m.accesses[padded].stride[2] = (tern_tape_stride){1, 0};
        m.accesses[padded].mask_count = 1;
        m.accesses[padded].mask[0] = (tern_tape_mask){.coef = {0, 1}, .offset = -2, .lo = 0, .hi = 3};
        uint16_t gathered = tape_maker_access(&m, table, 4);
        m.accesses[gathered].indirect = (tern_tape_stride){1, 4};
        uint16_t v = tape_maker_load_from(&m, permuted, TERN_F32, NO);
        v = tape_maker_op(&m, TERN_TAPE_ADD, v, tape_maker_load(&m, bias, 4));
        v = tape_maker_op(&m, TERN_TAPE_ADD, v, tape_maker_load_from(&m, padded, TERN_F32, NO));
        v = tape_maker_op(&m, TERN_TAPE_ADD, v,
                          tape_maker_load_from(&m, gathered, TERN_F32, tape_maker_load(&m, ids, 2)));
        tape_maker_store(&m, y, 7, v);
        float *xs = array(A * B * C + 5, 1), *biases = array(C, 2), *parts = array(A * 3 * C, 3),
              *rows = array(V * C, 4), *out = array(A * B * C + 2, 5);
        uint8_t id[IDS + 1] = {200, 0, 8, 3, 3, 1, 7, 5};
        run(&m, device, (const uint32_t[]){A, B, C},
            (runner_argument[]){{xs, 4 * (A * B * C + 5), 5},
                                {biases, 4 * C, 0},
                                {parts, 4 * A * 3 * C, 0},
                                {rows, 4 * V * C, 0},
                                {id, IDS + 1, 1},
                                {out, 4 * (A * B * C + 2), 2}},
            &desc);
        for (uint32_t i = 0; i < A * B * C; i++) {
            uint32_t a = i / (B * C), b = i / C % B, c = i % C;
            double want = (double)xs[5 + (c * A + a) * B + b] + biases[c] +
                          (b >= 2 && b < 5 ? parts[(a * 3 + b - 2) * C + c] : 0) + rows[id[1 + b] * C + c];
            near("views", &desc, i, out[2 + i], want);
        }
        free(xs);
        free(biases);
        free(parts);
        free(rows);
        free(out);
    }
}

/* where(i * 2654435761 >> 16 < label, a, -a) with a cast from i32, updated in place. */
static void integers_and_in_place(void **state)
{
    (void)state;
    enum { COUNT = 5000 };
    if (!has_device) TEST_SKIP("%s", why);
    for (dialect_device device = 0; device < DEVICE_COUNT; device++) {
        tape_maker m;
        tern_kernel_desc desc;
        tape_maker_start(&m, 1, 0, 1);
        uint32_t x = tape_maker_tensor(&m, TERN_F32, TERN_ACCESS_READ | TERN_ACCESS_WRITE),
                 n = tape_maker_tensor(&m, TERN_I32, TERN_ACCESS_READ);
        uint16_t i = tape_maker_index(&m, 0), factor = tape_maker_constant_u32(&m, 2654435761u),
                 bits = tape_maker_constant_u32(&m, 16), limit = tape_maker_constant_u32(&m, 30000);
        uint16_t h = tape_maker_insn(&m, (tern_tape_insn){.op = TERN_TAPE_MUL, .type = TERN_U32, .in = {i, factor}});
        h = tape_maker_insn(&m, (tern_tape_insn){.op = TERN_TAPE_SHIFT_RIGHT, .type = TERN_U32, .in = {h, bits}});
        uint16_t less = tape_maker_insn(
            &m, (tern_tape_insn){.op = TERN_TAPE_LESS, .type = TERN_U32, .from = TERN_U32, .in = {h, limit}});
        uint16_t cast = tape_maker_insn(
            &m, (tern_tape_insn){
                    .op = TERN_TAPE_CAST, .type = TERN_F32, .from = TERN_I32, .in = {tape_maker_load(&m, n, 1)}});
        uint16_t sum = tape_maker_op(&m, TERN_TAPE_ADD, tape_maker_load(&m, x, 1), cast);
        uint16_t pick =
            tape_maker_insn(&m, (tern_tape_insn){.op = TERN_TAPE_WHERE,
                                                 .type = TERN_F32,
                                                 .in = {less, sum, tape_maker_op(&m, TERN_TAPE_NEG, sum, NO)}});
        tape_maker_store(&m, x, 1, pick);
        float *xs = array(COUNT, 1), *before = array(COUNT, 1);
        int32_t *ns = malloc(COUNT * 4);
        assert_non_null(ns);
        for (int32_t k = 0; k < COUNT; k++) ns[k] = k - COUNT / 2;
        run(&m, device, (const uint32_t[]){COUNT}, (runner_argument[]){{xs, 4 * COUNT, 0}, {ns, 4 * COUNT, 0}}, &desc);
        for (uint32_t k = 0; k < COUNT; k++) {
            float want = before[k] + (float)ns[k];
            want = k * 2654435761u >> 16 < 30000 ? want : -want;
            if (memcmp(&want, &xs[k], 4) != 0)
                fail_msg("%s: element %u is %g, not %g", desc.variant.name, k, (double)xs[k], (double)want);
        }
        free(xs);
        free(before);
        free(ns);
    }
}

/* What cannot be rendered says why. */
static void bad_descs_are_refused(void **state)
{
    (void)state;
    tape_maker m;
    tern_kernel_desc desc;
    tern_device_info info;
    tern_source source = {0};
    make_softmax(&m);
    tape_maker_desc(&m, &desc);
    TEST_ERROR(tern_render(&desc, TERN_DIALECT_OPENCL, false, &source), TERN_ERROR_INTERNAL, "tern_variant_choose");
    dialect_device_info(DEVICE_GPU, &info);
    info.shared_bytes = 100;
    TEST_ERROR(tern_variant_choose(&desc, &info, (const uint32_t[]){10, 1000}), TERN_ERROR_UNSUPPORTED,
               "shared memory");
    dialect_device_info(DEVICE_GPU, &info);
    TEST_OK(tern_variant_choose(&desc, &info, (const uint32_t[]){10, 1000}));
    desc.tensor_count = 1;
    TEST_ERROR(tern_render(&desc, TERN_DIALECT_OPENCL, false, &source), TERN_ERROR_INTERNAL, "tensors");
    assert_null(source.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(softmax_is_one_kernel),          cmocka_unit_test(a_nan_reaches_the_maximum),
        cmocka_unit_test(columns_and_rows_in_one_kernel), cmocka_unit_test(column_sums_combine),
        cmocka_unit_test(views_are_index_arithmetic),     cmocka_unit_test(integers_and_in_place),
        cmocka_unit_test(bad_descs_are_refused),
    };
    has_device = opencl_runner_open(&why);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    opencl_runner_close();
    return failed;
}
