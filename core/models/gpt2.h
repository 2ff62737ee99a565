/* SPDX-License-Identifier: Apache-2.0 */
/* gpt2.h - GPT-2 on the public API, with Hugging Face's parameter names and layouts.
 *
 *     ids (B, T) -> wte + wpe -> L x [ x + attention(ln_1 x), x + mlp(ln_2 x) ] -> ln_f -> wte^T -> logits (B, T, V)
 *
 * Names are "transformer.wte.weight" (V, C), "transformer.wpe.weight" (P, C), "transformer.h.<l>.attn.c_attn.weight"
 * (C, 3C) and so on; a linear layer's weight is (in, out), Conv1D's layout, y = x W + b. The head is tied to wte. What
 * it is not: it applies dropout to the embedding and to what each branch adds to the residual stream, but not to the
 * attention probabilities, which are never stored. It holds no data and knows no device.
 * Source: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019; Hugging Face transformers,
 * GPT2LMHeadModel. */
#ifndef TERN_MODELS_GPT2_H
#define TERN_MODELS_GPT2_H

#include "core/base/status.h"

typedef struct tern_gpt2_options {
    uint32_t layers, heads, width;
    uint32_t vocab;
    uint32_t positions; /* rows of wpe: the longest context */
    uint32_t context;   /* T of the graph, at most `positions` */
    uint32_t batch;     /* B of the graph */
    double dropout;     /* [0, 1) */
    double epsilon;     /* of layer norm */
} tern_gpt2_options;

/* Names "gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl" (Hugging Face's shapes, context 1024, batch 1) and "gpt-s" (4
 * layers, width 256, 8 heads, context 128, batch 8, bytes): the demonstration that a CPU trains in minutes.
 * TERN_ERROR_NOT_FOUND naming the known ones. */
TERN_MUST_USE tern_status tern_gpt2_preset(const char *name, tern_gpt2_options *out_options);
/* Sizes at least 1, heads divide the width, head width <= 256, context <= positions, dropout in [0, 1); one sentence if
 * not. */
TERN_MUST_USE tern_status tern_gpt2_check(const tern_gpt2_options *options);
/* Number of parameters, the tied head counted once. */
uint64_t tern_gpt2_parameter_count(const tern_gpt2_options *options);

/* Inputs "ids" and "labels" (B, T) i32, the loss over all positions whose label is not TERN_GPT2_IGNORE. Whether
 * dropout acts is the graph's matter. Fails with the graph's first error. */
#define TERN_GPT2_IGNORE (-100)
TERN_MUST_USE tern_status tern_gpt2_build_loss(tern_graph *graph, const tern_gpt2_options *options);
/* Inputs "ids" (B, T) i32 and "position" (B) i32, flat indices b T + t; output "logits" (B, V), of those positions
 * only. */
TERN_MUST_USE tern_status tern_gpt2_build_logits(tern_graph *graph, const tern_gpt2_options *options);

/* config.json with Hugging Face's keys: model_type, n_layer, n_head, n_embd, n_positions, vocab_size,
 * layer_norm_epsilon. */
/* The text; free() it. NULL when out of memory. */
char *tern_gpt2_config_write(const tern_gpt2_options *options);
/* Reads the file; context = positions, batch 1, dropout 0. TERN_ERROR_IO or _FORMAT naming file and key. */
TERN_MUST_USE tern_status tern_gpt2_config_read(const char *path, tern_gpt2_options *out_options);

#endif
