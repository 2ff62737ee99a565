/* SPDX-License-Identifier: Apache-2.0 */
/* text_model.h - what training and sampling on text ask of a model: a few sizes and a table of functions.
 *
 *     command ── options ──> models/<name>_text.c ── tern_text_model ──> text_trainer.c, sample.c
 *
 * So the trainer knows no model by name, and a model is trained without a line here. What it is not: it owns nothing.
 * Invariant: the functions read their options only; the options outlive whoever holds the model. */
#ifndef TERN_TRAIN_TEXT_MODEL_H
#define TERN_TRAIN_TEXT_MODEL_H

#include "core/base/status.h"

typedef struct tern_text_model_kind {
    const char *name;
    /* One sentence about the first option that cannot be. */
    tern_status (*check)(const void *options);
    /* Into an empty graph: inputs "ids" and "labels" (batch, context) i32, the loss over all labels that count. */
    tern_status (*build_loss)(tern_graph *graph, const void *options, uint32_t batch);
    /* Inputs "ids" (1, context) i32 and "position" (1) i32; output "logits" (1, vocab) of that position. */
    tern_status (*build_logits)(tern_graph *graph, const void *options);
    /* config.json; free() it. NULL when out of memory. */
    char *(*config)(const void *options);
} tern_text_model_kind;

typedef struct tern_text_model {
    const tern_text_model_kind *kind;
    const void *options; /* the kind's own */
    uint32_t vocab, context;
    uint32_t batch; /* windows of one micro-batch */
} tern_text_model;

#endif
