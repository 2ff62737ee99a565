/* SPDX-License-Identifier: Apache-2.0 */
/* gradient.h - between the walk (gradient.c) and the rules (gradient_rules.c); nobody else's. */
#ifndef TERN_GRAPH_GRADIENT_H
#define TERN_GRAPH_GRADIENT_H

#include "core/graph/graph.h"

typedef struct tern_backprop tern_backprop;

/* Does input i of y lead to something whose gradient was asked for? A rule builds nothing for those that do not. */
bool tern_backprop_wants(const tern_backprop *walk, const tern_tensor *y, int32_t i);
/* One contribution to the gradient of input i of y; it has that input's shape, and is f32 or has that input's dtype. */
void tern_backprop_give(tern_backprop *walk, const tern_tensor *y, int32_t i, tern_tensor *dx);

/* Appends what y passes on to its inputs, given dy, and gives it to them. */
typedef void (*tern_gradient_rule)(tern_backprop *walk, tern_tensor *y, tern_tensor *dy);
/* One per primitive; NULL where ops.def says that no gradient flows (0) or that there is none (-1). */
extern const tern_gradient_rule tern_gradient_rules[TERN_OP_COUNT];

#endif
