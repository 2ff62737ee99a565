/* SPDX-License-Identifier: Apache-2.0 */
/* main.c - `tern <command>`: finds the command and shows the library's log on stderr. What it is not: it does nothing
 * itself. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "core/cli/cli.h"

typedef struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} command;

static const command commands[] = {
#define COMMAND(name, summary) {#name, tern_cli_##name, summary},
#include "core/cli/commands.def"
#undef COMMAND
};
#define COMMAND_COUNT (sizeof commands / sizeof *commands)

static int print_help(FILE *file)
{
    fprintf(file, "tern %s trains neural networks on any accelerator.\n\nUsage: tern <command> [options]\n\n",
            tern_version());
    for (size_t i = 0; i < COMMAND_COUNT; i++) fprintf(file, "  %-10s %s\n", commands[i].name, commands[i].summary);
    fprintf(file, "  %-10s %s\n", "help",
            "this text; `tern help <command>` or `tern <command> --help` for a command's options");
    fprintf(file, "  %-10s %s\n", "version", "the version, as --version");
    fprintf(file, "\nTERN_LOG=0..3 shows errors, warnings, information (default 2) or debugging messages on stderr.\n");
    return TERN_CLI_OK;
}

/* context: the highest level to show. */
static void show_log(void *context, int32_t level, const char *message)
{
    static const char *const names[] = {"error: ", "warning: ", "", "debug: "};
    if (level >= TERN_LOG_ERROR && level <= *(const int32_t *)context)
        fprintf(stderr, "tern: %s%s\n", names[level], message);
}

static int32_t log_level(void)
{
    const char *text = getenv("TERN_LOG");
    return text && text[0] >= '0' && text[0] <= '3' && !text[1] ? text[0] - '0' : TERN_LOG_INFO;
}

static const command *find_command(const char *name)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
    return NULL;
}

static int unknown_command(const char *name)
{
    char known[256] = "";
    for (size_t i = 0, used = 0; i < COMMAND_COUNT && used < sizeof known; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", commands[i].name);
    return tern_cli_misuse("there is no command \"%s\"; the commands are %s", name, known);
}

static bool is_one_of(const char *text, const char *a, const char *b, const char *c)
{
    return strcmp(text, a) == 0 || strcmp(text, b) == 0 || strcmp(text, c) == 0;
}

static int print_version(int argc, char **argv)
{
    if (argc > 2) return tern_cli_misuse("%s takes no arguments, but was given \"%s\"", argv[1], argv[2]);
    printf("tern %s\n", tern_version());
    return TERN_CLI_OK;
}

/* `tern help` or `tern help <command>`. */
static int show_help(int argc, char **argv)
{
    if (argc > 3) return tern_cli_misuse("%s takes one command, but was also given \"%s\"", argv[1], argv[3]);
    if (argc == 2) return print_help(stdout);
    if (is_one_of(argv[2], "help", "--help", "-h")) return print_help(stdout);
    const command *found = find_command(argv[2]);
    if (!found) return unknown_command(argv[2]);
    char *arguments[] = {argv[2], "--help", NULL};
    return found->run(2, arguments);
}

static int run(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return TERN_CLI_USAGE;
    }
    if (is_one_of(argv[1], "version", "--version", "-V")) return print_version(argc, argv);
    if (is_one_of(argv[1], "help", "--help", "-h")) return show_help(argc, argv);
    const command *found = find_command(argv[1]);
    return found ? found->run(argc - 1, argv + 1) : unknown_command(argv[1]);
}

int main(int argc, char **argv)
{
    static int32_t level;
    level = log_level();
    tern_log_set(show_log, &level);
    const int code = run(argc, argv);
    if (code != TERN_CLI_OK) return code;                    /* the reason has been said */
    if (fflush(stdout) == 0 && !ferror(stdout)) return code; /* a command may have flushed, and failed, before */
    fprintf(stderr, "tern: the output could not be written; is the disk full or the pipe closed?\n");
    return TERN_CLI_FAILED;
}
