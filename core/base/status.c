/* SPDX-License-Identifier: Apache-2.0 */
/* status.c - the thread's error sentence, and the names of the statuses.
 *
 * Invariant: the sentence is always a zero-terminated string; a longer one is cut and ends in "...". No allocation, so
 * that "out of memory" can be reported too. A sentence may name the present one in its arguments (it is composed aside
 * first). */
#include "core/base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define SENTENCE_BYTES 2048 /* a compiler's log fits in part; the rest goes to the log callback */

static _Thread_local char sentence[SENTENCE_BYTES];

/* Marks a sentence that did not fit. needed: what vsnprintf returned. */
static void mark_cut(char *text, size_t bytes, int needed)
{
    if (needed >= 0 && (size_t)needed >= bytes) memcpy(text + bytes - 4, "...", 4);
}

tern_status tern_error(tern_status status, const char *format, ...)
{
    char text[SENTENCE_BYTES] = "";
    va_list arguments;
    va_start(arguments, format);
    int needed = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    mark_cut(text, sizeof text, needed);
    memcpy(sentence, text, sizeof sentence);
    return status;
}

tern_status tern_error_prefix(tern_status status, const char *format, ...)
{
    char text[SENTENCE_BYTES] = "";
    va_list arguments;
    va_start(arguments, format);
    int prefix = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    mark_cut(text, sizeof text, prefix);
    size_t used = strlen(text);
    int rest = snprintf(text + used, sizeof text - used, ": %s", sentence);
    mark_cut(text + used, sizeof text - used < 4 ? 4 : sizeof text - used, sizeof text - used < 4 ? 0 : rest);
    memcpy(sentence, text, sizeof sentence);
    return status;
}

tern_status tern_error_memory(const char *what, size_t bytes)
{
    return tern_error(TERN_ERROR_MEMORY,
                      "host out of memory: %zu bytes for %s; close other programs or use a smaller setting", bytes,
                      what);
}

const char *tern_error_message(void) { return sentence; }

const char *tern_status_name(tern_status status)
{
    switch (status) {
#define STATUS_CASE(name, value, text)                                                                                 \
    case name: return text;
        TERN_STATUS_LIST(STATUS_CASE)
#undef STATUS_CASE
    }
    return "unknown status";
}

#define VERSION_TEXT_(a, b, c) #a "." #b "." #c
#define VERSION_TEXT(a, b, c)  VERSION_TEXT_(a, b, c)

const char *tern_version(void) { return VERSION_TEXT(TERN_VERSION_MAJOR, TERN_VERSION_MINOR, TERN_VERSION_PATCH); }
