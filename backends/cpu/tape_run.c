/* SPDX-License-Identifier: Apache-2.0 */
/* tape_run.c - carries a nest out: for each row its phases, for each phase its blocks, for each block its instructions.
 *
 *     rows     a tile is some rows; each row runs all phases
 *     lanes    (nest->rows) a tile is a block of rows side by side; a body runs once per inner index
 *     split    few long rows: a phase at a time, its inner range cut into tiles; reductions meet in tile order
 *
 * A row's sum: vector lanes inside a block (at most 2048 elements), double across blocks. Sums over lanes are folded
 * into a second accumulator every 32 additions, so that their error grows with n / 32. */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "backends/cpu/nest.h"
#include "backends/cpu/threads.h"

#define FOLD 32u

static const uint32_t zeros[TERN_BLOCK_MAX];

static int64_t place_of(const tern_cpu_access *access, const uint32_t *index, uint32_t dims)
{
    int64_t at = access->offset;
    for (uint32_t d = 0; d < dims; d++) at += access->stride[d] * index[d];
    return at;
}

/* The part [*first, *end) of n lanes from the current index on where every mask holds; lane index steps by one. */
static void unmasked(const tern_cpu_access *access, const uint32_t *index, uint32_t dims, uint32_t lane, uint32_t n,
                     uint32_t *first, uint32_t *end)
{
    int64_t lo = 0, hi = n;
    for (uint32_t i = 0; i < access->mask_count; i++) {
        const tern_cpu_mask *mask = &access->mask[i];
        int64_t at = mask->offset;
        for (uint32_t d = 0; d < dims; d++) at += mask->coef[d] * index[d];
        int64_t step = mask->coef[lane], from = mask->lo - at, to = mask->hi - at; /* from <= j step < to */
        if (step == 0) {
            if (from > 0 || to <= 0) hi = lo;
            continue;
        }
        if (step < 0) {
            const int64_t swap = from;
            step = -step, from = 1 - to, to = 1 - swap; /* -to < j |step| <= -from */
        }
        const int64_t a = from > 0 ? (from + step - 1) / step : 0, b = to > 0 ? (to + step - 1) / step : 0;
        if (a > lo) lo = a;
        if (b < hi) hi = b;
    }
    if (lo > n) lo = n; /* the first good lane may lie beyond these */
    *first = (uint32_t)lo;
    *end = (uint32_t)(hi > lo ? hi : lo);
}

static char *tensor_at(const tern_cpu_lanes *s, const tern_cpu_access *access, int64_t element)
{
    return (char *)s->tensors[access->tensor].data + element * (int64_t)access->bytes;
}

/* One run of lanes with a constant stride. ids: the lanes' indirect indices, or NULL. */
static void copy_run(const tern_cpu_lanes *s, const tern_cpu_insn *insn, const uint32_t *index, uint32_t n, uint32_t *d,
                     const uint32_t *ids, int64_t extra)
{
    const tern_cpu_nest *nest = s->nest;
    const tern_cpu_access *access = &nest->access[insn->access];
    uint32_t first = 0, end = n;
    if (access->mask_count) unmasked(access, index, nest->dim_count, nest->lane, n, &first, &end);
    const int64_t stride = access->stride[nest->lane], base = place_of(access, index, nest->dim_count) + extra;
    if (ids) {
        for (uint32_t i = 0; i < n; i++) {
            if (i < first || i >= end)
                d[i] = 0;
            else
                insn->move(1, &d[i], tensor_at(s, access, base + i * stride + (int64_t)ids[i] * access->indirect), 1);
        }
        return;
    }
    if (first > 0) memset(d, 0, first * sizeof *d);
    if (end < n) memset(d + end, 0, (n - end) * sizeof *d);
    if (end > first) insn->move(end - first, d + first, tensor_at(s, access, base + first * stride), stride);
}

static void store_run(const tern_cpu_lanes *s, const tern_cpu_insn *insn, const uint32_t *index, uint32_t n,
                      const uint32_t *v)
{
    const tern_cpu_nest *nest = s->nest;
    const tern_cpu_access *access = &nest->access[insn->access];
    insn->move(n, tensor_at(s, access, place_of(access, index, nest->dim_count)), v, access->stride[nest->lane]);
}

