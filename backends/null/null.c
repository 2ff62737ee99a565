/* SPDX-License-Identifier: Apache-2.0 */
/* null.c - the table of the backend that computes nothing: devices, buffers and kernels. Also the skeleton of a new
 * one.
 *
 *     null.c     table, devices, buffers, kernels        check.c    what a program must keep to
 *     program.c  record, submit, wait                    control.c  counters and planned failures (no real backend has
 * these)
 *
 * To write a backend: copy this folder, load the driver in `load`, and replace each body by the driver's calls. Keep
 * the shape: enter, check with values in the sentence, act, hand out the result last, and on failure leave nothing
 * behind. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/null/control.h"
#include "core/base/dtype.h"
#include "core/base/log.h"

/* ------------------------------------------------------------------ driver */

static tern_status null_load(void)
{
    tern_status status;
    TERN_TRY(null_read_environment());
    TERN_TRY(null_enter(NULL, "load"));
fail:
    return status;
}

static void null_unload(void) { null_hooks.reset(); }

static tern_status null_device_count(uint32_t *out_count)
{
    tern_status status;
    TERN_TRY(null_enter(NULL, "device_count"));
    *out_count = null_lock()->device.count;
    null_unlock();
    if (*out_count == 0) (void)tern_error(TERN_OK, "the null driver was told to have no device");
fail:
    return status;
}

static tern_status null_device_info(uint32_t index, tern_device_info *out_info)
{
    tern_status status;
    TERN_TRY(null_enter(NULL, "device_info"));
    const null_state *s = null_lock();
    const uint32_t count = s->device.count;
    if (index < count) *out_info = s->device.info[index];
    null_unlock();
    if (index >= count) return tern_error(TERN_ERROR_INVALID, "null: device %u of %u", index, count);
fail:
    return status;
}

static tern_status null_open(uint32_t index, const tern_open_options *options, tern_backend_device **out_device)
{
    tern_status status;
    tern_device_info info;
    (void)options; /* no threads, and validation is always on */
    TERN_TRY(null_device_info(index, &info));
    tern_backend_device *device = calloc(1, sizeof *device);
    if (!device) return tern_error_memory("a null device", sizeof *device);
    device->info = info;
    device->pid = getpid();
    null_lock()->counts.devices++;
    null_unlock();
    *out_device = device;
fail:
    return status;
}

static void null_close(tern_backend_device *device)
{
    if (!device) return;
    const uint64_t alive = device->objects;
    null_state *s = null_lock();
    s->counts.devices--;
    s->counts.leaks += alive;
    device->closed = alive > 0;
    null_unlock();
    if (alive)
        tern_log_write(TERN_LOG_ERROR, "null: a device was closed with %llu objects alive", (unsigned long long)alive);
    else
        free(device);
}

static tern_status null_device_notes(uint32_t index, char *out_text, size_t bytes)
{
    tern_device_info info;
    tern_status status = null_device_info(index, &info);
    if (status == TERN_OK) snprintf(out_text, bytes, "for tests and planning; every result is zero");
    return status;
}

/* ----------------------------------------------------------------- buffers */

static tern_status check_buffer_size(const tern_backend_device *device, uint64_t bytes)
{
    const tern_device_info *info = &device->info;
    const uint64_t limit =
        info->max_allocation_bytes < info->max_buffer_bytes ? info->max_allocation_bytes : info->max_buffer_bytes;
    if (bytes == 0) return tern_error(TERN_ERROR_INVALID, "null: a buffer of 0 bytes; ask for at least 1");
    if (bytes > limit)
        return tern_error(TERN_ERROR_UNSUPPORTED,
                          "null: a buffer of %llu bytes; the device allows %llu; use smaller blocks",
                          (unsigned long long)bytes, (unsigned long long)limit);
    if (bytes > info->memory_bytes - device->bytes)
        return tern_error(TERN_ERROR_DEVICE_MEMORY,
                          "null: no memory for %llu bytes; %llu of %llu are free; use a smaller batch or model",
                          (unsigned long long)bytes, (unsigned long long)(info->memory_bytes - device->bytes),
                          (unsigned long long)info->memory_bytes);
    return TERN_OK;
}

static tern_status null_buffer_create(tern_backend_device *device, uint64_t bytes, tern_buffer_kind kind,
                                      tern_backend_buffer **out_buffer)
{
    tern_status status;
    tern_backend_buffer *buffer = NULL;
    TERN_TRY(null_enter(device, "buffer_create"));
    TERN_TRY(check_buffer_size(device, bytes));
    buffer = calloc(1, sizeof *buffer);
    if (!buffer) return tern_error_memory("a buffer", sizeof *buffer);
    *buffer = (tern_backend_buffer){.device = device, .bytes = bytes, .kind = kind};
    if (kind != TERN_BUFFER_DEVICE) {
        buffer->memory = calloc(1, bytes);
        if (!buffer->memory) {
            status = tern_error_memory("a host-visible buffer", bytes);
            goto fail;
        }
    }
    null_state *s = null_lock();
    device->objects++;
    device->bytes += bytes;
    s->counts.buffers++;
    s->counts.buffers_created++;
    s->counts.bytes += bytes;
    if (s->counts.bytes > s->counts.bytes_peak) s->counts.bytes_peak = s->counts.bytes;
    null_unlock();
    *out_buffer = buffer;
    return TERN_OK;
fail:
    free(buffer);
    return status;
}

