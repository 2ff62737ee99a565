/* SPDX-License-Identifier: Apache-2.0 */
/* instance.h - the programs' own copies of one built graph: for training as it is, for evaluation without what only
 * training does.
 *
 *     built graph ──┬── training ──── every node                                    micro
 *                   └── evaluation ── dropout gone                                  eval
 *
 * What it is not: it takes no gradient, changes no value of a training copy and leaves states to state_shadow.h. The
 * built graph is only read, so that its owner may destroy it. Invariant: leaves keep their names, random tensors their
 * labels, so that both copies find the same weights and a training copy has the bits of the graph it came from. */
#ifndef TERN_PASSES_INSTANCE_H
#define TERN_PASSES_INSTANCE_H

#include "core/graph/graph.h"

/* Copies `in` into the empty graph `out`: outputs and the loss too. out->training false makes an evaluation copy: a
 * node with `in_evaluation` is replaced by that one. Fails with the first error of either graph. */
TERN_MUST_USE tern_status tern_pass_instance(const tern_graph *in, tern_graph *out);

/* Makes losses and their weights 0 for all examples from number TERN_CONTROL_EXAMPLES of the control block on, so that
 * a batch may be given in part: w = (example < given) ? w : 0, loss likewise, example = element / (elements / batch).
 * Selects, not products, so that a NaN in the rest stays out of the sums. Further back the rest's gradient is 0 times
 * a derivative, which may be infinite (log at 0): whoever feeds repeats a given example there, so that the rest is as
 * finite as what was given. TERN_ERROR_INVALID when the loss's first axis is no multiple of the batch. */
TERN_MUST_USE tern_status tern_pass_mask_examples(tern_graph *graph, int64_t batch);

#endif
