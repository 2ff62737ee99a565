/* SPDX-License-Identifier: Apache-2.0 */
/* device.c - what an OpenCL device is and can do, and its context and queue.
 *
 * Everything beyond OpenCL 1.2 is asked for only where the extension string or the version names it. Three limits of
 * the contract are one here: an allocation is a buffer is a kernel argument, at most CL_DEVICE_MAX_MEM_ALLOC_SIZE;
 * drivers enforce it unevenly, so buffer.c checks it. Invariant: an opened device is unusable, not dangerous, in a
 * forked child and after a loss. */
#include "backends/opencl/opencl.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/base/plugin_device.h"
#include "core/base/uuid.h"

/* Values of vendor extensions that CL/cl_ext.h of older header packages lacks. */
enum {
    TERN_CL_DEVICE_UUID = 0x106A,     /* cl_khr_device_uuid, 16 bytes */
    TERN_CL_DEVICE_PCI = 0x410F,      /* cl_khr_pci_bus_info, four cl_uint */
    TERN_CL_GROUP_MULTIPLE = 0x1067,  /* OpenCL 3.0, size_t */
    TERN_CL_SUB_GROUP_SIZES = 0x4108, /* cl_intel_required_subgroup_size, size_t[] */
    TERN_CL_WARP_SIZE_NV = 0x4003,    /* cl_nv_device_attribute_query, cl_uint */
    TERN_CL_FREE_MEMORY_AMD = 0x4039, /* cl_amd_device_attribute_query, size_t KiB: free, largest block */
    TERN_CL_WAVEFRONT_AMD = 0x4043,   /* cl_amd_device_attribute_query, cl_uint */
};

static tern_status ask(cl_device_id id, cl_device_info what, size_t bytes, void *out_value)
{
    return CL_CALL(NULL, clGetDeviceInfo, id, what, bytes, out_value, NULL);
}

static bool has_extension(const char *list, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = list; (at = strstr(at, name)); at += length)
        if ((at == list || at[-1] == ' ') && (at[length] == ' ' || at[length] == 0)) return true;
    return false;
}

static tern_status query_names(const tern_opencl_entry *entry, tern_device_info *info)
{
    char platform[128] = "", version[96] = "";
    tern_status status;
    TERN_TRY(ask(entry->device, CL_DEVICE_NAME, sizeof info->name - 1, info->name));
    TERN_TRY(ask(entry->device, CL_DRIVER_VERSION, sizeof version - 1, version));
    TERN_TRY(CL_CALL(NULL, clGetPlatformInfo, entry->platform, CL_PLATFORM_NAME, sizeof platform - 1, platform, NULL));
    snprintf(info->driver, sizeof info->driver, "%s %s", platform, version);
fail:
    return status;
}

static tern_status query_limits(cl_device_id id, tern_device_info *info)
{
    cl_ulong memory, allocation, local;
    size_t group;
    cl_uint units, vendor, bits;
    tern_status status;
    TERN_TRY(ask(id, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof memory, &memory));
    TERN_TRY(ask(id, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof allocation, &allocation));
    TERN_TRY(ask(id, CL_DEVICE_LOCAL_MEM_SIZE, sizeof local, &local));
    TERN_TRY(ask(id, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof group, &group));
    TERN_TRY(ask(id, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof units, &units));
    TERN_TRY(ask(id, CL_DEVICE_VENDOR_ID, sizeof vendor, &vendor));
    TERN_TRY(ask(id, CL_DEVICE_ADDRESS_BITS, sizeof bits, &bits));
    info->memory_bytes = info->memory_free_bytes = memory;
    info->max_allocation_bytes = info->max_buffer_bytes = info->max_binding_bytes = allocation;
    info->shared_bytes = local > UINT32_MAX ? UINT32_MAX : (uint32_t)local;
    info->max_group_size = group > UINT32_MAX ? UINT32_MAX : (uint32_t)group;
    info->threads = units;
    info->vendor_id = vendor;
    /* OpenCL counts work-items, not groups; some drivers keep an axis' items in 32 bits, so an axis stays below that.
     */
    const uint32_t per_axis = UINT32_MAX / (info->max_group_size ? info->max_group_size : 1);
    info->max_groups[0] = per_axis;
    info->max_groups[1] = info->max_groups[2] = per_axis < 65535 ? per_axis : 65535;
    info->offset_alignment = 256; /* whole cache lines of any device; offsets go in as elements, so any would do */
    if (bits < 64) tern_log_write(TERN_LOG_DEBUG, "opencl: %s has %u address bits", info->name, bits);
fail:
    return status;
}

