/* SPDX-License-Identifier: Apache-2.0 */
/* tape.c - the rules of tape.h, checked, and the key that tells two kernels apart.
 *
 * What it is not: it neither makes nor runs tapes. A tape that passes tern_tape_check can be printed in every dialect
 * and run by the CPU backend; whoever makes tapes calls it, so a failure here is an internal error. */
#include "core/kernel/tape.h"

#include <string.h>

#include "core/backend.h"
#include "core/base/dtype.h"
#include "core/base/hash.h"
#include "core/base/status.h"
#include "core/kernel/lowered.h"

static const struct {
    const char *name;
    uint32_t operands;
} ops[TERN_TAPE_OP_COUNT] = {
#define TAPE(name, operands, meaning) [TERN_TAPE_##name] = {#name, operands},
    TERN_TAPE_OPS(TAPE)
#undef TAPE
};

uint32_t tern_tape_operands(tern_tape_op op) { return op < TERN_TAPE_OP_COUNT ? ops[op].operands : 0; }

const char *tern_tape_op_name(tern_tape_op op) { return op < TERN_TAPE_OP_COUNT ? ops[op].name : "?"; }

uint32_t tern_tape_stride_value(tern_tape_stride stride, const uint32_t *dims)
{
    uint32_t value = (uint32_t)stride.coef;
    for (uint32_t d = 0; d < TERN_TAPE_DIMS; d++)
        if (stride.dims >> d & 1u) value *= dims[d];
    return value;
}

/* ------------------------------------------------------------------- check */

typedef struct checker {
    const tern_tape *tape;
    uint32_t at; /* the instruction under test */
    bool epilogue;
} checker;

static tern_status bad(const checker *c, const char *what)
{
    const tern_tape_insn *insn = &c->tape->insn[c->at];
    return tern_error(TERN_ERROR_INTERNAL,
                      "tape instruction %u (%s, phase %u, %s) %s; print the tape with tern_tape_print", c->at,
                      tern_tape_op_name((tern_tape_op)insn->op), insn->phase, insn->body ? "body" : "head", what);
}

static bool is_register_type(uint8_t type) { return type == TERN_F32 || type == TERN_I32 || type == TERN_U32; }

static tern_status check_shape(const tern_tape *tape, bool epilogue)
{
    if (tape->dim_count > TERN_TAPE_DIMS || tape->outer_count > tape->dim_count || tape->phase_count == 0 ||
        tape->phase_count > TERN_TAPE_PHASES || tape->tensor_count > TERN_TAPE_TENSORS ||
        tape->insn_count >= TERN_TAPE_NONE)
        return tern_error(TERN_ERROR_INTERNAL,
                          "tape shape is out of range: %u dims, %u outer, %u phases, %u tensors, %u instructions",
                          tape->dim_count, tape->outer_count, tape->phase_count, tape->tensor_count, tape->insn_count);
    if (epilogue && (tape->dim_count != 3 || tape->outer_count != 0 || tape->phase_count != 1 || tape->chunk_rows != 0))
        return tern_error(
            TERN_ERROR_INTERNAL,
            "an epilogue has 3 inner dims and one phase, not %u dims, %u outer, %u phases, chunks of %u rows",
            tape->dim_count, tape->outer_count, tape->phase_count, tape->chunk_rows);
    for (uint32_t i = 0; i < tape->tensor_count; i++)
        if (tern_dtype(tape->tensors[i].dtype) == NULL || tape->tensors[i].mode == 0 || tape->tensors[i].mode > 3)
            return tern_error(TERN_ERROR_INTERNAL, "tape tensor %u has dtype %u and mode %u", i, tape->tensors[i].dtype,
                              tape->tensors[i].mode);
    return TERN_OK;
}

