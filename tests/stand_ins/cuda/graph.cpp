/* SPDX-License-Identifier: Apache-2.0 */
/* graph.cpp - graphs of explicit nodes: kernels, copies, fills, events, nothing.
 *
 * A launch is one operation of its stream: its nodes run one after another, the last ready one first, so that an edge
 * that was left out shows. Launches of one executable graph follow each other, as the driver has it. Parameters are
 * copied when a node is made or set. */
#include "driver.h"

#include <cstring>

namespace stand_in
{

struct Node {
    Graph *graph;
    std::vector<Node *> after;
    std::function<int()> work;
    Event *event = nullptr; /* an event's node: its operation is made at launch */
    bool waits_for_event = false, is_kernel = false;
};

struct Graph {
    std::vector<Node *> nodes;
    ~Graph()
    {
        for (Node *node : nodes) delete node;
    }
};

/* What an executable graph keeps of a node. */
struct Step {
    const Node *origin;
    std::vector<size_t> after;
    std::function<int()> work;
    Event *event;
    bool waits_for_event;
};

struct GraphExec {
    Context *context;
    std::vector<Step> steps;
    Op last;
    bool is_uploaded = false;
};

size_t graphs_alive() { return state.graphs.size() + state.executables.size(); }

namespace
{

bool holds(const Graph *graph, const Node *node)
{
    for (const Node *other : graph->nodes)
        if (other == node) return true;
    return false;
}

/* A node of the graph behind others; false: one of them is not the graph's. */
Node *add_node(Graph *graph, Node *const *after, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!holds(graph, after[i])) return nullptr;
    Node *node = new Node{graph, std::vector<Node *>(after, after + count), nullptr};
    graph->nodes.push_back(node);
    return node;
}

/* Indices of steps in the order of running; shorter than steps: they go round in a circle. */
std::vector<size_t> order_of(const std::vector<Step> &steps)
{
    std::vector<size_t> order;
    std::vector<bool> done(steps.size());
    for (bool any = true; any;) {
        any = false;
        for (size_t i = steps.size(); i-- > 0 && !any;) {
            bool ready = !done[i];
            for (size_t before : steps[i].after) ready = ready && done[before];
            if (!ready) continue;
            order.push_back(i);
            any = done[i] = true;
        }
    }
    return order;
}

/* One address of a side of a copy. */
bool place_of(const CUDA_MEMCPY3D_SIDE &side, uint64_t bytes, uint64_t *out_address)
{
    const bool host = side.type == CU_MEMORY_HOST;
    if ((!host && side.type != CU_MEMORY_DEVICE && side.type != CU_MEMORY_UNIFIED) || side.y || side.z || side.lod)
        return false;
    *out_address = (host ? (uint64_t)side.host : side.device) + side.x_bytes;
    return host || side.type == CU_MEMORY_UNIFIED ? is_accessible(*out_address, bytes)
                                                  : resolve(*out_address, bytes) != nullptr;
}

} // namespace
} // namespace stand_in

using namespace stand_in;

/* ------------------------------------------------------------------ building */

EXPORT CUresult cuGraphCreate(Graph **out_graph, unsigned flags)
{
    ENTRY("cuGraphCreate", context);
    if (!out_graph || flags) return CU_INVALID_VALUE;
    *out_graph = new Graph;
    state.graphs.insert(*out_graph);
    return CU_OK;
}

EXPORT CUresult cuGraphDestroy(Graph *graph)
{
    Call call("cuGraphDestroy", Needs::driver);
    if (call.error && !call.is_injected) return call.error;
    if (!state.graphs.erase(graph)) return CU_INVALID_VALUE;
    delete graph;
    return call.error;
}

#define WITH_GRAPH(graph)                                                                                              \
    if (!state.graphs.count(graph)) return CU_INVALID_VALUE

static CUresult add_kernel(const char *entry, Node **out_node, Graph *graph, Node *const *after, size_t count,
                           const CUDA_KERNEL_NODE_PARAMS *p)
{
    ENTRY(entry, context);
    WITH_GRAPH(graph);
    std::function<int()> work;
    if (!out_node || !p) return CU_INVALID_VALUE;
    if (const int wrong = launch_work(p->function, p->grid, p->block, p->shared_bytes, p->parameters, p->extra, &work))
        return wrong;
    Node *node = add_node(graph, after, count);
    if (!node) return CU_INVALID_VALUE;
    node->work = work;
    node->is_kernel = true;
    *out_node = node;
    return CU_OK;
}
EXPORT CUresult cuGraphAddKernelNode_v2(Node **node, Graph *graph, Node *const *after, size_t count,
                                        const CUDA_KERNEL_NODE_PARAMS *parameters)
{
    return add_kernel("cuGraphAddKernelNode_v2", node, graph, after, count, parameters);
}
EXPORT CUresult cuGraphAddKernelNode(Node **node, Graph *graph, Node *const *after, size_t count,
                                     const CUDA_KERNEL_NODE_PARAMS *parameters)
{
    return add_kernel("cuGraphAddKernelNode", node, graph, after, count,
                      parameters); /* reads what both versions have */
}

