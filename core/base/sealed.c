/* SPDX-License-Identifier: Apache-2.0 */
/* sealed.c - see sealed.h. The checksum finds damage, it does not keep anyone from forging a file.
 *
 * Its four lanes each take every fourth word, x = rotate((x ^ word) * odd, 29): a bijection in x and in the word, so
 * that one changed word always changes the sum; four lanes hide the multiplier's latency (memory speed on any CPU). */
#include "core/base/sealed.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/base/status.h"

#define FIRST_LINE "tern checksums 1\n"
#define NEW        ".new-"
#define OLD        ".old-"
#define LIST_MAX   1048576u /* bytes of a list of checksums */
#define BLOCK      1048576u /* bytes read at a time */
#define LANES      4u

struct tern_seal {
    char *path, *hidden;
};

static char *join(const char *folder, const char *name)
{
    const size_t bytes = strlen(folder) + strlen(name) + 2;
    char *path = malloc(bytes);
    if (path) snprintf(path, bytes, "%s/%s", folder, name);
    return path;
}

/* "<parent of path>/<prefix><pid>-<n>", a name of this call alone. */
static char *hidden_name(const char *path, const char *prefix)
{
    static atomic_uint counter;
    const char *slash = strrchr(path, '/');
    const int parent = slash ? (int)(slash - path) + 1 : 0;
    const size_t bytes = (size_t)parent + strlen(prefix) + 48;
    char *name = malloc(bytes);
    if (name)
        snprintf(name, bytes, "%.*s%s%ld-%u", parent, path, prefix, (long)getpid(), atomic_fetch_add(&counter, 1));
    return name;
}

static void sync_parent(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *parent = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
    const int fd = parent ? open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        (void)fsync(fd); /* some file systems refuse it for folders, which is no error */
        close(fd);
    }
    free(parent);
}

/* Names of the folder's entries but "." and ".."; free_names() them. False, with errno, when it cannot be listed. It
 * sets no error sentence, since it also cleans up behind one. */
static bool list_names(const char *folder, char ***out_names, size_t *out_count)
{
    bool listed = true;
    char **names = NULL;
    size_t count = 0;
    DIR *open_folder = opendir(folder);
    *out_names = NULL;
    *out_count = 0;
    if (!open_folder) return false;
    for (const struct dirent *entry; listed && (entry = readdir(open_folder));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        char **grown = realloc(names, (count + 1) * sizeof *names);
        if (grown) names = grown;
        listed = grown && (names[count] = strdup(entry->d_name));
        count += listed;
    }
    closedir(open_folder);
    *out_names = names;
    *out_count = count;
    return listed;
}

static void free_names(char **names, size_t count)
{
    for (size_t i = 0; i < count; i++) free(names[i]);
    free(names);
}

/* ----------------------------------------------------------------- checksum */

static uint64_t mix(uint64_t x, uint64_t word)
{
    x = (x ^ word) * 0x9e3779b97f4a7c15ull;
    return x << 29 | x >> 35;
}

static void add_block(uint64_t lanes[LANES], const unsigned char *data, size_t bytes)
{
    uint64_t words[LANES];
    size_t done = 0;
    for (; bytes - done >= sizeof words; done += sizeof words) {
        memcpy(words, data + done, sizeof words);
        for (unsigned i = 0; i < LANES; i++) lanes[i] = mix(lanes[i], words[i]);
    }
    for (; done < bytes; done++) lanes[0] = mix(lanes[0], data[done]);
}

static tern_status read_error(const char *path)
{
    return tern_error(errno == ENOENT ? TERN_ERROR_FORMAT : TERN_ERROR_IO, "cannot read \"%s\": %s", path,
                      strerror(errno));
}

/* Whole blocks, whatever read returns: the sum must not depend on it. */
static ssize_t read_block(int fd, unsigned char *block)
{
    size_t used = 0;
    while (used < BLOCK) {
        const ssize_t got = read(fd, block + used, BLOCK - used);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return -1;
        if (got == 0) break;
        used += (size_t)got;
    }
    return (ssize_t)used;
}

