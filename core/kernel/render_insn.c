/* SPDX-License-Identifier: Apache-2.0 */
/* render_insn.c - prints one instruction of a tape as statements of the kernel language; value i becomes the local
 * v<i>.
 *
 * What it is not: COLUMN stores and reductions, whose place depends on the strategy, are render_tape.c's. */
#include <string.h>

#include "core/base/dtype.h"
#include "core/kernel/render_tape.h"

void tern_print_start(const tern_printer *p) { tern_text_add(p->text, "%*s", (int)(4 * p->depth), ""); }

static const char *type_name(uint8_t type) { return type == TERN_F32 ? "REAL" : type == TERN_I32 ? "int" : "uint"; }

static const char *conversion(uint8_t type) { return type == TERN_F32 ? "F32" : type == TERN_I32 ? "I32" : "U32"; }

/* From a register type; u32 to f32 is math.k's, since a driver may round it twice. */
static const char *conversion_from(uint8_t type, uint8_t from)
{
    return type == TERN_F32 && from == TERN_U32 ? "u32_to_f32" : conversion(type);
}

/* The register type that LOAD<n> gives for a stored dtype. */
static uint8_t loaded_type(uint8_t dtype)
{
    if (dtype == TERN_F32 || dtype == TERN_F16 || dtype == TERN_BF16) return TERN_F32;
    return dtype == TERN_I32 ? TERN_I32 : TERN_U32;
}

/* {form for f32, form for i32 and u32}; $0..$3 are the operands, $t the conversion to T, $f the same from type `from`.
 * i32 is added as u32: C's signed overflow is undefined, the tape's is not. NULL: tern_tape_check refuses it, or
 * print_insn has its own code. */
static const char *const forms[TERN_TAPE_OP_COUNT][2] = {
    [TERN_TAPE_NEG] = {"-$0", "$t(0u - U32($0))"},
    [TERN_TAPE_ABS] = {"ABS($0)", "$t(I32($0) < 0 ? 0u - U32($0) : U32($0))"},
    [TERN_TAPE_EXP] = {"exp_f32($0)", NULL},
    [TERN_TAPE_LOG] = {"log_f32($0)", NULL},
    [TERN_TAPE_SQRT] = {"SQRT($0)", NULL},
    [TERN_TAPE_RSQRT] = {"RSQRT($0)", NULL},
    [TERN_TAPE_RECIP] = {"1.0f / $0", NULL},
    [TERN_TAPE_TANH] = {"tanh_f32($0)", NULL},
    [TERN_TAPE_ERF] = {"erf_f32($0)", NULL},
    [TERN_TAPE_SIN] = {"sin_f32($0)", NULL},
    [TERN_TAPE_COS] = {"cos_f32($0)", NULL},
    [TERN_TAPE_FLOOR] = {"FLOOR($0)", NULL},
    [TERN_TAPE_ADD] = {"$0 + $1", "$t(U32($0) + U32($1))"},
    [TERN_TAPE_SUB] = {"$0 - $1", "$t(U32($0) - U32($1))"},
    [TERN_TAPE_MUL] = {"$0 * $1", "$t(U32($0) * U32($1))"},
    [TERN_TAPE_DIV] = {"$0 / $1", NULL},
    [TERN_TAPE_MAX] = {"max_f32($0, $1)", "$0 > $1 ? $0 : $1"},
    [TERN_TAPE_MIN] = {"min_f32($0, $1)", "$0 < $1 ? $0 : $1"},
    [TERN_TAPE_LESS] = {NULL, "$0 < $1 ? 1u : 0u"},
    [TERN_TAPE_EQUAL] = {NULL, "$0 == $1 ? 1u : 0u"},
    [TERN_TAPE_WHERE] = {"$0 != 0u ? $1 : $2", "$0 != 0u ? $1 : $2"},
    [TERN_TAPE_AND] = {NULL, "$0 & $1"},
    [TERN_TAPE_OR] = {NULL, "$0 | $1"},
    [TERN_TAPE_XOR] = {NULL, "$0 ^ $1"},
    [TERN_TAPE_SHIFT_LEFT] = {NULL, "$0 << $1"},
    [TERN_TAPE_SHIFT_RIGHT] = {NULL, "$0 >> $1"},
    [TERN_TAPE_MULTIPLY_HIGH] = {NULL, "multiply_high($0, $1)"},
    [TERN_TAPE_CAST] = {"$f($0)", "$t($0)"},
};

static void add_form(const tern_printer *p, const tern_tape_insn *insn, const char *form)
{
    for (const char *c = form; *c != 0; c++) {
        if (*c != '$')
            tern_text_add(p->text, "%c", *c);
        else if (*++c == 't')
            tern_text_add(p->text, "%s", conversion(insn->type));
        else if (*c == 'f')
            tern_text_add(p->text, "%s", conversion_from(insn->type, insn->from));
        else
            tern_text_add(p->text, "v%u", insn->in[*c - '0']);
    }
}

