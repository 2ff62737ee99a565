/* SPDX-License-Identifier: Apache-2.0 */
/* limits.c - limits profiles: what the planner may believe of a card, so that any machine can plan for any other.
 *
 * A profile only lowers what a device reports: planning for an A770 on a larger card gives the A770's plan. The
 * built-in ones are the limits that matter to a plan, nothing about kernels. A profile from a file is a flat JSON
 * object with the same keys:
 *
 *     { "name": "my card", "memory_bytes": 8589934592, "max_binding_bytes": 4294967295 }
 *
 * "storage_16": false takes a feature away. Absent keys leave the device's own value. Unknown keys are errors, since a
 * misspelt limit would silently not hold. */
#include "core/device/device.h"

#include <cjson/cJSON.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GIB             ((uint64_t)1 << 30)
#define MIB             ((uint64_t)1 << 20)
#define FILE_MOST       (1u << 20)
#define SUBMIT_SECONDS  0.5  /* i915 resets an engine after 0.64 s (preempt_timeout_ms), Windows after 2 s */
#define SUBMIT_SOFTWARE 10.0 /* no watchdog there, but a step should still be interruptible */

/* Rates are peaks of the vendors' sheets: predicted times are lower bounds, cuts are made well below the watchdog. */
static const tern_limits profiles[] = {
    {
        /* Mesa 22.3 llvmpipe as its driver reports it: maxStorageBufferRange 128 MiB, maxMemoryAllocationSize 2 GiB,
         * 65,535 groups, 1,024 invocations, 32 KiB. Rates: register-tiled f32 GEMM and copy, measured on two cores. */
        .name = "lavapipe",
        .software = true,
        .max_allocation_bytes = 2 * GIB,
        .max_buffer_bytes = 2 * GIB,
        .max_binding_bytes = 128 * MIB,
        .max_groups_x = 65535,
        .max_group_size = 1024,
        .shared_bytes = 32768,
        .submit_seconds = SUBMIT_SOFTWARE,
        .flops = 6.5e9,
        .bytes_per_s = 22e9,
    },
    {
        /* Intel's Arc A770 data sheet: 16 GB, 560 GB/s, 4,096 lanes x 2 x 2.1 GHz = 17.2 TFLOP/s f32. Allocations stay
         * within 4 GiB: more needs Intel's large-allocation flags. Mesa anv: 65,535 groups, 1,024 threads, 64 KiB. */
        .name = "arc-a770",
        .memory_bytes = 16 * GIB,
        .max_allocation_bytes = 4 * GIB - 4096,
        .max_buffer_bytes = 4 * GIB - 4096,
        .max_binding_bytes = 4 * GIB - 4096,
        .max_groups_x = 65535,
        .max_group_size = 1024,
        .shared_bytes = 65536,
        .submit_seconds = SUBMIT_SECONDS,
        .flops = 17.2e12,
        .bytes_per_s = 560e9,
    },
    {
        /* NVIDIA's GA102 white paper: 24 GB, 936 GB/s, 35.6 TFLOP/s f32. Vulkan driver: maxMemoryAllocationSize just
         * below 4 GiB, maxStorageBufferRange 2^32 - 1, 2^31 - 1 groups on x, 1,024 invocations, 48 KiB. */
        .name = "rtx-3090",
        .memory_bytes = 24 * GIB,
        .max_allocation_bytes = 4 * GIB - 2 * MIB,
        .max_buffer_bytes = 4 * GIB - 2 * MIB,
        .max_binding_bytes = 4 * GIB - 1,
        .max_groups_x = 2147483647,
        .max_group_size = 1024,
        .shared_bytes = 49152,
        .submit_seconds = SUBMIT_SECONDS,
        .flops = 35.6e12,
        .bytes_per_s = 936e9,
    },
    {
        /* NVIDIA's Ada white paper: 24 GB, 1,008 GB/s, 82.6 TFLOP/s f32. Driver limits as the 3090's. */
        .name = "rtx-4090",
        .memory_bytes = 24 * GIB,
        .max_allocation_bytes = 4 * GIB - 2 * MIB,
        .max_buffer_bytes = 4 * GIB - 2 * MIB,
        .max_binding_bytes = 4 * GIB - 1,
        .max_groups_x = 2147483647,
        .max_group_size = 1024,
        .shared_bytes = 49152,
        .submit_seconds = SUBMIT_SECONDS,
        .flops = 82.6e12,
        .bytes_per_s = 1008e9,
    },
    {
        /* NVIDIA's A100 data sheet, the 40 GB card: 1,555 GB/s, 19.5 TFLOP/s f32. Driver limits as the 3090's. */
        .name = "a100",
        .memory_bytes = 40 * GIB,
        .max_allocation_bytes = 4 * GIB - 2 * MIB,
        .max_buffer_bytes = 4 * GIB - 2 * MIB,
        .max_binding_bytes = 4 * GIB - 1,
        .max_groups_x = 2147483647,
        .max_group_size = 1024,
        .shared_bytes = 49152,
        .submit_seconds = SUBMIT_SECONDS,
        .flops = 19.5e12,
        .bytes_per_s = 1555e9,
    },
};
#define PROFILE_COUNT (sizeof profiles / sizeof *profiles)

