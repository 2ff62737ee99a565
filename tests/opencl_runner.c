/* SPDX-License-Identifier: Apache-2.0 */
/* opencl_runner.c - see opencl_runner.h. libOpenCL is dlopened, so that the tests build and skip without one. */
#define CL_TARGET_OPENCL_VERSION 120
#include "tests/opencl_runner.h"

#include "core/base/jit.h"
#include "core/kernel/lowered.h"

#include <CL/cl.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SYMBOLS(X)                                                                                                     \
    X(clGetPlatformIDs)                                                                                                \
    X(clGetDeviceIDs)                                                                                                  \
    X(clCreateContext)                                                                                                 \
    X(clReleaseContext)                                                                                                \
    X(clCreateCommandQueue)                                                                                            \
    X(clReleaseCommandQueue)                                                                                           \
    X(clCreateBuffer)                                                                                                  \
    X(clReleaseMemObject)                                                                                              \
    X(clCreateProgramWithSource)                                                                                       \
    X(clBuildProgram)                                                                                                  \
    X(clGetProgramBuildInfo)                                                                                           \
    X(clReleaseProgram)                                                                                                \
    X(clCreateKernel) X(clReleaseKernel) X(clSetKernelArg) X(clEnqueueNDRangeKernel) X(clEnqueueReadBuffer) X(clFinish)

/* Programs by kernel key: many sizes run through one kernel. */
static struct {
    uint64_t key;
    cl_program program;
    char entry[64];
} cache[64];
static uint32_t cached;

#define DECLARE(name) __typeof__(name) *name;
static struct {
    SYMBOLS(DECLARE)
    void *library;
    cl_device_id device;
    cl_context context;
    cl_command_queue queue;
} cl;

#define LOAD_SYMBOL(name)                                                                                              \
    *(void **)&cl.name = dlsym(cl.library, #name);                                                                     \
    if (cl.name == NULL) return false;

static bool load_symbols(void)
{
    SYMBOLS(LOAD_SYMBOL)
    return true;
}

bool opencl_runner_open(const char **out_why)
{
    cl_platform_id platforms[8];
    cl_uint count = 0;
    cl_int error = 0;
    *out_why = "libOpenCL.so.1 is not installed (apt install ocl-icd-libopencl1 pocl-opencl-icd)";
    tern_jit_prepare();
    if (cl.library == NULL) cl.library = dlopen("libOpenCL.so.1", RTLD_NOW);
    if (cl.library == NULL || !load_symbols()) return false;
    *out_why = "OpenCL has no device (apt install pocl-opencl-icd)";
    if (cl.clGetPlatformIDs(8, platforms, &count) != CL_SUCCESS) return false;
    for (cl_uint i = 0; i < count && i < 8 && cl.device == NULL; i++)
        if (cl.clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, 1, &cl.device, NULL) != CL_SUCCESS) cl.device = NULL;
    if (cl.device == NULL) return false;
    *out_why = "the OpenCL device did not open";
    cl.context = cl.clCreateContext(NULL, 1, &cl.device, NULL, NULL, &error);
    if (error == CL_SUCCESS) cl.queue = cl.clCreateCommandQueue(cl.context, cl.device, 0, &error);
    return error == CL_SUCCESS;
}

void opencl_runner_close(void)
{
    for (uint32_t i = 0; i < cached; i++) cl.clReleaseProgram(cache[i].program);
    cached = 0;
    if (cl.queue != NULL) cl.clReleaseCommandQueue(cl.queue);
    if (cl.context != NULL) cl.clReleaseContext(cl.context);
    cl.queue = NULL;
    cl.context = NULL;
    cl.device = NULL;
}

static cl_program build(const tern_source *source)
{
    cl_int error = 0;
    const char *text = source->text;
    size_t bytes = source->bytes;
    cl_program program = cl.clCreateProgramWithSource(cl.context, 1, &text, &bytes, &error);
    if (error != CL_SUCCESS) return NULL;
    error = cl.clBuildProgram(program, 1, &cl.device, "", NULL, NULL);
    if (error == CL_SUCCESS) return program;
    static char log[1 << 16];
    cl.clGetProgramBuildInfo(program, cl.device, CL_PROGRAM_BUILD_LOG, sizeof log, log, NULL);
    fprintf(stderr, "build failed (%d): %s\n%s\n", error, log, text);
    cl.clReleaseProgram(program);
    return NULL;
}

#define GUARD_BYTES 4096u
#define GUARD_VALUE 0x5au

