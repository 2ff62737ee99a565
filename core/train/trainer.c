/* SPDX-License-Identifier: Apache-2.0 */
/* trainer.c - tern_trainer: the public handle over setup and stepper. Life, windows, reports, evaluation.
 *
 *     graph ──> copy ──> setup (micro, update, eval) ──> stepper        step, step, ... accumulate-th step: update
 *
 * What it is not: it decides nothing that the step machine decides (step.h, update.h); it counts calls and examples.
 * Invariant: a call that was refused has changed nothing; the host waits in finish, evaluate, read, write, load and
 * save only, and in step for the submission before the last. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "core/passes/instance.h"
#include "core/train/trainer_internal.h"

/* ---------------------------------------------------------------- failures */

tern_status tern_trainer_ready(const tern_trainer *t)
{
    if (!t) return tern_error(TERN_ERROR_INVALID, "the trainer is NULL; make one with tern_trainer_create");
    if (t->failed < 0)
        return tern_error(t->failed, "the trainer failed before (%s); destroy it and make another", t->failure);
    return TERN_OK;
}

tern_status tern_trainer_keep(tern_trainer *t, tern_status status)
{
    if (status >= 0 || t->failed < 0) return status;
    t->failed = status;
    snprintf(t->failure, sizeof t->failure, "%s", tern_error_message());
    return status;
}

/* --------------------------------------------------------------------- life */

/* The setup's model: the graph's copy, whatever batch is asked for. */
static tern_status build_model(void *context, tern_graph *graph, uint32_t batch)
{
    const tern_trainer *t = context;
    tern_status status = tern_pass_instance(t->graph, graph);
    (void)batch;
    if (status >= 0 && !t->whole_batches) status = tern_pass_mask_examples(graph, t->batch);
    return status;
}

static tern_status take_graph(tern_trainer *t, const tern_graph *graph)
{
    tern_status status;
    TERN_TRY(tern_graph_status(graph));
    if (!graph->loss)
        return tern_error(TERN_ERROR_INVALID, "the graph has no loss; call tern_loss before making a trainer of it");
    TERN_TRY(tern_graph_create(&t->graph));
    t->graph->training = true;
    TERN_TRY(tern_pass_instance(graph, t->graph));
    TERN_TRY(tern_trainer_inputs_create(t, t->graph));
    t->whole_batches = graph->loss->rank < 1 || graph->loss->shape[0] % t->batch != 0;
fail:
    return status;
}

static tern_status check_memory(const tern_trainer *t)
{
    tern_setup_memory memory;
    tern_setup_measure(t->setup, &memory);
    if (memory.total <= memory.budget) return TERN_OK;
    return tern_error(TERN_ERROR_DEVICE_MEMORY,
                      "training this graph needs %llu bytes, %llu more than the %llu that %s has free; make its batch "
                      "of %u smaller and accumulate more, or choose a smaller model",
                      (unsigned long long)memory.total, (unsigned long long)(memory.total - memory.budget),
                      (unsigned long long)memory.budget, t->device->info.name, t->batch);
}

/* Which inputs the backward pass wants sorted. */
static void find_sorts(tern_trainer *t)
{
    const tern_graph *micro = t->setup->programs[TERN_PROGRAM_MICRO].graph;
    for (uint32_t i = 0; i < micro->node_count; i++) {
        const tern_tensor *x = micro->nodes[i];
        if (x->op != TERN_OP_INPUT || !x->at.input.sort_of) continue;
        for (uint32_t k = 0; k < t->input_count; k++)
            if (strcmp(t->inputs[k].name, x->at.input.sort_of->label) == 0) t->inputs[k].sort_rows = x->at.input.rows;
    }
}

