/* SPDX-License-Identifier: Apache-2.0 */
/* device.c - the driver, its devices and their limits, contexts. Below is one OpenCL CPU device that plays them all.
 *
 * The limits are those of an Arc A770 where the CPU allows it (no f64, 4 GiB an allocation, 64 KiB shared memory, a
 * timer of 19.2 MHz whose kernel timestamps wrap at 32 bits); f16 and sub-groups are those of the OpenCL device.
 *
 *     TERN_STANDIN_ZE_DEVICES=1         devices, 0 to 8
 *     TERN_STANDIN_ZE_COPY_GROUP=1      0: no second queue group that copies only
 *     TERN_STANDIN_ZE_MEMORY_BYTES      total of a device, 8 GiB
 *     TERN_STANDIN_ZE_PLATFORM=Portable OpenCL platform whose name contains this */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/stand_ins/level_zero/stand_in.h"

#define TIMER_HZ         19200000ull
#define TIMER_BITS       36u
#define TIMER_EVENT_BITS 32u

standin_opencl standin_cl;
static standin_device devices[STANDIN_MAX_DEVICES];
static struct {
    int unused;
} driver;

/* ----------------------------------------------------------------- OpenCL */

static bool find_platform(void)
{
    cl_platform_id platforms[16];
    cl_uint count = 0;
    const char *wanted = standin_setting("PLATFORM", "Portable");
    if (clGetPlatformIDs(16, platforms, &count)) return false;
    for (cl_uint i = 0; i < count && i < 16; i++) {
        char name[256] = "";
        (void)clGetPlatformInfo(platforms[i], CL_PLATFORM_NAME, sizeof name, name, NULL);
        if (strstr(name, wanted) && !clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, 1, &standin_cl.device, NULL))
            return true;
    }
    return false;
}

/* On first use, not when the library is loaded: looking at a driver must not cost an LLVM. */
ze_result_t standin_device_start(void)
{
    cl_int error = 0;
    if (standin_cl.queue) return STANDIN_OK;
    if (!standin_cl.device && !find_platform()) {
        (void)fprintf(stderr, "level_zero stand-in: no OpenCL platform named %s\n",
                      standin_setting("PLATFORM", "Portable"));
        return ZE_RESULT_ERROR_UNINITIALIZED;
    }
    char text[16384] = "";
    (void)clGetDeviceInfo(standin_cl.device, CL_DEVICE_IL_VERSION, sizeof text, text, NULL);
    standin_cl.takes_spirv = strstr(text, "SPIR-V") != NULL;
    (void)clGetDeviceInfo(standin_cl.device, CL_DEVICE_EXTENSIONS, sizeof text, text, NULL);
    standin_cl.f16 = strstr(text, "cl_khr_fp16") != NULL;
    (void)clGetDeviceInfo(standin_cl.device, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof(size_t), &standin_cl.max_group,
                          NULL);
    (void)clGetDeviceInfo(standin_cl.device, CL_DEVICE_LOCAL_MEM_SIZE, 8, &standin_cl.shared_bytes, NULL);
    if (standin_cl.max_group > 1024) standin_cl.max_group = 1024;
    if (standin_cl.shared_bytes > 65536) standin_cl.shared_bytes = 65536;
    standin_cl.context = clCreateContext(NULL, 1, &standin_cl.device, NULL, NULL, &error);
    if (!error)
        standin_cl.queue = clCreateCommandQueueWithProperties(standin_cl.context, standin_cl.device, NULL, &error);
    return error ? ZE_RESULT_ERROR_UNINITIALIZED : STANDIN_OK;
}

/* ----------------------------------------------------------------- driver */

ENTRY(zeInit)(ze_init_flags_t flags)
{
    ENTER(zeInit);
    return flags & (uint32_t)ZE_INIT_FLAG_VPU_ONLY ? ZE_RESULT_ERROR_UNINITIALIZED : standin_device_start();
}

