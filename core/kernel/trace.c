/* SPDX-License-Identifier: Apache-2.0 */
/* trace.c - bookkeeping of a trace: hash-consed expressions, places, the memo, and the roots' stores. */
#include "core/base/array.h"
#include "core/kernel/trace_internal.h"

#include <stdlib.h>
#include <string.h>

const tern_tensor *tern_storage_of(const tern_tensor *x)
{
    while (x->op == TERN_OP_ASSIGN) x = x->in[0];
    return x;
}

uint8_t tern_register_type(int32_t dtype)
{
    switch (dtype) {
    case TERN_I32: return TERN_I32;
    case TERN_U8:
    case TERN_U16:
    case TERN_U32: return TERN_U32;
    default: return TERN_F32;
    }
}

static tern_trace_result grow(void **array, uint32_t count, uint32_t *capacity, size_t size)
{
    return tern_array_grow(array, count, capacity, size, "the fuser's expressions") < 0 ? TERN_TRACE_ERROR
                                                                                        : TERN_TRACE_OK;
}

static bool place_varies(const tern_trace *trace, const tern_place *place)
{
    const tern_space *space = &trace->frame.space;
    for (uint32_t d = space->outer_count; d < space->dim_count; d++) {
        if (space->extent[d] == 1) continue;
        if (place->access.element.coef[d] != 0) return true;
        for (uint32_t m = 0; m < place->access.mask_count; m++)
            if (place->access.mask[m].value.coef[d] != 0) return true;
    }
    return false;
}

tern_trace_result tern_trace_place(tern_trace *trace, const tern_place *place, uint32_t *out_place)
{
    for (uint32_t i = 0; i < trace->place_count; i++) {
        const tern_place *p = &trace->places[i];
        if (p->storage == place->storage && p->indirect == place->indirect &&
            tern_access_equal(&p->access, &place->access)) {
            *out_place = i;
            return TERN_TRACE_OK;
        }
    }
    TERN_TRACE_TRY(grow((void **)&trace->places, trace->place_count, &trace->place_capacity, sizeof *trace->places));
    *out_place = trace->place_count;
    trace->places[trace->place_count++] = *place;
    return TERN_TRACE_OK;
}

static bool expr_equal(const tern_expr *a, const tern_expr *b)
{
    return a->op == b->op && a->type == b->type && a->from == b->from && a->imm == b->imm && a->place == b->place &&
           memcmp(a->in, b->in, sizeof a->in) == 0;
}

/* body: an operand or the place varies along inner dims; a REDUCE's result does not. */
static void derive(const tern_trace *trace, tern_expr *expr)
{
    expr->body = expr->op == TERN_TAPE_ACC ||
                 (expr->place != TERN_EXPR_NONE && place_varies(trace, &trace->places[expr->place]));
    expr->depth = 0;
    for (uint32_t i = 0; i < 4; i++) {
        if (expr->in[i] == TERN_EXPR_NONE) continue;
        const tern_expr *operand = &trace->exprs[expr->in[i]];
        const bool reduced = operand->op == TERN_TAPE_REDUCE_SUM || operand->op == TERN_TAPE_REDUCE_MAX;
        const uint8_t depth = (uint8_t)(operand->depth + (reduced ? 1 : 0));
        if (depth > expr->depth) expr->depth = depth;
        if (operand->body) expr->body = true;
    }
    if (expr->op == TERN_TAPE_REDUCE_SUM || expr->op == TERN_TAPE_REDUCE_MAX) expr->body = false;
}

tern_trace_result tern_trace_expr(tern_trace *trace, tern_expr expr, uint32_t *out_expr)
{
    for (uint32_t i = trace->expr_count; i-- > 0;) {
        if (expr_equal(&trace->exprs[i], &expr)) {
            *out_expr = i;
            return TERN_TRACE_OK;
        }
    }
    derive(trace, &expr);
    if (expr.depth >= TERN_TAPE_PHASES) return TERN_TRACE_REJECT;
    TERN_TRACE_TRY(grow((void **)&trace->exprs, trace->expr_count, &trace->expr_capacity, sizeof *trace->exprs));
    *out_expr = trace->expr_count;
    trace->exprs[trace->expr_count++] = expr;
    return TERN_TRACE_OK;
}

