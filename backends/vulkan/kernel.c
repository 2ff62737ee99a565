/* SPDX-License-Identifier: Apache-2.0 */
/* kernel.c - a kernel's pipelines, one per form of its arguments.
 *
 *     bindings    storage buffer i of set 0 is tensor i; push constants: words, then element offsets
 *     addresses   push constants: device addresses, then words
 *
 * Bindings are built with the kernel: they are the faster form on software devices and the only one that validation
 * sees through. Addresses are built when a program first binds a range beyond maxStorageBufferRange, or where a device
 * has too few bindings. Every limit is checked here, for some drivers die on what they do not support. */
#include "backends/vulkan/internal.h"

#include "core/base/dtype.h"

#include <stdlib.h>
#include <string.h>

static tern_status check_group(const tern_backend_device *device, const tern_kernel_desc *desc)
{
    const VkPhysicalDeviceLimits *limits = &device->card.limits;
    const uint32_t *group = desc->variant.group;
    uint64_t invocations = 1;
    for (int i = 0; i < 3; i++) {
        if (group[i] == 0 || group[i] > limits->maxComputeWorkGroupSize[i])
            return tern_error(
                TERN_ERROR_UNSUPPORTED,
                "work-group size %u on axis %d is outside 1 to %u (maxComputeWorkGroupSize); choose another variant",
                group[i], i, limits->maxComputeWorkGroupSize[i]);
        invocations *= group[i];
    }
    if (invocations > limits->maxComputeWorkGroupInvocations)
        return tern_error(TERN_ERROR_UNSUPPORTED,
                          "a work-group of %llu exceeds %u (maxComputeWorkGroupInvocations); choose another variant",
                          (unsigned long long)invocations, limits->maxComputeWorkGroupInvocations);
    if (desc->variant.shared_bytes > limits->maxComputeSharedMemorySize)
        return tern_error(TERN_ERROR_UNSUPPORTED,
                          "%u bytes of shared memory exceed %u (maxComputeSharedMemorySize); choose another variant",
                          desc->variant.shared_bytes, limits->maxComputeSharedMemorySize);
    return TERN_OK;
}

static tern_status check_tensors(const tern_backend_device *device, const tern_kernel_desc *desc)
{
    if (!desc->render || desc->tensor_count == 0 || desc->tensor_count > TERN_TAPE_TENSORS ||
        desc->word_count > TERN_KERNEL_WORDS)
        return tern_error(
            TERN_ERROR_INVALID,
            "a kernel needs a renderer, 1 to %d tensors and at most %d words; it has %u tensors and %u words",
            TERN_TAPE_TENSORS, TERN_KERNEL_WORDS, desc->tensor_count, desc->word_count);
    const uint32_t bytes = 8 * desc->tensor_count + 4 * desc->word_count;
    if (bytes > VULKAN_PUSH_BYTES)
        return tern_error(TERN_ERROR_UNSUPPORTED,
                          "%u tensors and %u words take %u bytes of %u bytes of push constants; split the kernel",
                          desc->tensor_count, desc->word_count, bytes, VULKAN_PUSH_BYTES);
    for (uint32_t i = 0; i < desc->tensor_count; i++) {
        const tern_dtype_info *dtype = tern_dtype(desc->tensors[i].dtype);
        if (!dtype)
            return tern_error(TERN_ERROR_INVALID, "tensor %u has the unknown dtype %d; use one of tern.h", i,
                              desc->tensors[i].dtype);
        const bool there = dtype->bytes >= 4 ||
                           (dtype->bytes == 2 && (device->card.info.features & TERN_FEATURE_STORAGE_16)) ||
                           (dtype->bytes == 1 && (device->card.info.features & TERN_FEATURE_STORAGE_8));
        if (!there)
            return tern_error(
                TERN_ERROR_UNSUPPORTED,
                "%s cannot load and store %s (tensor %u), for it has no %u-bit storage; use f32, i32 or u32",
                device->card.info.name, dtype->name, i, 8 * dtype->bytes);
    }
    return TERN_OK;
}

/* The desc with its own tape, since the caller's may go. */
static tern_status desc_copy(const tern_kernel_desc *from, tern_kernel_desc *to)
{
    *to = *from;
    const size_t access_bytes = from->tape.access_count * sizeof *from->tape.access;
    const size_t insn_bytes = from->tape.insn_count * sizeof *from->tape.insn;
    to->tape.access = malloc(access_bytes ? access_bytes : 1);
    to->tape.insn = malloc(insn_bytes ? insn_bytes : 1);
    if (!to->tape.access || !to->tape.insn) return tern_error_memory("a kernel's tape", access_bytes + insn_bytes);
    if (access_bytes) memcpy(to->tape.access, from->tape.access, access_bytes);
    if (insn_bytes) memcpy(to->tape.insn, from->tape.insn, insn_bytes);
    return TERN_OK;
}

static tern_status create_set_layout(tern_backend_device *device, tern_backend_kernel *kernel)
{
    tern_status status = TERN_OK;
    VkDescriptorSetLayoutBinding bindings[TERN_TAPE_TENSORS];
    for (uint32_t i = 0; i < kernel->desc.tensor_count; i++)
        bindings[i] = (VkDescriptorSetLayoutBinding){
            .binding = i,
            .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
            .descriptorCount = 1,
            .stageFlags = VK_SHADER_STAGE_COMPUTE_BIT,
        };
    VkDescriptorSetLayoutCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
        .bindingCount = kernel->desc.tensor_count,
        .pBindings = bindings,
    };
    VULKAN_TRY(device, device->vk, CreateDescriptorSetLayout, device->logical, &info, NULL, &kernel->set_layout);
fail:
    return status;
}

