/* SPDX-License-Identifier: Apache-2.0 */
/* emit_layout.c - merging dims and factoring strides; see emit_layout.h. */
#include "core/kernel/emit_layout.h"

#include <string.h>

static bool affine_merges(const tern_affine *affine, uint32_t outer, uint32_t inner, int64_t extent)
{
    return affine->coef[outer] == affine->coef[inner] * extent;
}

/* Whether stepping `outer` is always the same as stepping `inner` extent times. */
static bool dims_merge(const tern_trace *trace, uint32_t outer, uint32_t inner, int64_t extent)
{
    for (uint32_t p = 0; p < trace->place_count; p++) {
        const tern_access *access = &trace->places[p].access;
        if (!affine_merges(&access->element, outer, inner, extent)) return false;
        for (uint32_t m = 0; m < access->mask_count; m++)
            if (!affine_merges(&access->mask[m].value, outer, inner, extent)) return false;
    }
    return true;
}

static bool add_dim(tern_layout *layout, int64_t extent, uint32_t source, bool unit)
{
    tern_space *space = &layout->space;
    if (space->dim_count == TERN_TAPE_DIMS) return false;
    space->extent[space->dim_count] = extent;
    layout->source[space->dim_count] = source;
    layout->unit[space->dim_count++] = unit;
    return true;
}

/* Dims [first, end) of the trace, merged; false: too many. */
static bool add_level(const tern_trace *trace, tern_layout *layout, uint32_t first, uint32_t end)
{
    const tern_space *from = &trace->frame.space;
    const uint32_t start = layout->space.dim_count;
    for (uint32_t d = first; d < end; d++) {
        if (from->extent[d] == 1) continue;
        tern_space *space = &layout->space;
        const uint32_t last = space->dim_count - 1;
        if (space->dim_count > start && dims_merge(trace, layout->source[last], d, from->extent[d])) {
            space->extent[last] *= from->extent[d];
            layout->source[last] = d;
            continue;
        }
        if (!add_dim(layout, from->extent[d], d, false)) return false;
    }
    return true;
}

bool tern_layout_make(const tern_trace *trace, tern_layout *out_layout)
{
    const tern_space *from = &trace->frame.space;
    memset(out_layout, 0, sizeof *out_layout);
    if (trace->contraction) {
        for (uint32_t d = 0; d < from->dim_count; d++)
            if (!add_dim(out_layout, from->extent[d], d, false)) return false;
        return true;
    }
    if (!add_level(trace, out_layout, 0, from->outer_count)) return false;
    out_layout->space.outer_count = out_layout->space.dim_count;
    if (!trace->idle_inner && !add_level(trace, out_layout, from->outer_count, from->dim_count)) return false;
    if (out_layout->space.dim_count == out_layout->space.outer_count) return add_dim(out_layout, 1, 0, true);
    return true;
}

/* Dims after `dim` come first; among equals the fewer and the earlier dims. */
tern_tape_stride tern_layout_stride(const tern_space *space, int64_t stride, uint32_t dim)
{
    tern_tape_stride best = {(int32_t)stride, 0};
    if (stride == 0) return best;
    int64_t best_product = 1;
    bool best_after = true;
    for (uint32_t dims = 1; dims < 1u << space->dim_count; dims++) {
        int64_t product = 1;
        bool useful = true;
        for (uint32_t d = 0; d < space->dim_count; d++) {
            if (!(dims >> d & 1u)) continue;
            product *= space->extent[d];
            useful = useful && space->extent[d] > 1;
        }
        if (!useful || product > stride || stride % product != 0) continue;
        const bool after = (dims & ((2u << dim) - 1u)) == 0;
        if (product < best_product || (product == best_product && (best_after || !after))) continue;
        best = (tern_tape_stride){(int32_t)(stride / product), dims};
        best_product = product;
        best_after = after;
    }
    return best;
}

static int64_t coefficient(const tern_layout *layout, const tern_affine *affine, uint32_t dim)
{
    return layout->unit[dim] ? 0 : affine->coef[layout->source[dim]];
}

void tern_layout_access(const tern_layout *layout, const tern_place *place, tern_tape_access *out_access)
{
    const tern_space *space = &layout->space;
    memset(out_access, 0, sizeof *out_access);
    out_access->offset = (int32_t)place->access.element.offset;
    for (uint32_t d = 0; d < space->dim_count; d++)
        out_access->stride[d] = tern_layout_stride(space, coefficient(layout, &place->access.element, d), d);
    if (place->indirect != 0) out_access->indirect = tern_layout_stride(space, place->indirect, 0);
    out_access->mask_count = place->access.mask_count;
    for (uint32_t m = 0; m < place->access.mask_count; m++) {
        const tern_access_mask *from = &place->access.mask[m];
        tern_tape_mask *to = &out_access->mask[m];
        for (uint32_t d = 0; d < space->dim_count; d++) to->coef[d] = (int32_t)coefficient(layout, &from->value, d);
        to->offset = (int32_t)from->value.offset;
        to->lo = 0;
        to->hi = (int32_t)from->size;
    }
}

bool tern_layout_varies(const tern_layout *layout, const tern_place *place)
{
    for (uint32_t d = 0; d < layout->space.dim_count; d++)
        if (coefficient(layout, &place->access.element, d) != 0) return true;
    return false;
}
