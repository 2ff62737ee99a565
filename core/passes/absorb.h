/* SPDX-License-Identifier: Apache-2.0 */
/* absorb.h - chains of sums behind contractions: where a result may go on into the next op without being stored.
 *
 *     matmul ── + bias ── dropout ── + residual ── ...        one kernel, one tensor written: the last one's
 *
 * Read by the save rule (the end of a chain is what is kept) and by autocast (it is what is rounded). */
#ifndef TERN_PASSES_ABSORB_H
#define TERN_PASSES_ABSORB_H

#include "core/graph/graph.h"

/* How often nodes and outputs read each node; SECOND does not count: it reads the other output. out_readers: node_count
 * entries. */
void tern_count_readers(const tern_graph *graph, uint32_t *out_readers);
/* Neither y's gradient nor anything after it reads operand i or y itself because of y: the value may move on into y. */
bool tern_absorbs(const tern_tensor *y, int32_t i);
/* x holds a contraction's result that nothing else holds, given `carries` of its inputs. */
bool tern_carries(const tern_tensor *x, const uint32_t *readers, const bool *carries);

#endif
