/* SPDX-License-Identifier: Apache-2.0 */
/* kernel.c - a kernel's text, rendered by core, becomes a Level Zero module and kernel.
 *
 *     desc ── render ── OpenCL C ──┬── cache "spirv" ──┬── SPIR-V ──┬── cache "native" ──┬── module ── kernel
 *                                  └── spirv.c ────────┘            └── the driver ──────┘
 *
 * Both caches are tern's (core/base/cache.h): SPIR-V costs two processes, a native binary the driver's compiler. A
 * binary that the driver refuses is as good as absent. Knows no op. Invariant: a kernel that was created can be
 * launched with its variant's group. */
#include "backends/level_zero/level_zero.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/cache.h"
#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/base/ocloc.h"

static const char *const flags[2] = {"", "-ze-opt-greater-than-4GB-buffer-required"};

static tern_status spirv_get(const tern_kernel_desc *desc, tern_backend_kernel *kernel)
{
    tern_source source = {0};
    char with[1100] = "";
    tern_status status;
    TERN_TRY(desc->render(desc, TERN_DIALECT_OPENCL, false, &source));
    memcpy(kernel->entry, source.entry, sizeof kernel->entry);
    TERN_TRY(zero_compiler_find(with, sizeof with));
    const uint64_t key = tern_hash(tern_hash(TERN_HASH_START, with, strlen(with)), source.text, source.bytes);
    if (tern_cache_read("level_zero", "spirv", key, &kernel->spirv, &kernel->spirv_bytes) < 0) {
        TERN_TRY(zero_spirv_compile(desc->label, &source, &kernel->spirv, &kernel->spirv_bytes));
        tern_cache_write("level_zero", "spirv", key, kernel->spirv, kernel->spirv_bytes);
    }
fail:
    free(source.text);
    return status;
}

/* ------------------------------------------------------------------ modules */

static tern_status module_create(tern_backend_device *device, const tern_backend_kernel *kernel,
                                 ze_module_format_t format, const char *data, size_t bytes, bool large,
                                 ze_module_handle_t *out_module)
{
    const ze_module_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_MODULE_DESC,
                                   .format = format,
                                   .inputSize = bytes,
                                   .pInputModule = (const uint8_t *)data,
                                   .pBuildFlags = flags[large]};
    ze_module_build_log_handle_t log = NULL;
    const ze_result_t result = tern_ze.zeModuleCreate(device->context, device->entry.device, &desc, out_module, &log);
    tern_status status = zero_result(device, "zeModuleCreate", result);
    if (status == TERN_ERROR_KERNEL) {
        size_t length = 0;
        char *text = NULL;
        if (log && tern_ze.zeModuleBuildLogGetString(log, &length, NULL) == ZE_RESULT_SUCCESS &&
            (text = calloc(1, length + 1)) != NULL &&
            tern_ze.zeModuleBuildLogGetString(log, &length, text) != ZE_RESULT_SUCCESS)
            text[0] = 0;
        status =
            tern_error(status, "%s: kernel \"%s\" does not build (zeModuleCreate: 0x%x); the driver says: %s",
                       device->base.info.name, kernel->shape.label, (unsigned)result, text && *text ? text : "nothing");
        free(text);
    }
    ZE_RELEASE(zeModuleBuildLogDestroy, log);
    if (status < 0) *out_module = NULL;
    return status;
}

/* Keeps the binary, best effort but for a loss. One without the matrix units that its text has words for is refused. */
static tern_status native_store(tern_backend_device *device, uint64_t key, const tern_backend_kernel *kernel,
                                ze_module_handle_t module)
{
    size_t bytes = 0;
    char *data = NULL;
    tern_status status;
    TERN_TRY(ZE_CALL(device, zeModuleGetNativeBinary, module, &bytes, NULL));
    data = malloc(bytes ? bytes : 1);
    if (!data) TERN_TRY(tern_error_memory("a native binary", bytes));
    TERN_TRY(ZE_CALL(device, zeModuleGetNativeBinary, module, &bytes, (uint8_t *)data));
    if (kernel->dpas && !tern_ocloc_has_dpas(data, bytes))
        TERN_TRY(tern_error(TERN_ERROR_KERNEL,
                            "%s: the driver's compiler made kernel \"%s\" without the matrix unit's instructions (no "
                            "has_dpas in its binary of %zu bytes); update the driver, or train with --precision f32",
                            device->base.info.name, kernel->shape.label, bytes));
    tern_cache_write("level_zero", "native", key, data, bytes);
fail:
    free(data);
    if (status == TERN_ERROR_DEVICE_LOST || kernel->dpas) return status; /* unseen, the binary is as good as without */
    if (status < 0) tern_log_write(TERN_LOG_INFO, "level_zero: not cached: %s", tern_error_message());
    return TERN_OK;
}

