/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c - buffers, one allocation each, and blocking transfers through a staging buffer.
 *
 *     DEVICE     device-local, never mapped      host ── staging ── vkCmdCopyBuffer ── buffer
 *     UPLOAD     host-visible, coherent          mapped for its whole life
 *     READBACK   the same, cached where possible
 *
 * The plan asks for few, large buffers, so no allocator stands in between. The three limits of a device are checked
 * here with their values, since some drivers do not enforce them. */
#include "backends/vulkan/internal.h"

#include <stdlib.h>
#include <string.h>

#define STAGING_BYTES (8ull << 20)
/* vkCmdFillBuffer works on words, and a vector load must not leave the buffer. */
#define SIZE_ALIGNMENT 16ull

typedef struct memory_wish {
    VkMemoryPropertyFlags with, without;
} memory_wish;

#define LOCAL   VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT
#define VISIBLE (VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT)
#define CACHED  VK_MEMORY_PROPERTY_HOST_CACHED_BIT

/* Best first; Vulkan promises a type for each last wish. */
static const memory_wish wishes[3][3] = {
    [TERN_BUFFER_DEVICE] = {{LOCAL, VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT}, {LOCAL, 0}, {0, 0}},
    [TERN_BUFFER_UPLOAD] = {{VISIBLE, LOCAL | CACHED}, {VISIBLE, LOCAL}, {VISIBLE, 0}},
    [TERN_BUFFER_READBACK] = {{VISIBLE | CACHED, LOCAL}, {VISIBLE | CACHED, 0}, {VISIBLE, 0}},
};

static tern_status choose_type(const tern_backend_device *device, tern_buffer_kind kind, uint32_t allowed,
                               uint32_t *out_type)
{
    const VkPhysicalDeviceMemoryProperties *memory = &device->card.memory;
    for (int w = 0; w < 3; w++) {
        const memory_wish *wish = &wishes[kind][w];
        for (uint32_t i = 0; i < memory->memoryTypeCount; i++) {
            VkMemoryPropertyFlags flags = memory->memoryTypes[i].propertyFlags;
            if (!(allowed & 1u << i) || (flags & wish->with) != wish->with || (flags & wish->without)) continue;
            *out_type = i;
            return TERN_OK;
        }
    }
    return tern_error(TERN_ERROR_DRIVER, "%s offers no memory for buffers of kind %d; update its driver",
                      device->card.info.name, (int)kind);
}

static uint64_t free_bytes(const tern_backend_device *device)
{
    const vulkan_card *card = &device->card;
    if (card->budget) return vulkan_card_budget(&device->instance, card);
    return card->info.memory_bytes > device->allocated ? card->info.memory_bytes - device->allocated : 0;
}

static tern_status check_limits(const tern_backend_device *device, uint64_t bytes)
{
    const tern_device_info *info = &device->card.info;
    const struct {
        const char *name;
        uint64_t bytes;
    } limits[] = {
        {"buffer (maxBufferSize)", info->max_buffer_bytes},
        {"allocation (maxMemoryAllocationSize)", info->max_allocation_bytes},
    };
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        if (bytes > limits[i].bytes)
            return tern_error(
                TERN_ERROR_UNSUPPORTED,
                "a buffer of %llu bytes exceeds the largest %s of %s, %llu bytes; use several smaller ones",
                (unsigned long long)bytes, limits[i].name, info->name, (unsigned long long)limits[i].bytes);
    return TERN_OK;
}

static tern_status out_of_memory(const tern_backend_device *device, uint64_t bytes)
{
    return tern_error(
        TERN_ERROR_DEVICE_MEMORY,
        "%s has no room for a buffer of %llu bytes: %llu bytes free, %llu used by tern; use a smaller batch",
        device->card.info.name, (unsigned long long)bytes, (unsigned long long)free_bytes(device),
        (unsigned long long)device->allocated);
}

