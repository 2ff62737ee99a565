/* SPDX-License-Identifier: Apache-2.0 */
/* step.h - the training step as one state machine over recorded programs.
 *
 *     micro(feeds) x K ── update(lr) ──> report, one step late
 *     eval(feeds)  ...                   reads the weights, touches no training state
 *     calibrate(feeds)                   likewise: a micro-batch in the run's precision and in f32
 *
 * The host fills one input slot while the device works on the other. Before submission s the host waits for submission
 * s - 2, which is its only wait: at most two are in flight, and no value of the current step is waited for. What it is
 * not: it knows no data, no schedule and no file (text_trainer.h). Invariant: a failed call leaves the weights as the
 * last finished program left them. */
#ifndef TERN_TRAIN_STEP_H
#define TERN_TRAIN_STEP_H

#include "core/train/setup.h"

typedef struct tern_stepper tern_stepper;

typedef struct tern_step_report {
    bool valid;       /* false: nothing finished yet */
    uint64_t attempt; /* which window, from 0 */
    double loss;      /* sum w loss / sum w; 0 when n is 0 */
    double n;         /* sum w */
    double norm;      /* of the gradient of the mean loss, before clipping */
    double clip;      /* factor on it */
    double scale;     /* S that this window was computed with */
    double lr;
    bool skipped;          /* not finite: weights, moments and state tensors are as they were */
    bool outlier;          /* its norm was far above what was usual: as they were, too */
    bool at_floor;         /* skipped although S is as small as it may be */
    uint32_t good_steps;   /* windows applied so far */
    uint32_t skips;        /* windows that were not finite so far */
    uint32_t skips_in_row; /* of them, those since the last finite one */
    uint32_t outliers;     /* so far */
} tern_step_report;

typedef struct tern_step_counts {
    uint64_t submissions;
    uint64_t waits;      /* host waits for a ticket */
    uint64_t late_waits; /* of them, for one of the last two submissions (finish and eval_finish only) */
} tern_step_counts;

/* Allocates and initialises the store, the arena and the programs. The setup must outlive it. */
TERN_MUST_USE tern_status tern_stepper_create(const tern_setup *setup, uint64_t seed, tern_stepper **out_stepper);
void tern_stepper_destroy(tern_stepper *stepper);
tern_store *tern_stepper_store(tern_stepper *stepper);

/* Where the training stands, all that the device does not know of it. */
typedef struct tern_step_position {
    uint64_t seed;
    uint64_t attempt; /* windows ended */
    uint32_t micros;  /* micro-batches of the present window so far */
} tern_step_position;
void tern_stepper_get_position(const tern_stepper *stepper, tern_step_position *out_position);
/* For a store whose content was replaced (checkpoint.c): waits for everything; what was reported before is forgotten.
 */
TERN_MUST_USE tern_status tern_stepper_set_position(tern_stepper *stepper, const tern_step_position *position);

/* One micro-batch. sample_base: number of its first example in the window, for random numbers. The feeds are copied;
 * bytes must be exactly their input's size. Inputs that the graph does not have are an error, except the sorted forms
 * of ids ("<ids>.order", "<ids>.offsets"), which only a backward pass wants. An input that is not fed has what
 * tern_stepper_stage's caller wrote into its slot. */
TERN_MUST_USE tern_status tern_stepper_micro(tern_stepper *stepper, const tern_feed *feeds, uint32_t count,
                                             uint32_t sample_base);
/* Ends the window. *out_report is the window before's. */
TERN_MUST_USE tern_status tern_stepper_update(tern_stepper *stepper, double lr, tern_step_report *out_report);
/* Waits for everything; *out_report is the last window's. */
TERN_MUST_USE tern_status tern_stepper_finish(tern_stepper *stepper, tern_step_report *out_report);

/* One validation batch; sums are kept on the host in double until eval_finish returns and clears them. */
TERN_MUST_USE tern_status tern_stepper_eval(tern_stepper *stepper, const tern_feed *feeds, uint32_t count);
TERN_MUST_USE tern_status tern_stepper_eval_finish(tern_stepper *stepper, double *out_loss_sum, double *out_n);

/* Where the next submission of micro or eval reads an input (any but the control block): the caller fills it instead of
 * feeding it. NULL data: the program has no such input. Valid until that submission. */
TERN_MUST_USE tern_status tern_stepper_stage(tern_stepper *stepper, tern_program_kind kind, const char *name,
                                             void **out_data, uint64_t *out_bytes);
/* How many examples of the following batches count, for graphs with passes/instance.h's mask. All at first. */
void tern_stepper_examples(tern_stepper *stepper, uint32_t examples);
/* Waits for everything; a named output of the last micro or eval submission, whichever came last, in its slot's
 * memory. TERN_ERROR_NOT_FOUND when that program has no such output or none has run. */
TERN_MUST_USE tern_status tern_stepper_output(tern_stepper *stepper, const char *name, const void **out_data,
                                              uint64_t *out_bytes);

/* A micro-batch in the run's precision and in f32, with the same weights, masks and loss scale. */
typedef struct tern_calibration {
    bool valid;                /* false: none has finished yet */
    uint64_t attempt;          /* the window whose micro-batch it was */
    double loss, loss_f32;     /* sum w loss / sum w; 0 when nothing has weight */
    double norm, norm_f32;     /* of the gradient of that mean */
    double loss_off, norm_off; /* |value - f32's| / f32's; not finite when the value is not */
} tern_calibration;

/* Submits both of a setup with `calibrate`; the feeds as for tern_stepper_micro. No state of the training changes. */
TERN_MUST_USE tern_status tern_stepper_calibrate(tern_stepper *stepper, const tern_feed *feeds, uint32_t count,
                                                 uint32_t sample_base);
/* The latest submitted one, if it has finished; waits for nothing: two submissions later it has. */
void tern_stepper_calibration(tern_stepper *stepper, tern_calibration *out_calibration);

/* The control block that a submission of this window gets, with the present number of examples: TERN_CONTROL_WORDS
 * words. */
void tern_stepper_control(const tern_stepper *stepper, uint64_t attempt, uint32_t sample_base, double lr,
                          uint32_t *out_control);
const tern_setup *tern_stepper_setup(const tern_stepper *stepper);
void tern_stepper_count(const tern_stepper *stepper, tern_step_counts *out_counts);
/* NULL when the setup has no such program. */
const tern_executable *tern_stepper_executable(const tern_stepper *stepper, tern_program_kind kind);

#endif
