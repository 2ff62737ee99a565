/* SPDX-License-Identifier: Apache-2.0 */
/* store.h - where parameters, gradient accumulators, moments and states live: slabs on a device.
 *
 *     group      segment 0          segment 1                 each segment exists up to four times, as buffers of one
 * size: decay    [ wte | c_attn ... ][ c_fc ... ]               weight, acc (gradient), m and v (moments) plain    [
 * ln_1.weight | bias ... ] frozen   [ ... ]                                        weight only
 *
 * Matrices (rank >= 2) decay, vectors do not, frozen parameters do not train. One launch per segment does the finite
 * test, the norm or the optimizer for all of its tensors; what lies between tensors and after the last one is zero and
 * stays so. Leaves of graphs are found here by name: "<parameter>", "acc.<parameter>", "slab.weight.<i>",
 * "slab.acc.<i>", "slab.m.<i>", "slab.v.<i>", and any other state that a graph declared. What it is not: a layout
 * allocates nothing (it is what `tern plan` shows); a store does no arithmetic. Invariant: a tensor lies in one
 * segment, at a multiple of 64 bytes; a segment is a whole number of chunks. */
#ifndef TERN_TRAIN_STORE_H
#define TERN_TRAIN_STORE_H

#include "core/graph/graph.h"
#include "core/plan/plan.h"

#define TERN_STORE_CHUNK 4096u /* elements; the rows of the norm's first stage */

typedef enum tern_store_group {
    TERN_GROUP_DECAY = 0,
    TERN_GROUP_PLAIN,
    TERN_GROUP_FROZEN,
    TERN_GROUP_COUNT
} tern_store_group;
typedef enum tern_store_slab {
    TERN_SLAB_WEIGHT = 0,
    TERN_SLAB_ACC,
    TERN_SLAB_M,
    TERN_SLAB_V,
    TERN_SLAB_COUNT
} tern_store_slab;
extern const char *const tern_store_slab_names[TERN_SLAB_COUNT]; /* "weight", "acc", "m", "v" */

typedef struct tern_store_parameter {
    char *name;
    int32_t rank;
    int64_t shape[TERN_MAX_RANK];
    int32_t init;
    double scale;
    tern_store_group group;
    uint32_t segment;
    uint64_t offset, bytes; /* in the segment */
} tern_store_parameter;

typedef struct tern_store_segment {
    tern_store_group group;
    uint64_t bytes;
} tern_store_segment;

typedef struct tern_store_state {
    char *name;
    uint64_t offset, bytes; /* in the states' own buffer */
} tern_store_state;

typedef struct tern_store_layout {
    tern_store_parameter *parameters; /* in the graph's order */
    uint32_t parameter_count;
    tern_store_segment *segments; /* sorted by group */
    uint32_t segment_count;
    tern_store_state *states;
    uint32_t state_count, state_capacity;
    uint64_t state_bytes;
    bool training; /* with accumulators and moments */
} tern_store_layout;

/* Lays the graph's parameters out for a device. segment_bytes 0: the smaller of 1 GiB and what one kernel argument may
 * reach. A tensor larger than that has a segment of its own, up to the device's allocation limits; above,
 * TERN_ERROR_UNSUPPORTED naming it. */
TERN_MUST_USE tern_status tern_store_layout_create(const tern_graph *graph, const tern_device_info *info,
                                                   uint64_t segment_bytes, bool training,
                                                   tern_store_layout **out_layout);
void tern_store_layout_destroy(tern_store_layout *layout);
/* Gives a place to every state of the graph that has none. TERN_ERROR_INVALID when a known name has another size, or a
 * parameter is unknown or of another shape (naming both). */
TERN_MUST_USE tern_status tern_store_layout_add(tern_store_layout *layout, const tern_graph *graph);
/* Bytes of one kind of slab; frozen segments count for weights only. */
uint64_t tern_store_layout_bytes(const tern_store_layout *layout, tern_store_slab slab);
/* Elements of all parameters, padding not counted. */
uint64_t tern_store_layout_elements(const tern_store_layout *layout);

typedef struct tern_store tern_store;

/* Allocates all of it (zero) and writes the initial weights: standard normal numbers are Box-Muller over Philox keyed
 * by (seed, parameter's name), so that they depend on nothing else. The layout must outlive the store. */
TERN_MUST_USE tern_status tern_store_create(tern_device *device, const tern_store_layout *layout, uint64_t seed,
                                            tern_store **out_store);
void tern_store_destroy(tern_store *store);
const tern_store_layout *tern_store_get_layout(const tern_store *store);
/* Range of a leaf. TERN_ERROR_NOT_FOUND naming it. */
TERN_MUST_USE tern_status tern_store_find(const tern_store *store, const char *name, tern_binding *out_binding);
/* Bindings for all parameters and states of the graph; free() the array. Their names belong to the graph. */
TERN_MUST_USE tern_status tern_store_bind(const tern_store *store, const tern_graph *graph, tern_binding **out_bindings,
                                          uint32_t *out_count);
/* Blocking transfers of a whole leaf (bytes: exactly its size). For set-up, tests and checkpoints. */
TERN_MUST_USE tern_status tern_store_read(const tern_store *store, const char *name, void *out_data, uint64_t bytes);
TERN_MUST_USE tern_status tern_store_write(tern_store *store, const char *name, const void *data, uint64_t bytes);

/* A parameter's initial values, `count` of them (init.c). */
void tern_store_initial(const tern_store_parameter *parameter, uint64_t seed, float *out, uint64_t count);

#endif
