/* SPDX-License-Identifier: Apache-2.0 */
/* text_save.c - what a trainer of texts puts into a run's folder, and what it takes from a checkpoint.
 *
 *     facts (facts.h)   model, batch, accumulate, seed, data, split, optimizer, learning rate
 *     notes             {"sample": next of the data, "schedule": {...}}
 *     run.json          flags, device, memory, the checkpoints' names: for people and programs, not for resuming
 *
 * What it is not: which tensors are saved is checkpoint.c's, which checkpoints stay is checkpoints.c's.
 * Invariant: a run that goes on keeps the schedule that it was started with, horizon included, unless told otherwise.
 */
#include <cjson/cJSON.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/train/text_trainer_internal.h"

/* "<folder>/<name>"; free() it. */
static char *join(const char *folder, const char *name)
{
    size_t bytes = strlen(folder) + strlen(name) + 2;
    char *path = malloc(bytes);
    if (path) snprintf(path, bytes, "%s/%s", folder, name);
    return path;
}

/* --------------------------------------------------------------------- facts */

static bool add_model(cJSON *facts, const tern_text_model *model)
{
    char *text = model->kind->config(model->options);
    cJSON *config = text ? cJSON_Parse(text) : NULL;
    free(text);
    if (config && cJSON_AddItemToObject(facts, TERN_FACTS_MODEL, config))
        return tern_facts_add_number(facts, TERN_FACTS_MODEL, "context", model->context);
    cJSON_Delete(config);
    return false;
}

/* horizon: of the run that is gone on with, 0 for none. Where --steps is another, the default warm-up is another too,
 * which is no change of mind. */
static bool add_schedule(cJSON *facts, const tern_schedule *s, uint64_t horizon)
{
    return tern_facts_add_text(facts, TERN_FACTS_SCHEDULE, "kind", tern_schedules[s->kind].name) &&
           tern_facts_add_number(facts, TERN_FACTS_SCHEDULE, "lr", s->lr) &&
           tern_facts_add_number(facts, TERN_FACTS_SCHEDULE, "min_lr", s->min_lr) &&
           tern_facts_add_number(facts, TERN_FACTS_SCHEDULE, "decay", s->decay) &&
           ((horizon > 0 && horizon != s->steps) ||
            tern_facts_add_number(facts, TERN_FACTS_SCHEDULE, "warmup", (double)s->warmup));
}

cJSON *tern_text_facts(const tern_text_trainer *t, uint64_t horizon)
{
    cJSON *facts = cJSON_CreateObject();
    const tern_text_options *o = &t->options;
    if (facts && add_model(facts, &o->model) && tern_facts_add_setup(facts, &t->setup_options) &&
        tern_facts_add_number(facts, TERN_FACTS_BATCH, "accumulate", o->accumulate) &&
        tern_facts_add_number(facts, TERN_FACTS_RUN, "seed", (double)o->seed) &&
        add_schedule(facts, &o->schedule, horizon) &&
        tern_facts_add_hex(facts, TERN_FACTS_DATA, "fingerprint", t->text->fingerprint) &&
        tern_facts_add_number(facts, TERN_FACTS_DATA, "bytes", (double)t->text->byte_count) &&
        tern_facts_add_number(facts, TERN_FACTS_DATA, "val_split", o->val_split))
        return facts;
    cJSON_Delete(facts);
    return NULL;
}

static cJSON *make_notes(const tern_text_trainer *t)
{
    const tern_schedule *s = &t->options.schedule;
    cJSON *notes = cJSON_CreateObject();
    cJSON *item = notes && cJSON_AddNumberToObject(notes, "sample", (double)t->sample)
                      ? cJSON_AddObjectToObject(notes, "schedule")
                      : NULL;
    if (item && cJSON_AddStringToObject(item, "kind", tern_schedules[s->kind].name) &&
        cJSON_AddNumberToObject(item, "lr", s->lr) && cJSON_AddNumberToObject(item, "min_lr", s->min_lr) &&
        cJSON_AddNumberToObject(item, "warmup", (double)s->warmup) &&
        cJSON_AddNumberToObject(item, "steps", (double)s->steps) && cJSON_AddNumberToObject(item, "decay", s->decay))
        return notes;
    cJSON_Delete(notes);
    return NULL;
}

/* ------------------------------------------------------------------ resuming */

