/* SPDX-License-Identifier: Apache-2.0 */
/* hazards.c - the waits of a program, from the byte ranges that its steps touch.
 *
 * Each space is kept as a sorted list of segments, each with its last writer and the readers since:
 *
 *     bytes   0        256      512           1024
 *             | w 3    | w 3    | w 7          |      step 9 writes [256, 768): splits the last segment, waits for
 *             | r -    | r 5 6  | r -          |      5 and 6 (WAR), for 3 and 7 (WAW), and becomes [256, 768)'s writer
 *
 * Then the direct hazards are reduced: taken from the latest step down, one that an already kept wait reaches is
 * dropped. As every path goes to smaller indices, that leaves the unique transitive reduction.
 * Not here: lanes and queues. A wait holds whatever the lane; order inside a lane is never relied upon. */
#include "core/base/array.h"
#include "core/plan/hazard.h"

#include <stdlib.h>
#include <string.h>

#define NOBODY UINT32_MAX

typedef struct segment {
    uint64_t begin, end;
    uint32_t writer;
    uint32_t *readers;
    uint32_t reader_count, reader_capacity;
} segment;

typedef struct space {
    segment *segments; /* sorted, disjoint */
    uint32_t count, capacity;
} space;

/* Direct hazards of the step in hand; `seen` marks them so that each is listed once. */
typedef struct finder {
    space *spaces;
    uint32_t space_count;
    uint32_t *direct, direct_count;
    uint32_t *seen; /* seen[step] == current + 1 */
    uint32_t current;
    uint64_t *reach; /* step_count rows of `words` words: what each step is ordered after */
    uint32_t words;
    uint32_t *list, list_count, list_capacity;
} finder;

void tern_waits_finish(tern_waits *waits)
{
    free(waits->starts);
    free(waits->list);
    *waits = (tern_waits){0};
}

static tern_status reserve(void **array, uint32_t count, uint32_t *capacity, size_t element)
{
    return tern_array_grow(array, count, capacity, element, "the hazard table");
}

static tern_status insert(space *where, uint32_t at, segment piece)
{
    tern_status status = reserve((void **)&where->segments, where->count, &where->capacity, sizeof(segment));
    if (status < 0) return status;
    memmove(&where->segments[at + 1u], &where->segments[at], (where->count - at) * sizeof(segment));
    where->segments[at] = piece;
    where->count++;
    return TERN_OK;
}

/* Makes `cut` a segment boundary where a segment spans it; index of the first segment with begin >= cut. */
static tern_status split(space *where, uint64_t cut, uint32_t *out_at)
{
    uint32_t low = 0, high = where->count;
    while (low < high) { /* first segment with end > cut */
        const uint32_t middle = (low + high) / 2u;
        if (where->segments[middle].end > cut)
            high = middle;
        else
            low = middle + 1u;
    }
    *out_at = low;
    if (low == where->count || where->segments[low].begin >= cut) return TERN_OK;
    segment right = where->segments[low];
    right.begin = cut;
    right.reader_capacity = right.reader_count;
    right.readers = NULL;
    if (right.reader_count) {
        right.readers = malloc(right.reader_count * sizeof(uint32_t));
        if (!right.readers) return tern_error_memory("the hazard table", right.reader_count * sizeof(uint32_t));
        memcpy(right.readers, where->segments[low].readers, right.reader_count * sizeof(uint32_t));
    }
    tern_status status = insert(where, low + 1u, right);
    if (status < 0) {
        free(right.readers);
        return status;
    }
    where->segments[low].end = cut;
    *out_at = low + 1u;
    return TERN_OK;
}

static void depend(finder *f, uint32_t step)
{
    if (step == NOBODY || step == f->current || f->seen[step] == f->current + 1u) return;
    f->seen[step] = f->current + 1u;
    f->direct[f->direct_count++] = step;
}

/* The part of [begin, end) that no step touched yet becomes segments without writer. */
static tern_status cover(space *where, uint64_t begin, uint64_t end, uint32_t *out_from, uint32_t *out_to)
{
    tern_status status = TERN_OK;
    uint32_t from, behind;
    TERN_TRY(split(where, begin, &from));
    TERN_TRY(split(where, end, &behind)); /* inserts behind `from`, which stays right */
    uint64_t at = begin;
    uint32_t i = from;
    while (at < end) {
        if (i < where->count && where->segments[i].begin == at) {
            at = where->segments[i++].end;
            continue;
        }
        uint64_t next = i < where->count && where->segments[i].begin < end ? where->segments[i].begin : end;
        TERN_TRY(insert(where, i, (segment){.begin = at, .end = next, .writer = NOBODY}));
    }
    *out_from = from;
    *out_to = i;
fail:
    return status;
}

