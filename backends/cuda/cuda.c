/* SPDX-License-Identifier: Apache-2.0 */
/* cuda.c - the plug-in's table, its one export. What each entry must do is told in core/backend.h.
 *
 *     entry ─ cuda_enter ─ buffer.c, kernel.c, program.c, queue.c ─ cuda_leave
 *
 * Invariant: a thread that called an entry has the CUDA context that it had before, or none; it may be another
 * library's, whose next call would otherwise go to our card. */
#include "backends/cuda/cuda.h"

#define ENTRY(name, parameters, call)                                                                                  \
    static tern_status name parameters                                                                                 \
    {                                                                                                                  \
        CUcontext former = NULL;                                                                                       \
        tern_status status = cuda_enter(device, &former);                                                              \
        if (status < 0) return status;                                                                                 \
        status = call;                                                                                                 \
        cuda_leave(device, former);                                                                                    \
        return status;                                                                                                 \
    }
#define RELEASE(name, type)                                                                                            \
    static void name(tern_backend_device *device, type *object)                                                        \
    {                                                                                                                  \
        CUcontext former = NULL;                                                                                       \
        if (!object) return;                                                                                           \
        cuda_enter_to_release(device, &former);                                                                        \
        cuda_##name(device, object);                                                                                   \
        cuda_leave(device, former);                                                                                    \
    }

ENTRY(buffer_create,
      (tern_backend_device * device, uint64_t bytes, tern_buffer_kind kind, tern_backend_buffer **out_buffer),
      cuda_buffer_create(device, bytes, kind, out_buffer))
RELEASE(buffer_destroy, tern_backend_buffer)
ENTRY(buffer_write,
      (tern_backend_device * device, tern_backend_buffer *buffer, uint64_t offset, const void *data, uint64_t bytes),
      cuda_buffer_transfer(device, buffer, offset, NULL, data, bytes))
ENTRY(buffer_read,
      (tern_backend_device * device, tern_backend_buffer *buffer, uint64_t offset, void *out_data, uint64_t bytes),
      cuda_buffer_transfer(device, buffer, offset, out_data, NULL, bytes))
ENTRY(kernel_create, (tern_backend_device * device, const tern_kernel_desc *desc, tern_backend_kernel **out_kernel),
      cuda_kernel_create(device, desc, out_kernel))
RELEASE(kernel_destroy, tern_backend_kernel)
ENTRY(program_create, (tern_backend_device * device, const tern_program_desc *desc, tern_backend_program **out_program),
      cuda_program_create(device, desc, out_program))
RELEASE(program_destroy, tern_backend_program)
ENTRY(program_submit, (tern_backend_device * device, tern_backend_program *program, uint64_t *out_ticket),
      cuda_program_submit(device, program, out_ticket))
ENTRY(program_times, (tern_backend_device * device, tern_backend_program *program, uint64_t *out_ns),
      cuda_program_times(device, program, out_ns))
ENTRY(wait, (tern_backend_device * device, uint64_t ticket, uint64_t timeout_ns), cuda_wait(device, ticket, timeout_ns))

static const tern_backend backend = {
    .abi = TERN_BACKEND_ABI,
    .name = "cuda",
    .load = cuda_load,
    .unload = cuda_unload,
    .device_count = cuda_device_count,
    .device_info = cuda_device_info,
    .open = cuda_open,
    .close = cuda_close,
    .buffer_create = buffer_create,
    .buffer_destroy = buffer_destroy,
    .buffer_write = buffer_write,
    .buffer_read = buffer_read,
    .buffer_map = tern_plugin_buffer_map,
    .kernel_create = kernel_create,
    .kernel_destroy = kernel_destroy,
    .program_create = program_create,
    .program_destroy = program_destroy,
    .program_submit = program_submit,
    .wait = wait,
    .program_times = program_times,
    .device_notes = cuda_device_notes,
    .allocated_bytes = tern_plugin_allocated_bytes,
    .submission_count = cuda_submission_count,
};

TERN_API const tern_backend *tern_backend_get(void);
const tern_backend *tern_backend_get(void) { return &backend; }
