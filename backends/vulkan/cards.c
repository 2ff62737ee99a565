/* SPDX-License-Identifier: Apache-2.0 */
/* cards.c - what devices there are, what they can do and what they must not be asked.
 *
 * Not the place where anything is enabled: device.c does that from the same vulkan_card. One card seen under two
 * drivers' files has one UUID and is listed once, the first time. The order is the loader's, so an index means the
 * same card in every instance of a process. */
#include "backends/vulkan/internal.h"

#include "core/base/hash.h"
#include "core/base/uuid.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Tensors start here at least: a cache line, whatever smaller alignment a driver allows for descriptors. */
#define ARENA_ALIGNMENT 64u
/* llvmpipe guards against endless shaders: a counter of all loops together, measured with Mesa 22.3. */
#define LLVMPIPE_LOOP_TURNS 65535u
/* A window onto device memory larger than this is a resizable bar. */
#define PLAIN_BAR_BYTES (256ull << 20)

typedef struct card_properties {
    VkPhysicalDeviceProperties2 base;
    VkPhysicalDeviceVulkan11Properties v11;
    VkPhysicalDeviceVulkan12Properties v12;
    VkPhysicalDevicePCIBusInfoPropertiesEXT pci;
    VkPhysicalDeviceMaintenance4Properties maintenance4;
    VkPhysicalDeviceSubgroupSizeControlProperties subgroup;
} card_properties;

static tern_status read_extensions(const vulkan_instance *instance, vulkan_card *card)
{
    tern_status status = TERN_OK;
    uint32_t count = 0;
    VkExtensionProperties *list = NULL;
    VULKAN_TRY(NULL, instance->vk, EnumerateDeviceExtensionProperties, card->handle, NULL, &count, NULL);
    if (count == 0) return TERN_OK;
    list = calloc(count, sizeof *list);
    if (!list) return tern_error_memory("the list of Vulkan extensions", count * sizeof *list);
    VULKAN_TRY(NULL, instance->vk, EnumerateDeviceExtensionProperties, card->handle, NULL, &count, list);
    const struct {
        const char *name;
        bool *present;
    } wanted[] = {
        {VK_EXT_MEMORY_BUDGET_EXTENSION_NAME, &card->budget},
        {VK_EXT_PCI_BUS_INFO_EXTENSION_NAME, &card->pci},
        {VK_KHR_MAINTENANCE_4_EXTENSION_NAME, &card->maintenance4},
        {VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME, &card->size_control},
        {"VK_KHR_cooperative_matrix", &card->cooperative_matrix}, /* older headers lack the name */
    };
    for (uint32_t i = 0; i < count; i++)
        for (size_t k = 0; k < sizeof wanted / sizeof *wanted; k++)
            if (strcmp(list[i].extensionName, wanted[k].name) == 0) *wanted[k].present = true;
fail:
    free(list);
    return status;
}

/* Chains only what the device knows, for a driver may not skip a structure it has never heard of. */
static void read_properties(const vulkan_instance *instance, const vulkan_card *card, card_properties *out)
{
    *out = (card_properties){
        .base = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2},
        .v11 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES},
        .v12 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES},
        .pci = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PCI_BUS_INFO_PROPERTIES_EXT},
        .maintenance4 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES},
        .subgroup = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES},
    };
    void **next = &out->base.pNext;
    *next = &out->v11, next = &out->v11.pNext;
    *next = &out->v12, next = &out->v12.pNext;
    if (card->pci) *next = &out->pci, next = &out->pci.pNext;
    if (card->maintenance4) *next = &out->maintenance4, next = &out->maintenance4.pNext;
    if (card->size_control) *next = &out->subgroup;
    instance->vk.GetPhysicalDeviceProperties2(card->handle, &out->base);
}

static tern_device_kind device_kind(VkPhysicalDeviceType type)
{
    switch (type) {
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU:
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU: /* a slice of a card, passed through */ return TERN_DEVICE_DISCRETE_GPU;
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU: return TERN_DEVICE_INTEGRATED_GPU;
    default: return TERN_DEVICE_SOFTWARE_GPU;
    }
}

