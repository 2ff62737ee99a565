/* SPDX-License-Identifier: Apache-2.0 */
/* kernel.c - a kernel's text, rendered by core, becomes a cl_program.
 *
 *     desc ── render ── text ──┬── disk cache ──┬── cl_program ── checks: arguments, group size, shared memory
 *                              └── compiler ────┘
 *
 * The cl_kernel objects are made per program step (program.c), so that each keeps its arguments. Knows no op: what the
 * text computes is core's business. Invariant: a kernel that was created can be launched with its variant's group. */
#include "backends/opencl/opencl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"

static tern_status variant_check(const tern_backend_device *device, const tern_kernel_desc *desc)
{
    const tern_variant *variant = &desc->variant;
    const tern_kernel_fit asked = {false, device->info.max_group_size, variant->shared_bytes};
    for (size_t d = 0; d < 3; d++)
        if (variant->group[d] == 0 || variant->group[d] > device->max_item_sizes[d])
            return tern_error(TERN_ERROR_UNSUPPORTED,
                              "%s: kernel \"%s\" (%s) wants %u work-items on axis %zu of its group, the limit is %zu; "
                              "choose another variant",
                              device->info.name, desc->label, variant->name, variant->group[d], d,
                              device->max_item_sizes[d]);
    return tern_kernel_fit_check(&device->info, desc, &asked);
}

static tern_status build_log_error(tern_backend_device *device, cl_program program, const char *label)
{
    size_t bytes = 0;
    char *log = NULL;
    if (CL_CALL(device, clGetProgramBuildInfo, program, device->id, CL_PROGRAM_BUILD_LOG, 0, NULL, &bytes) >= 0 &&
        (log = calloc(1, bytes + 1)) != NULL &&
        CL_CALL(device, clGetProgramBuildInfo, program, device->id, CL_PROGRAM_BUILD_LOG, bytes, log, NULL) < 0)
        log[0] = 0;
    if (log) tern_log_write(TERN_LOG_DEBUG, "opencl: build log of \"%s\":\n%s", label, log);
    const tern_status status =
        tern_error(TERN_ERROR_KERNEL, "%s: kernel \"%s\" does not build with \"%s\"; the compiler says: %s",
                   device->info.name, label, device->build_options, log && *log ? log : "nothing");
    free(log);
    return status;
}

static tern_status source_build(tern_backend_device *device, const char *label, const tern_source *source,
                                cl_program *out_program)
{
    const char *text = source->text;
    const size_t bytes = source->bytes;
    cl_program program = NULL;
    cl_int code = CL_SUCCESS;
    tern_status status;
    TERN_TRY(CL_MAKE(device, &program, clCreateProgramWithSource, device->context, 1, &text, &bytes));
    status = CL_CALL(device, clBuildProgram, program, 1, &device->id, device->build_options, NULL, NULL);
    if (status == TERN_ERROR_KERNEL) status = build_log_error(device, program, label);
    if (status < 0) goto fail;
    *out_program = program;
    return TERN_OK;
fail:
    CL_RELEASE(clReleaseProgram, program);
    return status;
}

static tern_status program_get(tern_backend_device *device, const tern_kernel_desc *desc, tern_backend_kernel *kernel)
{
    tern_source source = {0};
    tern_status status;
    TERN_TRY(desc->render(desc, TERN_DIALECT_OPENCL, false, &source));
    memcpy(kernel->entry, source.entry, sizeof kernel->entry);
    const uint64_t key = tern_opencl_cache_key(device, &source);
    kernel->program = tern_opencl_cache_load(device, key);
    if (atomic_load(&device->lost)) TERN_TRY(tern_opencl_enter(device));
    tern_opencl_built(kernel->program != NULL);
    if (!kernel->program) {
        TERN_TRY(source_build(device, desc->label, &source, &kernel->program));
        tern_opencl_cache_store(device, key, kernel->program);
    }
fail:
    free(source.text);
    return status;
}

/* What the compiler made of it: registers may allow fewer work-items than the device does, and a renderer that
 * disagrees with this file about the arguments must be found here, not by a wrong result. */
static tern_status kernel_check(tern_backend_device *device, const tern_kernel_desc *desc,
                                const tern_backend_kernel *kernel)
{
    const uint32_t wanted = 2 * desc->tensor_count + (desc->word_count ? 1 : 0);
    cl_kernel probe = NULL;
    cl_uint arguments;
    cl_ulong shared;
    size_t limit;
    cl_int code = CL_SUCCESS;
    tern_status status;
    TERN_TRY(CL_MAKE(device, &probe, clCreateKernel, kernel->program, kernel->entry));
    TERN_TRY(CL_CALL(device, clGetKernelInfo, probe, CL_KERNEL_NUM_ARGS, sizeof arguments, &arguments, NULL));
    TERN_TRY(CL_CALL(device, clGetKernelWorkGroupInfo, probe, device->id, CL_KERNEL_WORK_GROUP_SIZE, sizeof limit,
                     &limit, NULL));
    TERN_TRY(CL_CALL(device, clGetKernelWorkGroupInfo, probe, device->id, CL_KERNEL_LOCAL_MEM_SIZE, sizeof shared,
                     &shared, NULL));
    const tern_kernel_fit compiled = {true, limit, shared};
    if (arguments != wanted)
        TERN_TRY(tern_error(TERN_ERROR_KERNEL,
                            "kernel \"%s\": its text takes %u arguments, %u tensors and %u words make %u", desc->label,
                            arguments, desc->tensor_count, desc->word_count, wanted));
    TERN_TRY(tern_kernel_fit_check(&device->info, desc, &compiled));
fail:
    CL_RELEASE(clReleaseKernel, probe);
    return status;
}

tern_status tern_opencl_kernel_create(tern_backend_device *device, const tern_kernel_desc *desc,
                                      tern_backend_kernel **out_kernel)
{
    tern_backend_kernel *kernel = NULL;
    tern_status status;
    *out_kernel = NULL;
    TERN_TRY(tern_opencl_enter(device));
    TERN_TRY(variant_check(device, desc));
    kernel = calloc(1, sizeof *kernel);
    if (!kernel) return tern_error_memory("an OpenCL kernel", sizeof *kernel);
    TERN_TRY(tern_kernel_shape_take(desc, "OpenCL", &kernel->shape));
    TERN_TRY(program_get(device, desc, kernel));
    TERN_TRY(kernel_check(device, desc, kernel));
    *out_kernel = kernel;
    return TERN_OK;
fail:
    tern_opencl_kernel_destroy(device, kernel);
    return status;
}

void tern_opencl_kernel_destroy(tern_backend_device *device, tern_backend_kernel *kernel)
{
    if (!kernel) return;
    if (tern_opencl_is_own(device)) CL_RELEASE(clReleaseProgram, kernel->program);
    free(kernel);
}
