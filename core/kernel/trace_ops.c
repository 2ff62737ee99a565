/* SPDX-License-Identifier: Apache-2.0 */
/* trace_ops.c - how each kind of node becomes expressions; one function per kind. */
#include "core/base/dtype.h"
#include "core/kernel/trace_internal.h"

#include <string.h>

#define NONE TERN_EXPR_NONE

/* MAP primitives that are one instruction. */
static int32_t tape_op_of(tern_op op)
{
    switch (op) {
#define SAME(name)                                                                                                     \
    case TERN_OP_##name: return TERN_TAPE_##name;
        SAME(NEG)
        SAME(ABS)
        SAME(EXP)
        SAME(LOG)
        SAME(SQRT)
        SAME(RSQRT)
        SAME(RECIP)
        SAME(TANH)
        SAME(ERF)
        SAME(SIN)
        SAME(COS)
        SAME(FLOOR)
        SAME(ADD)
        SAME(SUB)
        SAME(MUL)
        SAME(DIV)
        SAME(MAX)
        SAME(MIN)
        SAME(LESS)
        SAME(EQUAL)
        SAME(WHERE)
        SAME(AND)
        SAME(OR)
        SAME(XOR)
        SAME(SHIFT_LEFT)
        SAME(SHIFT_RIGHT)
        SAME(MULTIPLY_HIGH)
#undef SAME
    default: return -1;
    }
}

static uint32_t rounded_bits(uint32_t bits, int32_t dtype)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    value = tern_f32_round_to(value, dtype);
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Whether this dtype holds the expression's values as they are. */
static bool is_exact(const tern_trace *trace, const tern_expr *expr, int32_t dtype)
{
    if (expr->op == TERN_TAPE_LOAD) return trace->places[expr->place].storage->dtype == dtype;
    return expr->op == TERN_TAPE_ROUND && expr->imm == (uint32_t)dtype;
}

/* To f16 or bf16 a ROUND, from them nothing; to u8 and u16 the low bits. */
static tern_trace_result trace_cast(tern_trace *trace, const tern_tensor *x, uint32_t in, uint32_t *out_expr)
{
    const tern_expr *operand = &trace->exprs[in];
    const uint8_t type = tern_register_type(x->dtype);
    if (tern_is_narrowing(x) && operand->op == TERN_TAPE_CONST)
        return tern_trace_const(trace, TERN_F32, rounded_bits(operand->imm, x->dtype), out_expr);
    if (tern_is_narrowing(x) && !is_exact(trace, operand, x->dtype))
        return tern_trace_round(trace, in, x->dtype, out_expr);
    if (x->dtype == TERN_U8 || x->dtype == TERN_U16) {
        uint32_t mask;
        TERN_TRACE_TRY(tern_trace_const(trace, TERN_U32, x->dtype == TERN_U8 ? 0xffu : 0xffffu, &mask));
        return tern_trace_alu(trace, TERN_TAPE_AND, TERN_U32, in, mask, NONE, out_expr);
    }
    if (operand->type != type) return tern_trace_alu(trace, TERN_TAPE_CAST, type, in, NONE, NONE, out_expr);
    *out_expr = in;
    return TERN_TRACE_OK;
}

static tern_trace_result trace_map(tern_trace *trace, const tern_tensor *x, const tern_access *access,
                                   uint32_t *out_expr)
{
    uint32_t in[3] = {NONE, NONE, NONE};
    for (int32_t i = 0; i < x->in_count; i++) {
        const tern_trace_result result = tern_trace_node(trace, x->in[i], access, &in[i]);
        /* Instead of a contraction's f32 result what its epilogue can make of it: 16 bits, bias and all. */
        const bool contraction = result == TERN_TRACE_STORE && tern_ops[trace->need->op].kind == TERN_KIND_CONTRACTION;
        if (contraction && tern_is_narrowing(x) && !trace->stored[x->id]) return tern_trace_need(trace, x);
        if (result != TERN_TRACE_OK) return result;
    }
    const uint8_t type = tern_register_type(x->dtype);
    switch (x->op) {
    case TERN_OP_DETACH: *out_expr = in[0]; return TERN_TRACE_OK;
    case TERN_OP_CAST: return trace_cast(trace, x, in[0], out_expr);
    case TERN_OP_BITCAST:
        if (trace->exprs[in[0]].type == type) {
            *out_expr = in[0];
            return TERN_TRACE_OK;
        }
        return tern_trace_alu(trace, TERN_TAPE_BITCAST, type, in[0], NONE, NONE, out_expr);
    default: return tern_trace_alu(trace, (uint16_t)tape_op_of(x->op), type, in[0], in[1], in[2], out_expr);
    }
}

