/* SPDX-License-Identifier: Apache-2.0 */
/* run.c - the folder of a run: weights, the model's shape, how it was made, and its metrics.
 *
 *     model.safetensors   all weights by name      config.json    Hugging Face's shape keys
 *     run.json            flags, device, kernels   metrics.jsonl  one JSON object per line, appended
 *
 * Invariant: the three written files are whole or absent; run.json is written last, so that its presence means a whole
 * save. While a run goes on, .lock is in the folder. */
#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/base/log.h"
#include "core/formats/safetensors.h"
#include "core/train/text_trainer_internal.h"

#define LOCK_NAME ".lock" /* the dot keeps it out of data that are read from here */

/* "<folder>/<name>"; free() it. */
static char *join(const char *folder, const char *name)
{
    size_t bytes = strlen(folder) + strlen(name) + 2;
    char *path = malloc(bytes);
    if (path) snprintf(path, bytes, "%s/%s", folder, name);
    return path;
}

static tern_status refuse_used(const char *folder)
{
    static const char *const names[] = {"run.json", "model.safetensors", "metrics.jsonl", "config.json"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *path = join(folder, names[i]);
        if (!path) return tern_error_memory("a path", strlen(folder));
        bool used = access(path, F_OK) == 0;
        free(path);
        if (used)
            return tern_error(TERN_ERROR_INVALID,
                              "the output folder %s holds a run already (%s); give another folder or remove it", folder,
                              names[i]);
    }
    return TERN_OK;
}

/* The lock is the kernel's, on the file, so that it ends with the process however that ends; the file's text, the
 * process's number, is for people. A file that was removed between open and lock protects nothing: then once more. */
