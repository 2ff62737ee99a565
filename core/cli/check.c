/* SPDX-License-Identifier: Apache-2.0 */
/* check.c - `tern check`: every op x dtype x pass on a device against the reference, and one verdict line.
 *
 * stdout gets failures, each with the line that repeats it, skips and the verdict; stderr the case at work. What it is
 * not: it holds no case (check_cases.c and its neighbours) and compares nothing (check_run.c). */
#include "core/cli/check.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/dtype.h"
#include "core/base/time.h"
#include "core/cli/cli.h"

typedef struct check_command {
    tern_cli_device device;
    const char *op, *name, *dtype;
    int64_t seed;
    bool list;
} check_command;

typedef struct totals {
    uint32_t cases, failed, skipped, tensors;
    char reason[256]; /* of the first skip */
} totals;

static const char *dtype_name(int32_t dtype) { return tern_dtype(dtype)->name; }

static const tern_check_case *base_case_at(size_t index)
{
    const tern_check_case *const tables[] = {tern_check_map_cases, tern_check_row_cases, tern_check_contraction_cases};
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
        size_t count = 0;
        while (tables[t][count].op) count++;
        if (index < count) return &tables[t][index];
        index -= count;
    }
    return NULL;
}

bool tern_check_next(size_t *position, tern_check_case *out_case)
{
    static const int32_t dtypes[] = {TERN_F32, TERN_F16, TERN_BF16};
    const tern_check_case *base;
    while ((base = base_case_at(*position / 3)) != NULL) {
        const int32_t dtype = dtypes[(*position)++ % 3];
        if (dtype != TERN_F32 && (base->dtype != TERN_F32 || base->f32_only)) continue;
        *out_case = *base;
        if (dtype != TERN_F32) out_case->dtype = dtype;
        return true;
    }
    return false;
}

/* ------------------------------------------------------------------ options */

static bool is_chosen(const check_command *c, const tern_check_case *k)
{
    return (!c->op || strcmp(c->op, k->op) == 0) && (!c->name || strcmp(c->name, k->name) == 0) &&
           (!c->dtype || strcmp(c->dtype, dtype_name(k->dtype)) == 0);
}

static uint32_t count_chosen(const check_command *c)
{
    uint32_t count = 0;
    size_t position = 0;
    tern_check_case k;
    while (tern_check_next(&position, &k)) count += is_chosen(c, &k);
    return count;
}

/* Nothing chosen would be a check that cannot fail. */
static int refuse_empty(const check_command *c)
{
    return tern_cli_misuse("check: no case has%s%s%s%s%s%s; see `tern check --list`", c->op ? " op " : "",
                           c->op ? c->op : "", c->name ? " case " : "", c->name ? c->name : "",
                           c->dtype ? " dtype " : "", c->dtype ? c->dtype : "");
}

static int parse(check_command *c, int argc, char **argv)
{
    *c = (check_command){.device = TERN_CLI_DEVICE_DEFAULTS, .seed = 1};
    const tern_cli_option options[] = {
        {"op", TERN_CLI_TEXT, &c->op, "NAME", 0, 0, "only this operation"},
        {"case", TERN_CLI_TEXT, &c->name, "NAME", 0, 0, "only cases of this name"},
        {"dtype", TERN_CLI_TEXT, &c->dtype, "TYPE", 0, 0, "only cases of f32, f16, bf16, i32 or u32"},
        {"seed", TERN_CLI_INTEGER, &c->seed, "N", 0, 9007199254740992.0, "of the numbers and the random shapes"},
        {"list", TERN_CLI_FLAG, &c->list, NULL, 0, 0, "name the cases and stop"},
        TERN_CLI_DEVICE_OPTIONS(&c->device),
    };
    const tern_cli_usage usage = {
        "check", NULL,
        "Compares every operation, its value and its gradient, on a device with the reference "
        "in double precision, and repeats it bit for bit. Ends in one verdict line.",
        options, sizeof options / sizeof *options};
    const int code = tern_cli_parse(&usage, argc, argv, NULL);
    if (code != TERN_CLI_GO) return code;
    return count_chosen(c) ? TERN_CLI_GO : refuse_empty(c);
}

static int list_cases(const check_command *c)
{
    size_t position = 0;
    tern_check_case k;
    while (tern_check_next(&position, &k))
        if (is_chosen(c, &k))
            printf("%-16s %-20s %-4s %s\n", k.op, k.name, dtype_name(k.dtype),
                   k.gradient ? "value, gradient" : "value");
    return TERN_CLI_OK;
}

/* --------------------------------------------------------------- validation */

/* Messages of the driver's validation layer since the start: the plug-in's tern_<backend>_validation_messages, if it
 * has one. */
