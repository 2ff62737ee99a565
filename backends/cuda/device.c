/* SPDX-License-Identifier: Apache-2.0 */
/* device.c - what a card is and can do, its primary context, stream and events.
 *
 * Nothing is derived from a card's name. CUDA has one limit where the contract has three: an allocation may take all of
 * the memory. Shared memory is what a block has without asking, 48 KiB: the arrays in our kernels are static ones.
 * Invariant: an opened device is unusable, not dangerous, in a forked child and after a loss. */
#include "backends/cuda/cuda.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/base/uuid.h"

#define CUDA_PATIENCE_S 120u

static tern_status ask(CUdevice id, int attribute, uint32_t *out_value)
{
    int value = 0;
    const tern_status status = CU_CALL(NULL, cuDeviceGetAttribute, &value, attribute, id);
    if (status >= 0) *out_value = value < 0 ? 0 : (uint32_t)value;
    return status;
}

static tern_status query_limits(CUdevice id, tern_device_info *info, bool *out_integrated)
{
    uint32_t integrated = 0;
    size_t memory = 0;
    tern_status status;
    TERN_TRY(CU_CALL(NULL, cuDeviceTotalMem, &memory, id));
    TERN_TRY(ask(id, CU_MAX_GRID_DIM_X, &info->max_groups[0]));
    TERN_TRY(ask(id, CU_MAX_GRID_DIM_Y, &info->max_groups[1]));
    TERN_TRY(ask(id, CU_MAX_GRID_DIM_Z, &info->max_groups[2]));
    TERN_TRY(ask(id, CU_MAX_THREADS_PER_BLOCK, &info->max_group_size));
    TERN_TRY(ask(id, CU_MAX_SHARED_MEMORY_PER_BLOCK, &info->shared_bytes));
    TERN_TRY(ask(id, CU_WARP_SIZE, &info->subgroup_max));
    TERN_TRY(ask(id, CU_MULTIPROCESSOR_COUNT, &info->threads));
    TERN_TRY(ask(id, CU_INTEGRATED, &integrated));
    info->subgroup_min = info->subgroup_max;
    info->memory_bytes = info->memory_free_bytes = memory;
    info->max_allocation_bytes = info->max_buffer_bytes = info->max_binding_bytes = memory;
    info->offset_alignment = 256; /* what cuMemAlloc gives, and whole cache lines */
    *out_integrated = integrated != 0;
fail:
    return status;
}

/* What shaders/dialect/cuda_matrix.h has words for: mma.sync from compute capability 8.0 on. */
static tern_status list_matrices(CUdevice id, tern_device_info *info)
{
    static const tern_matrix_shape shapes[] = {
        {TERN_BF16, 16, 16, 16, 32}, {TERN_F16, 16, 16, 16, 32}, {TERN_F32, 16, 16, 8, 32}};
    uint32_t major = 0;
    tern_status status;
    TERN_TRY(ask(id, CU_COMPUTE_CAPABILITY_MAJOR, &major));
    if (major < 8) return TERN_OK;
    info->matrix_count = sizeof shapes / sizeof *shapes;
    memcpy(info->matrix, shapes, sizeof shapes);
fail:
    return status;
}

/* The version of NVIDIA's kernel module, " (580.65.06)", for reports; "" where it does not say. */
static void module_version(char *out_text, size_t bytes)
{
    char version[64] = "";
    FILE *file = fopen("/sys/module/nvidia/version", "r");
    out_text[0] = 0;
    if (!file) return;
    if (fscanf(file, "%63s", version) == 1) snprintf(out_text, bytes, " (%s)", version);
    fclose(file);
}

static tern_status query_identity(CUdevice id, tern_device_info *info)
{
    CUuuid uuid;
    char version[80];
    tern_status status;
    TERN_TRY(CU_CALL(NULL, cuDeviceGetName, info->name, (int)sizeof info->name - 1, id));
    TERN_TRY(CU_CALL(NULL, cuDeviceGetUuid, &uuid, id));
    tern_uuid_print(uuid.bytes, info->uuid);
    TERN_TRY(CU_CALL(NULL, cuDeviceGetPCIBusId, info->pci, (int)sizeof info->pci - 1, id));
    for (char *at = info->pci; *at; at++) *at = (char)tolower((unsigned char)*at);
    module_version(version, sizeof version);
    snprintf(info->driver, sizeof info->driver, "CUDA %d.%d%s", cuda_driver_version() / 1000,
             cuda_driver_version() % 1000 / 10, version);
    info->vendor_id = 0x10de;
fail:
    return status;
}

