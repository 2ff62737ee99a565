/* SPDX-License-Identifier: Apache-2.0 */
/* check_rows.c - cases of reductions and of what is made of them: softmax, norms, losses. */
#include "core/cli/check.h"

#include <math.h>
#include <string.h>

#define SHAPE(...)                                                                                                     \
    (int32_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]) { __VA_ARGS__ }
#define P(name, ...) tern_check_parameter(graph, c, name, SHAPE(__VA_ARGS__))
#define BUILD(name)                                                                                                    \
    static void name(tern_graph *graph, __attribute__((unused)) const tern_check_case *c,                              \
                     __attribute__((unused)) uint64_t seed)
#define OUT(y) tern_check_output(graph, y)

/* ---------------------------------------------------------------- reductions */

typedef tern_tensor *(*reduce_axis)(tern_tensor *x, int32_t axis);
static const reduce_axis reductions[] = {tern_sum, tern_mean, tern_maximum};

/* argument: which reduction */
BUILD(reduce_axes)
{
    const reduce_axis reduce = reductions[c->argument];
    OUT(reduce(P("a", 1), 0));
    OUT(reduce(P("b", 31, 1031), -1));
    OUT(reduce(P("c", 300, 17), 0));
    OUT(reduce(P("d", 5, 65, 33), 1));
    OUT(reduce(P("e", 3, 70001), -1));
}

BUILD(reduce_masks)
{
    tern_tensor *x = P("a", 5, 7, 33);
    OUT(tern_reduce_sum(x, 5));
    OUT(tern_reduce_sum(x, 7));
    OUT(tern_reduce_max(x, 3));
}

/* Equal elements share the gradient of their maximum. */
BUILD(maximum_ties) { OUT(tern_maximum(tern_floor(P("a", 33, 65)), -1)); }
BUILD(maximum_tied_gradient)
{
    OUT(tern_maximum(tern_abs(tern_concat((tern_tensor *[]){P("a", 9, 31), P("a", 9, 31)}, 2, 1)), 1));
}

/* Two reductions of one row that depend on each other, and a column sum in its gradient. */
BUILD(row_chain)
{
    tern_tensor *x = P("a", 33, 129), *w = P("w", 129);
    tern_tensor *y = tern_mul(x, tern_rsqrt(tern_add(tern_mean(tern_mul(x, x), -1), tern_constant(graph, 1e-3))));
    OUT(tern_mul(y, tern_add(w, tern_sum(y, -1))));
}

/* ------------------------------------------------------------------- softmax */

BUILD(softmax_shapes)
{
    OUT(tern_softmax(P("a", 3, 5), -1));
    OUT(tern_softmax(P("b", 65, 1031), -1));
    OUT(tern_softmax(P("c", 31, 33), 0));
    OUT(tern_softmax(P("d", 7, 1), -1));
    OUT(tern_log_softmax(P("e", 33, 257), -1));
}

/* More rows than any driver has groups on one axis. */
BUILD(softmax_many_rows) { OUT(tern_softmax(P("a", 70001, 3), -1)); }
BUILD(softmax_rows) { OUT(tern_softmax(P("a", 33, 65), -1)); }

/* Rows of -infinity with one number. Its own probability is 1 and nothing is NaN. */
static void put_lone_numbers(const tern_tensor *leaf, double *values)
{
    if (leaf->op != TERN_OP_PARAMETER) return;
    for (int64_t i = 0; i < tern_count(leaf); i++)
        if (i % 65 != i / 65 % 65) values[i] = -INFINITY;
}

/* ---------------------------------------------------------------- layer norm */

BUILD(layer_norm)
{
    OUT(tern_layer_norm(P("a", 31, 65), P("wa", 65), P("ba", 65), 1e-5));
    OUT(tern_layer_norm(P("b", 2, 3, 769), P("wb", 769), P("bb", 769), 1e-5));
    OUT(tern_layer_norm(P("c", 257, 5), NULL, NULL, 1e-5));
}

BUILD(layer_norm_wide) { OUT(tern_layer_norm(P("a", 5, 4096), P("w", 4096), P("b", 4096), 1e-5)); }

