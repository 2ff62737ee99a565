/* SPDX-License-Identifier: Apache-2.0 */
/* graph_trial.c - see graph_trial.h. */
#include "tests/graph_trial.h"
#include "tests/paper_device.h"

#include "core/base/dtype.h"
#include "core/kernel/lowered.h"
#include "core/passes/accumulate.h"
#include "core/passes/save_rule.h"
#include "core/plan/session.h"
#include "tests/lowered_runner.h"
#include "tests/test.h"

#include <stdlib.h>

/* A sum in another order may round to the other neighbour in 16 bit, an element in a hundred: then only what is wrong
 * by more than that shows. bf16 has 8 bits. */
#define ROUNDING  2e-2
#define WORDS_OLD "needs both its old value and its new one"

static trial_outcome wrong(graph_trial *t, const char *way, const char *what)
{
    snprintf(t->text, sizeof t->text, "%s: %s", way, what);
    return TRIAL_FAILED;
}

/* ------------------------------------------------------------------ comparing */

static double value_at(const tern_tensor *x, const void *data, int64_t i)
{
    switch (x->dtype) {
    case TERN_F32: return (double)((const float *)data)[i];
    case TERN_F16: return (double)tern_f16_to_f32(((const uint16_t *)data)[i]);
    case TERN_BF16: return (double)tern_bf16_to_f32(((const uint16_t *)data)[i]);
    case TERN_I32: return (double)((const int32_t *)data)[i];
    case TERN_U16: return (double)((const uint16_t *)data)[i];
    case TERN_U8: return (double)((const uint8_t *)data)[i];
    default: return (double)((const uint32_t *)data)[i];
    }
}

static void *bytes_of(const tern_tensor *x, const double *from, uint64_t *out_bytes)
{
    const uint64_t count = (uint64_t)tern_count(x), bytes = tern_dtype_bytes(x->dtype, count);
    void *data = malloc(bytes);
    for (uint64_t i = 0; i < count; i++) {
        if (x->dtype == TERN_F32)
            ((float *)data)[i] = (float)from[i];
        else if (x->dtype == TERN_F16)
            ((uint16_t *)data)[i] = tern_f32_to_f16((float)from[i]);
        else if (x->dtype == TERN_BF16)
            ((uint16_t *)data)[i] = tern_f32_to_bf16((float)from[i]);
        else if (x->dtype == TERN_I32)
            ((int32_t *)data)[i] = (int32_t)from[i];
        else if (x->dtype == TERN_U16)
            ((uint16_t *)data)[i] = (uint16_t)from[i];
        else if (x->dtype == TERN_U8)
            ((uint8_t *)data)[i] = (uint8_t)from[i];
        else
            ((uint32_t *)data)[i] = (uint32_t)from[i];
    }
    *out_bytes = bytes;
    return data;
}

/* cost NULL: this is the unfused form, whose distance is written to *out_cost. */
static trial_outcome compare(graph_trial *t, const char *way, const tern_tensor *x, const char *name, const void *got,
                             double *cost, bool measures)
{
    const double *wanted = tern_reference_data(t->reference, x);
    const int64_t count = tern_count(x);
    double difference = 0, norm = 0, worst = -1;
    int64_t at = 0;
    for (int64_t i = 0; i < count; i++) {
        const double value = value_at(x, got, i);
        if (isnan(wanted[i]) ? isnan(value) : isinf(wanted[i]) && value == wanted[i]) continue;
        const double d = isfinite(wanted[i]) ? fabs(value - wanted[i]) : INFINITY;
        difference += d * d;
        norm += isfinite(wanted[i]) ? wanted[i] * wanted[i] : 0;
        if (!(d <= worst)) {
            worst = d;
            at = i;
        }
    }
    difference = sqrt(difference);
    const double floor = fmax(sqrt(norm), (measures ? 0.1 : 1e-2) * sqrt((double)count));
    double allowed = measures ? 1e-4 * floor : 1e-5 * floor + 8 * *cost;
    if (t->rounds) allowed += ROUNDING * floor;
    if (!tern_dtype(x->dtype)->is_float) allowed = 0;
    if (measures) *cost = difference;
    if (difference <= allowed) return TRIAL_PASSED;
    snprintf(t->text, sizeof t->text,
             "%s: %s (%%%u) is off by %.3g, allowed %.3g (norm %.3g); [%lld] is %.9g, wanted %.9g", way, name, x->id,
             difference, allowed, sqrt(norm), (long long)at, value_at(x, got, at), wanted[at]);
    return TRIAL_FAILED;
}

