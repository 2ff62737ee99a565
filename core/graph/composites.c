/* SPDX-License-Identifier: Apache-2.0 */
/* composites.c - what networks are made of, as functions over the primitives: activations, norms, dropout, losses.
 *
 * None has a gradient rule; each is written so that the gradient which follows from its primitives is finite and
 * accurate wherever the function is, and so that what must be kept for it is one number per row (the results of SUM and
 * MAXIMUM). The comment above each gives the formula, the gradient where it is not obvious, and why it is written that
 * way. */
#include "core/base/dtype.h"
#include "core/graph/build.h"

#include <math.h>
#include <stdio.h>

/* Every composite begins with this: operands present, graph healthy. Those that compute widen 16-bit floats next and
 * narrow their result once, so that nothing in between is rounded to 16 bits. */
#define READY(name, count, ...)                                                                                        \
    tern_tensor *instead;                                                                                              \
    if (!tern_build_ready(name, count, (tern_tensor *[]){__VA_ARGS__}, &instead)) return instead

/* ------------------------------------------------------------------ linear */

/* y = x W^T + b; W starts uniform in +- 1/sqrt(in), b at zero. */
tern_tensor *tern_linear(tern_tensor *x, const char *name, int64_t out_features)
{
    READY("linear", 1, x);
    char weight[256], bias[256];
    if (!name || !name[0] || snprintf(weight, sizeof weight, "%s.weight", name) >= (int)sizeof weight || x->rank < 1)
        return tern_graph_fail(x->graph, TERN_ERROR_INVALID,
                               "linear \"%.40s\": x %s needs an axis, and the name 1 to 240 bytes", name ? name : "",
                               tern_describe(x).text);
    snprintf(bias, sizeof bias, "%s.bias", name);
    int64_t in_features = x->shape[x->rank - 1], shape[TERN_MAX_RANK];
    tern_tensor *w = tern_parameter(x->graph, weight, 2, (int64_t[]){out_features, in_features}, TERN_INIT_UNIFORM,
                                    1.0 / sqrt((double)in_features));
    tern_tensor *b = tern_parameter(x->graph, bias, 1, &out_features, TERN_INIT_ZEROS, 0);
    for (int32_t i = 0; i < x->rank; i++) shape[i] = x->shape[i];
    shape[x->rank - 1] = out_features;
    if (x->rank == 1) x = tern_reshape(x, 2, (int64_t[]){1, in_features});
    if (tern_dtype_is_16bit_float(x->dtype)) w = tern_cast(w, x->dtype);
    tern_tensor *y = tern_narrow(tern_add(tern_matmul_wide(x, tern_transpose(w, 0, 1)), b), x->dtype);
    return y->graph->status < 0 || tern_has_shape(y, y->rank, shape) ? y : tern_reshape(y, 1, shape);
}

/* ------------------------------------------------------------- activations */

/* x where x > 0, else 0; gradient 0 at 0. Written with "not above zero" so that NaN stays NaN. */
tern_tensor *tern_relu(tern_tensor *x)
{
    READY("relu", 1, x);
    const int32_t dtype = tern_widen_all(1, &x);
    tern_tensor *zero = tern_scalar_like(x, 0);
    return tern_narrow(tern_where(tern_or(tern_less(x, zero), tern_equal(x, zero)), zero, x), dtype);
}

/* 1 / (1 + e^-x) as r = 1 / (1 + e^-|x|), and e^-|x| r where x < 0: nothing overflows, and small values keep all
 * digits. */
tern_tensor *tern_sigmoid(tern_tensor *x)
{
    READY("sigmoid", 1, x);
    const int32_t dtype = tern_widen_all(1, &x);
    tern_tensor *negative = tern_less(x, tern_scalar_like(x, 0));
    tern_tensor *e = tern_exp(tern_where(negative, x, tern_neg(x)));
    tern_tensor *r = tern_recip(tern_add(e, tern_constant(x->graph, 1)));
    return tern_narrow(tern_where(negative, tern_mul(e, r), r), dtype);
}

tern_tensor *tern_silu(tern_tensor *x)
{
    READY("silu", 1, x);
    const int32_t dtype = tern_widen_all(1, &x);
    return tern_narrow(tern_mul(x, tern_sigmoid(x)), dtype);
}

