/* SPDX-License-Identifier: Apache-2.0 */
/* level_zero_fixture.c - see level_zero_fixture.h. */
#include "tests/level_zero_fixture.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

const level_zero_stand_in *level_zero_stand_in_find(const char *path, const char **out_why)
{
    static level_zero_stand_in found;
    const struct {
        const char *name;
        void *target;
    } hooks[] = {
        {"tern_standin_ze_fail_call", &found.fail_call}, {"tern_standin_ze_failed_name", &found.failed_name},
        {"tern_standin_ze_live", &found.live},           {"tern_standin_ze_live_text", &found.live_text},
        {"tern_standin_ze_pending", &found.pending},     {"tern_standin_ze_complaints", &found.complaints},
        {"tern_standin_ze_complaint", &found.complaint},
    };
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    *out_why = library ? "the stand-in lacks a hook" : "the Level Zero stand-in is not built (libze-dev is missing)";
    if (!library) return NULL;
    for (size_t i = 0; i < sizeof hooks / sizeof *hooks; i++) {
        void *hook = dlsym(library, hooks[i].name);
        if (!hook) return NULL;
        memcpy(hooks[i].target, &hook, sizeof hook);
    }
    (void)setenv("ZE_ENABLE_ALT_DRIVERS", path, 1);
    return &found;
}

static void read_all(int from, char *out_text, size_t bytes)
{
    char rest[4096];
    size_t used = 0;
    for (;;) {
        const bool full = used + 1 >= bytes;
        const ssize_t got = read(from, full ? rest : out_text + used, full ? sizeof rest : bytes - 1 - used);
        if (got <= 0) break;
        if (!full) used += (size_t)got;
    }
    out_text[used] = 0;
}

int level_zero_run_self(const char *argument, char *out_text, size_t bytes)
{
    char *arguments[] = {"self", (char *)(uintptr_t)argument, NULL};
    int ends[2], result = 0;
    pid_t child;
    posix_spawn_file_actions_t actions;
    out_text[0] = 0;
    if (pipe2(ends, O_CLOEXEC) != 0) return -1;
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    (void)posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
    const int error = posix_spawn(&child, "/proc/self/exe", &actions, NULL, arguments, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)close(ends[1]);
    if (!error) read_all(ends[0], out_text, bytes);
    (void)close(ends[0]);
    if (error || waitpid(child, &result, 0) != child) return -1;
    return WIFEXITED(result) ? WEXITSTATUS(result) : 128 + WTERMSIG(result);
}
