/* SPDX-License-Identifier: Apache-2.0 */
/* facts.c - see facts.h. */
#include "core/train/facts.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEW_SETTINGS "give the same value, or --new-settings to go on with the ones given now"

static const struct {
    const char *group, *words; /* words: before the key, in the sentence */
    uint32_t allow;            /* the permission that lifts it; 0: none */
    const char *advice;
} groups[] = {
    {TERN_FACTS_MODEL, "the model's ", 0, "give the same model, or start a new run"},
    {TERN_FACTS_BATCH, "", 0, "give the same value, or start a new run"},
    {TERN_FACTS_RUN, "", 0, "give the same value, or start a new run"},
    {TERN_FACTS_OPTIMIZER, "optimizer ", 0, "give the same optimizer, or start a new run"},
    {TERN_FACTS_UPDATE, "", TERN_FACTS_ALLOW_SETTINGS, NEW_SETTINGS},
    {TERN_FACTS_SCHEDULE, "schedule ", TERN_FACTS_ALLOW_SETTINGS, NEW_SETTINGS},
    {TERN_FACTS_DATA, "data ", TERN_FACTS_ALLOW_DATA, "give the same data and split, or --allow-other-data"},
};

static cJSON *group_of(cJSON *facts, const char *group)
{
    if (!facts) return NULL;
    cJSON *found = cJSON_GetObjectItemCaseSensitive(facts, group);
    return found ? found : cJSON_AddObjectToObject(facts, group);
}

bool tern_facts_add_number(cJSON *facts, const char *group, const char *key, double value)
{
    cJSON *object = group_of(facts, group);
    return object && cJSON_AddNumberToObject(object, key, value) != NULL;
}

bool tern_facts_add_text(cJSON *facts, const char *group, const char *key, const char *value)
{
    cJSON *object = group_of(facts, group);
    return object && cJSON_AddStringToObject(object, key, value) != NULL;
}

bool tern_facts_add_hex(cJSON *facts, const char *group, const char *key, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)value);
    return tern_facts_add_text(facts, group, key, text);
}

static bool add_optimizer(cJSON *facts, const tern_optimizer *o)
{
    return tern_facts_add_text(facts, TERN_FACTS_OPTIMIZER, "kind", tern_optimizers[o->kind].name) &&
           tern_facts_add_number(facts, TERN_FACTS_OPTIMIZER, "eight_bit", o->eight_bit) &&
           tern_facts_add_number(facts, TERN_FACTS_UPDATE, "beta1", o->beta1) &&
           tern_facts_add_number(facts, TERN_FACTS_UPDATE, "beta2", o->beta2) &&
           tern_facts_add_number(facts, TERN_FACTS_UPDATE, "epsilon", o->epsilon) &&
           tern_facts_add_number(facts, TERN_FACTS_UPDATE, "weight_decay", o->weight_decay) &&
           tern_facts_add_number(facts, TERN_FACTS_UPDATE, "momentum", o->momentum) &&
           tern_facts_add_number(facts, TERN_FACTS_UPDATE, "nesterov", o->nesterov) &&
           tern_facts_add_number(facts, TERN_FACTS_UPDATE, "round_nearest", o->round_nearest);
}

static bool add_update(cJSON *facts, const tern_update_options *u)
{
    return tern_facts_add_number(facts, TERN_FACTS_UPDATE, "clip", u->clip) &&
           tern_facts_add_number(facts, TERN_FACTS_UPDATE, "clip_value", u->clip_value) &&
           tern_facts_add_number(facts, TERN_FACTS_UPDATE, "outlier_z", u->outlier.z) &&
           tern_facts_add_number(facts, TERN_FACTS_UPDATE, "outlier_warmup", u->outlier.warmup) &&
           tern_facts_add_number(facts, TERN_FACTS_UPDATE, "scale_mode", u->scale.mode) && /* as asked for */
           tern_facts_add_number(facts, TERN_FACTS_UPDATE, "scale_initial", u->scale.initial) &&
           tern_facts_add_number(facts, TERN_FACTS_UPDATE, "scale_growth", u->scale.growth) &&
           tern_facts_add_number(facts, TERN_FACTS_UPDATE, "scale_backoff", u->scale.backoff) &&
           tern_facts_add_number(facts, TERN_FACTS_UPDATE, "scale_cap", u->scale.cap) &&
           tern_facts_add_number(facts, TERN_FACTS_UPDATE, "scale_floor", u->scale.floor) &&
           tern_facts_add_number(facts, TERN_FACTS_UPDATE, "scale_growth_interval", u->scale.growth_interval) &&
           tern_facts_add_number(facts, TERN_FACTS_UPDATE, "scale_hysteresis", u->scale.hysteresis);
}

/* One string, in the groups' order, which matters. */
static bool add_groups(cJSON *facts, const tern_setup_options *options)
{
    const size_t bytes = (size_t)options->group_count * (TERN_PATTERN_BYTES + 96) + 1;
    char *text = calloc(1, bytes);
    size_t used = 0;
    if (!text) return false;
    for (uint32_t i = 0; i < options->group_count && used < bytes; i++) {
        const tern_parameter_group *g = &options->groups[i];
        used += (size_t)snprintf(text + used, bytes - used, "%s%s:lr=%.9g,decay=%.9g,kind=%d%s", i ? " " : "",
                                 g->pattern, g->lr_scale, g->weight_decay, g->kind, g->frozen ? ",frozen" : "");
    }
    const bool added = tern_facts_add_text(facts, TERN_FACTS_UPDATE, "groups", text);
    free(text);
    return added;
}

bool tern_facts_add_precision(cJSON *facts, const tern_setup_options *options)
{
    const tern_dtype_info *low = tern_dtype(options->precision ? options->precision : TERN_F32);
    return tern_facts_add_text(facts, TERN_FACTS_PRECISION, "weights", low->name) &&
           tern_facts_add_number(facts, TERN_FACTS_PRECISION, "masters", !options->no_masters);
}

bool tern_facts_add_setup(cJSON *facts, const tern_setup_options *options)
{
    return tern_facts_add_number(facts, TERN_FACTS_BATCH, "batch", options->batch) &&
           add_optimizer(facts, &options->optimizer) && add_update(facts, &options->update) &&
           add_groups(facts, options) && tern_facts_add_precision(facts, options);
}

/* The value as JSON, for a sentence. */
static void show(const cJSON *value, char *out, size_t bytes)
{
    char *text = cJSON_PrintUnformatted(value);
    snprintf(out, bytes, "%s", text ? text : "?");
    cJSON_free(text);
}

tern_status tern_facts_compare(const char *folder, const cJSON *then, const cJSON *now, uint32_t allowed)
{
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        const cJSON *group = cJSON_GetObjectItemCaseSensitive(then, groups[i].group), *old = NULL;
        const cJSON *mine = cJSON_GetObjectItemCaseSensitive(now, groups[i].group);
        if (groups[i].allow & allowed) continue;
        cJSON_ArrayForEach(old, group)
        {
            char a[80], b[80];
            const cJSON *new = mine ? cJSON_GetObjectItemCaseSensitive(mine, old->string) : NULL;
            if (!new || cJSON_Compare(old, new, true)) continue;
            show(old, a, sizeof a);
            show(new, b, sizeof b);
            return tern_error(TERN_ERROR_INVALID, "%s was trained with %s%s %s, but now it is %s; %s", folder,
                              groups[i].words, old->string, a, b, groups[i].advice);
        }
    }
    return TERN_OK;
}
