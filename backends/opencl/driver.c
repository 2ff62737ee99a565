/* SPDX-License-Identifier: Apache-2.0 */
/* driver.c - the OpenCL library: opened at run time, its platforms listed once, its error codes turned into sentences.
 *
 *     libOpenCL.so.1 ── the loader (ICD loader) ── one driver per file in /etc/OpenCL/vendors ── platforms ── devices
 *
 * Not here: anything about one device. A loader without a driver, and a driver without a device, are different things
 * to a user, so each has its own sentence. Invariant: tern_cl is either complete or all NULL. */
#include "backends/opencl/opencl.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/opencl/hooks.h"
#include "core/base/file.h"
#include "core/base/jit.h"
#include "core/base/log.h"

#define TERN_OPENCL_NO_PLATFORM (-1001) /* CL_PLATFORM_NOT_FOUND_KHR, from the loader */
#define TERN_OPENCL_NO_SENTENCE 400

tern_opencl_symbols tern_cl;

static struct {
    pthread_mutex_t lock;
    void *library;
    uint32_t count;
    tern_opencl_entry entries[TERN_OPENCL_DEVICES];
    char why_none[TERN_OPENCL_NO_SENTENCE];
} driver = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const struct {
    const char *name;
    bool runs;
    int8_t object;
} calls[TERN_CALL_COUNT] = {
#define SYMBOL(name, runs, object) {#name, runs, object},
#include "backends/opencl/symbols.def"
#undef SYMBOL
};

/* ------------------------------------------------------------------ counting and faults */

static _Atomic int64_t objects_alive;
static _Atomic uint64_t calls_made, builds, cache_hits, fail_call;
static _Atomic int32_t failed_call = -1;

bool tern_opencl_fault(tern_opencl_call call)
{
    const uint64_t number = atomic_fetch_add(&calls_made, 1) + 1;
    if (number != atomic_load(&fail_call)) return false; /* 0: none */
    atomic_store(&failed_call, (int32_t)call);
    return true;
}

void tern_opencl_fault_reset(void)
{
    const char *text = getenv("TERN_OPENCL_FAIL_CALL");
    atomic_store(&calls_made, 0);
    atomic_store(&failed_call, -1);
    atomic_store(&fail_call, text ? strtoull(text, NULL, 10) : 0);
}

void tern_opencl_object_add(int64_t count) { atomic_fetch_add(&objects_alive, count); }

void tern_opencl_built(bool from_cache) { atomic_fetch_add(from_cache ? &cache_hits : &builds, 1); }

void tern_opencl_count(tern_opencl_counts *out_counts)
{
    out_counts->objects = atomic_load(&objects_alive);
    out_counts->calls = atomic_load(&calls_made);
    out_counts->builds = atomic_load(&builds);
    out_counts->cache_hits = atomic_load(&cache_hits);
    const int32_t failed = atomic_load(&failed_call);
    out_counts->failed_call = failed < 0 ? NULL : calls[failed].name;
}

/* ------------------------------------------------------------------ results */

