/* SPDX-License-Identifier: Apache-2.0 */
/* sample.h - text from a trained folder: one whole forward pass per token over a window of the model's context.
 *
 *     bytes ──> last T of them ──> forward, logits of the last position ──> temperature, top-k ──> next byte
 *
 * What it is not: no key/value cache, so a token costs a whole window; it reads no training state.
 * Invariant: the same folder, prompt, options and device give the same bytes. */
#ifndef TERN_TRAIN_SAMPLE_H
#define TERN_TRAIN_SAMPLE_H

#include "core/device/device.h"
#include "core/train/text_model.h"

typedef struct tern_sampler tern_sampler;

typedef struct tern_sample_options {
    double temperature; /* 0: always the likeliest */
    uint32_t top_k;     /* 0: all */
    uint64_t seed;
} tern_sample_options;

/* Reads model.safetensors of the folder; the model's options, which outlive the sampler, are those of its config.json.
 */
TERN_MUST_USE tern_status tern_sampler_create(tern_device *device, const tern_text_model *model, const char *folder,
                                              tern_sampler **out_sampler);
void tern_sampler_destroy(tern_sampler *sampler);
/* Starts anew with a prompt of bytes, at least one. TERN_ERROR_INVALID when it is empty or a byte is not in the
 * vocabulary. */
TERN_MUST_USE tern_status tern_sampler_prompt(tern_sampler *sampler, const void *bytes, size_t count,
                                              const tern_sample_options *options);
/* The next token, which then belongs to the window. Bytes only: tokens of 256 and above are never drawn. */
TERN_MUST_USE tern_status tern_sampler_next(tern_sampler *sampler, uint32_t *out_token);

/* Draws from softmax(logits / temperature) over the top_k largest, by u in [0, 1); ties go to the smaller index. count
 * >= 1. */
TERN_MUST_USE tern_status tern_sample_draw(const float *logits, uint32_t count, const tern_sample_options *options,
                                           double u, uint32_t *out_index);

#endif
