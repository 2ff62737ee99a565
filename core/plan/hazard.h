/* SPDX-License-Identifier: Apache-2.0 */
/* hazard.h - the rooms' private words: lifetimes, placement, and who must wait for whom.
 *
 * A program is reduced to accesses: step s touches bytes [begin, end) of space p, reading, writing or both. A space is
 * anything in which offsets can be compared: an arena block, a store's buffer, an upload slot. Two accesses of
 * different spaces never conflict. hazards.c finds the waits, verify.c re-derives them by another algorithm and
 * compares. */
#ifndef TERN_PLAN_HAZARD_H
#define TERN_PLAN_HAZARD_H

#include "core/plan/plan.h"

#define TERN_GUARD_BYTES  256u        /* before and after every value of a guarded plan, at least */
#define TERN_GUARD_POISON 0x7fc0deadu /* a quiet NaN as f32 */

typedef struct tern_access {
    uint32_t step, space;
    uint32_t mode; /* TERN_ACCESS_READ | TERN_ACCESS_WRITE */
    uint64_t begin, end;
} tern_access;

/* Step i waits for list[starts[i] .. starts[i + 1]), ascending; starts has step_count + 1 entries. */
typedef struct tern_waits {
    uint32_t *starts, *list;
} tern_waits;
void tern_waits_finish(tern_waits *waits);

/* accesses ascend by step. The waits are transitively reduced: each is a hazard that no other path orders. */
TERN_MUST_USE tern_status tern_hazards_find(const tern_access *accesses, uint32_t access_count, uint32_t step_count,
                                            uint32_t space_count, tern_waits *out_waits);

typedef enum tern_hazard_kind {
    TERN_HAZARD_NONE = 0,
    TERN_HAZARD_UNORDERED,
    TERN_HAZARD_NEEDLESS,
    TERN_HAZARD_MALFORMED
} tern_hazard_kind;
typedef struct tern_hazard {
    tern_hazard_kind kind;
    uint32_t earlier, later; /* steps */
    uint32_t space;
    uint64_t begin, end; /* bytes that both touch (UNORDERED) */
} tern_hazard;
/* Compares every pair of accesses with reachability along the waits. *out_hazard is the first fault or NONE. */
TERN_MUST_USE tern_status tern_hazards_check(const tern_access *accesses, uint32_t access_count, uint32_t step_count,
                                             const uint32_t *starts, const uint32_t *list, tern_hazard *out_hazard);

/* All accesses of a plan's launches. Spaces: arena blocks, then one per value for BOUND ones: which buffer they will be
 * bound to is not known yet, and the executable computes its waits again from real buffers. */
TERN_MUST_USE tern_status tern_plan_accesses(const tern_plan *plan, tern_access **out_accesses, uint32_t *out_count);

/* liveness.c: fills first_use, last_use, live_peak_bytes and peak_launch. A value that nothing touches gets first >
 * last. */
TERN_MUST_USE tern_status tern_liveness_compute(tern_plan *plan);
bool tern_plan_in_arena(const tern_plan *plan, uint32_t value); /* transient or input, and used */

/* placement.c: fills placements, block_bytes, block_count and arena_bytes. No block exceeds block_limit bytes. */
TERN_MUST_USE tern_status tern_placement_compute(tern_plan *plan, uint64_t block_limit);

/* Positions at which a new submission must start so that none is predicted longer than `limit` seconds (one longer step
 * gets a submission of its own, with the timeless copies around it). `out_cuts` has room for count values; returns how
 * many. */
uint32_t tern_cuts_find(const double *seconds, uint32_t count, double limit, uint32_t *out_cuts);

static inline uint64_t tern_align(uint64_t bytes, uint64_t alignment)
{
    return (bytes + alignment - 1) / alignment * alignment;
}

#endif
