/* SPDX-License-Identifier: Apache-2.0 */
/* test_conformance_tape.c - fused kernels on every backend: rows, columns and every way of addressing a tensor.
 *
 * References are plain loops in double, written here. Tolerance 1e-5 of the result's norm: an f32 sum of 50,000 terms
 * in any fixed order is far inside it, a wrong element far outside. */
#include <stdlib.h>

#include "tests/conformance.h"

enum { READ = TERN_ACCESS_READ, WRITE = TERN_ACCESS_WRITE };
#define TOLERANCE 1e-5

typedef struct shape {
    uint32_t rows, columns;
} shape;

static float *floats(size_t count, uint64_t seed)
{
    float *data = malloc(count * sizeof *data);
    assert_non_null(data);
    conformance_fill(data, count, seed);
    return data;
}

static double *doubles(size_t count)
{
    double *data = calloc(count, sizeof *data);
    assert_non_null(data);
    return data;
}

static uint16_t op1(tape_maker *m, tern_tape_op op, uint16_t a) { return tape_maker_op(m, op, a, NO); }

/* ------------------------------------------------------------- elementwise */

/* y(i, j, k) = a(i, j, k) * b(j, k) + c(i): broadcasts over leading and trailing dims. */
static void elementwise_with_broadcasts(const conformance *c)
{
    static const uint32_t shapes[][3] = {{1, 1, 1}, {3, 5, 7}, {31, 33, 65}, {257, 2, 1}, {1, 127, 129}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const uint32_t *n = shapes[s];
        const size_t all = (size_t)n[0] * n[1] * n[2], inner = (size_t)n[1] * n[2];
        tape_maker m;
        tape_maker_start(&m, 3, 0, 1);
        const uint32_t a = tape_maker_tensor(&m, TERN_F32, READ), b = tape_maker_tensor(&m, TERN_F32, READ);
        const uint32_t bias = tape_maker_tensor(&m, TERN_F32, READ), y = tape_maker_tensor(&m, TERN_F32, WRITE);
        const uint16_t product = tape_maker_op(&m, TERN_TAPE_MUL, tape_maker_load(&m, a, 7), tape_maker_load(&m, b, 6));
        tape_maker_store(&m, y, 7, tape_maker_op(&m, TERN_TAPE_ADD, product, tape_maker_load(&m, bias, 1)));
        float *x[3] = {floats(all, 1), floats(inner, 2), floats(n[0], 3)}, *out = floats(all, 4);
        conformance_array arrays[] = {{x[0], 4 * all}, {x[1], 4 * inner}, {x[2], 4ull * n[0]}, {out, 4 * all}};
        conformance_tape(c, &m, n, arrays);
        for (size_t i = 0; i < all; i++) { /* two roundings, no fma: the bits are known */
            const volatile float p = x[0][i] * x[1][i % inner];
            const float wanted = p + x[2][i / inner];
            if (memcmp(&out[i], &wanted, 4) != 0)
                fail_msg("element %zu is %.9g, wanted %.9g", i, (double)out[i], (double)wanted);
        }
        for (size_t k = 0; k < 3; k++) free(x[k]);
        free(out);
    }
}

/* More groups than an axis holds anywhere (65,535 groups of 256): x = x + index. */
static void more_groups_than_an_axis_holds(const conformance *c)
{
    const uint32_t count = 17000003;
    uint32_t *x = malloc(4ull * count);
    assert_non_null(x);
    for (uint32_t i = 0; i < count; i++) x[i] = i * 2654435761u;
    tape_maker m;
    tape_maker_start(&m, 1, 0, 1);
    const uint32_t t = tape_maker_tensor(&m, TERN_U32, READ | WRITE);
    const uint16_t old = tape_maker_load(&m, t, 1), index = tape_maker_index(&m, 0);
    tape_maker_store(&m, t, 1, conformance_op(&m, TERN_TAPE_ADD, TERN_U32, 0, old, index, NO));
    conformance_array arrays[] = {{x, 4ull * count}};
    conformance_tape(c, &m, &count, arrays);
    for (uint32_t i = 0; i < count; i++)
        if (x[i] != i * 2654435761u + i) fail_msg("element %u is %u, wanted %u", i, x[i], i * 2654435761u + i);
    free(x);
}

/* -------------------------------------------------------------------- rows */

