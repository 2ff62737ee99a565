/* SPDX-License-Identifier: Apache-2.0 */
/* file.h - whole files, written so that a reader (or a crash) sees the old content or the new, never half of it.
 *
 *     write   path.tmp-<pid>-<n> ── data ── fsync ── rename to path ── fsync of the folder
 *
 * Errors are TERN_ERROR_IO (TERN_ERROR_NOT_FOUND: no such file) with path, reason and, where a disk is full, the bytes
 * wanted. */
#ifndef TERN_BASE_FILE_H
#define TERN_BASE_FILE_H

#include "core/tern.h"

/* Replaces or makes the file. On failure the old file is untouched and no temporary is left. */
TERN_API TERN_MUST_USE tern_status tern_file_write(const char *path, const void *data, size_t bytes);

/* Makes or replaces `path` by the file `from` without copying it where the file system can (a hard link); as atomic.
 * The two may then be one file: replace them, never write into them. */
TERN_API TERN_MUST_USE tern_status tern_file_link(const char *from, const char *path);

/* The same for files that are too large to hold in memory, in pieces:
 *     tern_file_begin ─ tern_file_append ... ─┬─ tern_file_commit   the file is there
 *                                             └─ tern_file_abandon  nothing has changed
 * commit frees the writer even when it fails; after a failed append, abandon. abandon(NULL) does nothing. */
typedef struct tern_file_writer tern_file_writer;
TERN_API TERN_MUST_USE tern_status tern_file_begin(const char *path, tern_file_writer **out_writer);
TERN_API TERN_MUST_USE tern_status tern_file_append(tern_file_writer *writer, const void *data, size_t bytes);
TERN_API TERN_MUST_USE tern_status tern_file_commit(tern_file_writer *writer);
TERN_API void tern_file_abandon(tern_file_writer *writer);

/* Reads a file whole; *out_data is followed by a zero byte that *out_bytes does not count; free() it. max_bytes 0: no
 * limit. */
TERN_API TERN_MUST_USE tern_status tern_file_read(const char *path, size_t max_bytes, char **out_data,
                                                  size_t *out_bytes);

/* Makes a folder and those above it, mode 0777 less the umask; an existing one is fine. */
TERN_API TERN_MUST_USE tern_status tern_directory_create(const char *path);

/* The folder for `part` ("vulkan") of tern's caches, made if absent: $XDG_CACHE_HOME/tern/part, else
 * $HOME/.cache/tern/part, else $TMPDIR (or /tmp)/tern-<uid>/part; the first that can be written. A folder in a
 * temporary directory must belong to this user and be closed to others. TERN_ERROR_IO when there is none: caches are
 * optional, callers go on without. */
TERN_API TERN_MUST_USE tern_status tern_cache_directory(const char *part, char *out_path, size_t bytes);

#endif