/* clang-format off */
#define CODE_LIST(X)                                                                                                   \
    X(CL_DEVICE_NOT_FOUND) X(CL_DEVICE_NOT_AVAILABLE) X(CL_COMPILER_NOT_AVAILABLE) X(CL_OUT_OF_HOST_MEMORY)            \
    X(CL_MEM_OBJECT_ALLOCATION_FAILURE) X(CL_OUT_OF_RESOURCES) X(CL_PROFILING_INFO_NOT_AVAILABLE)                      \
    X(CL_MEM_COPY_OVERLAP) X(CL_BUILD_PROGRAM_FAILURE) X(CL_MAP_FAILURE) X(CL_INVALID_VALUE) X(CL_INVALID_PLATFORM)    \
    X(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST) X(CL_INVALID_DEVICE) X(CL_INVALID_CONTEXT)                         \
    X(CL_INVALID_QUEUE_PROPERTIES) X(CL_INVALID_COMMAND_QUEUE) X(CL_INVALID_MEM_OBJECT) X(CL_INVALID_BINARY)           \
    X(CL_INVALID_BUILD_OPTIONS) X(CL_INVALID_PROGRAM) X(CL_INVALID_PROGRAM_EXECUTABLE) X(CL_INVALID_KERNEL_NAME)       \
    X(CL_INVALID_KERNEL) X(CL_INVALID_ARG_INDEX) X(CL_INVALID_ARG_VALUE) X(CL_INVALID_ARG_SIZE)                        \
    X(CL_INVALID_KERNEL_ARGS) X(CL_INVALID_WORK_DIMENSION) X(CL_INVALID_WORK_GROUP_SIZE) X(CL_INVALID_WORK_ITEM_SIZE)  \
    X(CL_INVALID_EVENT) X(CL_INVALID_OPERATION) X(CL_INVALID_BUFFER_SIZE) X(CL_INVALID_GLOBAL_WORK_SIZE)
/* clang-format on */

static const char *code_name(cl_int code)
{
    static const struct {
        cl_int code;
        const char *name;
    } names[] = {
#define CODE(name) {name, #name},
        CODE_LIST(CODE)
#undef CODE
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].code == code) return names[i].name;
    return code == TERN_OPENCL_NO_PLATFORM ? "CL_PLATFORM_NOT_FOUND_KHR" : "an unknown code";
}

static tern_status code_status(tern_opencl_call call, cl_int code)
{
    switch (code) {
    case CL_OUT_OF_HOST_MEMORY: return TERN_ERROR_MEMORY;
    case CL_MEM_OBJECT_ALLOCATION_FAILURE: return TERN_ERROR_DEVICE_MEMORY;
    case CL_OUT_OF_RESOURCES: return calls[call].runs ? TERN_ERROR_DEVICE_LOST : TERN_ERROR_DEVICE_MEMORY;
    case CL_DEVICE_NOT_AVAILABLE:
    case CL_INVALID_COMMAND_QUEUE: /* NVIDIA's queue after a fault */
    case -9999: /* NVIDIA: illegal read or write by a kernel */ return TERN_ERROR_DEVICE_LOST;
    case CL_BUILD_PROGRAM_FAILURE: return TERN_ERROR_KERNEL;
    default: return TERN_ERROR_DRIVER;
    }
}

tern_status tern_opencl_result(tern_backend_device *device, tern_opencl_call call, cl_int code)
{
    if (code == CL_SUCCESS) return TERN_OK;
    const tern_status status = code_status(call, code);
    const char *where = device ? device->info.name : "OpenCL", *hint = "the driver's own log may say more";
    if (status == TERN_ERROR_DEVICE_LOST) {
        if (device) atomic_store(&device->lost, true);
        hint = "the driver gave up on submitted work; look for a reset in `dmesg`, then open the device again";
    } else if (status == TERN_ERROR_DEVICE_MEMORY) {
        hint = "close other programs that use the device, or ask for less";
    } else if (status == TERN_ERROR_MEMORY) {
        hint = "free host memory";
    }
    return tern_error(status, "%s: %s failed with %s (%d); %s", where, calls[call].name, code_name(code), (int)code,
                      hint);
}

tern_status tern_opencl_made(tern_backend_device *device, tern_opencl_call call, const void *object, cl_int code)
{
    if (code == CL_SUCCESS && !object)
        return tern_error(TERN_ERROR_DRIVER, "%s returned nothing and no error; the driver is broken",
                          calls[call].name);
    if (code == CL_SUCCESS) tern_opencl_object_add(calls[call].object);
    return tern_opencl_result(device, call, code);
}

void tern_opencl_released(tern_opencl_call call, cl_int code)
{
    tern_opencl_object_add(calls[call].object);
    if (code != CL_SUCCESS)
        tern_log_write(TERN_LOG_WARNING, "opencl: %s failed with %s (%d)", calls[call].name, code_name(code),
                       (int)code);
}

