/* SPDX-License-Identifier: Apache-2.0 */
/* state_shadow.h - state tensors of a model (running statistics, averages) obey the step's skip.
 *
 *     micro    x := f(x)   becomes   shadow.x := f(shadow.x)      reads within the window see the shadow
 *     update   x := ok ? shadow.x : x;  shadow.x := x             train/update.c; a skipped window leaves no trace
 *     eval     x := f(x)   becomes   f(x)                         an evaluation changes nothing
 *
 * Invariant: between windows shadow.x == x bit for bit.
 * What it is not: it does not touch the step's own states, which are made later. */
#ifndef TERN_PASSES_STATE_SHADOW_H
#define TERN_PASSES_STATE_SHADOW_H

#include "core/graph/graph.h"

#define TERN_SHADOW_PREFIX "shadow."

/* A new graph in which every STATE that is assigned is named "shadow.<name>" instead; `in` is a loss graph, before
 * accumulation, and unchanged. TERN_ERROR_INVALID naming a parameter that is assigned, since nothing could take that
 * back, and a state whose bytes are no whole number of 32-bit words. */
TERN_MUST_USE tern_status tern_pass_state_shadow(const tern_graph *in, tern_graph **out_graph);
/* A new graph without assigns: who read a new version reads the value it was given. */
TERN_MUST_USE tern_status tern_pass_state_freeze(const tern_graph *in, tern_graph **out_graph);

#endif
