/* SPDX-License-Identifier: Apache-2.0 */
/* variant.h - shared by variant.c, variant_matmul.c and variant_attention.c: what a choice asks of a device. Not for
 * other rooms. */
#ifndef TERN_KERNEL_VARIANT_H
#define TERN_KERNEL_VARIANT_H

#include "core/backend.h"

static inline bool tern_has_register_tiles(const tern_device_info *info)
{
    return (info->features & TERN_FEATURE_REGISTER_TILES) != 0;
}

/* One lane: the device runs a work-item per hardware thread, so a work-item must hold the vectors itself. */
static inline bool tern_has_one_lane(const tern_device_info *info)
{
    return tern_has_register_tiles(info) && info->subgroup_max <= 1;
}

/* GPUs whose sub-groups go down to 8 lanes have few registers for each: 128 floats on Intel's Xe-HPG. What does not fit
 * goes to memory there, which costs more than a smaller tile. */
static inline bool tern_has_few_registers(const tern_device_info *info)
{
    return !tern_has_register_tiles(info) && info->subgroup_min > 1 && info->subgroup_min <= 8;
}

static inline uint32_t tern_power_of_two_below(uint32_t value)
{
    uint32_t power = 1;
    while (power <= value / 2) power *= 2;
    return power;
}

static inline uint32_t tern_group_limit(const tern_device_info *info, uint32_t wanted)
{
    const uint32_t limit = info->max_group_size == 0 ? 1 : tern_power_of_two_below(info->max_group_size);
    return wanted < limit ? wanted : limit;
}

static inline uint64_t tern_tiles(uint32_t extent, uint32_t tile) { return ((uint64_t)extent + tile - 1) / tile; }

/* Fills desc->variant of a MATMUL; its tensors, transpositions and tape are set. */
void tern_variant_matmul(tern_kernel_desc *desc, const tern_device_info *info, const uint32_t *words);

/* The same of an ATTENTION, ATTENTION_DQ or ATTENTION_DKV. */
void tern_variant_attention(tern_kernel_desc *desc, const tern_device_info *info, const uint32_t *words);
/* The device's matrix shape for operands of that dtype, or NULL. Where CPU-like devices offer matrices they imitate
 * them. */
const tern_matrix_shape *tern_variant_matrix(const tern_device_info *info, int32_t dtype);

#endif
