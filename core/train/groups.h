/* SPDX-License-Identifier: Apache-2.0 */
/* groups.h - parameter groups by name: who learns faster, who decays, who is frozen.
 *
 *     {"*.h.0.*", lr=0.1} {"*.bias", frozen} ...      the first pattern that matches a name decides
 *     no pattern: lr 1, trained; rank >= 2 decays by the optimizer's number, vectors do not
 *
 * What it is not: it lays nothing out (layout.h turns rules into groups of segments).
 * Invariant: frozen parameters are marked in the graph before its backward pass is made, so that they have no gradient
 * anywhere. */
#ifndef TERN_TRAIN_GROUPS_H
#define TERN_TRAIN_GROUPS_H

#include "core/graph/graph.h"
#include "core/train/optimizer.h"

#define TERN_PATTERN_BYTES 128

typedef struct tern_parameter_group {
    char pattern[TERN_PATTERN_BYTES]; /* '*': any characters, '?': one; the whole name must match */
    double lr_scale;                  /* factor on the learning rate, [0, 1e6] */
    double weight_decay;              /* [0, 1e6]; NaN: the default rule */
    int32_t kind; /* with muon only: TERN_OPTIMIZER_MUON (matrices) or _ADAMW; -1: the default rule */
    bool frozen;
} tern_parameter_group;

/* What the rules say about one parameter. */
typedef struct tern_group_rule {
    int32_t kind; /* tern_optimizer_kind */
    double lr_scale, weight_decay;
    bool frozen;
} tern_group_rule;

/* Everything by default for this pattern. */
void tern_parameter_group_init(tern_parameter_group *out_group, const char *pattern);
/* From text "PATTERN:lr=0.1,decay=0,frozen" (each part optional; also "adamw" and "muon"). The sentence of an error
 * quotes the text. */
TERN_MUST_USE tern_status tern_parameter_group_parse(const char *text, tern_parameter_group *out_group);
/* From "RULE;RULE;...", blanks around rules and empty ones allowed; NULL: none. free() the array. */
TERN_MUST_USE tern_status tern_parameter_groups_parse(const char *text, tern_parameter_group **out_groups,
                                                      uint32_t *out_count);
bool tern_pattern_matches(const char *pattern, const char *name);

/* Checks the groups' numbers, freezes the graph's parameters that they name. Before the backward pass.
 * TERN_ERROR_INVALID when a pattern matches no parameter, naming it and the names nearest to it. */
TERN_MUST_USE tern_status tern_groups_apply(const tern_parameter_group *groups, uint32_t count, tern_graph *graph);

/* hidden: not an embedding and not the last layer (tern_groups_hidden), where muon works by default. */
void tern_groups_rule(const tern_parameter_group *groups, uint32_t count, const tern_optimizer *optimizer,
                      const tern_tensor *parameter, bool hidden, tern_group_rule *out_rule);
/* out_hidden, one per node: the parameters of rank >= 2 that a matmul multiplies by, that no GATHER reads as a table
 * and that are not the operand of the matmuls nearest to the loss. */
TERN_MUST_USE tern_status tern_groups_hidden(const tern_graph *graph, bool *out_hidden);

#endif
