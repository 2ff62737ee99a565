/* SPDX-License-Identifier: Apache-2.0 */
/* conv.c - 2-D convolution and pooling as compositions of the primitives: every backend runs them, gradients follow.
 *
 * What it is not: a convolution kernel. A template of its own, which reads its patches while it multiplies, can take
 * the place of tern_conv2d's inside without changing what it means.
 *
 *     x (N, C, H, W) ── pad ── permute ── unfold along the width only ──> P (row phase, G, C/G KW, rows N OW)
 *     y (G, O/G, OH N OW) = sum over kh of W[kh] (G, O/G, C/G KW) * P[rows from kh on]          KH matmuls
 *
 * Rows stand outside N and OW in P, so the OH rows that the kernel's row kh meets are one contiguous piece of it: each
 * matmul reads its operand in place. Stride s sends row h to phase h mod s, where its neighbours are again contiguous.
 *
 * Why not the usual matrix of all KH KW taps with one matmul: a concatenation computes every element from all of its
 * pieces, so KH KW loads instead of KW, and the matrix is KH times as large. Why not one matmul per tap: KH KW
 * launches, each of which reads and writes the whole of y. Best of six on 2 cores, forward and backward; I: one 5
 * x 5 layer of stride 2, (8, 3, 32, 32) to 32 channels; II: two 3 x 3 layers of 32 channels on (8, 32, 28, 28):
 *
 *                                   launches      MB moved      arena MB       cpu ms       opencl ms
 *                                     I   II       I    II       I    II       I    II       I     II
 *     all taps in one matrix          7   28     4.7   179     1.2   19        8    61     3.5     28
 *     a matmul per tap               78   80      35   207     3.3   14        4    25     6.5     25
 *     a row of taps per matmul       17   30     7.1    90     1.9   12        2    19     1.7     17
 *
 * Invariant: everything is refused before the first node is made, so a refused layer leaves no nodes behind. Out of
 * memory later, every builder returns the graph's inert tensor, so nothing here has to look. */
#include "core/base/dtype.h"
#include "core/graph/build.h"

typedef struct conv_shape {
    int64_t n, c, h, w; /* x */
    int64_t o, kh, kw;  /* weight */
    int64_t oh, ow;     /* y */
    int64_t stride, padding, groups;
    int64_t phases;        /* row phases that a kernel row meets: min(stride, KH) */
    int64_t rows, columns; /* rows and columns of one phase */
} conv_shape;

/* ------------------------------------------------------------------ checks */

static tern_tensor *refuse_shapes(tern_tensor *x, const tern_tensor *weight, const tern_tensor *bias, int64_t groups)
{
    return tern_graph_fail(x->graph, TERN_ERROR_INVALID,
                           "conv2d: x %s, weight %s and bias %s do not fit with %lld groups; x is (N, C, H, W), weight "
                           "(O, C / groups, KH, KW) and bias (O), all floats, and groups divides C and O",
                           tern_describe(x).text, tern_describe(weight).text, bias ? tern_describe(bias).text : "none",
                           (long long)groups);
}

static bool is_float(const tern_tensor *x) { return tern_dtype(x->dtype)->is_float; }

static bool operands_fit(const tern_tensor *x, const tern_tensor *weight, const tern_tensor *bias, int64_t groups)
{
    if (x->rank != 4 || weight->rank != 4 || !is_float(x) || !is_float(weight) || groups < 1) return false;
    if (x->shape[1] % groups != 0 || weight->shape[0] % groups != 0 || x->shape[1] / groups != weight->shape[1])
        return false;
    return !bias || (is_float(bias) && tern_has_shape(bias, 1, weight->shape));
}

/* Output size along one axis; below 1 where the kernel is larger than the padded axis. */
static int64_t output_size(int64_t size, int64_t kernel, int64_t stride, int64_t padding)
{
    int64_t room = size + 2 * padding - kernel;
    return room < 0 ? 0 : room / stride + 1;
}

static int64_t at_least(int64_t count, int64_t unit) { return (count + unit - 1) / unit; }