/* --------------------------------------------------------------------- file */

typedef enum field_type { FIELD_U64, FIELD_U32, FIELD_REAL, FIELD_FEATURE } field_type;

typedef struct field {
    const char *key;
    field_type type;
    size_t offset; /* FIELD_FEATURE: the feature's bit */
    double least, most;
} field;

/* The least values are those below which no program of tern runs; the most are what the type or JSON's doubles hold
 * exactly. */
static const field fields[] = {
    {"memory_bytes", FIELD_U64, offsetof(tern_limits, memory_bytes), 1048576.0, 9007199254740992.0},
    {"max_allocation_bytes", FIELD_U64, offsetof(tern_limits, max_allocation_bytes), 65536.0, 9007199254740992.0},
    {"max_buffer_bytes", FIELD_U64, offsetof(tern_limits, max_buffer_bytes), 65536.0, 9007199254740992.0},
    {"max_binding_bytes", FIELD_U64, offsetof(tern_limits, max_binding_bytes), 65536.0, 9007199254740992.0},
    {"max_groups_x", FIELD_U32, offsetof(tern_limits, max_groups_x), 65535.0, 4294967295.0},
    {"max_group_size", FIELD_U32, offsetof(tern_limits, max_group_size), 64.0, 65536.0},
    {"shared_bytes", FIELD_U32, offsetof(tern_limits, shared_bytes), 1024.0, 4294967295.0},
    {"submit_seconds", FIELD_REAL, offsetof(tern_limits, submit_seconds), 0.001, 86400.0},
    {"flops", FIELD_REAL, offsetof(tern_limits, flops), 1e6, 1e18},
    {"bytes_per_s", FIELD_REAL, offsetof(tern_limits, bytes_per_s), 1e6, 1e15},
    {"storage_16", FIELD_FEATURE, TERN_FEATURE_STORAGE_16, 0.0, 0.0},
    {"storage_8", FIELD_FEATURE, TERN_FEATURE_STORAGE_8, 0.0, 0.0},
};
#define FIELD_COUNT (sizeof fields / sizeof *fields)

/* Adds an item to a list for a sentence: "a, b, c". */
static void append(char *list, size_t bytes, const char *item)
{
    if (list[0]) strncat(list, ", ", bytes - strlen(list) - 1u);
    strncat(list, item, bytes - strlen(list) - 1u);
}

