/* SPDX-License-Identifier: Apache-2.0 */
/* plugin_search.c - see plugin_search.h. */
#include "core/base/plugin_search.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The place with its variable's value; false where it is none. A value is a folder's name, not a pattern. */
static bool expand(const char *place, char *out_pattern, size_t bytes)
{
    char name[64];
    size_t at = 0;
    if (place[0] != '$') return snprintf(out_pattern, bytes, "%s", place) < (int)bytes;
    const size_t length = strcspn(place + 1, "/");
    if (length >= sizeof name) return false;
    memcpy(name, place + 1, length);
    name[length] = 0;
    const char *value = getenv(name);
    if (!value || !*value) return false;
    for (; *value && at + 2 < bytes; value++) {
        if (strchr("*?[]\\", *value)) out_pattern[at++] = '\\';
        out_pattern[at++] = *value;
    }
    return *value == 0 && snprintf(out_pattern + at, bytes - at, "%s", place + 1 + length) < (int)(bytes - at);
}

void tern_search(const char *const *places, size_t count, tern_search_visit visit, void *context)
{
    for (size_t p = 0; p < count; p++) {
        char pattern[1024];
        glob_t found = {0};
        if (!expand(places[p], pattern, sizeof pattern)) continue;
        if (!strchr(pattern, '/'))
            visit(context, pattern);
        else if (glob(pattern, 0, NULL, &found) == 0)
            for (size_t i = 0; i < found.gl_pathc && i < TERN_SEARCH_FILES; i++) visit(context, found.gl_pathv[i]);
        globfree(&found);
    }
}