/* True if it was destroyed while steps use it: said, counted, and then kept until they are gone. */
static bool destroyed_early(null_state *locked, uint32_t users, const char *what)
{
    if (users == 0) return false;
    locked->counts.misuses++;
    tern_log_write(TERN_LOG_ERROR, "null: a %s was destroyed while %u steps of programs use it", what, users);
    return true;
}

static void free_buffer(tern_backend_buffer *buffer)
{
    free(buffer->memory);
    free(buffer);
}

static void null_buffer_destroy(tern_backend_device *device, tern_backend_buffer *buffer)
{
    if (!buffer) return;
    null_state *s = null_lock();
    buffer->destroyed = destroyed_early(s, buffer->users, "buffer");
    device->bytes -= buffer->bytes;
    s->counts.buffers--;
    s->counts.bytes -= buffer->bytes;
    const bool kept = buffer->destroyed;
    null_forget(device);
    null_unlock();
    if (!kept) free_buffer(buffer);
}

void null_buffer_release(tern_backend_buffer *buffer)
{
    if (--buffer->users == 0 && buffer->destroyed) free_buffer(buffer);
}

static tern_status check_transfer(const tern_backend_device *device, const tern_backend_buffer *buffer, uint64_t offset,
                                  uint64_t bytes)
{
    tern_status status = null_same_device(device, buffer->device, "buffer");
    if (status < 0) return status;
    if (offset > buffer->bytes || bytes > buffer->bytes - offset)
        return tern_error(TERN_ERROR_INVALID, "null: a transfer of bytes [%llu, +%llu) in a buffer of %llu",
                          (unsigned long long)offset, (unsigned long long)bytes, (unsigned long long)buffer->bytes);
    return TERN_OK;
}

static tern_status null_buffer_write(tern_backend_device *device, tern_backend_buffer *buffer, uint64_t offset,
                                     const void *data, uint64_t bytes)
{
    tern_status status;
    TERN_TRY(null_enter(device, "buffer_write"));
    TERN_TRY(check_transfer(device, buffer, offset, bytes));
    if (buffer->memory) memcpy((char *)buffer->memory + offset, data, bytes);
fail:
    return status;
}

static tern_status null_buffer_read(tern_backend_device *device, tern_backend_buffer *buffer, uint64_t offset,
                                    void *out_data, uint64_t bytes)
{
    tern_status status;
    TERN_TRY(null_enter(device, "buffer_read"));
    TERN_TRY(check_transfer(device, buffer, offset, bytes));
    if (buffer->memory)
        memcpy(out_data, (const char *)buffer->memory + offset, bytes);
    else
        memset(out_data, 0, bytes);
fail:
    return status;
}

static tern_status null_buffer_map(tern_backend_device *device, tern_backend_buffer *buffer, void **out_address)
{
    tern_status status;
    TERN_TRY(null_enter(device, "buffer_map"));
    TERN_TRY(null_same_device(device, buffer->device, "buffer"));
    if (!buffer->memory)
        return tern_error(TERN_ERROR_INVALID,
                          "null: a device buffer cannot be mapped; use an upload or read-back buffer");
    *out_address = buffer->memory;
fail:
    return status;
}

/* ----------------------------------------------------------------- kernels */

/* How many words each kind takes; core/backend.h lists them. TAPE: its dims. */
static uint32_t fixed_words(const tern_kernel_desc *desc)
{
    switch (desc->kind) {
    case TERN_KERNEL_TAPE: return desc->tape.dim_count;
    case TERN_KERNEL_MATMUL: return TERN_MATMUL_WORDS;
    case TERN_KERNEL_ATTENTION:
    case TERN_KERNEL_ATTENTION_DQ:
    case TERN_KERNEL_ATTENTION_DKV: return TERN_ATTENTION_WORDS;
    case TERN_KERNEL_SCATTER_ADD: return 4;
    case TERN_KERNEL_KIND_COUNT: break;
    }
    return UINT32_MAX;
}

/* The kind's words, then the labels that the tape's random numbers name by word. UINT32_MAX for an unknown kind. */
static uint32_t words_of(const tern_kernel_desc *desc)
{
    uint32_t words = fixed_words(desc);
    for (uint32_t i = 0; i < desc->tape.insn_count; i++) {
        const tern_tape_insn *insn = &desc->tape.insn[i];
        if (insn->op == TERN_TAPE_PHILOX && insn->imm >= words) words = insn->imm + 1;
    }
    return words;
}

