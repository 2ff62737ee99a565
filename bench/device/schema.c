/* SPDX-License-Identifier: Apache-2.0 */
/* schema.c - what a result must hold: one table of fields per kind of object, one walk over it.
 *
 *     {schema, date, commit, ..., machine {}, backends [{name, devices [{}]}], sections [{figures [{}]}]}
 *
 * What it is not: a judgement of the speeds. It refuses what cannot be (wrong types, ranges, sums that do not add up, a
 * card that is a program). Invariant: whatever passes can be put into the page without another look. */
#include "bench/device/device.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef enum field_type { TEXT = 0, NUMBER, WHOLE, TRUTH, LIST, OBJECT } field_type;
static const char *const type_names[] = {"a text",        "a number", "a whole number",
                                         "true or false", "a list",   "an object"};

typedef struct field {
    const char *name;
    field_type type;
    double least, most;  /* NUMBER, WHOLE; LIST: how many */
    const char *choices; /* TEXT: "|ok|failed|", NULL: anything that is not empty, "": anything */
    bool optional;
} field;

#define BYTES_MOST 1e16
#define COUNT_MOST 4294967295.0
#define END                                                                                                            \
    {                                                                                                                  \
        NULL, TEXT, 0, 0, NULL, false                                                                                  \
    }
#define TIMES                                                                                                          \
    {"what", TEXT, 0, 0, NULL, false}, {"launches", WHOLE, 1, COUNT_MOST, NULL, false},                                \
        {"repeats", WHOLE, 1, 1e6, NULL, false},                                                                       \
    {                                                                                                                  \
        "seconds", NUMBER, 1e-9, 1e5, NULL, false                                                                      \
    }

/* clang-format off: tables */
static const field top_fields[] = {{"schema", TEXT, 0, 0, "|" DEVICE_SCHEMA "|", false},
                                   {"date", TEXT, 0, 0, NULL, false},
                                   {"commit", TEXT, 0, 0, NULL, false},
                                   {"changed", TRUTH, 0, 0, NULL, false},
                                   {"version", TEXT, 0, 0, NULL, false},
                                   {"quick", TRUTH, 0, 0, NULL, false},
                                   {"machine", OBJECT, 0, 0, NULL, false},
                                   {"backends", LIST, 1, 64, NULL, false},
                                   {"sections", LIST, 1, 4096, NULL, false},
                                   END};
static const field machine_fields[] = {{"cpu", TEXT, 0, 0, NULL, false},
                                       {"threads", WHOLE, 1, 65536, NULL, false},
                                       {"memory_bytes", NUMBER, 1, BYTES_MOST, NULL, false},
                                       {"kernel", TEXT, 0, 0, NULL, false},
                                       {"system", TEXT, 0, 0, NULL, false},
                                       {"environment", LIST, 0, 4096, NULL, false},
                                       END};
static const field backend_fields[] = {{"name", TEXT, 0, 0, "|cuda|level_zero|vulkan|opencl|cpu|", false},
                                       {"missing", TEXT, 0, 0, NULL, true},
                                       {"devices", LIST, 0, 256, NULL, false},
                                       END};
static const field device_fields[] = {{"id", TEXT, 0, 0, NULL, false},
                                      {"index", WHOLE, 0, 255, NULL, false},
                                      {"name", TEXT, 0, 0, NULL, false},
                                      {"driver", TEXT, 0, 0, NULL, false},
                                      {"kind", TEXT, 0, 0, "|CPU|software GPU|integrated GPU|discrete GPU|", false},
                                      {"ran_on", TEXT, 0, 0, "|card|software|CPU|stand-in|", false},
                                      {"memory_bytes", NUMBER, 0, BYTES_MOST, NULL, false},
                                      {"memory_free_bytes", NUMBER, 0, BYTES_MOST, NULL, false},
                                      {"max_allocation_bytes", NUMBER, 0, 2e19, NULL, false},
                                      {"max_buffer_bytes", NUMBER, 0, 2e19, NULL, false},
                                      {"max_binding_bytes", NUMBER, 0, 2e19, NULL, false},
                                      {"max_group_size", WHOLE, 0, COUNT_MOST, NULL, false},
                                      {"shared_bytes", WHOLE, 0, COUNT_MOST, NULL, false},
                                      {"subgroup_min", WHOLE, 0, COUNT_MOST, NULL, false},
                                      {"subgroup_max", WHOLE, 0, COUNT_MOST, NULL, false},
                                      {"threads", WHOLE, 0, COUNT_MOST, NULL, false},
                                      {"features", LIST, 0, 64, NULL, false},
                                      {"notes", TEXT, 0, 0, "", false},
                                      END};
