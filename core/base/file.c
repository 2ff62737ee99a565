/* SPDX-License-Identifier: Apache-2.0 */
/* file.c - whole files: atomic replacement and reading. What it is not: a stream library.
 *
 * fsync of the data comes before the rename, so that after a power cut the name never leads to an empty file; fsync of
 * the folder comes after it, so that the rename itself lasts (some file systems refuse that one, which is not an
 * error). */
#include "core/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/status.h"

struct tern_file_writer {
    int fd;
    char *path;
    char *temporary;
    uint64_t written;
};

/* What to do, for the reasons that people meet. */
static const char *advice(int error)
{
    switch (error) {
    case ENOSPC:
    case EDQUOT: return "free some space or choose another folder";
    case EACCES:
    case EPERM:
    case EROFS: return "choose a folder that you may write to, or change its permissions";
    case ENOENT: return "check the path; its folder must exist";
    case ENOTDIR: return "a part of the path is a file; choose another path";
    default: return "check the path and the disk";
    }
}

static tern_status write_error(const tern_file_writer *writer, const char *what, int error)
{
    return tern_error(TERN_ERROR_IO, "cannot %s \"%s\" after %llu bytes: %s; %s", what, writer->path,
                      (unsigned long long)writer->written, strerror(error), advice(error));
}

/* Makes path.tmp-<pid>-<n>, a name of this writer alone. Not mkstemp: its files are private, and undoing that needs the
 * umask, which a thread cannot read without changing it for the others. */
static int create_temporary(const char *path, char *name, size_t bytes)
{
    static atomic_uint counter;
    int fd;
    do {
        snprintf(name, bytes, "%s.tmp-%ld-%u", path, (long)getpid(), atomic_fetch_add(&counter, 1));
        fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    } while (fd < 0 && errno == EEXIST); /* left by a crash of a process with our number */
    return fd;
}

tern_status tern_file_begin(const char *path, tern_file_writer **out_writer)
{
    tern_status status = TERN_OK;
    size_t bytes = strlen(path) + 64;
    *out_writer = NULL;
    tern_file_writer *writer = calloc(1, sizeof *writer);
    if (!writer) return tern_error_memory("a file writer", sizeof *writer);
    writer->fd = -1;
    writer->path = strdup(path);
    writer->temporary = malloc(bytes);
    if (!writer->path || !writer->temporary) {
        status = tern_error_memory("a file name", bytes);
        goto fail;
    }
    writer->fd = create_temporary(path, writer->temporary, bytes);
    if (writer->fd < 0) {
        int error = errno;
        free(writer->temporary);
        writer->temporary = NULL; /* nothing to remove */
        status = write_error(writer, "write", error);
        goto fail;
    }
    *out_writer = writer;
    return TERN_OK;
fail:
    tern_file_abandon(writer);
    return status;
}

tern_status tern_file_append(tern_file_writer *writer, const void *data, size_t bytes)
{
    const char *p = data;
    while (bytes > 0) {
        ssize_t done = write(writer->fd, p, bytes);
        if (done < 0) {
            if (errno == EINTR) continue;
            return write_error(writer, "write", errno);
        }
        p += done;
        bytes -= (size_t)done;
        writer->written += (uint64_t)done;
    }
    return TERN_OK;
}

static void sync_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
    int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        (void)fsync(fd);
        close(fd);
    }
    free(folder);
}

tern_status tern_file_commit(tern_file_writer *writer)
{
    tern_status status = TERN_OK;
    if (fsync(writer->fd) != 0) {
        status = write_error(writer, "write", errno);
        goto fail;
    }
    int fd = writer->fd;
    writer->fd = -1;
    if (close(fd) != 0) {
        status = write_error(writer, "write", errno);
        goto fail;
    }
    if (rename(writer->temporary, writer->path) != 0) {
        status = write_error(writer, "replace", errno);
        goto fail;
    }
    sync_folder(writer->path);
    free(writer->temporary);
    writer->temporary = NULL; /* it is the file now */
fail:
    tern_file_abandon(writer);
    return status;
}

void tern_file_abandon(tern_file_writer *writer)
{
    if (!writer) return;
    if (writer->fd >= 0) close(writer->fd);
    if (writer->temporary) unlink(writer->temporary);
    free(writer->temporary);
    free(writer->path);
    free(writer);
}

