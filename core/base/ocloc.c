/* SPDX-License-Identifier: Apache-2.0 */
/* ocloc.c - see ocloc.h. */
#include "core/base/ocloc.h"

#include <dlfcn.h>
#include <string.h>

bool tern_ocloc_find(void *library, tern_ocloc *out_ocloc)
{
    void *invoke = dlsym(library, "oclocInvoke"), *release = dlsym(library, "oclocFreeOutput");
    memcpy(&out_ocloc->invoke, &invoke, sizeof invoke);
    memcpy(&out_ocloc->release, &release, sizeof release);
    return invoke && release;
}

int tern_ocloc_run(const tern_ocloc *ocloc, const char **arguments, uint32_t argument_count, const char *text,
                   size_t text_bytes, tern_ocloc_files *out_files)
{
    const char *name = TERN_OCLOC_SOURCE;
    const uint8_t *source = (const uint8_t *)text;
    const uint64_t bytes = text_bytes + 1;
    *out_files = (tern_ocloc_files){0};
    return ocloc->invoke(argument_count, arguments, 1, &source, &bytes, &name, 0, NULL, NULL, NULL, &out_files->count,
                         &out_files->data, &out_files->bytes, &out_files->names);
}

void tern_ocloc_release(const tern_ocloc *ocloc, tern_ocloc_files *files)
{
    (void)ocloc->release(&files->count, &files->data, &files->bytes, &files->names);
}

uint32_t tern_ocloc_file(const tern_ocloc_files *files, const char *magic, size_t magic_bytes)
{
    for (uint32_t i = 0; i < files->count; i++)
        if (files->bytes[i] > magic_bytes && memcmp(files->data[i], magic, magic_bytes) == 0) return i;
    return UINT32_MAX;
}

const char *tern_ocloc_log(const tern_ocloc_files *files)
{
    for (uint32_t i = 0; i < files->count; i++)
        if (strcmp(files->names[i], "stdout.log") == 0 && files->bytes[i] > 0) return (const char *)files->data[i];
    return "no message";
}

bool tern_ocloc_has_dpas(const void *binary, size_t bytes)
{
    static const char claim[] = "has_dpas:";
    const char *at = memmem(binary, bytes, claim, sizeof claim - 1);
    const size_t left = at ? bytes - (size_t)(at - (const char *)binary) : 0;
    return at && memmem(at, left < 32 ? left : 32, "true", 4) != NULL;
}
