/* SPDX-License-Identifier: Apache-2.0 */
/* device.cpp - devices as the environment wants them, CUDA_VISIBLE_DEVICES, primary contexts.
 *
 * Invariant: a context whose work failed answers every call with that error until it is released, as NVIDIA's does;
 * what it still holds then is no leak. */
#include "driver.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace stand_in
{
namespace
{

int capability_of(int index)
{
    const char *text = getenv("TERN_STANDIN_CUDA_CAPABILITY");
    int value = 80;
    for (int i = 0; text && *text && i <= index; i++) {
        value = atoi(text);
        text = strchr(text, ',');
        if (text) text++;
    }
    return value;
}

CUuuid uuid_of(int index)
{
    CUuuid uuid;
    for (int i = 0; i < 16; i++) uuid.bytes[i] = (unsigned char)(0x7e + 13 * i);
    uuid.bytes[15] = (unsigned char)index;
    return uuid;
}

std::string uuid_text(int index)
{
    const CUuuid uuid = uuid_of(index);
    std::string text = "GPU-";
    for (int i = 0; i < 16; i++)
        text += format(i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", uuid.bytes[i]);
    return text;
}

/* Which device an entry of CUDA_VISIBLE_DEVICES names, -1: none. A UUID may be cut where it is still the only one. */
int named_device(const std::string &entry, int count)
{
    char *end = nullptr;
    const long index = strtol(entry.c_str(), &end, 10);
    if (!entry.empty() && *end == 0) return index >= 0 && index < count ? (int)index : -1;
    int found = -1;
    for (int i = 0; i < count; i++)
        if (entry.size() > 4 && uuid_text(i).compare(0, entry.size(), entry) == 0) found = found < 0 ? i : -2;
    return found < 0 ? -1 : found;
}

std::vector<int> visible_devices()
{
    const int count = (int)number_of("TERN_STANDIN_CUDA_DEVICES", 1);
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    std::vector<int> result;
    for (int i = 0; !list && i < count; i++) result.push_back(i);
    for (std::string rest = list ? list : ""; !rest.empty();) {
        const size_t comma = rest.find(',');
        const int device = named_device(rest.substr(0, comma), count);
        if (device < 0) break;
        if (std::find(result.begin(), result.end(), device) != result.end()) return {}; /* named twice: none at all */
        result.push_back(device);
        rest = comma == rest.npos ? "" : rest.substr(comma + 1);
    }
    return result;
}

Device *device_at(int index)
{
    return index >= 0 && (size_t)index < state.devices.size() ? state.devices[(size_t)index] : nullptr;
}

int attribute_of(const Device &d, int attribute)
{
    const int shared_kib = d.capability == 80 || d.capability == 87   ? 163
                           : d.capability >= 90 && d.capability < 120 ? 227
                                                                      : 99;
    switch (attribute) {
    case CU_MAX_THREADS_PER_BLOCK:
    case CU_MAX_BLOCK_X:
    case CU_MAX_BLOCK_Y: return 1024;
    case CU_MAX_BLOCK_Z: return 64;
    case CU_MAX_GRID_X: return INT32_MAX;
    case CU_MAX_GRID_Y:
    case CU_MAX_GRID_Z: return 65535;
    case CU_MAX_SHARED_PER_BLOCK: return 48 << 10;
    case CU_MAX_SHARED_PER_BLOCK_OPTIN: return shared_kib << 10;
    case CU_MAX_SHARED_PER_MULTIPROCESSOR: return (shared_kib + 1) << 10;
    case CU_RESERVED_SHARED_PER_BLOCK: return 1024;
    case CU_TOTAL_CONSTANT_MEMORY: return 65536;
    case CU_WARP_SIZE: return 32;
    case CU_MAX_REGISTERS_PER_BLOCK:
    case CU_MAX_REGISTERS_PER_MULTIPROCESSOR: return 65536;
    case CU_CLOCK_RATE: return 1410000;
    case CU_MEMORY_CLOCK_RATE: return 1215000;
    case CU_MEMORY_BUS_WIDTH: return 5120;
    case CU_MULTIPROCESSOR_COUNT: return 4;
    case CU_MAX_THREADS_PER_MULTIPROCESSOR: return 1536;
    case CU_MAX_BLOCKS_PER_MULTIPROCESSOR: return 16;
    case CU_CAN_MAP_HOST_MEMORY:
    case CU_CONCURRENT_KERNELS:
    case CU_STREAM_PRIORITIES:
    case CU_UNIFIED_ADDRESSING: return 1;
    case CU_ASYNC_ENGINE_COUNT: return 2;
    case CU_L2_CACHE_SIZE: return 4 << 20;
    case CU_COMPUTE_MODE: return (int)number_of("TERN_STANDIN_CUDA_COMPUTE_MODE", 0);
    case CU_PCI_BUS_ID: return d.index + 1;
    case CU_CAPABILITY_MAJOR: return d.capability / 10;
    case CU_CAPABILITY_MINOR: return d.capability % 10;
    default: return 0;
    }
}

/* Leaks: what a healthy context still holds when it goes. */
void destroy_context(Context *context)
{
    const bool healthy = context->error == 0;
    if (healthy) state.leaked += (int64_t)(context->streams.size() + context->events.size() + context->modules.size());
    if (healthy) state.leaked += (int64_t)context->host_blocks.size();
    sweep_memory(context, healthy);
    sweep_streams(context);
    sweep_modules(context);
    context->error = 0;
}

} // namespace

void find_devices()
{
    const uint64_t memory = number_of("TERN_STANDIN_CUDA_MEMORY_MIB", 4096) << 20;
    state.devices.clear();
    for (int index : visible_devices()) {
        Device *device = new Device();
        device->index = index, device->capability = capability_of(index), device->memory_bytes = memory;
        state.devices.push_back(device);
    }
}

} // namespace stand_in

using namespace stand_in;

/* ------------------------------------------------------------------ devices */

EXPORT CUresult cuDeviceGetCount(int *count)
{
    ENTRY("cuDeviceGetCount", driver);
    if (!count) return CU_INVALID_VALUE;
    *count = (int)state.devices.size();
    return CU_OK;
}

EXPORT CUresult cuDeviceGet(CUdevice *out_device, int index)
{
    ENTRY("cuDeviceGet", driver);
    if (!out_device) return CU_INVALID_VALUE;
    if (!device_at(index)) return CU_INVALID_DEVICE;
    *out_device = index;
    return CU_OK;
}

#define WITH_DEVICE(d, handle)                                                                                         \
    Device *d = device_at(handle);                                                                                     \
    if (!d) return CU_INVALID_DEVICE

EXPORT CUresult cuDeviceGetName(char *name, int bytes, CUdevice handle)
{
    ENTRY("cuDeviceGetName", driver);
    WITH_DEVICE(d, handle);
    if (!name || bytes <= 0) return CU_INVALID_VALUE;
    (void)snprintf(name, (size_t)bytes, "stand-in sm_%d", d->capability);
    return CU_OK;
}

/* Of a part of a card (MIG) the first version of the entry tells the card's. */
static CUresult get_uuid(const char *entry, CUuuid *out_uuid, CUdevice handle, bool part)
{
    ENTRY(entry, driver);
    WITH_DEVICE(d, handle);
    if (!out_uuid) return CU_INVALID_VALUE;
    *out_uuid = uuid_of(d->index);
    if (part && number_of("TERN_STANDIN_CUDA_MIG", 0)) out_uuid->bytes[0] = 0x4d;
    return CU_OK;
}
EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    return get_uuid("cuDeviceGetUuid", uuid, device, false);
}
EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    return get_uuid("cuDeviceGetUuid_v2", uuid, device, true);
}

