/* SPDX-License-Identifier: Apache-2.0 */
/* text.h - a text corpus: the bytes of text files and of all text files below folders, one after another.
 *
 *     paths ──> files, sorted by path ──> one array of bytes (a byte is a token)
 *
 * What it is not: no tokenizer, no split, no batches (train/data.h does those).
 * Skipped: binary files (a NUL among the first 8 KiB), empty files, names beginning with "." or equal to "build",
 * symbolic links and folders that a training run wrote (they hold metrics.jsonl), all of it below a given folder. A
 * path given by name is always read, and refused when it is binary. Invariant: the same files give the same bytes in
 * the same order, whatever the file system's order. */
#ifndef TERN_FORMATS_TEXT_H
#define TERN_FORMATS_TEXT_H

#include "core/base/status.h"

typedef struct tern_text {
    unsigned char *bytes;
    uint64_t byte_count;
    uint64_t fingerprint; /* of the bytes; two corpora of equal fingerprint are equal for every purpose here */
    uint32_t file_count, skipped_count;
} tern_text;

/* Reads `count` files or folders. TERN_ERROR_IO naming the path that cannot be read, TERN_ERROR_INVALID when nothing is
 * there. */
TERN_MUST_USE tern_status tern_text_load(const char *const *paths, uint32_t count, tern_text **out_text);
void tern_text_destroy(tern_text *text);

#endif