static tern_status sum_file(const char *path, uint64_t *out_sum, uint64_t *out_bytes)
{
    tern_status status = TERN_OK;
    uint64_t lanes[LANES] = {1, 2, 3, 4}, bytes = 0;
    unsigned char *block = malloc(BLOCK);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (!block) status = tern_error_memory("a file's block", BLOCK);
    if (block && fd < 0) status = read_error(path);
    while (status >= 0) {
        const ssize_t got = read_block(fd, block);
        if (got < 0) status = read_error(path);
        if (got <= 0) break;
        add_block(lanes, block, (size_t)got);
        bytes += (uint64_t)got;
    }
    if (fd >= 0) close(fd);
    free(block);
    *out_sum = mix(mix(mix(lanes[0], lanes[1]), lanes[2]), lanes[3]);
    *out_bytes = bytes;
    return status;
}

/* The list's text for all files of the folder; free() it. */
static tern_status make_list(const char *folder, char **out_text)
{
    tern_status status = TERN_OK;
    char **names = NULL, *path = NULL, *text = NULL;
    size_t count = 0, capacity = sizeof FIRST_LINE, used = sizeof FIRST_LINE - 1;
    if (!list_names(folder, &names, &count)) {
        status = tern_error(TERN_ERROR_IO, "cannot list the folder \"%s\": %s", folder, strerror(errno));
        goto fail;
    }
    for (size_t i = 0; i < count; i++) capacity += strlen(names[i]) + 64;
    text = malloc(capacity);
    if (!text) {
        status = tern_error_memory("a list of checksums", capacity);
        goto fail;
    }
    memcpy(text, FIRST_LINE, sizeof FIRST_LINE);
    for (size_t i = 0; i < count; i++) {
        uint64_t sum = 0, bytes = 0;
        path = join(folder, names[i]);
        if (!path) {
            status = tern_error_memory("a path", strlen(folder));
            goto fail;
        }
        TERN_TRY(sum_file(path, &sum, &bytes));
        free(path);
        path = NULL;
        used += (size_t)snprintf(text + used, capacity - used, "%016llx %llu %s\n", (unsigned long long)sum,
                                 (unsigned long long)bytes, names[i]);
    }
    *out_text = text;
    text = NULL;
fail:
    free(text);
    free(path);
    free_names(names, count);
    return status;
}

/* -------------------------------------------------------------------- making */

tern_status tern_seal_begin(const char *path, tern_seal **out_seal)
{
    tern_status status = TERN_OK;
    tern_seal *seal = calloc(1, sizeof *seal);
    *out_seal = NULL;
    if (!seal) return tern_error_memory("a folder's name", sizeof *seal);
    seal->path = strdup(path);
    if (!seal->path) goto memory;
    int error;
    do {
        free(seal->hidden);
        seal->hidden = hidden_name(path, NEW);
        if (!seal->hidden) goto memory;
        error = mkdir(seal->hidden, 0777) == 0 ? 0 : errno;
    } while (error == EEXIST); /* left by a process with our number */
    if (error != 0) {
        status = tern_error(TERN_ERROR_IO, "cannot make the folder \"%s\": %s; make room or choose another place", path,
                            strerror(error));
        goto fail;
    }
    *out_seal = seal;
    return TERN_OK;
memory:
    status = tern_error_memory("a folder's name", strlen(path));
fail:
    tern_seal_abandon(seal);
    return status;
}

const char *tern_seal_folder(const tern_seal *seal) { return seal->hidden; }

tern_status tern_seal_commit(tern_seal *seal)
{
    tern_status status;
    char *list = NULL, *path = join(seal->hidden, TERN_SEALED_CHECKSUMS);
    if (!path) {
        status = tern_error_memory("a path", strlen(seal->hidden));
        goto fail;
    }
    TERN_TRY(make_list(seal->hidden, &list));
    TERN_TRY(tern_file_write(path, list, strlen(list)));
    if (rename(seal->hidden, seal->path) != 0) {
        status = tern_error(TERN_ERROR_IO, "cannot give the folder \"%s\" its name: %s", seal->path, strerror(errno));
        goto fail;
    }
    sync_parent(seal->path);
    free(seal->hidden);
    seal->hidden = NULL; /* it is the folder now */
fail:
    free(list);
    free(path);
    tern_seal_abandon(seal);
    return status;
}