static void index_run(const tern_cpu_nest *nest, const tern_cpu_access *access, const uint32_t *index, uint32_t n,
                      uint32_t *d)
{
    const uint32_t base = (uint32_t)place_of(access, index, nest->dim_count),
                   step = (uint32_t)access->stride[nest->lane];
    for (uint32_t i = 0; i < n; i++) d[i] = base + i * step;
}

/* Moves a position by n along the inner dims, the last one fastest. */
static void advance(const tern_cpu_nest *nest, uint32_t *index, uint32_t n)
{
    uint64_t carry = n;
    for (uint32_t d = nest->dim_count; carry && d-- > nest->outer_count;) {
        const uint64_t at = index[d] + carry;
        if (at < nest->extent[d]) {
            index[d] = (uint32_t)at;
            return;
        }
        carry = at / nest->extent[d];
        index[d] = (uint32_t)(at % nest->extent[d]);
    }
}

/* In a flat nest a block may hold several runs of the last dim; elsewhere it is one. */
static void each_run(tern_cpu_lanes *s, const tern_cpu_insn *insn, uint32_t n, uint32_t *v, const uint32_t *ids,
                     int64_t extra)
{
    const tern_cpu_nest *nest = s->nest;
    uint32_t index[TERN_TAPE_DIMS];
    memcpy(index, s->index, sizeof index);
    for (uint32_t done = 0; done < n;) {
        uint32_t run = n - done;
        if (nest->flat && nest->extent[nest->lane] - index[nest->lane] < run)
            run = nest->extent[nest->lane] - index[nest->lane];
        if (insn->action == TERN_DO_STORE)
            store_run(s, insn, index, run, v + done);
        else if (insn->action == TERN_DO_INDEX)
            index_run(nest, &nest->access[insn->access], index, run, v + done);
        else
            copy_run(s, insn, index, run, v + done, ids ? ids + done : NULL, extra);
        done += run;
        if (done < n) advance(nest, index, run);
    }
}

/* ------------------------------------------------------------- instructions */

/* Offset that a one-element indirect index adds. */
static int64_t indirect_base(const tern_cpu_lanes *s, const tern_cpu_insn *insn)
{
    if (insn->in[0] == TERN_TAPE_NONE || !(insn->scalars & 1u)) return 0;
    return (int64_t) * (const uint32_t *)s->value[insn->in[0]] * s->nest->access[insn->access].indirect;
}

static void do_load(tern_cpu_lanes *s, const tern_cpu_insn *insn, uint32_t n)
{
    const tern_cpu_nest *nest = s->nest;
    const tern_cpu_access *access = &nest->access[insn->access];
    const int64_t extra = indirect_base(s, insn);
    if (insn->action == TERN_DO_COPY) {
        const bool gathers = insn->in[0] != TERN_TAPE_NONE && !(insn->scalars & 1u);
        each_run(s, insn, n, s->value[insn->d], gathers ? s->value[insn->in[0]] : NULL, extra);
        return;
    }
    uint32_t first = 0, end = 1;
    if (access->mask_count) unmasked(access, s->index, nest->dim_count, nest->lane, 1, &first, &end);
    const int64_t at = place_of(access, s->index, nest->dim_count) + extra;
    if (insn->action == TERN_DO_POINT) {
        s->value[insn->d] = end > first ? tensor_at(s, access, at) : (char *)(uintptr_t)zeros;
    } else if (end > first) {
        insn->move(1, &s->one[insn->d], tensor_at(s, access, at), 1);
    } else {
        s->one[insn->d] = 0;
    }
}

static void do_store(tern_cpu_lanes *s, const tern_cpu_insn *insn, uint32_t n)
{
    const void *v = s->value[insn->in[0]];
    if (!insn->vector) n = 1;
    if (!(insn->scalars & 1u) || n == 1) {
        each_run(s, insn, n, (uint32_t *)(uintptr_t)v, NULL, 0);
        return;
    }
    uint32_t same[64]; /* one value for all lanes, in pieces */
    s->nest->isa->fill(n < 64 ? n : 64, same, *(const uint32_t *)v);
    uint32_t index[TERN_TAPE_DIMS];
    memcpy(index, s->index, sizeof index);
    for (uint32_t done = 0; done < n;) {
        const uint32_t piece = n - done < 64 ? n - done : 64;
        each_run(s, insn, piece, same, NULL, 0);
        done += piece;
        if (s->nest->rows)
            s->index[s->nest->lane] += piece;
        else
            advance(s->nest, s->index, piece);
    }
    memcpy(s->index, index, sizeof index);
}

