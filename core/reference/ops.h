/* SPDX-License-Identifier: Apache-2.0 */
/* ops.h - between the reference's loop (reference.c) and its families of ops; nobody else's. */
#ifndef TERN_REFERENCE_OPS_H
#define TERN_REFERENCE_OPS_H

#include "core/graph/graph.h"

/* One op at work. Floats are doubles; integers are their exact values in doubles, so u32 arithmetic goes through
 * uint32_t. */
typedef struct tern_reference_call {
    const tern_tensor *node;
    const double *in[TERN_MAX_INPUTS];
    double *out;
    double *second; /* a contraction's second output, or NULL */
    bool magnitude; /* of sums: add |terms| instead of terms, for error bounds */
    bool exact;     /* nothing is rounded to 16 bit */
} tern_reference_call;

typedef void (*tern_reference_op)(const tern_reference_call *call);

void tern_reference_map(const tern_reference_call *call);    /* map.c: all that is elementwise, RANDOM included */
void tern_reference_leaf(const tern_reference_call *call);   /* view.c: CONSTANT and INDEX */
void tern_reference_view(const tern_reference_call *call);   /* view.c: RESHAPE to PAD */
void tern_reference_reduce(const tern_reference_call *call); /* view.c: SUM and MAXIMUM */
void tern_reference_gather(const tern_reference_call *call); /* contraction.c, as the rest */
void tern_reference_scatter_add(const tern_reference_call *call);
void tern_reference_matmul(const tern_reference_call *call);
void tern_reference_attention(const tern_reference_call *call);
void tern_reference_attention_dq(const tern_reference_call *call);
void tern_reference_attention_dkv(const tern_reference_call *call);

/* The number that a 16-bit float dtype holds for this one, by way of f32 as devices round; others: the number itself.
 */
double tern_reference_round(double value, int32_t dtype);
/* The bits of a number of this dtype, and back. */
uint32_t tern_reference_to_bits(double value, int32_t dtype);
double tern_reference_from_bits(uint32_t bits, int32_t dtype);

#endif
