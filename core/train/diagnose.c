/* SPDX-License-Identifier: Apache-2.0 */
/* diagnose.c - the micro graph with a flag beside every float tensor; see diagnose.h.
 *
 *     instrument: copy, assigns become what they assign, flags as named outputs ── session ── read ── trace back */
#include "core/train/diagnose.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/plan/session.h"

#define EXPONENT 0x7f800000u /* all ones: infinity or NaN */

typedef struct diagnosing {
    const tern_setup *setup;
    const tern_graph *micro;
    tern_graph *graph;    /* the instrumented copy */
    tern_tensor **copies; /* per node of micro */
    bool *target;         /* the window's sums are made of it, or an output */
    bool *live;           /* leads to one of them */
    bool *varies;         /* not made of constants alone */
    bool *bad;            /* is not finite; a view is as its base, an assign as its value */
    bool *looked;         /* has a flag */
    tern_session *session;
} diagnosing;

/* ---------------------------------------------------------------- instrument */

static void flag_name(uint32_t id, char name[32]) { snprintf(name, 32, "tern.flag.%u", id); }

static void copy_node(diagnosing *d, const tern_tensor *x)
{
    tern_tensor *in[TERN_MAX_INPUTS];
    d->varies[x->id] = x->op == TERN_OP_INPUT || x->op == TERN_OP_PARAMETER || x->op == TERN_OP_STATE;
    for (int32_t i = 0; i < x->in_count; i++) {
        in[i] = d->copies[x->in[i]->id];
        d->varies[x->id] = d->varies[x->id] || d->varies[x->in[i]->id];
    }
    if (x->op == TERN_OP_ASSIGN) {
        d->copies[x->id] = in[1];
        d->target[x->in[1]->id] = true;
    } else {
        d->copies[x->id] = tern_graph_copy(d->graph, x, in, x->pass);
    }
}

/* 1 where any element is not finite, as f32 (1). */
static void add_flag(diagnosing *d, const tern_tensor *x)
{
    char name[32];
    tern_graph *graph = d->graph;
    tern_tensor *copy = d->copies[x->id], *mask = tern_constant_u32(graph, EXPONENT);
    tern_tensor *wide = tern_cast(copy, TERN_F32);
    tern_tensor *flat = tern_reshape(wide, 1, (const int64_t[]){-1});
    tern_tensor *flag = tern_equal(tern_and(tern_bitcast(flat, TERN_U32), mask), mask);
    graph->pass = x->pass;
    flag_name(x->id, name);
    tern_output(tern_maximum(tern_cast(flag, TERN_F32), 0), name);
    d->looked[x->id] = true;
}

static void find_live(diagnosing *d)
{
    const tern_graph *micro = d->micro;
    for (uint32_t i = 0; i < micro->output_count; i++) d->target[micro->outputs[i].tensor->id] = true;
    for (uint32_t id = micro->node_count; id-- > 0;) {
        const tern_tensor *x = micro->nodes[id];
        d->live[id] = d->live[id] || d->target[id];
        for (int32_t i = 0; d->live[id] && i < x->in_count; i++) d->live[x->in[i]->id] = true;
    }
}

static tern_status instrument(diagnosing *d)
{
    tern_status status;
    const tern_graph *micro = d->micro;
    TERN_TRY(tern_graph_create(&d->graph));
    for (uint32_t id = 0; id < micro->node_count && d->graph->status >= 0; id++) copy_node(d, micro->nodes[id]);
    TERN_TRY(tern_graph_status(d->graph));
    for (uint32_t id = 0; id < micro->node_count; id++)
        if (micro->nodes[id]->op == TERN_OP_INPUT && micro->nodes[id]->at.input.sort_of)
            d->copies[id]->at.input.sort_of = d->copies[micro->nodes[id]->at.input.sort_of->id];
    find_live(d);
    for (uint32_t id = 0; id < micro->node_count && d->graph->status >= 0; id++) {
        const tern_tensor *x = micro->nodes[id];
        const tern_dtype_info *type = tern_dtype(x->dtype);
        if (d->live[id] && d->varies[id] && type->is_float && !tern_is_view(x) && x->op != TERN_OP_ASSIGN)
            add_flag(d, x);
    }
    TERN_TRY(tern_graph_status(d->graph));
fail:
    return status;
}