/* x/2 (1 + erf(x / sqrt 2)); gradient Phi(x) + x phi(x). */
tern_tensor *tern_gelu(tern_tensor *x)
{
    READY("gelu", 1, x);
    const int32_t dtype = tern_widen_all(1, &x);
    tern_tensor *phi = tern_add(tern_erf(tern_scale(x, 0.70710678118654752440)), tern_constant(x->graph, 1));
    return tern_narrow(tern_mul(tern_scale(x, 0.5), phi), dtype);
}

/* x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). Source: Hendrycks and Gimpel, "Gaussian error linear units", 2016. */
tern_tensor *tern_gelu_tanh(tern_tensor *x)
{
    READY("gelu_tanh", 1, x);
    const int32_t dtype = tern_widen_all(1, &x);
    tern_tensor *one = tern_constant(x->graph, 1);
    tern_tensor *inner = tern_add(tern_scale(tern_mul(x, x), 0.044715), one);
    tern_tensor *t = tern_tanh(tern_mul(tern_scale(x, 0.79788456080286535588), inner));
    return tern_narrow(tern_mul(tern_scale(x, 0.5), tern_add(t, one)), dtype);
}

/* ------------------------------------------------------- softmax and friends */

/* x minus its row maximum. The maximum is detached: softmax does not change with it, so no gradient is lost. */
static tern_tensor *below_maximum(tern_tensor *x, int32_t axis)
{
    return tern_sub(x, tern_detach(tern_maximum(x, axis)));
}

/* y = e / sum e, e = exp(x - max). With one row sum s: dx = e (dy - sum(dy e) / s) / s. */
tern_tensor *tern_softmax(tern_tensor *x, int32_t axis)
{
    READY("softmax", 1, x);
    const int32_t dtype = tern_widen_all(1, &x);
    tern_tensor *e = tern_exp(below_maximum(x, axis));
    return tern_narrow(tern_mul(e, tern_recip(tern_sum(e, axis))), dtype);
}

tern_tensor *tern_log_softmax(tern_tensor *x, int32_t axis)
{
    READY("log_softmax", 1, x);
    const int32_t dtype = tern_widen_all(1, &x);
    tern_tensor *z = below_maximum(x, axis);
    return tern_narrow(tern_sub(z, tern_log(tern_sum(tern_exp(z), axis))), dtype);
}

/* Two passes (mean first, then the centred squares): rows of a large constant keep their variance. Kept for the
 * gradient are the two sums of each row. */
tern_tensor *tern_layer_norm(tern_tensor *x, tern_tensor *weight, tern_tensor *bias, double epsilon)
{
    READY("layer_norm", 1, x);
    tern_tensor *affine[2] = {weight, bias};
    for (int32_t i = 0; i < 2; i++) {
        if (!affine[i]) continue;
        if (!tern_build_ready("layer_norm", 2, (tern_tensor *[]){x, affine[i]}, &instead)) return instead;
        if (x->rank < 1 || affine[i]->rank != 1 || affine[i]->shape[0] != x->shape[x->rank - 1])
            return tern_graph_fail(x->graph, TERN_ERROR_INVALID,
                                   "layer_norm: %s %s does not match the last axis of x %s", i ? "bias" : "weight",
                                   tern_describe(affine[i]).text, tern_describe(x).text);
    }
    const int32_t dtype = tern_widen_all(1, &x); /* weight and bias never make the result wider */
    tern_widen_all(2, affine);
    tern_tensor *centered = tern_sub(x, tern_mean(x, -1));
    tern_tensor *variance = tern_mean(tern_mul(centered, centered), -1);
    tern_tensor *y = tern_mul(centered, tern_rsqrt(tern_add(variance, tern_constant(x->graph, epsilon))));
    if (weight) y = tern_mul(y, affine[0]);
    if (bias) y = tern_add(y, affine[1]);
    return tern_narrow(y, dtype);
}

/* The mask is one RANDOM node, used forward and through WHERE's gradient backward, so both see the same bits; an
 * element is dropped when its 32 bits are below probability * 2^32. A copy for evaluation (passes/instance.h) reads x
 * in its place. */
