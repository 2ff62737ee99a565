/* SPDX-License-Identifier: Apache-2.0 */
/* nest.c - the loop structure of a tape at given extents: which dims remain, which one is the lane, how work is tiled.
 *
 *     (B, T, C) elementwise            one flat dim, tiles of 16384 elements
 *     (rows; C) with reductions        lane = C, tiles of whole rows
 *     (C; chunks) sum of column parts  lane = the outer C, since there the loads are contiguous
 *
 * The instructions are nest_code.c's. Every choice here looks at extents and strides only (see tape.h). */
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/nest.h"

#define TILE_ELEMENTS 16384u /* 64 KiB of f32 per operand: a tile's operands stay in the second cache */
#define LANE_ELEMENTS                                                                                                  \
    4096u             /* rows side by side: lines fetched for one inner index must still be there for the next         \
                       */
#define SHORT_ROW 64u /* below, a row does not fill enough vectors to pay for its instructions */

/* Unsigned words wrap (tape.h), so a stride is the signed number of the same 32 bits. */
static int64_t stride_value(tern_tape_stride stride, const uint32_t *extents)
{
    uint32_t product = (uint32_t)stride.coef;
    if (product == 0) return 0;
    for (uint32_t d = 0; d < TERN_TAPE_DIMS; d++)
        if (stride.dims >> d & 1u) product *= extents[d];
    return (int32_t)product;
}

static void bake_access(const tern_tape *tape, const tern_tape_access *from, const uint32_t *extents,
                        tern_cpu_access *to)
{
    to->tensor = from->tensor;
    to->offset = from->offset;
    to->indirect = stride_value(from->indirect, extents);
    to->mask_count = from->mask_count;
    for (uint32_t d = 0; d < tape->dim_count; d++) to->stride[d] = stride_value(from->stride[d], extents);
    for (uint32_t i = 0; i < from->mask_count; i++) {
        to->mask[i].offset = from->mask[i].offset, to->mask[i].lo = from->mask[i].lo, to->mask[i].hi = from->mask[i].hi;
        for (uint32_t d = 0; d < tape->dim_count; d++) to->mask[i].coef[d] = from->mask[i].coef[d];
    }
}

static bool access_merges(const tern_cpu_access *access, uint32_t d, int64_t inner_extent)
{
    if (access->stride[d] != access->stride[d + 1] * inner_extent) return false;
    for (uint32_t i = 0; i < access->mask_count; i++)
        if (access->mask[i].coef[d] != access->mask[i].coef[d + 1] * inner_extent) return false;
    return true;
}

/* Takes dim d out of everything; its neighbour, if it was merged into one, has the extent already. */
static void remove_dim(tern_cpu_nest *nest, uint32_t d)
{
    for (uint32_t i = d; i + 1 < nest->dim_count; i++) nest->extent[i] = nest->extent[i + 1];
    for (uint32_t a = 0; a < nest->access_count; a++) {
        tern_cpu_access *access = &nest->access[a];
        for (uint32_t i = d; i + 1 < nest->dim_count; i++) {
            access->stride[i] = access->stride[i + 1];
            for (uint32_t m = 0; m < access->mask_count; m++) access->mask[m].coef[i] = access->mask[m].coef[i + 1];
        }
        access->stride[nest->dim_count - 1] = 0;
        for (uint32_t m = 0; m < access->mask_count; m++) access->mask[m].coef[nest->dim_count - 1] = 0;
    }
    if (d < nest->outer_count) nest->outer_count--;
    nest->dim_count--;
}

static void merge_dims(tern_cpu_nest *nest, const bool *used)
{
    for (uint32_t d = nest->dim_count; d-- > 0;)
        if (nest->extent[d] == 1) remove_dim(nest, d);
    for (uint32_t d = nest->dim_count; d-- > 1;) {
        if (d == nest->outer_count) continue; /* d - 1 is the last outer dim */
        bool merges = (uint64_t)nest->extent[d - 1] * nest->extent[d] <= UINT32_MAX;
        for (uint32_t a = 0; merges && a < nest->access_count; a++)
            merges = !used[a] || access_merges(&nest->access[a], d - 1, nest->extent[d]);
        if (!merges) continue;
        const uint32_t extent = nest->extent[d - 1] * nest->extent[d];
        remove_dim(nest, d - 1); /* d's strides are the merged dim's; d is now at d - 1 */
        nest->extent[d - 1] = extent;
    }
    if (nest->dim_count == nest->outer_count) nest->extent[nest->dim_count++] = 1; /* there is always an inner dim */
}