/* ------------------------------------------------------------------ ways to run */

static bool is_leaf(const tern_tensor *x)
{
    return x->op == TERN_OP_INPUT || x->op == TERN_OP_PARAMETER || x->op == TERN_OP_STATE;
}

static trial_outcome run_lowered(graph_trial *t, bool fuse)
{
    const char *way = fuse ? "fused" : "unfused";
    const tern_lower_options options = {.fuse = fuse};
    tern_lowered *lowered;
    lowered_runner runner;
    trial_outcome result = TRIAL_PASSED;
    if (tern_lower(t->graph, &paper_device, &options, &lowered) < 0)
        return strstr(tern_error_message(), WORDS_OLD) ? TRIAL_CYCLE : wrong(t, way, tern_error_message());
    lowered_runner_create(lowered, &runner);
    for (uint32_t i = 0; i < t->graph->node_count; i++) {
        const tern_tensor *x = t->graph->nodes[i];
        void *to = is_leaf(x) ? lowered_runner_leaf(&runner, x->label) : NULL;
        uint64_t bytes;
        if (!to) continue;
        void *from = bytes_of(x, tern_reference_data(t->reference, x), &bytes);
        memcpy(to, from, bytes);
        free(from);
    }
    TEST_OK(tern_reference_run(t->reference));
    lowered_runner_run(&runner);
    double *cost = t->cost;
    for (uint32_t o = 0; o < t->graph->output_count && result == TRIAL_PASSED; o++)
        result = compare(t, way, t->graph->outputs[o].tensor, t->graph->outputs[o].name,
                         lowered_runner_output(&runner, t->graph->outputs[o].name), cost++, !fuse);
    for (uint32_t i = 0; i < t->graph->node_count && result == TRIAL_PASSED; i++) {
        const tern_tensor *x = t->graph->nodes[i];
        const void *got =
            x->op == TERN_OP_STATE || x->op == TERN_OP_PARAMETER ? lowered_runner_leaf(&runner, x->label) : NULL;
        if (got) result = compare(t, way, x, x->label, got, &cost[i], !fuse);
    }
    lowered_runner_destroy(&runner);
    tern_lowered_destroy(lowered);
    return result;
}

static trial_outcome read_session(graph_trial *t, const char *way, tern_session *session, const tern_tensor *x,
                                  const char *name, double *cost)
{
    const uint64_t bytes = tern_dtype_bytes(x->dtype, (uint64_t)tern_count(x));
    void *got = malloc(bytes);
    const trial_outcome result = tern_session_read(session, name, got, bytes) < 0
                                     ? wrong(t, way, tern_error_message())
                                     : compare(t, way, x, name, got, cost, false);
    free(got);
    return result;
}

static trial_outcome compare_session(graph_trial *t, const char *way, tern_session *session)
{
    trial_outcome result = TRIAL_PASSED;
    double *cost = t->cost;
    for (uint32_t o = 0; o < t->graph->output_count && result == TRIAL_PASSED; o++)
        result = read_session(t, way, session, t->graph->outputs[o].tensor, t->graph->outputs[o].name, cost++);
    for (uint32_t i = 0; i < t->graph->node_count && result == TRIAL_PASSED; i++) {
        const tern_tensor *x = t->graph->nodes[i];
        if (x->op == TERN_OP_STATE || x->op == TERN_OP_PARAMETER)
            result = read_session(t, way, session, x, x->label, &cost[i]);
    }
    return result;
}

