/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer.h - the kinds of optimizers and their numbers, as a user chooses them.
 *
 *     kind        m    v    decay            file                  extra
 *     adamw       m    v    decoupled        optimizer_adam.c
 *     adam        m    v    in the gradient  optimizer_adam.c
 *     sgd         m         in the gradient  optimizer_sgd.c       no m without momentum
 *     lion        m         decoupled        optimizer_lion.c
 *     adafactor        (v)  decoupled        optimizer_adafactor.c matrices: a row and a column instead of v
 *     muon        m         decoupled        optimizer_muon.c      hidden matrices only; the rest is AdamW's
 *
 * A kind is a row of the table in optimizer.c: name, moments, and the function that appends its graph for one segment
 * (optimizer_build.h); formulas and sources stand at the head of the family's file. In all of them
 *
 *     g = clamp(acc / (S n)) * c   the mean gradient, clipped          lr    from the control block, times the group's
 *     Bi(t) = 1 / (1 - bi^t)       from a table made in double         t     good steps, this one included
 *
 * What it is not: it decides nothing (update.h) and draws no learning rate (schedule.h). */
#ifndef TERN_TRAIN_OPTIMIZER_H
#define TERN_TRAIN_OPTIMIZER_H

#include "core/base/status.h"

typedef enum tern_optimizer_kind {
    TERN_OPTIMIZER_ADAMW = 0,
    TERN_OPTIMIZER_ADAM,
    TERN_OPTIMIZER_SGD,
    TERN_OPTIMIZER_LION,
    TERN_OPTIMIZER_ADAFACTOR,
    TERN_OPTIMIZER_MUON,
    TERN_OPTIMIZER_COUNT
} tern_optimizer_kind;

typedef struct tern_optimizer {
    int32_t kind;        /* tern_optimizer_kind */
    double beta1, beta2; /* adam, adamw, lion, and muon's AdamW; in [0, 1) */
    double epsilon;      /* adam, adamw, and muon's AdamW; in (0, 1] */
    double weight_decay; /* of the groups that decay; in [0, 1e6] */
    double momentum;     /* sgd, muon; in [0, 1) */
    bool nesterov;       /* sgd, muon */
    bool eight_bit;      /* moments as one byte each (optimizer_codes.c); adafactor has none to shrink */
    bool round_nearest;  /* 16-bit weights without masters: to nearest instead of stochastic rounding */
} tern_optimizer;

enum { TERN_MOMENT_M = 1, TERN_MOMENT_V = 2 };
struct tern_segment_build;

typedef struct tern_optimizer_info {
    const char *name;
    uint32_t moments;   /* of a vector's segment; TERN_MOMENT_* */
    bool epsilon;       /* uses epsilon */
    bool per_parameter; /* each parameter is a segment of its own */
    void (*build)(const struct tern_segment_build *segment);
} tern_optimizer_info;
extern const tern_optimizer_info tern_optimizers[TERN_OPTIMIZER_COUNT];

/* The kind's customary numbers (the table in optimizer.c); nothing narrow. */
void tern_optimizer_init(tern_optimizer *out_optimizer, tern_optimizer_kind kind);
/* "adamw" and so on; TERN_ERROR_INVALID listing the names. */
TERN_MUST_USE tern_status tern_optimizer_parse(const char *name, tern_optimizer_kind *out_kind);
/* Numbers that the kind uses must lie in the ranges above, each finite. */
TERN_MUST_USE tern_status tern_optimizer_check(const tern_optimizer *optimizer);
/* Moments of a segment: TERN_MOMENT_* bits. matrix: it is one parameter of rank >= 2 (per_parameter kinds). */
uint32_t tern_optimizer_moments(const tern_optimizer *optimizer, int32_t kind, bool matrix);

/* Rows that the bias table needs until all further ones round to 1 in f32. At most 2^20. */
uint32_t tern_optimizer_table_rows(const tern_optimizer *optimizer);
/* Fills rows x 2 floats: row t - 1 holds B1(t), B2(t), from double. */
void tern_optimizer_table_fill(const tern_optimizer *optimizer, uint32_t rows, float *out);

#endif
