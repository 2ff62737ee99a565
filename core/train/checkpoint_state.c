/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_state.c - state.json: where the training stands and what it ran on.
 *
 *     {"format": 1, "tern": "0.1.0", "position": {"seed": hex, "attempt": 7, "micros": 0},
 *      "val_loss": 1.2 or null, "spoilt": false,
 *      "device": {"backend", "name", "driver"}, "kernels": hex, "variants": [...], "facts": {...}, "notes": {...}}
 *
 * "kernels" sums up the keys of all kernels in order; a key holds everything that makes two kernels different, so equal
 * sums on one driver and version of tern mean equal arithmetic. "variants" is for people. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/hash.h"
#include "core/train/checkpoint.h"

#define FORMAT    1
#define STATE_MAX 16777216u /* bytes of state.json; it has a few thousand */

/* ------------------------------------------------------------------ writing */

static void hex(uint64_t value, char text[24]) { snprintf(text, 24, "%016llx", (unsigned long long)value); }

static uint64_t kernel_sum(const tern_setup *setup)
{
    uint64_t sum = TERN_HASH_START;
    for (int p = 0; p < TERN_PROGRAM_COUNT; p++) {
        const tern_lowered *lowered = setup->programs[p].lowered;
        if (p != TERN_PROGRAM_MICRO && p != TERN_PROGRAM_UPDATE) continue; /* the others change nothing trained */
        for (uint32_t k = 0; lowered && k < lowered->kernel_count; k++)
            sum = tern_hash(sum, &lowered->kernels[k]->key, sizeof lowered->kernels[k]->key);
    }
    return sum;
}

static bool add_position(cJSON *json, const tern_stepper *stepper)
{
    char seed[24];
    tern_step_position at;
    tern_stepper_get_position(stepper, &at);
    hex(at.seed, seed);
    cJSON *item = cJSON_AddObjectToObject(json, "position");
    return item && cJSON_AddStringToObject(item, "seed", seed) &&
           cJSON_AddNumberToObject(item, "attempt", (double)at.attempt) &&
           cJSON_AddNumberToObject(item, "micros", at.micros);
}

static bool add_device(cJSON *json, const tern_setup *setup)
{
    char kernels[24];
    const tern_device *device = setup->device;
    hex(kernel_sum(setup), kernels);
    cJSON *item = cJSON_AddObjectToObject(json, "device");
    return item && cJSON_AddStringToObject(item, "backend", device->backend->name) &&
           cJSON_AddStringToObject(item, "name", device->info.name) &&
           cJSON_AddStringToObject(item, "driver", device->info.driver) &&
           cJSON_AddStringToObject(json, "kernels", kernels);
}

/* Each variant in use once. */
static bool add_variants(cJSON *json, const tern_setup *setup)
{
    cJSON *list = cJSON_AddArrayToObject(json, "variants");
    for (int p = 0; list && p < TERN_PROGRAM_COUNT; p++) {
        const tern_lowered *lowered = setup->programs[p].lowered;
        for (uint32_t k = 0; lowered && k < lowered->kernel_count; k++) {
            const char *name = lowered->kernels[k]->variant.name;
            const cJSON *item = NULL;
            bool known = name[0] == 0;
            cJSON_ArrayForEach(item, list) known = known || strcmp(item->valuestring, name) == 0;
            if (!known && !cJSON_AddItemToArray(list, cJSON_CreateString(name))) return false;
        }
    }
    return list != NULL;
}

static bool add_copy(cJSON *json, const char *name, const cJSON *object)
{
    cJSON *copy = object ? cJSON_Duplicate(object, true) : cJSON_CreateObject();
    if (copy && cJSON_AddItemToObject(json, name, copy)) return true;
    cJSON_Delete(copy);
    return false;
}

char *tern_checkpoint_state_text(tern_stepper *stepper, const tern_checkpoint_content *content)
{
    char *text = NULL, *copy = NULL;
    const tern_setup *setup = tern_stepper_setup(stepper);
    cJSON *json = cJSON_CreateObject();
    if (json && cJSON_AddNumberToObject(json, "format", FORMAT) &&
        cJSON_AddStringToObject(json, "tern", tern_version()) && add_position(json, stepper) &&
        cJSON_AddNumberToObject(json, "val_loss", content->val_loss) && /* NaN is written as null */
        cJSON_AddBoolToObject(json, "spoilt", content->spoilt) && add_device(json, setup) &&
        add_variants(json, setup) && add_copy(json, "facts", content->facts) && add_copy(json, "notes", content->notes))
        text = cJSON_Print(json);
    copy = text ? strdup(text) : NULL; /* cJSON's memory may come from another allocator */
    cJSON_free(text);
    cJSON_Delete(json);
    return copy;
}

/* ------------------------------------------------------------------ reading */

static const char *text_of(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsString(item) ? item->valuestring : "";
}