static void fill_identity(vulkan_card *card, const card_properties *p)
{
    const VkPhysicalDeviceProperties *base = &p->base.properties;
    tern_device_info *info = &card->info;
    (void)snprintf(info->name, sizeof info->name, "%s", base->deviceName);
    (void)snprintf(info->driver, sizeof info->driver, "%.120s %.120s", p->v12.driverName, p->v12.driverInfo);
    tern_uuid_print(p->v11.deviceUUID, info->uuid);
    if (card->pci)
        (void)snprintf(info->pci, sizeof info->pci, "%04x:%02x:%02x.%x", p->pci.pciDomain & 0xffffu,
                       p->pci.pciBus & 0xffu, p->pci.pciDevice & 0xffu, p->pci.pciFunction & 0xfu);
    info->vendor_id = base->vendorID;
    info->device_id = base->deviceID;
    info->kind = device_kind(base->deviceType);
    uint64_t key = tern_hash(TERN_HASH_START, p->v11.deviceUUID, VK_UUID_SIZE);
    key = tern_hash(key, p->v11.driverUUID, VK_UUID_SIZE);
    key = tern_hash(key, base->pipelineCacheUUID, VK_UUID_SIZE);
    const uint32_t words[] = {base->vendorID, base->deviceID, base->driverVersion};
    card->key = tern_hash(key, words, sizeof words);
}

static void fill_limits(vulkan_card *card, const card_properties *p)
{
    const VkPhysicalDeviceLimits *limits = &p->base.properties.limits;
    tern_device_info *info = &card->info;
    card->limits = *limits;
    info->max_allocation_bytes = p->v11.maxMemoryAllocationSize;
    info->max_buffer_bytes = card->maintenance4 ? p->maintenance4.maxBufferSize : info->max_allocation_bytes;
    info->max_binding_bytes = limits->maxStorageBufferRange;
    for (int i = 0; i < 3; i++) info->max_groups[i] = limits->maxComputeWorkGroupCount[i];
    info->max_group_size = limits->maxComputeWorkGroupInvocations;
    if (limits->maxComputeWorkGroupSize[0] < info->max_group_size)
        info->max_group_size = limits->maxComputeWorkGroupSize[0];
    info->shared_bytes = limits->maxComputeSharedMemorySize;
    info->subgroup_min = card->size_control ? p->subgroup.minSubgroupSize : p->v11.subgroupSize;
    info->subgroup_max = card->size_control ? p->subgroup.maxSubgroupSize : p->v11.subgroupSize;
    uint64_t alignment = limits->minStorageBufferOffsetAlignment;
    info->offset_alignment = alignment > ARENA_ALIGNMENT ? (uint32_t)alignment : ARENA_ALIGNMENT;
    if (p->v12.driverID == VK_DRIVER_ID_MESA_LLVMPIPE) info->max_loop_turns = LLVMPIPE_LOOP_TURNS;
    if (info->kind == TERN_DEVICE_SOFTWARE_GPU) {
        long processors = sysconf(_SC_NPROCESSORS_ONLN);
        info->threads = processors > 0 ? (uint32_t)processors : 1;
    }
}

static void fill_memory(const vulkan_instance *instance, vulkan_card *card)
{
    VkPhysicalDeviceMemoryProperties2 memory = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
    instance->vk.GetPhysicalDeviceMemoryProperties2(card->handle, &memory);
    card->memory = memory.memoryProperties;
    tern_device_info *info = &card->info;
    for (uint32_t i = 0; i < card->memory.memoryHeapCount; i++) {
        const VkMemoryHeap *heap = &card->memory.memoryHeaps[i];
        if ((heap->flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) && heap->size > info->memory_bytes)
            info->memory_bytes = heap->size;
    }
    const VkMemoryPropertyFlags window = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT | VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT;
    for (uint32_t i = 0; i < card->memory.memoryTypeCount && info->kind == TERN_DEVICE_DISCRETE_GPU; i++) {
        const VkMemoryType *type = &card->memory.memoryTypes[i];
        if ((type->propertyFlags & window) == window &&
            card->memory.memoryHeaps[type->heapIndex].size > PLAIN_BAR_BYTES)
            info->features |= TERN_FEATURE_RESIZABLE_BAR;
    }
    uint64_t budget = vulkan_card_budget(instance, card);
    info->memory_free_bytes = card->budget ? budget : info->memory_bytes;
}

uint64_t vulkan_card_budget(const vulkan_instance *instance, const vulkan_card *card)
{
    if (!card->budget) return 0;
    VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
    VkPhysicalDeviceMemoryProperties2 memory = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2,
                                                .pNext = &budget};
    instance->vk.GetPhysicalDeviceMemoryProperties2(card->handle, &memory);
    uint64_t free_bytes = 0;
    for (uint32_t i = 0; i < memory.memoryProperties.memoryHeapCount; i++) {
        if (!(memory.memoryProperties.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT)) continue;
        if (budget.heapBudget[i] <= budget.heapUsage[i]) continue;
        uint64_t left = budget.heapBudget[i] - budget.heapUsage[i];
        if (left > free_bytes) free_bytes = left;
    }
    return free_bytes;
}