static double number_of(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNumber(item) ? item->valuedouble : (double)NAN;
}

static tern_status read_schedule(const tern_checkpoint *c, tern_schedule *out)
{
    const cJSON *from = cJSON_GetObjectItemCaseSensitive(c->notes, "schedule");
    const cJSON *kind = cJSON_GetObjectItemCaseSensitive(from, "kind");
    const double warmup = number_of(from, "warmup"), steps = number_of(from, "steps");
    tern_schedule read = {
        .lr = number_of(from, "lr"), .min_lr = number_of(from, "min_lr"), .decay = number_of(from, "decay")};
    if (!cJSON_IsString(kind) || !(warmup >= 0 && warmup <= 1e15) || !(steps >= 1 && steps <= 1e15))
        return tern_error(TERN_ERROR_FORMAT, "%s: its notes hold no schedule; it is of another kind of run", c->folder);
    read.warmup = (uint64_t)warmup;
    read.steps = (uint64_t)steps;
    tern_status status = tern_schedule_parse(kind->valuestring, &read.kind);
    if (status >= 0) status = tern_schedule_check(&read);
    if (status >= 0) *out = read;
    return status < 0 ? tern_error_prefix(status, "%s", c->folder) : TERN_OK;
}

tern_status tern_text_resume_check(tern_text_trainer *t)
{
    tern_status status;
    cJSON *facts = NULL;
    tern_schedule schedule;
    const tern_text_resume *resume = t->options.resume;
    const tern_checkpoint *c = resume->checkpoint;
    const double sample = number_of(c->notes, "sample");
    const uint32_t allowed = (resume->allow_other_data ? TERN_FACTS_ALLOW_DATA : 0u) |
                             (resume->new_settings ? TERN_FACTS_ALLOW_SETTINGS : 0u);
    TERN_TRY(read_schedule(c, &schedule));
    facts = tern_text_facts(t, schedule.steps);
    if (!facts) {
        status = tern_error_memory("a run's facts", 1024);
        goto fail;
    }
    TERN_TRY(tern_facts_compare(c->folder, c->facts, facts, allowed));
    if (!(sample >= 0 && sample <= 9e15) || c->position.micros >= t->options.accumulate) {
        status = tern_error(TERN_ERROR_FORMAT, "%s: its place in the data cannot be read", c->folder);
        goto fail;
    }
    t->sample = (uint64_t)sample;
    if (!resume->new_settings) t->options.schedule = schedule;
fail:
    cJSON_Delete(facts);
    return status;
}

/* ------------------------------------------------------------------- run.json */

static bool add_device(cJSON *json, const tern_device *device)
{
    cJSON *item = cJSON_AddObjectToObject(json, "device");
    return item && cJSON_AddStringToObject(item, "backend", device->backend->name) &&
           cJSON_AddStringToObject(item, "name", device->info.name) &&
           cJSON_AddStringToObject(item, "driver", device->info.driver) &&
           cJSON_AddStringToObject(item, "uuid", device->info.uuid);
}

/* 64 bits do not fit a JSON number. */
static bool add_hex(cJSON *json, const char *name, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)value);
    return cJSON_AddStringToObject(json, name, text) != NULL;
}

static bool add_data(cJSON *json, const tern_text_info *info)
{
    cJSON *item = cJSON_AddObjectToObject(json, "data");
    return item && add_hex(item, "fingerprint", info->fingerprint) &&
           cJSON_AddNumberToObject(item, "files", info->file_count) &&
           cJSON_AddNumberToObject(item, "skipped", info->skipped_count) &&
           cJSON_AddNumberToObject(item, "train_bytes", (double)info->train_bytes) &&
           cJSON_AddNumberToObject(item, "val_bytes", (double)info->val_bytes);
}

static bool add_memory(cJSON *json, const tern_setup_memory *m)
{
    cJSON *item = cJSON_AddObjectToObject(json, "memory");
    return item && cJSON_AddNumberToObject(item, "weights", (double)m->weights) &&
           cJSON_AddNumberToObject(item, "low", (double)m->low) &&
           cJSON_AddNumberToObject(item, "gradients", (double)m->gradients) &&
           cJSON_AddNumberToObject(item, "moments", (double)m->moments) &&
           cJSON_AddNumberToObject(item, "states", (double)m->states) &&
           cJSON_AddNumberToObject(item, "arena", (double)m->arena) &&
           cJSON_AddNumberToObject(item, "upload", (double)m->upload) &&
           cJSON_AddNumberToObject(item, "readback", (double)m->readback) &&
           cJSON_AddNumberToObject(item, "total", (double)m->total);
}

