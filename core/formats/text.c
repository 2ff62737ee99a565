/* SPDX-License-Identifier: Apache-2.0 */
/* text.c - finds and reads the files of a text corpus; see text.h for what is skipped.
 *
 * Invariant: folders are listed in strcmp order before they are entered, so that the corpus does not depend on the file
 * system; a file that shrinks or fails while it is read is an error, never a shorter corpus. */
#include "core/formats/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/hash.h"

#define SNIFF_BYTES 8192u /* where a NUL means binary */
#define MAX_DEPTH   64    /* of folders; deeper trees are loops or accidents */

static tern_status reserve(tern_text *text, uint64_t *capacity, uint64_t more)
{
    if (text->byte_count + more <= *capacity) return TERN_OK;
    uint64_t grown = *capacity * 2 > text->byte_count + more ? *capacity * 2 : text->byte_count + more;
    unsigned char *bytes = realloc(text->bytes, grown);
    if (!bytes) return tern_error_memory("the text corpus", grown);
    text->bytes = bytes;
    *capacity = grown;
    return TERN_OK;
}

static tern_status read_all(int descriptor, const char *path, unsigned char *out, uint64_t bytes)
{
    for (uint64_t done = 0; done < bytes;) {
        ssize_t got = read(descriptor, out + done, bytes - done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return tern_error(TERN_ERROR_IO, "cannot read %s: %s", path, strerror(errno));
        if (got == 0)
            return tern_error(TERN_ERROR_IO,
                              "%s became shorter while it was read (%llu of %llu bytes); leave the data alone", path,
                              (unsigned long long)done, (unsigned long long)bytes);
        done += (uint64_t)got;
    }
    return TERN_OK;
}

/* named: the user gave this very path, so being binary is an error instead of a reason to skip. */
static tern_status add_file(tern_text *text, uint64_t *capacity, const char *path, bool named)
{
    tern_status status = TERN_OK;
    struct stat info;
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) return tern_error(TERN_ERROR_IO, "cannot open %s: %s", path, strerror(errno));
    if (fstat(descriptor, &info) != 0) {
        status = tern_error(TERN_ERROR_IO, "cannot read the size of %s: %s", path, strerror(errno));
        goto fail;
    }
    if (!S_ISREG(info.st_mode)) {
        if (named)
            status =
                tern_error(TERN_ERROR_INVALID, "%s is neither a file nor a folder; give text files or folders", path);
        goto fail;
    }
    uint64_t bytes = (uint64_t)info.st_size;
    TERN_TRY(reserve(text, capacity, bytes + 1));
    TERN_TRY(read_all(descriptor, path, text->bytes + text->byte_count, bytes));
    if (memchr(text->bytes + text->byte_count, 0, bytes < SNIFF_BYTES ? (size_t)bytes : SNIFF_BYTES)) {
        if (named)
            status =
                tern_error(TERN_ERROR_INVALID, "%s is a binary file (a NUL among its first %u bytes); give text files",
                           path, SNIFF_BYTES);
        text->skipped_count++;
    } else if (bytes > 0) {
        text->byte_count += bytes;
        text->file_count++;
    }
fail:
    close(descriptor);
    return status;
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static void free_names(char **names, size_t count)
{
    for (size_t i = 0; i < count; i++) free(names[i]);
    free(names);
}

/* The folder's entries that are not skipped by name, as full paths, sorted. */
static tern_status list_folder(const char *path, char ***out_names, size_t *out_count)
{
    char **names = NULL;
    size_t count = 0, capacity = 0;
    tern_status status = TERN_OK;
    DIR *folder = opendir(path);
    if (!folder) return tern_error(TERN_ERROR_IO, "cannot open the folder %s: %s", path, strerror(errno));
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(folder);
        if (!entry) {
            if (errno != 0) status = tern_error(TERN_ERROR_IO, "cannot list the folder %s: %s", path, strerror(errno));
            break;
        }
        if (entry->d_name[0] == '.' || strcmp(entry->d_name, "build") == 0) continue;
        if (count == capacity) {
            capacity = capacity ? 2 * capacity : 32;
            char **grown = realloc(names, capacity * sizeof *names);
            if (!grown) {
                status = tern_error_memory("a folder's list", capacity * sizeof *names);
                break;
            }
            names = grown;
        }
        size_t bytes = strlen(path) + strlen(entry->d_name) + 2;
        names[count] = malloc(bytes);
        if (!names[count]) {
            status = tern_error_memory("a path", bytes);
            break;
        }
        snprintf(names[count++], bytes, "%s/%s", path, entry->d_name);
    }
    closedir(folder);
    if (status < 0) {
        free_names(names, count);
        return status;
    }
    if (count > 0) qsort(names, count, sizeof *names, by_name);
    *out_names = names;
    *out_count = count;
    return TERN_OK;
}

/* A folder that a training run wrote: its own log would change the corpus from run to run. */
static bool is_run_folder(char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char *slash = strrchr(names[i], '/');
        if (strcmp(slash + 1, "metrics.jsonl") == 0) return true;
    }
    return false;
}

static tern_status add_folder(tern_text *text, uint64_t *capacity, const char *path, int depth)
{
    tern_status status;
    char **names = NULL;
    size_t count = 0;
    if (depth > MAX_DEPTH)
        return tern_error(TERN_ERROR_INVALID, "%s is more than %d folders deep; give a folder nearer to the text", path,
                          MAX_DEPTH);
    TERN_TRY(list_folder(path, &names, &count));
    if (depth > 0 && is_run_folder(names, count)) goto fail;
    for (size_t i = 0; i < count; i++) {
        struct stat info;
        if (lstat(names[i], &info) != 0) {
            status = tern_error(TERN_ERROR_IO, "cannot look at %s: %s", names[i], strerror(errno));
            goto fail;
        }
        if (S_ISDIR(info.st_mode)) TERN_TRY(add_folder(text, capacity, names[i], depth + 1));
        if (S_ISREG(info.st_mode)) TERN_TRY(add_file(text, capacity, names[i], false));
    }
fail:
    free_names(names, count);
    return status;
}

tern_status tern_text_load(const char *const *paths, uint32_t count, tern_text **out_text)
{
    tern_status status = TERN_OK;
    uint64_t capacity = 0;
    tern_text *text = calloc(1, sizeof *text);
    *out_text = NULL;
    if (!text) return tern_error_memory("a text corpus", sizeof *text);
    for (uint32_t i = 0; i < count; i++) {
        struct stat info;
        if (stat(paths[i], &info) != 0) {
            status = tern_error(TERN_ERROR_IO, "cannot read the data %s: %s", paths[i], strerror(errno));
            goto fail;
        }
        if (S_ISDIR(info.st_mode))
            TERN_TRY(add_folder(text, &capacity, paths[i], 0));
        else
            TERN_TRY(add_file(text, &capacity, paths[i], true));
    }
    if (text->byte_count == 0) {
        status = tern_error(TERN_ERROR_INVALID,
                            "the data %s%s are empty: no text file with a byte in it (%u binary files skipped)",
                            count > 0 ? paths[0] : "", count > 1 ? " and the other paths" : "", text->skipped_count);
        goto fail;
    }
    text->fingerprint = tern_hash(TERN_HASH_START, text->bytes, text->byte_count);
    *out_text = text;
    return TERN_OK;
fail:
    tern_text_destroy(text);
    return status;
}

void tern_text_destroy(tern_text *text)
{
    if (!text) return;
    free(text->bytes);
    free(text);
}
