/* SPDX-License-Identifier: Apache-2.0 */
/* check_run.c - runs one case on one device, twice, and on the reference; check_compare.c judges what came out.
 *
 * Leaves are filled by Philox from (seed, the leaf's name), so that a failure is reproduced by the case's name, dtype
 * and seed. The device runs the graph after the save rule, as training does; the reference runs the graph before it. */
#include "core/cli/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/hash.h"
#include "core/base/philox.h"
#include "core/passes/save_rule.h"
#include "core/reference/reference.h"

#define NAME_BYTES 96

typedef struct check {
    const tern_check_case *c;
    uint64_t seed;
    tern_graph *graph, *saved;
    tern_reference *reference;
    tern_reference *exact; /* the same without rounding to 16 bit; NULL where nothing is */
    tern_session *session;
    unsigned char *values[2]; /* of all outputs one after another, of both runs */
    tern_check_result *result;
} check;

/* -------------------------------------------------------------------- graph */

tern_tensor *tern_check_parameter(tern_graph *graph, const tern_check_case *c, const char *name, int32_t rank,
                                  const int64_t *shape)
{
    tern_tensor *x = tern_parameter(graph, name, rank, shape, TERN_INIT_ZEROS, 0);
    return tern_dtype_is_16bit_float(c->dtype) ? tern_cast(x, c->dtype) : x;
}

void tern_check_output(tern_graph *graph, tern_tensor *y)
{
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "y%u", graph->output_count);
    tern_output(y, name);
}

/* d (sum of seed * y) / d parameter for every f32 parameter that y depends on, as outputs "d.y0.<parameter>". */
static tern_status add_gradient(tern_graph *graph, tern_tensor *y, const char *y_name, tern_tensor *const *parameters,
                                int32_t count, tern_tensor **gradients)
{
    tern_status status;
    char name[2 * NAME_BYTES];
    snprintf(name, sizeof name, "seed.%s", y_name);
    tern_tensor *seed = tern_input(graph, name, TERN_F32, y->rank, y->shape);
    TERN_TRY(tern_backward_to(graph, tern_cast(y, TERN_F32), seed, parameters, count, gradients));
    for (int32_t i = 0; i < count; i++) {
        if (!gradients[i]) continue;
        snprintf(name, sizeof name, "d.%s.%s", y_name, parameters[i]->label);
        tern_output(gradients[i], name);
    }
fail:
    return status;
}

static tern_status add_gradients(tern_graph *graph)
{
    tern_status status = TERN_OK;
    const uint32_t outputs = graph->output_count;
    int32_t count = 0;
    tern_tensor **parameters = calloc(graph->node_count + 1u, sizeof *parameters);
    tern_tensor **gradients = calloc(graph->node_count + 1u, sizeof *gradients);
    if (!parameters || !gradients) {
        status = tern_error_memory("the list of parameters", (graph->node_count + 1u) * sizeof *parameters);
        goto fail;
    }
    for (uint32_t i = 0; i < graph->node_count; i++)
        if (graph->nodes[i]->op == TERN_OP_PARAMETER) parameters[count++] = graph->nodes[i];
    for (uint32_t o = 0; o < outputs; o++)
        TERN_TRY(add_gradient(graph, graph->outputs[o].tensor, graph->outputs[o].name, parameters, count, gradients));
    TERN_TRY(tern_graph_status(graph));
fail:
    free(parameters);
    free(gradients);
    return status;
}

static tern_status build(check *k)
{
    tern_status status;
    TERN_TRY(tern_graph_create(&k->graph));
    k->c->build(k->graph, k->c, k->seed);
    TERN_TRY(tern_graph_status(k->graph));
    if (k->c->gradient) TERN_TRY(add_gradients(k->graph));
    TERN_TRY(tern_pass_save_rule(k->graph, &k->saved));
    TERN_TRY(tern_reference_create(k->graph, &k->reference));
    if (tern_dtype_is_16bit_float(k->c->dtype)) TERN_TRY(tern_reference_create_exact(k->graph, &k->exact));
fail:
    return status;
}

/* ------------------------------------------------------------------- leaves */

static bool is_leaf(const tern_tensor *x)
{
    return x->op == TERN_OP_INPUT || x->op == TERN_OP_PARAMETER || x->op == TERN_OP_STATE;
}

