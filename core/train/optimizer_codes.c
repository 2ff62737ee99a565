/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer_codes.c - moments in one byte each, with one f32 scale for a block of 256 elements.
 *
 *     m   sign | 4 exponent bits | 3 fraction bits           of m / scale
 *     v          4 exponent bits | 4 fraction bits           of sqrt(v) / scale: the root has half as many decades
 *
 *     magnitude of code e, f   e = 0: f 2^-14 / F      e > 0: (1 + f / F) 2^(e - 15)      F = 8 or 16
 *     scale                    block's largest / largest magnitude (1.875 or 1.9375): the largest is kept
 *
 * The smallest magnitude is 2^-18 (m) and 2^-19 (v's root) of the block's largest; above 2^-15 of it codes are at most
 * 1/8 and 1/16 of a value apart (measured: 3.2 % and 1.5 % of the norm). 0 is code 0, exactly, so a coordinate that
 * never had a gradient does not move; a positive v never becomes 0, since m / (sqrt(0) + eps) would be a leap.
 *
 * Codes are rounded stochastically, unbiased, by 16 bits of Philox for each. Rounded to nearest, an average that moves
 * by less than half a spacing stands still: v at b2 = 0.99 stopped at 0.021 on its way from 0.01 to 0.137. The step
 * itself uses the moments before they are rounded. All of it is the kernel that computes the step: a row is a block,
 * and its first phase finds the maxima.
 *
 * What it is not: no table of values, which a kernel would have to look codes up in; the map is arithmetic on bits.
 * Source of the idea: Dettmers, Lewis, Shleifer, Zettlemoyer, "8-bit optimizers via block-wise quantization", 2022;
 * the map is a small float instead of their dynamic tree, and rounding is stochastic. */
#include "core/train/optimizer_build.h"

#include <float.h>
#include <stdio.h>

#define FIRST_EXPONENT 112u /* of the f32 that code 0 of exponent 0 would be: 2^-15 */

typedef struct code_map {
    bool is_signed, rooted;
    uint32_t fraction; /* bits */
    double largest;
    uint32_t random_shift; /* which half of the random word */
} code_map;

static const code_map m_map = {true, false, 3, 1.875, 0}, v_map = {false, true, 4, 1.9375, 16};

static const code_map *map_of(tern_store_slab slab) { return slab == TERN_SLAB_M ? &m_map : &v_map; }

static tern_store_slab scale_of(tern_store_slab slab)
{
    return slab == TERN_SLAB_M ? TERN_SLAB_M_SCALE : TERN_SLAB_V_SCALE;
}

static tern_tensor *word(const tern_segment_build *b, uint32_t bits) { return tern_constant_u32(b->graph, bits); }
static tern_tensor *number(const tern_segment_build *b, double value) { return tern_segment_number(b, value); }

static tern_tensor *blocks(tern_tensor *x) { return tern_reshape(x, 2, (const int64_t[]){-1, TERN_STORE_BLOCK}); }
static tern_tensor *column(tern_tensor *x) { return tern_reshape(x, 2, (const int64_t[]){-1, 1}); }

/* Spacing of the codes below 2^-14. */
static double finest(const code_map *map) { return 0x1p-14 / (double)(1u << map->fraction); }

/* u32 codes as f32 in units of the scale; the sign left out. */
static tern_tensor *magnitude(const tern_segment_build *b, const code_map *map, tern_tensor *code)
{
    tern_tensor *bits = map->is_signed ? tern_and(code, word(b, 127)) : code;
    tern_tensor *normal = tern_bitcast(
        tern_add(tern_shift_left(bits, word(b, 23 - map->fraction)), word(b, FIRST_EXPONENT << 23)), TERN_F32);
    tern_tensor *low = tern_mul(tern_cast(bits, TERN_F32), number(b, finest(map)));
    return tern_where(tern_less(bits, word(b, 1u << map->fraction)), low, normal);
}

tern_tensor *tern_segment_decode(const tern_segment_build *b, tern_store_slab slab)
{
    const code_map *map = map_of(slab);
    tern_tensor *codes = tern_segment_slab(b, slab), *code = blocks(tern_cast(codes, TERN_U32));
    tern_tensor *x = tern_mul(magnitude(b, map, code), column(tern_segment_slab(b, scale_of(slab))));
    if (map->is_signed) x = tern_where(tern_and(code, word(b, 128)), tern_neg(x), x);
    if (map->rooted) x = tern_mul(x, x);
    return tern_reshape(x, 1, codes->shape);
}

/* 16 random bits for each element, as the upper bits of a fraction of `bits` bits. */
static tern_tensor *random_bits(const tern_segment_build *b, const code_map *map, const tern_tensor *like)
{
    char label[32];
    snprintf(label, sizeof label, "codes.%u", b->segment);
    tern_tensor *random = tern_graph_find(b->graph, TERN_OP_RANDOM, label);
    if (!random) random = tern_random(b->graph, label, like->rank, like->shape);
    return tern_and(tern_shift_right(random, word(b, map->random_shift)), word(b, 0xffffu));
}

/* y in [0, largest] to codes without sign. */
static tern_tensor *round_to_code(const tern_segment_build *b, const code_map *map, tern_tensor *y)
{
    const uint32_t dropped = 23 - map->fraction;
    tern_tensor *random = random_bits(b, map, y);
    tern_tensor *bits = tern_sub(tern_bitcast(y, TERN_U32), word(b, FIRST_EXPONENT << 23));
    tern_tensor *normal =
        tern_shift_right(tern_add(bits, tern_shift_left(random, word(b, dropped - 16))), word(b, dropped));
    tern_tensor *low =
        tern_add(tern_mul(y, number(b, 1 / finest(map))), tern_mul(tern_cast(random, TERN_F32), number(b, 0x1p-16)));
    tern_tensor *code = tern_where(tern_less(y, number(b, 0x1p-14)), tern_cast(low, TERN_U32), normal);
    return tern_min(code, word(b, (16u << map->fraction) - 1));
}

void tern_segment_encode(const tern_segment_build *b, tern_store_slab slab, tern_tensor *value)
{
    const code_map *map = map_of(slab);
    tern_tensor *x = blocks(value), *size = map->rooted ? tern_sqrt(x) : tern_abs(x);
    tern_tensor *scale = tern_mul(tern_maximum(size, 1), number(b, 1 / map->largest));
    tern_tensor *normal = tern_less(number(b, FLT_MIN), scale); /* else the block counts as zeros */
    tern_tensor *code = round_to_code(b, map, tern_div(size, tern_where(normal, scale, number(b, 1))));
    if (map->is_signed)
        code = tern_or(code, tern_shift_left(tern_shift_right(tern_bitcast(x, TERN_U32), word(b, 31)), word(b, 7)));
    else
        code = tern_max(code, tern_less(number(b, 0), size));

    tern_tensor *codes = tern_segment_slab(b, slab), *scales = tern_segment_slab(b, scale_of(slab));
    code = tern_where(b->ok, tern_reshape(code, 1, codes->shape), tern_cast(codes, TERN_U32));
    scale = tern_reshape(tern_where(normal, scale, number(b, 0)), 1, scales->shape);
    tern_assign(codes, tern_cast(code, TERN_U8));
    tern_assign(scales, tern_where(b->ok, scale, scales));
}
