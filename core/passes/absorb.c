/* SPDX-License-Identifier: Apache-2.0 */
/* absorb.c - see absorb.h. */
#include "core/passes/absorb.h"

#include <string.h>

void tern_count_readers(const tern_graph *graph, uint32_t *out_readers)
{
    memset(out_readers, 0, graph->node_count * sizeof *out_readers);
    for (uint32_t id = 0; id < graph->node_count; id++) {
        const tern_tensor *x = graph->nodes[id];
        for (int32_t i = 0; i < x->in_count && x->op != TERN_OP_SECOND; i++) out_readers[x->in[i]->id]++;
    }
    for (uint32_t i = 0; i < graph->output_count; i++) out_readers[graph->outputs[i].tensor->id]++;
}

bool tern_absorbs(const tern_tensor *y, int32_t i)
{
    switch (y->op) {
    case TERN_OP_RESHAPE:
    case TERN_OP_PERMUTE:
    case TERN_OP_NEG:
    case TERN_OP_ADD:
    case TERN_OP_SUB: return true;
    case TERN_OP_MUL: return y->in[0] != y->in[1] && !y->in[1 - i]->needs_gradient;
    case TERN_OP_DIV: return i == 0 && !y->in[1]->needs_gradient;
    case TERN_OP_WHERE: return i > 0;
    case TERN_OP_CAST: return tern_is_narrowing(y); /* what is kept is half as large; a widening would keep it twice */
    default: return false;
    }
}

bool tern_carries(const tern_tensor *x, const uint32_t *readers, const bool *carries)
{
    if (tern_ops[x->op].kind == TERN_KIND_CONTRACTION) return true;
    for (int32_t i = 0; i < x->in_count; i++)
        if (carries[x->in[i]->id] && readers[x->in[i]->id] == 1 && tern_absorbs(x, i)) return true;
    return false;
}