/* ----------------------------------------------------------------------- run */

/* One kernel per op names the tensor itself; a fused program needs less memory and sees the same values. */
static tern_status make_session(diagnosing *d, const tern_store *store)
{
    tern_status status;
    tern_setup_memory memory;
    tern_session_options options = {.no_fuse = true};
    tern_binding *bindings = NULL;
    TERN_TRY(tern_store_bind(store, d->graph, &bindings, &options.binding_count));
    options.bindings = bindings;
    tern_setup_measure(d->setup, &memory);
    options.arena_limit = memory.budget > memory.total ? memory.budget - memory.total : 1;
    status = tern_session_create(d->setup->device, d->graph, &options, &d->session);
    options.no_fuse = false;
    if (status == TERN_ERROR_DEVICE_MEMORY)
        status = tern_session_create(d->setup->device, d->graph, &options, &d->session);
    if (status == TERN_ERROR_DEVICE_MEMORY)
        tern_error_prefix(status, "the program that finds the first tensor that is not finite does not fit");
fail:
    free(bindings);
    return status;
}

static bool is_derived(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot && (strcmp(dot, ".order") == 0 || strcmp(dot, ".offsets") == 0);
}

static tern_status feed(diagnosing *d, const tern_feed *feeds, uint32_t count, const uint32_t *control)
{
    tern_status status = TERN_OK;
    for (uint32_t i = 0; i < count; i++)
        if (!is_derived(feeds[i].name)) /* the session sorts ids itself */
            TERN_TRY(tern_session_write(d->session, feeds[i].name, feeds[i].data, feeds[i].bytes));
    if (tern_graph_find(d->graph, TERN_OP_INPUT, TERN_CONTROL_NAME))
        TERN_TRY(tern_session_write(d->session, TERN_CONTROL_NAME, control, TERN_CONTROL_WORDS * sizeof *control));
fail:
    return status;
}

static tern_status read_flags(diagnosing *d, tern_diagnosis *out)
{
    tern_status status = TERN_OK;
    for (uint32_t id = 0; id < d->micro->node_count; id++) {
        const tern_tensor *x = d->micro->nodes[id];
        if (tern_is_view(x)) d->bad[id] = d->bad[x->in[0]->id];
        if (x->op == TERN_OP_ASSIGN) d->bad[id] = d->bad[x->in[1]->id];
        if (!d->looked[id]) continue;
        char name[32];
        float flag = 0;
        flag_name(id, name);
        TERN_TRY(tern_session_read(d->session, name, &flag, sizeof flag));
        d->bad[id] = flag != 0;
        out->seen++;
        out->flagged += flag != 0;
    }
fail:
    return status;
}

/* --------------------------------------------------------------------- trace */

static bool has_name(const tern_tensor *x)
{
    const size_t length = strlen(tern_ops[x->op].name);
    return strncmp(x->label, tern_ops[x->op].name, length) != 0 || x->label[length] != '#';
}

/* Breadth first through the inputs; NULL: nothing below x has a name of its own. */
static const tern_tensor *nearest_named(const tern_graph *graph, const tern_tensor *x)
{
    const tern_tensor **queue = calloc(graph->node_count + 1u, sizeof(tern_tensor *)), *found = NULL;
    bool *seen = calloc(graph->node_count + 1u, sizeof *seen);
    uint32_t head = 0, tail = 0;
    if (queue && seen) queue[tail++] = x;
    while (head < tail && !found) {
        const tern_tensor *y = queue[head++];
        if (y != x && has_name(y)) found = y;
        for (int32_t i = 0; i < y->in_count; i++) {
            if (seen[y->in[i]->id]) continue;
            seen[y->in[i]->id] = true;
            queue[tail++] = y->in[i];
        }
    }
    free(queue);
    free(seen);
    return found;
}