static void softmax_tape(tape_maker *m)
{
    tape_maker_start(m, 2, 1, 3);
    const uint32_t x = tape_maker_tensor(m, TERN_F32, READ), y = tape_maker_tensor(m, TERN_F32, WRITE);
    const uint16_t top = op1(m, TERN_TAPE_REDUCE_MAX, tape_maker_load(m, x, 3));
    tape_maker_at(m, 1, 1);
    const uint16_t e = op1(m, TERN_TAPE_EXP, tape_maker_op(m, TERN_TAPE_SUB, tape_maker_load(m, x, 3), top));
    const uint16_t sum = op1(m, TERN_TAPE_REDUCE_SUM, e);
    tape_maker_at(m, 2, 0);
    const uint16_t scale = op1(m, TERN_TAPE_RECIP, sum);
    tape_maker_at(m, 2, 1);
    const uint16_t again = op1(m, TERN_TAPE_EXP, tape_maker_op(m, TERN_TAPE_SUB, tape_maker_load(m, x, 3), top));
    tape_maker_store(m, y, 3, tape_maker_op(m, TERN_TAPE_MUL, again, scale));
}

static void softmax_check(const conformance *c, float *x, shape s)
{
    const size_t all = (size_t)s.rows * s.columns;
    const uint32_t words[] = {s.rows, s.columns};
    float *y = floats(all, 9);
    double *wanted = doubles(all);
    tape_maker m;
    softmax_tape(&m);
    conformance_array arrays[] = {{x, 4 * all}, {y, 4 * all}};
    conformance_tape(c, &m, words, arrays);
    for (size_t r = 0; r < s.rows; r++) {
        const float *row = x + r * s.columns;
        double top = -INFINITY, sum = 0;
        for (uint32_t i = 0; i < s.columns; i++) top = row[i] > top ? (double)row[i] : top;
        for (uint32_t i = 0; i < s.columns; i++) sum += exp((double)row[i] - top);
        for (uint32_t i = 0; i < s.columns; i++) wanted[r * s.columns + i] = exp((double)row[i] - top) / sum;
        TEST_CLOSE(y + r * s.columns, wanted + r * s.columns, s.columns, TOLERANCE);
    }
    free(wanted);
    free(y);
}

static void softmax(const conformance *c)
{
    static const shape shapes[] = {{1, 1}, {3, 31}, {33, 257}, {129, 64}, {5, 4097}, {2, 50257}, {3, 65537}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        float *x = floats((size_t)shapes[i].rows * shapes[i].columns, i);
        for (size_t k = 0; k < (size_t)shapes[i].rows * shapes[i].columns; k++) x[k] *= 5;
        softmax_check(c, x, shapes[i]);
        free(x);
    }
}

static void softmax_of_extreme_rows(const conformance *c)
{
    enum { COLUMNS = 300 };
    float x[4][COLUMNS];
    for (uint32_t i = 0; i < COLUMNS; i++) {
        x[0][i] = i % 2 ? 200.0f : -200.0f;
        x[1][i] = i == 123 ? 3.0f : -INFINITY;
        x[2][i] = -1e30f;
        x[3][i] = i % 3 ? 1e-40f : -0.0f;
    }
    softmax_check(c, x[0], (shape){4, COLUMNS});
}

/* A reduction keeps NaN and starts at -inf. */
static void maximum_keeps_nan(const conformance *c)
{
    enum { ROWS = 5, COLUMNS = 1000 };
    const uint32_t words[] = {ROWS, COLUMNS};
    float *x = floats(ROWS * COLUMNS, 5), y[ROWS];
    for (uint32_t i = 0; i < COLUMNS; i++) x[3 * COLUMNS + i] = -INFINITY;
    x[1 * COLUMNS] = x[2 * COLUMNS + COLUMNS - 1] = NAN; /* the first and the last */
    x[4 * COLUMNS + 500] = INFINITY;
    tape_maker m;
    tape_maker_start(&m, 2, 1, 2);
    const uint32_t t = tape_maker_tensor(&m, TERN_F32, READ), out = tape_maker_tensor(&m, TERN_F32, WRITE);
    const uint16_t top = op1(&m, TERN_TAPE_REDUCE_MAX, tape_maker_load(&m, t, 3));
    tape_maker_at(&m, 1, 0);
    tape_maker_store(&m, out, 1, top);
    conformance_array arrays[] = {{x, 4 * ROWS * COLUMNS}, {y, sizeof y}};
    conformance_tape(c, &m, words, arrays);
    float top0 = -INFINITY;
    for (uint32_t i = 0; i < COLUMNS; i++) top0 = x[i] > top0 ? x[i] : top0;
    assert_true(y[0] == top0);
    assert_true(isnan(y[1]) && isnan(y[2]));
    assert_true(y[3] == -INFINITY && y[4] == INFINITY);
    free(x);
}

