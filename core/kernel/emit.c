/* SPDX-License-Identifier: Apache-2.0 */
/* emit.c - from expressions to instructions: which phase computes what.
 *
 * A store happens in the first phase that knows its value; an ASSIGN in the last, after every read of what it replaces.
 * A head expression is computed once, in the first phase that uses it; a body expression again in every phase that uses
 * it, since only head values cross phases. Head loads of a value that is replaced happen in phase 0, before any thread
 * can store it. */
#include "core/kernel/emit.h"

#include "core/base/array.h"
#include "core/kernel/emit_layout.h"

#include <stdlib.h>
#include <string.h>

#define NEVER 0xffu

typedef struct emitter {
    const tern_trace *trace;
    const tern_layout *layout;
    tern_emitted *out;
    uint32_t tensor_limit;
    uint8_t phase_count;
    bool *live;
    bool *needed;        /* body expressions of the current phase */
    uint8_t *head_phase; /* per expression; NEVER: not a head value or unused */
    uint16_t *head_value, *body_value;
    uint16_t *place_access; /* per place, TERN_TAPE_NONE before first use */
    uint32_t insn_capacity;
} emitter;

static bool is_reduce(const tern_expr *expr)
{
    return expr->op == TERN_TAPE_REDUCE_SUM || expr->op == TERN_TAPE_REDUCE_MAX;
}

static uint8_t available(const tern_expr *expr) { return (uint8_t)(expr->depth + (is_reduce(expr) ? 1 : 0)); }

static uint8_t store_phase(const emitter *e, const tern_store *store)
{
    if (store->root->op == TERN_OP_ASSIGN) return (uint8_t)(e->phase_count - 1);
    return available(&e->trace->exprs[store->expr]);
}

static void mark_live(emitter *e)
{
    const tern_trace *t = e->trace;
    for (uint32_t s = 0; s < t->store_count; s++) e->live[t->stores[s].expr] = true;
    for (uint32_t i = t->expr_count; i-- > 0;)
        for (uint32_t k = 0; e->live[i] && k < 4; k++)
            if (t->exprs[i].in[k] != TERN_EXPR_NONE) e->live[t->exprs[i].in[k]] = true;
}

static void count_phases(emitter *e)
{
    const tern_trace *t = e->trace;
    uint8_t last = 0;
    for (uint32_t s = 0; s < t->store_count; s++) {
        const uint8_t phase = available(&t->exprs[t->stores[s].expr]);
        if (phase > last) last = phase;
    }
    e->phase_count = (uint8_t)(last + 1);
}

/* needed[i]: body expression i takes part in phase `phase`. */
static void mark_needed(emitter *e, uint8_t phase)
{
    const tern_trace *t = e->trace;
    memset(e->needed, 0, t->expr_count * sizeof *e->needed);
    for (uint32_t s = 0; s < t->store_count; s++)
        if (t->stores[s].body && store_phase(e, &t->stores[s]) == phase && t->exprs[t->stores[s].expr].body)
            e->needed[t->stores[s].expr] = true;
    for (uint32_t i = t->expr_count; i-- > 0;) {
        const tern_expr *expr = &t->exprs[i];
        const bool reduces_here = e->live[i] && is_reduce(expr) && expr->depth == phase;
        if (!e->needed[i] && !reduces_here) continue;
        for (uint32_t k = 0; k < 4; k++)
            if (expr->in[k] != TERN_EXPR_NONE && t->exprs[expr->in[k]].body) e->needed[expr->in[k]] = true;
    }
}

static void use_head(emitter *e, uint32_t expr, uint8_t phase)
{
    if (expr == TERN_EXPR_NONE || e->trace->exprs[expr].body || is_reduce(&e->trace->exprs[expr])) return;
    if (phase < e->head_phase[expr]) e->head_phase[expr] = phase;
}

static bool replaced(const tern_trace *t, const tern_tensor *storage)
{
    for (uint32_t s = 0; s < t->store_count; s++)
        if (t->stores[s].root->op == TERN_OP_ASSIGN && t->places[t->stores[s].place].storage == storage) return true;
    return false;
}