/* Short rows, or rows whose elements lie far apart while their neighbours in the next row are adjacent: lanes along the
 * rows. */
static bool rows_suit(const tern_cpu_nest *nest, const bool *loaded)
{
    if (nest->outer_count == 0 || nest->chunk_rows != 0) return false;
    const uint32_t outer = nest->outer_count - 1, inner = nest->dim_count - 1;
    if (nest->extent[outer] < 16) return false;
    if (nest->inner_total < SHORT_ROW) return nest->extent[outer] >= 2 * nest->extent[inner];
    bool gains = false;
    for (uint32_t a = 0; a < nest->access_count; a++) {
        if (!loaded[a] || nest->access[a].stride[inner] == 0) continue;
        if (nest->access[a].stride[inner] == 1 || nest->access[a].stride[outer] != 1) return false;
        gains = true;
    }
    return gains;
}

static void choose_tiles(tern_cpu_nest *nest)
{
    const uint32_t last = nest->dim_count - 1;
    if (nest->rows) {
        const uint32_t outer = nest->outer_count - 1;
        uint64_t lanes = LANE_ELEMENTS / nest->inner_total / 64 * 64;
        if (lanes < 64) lanes = 64;
        if (lanes < nest->block) nest->block = (uint32_t)lanes;
        nest->tile = nest->block;
        const uint64_t lines = nest->outer_total / nest->extent[outer];
        nest->tile_count = (uint32_t)(lines * ((nest->extent[outer] + nest->block - 1) / nest->block));
        return;
    }
    nest->split = nest->chunk_rows == 0 && nest->outer_total <= 4 && nest->inner_total > TILE_ELEMENTS;
    if (nest->split) {
        nest->tile = TILE_ELEMENTS;
        if (!nest->flat && nest->extent[last] < TILE_ELEMENTS)
            nest->tile = TILE_ELEMENTS / nest->extent[last] * nest->extent[last];
        nest->tile_count = (uint32_t)((nest->inner_total + nest->tile - 1) / nest->tile);
        return;
    }
    const uint64_t rows = nest->chunk_rows ? nest->chunk_rows : 1;
    nest->tile = TILE_ELEMENTS / (nest->inner_total * rows) * rows;
    if (nest->tile < rows) nest->tile = rows;
    nest->tile_count = (uint32_t)((nest->outer_total + nest->tile - 1) / nest->tile);
}

static void choose_block(tern_cpu_nest *nest)
{
    const uint32_t cache = 6144; /* floats that the slots share: 24 KiB of a 32 KiB first cache */
    uint32_t block = cache / (nest->slot_count ? nest->slot_count : 1) / 64 * 64;
    if (block < 256) block = 256;
    if (block > TERN_BLOCK_MAX) block = TERN_BLOCK_MAX;
    nest->block = block;
}

static size_t round_up(size_t bytes) { return (bytes + 63) / 64 * 64; }

static void measure_scratch(tern_cpu_nest *nest)
{
    nest->scratch_bytes = round_up(sizeof(tern_cpu_lanes)) + round_up(nest->value_count * sizeof(void *)) +
                          round_up(nest->value_count * sizeof(uint32_t)) +
                          round_up(nest->reduce_count * sizeof(double)) +
                          round_up((size_t)nest->slot_count * nest->block * sizeof(float));
}

tern_cpu_lanes *tern_cpu_nest_place(const tern_cpu_nest *nest, const tern_cpu_range *tensors, void *scratch)
{
    char *at = scratch;
    tern_cpu_lanes *s = (void *)at;
    *s = (tern_cpu_lanes){.nest = nest, .tensors = tensors};
    at += round_up(sizeof *s);
    s->value = (void *)at, at += round_up(nest->value_count * sizeof(void *));
    s->one = (void *)at, at += round_up(nest->value_count * sizeof(uint32_t));
    s->sum = (void *)at, at += round_up(nest->reduce_count * sizeof(double));
    s->slots = (void *)at;
    memcpy(s->one, nest->constant, nest->value_count * sizeof(uint32_t));
    for (uint32_t v = 0; v < nest->value_count; v++)
        s->value[v] = nest->slot[v] == TERN_TAPE_NONE ? (void *)&s->one[v]
                                                      : (void *)(s->slots + (size_t)nest->slot[v] * nest->block);
    return s;
}