static void fill_features(const vulkan_instance *instance, vulkan_card *card, const card_properties *p)
{
    VkPhysicalDeviceVulkan12Features v12 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES};
    VkPhysicalDeviceVulkan11Features v11 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES,
                                            .pNext = &v12};
    VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &v11};
    instance->vk.GetPhysicalDeviceFeatures2(card->handle, &features);
    tern_device_info *info = &card->info;
    info->features |= TERN_FEATURE_RENDERS;
    if (v11.storageBuffer16BitAccess) info->features |= TERN_FEATURE_STORAGE_16;
    if (v12.storageBuffer8BitAccess) info->features |= TERN_FEATURE_STORAGE_8;
    if (v12.shaderFloat16) info->features |= TERN_FEATURE_ARITHMETIC_F16;
    if (v12.bufferDeviceAddress) info->features |= TERN_FEATURE_BUFFER_ADDRESS;
    const VkSubgroupFeatureFlags groups =
        VK_SUBGROUP_FEATURE_BASIC_BIT | VK_SUBGROUP_FEATURE_ARITHMETIC_BIT | VK_SUBGROUP_FEATURE_SHUFFLE_BIT;
    if ((p->v11.subgroupSupportedOperations & groups) == groups &&
        (p->v11.subgroupSupportedStages & VK_SHADER_STAGE_COMPUTE_BIT))
        info->features |= TERN_FEATURE_SUBGROUPS;
    if (info->kind == TERN_DEVICE_INTEGRATED_GPU || info->kind == TERN_DEVICE_SOFTWARE_GPU)
        info->features |= TERN_FEATURE_UNIFIED_MEMORY;
    if (info->kind == TERN_DEVICE_SOFTWARE_GPU) info->features |= TERN_FEATURE_REGISTER_TILES;
    if (card->timestamp_bits > 0) info->features |= TERN_FEATURE_TIMESTAMPS;
    card->arithmetic_8 = v12.shaderInt8;
    card->arithmetic_16 = features.features.shaderInt16;
}

/* A family that computes only leaves the desktop its own queue; else the first that computes. */
static tern_status choose_queue(const vulkan_instance *instance, vulkan_card *card, bool *out_found)
{
    uint32_t count = 0;
    *out_found = false;
    instance->vk.GetPhysicalDeviceQueueFamilyProperties(card->handle, &count, NULL);
    VkQueueFamilyProperties *families = calloc(count ? count : 1, sizeof *families);
    if (!families) return tern_error_memory("the list of Vulkan queues", count * sizeof *families);
    instance->vk.GetPhysicalDeviceQueueFamilyProperties(card->handle, &count, families);
    for (uint32_t i = 0; i < count; i++) {
        bool computes_only = !(families[i].queueFlags & VK_QUEUE_GRAPHICS_BIT);
        if (!(families[i].queueFlags & VK_QUEUE_COMPUTE_BIT) || (*out_found && !computes_only)) continue;
        card->queue_family = i;
        card->timestamp_bits = families[i].timestampValidBits;
        *out_found = true;
        if (computes_only) break;
    }
    free(families);
    return TERN_OK;
}

/* *out_fits: of Vulkan 1.2 or later and able to compute. */
static tern_status card_read(const vulkan_instance *instance, VkPhysicalDevice handle, vulkan_card *out_card,
                             bool *out_fits)
{
    tern_status status = TERN_OK;
    *out_card = (vulkan_card){.handle = handle};
    VkPhysicalDeviceProperties2 version = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
    instance->vk.GetPhysicalDeviceProperties2(handle, &version);
    *out_fits = version.properties.apiVersion >= VK_API_VERSION_1_2;
    if (!*out_fits) return TERN_OK;
    TERN_TRY(choose_queue(instance, out_card, out_fits));
    TERN_TRY(read_extensions(instance, out_card));
    card_properties properties;
    read_properties(instance, out_card, &properties);
    fill_identity(out_card, &properties);
    fill_limits(out_card, &properties);
    fill_memory(instance, out_card);
    fill_features(instance, out_card, &properties);
    TERN_TRY(vulkan_matrix_read(instance, out_card));
fail:
    return status;
}

