/* SPDX-License-Identifier: Apache-2.0 */
/* access.c - index maps through views; see access.h. */
#include "core/kernel/access.h"

#include <string.h>

void tern_access_part(const tern_space *space, uint32_t first, uint32_t count, tern_access *out_access)
{
    memset(out_access, 0, sizeof *out_access);
    int64_t stride = 1;
    for (uint32_t d = first + count; d-- > first;) {
        out_access->element.coef[d] = space->extent[d] > 1 ? stride : 0;
        stride *= space->extent[d];
    }
}

void tern_access_full(const tern_space *space, tern_access *out_access)
{
    tern_access_part(space, 0, space->dim_count, out_access);
}

static bool affine_equal(const tern_affine *a, const tern_affine *b)
{
    return a->offset == b->offset && memcmp(a->coef, b->coef, sizeof a->coef) == 0;
}

bool tern_access_equal(const tern_access *a, const tern_access *b)
{
    if (!affine_equal(&a->element, &b->element) || a->mask_count != b->mask_count) return false;
    for (uint32_t i = 0; i < a->mask_count; i++)
        if (a->mask[i].size != b->mask[i].size || !affine_equal(&a->mask[i].value, &b->mask[i].value)) return false;
    return true;
}

/* suffix[i]: elements that one step along axis i skips. */
static void suffix_products(int32_t rank, const int64_t *shape, int64_t *out_suffix)
{
    int64_t product = 1;
    for (int32_t i = rank; i-- > 0;) {
        out_suffix[i] = product;
        product *= shape[i];
    }
}

/* The axis whose steps cover `stride`: suffix <= stride < suffix * size; -1 if none. */
static int32_t axis_of(int32_t rank, const int64_t *shape, const int64_t *suffix, int64_t stride)
{
    for (int32_t i = 0; i < rank; i++)
        if (suffix[i] <= stride && stride < suffix[i] * shape[i]) return i;
    return -1;
}

tern_access_result tern_access_coordinates(const tern_space *space, int32_t rank, const int64_t *shape,
                                           const tern_access *access, tern_affine *out_coordinates,
                                           tern_split *out_split)
{
    int64_t suffix[TERN_MAX_RANK], highest[TERN_MAX_RANK];
    suffix_products(rank, shape, suffix);
    const int64_t offset = access->element.offset;
    if (offset < 0) return TERN_ACCESS_NONE;
    for (int32_t i = 0; i < rank; i++) {
        memset(&out_coordinates[i], 0, sizeof out_coordinates[i]);
        out_coordinates[i].offset = highest[i] = offset / suffix[i] % shape[i];
    }
    for (uint32_t d = 0; d < space->dim_count; d++) {
        const int64_t stride = access->element.coef[d], extent = space->extent[d];
        if (stride == 0 || extent == 1) continue;
        if (stride < 0) return TERN_ACCESS_NONE;
        const int32_t axis = axis_of(rank, shape, suffix, stride);
        if (axis < 0 || stride % suffix[axis] != 0) return TERN_ACCESS_NONE;
        const int64_t step = stride / suffix[axis];
        if (step * (extent - 1) >= shape[axis]) {
            const int64_t inner = shape[axis] / step;
            if (shape[axis] % step != 0 || inner < 2 || extent % inner != 0) return TERN_ACCESS_NONE;
            *out_split = (tern_split){d, inner};
            return TERN_ACCESS_SPLIT;
        }
        out_coordinates[axis].coef[d] = step;
        highest[axis] += step * (extent - 1);
    }
    for (int32_t i = 0; i < rank; i++)
        if (highest[i] >= shape[i]) return TERN_ACCESS_NONE; /* the sum would carry into the next axis */
    return TERN_ACCESS_OK;
}

void tern_access_linear(int32_t rank, const int64_t *shape, const tern_affine *coordinates, tern_affine *out_element)
{
    int64_t suffix[TERN_MAX_RANK];
    suffix_products(rank, shape, suffix);
    memset(out_element, 0, sizeof *out_element);
    for (int32_t i = 0; i < rank; i++) {
        out_element->offset += coordinates[i].offset * suffix[i];
        for (uint32_t d = 0; d < TERN_SPACE_DIMS; d++) out_element->coef[d] += coordinates[i].coef[d] * suffix[i];
    }
}

/* A view with neighbouring axes taken as one where it treats them alike, so that fewer dims need splitting: a bias
 * broadcast over (batch, time) does not care where batch ends. Axes of size 1 on both sides are left out: they are
 * alike to any neighbour, and would chain a kept axis to a repeated one. */
typedef struct merged_view {
    int32_t rank;
    int64_t out[TERN_MAX_RANK], in[TERN_MAX_RANK];       /* sizes, view's and input's (by the view's axes) */
    int64_t start[TERN_MAX_RANK];                        /* SLICE */
    int64_t before[TERN_MAX_RANK], after[TERN_MAX_RANK]; /* PAD */
} merged_view;

/* Whether the view leaves this axis as it is. */
static bool untouched(const tern_tensor *view, int32_t axis)
{
    return view->shape[axis] == view->in[0]->shape[axis] && (view->op != TERN_OP_PAD || view->at.pad.before[axis] == 0);
}