static tern_status allocate(tern_backend_device *device, tern_backend_buffer *buffer)
{
    tern_status status = TERN_OK;
    const bool address = (device->card.info.features & TERN_FEATURE_BUFFER_ADDRESS) != 0;
    VkMemoryRequirements needs;
    device->vk.GetBufferMemoryRequirements(device->logical, buffer->handle, &needs);
    TERN_TRY(check_limits(device, needs.size));
    VkMemoryAllocateFlagsInfo flags = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
        .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT,
    };
    VkMemoryAllocateInfo info = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
        .pNext = address ? &flags : NULL,
        .allocationSize = needs.size,
    };
    TERN_TRY(choose_type(device, buffer->kind, needs.memoryTypeBits, &info.memoryTypeIndex));
    /* Software devices overcommit and are killed later: refuse what cannot be there. */
    if (buffer->kind == TERN_BUFFER_DEVICE && needs.size > free_bytes(device)) return out_of_memory(device, needs.size);
    VkResult result;
    VULKAN_CALL(result, device->vk, AllocateMemory, device->logical, &info, NULL, &buffer->memory);
    if (result == VK_ERROR_OUT_OF_DEVICE_MEMORY) return out_of_memory(device, needs.size);
    TERN_TRY(vulkan_check(device, "vkAllocateMemory", result));
    VULKAN_TRY(device, device->vk, BindBufferMemory, device->logical, buffer->handle, buffer->memory, 0);
    if (buffer->kind != TERN_BUFFER_DEVICE)
        VULKAN_TRY(device, device->vk, MapMemory, device->logical, buffer->memory, 0, VK_WHOLE_SIZE, 0, &buffer->map);
    if (address) {
        VkBufferDeviceAddressInfo of = {.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO,
                                        .buffer = buffer->handle};
        buffer->address = device->vk.GetBufferDeviceAddress(device->logical, &of);
    }
fail:
    return status;
}

static void buffer_free(tern_backend_device *device, tern_backend_buffer *buffer)
{
    if (buffer->handle) device->vk.DestroyBuffer(device->logical, buffer->handle, NULL);
    if (buffer->memory) device->vk.FreeMemory(device->logical, buffer->memory, NULL); /* unmaps too */
    free(buffer);
}

/* Memory's content is whatever it was. Under device->lock. */
static tern_status buffer_make(tern_backend_device *device, uint64_t bytes, tern_buffer_kind kind,
                               tern_backend_buffer **out_buffer)
{
    tern_status status = TERN_OK;
    tern_backend_buffer *buffer = NULL;
    TERN_TRY(check_limits(device, bytes));
    buffer = calloc(1, sizeof *buffer);
    if (!buffer) return tern_error_memory("a Vulkan buffer's handle", sizeof *buffer);
    buffer->bytes = bytes;
    buffer->kind = kind;
    VkBufferCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
        .size = (bytes + SIZE_ALIGNMENT - 1) / SIZE_ALIGNMENT * SIZE_ALIGNMENT,
        .usage =
            VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT,
        .sharingMode = VK_SHARING_MODE_EXCLUSIVE,
    };
    if (device->card.info.features & TERN_FEATURE_BUFFER_ADDRESS)
        info.usage |= VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT;
    if (info.size > device->card.info.max_buffer_bytes)
        info.size = device->card.info.max_buffer_bytes; /* a limit that is no multiple */
    VULKAN_TRY(device, device->vk, CreateBuffer, device->logical, &info, NULL, &buffer->handle);
    TERN_TRY(allocate(device, buffer));
    *out_buffer = buffer;
    return TERN_OK;
fail:
    if (buffer) buffer_free(device, buffer);
    return status;
}

/* ---------------------------------------------------------------- transfers */

/* What one blocking submission does: FILL (source NULL, destination whole) or COPY. */
typedef struct transfer {
    VkBuffer source, destination;
    uint64_t source_offset, destination_offset, bytes;
} transfer;

