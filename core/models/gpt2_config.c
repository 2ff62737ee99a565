/* SPDX-License-Identifier: Apache-2.0 */
/* gpt2_config.c - a GPT-2 model's shape as Hugging Face's config.json.
 *
 * What it is not: keys that do not concern the shape are not read; other model types are refused. */
#include <cjson/cJSON.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/models/gpt2.h"

static const struct {
    const char *key;
    size_t field; /* of tern_gpt2_options, a uint32_t */
} config_keys[] = {
    {"n_layer", offsetof(tern_gpt2_options, layers)},   {"n_head", offsetof(tern_gpt2_options, heads)},
    {"n_embd", offsetof(tern_gpt2_options, width)},     {"n_positions", offsetof(tern_gpt2_options, positions)},
    {"vocab_size", offsetof(tern_gpt2_options, vocab)},
};

#define CONFIG_MAX_BYTES (1u << 20) /* a config.json has a few hundred bytes */
#define KEY_COUNT        (sizeof config_keys / sizeof *config_keys)

char *tern_gpt2_config_write(const tern_gpt2_options *options)
{
    char *text = NULL, *copy = NULL;
    cJSON *json = cJSON_CreateObject();
    cJSON *architectures = json ? cJSON_AddArrayToObject(json, "architectures") : NULL;
    if (!architectures || !cJSON_AddItemToArray(architectures, cJSON_CreateString("GPT2LMHeadModel"))) goto end;
    if (!cJSON_AddStringToObject(json, "model_type", "gpt2")) goto end;
    for (size_t i = 0; i < KEY_COUNT; i++) {
        uint32_t value;
        memcpy(&value, (const char *)options + config_keys[i].field, sizeof value);
        if (!cJSON_AddNumberToObject(json, config_keys[i].key, value)) goto end;
    }
    if (!cJSON_AddNumberToObject(json, "layer_norm_epsilon", options->epsilon)) goto end;
    if (!cJSON_AddNumberToObject(json, "resid_pdrop", options->dropout)) goto end;
    if (!cJSON_AddNumberToObject(json, "embd_pdrop", options->dropout)) goto end;
    if (!cJSON_AddNumberToObject(json, "attn_pdrop", 0)) goto end;
    if (!cJSON_AddStringToObject(json, "activation_function", "gelu_new")) goto end;
    if (!cJSON_AddTrueToObject(json, "tie_word_embeddings")) goto end;
    text = cJSON_Print(json);
    copy = text ? strdup(text) : NULL; /* cJSON's memory may come from another allocator */
end:
    cJSON_free(text);
    cJSON_Delete(json);
    return copy;
}

static tern_status read_keys(const char *path, const cJSON *json, tern_gpt2_options *out)
{
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(json, "model_type");
    if (!cJSON_IsString(type) || strcmp(type->valuestring, "gpt2") != 0)
        return tern_error(TERN_ERROR_FORMAT, "%s: model_type is \"%.32s\"; only \"gpt2\" is read", path,
                          cJSON_IsString(type) ? type->valuestring : "");
    for (size_t i = 0; i < KEY_COUNT; i++) {
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, config_keys[i].key);
        double number = cJSON_IsNumber(item) ? item->valuedouble : -1;
        if (!(number >= 1 && number <= 2147483647.0) || floor(number) != number)
            return tern_error(TERN_ERROR_FORMAT, "%s: \"%s\" must be a whole number >= 1", path, config_keys[i].key);
        uint32_t value = (uint32_t)number;
        memcpy((char *)out + config_keys[i].field, &value, sizeof value);
    }
    const cJSON *epsilon = cJSON_GetObjectItemCaseSensitive(json, "layer_norm_epsilon");
    out->epsilon = cJSON_IsNumber(epsilon) ? epsilon->valuedouble : 1e-5;
    out->context = out->positions;
    out->batch = 1;
    tern_status status = tern_gpt2_check(out);
    return status < 0 ? tern_error_prefix(status, "%s", path) : TERN_OK;
}

tern_status tern_gpt2_config_read(const char *path, tern_gpt2_options *out_options)
{
    char *text = NULL;
    size_t bytes = 0;
    tern_gpt2_options options = {0};
    tern_status status = tern_file_read(path, CONFIG_MAX_BYTES, &text, &bytes);
    if (status < 0) return status;
    cJSON *json = cJSON_ParseWithLength(text, bytes);
    if (!cJSON_IsObject(json))
        status = tern_error(TERN_ERROR_FORMAT, "%s is not a JSON object", path);
    else
        status = read_keys(path, json, &options);
    if (status >= 0) *out_options = options;
    cJSON_Delete(json);
    free(text);
    return status;
}
