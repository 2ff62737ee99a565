/* SPDX-License-Identifier: Apache-2.0 */
/* narrow_trial.c - see narrow_trial.h. */
#include "tests/narrow_trial.h"
#include "tests/paper_device.h"

#include "core/base/dtype.h"
#include "core/kernel/lowered.h"
#include "tests/lowered_runner.h"

#include <stdlib.h>

#define LARGEST (1u << 20) /* bytes of all results */

static void to_memory(const tern_tensor *x, const double *from, void *to)
{
    for (int64_t i = 0; i < tern_count(x); i++) {
        switch (x->dtype) {
        case TERN_F32: ((float *)to)[i] = (float)from[i]; break;
        case TERN_F16: ((uint16_t *)to)[i] = tern_f32_to_f16((float)from[i]); break;
        case TERN_BF16: ((uint16_t *)to)[i] = tern_f32_to_bf16((float)from[i]); break;
        case TERN_U8: ((uint8_t *)to)[i] = (uint8_t)from[i]; break;
        default: ((uint32_t *)to)[i] = (uint32_t)from[i];
        }
    }
}

static double from_memory(int32_t dtype, const void *data, int64_t i)
{
    switch (dtype) {
    case TERN_F32: return (double)((const float *)data)[i];
    case TERN_F16: return (double)tern_f16_to_f32(((const uint16_t *)data)[i]);
    case TERN_BF16: return (double)tern_bf16_to_f32(((const uint16_t *)data)[i]);
    case TERN_U8: return ((const uint8_t *)data)[i];
    default: return ((const uint32_t *)data)[i];
    }
}

static void check(const char *what, const tern_tensor *x, const double *wanted, const void *got, double tolerance)
{
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < tern_count(x); i++) {
        const double value = from_memory(x->dtype, got, i);
        difference += (value - wanted[i]) * (value - wanted[i]);
        norm += wanted[i] * wanted[i];
    }
    if (!(sqrt(difference) <= tolerance * sqrt(norm)))
        fail_msg("%s, %s: relative error %.3g", what, x->label, sqrt(difference) / sqrt(norm));
}

void *narrow_trial_run(const tern_graph *g, tern_reference *reference, bool fuse, double tolerance, uint64_t *out_bytes)
{
    tern_lowered *lowered = NULL;
    lowered_runner runner;
    const tern_lower_options options = {.fuse = fuse};
    TEST_OK(tern_lower(g, &paper_device, &options, &lowered));
    lowered_runner_create(lowered, &runner);
    for (uint32_t i = 0; i < g->node_count; i++) {
        void *to = lowered_runner_leaf(&runner, g->nodes[i]->label);
        if (to && tern_ops[g->nodes[i]->op].kind == TERN_KIND_LEAF)
            to_memory(g->nodes[i], tern_reference_data(reference, g->nodes[i]), to);
    }
    lowered_runner_run(&runner);
    char *all = calloc(1, LARGEST), *at = all;
    TEST_OK(tern_reference_run(reference));
    for (uint32_t o = 0; o < g->output_count; o++) {
        const tern_tensor *x = g->outputs[o].tensor;
        const uint64_t bytes = tern_dtype_bytes(x->dtype, (uint64_t)tern_count(x));
        const void *got = lowered_runner_output(&runner, g->outputs[o].name);
        check(fuse ? "fused" : "unfused", x, tern_reference_data(reference, x), got, tolerance);
        memcpy(at, got, bytes);
        at += bytes;
    }
    for (uint32_t i = 0; i < g->node_count; i++) {
        if (g->nodes[i]->op != TERN_OP_STATE) continue;
        const uint64_t bytes = tern_dtype_bytes(g->nodes[i]->dtype, (uint64_t)tern_count(g->nodes[i]));
        memcpy(at, lowered_runner_leaf(&runner, g->nodes[i]->label), bytes);
        at += bytes;
    }
    *out_bytes = (uint64_t)(at - all);
    lowered_runner_destroy(&runner);
    tern_lowered_destroy(lowered);
    return all;
}