/* The largest tensors between x and y have fewer than 2^31 elements. Products in double: they are only compared. */
static bool addressable(tern_tensor *x, const tern_tensor *weight, const conv_shape *s)
{
    const double images = (double)(s->n * s->c), line = (double)s->rows * (double)s->stride;
    const double padded = images * line * (double)s->columns * (double)s->stride;
    const double unfolded = images * (double)(s->phases * s->kw) * (double)s->rows * (double)s->ow;
    if (padded <= INT32_MAX && unfolded <= INT32_MAX) return true;
    tern_graph_fail(
        x->graph, TERN_ERROR_UNSUPPORTED,
        "conv2d: x %s padded for weight %s (stride %lld, padding %lld) takes %.3g elements, unfolded along the "
        "width %.3g; both must stay below 2^31, so use a smaller micro-batch, image or stride",
        tern_describe(x).text, tern_describe(weight).text, (long long)s->stride, (long long)s->padding, padded,
        unfolded);
    return false;
}

/* Fills *s; false after an error. */
static bool measure(tern_tensor *x, const tern_tensor *weight, int64_t stride, int64_t padding, int64_t groups,
                    conv_shape *s)
{
    if (stride < 1 || padding < 0 || stride > INT32_MAX || padding > INT32_MAX / 4) {
        tern_graph_fail(x->graph, TERN_ERROR_INVALID,
                        "conv2d: stride %lld and padding %lld for x %s and weight %s; stride must be at least 1 and "
                        "padding 0 or more, both in pixels",
                        (long long)stride, (long long)padding, tern_describe(x).text, tern_describe(weight).text);
        return false;
    }
    const int64_t *from = x->shape, *kernel = weight->shape;
    *s = (conv_shape){.n = from[0],
                      .c = from[1],
                      .h = from[2],
                      .w = from[3],
                      .o = kernel[0],
                      .kh = kernel[2],
                      .kw = kernel[3],
                      .oh = output_size(from[2], kernel[2], stride, padding),
                      .ow = output_size(from[3], kernel[3], stride, padding),
                      .stride = stride,
                      .padding = padding,
                      .groups = groups,
                      .phases = stride < kernel[2] ? stride : kernel[2]};
    if (s->oh < 1 || s->ow < 1) {
        tern_graph_fail(x->graph, TERN_ERROR_INVALID,
                        "conv2d: the kernel of weight %s is larger than x %s with %lld pixels of padding on each side",
                        tern_describe(weight).text, tern_describe(x).text, (long long)padding);
        return false;
    }
    s->rows = s->oh - 1 + at_least(s->kh, stride);
    s->columns = s->ow - 1 + at_least(s->kw, stride);
    return addressable(x, weight, s);
}

/* ---------------------------------------------------------------- patches */

/* One spatial axis with `padding` zeros in front, cut or filled behind to `size`. */
static tern_tensor *fit_axis(tern_tensor *x, int32_t axis, int64_t padding, int64_t size)
{
    int64_t room = size - padding;
    if (x->shape[axis] > room) x = tern_slice(x, axis, 0, room);
    return tern_pad(x, axis, padding, room - x->shape[axis]);
}

/* x as (row phase, column phase, C, rows, N, columns). */
static tern_tensor *split_phases(tern_tensor *x, const conv_shape *s)
{
    x = fit_axis(x, 2, s->padding, s->rows * s->stride);
    x = fit_axis(x, 3, s->padding, s->columns * s->stride);
    x = tern_reshape(x, 6, (const int64_t[]){s->n, s->c, s->rows, s->stride, s->columns, s->stride});
    return tern_permute(x, (const int32_t[]){3, 5, 1, 2, 0, 4});
}

