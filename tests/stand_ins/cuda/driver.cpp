/* SPDX-License-Identifier: Apache-2.0 */
/* driver.cpp - init, what every call begins with, names of errors, and what tests may ask for (control.h).
 *
 * Invariant: a call is counted, and made to fail, before it does anything. In a child after fork nothing works. */
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

uint64_t number_of(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);
    return text && *text ? strtoull(text, nullptr, 10) : otherwise;
}

namespace
{

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

const struct {
    int code;
    const char *name, *sentence;
} errors[] = {
    {CU_OK, "CUDA_SUCCESS", "no error"},
    {CU_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CU_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CU_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CU_STUB_LIBRARY, "CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library"},
    {CU_DEVICE_UNAVAILABLE, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"},
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
    find_devices();
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

EXPORT uint64_t tern_standin_cuda_pending(void)
{
    std::unique_lock<std::mutex> lock(state.lock);
    uint64_t count = 0;
    for (const auto &pending : state.pending) count += pending.second->work != nullptr; /* events have none */
    return count;
}

EXPORT uint64_t tern_standin_cuda_late_uploads(void) { return state.late_uploads; }

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
