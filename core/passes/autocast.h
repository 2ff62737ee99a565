/* SPDX-License-Identifier: Apache-2.0 */
/* autocast.h - a graph written in f32 becomes one that multiplies and stores 16-bit floats.
 *
 *     f32        x ── norm ── matmul(W) ── + b ── gelu ── matmul(V) ── + x ── norm ...
 *     autocast   x' ─ norm ─c matmul(cW) ─ + b ─c gelu ─c matmul(cV) ─ + x'─c norm ...      c: CAST to 16 bits
 *
 * What becomes 16-bit is what lies in memory: the operands of contractions, which accumulate in f32, and the results
 * that are stored, each where its chain of sums ends (bias, dropout, residual), hence the residual stream. What
 * computes stays f32 and reads them through widening casts, which cost nothing: reductions, softmax, norms, losses, all
 * that is elementwise. One table says which op is which.
 *
 * What it is not: it changes no gradient rule (accumulate.h comes after it), no shape and no label, and it decides no
 * buffer; the 16-bit values are rounded whether they are stored or not.
 *
 * Source: Micikevicius et al., "Mixed Precision Training", 2018. */
#ifndef TERN_PASSES_AUTOCAST_H
#define TERN_PASSES_AUTOCAST_H

#include "core/graph/graph.h"

/* What an op's operands and result are under autocast. */
typedef enum tern_autocast_policy {
    TERN_AUTOCAST_F32 = 0, /* f32: the default, whatever an op is not listed as */
    TERN_AUTOCAST_LOW,     /* a contraction: 16-bit operands, sums in f32 */
    TERN_AUTOCAST_FOLLOW   /* moves elements: of the dtype in which what it reads is stored */
} tern_autocast_policy;
tern_autocast_policy tern_autocast_policy_of(tern_op op);

/* A new graph with `in`'s values, rounded to dtype (TERN_F16 or TERN_BF16) where the picture says so. `in` is a forward
 * graph of f32 floats (16-bit inputs are welcome), unchanged; the caller destroys *out_graph.
 *
 * A parameter that a contraction reads becomes CAST(parameter), read through its views; other reads of it stay f32.
 * Left in f32: tensors of tern_keep_f32 and everything that is read of them, named outputs, the loss, and what is
 * assigned. TERN_ERROR_INVALID for another dtype. */
TERN_MUST_USE tern_status tern_pass_autocast(const tern_graph *in, int32_t dtype, tern_graph **out_graph);

/* A new graph that reads its weights in 16 bits: each CAST of a parameter to dtype is the STATE "low.<parameter>" of
 * that dtype and the parameter's shape, which the optimizer writes beside the f32 masters. masters false: there are
 * none, so every other read of a parameter is the widened "low.<parameter>". For the graph after accumulation, or a
 * forward graph that needs no gradient. TERN_ERROR_INVALID for another dtype, TERN_ERROR_UNSUPPORTED for a parameter
 * that is to be kept in f32 without masters. */
#define TERN_LOW_PREFIX "low."
TERN_MUST_USE tern_status tern_pass_low_weights(const tern_graph *in, int32_t dtype, bool masters,
                                                tern_graph **out_graph);

#endif
