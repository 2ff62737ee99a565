/* SPDX-License-Identifier: Apache-2.0 */
/* update.c - builds the update program's graph; update.h has its formulas.
 *
 * Reads of a state mean its value before the program, so the order of the lines below is no order of execution. */
#include "core/train/update.h"

#include <string.h>

#include "core/passes/accumulate.h"
#include "core/passes/state_shadow.h"
#include "core/train/optimizer_build.h"

#define EXPONENT 0x7f800000u /* all ones: infinity or NaN */

typedef struct update {
    tern_graph *graph;
    const tern_store_layout *layout;
    const tern_update_options *options;
    tern_scale_options scaling;                             /* resolved */
    tern_tensor *n, *loss, *scale, *t, *skips, *row;        /* states (1) */
    tern_tensor *active, *divisor, *norm, *bad, *clip, *ok; /* (1) */
    tern_outlier_step outlier;                              /* all NULL: not asked for */
    tern_tensor *words[TERN_REPORT_COUNT];                  /* the report's, u32 (1); NULL: 0 */
    tern_tensor *states[TERN_REPORT_COUNT];                 /* where a word is kept; NULL: nowhere */
    tern_tensor *report;                                    /* stored */
} update;

static tern_tensor *scalar_state(tern_graph *graph, const char *name, int32_t dtype)
{
    return tern_state(graph, name, dtype, 1, (const int64_t[]){1});
}

static tern_tensor *word(const update *u, uint32_t bits) { return tern_constant_u32(u->graph, bits); }
static tern_tensor *number(const update *u, double value) { return tern_constant(u->graph, value); }

/* u32 1 where x is infinite or NaN. */
static tern_tensor *not_finite(const update *u, tern_tensor *x)
{
    return tern_equal(tern_and(tern_bitcast(x, TERN_U32), word(u, EXPONENT)), word(u, EXPONENT));
}

/* sum g^2 of one segment; infinite when any of its elements is not finite, shape (1). limit > 0: of g clamped to it. */
static tern_tensor *square_sum(const update *u, tern_tensor *acc, double limit)
{
    tern_tensor *rows = tern_reshape(acc, 2, (const int64_t[]){-1, TERN_STORE_CHUNK});
    tern_tensor *g = tern_div(rows, u->divisor);
    if (limit > 0) g = tern_max(tern_min(g, number(u, limit)), number(u, -limit));
    tern_tensor *square = tern_where(not_finite(u, rows), tern_bitcast(word(u, EXPONENT), TERN_F32), tern_mul(g, g));
    return tern_reshape(tern_sum(tern_sum(square, 1), 0), 1, (const int64_t[]){1});
}

static tern_tensor *global_square_sum(const update *u, double limit)
{
    tern_tensor *sum = NULL;
    for (uint32_t i = 0; i < u->layout->segment_count; i++) {
        if (!u->layout->segments[i].trainable) continue;
        tern_tensor *one = square_sum(u, tern_store_layout_tensor(u->layout, u->graph, i, TERN_SLAB_ACC), limit);
        sum = sum ? tern_add(sum, one) : one;
    }
    return sum;
}

/* A vector of `count` scalars, NULL for 0: picked by index, so that it is one elementwise kernel. */
static tern_tensor *vector(const update *u, tern_tensor *const *scalars, int64_t count)
{
    tern_tensor *index = tern_index(u->graph, 1, &count, 0), *all = tern_expand(word(u, 0), 1, &count);
    for (int64_t i = count - 1; i >= 0; i--)
        if (scalars[i]) all = tern_where(tern_equal(index, word(u, (uint32_t)i)), scalars[i], all);
    return all;
}

static void read_states(update *u)
{
    tern_graph *graph = u->graph;
    u->n = scalar_state(graph, TERN_STATE_N, TERN_F32);
    u->loss = scalar_state(graph, TERN_STATE_LOSS, TERN_F32);
    u->scale = scalar_state(graph, TERN_STATE_SCALE, TERN_F32);
    u->t = scalar_state(graph, TERN_STATE_T, TERN_U32);
    u->skips = scalar_state(graph, TERN_STATE_SKIPS, TERN_U32);
    u->row = scalar_state(graph, TERN_STATE_ROW, TERN_U32);
}

static tern_tensor * not(const update *u, tern_tensor *flag) { return tern_xor(flag, word(u, 1)); }

static void build_decision(update *u)
{
    const tern_update_options *o = u->options;
    tern_tensor *one = tern_expand(number(u, 1), 1, (const int64_t[]){1});
    u->active = tern_less(number(u, 0), u->n); /* n > 0 */
    u->divisor = tern_where(u->active, tern_mul(u->scale, u->n), number(u, 1));
    tern_tensor *sum = global_square_sum(u, 0);
    u->norm = tern_label(tern_sqrt(sum), "step.norm");
    u->bad = tern_and(u->active, not_finite(u, sum));
    tern_tensor *finite = tern_and(u->active, not(u, u->bad));
    if (o->outlier.z > 0) u->outlier = tern_outlier_append(u->norm, finite, &o->outlier);
    u->ok = u->outlier.outlier ? tern_and(finite, not(u, u->outlier.outlier)) : finite;
    tern_tensor *clipped = o->clip_value > 0 && o->clip > 0 ? tern_sqrt(global_square_sum(u, o->clip_value)) : u->norm;
    u->clip = o->clip > 0 ? tern_min(number(u, 1), tern_div(number(u, o->clip), clipped)) : one;
}

/* ------------------------------------------------------------------- report */

/* A word of the report, and the state that keeps it. */
static void put(update *u, int which, tern_tensor *value, tern_tensor *state)
{
    if (!value) return;
    u->words[which] = value->dtype == TERN_F32 ? tern_bitcast(value, TERN_U32) : value;
    u->states[which] = state;
}