ENTRY(zeDriverGet)(uint32_t *count, ze_driver_handle_t *out_drivers)
{
    ENTER(zeDriverGet);
    NEED(count);
    if (*count && out_drivers) out_drivers[0] = (ze_driver_handle_t)(void *)&driver;
    *count = 1;
    return STANDIN_OK;
}

static ze_result_t check_driver(ze_driver_handle_t handle)
{
    if ((void *)handle == (void *)&driver) return STANDIN_OK;
    return standin_complain(ZE_RESULT_ERROR_INVALID_NULL_HANDLE, "the handle is not this driver's");
}

ENTRY(zeDriverGetApiVersion)(ze_driver_handle_t handle, ze_api_version_t *out_version)
{
    ENTER(zeDriverGetApiVersion);
    NEED(out_version);
    *out_version = ZE_API_VERSION_1_3;
    return check_driver(handle);
}

ENTRY(zeDriverGetProperties)(ze_driver_handle_t handle, ze_driver_properties_t *out)
{
    ENTER(zeDriverGetProperties);
    NEED(out);
    memset(&out->uuid, 7, sizeof out->uuid);
    out->driverVersion = 1;
    return check_driver(handle);
}

static bool relaxed(void) { return standin_number("RELAXED", 1) != 0; }

ENTRY(zeDriverGetExtensionProperties)
(ze_driver_handle_t handle, uint32_t *count, ze_driver_extension_properties_t *out)
{
    ENTER(zeDriverGetExtensionProperties);
    NEED(count);
    const uint32_t have = relaxed() ? 1 : 0;
    if (*count && have && out) {
        (void)snprintf(out->name, sizeof out->name, "%s", ZE_RELAXED_ALLOCATION_LIMITS_EXP_NAME);
        out->version = (uint32_t)ZE_RELAXED_ALLOCATION_LIMITS_EXP_VERSION_1_0;
    }
    *count = have;
    return check_driver(handle);
}

/* ----------------------------------------------------------------- devices */

static uint32_t device_count(void)
{
    const uint64_t count = standin_number("DEVICES", 1);
    return count > STANDIN_MAX_DEVICES ? STANDIN_MAX_DEVICES : (uint32_t)count;
}

standin_device *standin_device_find(ze_device_handle_t handle)
{
    for (uint32_t i = 0; i < STANDIN_MAX_DEVICES; i++)
        if ((void *)handle == (void *)&devices[i]) return &devices[i];
    (void)standin_complain(STANDIN_OK, "a device was asked for, the handle is %s", handle ? "another" : "NULL");
    return NULL;
}

ENTRY(zeDeviceGet)(ze_driver_handle_t handle, uint32_t *count, ze_device_handle_t *out_devices)
{
    ENTER(zeDeviceGet);
    NEED(count);
    const uint32_t have = device_count();
    if (*count == 0 || *count > have) *count = have;
    for (uint32_t i = 0; out_devices && i < *count; i++) {
        devices[i].index = i;
        out_devices[i] = (ze_device_handle_t)(void *)&devices[i];
    }
    return check_driver(handle);
}

#define DEVICE(handle)                                                                                                 \
    const standin_device *const device = standin_device_find(handle);                                                  \
    if (!device) return ZE_RESULT_ERROR_INVALID_NULL_HANDLE

