/* SPDX-License-Identifier: Apache-2.0 */
/* render_tape.c - prints a tape in the kernel language, by one of four strategies:
 *
 *     elementwise   no outer dims, no reductions: a thread takes thread_n elements of the flat range
 *     row           a group per row: strided inner loop, reductions through shared memory in a fixed tree
 *     column        a group per (chunk of rows, GROUP_SIZE columns): a thread sums its column over the chunk's rows
 *     column row    a group per chunk, rows in sequence, for tapes that also reduce rows; a thread owns the same
 * columns in every row, so the partial sums in global memory are its own
 *
 * variant.row_per_thread makes a thread do alone what a group does: its thread_n elements are neighbours, its row is
 * walked in blocks of thread_n with one partial sum each, which is what CPU compilers turn into vector code.
 *
 * Invariant: the text depends on the tape and the variant only, and so does the order of every sum. */
#include "core/kernel/render_tape.h"

/* -------------------------------------------------------------- the phases */

typedef enum strategy { ELEMENTWISE, ROW, COLUMN, COLUMN_ROW } strategy;

static bool is_reduction(uint16_t op) { return op == TERN_TAPE_REDUCE_SUM || op == TERN_TAPE_REDUCE_MAX; }

static uint32_t count_in_phase(const tern_tape *tape, uint32_t phase, bool reductions)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < tape->insn_count; i++) {
        const tern_tape_insn *insn = &tape->insn[i];
        if (insn->phase == phase && insn->body && (!reductions || is_reduction(insn->op))) count++;
    }
    return count;
}

uint32_t tern_render_tape_arrays(const tern_tape *tape)
{
    uint32_t most = 0;
    for (uint32_t phase = 0; phase < tape->phase_count; phase++) {
        uint32_t count = count_in_phase(tape, phase, true);
        if (count > most) most = count;
    }
    return most;
}

static strategy strategy_of(const tern_kernel_desc *desc)
{
    const tern_tape *tape = &desc->tape;
    bool reduces = tern_render_tape_arrays(tape) > 0;
    if (tape->chunk_rows != 0) return reduces || tape->phase_count > 1 ? COLUMN_ROW : COLUMN;
    if (tape->outer_count == 0 && !reduces && tape->phase_count == 1) return ELEMENTWISE;
    return ROW;
}

static void print_head(const tern_printer *p, uint32_t phase, strategy how)
{
    for (uint32_t i = 0; i < p->tape->insn_count; i++) {
        const tern_tape_insn *insn = &p->tape->insn[i];
        if (insn->phase != phase || insn->body) continue;
        if (insn->op != TERN_TAPE_STORE)
            tern_render_value(p, i);
        else if (p->alone || how == ELEMENTWISE)
            tern_render_store(p, i);
        else {
            tern_printer q = *p;
            q.depth++;
            TERN_LINE(p, "if (LOCAL == 0u) {");
            tern_render_store(&q, i);
            TERN_LINE(p, "}");
        }
    }
}

/* b<access> for every access that a body of this phase uses. */
static void print_bases(const tern_printer *p, uint32_t phase)
{
    for (uint32_t a = 0; a < p->tape->access_count; a++) {
        bool used = false;
        for (uint32_t i = 0; i < p->tape->insn_count && !used; i++) {
            const tern_tape_insn *insn = &p->tape->insn[i];
            used = insn->phase == phase && insn->body && insn->access == a && tern_tape_uses_access(insn->op);
        }
        if (!used) continue;
        tern_print_start(p);
        tern_text_add(p->text, "uint b%u = ", a);
        tern_render_base(p, a);
        tern_text_add(p->text, ";%s", p->line_end);
    }
}

static void print_column(const tern_printer *p, uint32_t at, strategy how)
{
    const tern_tape_insn *insn = &p->tape->insn[at];
    uint32_t tensor = p->first_tensor + p->tape->access[insn->access].tensor;
    if (how == COLUMN) {
        TERN_LINE(p, "s%u = s%u + v%u;", at, at, insn->in[0]);
        return;
    }
    tern_print_start(p);
    tern_text_add(p->text, "uint x%u = chunk * ", at);
    tern_render_extent(p->text, p->tape->outer_count, p->tape->dim_count);
    tern_text_add(p->text, " + j;%s", p->line_end);
    TERN_LINE(p, "REAL s%u = v%u;", at, insn->in[0]);
    TERN_LINE(p, "if (row != first_row) s%u = LOAD%u(x%u) + s%u;", at, tensor, at, at);
    TERN_LINE(p, "STORE%u(x%u, s%u);", tensor, at, at);
}

