/* SPDX-License-Identifier: Apache-2.0 */
/* shaders.h - the files of shaders/ inside the binary: the kernel language's text, as it stands in the tree.
 *
 * Generated at build time by cmake/embed.cmake. Names are relative to shaders/: "matmul.k", "dialect/glsl.h"; sorted.
 */
#ifndef TERN_KERNEL_SHADERS_H
#define TERN_KERNEL_SHADERS_H

#include <stdint.h>

typedef struct tern_shader_file {
    const char *name;
    const char *text; /* zero-terminated */
} tern_shader_file;

/* tern_shader_file_count entries, then one with a NULL name. */
extern const tern_shader_file tern_shader_files[];
extern const uint32_t tern_shader_file_count;

#endif
