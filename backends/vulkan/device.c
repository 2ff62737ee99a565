/* SPDX-License-Identifier: Apache-2.0 */
/* device.c - a device from open to close: logical device, queue, two timelines, finite waits.
 *
 *     instance ── card ── logical device ─┬─ queue (one; order of submission is order of execution)
 *                                         ├─ timeline `programs`   value = ticket << 12
 *                                         └─ timeline `transfers`  blocking copies of memory.c
 *
 * Only features that the card reports are enabled, so that a weak device opens as well as a strong one. */
#include "backends/vulkan/internal.h"

#include "core/base/log.h"
#include "core/base/time.h"

#include <stdlib.h>
#include <unistd.h>

/* One wait of the driver's; between two the device's loss shows. */
#define POLL_NS 50000000ull
/* A lost device finishes nothing more, but a driver may need a moment to let go of what it was doing. */
#define LOST_PATIENCE_NS 5000000000ull

static tern_status create_logical(tern_backend_device *device)
{
    tern_status status = TERN_OK;
    const vulkan_card *card = &device->card;
    VkPhysicalDeviceVulkan12Features v12 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
        .timelineSemaphore = VK_TRUE,
        .storageBuffer8BitAccess = (card->info.features & TERN_FEATURE_STORAGE_8) != 0,
        .shaderInt8 = card->arithmetic_8,
        .shaderFloat16 = (card->info.features & TERN_FEATURE_ARITHMETIC_F16) != 0,
        .bufferDeviceAddress = (card->info.features & TERN_FEATURE_BUFFER_ADDRESS) != 0,
        .vulkanMemoryModel = card->matrix_units,
    };
    VkPhysicalDeviceVulkan11Features v11 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES,
        .pNext = &v12,
        .storageBuffer16BitAccess = (card->info.features & TERN_FEATURE_STORAGE_16) != 0,
    };
    VkPhysicalDeviceFeatures2 features = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
        .pNext = &v11,
        .features = {.shaderInt16 = card->arithmetic_16},
    };
    const float priority = 1.0f;
    VkDeviceQueueCreateInfo queue = {
        .sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
        .queueFamilyIndex = card->queue_family,
        .queueCount = 1,
        .pQueuePriorities = &priority,
    };
    VkDeviceCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
        .pNext = &features,
        .queueCreateInfoCount = 1,
        .pQueueCreateInfos = &queue,
    };
    vulkan_matrix_features matrix;
    vulkan_matrix_enable(card, &matrix, &info);
    VULKAN_TRY(device, device->instance.vk, CreateDevice, card->handle, &info, NULL, &device->logical);
#define SYMBOL(function)                                                                                               \
    device->vk.function = (PFN_vk##function)device->instance.vk.GetDeviceProcAddr(device->logical, "vk" #function);    \
    if (!device->vk.function)                                                                                          \
        return tern_error(TERN_ERROR_DRIVER, "the driver of %s lacks vk" #function " of Vulkan 1.2; update it",        \
                          card->info.name);
    VULKAN_DEVICE_SYMBOLS(SYMBOL)
#undef SYMBOL
    device->vk.GetDeviceQueue(device->logical, card->queue_family, 0, &device->queue);
fail:
    return status;
}

static tern_status create_timeline(tern_backend_device *device, VkSemaphore *out_timeline)
{
    tern_status status = TERN_OK;
    VkSemaphoreTypeCreateInfo type = {
        .sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
        .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE,
    };
    VkSemaphoreCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, .pNext = &type};
    VULKAN_TRY(device, device->vk, CreateSemaphore, device->logical, &info, NULL, out_timeline);
fail:
    return status;
}

static tern_status create_transfer_commands(tern_backend_device *device)
{
    tern_status status = TERN_OK;
    VkCommandPoolCreateInfo pool = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
        .queueFamilyIndex = device->card.queue_family,
        .flags = VK_COMMAND_POOL_CREATE_TRANSIENT_BIT | VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
    };
    VULKAN_TRY(device, device->vk, CreateCommandPool, device->logical, &pool, NULL, &device->transfer_pool);
    VkCommandBufferAllocateInfo commands = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
        .commandPool = device->transfer_pool,
        .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
        .commandBufferCount = 1,
    };
    VULKAN_TRY(device, device->vk, AllocateCommandBuffers, device->logical, &commands, &device->transfer_commands);
fail:
    return status;
}

/* The card of that index in the device's own instance. */
static tern_status choose_card(tern_backend_device *device, uint32_t index)
{
    tern_status status = TERN_OK;
    vulkan_card *cards = NULL;
    uint32_t count, old;
    TERN_TRY(vulkan_cards_list(&device->instance, &cards, &count, &old));
    if (index < count)
        device->card = cards[index];
    else
        status =
            tern_error(TERN_ERROR_NOT_FOUND, "there is no Vulkan device %u: %u found, counted from 0", index, count);
fail:
    free(cards);
    return status;
}