/* One row per outer index, more rows than an axis has groups, short and long rows. */
static void many_rows(const conformance *c)
{
    static const shape shapes[] = {{70001, 3}, {65536, 1}, {7, 2049}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const size_t rows = shapes[s].rows, columns = shapes[s].columns;
        const uint32_t words[] = {shapes[s].rows, shapes[s].columns};
        float *x = floats(rows * columns, s), *y = floats(rows, 1);
        double *wanted = doubles(rows);
        tape_maker m;
        tape_maker_start(&m, 2, 1, 2);
        const uint32_t t = tape_maker_tensor(&m, TERN_F32, READ), out = tape_maker_tensor(&m, TERN_F32, WRITE);
        const uint16_t sum = op1(&m, TERN_TAPE_REDUCE_SUM, tape_maker_load(&m, t, 3));
        tape_maker_at(&m, 1, 0);
        tape_maker_store(&m, out, 1, sum);
        conformance_array arrays[] = {{x, 4 * rows * columns}, {y, 4 * rows}};
        conformance_tape(c, &m, words, arrays);
        for (size_t i = 0; i < rows * columns; i++) wanted[i / columns] += (double)x[i];
        TEST_CLOSE(y, wanted, rows, TOLERANCE);
        free(wanted);
        free(y);
        free(x);
    }
}

/* Rows of large, nearly equal numbers: the mean must be subtracted before squaring. Two statistics leave through the
 * head. */
static void layer_norm(const conformance *c)
{
    static const shape shapes[] = {{3, 4096}, {65, 33}, {17, 768}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const size_t rows = shapes[s].rows, columns = shapes[s].columns, all = rows * columns;
        const uint32_t words[] = {shapes[s].rows, shapes[s].columns};
        float *x = floats(all, s), *y = floats(all, 8), *mean_out = floats(rows, 7), *width = malloc(sizeof *width);
        double *wanted = doubles(all), *means = doubles(rows);
        assert_non_null(width);
        width[0] = (float)columns;
        if (s == 0)
            for (size_t i = 0; i < all; i++) x[i] = 300.0f + 0.01f * x[i];
        tape_maker m;
        tape_maker_start(&m, 2, 1, 3);
        const uint32_t tx = tape_maker_tensor(&m, TERN_F32, READ), tw = tape_maker_tensor(&m, TERN_F32, READ);
        const uint32_t ty = tape_maker_tensor(&m, TERN_F32, WRITE), tm = tape_maker_tensor(&m, TERN_F32, WRITE);
        const uint16_t sum = op1(&m, TERN_TAPE_REDUCE_SUM, tape_maker_load(&m, tx, 3));
        tape_maker_at(&m, 1, 0);
        const uint16_t n = tape_maker_load(&m, tw, 0);
        const uint16_t mean = tape_maker_op(&m, TERN_TAPE_DIV, sum, n);
        tape_maker_store(&m, tm, 1, mean);
        tape_maker_at(&m, 1, 1);
        const uint16_t d = tape_maker_op(&m, TERN_TAPE_SUB, tape_maker_load(&m, tx, 3), mean);
        const uint16_t squares = op1(&m, TERN_TAPE_REDUCE_SUM, tape_maker_op(&m, TERN_TAPE_MUL, d, d));
        tape_maker_at(&m, 2, 0);
        const uint16_t variance = tape_maker_op(&m, TERN_TAPE_DIV, squares, n);
        const uint16_t scale =
            op1(&m, TERN_TAPE_RSQRT, tape_maker_op(&m, TERN_TAPE_ADD, variance, tape_maker_constant(&m, 1e-5f)));
        tape_maker_at(&m, 2, 1);
        const uint16_t centred = tape_maker_op(&m, TERN_TAPE_SUB, tape_maker_load(&m, tx, 3), mean);
        tape_maker_store(&m, ty, 3, tape_maker_op(&m, TERN_TAPE_MUL, centred, scale));
        conformance_array arrays[] = {{x, 4 * all}, {width, 4}, {y, 4 * all}, {mean_out, 4 * rows}};
        conformance_tape(c, &m, words, arrays);
        for (size_t r = 0; r < rows; r++) {
            double square = 0;
            for (size_t i = 0; i < columns; i++) means[r] += (double)x[r * columns + i] / (double)columns;
            for (size_t i = 0; i < columns; i++) square += pow((double)x[r * columns + i] - means[r], 2);
            for (size_t i = 0; i < columns; i++)
                wanted[r * columns + i] =
                    ((double)x[r * columns + i] - means[r]) / sqrt(square / (double)columns + 1e-5f);
        }
        TEST_CLOSE(mean_out, means, rows, 1e-6);
        /* A mean of 300 is known to 2^-24 * 300, 0.3 % of the spread of 0.01 in the first shape. */
        TEST_CLOSE(y, wanted, all, s == 0 ? 4e-3 : TOLERANCE);
        free(means), free(wanted), free(width), free(mean_out), free(y), free(x);
    }
}

