/* SPDX-License-Identifier: Apache-2.0 */
/* command.c - a child process with both outputs in files; see command.h. */
#include "tests/command.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/time.h"
#include "tests/test.h"

#define MOST_ARGUMENTS 64
#define MOST_NS        1800000000000ull /* 500 steps on rusticl take six minutes by themselves */
#define POLL_NS        2000000u
#define KILL_POLL_NS   100000u /* so that a kill comes when it was asked for */

static command_result last;
static const char *interrupt_text;

static uint64_t kill_ns, file_bytes;

void command_interrupt_at(const char *text) { interrupt_text = text; }
void command_kill_after(uint64_t ns) { kill_ns = ns; }
void command_limit_files(uint64_t bytes) { file_bytes = bytes; }

void command_environment(const char *name, const char *value)
{
    assert_int_equal(value ? setenv(name, value, 1) : unsetenv(name), 0);
}

/* The program that was built beside this test: <build>/bin/tern, this being <build>/tests/test_<topic>. */
static const char *program(void)
{
    static char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 32);
    assert_true(length > 0);
    path[length] = 0;
    for (int i = 0; i < 2; i++) {
        char *slash = strrchr(path, '/');
        assert_non_null(slash);
        *slash = 0;
    }
    strcat(path, "/bin/tern");
    return path;
}

static char *read_whole(int descriptor, size_t *out_bytes)
{
    struct stat info;
    assert_int_equal(fstat(descriptor, &info), 0);
    char *text = malloc((size_t)info.st_size + 1);
    assert_non_null(text);
    ssize_t got = pread(descriptor, text, (size_t)info.st_size, 0);
    assert_true(got >= 0);
    text[got] = 0;
    if (out_bytes) *out_bytes = (size_t)got;
    return text;
}

static void interrupt_when_said(pid_t child, int err)
{
    if (!interrupt_text) return;
    char *text = read_whole(err, NULL);
    if (strstr(text, interrupt_text)) {
        kill(child, SIGINT);
        interrupt_text = NULL;
    }
    free(text);
}

static int wait_for_child(pid_t child, int err)
{
    int status = 0;
    for (const uint64_t start = tern_time_ns();;) {
        const pid_t ended = waitpid(child, &status, WNOHANG);
        if (ended == child) break;
        assert_true(ended == 0 || errno == EINTR);
        if (tern_time_ns() - start > MOST_NS) {
            kill(child, SIGKILL);
            waitpid(child, &status, 0);
            fail_msg("the command did not end within half an hour");
        }
        interrupt_when_said(child, err);
        if (kill_ns > 0 && tern_time_ns() - start >= kill_ns) {
            kill(child, SIGKILL);
            kill_ns = 0;
        }
        tern_sleep_ns(kill_ns > 0 ? KILL_POLL_NS : POLL_NS);
    }
    kill_ns = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void cut(char *line, char **argv)
{
    int argc = 0;
    char *rest = NULL;
    argv[argc++] = (char *)(uintptr_t)program();
    for (char *word = strtok_r(line, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        assert_true(argc < MOST_ARGUMENTS);
        for (char *c = word; *c; c++)
            if (*c == '%') *c = ' ';
        argv[argc++] = word;
    }
    argv[argc] = NULL;
}

const command_result *command_run(const char *line)
{
    char *argv[MOST_ARGUMENTS + 1];
    char *text = strdup(line);
    FILE *out = tmpfile(), *err = tmpfile();
    assert_true(text && out && err);
    cut(text, argv);
    free(last.out);
    free(last.err);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const int in = open("/dev/null", O_RDONLY);
        if (in < 0 || dup2(in, 0) < 0 || dup2(fileno(out), 1) < 0 || dup2(fileno(err), 2) < 0) _exit(126);
        const struct rlimit limit = {file_bytes, file_bytes};
        if (file_bytes > 0 && setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(126);
        execv(argv[0], argv);
        _exit(127);
    }
    last.code = wait_for_child(child, fileno(err));
    last.out = read_whole(fileno(out), &last.out_bytes);
    last.err = read_whole(fileno(err), NULL);
    fclose(out);
    fclose(err);
    free(text);
    if (last.code == 126 || last.code == 127) fail_msg("%s could not be run", program());
    return &last;
}

const command_result *command_runf(const char *format, ...)
{
    char line[4096];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    assert_true(length > 0 && (size_t)length < sizeof line);
    return command_run(line);
}

void command_refuses(const char *line, int code, const char *part)
{
    const command_result *r = command_run(line);
    const char *sentence = r->err + strlen(r->err);
    while (sentence > r->err && (sentence == r->err + strlen(r->err) || sentence[-1] != '\n')) sentence--;
    if (r->code != code) fail_msg("tern %s: exit code %d, wanted %d; it said: %s", line, r->code, code, r->err);
    if (strncmp(sentence, "tern: ", 6) != 0 || !strstr(sentence, part))
        fail_msg("tern %s: wanted a last line with \"%s\"; it said: %s", line, part, r->err);
}

double command_number(const char *lines, int index, const char *key)
{
    char quoted[64];
    int count = 0;
    for (const char *c = lines; *c; c++) count += *c == '\n';
    if (index < 0) index += count;
    assert_true(index >= 0 && index < count);
    for (; index > 0; index--) lines = strchr(lines, '\n') + 1;
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *at = strstr(lines, quoted), *end = strchr(lines, '\n');
    if (!at || at > end) return (double)NAN;
    char *stop = NULL;
    const double number = strtod(at + strlen(quoted), &stop);
    return stop == at + strlen(quoted) ? (double)NAN : number;
}
