/* SPDX-License-Identifier: Apache-2.0 */
/* main.c - the command of bench/device, one word for each thing that bench/on_gpu asks of it.
 *
 *     backends                                       their names, one a line
 *     devices BACKEND FILE                           facts into FILE; "vulkan:0 card NAME" on stdout
 *     missing BACKEND FILE REASON                    the same for a backend that could not even be asked
 *     start RESULT COMMIT CHANGED QUICK FILE...      a result without sections, of these facts
 *     measure KIND DEVICE DTYPE SECONDS SIZE FILE    a section into FILE; SIZE is "full" or "small"
 *     put RESULT FILE                                the section behind the others
 *     say RESULT KIND DEVICE DTYPE STATUS SECONDS REASON     a section without figures
 *     check RESULT...                                whether they keep to the schema
 *     page FOLDER                                    docs/hardware.md
 *
 * Exit status: 0; 1: failed, with a sentence on stderr; 2: misuse. */
#include "bench/device/device.h"

#include "core/base/dtype.h"
#include "core/base/file.h"
#include "core/base/time.h"
#include "core/device/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

const device_section device_sections[] = {
    {"check", device_measure_check, false},  {"copy", device_measure_copy, true},
    {"matmul", device_measure_matmul, true}, {"attention", device_measure_attention, true},
    {"step", device_measure_step, false},
};
const uint32_t device_section_count = sizeof device_sections / sizeof *device_sections;

const device_section *device_section_find(const char *kind)
{
    for (uint32_t i = 0; i < device_section_count; i++)
        if (strcmp(device_sections[i].kind, kind) == 0) return &device_sections[i];
    return NULL;
}

static const struct {
    const char *name;
    int32_t dtype;
} dtypes[] = {{"f32", TERN_F32}, {"bf16", TERN_BF16}, {"f16", TERN_F16}, {"integers", 0}};

static int finish(tern_status status)
{
    if (status < 0) fprintf(stderr, "%s\n", tern_error_message());
    return status < 0;
}

/* ------------------------------------------------------------------- sections */

static cJSON *create_section(const char *kind, const char *device, const char *dtype)
{
    cJSON *section = cJSON_CreateObject();
    cJSON_AddStringToObject(section, "kind", kind);
    cJSON_AddStringToObject(section, "device", device);
    cJSON_AddStringToObject(section, "dtype", dtype);
    cJSON_AddArrayToObject(section, "figures");
    return section;
}

/* "status" and "reason", unless the measurement has set them. */
static void end_section(cJSON *section, tern_status status, const char *reason, double seconds)
{
    const bool skipped = status == TERN_ERROR_UNSUPPORTED || status == TERN_ERROR_DEVICE_MEMORY;
    if (!cJSON_HasObjectItem(section, "status"))
        cJSON_AddStringToObject(section, "status", status == TERN_OK ? "ok" : skipped ? "skipped" : "failed");
    if (status < 0) cJSON_DeleteItemFromObject(section, "reason");
    if (!cJSON_HasObjectItem(section, "reason")) cJSON_AddStringToObject(section, "reason", reason);
    cJSON_AddNumberToObject(section, "section_seconds", seconds);
}

cJSON *device_add_figure(cJSON *section, const char *what)
{
    cJSON *figure = cJSON_CreateObject();
    cJSON_AddStringToObject(figure, "what", what);
    cJSON_AddItemToArray(cJSON_GetObjectItem(section, "figures"), figure);
    return figure;
}

void device_set_timing(cJSON *section, bool timestamps)
{
    const char *before = cJSON_GetStringValue(cJSON_GetObjectItem(section, "timing"));
    if (before && timestamps) return;
    cJSON_DeleteItemFromObject(section, "timing");
    cJSON_AddStringToObject(section, "timing", timestamps ? "timestamps" : "wall clock");
}

static tern_status measure(const device_section *kind, const char *name, device_task *task, cJSON *section)
{
    const tern_open_options options = {.timestamps = kind->timestamps};
    tern_status status = tern_device_open_with(name, &options, &task->device);
    if (status < 0) return status;
    if (tern_dtype_is_16bit_float(task->dtype) && !(task->device->info.features & TERN_FEATURE_STORAGE_16))
        status = tern_error(TERN_ERROR_UNSUPPORTED, "%s has no 16-bit loads and stores", task->device->title);
    else
        status = kind->measure(task, section);
    return status;
}

static int measure_section(char **words)
{
    const device_section *kind = device_section_find(words[0]);
    const char *name = words[1];
    device_task task = {.dtype = -1, .seconds = atof(words[3]), .small = strcmp(words[4], "small") == 0};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(words[2], dtypes[i].name) == 0) task.dtype = dtypes[i].dtype;
    if (!kind || task.dtype < 0 || (task.dtype == 0 && kind->measure != device_measure_check) || !(task.seconds > 0)) {
        fprintf(stderr, "there is no section \"%s %s %s\"\n", words[0], words[2], words[3]);
        return 2;
    }
    const uint64_t start = tern_time_ns();
    cJSON *section = create_section(words[0], name, words[2]);
    const tern_status status = measure(kind, name, &task, section);
    end_section(section, status, status < 0 ? tern_error_message() : "", 1e-9 * (double)(tern_time_ns() - start));
    const tern_status written = device_result_write(words[5], section);
    cJSON_Delete(section);
    if (task.device && written == TERN_OK) tern_device_close(task.device); /* after the file: it may hang or crash */
    return finish(written);
}