/* Rows of a chunk come in order, from one thread: the first writes, the others add. */
static void do_column(const tern_cpu_lanes *s, const tern_cpu_insn *insn, uint32_t n)
{
    const tern_cpu_nest *nest = s->nest;
    uint64_t inner = 0;
    for (uint32_t d = nest->outer_count; d < nest->dim_count; d++) inner += nest->inner_stride[d] * s->index[d];
    float *column = (float *)s->tensors[nest->access[insn->access].tensor].data +
                    s->row / nest->chunk_rows * nest->inner_total + inner;
    const void *v = s->value[insn->in[0]];
    if (s->row % nest->chunk_rows != 0)
        insn->loop(n, column, column, v, NULL, 0);
    else if (insn->scalars & 1u)
        nest->isa->fill(n, (uint32_t *)(void *)column, *(const uint32_t *)v);
    else
        memcpy(column, v, n * sizeof *column);
}

static void do_reduction(tern_cpu_lanes *s, const tern_cpu_insn *insn, uint32_t n)
{
    const tern_cpu_isa *isa = s->nest->isa;
    const float *v = s->value[insn->in[0]];
    if (s->nest->rows) {
        insn->loop(n, s->value[insn->d], s->value[insn->d], v, NULL, 0);
        return;
    }
    double *total = &s->sum[insn->reduce];
    const bool one = insn->scalars & 1u;
    if (insn->action == TERN_DO_SUM) {
        *total += one ? (double)*v * n : (double)isa->sum(n, v);
        return;
    }
    const double top = one ? *v : isa->maximum(n, v);
    if (top > *total || isnan(top)) *total = top;
}

static void run_block(tern_cpu_lanes *s, uint32_t from, uint32_t to, uint32_t n)
{
    const tern_cpu_nest *nest = s->nest;
    void **value = s->value;
    for (const tern_cpu_insn *insn = nest->insn + from, *end = nest->insn + to; insn < end; insn++) {
        const uint32_t lanes = insn->vector ? n : 1;
        switch ((tern_cpu_action)insn->action) {
        case TERN_DO_LOOP:
            insn->loop(lanes, value[insn->d], value[insn->in[0]],
                       insn->in[1] == TERN_TAPE_NONE ? NULL : value[insn->in[1]],
                       insn->in[2] == TERN_TAPE_NONE ? NULL : value[insn->in[2]], insn->scalars);
            break;
        case TERN_DO_PHILOX: {
            const uint32_t *const in[4] = {value[insn->in[0]], value[insn->in[1]], value[insn->in[2]],
                                           value[insn->in[3]]};
            nest->isa->philox(lanes, value[insn->d], in, insn->imm, insn->scalars);
            break;
        }
        case TERN_DO_POINT:
        case TERN_DO_ONE:
        case TERN_DO_COPY: do_load(s, insn, n); break;
        case TERN_DO_INDEX: each_run(s, insn, lanes, value[insn->d], NULL, 0); break;
        case TERN_DO_ACC: value[insn->d] = (void *)(uintptr_t)s->acc; break;
        case TERN_DO_BIND: {
            const tern_cpu_access *access = &nest->access[insn->access];
            value[insn->d] = tensor_at(s, access, place_of(access, s->index, nest->dim_count));
            break;
        }
        case TERN_DO_STORE: do_store(s, insn, n); break;
        case TERN_DO_COLUMN: do_column(s, insn, n); break;
        case TERN_DO_SUM:
        case TERN_DO_MAX: do_reduction(s, insn, n); break;
        }
    }
}

/* ------------------------------------------------------------------- ranges */

static void decode(const tern_cpu_nest *nest, uint32_t from, uint32_t to, uint64_t flat, uint32_t *index)
{
    for (uint32_t d = to; d-- > from;) {
        index[d] = (uint32_t)(flat % nest->extent[d]);
        flat /= nest->extent[d];
    }
}

static void start_reductions(tern_cpu_lanes *s, const tern_cpu_phase *phase, uint32_t n)
{
    const tern_cpu_nest *nest = s->nest;
    const float low = -INFINITY;
    uint32_t low_bits;
    memcpy(&low_bits, &low, sizeof low);
    for (uint32_t r = phase->reduce; r < phase->reduce_end; r++) {
        s->sum[r] = nest->reduce_max[r] ? -INFINITY : 0.0;
        if (!nest->rows) continue;
        uint32_t *running = s->value[nest->reduce_value[r]];
        nest->isa->fill(n, running, nest->reduce_max[r] ? low_bits : 0);
        nest->isa->fill(n, running + nest->block, 0);
    }
}