/* A number for `word` of 32 random bits: what the leaf's type and the case allow. */
static double number_of(const check *k, const tern_tensor *leaf, uint32_t word)
{
    if (leaf->dtype == TERN_F32) {
        const bool seed = strncmp(leaf->label, "seed.", 5) == 0; /* an uneven weight of each output, about 1 */
        const double low = seed ? 0.5 : k->c->low, high = seed ? 1.5 : k->c->high;
        return (double)(float)(low + (high - low) * (word * 0x1p-32));
    }
    if (k->c->below) return (double)(word % k->c->below);
    if (leaf->dtype == TERN_I32) return (double)(int32_t)word;
    return leaf->dtype == TERN_U8 ? (double)(word & 255u) : leaf->dtype == TERN_U16 ? (double)(word & 65535u) : word;
}

static void draw(const check *k, const tern_tensor *leaf, double *values)
{
    const uint32_t key[2] = {(uint32_t)k->seed, (uint32_t)(k->seed >> 32)};
    const int64_t count = tern_count(leaf);
    for (int64_t i = 0; i < count; i += 4) {
        const uint32_t counter[4] = {(uint32_t)i, (uint32_t)((uint64_t)i >> 32), tern_hash_label(leaf->label), 0};
        uint32_t words[4];
        tern_philox(counter, key, words);
        for (int64_t j = i; j < i + 4 && j < count; j++) values[j] = number_of(k, leaf, words[j - i]);
    }
}

static void fill_control(const check *k, double *values)
{
    uint32_t key[2];
    tern_philox_step_key(k->seed, 0, key);
    memset(values, 0, TERN_CONTROL_WORDS * sizeof *values);
    values[TERN_CONTROL_KEY0] = key[0];
    values[TERN_CONTROL_KEY1] = key[1];
    values[TERN_CONTROL_SAMPLE_BASE] = 3; /* in the middle of a window */
}

/* The doubles as the leaf's own type; free() it. */
static void *to_bytes(const tern_tensor *x, const double *values)
{
    const uint64_t count = (uint64_t)tern_count(x);
    unsigned char *bytes = malloc(tern_dtype_bytes(x->dtype, count) + 1u);
    for (uint64_t i = 0; bytes && i < count; i++) switch (x->dtype) {
        case TERN_F32: ((float *)(void *)bytes)[i] = (float)values[i]; break;
        case TERN_I32: ((int32_t *)(void *)bytes)[i] = (int32_t)values[i]; break;
        case TERN_U16: ((uint16_t *)(void *)bytes)[i] = (uint16_t)values[i]; break;
        case TERN_U8: bytes[i] = (uint8_t)values[i]; break;
        default: ((uint32_t *)(void *)bytes)[i] = (uint32_t)values[i]; break;
        }
    return bytes;
}

/* The session sorts ids itself; the reference gets their order here. */
static tern_status sort_for_reference(const check *k, const tern_tensor *leaf)
{
    const tern_tensor *ids = leaf->at.input.sort_of;
    const int64_t count = tern_count(ids), rows = leaf->at.input.rows;
    uint32_t *order = calloc((size_t)count + 1u, sizeof *order), *offsets = calloc((size_t)rows + 2u, sizeof *offsets);
    void *bytes = to_bytes(ids, tern_reference_data(k->reference, ids));
    tern_status status = TERN_OK;
    if (order && offsets && bytes) {
        double *values = tern_reference_data(k->reference, leaf);
        tern_counting_sort(bytes, ids->dtype, count, rows, order, offsets);
        for (int64_t i = 0; i < tern_count(leaf); i++) values[i] = leaf->at.input.part == 0 ? order[i] : offsets[i];
    } else {
        status = tern_error_memory("the sorted ids", ((size_t)count + (size_t)rows) * sizeof *order);
    }
    free(order);
    free(offsets);
    free(bytes);
    return status;
}

