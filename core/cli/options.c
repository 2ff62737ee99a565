/* SPDX-License-Identifier: Apache-2.0 */
/* options.c - option tables over getopt_long: defaults, ranges, --help; errors as one sentence with the value. */
#include <cjson/cJSON.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/cli/cli.h"

#define MAX_OPTIONS 64
#define FIRST_VALUE 256 /* what getopt returns for option 0; above every character */
#define HELP_VALUE  (FIRST_VALUE + MAX_OPTIONS)

int tern_cli_fail(tern_status status)
{
    const char *sentence = tern_error_message();
    fprintf(stderr, "tern: %s\n", *sentence ? sentence : tern_status_name(status));
    return status == TERN_ERROR_INTERRUPTED ? TERN_CLI_INTERRUPTED : TERN_CLI_FAILED;
}

int tern_cli_misuse(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("tern: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    return TERN_CLI_USAGE;
}

char *tern_cli_bytes(uint64_t bytes, char *text)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    size_t unit = 0;
    for (; value >= 1024 && unit + 1 < sizeof units / sizeof *units; unit++) value /= 1024;
    snprintf(text, 24, value == floor(value) ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return text;
}

/* -------------------------------------------------------------------- help */

static void print_default(const tern_cli_option *option)
{
    switch (option->kind) {
    case TERN_CLI_FLAG: break;
    case TERN_CLI_INTEGER:
        if (*(int64_t *)option->target != TERN_CLI_UNSET)
            printf(" (default %lld)", (long long)*(int64_t *)option->target);
        break;
    case TERN_CLI_REAL:
        if (!isnan(*(double *)option->target)) printf(" (default %g)", *(double *)option->target);
        break;
    case TERN_CLI_TEXT:
        if (*(const char **)option->target) printf(" (default %s)", *(const char **)option->target);
        break;
    }
}

static int print_help(const tern_cli_usage *usage)
{
    printf("Usage: tern %s [options]%s%s\n\n%s\n\n", usage->command, usage->operands ? " " : "",
           usage->operands ? usage->operands : "", usage->about);
    for (size_t i = 0; i < usage->option_count; i++) {
        const tern_cli_option *option = &usage->options[i];
        char left[64];
        snprintf(left, sizeof left, "--%s %s", option->name, option->value ? option->value : "");
        printf("  %-22s %s", left, option->help);
        print_default(option);
        printf("\n");
    }
    printf("  %-22s %s\n", "--help", "this text");
    return TERN_CLI_OK;
}

/* -------------------------------------------------------------------- JSON */

static cJSON *value_json(const tern_cli_option *option)
{
    const char *text;
    switch (option->kind) {
    case TERN_CLI_FLAG: return cJSON_CreateBool(*(bool *)option->target);
    case TERN_CLI_INTEGER:
        if (*(int64_t *)option->target == TERN_CLI_UNSET) break;
        return cJSON_CreateNumber((double)*(int64_t *)option->target);
    case TERN_CLI_REAL: return cJSON_CreateNumber(*(double *)option->target); /* NaN is written as null */
    case TERN_CLI_TEXT:
        text = *(const char **)option->target;
        if (text) return cJSON_CreateString(text);
        break;
    }
    return cJSON_CreateNull();
}

char *tern_cli_options_json(const tern_cli_usage *usage)
{
    char *text = NULL, *copy = NULL;
    cJSON *json = cJSON_CreateObject();
    for (size_t i = 0; json && i < usage->option_count; i++) {
        cJSON *value = value_json(&usage->options[i]);
        if (cJSON_AddItemToObject(json, usage->options[i].name, value)) continue;
        cJSON_Delete(value);
        goto end;
    }
    text = json ? cJSON_PrintUnformatted(json) : NULL;
    copy = text ? strdup(text) : NULL; /* cJSON's memory may come from another allocator */
end:
    cJSON_free(text);
    cJSON_Delete(json);
    return copy;
}

/* ----------------------------------------------------------------- parsing */

static int out_of_range(const tern_cli_usage *usage, const tern_cli_option *option, const char *text)
{
    if (option->minimum == 0 && option->maximum == 0)
        return tern_cli_misuse("%s: --%s is \"%s\"; it must be a%s number", usage->command, option->name, text,
                               option->kind == TERN_CLI_INTEGER ? " whole" : "");
    if (option->kind == TERN_CLI_INTEGER)
        return tern_cli_misuse("%s: --%s is \"%s\"; it must be a whole number from %.0f to %.0f", usage->command,
                               option->name, text, option->minimum, option->maximum);
    return tern_cli_misuse("%s: --%s is \"%s\"; it must be a number from %.15g to %.15g", usage->command, option->name,
                           text, option->minimum, option->maximum);
}

static int set_value(const tern_cli_usage *usage, const tern_cli_option *option, const char *text)
{
    char *end = NULL;
    const bool any = option->minimum == 0 && option->maximum == 0;
    errno = 0;
    if (option->kind == TERN_CLI_FLAG) {
        *(bool *)option->target = true;
    } else if (option->kind == TERN_CLI_TEXT) {
        *(const char **)option->target = text;
    } else if (option->kind == TERN_CLI_INTEGER) {
        long long value = strtoll(text, &end, 10);
        if (end == text || *end || errno ||
            (!any && !((double)value >= option->minimum && (double)value <= option->maximum)))
            return out_of_range(usage, option, text);
        *(int64_t *)option->target = value;
    } else {
        double value = strtod(text, &end);
        if (end == text || *end || !isfinite(value) ||
            (!any && !(value >= option->minimum && value <= option->maximum)))
            return out_of_range(usage, option, text);
        *(double *)option->target = value;
    }
    return TERN_CLI_GO;
}

/* getopt_long stopped at argv[optind - 1], or inside it where it is a letter behind one dash. */
static int bad_option(const tern_cli_usage *usage, char **argv, int result)
{
    const char *text = argv[optind - 1];
    char letter[3] = {'-', (char)optopt, 0};
    const bool is_flag = optopt >= FIRST_VALUE; /* HELP_VALUE is above it */
    if (result == ':')
        return tern_cli_misuse("%s: %s needs a value; see `tern %s --help`", usage->command, text, usage->command);
    if (is_flag) /* known, so what is wrong is its "=..." */
        return tern_cli_misuse("%s: --%.*s takes no value; see `tern %s --help`", usage->command,
                               (int)strcspn(text + 2, "="), text + 2, usage->command);
    if (optopt != 0) text = letter;
    const int length = (int)strcspn(text, "=");
    for (size_t i = 0; length > 2 && i < usage->option_count; i++) /* getopt_long takes what begins only one of them */
        if (strncmp(usage->options[i].name, text + 2, (size_t)length - 2) == 0)
            return tern_cli_misuse("%s: \"%.*s\" begins several options; see `tern %s --help`", usage->command, length,
                                   text, usage->command);
    return tern_cli_misuse("%s: there is no option \"%.*s\"; see `tern %s --help`", usage->command, length, text,
                           usage->command);
}

int tern_cli_parse(const tern_cli_usage *usage, int argc, char **argv, int *out_first)
{
    struct option longs[MAX_OPTIONS + 2] = {{0}};
    for (size_t i = 0; i < usage->option_count && i < MAX_OPTIONS; i++)
        longs[i] = (struct option){usage->options[i].name,
                                   usage->options[i].kind == TERN_CLI_FLAG ? no_argument : required_argument, NULL,
                                   FIRST_VALUE + (int)i};
    longs[usage->option_count] = (struct option){"help", no_argument, NULL, HELP_VALUE};
    optind = 0; /* glibc: start anew, whatever was parsed before */
    opterr = 0;
    for (;;) {
        int result = getopt_long(argc, argv, ":h", longs, NULL);
        if (result == -1) break;
        if (result == HELP_VALUE || result == 'h') return print_help(usage);
        if (result < FIRST_VALUE) return bad_option(usage, argv, result);
        int code = set_value(usage, &usage->options[result - FIRST_VALUE], optarg);
        if (code != TERN_CLI_GO) return code;
    }
    if (optind < argc && !usage->operands)
        return tern_cli_misuse("%s: \"%s\" is not an option; see `tern %s --help`", usage->command, argv[optind],
                               usage->command);
    if (out_first) *out_first = optind;
    return TERN_CLI_GO;
}

/* ------------------------------------------------------------------ device */

tern_status tern_cli_open_device(const tern_cli_device *options, tern_device **out_device)
{
    char name[512];
    const tern_open_options open = {.threads = (uint32_t)options->threads};
    if (options->device && strcmp(options->backend, "auto") == 0)
        return tern_error(TERN_ERROR_INVALID,
                          "--device \"%s\" needs --backend, as a device belongs to one; see `tern devices`",
                          options->device);
    int length = snprintf(name, sizeof name, "%s%s%s", options->backend, options->device ? ":" : "",
                          options->device ? options->device : "");
    if (length < 0 || (size_t)length >= sizeof name)
        return tern_error(TERN_ERROR_INVALID, "the name of the device is too long (%d characters); see `tern devices`",
                          length);
    tern_status status = tern_device_open_with(name, &open, out_device);
    return status < 0 ? status : tern_device_allow_tf32(*out_device, options->allow_tf32);
}
