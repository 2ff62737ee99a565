/* SPDX-License-Identifier: Apache-2.0 */
/* variant.c - which form and tile shape a kernel takes on a device, from queried features and limits, never its vendor.
 *
 * A variant depends on few things (device, kernel kind, whether rows are short), so that one pipeline serves many sizes
 * and a model builds few of them. The rules:
 *
 *     lanes          a device whose sub-groups have one lane (or that has none) vectorises inside or across work-items
 *                    itself; others run `subgroup_max` work-items in step
 *     register tiles TERN_FEATURE_REGISTER_TILES: no shared memory in contractions
 *     contractions   variant_matmul.c, variant_attention.c
 *     rows           one thread per row where rows are short, where neighbouring rows are neighbours in memory (column
 *                    combines), or where there is nothing to reduce; else one group per row
 *
 *     registers      smaller tiles a thread where a lane has few (sub-groups of 8 on a GPU), measured with bench/static
 *     loops          no form whose loops a device with max_loop_turns would stop
 *     storage        no tensor narrower than the device stores (storage.c)
 *
 * Invariant: a chosen variant fits max_group_size, shared_bytes and max_loop_turns, its tiles divide, and its groups
 * fit max_groups. */
#include <stdio.h>

#include "core/base/status.h"
#include "core/kernel/lowered.h"
#include "core/kernel/render_text.h"
#include "core/kernel/storage.h"
#include "core/kernel/turns.h"
#include "core/kernel/variant.h"

#define SHORT_ROW 32u /* elements; below this a group per row leaves most of its threads idle */

/* Whether the device would stop the loops of the variant chosen so far. */
static bool turns_too_often(const tern_kernel_desc *desc, const tern_device_info *info, const uint32_t *words)
{
    return info->max_loop_turns != 0 && tern_variant_turns(desc, words) >= info->max_loop_turns;
}

/* -------------------------------------------------------------------- tape */

static uint64_t extent(const uint32_t *words, uint32_t first, uint32_t end)
{
    uint64_t product = 1;
    for (uint32_t d = first; d < end; d++) product *= words[d];
    return product;
}

static bool is_elementwise(const tern_tape *tape)
{
    return tape->outer_count == 0 && tape->phase_count == 1 && tape->chunk_rows == 0 &&
           tern_render_tape_arrays(tape) == 0;
}

static bool has_column_rows(const tern_tape *tape)
{
    return tape->chunk_rows != 0 && (tape->phase_count > 1 || tern_render_tape_arrays(tape) > 0);
}

/* Loads whose inner neighbours are far apart but whose outer neighbours touch: a thread per row then reads in step. */
static bool rows_are_neighbours(const tern_tape *tape)
{
    uint32_t touching = 0, others = 0;
    if (tape->outer_count == 0 || tape->dim_count == tape->outer_count) return false;
    for (uint32_t i = 0; i < tape->insn_count; i++) {
        const tern_tape_insn *insn = &tape->insn[i];
        if (insn->op != TERN_TAPE_LOAD || !insn->body) continue;
        const tern_tape_access *access = &tape->access[insn->access];
        tern_tape_stride inner = access->stride[tape->dim_count - 1], outer = access->stride[tape->outer_count - 1];
        if (inner.coef != 0 && (inner.dims != 0 || inner.coef != 1) && outer.coef == 1 && outer.dims == 0)
            touching++;
        else if (inner.coef != 0)
            others++;
    }
    return touching > others;
}

static bool bodies_are_empty(const tern_tape *tape)
{
    for (uint32_t i = 0; i < tape->insn_count; i++)
        if (tape->insn[i].body) return false;
    return true;
}

/* CPU-like devices: a thread takes a long span, or a row, alone. With one lane it walks the row in blocks of as many
 * elements as vectors are wide; with more, a sub-group's rows go in step (measured on lavapipe: 2 to 4 times faster
 * than a group per row, whose barriers cost more than its neighbouring loads save). */
static void choose_alone(tern_variant *v, const tern_device_info *info, const tern_tape *tape)
{
    v->row_per_thread = true;
    if (tern_has_one_lane(info)) {
        v->group[0] = 1;
        v->thread_n = is_elementwise(tape) ? 1024 : 16;
    } else if (is_elementwise(tape)) {
        v->thread_n = 16;
    } else {
        v->group[0] = tern_group_limit(info, tern_power_of_two_below(info->subgroup_max));
    }
}

static void choose_tape(tern_kernel_desc *desc, const tern_device_info *info, const uint32_t *words)
{
    const tern_tape *tape = &desc->tape;
    tern_variant *v = &desc->variant;
    bool spans = is_elementwise(tape), chunks = tape->chunk_rows != 0, both = has_column_rows(tape);
    bool neighbours = rows_are_neighbours(tape) && !chunks;
    v->group[0] = tern_group_limit(info, tern_has_register_tiles(info) ? 64 : 256);
    v->thread_n = 1;
    if (tern_has_register_tiles(info) && !neighbours && (!chunks || both)) {
        const tern_variant group = *v;
        choose_alone(v, info, tape);
        if (turns_too_often(desc, info, words)) *v = group;
    } else if (spans) {
        v->thread_n = 4;
    } else if (!chunks) {
        v->row_per_thread =
            bodies_are_empty(tape) || neighbours || extent(words, tape->outer_count, tape->dim_count) < SHORT_ROW;
    }
    if (!v->row_per_thread && !spans) v->shared_bytes = 4 * v->group[0] * tern_render_tape_arrays(tape);
    snprintf(v->name, sizeof v->name, "tape_%s%s_%ux%u",
             spans    ? "elementwise"
             : both   ? "column_row"
             : chunks ? "column"
                      : "row",
             v->row_per_thread ? "_alone" : "", v->group[0], v->thread_n);
}