static tern_status create_layout(tern_backend_device *device, tern_backend_kernel *kernel, bool addresses,
                                 VkPipelineLayout *out_layout)
{
    tern_status status = TERN_OK;
    const VkPushConstantRange range = {
        .stageFlags = VK_SHADER_STAGE_COMPUTE_BIT,
        .size = 4 * kernel->desc.word_count + (addresses ? 8u : 4u) * kernel->desc.tensor_count,
    };
    VkPipelineLayoutCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
        .setLayoutCount = addresses ? 0 : 1,
        .pSetLayouts = &kernel->set_layout,
        .pushConstantRangeCount = 1,
        .pPushConstantRanges = &range,
    };
    VULKAN_TRY(device, device->vk, CreatePipelineLayout, device->logical, &info, NULL, out_layout);
fail:
    return status;
}

/* Renders, compiles and builds. What is made stays in *pipeline, also on failure; vulkan_kernel_destroy frees it. */
static tern_status build(tern_backend_device *device, tern_backend_kernel *kernel, bool addresses,
                         vulkan_pipeline *pipeline)
{
    tern_status status = TERN_OK;
    tern_source source = {0};
    uint32_t *words = NULL;
    size_t bytes = 0;
    VkShaderModule module = VK_NULL_HANDLE;
    TERN_TRY(kernel->desc.render(&kernel->desc, TERN_DIALECT_GLSL, addresses, &source));
    TERN_TRY(vulkan_compile(source.text, source.bytes, &words, &bytes));
    if (!addresses && !kernel->set_layout) TERN_TRY(create_set_layout(device, kernel));
    if (!pipeline->layout) TERN_TRY(create_layout(device, kernel, addresses, &pipeline->layout));
    VkShaderModuleCreateInfo code = {
        .sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, .codeSize = bytes, .pCode = words};
    VULKAN_TRY(device, device->vk, CreateShaderModule, device->logical, &code, NULL, &module);
    VkPipelineShaderStageRequiredSubgroupSizeCreateInfo subgroup;
    VkComputePipelineCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                  .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                  .module = module,
                  .pName = source.entry[0] ? source.entry : "main"},
        .layout = pipeline->layout,
    };
    vulkan_matrix_stage(&device->card, &kernel->desc, &subgroup, &info.stage);
    VULKAN_TRY(device, device->vk, CreateComputePipelines, device->logical, device->pipelines, 1, &info, NULL,
               &pipeline->handle);
    device->pipelines_built = true;
fail:
    if (module) device->vk.DestroyShaderModule(device->logical, module, NULL);
    free(words);
    free(source.text);
    return status;
}

tern_status vulkan_kernel_form(tern_backend_device *device, tern_backend_kernel *kernel, bool addresses,
                               const vulkan_pipeline **out_pipeline)
{
    tern_status status = TERN_OK;
    vulkan_pipeline *pipeline = addresses ? &kernel->addresses : &kernel->bindings;
    (void)pthread_mutex_lock(&device->kernel_lock);
    if (!pipeline->handle) status = build(device, kernel, addresses, pipeline);
    (void)pthread_mutex_unlock(&device->kernel_lock);
    if (status < 0) return tern_error_prefix(status, "kernel %s", kernel->desc.label);
    *out_pipeline = pipeline;
    return TERN_OK;
}

tern_status vulkan_kernel_create(tern_backend_device *device, const tern_kernel_desc *desc,
                                 tern_backend_kernel **out_kernel)
{
    tern_status status = TERN_OK;
    tern_backend_kernel *kernel = NULL;
    const vulkan_pipeline *unused;
    TERN_TRY(vulkan_enter(device));
    status = check_tensors(device, desc);
    if (status == TERN_OK) status = check_group(device, desc);
    if (status == TERN_OK) status = vulkan_matrix_check(&device->card, desc);
    if (status < 0) return tern_error_prefix(status, "kernel %s", desc->label);
    kernel = calloc(1, sizeof *kernel);
    if (!kernel) return tern_error_memory("a Vulkan kernel", sizeof *kernel);
    TERN_TRY(desc_copy(desc, &kernel->desc));
    const uint32_t bindings = device->card.limits.maxPerStageDescriptorStorageBuffers;
    kernel->addresses_only = device->addresses || desc->tensor_count > bindings;
    if (kernel->addresses_only && !(device->card.info.features & TERN_FEATURE_BUFFER_ADDRESS)) {
        status = tern_error(
            TERN_ERROR_UNSUPPORTED,
            "%u tensors exceed the %u bindings of %s, which has no buffer device addresses; split the kernel",
            desc->tensor_count, bindings, device->card.info.name);
        goto fail;
    }
    TERN_TRY(vulkan_kernel_form(device, kernel, kernel->addresses_only, &unused));
    *out_kernel = kernel;
    return TERN_OK;
fail:
    vulkan_kernel_destroy(device, kernel);
    return status;
}

void vulkan_kernel_destroy(tern_backend_device *device, tern_backend_kernel *kernel)
{
    if (!kernel) return;
    if (!vulkan_is_foreign(device)) {
        vulkan_pipeline *forms[] = {&kernel->bindings, &kernel->addresses};
        for (int i = 0; i < 2; i++) {
            if (forms[i]->handle) device->vk.DestroyPipeline(device->logical, forms[i]->handle, NULL);
            if (forms[i]->layout) device->vk.DestroyPipelineLayout(device->logical, forms[i]->layout, NULL);
        }
        if (kernel->set_layout) device->vk.DestroyDescriptorSetLayout(device->logical, kernel->set_layout, NULL);
    }
    free(kernel->desc.tape.access);
    free(kernel->desc.tape.insn);
    free(kernel);
}