/* dx = r (g - mean(g) - xhat mean(g xhat)) with g = dy w: two reductions in one phase, then dx, and the column sums of
 * dy xhat and dy over chunks of rows in the same kernel: the backward pass of layer norm. */
static void layer_norm_backward(const conformance *c)
{
    static const struct {
        shape s;
        uint32_t chunk;
    } cases[] = {{{64, 48}, 16}, {{33, 257}, 8}, {{130, 768}, 32}, {{5, 31}, 8}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const size_t rows = cases[k].s.rows, columns = cases[k].s.columns, all = rows * columns, chunk = cases[k].chunk;
        const size_t parts = (rows + chunk - 1) / chunk * columns;
        const uint32_t words[] = {cases[k].s.rows, cases[k].s.columns};
        float *dy = floats(all, 1), *xhat = floats(all, 2), *w = floats(columns, 3), *r = floats(rows, 4),
              *dx = floats(all, 5);
        float *dw = floats(parts, 6), *db = floats(parts, 7);
        double *dx_wanted = doubles(all), *dw_wanted = doubles(parts), *db_wanted = doubles(parts);
        tape_maker m;
        tape_maker_start(&m, 2, 1, 2);
        m.tape.chunk_rows = cases[k].chunk;
        const uint32_t tdy = tape_maker_tensor(&m, TERN_F32, READ), tx = tape_maker_tensor(&m, TERN_F32, READ);
        const uint32_t tw = tape_maker_tensor(&m, TERN_F32, READ), tr = tape_maker_tensor(&m, TERN_F32, READ);
        const uint32_t tdx = tape_maker_tensor(&m, TERN_F32, WRITE), tdw = tape_maker_tensor(&m, TERN_F32, WRITE);
        const uint32_t tdb = tape_maker_tensor(&m, TERN_F32, WRITE);
        const uint16_t vdy = tape_maker_load(&m, tdy, 3), vx = tape_maker_load(&m, tx, 3);
        const uint16_t g = tape_maker_op(&m, TERN_TAPE_MUL, vdy, tape_maker_load(&m, tw, 2));
        const uint16_t sum = op1(&m, TERN_TAPE_REDUCE_SUM, g);
        const uint16_t dot = op1(&m, TERN_TAPE_REDUCE_SUM, tape_maker_op(&m, TERN_TAPE_MUL, g, vx));
        tape_maker_at(&m, 1, 0);
        const uint16_t scale = tape_maker_constant(&m, 1.0f / (float)columns), rr = tape_maker_load(&m, tr, 1);
        const uint16_t mean = tape_maker_op(&m, TERN_TAPE_MUL, sum, scale),
                       mean_dot = tape_maker_op(&m, TERN_TAPE_MUL, dot, scale);
        tape_maker_at(&m, 1, 1);
        const uint16_t vdy2 = tape_maker_load(&m, tdy, 3), vx2 = tape_maker_load(&m, tx, 3);
        const uint16_t g2 = tape_maker_op(&m, TERN_TAPE_MUL, vdy2, tape_maker_load(&m, tw, 2));
        const uint16_t less_mean = tape_maker_op(&m, TERN_TAPE_SUB, g2, mean);
        const uint16_t less_dot =
            tape_maker_op(&m, TERN_TAPE_SUB, less_mean, tape_maker_op(&m, TERN_TAPE_MUL, vx2, mean_dot));
        tape_maker_store(&m, tdx, 3, tape_maker_op(&m, TERN_TAPE_MUL, less_dot, rr));
        tape_maker_column(&m, tdw, tape_maker_op(&m, TERN_TAPE_MUL, vdy2, vx2));
        tape_maker_column(&m, tdb, vdy2);
        conformance_array arrays[] = {{dy, 4 * all}, {xhat, 4 * all}, {w, 4 * columns}, {r, 4 * rows},
                                      {dx, 4 * all}, {dw, 4 * parts}, {db, 4 * parts}};
        conformance_tape(c, &m, words, arrays);
        for (size_t row = 0; row < rows; row++) {
            double g_sum = 0, g_dot = 0;
            for (size_t i = row * columns; i < (row + 1) * columns; i++) {
                const double gi = (double)dy[i] * (double)w[i % columns];
                g_sum += gi / (double)columns;
                g_dot += gi * (double)xhat[i] / (double)columns;
                dw_wanted[row / chunk * columns + i % columns] += (double)dy[i] * (double)xhat[i];
                db_wanted[row / chunk * columns + i % columns] += (double)dy[i];
            }
            for (size_t i = row * columns; i < (row + 1) * columns; i++)
                dx_wanted[i] =
                    (double)r[row] * ((double)dy[i] * (double)w[i % columns] - g_sum - (double)xhat[i] * g_dot);
        }
        TEST_CLOSE(dx, dx_wanted, all, TOLERANCE);
        TEST_CLOSE(dw, dw_wanted, parts, TOLERANCE);
        TEST_CLOSE(db, db_wanted, parts, TOLERANCE);
        free(dy), free(xhat), free(w), free(r), free(dx), free(dw), free(db), free(dx_wanted), free(dw_wanted),
            free(db_wanted);
    }
}