/* P (row phase, G, C/G KW, rows N OW): for each row phase and column kw of the kernel the pixels that it meets. */
static tern_tensor *unfold_width(tern_tensor *x, const conv_shape *s)
{
    const int64_t line = s->rows * s->n * s->ow, shape[6] = {s->phases, 1, s->c, s->rows, s->n, s->ow};
    const int64_t total[4] = {s->phases, s->groups, s->c / s->groups * s->kw, line};
    tern_tensor *split = split_phases(x, s), *p = NULL;
    for (int64_t kw = 0; kw < s->kw; kw++) {
        const int64_t starts[6] = {0, kw % s->stride, 0, 0, 0, kw / s->stride};
        tern_tensor *piece =
            tern_reshape(tern_slice_all(split, starts, shape), 4, (const int64_t[]){s->phases, s->c, 1, line});
        piece = tern_pad(piece, 2, kw, s->kw - 1 - kw); /* its place among the KW: their sum is the concatenation */
        p = p ? tern_add(p, piece) : piece;
    }
    return tern_reshape(p, 4, total);
}

/* ------------------------------------------------------------ convolution */

/* y (O, OH, N, OW) in any shape and the bias. It joins before the axes change places: there it is part of the last
 * matmul's epilogue. */
static tern_tensor *add_bias(tern_tensor *y, tern_tensor *bias, const conv_shape *s)
{
    y = tern_reshape(y, 2, (const int64_t[]){s->o, s->oh * s->n * s->ow});
    return bias ? tern_add(y, tern_reshape(bias, 2, (const int64_t[]){s->o, 1})) : y;
}

/* y (O, OH, N, OW) in any shape, as (N, O, OH, OW). */
static tern_tensor *finish(tern_tensor *y, const conv_shape *s)
{
    y = tern_reshape(y, 4, (const int64_t[]){s->o, s->oh, s->n, s->ow});
    return tern_permute(y, (const int32_t[]){2, 0, 1, 3});
}

/* dtype: what the matmuls' operands are stored as; x comes from there, so that its patches lose nothing. */
static tern_tensor *by_rows(tern_tensor *x, tern_tensor *weight, tern_tensor *bias, int32_t dtype, const conv_shape *s)
{
    const int64_t inner = s->c / s->groups, k = inner * s->kw, outer = s->o / s->groups, line = s->n * s->ow;
    tern_tensor *p = tern_narrow(unfold_width(x, s), dtype), *y = NULL;
    weight = tern_reshape(tern_narrow(weight, dtype), 5, (const int64_t[]){s->groups, outer, inner, s->kh, s->kw});
    weight = tern_permute(weight, (const int32_t[]){3, 0, 1, 2, 4});
    for (int64_t kh = 0; kh < s->kh; kh++) {
        const int64_t starts[4] = {kh % s->stride, 0, 0, kh / s->stride * line};
        const int64_t shape[4] = {1, s->groups, k, s->oh * line};
        tern_tensor *pixels = tern_reshape(tern_slice_all(p, starts, shape), 3, shape + 1);
        tern_tensor *row = tern_reshape(tern_slice(weight, 0, kh, 1), 3, (const int64_t[]){s->groups, outer, k});
        tern_tensor *product = tern_matmul_3d(row, pixels);
        y = y ? tern_add(y, product) : product;
    }
    return add_bias(y, bias, s);
}

/* y += the taps that meet one phase (C, rows, N, columns) of x; (C, OH N OW). A phase is cut out once and then shifted:
 * its gradient is the sum of the taps' (a PAD on two axes each), which is put among the phases in a second step; all
 * four axes at once would be more masks than a kernel's load has. */
static tern_tensor *add_phase(tern_tensor *y, tern_tensor *phase, tern_tensor *weight, int64_t row, int64_t column,
                              const conv_shape *s)
{
    const int64_t shape[4] = {s->c, s->oh, s->n, s->ow}, one[4] = {s->c, 1, 1, 1};
    for (int64_t kh = row; kh < s->kh; kh += s->stride) {
        for (int64_t kw = column; kw < s->kw; kw += s->stride) {
            const int64_t starts[4] = {0, kh / s->stride, 0, kw / s->stride}, at[4] = {0, 0, kh, kw};
            tern_tensor *pixels = tern_reshape(tern_slice_all(phase, starts, shape), 2, (const int64_t[]){s->c, -1});
            tern_tensor *factor = tern_reshape(tern_slice_all(weight, at, one), 2, (const int64_t[]){s->c, 1});
            tern_tensor *term = tern_mul(pixels, factor);
            y = y ? tern_add(y, term) : term;
        }
    }
    return y;
}

