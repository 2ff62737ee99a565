/* SPDX-License-Identifier: Apache-2.0 */
/* flow.c - a module's control flow, made such that PoCL compiles it rightly and soon. The meaning stays.
 *
 *     if (uniform) {            if (uniform) {
 *         ... barrier ...           ... barrier ...
 *         if (mine) store           if (mine) store
 *     }                   ──>       barrier          <- added
 *     return                    }
 *                               return
 *
 * PoCL 3.1 lets LLVM simplify a work-item's code first, and makes loops over the work-items of what lies between
 * barriers then. LLVM joins the ends of `if (mine)`, once they are unrolled, with the way around `if (uniform)` (jump
 * threading, which it leaves out for processors whose threads diverge; PoCL's is a CPU). What follows the last barrier
 * then has several ends, and the loops over the work-items come out wrong: stores missing, done by others, or anywhere.
 * With a barrier there the ends stay together. A barrier before the end orders nothing, so it costs a test nothing.
 *
 * Hints to unroll are dropped: PoCL needs a third of the time without them, 168 seconds for all of attention.
 *
 * A condition with barriers on one side only is uniform, since all work-items must reach them. Such a launch that
 * reaches none of them could be told apart; that is not looked for.
 * Source: the Khronos SPIR-V specification 1.2, sections 2.11 (structure of a module) and 3.32.17 (control flow). */
#include <stdlib.h>
#include <string.h>

#include "tests/stand_ins/level_zero/stand_in.h"

#define HEADER_WORDS  5u
#define BARRIER_WORDS 4u
#define NONE          UINT32_MAX

enum {
    OP_FUNCTION = 54,
    OP_FUNCTION_END = 56,
    OP_CONTROL_BARRIER = 224,
    OP_LOOP_MERGE = 246,
    OP_SELECTION_MERGE = 247,
    OP_LABEL = 248,
    OP_BRANCH = 249,
    OP_BRANCH_CONDITIONAL = 250,
    OP_SWITCH = 251,
    OP_RETURN = 253
};

typedef struct block {
    uint32_t label;
    size_t tail; /* word of its branch, or of what declares its merge */
    uint32_t ending;
    uint32_t next_label[2], next[2]; /* NONE: none */
    bool barrier;
} block;

typedef struct flow {
    block *blocks;
    uint32_t count;
    bool *seen;
    uint32_t *stack;
    size_t barrier; /* word of some barrier in the function; 0: there is none */
    bool unclear;   /* a switch */
} flow;

/* ------------------------------------------------------------------- paths */

/* Is there a way from a block to another (NONE: to a barrier) that does not enter `avoid`? */
static bool reaches(const flow *f, uint32_t from, uint32_t to, uint32_t avoid)
{
    uint32_t depth = 0;
    memset(f->seen, 0, f->count * sizeof *f->seen);
    if (from == NONE || from == avoid) return false;
    f->stack[depth++] = from;
    f->seen[from] = true;
    while (depth) {
        const uint32_t at = f->stack[--depth];
        if (to == NONE ? f->blocks[at].barrier : at == to) return true;
        for (int i = 0; i < 2; i++) {
            const uint32_t next = f->blocks[at].next[i];
            if (next == NONE || next == avoid || f->seen[next]) continue;
            f->seen[next] = true;
            f->stack[depth++] = next;
        }
    }
    return false;
}

/* Does `last` end all ways, and only those, that one side of the branch of `fork` begins, which alone has barriers? */
static bool is_end_of_side(const flow *f, uint32_t fork, int side, uint32_t last, uint32_t exit)
{
    const uint32_t taken = f->blocks[fork].next[side], other = f->blocks[fork].next[!side];
    return !reaches(f, taken, exit, last) && !reaches(f, other, last, NONE) && reaches(f, taken, NONE, NONE) &&
           !reaches(f, other, NONE, NONE);
}

/* Do all work-items come to the end of `last` together, by way of a condition? */
static bool ends_condition(const flow *f, uint32_t last, uint32_t exit)
{
    for (uint32_t fork = 0; fork < f->count; fork++) {
        const block *b = &f->blocks[fork];
        if (b->ending != OP_BRANCH_CONDITIONAL || b->next[0] == b->next[1]) continue;
        const bool always = fork == 0 || !reaches(f, 0, exit, fork);
        const bool once = !reaches(f, b->next[0], fork, NONE) && !reaches(f, b->next[1], fork, NONE);
        if (always && once && (is_end_of_side(f, fork, 0, last, exit) || is_end_of_side(f, fork, 1, last, exit)))
            return true;
    }
    return false;
}

/* --------------------------------------------------------------- functions */

static uint32_t find_block(const flow *f, uint32_t label)
{
    for (uint32_t i = 0; i < f->count; i++)
        if (f->blocks[i].label == label) return i;
    return NONE;
}