static tern_status read_text(const char *path, char **out_text)
{
    tern_status status = TERN_OK;
    char *text = NULL;
    FILE *file = fopen(path, "rb");
    if (!file) return tern_error(TERN_ERROR_IO, "cannot open limits profile '%s': %s", path, strerror(errno));
    text = malloc(FILE_MOST + 1u);
    if (!text) {
        status = tern_error_memory("a limits profile", FILE_MOST + 1u);
        goto fail;
    }
    const size_t bytes = fread(text, 1, FILE_MOST + 1u, file);
    if (ferror(file)) {
        status = tern_error(TERN_ERROR_IO, "cannot read limits profile '%s': %s", path, strerror(errno));
        goto fail;
    }
    if (bytes > FILE_MOST) {
        status = tern_error(TERN_ERROR_FORMAT,
                            "limits profile '%s' is larger than %u bytes; it should be a small JSON object", path,
                            FILE_MOST);
        goto fail;
    }
    text[bytes] = 0;
    *out_text = text;
    text = NULL;
fail:
    free(text);
    fclose(file);
    return status;
}

static tern_status read_field(const char *path, const cJSON *item, tern_limits *limits)
{
    const field *f = fields;
    while (f < fields + FIELD_COUNT && strcmp(f->key, item->string) != 0) f++;
    if (f == fields + FIELD_COUNT) {
        char known[256] = "name";
        for (size_t i = 0; i < FIELD_COUNT; i++) append(known, sizeof known, fields[i].key);
        return tern_error(TERN_ERROR_FORMAT, "limits profile '%s' has the unknown key '%.60s'; the keys are %s", path,
                          item->string, known);
    }
    if (f->type == FIELD_FEATURE) {
        if (!cJSON_IsBool(item))
            return tern_error(TERN_ERROR_FORMAT, "limits profile '%s': '%s' must be true or false", path, f->key);
        if (cJSON_IsFalse(item)) limits->lacks |= (uint32_t)f->offset;
        return TERN_OK;
    }
    const double value = item->valuedouble;
    const bool whole = f->type == FIELD_REAL || value == floor(value);
    if (!cJSON_IsNumber(item) || !(value >= f->least && value <= f->most) || !whole)
        return tern_error(TERN_ERROR_FORMAT, "limits profile '%s': '%s' must be a%s number from %.16g to %.16g", path,
                          f->key, f->type == FIELD_REAL ? "" : " whole", f->least, f->most);
    unsigned char *to = (unsigned char *)limits + f->offset;
    const uint64_t wide = f->type == FIELD_REAL ? 0 : (uint64_t)value;
    const uint32_t narrow = (uint32_t)wide;
    if (f->type == FIELD_U64)
        memcpy(to, &wide, sizeof wide);
    else if (f->type == FIELD_U32)
        memcpy(to, &narrow, sizeof narrow);
    else
        memcpy(to, &value, sizeof value);
    return TERN_OK;
}

static tern_status read_object(const char *path, const cJSON *root, tern_limits *limits)
{
    if (!cJSON_IsObject(root))
        return tern_error(TERN_ERROR_FORMAT, "limits profile '%s' must be one JSON object", path);
    const cJSON *item;
    cJSON_ArrayForEach(item, root)
    {
        for (const cJSON *earlier = root->child; earlier != item; earlier = earlier->next)
            if (strcmp(earlier->string, item->string) == 0)
                return tern_error(TERN_ERROR_FORMAT, "limits profile '%s' has the key '%.60s' twice", path,
                                  item->string);
        if (strcmp(item->string, "name") == 0) {
            if (!cJSON_IsString(item) || item->valuestring[0] == 0 || strlen(item->valuestring) >= sizeof limits->name)
                return tern_error(TERN_ERROR_FORMAT, "limits profile '%s': 'name' must be a text of 1 to %zu bytes",
                                  path, sizeof limits->name - 1u);
            strcpy(limits->name, item->valuestring);
            continue;
        }
        tern_status status = read_field(path, item, limits);
        if (status < 0) return status;
    }
    return TERN_OK;
}

