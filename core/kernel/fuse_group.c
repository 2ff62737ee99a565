/* SPDX-License-Identifier: Apache-2.0 */
/* fuse_group.c - roots into kernels, one trial at a time; see fuse.h.
 *
 * A root may join a group only if everything it needs is computed in earlier groups or in that same group, so groups
 * stay in execution order. Order of preference: the epilogue of a contraction it uses, then the latest kernel that it
 * shares inputs with. */
#include "core/kernel/fuse.h"

#include "core/base/array.h"

#include <stdlib.h>
#include <string.h>

#define CANDIDATES 12 /* groups looked at, latest first */
#define SMALL_ELEMENTS                                                                                                 \
    (256 * 1024) /* below this two kernels are merged even when they share no input: the launch costs more */
#define ONE_ROW_LIMIT                                                                                                  \
    16384 /* a reduction to one value longer than this is not repeated inside an elementwise kernel                    \
           */

/* ---------------------------------------------------------------------- frames */

/* The reduction nearest to root that its kernel would have to compute, or NULL. */
static const tern_tensor *find_reduction(const tern_fuser *fuser, const tern_tensor *root)
{
    const uint64_t *reads = fuser->reads[root->id];
    for (uint32_t end = root->id, i; (i = tern_bit_last(reads, end)) < end; end = i) {
        const tern_tensor *x = fuser->graph->nodes[i];
        if (tern_ops[x->op].kind == TERN_KIND_REDUCE && !tern_fuser_is_point(fuser, x)) return x;
    }
    return NULL;
}

/* Appends the axes of `x` whose membership in `axes` is `member`. */
static void add_axes(tern_frame *frame, const tern_tensor *x, uint32_t axes, bool member)
{
    int64_t suffix = 1;
    int64_t strides[TERN_MAX_RANK];
    for (int32_t i = x->rank; i-- > 0;) {
        strides[i] = suffix;
        suffix *= x->shape[i];
    }
    for (int32_t i = 0; i < x->rank; i++) {
        if ((axes >> i & 1u) != member || x->shape[i] == 1) continue;
        frame->full.coef[frame->space.dim_count] = strides[i];
        frame->space.extent[frame->space.dim_count++] = x->shape[i];
    }
}

static void flat_frame(const tern_tensor *x, tern_frame *out_frame)
{
    memset(out_frame, 0, sizeof *out_frame);
    add_axes(out_frame, x, 0, false);
}

static void reduction_frame(const tern_tensor *reduction, tern_frame *out_frame)
{
    memset(out_frame, 0, sizeof *out_frame);
    add_axes(out_frame, reduction->in[0], reduction->at.reduce.axes, false);
    out_frame->space.outer_count = out_frame->space.dim_count;
    add_axes(out_frame, reduction->in[0], reduction->at.reduce.axes, true);
}

static void column_frame(const tern_tensor *columns, tern_frame *out_frame)
{
    const int64_t rows = columns->at.columns.rows, inner = tern_count(columns->in[0]) / rows;
    memset(out_frame, 0, sizeof *out_frame);
    out_frame->space = (tern_space){.dim_count = 2, .outer_count = 1, .extent = {rows, inner}};
    out_frame->full.coef[0] = inner;
    out_frame->full.coef[1] = 1;
}

/* The frame a root asks for when it opens a kernel. *out_need: a reduction that has to be stored first. */
static void root_frame(const tern_fuser *fuser, const tern_tensor *root, tern_frame *out_frame,
                       const tern_tensor **out_need)
{
    *out_need = NULL;
    if (root->op == TERN_OP_COLUMN_SUMS) {
        column_frame(root, out_frame);
        return;
    }
    const bool reduces = tern_ops[root->op].kind == TERN_KIND_REDUCE;
    const tern_tensor *reduction = reduces ? root : find_reduction(fuser, root);
    if (!reduction) {
        flat_frame(root, out_frame);
        return;
    }
    reduction_frame(reduction, out_frame);
    const int64_t count = tern_count(root), inner = tern_count(reduction->in[0]), outer = tern_count(reduction);
    if (reduction != root && ((count != inner && count != outer) || (outer == 1 && count > ONE_ROW_LIMIT)))
        *out_need = reduction;
}

