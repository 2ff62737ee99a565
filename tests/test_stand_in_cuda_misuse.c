/* SPDX-License-Identifier: Apache-2.0 */
/* test_stand_in_cuda_misuse.c - what the CUDA stand-in must catch, it catches: threads that part, memory that is not
 * there, what a driver refuses. One that let these pass would make green tests of backends/cuda worth nothing. */
#include "tests/test.h"

#include <stdlib.h>

#include "tests/cuda_stand_in.h"

/* A kernel that must end its context with `code` and a report. */
static void check_wrong(const char *text, unsigned threads, int code, const char *part)
{
    void *module = NULL, *function = cuda_stand_in_load(text, "k", &module);
    const CUdeviceptr x = cuda_stand_in_array(NULL, 4096), y = cuda_stand_in_array(NULL, 4096);
    size_t bytes = 0;
    CUdeviceptr other = 0;
    assert_int_equal(cuda_stand_in_run(function, threads, x, y), code);
    cuda_stand_in_expect_report(part);
    assert_int_equal(cu->memory_info(&bytes, &bytes), code); /* and so on, until the context is gone */
    assert_int_equal(cu->free(x), code);
    OK(cu->release(0));
    assert_int_equal(cu->live(), 0); /* what a dead context held is no leak */
    OK(cu->retain(&cuda_context, 0));
    OK(cu->stream_create(&cuda_stream, CU_STREAM_NON_BLOCKING));
    OK(cu->allocate(&other, 16));
    OK(cu->free(other));
}

static void test_wrong_kernels(void **state)
{
    (void)state;
    NEED_STAND_IN();
    check_wrong(CUDA_KERNEL("if (threadIdx.x < 16) __syncthreads();\nelse\n__syncthreads();"), 64, CU_LAUNCH_FAILED,
                "divergent barrier");
    check_wrong(CUDA_KERNEL("if (threadIdx.x < 16) return;\n__syncthreads();"), 64, CU_LAUNCH_FAILED, "left out");
    check_wrong(CUDA_KERNEL("if (threadIdx.x >= 16) return;\n__syncthreads();"), 64, CU_LAUNCH_FAILED, "ends while");
    check_wrong(CUDA_KERNEL("if (threadIdx.x % 2) y[0] = __shfl_sync(~0u, x[0], 0);"), 32, CU_LAUNCH_FAILED, "lane");
    check_wrong(CUDA_KERNEL("if (threadIdx.x == 0) __syncthreads();\nelse __syncwarp();"), 32, CU_LAUNCH_FAILED,
                "wait elsewhere");
    check_wrong(CUDA_KERNEL("y[0] = __shfl_sync(0xffffu, x[0], 0);"), 32, CU_LAUNCH_FAILED, "leaves lanes out");
    check_wrong(CUDA_KERNEL("y[100000] = 1.0f;"), 1, CU_ILLEGAL_ADDRESS, "in no allocation");
    check_wrong(CUDA_KERNEL("y[-100000] = x[0];"), 1, CU_ILLEGAL_ADDRESS, "in no allocation");
    check_wrong(CUDA_KERNEL("*(volatile float *)0 = 1.0f;"), 1, CU_ILLEGAL_ADDRESS, "in no allocation");
}

/* Writes a little beside its memory, on the same page: seen when the memory is freed. */
static void test_guards(void **state)
{
    (void)state;
    NEED_STAND_IN();
    void *module = NULL,
         *function = cuda_stand_in_load(CUDA_KERNEL("y[threadIdx.x] = 1.0f;"), "k", &module); /* a thread too many */
    const CUdeviceptr y = cuda_stand_in_array(NULL, 40);
    OK(cuda_stand_in_run(function, 11, y, y));
    OK(cu->free(y));
    cuda_stand_in_expect_report("at offset 40");
    OK(cu->unload(module));
}

/* A missing barrier reads poison in one of the two orders of threads. */
static void test_missing_barrier(void **state)
{
    (void)state;
    NEED_STAND_IN();
    float y[128];
    void *module = NULL;
    void *function = cuda_stand_in_load(CUDA_KERNEL("__shared__ float a[64];\na[threadIdx.x] = 1.0f;\n"
                                                    "y[blockIdx.x * 64 + threadIdx.x] = a[threadIdx.x ^ 1];"),
                                        "k", &module);
    CUdeviceptr out = cuda_stand_in_array(NULL, sizeof y);
    void *arguments[] = {&out, &out};
    OK(cu->launch(function, 2, 1, 1, 64, 1, 1, 0, cuda_stream, arguments, NULL));
    OK(cu->stream_synchronize(cuda_stream));
    OK(cu->read(y, out, sizeof y));
    assert_true(isnan(y[0]) && y[1] == 1 && y[64] == 1 && isnan(y[65])); /* the second block runs backwards */
    OK(cu->free(out));
    OK(cu->unload(module));
}

