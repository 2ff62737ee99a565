/* SPDX-License-Identifier: Apache-2.0 */
/* device.c - opening devices by name. What it is not: it finds no plug-in (registry.c) and knows no driver.
 *
 *     "auto"  ── first real GPU, else the CPU
 *     "vulkan" ── registry ── list ── the best device ──┐
 *     "vulkan:A770" ─────────── list ── the match ──────┴── open
 *
 * Invariant: nothing falls back. A name that does not lead to exactly one device is an error that lists what there is.
 */
#include "core/device/device.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "core/device/registry.h"

/* ------------------------------------------------------------------ lists */

static bool listed_before(const tern_device_listing *list, uint32_t count, const char *uuid)
{
    for (uint32_t i = 0; *uuid && i < count; i++)
        if (strcmp(list[i].info.uuid, uuid) == 0) return true;
    return false;
}

tern_status tern_device_list(const tern_backend *backend, tern_device_listing **out_list, uint32_t *out_count)
{
    tern_status status;
    uint32_t found = 0, count = 0;
    tern_device_listing *list = NULL;
    *out_list = NULL;
    *out_count = 0;
    (void)tern_error(TERN_OK, "%s", ""); /* so that a sentence after this call is the plug-in's */
    TERN_TRY(backend->device_count(&found));
    list = calloc(found ? found : 1, sizeof *list);
    if (!list) return tern_error_memory("the list of devices", found * sizeof *list);
    for (uint32_t i = 0; i < found; i++) {
        TERN_TRY(backend->device_info(i, &list[count].info));
        list[count].index = i;
        if (!listed_before(list, count, list[count].info.uuid)) count++;
    }
    *out_list = list;
    *out_count = count;
    return TERN_OK;
fail:
    free(list);
    return status;
}

/* Real GPUs first, the larger kind before; devices of one kind in the driver's order. count > 0. */
static uint32_t best_of(const tern_device_listing *list, uint32_t count)
{
    for (int kind = TERN_DEVICE_DISCRETE_GPU; kind >= TERN_DEVICE_INTEGRATED_GPU; kind--)
        for (uint32_t i = 0; i < count; i++)
            if (list[i].info.kind == (tern_device_kind)kind) return i;
    return 0;
}

/* "0: llvmpipe, 1: A770" */
static void describe(const tern_device_listing *list, uint32_t count, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = 0;
    for (uint32_t i = 0; i < count && used + 1 < bytes; i++) {
        int length = snprintf(text + used, bytes - used, "%s%u: %s", i ? ", " : "", i, list[i].info.name);
        used += length > 0 ? (size_t)length : 0;
    }
}

/* ---------------------------------------------------------------- matching */

static bool contains_ignoring_case(const char *text, const char *part)
{
    size_t length = strlen(part);
    for (; *text; text++) {
        size_t i = 0;
        while (i < length && tolower((unsigned char)text[i]) == tolower((unsigned char)part[i])) i++;
        if (i == length) return true;
    }
    return false;
}

/* Equal but for case, dashes and what nvidia-smi puts before one; an empty uuid equals nothing. */
static bool same_uuid(const char *uuid, const char *which)
{
    if (!*uuid) return false;
    if (strncmp(which, "GPU-", 4) == 0 || strncmp(which, "MIG-", 4) == 0) which += 4;
    for (;;) {
        while (*uuid == '-') uuid++;
        while (*which == '-') which++;
        if (tolower((unsigned char)*uuid) != tolower((unsigned char)*which)) return false;
        if (!*uuid) return true;
        uuid++;
        which++;
    }
}

/* The numbers of "0000:03:00.0", or of "03:00.0", which is in domain 0. */
static bool pci_parse(const char *text, unsigned n[4])
{
    int end = 0;
    if (sscanf(text, "%8x:%2x:%2x.%1x%n", &n[0], &n[1], &n[2], &n[3], &end) == 4) return text[end] == 0;
    n[0] = 0;
    return sscanf(text, "%2x:%2x.%1x%n", &n[1], &n[2], &n[3], &end) == 3 && text[end] == 0;
}

/* As numbers, since tools print domains of 4 or of 8 digits, or none. */
static bool same_pci(const char *pci, const char *which)
{
    unsigned a[4], b[4];
    return pci_parse(pci, a) && pci_parse(which, b) && memcmp(a, b, sizeof a) == 0;
}

