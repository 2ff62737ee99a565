/* SPDX-License-Identifier: Apache-2.0 */
/* facts.c - what the figures were measured on: the machine, and the devices of one backend.
 *
 * What it is not: an identity. No host name, user, serial number, UUID or bus address is written, for the file is made
 * to be sent to others. */
#include "bench/device/device.h"

#include "core/cli/devices.h"
#include "core/device/registry.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

/* ------------------------------------------------------------------- machine */

/* The value behind `key` and a separator in a file of lines, without quotes; "" if there is none. */
static void find_line(const char *path, const char *key, char *out, size_t bytes)
{
    char line[512];
    FILE *file = fopen(path, "r");
    out[0] = 0;
    while (file && !out[0] && fgets(line, sizeof line, file)) {
        const size_t length = strlen(key);
        if (strncmp(line, key, length) != 0) continue;
        const char *value = line + length + strspn(line + length, " \t:=\"");
        snprintf(out, bytes, "%.*s", (int)strcspn(value, "\"\n"), value);
    }
    if (file) fclose(file);
}

/* Names of set variables that choose or change drivers; the values, which are paths, stay here. */
static void add_environment(cJSON *machine)
{
    static const char *const prefixes[] = {"TERN_", "VK_",   "OCL_",     "ZE",    "CUDA_",      "POCL_",
                                           "LP_",   "MESA_", "GALLIUM_", "RADV_", "LD_PRELOAD", "LD_LIBRARY_PATH"};
    extern char **environ;
    cJSON *list = cJSON_AddArrayToObject(machine, "environment");
    for (char **entry = environ; *entry; entry++)
        for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
            char name[64];
            if (strncmp(*entry, prefixes[i], strlen(prefixes[i])) != 0) continue;
            snprintf(name, sizeof name, "%.*s", (int)strcspn(*entry, "="), *entry);
            cJSON_AddItemToArray(list, cJSON_CreateString(name));
            break;
        }
}

tern_status device_machine_facts(cJSON **out_machine)
{
    char text[256];
    struct utsname names;
    cJSON *machine = cJSON_CreateObject();
    if (!machine) return tern_error_memory("the machine's facts", 1024);
    find_line("/proc/cpuinfo", "model name", text, sizeof text);
    cJSON_AddStringToObject(machine, "cpu", *text ? text : "unknown");
    cJSON_AddNumberToObject(machine, "threads", (double)sysconf(_SC_NPROCESSORS_ONLN));
    cJSON_AddNumberToObject(machine, "memory_bytes", (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE));
    snprintf(text, sizeof text, "unknown");
    if (uname(&names) == 0) snprintf(text, sizeof text, "%s %s %s", names.sysname, names.release, names.machine);
    cJSON_AddStringToObject(machine, "kernel", text);
    find_line("/etc/os-release", "PRETTY_NAME", text, sizeof text);
    cJSON_AddStringToObject(machine, "system", *text ? text : "unknown");
    add_environment(machine);
    *out_machine = machine;
    return TERN_OK;
}

/* ------------------------------------------------------------------- devices */

static void add_device(cJSON *devices, const tern_backend *backend, const tern_device_listing *listing, uint32_t number)
{
    char id[64];
    cJSON *device = tern_cli_device_json(backend, listing, number);
    snprintf(id, sizeof id, "%s:%u", backend->name, number);
    cJSON_AddStringToObject(device, "id", id);
    cJSON_AddStringToObject(
        device, "ran_on", device_ran_on(cJSON_GetStringValue(cJSON_GetObjectItem(device, "kind")), listing->info.name));
    cJSON_DeleteItemFromObject(device, "uuid");
    cJSON_DeleteItemFromObject(device, "pci");
    cJSON_AddItemToArray(devices, device);
}

tern_status device_backend_facts(const char *name, cJSON **out_backend)
{
    const tern_backend *backend = NULL;
    tern_device_listing *list = NULL;
    uint32_t count = 0;
    cJSON *json = cJSON_CreateObject(), *devices;
    if (!json || !cJSON_AddStringToObject(json, "name", name) || !(devices = cJSON_AddArrayToObject(json, "devices")))
        return cJSON_Delete(json), tern_error_memory("a backend's facts", 1024);
    const bool loaded =
        tern_registry_get(name, &backend) == TERN_OK && tern_device_list(backend, &list, &count) == TERN_OK;
    if (!loaded || count == 0)
        cJSON_AddStringToObject(json, "missing",
                                *tern_error_message() ? tern_error_message() : "the driver has no device");
    for (uint32_t i = 0; i < count; i++) add_device(devices, backend, &list[i], i);
    free(list);
    *out_backend = json;
    return TERN_OK;
}
