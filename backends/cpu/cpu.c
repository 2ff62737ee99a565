/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.c - the plug-in's table, its one device, buffers and kernels.
 *
 * The device is this machine: memory is plain memory, every kind of buffer can be mapped, and kernels are tapes carried
 * out by vector loops (tape.h) or C of their own (matmul.c, attention.c, scatter.c). No compiler is needed at run time.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backends/cpu/cpu.h"
#include "backends/cpu/onednn.h"

#define LARGE   (2u << 20) /* from one huge page on, buffers are mapped and huge pages asked for */
#define IDLE_NS (60ull * 1000000000ull)

/* ------------------------------------------------------------------- device */

static tern_status cpu_load(void) { return TERN_OK; }
static void cpu_unload(void) {}

static tern_status cpu_device_count(uint32_t *out_count)
{
    *out_count = 1;
    return TERN_OK;
}

/* Value of the first line of `path` that starts with `key`, after its colon; false where there is none. */
static bool read_line(const char *path, const char *key, char *out_value, size_t bytes)
{
    FILE *file = fopen(path, "r");
    char line[512];
    bool found = false;
    while (file && !found && fgets(line, sizeof line, file)) {
        char *colon = strchr(line, ':');
        if (!colon || strncmp(line, key, strlen(key)) != 0) continue;
        const char *value = colon + 1 + strspn(colon + 1, " \t");
        snprintf(out_value, bytes, "%.*s", (int)strcspn(value, "\n"), value);
        found = true;
    }
    if (file) fclose(file);
    return found;
}

static uint64_t memory_bytes(const char *key)
{
    char value[64];
    if (read_line("/proc/meminfo", key, value, sizeof value)) return strtoull(value, NULL, 10) * 1024u;
    const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE); /* without /proc: all of it */
    return pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : 0;
}

static uint32_t core_count(void)
{
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores < 1 ? 1 : cores > 1024 ? 1024 : (uint32_t)cores;
}

static tern_status check_index(uint32_t index)
{
    if (index == 0) return TERN_OK;
    return tern_error(TERN_ERROR_NOT_FOUND, "the cpu backend has one device, number 0; there is no device %u", index);
}

static tern_status cpu_device_info(uint32_t index, tern_device_info *out_info)
{
    tern_status status = check_index(index);
    if (status < 0) return status;
    const char *onednn = tern_cpu_onednn_version();
    tern_device_info info = {
        .kind = TERN_DEVICE_CPU,
        .features = TERN_FEATURE_STORAGE_16 | TERN_FEATURE_STORAGE_8 | TERN_FEATURE_UNIFIED_MEMORY |
                    TERN_FEATURE_TIMESTAMPS | TERN_FEATURE_REGISTER_TILES,
        .max_groups = {0x7fffffffu, 0x7fffffffu, 0x7fffffffu},
        .max_group_size = 1024,
        .shared_bytes = 32768,
        .subgroup_min = 1,
        .subgroup_max = 1,
        .offset_alignment = 64,
        .threads = core_count(),
    };
    if (!read_line("/proc/cpuinfo", "model name", info.name, sizeof info.name))
        snprintf(info.name, sizeof info.name, "CPU");
    snprintf(info.driver, sizeof info.driver, "tern %d.%d.%d, %s%s%s", TERN_VERSION_MAJOR, TERN_VERSION_MINOR,
             TERN_VERSION_PATCH, tern_cpu_isa_choose()->name, *onednn ? ", " : "", onednn);
    info.memory_bytes = memory_bytes("MemTotal");
    info.memory_free_bytes = memory_bytes("MemAvailable");
    info.max_allocation_bytes = info.max_buffer_bytes = info.max_binding_bytes = info.memory_bytes;
    *out_info = info;
    return TERN_OK;
}

static tern_status cpu_device_notes(uint32_t index, char *out_text, size_t bytes)
{
    tern_status status = check_index(index);
    if (status < 0) return status;
    const char *onednn = tern_cpu_onednn_version();
    snprintf(out_text, bytes, "vector loops: %s (TERN_CPU_ISA=baseline|avx2 lowers it)\nmatmul: %s",
             tern_cpu_isa_choose()->name,
             *onednn ? onednn : "own loops; install libdnnl-dev and build again for oneDNN");
    return TERN_OK;
}

tern_status tern_cpu_device_check(const tern_backend_device *device)
{
    if (device->owner == getpid()) return TERN_OK;
    return tern_error(
        TERN_ERROR_INVALID,
        "this cpu device was opened by process %ld and its threads do not exist in the child; open a device after fork",
        (long)device->owner);
}

