/* SPDX-License-Identifier: Apache-2.0 */
/* contraction_trial.h - one matmul, attention or scatter of given shape and dtypes on a backend against plain loops in
 * double.
 *
 * The reference computes with what the inputs are worth once stored, so only the device's own rounding is measured. f32
 * results may err by 1e-5 of their norm; f16 and bf16 results by twice what the reference loses when it is rounded to
 * that dtype, and never less than a unit of the largest element (which matters for a handful of elements). Every
 * dispatch is conformance_dispatch's: sentinels, and the same bits twice. dtype 0 means f32. */
#ifndef TERN_TESTS_CONTRACTION_TRIAL_H
#define TERN_TESTS_CONTRACTION_TRIAL_H

#include "tests/conformance.h"

/* A tensor's elements as stored and what they are worth. */
typedef struct stored {
    uint8_t dtype;
    size_t count;
    float *value;
    void *data;
} stored;

/* Random in [-scale, scale), rounded to the dtype. */
stored stored_random(uint8_t dtype, size_t count, uint64_t seed, float scale);
/* data from value, which is rounded. */
void stored_write(stored *x);
/* value from data, after a dispatch. */
void stored_read(stored *x);
conformance_array stored_array(const stored *x);
void stored_free(stored *x);

/* got's error within the rule above? floor: least norm that counts. Says `what`, and fails, if not. */
void stored_check(const char *what, stored *got, const double *wanted, double floor);
/* more: allowed on top of that, for operands that a device rounds. */
void stored_check_more(const char *what, stored *got, const double *wanted, double floor, double more);

/* ------------------------------------------------------------------ matmul */

typedef enum trial_epilogue { STORE_ONLY, BIAS_GELU_RESIDUAL, ACCUMULATE, TRANSPOSED_STORE, EPILOGUES } trial_epilogue;

typedef struct matmul_trial {
    uint32_t batch, m, n, k;
    bool a_transposed, b_transposed, share_b; /* share_b: one B for all batches, stride 0 */
    uint32_t a_pad, b_pad;                    /* added to the leading dimensions */
    trial_epilogue end;
    uint8_t a_dtype, b_dtype, y_dtype; /* y's is the residual's too */
    const char *variant;               /* part of the name of the variant that must be chosen; NULL: any */
    double more;                       /* tolerance on top, of the norm */
    tern_status (*render)(const tern_kernel_desc *, tern_dialect, bool, tern_source *); /* NULL: core's */
} matmul_trial;
void matmul_try(const conformance *c, const matmul_trial *t);
/* Its kernel and words (TERN_MATMUL_WORDS of them), for what matmul_try does not try; the maker holds the tape. */
void matmul_describe(const conformance *c, const matmul_trial *t, uint32_t *out_words, tape_maker *maker,
                     tern_kernel_desc *out_desc);

/* The epilogue's tape, with y (and the residual) of that dtype. */
void trial_epilogue_tape(tape_maker *maker, trial_epilogue end, uint8_t y_dtype);

/* --------------------------------------------------------------- attention */

typedef struct attention_trial {
    uint32_t b, h, tq, tk, d;
    bool causal;
    bool packed;   /* q, k and v interleave in rows of 3 H D */
    uint8_t dtype; /* of q, k, v, o and their gradients */
} attention_trial;

/* Everything of one case: q, k, v inside their arrays by word strides, the double results of forward and backward. */
typedef struct attention_data {
    attention_trial s;
    const char *variant; /* as of a matmul_trial, these three; to be set after attention_make */
    double more;
    tern_status (*render)(const tern_kernel_desc *, tern_dialect, bool, tern_source *);
    uint32_t words[TERN_ATTENTION_WORDS];
    size_t o_count, k_out_count, rows;
    stored q, k, v, dout, o, lse, delta;
    double *o_wanted, *lse_wanted, *delta_wanted, *dq_wanted, *dk_wanted, *dv_wanted;
} attention_data;

/* Inputs are random and the wanted results 0; change the values and stored_write them, then solve. */
void attention_make(attention_data *x, attention_trial s);
void attention_solve(attention_data *x);
void attention_free(attention_data *x);
/* Runs the forward kernel into o and lse, or the backward ones from the wanted lse and delta, and checks. */
void attention_forward_try(const conformance *c, attention_data *x);
void attention_backward_try(const conformance *c, attention_data *x);
typedef void attention_direction(const conformance *c, attention_data *x);
/* One of the two, with random inputs, on each of the trials. */
void attention_try_all(const conformance *c, const attention_trial *trials, size_t count, attention_direction *try_one);
/* The forward kernel alone: o and lse as they come. */
void attention_forward_run(const conformance *c, attention_data *x);

/* ----------------------------------------------------------------- scatter */

typedef struct scatter_trial {
    uint32_t v, d, n;
    bool sorted;
    int32_t id_dtype;
    uint8_t dy_dtype, y_dtype;
} scatter_trial;
void scatter_try(const conformance *c, const scatter_trial *s);

#endif
