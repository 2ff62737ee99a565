/* SPDX-License-Identifier: Apache-2.0 */
/* ocloc.h - Intel's offline compiler as a library, opened at run time by who needs it: OpenCL C in, files out.
 *
 * Source of the interface: ocloc_api.h of Intel's compute runtime. */
#ifndef TERN_BASE_OCLOC_H
#define TERN_BASE_OCLOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/tern.h"

typedef struct tern_ocloc {
    int (*invoke)(unsigned argument_count, const char **arguments, uint32_t sources, const uint8_t **data,
                  const uint64_t *bytes, const char **names, uint32_t headers, const uint8_t **header_data,
                  const uint64_t *header_bytes, const char **header_names, uint32_t *out_count, uint8_t ***out_data,
                  uint64_t **out_bytes, char ***out_names);
    int (*release)(uint32_t *count, uint8_t ***data, uint64_t **bytes, char ***names);
} tern_ocloc;

typedef struct tern_ocloc_files {
    uint32_t count;
    uint8_t **data;
    uint64_t *bytes;
    char **names;
} tern_ocloc_files;

#define TERN_OCLOC_SOURCE "kernel.cl" /* the name under which arguments refer to the text */

/* The entries of an opened libocloc; false where it lacks them. */
TERN_API bool tern_ocloc_find(void *library, tern_ocloc *out_ocloc);
/* Runs it over a zero-terminated text; ocloc's exit status. The files are to be released, also after a failure. */
TERN_API int tern_ocloc_run(const tern_ocloc *ocloc, const char **arguments, uint32_t argument_count, const char *text,
                            size_t text_bytes, tern_ocloc_files *out_files);
TERN_API void tern_ocloc_release(const tern_ocloc *ocloc, tern_ocloc_files *files);
/* The first file whose bytes begin so, or UINT32_MAX. */
TERN_API uint32_t tern_ocloc_file(const tern_ocloc_files *files, const char *magic, size_t magic_bytes);
/* Whether Intel's compiler says in a binary (zebin, its .ze_info) that it uses matrix units; it may take text that asks
 * for them and not. */
TERN_API bool tern_ocloc_has_dpas(const void *binary, size_t bytes);
/* What the compiler said, while the files are there. */
TERN_API const char *tern_ocloc_log(const tern_ocloc_files *files);

#endif
