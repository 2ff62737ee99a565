/* SPDX-License-Identifier: Apache-2.0 */
/* groups.c - patterns, the text form of a group, and what the rules say about a parameter; groups.h has the rules. */
#include "core/train/groups.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tern_parameter_group_init(tern_parameter_group *out_group, const char *pattern)
{
    *out_group = (tern_parameter_group){.lr_scale = 1, .weight_decay = NAN, .kind = -1};
    snprintf(out_group->pattern, sizeof out_group->pattern, "%s", pattern);
}

/* ------------------------------------------------------------------ patterns */

/* One star is remembered: a later one makes going back to an earlier one needless. */
bool tern_pattern_matches(const char *pattern, const char *name)
{
    const char *star = NULL, *again = NULL;
    while (*name) {
        if (*pattern == '*') {
            star = pattern++;
            again = name;
        } else if (*pattern == '?' || *pattern == *name) {
            pattern++;
            name++;
        } else if (star) {
            pattern = star + 1;
            name = ++again;
        } else {
            return false;
        }
    }
    while (*pattern == '*') pattern++;
    return *pattern == '\0';
}

/* Levenshtein's distance with '*' free, over names cut to the pattern's buffer. */
static uint32_t distance(const char *pattern, const char *name)
{
    uint32_t row[TERN_PATTERN_BYTES + 1];
    const size_t columns = strnlen(name, TERN_PATTERN_BYTES);
    for (size_t j = 0; j <= columns; j++) row[j] = (uint32_t)j;
    for (const char *p = pattern; *p; p++) {
        uint32_t diagonal = row[0];
        const bool star = *p == '*';
        row[0] += star ? 0 : 1;
        for (size_t j = 1; j <= columns; j++) {
            const uint32_t insert = row[j - 1] + (star ? 0 : 1), skip = row[j] + (star ? 0 : 1);
            const uint32_t replace = diagonal + (star || *p == '?' || *p == name[j - 1] ? 0 : 1);
            diagonal = row[j];
            row[j] = insert < skip ? insert : skip;
            if (replace < row[j]) row[j] = replace;
        }
    }
    return row[columns];
}

static tern_status no_match(const char *pattern, const tern_graph *graph)
{
    enum { SHOWN = 3 };
    const char *best[SHOWN] = {"", "", ""};
    uint32_t far[SHOWN] = {UINT32_MAX, UINT32_MAX, UINT32_MAX};
    for (uint32_t i = 0; i < graph->node_count; i++) {
        if (graph->nodes[i]->op != TERN_OP_PARAMETER) continue;
        const char *name = graph->nodes[i]->label;
        uint32_t d = distance(pattern, name);
        for (int k = 0; k < SHOWN; k++) {
            if (d >= far[k]) continue;
            const uint32_t next = far[k];
            const char *pushed = best[k];
            far[k] = d;
            best[k] = name;
            d = next;
            name = pushed;
        }
    }
    return tern_error(TERN_ERROR_INVALID, "no parameter matches \"%s\"; the nearest are \"%s\"%s%s%s%s%s%s", pattern,
                      best[0], best[1][0] ? ", \"" : "", best[1], best[1][0] ? "\"" : "", best[2][0] ? ", \"" : "",
                      best[2], best[2][0] ? "\"" : "");
}

/* ---------------------------------------------------------------------- text */

static bool number_after(const char *part, const char *key, double *out)
{
    char *end;
    const size_t length = strlen(key);
    if (strncmp(part, key, length) != 0) return false;
    *out = strtod(part + length, &end);
    return end != part + length && *end == '\0';
}

static bool parse_part(const char *part, tern_parameter_group *group)
{
    tern_optimizer_kind kind;
    if (number_after(part, "lr=", &group->lr_scale) || number_after(part, "decay=", &group->weight_decay)) return true;
    if (strcmp(part, "frozen") == 0) {
        group->frozen = true;
        return true;
    }
    if (tern_optimizer_parse(part, &kind) < 0) return false;
    group->kind = (int32_t)kind;
    return true;
}

static tern_status check_group(const tern_parameter_group *g)
{
    if (!(g->lr_scale >= 0 && g->lr_scale <= 1e6))
        return tern_error(TERN_ERROR_INVALID,
                          "group \"%s\": the factor of the learning rate is %g; it must lie in "
                          "[0, 1e6]",
                          g->pattern, g->lr_scale);
    if (!isnan(g->weight_decay) && !(g->weight_decay >= 0 && g->weight_decay <= 1e6))
        return tern_error(TERN_ERROR_INVALID, "group \"%s\": weight decay is %g; it must lie in [0, 1e6]", g->pattern,
                          g->weight_decay);
    return TERN_OK;
}

tern_status tern_parameter_group_parse(const char *text, tern_parameter_group *out_group)
{
    char copy[2 * TERN_PATTERN_BYTES];
    const char *colon = strchr(text, ':');
    const size_t length = colon ? (size_t)(colon - text) : strlen(text);
    if (length == 0 || length >= TERN_PATTERN_BYTES || strlen(text) >= sizeof copy)
        return tern_error(TERN_ERROR_INVALID, "group \"%s\": a name pattern of 1 to %d characters must come first",
                          text, TERN_PATTERN_BYTES - 1);
    strcpy(copy, text);
    copy[length] = '\0';
    tern_parameter_group_init(out_group, copy);
    for (char *part = colon ? copy + length + 1 : NULL, *next; part; part = next) {
        next = strchr(part, ',');
        if (next) *next++ = '\0';
        if (!parse_part(part, out_group))
            return tern_error(TERN_ERROR_INVALID,
                              "group \"%s\": \"%s\" is not understood; parts are lr=X, decay=X, frozen, muon, adamw",
                              text, part);
    }
    return check_group(out_group);
}

