/* SPDX-License-Identifier: Apache-2.0 */
/* plugin_library.h - the entries of a driver's library, opened at run time, as a table of function pointers.
 *
 *     static const tern_symbol symbols[] = {{"cuInit", offsetof(cuda_driver, cuInit)}, ...};
 *     missing = tern_symbols_find(library, symbols, count, &driver);
 *
 * What it is not: it opens nothing and says no sentence; which library, and what a missing entry means, is the
 * plug-in's. */
#ifndef TERN_BASE_PLUGIN_LIBRARY_H
#define TERN_BASE_PLUGIN_LIBRARY_H

#include <stddef.h>

#include "core/tern.h"

typedef struct tern_symbol {
    const char *name;
    size_t offset; /* in the table, of the pointer that gets it */
} tern_symbol;

/* NULL when all were found; else the name of the first that is missing, those before it filled in. */
TERN_API const char *tern_symbols_find(void *library, const tern_symbol *symbols, size_t count, void *out_table);
/* The file that an entry, a pointer of such a table, was loaded from; `otherwise` where the loader does not know. */
TERN_API const char *tern_symbol_path(const void *pointer_to_entry, const char *otherwise);

#endif