static tern_status check_kernel(const tern_backend_device *device, const tern_kernel_desc *desc)
{
    const uint32_t words = words_of(desc);
    const uint64_t group = (uint64_t)desc->variant.group[0] * desc->variant.group[1] * desc->variant.group[2];
    if (words == UINT32_MAX) return tern_error(TERN_ERROR_INVALID, "it has the unknown kind %d", (int)desc->kind);
    if (desc->word_count != words || words > TERN_KERNEL_WORDS)
        return tern_error(TERN_ERROR_INVALID, "it takes %u words where its kind and tape have %u, of at most %d",
                          desc->word_count, words, TERN_KERNEL_WORDS);
    if (desc->tensor_count == 0 || desc->tensor_count > TERN_TAPE_TENSORS)
        return tern_error(TERN_ERROR_INVALID, "it has %u tensors; 1 to %d are allowed", desc->tensor_count,
                          TERN_TAPE_TENSORS);
    if (8 * desc->tensor_count + 4 * desc->word_count > 128)
        return tern_error(TERN_ERROR_INVALID, "%u tensors and %u words do not fit into 128 bytes", desc->tensor_count,
                          desc->word_count);
    for (uint32_t i = 0; i < desc->tensor_count; i++)
        if (!tern_dtype(desc->tensors[i].dtype) || desc->tensors[i].mode == 0 || desc->tensors[i].mode > 3)
            return tern_error(TERN_ERROR_INVALID, "tensor %u has dtype %u and access mode %u", i,
                              desc->tensors[i].dtype, desc->tensors[i].mode);
    if (group > device->info.max_group_size)
        return tern_error(TERN_ERROR_UNSUPPORTED, "its group has %llu threads; the device allows %u",
                          (unsigned long long)group, device->info.max_group_size);
    if (desc->variant.shared_bytes > device->info.shared_bytes)
        return tern_error(TERN_ERROR_UNSUPPORTED, "it needs %u bytes of shared memory; the device has %u",
                          desc->variant.shared_bytes, device->info.shared_bytes);
    return TERN_OK;
}

static tern_status null_kernel_create(tern_backend_device *device, const tern_kernel_desc *desc,
                                      tern_backend_kernel **out_kernel)
{
    tern_status status;
    TERN_TRY(null_enter(device, "kernel_create"));
    status = check_kernel(device, desc);
    if (status < 0) return tern_error_prefix(status, "null: kernel \"%s\"", desc->label);
    tern_backend_kernel *kernel = calloc(1, sizeof *kernel);
    if (!kernel) return tern_error_memory("a kernel", sizeof *kernel);
    kernel->device = device;
    kernel->kind = desc->kind;
    memcpy(kernel->label, desc->label, sizeof kernel->label);
    kernel->tensor_count = desc->tensor_count;
    kernel->word_count = desc->word_count;
    memcpy(kernel->tensors, desc->tensors, sizeof kernel->tensors);
    null_state *s = null_lock();
    device->objects++;
    s->counts.kernels++;
    s->counts.kernels_created++;
    null_unlock();
    *out_kernel = kernel;
fail:
    return status;
}

static void null_kernel_destroy(tern_backend_device *device, tern_backend_kernel *kernel)
{
    if (!kernel) return;
    null_state *s = null_lock();
    kernel->destroyed = destroyed_early(s, kernel->users, "kernel");
    s->counts.kernels--;
    const bool kept = kernel->destroyed;
    null_forget(device);
    null_unlock();
    if (!kept) free(kernel);
}

void null_kernel_release(tern_backend_kernel *kernel)
{
    if (--kernel->users == 0 && kernel->destroyed) free(kernel);
}

/* Some drivers cannot fuse an epilogue into a contraction; core then runs it as a kernel of its own. */
static bool null_accepts_epilogue(tern_backend_device *device, const tern_kernel_desc *desc)
{
    (void)device;
    (void)desc;
    const bool declines = null_lock()->device.declines_epilogues;
    null_unlock();
    return !declines;
}

static uint64_t null_allocated_bytes(tern_backend_device *device)
{
    (void)null_lock();
    const uint64_t bytes = device->bytes;
    null_unlock();
    return bytes;
}

static const tern_null_backend table = {
    .backend =
        {
            .abi = TERN_BACKEND_ABI,
            .name = "null",
            .load = null_load,
            .unload = null_unload,
            .device_count = null_device_count,
            .device_info = null_device_info,
            .open = null_open,
            .close = null_close,
            .buffer_create = null_buffer_create,
            .buffer_destroy = null_buffer_destroy,
            .buffer_write = null_buffer_write,
            .buffer_read = null_buffer_read,
            .buffer_map = null_buffer_map,
            .kernel_create = null_kernel_create,
            .kernel_destroy = null_kernel_destroy,
            .program_create = null_program_create,
            .program_destroy = null_program_destroy,
            .program_submit = null_program_submit,
            .wait = null_wait,
            .program_times = null_program_times,
            .accepts_epilogue = null_accepts_epilogue,
            .device_notes = null_device_notes,
            .allocated_bytes = null_allocated_bytes,
            .submission_count = null_submission_count,
        },
    .hooks = &null_hooks,
};

const tern_backend *tern_backend_get(void) { return &table.backend; }
