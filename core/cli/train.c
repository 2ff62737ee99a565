/* SPDX-License-Identifier: Apache-2.0 */
/* train.c - `tern train`: the loop, and what an interruption does.
 *
 *     flags ── device ── trainer ── folder ── steps ... ── validation ── save
 *                                       ^ nothing is written before everything that can be refused has been
 *
 * A step's report comes one step late (train/step.h). Before a validation or a save the step in work is waited for, so
 * that the pause counts none of it; its report then waits for what was validated.
 * A run ends before its last step after a signal, when it diverges, when its steps are not finite any more, or when
 * nobody reads its JSON; it is saved all the
 * same. What it is not: it computes nothing; what it prints is train_progress.c's. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/time.h"
#include "core/cli/train_calibrate.h"
#include "core/cli/train_flags.h"
#include "core/cli/train_progress.h"
#include "core/cli/train_resume.h"
#include "core/cli/train_saves.h"
#include "core/cli/train_signals.h"
#include "core/cli/train_skips.h"

#define VAL_BATCHES       20u      /* of a validation during the run: a look, not a measurement */
#define FINAL_VAL_BATCHES 200u     /* of the one at the end */
#define SMALL_FILES_BYTES 1048576u /* run.json and the metrics */
#define MAX_BAD_STEPS     10u      /* in a row; more is a run that has diverged */
#define BAD_LOSS          10.0     /* times ln V, the loss of a guess: nothing is learnt up there */

typedef struct train_run {
    tern_device *device;
    tern_train_origin origin;
    tern_text_trainer *trainer;
    tern_progress progress;
    tern_train_saves saves;
    tern_train_calibrate calibrate;
    double val;        /* of the latest validated step, until its report comes; NaN: none */
    uint64_t val_step; /* that step, from 1 */
    uint64_t reported;
    tern_step_report last; /* reported, until the run is stuck */
    bool stuck;            /* too many steps in a row were not finite */
    uint64_t bad_steps; /* in a row, up to the latest that was not skipped: their loss is not finite or far too high */
    uint64_t bad_from;  /* the first of them */
    double good_loss;   /* of step good_step; without one yet, that is 0 */
    uint64_t good_step;
    bool lost;   /* a loss was not finite though its step was taken: the weights are spoilt */
    bool spoilt; /* the latest step that was taken was bad */
    int lock;    /* of the folder, or -1 */
    tern_precision_choice precision;
} train_run;

/* -------------------------------------------------------------------- start */

/* A folder that cannot be used is better refused before a minute of building; one that is not there is made later. */
static tern_status look_at_folder(const char *out)
{
    struct stat info;
    return out && stat(out, &info) == 0 ? tern_run_prepare(out, 0, NULL) : TERN_OK;
}

static tern_status create_trainer(const tern_train_flags *c, train_run *run)
{
    tern_status status;
    tern_text_options options;
    tern_train_flags_apply(c, &options);
    if (run->origin.checkpoint) options.resume = &run->origin.resume;
    if (!run->origin.in_place) TERN_TRY(look_at_folder(c->out));
    TERN_TRY(tern_cli_open_limited(&c->device, c->limits, false, &run->device, &options.plan));
    TERN_TRY(tern_cli_precision(&c->model, run->device, &run->precision));
    options.precision = run->precision.dtype;
    TERN_TRY(tern_text_trainer_create(run->device, &options, &run->trainer));
fail:
    return status;
}

/* Room for the first checkpoint of this session. What an earlier session had written since the checkpoint goes. */
static tern_status take_folder(const tern_train_flags *c, train_run *run, const tern_text_info *info)
{
    const uint64_t bytes = info->checkpoint_bytes + SMALL_FILES_BYTES;
    if (!c->out) return TERN_OK;
    if (!run->origin.in_place) return tern_run_prepare(c->out, bytes, &run->lock);
    tern_status status = tern_run_check_space(c->out, bytes);
    return status < 0 ? status : tern_run_cut(c->out, info->steps_done);
}