EXPORT CUresult cuGraphAddMemcpyNode(Node **out_node, Graph *graph, Node *const *after, size_t count,
                                     const CUDA_MEMCPY3D *p, Context *context)
{
    ENTRY("cuGraphAddMemcpyNode", context);
    WITH_GRAPH(graph);
    uint64_t to = 0, from = 0;
    if (!out_node || !p || context != current_context || p->height != 1 || p->depth != 1 || p->width_bytes == 0)
        return CU_INVALID_VALUE;
    if (!place_of(p->to, p->width_bytes, &to) || !place_of(p->from, p->width_bytes, &from)) return CU_INVALID_VALUE;
    Node *node = add_node(graph, after, count);
    if (!node) return CU_INVALID_VALUE;
    node->work = copy_work(to, from, p->width_bytes);
    *out_node = node;
    return CU_OK;
}

EXPORT CUresult cuGraphAddMemsetNode(Node **out_node, Graph *graph, Node *const *after, size_t count,
                                     const CUDA_MEMSET_NODE_PARAMS *p, Context *context)
{
    ENTRY("cuGraphAddMemsetNode", context);
    WITH_GRAPH(graph);
    if (!out_node || !p || context != current_context || p->height != 1 || p->width == 0) return CU_INVALID_VALUE;
    if (p->element_bytes != 1 && p->element_bytes != 2 && p->element_bytes != 4) return CU_INVALID_VALUE;
    if (!resolve(p->to, p->width * p->element_bytes) || p->to % p->element_bytes) return CU_INVALID_VALUE;
    Node *node = add_node(graph, after, count);
    if (!node) return CU_INVALID_VALUE;
    node->work = fill_work(p->to, p->value, p->element_bytes, p->width);
    *out_node = node;
    return CU_OK;
}

EXPORT CUresult cuGraphAddEmptyNode(Node **out_node, Graph *graph, Node *const *after, size_t count)
{
    ENTRY("cuGraphAddEmptyNode", context);
    WITH_GRAPH(graph);
    Node *node = out_node ? add_node(graph, after, count) : nullptr;
    if (!node) return CU_INVALID_VALUE;
    *out_node = node;
    return CU_OK;
}

static CUresult add_event(const char *entry, Node **out_node, Graph *graph, Node *const *after, size_t count,
                          Event *event, bool waits)
{
    ENTRY(entry, context);
    WITH_GRAPH(graph);
    if (!current_context->events.count(event)) return CU_INVALID_HANDLE;
    Node *node = out_node ? add_node(graph, after, count) : nullptr;
    if (!node) return CU_INVALID_VALUE;
    node->event = event;
    node->waits_for_event = waits;
    *out_node = node;
    return CU_OK;
}
EXPORT CUresult cuGraphAddEventRecordNode(Node **node, Graph *graph, Node *const *after, size_t count, Event *event)
{
    return add_event("cuGraphAddEventRecordNode", node, graph, after, count, event, false);
}
EXPORT CUresult cuGraphAddEventWaitNode(Node **node, Graph *graph, Node *const *after, size_t count, Event *event)
{
    return add_event("cuGraphAddEventWaitNode", node, graph, after, count, event, true);
}

static CUresult add_edges(const char *entry, Graph *graph, Node *const *from, Node *const *to, size_t count)
{
    ENTRY(entry, context);
    WITH_GRAPH(graph);
    for (size_t i = 0; i < count; i++)
        if (!holds(graph, from[i]) || !holds(graph, to[i])) return CU_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) to[i]->after.push_back(from[i]);
    return CU_OK;
}
EXPORT CUresult cuGraphAddDependencies(Graph *graph, Node *const *from, Node *const *to, size_t count)
{
    return add_edges("cuGraphAddDependencies", graph, from, to, count);
}
EXPORT CUresult cuGraphAddDependencies_v2(Graph *graph, Node *const *from, Node *const *to, const void *, size_t count)
{
    return add_edges("cuGraphAddDependencies_v2", graph, from, to, count);
}

/* ------------------------------------------------------------------- running */