tern_status vulkan_cards_list(const vulkan_instance *instance, vulkan_card **out_cards, uint32_t *out_count,
                              uint32_t *out_old)
{
    tern_status status = TERN_OK;
    VkPhysicalDevice *handles = NULL;
    vulkan_card *cards = NULL;
    uint32_t handle_count = 0, count = 0, old = 0;
    VkResult result;
    VULKAN_CALL(result, instance->vk, EnumeratePhysicalDevices, instance->handle, &handle_count, NULL);
    /* So says the loader, or RADV, where drivers are installed and none finds a card. */
    if (result == VK_ERROR_INITIALIZATION_FAILED)
        handle_count = 0;
    else
        TERN_TRY(vulkan_check(NULL, "vkEnumeratePhysicalDevices", result));
    handles = calloc(handle_count ? handle_count : 1, sizeof *handles);
    cards = calloc(handle_count ? handle_count : 1, sizeof *cards);
    if (!handles || !cards) {
        status = tern_error_memory("the list of Vulkan devices", handle_count * (sizeof *handles + sizeof *cards));
        goto fail;
    }
    if (handle_count > 0)
        VULKAN_TRY(NULL, instance->vk, EnumeratePhysicalDevices, instance->handle, &handle_count, handles);
    for (uint32_t i = 0; i < handle_count; i++) {
        bool fits;
        TERN_TRY(card_read(instance, handles[i], &cards[count], &fits));
        bool known = false;
        for (uint32_t k = 0; k < count && fits; k++)
            known = known || strcmp(cards[k].info.uuid, cards[count].info.uuid) == 0;
        if (fits && !known) count++;
        if (!fits) old++;
    }
    free(handles);
    *out_cards = cards;
    *out_count = count;
    *out_old = old;
    return TERN_OK;
fail:
    free(handles);
    free(cards);
    return status;
}

tern_status vulkan_device_count(uint32_t *out_count)
{
    tern_status status = TERN_OK;
    const vulkan_instance *instance;
    vulkan_card *cards = NULL;
    uint32_t count, old;
    TERN_TRY(vulkan_loaded_instance(&instance));
    TERN_TRY(vulkan_cards_list(instance, &cards, &count, &old));
    free(cards);
    if (count == 0 && old > 0)
        (void)tern_error(TERN_OK,
                         "%u Vulkan device(s) found, none of Vulkan 1.2 with a compute queue; update the driver", old);
    else if (count == 0)
        (void)tern_error(TERN_OK,
                         "Vulkan drivers are installed but none found a card it knows; install the card's own driver "
                         "and check that this user may open /dev/dri/renderD*");
    *out_count = count;
fail:
    return status;
}

/* The card at an index of device_count's; names the range when there is none. */
static tern_status card_at(uint32_t index, vulkan_card *out_card)
{
    tern_status status = TERN_OK;
    const vulkan_instance *instance;
    vulkan_card *cards = NULL;
    uint32_t count, old;
    TERN_TRY(vulkan_loaded_instance(&instance));
    TERN_TRY(vulkan_cards_list(instance, &cards, &count, &old));
    if (index < count)
        *out_card = cards[index];
    else
        status =
            tern_error(TERN_ERROR_NOT_FOUND, "there is no Vulkan device %u: %u found, counted from 0", index, count);
fail:
    free(cards);
    return status;
}

tern_status vulkan_device_info(uint32_t index, tern_device_info *out_info)
{
    vulkan_card card = {0};
    tern_status status = card_at(index, &card);
    if (status == TERN_OK) *out_info = card.info;
    return status;
}

tern_status vulkan_device_notes(uint32_t index, char *out_text, size_t bytes)
{
    vulkan_card card = {0};
    tern_status status = card_at(index, &card);
    if (status < 0) return status;
    (void)snprintf(out_text, bytes,
                   "free memory %s\nlargest buffer %s\nqueue family %u, timestamps of %u bits\n8-bit storage %s\n"
                   "matrix units %s",
                   card.budget ? "told by the driver (VK_EXT_memory_budget)" : "unknown to the driver, taken as all",
                   card.maintenance4 ? "told by the driver (VK_KHR_maintenance4)" : "taken as the largest allocation",
                   card.queue_family, card.timestamp_bits, card.info.features & TERN_FEATURE_STORAGE_8 ? "yes" : "no",
                   vulkan_matrix_note(&card));
    return TERN_OK;
}