static tern_status take_lock(const char *folder, const char *path, int *out_lock)
{
    struct stat named, locked;
    for (;;) {
        const int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (lock < 0) return tern_error(TERN_ERROR_IO, "cannot open %s: %s", path, strerror(errno));
        const int error = flock(lock, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
        if (error == EWOULDBLOCK) {
            close(lock);
            return tern_error(TERN_ERROR_INVALID,
                              "another run is training into the output folder %s just now; give another folder",
                              folder);
        }
        if (error != 0) /* some network file systems have no locks; without one a run is still a run */
            tern_log_write(TERN_LOG_WARNING, "the output folder %s cannot be locked: %s; start no second run into it",
                           folder, strerror(error));
        if (error != 0 || (stat(path, &named) == 0 && fstat(lock, &locked) == 0 && named.st_ino == locked.st_ino)) {
            *out_lock = lock;
            return TERN_OK;
        }
        close(lock);
    }
}

static tern_status lock_folder(const char *folder, int *out_lock)
{
    char text[32];
    char *path = join(folder, LOCK_NAME);
    if (!path) return tern_error_memory("a path", strlen(folder));
    tern_status status = take_lock(folder, path, out_lock);
    if (status >= 0) {
        if (pread(*out_lock, text, sizeof text, 0) > 0)
            tern_log_write(TERN_LOG_INFO, "the output folder %s is taken over from a run that was killed", folder);
        const int bytes = snprintf(text, sizeof text, "%ld\n", (long)getpid());
        if (ftruncate(*out_lock, 0) != 0 || pwrite(*out_lock, text, (size_t)bytes, 0) != bytes)
            status = tern_error(TERN_ERROR_IO, "cannot write %s: %s", path, strerror(errno));
    }
    free(path);
    return status;
}

void tern_run_release(const char *folder, int lock)
{
    if (lock < 0) return;
    char *path = join(folder, LOCK_NAME);
    if (path) unlink(path); /* before the lock ends, so that nobody else's file is removed */
    free(path);
    close(lock);
}

tern_status tern_run_prepare(const char *folder, uint64_t bytes, int *out_lock)
{
    tern_status status;
    struct stat info;
    struct statvfs disk;
    int lock = -1;
    if (out_lock) *out_lock = -1;
    if (folder[0] == 0) return tern_error(TERN_ERROR_INVALID, "the output folder's name is empty; give a folder");
    TERN_TRY(tern_directory_create(folder));
    if (stat(folder, &info) != 0 || !S_ISDIR(info.st_mode))
        return tern_error(TERN_ERROR_IO, "the output %s is no folder; give another name", folder);
    TERN_TRY(refuse_used(folder));
    if (access(folder, W_OK | X_OK) != 0)
        return tern_error(TERN_ERROR_IO, "the output folder %s cannot be written: %s; give another folder", folder,
                          strerror(errno));
    if (statvfs(folder, &disk) == 0 && (uint64_t)disk.f_bavail * disk.f_frsize < bytes)
        return tern_error(
            TERN_ERROR_IO,
            "the output folder %s has %llu bytes free, but a run writes %llu; make room or give another folder", folder,
            (unsigned long long)disk.f_bavail * disk.f_frsize, (unsigned long long)bytes);
    if (!out_lock) return TERN_OK;
    TERN_TRY(lock_folder(folder, &lock));
    TERN_TRY(refuse_used(folder)); /* once more: a run may have ended in it meanwhile */
    *out_lock = lock;
    return TERN_OK;
fail:
    tern_run_release(folder, lock);
    return status;
}

tern_status tern_run_append(const char *folder, const char *json_line)
{
    tern_status status = TERN_OK;
    const size_t bytes = strlen(json_line);
    int descriptor = -1;
    char *line = NULL, *path = join(folder, "metrics.jsonl");
    line = malloc(bytes + 1);
    if (!path || !line) {
        status = tern_error_memory("a line of metrics", bytes);
        goto fail;
    }
    memcpy(line, json_line, bytes);
    line[bytes] = '\n';
    descriptor = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (descriptor < 0) {
        status = tern_error(TERN_ERROR_IO, "cannot open %s: %s", path, strerror(errno));
        goto fail;
    }
    const off_t old = lseek(descriptor, 0, SEEK_END);
    ssize_t done = write(descriptor, line, bytes + 1);
    if (done != (ssize_t)bytes + 1) {
        const int error = done < 0 ? errno : ENOSPC;
        if (done > 0 && (old < 0 || ftruncate(descriptor, old) != 0))
            tern_log_write(TERN_LOG_WARNING, "half a line stays at the end of %s", path);
        status = tern_error(TERN_ERROR_IO, "cannot append %zu bytes to %s: %s", bytes + 1, path, strerror(error));
    }
fail:
    if (descriptor >= 0) close(descriptor);
    free(line);
    free(path);
    return status;
}

/* -------------------------------------------------------------------- weights */

static tern_status read_parameter(void *context, uint32_t index, float *out, uint64_t count)
{
    tern_text_trainer *t = context;
    return tern_store_read(tern_stepper_store(t->stepper), t->setup->layout->parameters[index].name, out,
                           count * sizeof *out);
}

static tern_status save_weights(tern_text_trainer *t, const char *path)
{
    const tern_store_layout *layout = t->setup->layout;
    tern_safetensors_entry *entries = calloc((size_t)layout->parameter_count + 1, sizeof *entries);
    if (!entries) return tern_error_memory("the list of tensors", layout->parameter_count * sizeof *entries);
    for (uint32_t i = 0; i < layout->parameter_count; i++) {
        entries[i].name = layout->parameters[i].name;
        entries[i].rank = layout->parameters[i].rank;
        memcpy(entries[i].shape, layout->parameters[i].shape, sizeof entries[i].shape);
    }
    tern_status status = tern_safetensors_write(path, entries, layout->parameter_count, read_parameter, t);
    free(entries);
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

/* The variants in use, each once: what a resumed run must keep to give the same bits. */
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

/* The text; free() it. */
static char *make_run_json(const tern_text_trainer *t, const char *flags_json)
{
    char *text = NULL, *copy = NULL;
    tern_text_info info;
    tern_text_trainer_info(t, &info);
    cJSON *json = cJSON_CreateObject();
    if (!json || !cJSON_AddStringToObject(json, "tern", tern_version())) goto end;
    if (!cJSON_AddNumberToObject(json, "steps", (double)t->attempt)) goto end;
    if (!cJSON_AddNumberToObject(json, "parameters", (double)info.parameters)) goto end;
    if (!add_hex(json, "seed", t->options.seed) || !add_device(json, t->device) || !add_data(json, &info)) goto end;
    if (!add_memory(json, &info.memory) || !add_variants(json, t->setup)) goto end;
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

tern_status tern_text_trainer_save(tern_text_trainer *t, const char *folder, const char *flags_json)
{
    tern_status status;
    tern_step_report last; /* the next step reports it again */
    char *weights = join(folder, "model.safetensors"), *config = join(folder, "config.json"),
         *run = join(folder, "run.json");
    if (!weights || !config || !run) {
        status = tern_error_memory("the paths of a run", strlen(folder));
        goto fail;
    }
    TERN_TRY(tern_stepper_finish(t->stepper, &last)); /* so that the last report is in */
    TERN_TRY(save_weights(t, weights));
    TERN_TRY(write_text(config, tern_gpt2_config_write(&t->options.model)));
    TERN_TRY(write_text(run, make_run_json(t, flags_json)));
fail:
    free(weights);
    free(config);
    free(run);
    return status;
}
