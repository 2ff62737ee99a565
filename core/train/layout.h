/* SPDX-License-Identifier: Apache-2.0 */
/* layout.h - which parameter lies where: groups, segments, and the slabs that each segment exists as.
 *
 *     group 0: lr 1, decay 0.1     segment 0 [ wte | c_attn ... ]  segment 1 [ c_fc ... ]
 *     group 1: lr 1, decay 0       segment 2 [ ln_1.weight | bias ... ]
 *     group 2: frozen              segment 3 [ ... ]
 *
 *     slab     leaf of p     element                       exists for
 *     weight   p             f32                           all, unless there are no masters
 *     low      low.p         f16, bf16: weights rounded    all, when options.low is set
 *     acc      acc.p         f32: gradient sums            trainable segments of a training store, as all below
 *     m, v     m.p, v.p      f32, or u8 codes              kinds that have such a moment
 *     m_scale  m_scale.p     f32 per block of 256          moments in codes, as v_scale
 *
 * A slab of segment i is also one leaf, "slab.<slab>.<i>", which the update program works on: one launch does the
 * finite test, the norm or the optimizer for all of its tensors. What lies between tensors and after the last one is
 * zero and stays so. Kinds that reduce over whole parameters (tern_optimizer_info.per_parameter) have one segment for
 * each.
 *
 * What it is not: it allocates nothing (store.h does); it is what `tern plan` shows. Invariant: a tensor lies in one
 * segment, at a multiple of 256 elements, so that no block of codes belongs to two tensors; a segment is a whole number
 * of chunks; segments are sorted by group, frozen ones last. */
#ifndef TERN_TRAIN_LAYOUT_H
#define TERN_TRAIN_LAYOUT_H

#include "core/base/dtype.h"
#include "core/device/device.h"
#include "core/train/groups.h"

#define TERN_STORE_CHUNK 4096u /* elements; the rows of the norm's first stage */
#define TERN_STORE_BLOCK 256u  /* elements that share one scale, and every tensor's alignment */

typedef enum tern_store_slab {
    TERN_SLAB_WEIGHT = 0,
    TERN_SLAB_LOW,
    TERN_SLAB_ACC,
    TERN_SLAB_M,
    TERN_SLAB_V,
    TERN_SLAB_M_SCALE,
    TERN_SLAB_V_SCALE,
    TERN_SLAB_COUNT
} tern_store_slab;
extern const char *const tern_store_slab_names[TERN_SLAB_COUNT]; /* "weight", "low", "acc", ... */

typedef struct tern_store_options {
    uint64_t segment_bytes; /* of f32; 0: the smaller of 1 GiB and what one kernel argument may reach */
    bool training;          /* with accumulators and moments */
    int32_t low;            /* TERN_F16 or TERN_BF16: with a 16-bit copy of the weights; 0: without */
    bool no_masters;        /* the 16-bit copy is all there is */
    tern_optimizer optimizer;
    const tern_parameter_group *groups; /* first match wins; needed during the call only */
    uint32_t group_count;
} tern_store_options;

typedef struct tern_store_parameter {
    char *name;
    int32_t rank;
    int64_t shape[TERN_MAX_RANK];
    int32_t init;
    double scale;
    uint32_t group, segment;
    uint64_t first; /* element of the segment */
    uint64_t count; /* elements */
    uint64_t bytes; /* as f32, whatever it is stored as */
} tern_store_parameter;

typedef struct tern_store_segment {
    uint32_t group, parameter; /* parameter: the first */
    uint64_t elements;
    uint32_t moments; /* TERN_MOMENT_* */
    bool trainable;
} tern_store_segment;

typedef struct tern_store_state {
    char *name;
    uint64_t offset, bytes; /* in the states' own buffer */
} tern_store_state;

typedef struct tern_store_layout {
    tern_store_options options;
    tern_group_rule *groups; /* distinct ones; frozen last */
    uint32_t group_count;
    tern_store_parameter *parameters; /* in the graph's order */
    uint32_t parameter_count;
    tern_store_segment *segments; /* sorted by group */
    uint32_t segment_count, segment_capacity;
    tern_store_state *states;
    uint32_t state_count, state_capacity;
    uint64_t state_bytes;
} tern_store_layout;

/* Lays the graph's parameters out for a device. A tensor larger than segment_bytes has a segment of its own, up to the
 * device's allocation limits; above, TERN_ERROR_UNSUPPORTED naming it. TERN_ERROR_INVALID for options that contradict
 * each other. */
TERN_MUST_USE tern_status tern_store_layout_create(const tern_graph *graph, const tern_device_info *info,
                                                   const tern_store_options *options, tern_store_layout **out_layout);
void tern_store_layout_destroy(tern_store_layout *layout);
/* Gives a place to every state of the graph that has none. TERN_ERROR_INVALID when a known name has another size, a
 * parameter is unknown or of another shape (naming both), or a leaf belongs to a slab that does not exist. */
TERN_MUST_USE tern_status tern_store_layout_add(tern_store_layout *layout, const tern_graph *graph);

bool tern_store_layout_has(const tern_store_layout *layout, uint32_t segment, tern_store_slab slab);
/* Of the slab's elements; codes and scales count as such. */
int32_t tern_store_layout_dtype(const tern_store_layout *layout, tern_store_slab slab);
/* Elements of a segment's slab, 0 where it does not exist: one per parameter's element, scales one per block. */
uint64_t tern_store_layout_count(const tern_store_layout *layout, uint32_t segment, tern_store_slab slab);
/* Bytes of one kind of slab over all segments. */
uint64_t tern_store_layout_bytes(const tern_store_layout *layout, tern_store_slab slab);
/* Elements of all parameters, padding not counted. */
uint64_t tern_store_layout_elements(const tern_store_layout *layout);
/* The slab and parameter of a leaf ("p", "acc.p", "m_scale.p"); false: no parameter's leaf. The slab may not exist. */
bool tern_store_layout_leaf(const tern_store_layout *layout, const char *name, tern_store_slab *out_slab,
                            uint32_t *out_parameter);
/* The leaf "slab.<slab>.<segment>" in a graph, made on first use. */
tern_tensor *tern_store_layout_tensor(const tern_store_layout *layout, tern_graph *graph, uint32_t segment,
                                      tern_store_slab slab);

#endif