static int64_t frame_count(const tern_frame *frame)
{
    return tern_space_count(&frame->space, 0, frame->space.dim_count);
}

/* ---------------------------------------------------------------------- trials */

tern_trace_result tern_group_build(const tern_fuser *fuser, const tern_group *group, const tern_tensor *extra,
                                   const tern_frame *frame, tern_emitted *out_emitted, const tern_tensor **out_need)
{
    const tern_tensor **roots = malloc((group->root_count + 1u) * sizeof *roots);
    if (!roots) {
        (void)tern_error_memory("the fuser", (group->root_count + 1u) * sizeof *roots);
        return TERN_TRACE_ERROR;
    }
    for (uint32_t i = 0; i < group->root_count; i++) roots[i] = group->roots[i];
    roots[group->root_count] = extra;
    tern_trace trace = {.graph = fuser->graph,
                        .stored = fuser->stored,
                        .contraction = group->contraction,
                        .roots = roots,
                        .root_count = group->root_count + (extra != NULL),
                        .frame = *frame};
    tern_trace_result result = tern_trace_run(&trace);
    *out_need = trace.need;
    uint32_t tensors = TERN_TAPE_TENSORS;
    if (group->contraction) tensors -= group->contraction->op == TERN_OP_MATMUL ? 2u : 3u;
    if (result == TERN_TRACE_OK) result = tern_emit(&trace, tensors, out_emitted);
    tern_trace_finish(&trace);
    free(roots);
    return result;
}

static tern_trace_result try_frame(const tern_fuser *fuser, const tern_group *group, const tern_tensor *root,
                                   const tern_frame *frame, const tern_tensor **out_need)
{
    tern_emitted emitted;
    tern_trace_result result = tern_group_build(fuser, group, root, frame, &emitted, out_need);
    if (result != TERN_TRACE_OK) return result;
    if (group->contraction && fuser->accepts_epilogue) {
        const bool matmul = group->contraction->op == TERN_OP_MATMUL;
        const tern_kernel_desc desc = {.kind = matmul ? TERN_KERNEL_MATMUL : TERN_KERNEL_SCATTER_ADD,
                                       .tape = emitted.tape};
        if (!fuser->accepts_epilogue(fuser->context, &desc)) result = TERN_TRACE_REJECT;
    }
    tern_emitted_finish(&emitted);
    return result;
}

static bool shares_input(const tern_fuser *fuser, const tern_group *group, const tern_tensor *root)
{
    const uint32_t n = fuser->graph->node_count;
    const uint64_t *reads = fuser->reads[root->id];
    if (root->op == TERN_OP_ASSIGN && tern_bit(group->leaves, tern_storage_of(root)->id))
        return true; /* it replaces what the group reads */
    for (uint32_t i = 0; (i = tern_bit_next(reads, i, n)) < n; i++) {
        if (!tern_bit(group->leaves, i)) continue;
        const tern_tensor *x = fuser->graph->nodes[i];
        if (x->op == TERN_OP_CONSTANT || strcmp(x->label, TERN_CONTROL_NAME) == 0) continue;
        if (tern_ops[x->op].kind == TERN_KIND_LEAF || tern_fuser_is_point(fuser, x) || x->op == TERN_OP_SECOND)
            return true;
    }
    return false;
}

/* The group of x's value, through SECOND; -1: nothing computes it (a leaf). */
static int32_t group_of(const tern_fuser *fuser, const tern_tensor *x)
{
    return fuser->group_of[x->op == TERN_OP_SECOND ? x->in[0]->id : x->id];
}