/* The statements of one body at inner index j. */
static void print_body(const tern_printer *p, uint32_t phase, strategy how)
{
    const tern_tape *tape = p->tape;
    const char *lane = p->block > 1 ? "[l]" : "";
    if (how != ELEMENTWISE && tern_tape_needs_inner_indices(tape, phase))
        tern_render_indices(p, "j", tape->outer_count, tape->dim_count);
    for (uint32_t i = 0; i < tape->insn_count; i++) {
        const tern_tape_insn *insn = &tape->insn[i];
        if (insn->phase != phase || !insn->body) continue;
        if (insn->op == TERN_TAPE_REDUCE_SUM)
            TERN_LINE(p, "r%u%s = r%u%s + v%u;", i, lane, i, lane, insn->in[0]);
        else if (insn->op == TERN_TAPE_REDUCE_MAX)
            TERN_LINE(p, "r%u%s = max_f32(r%u%s, v%u);", i, lane, i, lane, insn->in[0]);
        else if (insn->op == TERN_TAPE_COLUMN)
            print_column(p, i, how);
        else if (insn->op == TERN_TAPE_STORE)
            tern_render_store(p, i);
        else
            tern_render_value(p, i);
    }
}

/* The group's tree: halves are added, element t of the upper to element t of the lower. */
static void print_tree(const tern_printer *p, uint32_t phase)
{
    uint32_t array = 0;
    for (uint32_t i = 0; i < p->tape->insn_count; i++)
        if (p->tape->insn[i].phase == phase && is_reduction(p->tape->insn[i].op))
            TERN_LINE(p, "reduced[LOCAL + GROUP_SIZE * %uu] = r%u;", array++, i);
    TERN_LINE(p, "BARRIER;");
    TERN_LINE(p, "for (uint half_size = GROUP_SIZE / 2u; half_size > 0u; half_size >>= 1u) {");
    TERN_LINE(p, "    if (LOCAL < half_size) {");
    array = 0;
    for (uint32_t i = 0; i < p->tape->insn_count; i++) {
        const tern_tape_insn *insn = &p->tape->insn[i];
        if (insn->phase != phase || !is_reduction(insn->op)) continue;
        TERN_LINE(p, "        uint y%u = LOCAL + GROUP_SIZE * %uu;", i, array++);
        if (insn->op == TERN_TAPE_REDUCE_SUM)
            TERN_LINE(p, "        REAL z%u = reduced[y%u] + reduced[y%u + half_size];", i, i, i);
        else
            TERN_LINE(p, "        REAL z%u = max_f32(reduced[y%u], reduced[y%u + half_size]);", i, i, i);
        TERN_LINE(p, "        reduced[y%u] = z%u;", i, i);
    }
    TERN_LINE(p, "    }");
    TERN_LINE(p, "    BARRIER;");
    TERN_LINE(p, "}");
    array = 0;
    for (uint32_t i = 0; i < p->tape->insn_count; i++)
        if (p->tape->insn[i].phase == phase && is_reduction(p->tape->insn[i].op))
            TERN_LINE(p, "REAL v%u = reduced[GROUP_SIZE * %uu];", i, array++);
    TERN_LINE(p, "BARRIER;");
}

#define STRETCH 64u /* terms that a lone partial sum takes before it is put away: long rows stay accurate */

/* After element j: a lone thread's sums r<i> go to a<i> at the end of each stretch. */
static void print_stretch_end(const tern_printer *p, uint32_t phase)
{
    for (uint32_t i = 0; i < p->tape->insn_count; i++) {
        if (p->tape->insn[i].phase != phase || p->tape->insn[i].op != TERN_TAPE_REDUCE_SUM) continue;
        TERN_LINE(p, "if (j %% %uu == %uu) {", STRETCH, STRETCH - 1u);
        TERN_LINE(p, "    a%u = long_add(a%u, r%u);", i, i, i);
        TERN_LINE(p, "    r%u = 0.0f;", i);
        TERN_LINE(p, "}");
    }
}