static void add_bitcast(const tern_printer *p, const tern_tape_insn *insn)
{
    uint32_t v = insn->in[0];
    if (insn->type == insn->from)
        tern_text_add(p->text, "v%u", v);
    else if (insn->type == TERN_F32)
        tern_text_add(p->text, "AS_F32(U32(v%u))", v);
    else if (insn->from == TERN_F32)
        tern_text_add(p->text, "%s(AS_U32(v%u))", conversion(insn->type), v);
    else
        tern_text_add(p->text, "%s(v%u)", conversion(insn->type), v);
}

static void add_const(const tern_printer *p, const tern_tape_insn *insn)
{
    float value;
    memcpy(&value, &insn->imm, sizeof value);
    if (insn->type == TERN_F32)
        tern_text_add(p->text, "AS_F32(0x%08xu) /* %.9g */", insn->imm, (double)value);
    else
        tern_text_add(p->text, insn->type == TERN_I32 ? "I32(%uu)" : "%uu", insn->imm);
}

static void print_load(const tern_printer *p, uint32_t at)
{
    const tern_tape_insn *insn = &p->tape->insn[at];
    uint32_t tensor = p->tape->access[insn->access].tensor;
    const uint8_t dtype = p->tape->tensors[tensor].dtype;
    bool converts = loaded_type(dtype) != insn->type; /* u8 and u16 come as u32 below 65,536, exact in f32 */
    bool masked = tern_render_mask(p, at);
    if (masked) { /* outside the mask element 0 is read and dropped: no branch, and never out of range */
        tern_print_start(p);
        tern_text_add(p->text, "uint x%u = c%u ? ", at, at);
        tern_render_index(p, insn);
        tern_text_add(p->text, " : 0u;%s", p->line_end);
    }
    tern_print_start(p);
    tern_text_add(p->text, "%s v%u = ", type_name(insn->type), at);
    if (masked) tern_text_add(p->text, "c%u ? ", at);
    if (converts) tern_text_add(p->text, "%s(", conversion_from(insn->type, dtype == TERN_U32 ? TERN_U32 : TERN_I32));
    tern_text_add(p->text, "LOAD%u(", p->first_tensor + tensor);
    if (masked)
        tern_text_add(p->text, "x%u", at);
    else
        tern_render_index(p, insn);
    tern_text_add(p->text, converts ? "))" : ")");
    if (masked) tern_text_add(p->text, " : %s", insn->type == TERN_F32 ? "0.0f" : insn->type == TERN_I32 ? "0" : "0u");
    tern_text_add(p->text, ";%s", p->line_end);
}

void tern_render_store(const tern_printer *p, uint32_t at)
{
    const tern_tape_insn *insn = &p->tape->insn[at];
    uint32_t tensor = p->tape->access[insn->access].tensor, value = insn->in[0];
    uint8_t stored = loaded_type(p->tape->tensors[tensor].dtype);
    bool masked = tern_render_mask(p, at);
    tern_print_start(p);
    if (masked) tern_text_add(p->text, "if (c%u) { ", at);
    tern_text_add(p->text, "STORE%u(", p->first_tensor + tensor);
    tern_render_index(p, insn);
    if (stored == p->tape->insn[value].type)
        tern_text_add(p->text, ", v%u);", value);
    else
        tern_text_add(p->text, ", %s(v%u));", conversion_from(stored, p->tape->insn[value].type), value);
    tern_text_add(p->text, "%s%s", masked ? " }" : "", p->line_end);
}

/* Every op but STORE, COLUMN and the reductions, whose place depends on the strategy. */
void tern_render_value(const tern_printer *p, uint32_t at)
{
    const tern_tape_insn *insn = &p->tape->insn[at];
    if (insn->op == TERN_TAPE_LOAD) {
        print_load(p, at);
        return;
    }
    bool masked = insn->op == TERN_TAPE_INDEX && tern_render_mask(p, at);
    tern_print_start(p);
    tern_text_add(p->text, "%s v%u = ", type_name(insn->type), at);
    switch (insn->op) {
    case TERN_TAPE_CONST: add_const(p, insn); break;
    case TERN_TAPE_ACC: tern_text_add(p->text, "acc_"); break;
    case TERN_TAPE_BITCAST: add_bitcast(p, insn); break;
    case TERN_TAPE_INDEX:
        if (masked) tern_text_add(p->text, "!c%u ? 0u : ", at);
        tern_render_index(p, insn);
        break;
    case TERN_TAPE_ROUND:
        tern_text_add(p->text, "round_%s(v%u)", insn->imm == TERN_F16 ? "f16" : "bf16", insn->in[0]);
        break;
    case TERN_TAPE_PHILOX:
        tern_text_add(p->text, "philox(v%u, v%u, WORD%u, v%u, v%u)", insn->in[0], insn->in[1], insn->imm, insn->in[2],
                      insn->in[3]);
        break;
    default: add_form(p, insn, forms[insn->op][insn->type == TERN_F32 ? 0 : 1]); break;
    }
    tern_text_add(p->text, ";%s", p->line_end);
}
