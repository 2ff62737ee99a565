/* SPDX-License-Identifier: Apache-2.0 */
/* hints.c - reads /dev/dri and /sys/bus/pci, nothing else. */
#include "core/device/hints.h"

#include <dirent.h>
#include <grp.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool tern_hint_render_node(const char *root, char *out_text, size_t bytes)
{
    char folder[512], path[1024];
    bool found = false;
    snprintf(folder, sizeof folder, "%s/dev/dri", root);
    DIR *directory = opendir(folder);
    if (!directory) return false;
    for (struct dirent *entry; !found && (entry = readdir(directory));) {
        struct stat info;
        if (strncmp(entry->d_name, "renderD", 7) != 0) continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (access(path, R_OK | W_OK) == 0 || stat(path, &info) != 0) continue;
        const struct group *group = getgrgid(info.st_gid);
        const char *name = group && strcmp(group->gr_name, "root") != 0 ? group->gr_name : "render";
        snprintf(out_text, bytes,
                 "%s is there, but you may not use it: run `sudo usermod -aG %s $USER`, then log out and in", path,
                 name);
        found = true;
    }
    closedir(directory);
    return found;
}

/* The largest memory window of a PCI device: lines of "start end flags" in its `resource` file. 0 if unknown. */
static uint64_t largest_window(const char *root, const char *pci)
{
    char path[512];
    uint64_t start, end, flags, largest = 0;
    snprintf(path, sizeof path, "%s/sys/bus/pci/devices/%s/resource", root, pci);
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    while (fscanf(file, "%" SCNx64 " %" SCNx64 " %" SCNx64, &start, &end, &flags) == 3)
        if (end > start && end - start + 1 > largest) largest = end - start + 1;
    fclose(file);
    return largest;
}

bool tern_hint_small_bar(const char *root, const tern_device_info *info, char *out_text, size_t bytes)
{
    if (info->kind != TERN_DEVICE_DISCRETE_GPU || (info->features & TERN_FEATURE_RESIZABLE_BAR) || !*info->pci)
        return false;
    const uint64_t window = largest_window(root, info->pci);
    if (window == 0 || window >= info->memory_bytes / 2) return false;
    snprintf(out_text, bytes,
             "%s: the CPU sees %llu MiB of its %llu MiB; turn on Resizable BAR (and Above 4G Decoding) in the firmware "
             "set-up for full speed",
             info->name, (unsigned long long)(window >> 20), (unsigned long long)(info->memory_bytes >> 20));
    return true;
}