tern_status tern_file_write(const char *path, const void *data, size_t bytes)
{
    tern_status status;
    tern_file_writer *writer = NULL;
    TERN_TRY(tern_file_begin(path, &writer));
    TERN_TRY(tern_file_append(writer, data, bytes));
    return tern_file_commit(writer);
fail:
    tern_file_abandon(writer);
    return status;
}

/* In pieces, for file systems without links. */
static tern_status copy(const char *from, const char *path)
{
    tern_status status = TERN_OK;
    tern_file_writer *writer = NULL;
    const size_t most = 1048576;
    char *piece = malloc(most);
    const int fd = open(from, O_RDONLY | O_CLOEXEC);
    if (!piece || fd < 0) {
        status = piece ? tern_error(TERN_ERROR_IO, "cannot read \"%s\": %s", from, strerror(errno))
                       : tern_error_memory("a piece of a file", most);
        goto fail;
    }
    TERN_TRY(tern_file_begin(path, &writer));
    for (ssize_t got; (got = read(fd, piece, most)) != 0;) {
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            status = tern_error(TERN_ERROR_IO, "cannot read \"%s\": %s", from, strerror(errno));
            goto fail;
        }
        TERN_TRY(tern_file_append(writer, piece, (size_t)got));
    }
    status = tern_file_commit(writer);
    writer = NULL;
fail:
    tern_file_abandon(writer);
    if (fd >= 0) close(fd);
    free(piece);
    return status;
}

tern_status tern_file_link(const char *from, const char *path)
{
    const size_t bytes = strlen(path) + 64;
    char *temporary = malloc(bytes);
    if (!temporary) return tern_error_memory("a file name", bytes);
    const int fd = create_temporary(path, temporary, bytes);
    if (fd >= 0) close(fd);
    bool linked = fd >= 0 && unlink(temporary) == 0 && link(from, temporary) == 0;
    if (linked) {
        linked = rename(temporary, path) == 0;
        unlink(temporary); /* it stays where both names were one file already: rename does nothing then */
    }
    free(temporary);
    if (!linked) return copy(from, path);
    sync_folder(path);
    return TERN_OK;
}

static tern_status read_error(const char *path, int error)
{
    return tern_error(error == ENOENT ? TERN_ERROR_NOT_FOUND : TERN_ERROR_IO,
                      "cannot read \"%s\": %s; check the path and its permissions", path, strerror(error));
}

static tern_status too_large(const char *path, uint64_t bytes, size_t max_bytes)
{
    return tern_error(TERN_ERROR_IO,
                      "\"%s\" has %llu bytes or more; at most %zu are expected here; is it the right file?", path,
                      (unsigned long long)bytes, max_bytes);
}

/* Reads until the end, not until the size that stat gave: files of /proc have size 0, others may grow. */
static tern_status read_all(int fd, const char *path, size_t guess, size_t max_bytes, char **out_data,
                            size_t *out_bytes)
{
    tern_status status;
    size_t capacity = guess + 1, used = 0;
    char *data = malloc(capacity);
    if (!data) return tern_error_memory(path, capacity);
    for (;;) {
        if (used + 1 >= capacity) {
            char *larger = realloc(data, capacity * 2 + 4096);
            if (!larger) {
                status = tern_error_memory(path, capacity * 2 + 4096);
                goto fail;
            }
            data = larger;
            capacity = capacity * 2 + 4096;
        }
        ssize_t got = read(fd, data + used, capacity - used - 1);
        if (got == 0) break;
        if (got < 0) {
            if (errno == EINTR) continue;
            status = read_error(path, errno);
            goto fail;
        }
        used += (size_t)got;
        if (max_bytes && used > max_bytes) {
            status = too_large(path, used, max_bytes);
            goto fail;
        }
    }
    data[used] = 0;
    *out_data = data;
    *out_bytes = used;
    return TERN_OK;
fail:
    free(data);
    return status;
}

tern_status tern_file_read(const char *path, size_t max_bytes, char **out_data, size_t *out_bytes)
{
    struct stat info;
    tern_status status = TERN_OK;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return read_error(path, errno);
    if (fstat(fd, &info) != 0)
        status = read_error(path, errno);
    else if (S_ISDIR(info.st_mode))
        status = read_error(path, EISDIR);
    else if (max_bytes && (uint64_t)info.st_size > max_bytes)
        status = too_large(path, (uint64_t)info.st_size, max_bytes);
    else
        status = read_all(fd, path, (size_t)info.st_size + 1, max_bytes, out_data, out_bytes);
    close(fd);
    return status;
}
