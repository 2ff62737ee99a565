/* SPDX-License-Identifier: Apache-2.0 */
/* process.h - other programs: found on PATH, run to their end, without a shell. */
#ifndef TERN_BASE_PROCESS_H
#define TERN_BASE_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/tern.h"

/* The first executable of that name in PATH's folders into out_path; false and "" without one. */
TERN_API bool tern_process_find(const char *name, char *out_path, size_t bytes);

/* Runs argv (argv[0] a path, NULL at the end) without input, what it prints appended to the file `log`, and kills it
 * after timeout_ns. Its exit status, 128 + the signal that ended it, or -1 with errno where it does not start. */
TERN_API int tern_process_run(char *const argv[], const char *log, uint64_t timeout_ns);

#endif