static void cpu_close(tern_backend_device *device)
{
    if (!device) return;
    const bool in_child = device->owner != getpid();
    tern_cpu_driver_stop(device, in_child);
    tern_cpu_pool_destroy(device->pool, in_child);
    if (!in_child) {
        pthread_cond_destroy(&device->queued);
        pthread_cond_destroy(&device->finished);
        pthread_mutex_destroy(&device->mutex);
    }
    free(device->shared);
    free(device);
}

static void init_locks(tern_backend_device *device)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC); /* a wait must not depend on someone setting the time */
    pthread_mutex_init(&device->mutex, NULL);
    pthread_cond_init(&device->queued, &attributes);
    pthread_cond_init(&device->finished, &attributes);
    pthread_condattr_destroy(&attributes);
}

static tern_status cpu_open(uint32_t index, const tern_open_options *options, tern_backend_device **out_device)
{
    tern_status status = TERN_OK;
    tern_backend_device *device = NULL;
    *out_device = NULL;
    TERN_TRY(check_index(index));
    const uint32_t threads = options && options->threads ? options->threads : core_count();
    if (threads > 1024) return tern_error(TERN_ERROR_INVALID, "%u threads were asked for; 1024 are the most", threads);
    device = calloc(1, sizeof *device);
    if (!device) return tern_error_memory("a device", sizeof *device);
    device->owner = getpid();
    device->isa = tern_cpu_isa_choose();
    init_locks(device);
    TERN_TRY(tern_cpu_pool_create(threads, &device->pool));
    TERN_TRY(tern_cpu_driver_start(device));
    *out_device = device;
    return TERN_OK;
fail:
    if (device) {
        tern_cpu_pool_destroy(device->pool, false);
        pthread_cond_destroy(&device->queued);
        pthread_cond_destroy(&device->finished);
        pthread_mutex_destroy(&device->mutex);
        free(device);
    }
    return status;
}

/* ------------------------------------------------------------------ buffers */

static tern_status cpu_buffer_create(tern_backend_device *device, uint64_t bytes, tern_buffer_kind kind,
                                     tern_backend_buffer **out_buffer)
{
    tern_status status = TERN_OK;
    tern_backend_buffer *buffer = NULL;
    *out_buffer = NULL;
    TERN_TRY(tern_cpu_device_check(device));
    if (bytes == 0) return tern_error(TERN_ERROR_INVALID, "cpu: a buffer of 0 bytes was asked for; ask for 1 or more");
    const uint64_t free_bytes = memory_bytes("MemAvailable");
    if (bytes > free_bytes || bytes > SIZE_MAX - 2 * LARGE) goto too_large;
    buffer = calloc(1, sizeof *buffer);
    if (!buffer) return tern_error_memory("a buffer", sizeof *buffer);
    buffer->bytes = bytes, buffer->kind = kind;
    if (bytes >= LARGE) {
        /* Anonymous memory is zero without being touched. */
        void *data = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (data == MAP_FAILED) goto too_large;
        madvise(data, (size_t)bytes, MADV_HUGEPAGE); /* only advice: older kernels may refuse it */
        buffer->data = data, buffer->mapped_bytes = (size_t)bytes;
    } else {
        if (posix_memalign(&buffer->data, 64, bytes ? (size_t)bytes : 1) != 0) goto too_large;
        memset(buffer->data, 0, bytes ? (size_t)bytes : 1);
    }
    atomic_fetch_add(&device->allocated_bytes, bytes);
    *out_buffer = buffer;
    return TERN_OK;
too_large:
    free(buffer);
    return tern_error(TERN_ERROR_DEVICE_MEMORY,
                      "a buffer of %llu bytes was asked for and %llu bytes of memory are free",
                      (unsigned long long)bytes, (unsigned long long)free_bytes);
fail:
    return status;
}

static void cpu_buffer_destroy(tern_backend_device *device, tern_backend_buffer *buffer)
{
    if (!buffer) return;
    atomic_fetch_sub(&device->allocated_bytes, buffer->bytes);
    if (buffer->mapped_bytes)
        munmap(buffer->data, buffer->mapped_bytes);
    else
        free(buffer->data);
    free(buffer);
}

static tern_status check_transfer(tern_backend_device *device, const tern_backend_buffer *buffer, uint64_t offset,
                                  uint64_t bytes)
{
    tern_status status = tern_cpu_device_check(device);
    if (status < 0) return status;
    if (offset > buffer->bytes || bytes > buffer->bytes - offset)
        return tern_error(TERN_ERROR_INVALID, "a transfer of %llu bytes at offset %llu leaves a buffer of %llu bytes",
                          (unsigned long long)bytes, (unsigned long long)offset, (unsigned long long)buffer->bytes);
    return tern_cpu_device_idle(device, IDLE_NS);
}