/* Row-major element number of x at this access, as u32. */
static tern_trace_result trace_element(tern_trace *trace, const tern_access *access, uint32_t *out_expr)
{
    return tern_trace_index(trace, &access->element, out_expr);
}

static tern_trace_result trace_control(tern_trace *trace, const tern_tensor *control, int64_t word, uint32_t *out_expr)
{
    const tern_access access = {.element = {.offset = word}};
    return tern_trace_load(trace, control, &access, NONE, 0, out_expr);
}

/* element of the whole window = sample_base * per_example + element, 64 bits in two u32 words */
static tern_trace_result trace_random(tern_trace *trace, const tern_tensor *x, const tern_access *access,
                                      uint32_t *out_expr)
{
    const tern_tensor *control = x->in[0];
    uint32_t element, base, per_example, start_low, start_high, low, carry, high, key[2];
    TERN_TRACE_TRY(trace_element(trace, access, &element));
    TERN_TRACE_TRY(trace_control(trace, control, TERN_CONTROL_SAMPLE_BASE, &base));
    TERN_TRACE_TRY(trace_control(trace, control, TERN_CONTROL_KEY0, &key[0]));
    TERN_TRACE_TRY(trace_control(trace, control, TERN_CONTROL_KEY1, &key[1]));
    TERN_TRACE_TRY(tern_trace_const(trace, TERN_U32, x->at.random.per_example, &per_example));
    TERN_TRACE_TRY(tern_trace_alu(trace, TERN_TAPE_MUL, TERN_U32, base, per_example, NONE, &start_low));
    TERN_TRACE_TRY(tern_trace_alu(trace, TERN_TAPE_MULTIPLY_HIGH, TERN_U32, base, per_example, NONE, &start_high));
    TERN_TRACE_TRY(tern_trace_alu(trace, TERN_TAPE_ADD, TERN_U32, start_low, element, NONE, &low));
    TERN_TRACE_TRY(tern_trace_alu(trace, TERN_TAPE_LESS, TERN_U32, low, start_low, NONE, &carry));
    TERN_TRACE_TRY(tern_trace_alu(trace, TERN_TAPE_ADD, TERN_U32, start_high, carry, NONE, &high));
    const tern_expr philox = {.op = TERN_TAPE_PHILOX,
                              .type = TERN_U32,
                              .from = TERN_U32,
                              .in = {low, high, key[0], key[1]},
                              .imm = x->at.random.label_hash,
                              .place = NONE};
    return tern_trace_expr(trace, philox, out_expr);
}

/* table(ids(...), d): an indirect load. Ids at or beyond the last row, negative ones included, read the last row. */
static tern_trace_result trace_gather(tern_trace *trace, const tern_tensor *x, const tern_access *access,
                                      uint32_t *out_expr)
{
    const tern_tensor *table = x->in[0], *ids = x->in[1];
    if (table->op != TERN_OP_PARAMETER && !trace->stored[table->id] && table->op != TERN_OP_STATE &&
        table->op != TERN_OP_INPUT)
        return tern_trace_need(trace, table);
    if (tern_trace_is_root(trace, table)) return TERN_TRACE_REJECT;

    tern_affine at[TERN_MAX_RANK];
    const tern_space *space = &trace->frame.space;
    const tern_access_result result = tern_access_coordinates(space, x->rank, x->shape, access, at, &trace->split);
    if (result != TERN_ACCESS_OK) return result == TERN_ACCESS_SPLIT ? TERN_TRACE_SPLIT : tern_trace_need(trace, x);

    tern_access ids_access = *access, table_access = *access;
    tern_access_linear(ids->rank, ids->shape, at, &ids_access.element);
    table_access.element = at[x->rank - 1];
    uint32_t id, last;
    TERN_TRACE_TRY(tern_trace_node(trace, ids, &ids_access, &id));
    if (trace->exprs[id].type != TERN_U32)
        TERN_TRACE_TRY(tern_trace_alu(trace, TERN_TAPE_BITCAST, TERN_U32, id, NONE, NONE, &id));
    TERN_TRACE_TRY(tern_trace_const(trace, TERN_U32, (uint32_t)(table->shape[0] - 1), &last));
    TERN_TRACE_TRY(tern_trace_alu(trace, TERN_TAPE_MIN, TERN_U32, id, last, NONE, &id));
    return tern_trace_load(trace, table, &table_access, id, table->shape[1], out_expr);
}

