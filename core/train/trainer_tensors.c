/* SPDX-License-Identifier: Apache-2.0 */
/* trainer_tensors.c - a trainer's tensors by name, to and from the host, and from files.
 *
 *     parameter ──┐                                  ┌── its own dtype
 *     state ──────┼── found by name ── read, write ──┤
 *     output ─────┘   (read only)                    └── f32 <-> f16, bf16
 *
 * What it is not: it knows no place on the device; the store and the stepper do.
 * Invariant: a load checks every tensor of the file before it writes the first. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/formats/safetensors.h"
#include "core/graph/build.h"
#include "core/passes/state_shadow.h"
#include "core/train/trainer_internal.h"

/* ------------------------------------------------------------------- by name */

static const tern_tensor *find_node(const tern_trainer *t, const char *name, bool *out_stored)
{
    const tern_graph *graph = t->graph;
    const tern_tensor *x = tern_graph_find(graph, TERN_OP_PARAMETER, name);
    if (!x) x = tern_graph_find(graph, TERN_OP_STATE, name);
    *out_stored = x != NULL;
    for (uint32_t i = 0; !x && i < graph->output_count; i++)
        if (strcmp(graph->outputs[i].name, name) == 0) x = graph->outputs[i].tensor;
    return x;
}

tern_status tern_trainer_find_tensor(tern_trainer *t, const char *name, tern_trainer_tensor *out)
{
    const tern_tensor *x = name ? find_node(t, name, &out->stored) : NULL;
    if (!x)
        return tern_error(TERN_ERROR_NOT_FOUND,
                          "the graph has no parameter, state or output \"%.200s\"; name a tensor with tern_output to "
                          "read it",
                          name ? name : "");
    out->name = name;
    out->dtype = x->dtype;
    out->rank = x->rank;
    memcpy(out->shape, x->shape, sizeof out->shape);
    return TERN_OK;
}

static uint64_t count_of(const tern_trainer_tensor *x)
{
    uint64_t count = 1;
    for (int32_t i = 0; i < x->rank; i++) count *= (uint64_t)x->shape[i];
    return count;
}

static tern_status check_form(const tern_trainer_tensor *x, int32_t dtype, size_t bytes)
{
    const bool fits = dtype == x->dtype || (x->dtype == TERN_F32 && (dtype == TERN_F16 || dtype == TERN_BF16));
    if (!fits)
        return tern_error(TERN_ERROR_INVALID, "tensor \"%s\" is %s and cannot be had as %s%s", x->name,
                          tern_dtype_name(x->dtype), tern_dtype_name(dtype),
                          x->dtype == TERN_F32 ? "; f32, f16 and bf16 are possible" : "");
    if (bytes != tern_dtype_bytes(dtype, count_of(x)))
        return tern_error(TERN_ERROR_INVALID, "tensor \"%s\" %s has %llu bytes as %s, but %zu were given", x->name,
                          tern_describe_shape(x->rank, x->shape).text,
                          (unsigned long long)tern_dtype_bytes(dtype, count_of(x)), tern_dtype_name(dtype), bytes);
    return TERN_OK;
}

/* ------------------------------------------------------------ read and write */

static void narrow(int32_t dtype, const float *from, uint16_t *to, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        to[i] = dtype == TERN_F16 ? tern_f32_to_f16(from[i]) : tern_f32_to_bf16(from[i]);
}

static void widen(int32_t dtype, const uint16_t *from, float *to, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        to[i] = dtype == TERN_F16 ? tern_f16_to_f32(from[i]) : tern_bf16_to_f32(from[i]);
}

/* In the tensor's own dtype. */
static tern_status read_own(tern_trainer *t, const tern_trainer_tensor *x, void *out)
{
    tern_status status;
    tern_step_report report; /* the stepper keeps it for the next finish */
    const void *data = NULL;
    uint64_t bytes = 0;
    if (x->stored) {
        TERN_TRY(tern_trainer_keep(t, tern_stepper_finish(t->stepper, &report)));
        return tern_trainer_keep(
            t, tern_store_read(tern_stepper_store(t->stepper), x->name, out, tern_dtype_bytes(x->dtype, count_of(x))));
    }
    TERN_TRY(tern_stepper_output(t->stepper, x->name, &data, &bytes));
    if (bytes != tern_dtype_bytes(x->dtype, count_of(x)))
        return tern_error(TERN_ERROR_INTERNAL, "output \"%s\" has %llu bytes; please report it", x->name,
                          (unsigned long long)bytes);
    memcpy(out, data, bytes);
fail:
    return status;
}

tern_status tern_trainer_read(tern_trainer *t, const char *name, int32_t dtype, void *out_data, size_t bytes)
{
    tern_status status;
    tern_trainer_tensor x;
    float *wide = NULL;
    TERN_TRY(tern_trainer_ready(t));
    if (!out_data) return tern_error(TERN_ERROR_INVALID, "out_data is NULL; pass room for %zu bytes", bytes);
    TERN_TRY(tern_trainer_find_tensor(t, name, &x));
    TERN_TRY(check_form(&x, dtype, bytes));
    if (dtype == x.dtype) return read_own(t, &x, out_data);
    wide = malloc(count_of(&x) * sizeof *wide);
    if (!wide) return tern_error_memory("a tensor", count_of(&x) * sizeof *wide);
    TERN_TRY(read_own(t, &x, wide));
    narrow(dtype, wide, out_data, count_of(&x));
fail:
    free(wide);
    return status;
}