static uint64_t device_bytes(const train_run *run, const tern_text_info *info)
{
    const tern_backend *backend = run->device->backend;
    return backend->allocated_bytes ? backend->allocated_bytes(run->device->handle) : info->memory.total;
}

static const char *plural(uint32_t count) { return count == 1 ? "" : "s"; }

static void say_what(const tern_train_flags *c, const train_run *run, const tern_text_info *info, double seconds)
{
    char parameters[24], text[24], held_out[24], micros[48] = "";
    const tern_gpt2_options *s = &c->shape;
    if (c->step.accumulate > 1)
        snprintf(micros, sizeof micros, "%lld micro-batches of ", (long long)c->step.accumulate);
    fprintf(stderr,
            "model   %s parameters: %u layer%s, width %u, %u head%s, vocabulary %u\n"
            "data    %s to train on, %s held out, from %u file%s (%u binary file%s skipped)\n"
            "step    %llu tokens: %s%u window%s of %u\n"
            "device  %s, built in %.1f s\n"
            "floats  %s\n",
            tern_cli_count(info->parameters, parameters), s->layers, plural(s->layers), s->width, s->heads,
            plural(s->heads), s->vocab, tern_cli_bytes(info->train_bytes, text),
            tern_cli_bytes(info->val_bytes, held_out), info->file_count, plural(info->file_count), info->skipped_count,
            plural(info->skipped_count), (unsigned long long)info->tokens_per_step, micros, s->batch, plural(s->batch),
            s->context, tern_device_name(run->device), seconds, run->precision.reason);
}

static tern_status start(const tern_train_flags *c, train_run *run)
{
    tern_status status;
    tern_text_info info;
    const uint64_t begin = tern_time_ns();
    TERN_TRY(create_trainer(c, run));
    tern_text_trainer_watch(run->trainer, &tern_stop_signal);
    tern_text_trainer_info(run->trainer, &info);
    TERN_TRY(take_folder(c, run, &info));
    run->progress = (tern_progress){.out = c->out,
                                    .json = c->json,
                                    .steps = (uint64_t)c->steps,
                                    .before = info.steps_done,
                                    .tokens_per_step = info.tokens_per_step,
                                    .ln_vocab = log(c->shape.vocab),
                                    .peak_bytes = device_bytes(run, &info),
                                    .budget_bytes = info.memory.budget};
    run->val = NAN;
    run->reported = info.steps_done;
    say_what(c, run, &info, (double)(tern_time_ns() - begin) * 1e-9);
    tern_train_origin_say(&run->origin, c, &info);
    tern_progress_start(&run->progress);
    tern_train_saves_start(&run->saves, c, run->trainer, &run->progress, run->origin.in_place);
fail:
    return status;
}

/* --------------------------------------------------------------------- loop */

static bool is_due(int64_t every, uint64_t step) { return every > 0 && step % (uint64_t)every == 0; }

/* A step that was skipped says nothing about the weights; too many of them end the run. */
static void watch_loss(const tern_train_flags *c, train_run *run, const tern_step_report *report)
{
    if (!run->stuck) {
        run->stuck = report->skips_in_row >= (uint64_t)c->step.max_skips;
        run->last = *report;
    }
    if (report->skipped || report->outlier) return;
    if (report->loss <= BAD_LOSS * run->progress.ln_vocab) { /* false for NaN */
        run->bad_steps = 0;
        run->spoilt = false;
        run->good_loss = report->loss;
        run->good_step = report->attempt + 1;
        return;
    }
    if (run->bad_steps++ == 0) run->bad_from = report->attempt + 1;
    run->spoilt = true;
    if (!isfinite(report->loss)) run->lost = true;
}

static bool must_end(const train_run *run)
{
    return tern_stop_signal || run->lost || run->stuck || run->calibrate.stop || run->bad_steps > MAX_BAD_STEPS ||
           run->progress.json_lost;
}