static tern_expr blank(uint16_t op, uint8_t type)
{
    return (tern_expr){.op = op,
                       .type = type,
                       .from = type,
                       .in = {TERN_EXPR_NONE, TERN_EXPR_NONE, TERN_EXPR_NONE, TERN_EXPR_NONE},
                       .place = TERN_EXPR_NONE};
}

tern_trace_result tern_trace_load(tern_trace *trace, const tern_tensor *x, const tern_access *access,
                                  uint32_t indirect_expr, int64_t indirect, uint32_t *out_expr)
{
    const tern_place place = {tern_storage_of(x), *access, indirect};
    tern_expr expr = blank(TERN_TAPE_LOAD, tern_register_type(x->dtype));
    expr.in[0] = indirect_expr;
    TERN_TRACE_TRY(tern_trace_place(trace, &place, &expr.place));
    return tern_trace_expr(trace, expr, out_expr);
}

tern_trace_result tern_trace_index(tern_trace *trace, const tern_affine *value, uint32_t *out_expr)
{
    const tern_place place = {.access = {.element = *value}};
    tern_expr expr = blank(TERN_TAPE_INDEX, TERN_U32);
    TERN_TRACE_TRY(tern_trace_place(trace, &place, &expr.place));
    return tern_trace_expr(trace, expr, out_expr);
}

tern_trace_result tern_trace_const(tern_trace *trace, uint8_t type, uint32_t bits, uint32_t *out_expr)
{
    tern_expr expr = blank(TERN_TAPE_CONST, type);
    expr.imm = bits;
    return tern_trace_expr(trace, expr, out_expr);
}

tern_trace_result tern_trace_alu(tern_trace *trace, uint16_t op, uint8_t type, uint32_t a, uint32_t b, uint32_t c,
                                 uint32_t *out_expr)
{
    tern_expr expr = blank(op, type);
    const uint32_t typed = op == TERN_TAPE_WHERE ? b : a;
    expr.in[0] = a;
    expr.in[1] = b;
    expr.in[2] = c;
    expr.from = trace->exprs[typed].type;
    return tern_trace_expr(trace, expr, out_expr);
}

tern_trace_result tern_trace_round(tern_trace *trace, uint32_t a, int32_t dtype, uint32_t *out_expr)
{
    tern_expr expr = blank(TERN_TAPE_ROUND, TERN_F32);
    expr.in[0] = a;
    expr.imm = (uint32_t)dtype;
    return tern_trace_expr(trace, expr, out_expr);
}

tern_trace_result tern_trace_need(tern_trace *trace, const tern_tensor *x)
{
    trace->need = x;
    return TERN_TRACE_STORE;
}

bool tern_trace_is_root(const tern_trace *trace, const tern_tensor *x)
{
    for (uint32_t i = 0; i < trace->root_count; i++)
        if (trace->roots[i] == x) return true;
    return false;
}

tern_trace_result tern_trace_node(tern_trace *trace, const tern_tensor *x, const tern_access *access,
                                  uint32_t *out_expr)
{
    for (uint32_t m = trace->memo_head[x->id]; m != TERN_EXPR_NONE; m = trace->memo[m].next) {
        if (!tern_access_equal(&trace->memo[m].access, access)) continue;
        *out_expr = trace->memo[m].expr;
        return TERN_TRACE_OK;
    }
    TERN_TRACE_TRY(tern_trace_define(trace, x, access, out_expr));
    TERN_TRACE_TRY(grow((void **)&trace->memo, trace->memo_count, &trace->memo_capacity, sizeof *trace->memo));
    trace->memo[trace->memo_count] = (tern_trace_memo){x->id, *out_expr, trace->memo_head[x->id], *access};
    trace->memo_head[x->id] = trace->memo_count++;
    return TERN_TRACE_OK;
}

