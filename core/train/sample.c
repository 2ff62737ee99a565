/* SPDX-License-Identifier: Apache-2.0 */
/* sample.c - the sampler: one session and a sliding window of tokens; the draw is draw.c. */
#include "core/train/sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/philox.h"
#include "core/formats/safetensors.h"
#include "core/graph/graph.h"
#include "core/plan/session.h"

#define DOMAIN_SAMPLE 0x8u /* philox counter word: no other use shares it */
#define BYTE_TOKENS   256u

struct tern_sampler {
    tern_text_model model;
    tern_sample_options options;
    tern_graph *graph;
    tern_session *session;
    int32_t *ids;  /* (1, context); the first `length` count */
    float *logits; /* (1, vocab) */
    uint32_t length;
    uint64_t drawn; /* since the prompt */
};

static tern_status load_weights(tern_sampler *s, const tern_safetensors *file)
{
    tern_status status = TERN_OK;
    float *values = NULL;
    for (uint32_t i = 0; i < s->graph->node_count; i++) {
        const tern_tensor *node = s->graph->nodes[i];
        if (node->op != TERN_OP_PARAMETER) continue;
        const tern_safetensor *tensor = tern_safetensors_find(file, node->label);
        if (!tensor)
            return tern_error(TERN_ERROR_NOT_FOUND, "%s holds no tensor \"%s\"; it does not belong to its config.json",
                              file->path, node->label);
        if (tensor->rank != node->rank ||
            memcmp(tensor->shape, node->shape, (size_t)node->rank * sizeof *node->shape) != 0)
            return tern_error(TERN_ERROR_FORMAT, "%s: tensor \"%s\" has another shape than config.json says",
                              file->path, node->label);
        const uint64_t count = (uint64_t)tern_count(node);
        values = malloc(count * sizeof *values);
        if (!values) return tern_error_memory("a tensor", count * sizeof *values);
        TERN_TRY(tern_safetensors_read(file, tensor, values, count));
        TERN_TRY(tern_session_write(s->session, node->label, values, count * sizeof *values));
        free(values);
        values = NULL;
    }
fail:
    free(values);
    return status;
}

static tern_status build(tern_sampler *s, tern_device *device, const char *folder)
{
    tern_status status;
    tern_safetensors *file = NULL;
    const size_t bytes = strlen(folder) + sizeof "/model.safetensors";
    char *path = malloc(bytes);
    if (!path) return tern_error_memory("a path", bytes);
    snprintf(path, bytes, "%s/model.safetensors", folder);
    TERN_TRY(tern_safetensors_open(path, &file));
    TERN_TRY(tern_graph_create(&s->graph));
    s->graph->training = false;
    TERN_TRY(s->model.kind->build_logits(s->graph, s->model.options));
    TERN_TRY(tern_session_create(device, s->graph, NULL, &s->session));
    TERN_TRY(load_weights(s, file));
    s->ids = calloc(s->model.context, sizeof *s->ids);
    s->logits = calloc(s->model.vocab, sizeof *s->logits);
    if (!s->ids || !s->logits)
        status = tern_error_memory("the sampling window", ((size_t)s->model.context + s->model.vocab) * 4);
fail:
    tern_safetensors_close(file);
    free(path);
    return status;
}

tern_status tern_sampler_create(tern_device *device, const tern_text_model *model, const char *folder,
                                tern_sampler **out_sampler)
{
    tern_sampler *s = calloc(1, sizeof *s);
    *out_sampler = NULL;
    if (!s) return tern_error_memory("a sampler", sizeof *s);
    s->model = *model;
    tern_status status = build(s, device, folder);
    if (status < 0)
        tern_sampler_destroy(s);
    else
        *out_sampler = s;
    return status;
}

void tern_sampler_destroy(tern_sampler *s)
{
    if (!s) return;
    tern_session_destroy(s->session);
    tern_graph_destroy(s->graph);
    free(s->ids);
    free(s->logits);
    free(s);
}

static void push(tern_sampler *s, uint32_t token)
{
    if (s->length == s->model.context) memmove(s->ids, s->ids + 1, (s->length-- - 1) * sizeof *s->ids);
    s->ids[s->length++] = (int32_t)token;
}

tern_status tern_sampler_prompt(tern_sampler *s, const void *bytes, size_t count, const tern_sample_options *options)
{
    const unsigned char *tokens = bytes;
    if (count == 0) return tern_error(TERN_ERROR_INVALID, "the prompt is empty; give at least one byte");
    if (!(options->temperature >= 0 && options->temperature <= 1e6))
        return tern_error(TERN_ERROR_INVALID, "the temperature is %g; it must lie in [0, 1e6]", options->temperature);
    for (size_t i = 0; i < count; i++)
        if (tokens[i] >= s->model.vocab)
            return tern_error(TERN_ERROR_INVALID, "byte %zu of the prompt is %u, but the model's vocabulary ends at %u",
                              i, tokens[i], s->model.vocab - 1);
    s->options = *options;
    s->length = 0;
    s->drawn = 0;
    for (size_t i = 0; i < count; i++) push(s, tokens[i]);
    return TERN_OK;
}

tern_status tern_sampler_next(tern_sampler *s, uint32_t *out_token)
{
    tern_status status;
    if (s->length == 0) return tern_error(TERN_ERROR_INVALID, "there is no prompt yet; call tern_sampler_prompt first");
    const int32_t position = (int32_t)s->length - 1;
    const uint32_t count = s->model.vocab < BYTE_TOKENS ? s->model.vocab : BYTE_TOKENS;
    const uint32_t key[2] = {(uint32_t)s->options.seed, (uint32_t)(s->options.seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)s->drawn, (uint32_t)(s->drawn >> 32), DOMAIN_SAMPLE, 0};
    uint32_t words[4];
    TERN_TRY(tern_session_write(s->session, "ids", s->ids, s->model.context * sizeof *s->ids));
    TERN_TRY(tern_session_write(s->session, "position", &position, sizeof position));
    TERN_TRY(tern_session_run(s->session));
    TERN_TRY(tern_session_read(s->session, "logits", s->logits, s->model.vocab * sizeof *s->logits));
    tern_philox(counter, key, words);
    TERN_TRY(tern_sample_draw(s->logits, count, &s->options, words[0] * 0x1p-32, out_token));
    push(s, *out_token);
    s->drawn++;
fail:
    return status;
}
