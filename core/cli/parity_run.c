/* SPDX-License-Identifier: Apache-2.0 */
/* parity_run.c - the graph, the two sessions and the comparison; see parity.h. */
#include "core/cli/parity.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/philox.h"
#include "core/passes/autocast.h"
#include "core/train/store.h"

/* A sum that is smaller than this share of what it is made of has lost its digits to cancellation on any device. */
#define SHARE 1e-2

struct tern_parity {
    tern_parity_options options;
    tern_graph *graph;
    tern_tensor **parameters, **gradients; /* gradient of each; NULL where none */
    int32_t parameter_count;
    float **weights; /* of each parameter, of both devices */
    tern_session *sessions[2];
    tern_parity_node *nodes;
    float *values[2]; /* of one node at a time, widened */
    void *bytes;      /* as read */
    double *norms;    /* per node, of A */
    uint32_t step;
};

/* -------------------------------------------------------------------- graph */

/* Leaves and constants have no inputs. */
static bool is_looked_at(const tern_tensor *x)
{
    return tern_dtype(x->dtype)->is_float && !tern_is_view(x) && x->in_count > 0;
}

static void node_name(uint32_t id, char name[32]) { snprintf(name, 32, "tern.node.%u", id); }

static tern_status parameters_find(tern_parity *p)
{
    const uint32_t room = p->graph->node_count + 1u;
    p->parameters = calloc(room, sizeof(tern_tensor *));
    p->gradients = calloc(room, sizeof(tern_tensor *));
    p->weights = calloc(room, sizeof(float *));
    if (!p->parameters || !p->gradients || !p->weights)
        return tern_error_memory("the list of parameters", 3 * room * sizeof(void *));
    for (uint32_t i = 0; i < p->graph->node_count; i++)
        if (p->graph->nodes[i]->op == TERN_OP_PARAMETER) p->parameters[p->parameter_count++] = p->graph->nodes[i];
    return TERN_OK;
}

/* What nothing reads and no output names is not computed; so every node that is looked at becomes an output. */
static tern_status outputs_add(tern_parity *p)
{
    const uint32_t count = p->graph->node_count;
    char name[32];
    p->nodes = calloc(count + 1u, sizeof *p->nodes);
    p->norms = calloc(count + 1u, sizeof *p->norms);
    if (!p->nodes || !p->norms) return tern_error_memory("the comparison", count * sizeof *p->nodes);
    for (uint32_t id = 0; id < count; id++) {
        if (!is_looked_at(p->graph->nodes[id])) continue;
        node_name(id, name);
        tern_output(p->graph->nodes[id], name);
        p->nodes[id].looked = true;
    }
    return tern_graph_status(p->graph);
}

static tern_status graph_build(tern_parity *p)
{
    tern_status status;
    tern_graph *forward = NULL;
    TERN_TRY(tern_graph_create(&forward));
    forward->training = false; /* no dropout: nothing random is compared */
    TERN_TRY(tern_gpt2_build_loss(forward, &p->options.model));
    if (p->options.precision != TERN_F32) {
        TERN_TRY(tern_pass_autocast(forward, p->options.precision, &p->graph));
    } else {
        p->graph = forward;
        forward = NULL;
    }
    TERN_TRY(parameters_find(p));
    tern_tensor *loss = p->graph->loss;
    tern_tensor *seed = tern_input(p->graph, "seed", TERN_F32, loss->rank, loss->shape);
    TERN_TRY(tern_backward_to(p->graph, loss, seed, p->parameters, p->parameter_count, p->gradients));
    TERN_TRY(outputs_add(p));
fail:
    tern_graph_destroy(forward);
    return status;
}

const char *tern_parity_variant(const tern_device *device, const tern_kernel_desc *kernel)
{
    return device->info.features & TERN_FEATURE_RENDERS ? kernel->variant.name : "own";
}

/* Of the kernel that writes the node's value; where several launches do, of the last. */
static const char *variant_of_node(const tern_device *device, const tern_lowered *lowered, uint32_t id)
{
    char name[32];
    const char *variant = "";
    uint32_t output = 0;
    node_name(id, name);
    while (output < lowered->output_count && strcmp(lowered->outputs[output].name, name) != 0) output++;
    if (output == lowered->output_count) return variant;
    for (uint32_t l = 0; l < lowered->launch_count; l++) {
        const tern_launch *launch = &lowered->launches[l];
        for (uint32_t o = 0; o < launch->operand_count; o++)
            if (launch->operands[o].value == lowered->outputs[output].value &&
                (launch->operands[o].mode & TERN_ACCESS_WRITE))
                variant = tern_parity_variant(device, lowered->kernels[launch->kernel]);
    }
    return variant;
}

/* -------------------------------------------------------------------- leaves */

