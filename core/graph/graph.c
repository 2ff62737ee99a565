/* SPDX-License-Identifier: Apache-2.0 */
/* graph.c - the graph as a list: nodes, labels, the sticky first error, outputs, the loss.
 *
 * What it is not: it knows no op's shape rule (build_*.c) and no gradient (gradient_rules.c).
 * Invariant: nodes are appended only; every node and label lives in the graph's arena, so nothing is freed one by one
 * and a failed allocation leaves a graph that can still be destroyed, its error being TERN_ERROR_MEMORY. */
#include "core/graph/graph.h"

#include "core/base/dtype.h"
#include "core/base/hash.h"
#include "core/graph/build.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const tern_op_info tern_ops[TERN_OP_COUNT] = {
#define OP(name, text, kind, inputs, has_gradient) [TERN_OP_##name] = {text, TERN_KIND_##kind, inputs, has_gradient},
#include "core/graph/ops.def"
#undef OP
};

/* ------------------------------------------------------------------- arena */

#define CHUNK_BYTES ((size_t)64 * 1024)

struct tern_graph_chunk {
    struct tern_graph_chunk *next;
    size_t used, bytes;
    max_align_t data[];
};

void *tern_graph_alloc(tern_graph *graph, size_t bytes)
{
    size_t align = sizeof(max_align_t);
    struct tern_graph_chunk *chunk = graph->chunks;

    if (bytes > SIZE_MAX / 2) return NULL;
    bytes = (bytes + align - 1) / align * align;
    if (graph->memory_limit_bytes && graph->memory_bytes + bytes > graph->memory_limit_bytes) return NULL;
    if (!chunk || chunk->bytes - chunk->used < bytes) {
        size_t capacity = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
        chunk = calloc(1, sizeof *chunk + capacity);
        if (!chunk) return NULL;
        chunk->bytes = capacity;
        chunk->next = graph->chunks;
        graph->chunks = chunk;
    }
    void *data = (char *)chunk->data + chunk->used;
    chunk->used += bytes;
    graph->memory_bytes += bytes;
    return data;
}

static char *copy_text(tern_graph *graph, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = tern_graph_alloc(graph, bytes);
    if (copy) memcpy(copy, text, bytes);
    return copy;
}

/* Doubles an array that lives in the arena; the old one stays behind, at most as large as the new. */
static bool grow(tern_graph *graph, void **items, uint32_t count, uint32_t *capacity, size_t item_bytes)
{
    if (count < *capacity) return true;
    uint32_t larger = *capacity ? *capacity * 2 : 64;
    void *fresh = tern_graph_alloc(graph, larger * item_bytes);
    if (!fresh) return false;
    if (count) memcpy(fresh, *items, count * item_bytes);
    *items = fresh;
    *capacity = larger;
    return true;
}

static tern_tensor *fail_memory(tern_graph *graph)
{
    return tern_graph_fail(graph, TERN_ERROR_MEMORY,
                           "the graph of %u nodes could not grow beyond %zu bytes of host memory; "
                           "free some memory or build fewer nodes",
                           graph->node_count, graph->memory_bytes);
}

/* ---------------------------------------------------------- life and errors */

tern_status tern_graph_create(tern_graph **out_graph)
{
    if (!out_graph)
        return tern_error(TERN_ERROR_INVALID, "tern_graph_create: out_graph is NULL; pass the address of a pointer");
    *out_graph = NULL;
    tern_graph *graph = calloc(1, sizeof *graph);
    if (!graph) return tern_error_memory("graph", sizeof *graph);
    graph->training = true;
    graph->inert = tern_graph_alloc(graph, sizeof *graph->inert);
    char *label = graph->inert ? copy_text(graph, "(graph in error)") : NULL;
    if (!label) {
        tern_graph_destroy(graph);
        return tern_error_memory("graph", CHUNK_BYTES);
    }
    *graph->inert =
        (tern_tensor){.graph = graph, .id = UINT32_MAX, .op = TERN_OP_CONSTANT, .dtype = TERN_F32, .label = label};
    *out_graph = graph;
    return TERN_OK;
}

