/* SPDX-License-Identifier: Apache-2.0 */
/* render_access.c - prints loop indices, element indices and masks of a tape's accesses in the kernel language.
 *
 * Dims that every access walks as one (row-major neighbours) are merged into a *run*, so that only tapes which need an
 * index taken apart pay for divisions; an access that is row-major over the whole inner range uses the flat index j.
 * The index variable of a run is i<its last dim>. All arithmetic is u32 and wraps, as tape.h says. */
#include <stdio.h>

#include "core/kernel/render_tape.h"

bool tern_tape_uses_access(uint16_t op)
{
    return op == TERN_TAPE_LOAD || op == TERN_TAPE_STORE || op == TERN_TAPE_INDEX;
}

/* index[d] * outer + index[d + 1] * inner == (index[d] * dims[d + 1] + index[d + 1]) * inner? */
static bool strides_merge(tern_tape_stride outer, tern_tape_stride inner, uint32_t inner_dim)
{
    if (outer.coef == 0 && inner.coef == 0) return true;
    uint32_t bit = 1u << inner_dim;
    return outer.coef == inner.coef && (inner.dims & bit) == 0 && outer.dims == (inner.dims | bit);
}

static bool access_merges(const tern_tape_access *access, uint32_t d)
{
    if (!strides_merge(access->stride[d], access->stride[d + 1], d + 1)) return false;
    for (uint32_t i = 0; i < access->mask_count; i++)
        if (access->mask[i].coef[d] != 0 || access->mask[i].coef[d + 1] != 0) return false;
    return true;
}

static bool masks_see_inner(const tern_tape *tape, const tern_tape_access *access)
{
    for (uint32_t i = 0; i < access->mask_count; i++)
        for (uint32_t d = tape->outer_count; d < tape->dim_count; d++)
            if (access->mask[i].coef[d] != 0) return true;
    return false;
}

/* Row-major over the whole inner range, so that the flat index serves. */
static bool access_is_flat(const tern_tape *tape, const tern_tape_access *access)
{
    if (masks_see_inner(tape, access)) return false;
    for (uint32_t d = tape->outer_count; d + 1 < tape->dim_count; d++)
        if (!access_merges(access, d)) return false;
    return true;
}

uint32_t tern_tape_run_ends(const tern_tape *tape)
{
    uint32_t ends = 0;
    if (tape->dim_count > 0) ends |= 1u << (tape->dim_count - 1);
    if (tape->outer_count > 0) ends |= 1u << (tape->outer_count - 1);
    for (uint32_t i = 0; i < tape->insn_count; i++) {
        const tern_tape_insn *insn = &tape->insn[i];
        if (!tern_tape_uses_access(insn->op)) continue;
        const tern_tape_access *access = &tape->access[insn->access];
        bool flat = access_is_flat(tape, access);
        for (uint32_t d = 0; d + 1 < tape->dim_count; d++) {
            if (d >= tape->outer_count && flat) continue;
            if (!access_merges(access, d)) ends |= 1u << d;
        }
    }
    return ends;
}

bool tern_tape_needs_inner_indices(const tern_tape *tape, uint32_t phase)
{
    for (uint32_t i = 0; i < tape->insn_count; i++) {
        const tern_tape_insn *insn = &tape->insn[i];
        if (insn->phase == phase && insn->body && tern_tape_uses_access(insn->op) &&
            !access_is_flat(tape, &tape->access[insn->access]))
            return true;
    }
    return false;
}

void tern_render_extent(tern_text *text, uint32_t first, uint32_t end)
{
    if (first >= end) {
        tern_text_add(text, "1u");
        return;
    }
    tern_text_add(text, end - first > 1 ? "(" : "");
    for (uint32_t d = first; d < end; d++) tern_text_add(text, "%sWORD%u", d > first ? " * " : "", d);
    tern_text_add(text, end - first > 1 ? ")" : "");
}

