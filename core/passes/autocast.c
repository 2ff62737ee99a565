/* SPDX-License-Identifier: Apache-2.0 */
/* autocast.c - the pass of autocast.h: which values are stored in 16 bits is found first, then the graph is copied.
 *
 * Each node of the input has an f32 copy, which f32 ops read, and, once somebody wants it, a 16-bit copy. Where a value
 * is stored in 16 bits, the f32 copy is the widened 16-bit one, so that all readers agree on it.
 *
 * Invariant: a view's 16-bit copy is the view of its base's, never a cast of the view; so a value is rounded and stored
 * once, however many views of it are multiplied, and a parameter's cast stands directly on it. */
#include "core/passes/autocast.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/passes/absorb.h"
#include "core/passes/junction.h"

static const uint8_t policies[TERN_OP_COUNT] = {
    [TERN_OP_MATMUL] = TERN_AUTOCAST_LOW,     [TERN_OP_ATTENTION] = TERN_AUTOCAST_LOW,
    [TERN_OP_GATHER] = TERN_AUTOCAST_FOLLOW,  [TERN_OP_RESHAPE] = TERN_AUTOCAST_FOLLOW,
    [TERN_OP_PERMUTE] = TERN_AUTOCAST_FOLLOW, [TERN_OP_EXPAND] = TERN_AUTOCAST_FOLLOW,
    [TERN_OP_SLICE] = TERN_AUTOCAST_FOLLOW,   [TERN_OP_PAD] = TERN_AUTOCAST_FOLLOW,
    [TERN_OP_DETACH] = TERN_AUTOCAST_FOLLOW,
};

tern_autocast_policy tern_autocast_policy_of(tern_op op) { return (tern_autocast_policy)policies[op]; }

typedef struct cast_pass {
    const tern_graph *in;
    tern_graph *out;
    int32_t dtype;
    tern_tensor **copies;      /* f32, or whatever the node is */
    tern_tensor **low;         /* 16-bit; NULL: nobody has asked, or it stays f32 */
    uint32_t *readers;         /* see absorb.h */
    bool *carries, *goes_on;   /* holds a contraction's result; which a later op of its chain holds as well */
    bool *stores_low, *pinned; /* what is decided */
} cast_pass;

/* Has the elements of its input, moved. */
static bool follows(const tern_tensor *x) { return policies[x->op] == TERN_AUTOCAST_FOLLOW && x->op != TERN_OP_GATHER; }

/* ------------------------------------------------------- what is stored low */

/* What stays f32 because someone outside wants it so. A pinned view pins what it is a view of. */
static void find_pinned(cast_pass *pass)
{
    const tern_graph *in = pass->in;
    for (uint32_t i = 0; i < in->output_count; i++) pass->pinned[in->outputs[i].tensor->id] = true;
    if (in->loss) pass->pinned[in->loss->id] = true;
    for (uint32_t id = in->node_count; id-- > 0;) {
        const tern_tensor *x = in->nodes[id];
        pass->pinned[id] = pass->pinned[id] || x->keep_f32;
        if (x->op == TERN_OP_ASSIGN) pass->pinned[x->in[1]->id] = true;
        if (follows(x) && pass->pinned[id]) pass->pinned[x->in[0]->id] = true;
    }
}

/* The ends of the contractions' chains, and junctions. A chain ends in its last op that computes: the views behind that
 * cost nothing and would only keep the rounding out of the contraction's kernel. */
static tern_status find_stored(cast_pass *pass)
{
    const tern_graph *in = pass->in;
    tern_count_readers(in, pass->readers);
    for (uint32_t id = 0; id < in->node_count; id++)
        pass->carries[id] = tern_carries(in->nodes[id], pass->readers, pass->carries);
    for (uint32_t id = in->node_count; id-- > 0;) {
        const tern_tensor *x = in->nodes[id];
        const bool computes = !tern_is_view(x);
        for (int32_t i = 0; pass->carries[id] && i < x->in_count; i++)
            if (pass->carries[x->in[i]->id] && pass->readers[x->in[i]->id] == 1 && tern_absorbs(x, i))
                pass->goes_on[x->in[i]->id] = computes || pass->goes_on[id];
    }
    const tern_status status = tern_junctions(in, pass->stores_low);
    for (uint32_t id = 0; status == TERN_OK && id < in->node_count; id++) {
        const tern_tensor *x = in->nodes[id];
        const bool ends = pass->carries[id] && !pass->goes_on[id] && !tern_is_view(x);
        pass->stores_low[id] = (pass->stores_low[id] || ends) && x->dtype == TERN_F32 && !pass->pinned[id];
    }
    return status;
}

/* ------------------------------------------------------------------ copying */

/* What x's elements belong to: x behind what only moves them. */
static const tern_tensor *base_of(const tern_tensor *x)
{
    while (follows(x)) x = x->in[0];
    return x;
}

static bool may_be_low(const cast_pass *pass, const tern_tensor *x)
{
    for (; follows(x); x = x->in[0])
        if (pass->pinned[x->id]) return false;
    return x->dtype == pass->dtype || (x->dtype == TERN_F32 && !pass->pinned[x->id]);
}

