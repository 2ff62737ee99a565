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
#include "core/base/plugin_library.h"

#define ZERO_DEVICES 64

zero_loader tern_ze;

static struct {
    pthread_mutex_t lock;
    void *library;
    uint32_t count;
    zero_entry entries[ZERO_DEVICES];
} loader = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ------------------------------------------------------------------ results */

static const struct {
    ze_result_t code;
    tern_status status;
    const char *name, *hint;
} results[] = {
#define RESULT(code, status, hint) {code, status, #code, hint},
#include "backends/level_zero/results.def"
#undef RESULT
    {ZE_RESULT_ERROR_UNKNOWN, TERN_ERROR_DRIVER, "an unknown code", LOOK},
};

static size_t result_row(ze_result_t result)
{
    size_t row = 0;
    while (row + 1 < sizeof results / sizeof *results && results[row].code != result) row++;
    return row;
}

tern_status zero_result(tern_backend_device *device, const char *call, ze_result_t result)
{
    if (result == ZE_RESULT_SUCCESS) return TERN_OK;
    const size_t row = result_row(result);
    if (results[row].status == TERN_ERROR_DEVICE_LOST && device) atomic_store(&device->base.lost, true);
    return tern_error(results[row].status, "%s: %s: %s (0x%x); %s", device ? device->base.info.name : "Level Zero",
                      call, results[row].name, (unsigned)result, results[row].hint);
}

void zero_released(const char *call, ze_result_t result)
{
    if (result != ZE_RESULT_SUCCESS)
        tern_log_write(TERN_LOG_WARNING, "level_zero: %s: %s (0x%x)", call, results[result_row(result)].name,
                       (unsigned)result);
}

/* ------------------------------------------------------------------ load */

static const tern_symbol symbols[] = {
#define SYMBOL(name) {#name, offsetof(zero_loader, name)},
#include "backends/level_zero/symbols.def"
#undef SYMBOL
};

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
                          results[result_row(result)].name, (unsigned)result);
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
    const char *missing = tern_symbols_find(loader.library, symbols, sizeof symbols / sizeof *symbols, &tern_ze);
    if (missing)
        TERN_TRY(tern_error(TERN_ERROR_NOT_FOUND,
                            "the Level Zero loader has no %s; it is older than 1.2, update it (libze1)", missing));
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