static tern_status check_access(const checker *c)
{
    const tern_tape_insn *insn = &c->tape->insn[c->at];
    bool uses = insn->op == TERN_TAPE_LOAD || insn->op == TERN_TAPE_STORE || insn->op == TERN_TAPE_COLUMN ||
                insn->op == TERN_TAPE_INDEX;
    if (!uses) return TERN_OK;
    if (insn->access >= c->tape->access_count) return bad(c, "names an access that does not exist");
    const tern_tape_access *access = &c->tape->access[insn->access];
    uint32_t all = (1u << c->tape->dim_count) - 1u;
    if (access->mask_count > TERN_TAPE_MASKS) return bad(c, "has more masks than a tape access holds");
    for (uint32_t d = 0; d < TERN_TAPE_DIMS; d++) {
        const tern_tape_stride *stride = &access->stride[d];
        if (stride->coef != 0 && (d >= c->tape->dim_count || (stride->dims & ~all) != 0))
            return bad(c, "has a stride over a dim that does not exist");
        if (!insn->body && d >= c->tape->outer_count && stride->coef != 0)
            return bad(c, "is in the head but depends on an inner index");
    }
    if (insn->op == TERN_TAPE_INDEX) return TERN_OK;
    if (access->tensor >= c->tape->tensor_count) return bad(c, "names a tensor that does not exist");
    const tern_tape_tensor *tensor = &c->tape->tensors[access->tensor];
    uint8_t needed = insn->op == TERN_TAPE_LOAD ? TERN_ACCESS_READ : TERN_ACCESS_WRITE;
    if ((tensor->mode & needed) == 0) return bad(c, "does what its tensor's mode forbids");
    if (insn->op == TERN_TAPE_COLUMN && tensor->dtype != TERN_F32)
        return bad(c, "sums columns into a tensor that is not f32");
    return TERN_OK;
}

/* Type that operand k must have: its own for moves, `from` for comparisons and conversions. 0: any. */
static uint8_t operand_type(const tern_tape_insn *insn, uint32_t k)
{
    switch (insn->op) {
    case TERN_TAPE_STORE: return 0;
    case TERN_TAPE_LOAD:
    case TERN_TAPE_PHILOX:
    case TERN_TAPE_MULTIPLY_HIGH: return TERN_U32;
    case TERN_TAPE_LESS:
    case TERN_TAPE_EQUAL:
    case TERN_TAPE_CAST:
    case TERN_TAPE_BITCAST: return insn->from;
    case TERN_TAPE_WHERE: return k == 0 ? TERN_U32 : insn->type;
    case TERN_TAPE_COLUMN:
    case TERN_TAPE_REDUCE_SUM:
    case TERN_TAPE_REDUCE_MAX: return TERN_F32;
    default: return insn->type;
    }
}

static bool is_visible(const tern_tape_insn *value, const tern_tape_insn *user)
{
    if (value->op == TERN_TAPE_STORE || value->op == TERN_TAPE_COLUMN) return false;
    if (value->op == TERN_TAPE_REDUCE_SUM || value->op == TERN_TAPE_REDUCE_MAX) return value->phase < user->phase;
    return !value->body || (user->body && value->phase == user->phase);
}

static tern_status check_operands(const checker *c)
{
    const tern_tape_insn *insn = &c->tape->insn[c->at];
    uint32_t count = tern_tape_operands((tern_tape_op)insn->op);
    for (uint32_t k = 0; k < count; k++) {
        uint16_t in = insn->in[k];
        if (in == TERN_TAPE_NONE && insn->op == TERN_TAPE_LOAD) continue;
        if (in >= c->at) return bad(c, "uses a value that is not defined before it");
        const tern_tape_insn *value = &c->tape->insn[in];
        if (!is_visible(value, insn)) return bad(c, "uses a value of another phase's body, or one that has none");
        uint8_t type = operand_type(insn, k);
        if (type != 0 && value->type != type) return bad(c, "has an operand of the wrong type");
    }
    return TERN_OK;
}

static bool is_float_only(uint16_t op)
{
    switch (op) {
    case TERN_TAPE_ACC:
    case TERN_TAPE_REDUCE_SUM:
    case TERN_TAPE_REDUCE_MAX:
    case TERN_TAPE_EXP:
    case TERN_TAPE_LOG:
    case TERN_TAPE_SQRT:
    case TERN_TAPE_RSQRT:
    case TERN_TAPE_RECIP:
    case TERN_TAPE_TANH:
    case TERN_TAPE_ERF:
    case TERN_TAPE_SIN:
    case TERN_TAPE_COS:
    case TERN_TAPE_FLOOR:
    case TERN_TAPE_ROUND:
    case TERN_TAPE_DIV: return true;
    default: return false;
    }
}

