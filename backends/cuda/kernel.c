/* SPDX-License-Identifier: Apache-2.0 */
/* kernel.c - a kernel's text, rendered by core, becomes a function on the card.
 *
 *     desc ── render ── text ──┬── disk cache ──┬── cubin ── module ── function ── checks: threads, shared memory
 *                              └── NVRTC ───────┘
 *
 * A cubin is for one architecture, so nothing is compiled when it is loaded. A cached one that the driver refuses is
 * compiled again. Knows no op. Invariant: a kernel that was created can be launched with its variant's group. */
#include "backends/cuda/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cache.h"
#include "core/base/hash.h"
#include "core/base/log.h"

static tern_status module_load(tern_backend_device *device, const char *cubin, const tern_source *source,
                               tern_backend_kernel *kernel)
{
    tern_status status;
    TERN_TRY(CU_CALL(device, cuModuleLoadData, &kernel->module, cubin));
    TERN_TRY(CU_CALL(device, cuModuleGetFunction, &kernel->function, kernel->module, source->entry));
    return TERN_OK;
fail:
    CU_RELEASE(cuModuleUnload, kernel->module);
    return status;
}

/* Whether the cache had it, and the driver took it. */
static bool cached_load(tern_backend_device *device, uint64_t key, const tern_source *source,
                        tern_backend_kernel *kernel)
{
    char *cubin = NULL;
    size_t bytes = 0;
    if (tern_cache_read("cuda", "cubin", key, &cubin, &bytes) < 0) return false;
    const bool taken = module_load(device, cubin, source, kernel) >= 0;
    if (!taken) tern_log_write(TERN_LOG_WARNING, "cuda: a cached cubin was refused: %s", tern_error_message());
    free(cubin);
    return taken;
}

static tern_status function_make(tern_backend_device *device, const tern_kernel_desc *desc, tern_backend_kernel *kernel)
{
    tern_source source = {0};
    char *cubin = NULL;
    size_t bytes = 0;
    tern_status status;
    TERN_TRY(desc->render(desc, TERN_DIALECT_CUDA, false, &source));
    uint64_t key = tern_hash(device->compiler_hash, device->architecture, sizeof device->architecture);
    key = tern_hash(key, source.text, source.bytes);
    if (cached_load(device, key, &source, kernel)) goto fail;
    TERN_TRY(tern_plugin_enter(&device->base)); /* the refusal may have been a loss */
    TERN_TRY(cuda_compile(device->architecture, desc->label, source.text, &cubin, &bytes));
    TERN_TRY(module_load(device, cubin, &source, kernel));
    tern_cache_write("cuda", "cubin", key, cubin, bytes);
fail:
    free(cubin);
    free(source.text);
    return status;
}

/* Registers may allow fewer threads than the device does. */
static tern_status function_check(tern_backend_device *device, const tern_kernel_desc *desc, CUfunction function)
{
    int most = 0, shared = 0, spilled = 0;
    tern_status status;
    TERN_TRY(CU_CALL(device, cuFuncGetAttribute, &most, CU_FUNC_MAX_THREADS_PER_BLOCK, function));
    TERN_TRY(CU_CALL(device, cuFuncGetAttribute, &shared, CU_FUNC_SHARED_BYTES, function));
    TERN_TRY(CU_CALL(device, cuFuncGetAttribute, &spilled, CU_FUNC_LOCAL_BYTES, function));
    const tern_kernel_fit compiled = {true, most < 0 ? 0 : (uint64_t)most, shared < 0 ? 0 : (uint64_t)shared};
    TERN_TRY(tern_kernel_fit_check(&device->base.info, desc, &compiled));
    if (spilled > 0)
        tern_log_write(TERN_LOG_DEBUG, "cuda: kernel \"%s\" (%s) keeps %d bytes per thread in memory", desc->label,
                       desc->variant.name, spilled);
fail:
    return status;
}

tern_status cuda_kernel_create(tern_backend_device *device, const tern_kernel_desc *desc,
                               tern_backend_kernel **out_kernel)
{
    const tern_kernel_fit asked = {false, device->base.info.max_group_size, desc->variant.shared_bytes};
    tern_backend_kernel *kernel = NULL;
    tern_status status;
    *out_kernel = NULL;
    kernel = calloc(1, sizeof *kernel);
    if (!kernel) return tern_error_memory("a CUDA kernel", sizeof *kernel);
    TERN_TRY(tern_kernel_shape_take(desc, "CUDA", &kernel->shape));
    TERN_TRY(tern_kernel_fit_check(&device->base.info, desc, &asked));
    TERN_TRY(function_make(device, desc, kernel));
    TERN_TRY(function_check(device, desc, kernel->function));
    *out_kernel = kernel;
    return TERN_OK;
fail:
    cuda_kernel_destroy(device, kernel);
    return status;
}

void cuda_kernel_destroy(tern_backend_device *device, tern_backend_kernel *kernel)
{
    if (kernel->module && cuda_may_release(device, "a kernel")) CU_RELEASE(cuModuleUnload, kernel->module);
    free(kernel);
}
