/* SPDX-License-Identifier: Apache-2.0 */
/* cli.h - what the commands of `tern` share: exit codes, options and the device to run on.
 *
 * A command `name` is core/cli/<name>.c with tern_cli_<name>, plus one line in commands.def. Results go to stdout,
 * everything else to stderr. Errors are one sentence; the command never exits by itself. */
#ifndef TERN_CLI_CLI_H
#define TERN_CLI_CLI_H

#include "core/device/device.h"

enum { /* exit codes; TERN_CLI_GO is not one: the command goes on */
       TERN_CLI_GO = -1,
       TERN_CLI_OK = 0,
       TERN_CLI_FAILED = 1,
       TERN_CLI_USAGE = 2,
       TERN_CLI_INTERRUPTED = 130
};

/* argv[0] is the command's name. */
#define COMMAND(name, summary) int tern_cli_##name(int argc, char **argv);
#include "core/cli/commands.def"
#undef COMMAND

typedef enum tern_cli_kind { TERN_CLI_FLAG = 0, TERN_CLI_INTEGER, TERN_CLI_REAL, TERN_CLI_TEXT } tern_cli_kind;

/* A default that --help does not show, since it depends on other options: of an INTEGER; of a REAL it is NaN. */
#define TERN_CLI_UNSET INT64_MIN

/* One option, --name. The target's value before parsing is the default, shown by --help. */
typedef struct tern_cli_option {
    const char *name; /* without dashes */
    tern_cli_kind kind;
    void *target;      /* FLAG: bool *, INTEGER: int64_t *, REAL: double *, TEXT: const char ** (points into argv) */
    const char *value; /* what --help calls the value: "N", "FILE"; NULL for flags */
    double minimum, maximum; /* of INTEGER and REAL, inclusive; both 0: any */
    const char *help;
} tern_cli_option;

typedef struct tern_cli_usage {
    const char *command;  /* "train" */
    const char *operands; /* "FILE...", or NULL where the command takes none */
    const char *about;    /* a sentence or two */
    const tern_cli_option *options;
    size_t option_count;
} tern_cli_usage;

/* Fills the targets. TERN_CLI_GO, or the exit code: 0 after --help, 2 after a mistake (said on stderr with value and
 * range). Operands are argv[*out_first .. argc); out_first may be NULL where there are none. */
int tern_cli_parse(const tern_cli_usage *usage, int argc, char **argv, int *out_first);

/* The options' values as one JSON object with the options' names as keys, null where a default depends on others;
 * free() it. NULL when out of memory. */
char *tern_cli_options_json(const tern_cli_usage *usage);

/* "tern: <sentence>" on stderr. Return the exit code: of the status just failed with its sentence, or 2 for wrong use.
 */
int tern_cli_fail(tern_status status);
int tern_cli_misuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The device options that every command on a device has. */
typedef struct tern_cli_device {
    const char *backend; /* "auto" */
    const char *device;  /* number, part of a name, UUID or PCI address; NULL: the best */
    int64_t threads;     /* CPU only, 0: all */
    bool allow_tf32;
} tern_cli_device;
#define TERN_CLI_DEVICE_DEFAULTS                                                                                       \
    {                                                                                                                  \
        "auto", NULL, 0, false                                                                                         \
    }
/* Four rows of an option table. */
#define TERN_CLI_DEVICE_OPTIONS(d)                                                                                     \
    {"backend", TERN_CLI_TEXT, &(d)->backend, "NAME", 0, 0, "auto, cuda, level_zero, vulkan, opencl, cpu or null"},    \
        {"device",                                                                                                     \
         TERN_CLI_TEXT,                                                                                                \
         &(d)->device,                                                                                                 \
         "WHICH",                                                                                                      \
         0,                                                                                                            \
         0,                                                                                                            \
         "the backend's device: number, part of its name, UUID or PCI address"},                                       \
        {"threads", TERN_CLI_INTEGER, &(d)->threads, "N", 0, 1024, "worker threads on the CPU, 0: one per core"},      \
    {                                                                                                                  \
        "allow-tf32", TERN_CLI_FLAG, &(d)->allow_tf32, NULL, 0, 0,                                                     \
            "matrix products of f32 on tf32 units where the device has them: faster, operands rounded to 11 bits"      \
    }
TERN_MUST_USE tern_status tern_cli_open_device(const tern_cli_device *options, tern_device **out_device);

/* "1.5 GiB", "128 MiB", "17 B"; text holds at least 24 bytes; returns it. */
char *tern_cli_bytes(uint64_t bytes, char *text);

#endif
