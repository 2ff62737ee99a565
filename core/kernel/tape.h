/* SPDX-License-Identifier: Apache-2.0 */
/* tape.h - the fuser's form of a kernel, the part of the plug-in contract that describes fused work.
 *
 * A tape is a loop nest with a few phases:
 *
 *     for outer in product(dims[0 .. outer_count))
 *         phase 0:  head (per outer)    loads of per-row values, scalar arithmetic, stores of per-row results
 *                   body (per inner)    for inner in product(dims[outer_count .. dim_count)): loads, arithmetic,
 *                                       stores; ends in REDUCEs over the whole inner range
 *         phase 1:  head sees phase 0's reductions, body ...
 *         ...       the last phase may have an empty body
 *
 * Only per-outer scalars cross from one phase to the next; what a later body needs again it loads again.
 * With outer_count == 0 there is one outer iteration (an elementwise kernel has only inner dims, one body).
 * Softmax is three phases (max, sum of exp, store), layer norm backward three.
 *
 * Column sums: a COLUMN store adds a body value over all rows of one chunk. Rows are cut into chunks of `chunk_rows`;
 * the tensor's element (chunk, inner) receives the sum over the chunk's rows in row order. A later tape combines the
 * chunks.
 *
 * Registers hold f32, i32 and u32; the other dtypes are storage. A LOAD widens exactly, a STORE rounds as
 * core/base/dtype.h does (u8 and u16: low bits). A value that counts as a 16-bit float without being stored is ROUNDed,
 * so that whether it went through memory cannot be told from its bits.
 *
 * Extents are run-time values (words 0 .. dim_count - 1 of the dispatch); the labels of random numbers follow the other
 * words, so that every layer's dropout is one pipeline. Strides are baked as coef * product of some extents, so that
 * one pipeline serves every size. All index arithmetic is u32 and wraps.
 *
 * Used as a contraction's EPILOGUE the same form has dims (batch, m, n), outer_count 0, one body, and the value ACC.
 * Invariant: instruction i defines value i; operands are smaller; a body value is used only in bodies of its own phase;
 * instructions are sorted by phase, head before body. tern_tape_check verifies all of it. */
#ifndef TERN_KERNEL_TAPE_H
#define TERN_KERNEL_TAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TERN_TAPE_DIMS    6
#define TERN_TAPE_TENSORS 12
#define TERN_TAPE_MASKS   3
#define TERN_TAPE_PHASES  8
#define TERN_TAPE_NONE    0xffffu

/* coef * product of dims[d] for each bit d of `dims`; coef 0: does not depend on the dim. */
typedef struct tern_tape_stride {
    int32_t coef;
    uint32_t dims;
} tern_tape_stride;

/* lo <= sum over dims of coef[d] * index[d] (+ offset) < hi, else the load gives 0. All literals. */
typedef struct tern_tape_mask {
    int32_t coef[TERN_TAPE_DIMS];
    int32_t offset, lo, hi;
} tern_tape_mask;

/* Element index = offset + sum over d of index[d] * stride[d] (+ value[indirect] * indirect_stride for LOADs with an
 * operand). */
typedef struct tern_tape_access {
    uint32_t tensor; /* argument number; unused by INDEX */
    int32_t offset;  /* elements, literal; may be negative where masks guard it */
    tern_tape_stride stride[TERN_TAPE_DIMS];
    tern_tape_stride indirect;
    uint32_t mask_count;
    tern_tape_mask mask[TERN_TAPE_MASKS];
} tern_tape_access;

/* TAPE(NAME, operands, "meaning"). T: the instruction's type (f32, i32, u32). f32 arithmetic is never contracted to
 * fma. */