/* True if `which` is meant as a number: one or two digits, or any number that is a device's. ("3090" is a part of a
 * name, but "1" must not open a GTX 1080.) *out_index may be >= count. */
static bool is_index(const char *which, uint32_t count, uint32_t *out_index)
{
    const size_t length = strlen(which);
    if (length == 0 || length > 9 || strspn(which, "0123456789") != length) return false;
    *out_index = (uint32_t)strtoul(which, NULL, 10);
    return length <= 2 || *out_index < count;
}

static tern_status find_device(const char *backend, const char *which, const tern_device_listing *list, uint32_t count,
                               uint32_t *out_index)
{
    char devices[1024];
    uint32_t matches = 0;
    const bool number = is_index(which, count, out_index);
    if (number && *out_index < count) return TERN_OK;
    for (uint32_t i = 0; i < count && *which && !number; i++) {
        const tern_device_info *info = &list[i].info;
        if (same_uuid(info->uuid, which) || same_pci(info->pci, which)) {
            *out_index = i;
            return TERN_OK;
        }
        if (contains_ignoring_case(info->name, which) && matches++ == 0) *out_index = i;
    }
    if (matches == 1) return TERN_OK;
    describe(list, count, devices, sizeof devices);
    if (matches > 1)
        return tern_error(TERN_ERROR_NOT_FOUND, "\"%s\" fits %u devices of %s; name one by its number: %s", which,
                          matches, backend, devices);
    return tern_error(TERN_ERROR_NOT_FOUND,
                      "%s has no device \"%s\"; it has %s; give a number, a part of a name, a UUID or a PCI address",
                      backend, which, devices);
}

/* ----------------------------------------------------------------- opening */

static void compose_title(tern_device *device)
{
    const tern_device_info *info = &device->info;
    if (info->kind == TERN_DEVICE_CPU)
        snprintf(device->title, sizeof device->title, "%s: %s (%u thread%s)", device->backend->name, info->name,
                 info->threads, info->threads == 1 ? "" : "s");
    else
        snprintf(device->title, sizeof device->title, "%s: %s", device->backend->name, info->name);
}

/* tf32 shapes last, so that matrix_count alone says whether they count. */
static void sort_matrices(tern_device *device)
{
    const tern_device_info given = device->info;
    uint32_t place = 0;
    device->matrix_total = given.matrix_count;
    for (int tf32 = 0; tf32 < 2; tf32++)
        for (uint32_t i = 0; i < given.matrix_count; i++)
            if ((given.matrix[i].dtype == TERN_F32) == tf32) device->info.matrix[place++] = given.matrix[i];
}

tern_status tern_device_allow_tf32(tern_device *device, bool allow)
{
    if (!device) return tern_error(TERN_ERROR_INVALID, "the device is NULL; open one with tern_device_open");
    uint32_t count = 0;
    while (count < device->matrix_total && (allow || device->info.matrix[count].dtype != TERN_F32)) count++;
    device->info.matrix_count = count;
    return TERN_OK;
}

static tern_status open_listing(const tern_backend *backend, const tern_device_listing *listing,
                                const tern_open_options *options, tern_device **out_device)
{
    static const tern_open_options defaults = {0};
    if (!options) options = &defaults;
    tern_device *device = calloc(1, sizeof *device);
    if (!device) return tern_error_memory("a device", sizeof *device);
    device->backend = backend;
    device->info = listing->info;
    if (options->threads && device->info.kind == TERN_DEVICE_CPU) device->info.threads = options->threads;
    compose_title(device);
    sort_matrices(device);
    tern_status status = tern_device_allow_tf32(device, false);
    if (status == TERN_OK) status = backend->open(listing->index, options, &device->handle);
    if (status < 0) {
        free(device);
        return status;
    }
    *out_device = device;
    return TERN_OK;
}

