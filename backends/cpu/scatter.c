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
#include "core/base/dtype.h"

#define TILE_ROWS 4u
#define RUN       64u

struct tern_cpu_scatter {
    const tern_cpu_isa *isa;
    uint32_t V, D, N, dtype, bytes; /* of dy */
    bool sorted;
    tern_cpu_nest *nest;
};

typedef struct job {
    const tern_cpu_scatter *scatter;
    const tern_cpu_range *range; /* of the epilogue */
    const char *dy;
    const uint32_t *order, *offsets;
} job;

static size_t round_up(size_t n) { return (n + 15) / 16 * 16; }

/* Row number at of the sorted ones as f32: in place, or widened into `wide`. */
static const float *row_of(const job *j, uint32_t at, float *wide)
{
    const tern_cpu_scatter *sc = j->scatter;
    const void *row = j->dy + (size_t)j->order[at] * sc->D * sc->bytes;
    if (sc->dtype == TERN_F32) return row;
    sc->isa->widen[sc->dtype](sc->D, wide, row, 1);
    return wide;
}

/* total: the first of three rows of scratch; the sum comes into it. */
static void sum_row(const job *j, uint32_t v, float *total)
{
    const tern_cpu_scatter *sc = j->scatter;
    const tern_cpu_loop add = sc->isa->loop[TERN_TAPE_ADD][TERN_TYPE_F32][TERN_FORM_VV];
    float *run = total + round_up(sc->D), *wide = run + round_up(sc->D);
    memset(total, 0, sc->D * sizeof *total);
    for (uint32_t at = j->offsets[v], end = j->offsets[v + 1]; at < end;) {
        const uint32_t stop = end - at < RUN ? end : at + RUN;
        const float *sum = row_of(j, at++, run);
        for (; at < stop; at++, sum = run) add(sc->D, run, sum, row_of(j, at, wide), NULL, 0);
        add(sc->D, total, total, sum, NULL, 0);
    }
}

static void scatter_tile(void *context, uint32_t tile, void *scratch)
{
    const job *j = context;
    const tern_cpu_scatter *sc = j->scatter;
    float *total = scratch;
    const uint32_t first = tile * TILE_ROWS, end = sc->V - first < TILE_ROWS ? sc->V : first + TILE_ROWS;
    tern_cpu_lanes *s = tern_cpu_nest_begin(sc->nest, j->range, total + 3 * round_up(sc->D));
    for (uint32_t v = first; v < end; v++) {
        sum_row(j, v, total);
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
    TERN_TRY(tern_cpu_dtypes_check(desc));
    if (words[1] == 0 || words[2] == 0 || words[3] == 0)
        return tern_error(TERN_ERROR_INVALID, "scatter \"%s\" of %u rows of %u into %u: no extent may be 0",
                          desc->label, words[3], words[2], words[1]);
    tern_cpu_scatter *sc = calloc(1, sizeof *sc);
    step->scatter = sc;
    if (!sc) return tern_error_memory("a scatter", sizeof *sc);
    sc->isa = isa, sc->V = words[1], sc->D = words[2], sc->N = words[3], sc->sorted = desc->sorted;
    sc->dtype = desc->tensors[0].dtype, sc->bytes = (uint32_t)tern_dtype_bytes((int32_t)sc->dtype, 1);
    TERN_TRY(tern_cpu_nest_create(isa, &desc->tape, words, step->range + fixed, true, &sc->nest));
    step->scratch_bytes = 3 * round_up(sc->D) * sizeof(float) + sc->nest->scratch_bytes;
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
