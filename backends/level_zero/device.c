/* SPDX-License-Identifier: Apache-2.0 */
/* device.c - what a Level Zero device is and can do, its context, queue and lists.
 *
 * An allocation may be larger than maxMemAllocSize (4 GiB on Arc) where the driver has the extension for it; kernels
 * that are given one are built in a form of their own (kernel.c). Nothing is derived from a device's name.
 * Invariant: an opened device is unusable, not dangerous, in a forked child and after a loss. */
#include "backends/level_zero/level_zero.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/base/uuid.h"

#define ZERO_PATIENCE_S 120u

static tern_status query_properties(const zero_entry *entry, tern_device_info *info, ze_device_properties_t *device)
{
    ze_driver_properties_t driver = {.stype = ZE_STRUCTURE_TYPE_DRIVER_PROPERTIES};
    ze_api_version_t version = 0;
    tern_status status;
    *device = (ze_device_properties_t){.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2};
    TERN_TRY(ZE_CALL(NULL, zeDeviceGetProperties, entry->device, device));
    TERN_TRY(ZE_CALL(NULL, zeDriverGetProperties, entry->driver, &driver));
    TERN_TRY(ZE_CALL(NULL, zeDriverGetApiVersion, entry->driver, &version));
    const bool integrated = (device->flags & ZE_DEVICE_PROPERTY_FLAG_INTEGRATED) != 0;
    snprintf(info->name, sizeof info->name, "%s", device->name);
    snprintf(info->driver, sizeof info->driver, "Level Zero %u.%u, driver %u", ZE_MAJOR_VERSION(version),
             ZE_MINOR_VERSION(version), driver.driverVersion);
    tern_uuid_print(device->uuid.id, info->uuid);
    info->vendor_id = device->vendorId;
    info->device_id = device->deviceId;
    info->kind = integrated ? TERN_DEVICE_INTEGRATED_GPU : TERN_DEVICE_DISCRETE_GPU;
    info->threads = device->numSlices * device->numSubslicesPerSlice * device->numEUsPerSubslice;
    info->max_allocation_bytes = device->maxMemAllocSize;
    info->features = TERN_FEATURE_RENDERS | TERN_FEATURE_STORAGE_16 | TERN_FEATURE_STORAGE_8 | TERN_FEATURE_SUBGROUPS |
                     TERN_FEATURE_TIMESTAMPS | TERN_FEATURE_BUFFER_ADDRESS;
    if (integrated) info->features |= TERN_FEATURE_UNIFIED_MEMORY;
fail:
    return status;
}

/* Intel's extension that says whether there are matrix units; the loader's headers do not have it. Source:
 * compute-runtime, level_zero/doc/experimental_extensions/MODULE_DP_SUPPORT.md; drivers from 24.05 on. */
#define DOT_PRODUCTS_NAME  "ZE_intel_experimental_device_module_dp_properties"
#define DOT_PRODUCTS_STYPE 0x00030013
#define DOT_PRODUCTS_DPAS  2u
typedef struct dot_products {
    uint32_t stype;
    void *pNext;
    uint32_t flags;
} dot_products;

static tern_status query_compute(const zero_entry *entry, bool has_dot_products, tern_device_info *info)
{
    ze_device_compute_properties_t compute = {.stype = ZE_STRUCTURE_TYPE_DEVICE_COMPUTE_PROPERTIES};
    dot_products dot = {.stype = DOT_PRODUCTS_STYPE};
    ze_device_module_properties_t module = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MODULE_PROPERTIES,
                                            .pNext = has_dot_products ? &dot : NULL};
    tern_status status;
    TERN_TRY(ZE_CALL(NULL, zeDeviceGetComputeProperties, entry->device, &compute));
    TERN_TRY(ZE_CALL(NULL, zeDeviceGetModuleProperties, entry->device, &module));
    info->max_groups[0] = compute.maxGroupCountX;
    info->max_groups[1] = compute.maxGroupCountY;
    info->max_groups[2] = compute.maxGroupCountZ;
    info->max_group_size =
        compute.maxTotalGroupSize < compute.maxGroupSizeX ? compute.maxTotalGroupSize : compute.maxGroupSizeX;
    info->shared_bytes = compute.maxSharedLocalMemory;
    info->subgroup_min = info->subgroup_max = compute.numSubGroupSizes ? compute.subGroupSizes[0] : 1;
    for (uint32_t i = 1; i < compute.numSubGroupSizes && i < ZE_SUBGROUPSIZE_COUNT; i++) {
        if (compute.subGroupSizes[i] < info->subgroup_min) info->subgroup_min = compute.subGroupSizes[i];
        if (compute.subGroupSizes[i] > info->subgroup_max) info->subgroup_max = compute.subGroupSizes[i];
    }
    if (module.flags & ZE_DEVICE_MODULE_FLAG_FP16) info->features |= TERN_FEATURE_ARITHMETIC_F16;
    if ((dot.flags & DOT_PRODUCTS_DPAS) && zero_compiler_knows_dpas()) tern_plugin_list_dpas(info);