tern_status tern_trainer_create(tern_device *device, tern_graph *graph, const tern_train_options *options,
                                tern_trainer **out_trainer)
{
    tern_status status;
    tern_train_options o;
    tern_setup_options setup;
    tern_parameter_group *groups = NULL;
    tern_trainer *t = NULL;
    if (!out_trainer) return tern_error(TERN_ERROR_INVALID, "out_trainer is NULL; pass the address of a pointer");
    *out_trainer = NULL;
    if (!device) return tern_error(TERN_ERROR_INVALID, "the device is NULL; open one with tern_device_open");
    TERN_TRY(tern_trainer_options_read(options, &o));
    t = calloc(1, sizeof *t);
    if (!t) return tern_error_memory("a trainer", sizeof *t);
    t->device = device;
    TERN_TRY(take_graph(t, graph));
    TERN_TRY(tern_trainer_options_take(t, &o, &setup, &groups));
    setup.model = (tern_model){build_model, t};
    setup.evaluate = true;
    t->facts = tern_trainer_facts(t, &setup);
    if (!t->facts) {
        status = tern_error_memory("a training's facts", 1024);
        goto fail;
    }
    TERN_TRY(tern_setup_create(device, &setup, &t->setup));
    TERN_TRY(check_memory(t));
    find_sorts(t);
    TERN_TRY(tern_stepper_create(t->setup, o.seed, &t->stepper));
    *out_trainer = t;
    t = NULL;
fail:
    free(groups);
    tern_trainer_destroy(t);
    return status;
}

void tern_trainer_destroy(tern_trainer *t)
{
    if (!t) return;
    tern_feeder_destroy(t->feeder);
    tern_stepper_destroy(t->stepper);
    tern_setup_destroy(t->setup);
    tern_trainer_inputs_destroy(t);
    tern_graph_destroy(t->graph);
    cJSON_Delete(t->facts);
    free(t);
}

/* ------------------------------------------------------------------ windows */

static void take_report(tern_trainer *t, const tern_step_report *report)
{
    if (report->valid) t->last = *report;
}

void tern_trainer_report(const tern_trainer *t, bool updated, bool ended, tern_report *out)
{
    if (!out) return;
    const tern_step_report *last = &t->last;
    const size_t bytes = out->struct_bytes < sizeof *out ? out->struct_bytes : sizeof *out;
    tern_report r = {.struct_bytes = out->struct_bytes,
                     .updated = updated,
                     .step = (int64_t)t->windows,
                     .examples = (int64_t)t->examples,
                     .loss = NAN,
                     .grad_norm = NAN,
                     .lr = NAN,
                     .loss_scale = NAN,
                     .ended = ended};
    if (last->valid) {
        r.reported = (int64_t)last->attempt + 1;
        r.loss = last->n > 0 ? last->loss : (double)NAN;
        r.weight = last->n;
        r.grad_norm = last->norm;
        r.lr = last->lr;
        r.loss_scale = last->scale;
        r.skipped = last->skipped;
        r.skips = last->skips;
        r.skips_in_row = last->skips_in_row;
    }
    memcpy(out, &r, bytes);
}

tern_status tern_trainer_report_check(const tern_report *out)
{
    if (!out || out->struct_bytes >= offsetof(tern_report, reported)) return TERN_OK;
    return tern_error(TERN_ERROR_INVALID,
                      "the report's struct_bytes is %u; set it to sizeof(tern_report) before the call",
                      out->struct_bytes);
}

tern_status tern_trainer_close_window(tern_trainer *t)
{
    tern_step_report report;
    if (t->window_micros == 0) return TERN_OK;
    const double lr = tern_schedule_lr(&t->schedule, t->windows);
    tern_status status = tern_trainer_keep(t, tern_stepper_update(t->stepper, lr, &report));
    if (status < 0) return status;
    take_report(t, &report);
    t->windows++;
    t->window_micros = t->window_examples = 0;
    return TERN_OK;
}

