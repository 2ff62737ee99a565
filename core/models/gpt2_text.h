/* SPDX-License-Identifier: Apache-2.0 */
/* gpt2_text.h - GPT-2 as a model to train on text and to sample from. */
#ifndef TERN_MODELS_GPT2_TEXT_H
#define TERN_MODELS_GPT2_TEXT_H

#include "core/models/gpt2.h"
#include "core/train/text_model.h"

/* The options must outlive the model. */
void tern_gpt2_text(const tern_gpt2_options *options, tern_text_model *out_model);
/* The model of a folder's config.json, into options of the caller's. Fails as tern_gpt2_config_read. */
TERN_MUST_USE tern_status tern_gpt2_text_read(const char *folder, tern_gpt2_options *out_options,
                                              tern_text_model *out_model);

#endif