/* A state that the graph assigns is there twice; see passes/state_shadow.h. */
static tern_status write_stored(tern_trainer *t, const tern_trainer_tensor *x, const void *data)
{
    tern_status status;
    char shadow[256];
    tern_binding at;
    tern_store *store = tern_stepper_store(t->stepper);
    const uint64_t bytes = tern_dtype_bytes(x->dtype, count_of(x));
    TERN_TRY(tern_trainer_keep(t, tern_store_write(store, x->name, data, bytes)));
    const int length = snprintf(shadow, sizeof shadow, TERN_SHADOW_PREFIX "%s", x->name);
    if ((size_t)length < sizeof shadow && tern_store_find(store, shadow, &at) >= 0)
        TERN_TRY(tern_trainer_keep(t, tern_store_write(store, shadow, data, bytes)));
fail:
    return status;
}

tern_status tern_trainer_write(tern_trainer *t, const char *name, int32_t dtype, const void *data, size_t bytes)
{
    tern_status status;
    tern_step_report report;
    tern_trainer_tensor x;
    float *wide = NULL;
    TERN_TRY(tern_trainer_ready(t));
    if (!data) return tern_error(TERN_ERROR_INVALID, "data is NULL; give %zu bytes", bytes);
    TERN_TRY(tern_trainer_find_tensor(t, name, &x));
    if (!x.stored)
        return tern_error(TERN_ERROR_INVALID,
                          "\"%s\" is an output, which only the graph writes; write a parameter or state", name);
    TERN_TRY(check_form(&x, dtype, bytes));
    if (dtype != x.dtype) {
        wide = malloc(count_of(&x) * sizeof *wide);
        if (!wide) return tern_error_memory("a tensor", count_of(&x) * sizeof *wide);
        widen(dtype, data, wide, count_of(&x));
        data = wide;
    }
    TERN_TRY(tern_trainer_keep(t, tern_stepper_finish(t->stepper, &report)));
    TERN_TRY(write_stored(t, &x, data));
fail:
    free(wide);
    return status;
}

/* -------------------------------------------------------------------- files */

/* *out_tensor NULL: the file lacks it, which `flags` allow. */
static tern_status match(const tern_safetensors *file, const tern_store_parameter *p, uint32_t flags,
                         const tern_safetensor **out_tensor)
{
    const tern_safetensor *found = tern_safetensors_find(file, p->name);
    *out_tensor = found;
    if (!found && !(flags & TERN_LOAD_PARTIAL))
        return tern_error(
            TERN_ERROR_NOT_FOUND,
            "%s holds no tensor \"%s\"; give the file of this model, or TERN_LOAD_PARTIAL to leave what it "
            "lacks",
            file->path, p->name);
    if (found && (found->rank != p->rank || memcmp(found->shape, p->shape, (size_t)p->rank * sizeof *p->shape) != 0))
        return tern_error(TERN_ERROR_INVALID, "%s: tensor \"%s\" has the shape %s, but the graph's parameter %s",
                          file->path, p->name, tern_describe_shape(found->rank, found->shape).text,
                          tern_describe_shape(p->rank, p->shape).text);
    if (found && found->dtype != TERN_F32 && found->dtype != TERN_F16 && found->dtype != TERN_BF16)
        return tern_error(TERN_ERROR_INVALID, "%s: tensor \"%s\" is %s; parameters are f32, f16 or bf16 in files",
                          file->path, p->name, tern_dtype_name(found->dtype));
    return TERN_OK;
}

static tern_status load_one(tern_trainer *t, const tern_safetensors *file, const tern_safetensor *tensor)
{
    tern_status status;
    uint64_t count = 1;
    for (int32_t i = 0; i < tensor->rank; i++) count *= (uint64_t)tensor->shape[i];
    float *values = malloc(count * sizeof *values);
    if (!values) return tern_error_memory("a tensor", count * sizeof *values);
    TERN_TRY(tern_safetensors_read(file, tensor, values, count));
    TERN_TRY(tern_trainer_write(t, tensor->name, TERN_F32, values, count * sizeof *values));
fail:
    free(values);
    return status;
}

tern_status tern_trainer_match(const tern_trainer *t, const char *path, uint32_t flags, tern_safetensors **out_file)
{
    tern_status status;
    tern_safetensors *file = NULL;
    const tern_safetensor *tensor = NULL;
    const tern_store_layout *layout = t->setup->layout;
    *out_file = NULL;
    TERN_TRY(tern_safetensors_open(path, &file));
    for (uint32_t i = 0; i < layout->parameter_count; i++)
        TERN_TRY(match(file, &layout->parameters[i], flags, &tensor));
    *out_file = file;
    return TERN_OK;
fail:
    tern_safetensors_close(file);
    return status;
}

tern_status tern_trainer_load(tern_trainer *t, const char *path, uint32_t flags)
{
    tern_status status;
    tern_safetensors *file = NULL;
    TERN_TRY(tern_trainer_ready(t));
    if (!path) return tern_error(TERN_ERROR_INVALID, "the path is NULL; name a .safetensors file");
    if (flags & ~(uint32_t)TERN_LOAD_PARTIAL)
        return tern_error(TERN_ERROR_INVALID, "load flags are 0x%x; only TERN_LOAD_PARTIAL (1) is known", flags);
    TERN_TRY(tern_trainer_match(t, path, flags, &file));
    const tern_store_layout *layout = t->setup->layout;
    for (uint32_t i = 0; i < layout->parameter_count; i++) {
        const tern_safetensor *tensor = tern_safetensors_find(file, layout->parameters[i].name);
        if (tensor) TERN_TRY(load_one(t, file, tensor));
    }
fail:
    tern_safetensors_close(file);
    return status;
}