/* The earliest group that a point may join: no predecessor is computed later. Contractions that store nothing yet count
 * as computed where they stand. */
static int32_t earliest_group(const tern_fuser *fuser, const tern_tensor *point)
{
    const uint32_t n = fuser->graph->node_count;
    const uint64_t *reads = fuser->reads[point->id];
    int32_t earliest = -1;
    for (uint32_t i = 0; (i = tern_bit_next(reads, i, n)) < n; i++) {
        const tern_tensor *x = fuser->graph->nodes[i];
        if (x != point && group_of(fuser, x) > earliest) earliest = group_of(fuser, x);
    }
    for (uint32_t p = 0; p < fuser->order_count && point->op == TERN_OP_ASSIGN; p++) {
        const tern_tensor *x = fuser->graph->nodes[fuser->order[p]];
        if (x == point) break; /* what follows has no group yet */
        if (fuser->group_of[x->id] > earliest && tern_bit(fuser->reads[x->id], point->in[0]->id))
            earliest = fuser->group_of[x->id];
    }
    return earliest;
}

/* Quick test before a trial: root has the size of a full, a per-outer or a column value of the frame. */
static bool fits(const tern_frame *frame, const tern_tensor *root)
{
    const int64_t total = frame_count(frame), outer = tern_space_count(&frame->space, 0, frame->space.outer_count);
    if (root->op == TERN_OP_COLUMN_SUMS) return outer == root->at.columns.rows && total == tern_count(root->in[0]);
    return tern_count(root) == total || tern_count(root) == outer;
}

static bool all_fit(const tern_frame *frame, const tern_group *group, const tern_tensor *root)
{
    for (uint32_t i = 0; i < group->root_count; i++)
        if (!fits(frame, group->roots[i])) return false;
    return fits(frame, root);
}

/* The epilogue would write over what other groups of the same contraction still read. */
static bool overwrites_operand(const tern_fuser *fuser, const tern_tensor *contraction, const tern_tensor *root)
{
    if (root->op != TERN_OP_ASSIGN) return false;
    const tern_tensor *version = root;
    do {
        version = version->in[0];
        if (tern_bit(fuser->reads[contraction->id], version->id)) return true;
    } while (version->op == TERN_OP_ASSIGN);
    return false;
}

static bool takes_root(const tern_fuser *fuser, const tern_group *group, const tern_tensor *root)
{
    if (group->contraction && overwrites_operand(fuser, group->contraction, root)) return false;
    return !group->contraction || group->contraction->op == TERN_OP_MATMUL ||
           group->contraction->op == TERN_OP_SCATTER_ADD;
}

/* OK: the group can also compute root, in the frame *out_frame. STORE: it could if *out_need were stored. */
static tern_trace_result can_join(const tern_fuser *fuser, const tern_group *group, const tern_tensor *root,
                                  const tern_frame *own, tern_frame *out_frame, const tern_tensor **out_need)
{
    *out_need = NULL;
    if (!takes_root(fuser, group, root)) return TERN_TRACE_REJECT;
    const bool uses = group->contraction && tern_bit(fuser->reads[root->id], group->contraction->id);
    const bool small = !group->contraction && frame_count(&group->frame) + frame_count(own) <= SMALL_ELEMENTS;
    if (!uses && !small && !shares_input(fuser, group, root)) return TERN_TRACE_REJECT;
    tern_trace_result result = TERN_TRACE_REJECT;
    *out_frame = group->frame;
    if (all_fit(&group->frame, group, root)) result = try_frame(fuser, group, root, &group->frame, out_need);
    if ((result == TERN_TRACE_REJECT || result == TERN_TRACE_STORE) && !group->contraction &&
        all_fit(own, group, root)) {
        result = try_frame(fuser, group, root, own, out_need);
        *out_frame = *own;
    }
    return result;
}

/* ---------------------------------------------------------------------- groups */