static tern_status touch_read(finder *f, space *where, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        segment *s = &where->segments[i];
        depend(f, s->writer);
        if (s->writer == f->current || (s->reader_count && s->readers[s->reader_count - 1u] == f->current)) continue;
        tern_status status = reserve((void **)&s->readers, s->reader_count, &s->reader_capacity, sizeof(uint32_t));
        if (status < 0) return status;
        s->readers[s->reader_count++] = f->current;
    }
    return TERN_OK;
}

/* All covered segments become one, written by the current step. */
static void touch_write(finder *f, space *where, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        segment *s = &where->segments[i];
        depend(f, s->writer);
        for (uint32_t r = 0; r < s->reader_count; r++) depend(f, s->readers[r]);
        if (i > from) free(s->readers);
    }
    segment *first = &where->segments[from];
    first->end = where->segments[to - 1u].end;
    first->writer = f->current;
    first->reader_count = 0;
    memmove(&where->segments[from + 1u], &where->segments[to], (where->count - to) * sizeof(segment));
    where->count -= to - from - 1u;
}

static int descending(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* Keeps the direct hazards that no later one reaches; appends them ascending. */
static tern_status reduce(finder *f)
{
    uint64_t *mine = f->reach + (size_t)f->current * f->words;
    qsort(f->direct, f->direct_count, sizeof(uint32_t), descending);
    const uint32_t start = f->list_count;
    for (uint32_t d = 0; d < f->direct_count; d++) {
        const uint32_t step = f->direct[d];
        if (mine[step / 64u] >> (step % 64u) & 1u) continue;
        tern_status status = reserve((void **)&f->list, f->list_count, &f->list_capacity, sizeof(uint32_t));
        if (status < 0) return status;
        f->list[f->list_count++] = step;
        const uint64_t *its = f->reach + (size_t)step * f->words;
        for (uint32_t w = 0; w <= step / 64u; w++) mine[w] |= its[w];
        mine[step / 64u] |= (uint64_t)1 << (step % 64u);
    }
    for (uint32_t i = start, j = f->list_count; i + 1u < j; i++) {
        const uint32_t swap = f->list[i];
        f->list[i] = f->list[--j];
        f->list[j] = swap;
    }
    return TERN_OK;
}

static void finder_finish(finder *f)
{
    for (uint32_t s = 0; f->spaces && s < f->space_count; s++) {
        for (uint32_t i = 0; i < f->spaces[s].count; i++) free(f->spaces[s].segments[i].readers);
        free(f->spaces[s].segments);
    }
    free(f->spaces);
    free(f->direct);
    free(f->seen);
    free(f->reach);
    free(f->list);
}

tern_status tern_hazards_find(const tern_access *accesses, uint32_t access_count, uint32_t step_count,
                              uint32_t space_count, tern_waits *out_waits)
{
    tern_status status = TERN_OK;
    finder f = {.space_count = space_count, .words = step_count / 64u + 1u};
    uint32_t *starts = calloc(step_count + 1u, sizeof *starts);
    f.spaces = calloc(space_count + 1u, sizeof *f.spaces);
    f.direct = calloc(step_count + 1u, sizeof *f.direct);
    f.seen = calloc(step_count + 1u, sizeof *f.seen);
    f.reach = calloc((size_t)step_count * f.words + 1u, sizeof *f.reach);
    if (!starts || !f.spaces || !f.direct || !f.seen || !f.reach) {
        status = tern_error_memory("the hazard table", (size_t)step_count * f.words * sizeof *f.reach);
        goto fail;
    }
    uint32_t a = 0;
    for (f.current = 0; f.current < step_count; f.current++) {
        f.direct_count = 0;
        for (; a < access_count && accesses[a].step == f.current; a++) {
            space *where = &f.spaces[accesses[a].space];
            uint32_t from, to;
            if (accesses[a].begin >= accesses[a].end) continue;
            TERN_TRY(cover(where, accesses[a].begin, accesses[a].end, &from, &to));
            if (accesses[a].mode & TERN_ACCESS_WRITE)
                touch_write(&f, where, from, to);
            else
                TERN_TRY(touch_read(&f, where, from, to));
        }
        TERN_TRY(reduce(&f));
        starts[f.current + 1u] = f.list_count;
    }
    TERN_TRY(
        reserve((void **)&f.list, f.list_count, &f.list_capacity, sizeof(uint32_t))); /* never NULL for the caller */
    *out_waits = (tern_waits){.starts = starts, .list = f.list};
    starts = NULL;
    f.list = NULL;
fail:
    free(starts);
    finder_finish(&f);
    return status;
}
