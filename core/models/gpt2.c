/* SPDX-License-Identifier: Apache-2.0 */
/* gpt2.c - the model's graph; shapes stand beside each line. B batch, T context, C width, H heads, D = C / H, V
 * vocabulary.
 *
 * Invariant: every parameter is made by exactly one line here, so that names and layouts can be read off this file. */
#include "core/models/gpt2.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define NAME_BYTES    96
#define MAX_HEAD      256u /* tern_attention's limit */
#define INITIAL_RANGE 0.02 /* standard deviation of the initial weights */

static const struct {
    const char *name;
    tern_gpt2_options options;
} presets[] = {
    {"gpt2", {12, 12, 768, 50257, 1024, 1024, 1, 0.1, 1e-5}},
    {"gpt2-medium", {24, 16, 1024, 50257, 1024, 1024, 1, 0.1, 1e-5}},
    {"gpt2-large", {36, 20, 1280, 50257, 1024, 1024, 1, 0.1, 1e-5}},
    {"gpt2-xl", {48, 25, 1600, 50257, 1024, 1024, 1, 0.1, 1e-5}},
    {"gpt-s", {4, 8, 256, 256, 128, 128, 8, 0.0, 1e-5}},
};

tern_status tern_gpt2_preset(const char *name, tern_gpt2_options *out_options)
{
    char known[256] = "";
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        if (strcmp(name, presets[i].name) == 0) {
            *out_options = presets[i].options;
            return TERN_OK;
        }
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i > 0 ? ", " : "", presets[i].name);
    }
    return tern_error(TERN_ERROR_NOT_FOUND, "there is no model \"%s\"; known are %s", name, known);
}

static tern_status check_sizes(const tern_gpt2_options *o)
{
    const struct {
        const char *name;
        uint32_t value, most;
    } sizes[] = {
        {"layers", o->layers, 4096},           {"heads", o->heads, 65536},        {"width", o->width, 1u << 20},
        {"vocabulary", o->vocab, 1u << 30},    {"context", o->context, 1u << 24}, {"batch", o->batch, 1u << 24},
        {"positions", o->positions, 1u << 24},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].value < 1 || sizes[i].value > sizes[i].most)
            return tern_error(TERN_ERROR_INVALID, "%s is %u; it must lie in [1, %u]", sizes[i].name, sizes[i].value,
                              sizes[i].most);
    return TERN_OK;
}

/* No batch helps a model with a weight, or with activations of one window, above what kernels can index. */
static tern_status check_tensors(const tern_gpt2_options *o)
{
    const struct {
        const char *name, *smaller;
        uint64_t rows, columns;
    } tensors[] = {
        {"wte.weight", "vocabulary or the width", o->vocab, o->width},
        {"wpe.weight", "width or the number of positions", o->positions, o->width},
        {"h.0.mlp.c_fc.weight", "width", o->width, 4u * o->width},
        {"the logits of one window", "vocabulary or the context", o->context, o->vocab},
        {"the MLP's values of one window", "context or the width", o->context, 4u * o->width},
    };
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        if (tensors[i].rows * tensors[i].columns > INT32_MAX)
            return tern_error(
                TERN_ERROR_UNSUPPORTED,
                "the model is too large: %s, %llu by %llu, has %llu elements, and a tensor must have fewer "
                "than 2^31; make the %s smaller",
                tensors[i].name, (unsigned long long)tensors[i].rows, (unsigned long long)tensors[i].columns,
                (unsigned long long)(tensors[i].rows * tensors[i].columns), tensors[i].smaller);
    return TERN_OK;
}

