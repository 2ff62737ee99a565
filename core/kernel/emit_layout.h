/* SPDX-License-Identifier: Apache-2.0 */
/* emit_layout.h - the final dims of a kernel and strides written as products of extents.
 *
 * Extents are run-time values, so a stride is baked as coef * product of some extents: one pipeline for every size. */
#ifndef TERN_KERNEL_EMIT_LAYOUT_H
#define TERN_KERNEL_EMIT_LAYOUT_H

#include "core/kernel/trace.h"

typedef struct tern_layout {
    tern_space space; /* at most TERN_TAPE_DIMS dims */
    uint32_t
        source[TERN_TAPE_DIMS]; /* the traced dim whose coefficient dim d takes: the innermost it was merged from */
    bool unit[TERN_TAPE_DIMS];  /* made up: extent 1, no coefficient */
} tern_layout;

/* Drops dims of extent 1 and inner ones that nothing uses, and merges neighbours that every place steps through
 * together; an epilogue's three dims stay. False: too many dims. */
bool tern_layout_make(const tern_trace *trace, tern_layout *out_layout);
/* Everything of an access but its tensor and offset. */
void tern_layout_access(const tern_layout *layout, const tern_place *place, tern_tape_access *out_access);
/* Whether the place's element depends on any dim. */
bool tern_layout_varies(const tern_layout *layout, const tern_place *place);
/* `stride` as coef * product of extents: the largest product that divides it, dims after `dim` preferred. */
tern_tape_stride tern_layout_stride(const tern_space *space, int64_t stride, uint32_t dim);

#endif