static int64_t outer_total(const tern_frame *frame)
{
    return tern_space_count(&frame->space, 0, frame->space.outer_count);
}

/* A column sum adds up what lies along the outer dims, so these must be its rows and the frame must run in row-major
 * order. */
static bool walks_rows(const tern_frame *frame, const tern_tensor *columns)
{
    tern_access full;
    if (outer_total(frame) != columns->at.columns.rows) return false;
    if (tern_space_count(&frame->space, 0, frame->space.dim_count) != tern_count(columns->in[0])) return false;
    tern_access_full(&frame->space, &full);
    for (uint32_t d = 0; d < frame->space.dim_count; d++)
        if (frame->space.extent[d] > 1 && frame->full.coef[d] != full.element.coef[d]) return false;
    return true;
}

/* Where a root is stored: full-sized in the body, one value per outer in the head, a column sum by chunk. */
static tern_trace_result store_place(tern_trace *trace, const tern_tensor *root, tern_store *store,
                                     tern_access *out_access, tern_access *out_value_access)
{
    const tern_frame *frame = &trace->frame;
    const tern_space *space = &frame->space;
    const int64_t outer = outer_total(frame), inner = tern_space_count(space, space->outer_count, space->dim_count);
    memset(out_value_access, 0, sizeof *out_value_access);
    memset(out_access, 0, sizeof *out_access);
    if (root->op == TERN_OP_COLUMN_SUMS) {
        if (!walks_rows(frame, root)) return TERN_TRACE_REJECT;
        store->body = store->column = true;
        tern_access_part(space, space->outer_count, space->dim_count - space->outer_count, out_access);
        out_value_access->element = frame->full;
        return TERN_TRACE_OK;
    }
    const int64_t count = tern_count(root);
    if (count == outer * inner) {
        store->body = true;
        out_access->element = frame->full;
    } else if (count == outer) {
        tern_access_part(space, 0, space->outer_count, out_access);
    } else {
        return TERN_TRACE_REJECT;
    }
    *out_value_access = *out_access;
    return TERN_TRACE_OK;
}

static tern_trace_result trace_root(tern_trace *trace, const tern_tensor *root)
{
    tern_store *store = &trace->stores[trace->store_count];
    memset(store, 0, sizeof *store);
    store->root = root;
    tern_place place = {.storage = tern_storage_of(root)};
    tern_access value_access;
    TERN_TRACE_TRY(store_place(trace, root, store, &place.access, &value_access));

    const tern_tensor *value = root->op == TERN_OP_COLUMN_SUMS ? root->in[0]
                               : root->op == TERN_OP_ASSIGN    ? root->in[1]
                                                               : root;
    if (value == root || tern_trace_is_root(trace, value))
        TERN_TRACE_TRY(tern_trace_define(trace, value, &value_access, &store->expr));
    else
        TERN_TRACE_TRY(tern_trace_node(trace, value, &value_access, &store->expr));
    /* The store rounds: rounding before would only do it twice. */
    const tern_expr *stored = &trace->exprs[store->expr];
    if (stored->op == TERN_TAPE_ROUND && stored->imm == (uint32_t)place.storage->dtype) store->expr = stored->in[0];
    if (!store->body && trace->exprs[store->expr].body) return TERN_TRACE_REJECT;
    TERN_TRACE_TRY(tern_trace_place(trace, &place, &store->place));
    trace->store_count++;
    return TERN_TRACE_OK;
}

static bool has_reduction(const tern_trace *trace)
{
    for (uint32_t i = 0; i < trace->expr_count; i++)
        if (trace->exprs[i].op == TERN_TAPE_REDUCE_SUM || trace->exprs[i].op == TERN_TAPE_REDUCE_MAX) return true;
    return false;
}

