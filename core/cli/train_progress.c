/* SPDX-License-Identifier: Apache-2.0 */
/* train_progress.c - lines and objects; train_progress.h has the picture. */
#include "core/cli/train_progress.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/time.h"
#include "core/cli/cli.h"

#define LIVE_NS      100000000u /* the live line moves at most ten times a second */
#define CLEAR_TO_END "\033[K"

void tern_progress_start(tern_progress *p)
{
    p->terminal = isatty(STDERR_FILENO) == 1;
    p->start_ns = p->mark_ns = tern_time_ns();
    p->mark_step = p->before;
}

void tern_progress_pause(tern_progress *p, uint64_t ns)
{
    p->pause_ns += ns;
    p->all_pause_ns += ns;
}

double tern_progress_train_loss(const tern_progress *p)
{
    const uint64_t count = p->done < TERN_PROGRESS_RECENT ? p->done : TERN_PROGRESS_RECENT;
    double sum = 0;
    for (uint64_t i = 0; i < count; i++) sum += p->recent[i];
    return count ? sum / (double)count : NAN;
}

/* -------------------------------------------------------------------- lines */

static void end_live(tern_progress *p)
{
    if (p->live) fputc('\n', stderr);
    p->live = false;
}

void tern_progress_say(tern_progress *p, const char *format, ...)
{
    va_list arguments;
    end_live(p);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
}

/* "1:02:03" or "2:03". */
static void format_time(double seconds, char text[32])
{
    const uint64_t s = seconds > 0 && seconds < 1e9 ? (uint64_t)(seconds + 0.5) : 0;
    const unsigned hours = (unsigned)(s / 3600), minutes = (unsigned)(s / 60 % 60), rest = (unsigned)(s % 60);
    if (hours)
        snprintf(text, 32, "%u:%02u:%02u", hours, minutes, rest);
    else
        snprintf(text, 32, "%u:%02u", minutes, rest);
}

static bool is_skipped(const tern_step_report *r) { return r->skipped || r->outlier; }

static const char *what_was_skipped(const tern_step_report *r)
{
    if (r->outlier) return "  SKIPPED: the gradient's norm is an outlier";
    if (!r->skipped) return "";
    return r->at_floor ? "  SKIPPED: gradient not finite, though the loss scale is at its floor"
                       : "  SKIPPED: gradient not finite";
}

static void show_line(tern_progress *p, const tern_step_report *r, double val, bool keep)
{
    char used[24], budget[24], eta[32], extra[64] = "", first[48] = "", rate[96] = "", skips[48] = "",
                                        outliers[32] = "";
    const uint64_t step = r->attempt + 1;
    format_time((double)(p->steps > step ? p->steps - step : 0) * p->seconds_per_step, eta);
    if (!isnan(val)) snprintf(extra, sizeof extra, "  val %.4f", val);
    if (r->skips > 0 || r->scale != 1)
        snprintf(skips, sizeof skips, "  scale 2^%.0f  skips %u", log2(r->scale), r->skips);
    if (r->outliers > 0) snprintf(outliers, sizeof outliers, "  outliers %u", r->outliers);
    if (step == 1)
        snprintf(first, sizeof first, " (ln V %.4f)", p->ln_vocab);
    else if (step == p->before + 1)
        snprintf(rate, sizeof rate, "  resumed");
    else
        snprintf(rate, sizeof rate, "  %.0f tokens/s  ETA %s", (double)p->tokens_per_step / p->seconds_per_step, eta);
    fprintf(stderr, "%sstep %llu/%llu  loss %.4f%s%s  norm %.3g  lr %.2e%s  memory %s of %s%s%s%s%s",
            p->terminal ? "\r" : "", (unsigned long long)step, (unsigned long long)p->steps, r->loss, first, extra,
            r->norm, r->lr, rate, tern_cli_bytes(p->peak_bytes, used), tern_cli_bytes(p->budget_bytes, budget), skips,
            outliers, what_was_skipped(r), p->terminal ? CLEAR_TO_END : "\n");
    p->live = p->terminal;
    if (keep) end_live(p);
    fflush(stderr);
}

/* --------------------------------------------------------------------- JSON */

/* A reader that went away or a full disk. */
static void put_line(tern_progress *p, const char *text)
{
    if (printf("%s\n", text) >= 0 && fflush(stdout) == 0) return;
    p->json_lost = true;
    tern_progress_say(p, "tern: the metrics could not be written to stdout: %s; the run stops and is saved",
                      strerror(errno));
}

static void append_line(tern_progress *p, const char *text)
{
    if (tern_run_append(p->out, text) >= 0) return;
    p->metrics_lost = true;
    tern_progress_say(p, "tern: %s; the run goes on without metrics.jsonl", tern_error_message());
}

/* Takes the object; complete: every field was added. */
static tern_status emit(tern_progress *p, cJSON *json, bool complete)
{
    char *text = json && complete ? cJSON_PrintUnformatted(json) : NULL;
    tern_status status = text ? TERN_OK : tern_error_memory("a line of metrics", 256);
    if (text && p->json && !p->json_lost) put_line(p, text);
    if (text && p->out && !p->metrics_lost) append_line(p, text);
    cJSON_free(text);
    cJSON_Delete(json);
    return status;
}

static bool add(cJSON *json, const char *name, double value)
{
    return json && cJSON_AddNumberToObject(json, name, value) != NULL; /* NaN is written as null */
}

