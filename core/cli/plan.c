/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c - `tern plan`: compiles a training run for a device, real or on paper, and says what it takes.
 *
 *     shape ── setup ──┬── bytes by kind, launches, predicted time
 *                      └── does not fit: search batch, then layers, then width, by planning alone
 *
 * What it is not: nothing is allocated on the device and no kernel is built. */
#include "core/cli/plan.h"

#include "core/cli/train_optimizer.h"

#include <stdio.h>
#include <stdlib.h>

/* A weight in 16 bit and its gradient in f32, nothing else. No plan needs fewer. */
#define BYTES_PER_PARAMETER 6u

typedef struct plan_command {
    tern_cli_device device;
    tern_cli_model model;
    tern_train_optimizer_flags optimizer;
    const char *limits;
    bool json;
} plan_command;

static int parse(plan_command *c, int argc, char **argv, tern_gpt2_options *out_shape)
{
    enum { OWN = 6, BEFORE = TERN_CLI_MODEL_OPTION_COUNT + TERN_TRAIN_OPTIMIZER_ROWS, COUNT = BEFORE + OWN };
    tern_cli_option options[COUNT] = {{0}};
    const tern_cli_option own[OWN] = {
        {"limits", TERN_CLI_TEXT, &c->limits, "PROFILE", 0, 0,
         "plan for lavapipe, arc-a770, rtx-3090, rtx-4090, a100 or a JSON file's limits instead of a device here"},
        {"json", TERN_CLI_FLAG, &c->json, NULL, 0, 0, "one JSON object on stdout instead of the table"},
        TERN_CLI_DEVICE_OPTIONS(&c->device),
    };
    *c = (plan_command){.device = TERN_CLI_DEVICE_DEFAULTS};
    tern_cli_model_options(&c->model, options);
    tern_train_optimizer_init(&c->optimizer, options + TERN_CLI_MODEL_OPTION_COUNT);
    for (size_t i = 0; i < OWN; i++) options[BEFORE + i] = own[i];
    const tern_cli_usage usage = {"plan", NULL,
                                  "Shows what training a GPT takes, before anything runs: bytes by kind, launches, the "
                                  "limit that binds, predicted times. Exits with 1 when it does not fit.",
                                  options, COUNT};
    int code = tern_cli_model_parse(&usage, &c->model, argc, argv);
    if (code == TERN_CLI_GO) code = tern_train_optimizer_settle("plan", &c->optimizer);
    return code == TERN_CLI_GO ? tern_cli_model_get(&c->model, out_shape) : code;
}

/* ---------------------------------------------------------------- measuring */

/* What every shape that is tried has in common. */
typedef struct plan_settings {
    tern_plan_options plan;
    int32_t precision;
    const tern_train_optimizer_flags *optimizer;
} plan_settings;

static tern_status build_model(void *context, tern_graph *graph, uint32_t batch)
{
    tern_gpt2_options shape = *(const tern_gpt2_options *)context;
    shape.batch = batch;
    return tern_gpt2_build_loss(graph, &shape);
}

/* The trainer's setup. grouped: with the rules by name, which a smaller model may have no parameters for. */
static tern_status create_setup(tern_device *device, const plan_settings *settings, tern_gpt2_options *shape,
                                bool grouped, tern_setup **out_setup)
{
    tern_text_options train;
    tern_text_options_init(&train);
    const tern_setup_options options = {.model = {build_model, shape},
                                        .batch = shape->batch,
                                        .optimizer = settings->optimizer->numbers,
                                        .groups = settings->optimizer->rules,
                                        .group_count = grouped ? settings->optimizer->rule_count : 0,
                                        .no_masters = settings->optimizer->no_masters,
                                        .update = train.update,
                                        .evaluate = true,
                                        .precision = settings->precision,
                                        .plan = settings->plan};
    return tern_setup_create(device, &options, out_setup);
}

/* The difference between three blocks and two, since launches at the model's ends belong to no block. */
static tern_status count_block(tern_device *device, const plan_settings *settings, const tern_gpt2_options *shape,
                               uint32_t *out_launches)
{
    tern_status status = TERN_OK;
    uint32_t launches[2] = {0, 0};
    for (uint32_t i = 0; i < 2; i++) {
        tern_setup *setup = NULL;
        tern_gpt2_options small = *shape;
        small.layers = 2 + i;
        TERN_TRY(create_setup(device, settings, &small, false, &setup));
        launches[i] = setup->programs[TERN_PROGRAM_MICRO].lowered->launch_count;
        tern_setup_destroy(setup);
    }
    *out_launches = launches[1] - launches[0];
fail:
    return status;
}

