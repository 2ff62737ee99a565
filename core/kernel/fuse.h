/* SPDX-License-Identifier: Apache-2.0 */
/* fuse.h - which values get a buffer, and which of them one kernel computes together.
 *
 *     stored values ("roots")          fuse.c        outputs, assigns, contraction operands, what backward keeps,
 * junctions an order that respects in-place  fuse_order.c  readers of a state's old version come before its ASSIGN
 *     groups                           fuse_group.c  each root joins an earlier kernel where a trial trace fits, else
 * opens one
 *
 * A trial is a real trace and emit: what cannot be expressed names the value that must be stored first, and the whole
 * starts again with it stored. So the result is right by construction; the heuristics only decide how few kernels there
 * are. */
#ifndef TERN_KERNEL_FUSE_H
#define TERN_KERNEL_FUSE_H

#include "core/kernel/contraction.h"
#include "core/kernel/emit.h"

typedef struct tern_group {
    const tern_tensor *contraction; /* NULL: a tape */
    const tern_tensor **roots;      /* stored values it computes, in joining order */
    uint32_t root_count, root_capacity;
    tern_frame frame; /* unrefined */
    uint64_t *leaves; /* bit set of node ids that it reads or computes, for the sharing test */
} tern_group;

typedef struct tern_fuser {
    const tern_graph *graph;
    bool fuse;
    bool (*accepts_epilogue)(void *context, const tern_kernel_desc *desc);
    void *context;
    bool *live, *stored;
    const tern_tensor **second; /* per contraction id: its SECOND node, or NULL */
    uint32_t *order;            /* compute points (stored values and contractions) in execution order */
    uint32_t order_count;
    uint32_t *joint;   /* per compute point: the first id of the ASSIGNs that must share a kernel with it, or its own */
    uint64_t **reads;  /* per compute point: bit set of the nodes its definition reads */
    int32_t *group_of; /* per node id; -1: not computed by a kernel */
    tern_group *groups;
    uint32_t group_count, group_capacity;
} tern_fuser;

/* On success groups are in execution order. Call tern_fuser_finish in every case. */
TERN_MUST_USE tern_status tern_fuser_run(tern_fuser *fuser, const tern_graph *graph);
void tern_fuser_finish(tern_fuser *fuser);

/* Traces and emits a group with one more root (NULL: as it is) in a frame; on OK the caller finishes out_emitted. */
tern_trace_result tern_group_build(const tern_fuser *fuser, const tern_group *group, const tern_tensor *extra,
                                   const tern_frame *frame, tern_emitted *out_emitted, const tern_tensor **out_need);

/* fuse_order.c: fills order, joint and reads for the current stored set. */
TERN_MUST_USE tern_status tern_fuser_order(tern_fuser *fuser);
/* fuse_group.c: forms groups. *out_again: more values had to be marked as stored; order and group again. */
TERN_MUST_USE tern_status tern_fuser_group(tern_fuser *fuser, bool *out_again);
void tern_fuser_clear_groups(tern_fuser *fuser);

/* TERN_ERROR_INVALID: an ASSIGN to `label` cannot be ordered. */
TERN_MUST_USE tern_status tern_fuser_cycle(const char *label);

/* x behind reshapes and detaches: the same elements in the same order. */
const tern_tensor *tern_same_elements(const tern_tensor *x);
/* The value that holds an output's elements: what lies behind its reshapes, unless that is a version which an ASSIGN
 * replaces; then the reshape is stored, as a copy. */
const tern_tensor *tern_fuser_output(const tern_tensor *x);
/* Computed by a kernel of its own or in an epilogue: stored and not a leaf. */
bool tern_fuser_is_point(const tern_fuser *fuser, const tern_tensor *x);

static inline bool tern_bit(const uint64_t *bits, uint32_t i) { return bits[i / 64] >> (i % 64) & 1u; }
static inline void tern_bit_set(uint64_t *bits, uint32_t i) { bits[i / 64] |= 1ull << (i % 64); }

/* The first set bit in [i, end), or end. Sets are sparse and wide, so loops over them go from bit to bit. */
static inline uint32_t tern_bit_next(const uint64_t *bits, uint32_t i, uint32_t end)
{
    while (i < end) {
        const uint64_t rest = bits[i / 64] >> (i % 64);
        if (rest) {
            i += (uint32_t)__builtin_ctzll(rest);
            return i < end ? i : end;
        }
        i = (i / 64 + 1u) * 64u;
    }
    return end;
}

/* The last set bit in [0, end), or end. */
static inline uint32_t tern_bit_last(const uint64_t *bits, uint32_t end)
{
    for (uint32_t i = end; i > 0;) {
        const uint32_t word = (i - 1u) / 64, kept = i - word * 64u; /* 1 .. 64 low bits of it */
        const uint64_t rest = bits[word] << (64u - kept);
        if (rest) return i - 1u - (uint32_t)__builtin_clzll(rest);
        i = word * 64u;
    }
    return end;
}

#endif