/* Free memory is a context's to tell; the primary one is made for the question where nobody has it yet. */
static void query_free(CUdevice id, tern_device_info *info)
{
    CUcontext context = NULL, before = NULL;
    size_t free_bytes = 0, total = 0;
    if (CU_CALL(NULL, cuCtxGetCurrent, &before) < 0 || CU_CALL(NULL, cuDevicePrimaryCtxRetain, &context, id) < 0) {
        tern_log_write(TERN_LOG_INFO, "cuda: free memory is unknown: %s", tern_error_message());
        return;
    }
    if (CU_CALL(NULL, cuCtxSetCurrent, context) >= 0 && CU_CALL(NULL, cuMemGetInfo, &free_bytes, &total) >= 0)
        info->memory_free_bytes = free_bytes;
    cuda_released("cuCtxSetCurrent", tern_cu.cuCtxSetCurrent(before));
    cuda_released("cuDevicePrimaryCtxRelease", tern_cu.cuDevicePrimaryCtxRelease(id));
}

static tern_status info_query(CUdevice id, tern_device_info *info)
{
    bool integrated = false;
    tern_status status;
    memset(info, 0, sizeof *info);
    TERN_TRY(query_limits(id, info, &integrated));
    TERN_TRY(list_matrices(id, info));
    TERN_TRY(query_identity(id, info));
    info->kind = integrated ? TERN_DEVICE_INTEGRATED_GPU : TERN_DEVICE_DISCRETE_GPU;
    info->features = TERN_FEATURE_RENDERS | TERN_FEATURE_STORAGE_16 | TERN_FEATURE_STORAGE_8 |
                     TERN_FEATURE_ARITHMETIC_F16 | TERN_FEATURE_SUBGROUPS | TERN_FEATURE_TIMESTAMPS |
                     TERN_FEATURE_BUFFER_ADDRESS;
    if (integrated) info->features |= TERN_FEATURE_UNIFIED_MEMORY;
fail:
    return status;
}

static tern_status architecture_of(CUdevice id, char *out_name, size_t bytes)
{
    uint32_t major = 0, minor = 0;
    tern_status status;
    TERN_TRY(ask(id, CU_COMPUTE_CAPABILITY_MAJOR, &major));
    TERN_TRY(ask(id, CU_COMPUTE_CAPABILITY_MINOR, &minor));
    snprintf(out_name, bytes, "sm_%u%u", major, minor);
fail:
    return status;
}

tern_status cuda_device_info(uint32_t index, tern_device_info *out_info)
{
    CUdevice id = 0;
    tern_device_info info;
    tern_status status;
    TERN_TRY(cuda_device_find(index, &id));
    TERN_TRY(info_query(id, &info));
    query_free(id, &info);
    *out_info = info;
fail:
    return status;
}

tern_status cuda_device_notes(uint32_t index, char *out_text, size_t bytes)
{
    CUdevice id = 0;
    char architecture[16], compiler[512];
    tern_status status;
    TERN_TRY(cuda_device_find(index, &id));
    TERN_TRY(architecture_of(id, architecture, sizeof architecture));
    cuda_compiler_describe(architecture, compiler, sizeof compiler);
    snprintf(out_text, bytes, "architecture %s\n%s", architecture, compiler);
fail:
    return status;
}

/* ------------------------------------------------------------------ open */

static tern_status objects_make(tern_backend_device *device)
{
    tern_status status;
    TERN_TRY(CU_CALL(device, cuStreamCreate, &device->stream, CU_STREAM_NON_BLOCKING));
    for (uint32_t i = 0; i < CUDA_RING; i++)
        TERN_TRY(CU_CALL(device, cuEventCreate, &device->ring[i], CU_EVENT_DISABLE_TIMING));
    TERN_TRY(CU_CALL(device, cuEventCreate, &device->transfer, CU_EVENT_DISABLE_TIMING));
    TERN_TRY(CU_CALL(device, cuMemHostAlloc, &device->staging, CUDA_STAGING_BYTES, CU_HOST_PORTABLE));
fail:
    return status;
}

