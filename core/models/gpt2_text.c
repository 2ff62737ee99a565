/* SPDX-License-Identifier: Apache-2.0 */
/* gpt2_text.c - see gpt2_text.h. What it is not: it is no part of the model, which gpt2.c is. */
#include "core/models/gpt2_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tern_status check(const void *options) { return tern_gpt2_check(options); }

static tern_status build_loss(tern_graph *graph, const void *options, uint32_t batch)
{
    tern_gpt2_options o = *(const tern_gpt2_options *)options;
    o.batch = batch;
    return tern_gpt2_build_loss(graph, &o);
}

static tern_status build_logits(tern_graph *graph, const void *options)
{
    tern_gpt2_options o = *(const tern_gpt2_options *)options;
    o.batch = 1;
    return tern_gpt2_build_logits(graph, &o);
}

static char *config(const void *options) { return tern_gpt2_config_write(options); }

static const tern_text_model_kind kind = {"gpt2", check, build_loss, build_logits, config};

void tern_gpt2_text(const tern_gpt2_options *options, tern_text_model *out_model)
{
    *out_model = (tern_text_model){.kind = &kind,
                                   .options = options,
                                   .vocab = options->vocab,
                                   .context = options->context,
                                   .batch = options->batch};
}

tern_status tern_gpt2_text_read(const char *folder, tern_gpt2_options *out_options, tern_text_model *out_model)
{
    const size_t bytes = strlen(folder) + sizeof "/config.json";
    char *path = malloc(bytes);
    if (!path) return tern_error_memory("a path", bytes);
    snprintf(path, bytes, "%s/config.json", folder);
    const tern_status status = tern_gpt2_config_read(path, out_options);
    if (status >= 0) tern_gpt2_text(out_options, out_model);
    free(path);
    return status;
}
