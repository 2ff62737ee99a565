/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer_weights.c - where new weights go: masters, their 16-bit copy, or only that.
 *
 *     masters        weight := ok ? w : weight           low := rounded weight, in the same kernel
 *     no masters     low := ok ? rounded w : low
 *
 * Without masters a step smaller than half a unit in the last place (2^-9 of a bf16 weight) would be lost for good when
 * rounded to nearest. Stochastic rounding keeps it on average: to the 32 bits of w a uniform number below 2^16 is
 * added, then the lower 16 are cut off, so that w goes up with probability (lower bits) / 2^16 and E[rounded w] = w.
 * Integer arithmetic on Philox words keyed by (seed, attempt, "round.<segment>", element): the same bits on every
 * backend. Infinity and NaN are cut off without addition. bf16 only, whose bits are f32's upper half; f16 rounds to
 * nearest. Source: Gupta et al., "Deep learning with limited numerical precision", 2015; Zamirai et al., "Revisiting
 * bfloat16 training", 2020. */
#include "core/train/optimizer_build.h"

#include <stdio.h>

#define EXPONENT 0x7f800000u

static tern_tensor *word(const tern_segment_build *b, uint32_t bits) { return tern_constant_u32(b->graph, bits); }

tern_tensor *tern_segment_weight(const tern_segment_build *b)
{
    const bool masters = tern_store_layout_has(b->layout, b->segment, TERN_SLAB_WEIGHT);
    tern_tensor *kept = tern_segment_slab(b, masters ? TERN_SLAB_WEIGHT : TERN_SLAB_LOW);
    return tern_cast(kept, TERN_F32);
}

/* f32 to the f32 whose lower half is 0, up or down at random. */
static tern_tensor *round_stochastically(const tern_segment_build *b, tern_tensor *w)
{
    char label[32];
    snprintf(label, sizeof label, "round.%u", b->segment);
    tern_tensor *bits = tern_bitcast(w, TERN_U32), *random = tern_random(b->graph, label, w->rank, w->shape);
    tern_tensor *finite = tern_less(tern_and(bits, word(b, EXPONENT)), word(b, EXPONENT));
    tern_tensor *added = tern_add(bits, tern_and(random, word(b, 0xffffu)));
    return tern_bitcast(tern_and(tern_where(finite, added, bits), word(b, 0xffff0000u)), TERN_F32);
}

void tern_segment_store_weight(const tern_segment_build *b, tern_tensor *value)
{
    const tern_store_options *o = &b->layout->options;
    if (o->no_masters && o->low == TERN_BF16 && !b->optimizer->round_nearest) value = round_stochastically(b, value);
    value = tern_where(b->ok, value, b->w);
    if (!o->no_masters) tern_assign(tern_segment_slab(b, TERN_SLAB_WEIGHT), value);
    if (o->low) tern_assign(tern_segment_slab(b, TERN_SLAB_LOW), tern_cast(value, o->low));
}
