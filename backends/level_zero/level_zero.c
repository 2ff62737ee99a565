/* SPDX-License-Identifier: Apache-2.0 */
/* level_zero.c - the plug-in's table, its one export. What each entry must do is told in core/backend.h. */
#include "backends/level_zero/level_zero.h"

static const tern_backend backend = {
    .abi = TERN_BACKEND_ABI,
    .name = "level_zero",
    .load = zero_load,
    .unload = zero_unload,
    .device_count = zero_device_count,
    .device_info = zero_device_info,
    .open = zero_open,
    .close = zero_close,
    .buffer_create = zero_buffer_create,
    .buffer_destroy = zero_buffer_destroy,
    .buffer_write = zero_buffer_write,
    .buffer_read = zero_buffer_read,
    .buffer_map = tern_plugin_buffer_map,
    .kernel_create = zero_kernel_create,
    .kernel_destroy = zero_kernel_destroy,
    .program_create = zero_program_create,
    .program_destroy = zero_program_destroy,
    .program_submit = zero_program_submit,
    .wait = zero_wait,
    .program_times = zero_program_times,
    .device_notes = zero_device_notes,
    .allocated_bytes = tern_plugin_allocated_bytes,
    .submission_count = zero_submission_count,
};

TERN_API const tern_backend *tern_backend_get(void);
const tern_backend *tern_backend_get(void) { return &backend; }
