/* SPDX-License-Identifier: Apache-2.0 */
/* nest_code.c - a tape's instructions turned into vector loops: what runs once per row, what per block, and where
 * values live.
 *
 *   constant   in the value's own element, from the start            row    head, or a body value that no inner index
 * touches block      the rest; `vector` if it differs between lanes, else one element per block
 *
 * Vectors live in slots that are reused as soon as their value is dead; a value that is only stored lives in the tensor
 * itself (BIND). Invariant: a loop's destination is one of its operands' slots or none of them. */
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/nest.h"
#include "core/base/dtype.h"

enum { STAGE_CONSTANT = 0, STAGE_ROW, STAGE_BLOCK };

typedef struct code {
    tern_cpu_nest *nest;
    const tern_tape *tape;
    const tern_cpu_range *ranges;
    uint8_t *stage;
    bool *vector;
    uint16_t *same;                     /* the value whose bits this one shares; itself unless a cast keeps bits */
    uint16_t *last_use;                 /* in the phase's block list, as a tape position */
    uint16_t *bound_to;                 /* the STORE that a value is made in, or NONE */
    uint16_t *free_slots, *block_slots; /* block_slots: every slot that some phase's block has used */
    uint32_t free_count, block_count;
    bool in_block;
} code;

static int type_index(uint32_t type)
{
    return type == TERN_F32 ? TERN_TYPE_F32 : type == TERN_I32 ? TERN_TYPE_I32 : TERN_TYPE_U32;
}
static bool makes_value(const tern_tape_insn *insn)
{
    return insn->op != TERN_TAPE_STORE && insn->op != TERN_TAPE_COLUMN;
}
static bool is_reduction(const tern_tape_insn *insn)
{
    return insn->op == TERN_TAPE_REDUCE_SUM || insn->op == TERN_TAPE_REDUCE_MAX;
}

/* Operand slots used by the op; LOAD's only one may be NONE. */
static uint32_t operand_count(const tern_tape_insn *insn)
{
#define TAPE(name, operands, meaning) operands,
    static const uint8_t counts[TERN_TAPE_OP_COUNT] = {TERN_TAPE_OPS(TAPE)};
#undef TAPE
    if (insn->op == TERN_TAPE_LOAD && insn->in[0] == TERN_TAPE_NONE) return 0;
    return counts[insn->op];
}

static bool depends_on(const tern_cpu_access *access, uint32_t d)
{
    bool depends = access->stride[d] != 0;
    for (uint32_t i = 0; i < access->mask_count; i++) depends = depends || access->mask[i].coef[d] != 0;
    return depends;
}

static void classify(code *c, uint32_t i)
{
    const tern_cpu_nest *nest = c->nest;
    const tern_tape_insn *insn = &c->tape->insn[i];
    uint8_t stage = insn->op == TERN_TAPE_CONST ? STAGE_CONSTANT : STAGE_ROW;
    bool vector = false;
    for (uint32_t k = 0; k < operand_count(insn); k++) {
        const uint16_t in = c->same[insn->in[k]];
        if (c->stage[in] > stage) stage = c->stage[in];
        vector = vector || c->vector[in];
    }
    if (insn->op == TERN_TAPE_LOAD || insn->op == TERN_TAPE_INDEX) {
        const tern_cpu_access *access = &nest->access[insn->access];
        for (uint32_t d = nest->outer_count; d < nest->dim_count; d++) {
            if (!depends_on(access, d)) continue;
            stage = STAGE_BLOCK;
            vector = vector || nest->flat;
        }
        vector = vector || depends_on(access, nest->lane);
    }
    if (insn->op == TERN_TAPE_ACC) stage = STAGE_BLOCK, vector = true;
    if (!makes_value(insn)) stage = insn->body ? STAGE_BLOCK : STAGE_ROW;
    if (is_reduction(insn))
        stage = STAGE_ROW, vector = nest->rows; /* its value; the instruction itself runs per block */
    c->stage[i] = stage;
    c->vector[i] = vector && (stage != STAGE_ROW || nest->rows);
    const bool keeps_bits =
        insn->op == TERN_TAPE_BITCAST ||
        (insn->op == TERN_TAPE_CAST && !nest->isa->cast[type_index(insn->from)][type_index(insn->type)]);
    c->same[i] = keeps_bits ? c->same[insn->in[0]] : (uint16_t)i;
}

