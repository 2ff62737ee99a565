/* SPDX-License-Identifier: Apache-2.0 */
/* tape_maker.h - builds tapes by hand, without the fuser, for tests of whatever reads tapes.
 *
 *     tape_maker m;
 *     tape_maker_start(&m, 2, 1, 1);                        (rows, columns), one outer dim, one phase
 *     uint32_t x = tape_maker_tensor(&m, TERN_F32, TERN_ACCESS_READ);
 *     uint16_t v = tape_maker_load(&m, x, ROW_MAJOR);
 * Instructions go to the phase and part (head or body) last set with tape_maker_at. */
#ifndef TERN_TESTS_TAPE_MAKER_H
#define TERN_TESTS_TAPE_MAKER_H

#include "core/backend.h"

#define TAPE_MAKER_INSNS 64

typedef struct tape_maker {
    tern_tape tape;
    tern_tape_access accesses[TAPE_MAKER_INSNS];
    tern_tape_insn insns[TAPE_MAKER_INSNS];
    uint8_t phase, body;
} tape_maker;

void tape_maker_start(tape_maker *maker, uint32_t dims, uint32_t outer, uint32_t phases);
void tape_maker_at(tape_maker *maker, uint8_t phase, uint8_t body);
uint32_t tape_maker_tensor(tape_maker *maker, uint8_t dtype, uint8_t mode);

/* An access of `tensor` whose axes are the dims in `mask`, row-major and contiguous; the others do not move it. */
uint16_t tape_maker_access(tape_maker *maker, uint32_t tensor, uint32_t mask);
uint16_t tape_maker_load(tape_maker *maker, uint32_t tensor, uint32_t mask);
uint16_t tape_maker_load_from(tape_maker *maker, uint16_t access, uint8_t type, uint16_t indirect);
void tape_maker_store(tape_maker *maker, uint32_t tensor, uint32_t mask, uint16_t value);
void tape_maker_column(tape_maker *maker, uint32_t tensor, uint16_t value);
uint16_t tape_maker_constant(tape_maker *maker, float value);
uint16_t tape_maker_constant_u32(tape_maker *maker, uint32_t value);
uint16_t tape_maker_index(tape_maker *maker, uint32_t dim);
/* f32 result. Absent operands: TERN_TAPE_NONE. */
uint16_t tape_maker_op(tape_maker *maker, tern_tape_op op, uint16_t a, uint16_t b);
uint16_t tape_maker_insn(tape_maker *maker, tern_tape_insn insn);
/* A TAPE kernel of it, without variant. The maker must outlive the desc. */
void tape_maker_desc(const tape_maker *maker, tern_kernel_desc *out_desc);
/* A contraction with `own` arguments and this epilogue (NULL: none). */
void tape_maker_contraction(const tape_maker *maker, tern_kernel_kind kind, uint32_t own,
                            const tern_tape_tensor *own_tensors, uint32_t words, tern_kernel_desc *out_desc);

#endif