static tern_status query_kind(cl_device_id id, const char *extensions, tern_device_info *info)
{
    cl_device_type type;
    cl_bool unified;
    tern_status status;
    TERN_TRY(ask(id, CL_DEVICE_TYPE, sizeof type, &type));
    TERN_TRY(ask(id, CL_DEVICE_HOST_UNIFIED_MEMORY, sizeof unified, &unified));
    info->kind = type & CL_DEVICE_TYPE_CPU ? TERN_DEVICE_SOFTWARE_GPU
                 : unified                 ? TERN_DEVICE_INTEGRATED_GPU
                                           : TERN_DEVICE_DISCRETE_GPU;
    info->features = TERN_FEATURE_RENDERS | TERN_FEATURE_TIMESTAMPS | TERN_FEATURE_STORAGE_16 |
                     TERN_FEATURE_STORAGE_8; /* ushort and uchar are core, and vload_half needs no cl_khr_fp16 */
    if (unified) info->features |= TERN_FEATURE_UNIFIED_MEMORY;
    if (type & CL_DEVICE_TYPE_CPU) info->features |= TERN_FEATURE_REGISTER_TILES;
    if (has_extension(extensions, "cl_khr_fp16")) info->features |= TERN_FEATURE_ARITHMETIC_F16;
    if (has_extension(extensions, "cl_khr_subgroups") || has_extension(extensions, "cl_intel_subgroups"))
        info->features |= TERN_FEATURE_SUBGROUPS;
fail:
    return status;
}

static tern_status query_required_sizes(cl_device_id id, tern_device_info *info)
{
    size_t sizes[16] = {0};
    const tern_status status = ask(id, TERN_CL_SUB_GROUP_SIZES, sizeof sizes, sizes);
    if (status < 0) return status;
    for (size_t i = 0; i < 16 && sizes[i]; i++) {
        if (i == 0 || sizes[i] < info->subgroup_min) info->subgroup_min = (uint32_t)sizes[i];
        if (sizes[i] > info->subgroup_max) info->subgroup_max = (uint32_t)sizes[i];
    }
    return TERN_OK;
}

/* How many work-items run in step. A CPU driver is of one of two kinds, told apart by the vector a work-item may have:
 * wide (PoCL: work-items are turns of a loop, and a sub-group of any size is a number, no hardware), or one float
 * (rusticl: each work-item is a lane). OpenCL 3.0 tells the lanes as what group sizes should be multiples of. */
static tern_status query_subgroups(cl_device_id id, const char *extensions, tern_device_info *info)
{
    cl_uint width = 0, vector = 0;
    size_t multiple = 0;
    char version[256] = "";
    tern_status status;
    info->subgroup_min = info->subgroup_max = 1; /* unknown: what assumes nothing */
    TERN_TRY(ask(id, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT, sizeof vector, &vector));
    TERN_TRY(ask(id, CL_DEVICE_VERSION, sizeof version - 1, version));
    if (info->kind == TERN_DEVICE_SOFTWARE_GPU && vector > 1) {
        info->features &= ~(uint32_t)TERN_FEATURE_SUBGROUPS;
    } else if (has_extension(extensions, "cl_intel_required_subgroup_size")) {
        TERN_TRY(query_required_sizes(id, info));
        if (has_extension(extensions, "cl_intel_subgroup_matrix_multiply_accumulate")) tern_plugin_list_dpas(info);
    } else if (has_extension(extensions, "cl_nv_device_attribute_query")) {
        TERN_TRY(ask(id, TERN_CL_WARP_SIZE_NV, sizeof width, &width));
    } else if (has_extension(extensions, "cl_amd_device_attribute_query")) {
        TERN_TRY(ask(id, TERN_CL_WAVEFRONT_AMD, sizeof width, &width));
    } else if (strncmp(version, "OpenCL 3.", 9) == 0) {
        TERN_TRY(ask(id, TERN_CL_GROUP_MULTIPLE, sizeof multiple, &multiple));
        width = multiple > info->max_group_size ? info->max_group_size : (uint32_t)multiple;
    }
    if (width) info->subgroup_min = info->subgroup_max = width;
fail:
    return status;
}