/* The report is stored before any of its states is assigned, so that no new value is made from another new one. */
static void build_report(update *u)
{
    const tern_scale_step scale = tern_scaler_append(u->scale, u->ok, u->bad, &u->scaling);
    tern_tensor *finite = tern_and(u->active, not(u, u->bad));
    put(u, TERN_REPORT_LOSS, u->loss, NULL);
    put(u, TERN_REPORT_N, u->n, NULL);
    put(u, TERN_REPORT_NORM, u->norm, NULL);
    put(u, TERN_REPORT_CLIP, u->clip, NULL);
    put(u, TERN_REPORT_SCALE, u->scale, NULL);
    put(u, TERN_REPORT_OK, u->ok, NULL);
    put(u, TERN_REPORT_BAD, u->bad, NULL);
    put(u, TERN_REPORT_OUTLIER, u->outlier.outlier, NULL);
    put(u, TERN_REPORT_FLOOR, scale.floor, NULL);
    put(u, TERN_REPORT_T, tern_add(u->t, u->ok), u->t);
    put(u, TERN_REPORT_SKIPS, tern_add(u->skips, u->bad), u->skips);
    put(u, TERN_REPORT_ROW, tern_where(finite, word(u, 0), tern_add(u->row, u->bad)), u->row);
    put(u, TERN_REPORT_NEXT_SCALE, scale.scale, scale.scale == u->scale ? NULL : u->scale);
    put(u, TERN_REPORT_GOOD, scale.good, scale.good_state);
    put(u, TERN_REPORT_HYSTERESIS, scale.used, scale.used_state);
    put(u, TERN_REPORT_OUTLIERS, u->outlier.total, u->outlier.total_state);
    put(u, TERN_REPORT_NORM_COUNT, u->outlier.count, u->outlier.count_state);
    put(u, TERN_REPORT_NORM_MEAN, u->outlier.mean, u->outlier.mean_state);
    put(u, TERN_REPORT_NORM_VAR, u->outlier.var, u->outlier.var_state);
    u->report = vector(u, u->words, TERN_REPORT_COUNT);
    tern_output(u->report, TERN_REPORT_NAME);
}

static void assign_states(const update *u)
{
    tern_tensor *zero = tern_expand(number(u, 0), 1, (const int64_t[]){1});
    for (int i = 0; i < TERN_REPORT_COUNT; i++) {
        if (!u->states[i]) continue;
        tern_tensor *value = tern_slice(u->report, 0, i, 1);
        tern_assign(u->states[i], u->states[i]->dtype == TERN_F32 ? tern_bitcast(value, TERN_F32) : value);
    }
    tern_assign(u->n, zero);
    tern_assign(u->loss, zero);
}

/* Of each shadowed state, as words: state := ok ? shadow : state, shadow := the same, so that what a skipped window
 * left in the shadow is gone. */
static void commit_states(const update *u)
{
    static const char prefix[] = TERN_SHADOW_PREFIX;
    tern_tensor *ok = tern_slice(u->report, 0, TERN_REPORT_OK, 1);
    for (uint32_t i = 0; i < u->layout->state_count; i++) {
        const tern_store_state *s = &u->layout->states[i];
        if (strncmp(s->name, prefix, sizeof prefix - 1) != 0) continue;
        const int64_t words = (int64_t)(s->bytes / sizeof(uint32_t));
        tern_tensor *shadow = tern_state(u->graph, s->name, TERN_U32, 1, &words);
        tern_tensor *state = tern_state(u->graph, s->name + sizeof prefix - 1, TERN_U32, 1, &words);
        tern_assign(shadow, tern_assign(state, tern_where(ok, shadow, state)));
    }
}

/* ------------------------------------------------------------------ program */

tern_status tern_update_check(const tern_update_options *o)
{
    tern_status status;
    const tern_scale_options scale = tern_scale_resolve(&o->scale, false);
    TERN_TRY(tern_outlier_check(&o->outlier));
    TERN_TRY(tern_scale_check(&scale));
    if (!(o->clip >= 0 && o->clip <= 1e30))
        return tern_error(TERN_ERROR_INVALID, "clip is %g; it must lie in [0, 1e30]", o->clip);
    if (!(o->clip_value >= 0 && o->clip_value <= 1e30))
        return tern_error(TERN_ERROR_INVALID, "the clip value is %g; it must lie in [0, 1e30]", o->clip_value);
fail:
    return status;
}

tern_status tern_update_build(tern_graph *graph, const tern_store_layout *layout, const tern_update_options *options)
{
    tern_status status;
    update u = {.graph = graph, .layout = layout, .options = options};
    u.scaling = tern_scale_resolve(&options->scale, false);
    TERN_TRY(tern_update_check(options));
    if (!layout->options.training)
        return tern_error(TERN_ERROR_INVALID,
                          "the store has no gradients; make it for training before building an update");
    if (layout->segment_count == 0 || !layout->segments[0].trainable)
        return tern_error(TERN_ERROR_INVALID, "none of the %u parameters is trainable; there is nothing to update",
                          layout->parameter_count);
    graph->pass = TERN_PASS_UPDATE;
    read_states(&u);
    build_decision(&u);
    const tern_optimizer_inputs inputs = {
        .divisor = u.divisor, .clip = u.clip, .ok = u.ok, .t = u.t, .clip_value = options->clip_value};
    tern_optimizer_append(graph, layout, &inputs);
    build_report(&u);
    assign_states(&u);
    commit_states(&u);
    status = tern_graph_status(graph);
fail:
    return status;
}
