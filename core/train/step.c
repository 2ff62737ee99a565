/* SPDX-License-Identifier: Apache-2.0 */
/* step.c - submits the programs in two slots each and reads reports one window late; step.h has the rules. */
#include "core/train/step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/philox.h"
#include "core/passes/accumulate.h"
#include "core/train/optimizer_build.h"

#define WAIT_SECONDS 600.0 /* without progress: the slowest software device needs minutes for a large program */

/* What the host remembers of a submitted window until its report is read. */
typedef struct window {
    uint64_t attempt;
    double lr;
} window;

struct tern_stepper {
    const tern_setup *setup;
    tern_device *device;
    tern_store *store;
    tern_arena *arena;
    tern_executable *executables[TERN_PROGRAM_COUNT];
    uint64_t runs[TERN_PROGRAM_COUNT]; /* submissions of each; the next slot is runs mod 2 */
    uint64_t tickets[2];               /* of the last two submissions of all; [0] the older, 0: none */
    uint64_t last_update;              /* its ticket */
    uint64_t seed, attempt;            /* attempt: windows ended so far */
    uint32_t micros;                   /* of the present window */
    uint64_t first_update;             /* runs of the update before the position was set */
    window windows[TERN_SLOTS];        /* by the update's slot */
    double eval_loss, eval_n;
    uint64_t eval_read;           /* eval runs whose results are summed */
    uint32_t examples;            /* that count in the following batches */
    tern_program_kind last_batch; /* micro or eval, whichever ran last */
    uint64_t finished;            /* submissions known to have finished */
    uint64_t probed, probed_in;   /* submissions up to the latest calibration, 0: none; its window */
    tern_step_counts counts;
};

static tern_status make_executables(tern_stepper *s)
{
    tern_status status = TERN_OK;
    const tern_plan *plans[TERN_PROGRAM_COUNT];
    uint32_t plan_count = 0, binding_count = 0;
    tern_binding *bindings = NULL;
    for (int i = 0; i < TERN_PROGRAM_COUNT; i++)
        if (s->setup->programs[i].plan) plans[plan_count++] = s->setup->programs[i].plan;
    TERN_TRY(tern_arena_create(s->device, plans, plan_count, &s->arena));
    for (int i = 0; i < TERN_PROGRAM_COUNT; i++) {
        const tern_program *program = &s->setup->programs[i];
        if (!program->plan) continue;
        TERN_TRY(tern_store_bind(s->store, program->graph, &bindings, &binding_count));
        const tern_executable_options options = {.label = tern_program_names[i],
                                                 .bindings = bindings,
                                                 .binding_count = binding_count,
                                                 .read_back = program->lowered->output_count > 0};
        TERN_TRY(tern_executable_create(s->device, program->plan, s->arena, &options, &s->executables[i]));
        free(bindings);
        bindings = NULL;
    }
fail:
    free(bindings);
    return status;
}

static tern_status write_states(tern_stepper *s)
{
    tern_status status;
    const float scale = (float)s->setup->options.update.scale.initial;
    const uint32_t rows = tern_optimizer_table_rows(&s->setup->options.optimizer);
    float *table = malloc((size_t)rows * 2 * sizeof *table);
    if (!table) return tern_error_memory("the bias-correction table", (size_t)rows * 2 * sizeof *table);
    tern_optimizer_table_fill(&s->setup->options.optimizer, rows, table);
    TERN_TRY(tern_store_write(s->store, TERN_STATE_TABLE, table, (uint64_t)rows * 2 * sizeof *table));
    TERN_TRY(tern_store_write(s->store, TERN_STATE_SCALE, &scale, sizeof scale));
fail:
    free(table);
    return status;
}

tern_status tern_stepper_create(const tern_setup *setup, uint64_t seed, tern_stepper **out_stepper)
{
    tern_status status;
    tern_stepper *s = calloc(1, sizeof *s);
    *out_stepper = NULL;
    if (!s) return tern_error_memory("the training step", sizeof *s);
    s->setup = setup;
    s->device = setup->device;
    s->seed = seed;
    s->examples = setup->options.batch;
    TERN_TRY(tern_store_create(s->device, setup->layout, seed, &s->store));
    TERN_TRY(write_states(s));
    TERN_TRY(make_executables(s));
    *out_stepper = s;
    return TERN_OK;
fail:
    tern_stepper_destroy(s);
    return status;
}

void tern_stepper_destroy(tern_stepper *s)
{
    if (!s) return;
    for (int i = 0; i < TERN_PROGRAM_COUNT; i++) tern_executable_destroy(s->executables[i]);
    tern_arena_destroy(s->arena);
    tern_store_destroy(s->store);
    free(s);
}