static bool axes_merge(const tern_tensor *view, int32_t a, int32_t b)
{
    if (untouched(view, a) && untouched(view, b)) return true;
    return view->op == TERN_OP_EXPAND && view->in[0]->shape[a] == 1 && view->in[0]->shape[b] == 1;
}

static void merge_view(const tern_tensor *view, merged_view *m)
{
    int32_t last = -1;
    memset(m, 0, sizeof *m);
    for (int32_t i = 0; i < view->rank; i++) {
        if (view->shape[i] == 1 && view->in[0]->shape[i] == 1) continue;
        if (last >= 0 && axes_merge(view, last, i)) {
            m->out[m->rank - 1] *= view->shape[i];
            m->in[m->rank - 1] *= view->in[0]->shape[i];
        } else {
            m->out[m->rank] = view->shape[i];
            m->in[m->rank] = view->in[0]->shape[i];
            if (view->op == TERN_OP_SLICE) m->start[m->rank] = view->at.slice.starts[i];
            if (view->op == TERN_OP_PAD) {
                m->before[m->rank] = view->at.pad.before[i];
                m->after[m->rank] = view->at.pad.after[i];
            }
            m->rank++;
        }
        last = i;
    }
}

/* One axis of PAD: the input's coordinate, and a mask if some indices fall into the padding. */
static tern_access_result pad_axis(const tern_space *space, const merged_view *m, int32_t axis, tern_affine *coordinate,
                                   tern_access *access)
{
    int64_t low, high;
    if (m->before[axis] == 0 && m->after[axis] == 0) return TERN_ACCESS_OK;
    coordinate->offset -= m->before[axis];
    tern_access_range(space, coordinate, &low, &high);
    if (low >= 0 && high < m->in[axis]) return TERN_ACCESS_OK;
    if (high < 0 || low >= m->in[axis]) return TERN_ACCESS_ZERO;
    if (access->mask_count == TERN_TAPE_MASKS) return TERN_ACCESS_NONE;
    access->mask[access->mask_count++] = (tern_access_mask){*coordinate, m->in[axis]};
    if (m->in[axis] == 1) memset(coordinate, 0, sizeof *coordinate); /* where the mask holds it is 0 */
    return TERN_ACCESS_OK;
}

static tern_access_result through_permute(const tern_space *space, const tern_tensor *view, tern_access *access,
                                          tern_split *out_split)
{
    tern_affine from[TERN_MAX_RANK], to[TERN_MAX_RANK];
    const tern_access_result result = tern_access_coordinates(space, view->rank, view->shape, access, from, out_split);
    if (result != TERN_ACCESS_OK) return result;
    for (int32_t i = 0; i < view->rank; i++) to[view->at.permute.axes[i]] = from[i];
    tern_access_linear(view->rank, view->in[0]->shape, to, &access->element);
    return TERN_ACCESS_OK;
}

tern_access_result tern_access_through(const tern_space *space, const tern_tensor *view, const tern_access *access,
                                       tern_access *out_access, tern_split *out_split)
{
    *out_access = *access;
    if (view->op == TERN_OP_RESHAPE || view->op == TERN_OP_DETACH) return TERN_ACCESS_OK;
    if (view->op == TERN_OP_PERMUTE) return through_permute(space, view, out_access, out_split);

    merged_view m;
    tern_affine at[TERN_MAX_RANK];
    merge_view(view, &m);
    tern_access_result result = tern_access_coordinates(space, m.rank, m.out, access, at, out_split);
    for (int32_t i = 0; i < m.rank && result == TERN_ACCESS_OK; i++) {
        if (view->op == TERN_OP_EXPAND && m.in[i] == 1) memset(&at[i], 0, sizeof at[i]);
        at[i].offset += m.start[i];
        result = pad_axis(space, &m, i, &at[i], out_access);
    }
    if (result != TERN_ACCESS_OK) return result;
    tern_access_linear(m.rank, m.in, at, &out_access->element);
    return TERN_ACCESS_OK;
}

bool tern_space_split(tern_space *space, tern_split split)
{
    if (space->dim_count == TERN_SPACE_DIMS) return false;
    const uint32_t d = split.dim;
    memmove(&space->extent[d + 1], &space->extent[d], (space->dim_count - d) * sizeof space->extent[0]);
    space->extent[d] /= split.inner;
    space->extent[d + 1] = split.inner;
    space->dim_count++;
    if (d < space->outer_count) space->outer_count++;
    return true;
}

int64_t tern_space_count(const tern_space *space, uint32_t first, uint32_t end)
{
    int64_t count = 1;
    for (uint32_t d = first; d < end; d++) count *= space->extent[d];
    return count;
}

void tern_access_range(const tern_space *space, const tern_affine *element, int64_t *out_low, int64_t *out_high)
{
    int64_t low = element->offset, high = element->offset;
    for (uint32_t d = 0; d < space->dim_count; d++) {
        const int64_t reach = element->coef[d] * (space->extent[d] - 1);
        if (reach < 0)
            low += reach;
        else
            high += reach;
    }
    *out_low = low;
    *out_high = high;
}