/* Rows near 300 with a spread of 1; the first is constant, its variance zero. */
static void put_rows_of_300(const tern_tensor *leaf, double *values)
{
    if (strcmp(leaf->label, "a") != 0) return;
    for (int64_t i = 0; i < tern_count(leaf); i++) values[i] = i < 4096 ? 300 : (double)(float)(300 + values[i]);
}

/* -------------------------------------------------------------------- losses */

BUILD(cross_entropy)
{
    tern_tensor *labels = tern_input_1d(graph, "labels", TERN_I32, 7);
    OUT(tern_cross_entropy(P("a", 7, c->argument), labels, -1));
}

/* Label 2 is ignored: no loss, no gradient. */
BUILD(cross_entropy_ignore)
{
    tern_tensor *labels = tern_input_2d(graph, "labels", TERN_I32, 5, 33);
    OUT(tern_cross_entropy(P("a", 5, 33, 7), labels, 2));
    tern_tensor *bytes = tern_input_1d(graph, "bytes", TERN_U8, 31);
    OUT(tern_cross_entropy(P("b", 31, 7), bytes, -1));
}

/* The whole classifier's end: a mean over all positions, so that the row kernel's gradient comes from one scalar. */
BUILD(cross_entropy_mean)
{
    tern_tensor *labels = tern_input_1d(graph, "labels", TERN_I32, 33);
    OUT(tern_mean(tern_cross_entropy(tern_linear(P("a", 33, 17), "fc", 65), labels, -1), 0));
}

/* ------------------------------------------------------------ what is not finite */

/* One number per row that overflows, underflows or is none, in each dtype's own places: 65504 is the largest f16, 65520
 * rounds to infinity there, 6e-8 is its smallest subnormal, 3e-8 rounds up to it or to 0, 9.2e-41 is bf16's. */
static void put_one_special_a_row(const tern_tensor *leaf, double *values)
{
    static const double specials[] = {NAN,    INFINITY, -INFINITY, 65504, -65504, 65519,  65520,
                                      -65520, 5.9e-8,   3e-8,      2e-8,  -6e-8,  6.2e-5, 1e-39};
    const int64_t count = (int64_t)(sizeof specials / sizeof *specials), columns = leaf->shape[leaf->rank - 1];
    if (leaf->op != TERN_OP_PARAMETER || leaf->label[0] != 's') return;
    for (int64_t i = 0; i < tern_count(leaf); i++)
        if (i % columns == i / columns % columns) values[i] = (double)(float)specials[i / columns % count];
}

static tern_tensor *ones_like(const tern_check_case *c, tern_tensor *x, int64_t rows, int64_t columns)
{
    tern_tensor *ones = tern_expand(tern_constant(x->graph, 1), SHAPE(rows, columns));
    return tern_cast(ones, c->dtype);
}

/* Every kind of op that autocast runs in 16 bit or in front of which it widens. */
BUILD(specials_rows)
{
    tern_tensor *x = P("s", 28, 9), *heads = tern_reshape(x, SHAPE(28, 1, 1, 9));
    OUT(tern_matmul(tern_reshape(x, SHAPE(252, 1)), ones_like(c, x, 1, 1)));
    OUT(tern_matmul(tern_slice(x, 1, 0, 5), tern_slice(P("t", 9, 7), 0, 0, 5)));
    OUT(tern_attention(P("q", 28, 1, 1, 9), P("k", 28, 1, 1, 9), heads, 1.0, false));
    OUT(tern_attention(heads, P("l", 28, 5, 1, 9), P("v", 28, 5, 1, 9), 1.0, false));
    OUT(tern_linear(x, "fc", 5));
    OUT(tern_add(x, P("r", 28, 9)));
    OUT(tern_mul(x, tern_constant(graph, 0.5)));
    OUT(tern_relu(x));
    OUT(tern_gelu(x));
    OUT(tern_softmax(x, -1));
    OUT(tern_layer_norm(x, P("w", 9), P("b", 9), 1e-5));
    OUT(tern_sum(x, -1));
    OUT(tern_maximum(x, -1));
    OUT(tern_gather(x, tern_input_1d(graph, "ids", TERN_I32, 33)));
    OUT(tern_cross_entropy(x, tern_input_1d(graph, "labels", TERN_I32, 28), -1));
    OUT(tern_mse(x, P("m", 28, 9)));
    OUT(tern_cast(tern_cast(x, TERN_BF16), TERN_F32));
    OUT(tern_cast(tern_cast(x, TERN_F16), TERN_F32));
}