static bool runs_per_block(const code *c, uint32_t i)
{
    return c->stage[i] == STAGE_BLOCK || is_reduction(&c->tape->insn[i]);
}

/* ------------------------------------------------------------------ accesses */

/* A move between these is a copy of words. */
static bool is_word_move(uint32_t dtype, uint32_t type)
{
    return tern_dtype((int32_t)dtype)->bytes == 4 && (dtype == TERN_F32) == (type == TERN_F32);
}

/* Do the lanes of a block lie one after the other, unmasked along the way? */
static bool is_contiguous(const tern_cpu_nest *nest, const tern_cpu_access *access)
{
    if (!nest->flat) {
        for (uint32_t i = 0; i < access->mask_count; i++)
            if (access->mask[i].coef[nest->lane] != 0) return false;
        return access->stride[nest->lane] == 1;
    }
    for (uint32_t d = nest->outer_count; d < nest->dim_count; d++)
        if (access->stride[d] != (int64_t)nest->inner_stride[d]) return false;
    return access->mask_count == 0;
}

static bool overlap(const tern_cpu_range *a, const tern_cpu_range *b)
{
    const char *pa = a->data, *pb = b->data;
    return pa < pb + b->bytes && pb < pa + a->bytes;
}

/* May value v be made in the tensor of the STORE at position `store`? Not if someone still reads or writes that memory
 * between. */
static bool may_bind(const code *c, uint32_t v, uint32_t store)
{
    const tern_tape_insn *insn = c->tape->insn;
    const tern_cpu_nest *nest = c->nest;
    const tern_cpu_access *access = &nest->access[insn[store].access];
    if (!c->vector[v] || c->bound_to[v] != TERN_TAPE_NONE || insn[v].phase != insn[store].phase) return false;
    if (runs_per_block(c, v) != runs_per_block(c, store) || is_reduction(&insn[v])) return false;
    if (insn[v].op == TERN_TAPE_LOAD || insn[v].op == TERN_TAPE_ACC || insn[v].op == TERN_TAPE_INDEX) return false;
    if (!is_contiguous(nest, access) || !is_word_move(access->dtype, insn[v].type)) return false;
    const tern_cpu_range *target = &c->ranges[access->tensor];
    for (uint32_t i = 0; i < c->tape->insn_count; i++) {
        const bool reads = insn[i].op == TERN_TAPE_LOAD, writes = !makes_value(&insn[i]);
        if (i == store || (!reads && !writes) || insn[i].phase != insn[store].phase) continue;
        if (!overlap(target, &c->ranges[nest->access[insn[i].access].tensor])) continue;
        if (writes || i > v || c->last_use[i] > v) return false;
    }
    return true;
}

/* --------------------------------------------------------------------- slots */

static uint16_t take_slot(code *c)
{
    if (c->in_block && c->free_count > 0) return c->free_slots[--c->free_count];
    const uint16_t slot = (uint16_t)c->nest->slot_count++;
    if (c->in_block) c->block_slots[c->block_count++] = slot;
    return slot; /* outside, a row's vector keeps its slot to the end */
}

static void free_dead_operands(code *c, uint32_t i)
{
    const tern_tape_insn *insn = &c->tape->insn[i];
    for (uint32_t k = 0; k < operand_count(insn); k++) {
        const uint16_t in = c->same[insn->in[k]];
        bool again = false;
        for (uint32_t j = 0; j < k; j++) again = again || c->same[insn->in[j]] == in;
        const bool owns = c->stage[in] == STAGE_BLOCK && c->nest->slot[in] != TERN_TAPE_NONE;
        if (owns && !again && c->last_use[in] == i) c->free_slots[c->free_count++] = c->nest->slot[in];
    }
}

/* ------------------------------------------------------------------ emission */

