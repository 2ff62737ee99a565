/* SPDX-License-Identifier: Apache-2.0 */
/* driver.c - NVIDIA's driver library: opened at run time, its entries, its error codes as sentences.
 *
 *     libcuda.so.1 (comes with the driver, not with the toolkit) ── cuInit ── devices, as CUDA_VISIBLE_DEVICES lets
 * them
 *
 * Not here: anything about one device. TERN_CUDA_LIBRARY names another library, alone (a stand-in, a driver in an odd
 * place). A toolkit's stub, a driver without a card and one whose kernel module does not fit are different things to a
 * user, so each has its own sentence. Invariant: tern_cu is either complete or all NULL. */
#include "backends/cuda/cuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/base/plugin_library.h"

cuda_driver tern_cu;

static struct {
    pthread_mutex_t lock;
    void *library;
    pid_t pid; /* of the process that started it */
    int count, version;
    char why_none[400];
} driver = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ------------------------------------------------------------------ results */

static const char *code_name(CUresult code)
{
    const char *name = NULL;
    if (!tern_cu.cuGetErrorName || tern_cu.cuGetErrorName(code, &name) != CUDA_SUCCESS || !name)
        return "an unknown code";
    return name;
}

static const struct {
    CUresult code;
    tern_status status;
    const char *hint;
} results[] = {
#define RESULT(name, code, status, hint) {code, status, hint},
#include "backends/cuda/results.def"
#undef RESULT
};

tern_status cuda_result(tern_backend_device *device, const char *call, CUresult code)
{
    if (code == CUDA_SUCCESS) return TERN_OK;
    char left[80] = "";
    size_t row = 0, free_bytes = 0, total = 0;
    while (results[row].code != code && results[row].code != CUDA_ERROR_ANY_OTHER) row++;
    if (results[row].status == TERN_ERROR_DEVICE_LOST && device) atomic_store(&device->base.lost, true);
    if (code == CUDA_ERROR_OUT_OF_MEMORY && tern_cu.cuMemGetInfo(&free_bytes, &total) == CUDA_SUCCESS)
        snprintf(left, sizeof left, "%zu of %zu bytes are free; ", free_bytes, total);
    return tern_error(results[row].status, "%s: %s: %s (%d); %s%s", device ? device->base.info.name : "CUDA", call,
                      code_name(code), code, left, results[row].hint);
}

void cuda_released(const char *call, CUresult code)
{
    if (code != CUDA_SUCCESS) tern_log_write(TERN_LOG_WARNING, "cuda: %s: %s (%d)", call, code_name(code), (int)code);
}

/* ------------------------------------------------------------------ load */

static const tern_symbol symbols[] = {
    {"cuInit", offsetof(cuda_driver, cuInit)},
#define SYMBOL(name, suffix, parameters) {#name #suffix, offsetof(cuda_driver, name)},
#include "backends/cuda/symbols.def"
#undef SYMBOL
};

/* Why cuInit failed, as far as its code tells. */
static const struct {
    CUresult code;
    const char *hint;
} start_hints[] = {
    {CUDA_ERROR_NOT_INITIALIZED, "a process that was forked from one that uses CUDA cannot; start it anew (exec)"},
    {CUDA_ERROR_STUB_LIBRARY, "it is the CUDA toolkit's stub, not the driver; take its folder out of LD_LIBRARY_PATH, "
                              "and install the card's driver"},
    {CUDA_ERROR_SYSTEM_NOT_READY, "the links between the cards are not up; start nvidia-fabricmanager"},
    {CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "it does not fit the kernel's NVIDIA module; reboot after a driver update"},
    {CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, "take the cuda-compat folder out of LD_LIBRARY_PATH"},
    {CUDA_ERROR_ANY_OTHER, "if nvidia-smi works, load nvidia_uvm (nvidia-modprobe -u) or give the container "
                           "/dev/nvidia*"},
};