tern_store *tern_stepper_store(tern_stepper *s) { return s->store; }
const tern_setup *tern_stepper_setup(const tern_stepper *s) { return s->setup; }

const tern_executable *tern_stepper_executable(const tern_stepper *s, tern_program_kind kind)
{
    return s->executables[kind];
}

void tern_stepper_count(const tern_stepper *s, tern_step_counts *out_counts) { *out_counts = s->counts; }

/* --------------------------------------------------------------- submission */

static tern_status wait_for(tern_stepper *s, uint64_t ticket)
{
    if (ticket == 0) return TERN_OK;
    s->counts.waits++;
    return tern_device_wait(s->device, ticket, WAIT_SECONDS);
}

static tern_status wait_for_all(tern_stepper *s)
{
    if (s->tickets[1] == 0) return TERN_OK;
    s->counts.late_waits++;
    tern_status status = wait_for(s, s->tickets[1]);
    if (status < 0) return status;
    s->tickets[0] = s->tickets[1] = 0;
    s->finished = s->counts.submissions;
    return TERN_OK;
}

/* The next slot of a program, free to be filled. */
static tern_status begin(tern_stepper *s, tern_program_kind kind, uint32_t *out_slot)
{
    tern_status status = wait_for(s, s->tickets[0]);
    if (status < 0) return status;
    s->tickets[0] = 0;
    s->finished = s->counts.submissions - (s->tickets[1] != 0);
    *out_slot = (uint32_t)(s->runs[kind] % TERN_SLOTS);
    return TERN_OK;
}

static tern_status submit(tern_stepper *s, tern_program_kind kind, uint32_t slot)
{
    uint64_t ticket = 0;
    tern_status status = tern_executable_submit(s->executables[kind], slot, &ticket);
    if (status < 0) return status;
    s->tickets[0] = s->tickets[1];
    s->tickets[1] = ticket;
    s->runs[kind]++;
    if (kind == TERN_PROGRAM_MICRO || kind == TERN_PROGRAM_EVAL) s->last_batch = kind;
    s->counts.submissions++;
    return TERN_OK;
}

void tern_stepper_control(const tern_stepper *s, uint64_t attempt, uint32_t sample_base, double lr,
                          uint32_t *out_control)
{
    const float rate = (float)lr;
    memset(out_control, 0, TERN_CONTROL_WORDS * sizeof *out_control);
    tern_philox_step_key(s->seed, attempt, &out_control[TERN_CONTROL_KEY0]);
    out_control[TERN_CONTROL_SAMPLE_BASE] = sample_base;
    out_control[TERN_CONTROL_ATTEMPT] = (uint32_t)attempt;
    out_control[TERN_CONTROL_EXAMPLES] = s->examples;
    memcpy(&out_control[TERN_CONTROL_LR], &rate, sizeof rate);
}

static void fill_control(tern_stepper *s, tern_executable *executable, uint32_t slot, uint32_t sample_base, double lr)
{
    uint32_t *control = tern_executable_input(executable, slot, TERN_CONTROL_NAME, NULL);
    if (control) tern_stepper_control(s, s->attempt, sample_base, lr, control); /* not there without random numbers */
}

static bool is_sort(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot && (strcmp(dot, ".order") == 0 || strcmp(dot, ".offsets") == 0);
}

static tern_status copy_feeds(tern_executable *executable, uint32_t slot, const tern_feed *feeds, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t bytes = 0;
        void *to = tern_executable_input(executable, slot, feeds[i].name, &bytes);
        if (!to && is_sort(feeds[i].name)) continue;
        if (!to) return tern_error(TERN_ERROR_NOT_FOUND, "the graph has no input \"%s\"", feeds[i].name);
        if (bytes != feeds[i].bytes)
            return tern_error(TERN_ERROR_INVALID, "input \"%s\" has %llu bytes, but %llu were fed", feeds[i].name,
                              (unsigned long long)bytes, (unsigned long long)feeds[i].bytes);
        memcpy(to, feeds[i].data, bytes);
    }
    return TERN_OK;
}

static tern_status run(tern_stepper *s, tern_program_kind kind, const tern_feed *feeds, uint32_t count,
                       uint32_t sample_base, double lr)
{
    tern_status status;
    uint32_t slot;
    TERN_TRY(begin(s, kind, &slot));
    TERN_TRY(copy_feeds(s->executables[kind], slot, feeds, count));
    fill_control(s, s->executables[kind], slot, sample_base, lr);
    TERN_TRY(submit(s, kind, slot));
fail:
    return status;
}

void tern_stepper_examples(tern_stepper *s, uint32_t examples) { s->examples = examples; }

