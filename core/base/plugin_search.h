/* SPDX-License-Identifier: Apache-2.0 */
/* plugin_search.h - files on the machine that may be the library or compiler a plug-in looks for: places as a table.
 *
 *     "libnvrtc.so"                      no slash: as it stands, for the loader to find
 *     "$CUDA_HOME/lib*" "/libnvrtc.so*"  a pattern of glob(7); a first word $NAME is that environment variable's value,
 *                                        and a place whose variable is unset or empty is none
 *
 * What it is not: it opens and judges nothing, and starts no program. Invariant: places are visited in the table's
 * order, the files of one in strcmp order, at most TERN_SEARCH_FILES of one, so that a folder full of versions costs an
 * end. */
#ifndef TERN_BASE_PLUGIN_SEARCH_H
#define TERN_BASE_PLUGIN_SEARCH_H

#include <stddef.h>

#include "core/tern.h"

#define TERN_SEARCH_FILES 32

typedef void (*tern_search_visit)(void *context, const char *path);

TERN_API void tern_search(const char *const *places, size_t count, tern_search_visit visit, void *context);

#endif