/* Elements [start, start + count) of the row's inner range. */
static void run_inner(tern_cpu_lanes *s, const tern_cpu_phase *phase, uint64_t start, uint64_t count)
{
    const tern_cpu_nest *nest = s->nest;
    const uint32_t last = nest->dim_count - 1;
    decode(nest, nest->outer_count, nest->dim_count, start, s->index);
    while (count > 0) {
        uint32_t n = count < nest->block ? (uint32_t)count : nest->block;
        if (!nest->flat && nest->extent[last] - s->index[last] < n) n = nest->extent[last] - s->index[last];
        run_block(s, phase->body, phase->body_end, n);
        advance(nest, s->index, n);
        count -= n;
    }
}

/* n rows side by side: the running sum of each lane is added to its total every FOLD steps and at the end. */
static void run_lanes(tern_cpu_lanes *s, const tern_cpu_phase *phase, uint32_t n)
{
    const tern_cpu_nest *nest = s->nest;
    if (phase->body == phase->body_end) return;
    memset(s->index + nest->outer_count, 0, sizeof(uint32_t) * (nest->dim_count - nest->outer_count));
    const tern_cpu_loop add = nest->isa->loop[TERN_TAPE_ADD][TERN_TYPE_F32][TERN_FORM_VV];
    for (uint64_t i = 1; i <= nest->inner_total; i++) {
        run_block(s, phase->body, phase->body_end, n);
        advance(nest, s->index, 1);
        if (i % FOLD != 0 && i != nest->inner_total) continue;
        for (uint32_t r = phase->reduce; r < phase->reduce_end; r++) {
            if (nest->reduce_max[r]) continue;
            float *running = s->value[nest->reduce_value[r]], *total = running + nest->block;
            if (i == nest->inner_total)
                add(n, running, running, total, NULL, 0);
            else
                add(n, total, total, running, NULL, 0), nest->isa->fill(n, (uint32_t *)(void *)running, 0);
        }
    }
}

static void end_reductions(tern_cpu_lanes *s, const tern_cpu_phase *phase)
{
    for (uint32_t r = phase->reduce; r < phase->reduce_end; r++) {
        const float total = (float)s->sum[r];
        memcpy(&s->one[s->nest->reduce_value[r]], &total, sizeof total);
    }
}

/* --------------------------------------------------------------------- jobs */

typedef struct job {
    const tern_cpu_nest *nest;
    const tern_cpu_range *tensors;
    uint64_t row;
    uint32_t phase;
    const uint32_t *one; /* the row's values, for tiles of a split row */
} job;

static void rows_tile(void *context, uint32_t tile, void *scratch)
{
    const job *j = context;
    const tern_cpu_nest *nest = j->nest;
    tern_cpu_lanes *s = tern_cpu_nest_place(nest, j->tensors, scratch);
    const uint64_t first = tile * nest->tile,
                   end = first + nest->tile < nest->outer_total ? first + nest->tile : nest->outer_total;
    for (s->row = first; s->row < end; s->row++) {
        decode(nest, 0, nest->outer_count, s->row, s->index);
        for (uint32_t p = 0; p < nest->phase_count; p++) {
            const tern_cpu_phase *phase = &nest->phase[p];
            memset(s->index + nest->outer_count, 0, sizeof(uint32_t) * (nest->dim_count - nest->outer_count));
            run_block(s, phase->head, phase->head_end, 1);
            start_reductions(s, phase, 1);
            if (phase->body < phase->body_end) run_inner(s, phase, 0, nest->inner_total);
            end_reductions(s, phase);
        }
    }
}