static tern_status add_root(tern_fuser *fuser, uint32_t g, const tern_tensor *root)
{
    tern_group *group = &fuser->groups[g];
    tern_status status = tern_array_grow((void **)&group->roots, group->root_count, &group->root_capacity,
                                         sizeof *group->roots, "the fuser's groups");
    if (status < 0) return status;
    group->roots[group->root_count++] = root;
    fuser->group_of[root->id] = (int32_t)g;
    for (uint32_t w = 0; w < fuser->graph->node_count / 64u + 1u; w++) group->leaves[w] |= fuser->reads[root->id][w];
    tern_bit_set(group->leaves, root->id);
    return TERN_OK;
}

static tern_status add_group(tern_fuser *fuser, const tern_tensor *contraction, const tern_frame *frame)
{
    tern_status status = tern_array_grow((void **)&fuser->groups, fuser->group_count, &fuser->group_capacity,
                                         sizeof *fuser->groups, "the fuser's groups");
    if (status < 0) return status;
    tern_group *group = &fuser->groups[fuser->group_count];
    *group = (tern_group){.contraction = contraction, .frame = *frame};
    group->leaves = calloc(fuser->graph->node_count / 64u + 1u, sizeof *group->leaves);
    if (!group->leaves) return tern_error_memory("the fuser's groups", fuser->graph->node_count / 8u);
    fuser->group_count++;
    return TERN_OK;
}

static tern_status place_contraction(tern_fuser *fuser, const tern_tensor *x, const tern_tensor **out_need)
{
    tern_contraction contraction;
    tern_frame frame;
    const tern_trace_result result =
        tern_contraction_resolve(x, fuser->second[x->id], fuser->stored, &contraction, out_need);
    if (result == TERN_TRACE_STORE) return TERN_OK;
    *out_need = NULL;
    memset(&frame, 0, sizeof frame);
    if (contraction.has_epilogue) tern_contraction_frame(x, &frame);
    const tern_status status = add_group(fuser, x, &frame);
    if (status < 0) return status;
    const uint32_t g = fuser->group_count - 1u;
    fuser->group_of[x->id] = (int32_t)g;
    return fuser->stored[x->id] ? add_root(fuser, g, x) : TERN_OK;
}

/* Stored values and leaves below x. */
static uint32_t count_leaves(const tern_fuser *fuser, const tern_tensor *x, bool *seen)
{
    if (seen[x->id]) return 0;
    seen[x->id] = true;
    if (tern_fuser_is_point(fuser, x) || x->op == TERN_OP_SECOND) return 1;
    if (tern_ops[x->op].kind == TERN_KIND_LEAF) return x->op != TERN_OP_CONSTANT && x->op != TERN_OP_INDEX;
    uint32_t count = 0;
    for (int32_t k = 0; k < x->in_count; k++) count += count_leaves(fuser, x->in[k], seen);
    return count;
}

/* The middle one of the views (or, where there is none, of the other values) that root's kernel would walk through;
 * NULL: none. */
static const tern_tensor *middle_view(const tern_fuser *fuser, const tern_tensor *root)
{
    const tern_tensor *middle = NULL;
    uint32_t count = 0;
    for (uint32_t i = 0; i < root->id; i++) {
        const tern_tensor *x = fuser->graph->nodes[i];
        if (!tern_bit(fuser->reads[root->id], i) || tern_fuser_is_point(fuser, x) || x->op == TERN_OP_SECOND) continue;
        if (tern_ops[x->op].kind != TERN_KIND_LEAF && tern_same_elements(x) == x) count++;
    }
    for (uint32_t i = 0, at = 0; i < root->id && !middle; i++) {
        const tern_tensor *x = fuser->graph->nodes[i];
        if (!tern_bit(fuser->reads[root->id], i) || tern_fuser_is_point(fuser, x) || x->op == TERN_OP_SECOND) continue;
        if (tern_ops[x->op].kind != TERN_KIND_LEAF && tern_same_elements(x) == x && at++ == count / 2) middle = x;
    }
    return middle;
}