static tern_trace_result trace_index_node(tern_trace *trace, const tern_tensor *x, const tern_access *access,
                                          uint32_t *out_expr)
{
    tern_affine at[TERN_MAX_RANK];
    const tern_access_result result =
        tern_access_coordinates(&trace->frame.space, x->rank, x->shape, access, at, &trace->split);
    if (result == TERN_ACCESS_SPLIT) return TERN_TRACE_SPLIT;
    if (result == TERN_ACCESS_NONE) return tern_trace_need(trace, x);
    return tern_trace_index(trace, &at[x->at.index.axis], out_expr);
}

/* 1 where all masks that `access` has beyond the first `known` hold, else 0. */
static tern_trace_result trace_masks(tern_trace *trace, const tern_access *access, uint32_t known, uint32_t *out_expr)
{
    uint32_t all = NONE;
    for (uint32_t m = known; m < access->mask_count; m++) {
        uint32_t value, size, inside;
        TERN_TRACE_TRY(tern_trace_index(trace, &access->mask[m].value, &value)); /* below 0 wraps to a huge u32 */
        TERN_TRACE_TRY(tern_trace_const(trace, TERN_U32, (uint32_t)access->mask[m].size, &size));
        TERN_TRACE_TRY(tern_trace_alu(trace, TERN_TAPE_LESS, TERN_U32, value, size, NONE, &inside));
        if (all == NONE)
            all = inside;
        else
            TERN_TRACE_TRY(tern_trace_alu(trace, TERN_TAPE_AND, TERN_U32, all, inside, NONE, &all));
    }
    *out_expr = all;
    return TERN_TRACE_OK;
}

static tern_trace_result trace_view(tern_trace *trace, const tern_tensor *x, const tern_access *access,
                                    uint32_t *out_expr)
{
    tern_access through;
    const tern_access_result result = tern_access_through(&trace->frame.space, x, access, &through, &trace->split);
    if (result == TERN_ACCESS_SPLIT) return TERN_TRACE_SPLIT;
    if (result == TERN_ACCESS_NONE) return trace->contraction ? TERN_TRACE_REJECT : tern_trace_need(trace, x);
    if (result == TERN_ACCESS_ZERO) return tern_trace_const(trace, tern_register_type(x->dtype), 0, out_expr);

    uint32_t value, inside, zero;
    TERN_TRACE_TRY(tern_trace_node(trace, x->in[0], &through, &value));
    if (through.mask_count == access->mask_count || trace->exprs[value].op == TERN_TAPE_LOAD) {
        *out_expr = value; /* a masked load is 0 outside by itself */
        return TERN_TRACE_OK;
    }
    const uint8_t type = tern_register_type(x->dtype);
    TERN_TRACE_TRY(trace_masks(trace, &through, access->mask_count, &inside));
    TERN_TRACE_TRY(tern_trace_const(trace, type, 0, &zero));
    return tern_trace_alu(trace, TERN_TAPE_WHERE, type, inside, value, zero, out_expr);
}

/* The access of x's operand when its kept axes follow `access` and its reduced axes run over the inner dims. */
static tern_trace_result reduced_access(tern_trace *trace, const tern_tensor *x, const tern_access *access,
                                        tern_access *out_access)
{
    const tern_space *space = &trace->frame.space;
    const tern_tensor *input = x->in[0];
    int64_t sizes[TERN_MAX_RANK], total = 1;
    for (int32_t i = 0; i < x->rank; i++) {
        sizes[i] = x->at.reduce.axes >> i & 1u ? input->shape[i] : 1;
        total *= sizes[i];
    }
    if (total != tern_space_count(space, space->outer_count, space->dim_count) || access->mask_count > 0)
        return tern_trace_need(trace, x);
    for (uint32_t d = space->outer_count; d < space->dim_count; d++)
        if (access->element.coef[d] != 0) return tern_trace_need(trace, x);

    tern_affine kept[TERN_MAX_RANK], reduced[TERN_MAX_RANK];
    tern_access inner;
    tern_access_part(space, space->outer_count, space->dim_count - space->outer_count, &inner);
    tern_access_result result = tern_access_coordinates(space, x->rank, x->shape, access, kept, &trace->split);
    if (result == TERN_ACCESS_OK)
        result = tern_access_coordinates(space, x->rank, sizes, &inner, reduced, &trace->split);
    if (result == TERN_ACCESS_SPLIT) return TERN_TRACE_SPLIT;
    if (result == TERN_ACCESS_NONE) return tern_trace_need(trace, x);
    for (int32_t i = 0; i < x->rank; i++)
        if (x->at.reduce.axes >> i & 1u) kept[i] = reduced[i];
    memset(out_access, 0, sizeof *out_access);
    tern_access_linear(input->rank, input->shape, kept, &out_access->element);
    return TERN_TRACE_OK;
}

