/* SPDX-License-Identifier: Apache-2.0 */
/* log.c - one callback per process; silent without one.
 *
 * The lock is held during the callback, so that after tern_log_set returns the old callback is never called again and
 * its context may be freed. A callback must therefore not log or set a callback itself. */
#include "core/base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

#define LINE_BYTES 8192 /* a shader compiler's log, the longest thing that is ever said */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void (*log_callback)(void *context, int32_t level, const char *message);
static void *log_context;

void tern_log_set(void (*callback)(void *context, int32_t level, const char *message), void *context)
{
    pthread_mutex_lock(&lock);
    log_callback = callback;
    log_context = context;
    pthread_mutex_unlock(&lock);
}

void tern_log_write(int32_t level, const char *format, ...)
{
    char line[LINE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&lock);
    if (log_callback) log_callback(log_context, level, line);
    pthread_mutex_unlock(&lock);
}