static bool has_body_store(const tern_trace *trace)
{
    for (uint32_t i = 0; i < trace->store_count; i++)
        if (trace->stores[i].body) return true;
    return false;
}

/* Without outer dims, what is stored once belongs to the only inner index: heads may run once per thread. */
static void note_idle_inner(tern_trace *trace)
{
    trace->idle_inner = !has_body_store(trace) && !has_reduction(trace);
    for (uint32_t i = 0; trace->idle_inner && trace->frame.space.outer_count == 0 && i < trace->store_count; i++)
        trace->stores[i].body = true;
}

/* Without a reduction there is one phase and nothing between a head's loads and its stores. In an elementwise kernel of
 * many groups a head store then races with other groups; in a row's, an ASSIGN's races with the row's other threads,
 * which still read the old value. */
static bool head_store_races(const tern_trace *trace)
{
    const tern_space *space = &trace->frame.space;
    if (has_reduction(trace) || !has_body_store(trace)) return false;
    const bool one_group = space->outer_count > 0 || tern_space_count(space, 0, space->dim_count) == 1;
    for (uint32_t i = 0; i < trace->store_count; i++)
        if (!trace->stores[i].body && (!one_group || trace->stores[i].root->op == TERN_OP_ASSIGN)) return true;
    return false;
}

/* In-place updates: the old value may be read only where it is replaced. (emit.c stores them in the last phase.) */
static bool assign_conflicts(const tern_trace *trace)
{
    for (uint32_t s = 0; s < trace->store_count; s++) {
        if (trace->stores[s].root->op != TERN_OP_ASSIGN) continue;
        const uint32_t written = trace->stores[s].place;
        for (uint32_t p = 0; p < trace->place_count; p++)
            if (p != written && trace->places[p].storage == trace->places[written].storage) return true;
    }
    return false;
}

static void reset(tern_trace *trace)
{
    trace->expr_count = trace->place_count = trace->store_count = trace->memo_count = 0;
    for (uint32_t i = 0; i < trace->graph->node_count; i++) trace->memo_head[i] = TERN_EXPR_NONE;
}

static tern_trace_result trace_roots(tern_trace *trace)
{
    reset(trace);
    for (uint32_t i = 0; i < trace->root_count; i++) TERN_TRACE_TRY(trace_root(trace, trace->roots[i]));
    if (head_store_races(trace) || assign_conflicts(trace)) return TERN_TRACE_REJECT;
    note_idle_inner(trace);
    return TERN_TRACE_OK;
}

static bool refine(tern_trace *trace)
{
    const tern_split split = trace->split;
    tern_affine *full = &trace->frame.full;
    if (trace->contraction || !tern_space_split(&trace->frame.space, split)) return false;
    memmove(&full->coef[split.dim + 1], &full->coef[split.dim],
            (TERN_SPACE_DIMS - 1 - split.dim) * sizeof full->coef[0]);
    full->coef[split.dim] *= split.inner;
    return true;
}

tern_trace_result tern_trace_run(tern_trace *trace)
{
    trace->stores = calloc(trace->root_count + 1u, sizeof *trace->stores);
    trace->memo_head = malloc((trace->graph->node_count + 1u) * sizeof *trace->memo_head);
    if (!trace->stores || !trace->memo_head) {
        (void)tern_error_memory("the fuser's memo", trace->graph->node_count * sizeof *trace->memo_head);
        return TERN_TRACE_ERROR;
    }
    for (;;) {
        const tern_trace_result result = trace_roots(trace);
        if (result != TERN_TRACE_SPLIT) return result;
        if (!refine(trace)) return TERN_TRACE_REJECT;
    }
}

void tern_trace_finish(tern_trace *trace)
{
    free(trace->exprs);
    free(trace->places);
    free(trace->stores);
    free(trace->memo_head);
    free(trace->memo);
    trace->exprs = NULL;
    trace->places = NULL;
    trace->stores = NULL;
    trace->memo_head = NULL;
    trace->memo = NULL;
}
