/* SPDX-License-Identifier: Apache-2.0 */
/* train_options.c - the model's shape from the command line, and the device that its plan is made for. */
#include "core/cli/train_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_PRESET "gpt-s"
#define HEAD_WIDTH     64 /* of every GPT-2; what heads get when only the width is given */

static void take_preset(tern_cli_model *model, const tern_gpt2_options *shape)
{
    model->layers = shape->layers;
    model->heads = TERN_CLI_UNSET;
    model->width = shape->width;
    model->context = shape->context;
    model->batch = shape->batch;
    model->vocab = shape->vocab;
    model->dropout = shape->dropout;
}

void tern_cli_model_options(tern_cli_model *model, tern_cli_option *out_options)
{
    const tern_cli_option options[TERN_CLI_MODEL_OPTION_COUNT] = {
        {"model", TERN_CLI_TEXT, &model->preset, "NAME", 0, 0,
         "shape to start from: gpt-s, gpt2, gpt2-medium, gpt2-large or gpt2-xl; the options below change it"},
        {"layers", TERN_CLI_INTEGER, &model->layers, "N", 1, 4096, "transformer blocks"},
        {"heads", TERN_CLI_INTEGER, &model->heads, "N", 1, 65536,
         "attention heads (default the model's; with another --width, heads of at most 64 channels)"},
        {"width", TERN_CLI_INTEGER, &model->width, "N", 1, 1048576, "channels; a multiple of the heads"},
        {"context", TERN_CLI_INTEGER, &model->context, "N", 1, 16777216, "tokens that the model sees"},
        {"batch", TERN_CLI_INTEGER, &model->batch, "N", 1, 16777216,
         "windows of text per micro-batch, which is the step unless --accumulate"},
        {"vocab", TERN_CLI_INTEGER, &model->vocab, "N", 1, 1073741824, "tokens; bytes of text need 256"},
        {"dropout", TERN_CLI_REAL, &model->dropout, "P", 0, 0.99, "probability of dropping an activation"},
        {"precision", TERN_CLI_TEXT, &model->precision, "P", 0, 0,
         "f32, bf16 or f16: of matrix products and stored tensors, sums stay f32; auto: what suits the device"},
    };
    tern_gpt2_options shape = {0};
    model->preset = DEFAULT_PRESET;
    model->precision = "auto";
    if (tern_gpt2_preset(model->preset, &shape) >= 0) take_preset(model, &shape);
    memcpy(out_options, options, sizeof options);
}

int tern_cli_model_parse(const tern_cli_usage *usage, tern_cli_model *model, int argc, char **argv)
{
    tern_gpt2_options shape;
    int code = tern_cli_parse(usage, argc, argv, NULL);
    if (code != TERN_CLI_GO || strcmp(model->preset, DEFAULT_PRESET) == 0) return code;
    if (tern_gpt2_preset(model->preset, &shape) < 0)
        return tern_cli_misuse("%s: --model: %s", usage->command, tern_error_message());
    take_preset(model, &shape);
    return tern_cli_parse(usage, argc, argv, NULL);
}

/* The preset's heads for the preset's width; else as many as make heads of at most 64 channels. */
static int64_t default_heads(const tern_cli_model *model)
{
    tern_gpt2_options shape;
    if (tern_gpt2_preset(model->preset, &shape) >= 0 && shape.width == model->width) return shape.heads;
    int64_t channels = model->width < HEAD_WIDTH ? model->width : HEAD_WIDTH;
    while (model->width % channels != 0) channels--;
    return model->width / channels;
}

int tern_cli_model_get(const tern_cli_model *model, tern_gpt2_options *out_options)
{
    tern_gpt2_options shape;
    if (tern_gpt2_preset(model->preset, &shape) < 0) return tern_cli_misuse("--model: %s", tern_error_message());
    shape.layers = (uint32_t)model->layers;
    shape.heads = (uint32_t)(model->heads == TERN_CLI_UNSET ? default_heads(model) : model->heads);
    shape.width = (uint32_t)model->width;
    shape.context = shape.positions = (uint32_t)model->context;
    shape.batch = (uint32_t)model->batch;
    shape.vocab = (uint32_t)model->vocab;
    shape.dropout = model->dropout;
    if (tern_gpt2_check(&shape) < 0) return tern_cli_misuse("%s", tern_error_message());
    int32_t precision;
    if (tern_precision_parse(model->precision, &precision) < 0)
        return tern_cli_misuse("--precision: %s", tern_error_message());
    *out_options = shape;
    return TERN_CLI_GO;
}

tern_status tern_cli_precision(const tern_cli_model *model, const tern_device *device,
                               tern_precision_choice *out_choice)
{
    int32_t precision;
    const tern_status status = tern_precision_parse(model->precision, &precision);
    return status < 0 ? status : tern_precision_choose(precision, &device->info, out_choice);
}

int tern_cli_refuse_null(const tern_cli_usage *usage, const tern_cli_device *options)
{
    const char *allowed = getenv("TERN_ALLOW_NULL");
    if (strcmp(options->backend, "null") != 0 || (allowed && strcmp(allowed, "1") == 0)) return TERN_CLI_GO;
    fprintf(stderr,
            "tern: %s: the null backend computes nothing, it is for tests; give another --backend, or set "
            "TERN_ALLOW_NULL=1\n",
            usage->command);
    return TERN_CLI_FAILED;
}

tern_status tern_cli_open_limited(const tern_cli_device *options, const char *limits, bool paper,
                                  tern_device **out_device, tern_plan_options *out_plan)
{
    tern_status status;
    tern_limits profile;
    *out_device = NULL;
    if (limits) TERN_TRY(tern_limits_load(limits, &profile)); /* a wrong name is said before a driver starts */
    if (limits && paper && strcmp(options->backend, "auto") == 0)
        TERN_TRY(tern_device_open_paper(limits, out_device));
    else
        TERN_TRY(tern_cli_open_device(options, out_device));
    tern_limits believed;
    tern_limits_of(&(*out_device)->info, &believed);
    if (limits) {
        tern_limits_apply(&profile, &(*out_device)->info);
        if (profile.submit_seconds > 0) believed.submit_seconds = profile.submit_seconds;
        if (profile.flops > 0) believed.flops = profile.flops;
        if (profile.bytes_per_s > 0) believed.bytes_per_s = profile.bytes_per_s;
    }
    *out_plan = (tern_plan_options){
        .submit_seconds = believed.submit_seconds, .flops = believed.flops, .bytes_per_s = believed.bytes_per_s};
fail:
    return status;
}

char *tern_cli_quote(const char *text)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+:,@%=";
    const size_t bytes = strlen(text);
    if (bytes > 0 && strspn(text, plain) == bytes) return strdup(text);
    char *quoted = malloc(4 * bytes + 3), *to = quoted;
    if (!quoted) return NULL;
    *to++ = '\'';
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '\'') { /* the quotes end, a quoted quote, they begin again */
            memcpy(to, "'\\'", 3);
            to += 3;
        }
        *to++ = text[i];
    }
    memcpy(to, "'", 2);
    return quoted;
}

char *tern_cli_count(uint64_t count, char *text)
{
    static const char *const units[] = {"", " k", " M", " G", " T", " P", " E"};
    double value = (double)count;
    size_t unit = 0;
    for (; value >= 1000 && unit + 1 < sizeof units / sizeof *units; unit++) value /= 1000;
    snprintf(text, 24, unit ? "%.1f%s" : "%.0f%s", value, units[unit]);
    return text;
}
