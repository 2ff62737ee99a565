/* SPDX-License-Identifier: Apache-2.0 */
/* tape.h - a tape made ready for given extents: merged dims, baked strides, vector and scalar values told apart.
 *
 *     tern_tape ── nest_create (once per step, at record time) ──> tern_cpu_nest ── nest_run (every replay)
 *
 * One dim is the *lane* dim: loops run along it, `block` elements at a time. Usually it is the last inner dim (a row's
 * elements); where rows are short and many it is the last outer dim (one element of many rows). Invariant: how the work
 * is cut into tiles and blocks depends on the extents only, never on the number of threads, so results do not either.
 */
#ifndef TERN_CPU_TAPE_H
#define TERN_CPU_TAPE_H

#include "backends/cpu/isa.h"
#include "core/base/status.h"

struct tern_cpu_pool;

#define TERN_BLOCK_MAX                                                                                                 \
    2048u /* elements per vector loop: 8 KiB per live value, so that a few stay in the first cache                     \
           */

typedef struct tern_cpu_mask {
    int64_t coef[TERN_TAPE_DIMS], offset, lo, hi;
} tern_cpu_mask;

typedef struct tern_cpu_access {
    uint32_t tensor, dtype, bytes; /* bytes per element */
    uint32_t mask_count;
    int64_t offset, stride[TERN_TAPE_DIMS], indirect;
    tern_cpu_mask mask[TERN_TAPE_MASKS];
} tern_cpu_access;

/* How an instruction is carried out. */
typedef enum tern_cpu_action {
    TERN_DO_LOOP = 0, /* loop(n, d, a, b, c) */
    TERN_DO_PHILOX,
    TERN_DO_POINT, /* contiguous load: the value is the tensor's memory */
    TERN_DO_ONE,   /* load of one element */
    TERN_DO_COPY,  /* load along lanes into the value's slot: strides, masks, conversions, indirect */
    TERN_DO_INDEX,
    TERN_DO_ACC,
    TERN_DO_BIND, /* before a value is made: it is made right in the tensor that a later store would copy it to */
    TERN_DO_STORE,
    TERN_DO_COLUMN,
    TERN_DO_SUM,
    TERN_DO_MAX
} tern_cpu_action;

typedef struct tern_cpu_insn {
    uint8_t action;
    bool vector; /* value has a lane each; else one element */
    uint16_t d, in[4], access, reduce;
    uint32_t scalars; /* bit i: operand i is one element */
    uint32_t imm;
    tern_cpu_loop loop;
    tern_cpu_move move; /* conversion for loads and stores */
} tern_cpu_insn;

typedef struct tern_cpu_phase {
    uint32_t head, head_end, body, body_end; /* ranges of insns */
    uint32_t reduce, reduce_end;             /* its reductions */
} tern_cpu_phase;

typedef struct tern_cpu_nest {
    const tern_cpu_isa *isa;
    const uint32_t *words; /* the dispatch's, while the nest is made */
    uint32_t dim_count, outer_count, lane;
    uint32_t extent[TERN_TAPE_DIMS];
    bool rows;  /* lane is the last outer dim */
    bool flat;  /* blocks run across the ends of the (short) last inner dim */
    bool split; /* few long rows: tiles cut the inner range, else the outer one */
    uint64_t outer_total, inner_total, inner_stride[TERN_TAPE_DIMS]; /* of the flat inner index, for COLUMN */
    uint32_t chunk_rows;
    uint64_t tile; /* rows, or inner elements, per tile */
    uint32_t tile_count;
    uint32_t block; /* lanes at a time */
    uint32_t phase_count;
    tern_cpu_phase phase[TERN_TAPE_PHASES];
    tern_cpu_access *access;
    uint32_t access_count;
    tern_cpu_insn *insn;
    uint32_t insn_count;
    uint32_t value_count, slot_count, reduce_count;
    uint16_t *slot;         /* per value; TERN_TAPE_NONE: no vector of its own */
    uint16_t *reduce_value; /* per reduction: its value */
    uint8_t *reduce_max;    /* per reduction: maximum, else sum */
    uint32_t *constant;     /* per value: CONST's bits, else 0 */
    double *partial;        /* split: [tile][reduction] */
    size_t scratch_bytes;   /* per thread */
} tern_cpu_nest;

typedef struct tern_cpu_range {
    void *data;
    uint64_t bytes;
} tern_cpu_range;

/* extents: the dispatch's first dim_count words. ranges: the arguments' memory (only overlaps are looked at). epilogue:
 * dims are batch, m, n and stay as they are. *out_nest is freed by nest_destroy. */
TERN_MUST_USE tern_status tern_cpu_nest_create(const tern_cpu_isa *isa, const tern_tape *tape, const uint32_t *extents,
                                               const tern_cpu_range *ranges, bool epilogue, tern_cpu_nest **out_nest);
void tern_cpu_nest_destroy(tern_cpu_nest *nest);

/* The state of one thread inside a nest; lives at the start of the thread's scratch. */
typedef struct tern_cpu_lanes {
    const tern_cpu_nest *nest;
    const tern_cpu_range *tensors;
    uint32_t index[TERN_TAPE_DIMS];
    uint64_t row;  /* flat outer index */
    void **value;  /* per value: its vector or its element */
    uint32_t *one; /* per value: storage of single elements */
    float *slots;
    double *sum;      /* per reduction: the running sum or maximum of this row */
    const float *acc; /* epilogue: the contraction's results at these lanes */
} tern_cpu_lanes;

void tern_cpu_nest_run(const tern_cpu_nest *nest, const tern_cpu_range *tensors, struct tern_cpu_pool *pool);
/* Epilogue: begin once per tile, then one call per run of n <= TERN_BLOCK_MAX results at (batch, m, n0 ..). */
tern_cpu_lanes *tern_cpu_nest_begin(const tern_cpu_nest *nest, const tern_cpu_range *tensors, void *scratch);
void tern_cpu_nest_epilogue(tern_cpu_lanes *s, uint32_t batch, uint32_t m, uint32_t n0, uint32_t n, const float *acc);

/* move.c: conversions between a stored dtype and a register type, `stride` in elements on the memory's side; NULL: no
 * such pair. */
tern_cpu_move tern_cpu_move_load(const tern_cpu_isa *isa, uint32_t dtype, uint32_t type);
tern_cpu_move tern_cpu_move_store(const tern_cpu_isa *isa, uint32_t type, uint32_t dtype);

#endif
