/* SPDX-License-Identifier: Apache-2.0 */
/* contraction.h - a contraction node as a template call: operands through their views, words, flags.
 *
 * Operands keep their views when the template can walk them by strides (transposes, slices of a packed qkv); otherwise
 * `need` names what has to be stored first. */
#ifndef TERN_KERNEL_CONTRACTION_H
#define TERN_KERNEL_CONTRACTION_H

#include "core/kernel/lowered.h"
#include "core/kernel/trace.h"

#define TERN_CONTRACTION_OPERANDS 8 /* inputs and, for attention, the outputs */

typedef struct tern_contraction_operand {
    const tern_tensor *storage; /* NULL: an output nobody reads; `bytes` of scratch */
    int64_t offset, low, high;  /* elements, as in tern_emit_argument */
    uint64_t scratch_bytes;
    uint32_t mode;
    int32_t dtype;
} tern_contraction_operand;

typedef struct tern_contraction {
    tern_kernel_kind kind;
    uint32_t operand_count;
    tern_contraction_operand operands[TERN_CONTRACTION_OPERANDS];
    uint32_t word_count;
    uint32_t words[TERN_KERNEL_WORDS];
    bool a_transposed, b_transposed, causal, sorted, has_epilogue;
    uint32_t head_dim;
    double flops;
} tern_contraction;

/* second: x's SECOND node if anything reads it, else NULL. STORE sets *out_need. */
tern_trace_result tern_contraction_resolve(const tern_tensor *x, const tern_tensor *second, const bool *stored,
                                           tern_contraction *out_contraction, const tern_tensor **out_need);
/* The epilogue's space (batch, m, n) and order. */
void tern_contraction_frame(const tern_tensor *x, tern_frame *out_frame);

#endif
