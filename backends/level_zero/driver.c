/* SPDX-License-Identifier: Apache-2.0 */
/* driver.c - the Level Zero loader: opened at run time, its drivers' GPUs listed once, its result codes as sentences.
 *
 *     libze_loader.so.1 ── zeInit ── drivers (intel-level-zero-gpu, or the one in ZE_ENABLE_ALT_DRIVERS) ── GPUs
 *
 * Not here: anything about one device. TERN_LEVEL_ZERO_LIBRARY names another loader, alone. zeInit has one code for no
 * GPU, no permission and versions that do not fit, so its sentence says all three; after it failed nothing else is
 * called, since loaders crash then. Invariant: tern_ze is either complete or all NULL. */
#include "backends/level_zero/level_zero.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/jit.h"
#include "core/base/log.h"

#define ZERO_DEVICES 64

zero_loader tern_ze;

static struct {
    pthread_mutex_t lock;
    void *library;
    uint32_t count;
    zero_entry entries[ZERO_DEVICES];
} loader = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ------------------------------------------------------------------ results */

/* clang-format off */
#define RESULTS(X)                                                                                                     \
    X(ZE_RESULT_NOT_READY) X(ZE_RESULT_ERROR_DEVICE_LOST) X(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY)                        \
    X(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY) X(ZE_RESULT_ERROR_MODULE_BUILD_FAILURE)                                    \
    X(ZE_RESULT_ERROR_MODULE_LINK_FAILURE) X(ZE_RESULT_ERROR_DEVICE_REQUIRES_RESET)                                    \
    X(ZE_RESULT_ERROR_DEVICE_IN_LOW_POWER_STATE) X(ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS)                           \
    X(ZE_RESULT_ERROR_NOT_AVAILABLE) X(ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE) X(ZE_RESULT_ERROR_UNINITIALIZED)        \
    X(ZE_RESULT_ERROR_UNSUPPORTED_VERSION) X(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE) X(ZE_RESULT_ERROR_INVALID_ARGUMENT)  \
    X(ZE_RESULT_ERROR_INVALID_NULL_HANDLE) X(ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE)                                     \
    X(ZE_RESULT_ERROR_INVALID_NULL_POINTER) X(ZE_RESULT_ERROR_INVALID_SIZE) X(ZE_RESULT_ERROR_UNSUPPORTED_SIZE)        \
    X(ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT) X(ZE_RESULT_ERROR_INVALID_ENUMERATION)                                    \
    X(ZE_RESULT_ERROR_INVALID_NATIVE_BINARY) X(ZE_RESULT_ERROR_INVALID_KERNEL_NAME)                                    \
    X(ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION) X(ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX)                   \
    X(ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE) X(ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE)                       \
    X(ZE_RESULT_ERROR_OVERLAPPING_REGIONS) X(ZE_RESULT_ERROR_UNKNOWN)
/* clang-format on */

static const char *result_name(ze_result_t result)
{
    switch (result) {
#define NAME(name)                                                                                                     \
    case name: return #name;
        RESULTS(NAME)
#undef NAME
    default: return "an unknown code";
    }
}

tern_status zero_result(tern_backend_device *device, const char *call, ze_result_t result)
{
    const char *where = device ? device->info.name : "Level Zero", *hint = "dmesg may say more";
    tern_status status = TERN_ERROR_DRIVER;
    switch (result) {
    case ZE_RESULT_SUCCESS: return TERN_OK;
    case ZE_RESULT_ERROR_DEVICE_LOST:
    case ZE_RESULT_ERROR_DEVICE_REQUIRES_RESET:
        status = TERN_ERROR_DEVICE_LOST;
        hint = "the driver gave up on the device's work; look for a reset in dmesg, then open the device again";
        if (device) atomic_store(&device->lost, true);
        break;
    case ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY:
        status = TERN_ERROR_MEMORY;
        hint = "free host memory";
        break;
    case ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY:
        status = TERN_ERROR_DEVICE_MEMORY;
        hint = "close other programs that use the device, or ask for less";
        break;
    case ZE_RESULT_ERROR_MODULE_BUILD_FAILURE:
    case ZE_RESULT_ERROR_INVALID_NATIVE_BINARY: status = TERN_ERROR_KERNEL; break;
    default: break;
    }
    return tern_error(status, "%s: %s: %s (0x%x); %s", where, call, result_name(result), (unsigned)result, hint);
}

void zero_released(const char *call, ze_result_t result)
{
    if (result != ZE_RESULT_SUCCESS)
        tern_log_write(TERN_LOG_WARNING, "level_zero: %s: %s (0x%x)", call, result_name(result), (unsigned)result);
}

