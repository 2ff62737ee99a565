/* SPDX-License-Identifier: Apache-2.0 */
/* tape_maker.c - see tape_maker.h. Indices stay in range because tests are small. */
#include "tests/tape_maker.h"

#include <string.h>

void tape_maker_start(tape_maker *maker, uint32_t dims, uint32_t outer, uint32_t phases)
{
    memset(maker, 0, sizeof *maker);
    maker->tape.dim_count = dims;
    maker->tape.outer_count = outer;
    maker->tape.phase_count = phases;
    maker->tape.access = maker->accesses;
    maker->tape.insn = maker->insns;
    maker->body = 1;
}

void tape_maker_at(tape_maker *maker, uint8_t phase, uint8_t body)
{
    maker->phase = phase;
    maker->body = body;
}

uint32_t tape_maker_tensor(tape_maker *maker, uint8_t dtype, uint8_t mode)
{
    maker->tape.tensors[maker->tape.tensor_count] = (tern_tape_tensor){dtype, mode};
    return maker->tape.tensor_count++;
}

uint16_t tape_maker_access(tape_maker *maker, uint32_t tensor, uint32_t mask)
{
    tern_tape_access *access = &maker->accesses[maker->tape.access_count];
    access->tensor = tensor;
    uint32_t inside = 0;
    for (uint32_t d = maker->tape.dim_count; d-- > 0;) {
        if ((mask >> d & 1u) == 0) continue;
        access->stride[d] = (tern_tape_stride){1, inside};
        inside |= 1u << d;
    }
    return (uint16_t)maker->tape.access_count++;
}

uint16_t tape_maker_insn(tape_maker *maker, tern_tape_insn insn)
{
    insn.phase = maker->phase;
    insn.body = maker->body;
    maker->insns[maker->tape.insn_count] = insn;
    return (uint16_t)maker->tape.insn_count++;
}

uint16_t tape_maker_load_from(tape_maker *maker, uint16_t access, uint8_t type, uint16_t indirect)
{
    return tape_maker_insn(maker,
                           (tern_tape_insn){.op = TERN_TAPE_LOAD, .type = type, .access = access, .in = {indirect}});
}

uint16_t tape_maker_load(tape_maker *maker, uint32_t tensor, uint32_t mask)
{
    uint8_t dtype = maker->tape.tensors[tensor].dtype;
    uint8_t type = dtype == TERN_I32                                            ? TERN_I32
                   : dtype == TERN_U8 || dtype == TERN_U16 || dtype == TERN_U32 ? TERN_U32
                                                                                : TERN_F32;
    return tape_maker_load_from(maker, tape_maker_access(maker, tensor, mask), type, TERN_TAPE_NONE);
}

void tape_maker_store(tape_maker *maker, uint32_t tensor, uint32_t mask, uint16_t value)
{
    uint8_t type = maker->insns[value].type;
    tape_maker_insn(maker, (tern_tape_insn){.op = TERN_TAPE_STORE,
                                            .type = type,
                                            .access = tape_maker_access(maker, tensor, mask),
                                            .in = {value}});
}

void tape_maker_column(tape_maker *maker, uint32_t tensor, uint16_t value)
{
    tape_maker_insn(maker, (tern_tape_insn){.op = TERN_TAPE_COLUMN,
                                            .type = TERN_F32,
                                            .access = tape_maker_access(maker, tensor, 0),
                                            .in = {value}});
}

uint16_t tape_maker_constant(tape_maker *maker, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return tape_maker_insn(maker, (tern_tape_insn){.op = TERN_TAPE_CONST, .type = TERN_F32, .imm = bits});
}

uint16_t tape_maker_constant_u32(tape_maker *maker, uint32_t value)
{
    return tape_maker_insn(maker, (tern_tape_insn){.op = TERN_TAPE_CONST, .type = TERN_U32, .imm = value});
}

uint16_t tape_maker_index(tape_maker *maker, uint32_t dim)
{
    uint16_t access = tape_maker_access(maker, 0, 1u << dim);
    return tape_maker_insn(maker, (tern_tape_insn){.op = TERN_TAPE_INDEX, .type = TERN_U32, .access = access});
}

uint16_t tape_maker_op(tape_maker *maker, tern_tape_op op, uint16_t a, uint16_t b)
{
    return tape_maker_insn(maker, (tern_tape_insn){.op = (uint16_t)op,
                                                   .type = TERN_F32,
                                                   .from = TERN_F32,
                                                   .in = {a, b, TERN_TAPE_NONE, TERN_TAPE_NONE}});
}

void tape_maker_desc(const tape_maker *maker, tern_kernel_desc *out_desc)
{
    memset(out_desc, 0, sizeof *out_desc);
    out_desc->kind = TERN_KERNEL_TAPE;
    strcpy(out_desc->label, "test");
    out_desc->tape = maker->tape;
    out_desc->tensor_count = maker->tape.tensor_count;
    memcpy(out_desc->tensors, maker->tape.tensors, sizeof out_desc->tensors);
    out_desc->word_count = maker->tape.dim_count;
    for (uint32_t i = 0; i < maker->tape.insn_count; i++)
        if (maker->insns[i].op == TERN_TAPE_PHILOX && maker->insns[i].imm >= out_desc->word_count)
            out_desc->word_count = maker->insns[i].imm + 1;
}

void tape_maker_contraction(const tape_maker *maker, tern_kernel_kind kind, uint32_t own,
                            const tern_tape_tensor *own_tensors, uint32_t words, tern_kernel_desc *out_desc)
{
    memset(out_desc, 0, sizeof *out_desc);
    out_desc->kind = kind;
    strcpy(out_desc->label, "test");
    out_desc->tensor_count = own;
    memcpy(out_desc->tensors, own_tensors, own * sizeof *own_tensors);
    out_desc->word_count = words;
    if (maker == NULL) return;
    out_desc->tape = maker->tape;
    memcpy(out_desc->tensors + own, maker->tape.tensors, maker->tape.tensor_count * sizeof *own_tensors);
    out_desc->tensor_count += maker->tape.tensor_count;
}