static void read_instruction(flow *f, const uint32_t *words, size_t at)
{
    const uint32_t op = words[at] & 0xFFFF;
    block *b = f->count ? &f->blocks[f->count - 1] : NULL;
    if (op == OP_LABEL) f->blocks[f->count++] = (block){words[at + 1], 0, 0, {0, 0}, {NONE, NONE}, false};
    if (op == OP_LABEL || !b || b->ending) return;
    if (op == OP_CONTROL_BARRIER) {
        b->barrier = true;
        f->barrier = at;
    }
    if (op >= OP_LOOP_MERGE && op != OP_LABEL && !b->tail) b->tail = at;
    if (op < OP_BRANCH || op > OP_RETURN + 2) return;
    b->ending = op;
    if (op == OP_BRANCH) b->next_label[0] = words[at + 1];
    if (op == OP_BRANCH_CONDITIONAL) memcpy(b->next_label, words + at + 2, sizeof b->next_label);
    if (op == OP_SWITCH) f->unclear = true;
}

/* The words of a function's instructions from `begin` on; the word behind them. */
static size_t read_function(flow *f, const uint32_t *words, size_t count, size_t begin)
{
    size_t at = begin;
    f->count = 0;
    f->barrier = 0;
    f->unclear = false;
    for (; at < count && (words[at] & 0xFFFF) != OP_FUNCTION_END; at += words[at] >> 16) read_instruction(f, words, at);
    for (uint32_t i = 0; i < f->count; i++)
        for (int k = 0; k < 2; k++)
            if (f->blocks[i].next_label[k]) f->blocks[i].next[k] = find_block(f, f->blocks[i].next_label[k]);
    return at < count ? at : count;
}

/* The only block that returns; NONE: there are more. */
static uint32_t find_exit(const flow *f)
{
    uint32_t exit = NONE;
    for (uint32_t i = 0; i < f->count; i++) {
        if (f->blocks[i].ending != OP_RETURN) continue;
        if (exit != NONE) return NONE;
        exit = i;
    }
    return exit;
}

/* Copies a function, with barriers; the words written. */
static size_t write_function(const flow *f, const uint32_t *words, size_t begin, size_t end, uint32_t *out)
{
    const uint32_t exit = f->barrier && !f->unclear ? find_exit(f) : NONE;
    size_t from = begin, used = 0;
    for (uint32_t i = 0; exit != NONE && i < f->count; i++) {
        const block *b = &f->blocks[i];
        if (b->ending != OP_BRANCH || b->next[0] != exit || b->barrier || !ends_condition(f, i, exit)) continue;
        memcpy(out + used, words + from, (b->tail - from) * sizeof *words);
        used += b->tail - from;
        memcpy(out + used, words + f->barrier, BARRIER_WORDS * sizeof *words);
        used += BARRIER_WORDS;
        from = b->tail;
    }
    memcpy(out + used, words + from, (end - from) * sizeof *words);
    return used + end - from;
}

/* ----------------------------------------------------------------- modules */

static size_t rewrite(flow *f, const uint32_t *words, size_t count, uint32_t *out)
{
    size_t used = HEADER_WORDS;
    memcpy(out, words, HEADER_WORDS * sizeof *words);
    for (size_t at = HEADER_WORDS, end; at < count; at = end) {
        end = at + (words[at] >> 16);
        if ((words[at] & 0xFFFF) == OP_FUNCTION) end = read_function(f, words, count, at);
        used += write_function(f, words, at, end, out + used);
        f->count = 0;
        f->barrier = 0;
    }
    for (size_t at = HEADER_WORDS; at < used; at += out[at] >> 16)
        if ((out[at] & 0xFFFF) == OP_LOOP_MERGE && out[at] >> 16 == 4) out[at + 3] = 0;
    return used;
}

/* Every block has two instructions at least, and gets one barrier at most. */
bool standin_flow_prepare(const void *code, size_t bytes, uint32_t **out_words, size_t *out_bytes)
{
    const size_t count = bytes / sizeof(uint32_t), most = count / 2 + 1;
    uint32_t *words = calloc(count + BARRIER_WORDS, sizeof *words);
    flow f = {.blocks = calloc(most, sizeof *f.blocks),
              .seen = calloc(most, sizeof *f.seen),
              .stack = calloc(most, sizeof *f.stack)};
    *out_words = malloc((count + BARRIER_WORDS * most) * sizeof **out_words);
    const bool memory = words && f.blocks && f.seen && f.stack && *out_words;
    if (memory) {
        memcpy(words, code, count * sizeof *words); /* aligned */
        *out_bytes = rewrite(&f, words, count, *out_words) * sizeof **out_words;
    } else {
        free(*out_words);
        *out_words = NULL;
    }
    free(words), free(f.blocks), free(f.seen), free(f.stack);
    return memory;
}
