/* SPDX-License-Identifier: Apache-2.0 */
/* junction.h - which elementwise results are worth a buffer although nothing forces one.
 *
 * A junction is an elementwise value fed by a contraction or gather that several unrelated consumers read: the residual
 * stream (layer norm and the next addition), a projection's biased result that is split into q, k and v. Recomputing it
 * in each consumer would drag the whole chain of contractions behind it along; storing it once, in the contraction's
 * epilogue, is one write. Not a junction: a value whose uses all meet again in one elementwise result (x inside
 * gelu(x)), which stays in registers. Read by the save rule (a stored forward value is free to keep) and by the fuser.
 */
#ifndef TERN_PASSES_JUNCTION_H
#define TERN_PASSES_JUNCTION_H

#include "core/graph/graph.h"

/* out_junction: node_count flags. Only uses within a node's own pass count. TERN_ERROR_MEMORY on failure. */
TERN_MUST_USE tern_status tern_junctions(const tern_graph *graph, bool *out_junction);

#endif