static uint64_t validation_messages(const tern_device *device)
{
    char name[96];
    Dl_info info;
    uint64_t (*count)(void) = NULL;
    snprintf(name, sizeof name, "tern_%s_validation_messages", device->backend->name);
    void *symbol = dlsym(RTLD_DEFAULT, name);
    if (!symbol && dladdr((const void *)device->backend, &info)) {
        void *library = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
        if (library) {
            symbol = dlsym(library, name);
            dlclose(library); /* the plug-in itself stays loaded */
        }
    }
    if (!symbol) return 0;
    memcpy(&count, &symbol, sizeof count);
    return count();
}

/* ---------------------------------------------------------------------- run */

static void say_repeat(const check_command *c, const tern_device *device, const tern_check_case *k)
{
    printf("  repeat: tern check --backend %s%s%s --op %s --case %s --dtype %s --seed %lld\n", device->backend->name,
           c->device.device ? " --device " : "", c->device.device ? c->device.device : "", k->op, k->name,
           dtype_name(k->dtype), (long long)c->seed);
}

static void count_result(const check_command *c, const tern_device *device, const tern_check_case *k,
                         const tern_check_result *r, totals *t)
{
    const uint32_t passes = k->gradient ? 2 : 1;
    t->cases += passes;
    t->tensors += r->tensors;
    if (r->skipped) {
        t->skipped += passes;
        if (!t->reason[0])
            snprintf(t->reason, sizeof t->reason, "%s %s %s: %.180s", k->op, k->name, dtype_name(k->dtype), r->reason);
        printf("skipped %s %s %s: %s\n", k->op, k->name, dtype_name(k->dtype), r->reason);
    }
    t->failed += (uint32_t)r->value_failed + (uint32_t)r->gradient_failed;
    if (!r->value_failed && !r->gradient_failed) return;
    printf("FAILED %s %s %s (%s): %s\n", k->op, k->name, dtype_name(k->dtype),
           r->value_failed && r->gradient_failed ? "value and gradient"
           : r->value_failed                     ? "value"
                                                 : "gradient",
           r->reason);
    say_repeat(c, device, k);
}

static tern_status run_cases(const check_command *c, tern_device *device, totals *t)
{
    const bool live = isatty(STDERR_FILENO) == 1;
    size_t position = 0;
    tern_check_case k;
    tern_status status = TERN_OK;
    while (status >= 0 && tern_check_next(&position, &k)) {
        tern_check_result result;
        if (!is_chosen(c, &k)) continue;
        if (live) fprintf(stderr, "\r%s %s %s\033[K", k.op, k.name, dtype_name(k.dtype));
        status = tern_check_run(device, &k, (uint64_t)c->seed, &result);
        if (status < 0) { /* a kernel that does not build, a lost device: the case failed, and so may all others */
            result.value_failed = true;
            snprintf(result.reason, sizeof result.reason, "%s", tern_error_message());
        }
        count_result(c, device, &k, &result, t);
        if (status != TERN_ERROR_DEVICE_LOST && status != TERN_ERROR_TIMEOUT) status = TERN_OK;
        fflush(stdout);
    }
    if (live) fprintf(stderr, "\r\033[K");
    return status;
}

/* One line, the last. */
static int verdict(const tern_device *device, const totals *t, uint64_t messages, double seconds)
{
    char validation[96] = "";
    const bool pass = t->failed == 0 && messages == 0 && t->cases > t->skipped;
    if (messages) snprintf(validation, sizeof validation, ", %llu validation messages", (unsigned long long)messages);
    printf("check: %s %u case%s (%u tensor%s) on %s, %u failed, %u skipped%s%s%s%s, %.1f s\n", pass ? "PASS" : "FAIL",
           t->cases, t->cases == 1 ? "" : "s", t->tensors, t->tensors == 1 ? "" : "s", tern_device_name(device),
           t->failed, t->skipped, t->skipped ? " (" : "", t->reason, t->skipped ? ")" : "", validation, seconds);
    return pass ? TERN_CLI_OK : TERN_CLI_FAILED;
}

int tern_cli_check(int argc, char **argv)
{
    check_command command;
    tern_device *device = NULL;
    totals total = {0};
    int code = parse(&command, argc, argv);
    if (code != TERN_CLI_GO) return code;
    if (command.list) return list_cases(&command);
    tern_status status = tern_cli_open_device(&command.device, &device);
    if (status < 0) return tern_cli_fail(status);
    const uint64_t start = tern_time_ns();
    status = run_cases(&command, device, &total);
    code = verdict(device, &total, validation_messages(device), (double)(tern_time_ns() - start) * 1e-9);
    tern_device_close(device);
    return status < 0 ? TERN_CLI_FAILED : code;
}