/* which NULL: the best. */
static tern_status open_named(const char *name, const char *which, const tern_open_options *options,
                              tern_device **out_device)
{
    tern_status status;
    const tern_backend *backend = NULL;
    tern_device_listing *list = NULL;
    uint32_t count = 0, chosen = 0;
    TERN_TRY(tern_registry_get(name, &backend));
    TERN_TRY(tern_device_list(backend, &list, &count));
    if (count == 0) {
        char reason[512];
        snprintf(reason, sizeof reason, "%s", tern_error_message());
        status = tern_error(TERN_ERROR_NOT_FOUND, "%s",
                            *reason ? reason : "the driver has none; `tern devices` shows what there is");
        status = tern_error_prefix(status, "%s has no device", name);
        goto fail;
    }
    if (which)
        TERN_TRY(find_device(name, which, list, count, &chosen));
    else
        chosen = best_of(list, count);
    status = open_listing(backend, &list[chosen], options, out_device);
fail:
    free(list);
    return status;
}

/* A real GPU of this backend, opened; *out_device stays NULL if it has none. A backend that cannot be used is passed
 * over. */
static tern_status try_gpu(const char *name, const tern_open_options *options, tern_device **out_device)
{
    const tern_backend *backend = NULL;
    tern_device_listing *list = NULL;
    uint32_t count = 0;
    if (tern_registry_get(name, &backend) < 0 || tern_device_list(backend, &list, &count) < 0) {
        tern_log_write(TERN_LOG_DEBUG, "auto: not %s: %s", name, tern_error_message());
        return TERN_OK;
    }
    tern_status status = TERN_OK;
    uint32_t best = count ? best_of(list, count) : 0;
    if (count && list[best].info.kind >= TERN_DEVICE_INTEGRATED_GPU) {
        status = open_listing(backend, &list[best], options, out_device);
        if (status < 0) status = tern_error_prefix(status, "auto chose %s: %s", name, list[best].info.name);
    } else {
        tern_log_write(TERN_LOG_DEBUG, "auto: not %s: it has no real GPU", name);
    }
    free(list);
    return status;
}

static tern_status open_auto(const tern_open_options *options, tern_device **out_device)
{
    tern_status status;
    uint32_t count;
    const tern_registry_row *rows = tern_registry_rows(&count);
    for (uint32_t i = 0; i < count && !*out_device; i++)
        if (rows[i].automatic && strcmp(rows[i].name, "cpu") != 0) TERN_TRY(try_gpu(rows[i].name, options, out_device));
    if (*out_device) {
        tern_log_write(TERN_LOG_INFO, "auto chose %s", (*out_device)->title);
        return TERN_OK;
    }
    TERN_TRY(open_named("cpu", NULL, options, out_device));
    tern_log_write(TERN_LOG_INFO, "auto chose %s, as no driver has a real GPU (see `tern devices`)",
                   (*out_device)->title);
fail:
    return status;
}

tern_status tern_device_open_with(const char *name, const tern_open_options *options, tern_device **out_device)
{
    if (!out_device)
        return tern_error(TERN_ERROR_INVALID,
                          "tern_device_open: out_device is NULL; give the address of a tern_device pointer");
    *out_device = NULL;
    if (!name)
        return tern_error(TERN_ERROR_INVALID, "tern_device_open: name is NULL; give \"auto\" or a backend's name");
    if (strcmp(name, "auto") == 0) return open_auto(options, out_device);
    const char *colon = strchr(name, ':');
    char backend[64];
    int length = snprintf(backend, sizeof backend, "%.*s", colon ? (int)(colon - name) : 63, name);
    if (length < 0 || (size_t)length >= sizeof backend) length = (int)sizeof backend - 1;
    return open_named(backend, colon ? colon + 1 : NULL, options, out_device);
}

tern_status tern_device_open(const char *name, tern_device **out_device)
{
    return tern_device_open_with(name, NULL, out_device);
}

tern_status tern_device_open_paper(const char *profile, tern_device **out_device)
{
    tern_status status;
    tern_limits limits;
    tern_device *device = NULL;
    *out_device = NULL;
    TERN_TRY(tern_limits_load(profile, &limits));
    TERN_TRY(open_named("null", NULL, NULL, &device));
    tern_limits_apply(&limits, &device->info);
    device->info.kind = limits.software ? TERN_DEVICE_SOFTWARE_GPU : TERN_DEVICE_DISCRETE_GPU;
    snprintf(device->info.name, sizeof device->info.name, "%s", limits.name);
    snprintf(device->title, sizeof device->title, "on paper: %s", limits.name);
    *out_device = device;
fail:
    return status;
}

void tern_device_close(tern_device *device)
{
    if (!device) return;
    device->backend->close(device->handle);
    free(device);
}

const char *tern_device_name(const tern_device *device) { return device->title; }
