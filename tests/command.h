/* SPDX-License-Identifier: Apache-2.0 */
/* command.h - runs the built `tern` as a child process, for tests of what users see: output, exit code, files. */
#ifndef TERN_TESTS_COMMAND_H
#define TERN_TESTS_COMMAND_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct command_result {
    int code;        /* exit code; 128 + signal when a signal ended it */
    char *out, *err; /* all of stdout and stderr, zero-terminated */
    size_t out_bytes;
} command_result;

/* `tern <line>`, the line cut at blanks, with "%" standing for one argument that holds a blank. Fails the test if it
 * cannot be run or takes longer than half an hour. The result lives until the next call. */
const command_result *command_run(const char *line);
/* The same with printf's form. */
const command_result *command_runf(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Sends SIGINT to the next command's process as soon as its stderr holds `text`; NULL: never. */
void command_interrupt_at(const char *text);
/* Sends SIGKILL to the next command's process after so many nanoseconds; 0: never. */
void command_kill_after(uint64_t ns);
/* The files of the following commands cannot grow beyond `bytes`; 0: they can. */
void command_limit_files(uint64_t bytes);
/* Sets a variable of the environment of the following commands; value NULL: removes it. */
void command_environment(const char *name, const char *value);

/* Fails the test unless the command ends with `code` and one line on stderr (the last) that holds `part`. */
void command_refuses(const char *line, int code, const char *part);
/* The number behind "key": in line `index` (from 0; negative from the end) of JSON lines; NaN for null or absent. */
double command_number(const char *lines, int index, const char *key);

#endif