/* ------------------------------------------------------------------ load */

/* PoCL keeps what it compiles below $XDG_CACHE_HOME or $HOME and refuses to work where it cannot write; it aborts
 * the process where there is no /sys. Neither may happen to whoever only asked which devices there are. */
static tern_status environment_prepare(void)
{
    if (access("/sys/devices", R_OK) != 0)
        return tern_error(TERN_ERROR_NOT_FOUND,
                          "/sys is not mounted (%s), and OpenCL drivers abort without it; mount it "
                          "(mount -t sysfs sysfs /sys) or use another backend",
                          strerror(errno));
    tern_jit_prepare();
    const char *home = getenv("XDG_CACHE_HOME");
    if (!home || !*home) home = getenv("HOME");
    if (getenv("POCL_CACHE_DIR") || (home && *home && access(home, W_OK) == 0)) return TERN_OK;
    char path[1024];
    tern_status status;
    TERN_TRY(tern_cache_directory("pocl", path, sizeof path));
    if (setenv("POCL_CACHE_DIR", path, 0) != 0) return tern_error_memory("POCL_CACHE_DIR", strlen(path));
    return TERN_OK;
fail: /* no place to write at all: other drivers do not care, and PoCL says so itself */
    tern_log_write(TERN_LOG_WARNING, "opencl: no directory for PoCL's cache: %s", tern_error_message());
    return TERN_OK;
}