void tern_graph_destroy(tern_graph *graph)
{
    if (!graph) return;
    for (struct tern_graph_chunk *chunk = graph->chunks, *next; chunk; chunk = next) {
        next = chunk->next;
        free(chunk);
    }
    free(graph);
}

tern_status tern_graph_status(const tern_graph *graph)
{
    if (!graph) return tern_error(TERN_ERROR_INVALID, "the graph is NULL; create it with tern_graph_create");
    return graph->status < 0 ? tern_error(graph->status, "%s", graph->message) : TERN_OK;
}

tern_tensor *tern_graph_fail(tern_graph *graph, tern_status status, const char *format, ...)
{
    if (graph->status < 0) return graph->inert;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(graph->message, sizeof graph->message, format, arguments);
    va_end(arguments);
    graph->status = status;
    return graph->inert;
}

const char *tern_dtype_name(int32_t dtype)
{
    const tern_dtype_info *info = tern_dtype(dtype);
    return info ? info->name : "unknown dtype";
}

tern_text tern_describe_shape(int32_t rank, const int64_t *shape)
{
    tern_text t = {"("};
    size_t used = 1;
    for (int32_t i = 0; i < rank && i < TERN_MAX_RANK; i++)
        used += (size_t)snprintf(t.text + used, sizeof t.text - used, i ? ", %lld" : "%lld", (long long)shape[i]);
    snprintf(t.text + used, sizeof t.text - used, ")");
    return t;
}

tern_text tern_describe(const tern_tensor *x)
{
    tern_text t;
    snprintf(t.text, sizeof t.text, "\"%.60s\" %.100s %.16s", x->label, tern_describe_shape(x->rank, x->shape).text,
             tern_dtype_name(x->dtype));
    return t;
}

bool tern_build_open(const char *op, tern_graph *graph)
{
    if (!graph) {
        tern_error(TERN_ERROR_INVALID, "%s: the graph is NULL; create it with tern_graph_create", op);
        return false;
    }
    return graph->status >= 0;
}

bool tern_build_ready(const char *op, int32_t count, tern_tensor *const *in, tern_tensor **out_instead)
{
    tern_graph *graph = NULL;
    for (int32_t i = 0; i < count && !graph; i++) graph = in[i] ? in[i]->graph : NULL;
    *out_instead = graph ? graph->inert : NULL;
    if (!graph) {
        tern_error(TERN_ERROR_INVALID, "%s: operand 0 is NULL; ops take tensors of a graph", op);
        return false;
    }
    for (int32_t i = 0; i < count; i++) {
        if (!in[i]) {
            tern_graph_fail(graph, TERN_ERROR_INVALID, "%s: operand %d is NULL; ops take tensors of a graph", op, i);
        } else if (in[i]->graph != graph) {
            tern_graph_fail(graph, TERN_ERROR_INVALID,
                            "%s: operand %d, %s, belongs to another graph; build both operands in one", op, i,
                            tern_describe(in[i]).text);
        }
    }
    return graph->status >= 0;
}

/* ------------------------------------------------------------------- names */

struct tern_graph_name {
    tern_tensor *tensor; /* NULL: a free slot */
    uint32_t hash;       /* tern_hash_label of its label */
};

static bool is_named(tern_op op) { return tern_ops[op].kind == TERN_KIND_LEAF || op == TERN_OP_RANDOM; }

/* Behind what has the same hash, so that the first of several is found first. */
static void put_name(struct tern_graph_name *names, uint32_t capacity, struct tern_graph_name name)
{
    uint32_t slot = name.hash & (capacity - 1u);
    while (names[slot].tensor) slot = (slot + 1u) & (capacity - 1u);
    names[slot] = name;
}