static tern_status check_types(const checker *c)
{
    const tern_tape_insn *insn = &c->tape->insn[c->at];
    bool has_value = insn->op != TERN_TAPE_STORE && insn->op != TERN_TAPE_COLUMN;
    if (has_value && !is_register_type(insn->type)) return bad(c, "has a type that registers do not hold");
    if (insn->op == TERN_TAPE_PHILOX && (insn->imm < c->tape->dim_count || insn->imm >= TERN_KERNEL_WORDS))
        return bad(c, "takes its label from a word that is none");
    if (is_float_only(insn->op) && insn->type != TERN_F32) return bad(c, "works on f32 only");
    if (insn->op == TERN_TAPE_ROUND && !tern_dtype_is_16bit_float((int32_t)insn->imm))
        return bad(c, "rounds to a dtype that is neither f16 nor bf16");
    switch (insn->op) {
    case TERN_TAPE_LESS:
    case TERN_TAPE_EQUAL:
    case TERN_TAPE_INDEX:
    case TERN_TAPE_PHILOX:
    case TERN_TAPE_SHIFT_LEFT:
    case TERN_TAPE_SHIFT_RIGHT:
    case TERN_TAPE_MULTIPLY_HIGH:
        if (insn->type != TERN_U32) return bad(c, "gives u32 only");
        break;
    case TERN_TAPE_AND:
    case TERN_TAPE_OR:
    case TERN_TAPE_XOR:
        if (insn->type == TERN_F32) return bad(c, "works on integers only");
        break;
    default: break;
    }
    bool converts = insn->op == TERN_TAPE_LESS || insn->op == TERN_TAPE_EQUAL || insn->op == TERN_TAPE_CAST ||
                    insn->op == TERN_TAPE_BITCAST;
    if (converts && !is_register_type(insn->from)) return bad(c, "converts from a type that registers do not hold");
    return TERN_OK;
}

static tern_status check_place(const checker *c)
{
    const tern_tape_insn *insn = &c->tape->insn[c->at];
    if (insn->op >= TERN_TAPE_OP_COUNT) return bad(c, "is no op");
    if (insn->phase >= c->tape->phase_count || insn->body > 1) return bad(c, "is outside the tape's phases");
    if (c->at > 0) {
        const tern_tape_insn *before = insn - 1;
        if (before->phase > insn->phase || (before->phase == insn->phase && before->body > insn->body))
            return bad(c, "is out of order: instructions are sorted by phase, head before body");
    }
    bool reduces = insn->op == TERN_TAPE_REDUCE_SUM || insn->op == TERN_TAPE_REDUCE_MAX;
    if ((reduces || insn->op == TERN_TAPE_COLUMN) && (!insn->body || c->epilogue))
        return bad(c, "belongs into the body of a row tape");
    if (insn->op == TERN_TAPE_COLUMN && c->tape->chunk_rows == 0) return bad(c, "needs chunk_rows");
    if (insn->op == TERN_TAPE_ACC && !c->epilogue) return bad(c, "belongs into an epilogue");
    return TERN_OK;
}

tern_status tern_tape_check(const tern_tape *tape, bool epilogue)
{
    tern_status status = check_shape(tape, epilogue);
    checker c = {.tape = tape, .epilogue = epilogue};
    uint32_t columns = 0;
    for (; status == TERN_OK && c.at < tape->insn_count; c.at++) {
        TERN_TRY(check_place(&c));
        TERN_TRY(check_types(&c));
        TERN_TRY(check_access(&c));
        TERN_TRY(check_operands(&c));
        columns += tape->insn[c.at].op == TERN_TAPE_COLUMN;
    }
    if (status == TERN_OK && columns == 0 && tape->chunk_rows != 0)
        status = tern_error(TERN_ERROR_INTERNAL, "tape has chunks of %u rows but no COLUMN store", tape->chunk_rows);
fail:
    return status;
}

