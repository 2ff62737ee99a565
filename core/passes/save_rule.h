/* SPDX-License-Identifier: Apache-2.0 */
/* save_rule.h - decides which forward values live on for the backward pass; the rest is rebuilt where it is needed.
 *
 *     forward   x ── norm ── gelu ── matmul          x ── norm ── gelu ── matmul
 *               │     │       │                      │
 *     backward  d  <─ d   <── d        becomes       └──> norm' ── gelu' (clones, marked BACKWARD) ──> d ...
 *
 * It decides what may be kept, not where: the fuser puts the clones into the kernels that read them. */
#ifndef TERN_PASSES_SAVE_RULE_H
#define TERN_PASSES_SAVE_RULE_H

#include "core/graph/graph.h"

/* A new graph, equal in every value, in which a BACKWARD or UPDATE node reads a FORWARD node only if that one is kept:
 *
 *   leaves             they are there anyway
 *   contractions       and their SECOND outputs: dear to compute again
 *   SUM, MAXIMUM       per-row statistics: small, and to rebuild one needs a whole pass over its input
 *   ASSIGN             a new version must not be written twice
 *   named outputs      they stay in memory anyway
 *   junctions          elementwise values that the forward pass stores anyway (junction.h)
 *   absorbing sums     an ADD, SUB, NEG, WHERE, MUL or DIV by something without gradient, or a cast to 16 bits, that is
 * the only reader of a contraction (or of such a node). No gradient reads what it absorbed, so keeping its result
 * instead costs nothing: a matmul's epilogue (bias, dropout, residual, rounding) writes the one tensor that is kept.
 *
 * Everything else is cloned from kept nodes, just before its first reader, at most once. Clones have the op, attributes
 * and label of the original, so RANDOM gives the same bits. `in` is unchanged; the caller destroys *out_graph. */
TERN_MUST_USE tern_status tern_pass_save_rule(const tern_graph *in, tern_graph **out_graph);

#endif
