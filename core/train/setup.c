/* SPDX-License-Identifier: Apache-2.0 */
/* setup.c - compiles the programs of a run and adds up their memory; setup.h has the picture. */
#include "core/train/setup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/passes/accumulate.h"
#include "core/passes/autocast.h"
#include "core/passes/save_rule.h"
#include "core/passes/state_shadow.h"

const char *const tern_program_names[TERN_PROGRAM_COUNT] = {"micro", "update", "eval", "probe", "probe.f32"};

static bool accepts_epilogue(void *context, const tern_kernel_desc *desc)
{
    const tern_device *device = context;
    return device->backend->accepts_epilogue(device->handle, desc);
}

/* graph -> lowered -> plan; the graph must be complete. */
static tern_status compile(const tern_setup *setup, tern_program *program)
{
    tern_status status;
    const tern_device *device = setup->device;
    const tern_lower_options options = {
        .fuse = !setup->options.no_fuse,
        .accepts_epilogue = device->backend->accepts_epilogue ? accepts_epilogue : NULL,
        .context = setup->device,
    };
    TERN_TRY(tern_lower(program->graph, &device->info, &options, &program->lowered));
    TERN_TRY(tern_plan_create(program->lowered, &device->info, &setup->options.plan, &program->plan));
    TERN_TRY(tern_plan_verify(program->plan)); /* 10 ms for GPT-2 124M: cheap beside a wrong gradient */
fail:
    return status;
}

static bool is_low(const tern_setup_options *options)
{
    return options->precision != 0 && options->precision != TERN_F32;
}

/* In 16 bits where the options say so; else *graph stays as it is. Each takes the graph over and gives another. */
static tern_status autocast(const tern_setup_options *options, tern_graph **graph)
{
    tern_graph *low;
    if (!is_low(options)) return TERN_OK;
    const tern_status status = tern_pass_autocast(*graph, options->precision, &low);
    if (status < 0) return status;
    tern_graph_destroy(*graph);
    *graph = low;
    return TERN_OK;
}

static tern_status read_low_weights(const tern_setup_options *options, tern_graph **graph)
{
    tern_graph *low;
    if (!is_low(options)) return TERN_OK;
    const tern_status status = tern_pass_low_weights(*graph, options->precision, !options->no_masters, &low);
    if (status < 0) return status;
    tern_graph_destroy(*graph);
    *graph = low;
    return TERN_OK;
}

static tern_status create_layout(tern_setup *setup, const tern_graph *graph)
{
    const tern_setup_options *o = &setup->options;
    const tern_store_options options = {.segment_bytes = o->segment_bytes,
                                        .training = true,
                                        .low = is_low(o) ? o->precision : 0,
                                        .no_masters = o->no_masters,
                                        .optimizer = o->optimizer,
                                        .groups = o->groups,
                                        .group_count = o->group_count};
    return tern_store_layout_create(graph, &setup->device->info, &options, &setup->layout);
}

/* The model's loss graph for one micro-batch; training: dropout acts. */
static tern_status build_model(const tern_setup *setup, bool training, tern_graph **out_graph)
{
    tern_status status;
    tern_graph *graph = NULL;
    *out_graph = NULL;
    TERN_TRY(tern_graph_create(&graph));
    graph->training = training;
    TERN_TRY(setup->options.model.build(setup->options.model.context, graph, setup->options.batch));
    *out_graph = graph;
    return TERN_OK;
fail:
    tern_graph_destroy(graph);
    return status;
}

static tern_status build_micro(tern_setup *setup)
{
    tern_status status;
    tern_graph *model = NULL, *graph = NULL;
    tern_program *program = &setup->programs[TERN_PROGRAM_MICRO];
    TERN_TRY(build_model(setup, true, &model));
    TERN_TRY(tern_groups_apply(setup->options.groups, setup->options.group_count, model));
    TERN_TRY(tern_pass_state_shadow(model, &graph));
    TERN_TRY(autocast(&setup->options, &graph));
    TERN_TRY(tern_pass_accumulate(graph));
    TERN_TRY(create_layout(setup, graph));
    TERN_TRY(read_low_weights(&setup->options, &graph));
    TERN_TRY(tern_pass_save_rule(graph, &program->graph));
    TERN_TRY(tern_store_layout_add(setup->layout, program->graph));
    TERN_TRY(compile(setup, program));
fail:
    tern_graph_destroy(graph);
    tern_graph_destroy(model);
    return status;
}

