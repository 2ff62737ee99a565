/* SPDX-License-Identifier: Apache-2.0 */
/* tape_print.c - a tape as text for people: tests, bug reports, `TERN_LOG_DEBUG`.
 *
 * One line per instruction, e.g.  "  v7 = f32 mul v5 v6". Nothing reads it back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/kernel/lowered.h"
#include "core/kernel/render_text.h"

static const char *dtype_name(uint8_t dtype)
{
    const tern_dtype_info *info = tern_dtype(dtype);
    return info != NULL ? info->name : "?";
}

static void print_op_name(tern_text *text, uint16_t op)
{
    char name[32];
    snprintf(name, sizeof name, "%s", tern_tape_op_name((tern_tape_op)op));
    for (char *c = name; *c != 0; c++)
        if (*c >= 'A' && *c <= 'Z') *c = (char)(*c - 'A' + 'a');
    tern_text_add(text, "%s", name);
}

static void print_stride(tern_text *text, tern_tape_stride stride)
{
    tern_text_add(text, "%d", stride.coef);
    for (uint32_t d = 0; d < TERN_TAPE_DIMS; d++)
        if (stride.dims >> d & 1u) tern_text_add(text, "*d%u", d);
}

static void print_access(tern_text *text, const tern_tape_access *access, bool tensor)
{
    if (tensor) tern_text_add(text, " t%u", access->tensor);
    tern_text_add(text, "[%d", access->offset);
    for (uint32_t d = 0; d < TERN_TAPE_DIMS; d++) {
        if (access->stride[d].coef == 0) continue;
        tern_text_add(text, " + i%u*", d);
        print_stride(text, access->stride[d]);
    }
    tern_text_add(text, "]");
    for (uint32_t i = 0; i < access->mask_count && i < TERN_TAPE_MASKS; i++) {
        const tern_tape_mask *mask = &access->mask[i];
        tern_text_add(text, " if %d <= %d", mask->lo, mask->offset);
        for (uint32_t d = 0; d < TERN_TAPE_DIMS; d++)
            if (mask->coef[d] != 0) tern_text_add(text, " + %d*i%u", mask->coef[d], d);
        tern_text_add(text, " < %d", mask->hi);
    }
}

static void print_insn(tern_text *text, const tern_tape *tape, uint32_t i)
{
    const tern_tape_insn *insn = &tape->insn[i];
    bool has_value = insn->op != TERN_TAPE_STORE && insn->op != TERN_TAPE_COLUMN;
    if (has_value)
        tern_text_add(text, "  v%u = %s ", i, dtype_name(insn->type));
    else
        tern_text_add(text, "  ");
    print_op_name(text, insn->op);
    if (insn->op == TERN_TAPE_LESS || insn->op == TERN_TAPE_EQUAL || insn->op == TERN_TAPE_CAST ||
        insn->op == TERN_TAPE_BITCAST)
        tern_text_add(text, " from %s", dtype_name(insn->from));
    if (insn->op == TERN_TAPE_CONST) {
        float value;
        memcpy(&value, &insn->imm, sizeof value);
        if (insn->type == TERN_F32)
            tern_text_add(text, " %.9g", (double)value);
        else
            tern_text_add(text, " %u", insn->imm);
    }
    if (insn->op == TERN_TAPE_ROUND) tern_text_add(text, " to %s", dtype_name((uint8_t)insn->imm));
    if (insn->op == TERN_TAPE_PHILOX) tern_text_add(text, " label word %u", insn->imm);
    for (uint32_t k = 0; k < tern_tape_operands((tern_tape_op)insn->op); k++)
        if (insn->in[k] != TERN_TAPE_NONE) tern_text_add(text, " v%u", insn->in[k]);
    bool accesses = insn->op == TERN_TAPE_LOAD || !has_value || insn->op == TERN_TAPE_INDEX;
    if (accesses && insn->access < tape->access_count) {
        const tern_tape_access *access = &tape->access[insn->access];
        print_access(text, access, insn->op != TERN_TAPE_INDEX);
        if (insn->op == TERN_TAPE_LOAD && insn->in[0] != TERN_TAPE_NONE) {
            tern_text_add(text, " indirect *");
            print_stride(text, access->indirect);
        }
    }
    tern_text_add(text, "\n");
}

char *tern_tape_print(const tern_tape *tape)
{
    tern_text text = {0};
    tern_text_add(&text, "tape: %u outer + %u inner dims, %u phases", tape->outer_count,
                  tape->dim_count - tape->outer_count, tape->phase_count);
    if (tape->chunk_rows != 0) tern_text_add(&text, ", chunks of %u rows", tape->chunk_rows);
    tern_text_add(&text, "\n");
    for (uint32_t i = 0; i < tape->tensor_count; i++)
        tern_text_add(&text, "  t%u %s%s%s\n", i, dtype_name(tape->tensors[i].dtype),
                      tape->tensors[i].mode & TERN_ACCESS_READ ? " read" : "",
                      tape->tensors[i].mode & TERN_ACCESS_WRITE ? " write" : "");
    for (uint32_t i = 0; i < tape->insn_count; i++) {
        const tern_tape_insn *insn = &tape->insn[i];
        if (i == 0 || insn->phase != insn[-1].phase || insn->body != insn[-1].body)
            tern_text_add(&text, " phase %u %s\n", insn->phase, insn->body ? "body" : "head");
        print_insn(&text, tape, i);
    }
    if (!text.failed) return text.data;
    free(text.data);
    return NULL;
}