tern_status tern_gpt2_check(const tern_gpt2_options *options)
{
    tern_status status = check_sizes(options);
    if (status < 0) return status;
    if (options->width % options->heads != 0)
        return tern_error(TERN_ERROR_INVALID,
                          "%u heads do not divide a width of %u; make the width a multiple of the heads",
                          options->heads, options->width);
    if (options->width / options->heads > MAX_HEAD)
        return tern_error(TERN_ERROR_INVALID,
                          "a width of %u in %u heads makes heads of %u; at most %u are supported, so use more heads",
                          options->width, options->heads, options->width / options->heads, MAX_HEAD);
    if (options->context > options->positions)
        return tern_error(TERN_ERROR_INVALID,
                          "a context of %u is longer than the model's %u positions; lower the context",
                          options->context, options->positions);
    if ((status = check_tensors(options)) < 0) return status;
    const uint64_t widest = options->vocab > 4 * options->width ? options->vocab : 4 * options->width;
    const uint64_t largest = INT32_MAX / options->context / widest;
    if (options->batch > largest)
        return tern_error(
            TERN_ERROR_UNSUPPORTED,
            "a batch of %u windows of %u makes tensors of 2^31 elements or more, %llu for each token; the "
            "largest batch is %llu",
            options->batch, options->context, (unsigned long long)widest, (unsigned long long)largest);
    if (!(options->dropout >= 0 && options->dropout < 1))
        return tern_error(TERN_ERROR_INVALID, "dropout is %g; it must lie in [0, 1)", options->dropout);
    if (!(options->epsilon > 0 && options->epsilon < 1))
        return tern_error(TERN_ERROR_INVALID, "the layer norm epsilon is %g; it must lie in (0, 1)", options->epsilon);
    return TERN_OK;
}

uint64_t tern_gpt2_parameter_count(const tern_gpt2_options *options)
{
    uint64_t c = options->width;
    uint64_t block = (3 * c * c + 3 * c) + (c * c + c) + (4 * c * c + 4 * c) + (4 * c * c + c) + 4 * c;
    return options->vocab * c + options->positions * c + options->layers * block + 2 * c;
}

/* ------------------------------------------------------------------- layers */

/* y = x W + b, W (in, out): "<name>.weight" and "<name>.bias". */
static tern_tensor *conv1d(tern_graph *graph, tern_tensor *x, const char *name, int64_t out, double range)
{
    char text[NAME_BYTES];
    snprintf(text, sizeof text, "%s.weight", name);
    tern_tensor *weight =
        tern_parameter(graph, text, 2, (const int64_t[]){tern_size(x, -1), out}, TERN_INIT_NORMAL, range);
    snprintf(text, sizeof text, "%s.bias", name);
    tern_tensor *bias = tern_parameter(graph, text, 1, (const int64_t[]){out}, TERN_INIT_ZEROS, 0);
    return tern_label(tern_add(tern_matmul(x, weight), bias), name);
}

static tern_tensor *layer_norm(tern_graph *graph, tern_tensor *x, const char *name, double epsilon)
{
    char text[NAME_BYTES];
    const int64_t width = tern_size(x, -1);
    snprintf(text, sizeof text, "%s.weight", name);
    tern_tensor *weight = tern_parameter(graph, text, 1, &width, TERN_INIT_ONES, 0);
    snprintf(text, sizeof text, "%s.bias", name);
    tern_tensor *bias = tern_parameter(graph, text, 1, &width, TERN_INIT_ZEROS, 0);
    return tern_label(tern_layer_norm(x, weight, bias, epsilon), name);
}

static tern_tensor *drop(tern_tensor *x, const tern_gpt2_options *o, const char *label)
{
    return o->dropout > 0 ? tern_dropout(x, o->dropout, label) : x;
}

/* part 0, 1, 2: q, k, v (B, T, H, D), a view of qkv (B, T, 3, H, D). */
static tern_tensor *head_view(tern_tensor *qkv, int64_t part)
{
    tern_tensor *one = tern_slice(qkv, 2, part, 1); /* (B, T, 1, H, D) */
    return tern_reshape(one, 4,
                        (const int64_t[]){tern_size(qkv, 0), tern_size(qkv, 1), tern_size(qkv, 3), tern_size(qkv, 4)});
}

static tern_tensor *attention(tern_graph *graph, tern_tensor *x, const tern_gpt2_options *o, uint32_t layer)
{
    char name[NAME_BYTES];
    const int64_t b = o->batch, t = o->context, c = o->width, h = o->heads, d = c / h;
    snprintf(name, sizeof name, "transformer.h.%u.attn.c_attn", layer);
    tern_tensor *qkv = conv1d(graph, x, name, 3 * c, INITIAL_RANGE); /* (B, T, 3C) */
    qkv = tern_reshape(qkv, 5, (const int64_t[]){b, t, 3, h, d});    /* (B, T, 3, H, D) */
    tern_tensor *y =
        tern_attention(head_view(qkv, 0), head_view(qkv, 1), head_view(qkv, 2), 1.0 / sqrt((double)d), true);
    snprintf(name, sizeof name, "transformer.h.%u.attn", layer);
    y = tern_reshape(tern_label(y, name), 3, (const int64_t[]){b, t, c}); /* (B, T, C) */
    snprintf(name, sizeof name, "transformer.h.%u.attn.c_proj", layer);
    y = conv1d(graph, y, name, c, INITIAL_RANGE / sqrt(2.0 * o->layers)); /* (B, T, C) */
    snprintf(name, sizeof name, "transformer.h.%u.attn.drop", layer);
    return drop(y, o, name);
}