static const field section_fields[] = {{"kind", TEXT, 0, 0, "|check|copy|matmul|attention|step|", false},
                                       {"device", TEXT, 0, 0, NULL, false},
                                       {"dtype", TEXT, 0, 0, "|f32|bf16|f16|integers|", false},
                                       {"status", TEXT, 0, 0, "|ok|skipped|failed|", false},
                                       {"reason", TEXT, 0, 0, "", false},
                                       {"section_seconds", NUMBER, 0, 1e5, NULL, false},
                                       {"timing", TEXT, 0, 0, "|timestamps|wall clock|", true},
                                       {"figures", LIST, 0, 256, NULL, false},
                                       END};
static const field check_fields[] = {{"what", TEXT, 0, 0, NULL, false},
                                     {"cases", WHOLE, 1, COUNT_MOST, NULL, false},
                                     {"passed", WHOLE, 0, COUNT_MOST, NULL, false},
                                     {"failed", WHOLE, 0, COUNT_MOST, NULL, false},
                                     {"skipped", WHOLE, 0, COUNT_MOST, NULL, false},
                                     {"left_out", WHOLE, 0, COUNT_MOST, NULL, false},
                                     {"tensors", WHOLE, 0, COUNT_MOST, NULL, false},
                                     {"failures", LIST, 0, 64, NULL, false},
                                     END};
static const field copy_fields[] = {
    TIMES, {"bytes", NUMBER, 1, BYTES_MOST, NULL, false}, {"bytes_per_s", NUMBER, 1, 1e15, NULL, false}, END};
static const field matmul_fields[] = {TIMES,
                                      {"m", WHOLE, 1, COUNT_MOST, NULL, false},
                                      {"n", WHOLE, 1, COUNT_MOST, NULL, false},
                                      {"k", WHOLE, 1, COUNT_MOST, NULL, false},
                                      {"variant", TEXT, 0, 0, NULL, false},
                                      {"flops_per_s", NUMBER, 1, 1e17, NULL, false},
                                      {"of_best", NUMBER, 0, 1, NULL, false},
                                      END};
static const field attention_fields[] = {TIMES,
                                         {"batch", WHOLE, 1, COUNT_MOST, NULL, false},
                                         {"heads", WHOLE, 1, COUNT_MOST, NULL, false},
                                         {"tokens", WHOLE, 1, COUNT_MOST, NULL, false},
                                         {"head_dim", WHOLE, 1, 256, NULL, false},
                                         {"variant", TEXT, 0, 0, NULL, false},
                                         {"flops_per_s", NUMBER, 1, 1e17, NULL, false},
                                         END};
static const field step_fields[] = {TIMES,
                                    {"parameters", WHOLE, 1, 1e13, NULL, false},
                                    {"batch", WHOLE, 1, COUNT_MOST, NULL, false},
                                    {"context", WHOLE, 1, COUNT_MOST, NULL, false},
                                    {"skipped", WHOLE, 0, COUNT_MOST, NULL, false},
                                    {"tokens_per_s", NUMBER, 1e-6, 1e12, NULL, false},
                                    {"first_loss", NUMBER, 0, 1e6, NULL, false},
                                    {"last_loss", NUMBER, 0, 1e6, NULL, false},
                                    {"planned_bytes", NUMBER, 1, BYTES_MOST, NULL, false},
                                    {"allocated_bytes", NUMBER, 1, BYTES_MOST, NULL, true},
                                    END};
