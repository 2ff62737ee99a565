/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer_build.h - what the optimizers' files share: one segment's leaves, its gradient, and how results are stored.
 *
 * Not for other rooms. A build function reads with the functions below and ends each slab with tern_segment_store,
 * which is where the skip lives: no kind can forget it. */
#ifndef TERN_TRAIN_OPTIMIZER_BUILD_H
#define TERN_TRAIN_OPTIMIZER_BUILD_H

#include "core/train/optimizer.h"

typedef struct tern_segment_build {
    tern_graph *graph;
    const tern_store_layout *layout;
    const tern_optimizer *optimizer;
    tern_tensor *scalars; /* (TERN_SCALAR_COUNT), assigned */
    uint32_t segment;
    tern_tensor *ok; /* u32 (1) */
    tern_tensor *g;  /* the clipped mean gradient, (elements) */
} tern_segment_build;

tern_tensor *tern_segment_slab(const tern_segment_build *b, tern_store_slab slab);
tern_tensor *tern_segment_scalar(const tern_segment_build *b, int64_t which);
tern_tensor *tern_segment_number(const tern_segment_build *b, double value);
/* The decay of this segment's group; 0: none. */
double tern_segment_decay(const tern_segment_build *b);
/* slab := ok ? value : slab */
void tern_segment_store(const tern_segment_build *b, tern_store_slab slab, tern_tensor *value);

void tern_optimizer_build_adamw(const tern_segment_build *b);

#endif
