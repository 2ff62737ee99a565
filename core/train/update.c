/* SPDX-License-Identifier: Apache-2.0 */
/* update.c - builds the update program's graph; update.h has its formulas.
 *
 * Reads of a state mean its value before the program, so the order of the lines below is no order of execution. */
#include "core/train/update.h"

#include <stdio.h>

#include "core/passes/accumulate.h"

#define EXPONENT 0x7f800000u /* all ones: infinity or NaN */

typedef struct update {
    tern_graph *graph;
    const tern_store_layout *layout;
    const tern_update_options *options;
    tern_tensor *n, *loss, *scale, *t, *skips;              /* states (1) */
    tern_tensor *active, *divisor, *norm, *bad, *clip, *ok; /* (1) */
} update;

static tern_tensor *scalar_state(tern_graph *graph, const char *name, int32_t dtype)
{
    return tern_state(graph, name, dtype, 1, (const int64_t[]){1});
}

static tern_tensor *slab(const update *u, tern_store_slab kind, uint32_t segment)
{
    char name[48];
    const int64_t elements = (int64_t)(u->layout->segments[segment].bytes / sizeof(float));
    snprintf(name, sizeof name, "slab.%s.%u", tern_store_slab_names[kind], segment);
    tern_tensor *known = tern_graph_find(u->graph, TERN_OP_STATE, name);
    return known ? known : tern_state(u->graph, name, TERN_F32, 1, &elements);
}

static tern_tensor *word(const update *u, uint32_t bits) { return tern_constant_u32(u->graph, bits); }
static tern_tensor *number(const update *u, double value) { return tern_constant(u->graph, value); }

/* u32 1 where x is infinite or NaN. */
static tern_tensor *not_finite(const update *u, tern_tensor *x)
{
    return tern_equal(tern_and(tern_bitcast(x, TERN_U32), word(u, EXPONENT)), word(u, EXPONENT));
}

/* sum g^2 of one segment, infinite when any of its elements is not finite, shape (1). */
static tern_tensor *square_sum(const update *u, tern_tensor *acc)
{
    tern_tensor *rows = tern_reshape(acc, 2, (const int64_t[]){-1, TERN_STORE_CHUNK});
    tern_tensor *g = tern_div(rows, u->divisor);
    tern_tensor *square = tern_where(not_finite(u, rows), tern_bitcast(word(u, EXPONENT), TERN_F32), tern_mul(g, g));
    return tern_reshape(tern_sum(tern_sum(square, 1), 0), 1, (const int64_t[]){1});
}

static tern_tensor *global_square_sum(const update *u)
{
    tern_tensor *sum = NULL;
    for (uint32_t i = 0; i < u->layout->segment_count; i++) {
        if (u->layout->segments[i].group == TERN_GROUP_FROZEN) continue;
        tern_tensor *one = square_sum(u, slab(u, TERN_SLAB_ACC, i));
        sum = sum ? tern_add(sum, one) : one;
    }
    return sum;
}

/* A vector of `count` scalars: picked by index, so that it is one elementwise kernel. */
static tern_tensor *vector(const update *u, tern_tensor *const *scalars, int64_t count)
{
    tern_tensor *index = tern_index(u->graph, 1, &count, 0);
    tern_tensor *all = tern_expand(scalars[count - 1], 1, &count);
    for (int64_t i = count - 2; i >= 0; i--) all = tern_where(tern_equal(index, word(u, (uint32_t)i)), scalars[i], all);
    return all;
}

static void build_decision(update *u)
{
    tern_graph *graph = u->graph;
    u->n = scalar_state(graph, TERN_STATE_N, TERN_F32);
    u->loss = scalar_state(graph, TERN_STATE_LOSS, TERN_F32);
    u->scale = scalar_state(graph, TERN_STATE_SCALE, TERN_F32);
    u->t = scalar_state(graph, TERN_STATE_T, TERN_U32);
    u->skips = scalar_state(graph, TERN_STATE_SKIPS, TERN_U32);
    u->active = tern_less(number(u, 0), u->n); /* n > 0 */
    u->divisor = tern_where(u->active, tern_mul(u->scale, u->n), number(u, 1));
    tern_tensor *sum = global_square_sum(u);
    u->norm = tern_label(tern_sqrt(sum), "step.norm");
    u->bad = tern_and(u->active, not_finite(u, sum));
    u->clip = u->options->clip > 0 ? tern_min(number(u, 1), tern_div(number(u, u->options->clip), u->norm))
                                   : tern_expand(number(u, 1), 1, (const int64_t[]){1});
    u->ok = tern_and(u->active, tern_xor(u->bad, word(u, 1)));
}

static void build_report(update *u)
{
    tern_tensor *t = tern_add(u->t, u->ok), *skips = tern_add(u->skips, u->bad);
    tern_tensor *zero = tern_expand(number(u, 0), 1, (const int64_t[]){1});
    tern_tensor *words[TERN_REPORT_COUNT] = {0};
    words[TERN_REPORT_LOSS] = tern_bitcast(u->loss, TERN_U32);
    words[TERN_REPORT_N] = tern_bitcast(u->n, TERN_U32);
    words[TERN_REPORT_NORM] = tern_bitcast(u->norm, TERN_U32);
    words[TERN_REPORT_CLIP] = tern_bitcast(u->clip, TERN_U32);
    words[TERN_REPORT_SCALE] = tern_bitcast(u->scale, TERN_U32);
    words[TERN_REPORT_BAD] = u->bad;
    words[TERN_REPORT_T] = t;
    words[TERN_REPORT_SKIPS] = skips;
    tern_output(vector(u, words, TERN_REPORT_COUNT), TERN_REPORT_NAME);
    tern_assign(u->t, t);
    tern_assign(u->skips, skips);
    tern_assign(u->n, zero);
    tern_assign(u->loss, zero);
}

tern_status tern_update_check(const tern_update_options *options)
{
    if (options->clip >= 0 && options->clip <= 1e30) return TERN_OK;
    return tern_error(TERN_ERROR_INVALID, "clip is %g; it must lie in [0, 1e30]", options->clip);
}

tern_status tern_update_build(tern_graph *graph, const tern_store_layout *layout, const tern_optimizer *optimizer,
                              const tern_update_options *options)
{
    tern_status status;
    update u = {.graph = graph, .layout = layout, .options = options};
    TERN_TRY(tern_optimizer_check(optimizer));
    TERN_TRY(tern_update_check(options));
    if (!layout->training)
        return tern_error(TERN_ERROR_INVALID,
                          "the store has no gradients; make it for training before building an update");
    if (layout->segment_count == 0 || layout->segments[0].group == TERN_GROUP_FROZEN)
        return tern_error(TERN_ERROR_INVALID, "none of the %u parameters is trainable; there is nothing to update",
                          layout->parameter_count);
    graph->pass = TERN_PASS_UPDATE;
    build_decision(&u);
    tern_optimizer_append(graph, layout, optimizer,
                          &(tern_optimizer_inputs){.divisor = u.divisor, .clip = u.clip, .ok = u.ok, .t = u.t});
    build_report(&u);
    status = tern_graph_status(graph);
fail:
    return status;
}