static const struct {
    const char *kind;
    const field *fields;
    bool timed;
} figure_kinds[] = {{"check", check_fields, false},
                    {"copy", copy_fields, true},
                    {"matmul", matmul_fields, true},
                    {"attention", attention_fields, true},
                    {"step", step_fields, true}};
/* clang-format on */

/* -------------------------------------------------------------------- places */

/* Where the walk is, for the sentence: the file and "sections[3].figures[0]". */
typedef struct place {
    const char *file;
    char path[128];
} place;

static place inside(const place *p, const char *list, int index)
{
    place child = {.file = p->file};
    snprintf(child.path, sizeof child.path, "%.60s%s%s[%d]", p->path, *p->path ? "." : "", list, index);
    return child;
}

static tern_status refuse(const place *p, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static tern_status refuse(const place *p, const char *name, const char *format, ...)
{
    char what[512];
    va_list values;
    va_start(values, format);
    vsnprintf(what, sizeof what, format, values);
    va_end(values);
    return tern_error(TERN_ERROR_FORMAT, "%s: %s%s%s %s", p->file, p->path, *p->path ? "." : "", name, what);
}

/* -------------------------------------------------------------------- fields */

static const char *text_of(const cJSON *object, const char *name)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));
    return text ? text : "";
}
static double number_of(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsNumber(item) ? item->valuedouble : 0;
}

static bool has_type(const cJSON *item, field_type type)
{
    switch (type) {
    case TEXT: return cJSON_IsString(item);
    case NUMBER:
    case WHOLE: return cJSON_IsNumber(item);
    case TRUTH: return cJSON_IsBool(item);
    case LIST: return cJSON_IsArray(item);
    case OBJECT: return cJSON_IsObject(item);
    }
    return false;
}

static tern_status check_text(const place *p, const field *f, const char *text)
{
    char wanted[128];
    if (strpbrk(text, "\r") || (f->choices == NULL && strchr(text, '\n')))
        return refuse(p, f->name, "has more than one line");
    if (!f->choices) return *text ? TERN_OK : refuse(p, f->name, "is empty");
    if (!*f->choices) return TERN_OK;
    snprintf(wanted, sizeof wanted, "|%.100s|", text);
    if (*text && !strchr(text, '|') && strstr(f->choices, wanted)) return TERN_OK;
    return refuse(p, f->name, "is \"%.100s\", but must be one of %s", text, f->choices);
}

static tern_status check_field(const place *p, const field *f, const cJSON *object)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, f->name);
    if (!item) return f->optional ? TERN_OK : refuse(p, f->name, "is missing");
    if (!has_type(item, f->type)) {
        char *text = cJSON_PrintUnformatted(item);
        const tern_status status =
            refuse(p, f->name, "is %.60s, but must be %s", text ? text : "nothing", type_names[f->type]);
        free(text);
        return status;
    }
    if (f->type == TEXT) return check_text(p, f, item->valuestring);
    if (f->type != NUMBER && f->type != WHOLE && f->type != LIST) return TERN_OK;
    const double value = f->type == LIST ? cJSON_GetArraySize(item) : item->valuedouble;
    const char *what = f->type == LIST ? "has a length of" : "is";
    if (!isfinite(value)) return refuse(p, f->name, "is not finite");
    if (!(value >= f->least) || !(value <= f->most))
        return refuse(p, f->name, "%s %g, but must be in [%g, %g]", what, value, f->least, f->most);
    if (f->type == WHOLE && value != floor(value)) return refuse(p, f->name, "is %g, but must be whole", value);
    return TERN_OK;
}

static tern_status check_fields_of(const place *p, const field *fields, const cJSON *object)
{
    tern_status status = cJSON_IsObject(object) ? TERN_OK : refuse(p, "", "must be an object");
    for (; status == TERN_OK && fields->name; fields++) status = check_field(p, fields, object);
    return status;
}

static tern_status check_texts(const place *p, const char *name, const cJSON *object)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(object, name))
    {
        if (!cJSON_IsString(item)) return refuse(p, name, "must hold texts only");
    }
    return TERN_OK;
}

/* ------------------------------------------------------------------- objects */