/* --------------------------------------------------------------------- key */

static uint64_t hash_u32(uint64_t hash, uint32_t value) { return tern_hash(hash, &value, sizeof value); }

static uint64_t hash_stride(uint64_t hash, tern_tape_stride stride)
{
    hash = hash_u32(hash, (uint32_t)stride.coef);
    return hash_u32(hash, stride.coef == 0 ? 0 : stride.dims);
}

static uint64_t hash_access(uint64_t hash, const tern_tape_access *access, uint32_t dim_count)
{
    hash = hash_u32(hash, access->tensor);
    hash = hash_u32(hash, (uint32_t)access->offset);
    hash = hash_stride(hash, access->indirect);
    for (uint32_t d = 0; d < dim_count; d++) hash = hash_stride(hash, access->stride[d]);
    hash = hash_u32(hash, access->mask_count);
    for (uint32_t i = 0; i < access->mask_count; i++) {
        const tern_tape_mask *mask = &access->mask[i];
        for (uint32_t d = 0; d < dim_count; d++) hash = hash_u32(hash, (uint32_t)mask->coef[d]);
        hash = hash_u32(hash, (uint32_t)mask->offset);
        hash = hash_u32(hash, (uint32_t)mask->lo);
        hash = hash_u32(hash, (uint32_t)mask->hi);
    }
    return hash;
}

static uint64_t hash_tape(uint64_t hash, const tern_tape *tape)
{
    const uint32_t shape[] = {tape->dim_count,    tape->outer_count,  tape->phase_count, tape->chunk_rows,
                              tape->tensor_count, tape->access_count, tape->insn_count};
    hash = tern_hash(hash, shape, sizeof shape);
    for (uint32_t i = 0; i < tape->tensor_count; i++)
        hash = hash_u32(hash, (uint32_t)tape->tensors[i].dtype << 8 | tape->tensors[i].mode);
    for (uint32_t i = 0; i < tape->access_count; i++) hash = hash_access(hash, &tape->access[i], tape->dim_count);
    for (uint32_t i = 0; i < tape->insn_count; i++) {
        const tern_tape_insn *insn = &tape->insn[i];
        hash = hash_u32(hash, insn->op);
        hash = hash_u32(hash, (uint32_t)insn->phase << 24 | (uint32_t)insn->body << 16 | (uint32_t)insn->type << 8 |
                                  insn->from);
        hash = hash_u32(hash, insn->access);
        hash = tern_hash(hash, insn->in, tern_tape_operands((tern_tape_op)insn->op) * sizeof insn->in[0]);
        hash = hash_u32(hash, insn->imm);
    }
    return hash;
}

static uint64_t hash_variant(uint64_t hash, const tern_variant *v)
{
    const uint32_t numbers[] = {v->group[0],     v->group[1],    v->group[2],       v->tile_m,
                                v->tile_n,       v->tile_k,      v->thread_m,       v->thread_n,
                                v->shared_bytes, v->shared_form, v->row_per_thread, (uint32_t)v->fragment.dtype,
                                v->fragment.m,   v->fragment.n,  v->fragment.k,     v->fragment.subgroup};
    hash = tern_hash(hash, numbers, sizeof numbers);
    return tern_hash(hash, v->name, strlen(v->name));
}

void tern_kernel_key(tern_kernel_desc *desc)
{
    const uint32_t numbers[] = {desc->kind,         desc->tensor_count, desc->word_count, desc->a_transposed,
                                desc->b_transposed, desc->head_dim,     desc->causal,     desc->sorted};
    uint64_t hash = tern_hash(TERN_HASH_START, numbers, sizeof numbers);
    for (uint32_t i = 0; i < desc->tensor_count; i++)
        hash = hash_u32(hash, (uint32_t)desc->tensors[i].dtype << 8 | desc->tensors[i].mode);
    hash = hash_tape(hash, &desc->tape);
    desc->key = hash_variant(hash, &desc->variant);
}