tern_status tern_stepper_stage(tern_stepper *s, tern_program_kind kind, const char *name, void **out_data,
                               uint64_t *out_bytes)
{
    uint32_t slot;
    tern_status status = begin(s, kind, &slot);
    if (status < 0) return status;
    *out_bytes = 0;
    *out_data = tern_executable_input(s->executables[kind], slot, name, out_bytes);
    return TERN_OK;
}

tern_status tern_stepper_output(tern_stepper *s, const char *name, const void **out_data, uint64_t *out_bytes)
{
    tern_status status = wait_for_all(s);
    if (status < 0) return status;
    const uint64_t runs = s->runs[s->last_batch];
    *out_data = runs > 0 ? tern_executable_result(s->executables[s->last_batch], (uint32_t)((runs - 1) % TERN_SLOTS),
                                                  name, out_bytes)
                         : NULL;
    if (!*out_data)
        return tern_error(TERN_ERROR_NOT_FOUND,
                          runs > 0 ? "the %s program has no output \"%s\""
                                   : "no %s batch has run yet, so there is no \"%s\"",
                          tern_program_names[s->last_batch], name);
    return TERN_OK;
}

/* ----------------------------------------------------------------- training */

static double as_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

/* The report of update run `number` (from 0), which must have finished. */
static tern_status read_report(tern_stepper *s, uint64_t number, tern_step_report *out)
{
    uint64_t bytes = 0;
    const uint32_t slot = (uint32_t)(number % TERN_SLOTS);
    const uint32_t *words = tern_executable_result(s->executables[TERN_PROGRAM_UPDATE], slot, TERN_REPORT_NAME, &bytes);
    if (!words || bytes != TERN_REPORT_COUNT * sizeof *words)
        return tern_error(TERN_ERROR_INTERNAL, "the update's report has %llu bytes instead of %zu; please report it",
                          (unsigned long long)bytes, TERN_REPORT_COUNT * sizeof *words);
    tern_step_report r = {.valid = true, .attempt = s->windows[slot].attempt, .lr = s->windows[slot].lr};
    r.n = as_float(words[TERN_REPORT_N]);
    r.loss = r.n > 0 ? as_float(words[TERN_REPORT_LOSS]) / r.n : 0;
    r.norm = as_float(words[TERN_REPORT_NORM]);
    r.clip = as_float(words[TERN_REPORT_CLIP]);
    r.scale = as_float(words[TERN_REPORT_SCALE]);
    r.skipped = words[TERN_REPORT_BAD] != 0;
    r.outlier = words[TERN_REPORT_OUTLIER] != 0;
    r.at_floor = words[TERN_REPORT_FLOOR] != 0;
    r.good_steps = words[TERN_REPORT_T];
    r.skips = words[TERN_REPORT_SKIPS];
    r.skips_in_row = words[TERN_REPORT_ROW];
    r.outliers = words[TERN_REPORT_OUTLIERS];
    *out = r;
    return TERN_OK;
}

tern_status tern_stepper_micro(tern_stepper *s, const tern_feed *feeds, uint32_t count, uint32_t sample_base)
{
    tern_status status = run(s, TERN_PROGRAM_MICRO, feeds, count, sample_base, 0);
    if (status >= 0) s->micros++;
    return status;
}

tern_status tern_stepper_update(tern_stepper *s, double lr, tern_step_report *out_report)
{
    tern_status status;
    const uint64_t number = s->runs[TERN_PROGRAM_UPDATE];
    memset(out_report, 0, sizeof *out_report);
    /* With a micro-batch in between, run() waits for the update before this one; an empty window has to do it itself.
     */
    if (s->tickets[1] == s->last_update) TERN_TRY(wait_for_all(s));
    TERN_TRY(run(s, TERN_PROGRAM_UPDATE, NULL, 0, 0, lr));
    s->last_update = s->tickets[1];
    s->windows[number % TERN_SLOTS] = (window){s->attempt++, lr};
    s->micros = 0;
    if (number > s->first_update) TERN_TRY(read_report(s, number - 1, out_report));
fail:
    return status;
}

tern_status tern_stepper_finish(tern_stepper *s, tern_step_report *out_report)
{
    const uint64_t number = s->runs[TERN_PROGRAM_UPDATE];
    memset(out_report, 0, sizeof *out_report);
    tern_status status = wait_for_all(s);
    if (status < 0) return status;
    return number > s->first_update ? read_report(s, number - 1, out_report) : TERN_OK;
}

/* ----------------------------------------------------------------- position */