/* Scores of +-1e4 where f16 has no exponent left for their exponentials. */
static void put_large_scores(const tern_tensor *leaf, double *values)
{
    const bool is_query = leaf->label[0] == 'q', is_key = leaf->label[0] == 'k';
    if (!is_query && !is_key) return;
    for (int64_t i = 0; i < tern_count(leaf); i++)
        values[i] = i % 8 == 0 ? (is_query ? (i / 8 % 2 ? 100 : -100) : 100.0 - (double)(i / 8 % 5)) : 0;
}
BUILD(attention_large)
{
    OUT(tern_attention(P("q", 2, 33, 3, 8), P("k", 2, 33, 3, 8), P("v", 2, 33, 3, 8), 1.0, true));
}

#define ROWS(op_name, case_name, how, lo, hi)                                                                          \
    .op = op_name, .name = case_name, .dtype = TERN_F32, .build = how, .gradient = true, .low = lo, .high = hi

const tern_check_case tern_check_row_cases[] = {
    {ROWS("sum", "axes", reduce_axes, -3, 3), .argument = 0},
    {ROWS("mean", "axes", reduce_axes, -3, 3), .argument = 1},
    {ROWS("maximum", "axes", reduce_axes, -3, 3), .argument = 2},
    {ROWS("sum", "masks", reduce_masks, -3, 3)},
    {.op = "maximum", .name = "ties", .dtype = TERN_F32, .build = maximum_ties, .low = -3, .high = 3},
    {ROWS("maximum", "tied-gradient", maximum_tied_gradient, 0.5, 3)},
    {ROWS("row", "chain", row_chain, -3, 3)},
    {ROWS("softmax", "shapes", softmax_shapes, -3, 3)},
    {ROWS("softmax", "70001-rows", softmax_many_rows, -3, 3)},
    {ROWS("softmax", "logits-200", softmax_rows, -200, 200)},
    {ROWS("softmax", "minus-infinity", softmax_rows, -3, 3), .fill = put_lone_numbers},
    {ROWS("layer_norm", "shapes", layer_norm, -3, 3)},
    /* The mean of 300s is rounded to f32: half a unit there, 1.5e-5, against a spread of 0.58. */
    {ROWS("layer_norm", "rows-of-300", layer_norm_wide, -1, 1), .fill = put_rows_of_300, .tolerance = 5e-5},
    {ROWS("cross_entropy", "vocab-65", cross_entropy, -3, 3), .argument = 65, .below = 65},
    {ROWS("cross_entropy", "vocab-50257", cross_entropy, -3, 3), .argument = 50257, .below = 50257},
    {ROWS("cross_entropy", "vocab-65537", cross_entropy, -3, 3), .argument = 65537, .below = 65537},
    {ROWS("cross_entropy", "logits-200", cross_entropy, -200, 200), .argument = 257, .below = 257},
    {ROWS("cross_entropy", "ignore", cross_entropy_ignore, -3, 3), .below = 7},
    {ROWS("cross_entropy", "mean", cross_entropy_mean, -1, 1), .below = 65},
    /* Values only: beside 65504 a gradient of f32 is what cancellation leaves. */
    {.op = "specials",
     .name = "rows",
     .dtype = TERN_F32,
     .build = specials_rows,
     .low = -1,
     .high = 1,
     .fill = put_one_special_a_row,
     .below = 9},
    /* A score of 1e4 is known to 1e-3 in f32, and so is its exponential. */
    {ROWS("attention", "scores-1e4", attention_large, -1, 1), .fill = put_large_scores, .tolerance = 2e-3},
    {.op = NULL},
};
