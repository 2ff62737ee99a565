/* SPDX-License-Identifier: Apache-2.0 */
/* trainer_save.c - a trainer's checkpoints, going on from them, and what to ask when training has diverged.
 *
 *     save    window ended ──> <folder>/checkpoints/<n>-step-<k>/ and <folder>/model.safetensors (checkpoints.h)
 *     resume  newest whole one ── facts compared ──> store, position ── examples so far ──> the report
 *
 * What it is not: it knows no data; the caller finds the place in his by the report's examples.
 * Invariant: saves are between windows, so that a checkpoint of the library never holds half a window. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/log.h"
#include "core/train/checkpoints.h"
#include "core/train/diagnose.h"
#include "core/train/trainer_internal.h"

#define KEEP 2 /* checkpoints */

/* Of the device, as against a file's or an argument's. */
static bool is_devices(tern_status status)
{
    return status == TERN_ERROR_DEVICE_LOST || status == TERN_ERROR_DRIVER || status == TERN_ERROR_TIMEOUT ||
           status == TERN_ERROR_INTERNAL;
}

cJSON *tern_trainer_facts(const tern_trainer *t, const tern_setup_options *options)
{
    cJSON *facts = cJSON_CreateObject();
    if (facts && tern_facts_add_setup(facts, options) &&
        tern_facts_add_number(facts, TERN_FACTS_BATCH, "accumulate", t->accumulate))
        return facts;
    cJSON_Delete(facts);
    return NULL;
}

/* --------------------------------------------------------------------- save */

tern_status tern_trainer_save(tern_trainer *t, const char *folder)
{
    tern_status status;
    cJSON *notes = NULL;
    TERN_TRY(tern_trainer_ready(t));
    if (!folder || !folder[0]) return tern_error(TERN_ERROR_INVALID, "the folder's name is empty; name a folder");
    TERN_TRY(tern_trainer_finish(t, NULL));
    TERN_TRY(tern_directory_create(folder));
    notes = cJSON_CreateObject();
    if (!notes || !cJSON_AddNumberToObject(notes, "examples", (double)t->examples)) {
        status = tern_error_memory("a checkpoint's notes", 64);
        goto fail;
    }
    const tern_checkpoint_content content = {.facts = t->facts, .notes = notes, .val_loss = NAN};
    status = tern_checkpoints_save(t->stepper, folder, &content, KEEP, NULL);
    if (is_devices(status)) status = tern_trainer_keep(t, status);
fail:
    cJSON_Delete(notes);
    return status;
}

/* ------------------------------------------------------------------- resume */

static tern_status read_examples(const tern_checkpoint *c, uint64_t *out_examples)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(c->notes, "examples");
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0 && item->valuedouble <= 9e15) || c->position.micros != 0)
        return tern_error(TERN_ERROR_FORMAT,
                          "%s was not written by tern_trainer_save; take its weights by tern_trainer_load", c->folder);
    *out_examples = (uint64_t)item->valuedouble;
    return TERN_OK;
}

/* Before anything is replaced, so that a checkpoint of another graph leaves the trainer as it was. */
static tern_status check_graph(const tern_trainer *t, const tern_checkpoint *c)
{
    tern_safetensors *file = NULL;
    const size_t bytes = strlen(c->folder) + sizeof "/" TERN_CHECKPOINT_WEIGHTS;
    char *path = malloc(bytes);
    if (!path) return tern_error_memory("a path", bytes);
    snprintf(path, bytes, "%s/%s", c->folder, TERN_CHECKPOINT_WEIGHTS);
    const tern_status status = tern_trainer_match(t, path, 0, &file);
    tern_safetensors_close(file);
    free(path);
    return status;
}

static tern_status restore(tern_trainer *t, const tern_checkpoint *c)
{
    tern_status status;
    char why[256];
    uint64_t examples = 0;
    TERN_TRY(read_examples(c, &examples));
    TERN_TRY(tern_facts_compare(c->folder, c->facts, t->facts, TERN_FACTS_ALLOW_DATA | TERN_FACTS_ALLOW_SETTINGS));
    TERN_TRY(check_graph(t, c));
    TERN_TRY(tern_trainer_keep(t, tern_checkpoint_restore(c, t->stepper)));
    if (!tern_checkpoint_is_exact(c, t->setup, why, sizeof why))
        tern_log_write(TERN_LOG_WARNING, "%s goes on within tolerance, not to the bit: %s", c->folder, why);
    t->windows = c->position.attempt;
    t->examples = examples;
    t->window_micros = t->window_examples = 0;
    t->last = (tern_step_report){0};
fail:
    return status;
}

tern_status tern_trainer_resume(tern_trainer *t, const char *folder, tern_report *out_report)
{
    tern_status status;
    tern_checkpoint *checkpoint = NULL;
    TERN_TRY(tern_trainer_ready(t));
    TERN_TRY(tern_trainer_report_check(out_report));
    if (!folder || !folder[0]) return tern_error(TERN_ERROR_INVALID, "the folder's name is empty; name a folder");
    TERN_TRY(tern_checkpoints_open(folder, &checkpoint));
    TERN_TRY(restore(t, checkpoint));
    tern_trainer_report(t, false, false, out_report);
fail:
    tern_checkpoint_close(checkpoint);
    return status;
}

/* ----------------------------------------------------------------- diagnosis */

tern_status tern_trainer_diagnose(tern_trainer *t, const tern_feed *feeds, size_t feed_count, int64_t examples,
                                  char *out_phrase, size_t bytes)
{
    tern_status status;
    tern_diagnosis found;
    tern_feed *filled = NULL;
    uint32_t count = 0;
    TERN_TRY(tern_trainer_ready(t));
    if (!out_phrase || bytes == 0)
        return tern_error(TERN_ERROR_INVALID, "out_phrase has no room; give at least 1 byte");
    out_phrase[0] = 0;
    TERN_TRY(tern_trainer_fill(t, TERN_PROGRAM_MICRO, feeds, feed_count, examples));
    TERN_TRY(tern_trainer_filled(t, &filled, &count));
    /* As the first batch of the window that has begun, else of the last one: whose random numbers it saw. */
    const uint64_t window = t->window_micros > 0 || t->windows == 0 ? t->windows : t->windows - 1;
    status = tern_stepper_diagnose(t->stepper, filled, count, window, 0, &found);
    if (is_devices(status)) status = tern_trainer_keep(t, status);
    if (status >= 0 && found.found) tern_diagnosis_print(&found, out_phrase, bytes);
fail:
    free(filled);
    return status;
}