/* After all that was submitted before, and finished on return. Under device->lock. */
static tern_status transfer_run(tern_backend_device *device, const transfer *t)
{
    tern_status status = TERN_OK;
    VkCommandBuffer commands = device->transfer_commands;
    VkCommandBufferBeginInfo begin = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
        .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT,
    };
    const VkMemoryBarrier before = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
        .srcAccessMask = VK_ACCESS_MEMORY_WRITE_BIT,
        .dstAccessMask = VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT,
    };
    const VkMemoryBarrier after = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
        .srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT,
        .dstAccessMask = VK_ACCESS_HOST_READ_BIT,
    };
    VULKAN_TRY(device, device->vk, BeginCommandBuffer, commands, &begin);
    device->vk.CmdPipelineBarrier(commands, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, VK_PIPELINE_STAGE_TRANSFER_BIT, 0, 1,
                                  &before, 0, NULL, 0, NULL);
    if (t->source) {
        const VkBufferCopy region = {
            .srcOffset = t->source_offset, .dstOffset = t->destination_offset, .size = t->bytes};
        device->vk.CmdCopyBuffer(commands, t->source, t->destination, 1, &region);
    } else {
        device->vk.CmdFillBuffer(commands, t->destination, 0, VK_WHOLE_SIZE, 0);
    }
    device->vk.CmdPipelineBarrier(commands, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &after, 0,
                                  NULL, 0, NULL);
    VULKAN_TRY(device, device->vk, EndCommandBuffer, commands);
    TERN_TRY(vulkan_queue_submit(device, commands, device->transfers, device->transfer + 1));
    device->transfer++;
    status = vulkan_timeline_wait(device, device->transfers, device->transfer, VULKAN_PATIENCE_NS);
    /* The caller may free what the transfer uses, so it must be over, whatever the wait said. */
    if (status < 0) (void)vulkan_drain(device, device->transfers, device->transfer);
fail:
    return status;
}

/* Moves `bytes` between the host and a DEVICE buffer, staging piece by piece. Under device->lock. */
static tern_status staged(tern_backend_device *device, tern_backend_buffer *buffer, uint64_t offset, void *to_host,
                          const void *from_host, uint64_t bytes)
{
    tern_status status = TERN_OK;
    if (!device->staging) TERN_TRY(buffer_make(device, STAGING_BYTES, TERN_BUFFER_READBACK, &device->staging));
    for (uint64_t done = 0; done < bytes; done += STAGING_BYTES) {
        const uint64_t piece = bytes - done < STAGING_BYTES ? bytes - done : STAGING_BYTES;
        transfer t = {.source = buffer->handle,
                      .source_offset = offset + done,
                      .destination = device->staging->handle,
                      .bytes = piece};
        if (from_host) {
            memcpy(device->staging->map, (const char *)from_host + done, piece);
            t = (transfer){.source = device->staging->handle,
                           .destination = buffer->handle,
                           .destination_offset = offset + done,
                           .bytes = piece};
        }
        TERN_TRY(transfer_run(device, &t));
        if (to_host) memcpy((char *)to_host + done, device->staging->map, piece);
    }
fail:
    return status;
}

static tern_status check_range(const tern_backend_buffer *buffer, const char *what, uint64_t offset, uint64_t bytes)
{
    if (offset <= buffer->bytes && bytes <= buffer->bytes - offset) return TERN_OK;
    return tern_error(TERN_ERROR_INVALID,
                      "%s of %llu bytes at %llu passes the end of a buffer of %llu bytes; correct the range", what,
                      (unsigned long long)bytes, (unsigned long long)offset, (unsigned long long)buffer->bytes);
}

