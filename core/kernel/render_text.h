/* SPDX-License-Identifier: Apache-2.0 */
/* render_text.h - what the parts of the renderer share: a growing string and the tape printer.
 *
 * A failed growth is remembered and reported once, at the end, so that printing code reads straight. */
#ifndef TERN_KERNEL_RENDER_TEXT_H
#define TERN_KERNEL_RENDER_TEXT_H

#include "core/backend.h"

typedef struct tern_text {
    char *data; /* zero-terminated once anything was added */
    size_t length, capacity;
    bool failed; /* out of memory: data is incomplete */
} tern_text;

void tern_text_add(tern_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The statements of desc->tape as KERNEL's body, by the strategy that desc->variant names. */
void tern_render_tape_body(tern_text *text, const tern_kernel_desc *desc);
/* How many arrays of GROUP_SIZE floats that body shares: the most reductions that one phase ends in. 0: none. */
uint32_t tern_render_tape_arrays(const tern_tape *tape);
/* The tape as one macro EPILOGUE(acc, b, m, n), whose tensor 0 is the kernel's argument first_tensor. */
void tern_render_epilogue(tern_text *text, const tern_tape *tape, uint32_t first_tensor);

#endif