fail:
    return status;
}

static tern_status query_memory(const zero_entry *entry, tern_device_info *info)
{
    ze_device_memory_properties_t memory[16];
    uint32_t count = 16;
    tern_status status;
    for (size_t i = 0; i < 16; i++)
        memory[i] = (ze_device_memory_properties_t){.stype = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES};
    TERN_TRY(ZE_CALL(NULL, zeDeviceGetMemoryProperties, entry->device, &count, memory));
    for (uint32_t i = 0; i < count && i < 16; i++) info->memory_bytes += memory[i].totalSize;
    info->memory_free_bytes = info->memory_bytes; /* the loader's core interface does not say */
fail:
    return status;
}

/* Whether the driver has the extension for allocations above maxMemAllocSize, and the one about matrix units. */
static tern_status query_extensions(ze_driver_handle_t driver, bool *out_relaxed, bool *out_dot_products)
{
    uint32_t count = 0;
    ze_driver_extension_properties_t *list = NULL;
    tern_status status;
    *out_relaxed = *out_dot_products = false;
    TERN_TRY(ZE_CALL(NULL, zeDriverGetExtensionProperties, driver, &count, NULL));
    if (count == 0) return TERN_OK;
    list = calloc(count, sizeof *list);
    if (!list) return tern_error_memory("a list of extensions", count * sizeof *list);
    TERN_TRY(ZE_CALL(NULL, zeDriverGetExtensionProperties, driver, &count, list));
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(list[i].name, ZE_RELAXED_ALLOCATION_LIMITS_EXP_NAME) == 0) *out_relaxed = true;
        if (strcmp(list[i].name, DOT_PRODUCTS_NAME) == 0) *out_dot_products = true;
    }
fail:
    free(list);
    return status;
}

static tern_status info_query(const zero_entry *entry, tern_device_info *info, ze_device_properties_t *properties)
{
    bool relaxed, has_dot_products;
    ze_pci_ext_properties_t pci = {.stype = ZE_STRUCTURE_TYPE_PCI_EXT_PROPERTIES};
    tern_status status;
    memset(info, 0, sizeof *info);
    TERN_TRY(query_properties(entry, info, properties));
    TERN_TRY(query_extensions(entry->driver, &relaxed, &has_dot_products));
    TERN_TRY(query_compute(entry, has_dot_products, info));
    TERN_TRY(query_memory(entry, info));
    if (relaxed) info->max_allocation_bytes = info->memory_bytes;
    info->max_buffer_bytes = info->max_binding_bytes = info->max_allocation_bytes;
    info->offset_alignment = 256; /* whole cache lines; offsets go in as pointer and elements, so any would do */
    if (tern_ze.zeDevicePciGetPropertiesExt(entry->device, &pci) == ZE_RESULT_SUCCESS) /* an extension */
        snprintf(info->pci, sizeof info->pci, "%04x:%02x:%02x.%x", pci.address.domain & 0xffff, pci.address.bus & 0xff,
                 pci.address.device & 0xff, pci.address.function & 15);
fail:
    return status;
}

tern_status zero_device_info(uint32_t index, tern_device_info *out_info)
{
    zero_entry entry;
    tern_device_info info;
    ze_device_properties_t properties;
    tern_status status;
    TERN_TRY(zero_entry_find(index, &entry));
    TERN_TRY(info_query(&entry, &info, &properties));
    *out_info = info;
fail:
    return status;
}

tern_status zero_device_notes(uint32_t index, char *out_text, size_t bytes)
{
    zero_entry entry;
    char compiler[400];
    tern_status status;
    TERN_TRY(zero_entry_find(index, &entry));
    if (zero_compiler_find(compiler, sizeof compiler) < 0)
        snprintf(compiler, sizeof compiler, "%s", tern_error_message());
    snprintf(out_text, bytes, "OpenCL C to SPIR-V: %s", compiler);
fail:
    return status;
}

/* ------------------------------------------------------------------ open */

/* The first group of queues that computes, and the first that only copies, or the same. */
static tern_status ordinals_find(tern_backend_device *device, uint32_t *out_copies)
{
    ze_command_queue_group_properties_t groups[16];
    uint32_t count = 16, computes = 16;
    tern_status status;
    for (size_t i = 0; i < 16; i++)
        groups[i] = (ze_command_queue_group_properties_t){.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES};
    TERN_TRY(ZE_CALL(device, zeDeviceGetCommandQueueGroupProperties, device->entry.device, &count, groups));
    *out_copies = 16;
    for (uint32_t i = count < 16 ? count : 16; i-- > 0;) {
        if (groups[i].flags & ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE)
            computes = i;
        else if ((groups[i].flags & ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY) &&
                 groups[i].maxMemoryFillPatternSize >= sizeof(uint32_t))
            *out_copies = i;
    }
    if (computes == 16)
        return tern_error(TERN_ERROR_UNSUPPORTED, "%s has no queue that computes", device->base.info.name);
    device->ordinal = computes;
    if (*out_copies == 16) *out_copies = computes;
fail:
    return status;
}