/* Makes room for one name more, at most half of the slots being taken; the old table stays behind in the arena. */
static bool reserve_name(tern_graph *graph)
{
    if (graph->name_count < graph->name_capacity / 2) return true;
    const uint32_t larger = graph->name_capacity ? graph->name_capacity * 2 : 64;
    struct tern_graph_name *names = tern_graph_alloc(graph, larger * sizeof *names);
    if (!names) return false;
    /* In the order of creation, which the slots have lost. */
    for (uint32_t i = 0; i < graph->node_count; i++)
        if (is_named(graph->nodes[i]->op))
            put_name(names, larger, (struct tern_graph_name){graph->nodes[i], tern_hash_label(graph->nodes[i]->label)});
    graph->names = names;
    graph->name_capacity = larger;
    return true;
}

static void add_name(tern_graph *graph, tern_tensor *x)
{
    put_name(graph->names, graph->name_capacity, (struct tern_graph_name){x, tern_hash_label(x->label)});
    graph->name_count++;
}

/* name NULL: the hash decides. */
static tern_tensor *find_name(const tern_graph *graph, tern_op op, uint32_t hash, const char *name)
{
    if (!graph->name_capacity) return NULL;
    const uint32_t mask = graph->name_capacity - 1u;
    for (uint32_t slot = hash & mask; graph->names[slot].tensor; slot = (slot + 1u) & mask) {
        tern_tensor *x = graph->names[slot].tensor;
        if (graph->names[slot].hash == hash && x->op == op && (!name || strcmp(x->label, name) == 0)) return x;
    }
    return NULL;
}

tern_tensor *tern_graph_find(const tern_graph *graph, tern_op op, const char *name)
{
    return find_name(graph, op, tern_hash_label(name), name);
}

tern_tensor *tern_graph_find_random(const tern_graph *graph, uint32_t label_hash)
{
    return find_name(graph, TERN_OP_RANDOM, label_hash, NULL);
}

/* ------------------------------------------------------------------- nodes */

/* A gradient can flow into R when its op passes one on and some input's does. */
static bool passes_gradient(const tern_tensor *x)
{
    const tern_dtype_info *type = tern_dtype(x->dtype);
    if (!type || !type->is_float || tern_ops[x->op].has_gradient == 0) return false;
    for (int32_t i = 0; i < x->in_count; i++)
        if (x->in[i]->needs_gradient) return true;
    return false;
}

static bool shape_allowed(tern_graph *graph, tern_op op, int32_t rank, const int64_t *shape)
{
    const char *name = tern_ops[op].name;
    if (rank < 0 || rank > TERN_MAX_RANK) {
        tern_graph_fail(graph, TERN_ERROR_INVALID, "%s: rank %d is outside 0 .. %d", name, rank, TERN_MAX_RANK);
        return false;
    }
    int64_t count = 1;
    for (int32_t i = 0; i < rank; i++) {
        if (shape[i] < 1) {
            tern_graph_fail(graph, TERN_ERROR_INVALID, "%s: size %lld of axis %d in %s is below 1", name,
                            (long long)shape[i], i, tern_describe_shape(rank, shape).text);
            return false;
        }
        if (shape[i] > INT32_MAX / count) {
            tern_graph_fail(graph, TERN_ERROR_INVALID,
                            "%s: %s has 2^31 elements or more; kernels index with 32 bits, so split it", name,
                            tern_describe_shape(rank, shape).text);
            return false;
        }
        count *= shape[i];
    }
    return true;
}