EXPORT CUresult cuGraphInstantiateWithFlags(GraphExec **out_exec, Graph *graph, unsigned long long flags)
{
    ENTRY("cuGraphInstantiateWithFlags", context);
    WITH_GRAPH(graph);
    if (!out_exec || flags) return CU_INVALID_VALUE;
    std::map<const Node *, size_t> index;
    for (size_t i = 0; i < graph->nodes.size(); i++) index[graph->nodes[i]] = i;
    GraphExec *exec = new GraphExec{current_context, {}, nullptr};
    for (const Node *node : graph->nodes) {
        Step step = {node, {}, node->work, node->event, node->waits_for_event};
        for (const Node *before : node->after) step.after.push_back(index[before]);
        exec->steps.push_back(step);
    }
    if (order_of(exec->steps).size() != exec->steps.size()) {
        delete exec;
        return CU_INVALID_VALUE;
    }
    state.executables.insert(exec);
    *out_exec = exec;
    return CU_OK;
}

#define WITH_EXEC(exec)                                                                                                \
    if (!state.executables.count(exec)) return CU_INVALID_VALUE

/* A launched graph runs to its end all the same. */
EXPORT CUresult cuGraphExecDestroy(GraphExec *exec)
{
    Call call("cuGraphExecDestroy", Needs::driver);
    if (call.error && !call.is_injected) return call.error;
    if (!state.executables.erase(exec)) return CU_INVALID_VALUE;
    delete exec;
    return call.error;
}

EXPORT CUresult cuGraphUpload(GraphExec *exec, void *stream)
{
    ENTRY("cuGraphUpload", context);
    WITH_EXEC(exec);
    if (!stream_of(stream)) return CU_INVALID_HANDLE;
    exec->is_uploaded = true;
    return CU_OK;
}

static CUresult set_kernel(const char *entry, GraphExec *exec, Node *node, const CUDA_KERNEL_NODE_PARAMS *p)
{
    ENTRY(entry, context);
    WITH_EXEC(exec);
    for (Step &step : exec->steps)
        if (step.origin == node && node->is_kernel && p)
            return launch_work(p->function, p->grid, p->block, p->shared_bytes, p->parameters, p->extra, &step.work);
    return CU_INVALID_VALUE;
}
EXPORT CUresult cuGraphExecKernelNodeSetParams_v2(GraphExec *exec, Node *node,
                                                  const CUDA_KERNEL_NODE_PARAMS *parameters)
{
    return set_kernel("cuGraphExecKernelNodeSetParams_v2", exec, node, parameters);
}
EXPORT CUresult cuGraphExecKernelNodeSetParams(GraphExec *exec, Node *node, const CUDA_KERNEL_NODE_PARAMS *parameters)
{
    return set_kernel("cuGraphExecKernelNodeSetParams", exec, node, parameters);
}

EXPORT CUresult cuGraphLaunch(GraphExec *exec, void *handle)
{
    ENTRY("cuGraphLaunch", context);
    WITH_EXEC(exec);
    Stream *stream = stream_of(handle);
    if (!stream) return CU_INVALID_HANDLE;
    state.late_uploads += !exec->is_uploaded;
    exec->is_uploaded = true;
    std::shared_ptr<std::vector<Step>> steps(new std::vector<Step>(exec->steps));
    std::shared_ptr<std::vector<Op>> times(new std::vector<Op>(steps->size()));
    std::vector<Op> after = {exec->last};
    for (size_t i = 0; i < steps->size(); i++)
        if (Event *event = (*steps)[i].event) {
            if ((*steps)[i].waits_for_event) after.push_back(event->op);
            if ((*steps)[i].waits_for_event) continue;
            (*times)[i] = std::make_shared<Operation>(); /* done when its node has its turn */
        }
    const Op op = enqueue(
        stream,
        [=]() -> int {
            int result = CU_OK;
            for (size_t i : order_of(*steps)) {
                if ((*times)[i]) {
                    std::unique_lock<std::mutex> lock(state.lock);
                    (*times)[i]->time = now_ms();
                    (*times)[i]->is_done = true;
                    (*times)[i]->after.clear();
                } else if (!result && (*steps)[i].work) {
                    result = (*steps)[i].work();
                }
            }
            return result;
        },
        after);
    for (size_t i = 0; i < steps->size(); i++)
        if ((*times)[i]) {
            (*times)[i]->context = current_context;
            (*times)[i]->after = {op};
            (*times)[i]->is_asked = false;
            (*steps)[i].event->op = (*times)[i];
        }
    exec->last = op;
    return CU_OK;
}