static tern_status weights_make(tern_parity *p)
{
    for (int32_t i = 0; i < p->parameter_count; i++) {
        const tern_tensor *x = p->parameters[i];
        const uint64_t count = (uint64_t)tern_count(x);
        const tern_store_parameter like = {
            .name = x->label, .init = x->at.parameter.init, .scale = x->at.parameter.scale};
        p->weights[i] = malloc(count * sizeof(float));
        if (!p->weights[i]) return tern_error_memory(x->label, count * sizeof(float));
        tern_store_initial(&like, p->options.seed, p->weights[i], count);
    }
    return TERN_OK;
}

static tern_status leaf_write(tern_parity *p, const char *name, const void *data, uint64_t bytes)
{
    tern_status status = TERN_OK;
    for (int side = 0; side < 2 && status >= 0; side++)
        status = tern_session_write(p->sessions[side], name, data, bytes);
    return status;
}

/* Bytes at random, each the label of the one before it; the loss is their mean. */
static tern_status leaves_write(tern_parity *p)
{
    const uint64_t count = (uint64_t)p->options.model.batch * p->options.model.context;
    const uint32_t key[2] = {(uint32_t)p->options.seed, (uint32_t)(p->options.seed >> 32)};
    tern_status status = TERN_OK;
    int32_t *ids = malloc((count + 1) * sizeof *ids);
    float *seed = malloc(count * sizeof *seed);
    if (!ids || !seed) TERN_TRY(tern_error_memory("a batch", count * 8));
    for (uint64_t i = 0; i <= count; i++) {
        const uint32_t counter[4] = {(uint32_t)i, p->step, 0x9a, 0};
        uint32_t words[4];
        tern_philox(counter, key, words);
        ids[i] = (int32_t)(words[0] % p->options.model.vocab);
        if (i < count) seed[i] = 1.0f / (float)count;
    }
    TERN_TRY(leaf_write(p, "ids", ids, count * sizeof *ids));
    TERN_TRY(leaf_write(p, "labels", ids + 1, count * sizeof *ids));
    TERN_TRY(leaf_write(p, "seed", seed, count * sizeof *seed));
    for (int32_t i = 0; i < p->parameter_count; i++)
        TERN_TRY(leaf_write(p, p->parameters[i]->label, p->weights[i],
                            (uint64_t)tern_count(p->parameters[i]) * sizeof(float)));
fail:
    free(ids);
    free(seed);
    return status;
}

/* ----------------------------------------------------------------- life */

tern_status tern_parity_create(tern_device *const devices[2], const tern_parity_options *options,
                               tern_parity **out_parity)
{
    const tern_session_options unfused = {.no_fuse = true};
    uint64_t largest = 1;
    tern_status status;
    tern_parity *p = calloc(1, sizeof *p);
    *out_parity = NULL;
    if (!p) return tern_error_memory("a comparison", sizeof *p);
    p->options = *options;
    TERN_TRY(graph_build(p));
    TERN_TRY(weights_make(p));
    for (uint32_t id = 0; id < p->graph->node_count; id++)
        if ((uint64_t)tern_count(p->graph->nodes[id]) > largest) largest = (uint64_t)tern_count(p->graph->nodes[id]);
    p->values[0] = malloc(largest * sizeof(float));
    p->values[1] = malloc(largest * sizeof(float));
    p->bytes = malloc(largest * sizeof(float));
    if (!p->values[0] || !p->values[1] || !p->bytes) TERN_TRY(tern_error_memory("one tensor", largest * 12));
    for (int side = 0; side < 2; side++) {
        status = tern_session_create(devices[side], p->graph, &unfused, &p->sessions[side]);
        if (status < 0) {
            tern_error_prefix(status, "%s", tern_device_name(devices[side]));
            goto fail;
        }
        for (uint32_t id = 0; id < p->graph->node_count; id++)
            p->nodes[id].variants[side] = variant_of_node(devices[side], tern_parity_lowered(p, side), id);
    }
    *out_parity = p;
    return TERN_OK;
fail:
    tern_parity_destroy(p);
    return status;
}

void tern_parity_destroy(tern_parity *p)
{
    if (!p) return;
    for (int side = 0; side < 2; side++) {
        tern_session_destroy(p->sessions[side]);
        free(p->values[side]);
    }
    for (int32_t i = 0; p->weights && i < p->parameter_count; i++) free(p->weights[i]);
    tern_graph_destroy(p->graph);
    free(p->weights);
    free(p->parameters);
    free(p->gradients);
    free(p->nodes);
    free(p->norms);
    free(p->bytes);
    free(p);
}

/* -------------------------------------------------------------------- compare */

static tern_status value_read(tern_parity *p, int side, const tern_tensor *x)
{
    const uint64_t count = (uint64_t)tern_count(x);
    char name[32];
    node_name(x->id, name);
    const tern_status status = tern_session_read(p->sessions[side], name, p->bytes, tern_dtype_bytes(x->dtype, count));
    for (uint64_t i = 0; i < count && status >= 0; i++)
        p->values[side][i] = x->dtype == TERN_F32    ? ((const float *)p->bytes)[i]
                             : x->dtype == TERN_BF16 ? tern_bf16_to_f32(((const uint16_t *)p->bytes)[i])
                                                     : tern_f16_to_f32(((const uint16_t *)p->bytes)[i]);
    return status;
}

