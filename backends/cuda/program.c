/* SPDX-License-Identifier: Apache-2.0 */
/* program.c - a program: its steps become nodes of CUDA graphs, instantiated once and launched at each submission.
 *
 *     steps ── waits ──> edges          a cut ──> the next graph          submit: graphs launched, the ticket's event
 *
 * A step's edges are its waits and nothing else, so steps that wait for nothing of each other may run side by side,
 * whatever their lanes; graphs of one stream run one after the other, so waits across a cut need no edge. With
 * timestamps the steps are a chain, an event between each two: steps that overlap have no time of their own. Invariant:
 * a program that was created touches no byte outside the ranges of its buffers by a copy or fill, and starts no kernel
 * with arguments missing. */
#include "backends/cuda/cuda.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct tern_backend_program {
    char label[96];
    uint32_t step_count, part_count;
    CUgraphExec *parts;
    CUevent *events; /* with timestamps: one before each part's first step and one after each step */
    uint32_t event_count;
    uint32_t *event_after; /* of each step */
    uint64_t ticket;       /* of the last submission, 0: none yet */
};

typedef struct recorder {
    tern_backend_device *device;
    tern_backend_program *program;
    CUgraph graph;
    uint32_t part_start;
    CUgraphNode *nodes, *edges; /* of each step; room for a step's edges */
    CUgraphNode last;           /* with timestamps: the event before the next step */
} recorder;

/* ------------------------------------------------------------------ nodes */

static cuda_side side_of(const tern_argument *argument)
{
    const tern_backend_buffer *buffer = argument->buffer;
    if (buffer->shape.host) return (cuda_side){.memory = CU_MEMORY_HOST, .host = buffer->shape.host + argument->offset};
    return (cuda_side){.memory = CU_MEMORY_DEVICE, .device = buffer->address + argument->offset};
}

static tern_status node_add(recorder *r, const tern_step *step, const CUgraphNode *edges, size_t count,
                            CUgraphNode *out_node)
{
    const tern_argument *arguments = step->arguments;
    if (step->kind == TERN_STEP_DISPATCH) {
        const tern_backend_kernel *kernel = step->kernel;
        CUdeviceptr addresses[TERN_TAPE_TENSORS];
        void *parameters[TERN_TAPE_TENSORS + 1];
        uint32_t words[TERN_KERNEL_WORDS];
        memcpy(words, step->words, sizeof words);
        for (uint32_t i = 0; i < step->argument_count; i++) {
            addresses[i] = arguments[i].buffer->address + arguments[i].offset;
            parameters[i] = &addresses[i];
        }
        parameters[step->argument_count] = words;
        const cuda_launch launch = {.function = kernel->function,
                                    .grid = {step->groups[0], step->groups[1], step->groups[2]},
                                    .block = {kernel->shape.group[0], kernel->shape.group[1], kernel->shape.group[2]},
                                    .parameters = parameters};
        return CU_CALL(r->device, cuGraphAddKernelNode, out_node, r->graph, edges, count, &launch);
    }
    if (step->kind == TERN_STEP_COPY) {
        const cuda_copy copy = {.from = side_of(&arguments[0]),
                                .to = side_of(&arguments[1]),
                                .width = (size_t)arguments[0].bytes,
                                .height = 1,
                                .depth = 1};
        return CU_CALL(r->device, cuGraphAddMemcpyNode, out_node, r->graph, edges, count, &copy, r->device->context);
    }
    const cuda_fill fill = {.address = arguments[0].buffer->address + arguments[0].offset,
                            .value = step->fill,
                            .element_bytes = 4,
                            .width = (size_t)arguments[0].bytes / 4,
                            .height = 1};
    return CU_CALL(r->device, cuGraphAddMemsetNode, out_node, r->graph, edges, count, &fill, r->device->context);
}

/* An event after what is recorded so far, for the times. */
static tern_status event_add(recorder *r)
{
    CUevent event = NULL;
    const CUgraphNode before = r->last;
    tern_status status;
    TERN_TRY(CU_CALL(r->device, cuEventCreate, &event, CU_EVENT_DEFAULT));
    r->program->events[r->program->event_count++] = event;
    TERN_TRY(CU_CALL(r->device, cuGraphAddEventRecordNode, &r->last, r->graph, before ? &before : NULL, before ? 1 : 0,
                     event));
fail:
    return status;
}

static tern_status step_record(recorder *r, const tern_step *step, uint32_t index)
{
    size_t count = 0;
    tern_status status;
    TERN_TRY(tern_step_check(&r->device->base.info, step, index));
    for (uint32_t w = 0; w < step->wait_count; w++) {
        bool known = step->waits[w] < r->part_start; /* ended with its own graph */
        for (uint32_t v = 0; v < w && !known; v++) known = step->waits[v] == step->waits[w];
        if (!known) r->edges[count++] = r->nodes[step->waits[w]];
    }
    if (!r->program->events) return node_add(r, step, r->edges, count, &r->nodes[index]);
    TERN_TRY(node_add(r, step, &r->last, 1, &r->nodes[index]));
    r->last = r->nodes[index];
    r->program->event_after[index] = r->program->event_count;
    TERN_TRY(event_add(r));
fail:
    return status;
}