static bool add_checkpoints(cJSON *json, const tern_checkpoints_kept *kept)
{
    if (!cJSON_AddStringToObject(json, "checkpoint", kept->name)) return false;
    return kept->best[0] == 0 || (cJSON_AddStringToObject(json, "best_checkpoint", kept->best) &&
                                  cJSON_AddNumberToObject(json, "best_val_loss", kept->best_loss));
}

/* The text; free() it. */
static char *make_run_json(const tern_text_trainer *t, const char *flags_json, const tern_checkpoints_kept *kept)
{
    char *text = NULL, *copy = NULL;
    tern_text_info info;
    tern_text_trainer_info(t, &info);
    cJSON *json = cJSON_CreateObject();
    if (!json || !cJSON_AddStringToObject(json, "tern", tern_version())) goto end;
    if (!cJSON_AddNumberToObject(json, "steps", (double)info.steps_done)) goto end;
    if (!cJSON_AddNumberToObject(json, "parameters", (double)info.parameters)) goto end;
    if (!add_hex(json, "seed", t->options.seed) || !add_device(json, t->device) || !add_data(json, &info)) goto end;
    if (!add_memory(json, &info.memory) || !add_checkpoints(json, kept)) goto end;
    cJSON *flags = flags_json ? cJSON_Parse(flags_json) : cJSON_CreateObject();
    if (!flags || !cJSON_AddItemToObject(json, "flags", flags)) goto end;
    text = cJSON_Print(json);
    copy = text ? strdup(text) : NULL;
end:
    cJSON_free(text);
    cJSON_Delete(json);
    return copy;
}

/* The text and a newline. Takes the text. */
static tern_status write_text(const char *path, char *text)
{
    const size_t bytes = text ? strlen(text) : 0;
    char *line = text ? realloc(text, bytes + 1) : NULL; /* the newline in place of the zero */
    if (!line) {
        free(text);
        return tern_error_memory("a JSON file's text", bytes + 1);
    }
    line[bytes] = '\n';
    tern_status status = tern_file_write(path, line, bytes + 1);
    free(line);
    return status;
}

/* -------------------------------------------------------------------- saving */

/* So that a power cut that spares the checkpoint spares the lines before it. */
static void sync_metrics(const char *folder)
{
    char *path = join(folder, "metrics.jsonl");
    const int fd = path ? open(path, O_WRONLY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        (void)fsync(fd);
        close(fd);
    }
    free(path);
}

static tern_status save_checkpoint(tern_text_trainer *t, const char *folder, const tern_text_save *how,
                                   const char *config, tern_checkpoints_kept *out_kept)
{
    tern_status status;
    cJSON *notes = make_notes(t);
    const tern_checkpoint_file file = {"config.json", config};
    const tern_checkpoint_content content = {.facts = t->facts,
                                             .notes = notes,
                                             .val_loss = how->val_loss,
                                             .spoilt = how->spoilt,
                                             .files = &file,
                                             .file_count = 1};
    status = notes ? tern_checkpoints_save(t->stepper, folder, &content, how->keep, out_kept)
                   : tern_error_memory("a checkpoint's notes", 1024);
    cJSON_Delete(notes);
    return status;
}

tern_status tern_text_trainer_save(tern_text_trainer *t, const char *folder, const tern_text_save *how)
{
    tern_status status;
    tern_checkpoints_kept kept;
    char *path = join(folder, "config.json"), *run = join(folder, "run.json");
    char *config = t->options.model.kind->config(t->options.model.options);
    if (!path || !run || !config) {
        status = tern_error_memory("the paths of a run", strlen(folder));
        goto fail;
    }
    sync_metrics(folder);
    TERN_TRY(save_checkpoint(t, folder, how, config, &kept));
    status = write_text(path, config);
    config = NULL; /* taken */
    if (status < 0) goto fail;
    TERN_TRY(write_text(run, make_run_json(t, how->flags_json, &kept)));
fail:
    free(config);
    free(path);
    free(run);
    return status;
}