static tern_status module_get(tern_backend_device *device, tern_backend_kernel *kernel, bool large)
{
    char *data = NULL;
    size_t bytes = 0;
    tern_status status;
    uint64_t key = tern_hash(device->driver_hash, flags[large], strlen(flags[large]));
    key = tern_hash(key, kernel->spirv, kernel->spirv_bytes);
    if (tern_cache_read("level_zero", "native", key, &data, &bytes) >= 0) {
        status = module_create(device, kernel, ZE_MODULE_FORMAT_NATIVE, data, bytes, large, &kernel->module[large]);
        free(data);
        if (status != TERN_ERROR_KERNEL) return status;
        tern_log_write(TERN_LOG_WARNING, "level_zero: a cached binary was refused: %s", tern_error_message());
    }
    TERN_TRY(module_create(device, kernel, ZE_MODULE_FORMAT_IL_SPIRV, kernel->spirv, kernel->spirv_bytes, large,
                           &kernel->module[large]));
    TERN_TRY(native_store(device, key, kernel, kernel->module[large]));
    return TERN_OK;
fail:
    ZE_RELEASE(zeModuleDestroy, kernel->module[large]); /* else the next one to ask would get it unseen */
    return status;
}

tern_status zero_kernel_form(tern_backend_device *device, tern_backend_kernel *kernel, bool large,
                             ze_kernel_handle_t *out_kernel)
{
    const ze_kernel_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_KERNEL_DESC, .pKernelName = kernel->entry};
    const uint32_t wanted = 2 * kernel->shape.tensor_count + (kernel->shape.word_count ? 1 : 0);
    ze_kernel_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_KERNEL_PROPERTIES};
    tern_status status = TERN_OK;
    if (kernel->kernel[large]) goto done;
    if (!kernel->module[large]) TERN_TRY(module_get(device, kernel, large));
    TERN_TRY(ZE_CALL(device, zeKernelCreate, kernel->module[large], &desc, &kernel->kernel[large]));
    TERN_TRY(ZE_CALL(device, zeKernelSetGroupSize, kernel->kernel[large], kernel->shape.group[0],
                     kernel->shape.group[1], kernel->shape.group[2]));
    TERN_TRY(ZE_CALL(device, zeKernelGetProperties, kernel->kernel[large], &properties));
    if (properties.numKernelArgs != wanted)
        TERN_TRY(tern_error(TERN_ERROR_KERNEL,
                            "kernel \"%s\": its text takes %u arguments, %u tensors and %u words make %u",
                            kernel->shape.label, properties.numKernelArgs, kernel->shape.tensor_count,
                            kernel->shape.word_count, wanted));
    if (properties.spillMemSize)
        tern_log_write(TERN_LOG_DEBUG, "level_zero: kernel \"%s\" spills %u bytes", kernel->shape.label,
                       properties.spillMemSize);
done:
    *out_kernel = kernel->kernel[large];
    return TERN_OK;
fail:
    ZE_RELEASE(zeKernelDestroy, kernel->kernel[large]);
    return status;
}

tern_status zero_kernel_create(tern_backend_device *device, const tern_kernel_desc *desc,
                               tern_backend_kernel **out_kernel)
{
    const tern_kernel_fit asked = {false, device->base.info.max_group_size, desc->variant.shared_bytes};
    tern_backend_kernel *kernel = NULL;
    ze_kernel_handle_t plain = NULL;
    tern_status status;
    *out_kernel = NULL;
    TERN_TRY(tern_plugin_enter(&device->base));
    kernel = calloc(1, sizeof *kernel);
    if (!kernel) return tern_error_memory("a Level Zero kernel", sizeof *kernel);
    TERN_TRY(tern_kernel_shape_take(desc, "Level Zero", &kernel->shape));
    TERN_TRY(tern_kernel_fit_check(&device->base.info, desc, &asked));
    kernel->dpas = desc->variant.fragment.subgroup > 1;
    TERN_TRY(spirv_get(desc, kernel));
    TERN_TRY(zero_kernel_form(device, kernel, false, &plain));
    *out_kernel = kernel;
    return TERN_OK;
fail:
    zero_kernel_destroy(device, kernel);
    return status;
}

void zero_kernel_destroy(tern_backend_device *device, tern_backend_kernel *kernel)
{
    if (!kernel) return;
    for (int large = 0; large < 2 && tern_plugin_may_release(&device->base); large++) {
        ZE_RELEASE(zeKernelDestroy, kernel->kernel[large]);
        ZE_RELEASE(zeModuleDestroy, kernel->module[large]);
    }
    free(kernel->spirv);
    free(kernel);
}
