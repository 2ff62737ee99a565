/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoints.c - see checkpoints.h. Nothing is remembered between calls: the folder is listed each time. */
#include "core/train/checkpoints.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/base/log.h"
#include "core/base/sealed.h"

typedef struct entry {
    uint32_t serial;
    char name[48];
    bool good;   /* its state could be read, and it is not spoilt */
    double loss; /* validation loss; NaN: none */
} entry;

typedef struct shelf {
    char *folder;   /* <run>/checkpoints */
    entry *entries; /* newest first */
    uint32_t count;
} shelf;

static char *join(const char *folder, const char *name)
{
    const size_t bytes = strlen(folder) + strlen(name) + 2;
    char *path = malloc(bytes);
    if (path) snprintf(path, bytes, "%s/%s", folder, name);
    return path;
}

/* ------------------------------------------------------------------- listing */

static int newest_first(const void *a, const void *b)
{
    const uint32_t x = ((const entry *)a)->serial, y = ((const entry *)b)->serial;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* "00007-step-..."; anything else is not ours. */
static uint32_t serial_of(const char *name)
{
    char *end = NULL;
    if (name[0] < '0' || name[0] > '9' || strlen(name) >= sizeof((entry *)0)->name) return 0;
    const unsigned long serial = strtoul(name, &end, 10);
    return strncmp(end, "-step-", 6) == 0 && serial < UINT32_MAX ? (uint32_t)serial : 0;
}

static tern_status list_entries(shelf *s)
{
    tern_status status = TERN_OK;
    DIR *folder = opendir(s->folder);
    if (!folder && errno == ENOENT) return TERN_OK;
    if (!folder) return tern_error(TERN_ERROR_IO, "cannot list the folder %s: %s", s->folder, strerror(errno));
    for (const struct dirent *found; (found = readdir(folder));) {
        const uint32_t serial = serial_of(found->d_name);
        if (serial == 0) continue;
        entry *grown = realloc(s->entries, (s->count + 1) * sizeof *grown);
        if (!grown) {
            status = tern_error_memory("a list of checkpoints", (s->count + 1) * sizeof *grown);
            break;
        }
        s->entries = grown;
        s->entries[s->count] = (entry){.serial = serial, .loss = NAN};
        snprintf(s->entries[s->count++].name, sizeof s->entries->name, "%s", found->d_name);
    }
    closedir(folder);
    if (s->count > 0) qsort(s->entries, s->count, sizeof *s->entries, newest_first);
    return status;
}

/* Only state.json is read, since a whole check reads gigabytes. */
static void look_inside(const shelf *s, entry *e)
{
    tern_checkpoint c = {.folder = join(s->folder, e->name)};
    if (c.folder && tern_checkpoint_state_read(&c) >= 0) {
        e->good = !c.spoilt;
        e->loss = c.val_loss;
    }
    cJSON_Delete(c.state);
    free(c.folder);
}

static tern_status shelf_open(const char *run, shelf *s)
{
    memset(s, 0, sizeof *s);
    s->folder = join(run, TERN_CHECKPOINTS_FOLDER);
    if (!s->folder) return tern_error_memory("a path", strlen(run));
    return list_entries(s);
}

static void shelf_close(shelf *s)
{
    free(s->folder);
    free(s->entries);
}

static const entry *find_best(const shelf *s)
{
    const entry *best = NULL;
    for (uint32_t i = 0; i < s->count; i++)
        if (s->entries[i].good && !isnan(s->entries[i].loss) && (!best || s->entries[i].loss < best->loss))
            best = &s->entries[i];
    return best;
}

/* -------------------------------------------------------------------- saving */

/* What cannot be removed now is removed after the next save. */
static void prune(const shelf *s, uint32_t keep, const entry *best)
{
    uint32_t good = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        if (good >= keep && &s->entries[i] != best) {
            char *path = join(s->folder, s->entries[i].name);
            if (path && tern_sealed_remove(path) < 0) tern_log_write(TERN_LOG_WARNING, "%s", tern_error_message());
            free(path);
        }
        good += s->entries[i].good;
    }
}

static tern_status link_weights(const char *run, const char *checkpoint)
{
    tern_status status;
    char *from = join(checkpoint, TERN_CHECKPOINT_WEIGHTS), *to = join(run, TERN_CHECKPOINT_WEIGHTS);
    status = from && to ? tern_file_link(from, to) : tern_error_memory("a path", strlen(checkpoint));
    free(from);
    free(to);
    return status;
}

