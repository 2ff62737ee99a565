/* SPDX-License-Identifier: Apache-2.0 */
/* module.c - modules: SPIR-V, or a native binary of an earlier life, to an OpenCL program.
 *
 *     IL_SPIRV ── read, checked against the device's limits ──┬─ flow.c ─┬─ clCreateProgramWithIL        where it can
 *     NATIVE ──── magic, length, hash ── SPIR-V inside ───────┘          └─ llvm-spirv -r ── WithBinary  PoCL 3.1
 *
 * What a real device would refuse is refused here, with a build log: unknown build flags, f64, f16 where there is none.
 * The native binary is the SPIR-V with a header, so that a damaged one can be told. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/stand_ins/level_zero/stand_in.h"

#define NATIVE_MAGIC "TERNZE1"

typedef struct native_header {
    char magic[8];
    uint64_t bytes, sum, large;
} native_header;

static uint64_t sum_of(const unsigned char *data, size_t bytes)
{
    uint64_t sum = bytes;
    for (size_t i = 0; i < bytes; i++) sum = sum * 31 + data[i];
    return sum;
}

/* ------------------------------------------------------------------- build */

/* The build flags that a driver knows; others are refused. */
static bool read_flags(const char *flags, bool *out_large, char *log, size_t log_bytes)
{
    static const char *const known[] = {"-ze-opt-greater-than-4GB-buffer-required", "-ze-opt-large-register-file",
                                        "-ze-opt-disable", "-ze-opt-level=2", "-ze-opt-level=1"};
    char text[512];
    (void)snprintf(text, sizeof text, "%s", flags ? flags : "");
    char *rest = NULL;
    for (const char *flag = strtok_r(text, " ", &rest); flag; flag = strtok_r(NULL, " ", &rest)) {
        size_t i = 0;
        while (i < sizeof known / sizeof *known && strcmp(flag, known[i]) != 0) i++;
        if (i == sizeof known / sizeof *known) {
            (void)snprintf(log, log_bytes, "unrecognised build option: %s", flag);
            return false;
        }
        if (i == 0) *out_large = true;
    }
    return true;
}

static bool check_spirv(standin_module *module, char *log, size_t log_bytes)
{
    const char *why = NULL;
    const standin_spirv *spirv = &module->spirv;
    if (!standin_spirv_read(module->code, module->code_bytes, &module->spirv, &why))
        (void)snprintf(log, log_bytes, "invalid SPIR-V: %s", why);
    else if (spirv->version > 0x10200)
        (void)snprintf(log, log_bytes, "SPIR-V %u.%u is newer than 1.2", spirv->version >> 16,
                       spirv->version >> 8 & 255);
    else if (spirv->f64 || (spirv->f16 && !standin_cl.f16))
        (void)snprintf(log, log_bytes, "the device has no %s arithmetic", spirv->f64 ? "f64" : "f16");
    else
        return true;
    return false;
}

/* The OpenCL program; false: the log says why there is none. */
static bool make_program(standin_module *module, const uint32_t *words, size_t bytes, char *log, size_t log_bytes,
                         cl_int *out_error)
{
    cl_int status = 0;
    unsigned char *code = NULL;
    size_t code_bytes = 0;
    char *said = NULL;
    if (standin_cl.takes_spirv) {
        module->program = clCreateProgramWithIL(standin_cl.context, words, bytes, out_error);
        return true;
    }
    if (!standin_translate(words, bytes, &code, &code_bytes, &said)) {
        (void)snprintf(log, log_bytes, "%s", said ? said : "no memory");
        free(said);
        return false;
    }
    const unsigned char *binary = code;
    module->program =
        clCreateProgramWithBinary(standin_cl.context, 1, &standin_cl.device, &code_bytes, &binary, &status, out_error);
    free(code);
    return true;
}

static bool build(standin_module *module, char *log, size_t log_bytes)
{
    cl_int error = 0;
    uint32_t *words = NULL;
    size_t bytes = 0;
    bool made = standin_flow_prepare(module->code, module->code_bytes, &words, &bytes);
    if (!made) (void)snprintf(log, log_bytes, "no memory");
    made = made && make_program(module, words, bytes, log, log_bytes, &error);
    free(words);
    if (!made) return false;
    if (!error) error = clBuildProgram(module->program, 1, &standin_cl.device, "-cl-kernel-arg-info", NULL, NULL);
    if (!error) return true;
    const size_t used = (size_t)snprintf(log, log_bytes, "OpenCL error %d: ", error);
    if (module->program)
        (void)clGetProgramBuildInfo(module->program, standin_cl.device, CL_PROGRAM_BUILD_LOG, log_bytes - used,
                                    log + used, NULL);
    return false;
}

/* ----------------------------------------------------------------- modules */

static void delete_module(standin_module *module)
{
    if (module->program) (void)clReleaseProgram(module->program);
    standin_spirv_free(&module->spirv);
    free(module->code);
    module->program = NULL;
    module->code = NULL;
    standin_destroy(module);
}