static tern_status build_update(tern_setup *setup)
{
    tern_status status;
    tern_program *program = &setup->programs[TERN_PROGRAM_UPDATE];
    TERN_TRY(tern_graph_create(&program->graph));
    TERN_TRY(tern_update_build(program->graph, setup->layout, &setup->options.update));
    TERN_TRY(tern_store_layout_add(setup->layout, program->graph));
    TERN_TRY(compile(setup, program));
fail:
    return status;
}

static tern_status build_eval(tern_setup *setup)
{
    tern_status status;
    tern_tensor *n = NULL, *loss = NULL;
    tern_graph *model = NULL;
    tern_program *program = &setup->programs[TERN_PROGRAM_EVAL];
    TERN_TRY(build_model(setup, false, &model));
    TERN_TRY(tern_pass_state_freeze(model, &program->graph));
    TERN_TRY(autocast(&setup->options, &program->graph));
    TERN_TRY(tern_pass_loss_sums(program->graph, &n, &loss));
    tern_output(n, TERN_EVAL_N);
    tern_output(loss, TERN_EVAL_LOSS);
    TERN_TRY(tern_graph_status(program->graph));
    TERN_TRY(read_low_weights(&setup->options, &program->graph));
    TERN_TRY(tern_store_layout_add(setup->layout, program->graph));
    TERN_TRY(compile(setup, program));
fail:
    tern_graph_destroy(model);
    return status;
}

/* Reads the weights that micro reads; in f32 the masters, or where there are none what the 16-bit weights are in f32.
 */
static tern_status build_probe(tern_setup *setup, tern_program_kind kind)
{
    tern_status status;
    const bool low = kind == TERN_PROGRAM_PROBE;
    tern_graph *model = NULL, *graph = NULL;
    tern_program *program = &setup->programs[kind];
    TERN_TRY(build_model(setup, true, &model));
    TERN_TRY(tern_groups_apply(setup->options.groups, setup->options.group_count, model));
    TERN_TRY(tern_pass_state_freeze(model, &graph));
    if (low) TERN_TRY(autocast(&setup->options, &graph));
    TERN_TRY(tern_pass_probe(graph, low));
    if (low || setup->options.no_masters) TERN_TRY(read_low_weights(&setup->options, &graph));
    TERN_TRY(tern_pass_save_rule(graph, &program->graph));
    TERN_TRY(tern_store_layout_add(setup->layout, program->graph));
    TERN_TRY(compile(setup, program));
fail:
    tern_graph_destroy(graph);
    tern_graph_destroy(model);
    return status;
}

static tern_status build_probes(tern_setup *setup)
{
    if (!is_low(&setup->options))
        return tern_error(TERN_ERROR_INVALID,
                          "calibration compares half precision with f32, and this run is f32; leave "
                          "calibration out or give a 16-bit precision");
    tern_status status = build_probe(setup, TERN_PROGRAM_PROBE);
    return status < 0 ? status : build_probe(setup, TERN_PROGRAM_PROBE_F32);
}

tern_status tern_setup_create(tern_device *device, const tern_setup_options *options, tern_setup **out_setup)
{
    tern_status status;
    tern_setup *setup = calloc(1, sizeof *setup);
    *out_setup = NULL;
    if (!setup) return tern_error_memory("a training setup", sizeof *setup);
    setup->device = device;
    setup->options = *options;
    setup->options.update.scale =
        tern_scale_resolve(&options->update.scale, options->precision == TERN_F16); /* others need none */
    TERN_TRY(build_micro(setup));
    TERN_TRY(build_update(setup));
    if (options->evaluate) TERN_TRY(build_eval(setup));
    if (options->calibrate) TERN_TRY(build_probes(setup));
    setup->options.groups = NULL; /* the caller's */
    setup->options.group_count = 0;
    *out_setup = setup;
    return TERN_OK;
fail:
    tern_setup_destroy(setup);
    return status;
}

void tern_setup_destroy(tern_setup *setup)
{
    if (!setup) return;
    for (int i = 0; i < TERN_PROGRAM_COUNT; i++) {
        tern_plan_destroy(setup->programs[i].plan);
        tern_lowered_destroy(setup->programs[i].lowered);
        tern_graph_destroy(setup->programs[i].graph);
    }
    tern_store_layout_destroy(setup->layout);
    free(setup);
}

/* ------------------------------------------------------------------- memory */

static uint64_t readback_bytes(const tern_program *program)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < program->lowered->output_count; i++) {
        uint64_t size = program->lowered->values[program->lowered->outputs[i].value].bytes;
        bytes += (size + program->plan->alignment - 1) / program->plan->alignment * program->plan->alignment;
    }
    return bytes;
}

