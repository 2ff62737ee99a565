/* SPDX-License-Identifier: Apache-2.0 */
/* accumulate.h - turns a loss graph into the micro program's: forward, backward and the sums over a window.
 *
 *     seed  = weight * S                     d (S sum w loss) / d loss
 *     acc.p = acc.p + part                   once per contribution, in order; a tied parameter has several
 *     n     = n + sum w        loss = loss + sum w loss
 *
 * What it is not: it does not divide by n, unscale or clip; the update does, once per window (train/update.h).
 * Invariant: an all-masked micro-batch adds zero to everything. */
#ifndef TERN_PASSES_ACCUMULATE_H
#define TERN_PASSES_ACCUMULATE_H

#include "core/graph/graph.h"

/* States that the micro and the update program share; all (1), f32 unless said otherwise. */
#define TERN_STATE_N     "step.n"
#define TERN_STATE_LOSS  "step.loss"
#define TERN_STATE_SCALE "step.scale"

/* sum w and sum w loss, both (1), of a graph with a loss. TERN_ERROR_INVALID when it has none. */
TERN_MUST_USE tern_status tern_pass_loss_sums(tern_graph *graph, tern_tensor **out_n, tern_tensor **out_loss);
/* Appends all of it. Accumulators are states "acc.<parameter>" of the parameter's shape. TERN_ERROR_INVALID when no
 * trainable parameter is reached by the loss. */
TERN_MUST_USE tern_status tern_pass_accumulate(tern_graph *graph);

/* The same, measured instead of accumulated: no state is written. Outputs, each (1) f32: n = sum w; loss = sum w loss;
 * square = the sum over all trainable parameters of (gradient / S)^2. scaled false: S is 1, and the scale's state is
 * not read. For calibration (train/step.h). */
#define TERN_PROBE_N      "probe.n"
#define TERN_PROBE_LOSS   "probe.loss"
#define TERN_PROBE_SQUARE "probe.square"
TERN_MUST_USE tern_status tern_pass_probe(tern_graph *graph, bool scaled);

#endif
