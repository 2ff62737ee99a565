/* SPDX-License-Identifier: Apache-2.0 */
/* lower.c - a graph as kernels, launches and values.
 *
 *     graph ── split column sums ── fuse ── per group: trace, emit ── kernel (unique by key) + launch
 *
 * A value is made for each stored node and each leaf that a launch touches. */
#include "core/kernel/lowered.h"

#include "core/base/array.h"
#include "core/base/dtype.h"
#include "core/kernel/columns.h"
#include "core/kernel/fuse.h"

#include <stdlib.h>
#include <string.h>

typedef struct lowering {
    tern_fuser fuser;
    const tern_device_info *info;
    tern_lowered *out;
    int32_t *value_of; /* per node id */
    uint32_t value_capacity, launch_capacity, kernel_capacity;
} lowering;

static bool grow(void **array, uint32_t count, uint32_t *capacity, size_t size)
{
    return tern_array_grow(array, count, capacity, size, "the lowered graph") == TERN_OK;
}

/* ---------------------------------------------------------------------- values */

static int32_t add_value(lowering *l, tern_value value)
{
    if (!grow((void **)&l->out->values, l->out->value_count, &l->value_capacity, sizeof value)) return -1;
    l->out->values[l->out->value_count] = value;
    return (int32_t)l->out->value_count++;
}

static tern_value describe(const tern_tensor *x)
{
    tern_value value = {
        .dtype = x->dtype, .bytes = tern_dtype_bytes(x->dtype, (uint64_t)tern_count(x)), .name = x->label};
    switch (x->op) {
    case TERN_OP_INPUT:
        value.storage = TERN_STORAGE_INPUT;
        value.kind = TERN_VALUE_INPUT;
        break;
    case TERN_OP_PARAMETER:
    case TERN_OP_STATE:
        value.storage = TERN_STORAGE_BOUND;
        value.kind = x->op == TERN_OP_PARAMETER ? TERN_VALUE_WEIGHT : TERN_VALUE_STATE;
        break;
    case TERN_OP_COLUMN_SUMS: value.kind = TERN_VALUE_SCRATCH; break;
    default:
        value.kind = x->pass == TERN_PASS_FORWARD    ? TERN_VALUE_ACTIVATION
                     : x->pass == TERN_PASS_BACKWARD ? TERN_VALUE_GRADIENT
                                                     : TERN_VALUE_SCRATCH;
    }
    return value;
}

/* The value of a storage node, made on first use; -1: out of memory. */
static int32_t value_of(lowering *l, const tern_tensor *storage)
{
    if (l->value_of[storage->id] < 0) l->value_of[storage->id] = add_value(l, describe(storage));
    return l->value_of[storage->id];
}

/* --------------------------------------------------------------------- kernels */

/* Takes the desc's tape over; finds an equal kernel or adds this one. */
static tern_status add_kernel(lowering *l, tern_kernel_desc *desc, const uint32_t *words, uint32_t *out_kernel)
{
    tern_status status = tern_variant_choose(desc, l->info, words);
    if (status == TERN_OK && desc->tape.insn_count > 0)
        status = tern_tape_check(&desc->tape, desc->kind != TERN_KERNEL_TAPE);
    if (status < 0) goto fail;
    tern_kernel_key(desc);
    for (uint32_t k = 0; k < l->out->kernel_count; k++) {
        if (l->out->kernels[k]->key != desc->key) continue;
        *out_kernel = k;
        goto fail; /* found: only the tape is freed */
    }
    tern_kernel_desc *kept = malloc(sizeof *kept);
    if (!kept || !grow((void **)&l->out->kernels, l->out->kernel_count, &l->kernel_capacity, sizeof kept)) {
        free(kept);
        status = tern_error_memory("a kernel", sizeof *kept);
        goto fail;
    }
    *kept = *desc;
    *out_kernel = l->out->kernel_count;
    l->out->kernels[l->out->kernel_count++] = kept;
    return TERN_OK;
fail:
    free(desc->tape.access);
    free(desc->tape.insn);
    return status;
}

static void set_tensor(tern_kernel_desc *desc, int32_t dtype, uint32_t mode)
{
    desc->tensors[desc->tensor_count++] = (tern_tape_tensor){.dtype = (uint8_t)dtype, .mode = (uint8_t)mode};
}

/* -------------------------------------------------------------------- launches */