tern_status cuda_open(uint32_t index, const tern_open_options *options, tern_backend_device **out_device)
{
    tern_backend_device *device = NULL;
    CUcontext former = NULL;
    CUdevice id = 0;
    tern_status status;
    *out_device = NULL;
    TERN_TRY(cuda_device_find(index, &id));
    device = calloc(1, sizeof *device);
    if (!device) return tern_error_memory("a CUDA device", sizeof *device);
    pthread_mutex_init(&device->lock, NULL);
    pthread_mutex_init(&device->transfer_lock, NULL);
    device->base.api = "CUDA";
    device->base.pid = getpid();
    tern_plugin_patience_read(&device->base, "TERN_CUDA_PATIENCE_S", CUDA_PATIENCE_S);
    device->id = id;
    device->timestamps = options && options->timestamps;
    TERN_TRY(info_query(id, &device->base.info));
    TERN_TRY(architecture_of(id, device->architecture, sizeof device->architecture));
    TERN_TRY(cuda_compiler_find(device->architecture, &device->compiler_hash));
    TERN_TRY(CU_CALL(device, cuDevicePrimaryCtxRetain, &device->context, id));
    TERN_TRY(cuda_enter(device, &former));
    status = objects_make(device);
    cuda_leave(device, former);
    if (status < 0) goto fail;
    *out_device = device;
    return TERN_OK;
fail:
    cuda_close(device);
    return status;
}

static void objects_release(tern_backend_device *device)
{
    CU_RELEASE(cuMemFreeHost, device->staging);
    CU_RELEASE(cuEventDestroy, device->transfer);
    for (uint32_t i = 0; i < CUDA_RING; i++) CU_RELEASE(cuEventDestroy, device->ring[i]);
    CU_RELEASE(cuStreamDestroy, device->stream);
}

void cuda_close(tern_backend_device *device)
{
    CUcontext former = NULL;
    if (!device) return;
    if (device->context && tern_plugin_may_release(&device->base)) {
        cuda_enter_to_release(device, &former);
        const bool ended = !device->transfer || cuda_may_release(device, "the device");
        if (ended) objects_release(device);
        cuda_leave(device, former);
        if (ended) cuda_released("cuDevicePrimaryCtxRelease", tern_cu.cuDevicePrimaryCtxRelease(device->id));
    }
    pthread_mutex_destroy(&device->transfer_lock);
    pthread_mutex_destroy(&device->lock);
    free(device);
}

/* ------------------------------------------------------------------ entries */

static tern_status context_take(tern_backend_device *device, CUcontext *out_former)
{
    tern_status status;
    TERN_TRY(CU_CALL(device, cuCtxGetCurrent, out_former));
    if (*out_former != device->context) TERN_TRY(CU_CALL(device, cuCtxSetCurrent, device->context));
    return TERN_OK;
fail:
    *out_former = device->context;
    return status;
}

tern_status cuda_enter(tern_backend_device *device, CUcontext *out_former)
{
    const tern_status status = tern_plugin_enter(&device->base);
    return status < 0 ? status : context_take(device, out_former);
}

void cuda_enter_to_release(tern_backend_device *device, CUcontext *out_former)
{
    *out_former = device->context;
    if (!tern_plugin_may_release(&device->base)) return;
    for (int tries = 0; tries < 2; tries++) /* without it everything leaks, so once more */
        if (context_take(device, out_former) >= 0) return;
    tern_log_write(TERN_LOG_WARNING, "cuda: %s", tern_error_message());
    atomic_store(&device->base.hung, true); /* what the context had went with it */
}

void cuda_leave(tern_backend_device *device, CUcontext former)
{
    if (former != device->context) cuda_released("cuCtxSetCurrent", tern_cu.cuCtxSetCurrent(former));
}

bool cuda_may_release(tern_backend_device *device, const char *what)
{
    if (!tern_plugin_may_release(&device->base)) return false;
    if (!atomic_load(&device->base.lost) && cuda_drain(device) < 0)
        tern_log_write(TERN_LOG_WARNING, "cuda: giving back %s: %s", what, tern_error_message());
    return tern_plugin_may_release(&device->base);
}