static void count_extents(tern_cpu_nest *nest)
{
    nest->outer_total = nest->inner_total = 1;
    for (uint32_t d = 0; d < nest->outer_count; d++) nest->outer_total *= nest->extent[d];
    for (uint32_t d = nest->dim_count; d-- > nest->outer_count;) {
        nest->inner_stride[d] = nest->inner_total;
        nest->inner_total *= nest->extent[d];
    }
}

tern_status tern_cpu_nest_create(const tern_cpu_isa *isa, const tern_tape *tape, const uint32_t *extents,
                                 const tern_cpu_range *ranges, bool epilogue, tern_cpu_nest **out_nest)
{
    tern_status status = TERN_OK;
    bool *used = calloc(2 * (size_t)tape->access_count + 1, sizeof *used), *loaded = used + tape->access_count;
    tern_cpu_nest *nest = calloc(1, sizeof *nest);
    *out_nest = NULL;
    if (!nest || !used) {
        status = tern_error_memory("a kernel's loops", sizeof *nest);
        goto fail;
    }
    nest->isa = isa;
    nest->dim_count = tape->dim_count, nest->outer_count = tape->outer_count, nest->chunk_rows = tape->chunk_rows;
    nest->access_count = tape->access_count;
    nest->access = calloc((size_t)tape->access_count + 1, sizeof *nest->access);
    if (!nest->access) {
        status = tern_error_memory("a kernel's accesses", tape->access_count * sizeof *nest->access);
        goto fail;
    }
    for (uint32_t d = 0; d < tape->dim_count; d++) {
        nest->extent[d] = extents[d];
        if (extents[d] != 0) continue;
        status = tern_error(TERN_ERROR_INVALID, "extent %u of a kernel is 0; tensors have at least one element", d);
        goto fail;
    }
    nest->words = extents;
    for (uint32_t a = 0; a < tape->access_count; a++) bake_access(tape, &tape->access[a], extents, &nest->access[a]);
    for (uint32_t i = 0; i < tape->insn_count; i++) {
        const tern_tape_insn *insn = &tape->insn[i];
        const bool loads = insn->op == TERN_TAPE_LOAD;
        if (loads || insn->op == TERN_TAPE_STORE || insn->op == TERN_TAPE_INDEX) used[insn->access] = true;
        if (loads && insn->body) loaded[insn->access] = true;
    }
    if (!epilogue) merge_dims(nest, used);
    count_extents(nest);
    nest->rows = !epilogue && rows_suit(nest, loaded);
    nest->lane = nest->rows ? nest->outer_count - 1 : nest->dim_count - 1;
    nest->flat = !epilogue && !nest->rows && nest->extent[nest->lane] < SHORT_ROW &&
                 nest->inner_total > nest->extent[nest->lane];
    TERN_TRY(tern_cpu_nest_compile(nest, tape, ranges));
    choose_block(nest);
    choose_tiles(nest);
    measure_scratch(nest);
    if (nest->split && nest->reduce_count > 0) {
        nest->partial = calloc((size_t)nest->tile_count * nest->reduce_count, sizeof *nest->partial);
        if (!nest->partial) {
            status = tern_error_memory("partial sums", nest->tile_count * nest->reduce_count * sizeof *nest->partial);
            goto fail;
        }
    }
    free(used);
    *out_nest = nest;
    return TERN_OK;
fail:
    free(used);
    tern_cpu_nest_destroy(nest);
    return status;
}

void tern_cpu_nest_destroy(tern_cpu_nest *nest)
{
    if (!nest) return;
    free(nest->access);
    free(nest->insn);
    free(nest->slot);
    free(nest->reduce_value);
    free(nest->reduce_max);
    free(nest->constant);
    free(nest->partial);
    free(nest);
}