static tern_status add_operand(tern_launch *launch, int32_t value, int32_t dtype, int64_t offset, int64_t high,
                               uint32_t mode)
{
    if (value < 0) return TERN_ERROR_MEMORY;
    const uint64_t size = tern_dtype_bytes(dtype, 1);
    launch->operands[launch->operand_count++] = (tern_operand){.value = (uint32_t)value,
                                                               .offset = (uint64_t)offset * size,
                                                               .bytes = (uint64_t)(high - offset) * size,
                                                               .mode = mode};
    launch->bytes += (double)((uint64_t)(high - offset) * size);
    return TERN_OK;
}

/* Arguments of a tape or of an epilogue. Every index is relative to the argument's offset, so the range starts there.
 */
static tern_status add_arguments(lowering *l, tern_kernel_desc *desc, tern_launch *launch, const tern_emitted *emitted)
{
    for (uint32_t i = 0; i < emitted->tape.tensor_count; i++) {
        const tern_emit_argument *argument = &emitted->arguments[i];
        const tern_tensor *storage = argument->storage;
        set_tensor(desc, storage->dtype, argument->mode);
        const tern_status status =
            add_operand(launch, value_of(l, storage), storage->dtype, argument->offset, argument->high, argument->mode);
        if (status < 0) return status;
    }
    return TERN_OK;
}

static tern_status add_contraction_operands(lowering *l, tern_kernel_desc *desc, tern_launch *launch,
                                            const tern_contraction *contraction)
{
    for (uint32_t i = 0; i < contraction->operand_count; i++) {
        const tern_contraction_operand *operand = &contraction->operands[i];
        const tern_value scratch = {
            .kind = TERN_VALUE_SCRATCH, .dtype = operand->dtype, .bytes = operand->scratch_bytes, .name = "scratch"};
        const int32_t value = operand->storage ? value_of(l, operand->storage) : add_value(l, scratch);
        set_tensor(desc, operand->dtype, operand->mode);
        const tern_status status =
            add_operand(launch, value, operand->dtype, operand->offset, operand->high, operand->mode);
        if (status < 0) return status;
    }
    return TERN_OK;
}

static tern_status finish_launch(lowering *l, tern_kernel_desc *desc, tern_launch *launch)
{
    tern_status status = add_kernel(l, desc, launch->words, &launch->kernel);
    if (status < 0) return status;
    const tern_kernel_desc *kernel = l->out->kernels[launch->kernel];
    status = tern_variant_groups(kernel, l->info, launch->words, launch->groups);
    if (status < 0) return status;
    if (!grow((void **)&l->out->launches, l->out->launch_count, &l->launch_capacity, sizeof *launch))
        return TERN_ERROR_MEMORY;
    l->out->launches[l->out->launch_count++] = *launch;
    return TERN_OK;
}

static void begin(const tern_tensor *first, tern_kernel_desc *desc, tern_launch *launch)
{
    memset(desc, 0, sizeof *desc);
    memset(launch, 0, sizeof *launch);
    desc->render = tern_render;
    launch->pass = first->pass;
    launch->label = first->label;
    size_t n = strlen(first->label);
    if (n >= sizeof desc->label) n = sizeof desc->label - 1;
    memcpy(desc->label, first->label, n);
}

static tern_status emit_group(lowering *l, const tern_group *group, tern_emitted *out_emitted)
{
    const tern_tensor *need;
    const tern_trace_result result = tern_group_build(&l->fuser, group, NULL, &group->frame, out_emitted, &need);
    if (result == TERN_TRACE_OK) return TERN_OK;
    if (result == TERN_TRACE_ERROR) return TERN_ERROR_MEMORY;
    return tern_error(TERN_ERROR_INTERNAL,
                      "the kernel of \"%s\" fitted while fusing but not after; please report the model",
                      group->roots[0]->label);
}

/* The random labels' words follow the kind's own. */
static void add_labels(tern_kernel_desc *desc, tern_launch *launch, const tern_emitted *emitted)
{
    memcpy(&launch->words[launch->word_count], emitted->labels, emitted->label_count * sizeof emitted->labels[0]);
    launch->word_count += emitted->label_count;
    desc->word_count = launch->word_count;
}

static tern_status lower_tape(lowering *l, const tern_group *group)
{
    tern_kernel_desc desc;
    tern_launch launch;
    tern_emitted emitted;
    begin(group->roots[0], &desc, &launch);
    tern_status status = emit_group(l, group, &emitted);
    if (status < 0) return status;
    desc.tape = emitted.tape; /* taken over */
    launch.word_count = emitted.tape.dim_count;
    memcpy(launch.words, emitted.dims, sizeof emitted.dims);
    add_labels(&desc, &launch, &emitted);
    double elements = 1;
    for (uint32_t d = 0; d < emitted.tape.dim_count; d++) elements *= emitted.dims[d];
    launch.flops = elements * emitted.tape.insn_count;
    status = add_arguments(l, &desc, &launch, &emitted);
    if (status < 0) {
        tern_emitted_finish(&emitted);
        return status;
    }
    return finish_launch(l, &desc, &launch);
}

