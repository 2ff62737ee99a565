/* SPDX-License-Identifier: Apache-2.0 */
/* graph.h - the graph inside: nodes in creation order (so every input precedes its user), static shapes.
 *
 * What it is not: it holds no data, knows no device and no kernel.
 * Invariants: nodes[i]->id == i; inputs have smaller ids; MAP inputs have the node's own shape (RANDOM's control and
 * GATHER's operands excepted); MATMUL operands have rank 3 and equal batch; f16 and bf16 occur in INPUT, STATE, views,
 * CAST, DETACH, GATHER, ASSIGN, ATTENTION with its gradients and as operands of MATMUL and SCATTER_ADD, nowhere else
 * (promote.c); ranks <= TERN_MAX_RANK; sizes >= 1;
 * every tensor has fewer than 2^31 elements, since kernels index with u32. */
#ifndef TERN_GRAPH_GRAPH_H
#define TERN_GRAPH_GRAPH_H

#include "core/base/status.h"

typedef enum tern_op {
#define OP(name, text, kind, inputs, has_gradient) TERN_OP_##name,
#include "core/graph/ops.def"
#undef OP
    TERN_OP_COUNT
} tern_op;

typedef enum tern_op_kind {
    TERN_KIND_LEAF,
    TERN_KIND_VIEW,
    TERN_KIND_MAP,
    TERN_KIND_REDUCE,
    TERN_KIND_CONTRACTION,
    TERN_KIND_EFFECT
} tern_op_kind;

typedef struct tern_op_info {
    const char *name;
    tern_op_kind kind;
    int8_t inputs;
    int8_t has_gradient;
} tern_op_info;
extern const tern_op_info tern_ops[TERN_OP_COUNT];

/* Which pass made a node. The save rule looks at uses of FORWARD nodes by BACKWARD ones. */
typedef enum tern_pass { TERN_PASS_FORWARD = 0, TERN_PASS_BACKWARD, TERN_PASS_UPDATE } tern_pass;

#define TERN_MAX_INPUTS 6

struct tern_tensor {
    tern_graph *graph;
    uint32_t id;
    tern_op op;
    int32_t dtype;
    tern_pass pass;
    int32_t rank;
    int64_t shape[TERN_MAX_RANK];
    int32_t in_count;
    tern_tensor *in[TERN_MAX_INPUTS];
    bool needs_gradient;        /* a trainable parameter is below it */
    bool replaced;              /* an ASSIGN writes over this version */
    bool keep_f32;              /* autocast leaves it and what is read of it in f32 */
    char *label;                /* never NULL: the user's, or "op#id" */
    tern_tensor *weight;        /* loss weights that come with it (cross-entropy's ignore index), or NULL */
    tern_tensor *in_evaluation; /* what stands in its place in a copy for evaluation (dropout's operand), or NULL */
    union {
        struct {
            int32_t init;
            double scale;
            bool trainable;
        } parameter;
        struct {
            tern_tensor *sort_of;
            int32_t part;
            int64_t rows;
        } input; /* role, see tern_input_sort */
        struct {
            uint32_t bits;
        } constant;
        struct {
            int32_t axis;
        } index;
        struct {
            uint32_t axes;
        } reduce;
        struct {
            int32_t axes[TERN_MAX_RANK];
        } permute;
        struct {
            int64_t starts[TERN_MAX_RANK];
        } slice;
        struct {
            int64_t before[TERN_MAX_RANK];
            int64_t after[TERN_MAX_RANK];
        } pad;
        struct {
            uint32_t label_hash;
            uint32_t per_example; /* elements / shape[0] */
        } random;
        struct {
            float scale;
            bool causal;
        } attention; /* ATTENTION, _DQ, _DKV */
        struct {
            int64_t rows;
        } scatter;
        struct {
            int64_t rows;
        } columns; /* COLUMN_SUMS: a is (rows, ...) flattened; R is (ceil(rows / 64), ...) */
    } at;
};

struct tern_graph {
    tern_tensor **nodes;
    uint32_t node_count, node_capacity;
    tern_status status; /* first error, sticky */
    char message[512];
    tern_pass pass;           /* given to new nodes */
    bool training;            /* dropout acts; true unless set otherwise before building */
    tern_tensor *loss;        /* per element, from tern_loss */
    tern_tensor *loss_weight; /* same shape, or NULL for 1 */
    struct {
        tern_tensor *tensor;
        char *name;
    } * outputs;
    uint32_t output_count, output_capacity;
    struct tern_graph_name *names; /* leaves and RANDOM nodes by label: open addressing, name_capacity a power of two */
    uint32_t name_count, name_capacity;
    tern_tensor *inert;              /* what ops return after an error; not in nodes */
    struct tern_graph_chunk *chunks; /* arena: nodes and labels live until the graph dies */
    size_t memory_bytes,
        memory_limit_bytes; /* taken so far; refuse to take more (0: no limit), which tests use as well */
};

