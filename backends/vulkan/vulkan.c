/* SPDX-License-Identifier: Apache-2.0 */
/* vulkan.c - the plug-in's table. Needs Vulkan 1.2; how the work is divided among files: internal.h. */
#include "backends/vulkan/internal.h"

TERN_API const tern_backend *tern_backend_get(void);

const tern_backend *tern_backend_get(void)
{
    static const tern_backend table = {
        .abi = TERN_BACKEND_ABI,
        .name = "vulkan",
        .load = vulkan_load,
        .unload = vulkan_unload,
        .device_count = vulkan_device_count,
        .device_info = vulkan_device_info,
        .open = vulkan_open,
        .close = vulkan_close,
        .buffer_create = vulkan_buffer_create,
        .buffer_destroy = vulkan_buffer_destroy,
        .buffer_write = vulkan_buffer_write,
        .buffer_read = vulkan_buffer_read,
        .buffer_map = vulkan_buffer_map,
        .kernel_create = vulkan_kernel_create,
        .kernel_destroy = vulkan_kernel_destroy,
        .program_create = vulkan_program_create,
        .program_destroy = vulkan_program_destroy,
        .program_submit = vulkan_program_submit,
        .wait = vulkan_wait,
        .program_times = vulkan_program_times,
        .device_notes = vulkan_device_notes,
        .allocated_bytes = vulkan_allocated_bytes,
        .submission_count = vulkan_submission_count,
    };
    return &table;
}