/* Steps [start, end) as one graph. */
static tern_status part_record(recorder *r, const tern_program_desc *desc, uint32_t start, uint32_t end)
{
    tern_status status;
    r->part_start = start;
    r->last = NULL;
    TERN_TRY(CU_CALL(r->device, cuGraphCreate, &r->graph, 0));
    if (r->program->events) TERN_TRY(event_add(r));
    for (uint32_t i = start; i < end; i++) {
        const tern_step *step = &desc->steps[i];
        status = step_record(r, step, i);
        if (status < 0) {
            tern_error_prefix(status, "step %u \"%s\"", i, step->label ? step->label : r->program->label);
            goto fail;
        }
    }
    CUgraphExec *part = &r->program->parts[r->program->part_count];
    TERN_TRY(CU_CALL(r->device, cuGraphInstantiateWithFlags, part, r->graph, 0));
    r->program->part_count++;
    TERN_TRY(CU_CALL(r->device, cuGraphUpload, *part, r->device->stream)); /* else the first step would allocate */
fail:
    CU_RELEASE(cuGraphDestroy, r->graph);
    return status;
}

/* ------------------------------------------------------------------ create */

tern_status cuda_program_create(tern_backend_device *device, const tern_program_desc *desc,
                                tern_backend_program **out_program)
{
    recorder r = {.device = device};
    const size_t room = (size_t)desc->step_count + 1, parts = (size_t)desc->cut_count + 1;
    uint32_t waits = 1;
    tern_status status;
    *out_program = NULL;
    tern_backend_program *program = r.program = calloc(1, sizeof *program);
    if (!program) return tern_error_memory("a CUDA program", sizeof *program);
    if (desc->label) strncat(program->label, desc->label, sizeof program->label - 1);
    for (uint32_t i = 0; i < desc->step_count; i++)
        if (desc->steps[i].wait_count > waits) waits = desc->steps[i].wait_count;
    r.nodes = calloc(room, sizeof(CUgraphNode));
    r.edges = calloc(waits, sizeof(CUgraphNode));
    program->parts = calloc(parts, sizeof *program->parts);
    program->event_after = calloc(room, sizeof *program->event_after);
    if (device->timestamps) program->events = calloc(room + parts, sizeof *program->events);
    if (!r.nodes || !r.edges || !program->parts || !program->event_after || (device->timestamps && !program->events))
        TERN_TRY(tern_error_memory("a CUDA program's steps", room * sizeof(CUgraphNode)));
    program->step_count = desc->step_count;
    TERN_TRY(tern_cuts_check(desc));
    for (uint32_t start = 0, end; start < desc->step_count; start = end) {
        end = tern_part_end(desc, start);
        TERN_TRY(part_record(&r, desc, start, end));
    }
    *out_program = program;
    r.program = NULL;
fail:
    if (r.program) cuda_program_destroy(device, program);
    free(r.nodes);
    free(r.edges);
    return status;
}

void cuda_program_destroy(tern_backend_device *device, tern_backend_program *program)
{
    if (cuda_may_release(device, program->label)) {
        for (uint32_t i = 0; i < program->part_count; i++) CU_RELEASE(cuGraphExecDestroy, program->parts[i]);
        for (uint32_t i = 0; i < program->event_count; i++) CU_RELEASE(cuEventDestroy, program->events[i]);
    }
    free(program->parts);
    free(program->events);
    free(program->event_after);
    free(program);
}

/* ------------------------------------------------------------------ submit */

tern_status cuda_program_submit(tern_backend_device *device, tern_backend_program *program, uint64_t *out_ticket)
{
    pthread_mutex_lock(&device->lock);
    tern_status status = cuda_ticket_prepare(device);
    for (uint32_t i = 0; i < program->part_count && status >= 0; i++)
        status = CU_CALL(device, cuGraphLaunch, program->parts[i], device->stream);
    if (status >= 0) status = cuda_ticket_give(device, &program->ticket);
    if (status >= 0) *out_ticket = program->ticket;
    pthread_mutex_unlock(&device->lock);
    /* Some of it may be running, with buffers in use, though the program as a whole failed. */
    return status < 0 ? tern_plugin_finish_failed(device, status, cuda_drain) : TERN_OK;
}

uint32_t cuda_submission_count(tern_backend_device *device, tern_backend_program *program)
{
    (void)device;
    return program->ticket ? program->part_count : 0;
}

tern_status cuda_program_times(tern_backend_device *device, tern_backend_program *program, uint64_t *out_ns)
{
    tern_status status;
    TERN_TRY(tern_plugin_times_check(&device->base, device->timestamps, program->label, program->ticket));
    TERN_TRY(cuda_wait(device, program->ticket, device->base.patience_ns));
    for (uint32_t i = 0; i < program->step_count; i++) {
        const uint32_t after = program->event_after[i];
        float ms = 0;
        TERN_TRY(CU_CALL(device, cuEventElapsedTime, &ms, program->events[after - 1], program->events[after]));
        out_ns[i] = ms > 0 ? (uint64_t)((double)ms * 1e6) : 0;
    }
fail:
    return status;
}