static tern_tensor *mlp(tern_graph *graph, tern_tensor *x, const tern_gpt2_options *o, uint32_t layer)
{
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "transformer.h.%u.mlp.c_fc", layer);
    tern_tensor *y = conv1d(graph, x, name, 4 * (int64_t)o->width, INITIAL_RANGE); /* (B, T, 4C) */
    y = tern_gelu_tanh(y);
    snprintf(name, sizeof name, "transformer.h.%u.mlp.c_proj", layer);
    y = conv1d(graph, y, name, o->width, INITIAL_RANGE / sqrt(2.0 * o->layers)); /* (B, T, C) */
    snprintf(name, sizeof name, "transformer.h.%u.mlp.drop", layer);
    return drop(y, o, name);
}

static tern_tensor *embedding(tern_graph *graph, const tern_gpt2_options *o)
{
    return tern_parameter(graph, "transformer.wte.weight", 2, (const int64_t[]){o->vocab, o->width}, TERN_INIT_NORMAL,
                          INITIAL_RANGE);
}

/* The residual stream after the last block, before ln_f: (B, T, C). */
static tern_tensor *blocks(tern_graph *graph, const tern_gpt2_options *o, tern_tensor *ids)
{
    char name[NAME_BYTES];
    tern_tensor *wpe = tern_parameter(graph, "transformer.wpe.weight", 2, (const int64_t[]){o->positions, o->width},
                                      TERN_INIT_NORMAL, INITIAL_RANGE);
    tern_tensor *tokens = tern_gather(embedding(graph, o), ids);          /* (B, T, C) */
    tern_tensor *x = tern_add(tokens, tern_slice(wpe, 0, 0, o->context)); /* + (T, C) for every example */
    x = tern_label(drop(x, o, "transformer.drop"), "transformer.embedding");
    for (uint32_t layer = 0; layer < o->layers; layer++) {
        snprintf(name, sizeof name, "transformer.h.%u.ln_1", layer);
        x = tern_add(x, attention(graph, layer_norm(graph, x, name, o->epsilon), o, layer));
        snprintf(name, sizeof name, "transformer.h.%u.ln_2", layer);
        x = tern_add(x, mlp(graph, layer_norm(graph, x, name, o->epsilon), o, layer));
    }
    return x;
}

/* (..., C) -> (..., V), with the embedding's own table. */
static tern_tensor *head(tern_graph *graph, const tern_gpt2_options *o, tern_tensor *x)
{
    x = layer_norm(graph, x, "transformer.ln_f", o->epsilon);
    return tern_label(tern_matmul(x, tern_transpose(embedding(graph, o), 0, 1)), "lm_head");
}

tern_status tern_gpt2_build_loss(tern_graph *graph, const tern_gpt2_options *options)
{
    tern_status status = tern_gpt2_check(options);
    if (status < 0) return status;
    tern_tensor *ids = tern_input_2d(graph, "ids", TERN_I32, options->batch, options->context);
    tern_tensor *labels = tern_input_2d(graph, "labels", TERN_I32, options->batch, options->context);
    tern_tensor *logits = head(graph, options, blocks(graph, options, ids));
    tern_loss(tern_cross_entropy(logits, labels, TERN_GPT2_IGNORE), NULL);
    return tern_graph_status(graph);
}

tern_status tern_gpt2_build_logits(tern_graph *graph, const tern_gpt2_options *options)
{
    tern_status status = tern_gpt2_check(options);
    if (status < 0) return status;
    tern_tensor *ids = tern_input_2d(graph, "ids", TERN_I32, options->batch, options->context);
    tern_tensor *position = tern_input_1d(graph, "position", TERN_I32, options->batch);
    tern_tensor *x = blocks(graph, options, ids);
    x = tern_reshape(x, 2, (const int64_t[]){-1, options->width});         /* (B T, C) */
    tern_output(head(graph, options, tern_gather(x, position)), "logits"); /* (B, V) */
    return tern_graph_status(graph);
}