tern_status tern_parameter_groups_parse(const char *text, tern_parameter_group **out_groups, uint32_t *out_count)
{
    tern_status status = TERN_OK;
    uint32_t most = 1;
    char *rest = NULL, *copy = NULL;
    tern_parameter_group *groups = NULL;
    for (const char *c = text; c && *c; c++) most += *c == ';';
    *out_groups = NULL;
    *out_count = 0;
    if (!text) return TERN_OK;
    copy = strdup(text);
    groups = calloc(most, sizeof *groups);
    if (!copy || !groups) {
        status = tern_error_memory("the parameter groups", most * sizeof *groups);
        goto fail;
    }
    for (char *rule = strtok_r(copy, ";", &rest); rule; rule = strtok_r(NULL, ";", &rest)) {
        rule += strspn(rule, " \t\n");
        for (size_t end = strlen(rule); end > 0 && strchr(" \t\n", rule[end - 1]); end--) rule[end - 1] = 0;
        if (rule[0]) TERN_TRY(tern_parameter_group_parse(rule, &groups[(*out_count)++]));
    }
    *out_groups = groups;
    groups = NULL;
fail:
    free(groups);
    free(copy);
    return status;
}

/* --------------------------------------------------------------------- rules */

static const tern_parameter_group *first_match(const tern_parameter_group *groups, uint32_t count, const char *name)
{
    for (uint32_t i = 0; i < count; i++)
        if (tern_pattern_matches(groups[i].pattern, name)) return &groups[i];
    return NULL;
}

static bool matches_any(const tern_parameter_group *group, const tern_graph *graph)
{
    for (uint32_t i = 0; i < graph->node_count; i++)
        if (graph->nodes[i]->op == TERN_OP_PARAMETER && tern_pattern_matches(group->pattern, graph->nodes[i]->label))
            return true;
    return false;
}

tern_status tern_groups_apply(const tern_parameter_group *groups, uint32_t count, tern_graph *graph)
{
    for (uint32_t i = 0; i < count; i++) {
        const tern_status status = check_group(&groups[i]);
        if (status < 0) return status;
        if (!matches_any(&groups[i], graph)) return no_match(groups[i].pattern, graph);
    }
    for (uint32_t i = 0; i < graph->node_count; i++) {
        tern_tensor *node = graph->nodes[i];
        if (node->op != TERN_OP_PARAMETER) continue;
        const tern_parameter_group *group = first_match(groups, count, node->label);
        if (group && group->frozen) tern_parameter_freeze(node);
    }
    return TERN_OK;
}

void tern_groups_rule(const tern_parameter_group *groups, uint32_t count, const tern_optimizer *optimizer,
                      const tern_tensor *parameter, bool hidden, tern_group_rule *out_rule)
{
    const tern_parameter_group *group = first_match(groups, count, parameter->label);
    tern_group_rule rule = {.kind = optimizer->kind,
                            .lr_scale = 1,
                            .weight_decay = parameter->rank >= 2 ? optimizer->weight_decay : 0,
                            .frozen = !parameter->at.parameter.trainable || (group && group->frozen)};
    const bool muon = parameter->rank >= 2 && (group && group->kind >= 0 ? group->kind == TERN_OPTIMIZER_MUON : hidden);
    if (optimizer->kind == TERN_OPTIMIZER_MUON && !muon) rule.kind = TERN_OPTIMIZER_ADAMW;
    if (group) {
        rule.lr_scale = group->lr_scale;
        if (!isnan(group->weight_decay)) rule.weight_decay = group->weight_decay;
    }
    if (rule.frozen) rule = (tern_group_rule){.frozen = true};
    *out_rule = rule;
}

/* ------------------------------------------------------------ hidden matrices */

static const tern_tensor *parameter_below(const tern_tensor *x)
{
    while (tern_ops[x->op].kind == TERN_KIND_VIEW || x->op == TERN_OP_CAST || x->op == TERN_OP_DETACH) x = x->in[0];
    return x->op == TERN_OP_PARAMETER ? x : NULL;
}

/* What lies between the loss and the contractions nearest to it: their parameters are the last layer. */
static tern_status exclude_last(const tern_graph *graph, bool *hidden)
{
    if (!graph->loss) return TERN_OK;
    bool *reached = calloc(graph->node_count, sizeof *reached);
    if (!reached) return tern_error_memory("the way to the loss", graph->node_count);
    reached[graph->loss->id] = true;
    for (uint32_t i = graph->loss->id + 1; i-- > 0;) {
        const tern_tensor *x = graph->nodes[i];
        const bool contraction = tern_ops[x->op].kind == TERN_KIND_CONTRACTION;
        for (int32_t k = 0; reached[i] && k < x->in_count; k++) {
            const tern_tensor *parameter = contraction ? parameter_below(x->in[k]) : NULL;
            if (parameter) hidden[parameter->id] = false;
            if (!contraction) reached[x->in[k]->id] = true;
        }
    }
    free(reached);
    return TERN_OK;
}

tern_status tern_groups_hidden(const tern_graph *graph, bool *out_hidden)
{
    memset(out_hidden, 0, graph->node_count * sizeof *out_hidden);
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const tern_tensor *x = graph->nodes[i];
        for (int32_t k = 0; x->op == TERN_OP_MATMUL && k < 2; k++) {
            const tern_tensor *parameter = parameter_below(x->in[k]);
            if (parameter && parameter->rank >= 2) out_hidden[parameter->id] = true;
        }
    }
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const tern_tensor *table =
            graph->nodes[i]->op == TERN_OP_GATHER ? parameter_below(graph->nodes[i]->in[0]) : NULL;
        if (table) out_hidden[table->id] = false;
    }
    return exclude_last(graph, out_hidden);
}