static uint64_t tape_groups(const tern_kernel_desc *desc, const uint32_t *words)
{
    const tern_tape *tape = &desc->tape;
    const tern_variant *v = &desc->variant;
    uint64_t size = v->group[0], rows = extent(words, 0, tape->outer_count),
             length = extent(words, tape->outer_count, tape->dim_count);
    if (tape->chunk_rows != 0) {
        uint64_t chunks = (rows + tape->chunk_rows - 1) / tape->chunk_rows;
        if (has_column_rows(tape)) return v->row_per_thread ? (chunks + size - 1) / size : chunks;
        return chunks * ((length + size - 1) / size);
    }
    if (is_elementwise(tape)) return (length + size * v->thread_n - 1) / (size * v->thread_n);
    return v->row_per_thread ? (rows + size - 1) / size : rows;
}

/* --------------------------------------------------------------- attention */

static uint64_t attention_groups(const tern_kernel_desc *desc, const uint32_t *words)
{
    uint32_t rows = words[desc->kind == TERN_KERNEL_ATTENTION_DKV ? TERN_WORD_TK : TERN_WORD_TQ];
    return (uint64_t)words[TERN_WORD_B] * words[TERN_WORD_H] * tern_tiles(rows, desc->variant.tile_m);
}

static void choose_scatter(tern_kernel_desc *desc, const tern_device_info *info)
{
    desc->variant.group[0] = tern_group_limit(info, tern_has_register_tiles(info) ? 64 : 256);
    snprintf(desc->variant.name, sizeof desc->variant.name, "scatter_add_%s_%u", desc->sorted ? "sorted" : "unsorted",
             desc->variant.group[0]);
}

/* ------------------------------------------------------------------ choice */

static tern_status check_variant(const tern_kernel_desc *desc, const tern_device_info *info, const uint32_t *words)
{
    const tern_variant *v = &desc->variant;
    if (turns_too_often(desc, info, words))
        return tern_error(
            TERN_ERROR_UNSUPPORTED,
            "kernel \"%s\" loops about %llu times in one thread; device \"%s\" stops loops after %u without an "
            "error; use smaller sizes or another device",
            desc->label, (unsigned long long)tern_variant_turns(desc, words), info->name, info->max_loop_turns);
    if (v->group[0] * v->group[1] * v->group[2] > info->max_group_size)
        return tern_error(TERN_ERROR_UNSUPPORTED, "variant %s needs %u threads in a group; device \"%s\" allows %u",
                          v->name, v->group[0] * v->group[1] * v->group[2], info->name, info->max_group_size);
    if (v->shared_bytes > info->shared_bytes)
        return tern_error(TERN_ERROR_UNSUPPORTED, "variant %s needs %u bytes of shared memory; device \"%s\" has %u",
                          v->name, v->shared_bytes, info->name, info->shared_bytes);
    return TERN_OK;
}

tern_status tern_variant_choose(tern_kernel_desc *desc, const tern_device_info *info, const uint32_t *words)
{
    desc->variant = (tern_variant){.group = {1, 1, 1}};
    desc->render = tern_render;
    tern_status status = tern_storage_check(desc, info);
    if (status < 0) return status;
    switch (desc->kind) {
    case TERN_KERNEL_TAPE: choose_tape(desc, info, words); break;
    case TERN_KERNEL_MATMUL: tern_variant_matmul(desc, info, words); break;
    case TERN_KERNEL_ATTENTION:
    case TERN_KERNEL_ATTENTION_DQ:
    case TERN_KERNEL_ATTENTION_DKV: tern_variant_attention(desc, info, words); break;
    case TERN_KERNEL_SCATTER_ADD: choose_scatter(desc, info); break;
    default:
        return tern_error(TERN_ERROR_INTERNAL, "kernel \"%s\" has kind %d, which is none", desc->label,
                          (int)desc->kind);
    }
    return check_variant(desc, info, words);
}

tern_status tern_variant_groups(const tern_kernel_desc *desc, const tern_device_info *info, const uint32_t *words,
                                uint32_t out_groups[3])
{
    uint64_t count = 0;
    switch (desc->kind) {
    case TERN_KERNEL_TAPE: count = tape_groups(desc, words); break;
    case TERN_KERNEL_MATMUL:
        count = words[TERN_WORD_BATCH] * tern_tiles(words[TERN_WORD_M], desc->variant.tile_m) *
                tern_tiles(words[TERN_WORD_N], desc->variant.tile_n);
        break;
    case TERN_KERNEL_ATTENTION:
    case TERN_KERNEL_ATTENTION_DQ:
    case TERN_KERNEL_ATTENTION_DKV: count = attention_groups(desc, words); break;
    case TERN_KERNEL_SCATTER_ADD: count = tern_tiles(words[1] * words[2], desc->variant.group[0]); break;
    default: break;
    }
    uint64_t x = info->max_groups[0] == 0 ? count : info->max_groups[0];
    uint64_t y = (count + x - 1) / x;
    if (count == 0 || y > (info->max_groups[1] == 0 ? 1 : info->max_groups[1]) || count > UINT32_MAX)
        return tern_error(TERN_ERROR_UNSUPPORTED, "kernel \"%s\" needs %llu groups; device \"%s\" takes 1 to %u x %u",
                          desc->label, (unsigned long long)count, info->name, info->max_groups[0], info->max_groups[1]);
    out_groups[0] = (uint32_t)((count + y - 1) / y); /* x * y >= count; kernels drop the groups beyond it */
    out_groups[1] = (uint32_t)y;
    out_groups[2] = 1;
    return TERN_OK;
}