static tern_status symbols_find(void *library)
{
#define SYMBOL(name, runs, object)                                                                                     \
    {                                                                                                                  \
        void *address = dlsym(library, #name);                                                                         \
        if (!address)                                                                                                  \
            return tern_error(TERN_ERROR_NOT_FOUND,                                                                    \
                              "libOpenCL.so.1 has no %s; it is older than OpenCL 1.2, update it", #name);              \
        memcpy(&tern_cl.name, &address, sizeof address);                                                               \
    }
#include "backends/opencl/symbols.def"
#undef SYMBOL
    return TERN_OK;
}

static bool device_usable(cl_device_id device)
{
    cl_bool available = CL_FALSE, compiler = CL_FALSE;
    if (CL_CALL(NULL, clGetDeviceInfo, device, CL_DEVICE_AVAILABLE, sizeof available, &available, NULL) < 0)
        return false;
    if (CL_CALL(NULL, clGetDeviceInfo, device, CL_DEVICE_COMPILER_AVAILABLE, sizeof compiler, &compiler, NULL) < 0)
        return false;
    return available && compiler;
}

/* A platform that fails must not hide the others: it is logged and stepped over. */
static void platform_list(cl_platform_id platform)
{
    cl_device_id devices[TERN_OPENCL_DEVICES];
    cl_uint count = 0;
    char name[128] = "an OpenCL platform";
    if (CL_CALL(NULL, clGetPlatformInfo, platform, CL_PLATFORM_NAME, sizeof name, name, NULL) < 0)
        tern_log_write(TERN_LOG_WARNING, "opencl: %s", tern_error_message());
    const tern_status status =
        CL_CALL(NULL, clGetDeviceIDs, platform, CL_DEVICE_TYPE_ALL, TERN_OPENCL_DEVICES, devices, &count);
    if (status < 0 || count == 0) { /* CL_DEVICE_NOT_FOUND is how a platform says that it has none */
        snprintf(
            driver.why_none, sizeof driver.why_none,
            "the OpenCL platform \"%s\" has no device (%s); Mesa's rusticl lists none until RUSTICL_ENABLE names a "
            "driver (radeonsi, iris, llvmpipe), others need access to /dev/dri: usermod -aG render $USER",
            name, status < 0 ? tern_error_message() : "it lists 0");
        tern_log_write(TERN_LOG_INFO, "opencl: %s", driver.why_none);
        return;
    }
    if (count > TERN_OPENCL_DEVICES) count = TERN_OPENCL_DEVICES;
    for (cl_uint i = 0; i < count && driver.count < TERN_OPENCL_DEVICES; i++) {
        if (device_usable(devices[i]))
            driver.entries[driver.count++] = (tern_opencl_entry){platform, devices[i]};
        else
            snprintf(driver.why_none, sizeof driver.why_none,
                     "device %u of the OpenCL platform \"%s\" is not available or "
                     "has no compiler",
                     i, name);
    }
}

static tern_status platforms_list(void)
{
    cl_platform_id platforms[16];
    cl_uint count = 0;
    tern_status status;
    const cl_int code = tern_opencl_fault(TERN_CALL_clGetPlatformIDs) ? CL_OUT_OF_RESOURCES
                                                                      : tern_cl.clGetPlatformIDs(16, platforms, &count);
    if (code == TERN_OPENCL_NO_PLATFORM || (code == CL_SUCCESS && count == 0))
        TERN_TRY(
            tern_error(TERN_ERROR_NOT_FOUND,
                       "the OpenCL loader is there but no driver (ICD) is registered with it; "
                       "install the card's (intel-opencl-icd, nvidia-opencl-icd, mesa-opencl-icd) or PoCL for the CPU "
                       "(pocl-opencl-icd), or check OCL_ICD_VENDORS"));
    TERN_TRY(tern_opencl_result(NULL, TERN_CALL_clGetPlatformIDs, code));
    for (cl_uint i = 0; i < count && i < 16; i++) platform_list(platforms[i]);
    return TERN_OK;
fail:
    return status;
}

tern_status tern_opencl_load(void)
{
    tern_status status = TERN_OK;
    pthread_mutex_lock(&driver.lock);
    if (driver.library) goto done;
    tern_opencl_fault_reset();
    TERN_TRY(environment_prepare());
    driver.library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver.library)
        TERN_TRY(tern_error(TERN_ERROR_NOT_FOUND,
                            "the OpenCL loader is missing (%s); install it (apt install "
                            "ocl-icd-libopencl1) and the driver of your card",
                            dlerror()));
    TERN_TRY(symbols_find(driver.library));
    TERN_TRY(platforms_list());
    goto done;
fail:
    if (driver.library) dlclose(driver.library);
    driver.library = NULL;
    driver.count = 0;
    memset(&tern_cl, 0, sizeof tern_cl);
done:
    pthread_mutex_unlock(&driver.lock);
    return status;
}

/* The library itself stays: drivers keep threads and thread-local destructors that do not survive an unmapping. */
void tern_opencl_unload(void)
{
    pthread_mutex_lock(&driver.lock);
    driver.library = NULL;
    driver.count = 0;
    driver.why_none[0] = 0;
    memset(&tern_cl, 0, sizeof tern_cl);
    pthread_mutex_unlock(&driver.lock);
}

tern_status tern_opencl_device_count(uint32_t *out_count)
{
    pthread_mutex_lock(&driver.lock);
    const bool loaded = driver.library != NULL;
    if (loaded) *out_count = driver.count;
    const bool none = loaded && driver.count == 0;
    pthread_mutex_unlock(&driver.lock);
    if (!loaded) return tern_error(TERN_ERROR_INVALID, "the OpenCL library is not loaded; call load first");
    return none ? tern_error(TERN_OK, "%s", driver.why_none) : TERN_OK;
}

tern_status tern_opencl_entry_find(uint32_t index, tern_opencl_entry *out_entry)
{
    uint32_t count = 0;
    const tern_status status = tern_opencl_device_count(&count);
    if (status < 0) return status;
    if (index >= count)
        return tern_error(TERN_ERROR_NOT_FOUND, "there is no OpenCL device %u; there are %u, counted from 0", index,
                          count);
    *out_entry = driver.entries[index];
    return TERN_OK;
}