/* Reports come once per step, in order; the first call and a repeated one have nothing new. */
static tern_status take_report(const tern_train_flags *c, train_run *run, const tern_step_report *report)
{
    const uint64_t step = report->attempt + 1;
    if (!report->valid || step <= run->reported) return TERN_OK;
    run->reported = step;
    watch_loss(c, run, report);
    const double val = run->val_step == step ? run->val : NAN;
    const bool log = step == run->progress.before + 1 || step == (uint64_t)c->steps || is_due(c->log_every, step);
    tern_train_calibrate_attach(&run->calibrate, report, &run->progress);
    const tern_status status = tern_progress_step(&run->progress, report, val, log);
    tern_train_calibrate_judge(&run->calibrate, c, report, &run->progress);
    return status;
}

/* A validation that a signal ended is none. */
static tern_status validate(const tern_train_flags *c, train_run *run, uint32_t batches, uint64_t *out_tokens)
{
    tern_status status = TERN_OK;
    run->val = NAN;
    *out_tokens = 0;
    if (c->val_split <= 0) return TERN_OK;
    const uint64_t begin = tern_time_ns();
    TERN_TRY(tern_text_trainer_evaluate(run->trainer, batches, &run->val, out_tokens));
    tern_progress_pause(&run->progress, tern_time_ns() - begin);
    if (tern_stop_signal) {
        run->val = NAN;
        *out_tokens = 0;
    }
fail:
    return status;
}

/* Validates and saves where that is due after a micro-batch; step: the one that it ended, or 0. */
static tern_status rest(const tern_train_flags *c, train_run *run, uint64_t step)
{
    tern_status status = TERN_OK;
    tern_step_report report;
    uint64_t tokens;
    bool save_due = tern_train_saves_due(&run->saves, step);
    const bool eval_due = step > 0 && is_due(c->eval_every, step);
    double val = NAN;
    if (step == (uint64_t)c->steps || (!eval_due && !save_due)) return TERN_OK;
    TERN_TRY(tern_text_trainer_finish(run->trainer, &report)); /* before the pause's clock starts: this is training */
    if (eval_due) {
        TERN_TRY(validate(c, run, VAL_BATCHES, &tokens));
        run->val_step = step;
        val = run->val;
        if (tern_train_saves_best(&run->saves, val)) save_due = true;
    }
    TERN_TRY(take_report(c, run, &report)); /* before the save, whose metrics then hold this step */
    if (save_due) TERN_TRY(tern_train_saves_make(&run->saves, val, run->spoilt, false));
fail:
    return status;
}

/* One step, with what is due inside and after it. */
static tern_status take_step(const tern_train_flags *c, train_run *run, uint64_t step)
{
    tern_status status = TERN_OK;
    tern_step_report report = {0};
    for (bool ended = false; !ended;) {
        TERN_TRY(tern_text_trainer_advance(run->trainer, &ended, &report));
        if (ended) tern_train_calibrate_take(&run->calibrate, run->trainer);
        if (ended) TERN_TRY(take_report(c, run, &report));
        TERN_TRY(rest(c, run, ended ? step : 0));
    }
fail:
    return status;
}

static tern_status loop(const tern_train_flags *c, train_run *run)
{
    tern_status status = TERN_OK;
    tern_step_report report;
    for (uint64_t step = run->progress.before + 1; step <= (uint64_t)c->steps && !must_end(run); step++)
        TERN_TRY(take_step(c, run, step));
    TERN_TRY(tern_text_trainer_finish(run->trainer, &report));
    TERN_TRY(take_report(c, run, &report));
fail:
    return status;
}

/* ---------------------------------------------------------------------- end */

static tern_status say_where(const tern_train_flags *c, train_run *run)
{
    if (!c->out) {
        tern_progress_say(&run->progress, "nothing was saved, as no --out was given");
        return TERN_OK;
    }
    char *word = tern_cli_quote(c->out);
    if (!word) return tern_error_memory("a folder's name", strlen(c->out));
    tern_progress_say(&run->progress, "saved in %s; try: tern sample %s --prompt \"The \"", c->out, word);
    free(word);
    return TERN_OK;
}