/* A driver without a card is no error: it has 0 devices. */
static tern_status driver_start(void)
{
    const CUresult code = tern_cu.cuInit(0);
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    size_t row = 0;
    tern_status status;
    if (code == CUDA_SUCCESS) {
        TERN_TRY(CU_CALL(NULL, cuDriverGetVersion, &driver.version));
        TERN_TRY(CU_CALL(NULL, cuDeviceGetCount, &driver.count));
        if (driver.count > 0) return TERN_OK;
    }
    if (code == CUDA_SUCCESS || code == CUDA_ERROR_NO_DEVICE) {
        driver.count = 0;
        snprintf(driver.why_none, sizeof driver.why_none,
                 "NVIDIA's driver is there but shows no card (cuInit: %s); look at nvidia-smi%s%s", code_name(code),
                 visible ? ", and at CUDA_VISIBLE_DEVICES, which is " : "", visible ? visible : "");
        return TERN_OK;
    }
    while (start_hints[row].code != code && start_hints[row].code != CUDA_ERROR_ANY_OTHER) row++;
    return tern_error(TERN_ERROR_NOT_FOUND, "NVIDIA's driver does not start (cuInit of %s: %s, %d): %s",
                      tern_symbol_path(&tern_cu.cuInit, "libcuda.so.1"), code_name(code), code, start_hints[row].hint);
fail:
    return status;
}

tern_status cuda_load(void)
{
    tern_status status = TERN_OK;
    const char *path = getenv("TERN_CUDA_LIBRARY");
    pthread_mutex_lock(&driver.lock);
    if (driver.library) goto done;
    driver.library = dlopen(path && *path ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!driver.library)
        TERN_TRY(
            tern_error(TERN_ERROR_NOT_FOUND,
                       "NVIDIA's driver is missing (%s); install the card's (Debian, Ubuntu: nvidia-driver), which "
                       "brings libcuda.so.1",
                       dlerror()));
    const char *missing = tern_symbols_find(driver.library, symbols, sizeof symbols / sizeof *symbols, &tern_cu);
    if (missing)
        TERN_TRY(tern_error(TERN_ERROR_NOT_FOUND,
                            "the CUDA driver's library has no %s: it is a stub, or older than CUDA 11.4 (R470); "
                            "install the card's present driver",
                            missing));
    TERN_TRY(driver_start());
    driver.pid = getpid();
    goto done;
fail:
    driver.library = NULL; /* itself it stays: what cuInit began has threads, which do not survive an unmapping */
    memset(&tern_cu, 0, sizeof tern_cu);
done:
    pthread_mutex_unlock(&driver.lock);
    return status;
}

void cuda_unload(void)
{
    pthread_mutex_lock(&driver.lock);
    driver.library = NULL;
    driver.count = 0;
    driver.why_none[0] = 0;
    memset(&tern_cu, 0, sizeof tern_cu);
    pthread_mutex_unlock(&driver.lock);
}

int cuda_driver_version(void) { return driver.version; }

tern_status cuda_device_count(uint32_t *out_count)
{
    if (driver.pid && driver.pid != getpid()) /* before the lock, which another thread may have had at the fork */
        return tern_error(TERN_ERROR_INVALID,
                          "CUDA was started by process %ld and does not survive a fork; fork first, or start process "
                          "%ld anew (exec)",
                          (long)driver.pid, (long)getpid());
    pthread_mutex_lock(&driver.lock);
    const bool loaded = driver.library != NULL;
    const int count = driver.count;
    pthread_mutex_unlock(&driver.lock);
    if (!loaded) return tern_error(TERN_ERROR_INVALID, "the CUDA driver is not loaded; call load first");
    *out_count = (uint32_t)count;
    return count == 0 ? tern_error(TERN_OK, "%s", driver.why_none) : TERN_OK;
}

tern_status cuda_device_find(uint32_t index, CUdevice *out_device)
{
    uint32_t count = 0;
    const tern_status status = cuda_device_count(&count);
    if (status < 0) return status;
    if (index >= count)
        return tern_error(TERN_ERROR_NOT_FOUND, "there is no CUDA device %u; there are %u, counted from 0", index,
                          count);
    return CU_CALL(NULL, cuDeviceGet, out_device, (int)index);
}
