/* SPDX-License-Identifier: Apache-2.0 */
/* driver.cpp - init, devices, primary contexts, errors, and the failures that tests ask for.
 *
 * Invariant: a context whose work failed answers every call with that error until it is released, as NVIDIA's does;
 * what it still holds then is no leak. In a child after fork nothing works. */
#include "driver.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <dlfcn.h>
#include <unistd.h>

#include "control.h"

namespace stand_in
{

State &state = *new State;
thread_local Context *current_context;

std::string format(const char *text, ...)
{
    char buffer[600];
    va_list arguments;
    va_start(arguments, text);
    (void)vsnprintf(buffer, sizeof buffer, text, arguments);
    va_end(arguments);
    return buffer;
}

double now_ms()
{
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

void report(const std::string &sentence)
{
    state.reports++;
    state.last_report = sentence;
    fprintf(stderr, "stand-in libcuda: %s\n", sentence.c_str());
}

bool ends_context(int result)
{
    static const int codes[] = {CU_ECC_UNCORRECTABLE,
                                CU_NVLINK_UNCORRECTABLE,
                                CU_ILLEGAL_ADDRESS,
                                CU_LAUNCH_TIMEOUT,
                                CU_ASSERT,
                                CU_HARDWARE_STACK_ERROR,
                                715,
                                CU_MISALIGNED_ADDRESS,
                                717,
                                718,
                                CU_LAUNCH_FAILED,
                                CU_TENSOR_MEMORY_LEAK};
    return std::find(std::begin(codes), std::end(codes), result) != std::end(codes);
}

Call::Call(const char *name, Needs needs)
{
    Context *context = current_context;
    if (state.process && state.process != getpid()) { /* after fork another thread may have left the lock taken */
        error = CU_NOT_INITIALIZED;
        return;
    }
    lock = std::unique_lock<std::mutex>(state.lock);
    state.calls++;
    if (needs != Needs::nothing && !state.is_ready)
        error = CU_NOT_INITIALIZED;
    else if (needs == Needs::context && (!context || context->retained == 0))
        error = CU_INVALID_CONTEXT;
    else if (needs == Needs::context && context->error)
        error = context->error;
    if (state.fail_at == 0 || state.calls != state.fail_at) return;
    state.failed_call = name;
    is_injected = error == 0;
    if (is_injected) error = state.fail_result;
    if (is_injected && context && context->retained > 0 && ends_context(error)) context->error = error;
}

Call::~Call() = default;

namespace
{

uint64_t number_of(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);
    return text && *text ? strtoull(text, nullptr, 10) : otherwise;
}

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

void read_wishes()
{
    const char *wish = getenv("TERN_STANDIN_CUDA_FAIL_CALL");
    if (wish && *wish && state.fail_at == 0) {
        const char *colon = strchr(wish, ':');
        state.fail_at = strtoull(wish, nullptr, 10);
        state.fail_result = colon ? atoi(colon + 1) : CU_UNKNOWN;
    }
    const uint64_t hang = number_of("TERN_STANDIN_CUDA_HANG", 0);
    if (hang) state.hang_from = hang;
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
    case CU_PCI_BUS_ID: return d.index + 1;
    case CU_CAPABILITY_MAJOR: return d.capability / 10;
    case CU_CAPABILITY_MINOR: return d.capability % 10;
    default: return 0;
    }
}

const struct {
    int code;
    const char *name, *sentence;
} errors[] = {
    {CU_OK, "CUDA_SUCCESS", "no error"},
    {CU_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CU_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CU_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CU_STUB_LIBRARY, "CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library"},
    {CU_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CU_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CU_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {CU_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CU_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {CU_ECC_UNCORRECTABLE, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
    {CU_INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {CU_OPERATING_SYSTEM, "CUDA_ERROR_OPERATING_SYSTEM", "OS call failed or operation not supported on this OS"},
    {CU_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CU_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CU_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CU_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {CU_LAUNCH_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {CU_LAUNCH_TIMEOUT, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"},
    {CU_HARDWARE_STACK_ERROR, "CUDA_ERROR_HARDWARE_STACK_ERROR", "hardware stack error"},
    {CU_MISALIGNED_ADDRESS, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {CU_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {CU_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CU_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

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

/* Reports that no test asked for must not pass: the status says so. */
__attribute__((destructor)) void end_of_process()
{
    if (state.reports == 0 || (state.process && state.process != getpid())) return;
    fprintf(stderr, "stand-in libcuda: %llu reports, the last: %s\n", (unsigned long long)state.reports,
            state.last_report.c_str());
    _exit(86);
}

} // namespace
} // namespace stand_in

using namespace stand_in;

/* ------------------------------------------------------------------- driver */

EXPORT CUresult cuInit(unsigned flags)
{
    {
        std::unique_lock<std::mutex> lock(state.lock);
        if (!state.is_ready) read_wishes();
    }
    ENTRY("cuInit", nothing);
    const uint64_t wanted = number_of("TERN_STANDIN_CUDA_INIT", 0);
    if (wanted) return (CUresult)wanted;
    if (flags) return CU_INVALID_VALUE;
    if (state.is_ready) return CU_OK;
    const uint64_t memory = number_of("TERN_STANDIN_CUDA_MEMORY_MIB", 4096) << 20;
    state.devices.clear();
    for (int index : visible_devices()) {
        Device *device = new Device();
        device->index = index, device->capability = capability_of(index), device->memory_bytes = memory;
        state.devices.push_back(device);
    }
    if (state.devices.empty()) return CU_NO_DEVICE;
    state.process = getpid();
    state.is_ready = true;
    return CU_OK;
}

EXPORT CUresult cuDriverGetVersion(int *version)
{
    ENTRY("cuDriverGetVersion", nothing);
    if (!version) return CU_INVALID_VALUE;
    *version = (int)number_of("TERN_STANDIN_CUDA_DRIVER_VERSION", 13000);
    return CU_OK;
}

template <size_t FIELD> static CUresult describe(int code, const char **out_text)
{
    if (!out_text) return CU_INVALID_VALUE;
    for (const auto &row : errors)
        if (row.code == code) return *out_text = FIELD ? row.sentence : row.name, CU_OK;
    *out_text = nullptr;
    return CU_INVALID_VALUE;
}
EXPORT CUresult cuGetErrorName(int code, const char **out_text) { return describe<0>(code, out_text); }
EXPORT CUresult cuGetErrorString(int code, const char **out_text) { return describe<1>(code, out_text); }

EXPORT CUresult cuGetProcAddress_v2(const char *name, void **out_function, int, uint64_t, int *out_found)
{
    if (!name || !out_function) return CU_INVALID_VALUE;
    static void *self;
    Dl_info info;
    if (!self && dladdr((void *)cuInit, &info)) self = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    *out_function = nullptr;
    for (const char *suffix : {"_v2", ""})
        if (!*out_function) *out_function = dlsym(self, (std::string(name) + suffix).c_str());
    if (out_found) *out_found = *out_function ? 0 : 1;
    return *out_function ? CU_OK : CU_NOT_FOUND;
}

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

static CUresult get_uuid(const char *entry, CUuuid *out_uuid, CUdevice handle)
{
    ENTRY(entry, driver);
    WITH_DEVICE(d, handle);
    if (!out_uuid) return CU_INVALID_VALUE;
    *out_uuid = uuid_of(d->index);
    return CU_OK;
}
EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) { return get_uuid("cuDeviceGetUuid", uuid, device); }
EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    return get_uuid("cuDeviceGetUuid_v2", uuid, device);
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

/* ------------------------------------------------------------------ control */

EXPORT uint64_t tern_standin_cuda_fail_call(uint64_t call, int result)
{
    std::unique_lock<std::mutex> lock(state.lock);
    const uint64_t made = state.calls;
    state.calls = 0;
    state.fail_at = call;
    state.fail_result = result;
    state.failed_call = "";
    return made;
}

EXPORT const char *tern_standin_cuda_failed_call(void) { return state.failed_call; }

EXPORT void tern_standin_cuda_hang(uint64_t operation)
{
    std::unique_lock<std::mutex> lock(state.lock);
    state.hang_from = operation ? state.operations + operation : UINT64_MAX;
    for (auto &pending : state.pending)
        if (!operation) pending.second->hangs = false;
    state.wake.notify_all();
}

EXPORT int64_t tern_standin_cuda_live(void)
{
    std::unique_lock<std::mutex> lock(state.lock);
    int64_t live = state.leaked + (int64_t)(state.allocations.size() + graphs_alive());
    for (const Device *device : state.devices)
        if (const Context *c = device->context)
            live += (int64_t)(c->streams.size() + c->events.size() + c->modules.size() + c->host_blocks.size()) +
                    (c->retained > 0 ? 1 : 0);
    return live;
}

EXPORT uint64_t tern_standin_cuda_reports(char *out_text, size_t bytes)
{
    std::unique_lock<std::mutex> lock(state.lock);
    const uint64_t reports = state.reports;
    if (out_text && bytes) (void)snprintf(out_text, bytes, "%s", state.last_report.c_str());
    state.reports = 0;
    state.last_report.clear();
    return reports;
}
