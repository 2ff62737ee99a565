/* SPDX-License-Identifier: Apache-2.0 */
/* status.h - how every tern function reports failure.
 *
 * A tern_status is 0 or negative. Whoever returns a negative one has first set this thread's error
 * sentence (tern_error), which holds the values involved and the next thing to do. Callers add
 * nothing and lose nothing: they clean up and return the same status.
 * The sentence begins in lower case and has no full stop, "what with its values; what to do", so that a prefix reads
 * well. Linked by plug-ins too: these symbols are exported by libtern. */
#ifndef TERN_BASE_STATUS_H
#define TERN_BASE_STATUS_H

#include "core/tern.h"

/* Sets the calling thread's error sentence (printf form) and returns `status`, so that
 * `return tern_error(TERN_ERROR_IO, "...", ...)` and `status = tern_error(...); goto fail;` both read well. */
TERN_API tern_status tern_error(tern_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Puts "prefix: " before the sentence already set; returns `status`. For naming the op or file that failed. */
TERN_API tern_status tern_error_prefix(tern_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Host out of memory while getting `bytes` for `what`. */
TERN_API tern_status tern_error_memory(const char *what, size_t bytes);

/* "out of memory" and so on for a status; never NULL. Public: tern_status_name. */

#define TERN_TRY(expression)                                                                                           \
    do {                                                                                                               \
        status = (expression);                                                                                         \
        if (status < 0) goto fail;                                                                                     \
    } while (0)

#endif