static tern_status fill_reference(const check *k)
{
    tern_status status = TERN_OK;
    for (uint32_t i = 0; i < k->graph->node_count; i++) {
        const tern_tensor *x = k->graph->nodes[i];
        double *values = tern_reference_data(k->reference, x);
        if (!is_leaf(x)) continue;
        if (x->op == TERN_OP_INPUT && strcmp(x->label, TERN_CONTROL_NAME) == 0)
            fill_control(k, values);
        else if (x->op == TERN_OP_INPUT && x->at.input.sort_of)
            TERN_TRY(sort_for_reference(k, x)); /* ids are older nodes, so they are there */
        else
            draw(k, x, values);
        if (k->c->fill) k->c->fill(x, values);
        if (k->exact) memcpy(tern_reference_data(k->exact, x), values, (size_t)tern_count(x) * sizeof *values);
    }
fail:
    return status;
}

/* Before every run, since a run may assign to states and parameters. */
static tern_status feed_session(const check *k)
{
    tern_status status = TERN_OK;
    for (uint32_t i = 0; i < k->graph->node_count; i++) {
        const tern_tensor *x = k->graph->nodes[i];
        if (!is_leaf(x) || (x->op == TERN_OP_INPUT && x->at.input.sort_of)) continue;
        void *bytes = to_bytes(x, tern_reference_data(k->reference, x));
        const uint64_t size = tern_dtype_bytes(x->dtype, (uint64_t)tern_count(x));
        if (!bytes) return tern_error_memory("a leaf's values", size);
        status = tern_session_write(k->session, x->label, bytes, size);
        free(bytes);
        if (status < 0) break;
    }
    return status;
}

/* ---------------------------------------------------------------------- run */

static uint64_t output_bytes(const tern_tensor *x)
{
    return (tern_dtype_bytes(x->dtype, (uint64_t)tern_count(x)) + 15u) / 16u * 16u;
}

static tern_status run_once(const check *k, unsigned char *values)
{
    tern_status status;
    TERN_TRY(feed_session(k));
    TERN_TRY(tern_session_run(k->session));
    for (uint32_t o = 0; o < k->graph->output_count; o++) {
        const tern_tensor *x = k->graph->outputs[o].tensor;
        TERN_TRY(tern_session_read(k->session, k->graph->outputs[o].name, values,
                                   tern_dtype_bytes(x->dtype, (uint64_t)tern_count(x))));
        values += output_bytes(x);
    }
fail:
    return status;
}

static tern_status run_and_compare(check *k)
{
    tern_status status;
    uint64_t bytes = 0, at = 0;
    for (uint32_t o = 0; o < k->graph->output_count; o++) bytes += output_bytes(k->graph->outputs[o].tensor);
    for (int run = 0; run < 2; run++) {
        k->values[run] = calloc(1, bytes);
        if (!k->values[run]) return tern_error_memory("the outputs", bytes);
        TERN_TRY(run_once(k, k->values[run]));
    }
    TERN_TRY(tern_reference_run(k->reference));
    if (k->exact) TERN_TRY(tern_reference_run(k->exact));
    for (uint32_t o = 0; o < k->graph->output_count; o++) {
        const tern_check_pair pair = {k->c, k->graph, o, k->reference, k->exact};
        TERN_TRY(tern_check_compare(&pair, k->values[0] + at, k->values[1] + at, k->result));
        at += output_bytes(k->graph->outputs[o].tensor);
    }
fail:
    return status;
}

tern_status tern_check_run(tern_device *device, const tern_check_case *c, uint64_t seed, tern_check_result *out_result)
{
    tern_status status;
    check k = {.c = c, .seed = seed, .result = out_result};
    *out_result = (tern_check_result){0};
    TERN_TRY(build(&k));
    TERN_TRY(fill_reference(&k));
    status = tern_session_create(device, k.saved, NULL, &k.session);
    if (status == TERN_ERROR_UNSUPPORTED || status == TERN_ERROR_DEVICE_MEMORY) {
        out_result->skipped = true;
        snprintf(out_result->reason, sizeof out_result->reason, "%s", tern_error_message());
        status = TERN_OK;
        goto fail;
    }
    if (status < 0) goto fail;
    TERN_TRY(run_and_compare(&k));
fail:
    tern_session_destroy(k.session);
    tern_reference_destroy(k.reference);
    tern_reference_destroy(k.exact);
    tern_graph_destroy(k.saved);
    tern_graph_destroy(k.graph);
    free(k.values[0]);
    free(k.values[1]);
    return status;
}