/* Column sums alone, no row reduction: a bias' gradient. */
static void column_sums(const conformance *c)
{
    static const struct {
        shape s;
        uint32_t chunk;
    } cases[] = {{{1, 1}, 1}, {{100, 3}, 7}, {{257, 1000}, 64}, {{64, 65}, 64}, {{63, 5}, 64}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const size_t rows = cases[k].s.rows, columns = cases[k].s.columns, chunk = cases[k].chunk;
        const size_t parts = (rows + chunk - 1) / chunk * columns;
        const uint32_t words[] = {cases[k].s.rows, cases[k].s.columns};
        float *x = floats(rows * columns, 1), *y = floats(parts, 2);
        double *wanted = doubles(parts);
        tape_maker m;
        tape_maker_start(&m, 2, 1, 1);
        m.tape.chunk_rows = cases[k].chunk;
        const uint32_t tx = tape_maker_tensor(&m, TERN_F32, READ), ty = tape_maker_tensor(&m, TERN_F32, WRITE);
        const uint16_t v = tape_maker_load(&m, tx, 3);
        tape_maker_column(&m, ty, tape_maker_op(&m, TERN_TAPE_MUL, v, v));
        conformance_array arrays[] = {{x, 4 * rows * columns}, {y, 4 * parts}};
        conformance_tape(c, &m, words, arrays);
        for (size_t i = 0; i < rows * columns; i++)
            wanted[i / columns / chunk * columns + i % columns] += (double)x[i] * (double)x[i];
        TEST_CLOSE(y, wanted, parts, TOLERANCE);
        free(x), free(y), free(wanted);
    }
}

/* -------------------------------------------------------------- addressing */

