/* SPDX-License-Identifier: Apache-2.0 */
/* trace.h - the expressions of one kernel: from its roots (values it must store) back to what is already stored.
 *
 *     root ── STORE(expr) ──> expr DAG over one iteration space ──> LOADs of stored nodes, INDEX, constants
 *
 * Tracing walks a root's definition backward with an access (access.h). Elementwise nodes become expressions, views
 * only rewrite the access, a SUM or MAXIMUM whose range is the space's inner dims becomes a REDUCE, a contraction
 * becomes ACC in its own epilogue. What cannot be expressed is named in `need`: it has to be stored first, by a kernel
 * of its own. Equal expressions are one (hash-consed), so a value used by several roots is computed once. Not here:
 * which roots share a kernel (fuse.c), phases and instructions (emit.c). */
#ifndef TERN_KERNEL_TRACE_H
#define TERN_KERNEL_TRACE_H

#include "core/kernel/access.h"

#define TERN_EXPR_NONE  UINT32_MAX
#define TERN_CHUNK_ROWS 64u /* rows per column-sum chunk: partials are 1/64 of the tensor, 64 chunks for 4096 rows */

typedef enum tern_trace_result {
    TERN_TRACE_OK = 0,
    TERN_TRACE_STORE,  /* `need` must be stored before this kernel can exist */
    TERN_TRACE_REJECT, /* these roots do not fit one kernel */
    TERN_TRACE_SPLIT,  /* internal: the space was refined, start again */
    TERN_TRACE_ERROR   /* out of memory; sentence set */
} tern_trace_result;

/* Where a load, a store or an index lands. storage: the node whose buffer it is (NULL for INDEX). */
typedef struct tern_place {
    const tern_tensor *storage;
    tern_access access;
    int64_t indirect; /* elements per unit of an indirect LOAD's operand */
} tern_place;

typedef struct tern_expr {
    uint16_t op; /* tern_tape_op */
    uint8_t type, from;
    bool body;     /* varies along the inner dims */
    uint8_t depth; /* earliest phase that can compute it: REDUCEs below it */
    uint32_t in[4];
    uint32_t imm;
    uint32_t place; /* TERN_EXPR_NONE where absent */
} tern_expr;

typedef struct tern_store {
    const tern_tensor *root;
    uint32_t expr, place;
    bool body, column;
} tern_store;

/* The iteration space with the row-major order of a full-sized root in it. */
typedef struct tern_frame {
    tern_space space;
    tern_affine full;
} tern_frame;

typedef struct tern_trace_memo {
    uint32_t node, expr, next;
    tern_access access;
} tern_trace_memo;

typedef struct tern_trace {
    /* in */
    const tern_graph *graph;
    const bool *stored;             /* per node id */
    const tern_tensor *contraction; /* epilogue of this one, or NULL */
    const tern_tensor *const *roots;
    uint32_t root_count;
    tern_frame frame; /* refined by splits */
    /* out */
    tern_expr *exprs;
    uint32_t expr_count, expr_capacity;
    tern_place *places;
    uint32_t place_count, place_capacity;
    tern_store *stores;
    uint32_t store_count;
    bool idle_inner; /* nothing varies along the inner dims: they count as one */
    const tern_tensor *need;
    tern_split split;
    /* memo: per node a chain of (access, expr) */
    uint32_t *memo_head;
    tern_trace_memo *memo;
    uint32_t memo_count, memo_capacity;
} tern_trace;

/* Traces all roots; on OK exprs, places and stores are complete. Call tern_trace_finish in every case. */
tern_trace_result tern_trace_run(tern_trace *trace);
void tern_trace_finish(tern_trace *trace);

/* The node whose buffer holds x: an ASSIGN's is its target's leaf. */
const tern_tensor *tern_storage_of(const tern_tensor *x);
/* f32, i32 or u32: the type of x's elements in registers. */
uint8_t tern_register_type(int32_t dtype);

#endif
