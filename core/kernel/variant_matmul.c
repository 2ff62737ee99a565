/* SPDX-License-Identifier: Apache-2.0 */
/* variant_matmul.c - which form and tiles a matmul takes on a device.
 *
 *     fragment   two operands of one dtype that the device's matrix units multiply (shaders/matmul_fragment.k)
 *     packed     one lane: a CPU whose driver runs a work-item per hardware thread
 *     register   CPU-like with lanes
 *     shared     every other GPU
 *
 * Invariant: tiles divide; the group and shared memory are within the device's limits where any shape is. */
#include <stdio.h>

#include "core/base/dtype.h"
#include "core/kernel/variant.h"

/* Tile shapes, largest first; the first whose group and shared memory fit is taken. */
static const struct matmul_shape {
    uint32_t tile_m, tile_n, tile_k, thread_m, thread_n;
} shared_shapes[] =
    {
        {128, 128, 16, 8, 8},
        {64, 64, 16, 4, 4},
        {32, 32, 16, 4, 4},
        {16, 16, 16, 4, 4},
},
  register_shape = {64, 64, 1, 8, 8}, packed_shape = {64, 64, 64, 4, 64};

static uint32_t matmul_group(const struct matmul_shape *s)
{
    return s->tile_m / s->thread_m * (s->tile_n / s->thread_n);
}

static uint32_t matmul_shared_bytes(const struct matmul_shape *s)
{
    return 4 * s->tile_k * (s->tile_m + 1 + s->tile_n + 1);
}

/* A large tile pays only when there are enough of them to fill the device. */
static bool fills_device(const struct matmul_shape *s, const tern_device_info *info, const uint32_t *words)
{
    const uint64_t groups =
        words[TERN_WORD_BATCH] * tern_tiles(words[TERN_WORD_M], s->tile_m) * tern_tiles(words[TERN_WORD_N], s->tile_n);
    return groups >= 4 * (uint64_t)info->threads;
}

static bool has_16_bit(const tern_kernel_desc *desc)
{
    for (uint32_t i = 0; i < desc->tensor_count; i++)
        if (desc->tensors[i].dtype == TERN_F16 || desc->tensors[i].dtype == TERN_BF16) return true;
    return false;
}

/* 64 sums a thread and the conversions of 16-bit operands are more than few registers hold. */
static bool is_too_large(const struct matmul_shape *s, const tern_kernel_desc *desc, const tern_device_info *info)
{
    return matmul_group(s) > info->max_group_size || matmul_shared_bytes(s) > info->shared_bytes ||
           (s->thread_m * s->thread_n > 16 && tern_has_few_registers(info) && has_16_bit(desc));
}

static const struct matmul_shape *matmul_shape_for(const tern_kernel_desc *desc, const tern_device_info *info,
                                                   const uint32_t *words)
{
    if (tern_has_one_lane(info)) return &packed_shape;
    const bool short_enough = info->max_loop_turns == 0 || words[TERN_WORD_K] + 1024u < info->max_loop_turns;
    if (tern_has_register_tiles(info) && short_enough && matmul_group(&register_shape) <= info->max_group_size)
        return &register_shape;
    const struct matmul_shape *shape = NULL;
    for (size_t i = 0; i < sizeof shared_shapes / sizeof *shared_shapes; i++) {
        const struct matmul_shape *s = &shared_shapes[i];
        if (is_too_large(s, desc, info)) continue;
        shape = s;
        if (s->tile_m <= 64 || fills_device(s, info, words)) break;
    }
    return shape != NULL ? shape : &shared_shapes[sizeof shared_shapes / sizeof *shared_shapes - 1];
}

/* --------------------------------------------------------------- fragments */

/* Tile shapes with fragments, largest first; thread_m and thread_n are a sub-group's. tile_k is for 16-bit elements,
 * half of it is taken for f32: both stages of a tile of 128 then leave room in 48 KiB. */
static const struct matmul_shape fragment_shapes[] = {
    {128, 128, 32, 64, 64}, {64, 64, 32, 32, 32}, {64, 64, 32, 16, 16}, {32, 32, 32, 8, 8}};

static uint32_t fragment_group(const struct matmul_shape *s, const tern_matrix_shape *f)
{
    return matmul_group(s) * f->subgroup;
}

/* As in shaders/matmul_fragment.k: two stages of both operands, rows padded by 16 bytes, and a fragment of sums for
 * each sub-group. */