void tern_stepper_get_position(const tern_stepper *s, tern_step_position *out_position)
{
    *out_position = (tern_step_position){.seed = s->seed, .attempt = s->attempt, .micros = s->micros};
}

tern_status tern_stepper_set_position(tern_stepper *s, const tern_step_position *position)
{
    tern_status status = wait_for_all(s);
    if (status < 0) return status;
    s->seed = position->seed;
    s->attempt = position->attempt;
    s->micros = position->micros;
    s->first_update = s->runs[TERN_PROGRAM_UPDATE];
    return TERN_OK;
}

/* --------------------------------------------------------------- validation */

static tern_status read_eval(tern_stepper *s)
{
    const uint32_t slot = (uint32_t)(s->eval_read % TERN_SLOTS);
    tern_executable *executable = s->executables[TERN_PROGRAM_EVAL];
    const float *loss = tern_executable_result(executable, slot, TERN_EVAL_LOSS, NULL);
    const float *n = tern_executable_result(executable, slot, TERN_EVAL_N, NULL);
    if (!loss || !n) return tern_error(TERN_ERROR_INTERNAL, "the eval program has no results; please report it");
    s->eval_loss += (double)*loss;
    s->eval_n += (double)*n;
    s->eval_read++;
    return TERN_OK;
}

tern_status tern_stepper_eval(tern_stepper *s, const tern_feed *feeds, uint32_t count)
{
    tern_status status;
    if (!s->executables[TERN_PROGRAM_EVAL])
        return tern_error(TERN_ERROR_INVALID,
                          "this run was set up without validation; give a validation split above 0");
    /* The slot's earlier result is two submissions old, so it is there once run() has waited; read it before it is
     * replaced. */
    if (s->runs[TERN_PROGRAM_EVAL] - s->eval_read == TERN_SLOTS) {
        TERN_TRY(wait_for(s, s->tickets[0]));
        s->tickets[0] = 0;
        TERN_TRY(read_eval(s));
    }
    TERN_TRY(run(s, TERN_PROGRAM_EVAL, feeds, count, 0, 0));
fail:
    return status;
}

tern_status tern_stepper_eval_finish(tern_stepper *s, double *out_loss_sum, double *out_n)
{
    tern_status status;
    TERN_TRY(wait_for_all(s));
    while (s->eval_read < s->runs[TERN_PROGRAM_EVAL]) TERN_TRY(read_eval(s));
    *out_loss_sum = s->eval_loss;
    *out_n = s->eval_n;
    s->eval_loss = s->eval_n = 0;
fail:
    return status;
}

/* -------------------------------------------------------------- calibration */

tern_status tern_stepper_calibrate(tern_stepper *s, const tern_feed *feeds, uint32_t count, uint32_t sample_base)
{
    tern_status status;
    if (!s->executables[TERN_PROGRAM_PROBE])
        return tern_error(TERN_ERROR_INVALID, "this run was set up without calibration; set `calibrate`");
    TERN_TRY(run(s, TERN_PROGRAM_PROBE, feeds, count, sample_base, 0));
    TERN_TRY(run(s, TERN_PROGRAM_PROBE_F32, feeds, count, sample_base, 0));
    s->probed = s->counts.submissions;
    s->probed_in = s->attempt;
fail:
    return status;
}

static double read_probe(tern_stepper *s, tern_program_kind kind, const char *name)
{
    const uint32_t slot = (uint32_t)((s->runs[kind] - 1) % TERN_SLOTS);
    const float *value = tern_executable_result(s->executables[kind], slot, name, NULL);
    return value ? (double)*value : 0;
}

static void read_probes(tern_stepper *s, tern_program_kind kind, double *out_loss, double *out_norm)
{
    const double n = read_probe(s, kind, TERN_PROBE_N), square = read_probe(s, kind, TERN_PROBE_SQUARE);
    *out_loss = n > 0 ? read_probe(s, kind, TERN_PROBE_LOSS) / n : 0;
    *out_norm = n > 0 ? sqrt(square) / n : 0;
}

static double relative(double value, double exact) { return value == exact ? 0 : fabs(value - exact) / fabs(exact); }

void tern_stepper_calibration(tern_stepper *s, tern_calibration *out)
{
    memset(out, 0, sizeof *out);
    if (s->probed == 0 || s->finished < s->probed) return;
    out->valid = true;
    out->attempt = s->probed_in;
    read_probes(s, TERN_PROGRAM_PROBE, &out->loss, &out->norm);
    read_probes(s, TERN_PROGRAM_PROBE_F32, &out->loss_f32, &out->norm_f32);
    out->loss_off = relative(out->loss, out->loss_f32);
    out->norm_off = relative(out->norm, out->norm_f32);
}