/* The control block: the one u32 input named TERN_CONTROL_NAME with TERN_CONTROL_WORDS elements, made on first use. */
#define TERN_CONTROL_NAME  "tern.control"
#define TERN_CONTROL_WORDS 16
enum {
    TERN_CONTROL_KEY0 = 0,
    TERN_CONTROL_KEY1,
    TERN_CONTROL_SAMPLE_BASE,
    TERN_CONTROL_ATTEMPT,
    TERN_CONTROL_LR,      /* f32 bits */
    TERN_CONTROL_EXAMPLES /* how many examples of this batch count (passes/instance.h) */
};
tern_tensor *tern_graph_control(tern_graph *graph);

/* Appends a node; copies `label` (NULL: "op#id"). On a graph in error, or out of memory, returns the graph's inert node
 * (a rank-0 constant). */
tern_tensor *tern_graph_node(tern_graph *graph, tern_op op, int32_t dtype, int32_t rank, const int64_t *shape,
                             int32_t in_count, tern_tensor *const *in, const char *label);
/* Records the first error. The sentence begins with the op's name and quotes its operands' labels and shapes
 * (tern_describe in build.h). Returns the inert node. */
tern_tensor *tern_graph_fail(tern_graph *graph, tern_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Zeroed bytes that live as long as the graph; NULL when out of memory or over the limit (the caller reports it). */
void *tern_graph_alloc(tern_graph *graph, size_t bytes);
/* A node like `like` (op, dtype, shape, attributes, label) on other inputs, which may belong to another graph: for
 * passes. */
tern_tensor *tern_graph_copy(tern_graph *graph, const tern_tensor *like, tern_tensor *const *in, tern_pass pass);

/* For passes that make a graph from another: an empty one with its flags and limits; and, once every node of `in` has a
 * copy, what hangs on nodes: loss weights, what a sort belongs to, outputs, the loss. copies: per node id of `in`. */
TERN_MUST_USE tern_status tern_graph_create_like(const tern_graph *in, tern_graph **out_graph);
TERN_MUST_USE tern_status tern_graph_copy_rest(const tern_graph *in, tern_graph *out, tern_tensor *const *copies);

int64_t tern_count(const tern_tensor *x); /* number of elements */
/* Only moves elements: a VIEW, and not a second output. */
bool tern_is_view(const tern_tensor *x);
/* A CAST of a 16-bit float to f32: the same values, never worth a buffer of its own. */
bool tern_is_widening(const tern_tensor *x);
/* A CAST of f32 to a 16-bit float. */
bool tern_is_narrowing(const tern_tensor *x);
/* The view node `view` once more, on a tensor of its input's shape, whose dtype it takes. */
tern_tensor *tern_view_again(const tern_tensor *view, tern_tensor *x);
/* The leaf or RANDOM node of that op and name, the first where passes made several; NULL: none. */
tern_tensor *tern_graph_find(const tern_graph *graph, tern_op op, const char *name);
/* The RANDOM node whose label has this tern_hash_label, or NULL. */
tern_tensor *tern_graph_find_random(const tern_graph *graph, uint32_t label_hash);
tern_tensor *tern_second(tern_tensor *contraction);          /* SECOND node */
tern_tensor *tern_matmul_3d(tern_tensor *a, tern_tensor *b); /* the bare primitive */

/* Part 0: the stable order (N) u32 of the ids; part 1: offsets (rows + 1) u32 of each id's run in it. Inputs named
 * "<ids>.order" and "<ids>.offsets", which whoever feeds `ids` computes by a counting sort (tern_counting_sort). Only
 * when ids is an INPUT. */
tern_tensor *tern_input_sort(tern_tensor *ids, int64_t rows, int32_t part);
/* order[offsets[v] .. offsets[v + 1]) are the positions of id v, ascending. ids >= rows count as rows - 1. */
void tern_counting_sort(const void *ids, int32_t dtype, int64_t count, int64_t rows, uint32_t *out_order,
                        uint32_t *out_offsets);

/* ---------------------------------------------------------------- autograd (gradient.c, one rule per primitive) */

typedef struct tern_gradient {
    tern_tensor *parameter;
    tern_tensor **parts; /* contributions, unsummed: each has the parameter's shape */
    uint32_t part_count;
} tern_gradient;
typedef struct tern_gradients {
    tern_gradient *items;
    uint32_t count; /* one per trainable parameter that the loss reaches, in parameter order */
} tern_gradients;
/* Appends the backward pass of `seed` (same shape as `loss`, d objective / d loss) to the graph, nodes marked BACKWARD.
 * Fails naming the op when an op without gradient stands between the loss and a parameter. */
TERN_MUST_USE tern_status tern_backward(tern_graph *graph, tern_tensor *loss, tern_tensor *seed,
                                        tern_gradients *out_gradients);
void tern_gradients_finish(tern_gradients *gradients);
/* Sum of a gradient's parts as one node (NULL parts: a zero constant expanded). */
tern_tensor *tern_gradient_sum(const tern_gradient *gradient);
/* The gradient of `loss` seeded by `seed` with respect to any tensor of the graph; NULL if it does not reach. For
 * tests. */
TERN_MUST_USE tern_status tern_backward_to(tern_graph *graph, tern_tensor *loss, tern_tensor *seed,
                                           tern_tensor *const *wrt, int32_t count, tern_tensor **out_gradients);

#endif
