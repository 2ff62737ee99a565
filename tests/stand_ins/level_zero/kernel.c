/* SPDX-License-Identifier: Apache-2.0 */
/* kernel.c - kernels: arguments checked against what the module says of them, and the launch itself.
 *
 * A launch takes the arguments as they were when it was appended; it finds out when it runs whether the memory that
 * they point to still lives. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/stand_ins/level_zero/stand_in.h"

#define LARGE (4ull << 30) /* allocations above it need the module's flag */

static const standin_spirv_kernel *find_info(const standin_module *module, const char *name)
{
    for (uint32_t i = 0; i < module->spirv.kernel_count; i++)
        if (strcmp(module->spirv.kernels[i].name, name) == 0) return &module->spirv.kernels[i];
    return NULL;
}

ENTRY(zeKernelCreate)(ze_module_handle_t handle, const ze_kernel_desc_t *desc, ze_kernel_handle_t *out_kernel)
{
    ENTER(zeKernelCreate);
    NEED(desc);
    NEED(desc->pKernelName);
    NEED(out_kernel);
    FIND(standin_module, module, handle, STANDIN_MODULE);
    cl_int error = 0;
    const standin_spirv_kernel *info = find_info(module, desc->pKernelName);
    if (!info) return ZE_RESULT_ERROR_INVALID_KERNEL_NAME;
    cl_kernel made = clCreateKernel(module->program, desc->pKernelName, &error);
    if (error)
        return standin_complain(ZE_RESULT_ERROR_INVALID_KERNEL_NAME, "clCreateKernel %s: OpenCL error %d", info->name,
                                error);
    standin_kernel *kernel = standin_create(STANDIN_KERNEL, sizeof *kernel, module);
    standin_value *values = calloc(info->argument_count + 1, sizeof *values);
    if (!kernel || !values) {
        if (kernel) standin_destroy(kernel);
        free(values);
        (void)clReleaseKernel(made);
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    kernel->module = module;
    kernel->info = info;
    kernel->kernel = made;
    kernel->values = values;
    *out_kernel = (ze_kernel_handle_t)(void *)kernel;
    return STANDIN_OK;
}

ENTRY(zeKernelDestroy)(ze_kernel_handle_t handle)
{
    STANDIN_HOLD;
    FIND(standin_kernel, kernel, handle, STANDIN_KERNEL);
    (void)clReleaseKernel(kernel->kernel);
    free(kernel->values);
    kernel->values = NULL;
    standin_destroy(kernel);
    LEAVE(zeKernelDestroy);
}

ENTRY(zeKernelSetGroupSize)(ze_kernel_handle_t handle, uint32_t x, uint32_t y, uint32_t z)
{
    ENTER(zeKernelSetGroupSize);
    FIND(standin_kernel, kernel, handle, STANDIN_KERNEL);
    const uint32_t group[3] = {x, y, z}, *required = kernel->info->required_group;
    if (!x || !y || !z || (uint64_t)x * y > standin_cl.max_group || (uint64_t)x * y * z > standin_cl.max_group)
        return ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION;
    if (required[0] && memcmp(required, group, sizeof group) != 0)
        return standin_complain(ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION,
                                "kernel %s requires groups of %u x %u x %u, not %u x %u x %u", kernel->info->name,
                                required[0], required[1], required[2], x, y, z);
    memcpy(kernel->group, group, sizeof group);
    return STANDIN_OK;
}

ENTRY(zeKernelSuggestGroupSize)
(ze_kernel_handle_t handle, uint32_t total_x, uint32_t total_y, uint32_t total_z, uint32_t *x, uint32_t *y, uint32_t *z)
{
    ENTER(zeKernelSuggestGroupSize);
    FIND(standin_kernel, kernel, handle, STANDIN_KERNEL);
    NEED(x && y && z);
    (void)total_y, (void)total_z;
    *x = total_x < 64 ? total_x : 64;
    *y = *z = 1;
    return STANDIN_OK;
}

/* ---------------------------------------------------------------- arguments */

/* A pointer's allocation must live, and be one that this kernel can reach. */
static ze_result_t check_pointer(const standin_kernel *kernel, uint32_t index, const void *pointer, uint64_t *out_id)
{
    char what[160];
    *out_id = 0;
    if (!pointer) return STANDIN_OK;
    (void)snprintf(what, sizeof what, "argument %u of kernel %s", index, kernel->info->name);
    const ze_result_t result = standin_memory_check(kernel->module->device, pointer, 1, what);
    if (result) return result;
    const standin_memory *m = standin_memory_of(pointer);
    if (m->bytes > LARGE && !kernel->module->large)
        return standin_complain(ZE_RESULT_ERROR_INVALID_ARGUMENT,
                                "%s: %zu bytes need the build flag for buffers above 4 GiB", what, m->bytes);
    *out_id = m->id;
    return STANDIN_OK;
}

/* The bytes that the host must say, and whether it must give a value with them. */
static bool is_size_right(const standin_argument *argument, size_t bytes, const void *value)
{
    switch (argument->kind) {
    case STANDIN_ARGUMENT_POINTER: return bytes == sizeof(void *);
    case STANDIN_ARGUMENT_LOCAL: return !value && bytes && bytes <= standin_cl.shared_bytes;
    case STANDIN_ARGUMENT_VALUE: return value && bytes == argument->bytes && bytes <= STANDIN_MAX_VALUE;
    default: return false;
    }
}

ENTRY(zeKernelSetArgumentValue)(ze_kernel_handle_t handle, uint32_t index, size_t bytes, const void *value)
{
    ENTER(zeKernelSetArgumentValue);
    FIND(standin_kernel, kernel, handle, STANDIN_KERNEL);
    if (index >= kernel->info->argument_count) return ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX;
    const standin_argument *argument = &kernel->info->arguments[index];
    standin_value set = {.set = true, .bytes = bytes};
    if (!is_size_right(argument, bytes, value))
        return standin_complain(ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE,
                                "argument %u of kernel %s is a %s of %zu bytes, set with %zu%s", index,
                                kernel->info->name, argument->kind == STANDIN_ARGUMENT_VALUE ? "value" : "pointer",
                                argument->kind == STANDIN_ARGUMENT_VALUE ? argument->bytes : sizeof(void *), bytes,
                                value ? "" : " and no value");
    if (argument->kind == STANDIN_ARGUMENT_POINTER) {
        void *pointer = NULL;
        if (value) memcpy(&pointer, value, sizeof pointer);
        const ze_result_t result = check_pointer(kernel, index, pointer, &set.memory_id);
        if (result) return result;
        memcpy(set.data, &pointer, sizeof pointer);
    } else if (value) {
        memcpy(set.data, value, bytes);
    }
    kernel->values[index] = set;
    return STANDIN_OK;
}

ENTRY(zeKernelSetIndirectAccess)(ze_kernel_handle_t handle, ze_kernel_indirect_access_flags_t flags)
{
    ENTER(zeKernelSetIndirectAccess);
    FIND(standin_kernel, kernel, handle, STANDIN_KERNEL);
    (void)flags; /* the CPU reaches everything */
    return STANDIN_OK;
}

ENTRY(zeKernelGetProperties)(ze_kernel_handle_t handle, ze_kernel_properties_t *out)
{
    ENTER(zeKernelGetProperties);
    NEED(out);
    FIND(standin_kernel, kernel, handle, STANDIN_KERNEL);
    cl_ulong shared = 0, private_bytes = 0;
    (void)clGetKernelWorkGroupInfo(kernel->kernel, standin_cl.device, CL_KERNEL_LOCAL_MEM_SIZE, 8, &shared, NULL);
    (void)clGetKernelWorkGroupInfo(kernel->kernel, standin_cl.device, CL_KERNEL_PRIVATE_MEM_SIZE, 8, &private_bytes,
                                   NULL);
    void *next = out->pNext;
    *out = (ze_kernel_properties_t){.stype = out->stype,
                                    .pNext = next,
                                    .numKernelArgs = kernel->info->argument_count,
                                    .requiredGroupSizeX = kernel->info->required_group[0],
                                    .requiredGroupSizeY = kernel->info->required_group[1],
                                    .requiredGroupSizeZ = kernel->info->required_group[2],
                                    .requiredSubgroupSize = kernel->info->required_subgroup,
                                    .maxSubgroupSize =
                                        kernel->info->required_subgroup ? kernel->info->required_subgroup : 16,
                                    .maxNumSubgroups = 64,
                                    .localMemSize = (uint32_t)shared,
                                    .privateMemSize = (uint32_t)private_bytes};
    return STANDIN_OK;
}

/* ------------------------------------------------------------------- launch */

static cl_int set_argument(const standin_kernel *kernel, uint32_t index, const standin_value *value)
{
    void *pointer;
    switch (kernel->info->arguments[index].kind) {
    case STANDIN_ARGUMENT_POINTER:
        memcpy(&pointer, value->data, sizeof pointer);
        return clSetKernelArgSVMPointer(kernel->kernel, index, pointer);
    case STANDIN_ARGUMENT_LOCAL: return clSetKernelArg(kernel->kernel, index, value->bytes, NULL);
    default: return clSetKernelArg(kernel->kernel, index, value->bytes, value->data);
    }
}

static bool still_lives(const standin_kernel *kernel, uint32_t index, const standin_value *value)
{
    void *pointer;
    memcpy(&pointer, value->data, sizeof pointer);
    const standin_memory *m = standin_memory_of(pointer);
    if (!value->memory_id || (m && m->id == value->memory_id)) return true;
    (void)standin_complain(STANDIN_OK, "kernel %s runs after the memory of its argument %u was freed",
                           kernel->info->name, index);
    return false;
}

bool standin_kernel_run(const standin_kernel *kernel, const standin_value *values, const standin_device *device,
                        const uint32_t group[3], const ze_group_count_t *groups)
{
    const size_t local[3] = {group[0], group[1], group[2]};
    const size_t global[3] = {local[0] * groups->groupCountX, local[1] * groups->groupCountY,
                              local[2] * groups->groupCountZ};
    cl_int error = 0;
    if (kernel->object.kind != STANDIN_KERNEL || kernel->module->device != device) {
        (void)standin_complain(STANDIN_OK, "a launch runs after its kernel was destroyed, or on another device");
        return false;
    }
    for (uint32_t i = 0; i < kernel->info->argument_count && !error; i++) {
        if (kernel->info->arguments[i].kind == STANDIN_ARGUMENT_POINTER && !still_lives(kernel, i, &values[i]))
            return false;
        error = set_argument(kernel, i, &values[i]);
    }
    if (!error && global[0] && global[1] && global[2])
        error = clEnqueueNDRangeKernel(standin_cl.queue, kernel->kernel, 3, NULL, global, local, 0, NULL, NULL);
    if (!error) error = clFinish(standin_cl.queue);
    if (error) (void)standin_complain(STANDIN_OK, "kernel %s: OpenCL error %d", kernel->info->name, error);
    return !error;
}
