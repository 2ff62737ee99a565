/* SPDX-License-Identifier: Apache-2.0 */
/* build.h - what the builder files of core/graph share: operand checks, words for messages, constants of a shape.
 *
 * Not for other rooms. Invariant: a builder that finds its operands not ready returns at once and adds no node. */
#ifndef TERN_GRAPH_BUILD_H
#define TERN_GRAPH_BUILD_H

#include "core/graph/graph.h"

/* A sentence's piece: `"h.0.attn" (4, 8, 64) f32`. Returned by value so that two fit into one message. */
typedef struct tern_text {
    char text[200];
} tern_text;
tern_text tern_describe(const tern_tensor *x);
tern_text tern_describe_shape(int32_t rank, const int64_t *shape); /* `(4, 8, 64)` */
const char *tern_dtype_name(int32_t dtype);                        /* "f32", or "unknown dtype" */

/* True when all operands are tensors of one healthy graph. Otherwise *out_instead is what the builder returns: the
 * inert node, or NULL when no operand has a graph. */
bool tern_build_ready(const char *op, int32_t count, tern_tensor *const *in, tern_tensor **out_instead);
/* The same for builders that take a graph. */
bool tern_build_open(const char *op, tern_graph *graph);

bool tern_has_shape(const tern_tensor *x, int32_t rank, const int64_t *shape);
bool tern_same_shape(const tern_tensor *a, const tern_tensor *b);
/* 0 .. rank - 1 from a possibly negative axis; records an error and returns false when there is no such axis. */
bool tern_build_axis(const char *op, const tern_tensor *x, int32_t axis, int32_t *out_axis);
/* A leaf whose label is its name, which must be new in the graph. */
tern_tensor *tern_build_leaf(tern_graph *graph, tern_op op, const char *name, int32_t dtype, int32_t rank,
                             const int64_t *shape);

/* ---- 16-bit floats are storage: primitives work on f32, so builders widen their operands and narrow the result */

/* f16 or bf16 in, f32 out; anything else is returned as it is. */
tern_tensor *tern_widen(tern_tensor *x);
/* Widens the 16-bit floats among `in` (NULL allowed) and returns what the result is to be narrowed to: the dtype that
 * all float operands share, constants not counted, else f32. */
int32_t tern_widen_all(int32_t count, tern_tensor **in);
/* To a dtype that tern_widen_all returned, where that is a 16-bit float and y is f32; else y. */
tern_tensor *tern_narrow(tern_tensor *y, int32_t dtype);
/* tern_matmul's product before it is narrowed: always f32. */
tern_tensor *tern_matmul_wide(tern_tensor *a, tern_tensor *b);

tern_tensor *tern_scalar_like(const tern_tensor *x, double value); /* f32 constant expanded to x's shape */
tern_tensor *tern_scale(tern_tensor *x, double factor);            /* x * factor */
/* x broadcast to the shape of `like`, whose dtype may differ. */
tern_tensor *tern_expand_like(tern_tensor *x, const tern_tensor *like);
/* Reads the value of a constant through RESHAPE and EXPAND; false if x is none. */
bool tern_constant_bits(const tern_tensor *x, uint32_t *out_bits);
tern_tensor *tern_slice_all(tern_tensor *x, const int64_t *starts, const int64_t *shape);
tern_tensor *tern_pad_all(tern_tensor *x, const int64_t *before, const int64_t *after);

#endif
