/* SPDX-License-Identifier: Apache-2.0 */
/* text_trainer.c - feeds the stepper from the loader, on schedule; the folder is text_save.c's. */
#include "core/train/text_trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/formats/safetensors.h"
#include "core/train/loader.h"
#include "core/train/text_trainer_internal.h"

void tern_text_options_init(tern_text_options *options)
{
    memset(options, 0, sizeof *options);
    options->accumulate = 1;
    options->val_split = 0.1;
    options->schedule = (tern_schedule){.lr = 1e-3, .min_lr = 1e-4, .warmup = 100, .steps = 1000};
    options->optimizer = (tern_optimizer){.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
    options->update = (tern_update_options){.clip = 1.0};
}

static tern_status build_model(void *context, tern_graph *graph, uint32_t batch)
{
    const tern_text_model *model = context;
    return model->kind->build_loss(graph, model->options, batch);
}

static tern_status check_options(const tern_text_options *o)
{
    tern_status status;
    if (!o->model.kind) return tern_error(TERN_ERROR_INVALID, "no model was given to train");
    TERN_TRY(o->model.kind->check(o->model.options));
    TERN_TRY(tern_optimizer_check(&o->optimizer));
    TERN_TRY(tern_update_check(&o->update));
    if (o->data_count == 0)
        return tern_error(TERN_ERROR_INVALID, "no data were given; name a text file or a folder of text");
    if (o->accumulate < 1 || (uint64_t)o->accumulate * o->model.batch > UINT32_MAX)
        return tern_error(TERN_ERROR_INVALID, "accumulate is %u; it must lie in [1, %u] for a batch of %u",
                          o->accumulate, UINT32_MAX / o->model.batch, o->model.batch);
    TERN_TRY(tern_schedule_check(&o->schedule));
    return TERN_OK;
fail:
    return status;
}

static tern_status make_data(tern_text_trainer *t)
{
    tern_status status;
    const tern_text_options *o = &t->options;
    const tern_data_options options = {.context = o->model.context,
                                       .batch = o->model.batch,
                                       .vocab = o->model.vocab,
                                       .val_split = o->val_split,
                                       .seed = o->seed};
    TERN_TRY(tern_text_load(o->data_paths, o->data_count, &t->text));
    TERN_TRY(tern_data_init(t->text, &options, &t->data));
    TERN_TRY(tern_batch_create(&options, &t->eval_batch));
fail:
    return status;
}

static tern_status restore(tern_text_trainer *t, const tern_checkpoint *checkpoint)
{
    tern_status status = tern_checkpoint_restore(checkpoint, t->stepper);
    (void)tern_checkpoint_is_exact(checkpoint, t->setup, t->tolerance, sizeof t->tolerance);
    t->options.resume = NULL; /* the caller's */
    return status;
}

tern_status tern_text_trainer_create(tern_device *device, const tern_text_options *options,
                                     tern_text_trainer **out_trainer)
{
    tern_status status;
    tern_text_trainer *t = calloc(1, sizeof *t);
    *out_trainer = NULL;
    if (!t) return tern_error_memory("a trainer", sizeof *t);
    t->device = device;
    t->options = *options;
    TERN_TRY(check_options(options));
    TERN_TRY(make_data(t));
    t->options.data_paths = NULL; /* the caller's */
    t->setup_options = (tern_setup_options){.model = {build_model, &t->options.model},
                                            .batch = options->model.batch,
                                            .optimizer = options->optimizer,
                                            .groups = options->groups,
                                            .group_count = options->group_count,
                                            .no_masters = options->no_masters,
                                            .update = options->update,
                                            .precision = options->precision,
                                            .evaluate = options->val_split > 0,
                                            .calibrate = options->calibrate > 0,
                                            .plan = options->plan};
    if (options->resume) TERN_TRY(tern_text_resume_check(t));
    t->facts = tern_text_facts(t, 0);
    if (!t->facts) {
        status = tern_error_memory("a run's facts", 1024);
        goto fail;
    }
    TERN_TRY(tern_setup_create_fitting(device, &t->setup_options, &t->setup));
    TERN_TRY(tern_stepper_create(t->setup, options->seed, &t->stepper));
    if (options->resume) TERN_TRY(restore(t, options->resume->checkpoint));
    TERN_TRY(tern_loader_create(&t->data, t->sample, &t->loader));
    *out_trainer = t;
    return TERN_OK;
fail:
    tern_text_trainer_destroy(t);
    return status;
}

void tern_text_trainer_destroy(tern_text_trainer *t)
{
    if (!t) return;
    tern_loader_destroy(t->loader);
    tern_stepper_destroy(t->stepper);
    tern_setup_destroy(t->setup);
    cJSON_Delete(t->facts);
    tern_batch_finish(&t->eval_batch);
    tern_text_destroy(t->text);
    free(t);
}

tern_stepper *tern_text_trainer_stepper(tern_text_trainer *t) { return t->stepper; }
const tern_setup *tern_text_trainer_setup(const tern_text_trainer *t) { return t->setup; }

void tern_text_trainer_info(const tern_text_trainer *t, tern_text_info *out_info)
{
    tern_text_info info = {
        .parameters = tern_store_layout_elements(t->setup->layout),
        .train_bytes = t->data.train_bytes,
        .val_bytes = t->data.val_bytes,
        .fingerprint = t->text->fingerprint,
        .file_count = t->text->file_count,
        .skipped_count = t->text->skipped_count,
        .val_batches = t->data.val_batches,
        .tokens_per_step = (uint64_t)t->options.accumulate * t->options.model.batch * t->options.model.context,
    };
    tern_step_position at;
    tern_stepper_get_position(t->stepper, &at);
    info.steps_done = at.attempt;
    info.micros_done = at.micros;
    info.horizon = t->options.schedule.steps;
    info.checkpoint_bytes = tern_checkpoint_bytes(t->setup->layout);
    info.tolerance = t->tolerance;
    tern_setup_measure(t->setup, &info.memory);
    *out_info = info;
}

void tern_text_feeds(const tern_text_trainer *t, const tern_batch *batch, tern_feed feeds[TERN_TEXT_FEEDS])
{
    const uint64_t tokens = (uint64_t)t->data.options.batch * t->data.options.context;
    feeds[0] = (tern_feed){"ids", batch->ids, tokens * sizeof *batch->ids};
    feeds[1] = (tern_feed){"labels", batch->labels, tokens * sizeof *batch->labels};
    feeds[2] = (tern_feed){"ids.order", batch->order, tokens * sizeof *batch->order};
    feeds[3] =
        (tern_feed){"ids.offsets", batch->offsets, ((uint64_t)t->data.options.vocab + 1) * sizeof *batch->offsets};
}

static bool calibration_is_due(const tern_text_trainer *t, uint32_t micro)
{
    tern_step_position at;
    tern_stepper_get_position(t->stepper, &at);
    return micro == 0 && t->options.calibrate > 0 && at.attempt % t->options.calibrate == 0;
}

static tern_status micro(tern_text_trainer *t, uint32_t number)
{
    tern_status status;
    const tern_batch *batch;
    tern_feed feeds[TERN_TEXT_FEEDS];
    TERN_TRY(tern_loader_next(t->loader, &batch));
    tern_text_feeds(t, batch, feeds);
    status = calibration_is_due(t, number) ? tern_stepper_calibrate(t->stepper, feeds, TERN_TEXT_FEEDS, 0) : TERN_OK;
    if (status >= 0) status = tern_stepper_micro(t->stepper, feeds, TERN_TEXT_FEEDS, number * t->options.model.batch);
    tern_loader_release(t->loader);
    if (status >= 0) t->sample += t->options.model.batch;
fail:
    return status;
}

tern_status tern_text_trainer_advance(tern_text_trainer *t, bool *out_ended, tern_step_report *out_report)
{
    tern_status status;
    tern_step_position at;
    *out_ended = false;
    tern_stepper_get_position(t->stepper, &at);
    TERN_TRY(micro(t, at.micros));
    if (at.micros + 1 < t->options.accumulate) return TERN_OK;
    TERN_TRY(tern_stepper_update(t->stepper, tern_schedule_lr(&t->options.schedule, at.attempt), out_report));
    *out_ended = true;
fail:
    return status;
}

tern_status tern_text_trainer_step(tern_text_trainer *t, tern_step_report *out_report)
{
    bool ended = false;
    tern_status status = TERN_OK;
    while (!ended && status >= 0) status = tern_text_trainer_advance(t, &ended, out_report);
    return status;
}

tern_status tern_text_trainer_finish(tern_text_trainer *t, tern_step_report *out_report)
{
    return tern_stepper_finish(t->stepper, out_report);
}

void tern_text_trainer_watch(tern_text_trainer *t, const volatile sig_atomic_t *stop) { t->stop = stop; }

tern_status tern_text_trainer_evaluate(tern_text_trainer *t, uint64_t max_batches, double *out_loss,
                                       uint64_t *out_tokens)
{
    tern_status status;
    double loss = 0, n = 0;
    tern_feed feeds[TERN_TEXT_FEEDS];
    uint64_t count = max_batches > 0 && max_batches < t->data.val_batches ? max_batches : t->data.val_batches;
    if (count == 0)
        return tern_error(TERN_ERROR_INVALID, "there are no validation data; give a validation split above 0");
    tern_text_feeds(t, &t->eval_batch, feeds);
    for (uint64_t i = 0; i < count && !(t->stop && *t->stop); i++) {
        tern_data_fill_validation(&t->data, i, &t->eval_batch);
        TERN_TRY(tern_stepper_eval(t->stepper, feeds, TERN_TEXT_FEEDS));
    }
    TERN_TRY(tern_stepper_eval_finish(t->stepper, &loss, &n));
    *out_loss = n > 0 ? loss / n : NAN;
    *out_tokens = (uint64_t)n;
fail:
    return status;
}

static tern_status load_parameter(tern_store *store, const tern_safetensors *file, const tern_store_parameter *p)
{
    tern_status status;
    float *values = NULL;
    const tern_safetensor *tensor = tern_safetensors_find(file, p->name);
    if (!tensor)
        return tern_error(TERN_ERROR_NOT_FOUND, "%s holds no tensor \"%s\"; it is another model", file->path, p->name);
    if (tensor->rank != p->rank || memcmp(tensor->shape, p->shape, (size_t)p->rank * sizeof *p->shape) != 0)
        return tern_error(TERN_ERROR_INVALID,
                          "%s: tensor \"%s\" of %llu bytes has another shape than the model's of %llu; give the "
                          "matching model options",
                          file->path, p->name, (unsigned long long)tensor->bytes, (unsigned long long)p->bytes);
    values = malloc(p->bytes);
    if (!values) return tern_error_memory("a tensor", p->bytes);
    TERN_TRY(tern_safetensors_read(file, tensor, values, p->bytes / sizeof *values));
    TERN_TRY(tern_store_write(store, p->name, values, p->bytes));
fail:
    free(values);
    return status;
}

tern_status tern_text_trainer_load(tern_text_trainer *t, const char *path)
{
    tern_status status;
    tern_safetensors *file = NULL;
    tern_step_report last;
    const tern_store_layout *layout = t->setup->layout;
    TERN_TRY(tern_stepper_finish(t->stepper, &last)); /* so that the last report is in */
    TERN_TRY(tern_safetensors_open(path, &file));
    for (uint32_t i = 0; i < layout->parameter_count; i++)
        TERN_TRY(load_parameter(tern_stepper_store(t->stepper), file, &layout->parameters[i]));
fail:
    tern_safetensors_close(file);
    return status;
}