static bool whole(const cJSON *object, const char *key, double most, uint64_t *out)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0 && item->valuedouble <= most)) return false;
    *out = (uint64_t)item->valuedouble;
    return true;
}

static bool read_position(tern_checkpoint *c)
{
    char *end = NULL;
    uint64_t micros = 0;
    const cJSON *at = cJSON_GetObjectItemCaseSensitive(c->state, "position");
    const char *seed = text_of(at, "seed");
    c->position.seed = strtoull(seed, &end, 16);
    if (end == seed || *end || !whole(at, "attempt", 9007199254740992.0, &c->position.attempt)) return false;
    if (!whole(at, "micros", UINT32_MAX, &micros)) return false;
    c->position.micros = (uint32_t)micros;
    return true;
}

tern_status tern_checkpoint_state_read(tern_checkpoint *c)
{
    tern_status status;
    char *text = NULL, *path = NULL;
    size_t bytes = 0;
    const size_t path_bytes = strlen(c->folder) + sizeof "/state.json";
    path = malloc(path_bytes);
    if (!path) return tern_error_memory("a path", path_bytes);
    snprintf(path, path_bytes, "%s/state.json", c->folder);
    TERN_TRY(tern_file_read(path, STATE_MAX, &text, &bytes));
    c->state = cJSON_ParseWithLength(text, bytes);
    const cJSON *format = c->state ? cJSON_GetObjectItemCaseSensitive(c->state, "format") : NULL;
    if (!cJSON_IsNumber(format))
        status = tern_error(TERN_ERROR_FORMAT, "%s is no checkpoint's state", path);
    else if (format->valuedouble != FORMAT)
        status = tern_error(TERN_ERROR_FORMAT,
                            "%s has format %g, of tern %s; this is tern %s, which reads format %d; use that version",
                            path, format->valuedouble, text_of(c->state, "tern"), tern_version(), FORMAT);
    else if (!read_position(c))
        status = tern_error(TERN_ERROR_FORMAT, "%s says no position", path);
    else {
        c->facts = cJSON_GetObjectItemCaseSensitive(c->state, "facts");
        c->notes = cJSON_GetObjectItemCaseSensitive(c->state, "notes");
        const cJSON *loss = cJSON_GetObjectItemCaseSensitive(c->state, "val_loss");
        c->val_loss = cJSON_IsNumber(loss) ? loss->valuedouble : (double)NAN;
        c->spoilt = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(c->state, "spoilt"));
    }
fail:
    free(text);
    free(path);
    return status;
}

/* ---------------------------------------------------------------- exactness */

/* The precision as one word, "bf16" or "bf16, no masters". */
static void precision_of(const cJSON *facts, char *out, size_t bytes)
{
    const cJSON *group = cJSON_GetObjectItemCaseSensitive(facts, TERN_FACTS_PRECISION);
    const cJSON *masters = cJSON_GetObjectItemCaseSensitive(group, "masters");
    snprintf(out, bytes, "%s%s", text_of(group, "weights"),
             cJSON_IsNumber(masters) && masters->valuedouble == 0 ? ", no masters" : "");
}

typedef struct difference {
    const char *what, *was, *is;
    bool explains; /* the following rows differ because this one does */
} difference;

static bool tell(const difference *rows, size_t count, char *out_why, size_t bytes)
{
    size_t used = 0;
    out_why[0] = 0;
    for (size_t i = 0; i < count && used < bytes; i++) {
        if (strcmp(rows[i].was, rows[i].is) == 0) continue;
        used += (size_t)snprintf(out_why + used, bytes - used, "%sthe %s was %s and is %s", used ? ", " : "",
                                 rows[i].what, rows[i].was, rows[i].is);
        if (rows[i].explains) break;
    }
    return used == 0;
}

bool tern_checkpoint_is_exact(const tern_checkpoint *c, const tern_setup *setup, char *out_why, size_t bytes)
{
    char kernels[24], precision_then[32], precision_now[32];
    const tern_device *device = setup->device;
    const cJSON *then = cJSON_GetObjectItemCaseSensitive(c->state, "device");
    cJSON *facts = cJSON_CreateObject();
    (void)tern_facts_add_precision(facts, &setup->options); /* without memory the precision is "", which is no claim */
    precision_of(c->facts, precision_then, sizeof precision_then);
    precision_of(facts, precision_now, sizeof precision_now);
    hex(kernel_sum(setup), kernels);
    const difference rows[] = {
        {"backend", text_of(then, "backend"), device->backend->name, true},
        {"device", text_of(then, "name"), device->info.name, true},
        {"driver", text_of(then, "driver"), device->info.driver, false},
        {"version of tern", text_of(c->state, "tern"), tern_version(), false},
        {"precision", precision_then, precision_now, true},
        {"list of kernels", text_of(c->state, "kernels"), kernels, false},
    };
    const bool exact = tell(rows, sizeof rows / sizeof *rows, out_why, bytes);
    cJSON_Delete(facts);
    return exact;
}
