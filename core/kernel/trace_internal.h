/* SPDX-License-Identifier: Apache-2.0 */
/* trace_internal.h - what trace.c (bookkeeping) and trace_ops.c (one rule per kind of node) share. */
#ifndef TERN_KERNEL_TRACE_INTERNAL_H
#define TERN_KERNEL_TRACE_INTERNAL_H

#include "core/kernel/trace.h"

#define TERN_TRACE_TRY(expression)                                                                                     \
    do {                                                                                                               \
        const tern_trace_result try_result_ = (expression);                                                            \
        if (try_result_ != TERN_TRACE_OK) return try_result_;                                                          \
    } while (0)

/* The expression of x at this access. */
tern_trace_result tern_trace_node(tern_trace *trace, const tern_tensor *x, const tern_access *access,
                                  uint32_t *out_expr);
/* By x's kind, without the memo and without looking whether x is stored. */
tern_trace_result tern_trace_define(tern_trace *trace, const tern_tensor *x, const tern_access *access,
                                    uint32_t *out_expr);

/* Adds (or finds) an expression; body and depth follow from the operands. */
tern_trace_result tern_trace_expr(tern_trace *trace, tern_expr expr, uint32_t *out_expr);
tern_trace_result tern_trace_place(tern_trace *trace, const tern_place *place, uint32_t *out_place);
tern_trace_result tern_trace_load(tern_trace *trace, const tern_tensor *x, const tern_access *access,
                                  uint32_t indirect_expr, int64_t indirect, uint32_t *out_expr);
tern_trace_result tern_trace_index(tern_trace *trace, const tern_affine *value, uint32_t *out_expr);
tern_trace_result tern_trace_const(tern_trace *trace, uint8_t type, uint32_t bits, uint32_t *out_expr);
tern_trace_result tern_trace_alu(tern_trace *trace, uint16_t op, uint8_t type, uint32_t a, uint32_t b, uint32_t c,
                                 uint32_t *out_expr);
/* a as this 16-bit float dtype holds it. */
tern_trace_result tern_trace_round(tern_trace *trace, uint32_t a, int32_t dtype, uint32_t *out_expr);
tern_trace_result tern_trace_need(tern_trace *trace, const tern_tensor *x);
bool tern_trace_is_root(const tern_trace *trace, const tern_tensor *x);

#endif