/* x in 16 bits, made on first use; x may be low. Loops from x's base to x, without recursion. */
static tern_tensor *low_of(cast_pass *pass, const tern_tensor *x)
{
    const tern_tensor *base = base_of(x);
    if (!pass->low[base->id]) {
        tern_tensor *wide = pass->copies[base->id];
        tern_tensor *cast = tern_cast(wide, pass->dtype);
        pass->low[base->id] = cast->op == TERN_OP_CAST ? tern_label(cast, base->label) : cast;
    }
    while (!pass->low[x->id]) {
        const tern_tensor *next = x; /* the first without a 16-bit copy, going up from the base */
        while (!pass->low[next->in[0]->id]) next = next->in[0];
        tern_tensor *input = pass->low[next->in[0]->id];
        pass->low[next->id] = next->op == TERN_OP_DETACH ? tern_detach(input) : tern_view_again(next, input);
        if (pass->out->status < 0) return pass->out->inert;
    }
    return pass->low[x->id];
}

static tern_tensor *copy_matmul(cast_pass *pass, const tern_tensor *x)
{
    tern_tensor *in[2];
    for (int32_t i = 0; i < 2; i++)
        in[i] = may_be_low(pass, x->in[i]) ? low_of(pass, x->in[i]) : pass->copies[x->in[i]->id];
    return tern_graph_copy(pass->out, x, in, x->pass);
}

/* y, a copy of x that gives 16 bits; returns what f32 ops read of it. */
static tern_tensor *made_low(cast_pass *pass, const tern_tensor *x, tern_tensor *y)
{
    if (y == pass->out->inert) return y;
    y->dtype = pass->dtype;
    pass->low[x->id] = y;
    return tern_cast(y, TERN_F32);
}

/* Attention's operands and result are of one dtype, so one that stays f32 keeps all there. */
static tern_tensor *copy_attention(cast_pass *pass, const tern_tensor *x)
{
    tern_tensor *in[3];
    bool low = x->dtype == TERN_F32 && !pass->pinned[x->id];
    for (int32_t i = 0; i < 3; i++) low = low && may_be_low(pass, x->in[i]);
    for (int32_t i = 0; i < 3; i++) in[i] = low ? low_of(pass, x->in[i]) : pass->copies[x->in[i]->id];
    tern_tensor *y = tern_graph_copy(pass->out, x, in, x->pass);
    return low ? made_low(pass, x, y) : y;
}

/* A gather reads its table as it is stored; a parameter's is its f32 master. */
static tern_tensor *copy_gather(cast_pass *pass, const tern_tensor *x)
{
    const tern_tensor *table = x->in[0];
    const bool low = x->dtype == TERN_F32 && !pass->pinned[x->id] && may_be_low(pass, table) &&
                     tern_is_widening(pass->copies[base_of(table)->id]);
    tern_tensor *in[2] = {low ? low_of(pass, table) : pass->copies[table->id], pass->copies[x->in[1]->id]};
    tern_tensor *y = tern_graph_copy(pass->out, x, in, x->pass);
    return low ? made_low(pass, x, y) : y;
}

static tern_tensor *copy_node(cast_pass *pass, const tern_tensor *x)
{
    tern_tensor *in[TERN_MAX_INPUTS] = {NULL};
    switch (x->op) {
    case TERN_OP_MATMUL: return copy_matmul(pass, x);
    case TERN_OP_ATTENTION: return copy_attention(pass, x);
    case TERN_OP_GATHER: return copy_gather(pass, x);
    default: break;
    }
    for (int32_t i = 0; i < x->in_count; i++) in[i] = pass->copies[x->in[i]->id];
    return tern_graph_copy(pass->out, x, in, x->pass);
}

static void copy_nodes(cast_pass *pass)
{
    for (uint32_t id = 0; id < pass->in->node_count && pass->out->status >= 0; id++) {
        const tern_tensor *x = pass->in->nodes[id];
        pass->out->pass = x->pass;
        pass->copies[id] = copy_node(pass, x);
        if (pass->stores_low[id] && !pass->low[id]) pass->copies[id] = tern_cast(low_of(pass, x), TERN_F32);
    }
}

static tern_status check_dtype(int32_t dtype)
{
    if (tern_dtype_is_16bit_float(dtype)) return TERN_OK;
    return tern_error(TERN_ERROR_INVALID, "autocast: dtype %d is neither TERN_F16 nor TERN_BF16", dtype);
}

tern_status tern_pass_autocast(const tern_graph *in, int32_t dtype, tern_graph **out_graph)
{
    tern_status status;
    cast_pass pass = {.in = in, .dtype = dtype};
    char *memory = NULL;

    *out_graph = NULL;
    TERN_TRY(check_dtype(dtype));
    TERN_TRY(tern_graph_status(in));
    TERN_TRY(tern_graph_create_like(in, &pass.out));
    const size_t count = in->node_count + 1u;
    const size_t bytes = count * (2 * sizeof(void *) + sizeof(uint32_t) + 4 * sizeof(bool));
    memory = calloc(1, bytes); /* one piece for all tables, the widest first */
    if (!memory) {
        status = tern_error_memory("autocast's tables", bytes);
        goto fail;
    }
    pass.copies = (tern_tensor **)(void *)memory;
    pass.low = pass.copies + count;
    pass.readers = (uint32_t *)(void *)(pass.low + count);
    pass.carries = (bool *)(pass.readers + count);
    pass.goes_on = pass.carries + count;
    pass.stores_low = pass.goes_on + count;
    pass.pinned = pass.stores_low + count;
    find_pinned(&pass);
    TERN_TRY(find_stored(&pass));
    copy_nodes(&pass);
    TERN_TRY(tern_graph_copy_rest(in, pass.out, pass.copies));
    *out_graph = pass.out;
    pass.out = NULL;
fail:
    free(memory);
    tern_graph_destroy(pass.out);
    return status;
}
