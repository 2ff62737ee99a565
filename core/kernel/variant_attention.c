/* SPDX-License-Identifier: Apache-2.0 */
/* variant_attention.c - which form and tiles the attention kernels take on a device.
 *
 *     fragment   the device's matrix units multiply the operands' dtype (shaders/attention*_fragment.k)
 *     packed     one lane
 *     shared     every other device
 *
 * Invariant: tiles divide; the group and shared memory are within the device's limits where any shape is. */
#include <stdio.h>

#include "core/base/dtype.h"
#include "core/kernel/variant.h"

#define ATTENTION_LANES 8u /* threads across a key tile */

static uint32_t plain_shared_bytes(const tern_variant *v)
{
    return 4 * (v->tile_k * (v->tile_m + 1 + v->tile_n + 1) + v->tile_n * (v->tile_m + 1));
}

static uint32_t staged_dims(uint32_t head_dim)
{
    uint32_t whole = (head_dim + ATTENTION_LANES - 1) / ATTENTION_LANES * ATTENTION_LANES;
    return whole < 32 ? whole : 32;
}

/* The largest group whose tiles fit shared memory; long heads take fewer rows per thread, for the registers, and so do
 * devices that have few. */
static void choose_plain(tern_kernel_desc *desc, const tern_device_info *info)
{
    tern_variant *v = &desc->variant;
    if (tern_has_one_lane(info)) {
        v->tile_m = v->tile_n = v->thread_n = 32;
        v->thread_m = 8;
        snprintf(v->name, sizeof v->name, "attention_32x32_8x32_packed");
        return;
    }
    v->shared_form = true;
    v->thread_m = desc->head_dim <= 128 && !tern_has_few_registers(info) ? 4 : 2;
    v->thread_n = 4;
    v->tile_n = ATTENTION_LANES * v->thread_n;
    v->tile_k = staged_dims(desc->head_dim);
    for (uint32_t size = tern_group_limit(info, 128);; size /= 2) {
        v->group[0] = size;
        v->tile_m = size / ATTENTION_LANES * v->thread_m;
        v->shared_bytes = plain_shared_bytes(v);
        if (v->shared_bytes <= info->shared_bytes || size <= ATTENTION_LANES) break;
    }
    snprintf(v->name, sizeof v->name, "attention_%ux%ux%u_%ux%u_shared", v->tile_m, v->tile_n, v->tile_k, v->thread_m,
             v->thread_n);
}

/* --------------------------------------------------------------- fragments */

/* Rows of a group, of the other operand per step, and of a sub-group; largest first. A row is one lane's between the
 * products, so as many rows as lanes keep all of them busy. */
static const struct fragment_shape {
    uint32_t tile_m, tile_n, thread_m;
} fragment_shapes[] = {{128, 32, 32}, {64, 32, 32}, {64, 32, 16}, {32, 32, 16},
                       {64, 16, 8},   {32, 16, 8},  {16, 16, 8},  {8, 8, 4}};

static uint32_t fragment_group(const struct fragment_shape *s, const tern_matrix_shape *f)
{
    return s->tile_m / s->thread_m * f->subgroup;
}

/* As in the templates. */
static uint32_t fragment_shared_bytes(tern_kernel_kind kind, const struct fragment_shape *s, uint32_t head,
                                      const tern_matrix_shape *f)
{
    const uint32_t packed = 4 / tern_dtype(f->dtype)->bytes, weights = s->tile_n / packed;
    const uint32_t rest = s->tile_n - weights > f->n ? s->tile_n - weights : f->n;
    const uint32_t line = head / packed + 4, scores = s->tile_m * (weights + rest + 4);
    if (kind == TERN_KERNEL_ATTENTION) return 4 * ((s->tile_m + 2 * s->tile_n) * line + scores + 2 * s->tile_m);
    return 4 *
           (2 * (s->tile_m + s->tile_n) * line + 2 * scores + (kind == TERN_KERNEL_ATTENTION_DKV ? 2 * s->tile_n : 0));
}

/* Sums of a lane: the outputs' and one tile of scores. */
static bool fragment_fits(const tern_kernel_desc *desc, const struct fragment_shape *s, uint32_t head,
                          const tern_matrix_shape *f, const tern_device_info *info)
{
    const uint32_t outputs = desc->kind == TERN_KERNEL_ATTENTION_DKV ? 2 : 1;
    const uint32_t sums = f->subgroup == 1 ? 600 : 160 * f->subgroup;
    return s->thread_m % f->m == 0 && s->tile_n % f->n == 0 && s->tile_n % f->k == 0 &&
           s->thread_m * (outputs * head + s->tile_n) <= sums && fragment_group(s, f) <= info->max_group_size &&
           fragment_shared_bytes(desc->kind, s, head, f) <= info->shared_bytes;
}

static bool fills_device(const tern_kernel_desc *desc, const struct fragment_shape *s, const tern_device_info *info,
                         const uint32_t *words)
{
    const uint32_t rows = words[desc->kind == TERN_KERNEL_ATTENTION_DKV ? TERN_WORD_TK : TERN_WORD_TQ];
    return words[TERN_WORD_B] * words[TERN_WORD_H] * tern_tiles(rows, s->tile_m) >= 2 * (uint64_t)info->threads;
}

static bool choose_fragments(tern_kernel_desc *desc, const tern_device_info *info, const uint32_t *words)
{
    const tern_matrix_shape *f = tern_variant_matrix(info, desc->tensors[0].dtype);
    const uint32_t head = (desc->head_dim + 15) / 16 * 16; /* whole fragments and 16-byte copies */
    const struct fragment_shape *shape = NULL;
    /* Few registers: Intel's compiler does not unroll these loops there and leaves the sums in memory (bench/static).
     */
    if (f == NULL || tern_has_few_registers(info) || head % f->k != 0 || head % f->n != 0) return false;
    for (size_t i = 0; i < sizeof fragment_shapes / sizeof *fragment_shapes; i++) {
        const struct fragment_shape *s = &fragment_shapes[i];
        if (!fragment_fits(desc, s, head, f, info)) continue;
        shape = s;
        if (s->tile_m <= 64 || fills_device(desc, s, info, words)) break;
    }
    if (shape == NULL) return false;
    tern_variant *v = &desc->variant;
    v->fragment = *f;
    v->group[0] = fragment_group(shape, f);
    v->tile_m = shape->tile_m;
    v->tile_n = v->thread_n = shape->tile_n;
    v->tile_k = head;
    v->thread_m = shape->thread_m;
    v->shared_form = true;
    v->shared_bytes = fragment_shared_bytes(desc->kind, shape, head, f);
    snprintf(v->name, sizeof v->name, "attention_%ux%ux%u_%u_%s_%s", v->tile_m, v->tile_n, v->tile_k, v->thread_m,
             f->subgroup == 1 ? "fragment" : "matrix",
             f->dtype == TERN_F32 && f->subgroup > 1 ? "tf32" : tern_dtype(f->dtype)->name);
    return true;
}

void tern_variant_attention(tern_kernel_desc *desc, const tern_device_info *info, const uint32_t *words)
{
    if (!choose_fragments(desc, info, words)) choose_plain(desc, info);
}
