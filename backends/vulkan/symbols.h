/* SPDX-License-Identifier: Apache-2.0 */
/* symbols.h - the Vulkan functions that the plug-in uses, as one table per level of dispatch.
 *
 * Nothing links against libvulkan: loader.c gets vkGetInstanceProcAddr with dlsym and everything else through it. A
 * function is called only through these tables, by the macros of internal.h, so that each result is checked and each
 * call can be made to fail by tests. All are core Vulkan 1.2, except where marked optional. */
#ifndef TERN_BACKENDS_VULKAN_SYMBOLS_H
#define TERN_BACKENDS_VULKAN_SYMBOLS_H

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan.h>

/* Before there is an instance. */
#define VULKAN_GLOBAL_SYMBOLS(SYMBOL)                                                                                  \
    SYMBOL(EnumerateInstanceVersion)                                                                                   \
    SYMBOL(EnumerateInstanceLayerProperties)                                                                           \
    SYMBOL(CreateInstance)

#define VULKAN_INSTANCE_SYMBOLS(SYMBOL)                                                                                \
    SYMBOL(DestroyInstance)                                                                                            \
    SYMBOL(EnumeratePhysicalDevices)                                                                                   \
    SYMBOL(EnumerateDeviceExtensionProperties)                                                                         \
    SYMBOL(GetPhysicalDeviceProperties2)                                                                               \
    SYMBOL(GetPhysicalDeviceFeatures2)                                                                                 \
    SYMBOL(GetPhysicalDeviceMemoryProperties2)                                                                         \
    SYMBOL(GetPhysicalDeviceQueueFamilyProperties)                                                                     \
    SYMBOL(CreateDevice)                                                                                               \
    SYMBOL(GetDeviceProcAddr)

/* Of VK_EXT_debug_utils: only in instances created with validation. */
#define VULKAN_DEBUG_SYMBOLS(SYMBOL)                                                                                   \
    SYMBOL(CreateDebugUtilsMessengerEXT)                                                                               \
    SYMBOL(DestroyDebugUtilsMessengerEXT)

#define VULKAN_DEVICE_SYMBOLS(SYMBOL)                                                                                  \
    SYMBOL(DestroyDevice)                                                                                              \
    SYMBOL(GetDeviceQueue)                                                                                             \
    SYMBOL(CreateBuffer)                                                                                               \
    SYMBOL(DestroyBuffer)                                                                                              \
    SYMBOL(GetBufferMemoryRequirements)                                                                                \
    SYMBOL(AllocateMemory)                                                                                             \
    SYMBOL(FreeMemory)                                                                                                 \
    SYMBOL(BindBufferMemory)                                                                                           \
    SYMBOL(MapMemory)                                                                                                  \
    SYMBOL(GetBufferDeviceAddress)                                                                                     \
    SYMBOL(CreateShaderModule)                                                                                         \
    SYMBOL(DestroyShaderModule)                                                                                        \
    SYMBOL(CreatePipelineCache)                                                                                        \
    SYMBOL(GetPipelineCacheData)                                                                                       \
    SYMBOL(DestroyPipelineCache)                                                                                       \
    SYMBOL(CreateDescriptorSetLayout)                                                                                  \
    SYMBOL(DestroyDescriptorSetLayout)                                                                                 \
    SYMBOL(CreatePipelineLayout)                                                                                       \
    SYMBOL(DestroyPipelineLayout)                                                                                      \
    SYMBOL(CreateComputePipelines)                                                                                     \
    SYMBOL(DestroyPipeline)                                                                                            \
    SYMBOL(CreateDescriptorPool)                                                                                       \
    SYMBOL(DestroyDescriptorPool)                                                                                      \
    SYMBOL(AllocateDescriptorSets)                                                                                     \
    SYMBOL(UpdateDescriptorSets)                                                                                       \
    SYMBOL(CreateCommandPool)                                                                                          \
    SYMBOL(DestroyCommandPool)                                                                                         \
    SYMBOL(AllocateCommandBuffers)                                                                                     \
    SYMBOL(BeginCommandBuffer)                                                                                         \
    SYMBOL(EndCommandBuffer)                                                                                           \
    SYMBOL(CreateQueryPool)                                                                                            \
    SYMBOL(DestroyQueryPool)                                                                                           \
    SYMBOL(GetQueryPoolResults)                                                                                        \
    SYMBOL(CreateSemaphore)                                                                                            \
    SYMBOL(DestroySemaphore)                                                                                           \
    SYMBOL(WaitSemaphores)                                                                                             \
    SYMBOL(QueueSubmit)                                                                                                \
    SYMBOL(CmdPipelineBarrier)                                                                                         \
    SYMBOL(CmdBindPipeline)                                                                                            \
    SYMBOL(CmdBindDescriptorSets)                                                                                      \
    SYMBOL(CmdPushConstants)                                                                                           \
    SYMBOL(CmdDispatch)                                                                                                \
    SYMBOL(CmdCopyBuffer)                                                                                              \
    SYMBOL(CmdFillBuffer)                                                                                              \
    SYMBOL(CmdResetQueryPool)                                                                                          \
    SYMBOL(CmdWriteTimestamp)

#define VULKAN_POINTER(name) PFN_vk##name name;
typedef struct vulkan_global_table {
    VULKAN_GLOBAL_SYMBOLS(VULKAN_POINTER)
} vulkan_global_table;
typedef struct vulkan_instance_table {
    VULKAN_INSTANCE_SYMBOLS(VULKAN_POINTER)
    VULKAN_DEBUG_SYMBOLS(VULKAN_POINTER)
} vulkan_instance_table;
typedef struct vulkan_device_table {
    VULKAN_DEVICE_SYMBOLS(VULKAN_POINTER)
} vulkan_device_table;
#undef VULKAN_POINTER

#endif
