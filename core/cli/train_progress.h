/* SPDX-License-Identifier: Apache-2.0 */
/* train_progress.h - what `tern train` says: lines on stderr, JSON objects on stdout and in metrics.jsonl.
 *
 *     report ──┬── stderr   one live line on a terminal, plain lines in a pipe
 *              ├── stdout   with --json: one object per logged step
 *              └── metrics.jsonl   the same objects, when there is an output folder
 *
 * What it is not: it decides nothing about the run.
 * Invariant: rates count this session only, neither the build nor validation nor saving, and its first step, in which
 * drivers still translate kernels, counts for itself only; an ended run's last object holds train_loss and val_loss; a
 * failed write costs the lines, never the run. */
#ifndef TERN_CLI_TRAIN_PROGRESS_H
#define TERN_CLI_TRAIN_PROGRESS_H

#include "core/train/text_trainer.h"

#define TERN_PROGRESS_RECENT 20 /* steps over which train_loss is the mean */

typedef struct tern_progress {
    const char *out;     /* folder of metrics.jsonl, or NULL */
    bool json, terminal; /* terminal: stderr is one */
    bool live;           /* the live line has not ended yet */
    uint64_t steps, tokens_per_step;
    uint64_t before; /* steps done before this session */
    double ln_vocab; /* loss of a model that knows nothing */
    uint64_t peak_bytes, budget_bytes;
    uint64_t start_ns, mark_ns; /* of the session, of the latest line */
    uint64_t mark_step;
    uint64_t pause_ns; /* since the mark: validation and saving */
    uint64_t all_pause_ns;
    double seconds_per_step; /* of the latest interval */
    double first_seconds;    /* of the session's first step */
    double recent[TERN_PROGRESS_RECENT];
    uint64_t done;                       /* steps reported in this session */
    uint32_t skips;                      /* of them, those that changed nothing */
    const tern_calibration *calibration; /* of the step reported next, or NULL */
    bool json_lost, metrics_lost;        /* stdout, metrics.jsonl: a write failed, which was said; no more is written */
} tern_progress;

/* Call when the build is over. json, out and budget fields must be there. */
void tern_progress_start(tern_progress *progress);
/* A finished step. log: the step is due; else only the live line moves. val: NaN if not validated after this step. */
TERN_MUST_USE tern_status tern_progress_step(tern_progress *progress, const tern_step_report *report, double val,
                                             bool log);
/* Time that is not the steps'. */
void tern_progress_pause(tern_progress *progress, uint64_t ns);
/* Mean loss of the latest steps; NaN before the first. */
double tern_progress_train_loss(const tern_progress *progress);
typedef struct tern_progress_outcome {
    double val; /* NaN: not validated */
    uint64_t val_tokens;
    bool interrupted, diverged;
} tern_progress_outcome;
/* The last object. */
TERN_MUST_USE tern_status tern_progress_end(tern_progress *progress, const tern_progress_outcome *outcome);
/* A line of its own on stderr, after the live line if there is one. */
void tern_progress_say(tern_progress *progress, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