static tern_cpu_insn *emit(code *c, uint32_t i, tern_cpu_action action)
{
    tern_cpu_insn *out = &c->nest->insn[c->nest->insn_count++];
    const tern_tape_insn *insn = &c->tape->insn[i];
    *out = (tern_cpu_insn){
        .action = (uint8_t)action, .vector = c->vector[i], .d = (uint16_t)i, .access = insn->access, .imm = insn->imm};
    for (uint32_t k = 0; k < 4; k++) out->in[k] = TERN_TAPE_NONE;
    for (uint32_t k = 0; k < operand_count(insn); k++) {
        out->in[k] = c->same[insn->in[k]];
        if (!c->vector[out->in[k]]) out->scalars |= 1u << k;
    }
    return out;
}

/* A loaded value that is the tensor's memory itself must not be read after someone stored there. */
static bool is_overwritten(const code *c, uint32_t load)
{
    const tern_tape_insn *insn = c->tape->insn;
    const tern_cpu_range *source = &c->ranges[c->nest->access[insn[load].access].tensor];
    for (uint32_t i = load + 1; i < c->last_use[load]; i++)
        if (!makes_value(&insn[i]) && overlap(source, &c->ranges[c->nest->access[insn[i].access].tensor])) return true;
    return false;
}

static tern_status emit_load(code *c, uint32_t i)
{
    const tern_tape_insn *insn = &c->tape->insn[i];
    tern_cpu_access *access = &c->nest->access[insn->access];
    const bool gathers = insn->in[0] != TERN_TAPE_NONE && c->vector[c->same[insn->in[0]]];
    const tern_cpu_move move = tern_cpu_move_load(c->nest->isa, access->dtype, insn->type);
    if (!move)
        return tern_error(TERN_ERROR_UNSUPPORTED, "the cpu backend cannot load %s as type %u",
                          tern_dtype((int32_t)access->dtype)->name, insn->type);
    const bool points = c->vector[i] && !gathers && is_word_move(access->dtype, insn->type) &&
                        is_contiguous(c->nest, access) && !is_overwritten(c, i);
    emit(c, i, !c->vector[i] ? TERN_DO_ONE : points ? TERN_DO_POINT : TERN_DO_COPY)->move = move;
    if (c->vector[i] && !points) c->nest->slot[i] = take_slot(c);
    return TERN_OK;
}

static tern_status emit_store(code *c, uint32_t i)
{
    const tern_tape_insn *insn = &c->tape->insn[i];
    const uint16_t v = c->same[insn->in[0]];
    if (insn->op == TERN_TAPE_COLUMN) {
        emit(c, i, TERN_DO_COLUMN)->loop =
            c->nest->isa->loop[TERN_TAPE_ADD][TERN_TYPE_F32][c->vector[v] ? TERN_FORM_VV : TERN_FORM_VS];
        return TERN_OK;
    }
    if (c->bound_to[v] == i) return TERN_OK;
    const uint32_t dtype = c->nest->access[insn->access].dtype, type = c->tape->insn[insn->in[0]].type;
    const tern_cpu_move move = tern_cpu_move_store(c->nest->isa, type, dtype);
    if (!move)
        return tern_error(TERN_ERROR_UNSUPPORTED, "the cpu backend cannot store type %u as %s", type,
                          tern_dtype((int32_t)dtype)->name);
    tern_cpu_insn *out = emit(c, i, TERN_DO_STORE);
    out->move = move;
    out->vector = runs_per_block(c, i) || c->nest->rows; /* how many elements are written */
    return TERN_OK;
}