static tern_status load_file(const char *path, tern_limits *out_limits)
{
    char *text = NULL;
    tern_status status = read_text(path, &text);
    if (status < 0) return status;
    const char *end = text;
    cJSON *root = cJSON_ParseWithOpts(text, &end, 1);
    tern_limits limits = {.submit_seconds = SUBMIT_SECONDS};
    const char *file = strrchr(path, '/');
    snprintf(limits.name, sizeof limits.name, "%s", file ? file + 1 : path);
    if (root)
        status = read_object(path, root, &limits);
    else
        status = tern_error(TERN_ERROR_FORMAT, "limits profile '%s' is not JSON: it stops making sense at byte %td",
                            path, end - text);
    if (status >= 0) *out_limits = limits;
    cJSON_Delete(root);
    free(text);
    return status;
}

/* ------------------------------------------------------------------- public */

tern_status tern_limits_load(const char *name_or_path, tern_limits *out_limits)
{
    for (size_t i = 0; i < PROFILE_COUNT; i++)
        if (strcmp(profiles[i].name, name_or_path) == 0) {
            *out_limits = profiles[i];
            return TERN_OK;
        }
    if (strchr(name_or_path, '/') || strchr(name_or_path, '.')) return load_file(name_or_path, out_limits);
    char known[160] = "";
    for (size_t i = 0; i < PROFILE_COUNT; i++) append(known, sizeof known, profiles[i].name);
    return tern_error(TERN_ERROR_NOT_FOUND,
                      "there is no limits profile '%s'; use one of %s, or the path of a JSON file", name_or_path,
                      known);
}

void tern_limits_of(const tern_device_info *info, tern_limits *out_limits)
{
    const bool software = info->kind == TERN_DEVICE_CPU || info->kind == TERN_DEVICE_SOFTWARE_GPU;
    const bool integrated = info->kind == TERN_DEVICE_INTEGRATED_GPU;
    const double threads = info->threads ? (double)info->threads : 1.0;
    *out_limits = (tern_limits){
        .memory_bytes = info->memory_bytes,
        .max_allocation_bytes = info->max_allocation_bytes,
        .max_buffer_bytes = info->max_buffer_bytes,
        .max_binding_bytes = info->max_binding_bytes,
        .max_groups_x = info->max_groups[0],
        .max_group_size = info->max_group_size,
        .shared_bytes = info->shared_bytes,
        .submit_seconds = software ? SUBMIT_SOFTWARE : SUBMIT_SECONDS,
        /* Low guesses, so that predicted times err to the long side: a CPU thread with scalar kernels, an old
         * integrated GPU, an entry-level card. A profile knows better. */
        .flops = info->kind == TERN_DEVICE_CPU ? 2e10 * threads
                 : software                    ? 3e9 * threads
                 : integrated                  ? 4e11
                                               : 4e12,
        .bytes_per_s = software     ? 1e10
                       : integrated ? 3e10
                                    : 2e11,
    };
    snprintf(out_limits->name, sizeof out_limits->name, "%.60s", info->name);
}

static void lower_u64(uint64_t *value, uint64_t limit)
{
    if (limit && (*value == 0 || limit < *value)) *value = limit;
}

static void lower_u32(uint32_t *value, uint32_t limit)
{
    if (limit && (*value == 0 || limit < *value)) *value = limit;
}

void tern_limits_apply(const tern_limits *limits, tern_device_info *info)
{
    lower_u64(&info->memory_bytes, limits->memory_bytes);
    lower_u64(&info->memory_free_bytes, limits->memory_bytes);
    lower_u64(&info->max_allocation_bytes, limits->max_allocation_bytes);
    lower_u64(&info->max_buffer_bytes, limits->max_buffer_bytes);
    lower_u64(&info->max_binding_bytes, limits->max_binding_bytes);
    lower_u32(&info->max_groups[0], limits->max_groups_x);
    lower_u32(&info->max_group_size, limits->max_group_size);
    lower_u32(&info->shared_bytes, limits->shared_bytes);
    info->features &= ~limits->lacks;
}
