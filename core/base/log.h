/* SPDX-License-Identifier: Apache-2.0 */
/* log.h - messages to whoever embeds the library; silent until a callback is set. */
#ifndef TERN_BASE_LOG_H
#define TERN_BASE_LOG_H
#include "core/tern.h"
enum { TERN_LOG_ERROR = 0, TERN_LOG_WARNING, TERN_LOG_INFO, TERN_LOG_DEBUG };
TERN_API void tern_log_write(int32_t level, const char *format, ...) __attribute__((format(printf, 2, 3)));
#endif