static void remove_all(const char *folder)
{
    char **names = NULL;
    size_t count = 0;
    (void)list_names(folder, &names, &count);
    for (size_t i = 0; i < count; i++) {
        char *path = join(folder, names[i]);
        if (path) unlink(path);
        free(path);
    }
    free_names(names, count);
    rmdir(folder);
}

void tern_seal_abandon(tern_seal *seal)
{
    if (!seal) return;
    if (seal->hidden) remove_all(seal->hidden);
    free(seal->hidden);
    free(seal->path);
    free(seal);
}

/* ------------------------------------------------------------------ checking */

/* One line, "sum bytes name"; cut at its newline. */
static tern_status check_line(const char *folder, const char *line)
{
    tern_status status;
    unsigned long long sum, bytes;
    uint64_t found_sum = 0, found_bytes = 0;
    int name_at = 0;
    if (sscanf(line, "%16llx %llu %n", &sum, &bytes, &name_at) != 2 || name_at == 0 || line[name_at] == 0 ||
        strchr(line + name_at, '/'))
        return tern_error(TERN_ERROR_FORMAT, "\"%s/%s\" is damaged: its line \"%.80s\" cannot be read", folder,
                          TERN_SEALED_CHECKSUMS, line);
    char *path = join(folder, line + name_at);
    if (!path) return tern_error_memory("a path", strlen(folder));
    status = sum_file(path, &found_sum, &found_bytes);
    if (status == TERN_ERROR_FORMAT)
        status = tern_error(TERN_ERROR_FORMAT, "\"%s\" is missing, or \"%s/%s\", which lists it, is damaged", path,
                            folder, TERN_SEALED_CHECKSUMS);
    if (status < 0) goto fail;
    if (found_bytes != bytes)
        status = tern_error(TERN_ERROR_FORMAT, "\"%s\" is damaged: it has %llu bytes instead of %llu", path,
                            (unsigned long long)found_bytes, bytes);
    else if (found_sum != sum)
        status = tern_error(TERN_ERROR_FORMAT, "\"%s\" is damaged: its checksum is %016llx instead of %016llx", path,
                            (unsigned long long)found_sum, sum);
fail:
    free(path);
    return status;
}

tern_status tern_sealed_check(const char *folder)
{
    tern_status status;
    char *text = NULL, *path = join(folder, TERN_SEALED_CHECKSUMS);
    size_t bytes = 0;
    if (!path) return tern_error_memory("a path", strlen(folder));
    TERN_TRY(tern_file_read(path, LIST_MAX, &text, &bytes));
    if (strlen(text) != bytes || strncmp(text, FIRST_LINE, sizeof FIRST_LINE - 1) != 0 || text[bytes - 1] != '\n') {
        status = tern_error(TERN_ERROR_FORMAT, "\"%s\" is damaged: it is no list of checksums of this version", path);
        goto fail;
    }
    for (char *line = text + sizeof FIRST_LINE - 1; *line;) {
        char *end = strchr(line, '\n');
        *end = 0;
        TERN_TRY(check_line(folder, line));
        line = end + 1;
    }
fail:
    free(text);
    free(path);
    return status;
}

/* ------------------------------------------------------------------ removing */

tern_status tern_sealed_remove(const char *path)
{
    tern_status status = TERN_OK;
    char *hidden = hidden_name(path, OLD);
    if (!hidden) return tern_error_memory("a path", strlen(path));
    if (rename(path, hidden) != 0)
        status = tern_error(TERN_ERROR_IO, "cannot remove the folder \"%s\": %s", path, strerror(errno));
    else
        remove_all(hidden);
    free(hidden);
    return status;
}

void tern_sealed_clean(const char *parent)
{
    char **names = NULL;
    size_t count = 0;
    (void)list_names(parent, &names, &count);
    for (size_t i = 0; i < count; i++) {
        if (strncmp(names[i], NEW, sizeof NEW - 1) != 0 && strncmp(names[i], OLD, sizeof OLD - 1) != 0) continue;
        char *path = join(parent, names[i]);
        if (path) remove_all(path);
        free(path);
    }
    free_names(names, count);
}