static tern_status query_identity(cl_device_id id, const char *extensions, tern_device_info *info)
{
    tern_status status = TERN_OK;
    if (has_extension(extensions, "cl_khr_device_uuid")) {
        unsigned char uuid[16];
        TERN_TRY(ask(id, TERN_CL_DEVICE_UUID, sizeof uuid, uuid));
        tern_uuid_print(uuid, info->uuid);
    }
    if (has_extension(extensions, "cl_khr_pci_bus_info")) {
        cl_uint at[4]; /* domain, bus, device, function */
        TERN_TRY(ask(id, TERN_CL_DEVICE_PCI, sizeof at, at));
        snprintf(info->pci, sizeof info->pci, "%04x:%02x:%02x.%x", at[0] & 0xffff, at[1] & 0xff, at[2] & 0xff,
                 at[3] & 15);
    }
    if (has_extension(extensions, "cl_amd_device_attribute_query")) {
        size_t free_kib[2] = {0, 0};
        TERN_TRY(ask(id, TERN_CL_FREE_MEMORY_AMD, sizeof free_kib, free_kib));
        if (free_kib[0]) info->memory_free_bytes = (uint64_t)free_kib[0] << 10;
    }
fail:
    return status;
}

static tern_status info_query(const tern_opencl_entry *entry, tern_device_info *info)
{
    tern_status status;
    char extensions[16384] = "";
    memset(info, 0, sizeof *info);
    TERN_TRY(ask(entry->device, CL_DEVICE_EXTENSIONS, sizeof extensions - 1, extensions));
    TERN_TRY(query_names(entry, info));
    TERN_TRY(query_limits(entry->device, info));
    TERN_TRY(query_kind(entry->device, extensions, info));
    TERN_TRY(query_subgroups(entry->device, extensions, info));
    TERN_TRY(query_identity(entry->device, extensions, info));
fail:
    return status;
}

tern_status tern_opencl_device_info(uint32_t index, tern_device_info *out_info)
{
    tern_opencl_entry entry;
    tern_device_info info;
    tern_status status;
    TERN_TRY(tern_opencl_entry_find(index, &entry));
    TERN_TRY(info_query(&entry, &info));
    *out_info = info;
fail:
    return status;
}

tern_status tern_opencl_device_notes(uint32_t index, char *out_text, size_t bytes)
{
    tern_opencl_entry entry;
    char version[128] = "", language[128] = "", extensions[16384] = "";
    tern_status status;
    TERN_TRY(tern_opencl_entry_find(index, &entry));
    TERN_TRY(ask(entry.device, CL_DEVICE_VERSION, sizeof version - 1, version));
    TERN_TRY(ask(entry.device, CL_DEVICE_OPENCL_C_VERSION, sizeof language - 1, language));
    TERN_TRY(ask(entry.device, CL_DEVICE_EXTENSIONS, sizeof extensions - 1, extensions));
    snprintf(out_text, bytes, "%s, %s\nextensions: %s%s", version, language, extensions,
             has_extension(extensions, "cl_khr_fp16") ? ""
                                                      : "\nno cl_khr_fp16: 16-bit storage only, arithmetic in f32");
fail:
    return status;
}

