/* SPDX-License-Identifier: Apache-2.0 */
/* scatter.c - SCATTER_ADD: row v of the result is the sum of the rows of dy whose id is v, in ascending position.
 *
 *     sorted     the loader's stable counting sort comes as tensors (order, offsets)
 *     unsorted   the same sort is made here first, by one thread: 2 N + V steps against N D additions
 *
 * A tile is a few table rows; each is summed into scratch and given to the epilogue. Sums run in runs of 64 rows, so
 * that a token seen 100,000 times does not lose the small addends. Ids from V on (and negative ones) count as V - 1. */
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/cpu.h"

#define TILE_ROWS 4u
#define RUN       64u

struct tern_cpu_scatter {
    const tern_cpu_isa *isa;
    uint32_t V, D, N;
    bool sorted;
    tern_cpu_nest *nest;
};

typedef struct job {
    const tern_cpu_scatter *scatter;
    const tern_cpu_range *range; /* of the epilogue */
    const float *dy;
    const uint32_t *order, *offsets;
} job;

static size_t round_up(size_t n) { return (n + 15) / 16 * 16; }

static void sum_row(const job *j, uint32_t v, float *total, float *run)
{
    const tern_cpu_scatter *sc = j->scatter;
    const tern_cpu_loop add = sc->isa->loop[TERN_TAPE_ADD][TERN_TYPE_F32][TERN_FORM_VV];
    memset(total, 0, sc->D * sizeof *total);
    for (uint32_t at = j->offsets[v], end = j->offsets[v + 1]; at < end;) {
        const uint32_t stop = end - at < RUN ? end : at + RUN;
        const float *row = j->dy + (size_t)j->order[at++] * sc->D;
        if (at == stop) {
            add(sc->D, total, total, row, NULL, 0);
            continue;
        }
        add(sc->D, run, row, j->dy + (size_t)j->order[at++] * sc->D, NULL, 0);
        while (at < stop) add(sc->D, run, run, j->dy + (size_t)j->order[at++] * sc->D, NULL, 0);
        add(sc->D, total, total, run, NULL, 0);
    }
}

static void scatter_tile(void *context, uint32_t tile, void *scratch)
{
    const job *j = context;
    const tern_cpu_scatter *sc = j->scatter;
    float *total = scratch, *run = total + round_up(sc->D);
    const uint32_t first = tile * TILE_ROWS, end = sc->V - first < TILE_ROWS ? sc->V : first + TILE_ROWS;
    tern_cpu_lanes *s = tern_cpu_nest_begin(sc->nest, j->range, run + round_up(sc->D));
    for (uint32_t v = first; v < end; v++) {
        sum_row(j, v, total, run);
        tern_cpu_nest_epilogue(s, 0, v, 0, sc->D, total);
    }
}

/* Stable: positions of one id stay ascending. shared: order (N), then offsets (V + 2). */
static void sort_ids(const tern_cpu_scatter *sc, const uint32_t *ids, uint32_t *order, uint32_t *offsets)
{
    memset(offsets, 0, ((size_t)sc->V + 2) * sizeof *offsets);
    for (uint32_t n = 0; n < sc->N; n++) offsets[(ids[n] < sc->V ? ids[n] : sc->V - 1) + 2]++;
    for (uint32_t v = 0; v < sc->V; v++) offsets[v + 2] += offsets[v + 1];
    for (uint32_t n = 0; n < sc->N; n++) order[offsets[(ids[n] < sc->V ? ids[n] : sc->V - 1) + 1]++] = n;
}

tern_status tern_cpu_scatter_create(const tern_cpu_isa *isa, const tern_kernel_desc *desc, const uint32_t *words,
                                    tern_cpu_step *step)
{
    tern_status status = TERN_OK;
    const uint32_t fixed = desc->sorted ? 3 : 2;
    TERN_TRY(tern_cpu_need_words(desc, 1));
    for (uint32_t i = 1; i < fixed; i++)
        if (desc->tensors[i].dtype != TERN_U32 && desc->tensors[i].dtype != TERN_I32)
            return tern_error(
                TERN_ERROR_UNSUPPORTED,
                "scatter \"%s\" takes ids as u32 or i32, but its tensor %u has dtype %u; cast them before", desc->label,
                i, desc->tensors[i].dtype);
    if (words[1] == 0 || words[2] == 0 || words[3] == 0)
        return tern_error(TERN_ERROR_INVALID, "scatter \"%s\" of %u rows of %u into %u: no extent may be 0",
                          desc->label, words[3], words[2], words[1]);
    tern_cpu_scatter *sc = calloc(1, sizeof *sc);
    step->scatter = sc;
    if (!sc) return tern_error_memory("a scatter", sizeof *sc);
    sc->isa = isa, sc->V = words[1], sc->D = words[2], sc->N = words[3], sc->sorted = desc->sorted;
    TERN_TRY(tern_cpu_nest_create(isa, &desc->tape, words, step->range + fixed, true, &sc->nest));
    step->scratch_bytes = 2 * round_up(sc->D) * sizeof(float) + sc->nest->scratch_bytes;
    if (!sc->sorted) step->shared_bytes = ((size_t)sc->N + sc->V + 2) * sizeof(uint32_t);
fail:
    return status;
}

void tern_cpu_scatter_run(const tern_cpu_step *step, tern_cpu_pool *pool, void *shared)
{
    const tern_cpu_scatter *sc = step->scatter;
    job j = {.scatter = sc, .dy = step->range[0].data, .range = step->range + (sc->sorted ? 3 : 2)};
    if (sc->sorted) {
        j.order = step->range[1].data, j.offsets = step->range[2].data;
    } else {
        uint32_t *order = shared, *offsets = order + sc->N;
        sort_ids(sc, step->range[1].data, order, offsets);
        j.order = order, j.offsets = offsets;
    }
    tern_cpu_pool_run(pool, (sc->V + TILE_ROWS - 1) / TILE_ROWS, scatter_tile, &j);
}

void tern_cpu_scatter_destroy(tern_cpu_scatter *scatter)
{
    if (!scatter) return;
    tern_cpu_nest_destroy(scatter->nest);
    free(scatter);
}