static void say_diverged(const tern_train_flags *c, train_run *run)
{
    char good[96] = "no step before it was good";
    const char *clip = c->clip > 0 ? "lower --clip" : "set --clip 1";
    if (run->good_step > 0)
        snprintf(good, sizeof good, "the last good loss was %.4f at step %llu", run->good_loss,
                 (unsigned long long)run->good_step);
    tern_progress_say(&run->progress,
                      "tern: the run diverged at step %llu: its loss is not finite or "
                      "above %.0f ln V (%llu step%s in a row); %s; lower --lr, which is %g, or %s",
                      (unsigned long long)run->bad_from, BAD_LOSS, (unsigned long long)run->bad_steps,
                      run->bad_steps == 1 ? "" : "s", good, c->lr, clip);
}

static tern_status end(const tern_train_flags *c, train_run *run)
{
    tern_status status;
    tern_progress_outcome outcome = {.val = NAN, .diverged = run->bad_steps > 0 || run->stuck};
    /* The loop takes at least one step unless a signal came before it, or a kill between the last one and the end. */
    if (run->reported == run->progress.before && run->reported < (uint64_t)c->steps) {
        tern_progress_say(&run->progress, run->progress.before > 0
                                              ? "tern: stopped before this session's first step; what was saved stays"
                                              : "tern: stopped before the first step; nothing was saved");
        return TERN_OK;
    }
    if (tern_stop_signal)
        tern_progress_say(&run->progress, "tern: stopped by a signal after step %llu",
                          (unsigned long long)run->reported);
    TERN_TRY(tern_train_saves_make(&run->saves, NAN, run->spoilt,
                                   true)); /* before the validation: a second signal must not cost the weights */
    run->val = NAN;
    if (!must_end(run) && !outcome.diverged) TERN_TRY(validate(c, run, FINAL_VAL_BATCHES, &outcome.val_tokens));
    outcome.val = run->val;
    outcome.interrupted = tern_stop_signal != 0;
    TERN_TRY(tern_progress_end(&run->progress, &outcome));
    TERN_TRY(say_where(c, run));
    if (run->bad_steps > 0) say_diverged(c, run);
    if (run->stuck) tern_train_skips_say(&run->progress, run->trainer, &run->last, c->argc, c->argv);
fail:
    return status;
}

/* What was said to have failed counts more than a signal; 130 after Ctrl-C, as shells have it. */
static int exit_code(const train_run *run)
{
    if (run->bad_steps > 0 || run->stuck || run->calibrate.stop || run->progress.json_lost ||
        run->progress.metrics_lost)
        return TERN_CLI_FAILED;
    return tern_stop_signal ? 128 + (int)tern_stop_signal : TERN_CLI_OK;
}

int tern_cli_train(int argc, char **argv)
{
    tern_status status = TERN_OK;
    tern_train_flags command;
    train_run run = {.lock = -1, .origin = {.lock = -1}};
    int code = tern_train_flags_parse(&command, argc, argv);
    if (code == TERN_CLI_GO) {
        tern_signals_catch();
        TERN_TRY(tern_train_origin_find(&command, &run.origin));
        code = run.origin.complete ? TERN_CLI_OK : TERN_CLI_GO;
    }
    if (code == TERN_CLI_GO) {
        TERN_TRY(start(&command, &run));
        TERN_TRY(loop(&command, &run));
        TERN_TRY(end(&command, &run));
        code = exit_code(&run);
    }
fail:
    if (run.progress.live) fputc('\n', stderr);
    if (status < 0) code = tern_cli_fail(status);
    tern_run_release(command.out, run.lock >= 0 ? run.lock : run.origin.lock);
    tern_train_origin_finish(&run.origin);
    tern_text_trainer_destroy(run.trainer);
    tern_device_close(run.device);
    tern_train_flags_finish(&command);
    return code;
}
