/* SPDX-License-Identifier: Apache-2.0 */
/* cache.c - folders: making them, and finding the one for caches (declared in file.h).
 *
 * A cache holds compiled kernels that are loaded back as code, so a folder in a shared temporary directory is used only
 * if it is this user's own and nobody else can write to it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/base/status.h"

/* Makes the folder if absent; 0, or errno. */
static int make_one(const char *path, mode_t mode)
{
    struct stat info;
    if (mkdir(path, mode) == 0) return 0;
    int error = errno;
    if (stat(path, &info) == 0) return S_ISDIR(info.st_mode) ? 0 : ENOTDIR;
    return error;
}

static int make_all(char *path, mode_t mode)
{
    for (char *p = path + 1; *p; p++) {
        if (*p != '/') continue;
        *p = 0;
        int error = make_one(path, 0777);
        *p = '/';
        if (error) return error;
    }
    return make_one(path, mode);
}

tern_status tern_directory_create(const char *path)
{
    if (!*path) return tern_error(TERN_ERROR_INVALID, "the name of a folder is empty; give a path");
    char *copy = strdup(path);
    if (!copy) return tern_error_memory("a path", strlen(path) + 1);
    int error = make_all(copy, 0777);
    free(copy);
    if (!error) return TERN_OK;
    return tern_error(TERN_ERROR_IO, "cannot make the folder \"%s\": %s; choose a folder that you may write to", path,
                      strerror(error));
}

/* base/part, writable; base is made with `mode`. */
static bool usable(const char *base, const char *part, mode_t mode, bool private_only, char *out_path, size_t bytes)
{
    char path[4096];
    struct stat info;
    int length = snprintf(path, sizeof path, "%s", base);
    if (length <= 0 || (size_t)length >= sizeof path || make_all(path, mode)) return false;
    if (private_only &&
        (lstat(path, &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 022)))
        return false;
    length = snprintf(path, sizeof path, "%s/%s", base, part);
    if (length <= 0 || (size_t)length >= sizeof path || (size_t)length >= bytes) return false;
    if (make_all(path, 0700) || access(path, W_OK | X_OK) != 0) return false;
    memcpy(out_path, path, (size_t)length + 1);
    return true;
}

tern_status tern_cache_directory(const char *part, char *out_path, size_t bytes)
{
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME"), *tmp = getenv("TMPDIR");
    char base[3072];
    if (xdg && *xdg == '/') { /* the XDG specification says to ignore relative ones */
        snprintf(base, sizeof base, "%s/tern", xdg);
        if (usable(base, part, 0700, false, out_path, bytes)) return TERN_OK;
    }
    if (home && *home == '/') {
        snprintf(base, sizeof base, "%s/.cache/tern", home);
        if (usable(base, part, 0700, false, out_path, bytes)) return TERN_OK;
    }
    snprintf(base, sizeof base, "%s/tern-%u", tmp && *tmp == '/' ? tmp : "/tmp", (unsigned)geteuid());
    if (usable(base, part, 0700, true, out_path, bytes)) return TERN_OK;
    return tern_error(
        TERN_ERROR_IO,
        "no folder for caches: neither XDG_CACHE_HOME, HOME/.cache nor %s can be used; set XDG_CACHE_HOME", base);
}