static trial_outcome run_session(graph_trial *t, bool guarded)
{
    const char *way = guarded ? "device, guarded in reverse" : "device";
    const tern_session_options options = {.guard = guarded, .reverse = guarded};
    tern_session *session;
    trial_outcome result = TRIAL_PASSED;
    if (tern_session_create(t->device, t->graph, &options, &session) < 0) return wrong(t, way, tern_error_message());
    for (uint32_t i = 0; i < t->graph->node_count && result == TRIAL_PASSED; i++) {
        const tern_tensor *x = t->graph->nodes[i];
        uint64_t bytes;
        if (!is_leaf(x) || (x->op == TERN_OP_INPUT && x->at.input.sort_of)) continue;
        void *from = bytes_of(x, tern_reference_data(t->reference, x), &bytes);
        if (tern_session_write(session, x->label, from, bytes) < 0) result = wrong(t, way, tern_error_message());
        free(from);
    }
    TEST_OK(tern_reference_run(t->reference));
    if (result == TRIAL_PASSED && tern_session_run(session) < 0) result = wrong(t, way, tern_error_message());
    if (result == TRIAL_PASSED) result = compare_session(t, way, session);
    tern_session_destroy(session);
    return result;
}

/* ------------------------------------------------------------------- one graph */

/* Leaves that an earlier run changed get their values back. */
static void refill(graph_trial *t) { t->fill(t->graph, t->reference); }

static trial_outcome run_all(graph_trial *t)
{
    trial_outcome result = TRIAL_PASSED;
    for (int32_t way = 0; way < (t->device ? 4 : 2) && result == TRIAL_PASSED; way++) {
        refill(t);
        result = way < 2 ? run_lowered(t, way == 1) : run_session(t, way == 3);
    }
    return result;
}

/* The save rule changes no value: outputs and states of the graph before and after it. */
static trial_outcome check_save_rule(graph_trial *t, const tern_graph *before)
{
    tern_reference *reference;
    trial_outcome result = TRIAL_PASSED;
    TEST_OK(tern_reference_create(before, &reference));
    t->fill(before, reference);
    TEST_OK(tern_reference_run(reference));
    refill(t);
    TEST_OK(tern_reference_run(t->reference));
    for (uint32_t o = 0; o < before->output_count && result == TRIAL_PASSED; o++) {
        const tern_tensor *x = t->graph->outputs[o].tensor;
        const double *a = tern_reference_data(reference, before->outputs[o].tensor),
                     *b = tern_reference_data(t->reference, x);
        for (int64_t i = 0; i < tern_count(x); i++)
            if (!(fabs(a[i] - b[i]) <= 1e-12 * (1 + fabs(a[i]))))
                result = wrong(t, "save rule", before->outputs[o].name);
    }
    for (uint32_t i = 0; i < before->node_count && result == TRIAL_PASSED; i++) {
        const tern_tensor *x = before->nodes[i];
        if (x->op != TERN_OP_STATE) continue;
        const double *a = tern_reference_data(reference, x);
        const double *b = tern_reference_data(t->reference, tern_graph_find(t->graph, TERN_OP_STATE, x->label));
        for (int64_t k = 0; k < tern_count(x); k++)
            if (!(fabs(a[k] - b[k]) <= 1e-12 * (1 + fabs(a[k])))) result = wrong(t, "save rule", x->label);
    }
    tern_reference_destroy(reference);
    return result;
}

static bool rounds_to_16_bit(const tern_graph *graph)
{
    for (uint32_t i = 0; i < graph->node_count; i++)
        if (graph->nodes[i]->dtype == TERN_F16 || graph->nodes[i]->dtype == TERN_BF16) return true;
    return false;
}

trial_outcome graph_trial_run(graph_trial *t, tern_graph *before)
{
    trial_outcome result = TRIAL_PASSED;
    t->graph = before;
    t->rounds = rounds_to_16_bit(before);
    if (tern_graph_status(before) < 0) return wrong(t, "builder", tern_error_message());
    if (before->loss) {
        if (tern_pass_accumulate(before) < 0) return wrong(t, "backward", tern_error_message());
        if (tern_pass_save_rule(before, &t->graph) < 0) return wrong(t, "save rule", tern_error_message());
    }
    TEST_OK(tern_reference_create(t->graph, &t->reference));
    t->cost = calloc(t->graph->output_count + t->graph->node_count + 1u, sizeof *t->cost);
    if (t->graph != before) result = check_save_rule(t, before);
    if (result == TRIAL_PASSED) result = run_all(t);
    free(t->cost);
    tern_reference_destroy(t->reference);
    if (t->graph != before) tern_graph_destroy(t->graph);
    t->reference = NULL;
    t->graph = before;
    return result;
}
