/* SPDX-License-Identifier: Apache-2.0 */
/* sealed.h - a folder of files that is there whole or not at all, and that tells when one of its files was damaged.
 *
 *     begin    parent/.new-<pid>-<n>/           hidden: whoever lists the parent does not see it
 *     caller   writes files into it             with tern_file_write or a writer, so that each is on the disk
 *     commit   checksums ── rename to the final name ── fsync of the parent
 *     check    every listed file has its size and its checksum
 *
 * The file "checksums" has one line per file, "<16 hex digits> <bytes> <name>", after a line that names the format.
 * What it is not: no archive, no folders inside; files that are added later are not looked at. Invariant: after a kill
 * or a power cut at any moment a folder with the final name passes the check; what was begun only is found by its
 * hidden name. */
#ifndef TERN_BASE_SEALED_H
#define TERN_BASE_SEALED_H

#include "core/tern.h"

#define TERN_SEALED_CHECKSUMS "checksums"

typedef struct tern_seal tern_seal;

/* Starts a folder that will be called `path`, in a parent that exists. */
TERN_MUST_USE tern_status tern_seal_begin(const char *path, tern_seal **out_seal);
/* Where to write the files until the commit. */
const char *tern_seal_folder(const tern_seal *seal);
/* Gives the folder its name. Frees the seal, also on failure, when nothing of the folder stays. A folder of that name
 * that holds something is an error. */
TERN_MUST_USE tern_status tern_seal_commit(tern_seal *seal);
/* Removes what was begun; NULL allowed. */
void tern_seal_abandon(tern_seal *seal);

/* TERN_ERROR_NOT_FOUND: no sealed folder; TERN_ERROR_FORMAT naming the file that is missing, too short or damaged. */
TERN_MUST_USE tern_status tern_sealed_check(const char *path);
/* Removes the folder and the files in it, hiding it first, so that a kill in between leaves no half of it. */
TERN_MUST_USE tern_status tern_sealed_remove(const char *path);
/* Removes what killed processes left hidden in the parent. Only for whoever has the parent to himself. */
void tern_sealed_clean(const char *parent);

#endif
