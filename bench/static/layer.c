/* SPDX-License-Identifier: Apache-2.0 */
/* layer.c - a Vulkan layer that asks the driver what it made of every compute pipeline, and writes it to a file.
 *
 *     program ── loader ── this layer ─┬─ vkCreateDevice             + VK_KHR_pipeline_executable_properties
 *                                      └─ vkCreateComputePipelines   + capture flags, without a pipeline cache
 *
 * So the plug-in is seen as it is, its features, sub-group sizes and SPIR-V included; nothing in it knows of this. The
 * file named by TERN_STATIC_PIPELINE holds the last pipeline:
 *
 *     subgroup 64
 *     stat 96 VGPRs
 *     text Assembly
 *     ...
 *
 * RADV's null hardware has no timeline semaphores; nothing is ever submitted, so a handle that is none does as well.
 *
 * What it is not: a layer for several instances of different drivers at once.
 * Source: Khronos, "Architecture of the Vulkan loader interfaces", layer interface version 2. */
#include <vulkan/vk_layer.h>
#include <vulkan/vulkan.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static VkInstance instance;
static PFN_vkGetInstanceProcAddr next_instance;
static PFN_vkGetDeviceProcAddr next_device;
static struct {
    PFN_vkCreateComputePipelines create;
    PFN_vkCreateSemaphore semaphore;
    PFN_vkGetPipelineExecutablePropertiesKHR properties;
    PFN_vkGetPipelineExecutableStatisticsKHR statistics;
    PFN_vkGetPipelineExecutableInternalRepresentationsKHR representations;
} vk;

/* The loader's links in a create info's chain have one shape for instances and devices up to `function`. */
static void *link_info(const void *chain, VkStructureType type)
{
    for (const VkLayerInstanceCreateInfo *info = chain; info; info = info->pNext)
        if (info->sType == type && info->function == VK_LAYER_LINK_INFO) return (void *)(uintptr_t)info;
    return NULL;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_instance(const VkInstanceCreateInfo *info,
                                                      const VkAllocationCallbacks *allocator, VkInstance *out_instance)
{
    VkLayerInstanceCreateInfo *link = link_info(info->pNext, VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO);
    if (!link) return VK_ERROR_INITIALIZATION_FAILED;
    next_instance = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;
    const PFN_vkCreateInstance create = (PFN_vkCreateInstance)next_instance(NULL, "vkCreateInstance");
    if (!create) return VK_ERROR_INITIALIZATION_FAILED;
    const VkResult result = create(info, allocator, out_instance);
    if (result == VK_SUCCESS) instance = *out_instance;
    return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_device(VkPhysicalDevice physical, const VkDeviceCreateInfo *info,
                                                    const VkAllocationCallbacks *allocator, VkDevice *out_device)
{
    VkLayerDeviceCreateInfo *link = link_info(info->pNext, VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO);
    if (!link) return VK_ERROR_INITIALIZATION_FAILED;
    const PFN_vkGetInstanceProcAddr get = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
    next_device = link->u.pLayerInfo->pfnNextGetDeviceProcAddr;
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;
    const PFN_vkCreateDevice create = (PFN_vkCreateDevice)get(instance, "vkCreateDevice");
    const char **names = calloc(info->enabledExtensionCount + 1u, sizeof *names);
    if (!create || !names) {
        free(names);
        return VK_ERROR_INITIALIZATION_FAILED;
    }
    for (uint32_t i = 0; i < info->enabledExtensionCount; i++) names[i] = info->ppEnabledExtensionNames[i];
    names[info->enabledExtensionCount] = VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME;
    VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR feature = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR,
        .pNext = (void *)(uintptr_t)info->pNext,
        .pipelineExecutableInfo = VK_TRUE};
    VkDeviceCreateInfo more = *info;
    more.pNext = &feature;
    more.enabledExtensionCount++;
    more.ppEnabledExtensionNames = names;
    const VkResult result = create(physical, &more, allocator, out_device);
    free(names);
    if (result != VK_SUCCESS) return result;
    vk.create = (PFN_vkCreateComputePipelines)next_device(*out_device, "vkCreateComputePipelines");
    vk.semaphore = (PFN_vkCreateSemaphore)next_device(*out_device, "vkCreateSemaphore");
    vk.properties =
        (PFN_vkGetPipelineExecutablePropertiesKHR)next_device(*out_device, "vkGetPipelineExecutablePropertiesKHR");
    vk.statistics =
        (PFN_vkGetPipelineExecutableStatisticsKHR)next_device(*out_device, "vkGetPipelineExecutableStatisticsKHR");
    vk.representations = (PFN_vkGetPipelineExecutableInternalRepresentationsKHR)next_device(
        *out_device, "vkGetPipelineExecutableInternalRepresentationsKHR");
    return result;
}

/* ------------------------------------------------------------------ writing */

static void write_statistics(FILE *file, VkDevice device, const VkPipelineExecutableInfoKHR *executable)
{
    VkPipelineExecutableStatisticKHR list[64];
    uint32_t count = 64;
    for (uint32_t i = 0; i < count; i++)
        list[i] = (VkPipelineExecutableStatisticKHR){.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR};
    if (vk.statistics(device, executable, &count, list) < 0) return;
    for (uint32_t i = 0; i < count; i++)
        if (list[i].format == VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_UINT64_KHR)
            fprintf(file, "stat %llu %s\n", (unsigned long long)list[i].value.u64, list[i].name);
}

static void write_text(FILE *file, VkDevice device, const VkPipelineExecutableInfoKHR *executable)
{
    VkPipelineExecutableInternalRepresentationKHR list[16];
    uint32_t count = 16;
    for (uint32_t i = 0; i < count; i++)
        list[i] = (VkPipelineExecutableInternalRepresentationKHR){
            .sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INTERNAL_REPRESENTATION_KHR};
    if (vk.representations(device, executable, &count, list) < 0) return;
    for (uint32_t i = 0; i < count; i++) list[i].pData = calloc(1, list[i].dataSize + 1);
    if (vk.representations(device, executable, &count, list) >= 0)
        for (uint32_t i = 0; i < count; i++)
            if (list[i].isText && list[i].pData)
                fprintf(file, "text %s\n%s\n", list[i].name, (const char *)list[i].pData);
    for (uint32_t i = 0; i < count; i++) free(list[i].pData);
}

static void write_pipeline(VkDevice device, VkPipeline pipeline)
{
    const char *path = getenv("TERN_STATIC_PIPELINE");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file) return;
    const VkPipelineInfoKHR info = {.sType = VK_STRUCTURE_TYPE_PIPELINE_INFO_KHR, .pipeline = pipeline};
    VkPipelineExecutablePropertiesKHR executable = {.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_PROPERTIES_KHR};
    uint32_t count = 1;
    if (vk.properties(device, &info, &count, &executable) >= 0 && count == 1) {
        const VkPipelineExecutableInfoKHR first = {.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR,
                                                   .pipeline = pipeline};
        fprintf(file, "subgroup %u\n", executable.subgroupSize);
        write_statistics(file, device, &first);
        write_text(file, device, &first);
    }
    fclose(file);
}

