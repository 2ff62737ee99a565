/* SPDX-License-Identifier: Apache-2.0 */
/* trainer_dlpack.c - tensors of a trainer to and from DLPack: copies on the host, both ways.
 *
 *     export   read by name ──> one allocation: tensor, shape, data ──> the receiver calls its deleter
 *     stage    any strides ──> the input's slot of the next micro-batch
 *
 * What it is not: it shares no memory of a device. */
#include <stdlib.h>
#include <string.h>

#include "core/base/dlpack.h"
#include "core/base/dtype.h"
#include "core/graph/build.h"
#include "core/train/trainer_internal.h"

#define ALIGNMENT 256u /* DLPack asks for it */

static const struct {
    int32_t dtype;
    DLDataType type;
} types[] = {
    {TERN_F32, {TERN_DL_FLOAT, 32, 1}}, {TERN_F16, {TERN_DL_FLOAT, 16, 1}}, {TERN_BF16, {TERN_DL_BFLOAT, 16, 1}},
    {TERN_I32, {TERN_DL_INT, 32, 1}},   {TERN_U8, {TERN_DL_UINT, 8, 1}},    {TERN_U16, {TERN_DL_UINT, 16, 1}},
    {TERN_U32, {TERN_DL_UINT, 32, 1}},
};
#define TYPE_COUNT (sizeof types / sizeof *types)

/* ------------------------------------------------------------------- export */

typedef struct exported {
    DLManagedTensor tensor;
    int64_t shape[TERN_MAX_RANK], strides[TERN_MAX_RANK];
    void *data;
} exported;

static void delete_exported(DLManagedTensor *self)
{
    exported *e = self->manager_ctx;
    free(e->data);
    free(e);
}

static void describe(exported *e, const tern_trainer_tensor *x)
{
    int64_t stride = 1;
    for (int32_t i = x->rank - 1; i >= 0; i--) {
        e->shape[i] = x->shape[i];
        e->strides[i] = stride;
        stride *= x->shape[i];
    }
    DLTensor *t = &e->tensor.dl_tensor;
    t->data = e->data;
    t->device = (DLDevice){TERN_DL_CPU, 0};
    t->ndim = x->rank;
    for (size_t i = 0; i < TYPE_COUNT; i++)
        if (types[i].dtype == x->dtype) t->dtype = types[i].type;
    t->shape = e->shape;
    t->strides = e->strides;
    e->tensor.manager_ctx = e;
    e->tensor.deleter = delete_exported;
}

tern_status tern_dlpack_export(tern_trainer *t, const char *name, struct DLManagedTensor **out_tensor)
{
    tern_status status;
    tern_trainer_tensor x;
    exported *e = NULL;
    if (!out_tensor) return tern_error(TERN_ERROR_INVALID, "out_tensor is NULL; pass the address of a pointer");
    *out_tensor = NULL;
    TERN_TRY(tern_trainer_ready(t));
    TERN_TRY(tern_trainer_find_tensor(t, name, &x));
    uint64_t count = 1;
    for (int32_t i = 0; i < x.rank; i++) count *= (uint64_t)x.shape[i];
    const uint64_t bytes = tern_dtype_bytes(x.dtype, count);
    e = calloc(1, sizeof *e);
    if (e) e->data = aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    if (!e || !e->data) {
        status = tern_error_memory("an exported tensor", bytes);
        goto fail;
    }
    TERN_TRY(tern_trainer_read(t, name, x.dtype, e->data, bytes));
    describe(e, &x);
    *out_tensor = &e->tensor;
    return TERN_OK;
fail:
    if (e) free(e->data);
    free(e);
    return status;
}

/* -------------------------------------------------------------------- stage */

static int32_t dtype_of(DLDataType type)
{
    for (size_t i = 0; i < TYPE_COUNT; i++)
        if (memcmp(&types[i].type, &type, sizeof type) == 0) return types[i].dtype;
    return 0;
}

static tern_status check_tensor(const tern_trainer_input *input, const DLTensor *x)
{
    if (x->device.device_type != TERN_DL_CPU && x->device.device_type != TERN_DL_CUDA_HOST)
        return tern_error(TERN_ERROR_UNSUPPORTED,
                          "the tensor for input \"%s\" is on DLPack device type %d; move it to the CPU (1) first",
                          input->name, x->device.device_type);
    if (dtype_of(x->dtype) != input->dtype)
        return tern_error(
            TERN_ERROR_INVALID,
            "the tensor for input \"%s\" has DLPack type code %d with %d bits and %d lanes; the input is %s",
            input->name, x->dtype.code, x->dtype.bits, x->dtype.lanes, tern_dtype_name(input->dtype));
    bool fits = x->ndim == input->rank && x->shape && x->shape[0] >= 1 && x->shape[0] <= input->shape[0];
    for (int32_t i = 1; fits && i < x->ndim; i++) fits = x->shape[i] == input->shape[i];
    if (!fits)
        return tern_error(
            TERN_ERROR_INVALID,
            "the tensor for input \"%s\" has the shape %s; the input's is %s, of which the first axis may "
            "be shorter",
            input->name, x->shape ? tern_describe_shape(x->ndim, x->shape).text : "NULL",
            tern_describe_shape(input->rank, input->shape).text);
    if (!x->data) return tern_error(TERN_ERROR_INVALID, "the tensor for input \"%s\" has no data", input->name);
    return TERN_OK;
}

/* Copies the elements in row-major order; `at` counts axes from the outermost. */
static unsigned char *copy_axis(const DLTensor *x, int32_t axis, const unsigned char *from, size_t element,
                                unsigned char *to)
{
    if (axis == x->ndim) {
        memcpy(to, from, element);
        return to + element;
    }
    for (int64_t i = 0; i < x->shape[axis]; i++)
        to = copy_axis(x, axis + 1, from + i * x->strides[axis] * (int64_t)element, element, to);
    return to;
}

static bool is_compact(const DLTensor *x)
{
    int64_t stride = 1;
    for (int32_t i = x->ndim - 1; x->strides && i >= 0; i--) {
        if (x->shape[i] > 1 && x->strides[i] != stride) return false;
        stride *= x->shape[i];
    }
    return true;
}

tern_status tern_dlpack_stage(tern_trainer *t, const char *name, const struct DLManagedTensor *tensor)
{
    tern_status status;
    tern_trainer_input *input;
    void *slot;
    TERN_TRY(tern_trainer_ready(t));
    TERN_TRY(tern_trainer_find_input(t, name, &input));
    if (!tensor) return tern_error(TERN_ERROR_INVALID, "the tensor for input \"%s\" is NULL", name);
    const DLTensor *x = &tensor->dl_tensor;
    TERN_TRY(check_tensor(input, x));
    TERN_TRY(tern_trainer_stage(t, name, &slot, NULL));
    const unsigned char *from = (const unsigned char *)x->data + x->byte_offset;
    if (is_compact(x))
        memcpy(slot, from, input->example_bytes * (uint64_t)x->shape[0]);
    else
        copy_axis(x, 0, from, tern_dtype(input->dtype)->bytes, slot);
fail:
    return status;
}
