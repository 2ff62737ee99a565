/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.c - finds and loads tern_<name>.so. What it is not: it knows no backend and opens no device.
 *
 * A plug-in, once loaded, stays for the life of the process: drivers start threads and register exit handlers that do
 * not survive dlclose. Only absolute paths are ever given to dlopen, so neither the current directory nor
 * LD_LIBRARY_PATH can put another file in its place. */
#include "core/device/plugin.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/hash.h"
#include "core/base/log.h"

/* The file mapped at `address`, as the kernel names it: right even where the loader was given a relative path
 * (LD_LIBRARY_PATH=build/lib) and the current directory has changed since. */
static bool mapped_file(uintptr_t address, char *out_path, size_t bytes)
{
    char line[PATH_MAX + 128];
    bool found = false;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps && !found && fgets(line, sizeof line, maps)) {
        uintptr_t start, end;
        int path = 0; /* after permissions, offset, device and inode */
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %*s %*s %*s %*s %n", &start, &end, &path) < 2 || path == 0)
            continue;
        if (address < start || address >= end || line[path] != '/') continue;
        line[strcspn(line, "\n")] = 0;
        found = snprintf(out_path, bytes, "%s", line + path) < (int)bytes;
    }
    if (maps) fclose(maps);
    return found;
}

/* The folder of the file that holds this very function: libtern.so, or a program with core inside. False: unknown. */
static bool own_folder(char *out_path, size_t bytes)
{
    char file[PATH_MAX], real[PATH_MAX];
    const uintptr_t here = (uintptr_t)&tern_plugin_find;
    Dl_info info;
    const bool absolute = dladdr((void *)here, &info) && info.dli_fname && *info.dli_fname == '/';
    if (!absolute && !mapped_file(here, file, sizeof file)) return false;
    if (!realpath(absolute ? info.dli_fname : file, real)) return false;
    char *slash = strrchr(real, '/');
    if (!slash) return false;
    *slash = 0;
    return snprintf(out_path, bytes, "%s", real) < (int)bytes;
}

/* Appends ", folder" to the list of places searched. */
static void add_place(char *places, size_t bytes, const char *folder)
{
    size_t used = strlen(places);
    snprintf(places + used, bytes - used, "%s%s", used ? ", " : "", folder);
}

/* Loads folder/tern_<name>.so. TERN_ERROR_NOT_FOUND when there is no such file, for the search to go on. */
static tern_status load_from(const char *folder, const char *name, const tern_backend **out_backend)
{
    char path[PATH_MAX + 64];
    int length = snprintf(path, sizeof path, "%s/tern_%s.so", folder, name);
    if (length >= (int)sizeof path || access(path, F_OK) != 0)
        return tern_error(TERN_ERROR_NOT_FOUND, "there is no tern_%s.so in \"%s\"", name, folder);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return tern_error(TERN_ERROR_DRIVER, "the plug-in \"%s\" cannot be loaded: %s; install tern again", path,
                          dlerror());
    void *symbol = dlsym(library, "tern_backend_get");
    if (!symbol) {
        dlclose(library);
        return tern_error(TERN_ERROR_DRIVER,
                          "\"%s\" is not a tern plug-in: it has no function tern_backend_get; remove it", path);
    }
    tern_backend_get_function get;
    memcpy(&get, &symbol, sizeof get); /* ISO C has no cast from object to function pointer */
    *out_backend = get();
    return TERN_OK;
}

/* Every field that core calls without asking must be there, whoever built the plug-in. */
static tern_status check_table(const char *name, const tern_backend *backend)
{
    if (!backend) return tern_error(TERN_ERROR_DRIVER, "the %s plug-in gave no table; install tern again", name);
    if (backend->abi != TERN_BACKEND_ABI)
        return tern_error(
            TERN_ERROR_DRIVER,
            "the %s plug-in was built for plug-in version %u, this tern has version %u; build both from one version",
            name, backend->abi, TERN_BACKEND_ABI);
    if (!backend->name || strcmp(backend->name, name) != 0)
        return tern_error(TERN_ERROR_DRIVER, "the plug-in tern_%s.so says that it is \"%s\"; install tern again", name,
                          backend->name ? backend->name : "");
    const bool complete = backend->load && backend->unload && backend->device_count && backend->device_info &&
                          backend->open && backend->close && backend->buffer_create && backend->buffer_destroy &&
                          backend->buffer_write && backend->buffer_read && backend->buffer_map &&
                          backend->kernel_create && backend->kernel_destroy && backend->program_create &&
                          backend->program_destroy && backend->program_submit && backend->wait;
    if (!complete)
        return tern_error(TERN_ERROR_DRIVER,
                          "the %s plug-in lacks a required function of core/backend.h; install tern again", name);
    return TERN_OK;
}

/* The folders of TERN_BACKEND_PATH, in order. Every backend is searched there, but one value is complained of once. */
static tern_status search_path(const char *name, char *places, size_t bytes, const tern_backend **out_backend)
{
    static _Atomic uint64_t complained_of;
    const char *list = getenv("TERN_BACKEND_PATH");
    const uint64_t value = list ? tern_hash(TERN_HASH_START, list, strlen(list)) : 0;
    const bool complain = list && atomic_exchange(&complained_of, value) != value;
    while (list && *list) {
        size_t length = strcspn(list, ":");
        char folder[PATH_MAX];
        if (length > 0 && length < sizeof folder) {
            snprintf(folder, sizeof folder, "%.*s", (int)length, list);
            if (*folder == '/') {
                tern_status status = load_from(folder, name, out_backend);
                if (status != TERN_ERROR_NOT_FOUND) return status;
                add_place(places, bytes, folder);
            } else if (complain) {
                tern_log_write(TERN_LOG_WARNING, "TERN_BACKEND_PATH: \"%s\" is not an absolute path and is ignored",
                               folder);
            }
        }
        list += length + (list[length] == ':');
    }
    return TERN_ERROR_NOT_FOUND;
}

tern_status tern_plugin_find(const char *name, const tern_backend **out_backend)
{
    char own[PATH_MAX], joined[PATH_MAX + 16], folder[PATH_MAX], places[1024] = "";
    const tern_backend *backend = NULL;
    tern_status status = TERN_ERROR_NOT_FOUND;
    for (const tern_linked_backend *b = tern_linked_backends; b->name; b++)
        if (strcmp(b->name, name) == 0) {
            backend = b->get();
            status = TERN_OK;
        }
    if (status == TERN_ERROR_NOT_FOUND) status = search_path(name, places, sizeof places, &backend);
    if (status == TERN_ERROR_NOT_FOUND && own_folder(own, sizeof own)) {
        static const char *const relative[] = {"tern", "../lib/tern"};
        for (size_t i = 0; i < sizeof relative / sizeof *relative && status == TERN_ERROR_NOT_FOUND; i++) {
            snprintf(joined, sizeof joined, "%s/%s/", own, relative[i]); /* the last slash: folders only */
            if (!realpath(joined, folder)) continue;
            status = load_from(folder, name, &backend);
            if (status == TERN_ERROR_NOT_FOUND) add_place(places, sizeof places, folder);
        }
    }
    if (status == TERN_ERROR_NOT_FOUND)
        return tern_error(status, "the %s plug-in (tern_%s.so) is not in %s", name, name,
                          *places ? places : "this program");
    if (status == TERN_OK) status = check_table(name, backend);
    if (status == TERN_OK) *out_backend = backend;
    return status;
}