/* One filter per channel: nothing is contracted, so it is one elementwise kernel over y with KH KW loads of x. */
static tern_tensor *by_channel(tern_tensor *x, tern_tensor *weight, tern_tensor *bias, const conv_shape *s)
{
    const int64_t shape[6] = {1, 1, s->c, s->rows, s->n, s->columns};
    tern_tensor *split = split_phases(x, s), *y = NULL;
    for (int64_t row = 0; row < s->stride && row < s->kh; row++) {
        for (int64_t column = 0; column < s->stride && column < s->kw; column++) {
            tern_tensor *phase = tern_slice_all(split, (const int64_t[]){row, column, 0, 0, 0, 0}, shape);
            y = add_phase(y, tern_reshape(phase, 4, shape + 2), weight, row, column, s);
        }
    }
    return add_bias(y, bias, s);
}

tern_tensor *tern_conv2d(tern_tensor *x, tern_tensor *weight, tern_tensor *bias, int64_t stride, int64_t padding,
                         int64_t groups)
{
    tern_tensor *in[3] = {x, weight, bias}, *instead;
    conv_shape s;
    if (!tern_build_ready("conv2d", bias ? 3 : 2, in, &instead)) return instead;
    if (!operands_fit(x, weight, bias, groups)) return refuse_shapes(x, weight, bias, groups);
    if (!measure(x, weight, stride, padding, groups, &s)) return x->graph->inert;
    const int32_t dtype = tern_widen_all(1, in);
    tern_widen_all(2, in + 1);
    const bool channels = s.groups == s.c && s.o == s.c && s.c > 1;
    tern_tensor *y = channels ? by_channel(in[0], in[1], in[2], &s) : by_rows(in[0], in[1], in[2], dtype, &s);
    return finish(tern_narrow(y, dtype), &s);
}

/* ---------------------------------------------------------------- pooling */

/* x (N, C, H, W) as windows (N C OH OW, size size); what does not fill a window is left out. */
static tern_tensor *windows(const char *op, tern_tensor *x, int64_t size)
{
    if (x->rank != 4 || !is_float(x) || size < 1 || size > x->shape[2] || size > x->shape[3])
        return tern_graph_fail(
            x->graph, TERN_ERROR_INVALID,
            "%s: x %s with windows of %lld x %lld pixels; x is (N, C, H, W) floats and a window at most "
            "as large as H and W",
            op, tern_describe(x).text, (long long)size, (long long)size);
    const int64_t n = x->shape[0], c = x->shape[1], oh = x->shape[2] / size, ow = x->shape[3] / size;
    x = tern_slice_all(x, (const int64_t[]){0, 0, 0, 0}, (const int64_t[]){n, c, oh * size, ow * size});
    x = tern_reshape(x, 6, (const int64_t[]){n, c, oh, size, ow, size});
    x = tern_permute(x, (const int32_t[]){0, 1, 2, 4, 3, 5});
    return tern_reshape(x, 2, (const int64_t[]){n * c * oh * ow, size * size});
}

static tern_tensor *pool(const char *op, tern_tensor *x, int64_t size,
                         tern_tensor *(*reduce)(tern_tensor *x, int32_t axis))
{
    tern_tensor *instead;
    if (!tern_build_ready(op, 1, &x, &instead)) return instead;
    tern_tensor *y = reduce(windows(op, x, size), 1);
    if (y == x->graph->inert) return y; /* size may be 0 */
    return tern_reshape(y, 4, (const int64_t[]){x->shape[0], x->shape[1], x->shape[2] / size, x->shape[3] / size});
}

tern_tensor *tern_avg_pool2d(tern_tensor *x, int64_t size) { return pool("avg_pool2d", x, size, tern_mean); }
tern_tensor *tern_max_pool2d(tern_tensor *x, int64_t size) { return pool("max_pool2d", x, size, tern_maximum); }