ENTRY(zeDeviceGetProperties)(ze_device_handle_t handle, ze_device_properties_t *out)
{
    ENTER(zeDeviceGetProperties);
    NEED(out);
    DEVICE(handle);
    const bool in_hertz = out->stype == ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2;
    if (!in_hertz && out->stype != ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES)
        return standin_complain(ZE_RESULT_ERROR_INVALID_ARGUMENT, "zeDeviceGetProperties: stype is 0x%x",
                                (unsigned)out->stype);
    void *next = out->pNext;
    *out = (ze_device_properties_t){
        .stype = out->stype,
        .pNext = next,
        .type = ZE_DEVICE_TYPE_GPU,
        .vendorId = 0x8086,
        .deviceId = 0x56a0,
        .coreClockRate = 2400,
        .maxMemAllocSize = 4ull << 30,
        .maxHardwareContexts = 65536,
        .numThreadsPerEU = 8,
        .physicalEUSimdWidth = 8,
        .numEUsPerSubslice = 8,
        .numSubslicesPerSlice = 8,
        .numSlices = 8,
        .timerResolution = in_hertz ? TIMER_HZ : 1000000000ull / TIMER_HZ,
        .timestampValidBits = TIMER_BITS,
        .kernelTimestampValidBits = TIMER_EVENT_BITS,
    };
    memset(&out->uuid, 9, sizeof out->uuid);
    out->uuid.id[ZE_MAX_DEVICE_UUID_SIZE - 1] = (uint8_t)device->index;
    (void)snprintf(out->name, sizeof out->name, "Level Zero stand-in %u", device->index);
    return STANDIN_OK;
}

ENTRY(zeDeviceGetComputeProperties)(ze_device_handle_t handle, ze_device_compute_properties_t *out)
{
    ENTER(zeDeviceGetComputeProperties);
    NEED(out);
    DEVICE(handle);
    size_t sizes[64] = {0}, bytes = 0; /* PoCL 6 lists every size up to the group */
    const uint32_t group = (uint32_t)standin_cl.max_group;
    out->maxTotalGroupSize = out->maxGroupSizeX = out->maxGroupSizeY = out->maxGroupSizeZ = group;
    out->maxGroupCountX = out->maxGroupCountY = out->maxGroupCountZ = UINT32_MAX;
    out->maxSharedLocalMemory = (uint32_t)standin_cl.shared_bytes;
    if (clGetDeviceInfo(standin_cl.device, CL_DEVICE_SUB_GROUP_SIZES_INTEL, sizeof sizes, sizes, &bytes)) bytes = 0;
    out->numSubGroupSizes = 0;
    for (size_t i = 0; i < bytes / sizeof *sizes; i++) /* of those that Arc has */
        if (sizes[i] == 8 || sizes[i] == 16 || sizes[i] == 32)
            out->subGroupSizes[out->numSubGroupSizes++] = (uint32_t)sizes[i];
    return STANDIN_OK;
}

ENTRY(zeDeviceGetModuleProperties)(ze_device_handle_t handle, ze_device_module_properties_t *out)
{
    ENTER(zeDeviceGetModuleProperties);
    NEED(out);
    DEVICE(handle);
    out->spirvVersionSupported = ZE_MAKE_VERSION(1, 2);
    out->flags = standin_cl.f16 ? ZE_DEVICE_MODULE_FLAG_FP16 : 0;
    out->fp16flags = out->fp32flags = out->fp64flags = 0;
    out->maxArgumentsSize = 2048;
    out->printfBufferSize = 1u << 20;
    memset(&out->nativeKernelSupported, 0, sizeof out->nativeKernelSupported);
    return STANDIN_OK;
}

ENTRY(zeDeviceGetMemoryProperties)(ze_device_handle_t handle, uint32_t *count, ze_device_memory_properties_t *out)
{
    ENTER(zeDeviceGetMemoryProperties);
    NEED(count);
    DEVICE(handle);
    if (*count && out) {
        out->flags = 0;
        out->maxClockRate = 2000;
        out->maxBusWidth = 256;
        out->totalSize = standin_number("MEMORY_BYTES", 8ull << 30);
        (void)snprintf(out->name, sizeof out->name, "memory of the host");
    }
    *count = 1;
    return STANDIN_OK;
}

ENTRY(zeDeviceGetMemoryAccessProperties)(ze_device_handle_t handle, ze_device_memory_access_properties_t *out)
{
    ENTER(zeDeviceGetMemoryAccessProperties);
    NEED(out);
    DEVICE(handle);
    out->hostAllocCapabilities = out->deviceAllocCapabilities = out->sharedSingleDeviceAllocCapabilities =
        ZE_MEMORY_ACCESS_CAP_FLAG_RW;
    out->sharedCrossDeviceAllocCapabilities = out->sharedSystemAllocCapabilities = 0;
    return STANDIN_OK;
}