static bool contains(const char *text, const char *part)
{
    const size_t length = strlen(part);
    for (; *text; text++)
        if (strncasecmp(text, part, length) == 0) return true;
    return false;
}

/* Drivers have called software a card; a name that is known to be software is believed instead. */
const char *device_ran_on(const char *kind, const char *name)
{
    static const char *const software[] = {"llvmpipe", "lavapipe", "swiftshader", "softpipe",
                                           "pthread-", "pocl",     "oclgrind",    "swrast"};
    if (contains(name, "stand-in")) return "stand-in";
    if (strcmp(kind, "CPU") == 0) return "CPU";
    for (size_t i = 0; i < sizeof software / sizeof *software; i++)
        if (contains(name, software[i])) return "software";
    return strcmp(kind, "integrated GPU") == 0 || strcmp(kind, "discrete GPU") == 0 ? "card" : "software";
}

static tern_status check_date(const place *p, const char *date)
{
    struct tm parts = {0};
    char again[32] = "";
    const char *end = strptime(date, "%Y-%m-%dT%H:%M:%SZ", &parts);
    if (end && !*end && timegm(&parts) != -1) strftime(again, sizeof again, "%Y-%m-%dT%H:%M:%SZ", &parts);
    if (strcmp(again, date) == 0 && parts.tm_year >= 125) return TERN_OK; /* 125: 2025, before tern there was nothing */
    return refuse(p, "date", "is \"%.40s\", but must be a day and time from 2025 on, as 2026-01-31T12:00:00Z", date);
}

static tern_status check_commit(const place *p, const char *commit)
{
    if (strlen(commit) == 40 && strspn(commit, "0123456789abcdef") == 40) return TERN_OK;
    return refuse(p, "commit", "is \"%.60s\", but must be the 40 hexadecimal digits of a commit", commit);
}

static tern_status check_device(const place *p, const cJSON *device, const char *backend)
{
    char id[64];
    tern_status status;
    TERN_TRY(check_fields_of(p, device_fields, device));
    TERN_TRY(check_texts(p, "features", device));
    const char *ran_on = device_ran_on(text_of(device, "kind"), text_of(device, "name"));
    if (strcmp(ran_on, text_of(device, "ran_on")) != 0)
        return refuse(p, "ran_on", "is \"%s\", but \"%.80s\", a %s, is \"%s\"", text_of(device, "ran_on"),
                      text_of(device, "name"), text_of(device, "kind"), ran_on);
    snprintf(id, sizeof id, "%s:%.0f", backend, number_of(device, "index"));
    if (strcmp(id, text_of(device, "id")) != 0)
        return refuse(p, "id", "is \"%.60s\", but must be \"%s\"", text_of(device, "id"), id);
fail:
    return status;
}

static tern_status check_backend(const place *p, const cJSON *backend)
{
    tern_status status;
    int i = 0;
    const cJSON *device, *devices = cJSON_GetObjectItemCaseSensitive(backend, "devices");
    TERN_TRY(check_fields_of(p, backend_fields, backend));
    if (cJSON_GetArraySize(devices) == 0 && !*text_of(backend, "missing"))
        return refuse(p, "missing", "must say why there is no device");
    cJSON_ArrayForEach(device, devices)
    {
        const place at = inside(p, "devices", i++);
        TERN_TRY(check_device(&at, device, text_of(backend, "name")));
    }
fail:
    return status;
}

/* What the figures say of each other: a rate is work over time, cases add up. */
static tern_status check_sums(const place *p, const char *kind, const cJSON *f)
{
    const double seconds = number_of(f, "seconds");
    double work = 0, rate = 0;
    const char *name = "flops_per_s";
    if (strcmp(kind, "check") == 0) {
        const double sum =
            number_of(f, "passed") + number_of(f, "failed") + number_of(f, "skipped") + number_of(f, "left_out");
        if (sum != number_of(f, "cases"))
            return refuse(p, "cases", "is %.0f, but passed, failed, skipped and left_out are %.0f together",
                          number_of(f, "cases"), sum);
        return check_texts(p, "failures", f);
    }
    if (strcmp(kind, "matmul") == 0) work = 2 * number_of(f, "m") * number_of(f, "n") * number_of(f, "k");
    if (strcmp(kind, "copy") == 0) work = number_of(f, "bytes"), name = "bytes_per_s";
    if (strcmp(kind, "step") == 0) work = number_of(f, "batch") * number_of(f, "context"), name = "tokens_per_s";
    rate = number_of(f, name);
    if (work > 0 && !(fabs(rate * seconds - work) <= 0.01 * work))
        return refuse(p, name, "is %g, but %g in %g s are %g", rate, work, seconds, work / seconds);
    return TERN_OK;
}