static tern_trace_result trace_reduce(tern_trace *trace, const tern_tensor *x, const tern_access *access,
                                      uint32_t *out_expr)
{
    if (trace->contraction) return tern_trace_need(trace, x);
    tern_access operand_access;
    TERN_TRACE_TRY(reduced_access(trace, x, access, &operand_access));
    uint32_t operand;
    TERN_TRACE_TRY(tern_trace_node(trace, x->in[0], &operand_access, &operand));
    const bool sum = x->op == TERN_OP_SUM;
    if (!trace->exprs[operand].body) { /* the same value at every inner index */
        if (!sum) {
            *out_expr = operand;
            return TERN_TRACE_OK;
        }
        const float times =
            (float)tern_space_count(&trace->frame.space, trace->frame.space.outer_count, trace->frame.space.dim_count);
        uint32_t bits, count;
        memcpy(&bits, &times, sizeof bits);
        TERN_TRACE_TRY(tern_trace_const(trace, TERN_F32, bits, &count));
        return tern_trace_alu(trace, TERN_TAPE_MUL, TERN_F32, operand, count, NONE, out_expr);
    }
    return tern_trace_alu(trace, sum ? TERN_TAPE_REDUCE_SUM : TERN_TAPE_REDUCE_MAX, TERN_F32, operand, NONE, NONE,
                          out_expr);
}

static tern_trace_result trace_contraction(tern_trace *trace, const tern_tensor *x, const tern_access *access,
                                           uint32_t *out_expr)
{
    if (trace->contraction != x) return tern_trace_need(trace, x);
    const tern_access identity = {.element = trace->frame.full};
    if (!tern_access_equal(access, &identity)) return tern_trace_need(trace, x);
    const tern_expr acc = {
        .op = TERN_TAPE_ACC, .type = TERN_F32, .from = TERN_F32, .in = {NONE, NONE, NONE, NONE}, .place = NONE};
    return tern_trace_expr(trace, acc, out_expr);
}

tern_trace_result tern_trace_define(tern_trace *trace, const tern_tensor *x, const tern_access *access,
                                    uint32_t *out_expr)
{
    const bool root = tern_trace_is_root(trace, x);
    switch (tern_ops[x->op].kind) {
    case TERN_KIND_LEAF:
        if (x->op == TERN_OP_CONSTANT)
            return tern_trace_const(trace, tern_register_type(x->dtype), x->at.constant.bits, out_expr);
        if (x->op == TERN_OP_INDEX && (root || !trace->stored[x->id]))
            return trace_index_node(trace, x, access, out_expr);
        return tern_trace_load(trace, x, access, NONE, 0, out_expr);
    case TERN_KIND_EFFECT:
        if (root) return tern_trace_node(trace, x->in[1], access, out_expr);
        return tern_trace_load(trace, x, access, NONE, 0, out_expr);
    default: break;
    }
    if (trace->stored[x->id] && !root) return tern_trace_load(trace, x, access, NONE, 0, out_expr);
    switch (tern_ops[x->op].kind) {
    case TERN_KIND_VIEW:
        return x->op == TERN_OP_SECOND ? tern_trace_need(trace, x) : trace_view(trace, x, access, out_expr);
    case TERN_KIND_REDUCE:
        return x->op == TERN_OP_COLUMN_SUMS ? TERN_TRACE_REJECT : trace_reduce(trace, x, access, out_expr);
    case TERN_KIND_CONTRACTION: return trace_contraction(trace, x, access, out_expr);
    default: break;
    }
    if (x->op == TERN_OP_RANDOM) return trace_random(trace, x, access, out_expr);
    if (x->op == TERN_OP_GATHER) return trace_gather(trace, x, access, out_expr);
    return trace_map(trace, x, access, out_expr);
}