static tern_status micro(tern_trainer *t, const tern_feed *feeds, size_t count, int64_t examples)
{
    tern_status status = tern_trainer_fill(t, TERN_PROGRAM_MICRO, feeds, count, examples);
    if (status < 0) return status;
    status = tern_trainer_keep(t, tern_stepper_micro(t->stepper, NULL, 0, t->window_examples));
    if (status < 0) return status;
    t->window_micros++;
    t->window_examples += (uint32_t)examples;
    t->examples += (uint64_t)examples;
    return TERN_OK;
}

tern_status tern_trainer_step(tern_trainer *t, const tern_feed *feeds, size_t feed_count, int64_t examples,
                              tern_report *out_report)
{
    tern_status status;
    bool ended = false, updated = false;
    const bool fetch = !feeds && feed_count == 0 && examples == 0;
    TERN_TRY(tern_trainer_ready(t));
    TERN_TRY(tern_trainer_report_check(out_report));
    if (fetch && !t->feeder)
        return tern_error(TERN_ERROR_INVALID,
                          "no examples were given and there is no feed callback; feed the inputs or "
                          "call tern_trainer_feed_with first");
    if (fetch) {
        TERN_TRY(tern_feeder_next(t->feeder, &feeds, &examples));
        feed_count = t->input_count;
        ended = examples == 0;
    }
    if (!ended) {
        status = micro(t, feeds, feed_count, examples);
        if (fetch) tern_feeder_release(t->feeder);
        if (status < 0) goto fail;
        updated = t->window_micros == t->accumulate;
        if (updated) TERN_TRY(tern_trainer_close_window(t));
    }
    tern_trainer_report(t, updated, ended, out_report);
fail:
    return status;
}

tern_status tern_trainer_finish(tern_trainer *t, tern_report *out_report)
{
    tern_status status;
    tern_step_report report;
    TERN_TRY(tern_trainer_ready(t));
    TERN_TRY(tern_trainer_report_check(out_report));
    const bool updated = t->window_micros > 0;
    TERN_TRY(tern_trainer_close_window(t));
    TERN_TRY(tern_trainer_keep(t, tern_stepper_finish(t->stepper, &report)));
    take_report(t, &report);
    tern_trainer_report(t, updated, false, out_report);
fail:
    return status;
}

tern_status tern_trainer_evaluate(tern_trainer *t, const tern_feed *feeds, size_t feed_count, int64_t examples,
                                  double *out_loss, double *out_weight)
{
    tern_status status;
    double loss = 0, n = 0;
    TERN_TRY(tern_trainer_ready(t));
    if (!out_loss) return tern_error(TERN_ERROR_INVALID, "out_loss is NULL; pass the address of a double");
    TERN_TRY(tern_trainer_fill(t, TERN_PROGRAM_EVAL, feeds, feed_count, examples));
    TERN_TRY(tern_trainer_keep(t, tern_stepper_eval(t->stepper, NULL, 0)));
    TERN_TRY(tern_trainer_keep(t, tern_stepper_eval_finish(t->stepper, &loss, &n)));
    *out_loss = n > 0 ? loss / n : (double)NAN;
    if (out_weight) *out_weight = n;
fail:
    return status;
}

tern_status tern_trainer_feed_with(tern_trainer *t, tern_feed_callback callback, void *context)
{
    tern_status status;
    tern_feed_slot *slots = NULL;
    TERN_TRY(tern_trainer_ready(t));
    tern_feeder_destroy(t->feeder);
    t->feeder = NULL;
    if (!callback) return TERN_OK;
    slots = calloc(t->input_count, sizeof *slots);
    if (!slots) return tern_error_memory("the list of inputs", t->input_count * sizeof *slots);
    for (uint32_t i = 0; i < t->input_count; i++)
        slots[i] = (tern_feed_slot){t->inputs[i].name, NULL, (size_t)t->inputs[i].bytes};
    const tern_feeder_options options = {slots, t->input_count, t->batch, callback, context};
    status = tern_feeder_create(&options, &t->feeder);
fail:
    free(slots);
    return status;
}
