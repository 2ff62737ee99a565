/* SPDX-License-Identifier: Apache-2.0 */
/* emit.h - a finished trace as a tape, with the arguments and extents of this one launch. */
#ifndef TERN_KERNEL_EMIT_H
#define TERN_KERNEL_EMIT_H

#include "core/backend.h"
#include "core/kernel/trace.h"

/* One tensor argument: `storage`'s elements from `offset`; the launch touches elements [low, high) of it. */
typedef struct tern_emit_argument {
    const tern_tensor *storage;
    int64_t offset, low, high;
    uint32_t mode;
} tern_emit_argument;

typedef struct tern_emitted {
    tern_tape tape; /* owns access and insn */
    uint32_t dims[TERN_TAPE_DIMS];
    tern_emit_argument arguments[TERN_TAPE_TENSORS];
    uint32_t label_count; /* random labels: words that follow the kind's own */
    uint32_t labels[TERN_KERNEL_WORDS];
} tern_emitted;

/* Words that the kernel kind of this trace has of its own, given the number of dims. */
uint32_t tern_emit_own_words(const tern_trace *trace, uint32_t dim_count);

/* Simplifies the space (drops extents of 1, merges dims that always step together; an epilogue keeps its three),
 * assigns phases and arguments. REJECT when dims, tensors (at most `tensor_limit`) or phases exceed the tape's. */
tern_trace_result tern_emit(const tern_trace *trace, uint32_t tensor_limit, tern_emitted *out_emitted);
void tern_emitted_finish(tern_emitted *emitted);

#endif