static void place_heads(emitter *e)
{
    const tern_trace *t = e->trace;
    memset(e->head_phase, NEVER, t->expr_count);
    for (uint8_t phase = 0; phase < e->phase_count; phase++) {
        mark_needed(e, phase);
        for (uint32_t i = 0; i < t->expr_count; i++)
            for (uint32_t k = 0; e->needed[i] && k < 4; k++) use_head(e, t->exprs[i].in[k], phase);
        for (uint32_t s = 0; s < t->store_count; s++)
            if (store_phase(e, &t->stores[s]) == phase) use_head(e, t->stores[s].expr, phase);
    }
    for (uint32_t i = t->expr_count; i-- > 0;) {
        if (e->head_phase[i] == NEVER) continue;
        const tern_expr *expr = &t->exprs[i];
        if (expr->op == TERN_TAPE_LOAD && expr->in[0] == TERN_EXPR_NONE && replaced(t, t->places[expr->place].storage))
            e->head_phase[i] = 0;
        for (uint32_t k = 0; k < 4; k++) use_head(e, expr->in[k], e->head_phase[i]);
    }
}

/* ------------------------------------------------------------------ arguments */

/* The argument whose elements start at `offset` of storage; -1 when the tape is full. */
static int32_t argument_of(emitter *e, const tern_tensor *storage, int64_t offset)
{
    tern_tape *tape = &e->out->tape;
    for (uint32_t i = 0; i < tape->tensor_count; i++)
        if (e->out->arguments[i].storage == storage && e->out->arguments[i].offset == offset) return (int32_t)i;
    if (tape->tensor_count == e->tensor_limit) return -1;
    const uint32_t i = tape->tensor_count++;
    e->out->arguments[i] = (tern_emit_argument){storage, offset, INT64_MAX, 0, 0};
    tape->tensors[i] = (tern_tape_tensor){.dtype = (uint8_t)storage->dtype};
    return (int32_t)i;
}

/* Elements of the storage that a place can touch. */
static void widen(emitter *e, tern_emit_argument *argument, const tern_place *place, bool column)
{
    int64_t low, high;
    tern_access_range(&e->trace->frame.space, &place->access.element, &low, &high);
    const int64_t count = tern_count(argument->storage);
    if (place->indirect != 0 || column || low < 0) low = 0;
    if (place->indirect != 0 || column || high > count - 1) high = count - 1;
    if (low > high) low = high = 0; /* masks that never hold together: nothing is touched */
    if (low < argument->low) argument->low = low;
    if (high + 1 > argument->high) argument->high = high + 1;
}

/* The access number of a place, made on first use; TERN_TAPE_NONE when there is no room for its tensor. */
static uint16_t access_of(emitter *e, uint32_t place_index, uint32_t mode, bool column)
{
    const tern_place *place = &e->trace->places[place_index];
    uint16_t number = e->place_access[place_index];
    if (number == TERN_TAPE_NONE) {
        tern_tape_access *access = &e->out->tape.access[e->out->tape.access_count];
        tern_layout_access(e->layout, place, access);
        if (place->storage) {
            const bool varies = tern_layout_varies(e->layout, place);
            const bool literal = !varies || place->access.mask_count > 0;
            const int32_t argument = argument_of(e, place->storage, literal ? 0 : place->access.element.offset);
            if (argument < 0) return TERN_TAPE_NONE;
            access->tensor = (uint32_t)argument;
            access->offset = literal ? (int32_t)place->access.element.offset : 0;
        }
        number = (uint16_t)e->out->tape.access_count++;
        e->place_access[place_index] = number;
    }
    if (place->storage) {
        const uint32_t tensor = e->out->tape.access[number].tensor;
        e->out->arguments[tensor].mode |= mode;
        e->out->tape.tensors[tensor].mode |= (uint8_t)mode;
        widen(e, &e->out->arguments[tensor], place, column);
    }
    return number;
}