/* ------------------------------------------------------------------ load */

static tern_status symbols_find(void *library)
{
#define SYMBOL(name)                                                                                                   \
    {                                                                                                                  \
        void *address = dlsym(library, #name);                                                                         \
        if (!address)                                                                                                  \
            return tern_error(TERN_ERROR_NOT_FOUND,                                                                    \
                              "the Level Zero loader has no %s; it is older than 1.2, update it (libze1)", #name);     \
        memcpy(&tern_ze.name, &address, sizeof address);                                                               \
    }
#include "backends/level_zero/symbols.def"
#undef SYMBOL
    return TERN_OK;
}

static tern_status driver_list(ze_driver_handle_t driver)
{
    ze_device_handle_t devices[ZERO_DEVICES];
    uint32_t count = ZERO_DEVICES;
    tern_status status;
    TERN_TRY(ZE_CALL(NULL, zeDeviceGet, driver, &count, devices));
    for (uint32_t i = 0; i < count && loader.count < ZERO_DEVICES; i++) {
        ze_device_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES};
        TERN_TRY(ZE_CALL(NULL, zeDeviceGetProperties, devices[i], &properties));
        if (properties.type == ZE_DEVICE_TYPE_GPU) loader.entries[loader.count++] = (zero_entry){driver, devices[i]};
    }
fail:
    return status;
}

static tern_status devices_list(void)
{
    ze_driver_handle_t drivers[16];
    uint32_t count = 16;
    tern_status status;
    const ze_result_t result = tern_ze.zeInit(ZE_INIT_FLAG_GPU_ONLY);
    if (result != ZE_RESULT_SUCCESS)
        return tern_error(TERN_ERROR_NOT_FOUND,
                          "Level Zero does not start (zeInit: %s, 0x%x): there is no Intel GPU or no driver for it "
                          "(install intel-level-zero-gpu or intel-opencl-icd), or no access to /dev/dri/renderD* "
                          "(usermod -aG render $USER), or loader and driver do not fit (update both)",
                          result_name(result), (unsigned)result);
    TERN_TRY(ZE_CALL(NULL, zeDriverGet, &count, drivers));
    for (uint32_t i = 0; i < count; i++) TERN_TRY(driver_list(drivers[i]));
fail:
    return status;
}

tern_status zero_load(void)
{
    tern_status status = TERN_OK;
    const char *path = getenv("TERN_LEVEL_ZERO_LIBRARY");
    pthread_mutex_lock(&loader.lock);
    if (loader.library) goto done;
    tern_jit_prepare();
    loader.library = dlopen(path && *path ? path : "libze_loader.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!loader.library)
        TERN_TRY(tern_error(TERN_ERROR_NOT_FOUND,
                            "the Level Zero loader is missing (%s); install it (apt install libze1) and Intel's driver "
                            "(intel-level-zero-gpu)",
                            dlerror()));
    TERN_TRY(symbols_find(loader.library));
    TERN_TRY(devices_list());
    goto done;
fail: /* the library stays: what zeInit began has threads */
    loader.library = NULL;
    loader.count = 0;
    memset(&tern_ze, 0, sizeof tern_ze);
done:
    pthread_mutex_unlock(&loader.lock);
    return status;
}

void zero_unload(void)
{
    pthread_mutex_lock(&loader.lock);
    loader.library = NULL;
    loader.count = 0;
    memset(&tern_ze, 0, sizeof tern_ze);
    pthread_mutex_unlock(&loader.lock);
}

tern_status zero_device_count(uint32_t *out_count)
{
    pthread_mutex_lock(&loader.lock);
    const bool loaded = loader.library != NULL;
    const uint32_t count = loader.count;
    pthread_mutex_unlock(&loader.lock);
    if (!loaded) return tern_error(TERN_ERROR_INVALID, "the Level Zero loader is not loaded; call load first");
    *out_count = count;
    return count ? TERN_OK
                 : tern_error(TERN_OK,
                              "Level Zero has no device: its drivers list no GPU; look at `ls -l /dev/dri` and dmesg");
}

tern_status zero_entry_find(uint32_t index, zero_entry *out_entry)
{
    uint32_t count = 0;
    const tern_status status = zero_device_count(&count);
    if (status < 0) return status;
    if (index >= count)
        return tern_error(TERN_ERROR_NOT_FOUND, "there is no Level Zero device %u; there are %u, counted from 0", index,
                          count);
    *out_entry = loader.entries[index];
    return TERN_OK;
}