/* The same after a block: all lanes of r<i> go to a<i>. */
static void print_block_stretch_end(const tern_printer *p, uint32_t phase)
{
    for (uint32_t i = 0; i < p->tape->insn_count; i++) {
        if (p->tape->insn[i].phase != phase || p->tape->insn[i].op != TERN_TAPE_REDUCE_SUM) continue;
        TERN_LINE(p, "if (start / %uu %% %uu == %uu) {", p->block, STRETCH, STRETCH - 1u);
        TERN_LINE(p, "    for (uint l = 0u; l < %uu; l++) {", p->block);
        TERN_LINE(p, "        a%u = long_add(a%u, r%u[l]);", i, i, i);
        TERN_LINE(p, "        r%u[l] = 0.0f;", i);
        TERN_LINE(p, "    }");
        TERN_LINE(p, "}");
    }
}

/* A whole row by one thread: blocks of p->block elements, then the rest into partial sum 0. */
static void print_serial_loop(const tern_printer *p, uint32_t phase, strategy how)
{
    tern_printer q = *p;
    q.depth++;
    if (p->block > 1) {
        q.depth++;
        TERN_LINE(p, "uint whole = row_length / %uu * %uu;", p->block, p->block);
        TERN_LINE(p, "for (uint start = 0u; start < whole; start += %uu) {", p->block);
        TERN_LINE(p, "    for (uint l = 0u; l < %uu; l++) {", p->block);
        TERN_LINE(p, "        uint j = start + l;");
        q.depth++;
        print_body(&q, phase, how);
        q.depth -= 2;
        TERN_LINE(p, "    }");
        print_block_stretch_end(&q, phase);
        TERN_LINE(p, "}");
        TERN_LINE(p, "for (uint j = whole; j < row_length; j++) {");
        TERN_LINE(p, "    uint l = 0u;");
    } else
        TERN_LINE(p, "for (uint j = 0u; j < row_length; j++) {");
    print_body(&q, phase, how);
    if (p->block <= 1) print_stretch_end(&q, phase);
    TERN_LINE(p, "}");
}

static void print_group_loop(const tern_printer *p, uint32_t phase, strategy how)
{
    tern_printer q = *p;
    q.depth += 2;
    TERN_LINE(p, "for (uint start = 0u; start < row_length; start += GROUP_SIZE) {");
    TERN_LINE(p, "    uint j = start + LOCAL;");
    TERN_LINE(p, "    if (j < row_length) {");
    print_body(&q, phase, how);
    TERN_LINE(p, "    }");
    TERN_LINE(p, "}");
}

static void print_reduction_starts(const tern_printer *p, uint32_t phase)
{
    for (uint32_t i = 0; i < p->tape->insn_count; i++) {
        const tern_tape_insn *insn = &p->tape->insn[i];
        if (insn->phase != phase || !is_reduction(insn->op)) continue;
        const char *start = insn->op == TERN_TAPE_REDUCE_SUM ? "0.0f" : "AS_F32(0xff800000u)";
        if (p->block > 1) {
            TERN_LINE(p, "REAL r%u[%u];", i, p->block);
            TERN_LINE(p, "for (uint l = 0u; l < %uu; l++) r%u[l] = %s;", p->block, i, start);
        } else
            TERN_LINE(p, "REAL r%u = %s;", i, start);
        if (!p->alone || insn->op != TERN_TAPE_REDUCE_SUM) continue;
        TERN_LINE(p, "long_sum a%u;", i);
        TERN_LINE(p, "a%u.high = 0.0f;", i);
        TERN_LINE(p, "a%u.low = 0.0f;", i);
    }
}

/* A lone thread's partial results, joined in order. */
static void print_serial_results(const tern_printer *p, uint32_t phase)
{
    for (uint32_t i = 0; i < p->tape->insn_count; i++) {
        const tern_tape_insn *insn = &p->tape->insn[i];
        if (insn->phase != phase || !is_reduction(insn->op)) continue;
        const bool sums = insn->op == TERN_TAPE_REDUCE_SUM, blocks = p->block > 1;
        if (sums && blocks)
            TERN_LINE(p, "for (uint l = 0u; l < %uu; l++) a%u = long_add(a%u, r%u[l]);", p->block, i, i, i);
        if (sums && !blocks) TERN_LINE(p, "a%u = long_add(a%u, r%u);", i, i, i);
        if (sums) TERN_LINE(p, "REAL v%u = long_value(a%u);", i, i);
        if (sums) continue;
        TERN_LINE(p, "REAL v%u = r%u%s;", i, i, blocks ? "[0]" : "");
        if (blocks) TERN_LINE(p, "for (uint l = 1u; l < %uu; l++) v%u = max_f32(v%u, r%u[l]);", p->block, i, i, i);
    }
}

