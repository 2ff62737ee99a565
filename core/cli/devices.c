/* SPDX-License-Identifier: Apache-2.0 */
/* devices.c - `tern devices [--all] [--json]`: every device of every driver, and for what is missing why and what to
 * do.
 *
 * One gathering, two printers (text and JSON), so that both always say the same. */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/cli/cli.h"
#include "core/cli/devices.h"
#include "core/device/hints.h"
#include "core/device/registry.h"

#define MAX_HINTS 8

typedef struct found_backend {
    const tern_backend_entry *entry;
    tern_device_listing *list;
    uint32_t count;
    char message[1024]; /* why count is 0 */
} found_backend;

typedef struct found {
    found_backend *backends;
    uint32_t count;
    char hints[MAX_HINTS][512];
    uint32_t hint_count;
} found;

static const struct {
    uint32_t bit;
    const char *name;
} features[] = {
    {TERN_FEATURE_STORAGE_16, "16-bit storage"},       {TERN_FEATURE_STORAGE_8, "8-bit storage"},
    {TERN_FEATURE_ARITHMETIC_F16, "f16 arithmetic"},   {TERN_FEATURE_SUBGROUPS, "sub-groups"},
    {TERN_FEATURE_UNIFIED_MEMORY, "unified memory"},   {TERN_FEATURE_TIMESTAMPS, "timestamps"},
    {TERN_FEATURE_BUFFER_ADDRESS, "buffer addresses"}, {TERN_FEATURE_RESIZABLE_BAR, "resizable BAR"},
    {TERN_FEATURE_REGISTER_TILES, "register tiles"},
};
#define FEATURE_COUNT (sizeof features / sizeof *features)

static const char *kind_name(tern_device_kind kind)
{
    switch (kind) {
    case TERN_DEVICE_CPU: return "CPU";
    case TERN_DEVICE_SOFTWARE_GPU: return "software GPU";
    case TERN_DEVICE_INTEGRATED_GPU: return "integrated GPU";
    case TERN_DEVICE_DISCRETE_GPU: return "discrete GPU";
    }
    return "unknown";
}

/* --------------------------------------------------------------- gathering */

static void add_hints(found *f)
{
    if (tern_hint_render_node("", f->hints[f->hint_count], sizeof f->hints[0])) f->hint_count++;
    for (uint32_t b = 0; b < f->count; b++)
        for (uint32_t i = 0; i < f->backends[b].count && f->hint_count < MAX_HINTS; i++)
            if (tern_hint_small_bar("", &f->backends[b].list[i].info, f->hints[f->hint_count], sizeof f->hints[0]))
                f->hint_count++;
}

static void gather_backend(const tern_backend_entry *entry, found_backend *out)
{
    out->entry = entry;
    if (entry->status == TERN_OK && tern_device_list(entry->backend, &out->list, &out->count) < 0)
        snprintf(out->message, sizeof out->message, "%s", tern_error_message());
    else if (out->count == 0)
        snprintf(out->message, sizeof out->message, "%s",
                 *entry->message ? entry->message : "the driver has no device");
}

static tern_status gather(bool all, found *out)
{
    uint32_t count;
    const tern_registry_row *rows = tern_registry_rows(&count);
    const tern_backend_entry *entries = tern_backends(&count);
    out->backends = calloc(count, sizeof *out->backends);
    if (!out->backends) return tern_error_memory("the list of backends", count * sizeof *out->backends);
    for (uint32_t i = 0; i < count; i++)
        if (all || rows[i].automatic) gather_backend(&entries[i], &out->backends[out->count++]);
    add_hints(out);
    return TERN_OK;
}

static void finish(found *f)
{
    for (uint32_t b = 0; b < f->count; b++) free(f->backends[b].list);
    free(f->backends);
}

/* The backend before `b` that has the same card, and its number there; NULL if none. */
static const char *same_card(const found *f, uint32_t b, const char *uuid, uint32_t *out_number)
{
    for (uint32_t other = 0; other < b && *uuid; other++)
        for (uint32_t i = 0; i < f->backends[other].count; i++)
            if (strcmp(f->backends[other].list[i].info.uuid, uuid) == 0) {
                *out_number = i;
                return f->backends[other].entry->name;
            }
    return NULL;
}