tern_status vulkan_open(uint32_t index, const tern_open_options *options, tern_backend_device **out_device)
{
    tern_status status = TERN_OK;
    const vulkan_instance *instance;
    TERN_TRY(vulkan_loaded_instance(&instance));
    tern_backend_device *device = calloc(1, sizeof *device);
    if (!device) return tern_error_memory("a Vulkan device", sizeof *device);
    device->owner = getpid();
    atomic_init(&device->lost, false);
    (void)pthread_mutex_init(&device->lock, NULL);
    (void)pthread_mutex_init(&device->kernel_lock, NULL);
    bool validate = (options && options->validate) || vulkan_environment_flag("TERN_VULKAN_VALIDATE");
    status = vulkan_instance_create(validate, &device->instance);
    if (status == TERN_OK) status = choose_card(device, index);
    if (status == TERN_OK) status = create_logical(device);
    if (status == TERN_OK) status = create_timeline(device, &device->programs);
    if (status == TERN_OK) status = create_timeline(device, &device->transfers);
    if (status == TERN_OK) status = create_transfer_commands(device);
    if (status == TERN_OK) status = vulkan_pipelines_open(device);
    device->addresses = vulkan_environment_flag("TERN_VULKAN_ADDRESSES");
    device->timestamps = options && options->timestamps && device->card.timestamp_bits > 0;
    if (status == TERN_OK && device->addresses && !(device->card.info.features & TERN_FEATURE_BUFFER_ADDRESS))
        status = tern_error(TERN_ERROR_UNSUPPORTED,
                            "TERN_VULKAN_ADDRESSES is set and %s has no buffer device addresses; unset it",
                            device->card.info.name);
    if (status < 0)
        vulkan_close(device);
    else
        *out_device = device;
fail:
    return status;
}

bool vulkan_drain(tern_backend_device *device, VkSemaphore timeline, uint64_t value)
{
    if (!timeline || value == 0) return true;
    /* A wait may itself fail, which says nothing of the work: ask twice. */
    for (int attempt = 0; attempt < 2; attempt++) {
        const bool lost = atomic_load(&device->lost);
        const tern_status status =
            vulkan_timeline_wait(device, timeline, value, lost ? LOST_PATIENCE_NS : VULKAN_PATIENCE_NS);
        if (status == TERN_OK || lost) return true;
        if (status == TERN_ERROR_TIMEOUT) break;
    }
    tern_log_write(TERN_LOG_WARNING, "vulkan: %s still runs; what it uses is left behind", device->card.info.name);
    return false;
}

static bool became_idle(tern_backend_device *device)
{
    return vulkan_drain(device, device->programs, device->submitted) &&
           vulkan_drain(device, device->transfers, device->transfer);
}

static void destroy_logical(tern_backend_device *device)
{
    const vulkan_device_table *vk = &device->vk;
    if (!vk->DestroyDevice) return; /* the driver gave a device without its destructor: nothing can be undone */
    vulkan_pipelines_close(device);
    if (device->staging) vulkan_buffer_destroy(device, device->staging);
    if (device->transfer_pool) vk->DestroyCommandPool(device->logical, device->transfer_pool, NULL);
    if (device->programs) vk->DestroySemaphore(device->logical, device->programs, NULL);
    if (device->transfers) vk->DestroySemaphore(device->logical, device->transfers, NULL);
    vk->DestroyDevice(device->logical, NULL);
}

void vulkan_close(tern_backend_device *device)
{
    if (!device) return;
    if (!vulkan_is_foreign(device) && (!device->logical || became_idle(device))) {
        if (device->logical) destroy_logical(device);
        vulkan_instance_destroy(&device->instance);
        (void)pthread_mutex_destroy(&device->lock);
        (void)pthread_mutex_destroy(&device->kernel_lock);
    }
    free(device);
}

bool vulkan_is_foreign(const tern_backend_device *device) { return device->owner != getpid(); }

tern_status vulkan_enter(const tern_backend_device *device)
{
    if (vulkan_is_foreign(device))
        return tern_error(TERN_ERROR_INVALID,
                          "the Vulkan device %s was opened by process %ld, before a fork; open it again in process %ld",
                          device->card.info.name, (long)device->owner, (long)getpid());
    if (atomic_load(&device->lost))
        return tern_error(TERN_ERROR_DEVICE_LOST,
                          "the Vulkan device %s was lost; close it, look into the kernel log and open it again",
                          device->card.info.name);
    return TERN_OK;
}

tern_status vulkan_timeline_wait(tern_backend_device *device, VkSemaphore timeline, uint64_t value, uint64_t timeout_ns)
{
    const uint64_t start = tern_time_ns();
    VkSemaphoreWaitInfo info = {
        .sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
        .semaphoreCount = 1,
        .pSemaphores = &timeline,
        .pValues = &value,
    };
    for (;;) {
        uint64_t spent = tern_time_ns() - start;
        uint64_t left = timeout_ns > spent ? timeout_ns - spent : 0;
        VkResult result;
        VULKAN_CALL(result, device->vk, WaitSemaphores, device->logical, &info, left < POLL_NS ? left : POLL_NS);
        if (result != VK_TIMEOUT) return vulkan_check(device, "vkWaitSemaphores", result);
        if (left <= POLL_NS)
            return tern_error(TERN_ERROR_TIMEOUT,
                              "%s has not finished within %.3f s; wait longer, or cut the work smaller",
                              device->card.info.name, (double)timeout_ns * 1e-9);
    }
}

tern_status vulkan_queue_submit(tern_backend_device *device, VkCommandBuffer commands, VkSemaphore timeline,
                                uint64_t value)
{
    tern_status status = TERN_OK;
    VkTimelineSemaphoreSubmitInfo values = {
        .sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
        .signalSemaphoreValueCount = 1,
        .pSignalSemaphoreValues = &value,
    };
    VkSubmitInfo info = {
        .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
        .pNext = &values,
        .commandBufferCount = 1,
        .pCommandBuffers = &commands,
        .signalSemaphoreCount = 1,
        .pSignalSemaphores = &timeline,
    };
    VULKAN_TRY(device, device->vk, QueueSubmit, device->queue, 1, &info, VK_NULL_HANDLE);
fail:
    return status;
}
