/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer_build.c - the graph around the families' tapes: scalars, gradient, skip, cleared accumulators.
 *
 * The scalars go through one small state, so that every segment's kernel reads one tensor instead of recomputing them.
 * Reads of a state mean its value before the program, so the order of the lines below is no order of execution. */
#include "core/train/optimizer_build.h"

/* -------------------------------------------------------------- for the families */

tern_tensor *tern_segment_scalar(const tern_segment_build *b, int64_t which)
{
    return tern_slice(b->scalars, 0, which, 1);
}

tern_tensor *tern_segment_number(const tern_segment_build *b, double value) { return tern_constant(b->graph, value); }

tern_tensor *tern_segment_rate(const tern_segment_build *b)
{
    return tern_mul(tern_segment_scalar(b, TERN_SCALAR_LR), tern_segment_number(b, b->group->lr_scale));
}

tern_tensor *tern_segment_decay(const tern_segment_build *b, tern_tensor *x)
{
    if (b->group->weight_decay == 0) return x;
    return tern_add(x, tern_mul(b->w, tern_segment_number(b, b->group->weight_decay)));
}

tern_tensor *tern_segment_average(const tern_segment_build *b, tern_tensor *old, tern_tensor *value, double beta)
{
    return tern_add(tern_mul(old, tern_segment_number(b, beta)), tern_mul(value, tern_segment_number(b, 1.0 - beta)));
}

tern_tensor *tern_segment_slab(const tern_segment_build *b, tern_store_slab slab)
{
    return tern_store_layout_tensor(b->layout, b->graph, b->segment, slab);
}

tern_tensor *tern_segment_moment(const tern_segment_build *b, tern_store_slab slab)
{
    return b->optimizer->eight_bit ? tern_segment_decode(b, slab) : tern_segment_slab(b, slab);
}

void tern_segment_store_moment(const tern_segment_build *b, tern_store_slab slab, tern_tensor *value)
{
    if (b->optimizer->eight_bit) {
        tern_segment_encode(b, slab, value);
        return;
    }
    tern_tensor *old = tern_segment_slab(b, slab);
    tern_assign(old, tern_where(b->ok, value, old));
}

static const tern_store_parameter *only_parameter(const tern_segment_build *b)
{
    return &b->layout->parameters[b->layout->segments[b->segment].parameter];
}

tern_tensor *tern_segment_matrix(const tern_segment_build *b, tern_tensor *x)
{
    const tern_store_parameter *p = only_parameter(b);
    return tern_reshape(tern_slice(x, 0, 0, (int64_t)p->count), 2,
                        (const int64_t[]){p->rank > 0 ? p->shape[0] : 1, -1});
}

tern_tensor *tern_segment_flat(const tern_segment_build *b, tern_tensor *matrix)
{
    const int64_t count = (int64_t)only_parameter(b)->count;
    return tern_pad(tern_reshape(matrix, 1, &count), 0, 0, (int64_t)b->layout->segments[b->segment].elements - count);
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
    scalars[TERN_SCALAR_BIAS2] = optimizer->kind == TERN_OPTIMIZER_ADAFACTOR
                                     ? tern_adafactor_rate(in->t)
                                     : tern_reshape(tern_slice(bias, 1, 1, 1), 1, (const int64_t[]){1});
    scalars[TERN_SCALAR_OK] = tern_cast(in->ok, TERN_F32);
    tern_tensor *state = tern_state(graph, TERN_STATE_SCALARS, TERN_F32, 1, &count);
    return tern_assign(state, vector(graph, scalars, count));
}

static void append_segment(tern_segment_build *b, double clip_value)
{
    tern_tensor *acc = tern_segment_slab(b, TERN_SLAB_ACC);
    b->group = &b->layout->groups[b->layout->segments[b->segment].group];
    b->ok = tern_less(tern_segment_number(b, 0), tern_segment_scalar(b, TERN_SCALAR_OK));
    b->g = tern_div(acc, tern_segment_scalar(b, TERN_SCALAR_DIVISOR));
    if (clip_value > 0)
        b->g = tern_max(tern_min(b->g, tern_segment_number(b, clip_value)), tern_segment_number(b, -clip_value));
    b->g = tern_mul(b->g, tern_segment_scalar(b, TERN_SCALAR_CLIP));
    b->w = tern_segment_weight(b);
    tern_optimizers[b->group->kind].build(b);
    tern_assign(acc, tern_expand(tern_segment_number(b, 0), 1, acc->shape));
}

void tern_optimizer_append(tern_graph *graph, const tern_store_layout *layout, const tern_optimizer_inputs *inputs)
{
    tern_segment_build b = {.graph = graph, .layout = layout, .optimizer = &layout->options.optimizer};
    b.scalars = build_scalars(graph, b.optimizer, inputs);
    for (b.segment = 0; b.segment < layout->segment_count; b.segment++)
        if (layout->segments[b.segment].trainable) append_segment(&b, inputs->clip_value);
}
