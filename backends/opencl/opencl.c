/* SPDX-License-Identifier: Apache-2.0 */
/* opencl.c - the plug-in's table, its one export besides hooks.h. What each entry must do is told in core/backend.h. */
#include "backends/opencl/opencl.h"

static const tern_backend backend = {
    .abi = TERN_BACKEND_ABI,
    .name = "opencl",
    .load = tern_opencl_load,
    .unload = tern_opencl_unload,
    .device_count = tern_opencl_device_count,
    .device_info = tern_opencl_device_info,
    .open = tern_opencl_open,
    .close = tern_opencl_close,
    .buffer_create = tern_opencl_buffer_create,
    .buffer_destroy = tern_opencl_buffer_destroy,
    .buffer_write = tern_opencl_buffer_write,
    .buffer_read = tern_opencl_buffer_read,
    .buffer_map = tern_opencl_buffer_map,
    .kernel_create = tern_opencl_kernel_create,
    .kernel_destroy = tern_opencl_kernel_destroy,
    .program_create = tern_opencl_program_create,
    .program_destroy = tern_opencl_program_destroy,
    .program_submit = tern_opencl_program_submit,
    .wait = tern_opencl_wait,
    .program_times = tern_opencl_program_times,
    .device_notes = tern_opencl_device_notes,
    .allocated_bytes = tern_opencl_allocated_bytes,
    .submission_count = tern_opencl_submission_count,
};

TERN_API const tern_backend *tern_backend_get(void);
const tern_backend *tern_backend_get(void) { return &backend; }