/* ||a - b|| and ||a||; what is the same infinity, or NaN on both sides, is equal and counts for nothing. */
static double distance(const float *a, const float *b, uint64_t count, double *out_norm)
{
    double sum = 0, norm = 0;
    for (uint64_t i = 0; i < count; i++) {
        const double x = (double)a[i], y = (double)b[i];
        if (isfinite(x)) norm += x * x;
        if (x == y || (isnan(x) && isnan(y))) continue;
        sum += (x - y) * (x - y);
    }
    *out_norm = sqrt(norm);
    return isfinite(sum) ? sqrt(sum) : INFINITY;
}

static bool is_sum(tern_op op) { return op == TERN_OP_ADD || op == TERN_OP_SUB || op == TERN_OP_SUM; }

static double norm_of_inputs(const tern_parity *p, const tern_tensor *x)
{
    double largest = 0;
    for (int32_t i = 0; i < x->in_count; i++) largest = fmax(largest, p->norms[x->in[i]->id]);
    return largest;
}

static tern_status node_compare(tern_parity *p, const tern_tensor *x)
{
    tern_parity_node *node = &p->nodes[x->id];
    tern_status status = TERN_OK;
    if (!node->looked) { /* a view is as large as what it shows */
        if (x->in_count > 0) p->norms[x->id] = p->norms[x->in[0]->id];
        return TERN_OK;
    }
    TERN_TRY(value_read(p, 0, x));
    TERN_TRY(value_read(p, 1, x));
    const double apart = distance(p->values[0], p->values[1], (uint64_t)tern_count(x), &p->norms[x->id]);
    double scale = p->norms[x->id];
    if (is_sum(x->op)) scale = fmax(scale, SHARE * norm_of_inputs(p, x));
    const double difference = apart == 0 ? 0 : scale > 0 ? apart / scale : INFINITY;
    if (difference > node->difference) node->difference = difference, node->step = p->step;
fail:
    return status;
}

static tern_status losses_read(tern_parity *p, tern_parity_step *out)
{
    const tern_tensor *loss = p->graph->loss;
    tern_status status = TERN_OK;
    for (int side = 0; side < 2; side++) {
        TERN_TRY(value_read(p, side, loss));
        for (int64_t i = 0; i < tern_count(loss); i++)
            out->loss[side] += (double)p->values[side][i] / (double)tern_count(loss);
    }
fail:
    return status;
}

/* A's gradients move the weights that both get next. */
static tern_status weights_step(tern_parity *p, tern_parity_step *out)
{
    tern_status status = TERN_OK;
    for (int32_t k = 0; k < p->parameter_count; k++) {
        const tern_tensor *gradient = p->gradients[k];
        if (!gradient || !p->nodes[gradient->id].looked) continue;
        for (int side = 1; side >= 0; side--) {
            TERN_TRY(value_read(p, side, gradient));
            for (int64_t i = 0; i < tern_count(gradient); i++)
                out->gradient_norm[side] += (double)p->values[side][i] * (double)p->values[side][i];
        }
        for (int64_t i = 0; i < tern_count(gradient); i++)
            if (isfinite(p->values[0][i])) p->weights[k][i] -= (float)p->options.rate * p->values[0][i];
    }
    for (int side = 0; side < 2; side++) out->gradient_norm[side] = sqrt(out->gradient_norm[side]);
fail:
    return status;
}

tern_status tern_parity_run(tern_parity *p, tern_parity_step *out_step)
{
    tern_status status;
    memset(out_step, 0, sizeof *out_step);
    p->step++;
    TERN_TRY(leaves_write(p));
    for (int side = 0; side < 2; side++) TERN_TRY(tern_session_run(p->sessions[side]));
    for (uint32_t id = 0; id < p->graph->node_count; id++) TERN_TRY(node_compare(p, p->graph->nodes[id]));
    TERN_TRY(losses_read(p, out_step));
    TERN_TRY(weights_step(p, out_step));
fail:
    return status;
}

const tern_graph *tern_parity_graph(const tern_parity *p) { return p->graph; }
const tern_parity_node *tern_parity_nodes(const tern_parity *p) { return p->nodes; }

const tern_lowered *tern_parity_lowered(const tern_parity *p, int side)
{
    return tern_session_plan(p->sessions[side])->lowered;
}

const tern_tensor *tern_parity_first(const tern_parity *p, double tolerance)
{
    for (uint32_t id = 0; id < p->graph->node_count; id++) /* inputs come before what reads them */
        if (p->nodes[id].looked && !(p->nodes[id].difference <= tolerance)) return p->graph->nodes[id];
    return NULL;
}