tern_tensor *tern_graph_node(tern_graph *graph, tern_op op, int32_t dtype, int32_t rank, const int64_t *shape,
                             int32_t in_count, tern_tensor *const *in, const char *label)
{
    if (graph->status < 0 || !shape_allowed(graph, op, rank, shape)) return graph->inert;
    char automatic[48];
    if (!label) {
        snprintf(automatic, sizeof automatic, "%s#%u", tern_ops[op].name, graph->node_count);
        label = automatic;
    }
    tern_tensor *x = tern_graph_alloc(graph, sizeof *x);
    char *owned = x ? copy_text(graph, label) : NULL;
    if (!owned ||
        !grow(graph, (void **)&graph->nodes, graph->node_count, &graph->node_capacity, sizeof *graph->nodes) ||
        (is_named(op) && !reserve_name(graph)))
        return fail_memory(graph);
    x->graph = graph;
    x->id = graph->node_count;
    x->op = op;
    x->dtype = dtype;
    x->pass = graph->pass;
    x->rank = rank;
    x->in_count = in_count;
    x->label = owned;
    for (int32_t i = 0; i < rank; i++) x->shape[i] = shape[i];
    for (int32_t i = 0; i < in_count; i++) x->in[i] = in[i];
    x->needs_gradient = passes_gradient(x);
    if (op == TERN_OP_ASSIGN) in[0]->replaced = true;
    if (is_named(op)) add_name(graph, x);
    graph->nodes[graph->node_count++] = x;
    return x;
}

tern_tensor *tern_graph_copy(tern_graph *graph, const tern_tensor *like, tern_tensor *const *in, tern_pass pass)
{
    tern_tensor *x =
        tern_graph_node(graph, like->op, like->dtype, like->rank, like->shape, like->in_count, in, like->label);
    if (x == graph->inert) return x;
    x->pass = pass;
    x->at = like->at;
    x->keep_f32 = like->keep_f32;
    if (x->op == TERN_OP_PARAMETER) x->needs_gradient = x->at.parameter.trainable;
    return x;
}

tern_status tern_graph_create_like(const tern_graph *in, tern_graph **out_graph)
{
    const tern_status status = tern_graph_create(out_graph);
    if (status < 0) return status;
    (*out_graph)->training = in->training;
    (*out_graph)->memory_limit_bytes = in->memory_limit_bytes;
    return TERN_OK;
}

tern_status tern_graph_copy_rest(const tern_graph *in, tern_graph *out, tern_tensor *const *copies)
{
    if (out->status < 0) return tern_graph_status(out); /* some copies are missing */
    for (uint32_t id = 0; id < in->node_count; id++) {
        const tern_tensor *x = in->nodes[id];
        if (x->weight) copies[id]->weight = copies[x->weight->id];
        if (x->op == TERN_OP_INPUT && x->at.input.sort_of)
            copies[id]->at.input.sort_of = copies[x->at.input.sort_of->id];
    }
    for (uint32_t i = 0; i < in->output_count; i++) tern_output(copies[in->outputs[i].tensor->id], in->outputs[i].name);
    out->loss = in->loss ? copies[in->loss->id] : NULL;
    out->loss_weight = in->loss_weight ? copies[in->loss_weight->id] : NULL;
    out->pass = in->pass;
    return tern_graph_status(out);
}

int64_t tern_count(const tern_tensor *x)
{
    int64_t count = 1;
    for (int32_t i = 0; i < x->rank; i++) count *= x->shape[i];
    return count;
}

bool tern_has_shape(const tern_tensor *x, int32_t rank, const int64_t *shape)
{
    if (x->rank != rank) return false;
    for (int32_t i = 0; i < rank; i++)
        if (x->shape[i] != shape[i]) return false;
    return true;
}

bool tern_same_shape(const tern_tensor *a, const tern_tensor *b) { return tern_has_shape(a, b->rank, b->shape); }

int32_t tern_rank(const tern_tensor *x) { return x ? x->rank : 0; }

int32_t tern_tensor_dtype(const tern_tensor *x) { return x ? x->dtype : 0; }

int64_t tern_size(const tern_tensor *x, int32_t axis)
{
    int32_t resolved;
    /* 1 after an error, so that shapes computed from it stay harmless until the error is reported. */
    return x && x->graph->status >= 0 && tern_build_axis("size", x, axis, &resolved) ? x->shape[resolved] : 1;
}