static uint32_t fragment_shared_bytes(const tern_kernel_desc *desc, const struct matmul_shape *s, uint32_t tile_k,
                                      const tern_matrix_shape *f)
{
    const uint32_t bytes = tern_dtype(f->dtype)->bytes;
    const uint32_t a = desc->a_transposed ? tile_k * (s->tile_m * bytes + 16) : s->tile_m * (tile_k * bytes + 16);
    const uint32_t b = desc->b_transposed ? s->tile_n * (tile_k * bytes + 16) : tile_k * (s->tile_n * bytes + 16);
    return 2 * (a + b) + matmul_group(s) * f->m * (f->n + 4) * 4;
}

static uint32_t fragment_depth(const struct matmul_shape *s, const tern_matrix_shape *f, const tern_device_info *info)
{
    return f->dtype == TERN_F32 || tern_has_few_registers(info) ? s->tile_k / 2 : s->tile_k;
}

/* Sums of a lane: half of its registers. */
static bool fragment_fits(const tern_kernel_desc *desc, const struct matmul_shape *s, const tern_matrix_shape *f,
                          const tern_device_info *info)
{
    const uint32_t tile_k = fragment_depth(s, f, info), group = fragment_group(s, f);
    const uint32_t chunk = 16 / tern_dtype(f->dtype)->bytes, sums = tern_has_few_registers(info) ? 32 : 128;
    return s->thread_m % f->m == 0 && s->thread_n % f->n == 0 && tile_k % f->k == 0 &&
           s->thread_m * s->thread_n <= sums * f->subgroup && group <= info->max_group_size &&
           s->tile_m * tile_k % (chunk * group) == 0 && s->tile_n * tile_k % (chunk * group) == 0 &&
           fragment_shared_bytes(desc, s, tile_k, f) <= info->shared_bytes;
}

const tern_matrix_shape *tern_variant_matrix(const tern_device_info *info, int32_t dtype)
{
    for (uint32_t i = 0; i < info->matrix_count; i++)
        if (info->matrix[i].dtype == dtype && (info->matrix[i].subgroup == 1 || !tern_has_register_tiles(info)))
            return &info->matrix[i];
    return NULL;
}

static bool choose_fragments(tern_kernel_desc *desc, const tern_device_info *info, const uint32_t *words)
{
    const tern_matrix_shape *f = tern_variant_matrix(info, desc->tensors[0].dtype);
    const struct matmul_shape *shape = NULL;
    if (f == NULL || desc->tensor_count < 2 || desc->tensors[1].dtype != f->dtype) return false;
    for (size_t i = 0; i < sizeof fragment_shapes / sizeof *fragment_shapes; i++) {
        const struct matmul_shape *s = &fragment_shapes[i];
        if (!fragment_fits(desc, s, f, info)) continue;
        shape = s;
        if (s->tile_m <= 64 || fills_device(s, info, words)) break;
    }
    if (shape == NULL) return false;
    tern_variant *v = &desc->variant;
    v->fragment = *f;
    v->group[0] = fragment_group(shape, f);
    v->tile_m = shape->tile_m;
    v->tile_n = shape->tile_n;
    v->tile_k = fragment_depth(shape, f, info);
    v->thread_m = shape->thread_m;
    v->thread_n = shape->thread_n;
    v->shared_form = true;
    v->shared_bytes = fragment_shared_bytes(desc, shape, v->tile_k, f);
    snprintf(v->name, sizeof v->name, "matmul_%ux%ux%u_%ux%u_%s_%s", v->tile_m, v->tile_n, v->tile_k, v->thread_m,
             v->thread_n, f->subgroup == 1 ? "fragment" : "matrix",
             f->dtype == TERN_F32 && f->subgroup > 1 ? "tf32" : tern_dtype(f->dtype)->name);
    return true;
}

/* ------------------------------------------------------------------ choice */

static void choose_plain(tern_kernel_desc *desc, const tern_device_info *info, const uint32_t *words)
{
    const struct matmul_shape *s = matmul_shape_for(desc, info, words);
    tern_variant *v = &desc->variant;
    v->group[0] = matmul_group(s);
    v->tile_m = s->tile_m;
    v->tile_n = s->tile_n;
    v->tile_k = s->tile_k;
    v->thread_m = s->thread_m;
    v->thread_n = s->thread_n;
    v->shared_form = s != &register_shape && s != &packed_shape;
    if (s == &packed_shape) v->group[0] = 1;
    if (v->shared_form) v->shared_bytes = matmul_shared_bytes(s);
    snprintf(v->name, sizeof v->name, "matmul_%ux%ux%u_%ux%u_%s", s->tile_m, s->tile_n, s->tile_k, s->thread_m,
             s->thread_n,
             v->shared_form       ? "shared"
             : s == &packed_shape ? "packed"
                                  : "register");
}

void tern_variant_matmul(tern_kernel_desc *desc, const tern_device_info *info, const uint32_t *words)
{
    if (!choose_fragments(desc, info, words)) choose_plain(desc, info, words);
}
