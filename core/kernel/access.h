/* SPDX-License-Identifier: Apache-2.0 */
/* access.h - where a kernel's loop indices land in a tensor, carried backward through views.
 *
 * A kernel iterates over a space of dims (outer ones first). An access maps the indices to a row-major element number
 * of a node:  element = offset + sum of stride[d] * index[d], valid where every mask holds. Views then cost no copy:
 * going from a view to its input only rewrites the access. A RESHAPE keeps it as it is; the other views need the
 * coordinates of each axis, for which a dim that spans an axis boundary must be split, (T C) into (T, C): the caller
 * splits the space and starts again.
 *
 * Invariant: for every index that no mask excludes, 0 <= element < count of the node. */
#ifndef TERN_KERNEL_ACCESS_H
#define TERN_KERNEL_ACCESS_H

#include "core/graph/graph.h"
#include "core/kernel/tape.h"

#define TERN_SPACE_DIMS 12 /* while tracing; at most TERN_TAPE_DIMS remain after merging */

typedef struct tern_space {
    uint32_t dim_count, outer_count;
    int64_t extent[TERN_SPACE_DIMS];
} tern_space;

typedef struct tern_affine {
    int64_t offset;
    int64_t coef[TERN_SPACE_DIMS];
} tern_affine;

typedef struct tern_access_mask {
    tern_affine value; /* 0 <= value < size */
    int64_t size;
} tern_access_mask;

typedef struct tern_access {
    tern_affine element;
    uint32_t mask_count;
    tern_access_mask mask[TERN_TAPE_MASKS];
} tern_access;

typedef enum tern_access_result {
    TERN_ACCESS_OK = 0,
    TERN_ACCESS_SPLIT, /* split dim `dim` so that its inner part has extent `inner`, then start again */
    TERN_ACCESS_ZERO,  /* every index falls into padding: the value is 0 */
    TERN_ACCESS_NONE   /* not expressible: the view's input has to be stored first */
} tern_access_result;

typedef struct tern_split {
    uint32_t dim;
    int64_t inner;
} tern_split;

/* Row-major over all dims of the space: the access of a tensor that has the space's shape. */
void tern_access_full(const tern_space *space, tern_access *out_access);
/* Row-major over dims [first, first + count) of the space, 0 elsewhere. */
void tern_access_part(const tern_space *space, uint32_t first, uint32_t count, tern_access *out_access);
bool tern_access_equal(const tern_access *a, const tern_access *b);

/* Coordinates of each axis of a tensor of this shape. */
tern_access_result tern_access_coordinates(const tern_space *space, int32_t rank, const int64_t *shape,
                                           const tern_access *access, tern_affine *out_coordinates,
                                           tern_split *out_split);
/* Element number from coordinates (masks are left alone). */
void tern_access_linear(int32_t rank, const int64_t *shape, const tern_affine *coordinates, tern_affine *out_element);
/* From an access of the view node to one of its input. */
tern_access_result tern_access_through(const tern_space *space, const tern_tensor *view, const tern_access *access,
                                       tern_access *out_access, tern_split *out_split);

/* Splits a dim in two; false when TERN_SPACE_DIMS would be exceeded. */
bool tern_space_split(tern_space *space, tern_split split);
int64_t tern_space_count(const tern_space *space, uint32_t first, uint32_t end);
/* The lowest and highest element that unmasked indices reach (ignoring masks). */
void tern_access_range(const tern_space *space, const tern_affine *element, int64_t *out_low, int64_t *out_high);

#endif