static tern_status emit_arithmetic(code *c, uint32_t i)
{
    const tern_tape_insn *insn = &c->tape->insn[i];
    const bool compares = insn->op == TERN_TAPE_LESS || insn->op == TERN_TAPE_EQUAL;
    const int type = type_index(compares ? insn->from : insn->type);
    const uint32_t store = c->bound_to[i];
    if (store != TERN_TAPE_NONE) {
        tern_cpu_insn *bind = emit(c, store, TERN_DO_BIND);
        bind->d = (uint16_t)i;
    } else if (c->vector[i]) {
        c->nest->slot[i] = take_slot(c);
    }
    tern_cpu_insn *out = emit(c, i, insn->op == TERN_TAPE_PHILOX ? TERN_DO_PHILOX : TERN_DO_LOOP);
    if (insn->op == TERN_TAPE_PHILOX) {
        out->imm = c->nest->words[insn->imm];
        return TERN_OK;
    }
    int form = TERN_FORM_VV;
    if (operand_count(insn) == 2 && c->vector[i])
        form = out->scalars == 1 ? TERN_FORM_SV : out->scalars == 2 ? TERN_FORM_VS : TERN_FORM_VV;
    const tern_cpu_isa *isa = c->nest->isa;
    if (insn->op == TERN_TAPE_CAST)
        out->loop = isa->cast[type_index(insn->from)][type];
    else if (insn->op == TERN_TAPE_ROUND)
        out->loop = insn->imm == TERN_F16 ? isa->round_f16 : isa->round_bf16;
    else
        out->loop = isa->loop[insn->op][type][form];
    if (!out->loop)
        return tern_error(TERN_ERROR_UNSUPPORTED, "the cpu backend has no loop for tape op %u on type %u", insn->op,
                          insn->type);
    return TERN_OK;
}

static void emit_reduction(code *c, uint32_t i)
{
    const tern_tape_insn *insn = &c->tape->insn[i];
    tern_cpu_nest *nest = c->nest;
    const bool is_max = insn->op == TERN_TAPE_REDUCE_MAX;
    tern_cpu_insn *out = emit(c, i, is_max ? TERN_DO_MAX : TERN_DO_SUM);
    out->reduce = (uint16_t)nest->reduce_count;
    nest->reduce_value[nest->reduce_count] = (uint16_t)i;
    nest->reduce_max[nest->reduce_count++] = is_max;
    if (!nest->rows) return;
    out->loop =
        nest->isa
            ->loop[is_max ? TERN_TAPE_MAX : TERN_TAPE_ADD][TERN_TYPE_F32][out->scalars ? TERN_FORM_VS : TERN_FORM_VV];
    nest->slot[i] = (uint16_t)nest->slot_count++; /* the running value, */
    nest->slot_count++;                           /* and for sums the total of what was folded: see tape_run.c */
}

static tern_status emit_one(code *c, uint32_t i)
{
    const tern_tape_insn *insn = &c->tape->insn[i];
    const bool block = runs_per_block(c, i);
    if (c->same[i] != i || insn->op == TERN_TAPE_CONST) return TERN_OK;
    /* A copy may clear its slot before it reads its indices, so they must not share one. */
    const bool early = block && insn->op != TERN_TAPE_LOAD;
    if (early) free_dead_operands(c, i);
    tern_status status = TERN_OK;
    switch (insn->op) {
    case TERN_TAPE_LOAD: status = emit_load(c, i); break;
    case TERN_TAPE_INDEX:
        emit(c, i, TERN_DO_INDEX);
        if (c->vector[i]) c->nest->slot[i] = take_slot(c);
        break;
    case TERN_TAPE_ACC: emit(c, i, TERN_DO_ACC); break;
    case TERN_TAPE_STORE:
    case TERN_TAPE_COLUMN: status = emit_store(c, i); break;
    case TERN_TAPE_REDUCE_SUM:
    case TERN_TAPE_REDUCE_MAX: emit_reduction(c, i); break;
    default: status = emit_arithmetic(c, i); break;
    }
    if (block && !early) free_dead_operands(c, i);
    /* A value nobody reads gives its slot back at once. */
    if (block && makes_value(insn) && c->nest->slot[i] != TERN_TAPE_NONE && c->stage[i] == STAGE_BLOCK &&
        c->last_use[i] == 0)
        c->free_slots[c->free_count++] = c->nest->slot[i];
    return status;
}