static void get_notes(const tern_backend *backend, uint32_t index, char *text, size_t bytes)
{
    text[0] = 0;
    if (backend->device_notes && backend->device_notes(index, text, bytes) < 0) text[0] = 0;
}

/* -------------------------------------------------------------------- text */

static void print_limits(const tern_device_info *info)
{
    char a[24], b[24], c[24], d[24];
    printf("      memory    %s, %s free\n", tern_cli_bytes(info->memory_bytes, a),
           tern_cli_bytes(info->memory_free_bytes, b));
    printf("      limits    allocation %s, buffer %s, binding %s; shared memory %s\n",
           tern_cli_bytes(info->max_allocation_bytes, a), tern_cli_bytes(info->max_buffer_bytes, b),
           tern_cli_bytes(info->max_binding_bytes, c), tern_cli_bytes(info->shared_bytes, d));
    printf("      groups    %u x %u x %u of up to %u threads; sub-groups %u to %u; %u %s\n", info->max_groups[0],
           info->max_groups[1], info->max_groups[2], info->max_group_size, info->subgroup_min, info->subgroup_max,
           info->threads, info->kind == TERN_DEVICE_CPU ? "threads" : "compute units");
}

/* "bf16 16x16x16, tf32 16x16x8": products that tern has kernels for. */
static void describe_matrices(const tern_device_info *info, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = 0;
    for (uint32_t i = 0; i < info->matrix_count && used + 1 < bytes; i++) {
        const tern_matrix_shape *m = &info->matrix[i];
        const int length = snprintf(text + used, bytes - used, "%s%s %ux%ux%u", i ? ", " : "",
                                    m->dtype == TERN_F32 ? "tf32" : tern_dtype(m->dtype)->name, m->m, m->n, m->k);
        used += length > 0 ? (size_t)length : 0;
    }
}

static void print_device(const found *f, uint32_t b, uint32_t i)
{
    const tern_device_listing *listing = &f->backends[b].list[i];
    const tern_device_info *info = &listing->info;
    char notes[1024];
    uint32_t number;
    printf("  %u: %s (%s)\n", i, info->name, kind_name(info->kind));
    printf("      driver    %s\n", info->driver);
    print_limits(info);
    printf("      features  ");
    const char *comma = "";
    for (size_t k = 0; k < FEATURE_COUNT; k++)
        if (info->features & features[k].bit) {
            printf("%s%s", comma, features[k].name);
            comma = ", ";
        }
    printf("%s\n", *comma ? "" : "none of those that tern asks for");
    describe_matrices(info, notes, sizeof notes);
    if (*notes) printf("      matrices  %s\n", notes);
    if (*info->uuid) printf("      uuid      %s\n", info->uuid);
    if (*info->pci) printf("      pci       %s\n", info->pci);
    const char *other = same_card(f, b, info->uuid, &number);
    if (other) printf("      same card as %s:%u\n", other, number);
    get_notes(f->backends[b].entry->backend, listing->index, notes, sizeof notes);
    for (char *rest = notes, *line; (line = strsep(&rest, "\n"));)
        if (*line) printf("      note      %s\n", line);
}

static void print_text(const found *f)
{
    for (uint32_t b = 0; b < f->count; b++) {
        const found_backend *backend = &f->backends[b];
        if (backend->count == 0) {
            printf("%s: not usable: %s\n", backend->entry->name, backend->message);
            continue;
        }
        printf("%s\n", backend->entry->name);
        for (uint32_t i = 0; i < backend->count; i++) print_device(f, b, i);
    }
    for (uint32_t i = 0; i < f->hint_count; i++) printf("hint: %s\n", f->hints[i]);
}

/* -------------------------------------------------------------------- JSON */