/* y(i, j, k) = x(k, i, j), then y stored as (j, i, k) in a second tensor: strides are products of extents. */
static void permuted(const conformance *c)
{
    static const uint32_t shapes[][3] = {{3, 5, 7}, {33, 1, 31}, {16, 64, 9}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const uint32_t *n = shapes[s], I = n[0], J = n[1], K = n[2];
        const size_t all = (size_t)I * J * K;
        float *x = floats(all, 1), *y = floats(all, 2), *z = floats(all, 3);
        tape_maker m;
        tape_maker_start(&m, 3, 0, 1);
        const uint32_t tx = tape_maker_tensor(&m, TERN_F32, READ), ty = tape_maker_tensor(&m, TERN_F32, WRITE);
        const uint32_t tz = tape_maker_tensor(&m, TERN_F32, WRITE);
        const uint16_t from = tape_maker_access(&m, tx, 0), to = tape_maker_access(&m, tz, 0);
        m.accesses[from].stride[0] = (tern_tape_stride){1, 2}; /* J */
        m.accesses[from].stride[1] = (tern_tape_stride){1, 0};
        m.accesses[from].stride[2] = (tern_tape_stride){1, 3}; /* I J */
        m.accesses[to].stride[0] = (tern_tape_stride){1, 4};   /* K */
        m.accesses[to].stride[1] = (tern_tape_stride){1, 5};   /* I K */
        m.accesses[to].stride[2] = (tern_tape_stride){1, 0};
        const uint16_t v = tape_maker_load_from(&m, from, TERN_F32, NO);
        tape_maker_store(&m, ty, 7, v);
        conformance_store(&m, to, v);
        conformance_array arrays[] = {{x, 4 * all}, {y, 4 * all}, {z, 4 * all}};
        conformance_tape(c, &m, n, arrays);
        for (uint32_t i = 0; i < I; i++)
            for (uint32_t j = 0; j < J; j++)
                for (uint32_t k = 0; k < K; k++) {
                    const float wanted = x[((size_t)k * I + i) * J + j];
                    if (y[((size_t)i * J + j) * K + k] != wanted || z[((size_t)j * I + i) * K + k] != wanted)
                        fail_msg("element (%u, %u, %u)", i, j, k);
                }
        free(x), free(y), free(z);
    }
}

/* y(i, j) = x(2 i + 1, j + 3) + x shifted by padding: offsets, coefficients, masks, and an address below zero that a
 * mask guards. */
static void sliced_and_padded(const conformance *c)
{
    enum { I = 9, J = 35, ROWS = 2 * I + 1, COLUMNS = J + 5, PI = I - 3, PJ = J - 4 };
    const uint32_t words[] = {I, J};
    float *x = floats(ROWS * COLUMNS, 1), *p = floats(PI * PJ, 2), y[I * J];
    tape_maker m;
    tape_maker_start(&m, 2, 0, 1);
    const uint32_t tx = tape_maker_tensor(&m, TERN_F32, READ), tp = tape_maker_tensor(&m, TERN_F32, READ);
    const uint32_t ty = tape_maker_tensor(&m, TERN_F32, WRITE);
    const uint16_t sliced = tape_maker_access(&m, tx, 0), padded = tape_maker_access(&m, tp, 0);
    m.accesses[sliced].offset = COLUMNS + 3;
    m.accesses[sliced].stride[0] = (tern_tape_stride){2 * COLUMNS, 0};
    m.accesses[sliced].stride[1] = (tern_tape_stride){1, 0};
    tern_tape_access *pad = &m.accesses[padded]; /* p(i - 2, j - 1), 0 outside */
    pad->offset = -(2 * PJ + 1);
    pad->stride[0] = (tern_tape_stride){PJ, 0};
    pad->stride[1] = (tern_tape_stride){1, 0};
    pad->mask_count = 2;
    pad->mask[0] = (tern_tape_mask){.coef = {1, 0}, .offset = -2, .lo = 0, .hi = PI};
    pad->mask[1] = (tern_tape_mask){.coef = {0, 1}, .offset = -1, .lo = 0, .hi = PJ};
    const uint16_t a = tape_maker_load_from(&m, sliced, TERN_F32, NO),
                   b = tape_maker_load_from(&m, padded, TERN_F32, NO);
    tape_maker_store(&m, ty, 3, tape_maker_op(&m, TERN_TAPE_ADD, a, b));
    conformance_array arrays[] = {{x, 4 * ROWS * COLUMNS}, {p, 4 * PI * PJ}, {y, sizeof y}};
    conformance_tape(c, &m, words, arrays);
    for (int i = 0; i < I; i++)
        for (int j = 0; j < J; j++) {
            const bool inside = i >= 2 && i - 2 < PI && j >= 1 && j - 1 < PJ;
            const float wanted = x[(2 * i + 1) * COLUMNS + j + 3] + (inside ? p[(i - 2) * PJ + j - 1] : 0.0f);
            if (y[i * J + j] != wanted)
                fail_msg("element (%d, %d) is %.9g, wanted %.9g", i, j, (double)y[i * J + j], (double)wanted);
        }
    free(x), free(p);
}

