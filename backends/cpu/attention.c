/* SPDX-License-Identifier: Apache-2.0 */
/* attention.c - the three attention kernels as jobs: one tile is one (b, h) and 64 queries (forward, dq) or 64 keys
 * (dkv).
 *
 * The tiles themselves are attention_tiles.h. Late tiles of a causal forward see more keys than early ones and so cost
 * more; they are numbered first to last within (b, h), and threads that finish early take over from the others. */
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/cpu.h"
#include "core/base/dtype.h"

struct tern_cpu_attend {
    tern_cpu_attention at;
    uint32_t tiles;
    void (*tile)(const tern_cpu_attention *at, uint32_t b, uint32_t h, uint32_t tile, float *scratch);
};

static void *data(const tern_cpu_step *step, uint32_t i) { return step->range[i].data; }

static tern_status check_shape(const tern_kernel_desc *desc, const uint32_t *words)
{
    if (desc->head_dim == 0 || desc->head_dim > 256)
        return tern_error(TERN_ERROR_UNSUPPORTED, "attention \"%s\" has a head dimension of %u; 1 to 256 are supported",
                          desc->label, desc->head_dim);
    if (desc->causal && words[TERN_WORD_TQ] != words[TERN_WORD_TK])
        return tern_error(TERN_ERROR_INVALID, "causal attention \"%s\" needs as many queries as keys, not %u and %u",
                          desc->label, words[TERN_WORD_TQ], words[TERN_WORD_TK]);
    for (uint32_t w = TERN_WORD_B; w <= TERN_WORD_TK; w++)
        if (words[w] == 0) return tern_error(TERN_ERROR_INVALID, "attention \"%s\" has an extent of 0", desc->label);
    return TERN_OK;
}

tern_status tern_cpu_attend_create(const tern_cpu_isa *isa, const tern_kernel_desc *desc, const uint32_t *words,
                                   tern_cpu_step *step)
{
    tern_status status = TERN_OK;
    TERN_TRY(tern_cpu_dtypes_check(desc));
    TERN_TRY(check_shape(desc, words));
    tern_cpu_attend *attend = calloc(1, sizeof *attend);
    step->attend = attend;
    if (!attend) return tern_error_memory("attention", sizeof *attend);
    tern_cpu_attention *at = &attend->at;
    at->B = words[TERN_WORD_B], at->H = words[TERN_WORD_H], at->Tq = words[TERN_WORD_TQ], at->Tk = words[TERN_WORD_TK];
    at->q_b = words[TERN_WORD_Q_B], at->q_t = words[TERN_WORD_Q_T], at->q_h = words[TERN_WORD_Q_H];
    at->k_b = words[TERN_WORD_K_B], at->k_t = words[TERN_WORD_K_T], at->k_h = words[TERN_WORD_K_H];
    at->v_b = words[TERN_WORD_V_B], at->v_t = words[TERN_WORD_V_T], at->v_h = words[TERN_WORD_V_H];
    memcpy(&at->scale, &words[TERN_WORD_SCALE], sizeof at->scale);
    at->D = desc->head_dim, at->causal = desc->causal;
    at->dtype = desc->tensors[0].dtype, at->bytes = (uint32_t)tern_dtype_bytes((int32_t)at->dtype, 1);
    at->q = data(step, 0), at->k = data(step, 1), at->v = data(step, 2);
    uint32_t length = at->Tq;
    if (desc->kind == TERN_KERNEL_ATTENTION) {
        at->o = data(step, 3), at->lse = data(step, 4);
        attend->tile = isa->attention;
    } else {
        at->dout = data(step, 3), at->lse_in = data(step, 4), at->delta = data(step, 5);
        if (desc->kind == TERN_KERNEL_ATTENTION_DQ) {
            at->dq = data(step, 6);
            attend->tile = isa->attention_dq;
        } else {
            at->dk = data(step, 6), at->dv = data(step, 7);
            attend->tile = isa->attention_dkv;
            length = at->Tk;
        }
    }
    attend->tiles = (length + TERN_ATTENTION_ROWS - 1) / TERN_ATTENTION_ROWS;
    step->scratch_bytes = tern_cpu_attention_floats(at->D) * sizeof(float);
fail:
    return status;
}

static void run_tile(void *context, uint32_t tile, void *scratch)
{
    const tern_cpu_attend *attend = context;
    const uint32_t t = tile % attend->tiles, bh = tile / attend->tiles;
    attend->tile(&attend->at, bh / attend->at.H, bh % attend->at.H, t, scratch);
}

void tern_cpu_attend_run(const tern_cpu_step *step, tern_cpu_pool *pool)
{
    tern_cpu_attend *attend = step->attend;
    tern_cpu_pool_run(pool, attend->at.B * attend->at.H * attend->tiles, run_tile, attend);
}

void tern_cpu_attend_destroy(tern_cpu_attend *attend) { free(attend); }