static tern_status cpu_buffer_write(tern_backend_device *device, tern_backend_buffer *buffer, uint64_t offset,
                                    const void *data, uint64_t bytes)
{
    tern_status status = check_transfer(device, buffer, offset, bytes);
    if (status == TERN_OK && bytes) memcpy((char *)buffer->data + offset, data, (size_t)bytes);
    return status;
}

static tern_status cpu_buffer_read(tern_backend_device *device, tern_backend_buffer *buffer, uint64_t offset,
                                   void *out_data, uint64_t bytes)
{
    tern_status status = check_transfer(device, buffer, offset, bytes);
    if (status == TERN_OK && bytes) memcpy(out_data, (char *)buffer->data + offset, (size_t)bytes);
    return status;
}

static tern_status cpu_buffer_map(tern_backend_device *device, tern_backend_buffer *buffer, void **out_address)
{
    tern_status status = tern_cpu_device_check(device);
    if (status < 0) return status;
    if (buffer->kind == TERN_BUFFER_DEVICE)
        return tern_error(TERN_ERROR_INVALID,
                          "a device buffer cannot be mapped; copy through an upload or read-back buffer");
    *out_address = buffer->data;
    return TERN_OK;
}

static uint64_t cpu_allocated_bytes(tern_backend_device *device) { return atomic_load(&device->allocated_bytes); }

/* ------------------------------------------------------------------ kernels */

static void cpu_kernel_destroy(tern_backend_device *device, tern_backend_kernel *kernel)
{
    (void)device;
    if (!kernel) return;
    free(kernel->desc.tape.access);
    free(kernel->desc.tape.insn);
    free(kernel);
}

static tern_status check_desc(const tern_kernel_desc *desc)
{
    if ((uint32_t)desc->kind >= TERN_KERNEL_KIND_COUNT)
        return tern_error(TERN_ERROR_UNSUPPORTED, "kernel \"%s\" is of unknown kind %d", desc->label, (int)desc->kind);
    if (desc->tensor_count > TERN_TAPE_TENSORS || desc->tape.tensor_count > desc->tensor_count)
        return tern_error(TERN_ERROR_UNSUPPORTED, "kernel \"%s\" has %u tensors; %u are the most", desc->label,
                          desc->tensor_count, TERN_TAPE_TENSORS);
    return tern_cpu_dtypes_check(desc);
}

static tern_status cpu_kernel_create(tern_backend_device *device, const tern_kernel_desc *desc,
                                     tern_backend_kernel **out_kernel)
{
    tern_status status = TERN_OK;
    tern_backend_kernel *kernel = NULL;
    *out_kernel = NULL;
    TERN_TRY(tern_cpu_device_check(device));
    TERN_TRY(check_desc(desc));
    kernel = calloc(1, sizeof *kernel);
    if (!kernel) return tern_error_memory("a kernel", sizeof *kernel);
    kernel->desc = *desc;
    const tern_tape *tape = &desc->tape;
    tern_tape *copy = &kernel->desc.tape;
    copy->access = calloc((size_t)tape->access_count + 1, sizeof *copy->access);
    copy->insn = calloc((size_t)tape->insn_count + 1, sizeof *copy->insn);
    if (!copy->access || !copy->insn) {
        status = tern_error_memory("a kernel's tape", tape->insn_count * sizeof *copy->insn);
        goto fail;
    }
    if (tape->access_count) memcpy(copy->access, tape->access, tape->access_count * sizeof *copy->access);
    if (tape->insn_count) memcpy(copy->insn, tape->insn, tape->insn_count * sizeof *copy->insn);
    *out_kernel = kernel;
    return TERN_OK;
fail:
    cpu_kernel_destroy(device, kernel);
    return status;
}

/* -------------------------------------------------------------------- table */

static const tern_backend table = {
    .abi = TERN_BACKEND_ABI,
    .name = "cpu",
    .load = cpu_load,
    .unload = cpu_unload,
    .device_count = cpu_device_count,
    .device_info = cpu_device_info,
    .open = cpu_open,
    .close = cpu_close,
    .buffer_create = cpu_buffer_create,
    .buffer_destroy = cpu_buffer_destroy,
    .buffer_write = cpu_buffer_write,
    .buffer_read = cpu_buffer_read,
    .buffer_map = cpu_buffer_map,
    .kernel_create = cpu_kernel_create,
    .kernel_destroy = cpu_kernel_destroy,
    .program_create = tern_cpu_program_create,
    .program_destroy = tern_cpu_program_destroy,
    .program_submit = tern_cpu_program_submit,
    .wait = tern_cpu_wait,
    .program_times = tern_cpu_program_times,
    .device_notes = cpu_device_notes,
    .allocated_bytes = cpu_allocated_bytes,
    .submission_count = tern_cpu_submission_count,
};

TERN_API const tern_backend *tern_backend_get(void);
const tern_backend *tern_backend_get(void) { return &table; }
