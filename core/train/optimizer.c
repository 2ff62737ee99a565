/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer.c - the table of kinds, and the graph around their tapes: scalars, gradient, skip, cleared accumulators.
 *
 * The scalars go through one small state, so that every segment's kernel reads one tensor instead of recomputing them.
 * Reads of a state mean its value before the program, so the order of the lines below is no order of execution. */
#include "core/train/optimizer.h"

#include <stdio.h>

#include "core/train/optimizer_build.h"

typedef struct kind_row {
    const char *name;
    void (*build)(const tern_segment_build *b);
} kind_row;

static const kind_row kinds[TERN_OPTIMIZER_COUNT] = {
    [TERN_OPTIMIZER_ADAMW] = {"adamw", tern_optimizer_build_adamw},
};

const char *tern_optimizer_name(int32_t kind)
{
    return kind >= 0 && kind < TERN_OPTIMIZER_COUNT ? kinds[kind].name : NULL;
}

tern_status tern_optimizer_check(const tern_optimizer *o)
{
    if (!tern_optimizer_name((int32_t)o->kind))
        return tern_error(TERN_ERROR_INVALID, "optimizer %d does not exist; the kinds are 0 to %d", (int)o->kind,
                          TERN_OPTIMIZER_COUNT - 1);
    const struct {
        const char *name;
        double value;
        bool fine;
        const char *range;
    } checks[] = {
        {"beta1", o->beta1, o->beta1 >= 0 && o->beta1 < 1, "[0, 1)"},
        {"beta2", o->beta2, o->beta2 >= 0 && o->beta2 < 1, "[0, 1)"},
        {"epsilon", o->epsilon, o->epsilon > 0 && o->epsilon <= 1, "(0, 1]"},
        {"weight decay", o->weight_decay, o->weight_decay >= 0 && o->weight_decay <= 1e6, "[0, 1e6]"},
    };
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
        if (!checks[i].fine)
            return tern_error(TERN_ERROR_INVALID, "%s is %g; it must lie in %s", checks[i].name, checks[i].value,
                              checks[i].range);
    return TERN_OK;
}

/* ------------------------------------------------------------ for the kinds */

tern_tensor *tern_segment_slab(const tern_segment_build *b, tern_store_slab slab)
{
    char name[48];
    const int64_t elements = (int64_t)(b->layout->segments[b->segment].bytes / sizeof(float));
    snprintf(name, sizeof name, "slab.%s.%u", tern_store_slab_names[slab], b->segment);
    tern_tensor *known = tern_graph_find(b->graph, TERN_OP_STATE, name);
    return known ? known : tern_state(b->graph, name, TERN_F32, 1, &elements);
}

tern_tensor *tern_segment_scalar(const tern_segment_build *b, int64_t which)
{
    return tern_slice(b->scalars, 0, which, 1);
}

tern_tensor *tern_segment_number(const tern_segment_build *b, double value) { return tern_constant(b->graph, value); }

double tern_segment_decay(const tern_segment_build *b)
{
    return b->layout->segments[b->segment].group == TERN_GROUP_DECAY ? b->optimizer->weight_decay : 0;
}

void tern_segment_store(const tern_segment_build *b, tern_store_slab slab, tern_tensor *value)
{
    tern_tensor *old = tern_segment_slab(b, slab);
    tern_assign(old, tern_where(b->ok, value, old));
}

/* ------------------------------------------------------------------ program */

/* A vector of scalars, picked by index, so that it is one elementwise kernel. */
static tern_tensor *vector(tern_graph *graph, tern_tensor *const *scalars, int64_t count)
{
    tern_tensor *index = tern_index(graph, 1, &count, 0);
    tern_tensor *all = tern_expand(scalars[count - 1], 1, &count);
    for (int64_t i = count - 2; i >= 0; i--)
        all = tern_where(tern_equal(index, tern_constant_u32(graph, (uint32_t)i)), scalars[i], all);
    return all;
}

static tern_tensor *build_scalars(tern_graph *graph, const tern_optimizer *optimizer, const tern_optimizer_inputs *in)
{
    const int64_t rows = tern_optimizer_table_rows(optimizer), count = TERN_SCALAR_COUNT;
    tern_tensor *control = tern_graph_control(graph);
    tern_tensor *table = tern_state(graph, TERN_STATE_TABLE, TERN_F32, 2, (const int64_t[]){rows, 2});
    tern_tensor *bias = tern_gather(table, in->t); /* (1, 2); t good steps so far are row t, which is B(t + 1) */
    tern_tensor *scalars[TERN_SCALAR_COUNT] = {0};
    scalars[TERN_SCALAR_DIVISOR] = in->divisor;
    scalars[TERN_SCALAR_CLIP] = in->clip;
    scalars[TERN_SCALAR_LR] = tern_bitcast(tern_slice(control, 0, TERN_CONTROL_LR, 1), TERN_F32);
    scalars[TERN_SCALAR_BIAS1] = tern_reshape(tern_slice(bias, 1, 0, 1), 1, (const int64_t[]){1});
    scalars[TERN_SCALAR_BIAS2] = tern_reshape(tern_slice(bias, 1, 1, 1), 1, (const int64_t[]){1});
    scalars[TERN_SCALAR_OK] = tern_cast(in->ok, TERN_F32);
    tern_tensor *state = tern_state(graph, TERN_STATE_SCALARS, TERN_F32, 1, &count);
    return tern_assign(state, vector(graph, scalars, count));
}

static void append_segment(tern_segment_build *b, double clip_value)
{
    tern_tensor *acc = tern_segment_slab(b, TERN_SLAB_ACC);
    b->ok = tern_less(tern_segment_number(b, 0), tern_segment_scalar(b, TERN_SCALAR_OK));
    b->g = tern_div(acc, tern_segment_scalar(b, TERN_SCALAR_DIVISOR));
    if (clip_value > 0)
        b->g = tern_max(tern_min(b->g, tern_segment_number(b, clip_value)), tern_segment_number(b, -clip_value));
    b->g = tern_mul(b->g, tern_segment_scalar(b, TERN_SCALAR_CLIP));
    kinds[b->optimizer->kind].build(b);
    tern_assign(acc, tern_expand(tern_segment_number(b, 0), 1, acc->shape));
}

void tern_optimizer_append(tern_graph *graph, const tern_store_layout *layout, const tern_optimizer *optimizer,
                           const tern_optimizer_inputs *inputs)
{
    tern_segment_build b = {.graph = graph, .layout = layout, .optimizer = optimizer};
    b.scalars = build_scalars(graph, optimizer, inputs);
    for (b.segment = 0; b.segment < layout->segment_count; b.segment++)
        if (layout->segments[b.segment].group != TERN_GROUP_FROZEN) append_segment(&b, inputs->clip_value);
}