/* The SPIR-V of a description, copied. */
static ze_result_t take_code(standin_module *module, const ze_module_desc_t *desc)
{
    const unsigned char *code = desc->pInputModule;
    size_t bytes = desc->inputSize;
    if (desc->format == ZE_MODULE_FORMAT_NATIVE) {
        native_header header;
        if (bytes < sizeof header) return ZE_RESULT_ERROR_INVALID_NATIVE_BINARY;
        memcpy(&header, code, sizeof header);
        code += sizeof header;
        bytes -= sizeof header;
        if (memcmp(header.magic, NATIVE_MAGIC, 8) != 0 || header.bytes != bytes || header.sum != sum_of(code, bytes))
            return ZE_RESULT_ERROR_INVALID_NATIVE_BINARY;
        module->large = header.large != 0;
    }
    module->code = malloc(bytes + 1);
    if (!module->code) return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    memcpy(module->code, code, bytes);
    module->code_bytes = bytes;
    return STANDIN_OK;
}

static ze_result_t make_log(standin_context *context, const char *text, ze_module_build_log_handle_t *out)
{
    if (!out) return STANDIN_OK;
    standin_log *log = standin_create(STANDIN_LOG, sizeof *log, context);
    if (!log) return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    log->text = strdup(text);
    *out = (ze_module_build_log_handle_t)(void *)log;
    return STANDIN_OK;
}

ENTRY(zeModuleCreate)
(ze_context_handle_t context_handle, ze_device_handle_t device_handle, const ze_module_desc_t *desc,
 ze_module_handle_t *out_module, ze_module_build_log_handle_t *out_log)
{
    ENTER(zeModuleCreate);
    NEED(desc);
    NEED(out_module);
    NEED(desc->pInputModule);
    FIND(standin_context, context, context_handle, STANDIN_CONTEXT);
    const standin_device *device = standin_device_find(device_handle);
    static char text[65536]; /* under the lock */
    if (!device) return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (desc->format != ZE_MODULE_FORMAT_IL_SPIRV && desc->format != ZE_MODULE_FORMAT_NATIVE)
        return ZE_RESULT_ERROR_INVALID_ENUMERATION;
    if (desc->pConstants) return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
    standin_module *module = standin_create(STANDIN_MODULE, sizeof *module, context);
    if (!module) return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    module->device = device;
    text[0] = 0;
    ze_result_t result = take_code(module, desc);
    if (!result && !(read_flags(desc->pBuildFlags, &module->large, text, sizeof text) &&
                     check_spirv(module, text, sizeof text) && build(module, text, sizeof text)))
        result = ZE_RESULT_ERROR_MODULE_BUILD_FAILURE;
    const ze_result_t logged = make_log(context, text, out_log);
    if (!result) result = logged;
    if (result)
        delete_module(module);
    else
        *out_module = (ze_module_handle_t)(void *)module;
    return result;
}

ENTRY(zeModuleDestroy)(ze_module_handle_t handle)
{
    STANDIN_HOLD;
    FIND(standin_module, module, handle, STANDIN_MODULE);
    if (!standin_may_destroy(&module->object, "zeModuleDestroy")) return ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE;
    delete_module(module);
    LEAVE(zeModuleDestroy);
}

ENTRY(zeModuleGetNativeBinary)(ze_module_handle_t handle, size_t *bytes, uint8_t *out)
{
    ENTER(zeModuleGetNativeBinary);
    NEED(bytes);
    FIND(standin_module, module, handle, STANDIN_MODULE);
    native_header header = {.magic = NATIVE_MAGIC, .bytes = module->code_bytes, .large = module->large};
    header.sum = sum_of(module->code, module->code_bytes);
    if (out && *bytes < sizeof header + module->code_bytes) return ZE_RESULT_ERROR_INVALID_SIZE;
    if (out) {
        memcpy(out, &header, sizeof header);
        memcpy(out + sizeof header, module->code, module->code_bytes);
    }
    *bytes = sizeof header + module->code_bytes;
    return STANDIN_OK;
}

ENTRY(zeModuleGetKernelNames)(ze_module_handle_t handle, uint32_t *count, const char **out_names)
{
    ENTER(zeModuleGetKernelNames);
    NEED(count);
    FIND(standin_module, module, handle, STANDIN_MODULE);
    const uint32_t have = module->spirv.kernel_count;
    for (uint32_t i = 0; out_names && i < *count && i < have; i++) out_names[i] = module->spirv.kernels[i].name;
    if (*count == 0 || *count > have) *count = have;
    return STANDIN_OK;
}

/* --------------------------------------------------------------- build logs */

ENTRY(zeModuleBuildLogGetString)(ze_module_build_log_handle_t handle, size_t *bytes, char *out)
{
    ENTER(zeModuleBuildLogGetString);
    NEED(bytes);
    FIND(standin_log, log, handle, STANDIN_LOG);
    const char *text = log->text ? log->text : "";
    const size_t length = strlen(text) + 1;
    if (out) memcpy(out, text, *bytes < length ? *bytes : length);
    if (!out || *bytes > length) *bytes = length;
    return STANDIN_OK;
}

ENTRY(zeModuleBuildLogDestroy)(ze_module_build_log_handle_t handle)
{
    STANDIN_HOLD;
    FIND(standin_log, log, handle, STANDIN_LOG);
    free(log->text);
    log->text = NULL;
    standin_destroy(log);
    LEAVE(zeModuleBuildLogDestroy);
}