EXPORT CUresult cuDeviceGetPCIBusId(char *text, int bytes, CUdevice handle)
{
    ENTRY("cuDeviceGetPCIBusId", driver);
    WITH_DEVICE(d, handle);
    if (!text || bytes < 13) return CU_INVALID_VALUE;
    (void)snprintf(text, (size_t)bytes, "0000:%02X:00.0", d->index + 1);
    return CU_OK;
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice handle)
{
    ENTRY("cuDeviceTotalMem_v2", driver);
    WITH_DEVICE(d, handle);
    if (!bytes) return CU_INVALID_VALUE;
    *bytes = d->memory_bytes;
    return CU_OK;
}

EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice handle)
{
    ENTRY("cuDeviceGetAttribute", driver);
    WITH_DEVICE(d, handle);
    if (!value || attribute <= 0 || attribute > 150) return CU_INVALID_VALUE;
    *value = attribute_of(*d, attribute);
    return CU_OK;
}

/* ----------------------------------------------------------------- contexts */

EXPORT CUresult cuDevicePrimaryCtxRetain(Context **out_context, CUdevice handle)
{
    ENTRY("cuDevicePrimaryCtxRetain", driver);
    WITH_DEVICE(d, handle);
    if (!out_context) return CU_INVALID_VALUE;
    if (attribute_of(*d, CU_COMPUTE_MODE) == CU_COMPUTE_PROHIBITED) return CU_DEVICE_UNAVAILABLE;
    if (!d->context) {
        d->context = new Context(); /* kept for good: handles to it stay readable */
        d->context->device = d;
        d->context->null_stream = {d->context, true, nullptr};
    }
    d->context->retained++;
    *out_context = d->context;
    return CU_OK;
}