static double elapsed(const tern_progress *p)
{
    return (double)(tern_time_ns() - p->start_ns - p->all_pause_ns) * 1e-9;
}

static bool add_calibration(cJSON *json, const tern_calibration *c)
{
    return !c || (add(json, "f32_loss", c->loss_f32) && add(json, "f32_grad_norm", c->norm_f32) &&
                  add(json, "loss_off", c->loss_off) && add(json, "grad_norm_off", c->norm_off));
}

static tern_status emit_step(tern_progress *p, const tern_step_report *r, double val)
{
    const double step = (double)(r->attempt + 1);
    cJSON *json = cJSON_CreateObject();
    bool complete = add(json, "step", step) && add(json, "loss", r->loss) &&
                    add(json, "tokens", step * (double)p->tokens_per_step) &&
                    add(json, "tokens_per_s", (double)p->tokens_per_step / p->seconds_per_step) &&
                    add(json, "lr", r->lr) && add(json, "grad_norm", r->norm) &&
                    add(json, "peak_bytes", (double)p->peak_bytes) && add(json, "skips", r->skips) &&
                    add(json, "outliers", r->outliers) && add(json, "loss_scale", r->scale) &&
                    add(json, "seconds", elapsed(p)) && add_calibration(json, p->calibration);
    if (complete && !isnan(val)) complete = add(json, "val_loss", val);
    return emit(p, json, complete);
}

static void say_calibration(tern_progress *p, uint64_t step)
{
    const tern_calibration *c = p->calibration;
    if (c)
        tern_progress_say(p, "calibration of step %llu: loss %.4f, %.2g %% off f32's %.4f; norm %.3g, %.2g %% off %.3g",
                          (unsigned long long)step, c->loss, 100 * c->loss_off, c->loss_f32, c->norm, 100 * c->norm_off,
                          c->norm_f32);
}

tern_status tern_progress_step(tern_progress *p, const tern_step_report *r, double val, bool log)
{
    const uint64_t now = tern_time_ns(), step = r->attempt + 1;
    p->recent[p->done++ % TERN_PROGRESS_RECENT] = r->loss;
    p->skips = r->skips;
    say_calibration(p, step);
    log = log || p->calibration;
    const bool validated = !isnan(val);
    if (!log && !validated && !is_skipped(r) && (!p->terminal || now - p->mark_ns < LIVE_NS)) return TERN_OK;
    const uint64_t spent = now - p->mark_ns > p->pause_ns ? now - p->mark_ns - p->pause_ns : 1;
    p->seconds_per_step = (double)spent * 1e-9 / (double)(step - p->mark_step);
    if (step == p->before + 1) p->first_seconds = elapsed(p);
    p->mark_ns = now;
    p->mark_step = step;
    p->pause_ns = 0;
    show_line(p, r, val, validated || is_skipped(r) || step == p->before + 1 || step == p->steps);
    return log || validated ? emit_step(p, r, val) : TERN_OK;
}

/* Of all steps but the first, in which drivers still translate kernels. */
static double overall_rate(const tern_progress *p, double seconds)
{
    const double tokens = (double)p->tokens_per_step;
    if (p->done > 1 && seconds > p->first_seconds) return (double)(p->done - 1) * tokens / (seconds - p->first_seconds);
    return seconds > 0 ? (double)p->done * tokens / seconds : 0;
}

static void show_end(tern_progress *p, const tern_progress_outcome *o, double train, double seconds, double rate)
{
    const int count = p->done < TERN_PROGRESS_RECENT ? (int)p->done : TERN_PROGRESS_RECENT;
    end_live(p);
    if (count == 0) /* all steps were an earlier session's */
        fprintf(stderr, "all steps were done before");
    else if (isfinite(train))
        fprintf(stderr, "train_loss %.4f (mean of the last %d %s)", train, count, count == 1 ? "step" : "steps");
    else
        fprintf(stderr, "train_loss not finite within the last %d %s", count, count == 1 ? "step" : "steps");
    if (!isnan(o->val))
        fprintf(stderr, "  val_loss %.4f (%llu held-out tokens)", o->val, (unsigned long long)o->val_tokens);
    if (p->skips > 0) fprintf(stderr, "  skips %u", p->skips);
    fprintf(stderr, "  %.1f s, %.0f tokens/s\n", seconds, rate);
}

tern_status tern_progress_end(tern_progress *p, const tern_progress_outcome *o)
{
    const double seconds = elapsed(p), steps = (double)(p->before + p->done), train = tern_progress_train_loss(p),
                 rate = overall_rate(p, seconds);
    cJSON *json = cJSON_CreateObject();
    bool complete = add(json, "steps", steps) && add(json, "train_loss", train) && add(json, "val_loss", o->val) &&
                    add(json, "val_tokens", (double)o->val_tokens) &&
                    add(json, "tokens", steps * (double)p->tokens_per_step) && add(json, "tokens_per_s", rate) &&
                    add(json, "peak_bytes", (double)p->peak_bytes) && add(json, "skips", p->skips) &&
                    add(json, "seconds", seconds) &&
                    cJSON_AddBoolToObject(json, "interrupted", o->interrupted) != NULL &&
                    cJSON_AddBoolToObject(json, "diverged", o->diverged) != NULL;
    show_end(p, o, train, seconds, rate);
    return emit(p, json, complete);
}
