/* SPDX-License-Identifier: Apache-2.0 */
/* evaluate.c - see evaluate.h. */
#include "tests/evaluate.h"

#include "core/base/dtype.h"
#include "core/base/hash.h"

void evaluate_fill(const tern_tensor *leaf, double low, double high, double *out_values)
{
    /* Points of a grid, visited in steps prime to its size; the name moves the whole grid by a part of its spacing. */
    int64_t count = tern_count(leaf), step = 7;
    uint32_t hash = tern_hash_label(leaf->label);
    while (count % step == 0) step += 4;
    double shift = 0.1 + 0.8 * (double)(hash % 1009) / 1009;
    for (int64_t i = 0; i < count; i++)
        out_values[i] = low + (high - low) * ((double)((i * step + hash % 31) % count) + shift) / (double)count;
    for (int64_t i = 0; tern_dtype_is_16bit_float(leaf->dtype) && i < count; i++)
        out_values[i] = (double)tern_f32_round_to((float)out_values[i], leaf->dtype);
}

tern_reference *evaluate_create(const tern_graph *graph, double low, double high)
{
    tern_reference *reference = NULL;
    TEST_OK(tern_reference_create(graph, &reference));
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const tern_tensor *x = graph->nodes[i];
        double *data = tern_reference_data(reference, x);
        if ((x->op == TERN_OP_PARAMETER || x->op == TERN_OP_INPUT) && tern_dtype(x->dtype)->is_float)
            evaluate_fill(x, low, high, data);
        if (x->op != TERN_OP_INPUT || strcmp(x->label, TERN_CONTROL_NAME) != 0) continue;
        data[TERN_CONTROL_KEY0] = 0x12345678;
        data[TERN_CONTROL_KEY1] = 0xfedcba98;
        data[TERN_CONTROL_SAMPLE_BASE] = 3;
    }
    return reference;
}

static double objective(tern_reference *reference, const tern_tensor *y, const tern_tensor *seed)
{
    TEST_OK(tern_reference_run(reference));
    const double *values = tern_reference_data(reference, y), *weights = tern_reference_data(reference, seed);
    double sum = 0;
    for (int64_t i = 0; i < tern_count(y); i++) sum += values[i] * weights[i];
    return sum;
}

double evaluate_difference(tern_reference *reference, const tern_tensor *y, const tern_tensor *seed,
                           const tern_tensor *leaf, int64_t index)
{
    double *place = &tern_reference_data(reference, leaf)[index], kept = *place, h = 1e-3, at[4];
    for (int32_t i = 0; i < 4; i++) {
        static const double steps[4] = {-2, -1, 1, 2};
        *place = kept + steps[i] * h;
        at[i] = objective(reference, y, seed);
    }
    *place = kept;
    return (at[0] - 8 * at[1] + 8 * at[2] - at[3]) / (12 * h);
}

static tern_reference *current;

void evaluate_open(tern_graph **out_graph) { TEST_OK(tern_graph_create(out_graph)); }

void evaluate_prepare(const tern_graph *graph)
{
    TEST_OK(tern_graph_status(graph));
    current = evaluate_create(graph, -1, 1);
}

void evaluate_put(const tern_tensor *leaf, const double *values)
{
    memcpy(evaluate_data(leaf), values, (size_t)tern_count(leaf) * sizeof *values);
}

void evaluate_compute(void) { TEST_OK(tern_reference_run(current)); }

double *evaluate_data(const tern_tensor *x) { return tern_reference_data(current, x); }

tern_reference *evaluate_current(void) { return current; }

void evaluate_close(tern_graph *graph)
{
    tern_reference_destroy(current);
    tern_graph_destroy(graph);
    current = NULL;
}

void evaluate_assert(const char *what, const tern_tensor *x, const double *expected)
{
    const double *values = evaluate_data(x);
    for (int64_t i = 0; i < tern_count(x); i++)
        if (!(values[i] == expected[i] || (isnan(values[i]) && isnan(expected[i]))))
            fail_msg("%s[%lld] is %.17g, wanted %.17g", what, (long long)i, values[i], expected[i]);
}