static uint64_t arena_bytes(const tern_setup *setup)
{
    uint64_t total = 0;
    for (uint32_t block = 0;; block++) {
        uint64_t most = 0;
        bool found = false;
        for (int i = 0; i < TERN_PROGRAM_COUNT; i++) {
            const tern_plan *plan = setup->programs[i].plan;
            if (!plan || block >= plan->block_count) continue;
            found = true;
            if (plan->block_bytes[block] > most) most = plan->block_bytes[block];
        }
        if (!found) return total;
        total += most;
    }
}

void tern_setup_measure(const tern_setup *setup, tern_setup_memory *out_memory)
{
    tern_setup_memory m = {0};
    m.weights = tern_store_layout_bytes(setup->layout, TERN_SLAB_WEIGHT);
    m.gradients = tern_store_layout_bytes(setup->layout, TERN_SLAB_ACC);
    m.low = tern_store_layout_bytes(setup->layout, TERN_SLAB_LOW);
    for (int slab = TERN_SLAB_M; slab <= TERN_SLAB_V_SCALE; slab++)
        m.moments += tern_store_layout_bytes(setup->layout, (tern_store_slab)slab);
    m.states = setup->layout->state_bytes;
    m.arena = arena_bytes(setup);
    for (int i = 0; i < TERN_PROGRAM_COUNT; i++) {
        if (!setup->programs[i].plan) continue;
        m.upload += TERN_SLOTS * setup->programs[i].plan->upload_bytes;
        m.readback += TERN_SLOTS * readback_bytes(&setup->programs[i]);
    }
    m.total = m.weights + m.low + m.gradients + m.moments + m.states + m.arena + m.upload + m.readback;
    m.budget = setup->device->info.memory_free_bytes;
    *out_memory = m;
}

/* Whether this batch fits; a plan that a limit refuses does not. *out_total: 0 when refused before its bytes were
 * known. */
static tern_status try_batch(tern_device *device, const tern_setup_options *options, uint32_t batch, bool *out_fits,
                             uint64_t *out_total, tern_setup **out_setup)
{
    tern_setup_options tried = *options;
    tern_setup_memory memory = {0};
    tern_setup *setup = NULL;
    tried.batch = batch;
    *out_fits = false;
    *out_total = 0;
    tern_status status = tern_setup_create(device, &tried, &setup);
    if (status == TERN_ERROR_DEVICE_MEMORY || status == TERN_ERROR_UNSUPPORTED) return TERN_OK;
    if (status < 0) return status;
    tern_setup_measure(setup, &memory);
    *out_fits = memory.total <= memory.budget;
    *out_total = memory.total;
    if (out_setup && *out_fits)
        *out_setup = setup;
    else
        tern_setup_destroy(setup);
    return TERN_OK;
}

/* The largest batch below `batch`, which does not fit; 0 when none does. Bytes grow with the batch, so halving finds
 * it. */
static tern_status largest_batch(tern_device *device, const tern_setup_options *options, uint32_t *out_batch)
{
    tern_status status = TERN_OK;
    uint32_t fits = 0, fails = options->batch;
    while (fails - fits > 1) {
        uint32_t middle = fits + (fails - fits) / 2;
        uint64_t total;
        bool fine;
        TERN_TRY(try_batch(device, options, middle, &fine, &total, NULL));
        if (fine)
            fits = middle;
        else
            fails = middle;
    }
    *out_batch = fits;
fail:
    return status;
}

static tern_status refuse(tern_device *device, const tern_setup_options *options, uint64_t total)
{
    uint32_t largest = 0;
    const unsigned long long budget = device->info.memory_free_bytes;
    char reason[640], advice[128];
    if (total > 0)
        snprintf(reason, sizeof reason, "a batch of %u needs %llu bytes, %llu more than the %llu that %s has free",
                 options->batch, (unsigned long long)total, (unsigned long long)total - budget, budget,
                 device->info.name);
    else
        snprintf(reason, sizeof reason, "a batch of %u does not fit: %s", options->batch, tern_error_message());
    tern_status status = largest_batch(device, options, &largest);
    if (status < 0) return status;
    if (largest > 0)
        snprintf(advice, sizeof advice, "the largest batch that fits is %u", largest);
    else
        snprintf(advice, sizeof advice, "not even a batch of 1 fits, so make the model or the context smaller");
    return tern_error(TERN_ERROR_DEVICE_MEMORY, "%s; %s", reason, advice);
}

tern_status tern_setup_create_fitting(tern_device *device, const tern_setup_options *options, tern_setup **out_setup)
{
    bool fits;
    uint64_t total;
    *out_setup = NULL;
    tern_status status = try_batch(device, options, options->batch, &fits, &total, out_setup);
    if (status < 0) return status;
    return fits ? TERN_OK : refuse(device, options, total);
}