static tern_status emit_phase(code *c, uint32_t p)
{
    const tern_tape *tape = c->tape;
    tern_cpu_phase *phase = &c->nest->phase[p];
    tern_status status = TERN_OK;
    phase->head = c->nest->insn_count;
    c->in_block = false;
    for (uint32_t i = 0; i < tape->insn_count; i++)
        if (tape->insn[i].phase == p && !runs_per_block(c, i)) TERN_TRY(emit_one(c, i));
    phase->head_end = phase->body = c->nest->insn_count;
    phase->reduce = c->nest->reduce_count;
    c->in_block = true;
    c->free_count = c->block_count; /* an earlier phase's blocks are over */
    if (c->block_count) memcpy(c->free_slots, c->block_slots, c->block_count * sizeof *c->free_slots);
    for (uint32_t i = 0; i < tape->insn_count; i++)
        if (tape->insn[i].phase == p && runs_per_block(c, i)) TERN_TRY(emit_one(c, i));
    phase->body_end = c->nest->insn_count;
    phase->reduce_end = c->nest->reduce_count;
fail:
    return status;
}

static tern_status analyse(code *c)
{
    const tern_tape *tape = c->tape;
    for (uint32_t a = 0; a < tape->access_count; a++) {
        tern_cpu_access *access = &c->nest->access[a];
        if (access->tensor >= tape->tensor_count) continue; /* INDEX names none */
        access->dtype = tape->tensors[access->tensor].dtype;
        if (!tern_dtype((int32_t)access->dtype))
            return tern_error(TERN_ERROR_INTERNAL, "a kernel's tensor has dtype %u", access->dtype);
        access->bytes = tern_dtype((int32_t)access->dtype)->bytes;
    }
    for (uint32_t i = 0; i < tape->insn_count; i++) {
        c->bound_to[i] = TERN_TAPE_NONE;
        classify(c, i);
        for (uint32_t k = 0; k < operand_count(&tape->insn[i]); k++)
            c->last_use[c->same[tape->insn[i].in[k]]] = (uint16_t)i;
        if (tape->insn[i].op == TERN_TAPE_CONST) c->nest->constant[i] = tape->insn[i].imm;
    }
    for (uint32_t i = 0; i < tape->insn_count; i++) {
        const uint16_t v = tape->insn[i].op == TERN_TAPE_STORE ? c->same[tape->insn[i].in[0]] : (uint16_t)i;
        if (tape->insn[i].op == TERN_TAPE_STORE && may_bind(c, v, i)) c->bound_to[v] = (uint16_t)i;
    }
    return TERN_OK;
}

tern_status tern_cpu_nest_compile(tern_cpu_nest *nest, const tern_tape *tape, const tern_cpu_range *ranges)
{
    const size_t n = (size_t)tape->insn_count + 1;
    tern_status status = TERN_OK;
    code c = {.nest = nest, .tape = tape, .ranges = ranges};
    c.stage = calloc(n, sizeof *c.stage), c.vector = calloc(n, sizeof *c.vector), c.same = calloc(n, sizeof *c.same);
    c.last_use = calloc(n, sizeof *c.last_use), c.bound_to = calloc(n, sizeof *c.bound_to),
    c.free_slots = calloc(n, sizeof *c.free_slots);
    c.block_slots = calloc(n, sizeof *c.block_slots);
    nest->insn = calloc(2 * n, sizeof *nest->insn), nest->slot = malloc(n * sizeof *nest->slot),
    nest->constant = calloc(n, sizeof *nest->constant);
    nest->reduce_value = calloc(n, sizeof *nest->reduce_value), nest->reduce_max = calloc(n, sizeof *nest->reduce_max);
    if (!c.stage || !c.vector || !c.same || !c.last_use || !c.bound_to || !c.free_slots || !c.block_slots ||
        !nest->insn || !nest->slot || !nest->constant || !nest->reduce_value || !nest->reduce_max) {
        status = tern_error_memory("a kernel's instructions", n * sizeof *nest->insn);
        goto fail;
    }
    nest->value_count = tape->insn_count;
    nest->phase_count = tape->phase_count;
    for (size_t i = 0; i < n; i++) nest->slot[i] = TERN_TAPE_NONE;
    TERN_TRY(analyse(&c));
    for (uint32_t p = 0; p < tape->phase_count; p++) TERN_TRY(emit_phase(&c, p));
fail:
    free(c.stage);
    free(c.vector);
    free(c.same);
    free(c.last_use);
    free(c.bound_to);
    free(c.free_slots);
    free(c.block_slots);
    return status;
}