static int put_section(const char *result, const char *file)
{
    char *text = NULL;
    size_t bytes = 0;
    tern_status status = tern_file_read(file, 0, &text, &bytes);
    cJSON *section = status == TERN_OK ? cJSON_Parse(text) : NULL;
    if (status == TERN_OK && !section) status = tern_error(TERN_ERROR_FORMAT, "\"%s\" is no section", file);
    if (status == TERN_OK) {
        printf("%s\n", cJSON_GetStringValue(cJSON_GetObjectItem(section, "status")));
        status = device_result_put(result, section);
    }
    free(text);
    return finish(status);
}

static int say_section(char **words)
{
    cJSON *section = create_section(words[1], words[2], words[3]);
    cJSON_AddStringToObject(section, "status", words[4]);
    end_section(section, TERN_OK, words[6], atof(words[5]));
    return finish(device_result_put(words[0], section));
}

/* ---------------------------------------------------------------------- facts */

static int write_backend(cJSON *backend, const char *file)
{
    const cJSON *device;
    const tern_status status = device_result_write(file, backend);
    cJSON_ArrayForEach(device, cJSON_GetObjectItem(backend, "devices"))
    {
        printf("%s %s %s\n", cJSON_GetStringValue(cJSON_GetObjectItem(device, "id")),
               cJSON_GetStringValue(cJSON_GetObjectItem(device, "ran_on")),
               cJSON_GetStringValue(cJSON_GetObjectItem(device, "name")));
    }
    cJSON_Delete(backend);
    return finish(status);
}

static int list_devices(const char *name, const char *file)
{
    cJSON *backend = NULL;
    const tern_status status = device_backend_facts(name, &backend);
    return status < 0 ? finish(status) : write_backend(backend, file);
}

static int write_missing(const char *name, const char *file, const char *reason)
{
    cJSON *backend = cJSON_CreateObject();
    cJSON_AddStringToObject(backend, "name", name);
    cJSON_AddStringToObject(backend, "missing", reason);
    cJSON_AddArrayToObject(backend, "devices");
    return write_backend(backend, file);
}

static int list_backends(void)
{
    uint32_t count;
    const tern_registry_row *rows = tern_registry_rows(&count);
    for (uint32_t i = 0; i < count; i++)
        if (rows[i].automatic) printf("%s\n", rows[i].name);
    return 0;
}

static int start(int count, char **words)
{
    char date[32];
    const time_t now = time(NULL);
    struct tm parts;
    cJSON *machine = NULL, *result = cJSON_CreateObject(), *backends;
    tern_status status = device_machine_facts(&machine);
    if (status < 0) goto fail;
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &parts));
    cJSON_AddStringToObject(result, "schema", DEVICE_SCHEMA);
    cJSON_AddStringToObject(result, "date", date);
    cJSON_AddStringToObject(result, "commit", words[1]);
    cJSON_AddBoolToObject(result, "changed", strcmp(words[2], "yes") == 0);
    cJSON_AddStringToObject(result, "version", tern_version());
    cJSON_AddBoolToObject(result, "quick", strcmp(words[3], "yes") == 0);
    cJSON_AddItemToObject(result, "machine", machine);
    backends = cJSON_AddArrayToObject(result, "backends");
    for (int i = 4; i < count; i++) {
        char *text = NULL;
        size_t bytes;
        TERN_TRY(tern_file_read(words[i], 0, &text, &bytes));
        cJSON_AddItemToArray(backends, cJSON_Parse(text));
        free(text);
    }
    cJSON_AddArrayToObject(result, "sections");
    status = device_result_write(words[0], result);
fail:
    cJSON_Delete(result);
    return finish(status);
}

/* --------------------------------------------------------------------- results */

static int check_results(int count, char **paths)
{
    int code = 0;
    for (int i = 0; i < count; i++) {
        char *text = NULL;
        size_t bytes;
        tern_status status = tern_file_read(paths[i], 0, &text, &bytes);
        if (status == TERN_OK) status = device_result_check(paths[i], text, NULL);
        free(text);
        if (finish(status)) code = 1;
    }
    return code;
}

static int print_page(const char *folder)
{
    char *text = NULL;
    const tern_status status = device_page(folder, &text);
    if (status == TERN_OK) fputs(text, stdout);
    free(text);
    return finish(status);
}

int main(int argc, char **argv)
{
    const char *command = argc > 1 ? argv[1] : "";
    const int count = argc - 2;
    char **words = argv + 2;
    if (strcmp(command, "backends") == 0 && count == 0) return list_backends();
    if (strcmp(command, "devices") == 0 && count == 2) return list_devices(words[0], words[1]);
    if (strcmp(command, "missing") == 0 && count == 3) return write_missing(words[0], words[1], words[2]);
    if (strcmp(command, "start") == 0 && count > 4) return start(count, words);
    if (strcmp(command, "measure") == 0 && count == 6) return measure_section(words);
    if (strcmp(command, "put") == 0 && count == 2) return put_section(words[0], words[1]);
    if (strcmp(command, "say") == 0 && count == 7) return say_section(words);
    if (strcmp(command, "check") == 0 && count > 0) return check_results(count, words);
    if (strcmp(command, "page") == 0 && count == 1) return print_page(words[0]);
    fprintf(stderr,
            "usage: bench_device backends | devices BACKEND FILE | measure KIND DEVICE DTYPE SECONDS full|small "
            "FILE | check FILE... | page FOLDER; the rest is for bench/on_gpu\n");
    return 2;
}