static CUresult release_context(const char *entry, CUdevice handle, bool at_once)
{
    Call call(entry, Needs::driver);
    if (call.error && !call.is_injected) return call.error;
    WITH_DEVICE(d, handle);
    Context *context = d->context;
    if (!context || context->retained == 0) return call.error ? call.error : CU_INVALID_CONTEXT;
    context->retained = at_once ? 0 : context->retained - 1;
    if (context->retained > 0) return call.error;
    if (!context->error) (void)finish_all(call, context, entry);
    while (state.running == context) state.finished.wait(call.lock);
    destroy_context(context);
    return call.error;
}
EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    return release_context("cuDevicePrimaryCtxRelease_v2", device, false);
}
EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    return release_context("cuDevicePrimaryCtxReset_v2", device, true);
}

EXPORT CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice handle, unsigned flags)
{
    ENTRY("cuDevicePrimaryCtxSetFlags_v2", driver);
    WITH_DEVICE(d, handle);
    return flags > 0xff || !d ? CU_INVALID_VALUE : CU_OK;
}

EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice handle, unsigned *flags, int *active)
{
    ENTRY("cuDevicePrimaryCtxGetState", driver);
    WITH_DEVICE(d, handle);
    if (!flags || !active) return CU_INVALID_VALUE;
    *flags = 0;
    *active = d->context && d->context->retained > 0;
    return CU_OK;
}

EXPORT CUresult cuCtxSetCurrent(Context *context)
{
    ENTRY("cuCtxSetCurrent", driver);
    if (context && context->retained == 0) return CU_INVALID_CONTEXT;
    current_context = context;
    return CU_OK;
}

EXPORT CUresult cuCtxGetCurrent(Context **out_context)
{
    ENTRY("cuCtxGetCurrent", driver);
    if (!out_context) return CU_INVALID_VALUE;
    *out_context = current_context;
    return CU_OK;
}

static thread_local std::vector<Context *> *pushed;

EXPORT CUresult cuCtxPushCurrent_v2(Context *context)
{
    ENTRY("cuCtxPushCurrent_v2", driver);
    if (!context || context->retained == 0) return CU_INVALID_CONTEXT;
    if (!pushed) pushed = new std::vector<Context *>;
    pushed->push_back(current_context);
    current_context = context;
    return CU_OK;
}

EXPORT CUresult cuCtxPopCurrent_v2(Context **out_context)
{
    Call call("cuCtxPopCurrent_v2", Needs::driver);
    if (call.error && !call.is_injected) return call.error;
    if (!pushed || pushed->empty()) return CU_INVALID_CONTEXT;
    if (out_context) *out_context = current_context;
    current_context = pushed->back();
    pushed->pop_back();
    return call.error;
}

EXPORT CUresult cuCtxGetDevice(CUdevice *out_device)
{
    ENTRY("cuCtxGetDevice", context);
    for (size_t i = 0; i < state.devices.size(); i++)
        if (state.devices[i] == current_context->device) *out_device = (int)i;
    return CU_OK;
}

EXPORT CUresult cuCtxSynchronize(void)
{
    ENTRY("cuCtxSynchronize", context);
    return finish_all(call, current_context, "cuCtxSynchronize");
}

EXPORT CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    ENTRY("cuCtxGetStreamPriorityRange", context);
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return CU_OK;
}