/* --------------------------------------------------------------- instructions */

static uint16_t value_of(const emitter *e, uint32_t expr)
{
    if (expr == TERN_EXPR_NONE) return TERN_TAPE_NONE;
    return e->trace->exprs[expr].body ? e->body_value[expr] : e->head_value[expr];
}

static tern_trace_result append(emitter *e, const tern_tape_insn *insn, uint16_t *out_value)
{
    tern_tape *tape = &e->out->tape;
    if (tern_array_grow((void **)&tape->insn, tape->insn_count, &e->insn_capacity, sizeof *tape->insn, "a tape") < 0)
        return TERN_TRACE_ERROR;
    if (tape->insn_count >= TERN_TAPE_NONE - 1u) return TERN_TRACE_REJECT;
    if (out_value) *out_value = (uint16_t)tape->insn_count;
    tape->insn[tape->insn_count++] = *insn;
    return TERN_TRACE_OK;
}

uint32_t tern_emit_own_words(const tern_trace *trace, uint32_t dim_count)
{
    if (!trace->contraction) return dim_count;
    return trace->contraction->op == TERN_OP_MATMUL ? TERN_MATMUL_WORDS : 4u;
}

/* The number of the word that carries this label; UINT32_MAX when no word is left. */
static uint32_t label_word(emitter *e, uint32_t label)
{
    tern_emitted *out = e->out;
    const uint32_t first = tern_emit_own_words(e->trace, out->tape.dim_count);
    for (uint32_t i = 0; i < out->label_count; i++)
        if (out->labels[i] == label) return first + i;
    if (first + out->label_count == TERN_KERNEL_WORDS) return UINT32_MAX;
    out->labels[out->label_count] = label;
    return first + out->label_count++;
}

static tern_trace_result emit_expr(emitter *e, uint32_t i, uint8_t phase, bool body)
{
    const tern_expr *expr = &e->trace->exprs[i];
    tern_tape_insn insn = {.op = expr->op,
                           .phase = phase,
                           .body = body,
                           .type = expr->type,
                           .from = expr->from,
                           .access = TERN_TAPE_NONE,
                           .imm = expr->imm};
    for (uint32_t k = 0; k < 4; k++) insn.in[k] = value_of(e, expr->in[k]);
    if (expr->place != TERN_EXPR_NONE) {
        insn.access = access_of(e, expr->place, TERN_ACCESS_READ, false);
        if (insn.access == TERN_TAPE_NONE) return TERN_TRACE_REJECT;
    }
    if (expr->op == TERN_TAPE_PHILOX && (insn.imm = label_word(e, expr->imm)) == UINT32_MAX) return TERN_TRACE_REJECT;
    return append(e, &insn, expr->body ? &e->body_value[i] : &e->head_value[i]);
}

static tern_trace_result emit_stores(emitter *e, uint8_t phase, bool body)
{
    const tern_trace *t = e->trace;
    for (uint32_t s = 0; s < t->store_count; s++) {
        const tern_store *store = &t->stores[s];
        if (store->body != body || store_phase(e, store) != phase) continue;
        const uint8_t type = t->exprs[store->expr].type;
        tern_tape_insn insn = {.op = store->column ? TERN_TAPE_COLUMN : TERN_TAPE_STORE,
                               .phase = phase,
                               .body = body,
                               .type = type,
                               .from = type,
                               .in = {value_of(e, store->expr), TERN_TAPE_NONE, TERN_TAPE_NONE, TERN_TAPE_NONE}};
        insn.access = access_of(e, store->place, TERN_ACCESS_WRITE, store->column);
        if (insn.access == TERN_TAPE_NONE) return TERN_TRACE_REJECT;
        if (store->column) e->out->tape.chunk_rows = TERN_CHUNK_ROWS;
        const tern_trace_result result = append(e, &insn, NULL);
        if (result != TERN_TRACE_OK) return result;
    }
    return TERN_TRACE_OK;
}