/* A buffer with the argument's bytes and a guard behind them. */
static cl_mem guarded_buffer(const runner_argument *argument, cl_int *out_error)
{
    unsigned char *bytes = malloc(argument->bytes + GUARD_BYTES);
    if (bytes == NULL) return NULL;
    memcpy(bytes, argument->data, argument->bytes);
    memset(bytes + argument->bytes, GUARD_VALUE, GUARD_BYTES);
    cl_mem buffer = cl.clCreateBuffer(cl.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
                                      argument->bytes + GUARD_BYTES, bytes, out_error);
    free(bytes);
    return buffer;
}

static bool guard_holds(cl_mem buffer, const runner_argument *argument)
{
    unsigned char guard[GUARD_BYTES];
    if (cl.clEnqueueReadBuffer(cl.queue, buffer, CL_TRUE, argument->bytes, GUARD_BYTES, guard, 0, NULL, NULL) !=
        CL_SUCCESS)
        return false;
    for (uint32_t i = 0; i < GUARD_BYTES; i++) {
        if (guard[i] == GUARD_VALUE) continue;
        fprintf(stderr, "the kernel wrote %u bytes behind an argument of %zu bytes\n", i, argument->bytes);
        return false;
    }
    return true;
}

static bool set_arguments(const tern_kernel_desc *desc, const uint32_t *words, const runner_argument *arguments,
                          cl_kernel kernel, cl_mem *buffers)
{
    cl_int error = CL_SUCCESS;
    for (uint32_t i = 0; i < desc->tensor_count; i++) {
        buffers[i] = guarded_buffer(&arguments[i], &error);
        if (buffers[i] == NULL || error != CL_SUCCESS) return false;
        error |= cl.clSetKernelArg(kernel, 2 * i, sizeof buffers[i], &buffers[i]);
        error |= cl.clSetKernelArg(kernel, 2 * i + 1, sizeof(cl_uint), &arguments[i].offset);
    }
    error |= cl.clSetKernelArg(kernel, 2 * desc->tensor_count, desc->word_count * sizeof(cl_uint), words);
    return error == CL_SUCCESS;
}

static bool launch(const tern_kernel_desc *desc, cl_kernel kernel, const uint32_t groups[3])
{
    size_t local[3], global[3];
    for (int d = 0; d < 3; d++) {
        local[d] = desc->variant.group[d];
        global[d] = local[d] * groups[d];
    }
    if (cl.clEnqueueNDRangeKernel(cl.queue, kernel, 3, NULL, global, local, 0, NULL, NULL) != CL_SUCCESS) return false;
    return cl.clFinish(cl.queue) == CL_SUCCESS;
}

/* The kernel's program, built on first sight. The runner owns it. */
static cl_program find_program(const tern_kernel_desc *desc, const char **out_entry)
{
    tern_kernel_desc keyed = *desc;
    tern_source source = {0};
    tern_kernel_key(&keyed);
    for (uint32_t i = 0; i < cached; i++) {
        *out_entry = cache[i].entry;
        if (cache[i].key == keyed.key) return cache[i].program;
    }
    if (desc->render(desc, TERN_DIALECT_OPENCL, false, &source) < 0) {
        fprintf(stderr, "render: %s\n", tern_error_message());
        return NULL;
    }
    cl_program program = build(&source);
    if (program != NULL) {
        if (cached == sizeof cache / sizeof *cache) cl.clReleaseProgram(cache[--cached].program);
        cache[cached].key = keyed.key;
        cache[cached].program = program;
        memcpy(cache[cached].entry, source.entry, sizeof source.entry);
        *out_entry = cache[cached++].entry;
    }
    free(source.text);
    return program;
}

bool opencl_runner_run(const tern_kernel_desc *desc, const uint32_t *words, const uint32_t groups[3],
                       const runner_argument *arguments)
{
    cl_mem buffers[TERN_TAPE_TENSORS] = {0};
    cl_int error = CL_SUCCESS;
    bool done = false;
    const char *entry = NULL;
    cl_program program = find_program(desc, &entry);
    cl_kernel kernel = program != NULL ? cl.clCreateKernel(program, entry, &error) : NULL;
    if (kernel != NULL && set_arguments(desc, words, arguments, kernel, buffers)) done = launch(desc, kernel, groups);
    for (uint32_t i = 0; i < desc->tensor_count; i++) {
        if (buffers[i] == NULL) continue;
        if (done)
            done = cl.clEnqueueReadBuffer(cl.queue, buffers[i], CL_TRUE, 0, arguments[i].bytes, arguments[i].data, 0,
                                          NULL, NULL) == CL_SUCCESS &&
                   guard_holds(buffers[i], &arguments[i]);
        cl.clReleaseMemObject(buffers[i]);
    }
    if (kernel != NULL) cl.clReleaseKernel(kernel);
    return done;
}
