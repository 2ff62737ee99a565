/* SPDX-License-Identifier: Apache-2.0 */
/* store.h - where parameters, gradient accumulators, moments and states live: a layout's slabs on a device.
 *
 *     layout ──> one buffer per segment and slab, one for all states ──> bindings of any graph, by leaf name
 *
 * What it is not: it does no arithmetic; what lies where is the layout's (layout.h). Invariant: where there is a 16-bit
 * copy of the weights beside masters, it is the masters rounded; every way of writing a parameter keeps it so. */
#ifndef TERN_TRAIN_STORE_H
#define TERN_TRAIN_STORE_H

#include "core/plan/plan.h"
#include "core/train/layout.h"

typedef struct tern_store tern_store;

/* Allocates all of it (zero) and writes the initial weights: standard normal numbers are Box-Muller over Philox keyed
 * by (seed, parameter's name), so that they depend on nothing else. The layout must outlive the store. */
TERN_MUST_USE tern_status tern_store_create(tern_device *device, const tern_store_layout *layout, uint64_t seed,
                                            tern_store **out_store);
void tern_store_destroy(tern_store *store);
const tern_store_layout *tern_store_get_layout(const tern_store *store);
/* Device bytes that it allocated. */
uint64_t tern_store_bytes(const tern_store *store);
/* Range of a leaf, as it is stored. TERN_ERROR_NOT_FOUND naming it. */
TERN_MUST_USE tern_status tern_store_find(const tern_store *store, const char *name, tern_binding *out_binding);
/* Bindings for all parameters and states of the graph; free() the array. Their names belong to the graph. */
TERN_MUST_USE tern_status tern_store_bind(const tern_store *store, const tern_graph *graph, tern_binding **out_bindings,
                                          uint32_t *out_count);
/* Blocking transfers of a whole leaf (bytes: exactly its size). For set-up, tests and checkpoints. A parameter under
 * its own name is f32: without masters it is read widened and written rounded to nearest; writing it also writes its
 * 16-bit copy. */
TERN_MUST_USE tern_status tern_store_read(const tern_store *store, const char *name, void *out_data, uint64_t bytes);
TERN_MUST_USE tern_status tern_store_write(tern_store *store, const char *name, const void *data, uint64_t bytes);

/* A parameter's initial values, `count` of them (init.c). */
void tern_store_initial(const tern_store_parameter *parameter, uint64_t seed, float *out, uint64_t count);

#endif