static void make_name(const tern_stepper *stepper, uint32_t serial, char *out, size_t bytes)
{
    tern_step_position at;
    tern_stepper_get_position(stepper, &at);
    const int used = snprintf(out, bytes, "%05u-step-%llu", serial, (unsigned long long)at.attempt);
    if (at.micros > 0) snprintf(out + used, bytes - (size_t)used, "+%u", at.micros);
}

tern_status tern_checkpoints_save(tern_stepper *stepper, const char *run, const tern_checkpoint_content *content,
                                  uint32_t keep, tern_checkpoints_kept *out_kept)
{
    tern_status status;
    shelf s;
    char name[48], *path = NULL;
    TERN_TRY(shelf_open(run, &s));
    TERN_TRY(tern_directory_create(s.folder));
    make_name(stepper, s.count > 0 ? s.entries[0].serial + 1 : 1, name, sizeof name);
    path = join(s.folder, name);
    if (!path) {
        status = tern_error_memory("a path", strlen(s.folder));
        goto fail;
    }
    TERN_TRY(tern_checkpoint_save(stepper, path, content));
    TERN_TRY(link_weights(run, path));
    shelf_close(&s);
    TERN_TRY(shelf_open(run, &s)); /* with the new one */
    for (uint32_t i = 0; i < s.count; i++) look_inside(&s, &s.entries[i]);
    const entry *best = find_best(&s);
    prune(&s, keep > 0 ? keep : 1, best);
    if (out_kept) {
        *out_kept = (tern_checkpoints_kept){.best_loss = best ? best->loss : (double)NAN};
        snprintf(out_kept->name, sizeof out_kept->name, TERN_CHECKPOINTS_FOLDER "/%s", name);
        if (best) snprintf(out_kept->best, sizeof out_kept->best, TERN_CHECKPOINTS_FOLDER "/%s", best->name);
    }
fail:
    free(path);
    shelf_close(&s);
    return status;
}

double tern_checkpoints_best_loss(const char *run)
{
    shelf s;
    const tern_status status = shelf_open(run, &s);
    for (uint32_t i = 0; status >= 0 && i < s.count; i++) look_inside(&s, &s.entries[i]);
    const entry *best = find_best(&s);
    const double loss = best ? best->loss : (double)NAN;
    shelf_close(&s);
    return loss;
}

/* ------------------------------------------------------------------- opening */

/* Keeps the sentence of the first that cannot be used, which is the newest. */
static tern_status open_first_good(const shelf *s, tern_checkpoint **out)
{
    char first[512] = "";
    for (uint32_t i = 0; i < s->count; i++) {
        char *path = join(s->folder, s->entries[i].name);
        if (!path) return tern_error_memory("a path", strlen(s->folder));
        tern_status status = tern_checkpoint_open(path, out);
        if (status >= 0 && (*out)->spoilt) {
            status = tern_error(TERN_ERROR_FORMAT, "%s is of a run that diverged", path);
            tern_checkpoint_close(*out);
            *out = NULL;
        }
        free(path);
        if (status >= 0) {
            if (i > 0) tern_log_write(TERN_LOG_WARNING, "%s; %s is taken instead", first, (*out)->folder);
            return TERN_OK;
        }
        if (status == TERN_ERROR_MEMORY) return status;
        if (first[0] == 0) snprintf(first, sizeof first, "%s", tern_error_message());
    }
    return tern_error(TERN_ERROR_FORMAT, "none of the %u checkpoints in %s can be used; of the newest: %s", s->count,
                      s->folder, first);
}

tern_status tern_checkpoints_open(const char *folder, tern_checkpoint **out_checkpoint)
{
    tern_status status;
    shelf s = {0};
    *out_checkpoint = NULL;
    char *own = join(folder, TERN_SEALED_CHECKSUMS);
    if (!own) return tern_error_memory("a path", strlen(folder));
    const bool is_checkpoint = access(own, F_OK) == 0;
    free(own);
    if (is_checkpoint) return tern_checkpoint_open(folder, out_checkpoint);
    TERN_TRY(shelf_open(folder, &s));
    if (s.count == 0)
        status =
            tern_error(TERN_ERROR_NOT_FOUND, "%s holds no checkpoint; give the folder of a run that saved one", folder);
    else
        status = open_first_good(&s, out_checkpoint);
fail:
    shelf_close(&s);
    return status;
}

void tern_checkpoints_clean(const char *run)
{
    char *folder = join(run, TERN_CHECKPOINTS_FOLDER);
    if (folder) tern_sealed_clean(folder);
    free(folder);
}