/* Transfers go to a copy engine where there is one, unless their list is the programs' too. */
static tern_status queues_make(tern_backend_device *device)
{
    ze_command_queue_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                    .mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS};
    uint32_t copies;
    tern_status status;
    TERN_TRY(ordinals_find(device, &copies));
    desc.ordinal = device->ordinal;
    const ze_result_t result =
        tern_ze.zeCommandQueueCreate(device->context, device->entry.device, &desc, &device->queue);
    if (result == ZE_RESULT_ERROR_UNSUPPORTED_FEATURE)
        device->queue = NULL;
    else
        TERN_TRY(zero_result(device, "zeCommandQueueCreate", result));
    if (device->queue) desc.ordinal = copies;
    TERN_TRY(ZE_CALL(device, zeCommandListCreateImmediate, device->context, device->entry.device, &desc,
                     &device->immediate));
fail:
    return status;
}

static void timer_prepare(tern_backend_device *device, const ze_device_properties_t *properties)
{
    const double ns = properties->timerResolution ? 1e9 / (double)properties->timerResolution : 1; /* from Hz */
    const uint32_t bits = properties->kernelTimestampValidBits;
    device->ns_per_tick_q32 = (uint64_t)(ns * 4294967296.0);
    device->tick_mask = bits == 0 || bits >= 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1;
}

tern_status zero_open(uint32_t index, const tern_open_options *options, tern_backend_device **out_device)
{
    tern_backend_device *device = NULL;
    ze_device_properties_t properties;
    const ze_context_desc_t context = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    const ze_host_mem_alloc_desc_t host = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};
    zero_entry entry;
    tern_status status;
    *out_device = NULL;
    TERN_TRY(zero_entry_find(index, &entry));
    device = calloc(1, sizeof *device);
    if (!device) return tern_error_memory("a Level Zero device", sizeof *device);
    pthread_mutex_init(&device->lock, NULL);
    pthread_mutex_init(&device->transfer_lock, NULL);
    device->base.api = "Level Zero";
    device->base.pid = getpid();
    device->entry = entry;
    device->timestamps = options && options->timestamps;
    tern_plugin_patience_read(&device->base, "TERN_LEVEL_ZERO_PATIENCE_S", ZERO_PATIENCE_S);
    TERN_TRY(info_query(&entry, &device->base.info, &properties));
    TERN_TRY(zero_compiler_find(NULL, 0));
    device->plain_allocation_bytes = properties.maxMemAllocSize;
    timer_prepare(device, &properties);
    device->driver_hash = tern_hash(TERN_HASH_START, device->base.info.name, sizeof device->base.info.name);
    device->driver_hash = tern_hash(device->driver_hash, device->base.info.driver, sizeof device->base.info.driver);
    TERN_TRY(ZE_CALL(device, zeContextCreate, entry.driver, &context, &device->context));
    TERN_TRY(queues_make(device));
    TERN_TRY(zero_pool_create(device, 1, false, &device->pool));
    TERN_TRY(zero_event_create(device, device->pool, 0, &device->transfer));
    TERN_TRY(ZE_CALL(device, zeMemAllocHost, device->context, &host, ZERO_STAGING_BYTES, 64, &device->staging));
    *out_device = device;
    return TERN_OK;
fail:
    zero_close(device);
    return status;
}

void zero_close(tern_backend_device *device)
{
    if (!device) return;
    if (zero_may_release(device, "the device")) {
        if (device->staging) zero_released("zeMemFree", tern_ze.zeMemFree(device->context, device->staging));
        ZE_RELEASE(zeEventDestroy, device->transfer);
        ZE_RELEASE(zeEventPoolDestroy, device->pool);
        ZE_RELEASE(zeCommandListDestroy, device->immediate);
        ZE_RELEASE(zeCommandQueueDestroy, device->queue);
        ZE_RELEASE(zeContextDestroy, device->context);
    }
    pthread_mutex_destroy(&device->transfer_lock);
    pthread_mutex_destroy(&device->lock);
    free(device);
}

bool zero_may_release(tern_backend_device *device, const char *what)
{
    if (!tern_plugin_may_release(&device->base)) return false;
    if (!atomic_load(&device->base.lost) && zero_drain(device) < 0)
        tern_log_write(TERN_LOG_WARNING, "level_zero: giving back %s: %s", what, tern_error_message());
    return tern_plugin_may_release(&device->base);
}