static tern_status transfer_host(tern_backend_device *device, tern_backend_buffer *buffer, uint64_t offset,
                                 void *to_host, const void *from_host, uint64_t bytes)
{
    tern_status status = TERN_OK;
    (void)pthread_mutex_lock(&device->lock);
    if (buffer->kind == TERN_BUFFER_DEVICE) {
        status = staged(device, buffer, offset, to_host, from_host, bytes);
    } else {
        if (device->submitted > 0)
            status = vulkan_timeline_wait(device, device->programs, device->submitted, VULKAN_PATIENCE_NS);
        if (status == TERN_OK && to_host) memcpy(to_host, (char *)buffer->map + offset, bytes);
        if (status == TERN_OK && from_host) memcpy((char *)buffer->map + offset, from_host, bytes);
    }
    (void)pthread_mutex_unlock(&device->lock);
    return status;
}

/* ------------------------------------------------------------------ entries */

tern_status vulkan_buffer_create(tern_backend_device *device, uint64_t bytes, tern_buffer_kind kind,
                                 tern_backend_buffer **out_buffer)
{
    tern_status status = TERN_OK;
    TERN_TRY(vulkan_enter(device));
    if (bytes == 0) return tern_error(TERN_ERROR_INVALID, "a buffer of 0 bytes was asked for; ask for at least 1");
    tern_backend_buffer *buffer = NULL;
    (void)pthread_mutex_lock(&device->lock);
    status = buffer_make(device, bytes, kind, &buffer);
    if (status == TERN_OK && buffer->map) memset(buffer->map, 0, bytes);
    if (status == TERN_OK && !buffer->map) {
        const transfer zero = {.destination = buffer->handle};
        status = transfer_run(device, &zero);
    }
    if (status == TERN_OK) {
        device->allocated += bytes;
        *out_buffer = buffer;
    } else if (buffer) {
        buffer_free(device, buffer);
    }
    (void)pthread_mutex_unlock(&device->lock);
fail:
    return status;
}

void vulkan_buffer_destroy(tern_backend_device *device, tern_backend_buffer *buffer)
{
    if (!buffer) return;
    if (vulkan_is_foreign(device)) {
        free(buffer);
        return;
    }
    (void)pthread_mutex_lock(&device->lock);
    if (buffer != device->staging) device->allocated -= buffer->bytes;
    buffer_free(device, buffer);
    (void)pthread_mutex_unlock(&device->lock);
}

tern_status vulkan_buffer_write(tern_backend_device *device, tern_backend_buffer *buffer, uint64_t offset,
                                const void *data, uint64_t bytes)
{
    tern_status status = TERN_OK;
    TERN_TRY(vulkan_enter(device));
    TERN_TRY(check_range(buffer, "a write", offset, bytes));
    if (bytes > 0) TERN_TRY(transfer_host(device, buffer, offset, NULL, data, bytes));
fail:
    return status;
}

tern_status vulkan_buffer_read(tern_backend_device *device, tern_backend_buffer *buffer, uint64_t offset,
                               void *out_data, uint64_t bytes)
{
    tern_status status = TERN_OK;
    TERN_TRY(vulkan_enter(device));
    TERN_TRY(check_range(buffer, "a read", offset, bytes));
    if (bytes > 0) TERN_TRY(transfer_host(device, buffer, offset, out_data, NULL, bytes));
fail:
    return status;
}

tern_status vulkan_buffer_map(tern_backend_device *device, tern_backend_buffer *buffer, void **out_address)
{
    tern_status status = TERN_OK;
    TERN_TRY(vulkan_enter(device));
    if (!buffer->map)
        return tern_error(TERN_ERROR_INVALID, "a DEVICE buffer has no host address; use an UPLOAD or READBACK buffer");
    *out_address = buffer->map;
fail:
    return status;
}

uint64_t vulkan_allocated_bytes(tern_backend_device *device)
{
    (void)pthread_mutex_lock(&device->lock);
    uint64_t bytes = device->allocated;
    (void)pthread_mutex_unlock(&device->lock);
    return bytes;
}
