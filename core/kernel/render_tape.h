/* SPDX-License-Identifier: Apache-2.0 */
/* render_tape.h - shared by render_tape.c (loops), render_insn.c (statements) and render_access.c (indices). */
#ifndef TERN_KERNEL_RENDER_TAPE_H
#define TERN_KERNEL_RENDER_TAPE_H

#include "core/kernel/render_text.h"

typedef struct tern_printer {
    tern_text *text;
    const tern_tape *tape;
    uint32_t first_tensor; /* argument number of the tape's tensor 0 */
    uint32_t run_ends;     /* bit d: dim d is the last of its run */
    bool flat_index;       /* j is the flat inner index */
    bool bases;            /* an access's outer terms stand in b<access> */
    bool alone;            /* one thread does a whole row, chunk or span */
    uint32_t block;        /* partial sums that a thread alone keeps per reduction */
    const char *line_end;  /* "\n", or " \\\n" inside a macro */
    uint32_t depth;
} tern_printer;

/* Indentation of a new line. */
void tern_print_start(const tern_printer *printer);

/* One whole line, indented (printf form). */
#define TERN_LINE(printer, ...)                                                                                        \
    do {                                                                                                               \
        tern_print_start(printer);                                                                                     \
        tern_text_add((printer)->text, __VA_ARGS__);                                                                   \
        tern_text_add((printer)->text, "%s", (printer)->line_end);                                                     \
    } while (0)

/* Instruction `at`, a STORE. */
void tern_render_store(const tern_printer *printer, uint32_t at);
/* Instruction `at`, any that gives a value except the reductions. */
void tern_render_value(const tern_printer *printer, uint32_t at);

/* LOAD, STORE and INDEX use insn.access as an address; COLUMN's address is (chunk, inner). */
bool tern_tape_uses_access(uint16_t op);
/* Bit d: some access needs dim d apart from dim d + 1. */
uint32_t tern_tape_run_ends(const tern_tape *tape);
bool tern_tape_needs_inner_indices(const tern_tape *tape, uint32_t phase);

/* "1u" or "(WORD2 * WORD3)": the product of extents [first, end). */
void tern_render_extent(tern_text *text, uint32_t first, uint32_t end);
/* Declares i<d> for every run of dims [first, end), from the flat index `from`. */
void tern_render_indices(const tern_printer *printer, const char *from, uint32_t first, uint32_t end);
/* The offset and outer terms of an access. */
void tern_render_base(const tern_printer *printer, uint32_t access);
/* The element index of a LOAD, STORE or INDEX at the current indices. */
void tern_render_index(const tern_printer *printer, const tern_tape_insn *insn);
/* Declares c<at>, whether instruction `at`'s masks hold; false and nothing printed when it has none. */
bool tern_render_mask(const tern_printer *printer, uint32_t at);

#endif
