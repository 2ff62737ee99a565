/* SPDX-License-Identifier: Apache-2.0 */
/* registry.c - which backends there are. One row per line of backends.def; a plug-in is found and its driver loaded
 * when first asked for, so that training on the CPU never starts a GPU driver.
 *
 * Invariant: a slot of `loaded` goes from NULL to a table whose load() succeeded, once, under the lock, and stays. */
#include "core/device/registry.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/device/plugin.h"

static const tern_registry_row rows[] = {
#define BACKEND(name, automatic, how_to_get) {#name, automatic, how_to_get},
#include "backends/backends.def"
#undef BACKEND
};
#define ROW_COUNT (sizeof rows / sizeof *rows)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const tern_backend *loaded[ROW_COUNT];

const tern_registry_row *tern_registry_rows(uint32_t *out_count)
{
    *out_count = (uint32_t)ROW_COUNT;
    return rows;
}

static tern_status unknown(const char *name)
{
    char known[256] = "";
    for (size_t i = 0, used = 0; i < ROW_COUNT && used < sizeof known; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, ", %s", rows[i].name);
    return tern_error(TERN_ERROR_NOT_FOUND, "there is no backend \"%s\"; choose auto%s", name, known);
}

/* Under the lock. */
static tern_status load(size_t row)
{
    tern_status status;
    const tern_backend *backend = NULL;
    status = tern_plugin_find(rows[row].name, &backend);
    if (status == TERN_ERROR_NOT_FOUND) {
        char where[1536];
        snprintf(where, sizeof where, "%s", tern_error_message());
        return tern_error(status, "%s; %s", where, rows[row].how_to_get);
    }
    if (status < 0) return status;
    status = backend->load();
    if (status == TERN_OK) loaded[row] = backend;
    return status;
}

tern_status tern_registry_get(const char *name, const tern_backend **out_backend)
{
    for (size_t i = 0; i < ROW_COUNT; i++) {
        if (strcmp(rows[i].name, name) != 0) continue;
        pthread_mutex_lock(&lock);
        tern_status status = loaded[i] ? TERN_OK : load(i);
        if (status == TERN_OK) *out_backend = loaded[i];
        pthread_mutex_unlock(&lock);
        return status;
    }
    return unknown(name);
}

/* ------------------------------------------------------- for `tern devices` */

static tern_backend_entry entries[ROW_COUNT];

static void fill_entry(size_t row)
{
    tern_backend_entry *entry = &entries[row];
    tern_device_listing *list = NULL;
    entry->name = rows[row].name;
    entry->status = tern_registry_get(entry->name, &entry->backend);
    if (entry->status == TERN_OK) entry->status = tern_device_list(entry->backend, &list, &entry->device_count);
    if (entry->status < 0 || entry->device_count == 0)
        snprintf(entry->message, sizeof entry->message, "%s", tern_error_message());
    free(list);
}

static void fill_entries(void)
{
    for (size_t i = 0; i < ROW_COUNT; i++) fill_entry(i);
}

const tern_backend_entry *tern_backends(uint32_t *out_count)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill_entries);
    *out_count = (uint32_t)ROW_COUNT;
    return entries;
}
