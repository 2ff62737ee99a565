/* SPDX-License-Identifier: Apache-2.0 */
/* cuda.c - the plug-in's table, its one export. What each entry must do is told in core/backend.h. */
#include "backends/cuda/cuda.h"

static const tern_backend backend = {
    .abi = TERN_BACKEND_ABI,
    .name = "cuda",
    .load = cuda_load,
    .unload = cuda_unload,
    .device_count = cuda_device_count,
    .device_info = cuda_device_info,
    .open = cuda_open,
    .close = cuda_close,
    .buffer_create = cuda_buffer_create,
    .buffer_destroy = cuda_buffer_destroy,
    .buffer_write = cuda_buffer_write,
    .buffer_read = cuda_buffer_read,
    .buffer_map = cuda_buffer_map,
    .kernel_create = cuda_kernel_create,
    .kernel_destroy = cuda_kernel_destroy,
    .program_create = cuda_program_create,
    .program_destroy = cuda_program_destroy,
    .program_submit = cuda_program_submit,
    .wait = cuda_wait,
    .program_times = cuda_program_times,
    .device_notes = cuda_device_notes,
    .allocated_bytes = cuda_allocated_bytes,
    .submission_count = cuda_submission_count,
};

TERN_API const tern_backend *tern_backend_get(void);
const tern_backend *tern_backend_get(void) { return &backend; }
