/* SPDX-License-Identifier: Apache-2.0 */
/* process.c - see process.h. */
#include "core/base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/time.h"

extern char **environ;

bool tern_process_find(const char *name, char *out_path, size_t bytes)
{
    const char *path = getenv("PATH");
    while (path && *path) {
        const size_t length = strcspn(path, ":");
        snprintf(out_path, bytes, "%.*s/%s", (int)length, path, name);
        if (access(out_path, X_OK) == 0) return true;
        path += length + (path[length] == ':');
    }
    out_path[0] = 0;
    return false;
}

int tern_process_run(char *const argv[], const char *log, uint64_t timeout_ns)
{
    posix_spawn_file_actions_t actions;
    pid_t child = 0;
    int code = 0;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
    const int failed = posix_spawn(&child, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failed) {
        errno = failed;
        return -1;
    }
    for (const uint64_t start = tern_time_ns(); waitpid(child, &code, WNOHANG) == 0;) {
        if (tern_time_ns() - start > timeout_ns) kill(child, SIGKILL);
        tern_sleep_ns(500000);
    }
    return WIFEXITED(code) ? WEXITSTATUS(code) : 128 + WTERMSIG(code);
}