static void print_phase(const tern_printer *p, uint32_t phase, strategy how)
{
    print_head(p, phase, how);
    if (count_in_phase(p->tape, phase, false) == 0) return;
    bool reduces = count_in_phase(p->tape, phase, true) > 0;
    tern_printer q = *p;
    if (!reduces) q.block = 1; /* nothing is carried from element to element */
    print_reduction_starts(&q, phase);
    q.depth++;
    TERN_LINE(p, "{");
    print_bases(&q, phase);
    if (p->alone)
        print_serial_loop(&q, phase, how);
    else
        print_group_loop(&q, phase, how);
    TERN_LINE(p, "}");
    if (!reduces) return;
    if (p->alone)
        print_serial_results(p, phase);
    else
        print_tree(p, phase);
}

/* All phases of the row whose number is the variable `row`. */
static void print_row(const tern_printer *p, strategy how)
{
    tern_render_indices(p, "row", 0, p->tape->outer_count);
    for (uint32_t phase = 0; phase < p->tape->phase_count; phase++) print_phase(p, phase, how);
}

/* -------------------------------------------------------------- strategies */

static void print_extent_line(const tern_printer *p, const char *name, uint32_t first, uint32_t end)
{
    tern_print_start(p);
    tern_text_add(p->text, "uint %s = ", name);
    tern_render_extent(p->text, first, end);
    tern_text_add(p->text, ";%s", p->line_end);
}

/* Neighbours by one thread: indices are taken apart once per stretch of the innermost run, not once per element. */
static void print_span(tern_printer *p, uint32_t per_thread)
{
    const tern_tape *tape = p->tape;
    bool indices = tern_tape_needs_inner_indices(tape, 0);
    uint32_t last = tape->dim_count - 1, first = last;
    while (first > 0 && (p->run_ends >> (first - 1) & 1u) == 0) first--;
    TERN_LINE(p, "uint j = (GROUP * GROUP_SIZE + LOCAL) * %uu;", per_thread);
    TERN_LINE(p, "uint end = MIN_U32(j + %uu, count);", per_thread);
    if (indices) {
        TERN_LINE(p, "while (j < end) {");
        p->depth++;
        tern_render_indices(p, "j", 0, tape->dim_count);
        print_extent_line(p, "run", first, tape->dim_count);
        TERN_LINE(p, "uint stop = MIN_U32(end, j + run - i%u);", last);
        TERN_LINE(p, "for (; j < stop; j++) {");
    } else
        TERN_LINE(p, "for (; j < end; j++) {");
    p->depth++;
    print_body(p, 0, ELEMENTWISE);
    if (indices) TERN_LINE(p, "i%u++;", last);
    p->depth--;
    TERN_LINE(p, "}");
    if (!indices) return;
    p->depth--;
    TERN_LINE(p, "}");
}

static void print_elementwise(tern_printer *p, uint32_t per_thread)
{
    const tern_tape *tape = p->tape;
    print_extent_line(p, "count", 0, tape->dim_count);
    print_head(p, 0, ELEMENTWISE);
    if (p->alone) {
        print_span(p, per_thread);
        return;
    }
    TERN_LINE(p, "for (uint e = 0u; e < %uu; e++) {", per_thread);
    TERN_LINE(p, "    uint j = (GROUP * %uu + e) * GROUP_SIZE + LOCAL;", per_thread);
    TERN_LINE(p, "    if (j < count) {");
    p->depth += 2;
    if (tern_tape_needs_inner_indices(tape, 0)) tern_render_indices(p, "j", 0, tape->dim_count);
    print_body(p, 0, ELEMENTWISE);
    p->depth -= 2;
    TERN_LINE(p, "    }");
    TERN_LINE(p, "}");
}

static void print_rows(tern_printer *p)
{
    print_extent_line(p, "rows", 0, p->tape->outer_count);
    print_extent_line(p, "row_length", p->tape->outer_count, p->tape->dim_count);
    TERN_LINE(p, p->alone ? "uint row = GROUP * GROUP_SIZE + LOCAL;" : "uint row = GROUP;");
    TERN_LINE(p, "if (row < rows) {");
    p->depth++;
    print_row(p, ROW);
    p->depth--;
    TERN_LINE(p, "}");
}