/* Which value to store so that a root that needs too many tensors, dims or phases comes apart: of the elementwise
 * values its kernel would compute, the one with about half of its inputs; in a chain of views the middle one. */
static tern_status split_root(const tern_fuser *fuser, const tern_tensor *root, const tern_tensor **out_need)
{
    const uint32_t n = fuser->graph->node_count;
    bool *seen = calloc(n + 1u, sizeof *seen);
    if (!seen) return tern_error_memory("the fuser", n);
    uint32_t total = 0, best_distance = UINT32_MAX;
    *out_need = NULL;
    for (int32_t k = 0; k < root->in_count; k++) total += count_leaves(fuser, root->in[k], seen);
    for (uint32_t i = 0; i < root->id; i++) {
        const tern_tensor *x = fuser->graph->nodes[i];
        if (!tern_bit(fuser->reads[root->id], i) || tern_fuser_is_point(fuser, x) ||
            tern_ops[x->op].kind != TERN_KIND_MAP)
            continue;
        memset(seen, 0, n);
        const uint32_t leaves = count_leaves(fuser, x, seen), twice = 2 * leaves;
        const uint32_t distance = twice > total ? twice - total : total - twice;
        if (leaves < 2 || distance >= best_distance) continue;
        *out_need = x;
        best_distance = distance;
    }
    free(seen);
    if (!*out_need) *out_need = middle_view(fuser, root);
    if (*out_need) return TERN_OK;
    return tern_error(TERN_ERROR_UNSUPPORTED,
                      "%s \"%s\" does not fit one kernel (at most %d tensors, %d dims and %d phases); reshape its "
                      "operands or split it",
                      tern_ops[root->op].name, root->label, TERN_TAPE_TENSORS, TERN_TAPE_DIMS, TERN_TAPE_PHASES);
}

/* Whether the group may compute root early: what backward rebuilds must not be computed in the forward pass, where it
 * would live on until it is used. After the last forward contraction it is used at once. */
static bool right_time(const tern_fuser *fuser, uint32_t g, const tern_tensor *root)
{
    if (root->pass == TERN_PASS_FORWARD) return true;
    for (uint32_t later = g; later < fuser->group_count; later++) {
        const tern_tensor *contraction = fuser->groups[later].contraction;
        if (contraction && contraction->pass != root->pass) return false;
    }
    return true;
}

/* *out_need: another contraction that, once stored, lets root into the epilogue of the last one it uses. */
static tern_status join(tern_fuser *fuser, const tern_tensor *root, const tern_frame *own, bool *out_joined,
                        const tern_tensor **out_need)
{
    const int32_t earliest = earliest_group(fuser, root);
    *out_joined = false;
    for (int32_t pass = 0; pass < 2 && fuser->fuse; pass++) { /* epilogues of what it uses, then anything */
        uint32_t looked = 0;
        for (int32_t g = (int32_t)fuser->group_count - 1; g >= 0 && g >= earliest && looked < CANDIDATES; g--) {
            tern_group *group = &fuser->groups[g];
            const bool uses = group->contraction && tern_bit(fuser->reads[root->id], group->contraction->id);
            if (uses != (pass == 0) || !right_time(fuser, (uint32_t)g, root)) continue;
            looked++;
            tern_frame frame;
            const tern_tensor *need;
            const tern_trace_result result = can_join(fuser, group, root, own, &frame, &need);
            if (result == TERN_TRACE_ERROR) return TERN_ERROR_MEMORY;
            if (result == TERN_TRACE_OK) {
                group->frame = frame;
                *out_joined = true;
                return add_root(fuser, (uint32_t)g, root);
            }
            if (result == TERN_TRACE_STORE && uses && !*out_need && need != group->contraction &&
                tern_ops[need->op].kind == TERN_KIND_CONTRACTION)
                *out_need = need;
        }
    }
    return TERN_OK;
}