static VKAPI_ATTR VkResult VKAPI_CALL create_pipelines(VkDevice device, VkPipelineCache cache, uint32_t count,
                                                       const VkComputePipelineCreateInfo *infos,
                                                       const VkAllocationCallbacks *allocator,
                                                       VkPipeline *out_pipelines)
{
    VkResult result = VK_SUCCESS;
    (void)cache;
    for (uint32_t i = 0; i < count && result == VK_SUCCESS; i++) {
        VkComputePipelineCreateInfo info = infos[i];
        info.flags |=
            VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR | VK_PIPELINE_CREATE_CAPTURE_INTERNAL_REPRESENTATIONS_BIT_KHR;
        result = vk.create(device, VK_NULL_HANDLE, 1, &info, allocator, &out_pipelines[i]);
        if (result == VK_SUCCESS) write_pipeline(device, out_pipelines[i]);
    }
    return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_semaphore(VkDevice device, const VkSemaphoreCreateInfo *info,
                                                       const VkAllocationCallbacks *allocator,
                                                       VkSemaphore *out_semaphore)
{
    if (vk.semaphore(device, info, allocator, out_semaphore) < 0) *out_semaphore = (VkSemaphore)(uintptr_t)16;
    return VK_SUCCESS;
}

/* ----------------------------------------------------------------- dispatch */

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL device_function(VkDevice device, const char *name)
{
    if (strcmp(name, "vkGetDeviceProcAddr") == 0) return (PFN_vkVoidFunction)device_function;
    if (strcmp(name, "vkCreateComputePipelines") == 0) return (PFN_vkVoidFunction)create_pipelines;
    if (strcmp(name, "vkCreateSemaphore") == 0) return (PFN_vkVoidFunction)create_semaphore;
    return next_device ? next_device(device, name) : NULL;
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL instance_function(VkInstance of, const char *name)
{
    if (strcmp(name, "vkGetInstanceProcAddr") == 0) return (PFN_vkVoidFunction)instance_function;
    if (strcmp(name, "vkCreateInstance") == 0) return (PFN_vkVoidFunction)create_instance;
    if (strcmp(name, "vkCreateDevice") == 0) return (PFN_vkVoidFunction)create_device;
    if (strcmp(name, "vkGetDeviceProcAddr") == 0) return (PFN_vkVoidFunction)device_function;
    if (strcmp(name, "vkCreateComputePipelines") == 0) return (PFN_vkVoidFunction)create_pipelines;
    return next_instance ? next_instance(of, name) : NULL;
}

EXPORT VKAPI_ATTR VkResult VKAPI_CALL vkNegotiateLoaderLayerInterfaceVersion(VkNegotiateLayerInterface *negotiated)
{
    if (negotiated->loaderLayerInterfaceVersion > 2) negotiated->loaderLayerInterfaceVersion = 2;
    negotiated->pfnGetInstanceProcAddr = instance_function;
    negotiated->pfnGetDeviceProcAddr = device_function;
    negotiated->pfnGetPhysicalDeviceProcAddr = NULL;
    return VK_SUCCESS;
}