/* y(n, d) = table(ids(n), d): the id once per row in the head, and once more per element. */
static void indirect(const conformance *c)
{
    enum { N = 77, D = 33, V = 50 };
    const uint32_t words[] = {N, D};
    float *table = floats(V * D, 1), *y = floats(N * D, 2), *z = floats(N * D, 3);
    uint32_t ids[N];
    for (uint32_t i = 0; i < N; i++) ids[i] = i * 7919 % V;
    tape_maker m;
    tape_maker_start(&m, 2, 1, 1);
    const uint32_t tt = tape_maker_tensor(&m, TERN_F32, READ), ti = tape_maker_tensor(&m, TERN_U32, READ);
    const uint32_t ty = tape_maker_tensor(&m, TERN_F32, WRITE), tz = tape_maker_tensor(&m, TERN_F32, WRITE);
    const uint16_t row = tape_maker_access(&m, tt, 2);
    m.accesses[row].indirect = (tern_tape_stride){1, 2}; /* D */
    tape_maker_at(&m, 0, 0);
    const uint16_t head_id = tape_maker_load(&m, ti, 1);
    tape_maker_at(&m, 0, 1);
    tape_maker_store(&m, ty, 3, tape_maker_load_from(&m, row, TERN_F32, head_id));
    tape_maker_store(&m, tz, 3, tape_maker_load_from(&m, row, TERN_F32, tape_maker_load(&m, ti, 1)));
    conformance_array arrays[] = {{table, 4 * V * D}, {ids, sizeof ids}, {y, 4 * N * D}, {z, 4 * N * D}};
    conformance_tape(c, &m, words, arrays);
    for (uint32_t n = 0; n < N; n++) {
        assert_memory_equal(y + n * D, table + ids[n] * D, 4 * D);
        assert_memory_equal(z + n * D, table + ids[n] * D, 4 * D);
    }
    free(table), free(y), free(z);
}

/* INDEX gives any affine expression of the loop indices, wrapping in u32. */
static void index_expressions(const conformance *c)
{
    enum { I = 13, J = 37 };
    const uint32_t words[] = {I, J};
    uint32_t y[I * J];
    tape_maker m;
    tape_maker_start(&m, 2, 1, 1);
    const uint32_t ty = tape_maker_tensor(&m, TERN_U32, WRITE);
    const uint16_t at = tape_maker_access(&m, ty, 0);
    m.accesses[at].offset = -5;
    m.accesses[at].stride[0] = (tern_tape_stride){3, 2}; /* 3 J */
    m.accesses[at].stride[1] = (tern_tape_stride){-2, 0};
    tape_maker_store(
        &m, ty, 3,
        tape_maker_insn(
            &m, (tern_tape_insn){.op = TERN_TAPE_INDEX, .type = TERN_U32, .access = at, .in = {NO, NO, NO, NO}}));
    conformance_array arrays[] = {{y, sizeof y}};
    conformance_tape(c, &m, words, arrays);
    for (uint32_t i = 0; i < I; i++)
        for (uint32_t j = 0; j < J; j++) assert_int_equal(y[i * J + j], 3u * J * i - 2u * j - 5u);
}

int main(void)
{
    static const conformance_case cases[] = {
        {"elementwise with broadcasts", elementwise_with_broadcasts},
        {"more groups than an axis holds", more_groups_than_an_axis_holds},
        {"softmax", softmax},
        {"softmax of extreme rows", softmax_of_extreme_rows},
        {"maximum keeps NaN", maximum_keeps_nan},
        {"many rows", many_rows},
        {"layer norm", layer_norm},
        {"layer norm backward", layer_norm_backward},
        {"column sums", column_sums},
        {"permuted", permuted},
        {"sliced and padded", sliced_and_padded},
        {"indirect", indirect},
        {"index expressions", index_expressions},
    };
    return conformance_main("tape", cases, sizeof cases / sizeof *cases, NULL, 0);
}