tern_tensor *tern_dropout(tern_tensor *x, double probability, const char *label)
{
    READY("dropout", 1, x);
    if (!(probability >= 0 && probability < 1))
        return tern_graph_fail(x->graph, TERN_ERROR_INVALID, "dropout \"%s\": probability %g of %s is outside [0, 1)",
                               label ? label : "", probability, tern_describe(x).text);
    if (probability <= 0 || !x->graph->training) return x;
    tern_tensor *bits = tern_random(x->graph, label, x->rank, x->shape);
    tern_tensor *threshold = tern_constant_u32(x->graph, (uint32_t)(probability * 4294967296.0));
    tern_tensor *whole = x;
    const int32_t dtype = tern_widen_all(1, &x);
    tern_tensor *y = tern_narrow(
        tern_where(tern_less(bits, threshold), tern_constant(x->graph, 0), tern_scale(x, 1 / (1 - probability))),
        dtype);
    if (x->graph->status >= 0) y->in_evaluation = whole;
    return y;
}

/* ------------------------------------------------------------------ losses */

/* Labels as u32, so that one comparison serves every integer type; a negative i32 becomes a large u32, equal to no
 * class. */
static tern_tensor *labels_u32(tern_tensor *labels)
{
    return labels->dtype == TERN_I32 ? tern_bitcast(labels, TERN_U32) : tern_cast(labels, TERN_U32);
}

/* 1 where the label is to be ignored, or NULL when no label of this type can be. */
static tern_tensor *ignored_labels(tern_tensor *labels, int64_t ignore_index)
{
    int64_t low = labels->dtype == TERN_I32 ? INT32_MIN : 0;
    int64_t high = labels->dtype == TERN_I32   ? INT32_MAX
                   : labels->dtype == TERN_U8  ? UINT8_MAX
                   : labels->dtype == TERN_U16 ? UINT16_MAX
                                               : UINT32_MAX;
    if (ignore_index < low || ignore_index > high) return NULL;
    return tern_equal(labels_u32(labels), tern_constant_u32(labels->graph, (uint32_t)ignore_index));
}

/* loss = log sum exp z - z[label], z = logits - max. The target is picked by comparing the label with INDEX and
 * summing, which fuses into the row kernel and never multiplies by a mask: logits of -inf beside the target stay
 * harmless. A label outside [0, V) that is not ignored picks nothing, its loss is log sum exp z; whoever feeds labels
 * checks them. */
tern_tensor *tern_cross_entropy(tern_tensor *logits, tern_tensor *labels, int64_t ignore_index)
{
    READY("cross_entropy", 2, logits, labels);
    tern_graph *graph = logits->graph;
    const tern_dtype_info *type = tern_dtype(labels->dtype);
    if (!tern_dtype(logits->dtype)->is_float || !type || type->is_float || logits->rank < 1 ||
        !tern_has_shape(labels, logits->rank - 1, logits->shape))
        return tern_graph_fail(graph, TERN_ERROR_INVALID,
                               "cross_entropy: logits %s must be (..., V) floats and labels %s integers (...)",
                               tern_describe(logits).text, tern_describe(labels).text);
    int64_t column[TERN_MAX_RANK];
    for (int32_t i = 0; i < logits->rank; i++) column[i] = i < logits->rank - 1 ? logits->shape[i] : 1;

    tern_tensor *zero = tern_constant(graph, 0);
    tern_tensor *z = below_maximum(tern_widen(logits), -1);
    tern_tensor *log_sum = tern_log(tern_sum(tern_exp(z), -1));
    tern_tensor *classes = tern_index(graph, logits->rank, logits->shape, -1);
    tern_tensor *is_target = tern_equal(classes, tern_reshape(labels_u32(labels), logits->rank, column));
    tern_tensor *target = tern_sum(tern_where(is_target, z, zero), -1);
    tern_tensor *loss = tern_reshape(tern_sub(log_sum, target), logits->rank - 1, logits->shape);

    tern_tensor *ignored = ignored_labels(labels, ignore_index);
    if (!ignored) return loss;
    loss = tern_where(ignored, zero, loss);
    if (graph->status >= 0) loss->weight = tern_where(ignored, zero, tern_constant(graph, 1));
    return loss;
}

tern_tensor *tern_mse(tern_tensor *x, tern_tensor *target)
{
    READY("mse", 2, x, target);
    tern_tensor *difference = tern_sub(tern_widen(x), tern_widen(target)); /* a loss is f32 */
    return tern_mul(difference, difference);
}