static bool has_device(const cJSON *result, const char *id)
{
    const cJSON *backend, *device;
    cJSON_ArrayForEach(backend, cJSON_GetObjectItemCaseSensitive(result, "backends"))
    {
        cJSON_ArrayForEach(device, cJSON_GetObjectItemCaseSensitive(backend, "devices"))
        {
            if (strcmp(text_of(device, "id"), id) == 0) return true;
        }
    }
    return false;
}

static tern_status check_section(const place *p, const cJSON *section, const cJSON *result)
{
    tern_status status;
    int i = 0, kind = 0;
    const cJSON *figure, *figures = cJSON_GetObjectItemCaseSensitive(section, "figures");
    TERN_TRY(check_fields_of(p, section_fields, section));
    while (strcmp(figure_kinds[kind].kind, text_of(section, "kind")) != 0) kind++; /* one of them, as just seen */
    const bool ok = strcmp(text_of(section, "status"), "ok") == 0;
    if (!has_device(result, text_of(section, "device")))
        return refuse(p, "device", "is \"%.60s\", but no backend has such a device", text_of(section, "device"));
    if (!ok && !*text_of(section, "reason"))
        return refuse(p, "reason", "is empty, but must say why the section was %s", text_of(section, "status"));
    if (ok && cJSON_GetArraySize(figures) == 0) return refuse(p, "figures", "is empty, but the section is \"ok\"");
    if (ok && figure_kinds[kind].timed && !*text_of(section, "timing")) return refuse(p, "timing", "is missing");
    cJSON_ArrayForEach(figure, figures)
    {
        const place at = inside(p, "figures", i++);
        TERN_TRY(check_fields_of(&at, figure_kinds[kind].fields, figure));
        TERN_TRY(check_sums(&at, text_of(section, "kind"), figure));
        if (ok && number_of(figure, "failed") > 0) return refuse(&at, "failed", "is not 0, but the section is \"ok\"");
    }
fail:
    return status;
}

/* -------------------------------------------------------------------- result */

static tern_status check_result(const place *p, const cJSON *result)
{
    tern_status status;
    int i = 0;
    const cJSON *item;
    const place machine = {p->file, "machine"};
    TERN_TRY(check_fields_of(p, top_fields, result));
    TERN_TRY(check_date(p, text_of(result, "date")));
    TERN_TRY(check_commit(p, text_of(result, "commit")));
    TERN_TRY(check_fields_of(&machine, machine_fields, cJSON_GetObjectItemCaseSensitive(result, "machine")));
    TERN_TRY(check_texts(&machine, "environment", cJSON_GetObjectItemCaseSensitive(result, "machine")));
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(result, "backends"))
    {
        const place at = inside(p, "backends", i++);
        TERN_TRY(check_backend(&at, item));
    }
    i = 0;
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(result, "sections"))
    {
        const place at = inside(p, "sections", i++);
        TERN_TRY(check_section(&at, item, result));
    }
fail:
    return status;
}

tern_status device_result_check(const char *path, const char *text, cJSON **out_result)
{
    const char *end = NULL;
    const place top = {.file = path};
    cJSON *result = cJSON_ParseWithOpts(text, &end, true);
    if (!result)
        return tern_error(TERN_ERROR_FORMAT, "%s: is no JSON from byte %zu on (numbers must be finite: no NaN)", path,
                          end ? (size_t)(end - text) : (size_t)0);
    const tern_status status = check_result(&top, result);
    if (status == TERN_OK && out_result)
        *out_result = result;
    else
        cJSON_Delete(result);
    return status;
}