ENTRY(zeDeviceGetCommandQueueGroupProperties)
(ze_device_handle_t handle, uint32_t *count, ze_command_queue_group_properties_t *out)
{
    ENTER(zeDeviceGetCommandQueueGroupProperties);
    NEED(count);
    DEVICE(handle);
    const uint32_t have = standin_number("COPY_GROUP", 1) ? STANDIN_GROUPS : 1;
    if (*count == 0 || *count > have) *count = have;
    for (uint32_t i = 0; out && i < *count; i++) {
        out[i].flags =
            ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY | (i ? 0 : ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE);
        out[i].maxMemoryFillPatternSize = STANDIN_MAX_PATTERN;
        out[i].numQueues = i ? 1 : 4;
    }
    return STANDIN_OK;
}

ENTRY(zeDeviceGetStatus)(ze_device_handle_t handle)
{
    ENTER(zeDeviceGetStatus);
    DEVICE(handle);
    return STANDIN_OK;
}

ENTRY(zeDevicePciGetPropertiesExt)(ze_device_handle_t handle, ze_pci_ext_properties_t *out)
{
    ENTER(zeDevicePciGetPropertiesExt);
    NEED(out);
    DEVICE(handle);
    out->address = (ze_pci_address_ext_t){.domain = 0, .bus = 3 + device->index, .device = 0, .function = 0};
    out->maxSpeed = (ze_pci_speed_ext_t){.genVersion = 4, .width = 16, .maxBandwidth = -1};
    return STANDIN_OK;
}

/* -------------------------------------------------------------------- time */

uint64_t standin_now(void)
{
    struct timespec time;
    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000ull + (uint64_t)time.tv_nsec;
}

/* The device's timer, started a second before 32 bits of it wrap. */
uint64_t standin_device_ticks(void)
{
    static uint64_t first;
    const uint64_t now = standin_now();
    if (!first) first = now;
    return (1ull << TIMER_EVENT_BITS) - TIMER_HZ + (now - first) * 96 / 5000; /* 19.2e6 / 1e9 */
}

ENTRY(zeDeviceGetGlobalTimestamps)(ze_device_handle_t handle, uint64_t *out_host, uint64_t *out_device)
{
    ENTER(zeDeviceGetGlobalTimestamps);
    NEED(out_host);
    NEED(out_device);
    DEVICE(handle);
    *out_host = standin_now();
    *out_device = standin_device_ticks() & ((1ull << TIMER_BITS) - 1);
    return STANDIN_OK;
}

/* ---------------------------------------------------------------- contexts */

ENTRY(zeContextCreate)(ze_driver_handle_t handle, const ze_context_desc_t *desc, ze_context_handle_t *out_context)
{
    ENTER(zeContextCreate);
    NEED(desc);
    NEED(out_context);
    const ze_result_t result = check_driver(handle);
    if (result) return result;
    standin_context *context = standin_create(STANDIN_CONTEXT, sizeof *context, NULL);
    if (!context) return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    *out_context = (ze_context_handle_t)(void *)context;
    return STANDIN_OK;
}

ENTRY(zeContextDestroy)(ze_context_handle_t handle)
{
    STANDIN_HOLD;
    FIND(standin_context, context, handle, STANDIN_CONTEXT);
    if (!standin_may_destroy(&context->object, "zeContextDestroy")) return ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE;
    standin_destroy(context);
    LEAVE(zeContextDestroy);
}

ENTRY(zeContextGetStatus)(ze_context_handle_t handle)
{
    ENTER(zeContextGetStatus);
    FIND(standin_context, context, handle, STANDIN_CONTEXT);
    return STANDIN_OK;
}