cJSON *tern_cli_device_json(const tern_backend *backend, const tern_device_listing *listing, uint32_t number)
{
    static const struct {
        const char *name;
        size_t offset;
    } sizes[] = {
        {"memory_bytes", offsetof(tern_device_info, memory_bytes)},
        {"memory_free_bytes", offsetof(tern_device_info, memory_free_bytes)},
        {"max_allocation_bytes", offsetof(tern_device_info, max_allocation_bytes)},
        {"max_buffer_bytes", offsetof(tern_device_info, max_buffer_bytes)},
        {"max_binding_bytes", offsetof(tern_device_info, max_binding_bytes)},
    };
    static const struct {
        const char *name;
        size_t offset;
    } counts[] = {
        {"max_group_size", offsetof(tern_device_info, max_group_size)},
        {"shared_bytes", offsetof(tern_device_info, shared_bytes)},
        {"subgroup_min", offsetof(tern_device_info, subgroup_min)},
        {"subgroup_max", offsetof(tern_device_info, subgroup_max)},
        {"threads", offsetof(tern_device_info, threads)},
        {"vendor_id", offsetof(tern_device_info, vendor_id)},
        {"device_id", offsetof(tern_device_info, device_id)},
    };
    const tern_device_info *info = &listing->info;
    char notes[1024];
    cJSON *json = cJSON_CreateObject();
    cJSON_AddNumberToObject(json, "index", number);
    cJSON_AddStringToObject(json, "name", info->name);
    cJSON_AddStringToObject(json, "driver", info->driver);
    cJSON_AddStringToObject(json, "kind", kind_name(info->kind));
    cJSON_AddStringToObject(json, "uuid", info->uuid);
    cJSON_AddStringToObject(json, "pci", info->pci);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        cJSON_AddNumberToObject(json, sizes[i].name,
                                (double)*(const uint64_t *)(const void *)((const char *)info + sizes[i].offset));
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        cJSON_AddNumberToObject(json, counts[i].name,
                                *(const uint32_t *)(const void *)((const char *)info + counts[i].offset));
    cJSON *groups = cJSON_AddArrayToObject(json, "max_groups");
    for (int axis = 0; axis < 3; axis++) cJSON_AddItemToArray(groups, cJSON_CreateNumber(info->max_groups[axis]));
    cJSON *list = cJSON_AddArrayToObject(json, "features");
    for (size_t i = 0; i < FEATURE_COUNT; i++)
        if (info->features & features[i].bit) cJSON_AddItemToArray(list, cJSON_CreateString(features[i].name));
    describe_matrices(info, notes, sizeof notes);
    cJSON_AddStringToObject(json, "matrices", notes);
    get_notes(backend, listing->index, notes, sizeof notes);
    cJSON_AddStringToObject(json, "notes", notes);
    return json;
}

static int print_json(const found *f)
{
    cJSON *root = cJSON_CreateObject();
    cJSON *backends = cJSON_AddArrayToObject(root, "backends");
    for (uint32_t b = 0; b < f->count; b++) {
        cJSON *json = cJSON_CreateObject();
        cJSON_AddStringToObject(json, "name", f->backends[b].entry->name);
        if (f->backends[b].count == 0) cJSON_AddStringToObject(json, "missing", f->backends[b].message);
        cJSON *devices = cJSON_AddArrayToObject(json, "devices");
        for (uint32_t i = 0; i < f->backends[b].count; i++)
            cJSON_AddItemToArray(devices,
                                 tern_cli_device_json(f->backends[b].entry->backend, &f->backends[b].list[i], i));
        cJSON_AddItemToArray(backends, json);
    }
    cJSON *hints = cJSON_AddArrayToObject(root, "hints");
    for (uint32_t i = 0; i < f->hint_count; i++) cJSON_AddItemToArray(hints, cJSON_CreateString(f->hints[i]));
    char *text = cJSON_Print(root);
    cJSON_Delete(root);
    if (!text) return tern_cli_fail(tern_error_memory("the JSON text", 4096));
    puts(text);
    free(text);
    return TERN_CLI_OK;
}

int tern_cli_devices(int argc, char **argv)
{
    bool json = false, all = false;
    const tern_cli_option options[] = {
        {"all", TERN_CLI_FLAG, &all, NULL, 0, 0, "also the null backend, which computes nothing"},
        {"json", TERN_CLI_FLAG, &json, NULL, 0, 0, "one JSON object on stdout"},
    };
    const tern_cli_usage usage = {
        "devices", NULL,
        "Lists the devices of every driver with memory, limits and features; for what is missing, why.", options,
        sizeof options / sizeof *options};
    found f = {0};
    int code = tern_cli_parse(&usage, argc, argv, NULL);
    if (code != TERN_CLI_GO) return code;
    tern_status status = gather(all, &f);
    if (status < 0) {
        code = tern_cli_fail(status);
    } else if (json) {
        code = print_json(&f);
    } else {
        print_text(&f);
        code = TERN_CLI_OK;
    }
    finish(&f);
    return code;
}