static void test_memory(void **state)
{
    (void)state;
    NEED_STAND_IN();
    size_t free_bytes = 0, total = 0, after = 0;
    float data[4];
    CUdeviceptr a = 0, b = 0;
    OK(cu->memory_info(&free_bytes, &total));
    assert_true(free_bytes == total && total == (size_t)4 << 30);
    assert_int_equal(cu->allocate(&a, total + 1), CU_OUT_OF_MEMORY);
    assert_int_equal(cu->allocate(&a, 0), CU_INVALID_VALUE);
    OK(cu->allocate(&a, sizeof data));
    assert_int_equal(a % 256, 0);
    OK(cu->memory_info(&after, &total));
    assert_int_equal(free_bytes - after, sizeof data);
    OK(cu->read(data, a, sizeof data));
    for (int i = 0; i < 4; i++) assert_true(isnan(data[i])); /* not zero */
    assert_int_equal(cu->read(data, a, sizeof data + 1), CU_INVALID_VALUE);
    assert_int_equal(cu->free(a + 4), CU_INVALID_VALUE);
    OK(cu->free(a));
    assert_int_equal(cu->free(a), CU_INVALID_VALUE);
    assert_int_equal(cu->read(data, a, 4), CU_INVALID_VALUE);
    OK(cu->allocate(&b, sizeof data));
    assert_true(a != b); /* a stale address stays stale */
    OK(cu->free(b));
}

static void test_stale_argument(void **state)
{
    (void)state;
    NEED_STAND_IN();
    void *module = NULL, *function = cuda_stand_in_load(CUDA_KERNEL("y[0] = x[0];"), "k", &module);
    const CUdeviceptr x = cuda_stand_in_array(NULL, 16), y = cuda_stand_in_array(NULL, 16);
    OK(cu->free(x));
    assert_int_equal(cuda_stand_in_run(function, 1, x, y), CU_ILLEGAL_ADDRESS);
    cuda_stand_in_expect_report("argument 0");
    cuda_stream = NULL;
}

static void test_cubins(void **state)
{
    (void)state;
    NEED_STAND_IN();
    static const char text[] = CUDA_KERNEL("y[0] = x[0];");
    static const char *const architectures[][2] = {
        {"--gpu-architecture=sm_86", NULL}, {"--gpu-architecture=sm_90", NULL}, {"--gpu-architecture=sm_75", NULL}};
    unsigned char elf[64] = {0x7f, 'E', 'L', 'F', 2, 1, 1};
    char garbage[64] = "nothing that any driver knows";
    size_t bytes = 0;
    void *module = NULL;
    elf[18] = 190; /* EM_CUDA: what NVRTC's real cubins are */
    assert_int_equal(cu->load(&module, elf), CU_NO_BINARY_FOR_GPU);
    elf[18] = 62; /* the host's own */
    assert_int_equal(cu->load(&module, elf), CU_INVALID_IMAGE);
    assert_int_equal(cu->load(&module, garbage), CU_INVALID_IMAGE);
    assert_int_equal(cu->load(&module, ".version 8.0\n.target sm_80\n                          "), CU_INVALID_PTX);
    for (int i = 0; i < 3; i++) { /* this device is an sm_80 */
        char *cubin = cuda_stand_in_compile(text, architectures[i], &bytes, NULL);
        assert_non_null(cubin);
        assert_int_equal(cu->load(&module, cubin), CU_NO_BINARY_FOR_GPU);
        free(cubin);
    }
    assert_null(module);
}

static void test_compiler_refuses(void **state)
{
    (void)state;
    NEED_STAND_IN();
    static const char *const sm_80[] = {"--gpu-architecture=sm_80", NULL};
    static const char *const wrong[][2] = {{"--gpu-architecture=sm_81", NULL}, {"--fast-like-nobody", NULL}};
    char *log = NULL;
    size_t bytes = 0;
    assert_null(cuda_stand_in_compile("extern \"C\" __global__ void k() {\n    nonsense();\n}\n", sm_80, &bytes, &log));
    if (!strstr(log, "kernel.cu:2") || !strstr(log, "nonsense")) fail_msg("%s", log);
    free(log);
    for (int i = 0; i < 2; i++) {
        assert_null(cuda_stand_in_compile(CUDA_KERNEL(""), wrong[i], &bytes, &log));
        if (!strstr(log, wrong[i][0])) fail_msg("%s", log);
        free(log);
    }
}

static void test_launch_limits(void **state)
{
    (void)state;
    NEED_STAND_IN();
    void *module = NULL, *function = cuda_stand_in_load(CUDA_KERNEL("y[0] = x[0];"), "k", &module), *none = NULL;
    CUdeviceptr x = cuda_stand_in_array(NULL, 16);
    void *arguments[] = {&x, &x};
    assert_int_equal(cu->launch(function, 1, 1, 1, 1025, 1, 1, 0, cuda_stream, arguments, NULL), CU_INVALID_VALUE);
    assert_int_equal(cu->launch(function, 1, 65536, 1, 32, 1, 1, 0, cuda_stream, arguments, NULL), CU_INVALID_VALUE);
    assert_int_equal(cu->launch(function, 0, 1, 1, 32, 1, 1, 0, cuda_stream, arguments, NULL), CU_INVALID_VALUE);
    assert_int_equal(cu->launch(function, 1, 1, 1, 32, 1, 1, 49153, cuda_stream, arguments, NULL), CU_INVALID_VALUE);
    assert_int_equal(cu->launch(module, 1, 1, 1, 32, 1, 1, 0, cuda_stream, arguments, NULL), CU_INVALID_HANDLE);
    assert_int_equal(cu->function(&none, module, "other"), CU_NOT_FOUND);
    OK(cu->free(x));
    OK(cu->unload(module));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_CONTEXT(test_wrong_kernels),    IN_CONTEXT(test_guards),         IN_CONTEXT(test_missing_barrier),
        IN_CONTEXT(test_memory),           IN_CONTEXT(test_stale_argument), IN_CONTEXT(test_cubins),
        IN_CONTEXT(test_compiler_refuses), IN_CONTEXT(test_launch_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
