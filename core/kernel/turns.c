/* SPDX-License-Identifier: Apache-2.0 */
/* turns.c - see turns.h; one formula per kernel kind, following the loops of render_tape.c and shaders/. */
#include "core/kernel/turns.h"

#include "core/kernel/render_text.h"

#define FIXED 64u /* trees, starts and tails of a phase */

static uint64_t extent(const uint32_t *words, uint32_t first, uint32_t end)
{
    uint64_t product = 1;
    for (uint32_t d = first; d < end; d++) product *= words[d];
    return product;
}

/* Phases that loop over the inner range. */
static uint32_t bodies(const tern_tape *tape)
{
    uint32_t phases = 0;
    for (uint32_t i = 0; i < tape->insn_count; i++)
        if (tape->insn[i].body) phases |= 1u << tape->insn[i].phase;
    uint32_t count = 0;
    for (; phases; phases &= phases - 1) count++;
    return count;
}

static uint64_t tape_turns(const tern_kernel_desc *desc, const uint32_t *words)
{
    const tern_tape *tape = &desc->tape;
    const tern_variant *v = &desc->variant;
    const uint64_t length = extent(words, tape->outer_count, tape->dim_count);
    const bool reduces = tern_render_tape_arrays(tape) > 0 || tape->phase_count > 1;
    if (tape->outer_count == 0 && tape->chunk_rows == 0 && !reduces) return v->thread_n + FIXED;
    const uint64_t along = v->row_per_thread ? length : (length + v->group[0] - 1) / v->group[0];
    const uint64_t row = bodies(tape) * along + tape->phase_count * FIXED;
    if (tape->chunk_rows == 0) return row;
    return reduces ? tape->chunk_rows * row : tape->chunk_rows + FIXED;
}

/* Per tile of keys (dkv: of queries): staging and products over the head's chunks, and a few passes over the tile. */
static uint64_t attention_turns(const tern_kernel_desc *desc, const uint32_t *words)
{
    const tern_variant *v = &desc->variant;
    const uint32_t length = words[desc->kind == TERN_KERNEL_ATTENTION_DKV ? TERN_WORD_TQ : TERN_WORD_TK];
    const uint32_t tile_k = v->tile_k ? v->tile_k : 1;
    const uint64_t tiles = ((uint64_t)length + v->tile_n - 1) / v->tile_n,
                   chunks = (desc->head_dim + tile_k - 1) / tile_k;
    const uint64_t stage_m = (uint64_t)v->tile_m * tile_k / v->group[0],
                   stage_n = (uint64_t)v->tile_n * tile_k / v->group[0];
    const uint64_t products = desc->kind == TERN_KERNEL_ATTENTION ? 1 : 2; /* of the kind row times row */
    return tiles * (products * chunks * (stage_m + stage_n + tile_k) + products * chunks * (stage_n + v->tile_n) +
                    v->thread_m * v->tile_n);
}

uint64_t tern_variant_turns(const tern_kernel_desc *desc, const uint32_t *words)
{
    switch (desc->kind) {
    case TERN_KERNEL_TAPE: return tape_turns(desc, words);
    case TERN_KERNEL_MATMUL: return words[TERN_WORD_K] / desc->variant.tile_k + FIXED;
    case TERN_KERNEL_SCATTER_ADD: return words[3] + FIXED; /* all ids may be the same */
    default: return attention_turns(desc, words);
    }
}