static int by_key(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static tern_status count_kernels(const tern_setup *setup, uint32_t *out_count)
{
    uint32_t total = 0, distinct = 0;
    for (int p = 0; p < TERN_PROGRAM_COUNT; p++)
        total += setup->programs[p].lowered ? setup->programs[p].lowered->kernel_count : 0;
    uint64_t *keys = calloc(total + 1u, sizeof *keys);
    if (!keys) return tern_error_memory("the kernels' keys", (total + 1u) * sizeof *keys);
    total = 0;
    for (int p = 0; p < TERN_PROGRAM_COUNT; p++)
        for (uint32_t k = 0; setup->programs[p].lowered && k < setup->programs[p].lowered->kernel_count; k++)
            keys[total++] = setup->programs[p].lowered->kernels[k]->key;
    qsort(keys, total, sizeof *keys, by_key);
    for (uint32_t i = 0; i < total; i++) distinct += i == 0 || keys[i] != keys[i - 1];
    free(keys);
    *out_count = distinct;
    return TERN_OK;
}

static void measure(tern_cli_estimate *plan)
{
    const tern_plan *micro = plan->setup->programs[TERN_PROGRAM_MICRO].plan;
    tern_setup_measure(plan->setup, &plan->memory);
    tern_plan_measure(micro, &plan->device->info, 0, &plan->demand);
    /* All that the micro program does not hold itself: moments, uploads, what other programs need more. */
    const uint64_t extra =
        plan->memory.total > plan->demand.total_bytes ? plan->memory.total - plan->demand.total_bytes : 0;
    tern_plan_measure(micro, &plan->device->info, extra, &plan->demand);
    plan->fits = plan->memory.total <= plan->memory.budget;
}

/* ------------------------------------------------------- the nearest that fits */

typedef struct search {
    tern_device *device;
    const plan_settings *settings;
    tern_gpt2_options shape;
} search;

/* Whether the shape fits; one that a limit refuses or that makes no model does not. */
static tern_status try_shape(const search *s, tern_gpt2_options *shape, bool *out_fits)
{
    tern_setup *setup = NULL;
    tern_setup_memory memory;
    *out_fits = false;
    if (BYTES_PER_PARAMETER * tern_gpt2_parameter_count(shape) > s->device->info.memory_free_bytes) return TERN_OK;
    const tern_status status = create_setup(s->device, s->settings, shape, false, &setup);
    if (status == TERN_ERROR_DEVICE_MEMORY || status == TERN_ERROR_UNSUPPORTED) return TERN_OK;
    if (status < 0) return status;
    tern_setup_measure(setup, &memory);
    tern_setup_destroy(setup);
    *out_fits = memory.total <= memory.budget;
    return TERN_OK;
}

/* The largest value in [1, most) of what `set` changes; 0: none fits. Bytes grow with the value. */
static tern_status largest(search *s, uint32_t most, void (*set)(tern_gpt2_options *shape, uint32_t value),
                           uint32_t *out_value)
{
    tern_status status = TERN_OK;
    uint32_t fits = 0, fails = most;
    while (fails - fits > 1) {
        const uint32_t middle = fits + (fails - fits) / 2;
        tern_gpt2_options shape = s->shape;
        bool fine;
        set(&shape, middle);
        TERN_TRY(try_shape(s, &shape, &fine));
        if (fine)
            fits = middle;
        else
            fails = middle;
    }
    *out_value = fits;
    if (fits) set(&s->shape, fits);
fail:
    return status;
}

static void set_batch(tern_gpt2_options *shape, uint32_t value) { shape->batch = value; }
static void set_layers(tern_gpt2_options *shape, uint32_t value) { shape->layers = value; }

/* Fewer heads of the same width each, so that every value makes a model. */
static void set_heads(tern_gpt2_options *shape, uint32_t value)
{
    shape->width = shape->width / shape->heads * value;
    shape->heads = value;
}

/* A smaller batch costs nothing but noise; then fewer layers; the width last. */
static tern_status find_nearest(tern_device *device, const plan_settings *settings, tern_cli_estimate *plan)
{
    tern_status status;
    search s = {device, settings, plan->shape};
    uint32_t value = 0;
    TERN_TRY(largest(&s, s.shape.batch, set_batch, &value));
    if (!value) {
        s.shape.batch = 1;
        TERN_TRY(largest(&s, s.shape.layers, set_layers, &value));
    }
    if (!value) {
        s.shape.layers = 1;
        TERN_TRY(largest(&s, s.shape.heads, set_heads, &value));
    }
    plan->has_nearest = value > 0;
    plan->nearest = s.shape;
fail:
    return status;
}

/* ------------------------------------------------------------------ command */

static void advise(tern_cli_estimate *plan, const char *reason)
{
    const tern_gpt2_options *n = &plan->nearest;
    char advice[160];
    if (plan->has_nearest)
        snprintf(advice, sizeof advice, "the nearest that fits is --batch %u --layers %u --width %u --heads %u",
                 n->batch, n->layers, n->width, n->heads);
    else
        snprintf(advice, sizeof advice,
                 "no smaller batch, depth or width fits; make the context or the vocabulary smaller");
    snprintf(plan->refusal, sizeof plan->refusal, "%s; %s", reason, advice);
}

static void refuse(tern_cli_estimate *plan)
{
    char reason[256];
    snprintf(reason, sizeof reason, "memory binds, %llu bytes are needed, %llu more than the %llu of %.64s",
             (unsigned long long)plan->memory.total, (unsigned long long)(plan->memory.total - plan->memory.budget),
             (unsigned long long)plan->memory.budget, plan->device->info.name);
    advise(plan, reason);
}

/* No plan at all: one tensor is above a limit, which the sentence just set names. */
static tern_status refuse_tensor(const plan_command *c, tern_device *device, const plan_settings *settings,
                                 tern_cli_estimate *plan)
{
    char reason[512];
    snprintf(reason, sizeof reason, "%s", tern_error_message());
    const tern_status status = find_nearest(device, settings, plan);
    if (status < 0) return status;
    advise(plan, reason);
    if (!c->json) printf("does not fit: %s\n", plan->refusal);
    return TERN_OK;
}

static tern_status show(const plan_command *c, tern_device *device, const plan_settings *settings,
                        tern_cli_estimate *plan)
{
    tern_status status;
    tern_setup *setup = NULL;
    tern_gpt2_options shape = plan->shape;
    status = create_setup(device, settings, &shape, true, &setup);
    if (status == TERN_ERROR_UNSUPPORTED || status == TERN_ERROR_DEVICE_MEMORY)
        return refuse_tensor(c, device, settings, plan);
    if (status < 0) return status;
    plan->device = device;
    plan->setup = setup;
    measure(plan);
    TERN_TRY(count_kernels(setup, &plan->kernels));
    TERN_TRY(count_block(device, settings, &plan->shape, &plan->block_launches));
    if (!plan->fits) {
        TERN_TRY(find_nearest(device, settings, plan));
        refuse(plan);
    }
    if (c->json)
        TERN_TRY(tern_cli_plan_json(plan));
    else
        tern_cli_plan_show(plan);
fail:
    tern_setup_destroy(setup);
    return status;
}

int tern_cli_plan(int argc, char **argv)
{
    tern_status status;
    plan_command command;
    tern_cli_estimate plan = {0};
    tern_device *device = NULL;
    plan_settings settings;
    int code = parse(&command, argc, argv, &plan.shape);
    if (code != TERN_CLI_GO) {
        tern_train_optimizer_finish(&command.optimizer);
        return code;
    }
    settings.optimizer = &command.optimizer;
    TERN_TRY(tern_cli_open_limited(&command.device, command.limits, true, &device, &settings.plan));
    TERN_TRY(tern_cli_precision(&command.model, device, &plan.precision));
    settings.precision = plan.precision.dtype;
    TERN_TRY(show(&command, device, &settings, &plan));
    code = TERN_CLI_OK;
    fflush(stdout); /* the table comes before the refusal; main sees whether it could be written */
    if (!plan.fits) TERN_TRY(tern_error(TERN_ERROR_DEVICE_MEMORY, "this does not fit: %s", plan.refusal));
fail:
    if (status < 0) code = tern_cli_fail(status);
    tern_device_close(device);
    tern_train_optimizer_finish(&command.optimizer);
    return code;
}
