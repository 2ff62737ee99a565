/* SPDX-License-Identifier: Apache-2.0 */
/* translate.c - SPIR-V to LLVM bitcode, for OpenCL devices that take no SPIR-V themselves (PoCL 3.1).
 *
 *     SPIR-V ── hash ──> <cache>/<hash>.bc there? ── yes ──────────────────> bitcode
 *                                                 └─ no: llvm-spirv -r ──> kept, then as above
 *
 * The cache is the folder level_zero_stand_in of $TERN_TEST_CACHE, else $XDG_CACHE_HOME, else /tmp: a run of the tests
 * translates hundreds of kernels, most of them those of the run before. TERN_STANDIN_ZE_LLVM_SPIRV names another
 * translator than llvm-spirv-14, which is the one for PoCL 3.1's LLVM. */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/stand_ins/level_zero/stand_in.h"

extern char **environ;

/* FNV-1a, 64 bits. */
static uint64_t hash(const unsigned char *data, size_t bytes)
{
    uint64_t value = 0xcbf29ce484222325ull;
    for (size_t i = 0; i < bytes; i++) value = (value ^ data[i]) * 0x100000001b3ull;
    return value;
}

static void cache_folder(char *out, size_t bytes)
{
    const char *base = getenv("TERN_TEST_CACHE");
    if (!base || !*base) base = getenv("XDG_CACHE_HOME");
    if (!base || !*base) base = "/tmp";
    (void)mkdir(base, 0777);
    (void)snprintf(out, bytes, "%s/level_zero_stand_in", base);
    (void)mkdir(out, 0777);
}

static bool read_file(const char *path, unsigned char **out, size_t *out_bytes)
{
    struct stat status;
    FILE *file = fopen(path, "rb");
    *out = NULL;
    if (!file) return false;
    if (fstat(fileno(file), &status) == 0) {
        *out_bytes = (size_t)status.st_size;
        *out = malloc(*out_bytes + 1);
        if (*out && fread(*out, 1, *out_bytes, file) != *out_bytes) {
            free(*out);
            *out = NULL;
        }
        if (*out) (*out)[*out_bytes] = 0;
    }
    (void)fclose(file);
    return *out != NULL;
}

static bool write_file(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    if (!file) return false;
    const bool whole = fwrite(data, 1, bytes, file) == bytes;
    return fclose(file) == 0 && whole;
}

/* Runs the translator with what it says in a file; true when it was content. */
static bool run_translator(const char *from, const char *to, const char *log)
{
    char *arguments[] = {(char *)(uintptr_t)standin_setting("LLVM_SPIRV", "llvm-spirv-14"),
                         "-r",
                         (char *)(uintptr_t)from,
                         "-o",
                         (char *)(uintptr_t)to,
                         NULL};
    posix_spawn_file_actions_t actions;
    pid_t child;
    int result = 0;
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    (void)posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
    const int error = posix_spawnp(&child, arguments[0], &actions, NULL, arguments, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    if (error) {
        char sentence[200];
        (void)snprintf(sentence, sizeof sentence, "%s cannot be started: %s", arguments[0], strerror(error));
        (void)write_file(log, sentence, strlen(sentence));
        return false;
    }
    while (waitpid(child, &result, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(result) && WEXITSTATUS(result) == 0;
}

bool standin_translate(const void *code, size_t bytes, unsigned char **out_code, size_t *out_bytes, char **out_log)
{
    char folder[400], kept[500], own[500], from[520], to[520], log[520];
    unsigned char *said = NULL;
    size_t said_bytes;
    cache_folder(folder, sizeof folder);
    (void)snprintf(kept, sizeof kept, "%s/%016llx.bc", folder, (unsigned long long)hash(code, bytes));
    *out_log = NULL;
    if (read_file(kept, out_code, out_bytes)) return true;
    (void)snprintf(own, sizeof own, "%s/%016llx-%ld", folder, (unsigned long long)hash(code, bytes), (long)getpid());
    (void)snprintf(from, sizeof from, "%s.spv", own);
    (void)snprintf(to, sizeof to, "%s.bc", own);
    (void)snprintf(log, sizeof log, "%s.log", own);
    bool done = write_file(from, code, bytes) && run_translator(from, to, log) && read_file(to, out_code, out_bytes);
    if (!done && read_file(log, &said, &said_bytes)) *out_log = (char *)said;
    if (!done && !*out_log) *out_log = strdup("the translator left nothing");
    if (!done || rename(to, kept) != 0) (void)unlink(to);
    (void)unlink(from);
    (void)unlink(log);
    return done;
}
