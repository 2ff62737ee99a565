/* SPDX-License-Identifier: Apache-2.0 */
/* cache.h - checksummed files in tern's cache folder: what a driver compiled, kept for the next run.
 *
 *     <tern_cache_directory(part)>/<kind>-<key>     { magic, key, bytes, checksum } data
 *
 * A driver may crash on a damaged binary, hence the checksum before it is shown one. Deleting any of these files at any
 * time is harmless. Not here: what goes into a key; it must cover whatever the data depends on. */
#ifndef TERN_BASE_CACHE_H
#define TERN_BASE_CACHE_H

#include "core/tern.h"

/* The data kept under `key`; free() *out_data. TERN_ERROR_NOT_FOUND where there is none that is whole: nothing is
 * logged, the caller makes it again. */
TERN_API TERN_MUST_USE tern_status tern_cache_read(const char *part, const char *kind, uint64_t key, char **out_data,
                                                   size_t *out_bytes);
/* Keeps it, atomically. A cache that cannot be written costs time and is no error: the reason is logged. More than 256
 * MiB are not kept. */
TERN_API void tern_cache_write(const char *part, const char *kind, uint64_t key, const void *data, size_t bytes);

#endif