void tern_render_indices(const tern_printer *p, const char *from, uint32_t first, uint32_t end)
{
    uint32_t run = first;
    for (uint32_t d = first; d < end; d++) {
        if ((p->run_ends >> d & 1u) == 0) continue;
        tern_print_start(p);
        tern_text_add(p->text, "uint i%u = %s", d, from);
        if (d + 1 < end) {
            tern_text_add(p->text, " / ");
            tern_render_extent(p->text, d + 1, end);
        }
        if (run > first) {
            tern_text_add(p->text, " %% ");
            tern_render_extent(p->text, run, d + 1);
        }
        tern_text_add(p->text, ";%s", p->line_end);
        run = d + 1;
    }
}

/* " + index * stride", or without " + " where it is the first term. */
static void add_term(tern_text *text, bool *first, const char *index, tern_tape_stride stride)
{
    tern_text_add(text, "%s%s", *first ? "" : " + ", index);
    *first = false;
    if (stride.coef != 1) tern_text_add(text, " * %uu", (uint32_t)stride.coef);
    for (uint32_t d = 0; d < TERN_TAPE_DIMS; d++)
        if (stride.dims >> d & 1u) tern_text_add(text, " * WORD%u", d);
}

static void add_terms(const tern_printer *p, const tern_tape_access *access, uint32_t from, uint32_t to, bool *first)
{
    for (uint32_t d = from; d < to; d++) {
        if ((p->run_ends >> d & 1u) == 0 || access->stride[d].coef == 0) continue;
        const char name[3] = {'i', (char)('0' + d), 0};
        add_term(p->text, first, name, access->stride[d]);
    }
}

static void add_outer_terms(const tern_printer *p, const tern_tape_access *access, bool *first)
{
    if (access->offset != 0) {
        tern_text_add(p->text, "%uu", (uint32_t)access->offset);
        *first = false;
    }
    add_terms(p, access, 0, p->tape->outer_count, first);
}

void tern_render_base(const tern_printer *p, uint32_t access)
{
    bool first = true;
    add_outer_terms(p, &p->tape->access[access], &first);
    tern_text_add(p->text, first ? "0u" : "");
}

void tern_render_index(const tern_printer *p, const tern_tape_insn *insn)
{
    const tern_tape *tape = p->tape;
    const tern_tape_access *access = &tape->access[insn->access];
    bool first = !(p->bases && insn->body);
    if (first)
        add_outer_terms(p, access, &first);
    else
        tern_text_add(p->text, "b%u", insn->access);
    if (insn->body && tape->dim_count > tape->outer_count) {
        if (p->flat_index && access_is_flat(tape, access)) {
            tern_tape_stride stride = access->stride[tape->dim_count - 1];
            if (stride.coef != 0) add_term(p->text, &first, "j", stride);
        } else
            add_terms(p, access, tape->outer_count, tape->dim_count, &first);
    }
    if (insn->op == TERN_TAPE_LOAD && insn->in[0] != TERN_TAPE_NONE && access->indirect.coef != 0) {
        char name[16];
        snprintf(name, sizeof name, "v%u", insn->in[0]);
        add_term(p->text, &first, name, access->indirect);
    }
    tern_text_add(p->text, first ? "0u" : "");
}

bool tern_render_mask(const tern_printer *p, uint32_t at)
{
    const tern_tape_access *access = &p->tape->access[p->tape->insn[at].access];
    if (access->mask_count == 0) return false;
    for (uint32_t i = 0; i < access->mask_count; i++) {
        tern_print_start(p);
        tern_text_add(p->text, "int m%u_%u = %d", at, i, access->mask[i].offset);
        for (uint32_t d = 0; d < p->tape->dim_count; d++)
            if (access->mask[i].coef[d] != 0) tern_text_add(p->text, " + (%d) * I32(i%u)", access->mask[i].coef[d], d);
        tern_text_add(p->text, ";%s", p->line_end);
    }
    tern_print_start(p);
    tern_text_add(p->text, "bool c%u = ", at);
    for (uint32_t i = 0; i < access->mask_count; i++)
        tern_text_add(p->text, "%sm%u_%u >= %d && m%u_%u < %d", i > 0 ? " && " : "", at, i, access->mask[i].lo, at, i,
                      access->mask[i].hi);
    tern_text_add(p->text, ";%s", p->line_end);
    return true;
}