static tern_status place_root(tern_fuser *fuser, const tern_tensor *root, const tern_tensor **out_need)
{
    tern_frame own;
    bool joined;
    root_frame(fuser, root, &own, out_need);
    if (*out_need) return TERN_OK;
    tern_status status = join(fuser, root, &own, &joined, out_need);
    if (status < 0 || joined || *out_need) {
        if (joined) *out_need = NULL;
        return status;
    }
    const tern_group alone = {0};
    tern_emitted emitted;
    const tern_trace_result result = tern_group_build(fuser, &alone, root, &own, &emitted, out_need);
    if (result == TERN_TRACE_ERROR) return TERN_ERROR_MEMORY;
    if (result == TERN_TRACE_STORE && *out_need == root)
        *out_need = find_reduction(fuser, root); /* whose order root does not follow */
    if (result == TERN_TRACE_STORE && *out_need) return TERN_OK;
    if (result != TERN_TRACE_OK) return split_root(fuser, root, out_need);
    *out_need = NULL;
    tern_emitted_finish(&emitted);
    status = add_group(fuser, NULL, &own);
    return status < 0 ? status : add_root(fuser, fuser->group_count - 1u, root);
}

/* An ASSIGN that can only be in the kernel of another one, whose old value it reads and which reads its own. */
static tern_status place_joint(tern_fuser *fuser, const tern_tensor *root, const tern_tensor **out_need)
{
    const uint32_t g = (uint32_t)fuser->group_of[fuser->joint[root->id]];
    tern_frame own, *frames[2] = {&fuser->groups[g].frame, &own};
    tern_trace_result result = TERN_TRACE_REJECT;
    root_frame(fuser, root, &own, out_need);
    if (*out_need) return TERN_OK;
    for (uint32_t i = 0; i < 2 && result == TERN_TRACE_REJECT; i++) {
        if (!takes_root(fuser, &fuser->groups[g], root) || !all_fit(frames[i], &fuser->groups[g], root)) continue;
        result = try_frame(fuser, &fuser->groups[g], root, frames[i], out_need);
        if (result == TERN_TRACE_OK) fuser->groups[g].frame = *frames[i];
    }
    if (result == TERN_TRACE_ERROR) return TERN_ERROR_MEMORY;
    if (result == TERN_TRACE_STORE) return TERN_OK;
    *out_need = NULL;
    return result == TERN_TRACE_OK ? add_root(fuser, g, root) : tern_fuser_cycle(root->in[0]->label);
}

static tern_status place(tern_fuser *fuser, const tern_tensor *x, const tern_tensor **out_need)
{
    *out_need = NULL;
    if (tern_ops[x->op].kind == TERN_KIND_CONTRACTION) return place_contraction(fuser, x, out_need);
    return fuser->joint[x->id] != x->id ? place_joint(fuser, x, out_need) : place_root(fuser, x, out_need);
}

tern_status tern_fuser_group(tern_fuser *fuser, bool *out_again)
{
    *out_again = false;
    tern_fuser_clear_groups(fuser);
    for (uint32_t i = 0; i < fuser->graph->node_count; i++) fuser->group_of[i] = -1;
    for (uint32_t p = 0; p < fuser->order_count; p++) {
        const tern_tensor *x = fuser->graph->nodes[fuser->order[p]], *need;
        tern_status status;
        /* What has to be stored is marked and x placed all the same, so that one round finds all such values. */
        while ((status = place(fuser, x, &need)) == TERN_OK && need) {
            if (fuser->stored[need->id])
                return tern_error(TERN_ERROR_INTERNAL,
                                  "the fuser asked twice to store %s \"%s\" for %s \"%s\"; please report the model",
                                  tern_ops[need->op].name, need->label, tern_ops[x->op].name, x->label);
            fuser->stored[need->id] = true;
            *out_again = true;
        }
        if (status < 0) return status;
    }
    return TERN_OK;
}