static void lanes_tile(void *context, uint32_t tile, void *scratch)
{
    const job *j = context;
    const tern_cpu_nest *nest = j->nest;
    const uint32_t lane = nest->lane, pieces = (nest->extent[lane] + nest->block - 1) / nest->block;
    tern_cpu_lanes *s = tern_cpu_nest_place(nest, j->tensors, scratch);
    decode(nest, 0, lane, tile / pieces, s->index);
    const uint32_t first = tile % pieces * nest->block;
    const uint32_t n = nest->extent[lane] - first < nest->block ? nest->extent[lane] - first : nest->block;
    s->index[lane] = first;
    for (uint32_t p = 0; p < nest->phase_count; p++) {
        const tern_cpu_phase *phase = &nest->phase[p];
        memset(s->index + nest->outer_count, 0, sizeof(uint32_t) * (nest->dim_count - nest->outer_count));
        run_block(s, phase->head, phase->head_end, n);
        start_reductions(s, phase, n);
        run_lanes(s, phase, n);
    }
}

static void split_tile(void *context, uint32_t tile, void *scratch)
{
    const job *j = context;
    const tern_cpu_nest *nest = j->nest;
    const tern_cpu_phase *phase = &nest->phase[j->phase];
    tern_cpu_lanes *s = tern_cpu_nest_place(nest, j->tensors, scratch);
    memcpy(s->one, j->one, nest->value_count * sizeof *s->one);
    s->row = j->row;
    decode(nest, 0, nest->outer_count, s->row, s->index);
    start_reductions(s, phase, 1);
    const uint64_t first = tile * nest->tile,
                   count = nest->inner_total - first < nest->tile ? nest->inner_total - first : nest->tile;
    run_inner(s, phase, first, count);
    for (uint32_t r = phase->reduce; r < phase->reduce_end; r++)
        nest->partial[(size_t)tile * nest->reduce_count + r] = s->sum[r];
}

/* The row's own state lives behind the tiles' in the caller's scratch, since the caller runs tiles too. */
static void run_split(const tern_cpu_nest *nest, const tern_cpu_range *tensors, tern_cpu_pool *pool)
{
    tern_cpu_lanes *s = tern_cpu_nest_place(nest, tensors, (char *)tern_cpu_pool_scratch(pool) + nest->scratch_bytes);
    for (s->row = 0; s->row < nest->outer_total; s->row++) {
        decode(nest, 0, nest->outer_count, s->row, s->index);
        for (uint32_t p = 0; p < nest->phase_count; p++) {
            const tern_cpu_phase *phase = &nest->phase[p];
            memset(s->index + nest->outer_count, 0, sizeof(uint32_t) * (nest->dim_count - nest->outer_count));
            run_block(s, phase->head, phase->head_end, 1);
            if (phase->body == phase->body_end) continue;
            job j = {.nest = nest, .tensors = tensors, .row = s->row, .phase = p, .one = s->one};
            tern_cpu_pool_run(pool, nest->tile_count, split_tile, &j);
            start_reductions(s, phase, 1);
            for (uint32_t r = phase->reduce; r < phase->reduce_end; r++)
                for (uint32_t t = 0; t < nest->tile_count; t++) {
                    const double part = nest->partial[(size_t)t * nest->reduce_count + r];
                    if (!nest->reduce_max[r])
                        s->sum[r] += part;
                    else if (part > s->sum[r] || isnan(part))
                        s->sum[r] = part;
                }
            end_reductions(s, phase);
        }
    }
}

void tern_cpu_nest_run(const tern_cpu_nest *nest, const tern_cpu_range *tensors, tern_cpu_pool *pool)
{
    if (nest->split) {
        run_split(nest, tensors, pool);
        return;
    }
    job j = {.nest = nest, .tensors = tensors};
    tern_cpu_pool_run(pool, nest->tile_count, nest->rows ? lanes_tile : rows_tile, &j);
}

tern_cpu_lanes *tern_cpu_nest_begin(const tern_cpu_nest *nest, const tern_cpu_range *tensors, void *scratch)
{
    tern_cpu_lanes *s = tern_cpu_nest_place(nest, tensors, scratch);
    run_block(s, nest->phase[0].head, nest->phase[0].head_end, 1);
    return s;
}

void tern_cpu_nest_epilogue(tern_cpu_lanes *s, uint32_t batch, uint32_t m, uint32_t n0, uint32_t n, const float *acc)
{
    const tern_cpu_phase *phase = &s->nest->phase[0];
    const uint32_t block = s->nest->block;
    s->index[0] = batch, s->index[1] = m;
    for (uint32_t done = 0; done < n; done += block) {
        s->index[2] = n0 + done;
        s->acc = acc + done;
        run_block(s, phase->body, phase->body_end, n - done < block ? n - done : block);
    }
}