static void print_chunk(const tern_printer *p)
{
    TERN_LINE(p, "uint first_row = chunk * %uu;", p->tape->chunk_rows);
    TERN_LINE(p, "uint last_row = MIN_U32(first_row + %uu, rows);", p->tape->chunk_rows);
}

static void print_column_rows(tern_printer *p)
{
    print_extent_line(p, "rows", 0, p->tape->outer_count);
    print_extent_line(p, "row_length", p->tape->outer_count, p->tape->dim_count);
    TERN_LINE(p, p->alone ? "uint chunk = GROUP * GROUP_SIZE + LOCAL;" : "uint chunk = GROUP;");
    print_chunk(p);
    TERN_LINE(p, "for (uint row = first_row; row < last_row; row++) {");
    p->depth++;
    print_row(p, COLUMN_ROW);
    p->depth--;
    TERN_LINE(p, "}");
}

static void print_columns(tern_printer *p)
{
    const tern_tape *tape = p->tape;
    print_extent_line(p, "rows", 0, tape->outer_count);
    print_extent_line(p, "row_length", tape->outer_count, tape->dim_count);
    TERN_LINE(p, "uint blocks = (row_length + GROUP_SIZE - 1u) / GROUP_SIZE;");
    TERN_LINE(p, "uint chunk = GROUP / blocks;");
    TERN_LINE(p, "uint j = GROUP %% blocks * GROUP_SIZE + LOCAL;");
    print_chunk(p);
    for (uint32_t i = 0; i < tape->insn_count; i++)
        if (tape->insn[i].op == TERN_TAPE_COLUMN) TERN_LINE(p, "REAL s%u = 0.0f;", i);
    TERN_LINE(p, "if (j < row_length && first_row < rows) {");
    TERN_LINE(p, "    for (uint row = first_row; row < last_row; row++) {");
    p->depth += 2;
    tern_render_indices(p, "row", 0, tape->outer_count);
    print_head(p, 0, COLUMN);
    print_bases(p, 0);
    print_body(p, 0, COLUMN);
    p->depth -= 2;
    TERN_LINE(p, "    }");
    for (uint32_t i = 0; i < tape->insn_count; i++)
        if (tape->insn[i].op == TERN_TAPE_COLUMN)
            TERN_LINE(p, "    STORE%u(chunk * row_length + j, s%u);",
                      p->first_tensor + tape->access[tape->insn[i].access].tensor, i);
    TERN_LINE(p, "}");
}

void tern_render_tape_body(tern_text *text, const tern_kernel_desc *desc)
{
    strategy how = strategy_of(desc);
    tern_printer p = {.text = text,
                      .tape = &desc->tape,
                      .run_ends = tern_tape_run_ends(&desc->tape),
                      .flat_index = true,
                      .bases = how != ELEMENTWISE,
                      .alone = desc->variant.row_per_thread,
                      .block = desc->variant.row_per_thread ? desc->variant.thread_n : 1,
                      .line_end = "\n",
                      .depth = 1};
    switch (how) {
    case ELEMENTWISE:
        p.block = 1;
        print_elementwise(&p, desc->variant.thread_n);
        break;
    case ROW: print_rows(&p); break;
    case COLUMN: print_columns(&p); break;
    case COLUMN_ROW: print_column_rows(&p); break;
    }
}

void tern_render_epilogue(tern_text *text, const tern_tape *tape, uint32_t first_tensor)
{
    tern_printer p = {
        .text = text, .tape = tape, .first_tensor = first_tensor, .run_ends = 7u, .line_end = " \\\n", .depth = 1};
    tern_text_add(text, "#define EPILOGUE(acc_value_, b_, m_, n_) { \\\n");
    TERN_LINE(&p, "REAL acc_ = acc_value_; uint i0 = b_; uint i1 = m_; uint i2 = n_;");
    for (uint32_t i = 0; i < tape->insn_count; i++) {
        if (tape->insn[i].op == TERN_TAPE_STORE)
            tern_render_store(&p, i);
        else
            tern_render_value(&p, i);
    }
    tern_text_add(text, "}\n");
}
