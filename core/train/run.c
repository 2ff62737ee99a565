/* SPDX-License-Identifier: Apache-2.0 */
/* run.c - the folder of a run: whose it is, and its metrics; run.h has the picture. */
#include "core/train/run.h"

#include <cjson/cJSON.h>
#include <dirent.h>
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
#include "core/train/checkpoints.h"

#define LOCK_NAME ".lock" /* the dot keeps it out of data that are read from here */

/* "<folder>/<name>"; free() it. */
static char *join(const char *folder, const char *name)
{
    size_t bytes = strlen(folder) + strlen(name) + 2;
    char *path = malloc(bytes);
    if (path) snprintf(path, bytes, "%s/%s", folder, name);
    return path;
}

static bool holds(const char *folder, const char *name)
{
    char *path = join(folder, name);
    const bool there = path && access(path, F_OK) == 0;
    free(path);
    return there;
}

bool tern_run_has_weights(const char *folder) { return holds(folder, TERN_CHECKPOINT_WEIGHTS); }

tern_run_content tern_run_look(const char *folder)
{
    if (holds(folder, TERN_CHECKPOINTS_FOLDER)) return TERN_RUN_SAVED;
    if (holds(folder, "run.json") || tern_run_has_weights(folder)) return TERN_RUN_OLD;
    return holds(folder, "metrics.jsonl") || holds(folder, LOCK_NAME) ? TERN_RUN_UNSAVED : TERN_RUN_NOTHING;
}

static tern_status refuse_used(const char *folder)
{
    static const char *const names[] = {"run.json", TERN_CHECKPOINT_WEIGHTS, "metrics.jsonl", "config.json",
                                        TERN_CHECKPOINTS_FOLDER};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (holds(folder, names[i]))
            return tern_error(TERN_ERROR_INVALID,
                              "the output folder %s holds a run already (%s); give --resume auto to go on with it, or "
                              "another folder",
                              folder, names[i]);
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

tern_status tern_run_check_space(const char *folder, uint64_t bytes)
{
    struct statvfs disk;
    if (statvfs(folder, &disk) != 0 || (uint64_t)disk.f_bavail * disk.f_frsize >= bytes) return TERN_OK;
    return tern_error(
        TERN_ERROR_IO,
        "the output folder %s has %llu bytes free, but a run writes %llu; make room or give another folder", folder,
        (unsigned long long)disk.f_bavail * disk.f_frsize, (unsigned long long)bytes);
}

tern_status tern_run_prepare(const char *folder, uint64_t bytes, int *out_lock)
{
    tern_status status;
    struct stat info;
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
    TERN_TRY(tern_run_check_space(folder, bytes));
    if (!out_lock) return TERN_OK;
    TERN_TRY(lock_folder(folder, &lock));
    TERN_TRY(refuse_used(folder)); /* once more: a run may have ended in it meanwhile */
    *out_lock = lock;
    return TERN_OK;
fail:
    tern_run_release(folder, lock);
    return status;
}

/* "<name>.tmp-<pid>-<n>", which base/file.c makes, has no other maker here. */
static void clean(const char *folder)
{
    DIR *listed = opendir(folder);
    if (!listed) return;
    for (const struct dirent *entry; (entry = readdir(listed));) {
        if (!strstr(entry->d_name, ".tmp-")) continue;
        char *path = join(folder, entry->d_name);
        if (path) unlink(path);
        free(path);
    }
    closedir(listed);
    tern_checkpoints_clean(folder);
}

tern_status tern_run_reopen(const char *folder, int *out_lock)
{
    *out_lock = -1;
    if (access(folder, W_OK | X_OK) != 0)
        return tern_error(TERN_ERROR_IO, "the output folder %s cannot be written: %s; give another folder", folder,
                          strerror(errno));
    tern_status status = lock_folder(folder, out_lock);
    if (status < 0) {
        tern_run_release(folder, *out_lock);
        *out_lock = -1;
        return status;
    }
    clean(folder);
    return TERN_OK;
}

/* ------------------------------------------------------------------- metrics */

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

/* Whether the line, `bytes` long, is a whole object of a step up to `steps`. */
static bool is_kept(const char *line, size_t bytes, uint64_t steps)
{
    cJSON *json = cJSON_ParseWithLength(line, bytes);
    const cJSON *step = cJSON_GetObjectItemCaseSensitive(json, "step");
    const bool kept = cJSON_IsNumber(step) && step->valuedouble <= (double)steps;
    cJSON_Delete(json);
    return kept;
}

tern_status tern_run_cut(const char *folder, uint64_t steps)
{
    char *text = NULL, *path = join(folder, "metrics.jsonl");
    size_t bytes = 0, kept = 0;
    if (!path) return tern_error_memory("a path", strlen(folder));
    tern_status status = tern_file_read(path, 0, &text, &bytes);
    if (status == TERN_ERROR_NOT_FOUND) {
        free(path);
        return TERN_OK;
    }
    for (size_t at = 0; status >= 0 && at < bytes;) {
        const char *end = memchr(text + at, '\n', bytes - at);
        if (!end) break;
        const size_t length = (size_t)(end - text) + 1 - at;
        if (is_kept(text + at, length, steps)) {
            memmove(text + kept, text + at, length);
            kept += length;
        }
        at += length;
    }
    if (status >= 0 && kept < bytes) status = tern_file_write(path, text, kept);
    free(text);
    free(path);
    return status;
}

bool tern_run_has_ended(const char *folder)
{
    char *text = NULL, *path = join(folder, "metrics.jsonl");
    size_t bytes = 0;
    bool ended = false;
    if (path && tern_file_read(path, 0, &text, &bytes) >= 0 && bytes > 0 && text[bytes - 1] == '\n') {
        text[bytes - 1] = 0;
        const char *before = strrchr(text, '\n');
        cJSON *json = cJSON_Parse(before ? before + 1 : text);
        ended = cJSON_HasObjectItem(json, "steps");
        cJSON_Delete(json);
    }
    free(text);
    free(path);
    return ended;
}