#define TERN_TAPE_OPS(TAPE)                                                                                            \
    TAPE(CONST, 0, "the bits `imm`")                                                                                   \
    TAPE(INDEX, 0, "u32: access's affine expression of the loop indices")                                              \
    TAPE(LOAD, 1, "element of access's tensor, converted to T; operand 0 (or NONE): u32 indirect index")               \
    TAPE(ACC, 0, "epilogue only: the contraction's f32 result at (batch, m, n)")                                       \
    TAPE(STORE, 1, "operand 0 to access's tensor (converted to its dtype); head: once per outer; no value")            \
    TAPE(COLUMN, 1, "column sum of operand 0 into (chunk, inner); body only; no value")                                \
    TAPE(REDUCE_SUM, 1, "f32 sum of a body value over inner; a head value of later phases")                            \
    TAPE(REDUCE_MAX, 1, "f32 maximum, NaN if any is NaN; starts at -inf")                                              \
    TAPE(NEG, 1, "-a")                                                                                                 \
    TAPE(ABS, 1, "|a|")                                                                                                \
    TAPE(EXP, 1, "e^a")                                                                                                \
    TAPE(LOG, 1, "natural logarithm")                                                                                  \
    TAPE(SQRT, 1, "square root")                                                                                       \
    TAPE(RSQRT, 1, "1 / sqrt(a)")                                                                                      \
    TAPE(RECIP, 1, "1 / a")                                                                                            \
    TAPE(TANH, 1, "hyperbolic tangent")                                                                                \
    TAPE(ERF, 1, "error function")                                                                                     \
    TAPE(SIN, 1, "sine")                                                                                               \
    TAPE(COS, 1, "cosine")                                                                                             \
    TAPE(FLOOR, 1, "largest integer <= a")                                                                             \
    TAPE(ADD, 2, "a + b, any T")                                                                                       \
    TAPE(SUB, 2, "a - b, any T")                                                                                       \
    TAPE(MUL, 2, "a * b, any T")                                                                                       \
    TAPE(DIV, 2, "a / b, f32")                                                                                         \
    TAPE(MAX, 2, "a > b or a is NaN ? a : b (f32: NaN tested by its bits)")                                            \
    TAPE(MIN, 2, "a < b or a is NaN ? a : b")                                                                          \
    TAPE(LESS, 2, "u32 1 if a < b else 0; operands of type `from`")                                                    \
    TAPE(EQUAL, 2, "u32 1 if a == b else 0; operands of type `from`")                                                  \
    TAPE(WHERE, 3, "a != 0 ? b : c; a u32")                                                                            \
    TAPE(AND, 2, "bitwise, u32 or i32")                                                                                \
    TAPE(OR, 2, "bitwise")                                                                                             \
    TAPE(XOR, 2, "bitwise")                                                                                            \
    TAPE(SHIFT_LEFT, 2, "a << b, u32, b < 32")                                                                         \
    TAPE(SHIFT_RIGHT, 2, "a >> b, u32, b < 32")                                                                        \
    TAPE(MULTIPLY_HIGH, 2, "high word of the u32 product")                                                             \
    TAPE(CAST, 1, "value of type `from` converted to T; toward zero to integers; out of range is unspecified")         \
    TAPE(BITCAST, 1, "bits of type `from` as T")                                                                       \
    TAPE(ROUND, 1, "a as the dtype `imm` (f16 or bf16) holds it: to nearest even, still f32; NaN stays NaN")           \
    TAPE(PHILOX, 4, "word 0 of philox(counter {a, b, dispatch word number `imm`, 0}, key {c, d}); u32")

typedef enum tern_tape_op {
#define TAPE(name, operands, meaning) TERN_TAPE_##name,
    TERN_TAPE_OPS(TAPE)
#undef TAPE
        TERN_TAPE_OP_COUNT
} tern_tape_op;

typedef struct tern_tape_insn {
    uint16_t op; /* tern_tape_op */
    uint8_t phase;
    uint8_t body;    /* 0: head, 1: body */
    uint8_t type;    /* TERN_F32, TERN_I32 or TERN_U32: the value's type in registers */
    uint8_t from;    /* operand type for LESS, EQUAL, CAST, BITCAST */
    uint16_t access; /* LOAD, STORE, COLUMN, INDEX */
    uint16_t in[4];  /* operand values; TERN_TAPE_NONE where absent */
    uint32_t imm;    /* CONST bits; ROUND: a dtype; PHILOX: number of the dispatch word that holds the label's hash */
} tern_tape_insn;

enum { TERN_ACCESS_READ = 1, TERN_ACCESS_WRITE = 2 };

typedef struct tern_tape_tensor {
    uint8_t dtype; /* as stored: TERN_F32 ... */
    uint8_t mode;  /* TERN_ACCESS_READ | TERN_ACCESS_WRITE */
} tern_tape_tensor;

typedef struct tern_tape {
    uint32_t dim_count, outer_count, phase_count;
    uint32_t chunk_rows; /* 0 without COLUMN stores */
    uint32_t tensor_count;
    tern_tape_tensor tensors[TERN_TAPE_TENSORS];
    uint32_t access_count, insn_count;
    tern_tape_access *access;
    tern_tape_insn *insn;
} tern_tape;

/* How many operands an op takes; its name ("add"). */
uint32_t tern_tape_operands(tern_tape_op op);
const char *tern_tape_op_name(tern_tape_op op);
/* stride value for these extents, u32 arithmetic. */
uint32_t tern_tape_stride_value(tern_tape_stride stride, const uint32_t *dims);

#endif
