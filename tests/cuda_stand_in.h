/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_stand_in.h - the CUDA stand-ins (tests/stand_ins/cuda) for tests that talk to them without the plug-in.
 *
 * Entries are found by dlsym; the table's types are those of tests/stand_ins/cuda/cuda_abi.h. */
#ifndef TERN_TESTS_CUDA_STAND_IN_H
#define TERN_TESTS_CUDA_STAND_IN_H

#include <stdbool.h>

#include "tests/stand_ins/cuda/control.h"
#include "tests/stand_ins/cuda/cuda_abi.h"

#define CUDA_STAND_IN_DRIVER TERN_BINARY_DIR "/stand_ins/cuda/libcuda.so.1"
#define CUDA_STAND_IN_NVRTC  TERN_BINARY_DIR "/stand_ins/cuda/libnvrtc.so"

/* X(field, symbol, parameters) */
#define CUDA_STAND_IN_ENTRIES(X)                                                                                       \
    X(init, "cuInit", (unsigned))                                                                                      \
    X(device_count, "cuDeviceGetCount", (int *))                                                                       \
    X(device_get, "cuDeviceGet", (int *, int))                                                                         \
    X(device_attribute, "cuDeviceGetAttribute", (int *, int, int))                                                     \
    X(device_pci, "cuDeviceGetPCIBusId", (char *, int, int))                                                           \
    X(device_uuid, "cuDeviceGetUuid_v2", (CUuuid *, int))                                                              \
    X(retain, "cuDevicePrimaryCtxRetain", (void **, int))                                                              \
    X(release, "cuDevicePrimaryCtxRelease_v2", (int))                                                                  \
    X(reset, "cuDevicePrimaryCtxReset_v2", (int))                                                                      \
    X(set_current, "cuCtxSetCurrent", (void *))                                                                        \
    X(get_current, "cuCtxGetCurrent", (void **))                                                                       \
    X(synchronize, "cuCtxSynchronize", (void))                                                                         \
    X(memory_info, "cuMemGetInfo_v2", (size_t *, size_t *))                                                            \
    X(allocate, "cuMemAlloc_v2", (CUdeviceptr *, size_t))                                                              \
    X(free, "cuMemFree_v2", (CUdeviceptr))                                                                             \
    X(host_allocate, "cuMemHostAlloc", (void **, size_t, unsigned))                                                    \
    X(host_free, "cuMemFreeHost", (void *))                                                                            \
    X(write, "cuMemcpyHtoD_v2", (CUdeviceptr, const void *, size_t))                                                   \
    X(read, "cuMemcpyDtoH_v2", (void *, CUdeviceptr, size_t))                                                          \
    X(write_async, "cuMemcpyHtoDAsync_v2", (CUdeviceptr, const void *, size_t, void *))                                \
    X(read_async, "cuMemcpyDtoHAsync_v2", (void *, CUdeviceptr, size_t, void *))                                       \
    X(fill_async, "cuMemsetD32Async", (CUdeviceptr, unsigned, size_t, void *))                                         \
    X(stream_create, "cuStreamCreate", (void **, unsigned))                                                            \
    X(stream_destroy, "cuStreamDestroy_v2", (void *))                                                                  \
    X(stream_synchronize, "cuStreamSynchronize", (void *))                                                             \
    X(stream_wait, "cuStreamWaitEvent", (void *, void *, unsigned))                                                    \
    X(event_create, "cuEventCreate", (void **, unsigned))                                                              \
    X(event_destroy, "cuEventDestroy_v2", (void *))                                                                    \
    X(event_record, "cuEventRecord", (void *, void *))                                                                 \
    X(event_query, "cuEventQuery", (void *))                                                                           \
    X(event_synchronize, "cuEventSynchronize", (void *))                                                               \
    X(event_elapsed, "cuEventElapsedTime", (float *, void *, void *))                                                  \
    X(load, "cuModuleLoadData", (void **, const void *))                                                               \
    X(unload, "cuModuleUnload", (void *))                                                                              \
    X(function, "cuModuleGetFunction", (void **, void *, const char *))                                                \
    X(function_attribute, "cuFuncGetAttribute", (int *, int, void *))                                                  \
    X(launch, "cuLaunchKernel",                                                                                        \
      (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **))        \
    X(graph_create, "cuGraphCreate", (void **, unsigned))                                                              \
    X(graph_destroy, "cuGraphDestroy", (void *))                                                                       \
    X(graph_kernel, "cuGraphAddKernelNode_v2",                                                                         \
      (void **, void *, void *const *, size_t, const CUDA_KERNEL_NODE_PARAMS *))                                       \
    X(graph_copy, "cuGraphAddMemcpyNode", (void **, void *, void *const *, size_t, const CUDA_MEMCPY3D *, void *))     \
    X(graph_fill, "cuGraphAddMemsetNode",                                                                              \
      (void **, void *, void *const *, size_t, const CUDA_MEMSET_NODE_PARAMS *, void *))                               \
    X(graph_event, "cuGraphAddEventRecordNode", (void **, void *, void *const *, size_t, void *))                      \
    X(graph_instantiate, "cuGraphInstantiateWithFlags", (void **, void *, unsigned long long))                         \
    X(graph_launch, "cuGraphLaunch", (void *, void *))                                                                 \
    X(exec_destroy, "cuGraphExecDestroy", (void *))

typedef struct cuda_stand_in {
#define FIELD(field, symbol, parameters) int(*field) parameters;
    CUDA_STAND_IN_ENTRIES(FIELD)
#undef FIELD
    uint64_t (*fail_call)(uint64_t call, int result);
    const char *(*failed_call)(void);
    void (*hang)(uint64_t operation);
    int64_t (*live)(void);
    uint64_t (*late_uploads)(void);
    uint64_t (*pending)(void);
    uint64_t (*reports)(char *out_text, size_t bytes);
} cuda_stand_in;

/* NULL with a printed reason where the stand-ins were not built; a missing entry fails the test. */
const cuda_stand_in *cuda_stand_in_find(void);
/* Text to cubin with these options (NULL-terminated); free() it. NULL: *out_log (free() it) says why. */
char *cuda_stand_in_compile(const char *text, const char *const *options, size_t *out_bytes, char **out_log);

/* ------------------------------------------------------------------ fixture */

extern const cuda_stand_in *cu; /* NULL: not built */
extern void *cuda_context, *cuda_stream;

/* Kernel k(x, y) over floats. */
#define CUDA_KERNEL(body) "extern \"C\" __global__ void k(const float *x, float *y) {\n" body "\n}\n"
#define OK(call)          assert_int_equal((call), CU_OK)
#define NEED_STAND_IN()                                                                                                \
    if (!cu) TEST_SKIP("the CUDA stand-ins were not built")
#define IN_CONTEXT(test) cmocka_unit_test_setup_teardown(test, cuda_stand_in_set_up, cuda_stand_in_tear_down)

/* A context on device 0 and a stream; afterwards nothing may be left, neither objects nor reports that the test did not
 * take. */
int cuda_stand_in_set_up(void **state);
int cuda_stand_in_tear_down(void **state);
/* Exactly one report, which contains part. */
void cuda_stand_in_expect_report(const char *part);
/* The text's kernel of that name, compiled for sm_80 without contraction. */
void *cuda_stand_in_load(const char *text, const char *name, void **out_module);
CUdeviceptr cuda_stand_in_array(const void *data, size_t bytes);
/* One block of `threads`, arguments x and y; what the wait for it returns. */
int cuda_stand_in_run(void *function, unsigned threads, CUdeviceptr x, CUdeviceptr y);

#endif