/* ------------------------------------------------------------------ open */

/* A driver update, another device or other options make other binaries. Fast maths is never asked for: it folds NaN
 * tests away. Correct rounding of / and sqrt, where the device can, keeps backends equal. */
static tern_status build_prepare(const tern_opencl_entry *entry, tern_backend_device *device)
{
    cl_device_fp_config single = 0;
    char version[128] = "";
    tern_status status;
    TERN_TRY(ask(entry->device, CL_DEVICE_SINGLE_FP_CONFIG, sizeof single, &single));
    TERN_TRY(CL_CALL(NULL, clGetPlatformInfo, entry->platform, CL_PLATFORM_VERSION, sizeof version - 1, version, NULL));
    snprintf(device->build_options, sizeof device->build_options, "-cl-std=CL1.2%s",
             single & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT ? " -cl-fp32-correctly-rounded-divide-sqrt" : "");
    uint64_t hash = tern_hash(TERN_HASH_START, version, sizeof version);
    hash = tern_hash(hash, device->info.name, sizeof device->info.name);
    hash = tern_hash(hash, device->info.driver, sizeof device->info.driver);
    device->driver_hash = tern_hash(hash, device->build_options, strlen(device->build_options));
    TERN_TRY(ask(entry->device, CL_DEVICE_MAX_WORK_ITEM_SIZES, sizeof device->max_item_sizes, device->max_item_sizes));
fail:
    return status;
}

tern_status tern_opencl_open(uint32_t index, const tern_open_options *options, tern_backend_device **out_device)
{
    tern_backend_device *device = NULL;
    tern_opencl_entry entry;
    tern_status status;
    cl_int code = CL_SUCCESS;
    *out_device = NULL;
    tern_opencl_fault_reset();
    TERN_TRY(tern_opencl_entry_find(index, &entry));
    device = calloc(1, sizeof *device);
    if (!device) return tern_error_memory("an OpenCL device", sizeof *device);
    pthread_mutex_init(&device->lock, NULL);
    device->pid = getpid();
    device->id = entry.device;
    device->timestamps = options && options->timestamps;
    TERN_TRY(info_query(&entry, &device->info));
    TERN_TRY(build_prepare(&entry, device));
    const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)entry.platform, 0};
    TERN_TRY(CL_MAKE(device, &device->context, clCreateContext, properties, 1, &device->id, NULL, NULL));
    TERN_TRY(CL_MAKE(device, &device->queue, clCreateCommandQueue, device->context, device->id,
                     device->timestamps ? CL_QUEUE_PROFILING_ENABLE : 0));
    *out_device = device;
    return TERN_OK;
fail:
    tern_opencl_close(device);
    return status;
}

void tern_opencl_close(tern_backend_device *device)
{
    if (!device) return;
    if (tern_opencl_is_own(device)) {
        if (device->queue && tern_opencl_drain(device) < 0)
            tern_log_write(TERN_LOG_WARNING, "opencl: closing with work in flight: %s", tern_error_message());
        for (size_t i = 0; i < TERN_OPENCL_RING; i++) CL_RELEASE(clReleaseEvent, device->ring[i]);
        CL_RELEASE(clReleaseCommandQueue, device->queue);
        CL_RELEASE(clReleaseContext, device->context);
    }
    pthread_mutex_destroy(&device->lock);
    free(device);
}

bool tern_opencl_is_own(const tern_backend_device *device) { return device->pid == getpid(); }

tern_status tern_opencl_enter(tern_backend_device *device)
{
    if (!tern_opencl_is_own(device))
        return tern_error(TERN_ERROR_INVALID,
                          "%s was opened by process %ld, and OpenCL does not survive a fork; open it "
                          "again in process %ld",
                          device->info.name, (long)device->pid, (long)getpid());
    if (atomic_load(&device->lost))
        return tern_error(TERN_ERROR_DEVICE_LOST, "%s was lost by an earlier call; close it and open it again",
                          device->info.name);
    return TERN_OK;
}