bool tern_build_axis(const char *op, const tern_tensor *x, int32_t axis, int32_t *out_axis)
{
    if (axis < -x->rank || axis >= x->rank) {
        tern_graph_fail(x->graph, TERN_ERROR_INVALID, "%s: axis %d does not exist in %s", op, axis,
                        tern_describe(x).text);
        return false;
    }
    *out_axis = axis < 0 ? axis + x->rank : axis;
    return true;
}

/* -------------------------------------------------- labels, outputs, the loss */

tern_tensor *tern_label(tern_tensor *x, const char *label)
{
    tern_tensor *instead;
    if (!tern_build_ready("label", 1, &x, &instead)) return instead;
    if (!label || !label[0])
        return tern_graph_fail(x->graph, TERN_ERROR_INVALID, "label of %s is empty", tern_describe(x).text);
    /* A leaf is found by its label in files and feeds, a random tensor's bits are keyed by it: both keep the one they
     * have. */
    if (tern_ops[x->op].kind == TERN_KIND_LEAF || x->op == TERN_OP_RANDOM) return x;
    char *owned = copy_text(x->graph, label);
    if (!owned) return fail_memory(x->graph);
    x->label = owned;
    return x;
}

void tern_output(tern_tensor *x, const char *name)
{
    tern_tensor *instead;
    if (!tern_build_ready("output", 1, &x, &instead)) return;
    tern_graph *graph = x->graph;
    if (!name || !name[0]) {
        tern_graph_fail(graph, TERN_ERROR_INVALID, "output: %s needs a name", tern_describe(x).text);
        return;
    }
    for (uint32_t i = 0; i < graph->output_count; i++) {
        if (strcmp(graph->outputs[i].name, name) != 0) continue;
        tern_graph_fail(graph, TERN_ERROR_INVALID, "output: the name \"%s\" is taken by %s; name %s differently", name,
                        tern_describe(graph->outputs[i].tensor).text, tern_describe(x).text);
        return;
    }
    char *owned = copy_text(graph, name);
    if (!owned ||
        !grow(graph, (void **)&graph->outputs, graph->output_count, &graph->output_capacity, sizeof *graph->outputs)) {
        fail_memory(graph);
        return;
    }
    graph->outputs[graph->output_count].tensor = x;
    graph->outputs[graph->output_count++].name = owned;
}

void tern_loss(tern_tensor *per_element, tern_tensor *weight)
{
    tern_tensor *in[2] = {per_element, weight}, *instead;
    if (!tern_build_ready("loss", weight ? 2 : 1, in, &instead)) return;
    tern_graph *graph = per_element->graph;
    /* What cross-entropy ignores counts nothing, whatever the caller's weights say. */
    tern_tensor *built_in = per_element->weight;
    per_element = tern_widen(per_element);
    weight = weight ? tern_widen(weight) : NULL;
    if (graph->loss) {
        tern_graph_fail(graph, TERN_ERROR_INVALID,
                        "loss: the graph already has the loss %s; add %s to it and call tern_loss once",
                        tern_describe(graph->loss).text, tern_describe(per_element).text);
    } else if (per_element->dtype != TERN_F32) {
        tern_graph_fail(graph, TERN_ERROR_INVALID, "loss: %s must be f32", tern_describe(per_element).text);
    } else if (weight && (weight->dtype != TERN_F32 || !tern_same_shape(weight, per_element))) {
        tern_graph_fail(graph, TERN_ERROR_INVALID, "loss: weight %s must be f32 of the losses' shape, %s",
                        tern_describe(weight).text, tern_describe(per_element).text);
    } else {
        if (weight && built_in) weight = tern_mul(weight, built_in);
        if (!weight) weight = built_in;
        graph->loss = per_element;
        graph->loss_weight = weight ? tern_detach(weight) : NULL;
    }
}