static tern_status lower_contraction(lowering *l, const tern_group *group)
{
    const tern_tensor *x = group->contraction, *need;
    tern_kernel_desc desc;
    tern_launch launch;
    tern_contraction contraction;
    tern_emitted emitted = {0};
    begin(x, &desc, &launch);
    if (tern_contraction_resolve(x, l->fuser.second[x->id], l->fuser.stored, &contraction, &need) != TERN_TRACE_OK)
        return tern_error(TERN_ERROR_INTERNAL, "the operands of \"%s\" changed after fusing; please report the model",
                          x->label);
    desc.kind = contraction.kind;
    desc.a_transposed = contraction.a_transposed;
    desc.b_transposed = contraction.b_transposed;
    desc.causal = contraction.causal;
    desc.sorted = contraction.sorted;
    desc.head_dim = contraction.head_dim;
    launch.word_count = contraction.word_count;
    memcpy(launch.words, contraction.words, sizeof contraction.words);
    launch.flops = contraction.flops;
    tern_status status = add_contraction_operands(l, &desc, &launch, &contraction);
    if (status == TERN_OK && contraction.has_epilogue) {
        status = emit_group(l, group, &emitted);
        if (status == TERN_OK) status = add_arguments(l, &desc, &launch, &emitted);
    }
    if (status < 0) {
        tern_emitted_finish(&emitted);
        return status;
    }
    desc.tape = emitted.tape;
    add_labels(&desc, &launch, &emitted);
    return finish_launch(l, &desc, &launch);
}

static tern_status add_outputs(lowering *l)
{
    const tern_graph *graph = l->fuser.graph;
    l->out->outputs = calloc(graph->output_count + 1u, sizeof *l->out->outputs);
    if (!l->out->outputs) return tern_error_memory("the outputs", graph->output_count * sizeof *l->out->outputs);
    for (uint32_t o = 0; o < graph->output_count; o++) {
        const int32_t value = value_of(l, tern_storage_of(tern_fuser_output(graph->outputs[o].tensor)));
        if (value < 0) return TERN_ERROR_MEMORY;
        l->out->values[value].keep = true;
        l->out->outputs[l->out->output_count++] = (tern_named_value){graph->outputs[o].name, (uint32_t)value};
    }
    return TERN_OK;
}

static tern_status lower_groups(lowering *l)
{
    for (uint32_t g = 0; g < l->fuser.group_count; g++) {
        const tern_group *group = &l->fuser.groups[g];
        const tern_status status = group->contraction ? lower_contraction(l, group) : lower_tape(l, group);
        if (status < 0) return status;
    }
    return add_outputs(l);
}

tern_status tern_lower(const tern_graph *graph, const tern_device_info *info, const tern_lower_options *options,
                       tern_lowered **out_lowered)
{
    tern_status status;
    lowering l = {.info = info, .out = calloc(1, sizeof *l.out)};
    *out_lowered = NULL;
    if (!l.out) return tern_error_memory("the lowered graph", sizeof *l.out);
    l.fuser.fuse = true;
    if (options) {
        l.fuser.fuse = options->fuse;
        l.fuser.accepts_epilogue = options->accepts_epilogue;
        l.fuser.context = options->context;
    }
    TERN_TRY(tern_split_columns(graph, &l.out->graph));
    l.value_of = malloc((l.out->graph->node_count + 1u) * sizeof *l.value_of);
    if (!l.value_of) {
        status = tern_error_memory("the lowered graph", l.out->graph->node_count * sizeof *l.value_of);
        goto fail;
    }
    memset(l.value_of, 0xff, (l.out->graph->node_count + 1u) * sizeof *l.value_of);
    TERN_TRY(tern_fuser_run(&l.fuser, l.out->graph));
    TERN_TRY(lower_groups(&l));
    *out_lowered = l.out;
    l.out = NULL;
fail:
    tern_fuser_finish(&l.fuser);
    free(l.value_of);
    tern_lowered_destroy(l.out);
    return status;
}

void tern_lowered_destroy(tern_lowered *lowered)
{
    if (!lowered) return;
    for (uint32_t k = 0; k < lowered->kernel_count; k++) {
        free(lowered->kernels[k]->tape.access);
        free(lowered->kernels[k]->tape.insn);
        free(lowered->kernels[k]);
    }
    free(lowered->kernels);
    free(lowered->values);
    free(lowered->launches);
    free(lowered->outputs);
    tern_graph_destroy(lowered->graph);
    free(lowered);
}