static void describe(const diagnosing *d, const tern_tensor *x, tern_diagnosis *out)
{
    size_t used = 1;
    out->found = true;
    out->pass = x->pass;
    snprintf(out->label, sizeof out->label, "%s", x->label);
    snprintf(out->shape, sizeof out->shape, "(");
    for (int32_t i = 0; i < x->rank && used < sizeof out->shape; i++)
        used += (size_t)snprintf(out->shape + used, sizeof out->shape - used, i ? ", %lld" : "%lld",
                                 (long long)x->shape[i]);
    if (used < sizeof out->shape) snprintf(out->shape + used, sizeof out->shape - used, ")");
    const tern_tensor *named = has_name(x) ? NULL : nearest_named(d->micro, x);
    if (named) snprintf(out->near, sizeof out->near, "%s", named->label);
}

/* The lowest node from which an unbroken line of non-finite ones leads to a target. */
static tern_status trace(diagnosing *d, tern_diagnosis *out)
{
    const tern_graph *micro = d->micro;
    bool *reaches = calloc(micro->node_count + 1u, sizeof *reaches);
    if (!reaches) return tern_error_memory("the diagnosis", micro->node_count);
    for (uint32_t id = micro->node_count; id-- > 0;) {
        const tern_tensor *x = micro->nodes[id];
        reaches[id] = d->bad[id] && (reaches[id] || d->target[id]);
        for (int32_t i = 0; reaches[id] && i < x->in_count; i++) reaches[x->in[i]->id] = true;
    }
    for (uint32_t id = 0; id < micro->node_count && !out->found; id++)
        if (reaches[id] && d->looked[id]) describe(d, micro->nodes[id], out);
    free(reaches);
    return TERN_OK;
}

static tern_status allocate(diagnosing *d)
{
    const size_t n = d->micro->node_count + 1u;
    d->copies = calloc(n, sizeof(tern_tensor *));
    d->target = calloc(n * 5, sizeof(bool));
    if (!d->copies || !d->target) return tern_error_memory("the diagnosis", n * (sizeof(tern_tensor *) + 5));
    d->live = d->target + n;
    d->varies = d->live + n;
    d->bad = d->varies + n;
    d->looked = d->bad + n;
    return TERN_OK;
}

tern_status tern_stepper_diagnose(tern_stepper *stepper, const tern_feed *feeds, uint32_t count, uint64_t attempt,
                                  uint32_t sample_base, tern_diagnosis *out_diagnosis)
{
    tern_status status;
    tern_step_report last; /* the next call reports it again */
    uint32_t control[TERN_CONTROL_WORDS];
    const tern_setup *setup = tern_stepper_setup(stepper);
    diagnosing d = {.setup = setup, .micro = setup->programs[TERN_PROGRAM_MICRO].graph};
    memset(out_diagnosis, 0, sizeof *out_diagnosis);
    tern_stepper_control(stepper, attempt, sample_base, 0, control);
    TERN_TRY(tern_stepper_finish(stepper, &last));
    TERN_TRY(allocate(&d));
    TERN_TRY(instrument(&d));
    TERN_TRY(make_session(&d, tern_stepper_store(stepper)));
    TERN_TRY(feed(&d, feeds, count, control));
    TERN_TRY(tern_session_run(d.session));
    TERN_TRY(read_flags(&d, out_diagnosis));
    TERN_TRY(trace(&d, out_diagnosis));
fail:
    tern_session_destroy(d.session);
    tern_graph_destroy(d.graph);
    free(d.copies);
    free(d.target);
    return status;
}

void tern_diagnosis_print(const tern_diagnosis *d, char *out, size_t bytes)
{
    if (!d->found)
        snprintf(out, bytes, "every one of its %u tensors is finite", d->seen);
    else
        snprintf(out, bytes, "\"%s\" %s%s%s%s, %s", d->label, d->shape, d->near[0] ? ", made from \"" : "", d->near,
                 d->near[0] ? "\"" : "", d->pass == TERN_PASS_FORWARD ? "forward" : "backward");
}