static tern_trace_result emit_phase(emitter *e, uint8_t phase)
{
    const tern_trace *t = e->trace;
    tern_trace_result result;
    for (uint32_t i = 0; i < t->expr_count; i++)
        if (e->head_phase[i] == phase && (result = emit_expr(e, i, phase, false)) != TERN_TRACE_OK) return result;
    if ((result = emit_stores(e, phase, false)) != TERN_TRACE_OK) return result;
    mark_needed(e, phase);
    for (uint32_t i = 0; i < t->expr_count; i++) {
        const bool reduces_here = e->live[i] && is_reduce(&t->exprs[i]) && t->exprs[i].depth == phase;
        if ((e->needed[i] || reduces_here) && (result = emit_expr(e, i, phase, true)) != TERN_TRACE_OK) return result;
    }
    return emit_stores(e, phase, true);
}

static bool allocate(emitter *e)
{
    const tern_trace *t = e->trace;
    const size_t n = t->expr_count + 1u;
    e->live = calloc(n, sizeof *e->live);
    e->needed = calloc(n, sizeof *e->needed);
    e->head_phase = calloc(n, sizeof *e->head_phase);
    e->head_value = calloc(n, sizeof *e->head_value);
    e->body_value = calloc(n, sizeof *e->body_value);
    e->place_access = malloc((t->place_count + 1u) * sizeof *e->place_access);
    e->out->tape.access = calloc(t->place_count + 1u, sizeof *e->out->tape.access);
    if (!e->live || !e->needed || !e->head_phase || !e->head_value || !e->body_value || !e->place_access ||
        !e->out->tape.access) {
        (void)tern_error_memory("a tape", n * 8);
        return false;
    }
    memset(e->place_access, 0xff, (t->place_count + 1u) * sizeof *e->place_access);
    return true;
}

static tern_trace_result emit_all(emitter *e)
{
    mark_live(e);
    count_phases(e);
    if (e->phase_count > TERN_TAPE_PHASES) return TERN_TRACE_REJECT;
    place_heads(e);
    for (uint8_t phase = 0; phase < e->phase_count; phase++) {
        const tern_trace_result result = emit_phase(e, phase);
        if (result != TERN_TRACE_OK) return result;
    }
    e->out->tape.phase_count = e->phase_count;
    const uint32_t own_tensors = TERN_TAPE_TENSORS - e->tensor_limit;
    const uint32_t words = tern_emit_own_words(e->trace, e->out->tape.dim_count) + e->out->label_count;
    const bool fits = 8 * (own_tensors + e->out->tape.tensor_count) + 4 * words <= TERN_KERNEL_ARGUMENT_BYTES;
    return fits ? TERN_TRACE_OK : TERN_TRACE_REJECT;
}

tern_trace_result tern_emit(const tern_trace *trace, uint32_t tensor_limit, tern_emitted *out_emitted)
{
    memset(out_emitted, 0, sizeof *out_emitted);
    tern_layout layout;
    if (!tern_layout_make(trace, &layout)) return TERN_TRACE_REJECT;
    emitter e = {.trace = trace, .layout = &layout, .out = out_emitted, .tensor_limit = tensor_limit};
    tern_tape *tape = &out_emitted->tape;
    tape->dim_count = layout.space.dim_count;
    tape->outer_count = layout.space.outer_count;
    for (uint32_t d = 0; d < layout.space.dim_count; d++) out_emitted->dims[d] = (uint32_t)layout.space.extent[d];

    const tern_trace_result result = allocate(&e) ? emit_all(&e) : TERN_TRACE_ERROR;
    free(e.live);
    free(e.needed);
    free(e.head_phase);
    free(e.head_value);
    free(e.body_value);
    free(e.place_access);
    if (result != TERN_TRACE_OK) tern_emitted_finish(out_emitted);
    return result;
}

void tern_emitted_finish(tern_emitted *emitted)
{
    free(emitted->tape.access);
    free(emitted->tape.insn);
    emitted->tape.access = NULL;
    emitted->tape.insn = NULL;
}
