/* SPDX-License-Identifier: Apache-2.0 */
/* test_stand_in_cuda.c - the CUDA stand-in itself: what it computes, in which order, and what tests may ask of it.
 *
 *     kernels   barriers, shuffles, matrix products against plain loops
 *     order     nothing before it is asked for, the newest first, what has no edge backwards
 *     wishes    failures by number, hangs, devices by environment */
#include "tests/test.h"

#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cuda_stand_in.h"

extern char **environ;

/* Runs text's kernel "k" over count floats in, count out, and compares with want. */
static void check_kernel(const char *text, unsigned threads, const float *x, size_t count, const float *want)
{
    float y[1024];
    void *module = NULL, *function = cuda_stand_in_load(text, "k", &module);
    const CUdeviceptr in = cuda_stand_in_array(x, 4 * count), out = cuda_stand_in_array(NULL, 4 * count);
    OK(cuda_stand_in_run(function, threads, in, out));
    OK(cu->read(y, out, 4 * count));
    for (size_t i = 0; i < count; i++)
        if (memcmp(&y[i], &want[i], 4) != 0) fail_msg("element %zu is %g, not %g", i, (double)y[i], (double)want[i]);
    OK(cu->free(in));
    OK(cu->free(out));
    OK(cu->unload(module));
}

/* ------------------------------------------------------------------ kernels */

static void test_barriers(void **state)
{
    (void)state;
    NEED_STAND_IN();
    float x[256], want[256];
    for (unsigned i = 0; i < 256; i++) x[i] = (float)i, want[i] = (float)(2 * (255 - i));
    check_kernel("extern \"C\" __global__ void k(const float *x, float *y) {\n"
                 "    __shared__ float a[256], b[256];\n"
                 "    a[threadIdx.x] = x[threadIdx.x];\n"
                 "    __syncthreads();\n"
                 "    for (int i = 0; i < 3; i++) {\n"
                 "        b[threadIdx.x] = a[255 - threadIdx.x];\n"
                 "        __syncthreads();\n"
                 "        a[threadIdx.x] = b[threadIdx.x];\n"
                 "        __syncthreads();\n"
                 "    }\n"
                 "    y[threadIdx.x] = a[threadIdx.x] * 2.0f;\n"
                 "}\n",
                 256, x, 256, want);
}

static void test_shuffles(void **state)
{
    (void)state;
    NEED_STAND_IN();
    float x[80], want[80];
    for (unsigned i = 0; i < 80; i++) x[i] = (float)(i % 7);
    for (unsigned i = 0; i < 80; i++) {
        want[i] = 0;
        if (i < 64)
            for (unsigned j = i / 32 * 32; j < i / 32 * 32 + 32; j++) want[i] += x[j];
        else
            want[i] = i + 1 < 80 ? x[i + 1] : x[i];
    }
    check_kernel("extern \"C\" __global__ void k(const float *x, float *y) {\n"
                 "    float v = x[threadIdx.x];\n"
                 "    if (threadIdx.x < 64)\n"
                 "        for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);\n"
                 "    else\n" /* half a warp: lanes 0 to 15 */
                 "        v = __shfl_sync(0xffffffffu, v, (threadIdx.x & 31) < 15 ? (threadIdx.x & 31) + 1 : 15);\n"
                 "    y[threadIdx.x] = v;\n"
                 "}\n",
                 80, x, 80, want);
}

/* a (16 x 16) and b (16 x 8) come as f32, are kept in shared memory in 16 bits, moved by cp.async, read by ldmatrix. */
#define MATRIX_KERNEL(store, mma)                                                                                      \
    "extern \"C\" __global__ void k(const float *x, float *y) {\n"                                                     \
    "    __shared__ __align__(16) unsigned short ab[384];\n"                                                           \
    "    __shared__ __align__(16) float moved[32][4];\n"                                                               \
    "    unsigned l = threadIdx.x, ra[4], rb[4];\n"                                                                    \
    "    for (unsigned i = l; i < 384; i += 32) {\n"                                                                   \
    "        tern_cp_async_16(moved[l], x + i / 4 * 4, 16);\n"                                                         \
    "        tern_cp_async_commit();\n"                                                                                \
    "        tern_cp_async_wait(0);\n"                                                                                 \
    "        unsigned bits = __float_as_uint(moved[l][i & 3]);\n"                                                      \
    "        ab[i] = " store ";\n"                                                                                     \
    "    }\n"                                                                                                          \
    "    __syncthreads();\n"                                                                                           \
    "    tern_ldmatrix_x4(ra, ab + 16 * ((l & 7) + ((l >> 3) & 1) * 8) + (l >> 4) * 8);\n"                             \
    "    tern_ldmatrix_x4_trans(rb, ab + 256 + 8 * (l & 15));\n"                                                       \
    "    float d[4] = {1.0f, 2.0f, 3.0f, 4.0f};\n"                                                                     \
    "    " mma "(d, ra, rb, d);\n"                                                                                     \
    "    for (unsigned i = 0; i < 4; i++) y[((l >> 2) + (i >> 1) * 8) * 8 + (l & 3) * 2 + (i & 1)] = d[i];\n"          \
    "}\n"

static void test_matrix_products(void **state)
{
    (void)state;
    NEED_STAND_IN();
    float x[384], want[384] = {0};
    for (unsigned i = 0; i < 384; i++) x[i] = (float)((int)(i * 7 % 13) - 6); /* exact in every format */
    for (unsigned m = 0; m < 16; m++)
        for (unsigned n = 0; n < 8; n++) {
            want[m * 8 + n] = (float)(1 + (m / 8) * 2 + n % 2);
            for (unsigned k = 0; k < 16; k++) want[m * 8 + n] += x[m * 16 + k] * x[256 + k * 8 + n];
        }
    for (unsigned i = 128; i < 384; i++) memset(&want[i], 0xff, 4); /* not written */
    check_kernel(MATRIX_KERNEL("(unsigned short)(bits >> 16)", "tern_mma_m16n8k16_bf16"), 32, x, 384, want);
    /* Small integers in f16: sign, exponent less 112, ten bits of mantissa. */
    check_kernel(
        MATRIX_KERNEL("(unsigned short)((bits >> 16 & 0x8000u) | ((bits & 0x7fffffffu) ? ((bits >> 13 & 0x3ffffu)"
                      " - (112u << 10)) : 0u))",
                      "tern_mma_m16n8k16_f16"),
        32, x, 384, want);
}

static void test_tf32(void **state)
{
    (void)state;
    NEED_STAND_IN();
    float x[192], want[192] = {0};
    for (unsigned i = 0; i < 192; i++) x[i] = (float)((int)(i * 5 % 11) - 5) + 0.0000001f; /* the rest is cut off */
    for (unsigned m = 0; m < 16; m++)
        for (unsigned n = 0; n < 8; n++)
            for (unsigned k = 0; k < 8; k++) {
                uint32_t a, b;
                float fa, fb;
                memcpy(&a, &x[m * 8 + k], 4), memcpy(&b, &x[128 + k * 8 + n], 4);
                a &= 0xffffe000u, b &= 0xffffe000u;
                memcpy(&fa, &a, 4), memcpy(&fb, &b, 4);
                want[m * 8 + n] += fa * fb;
            }
    for (unsigned i = 128; i < 192; i++) memset(&want[i], 0xff, 4);
    check_kernel("extern \"C\" __global__ void k(const float *x, float *y) {\n"
                 "    unsigned l = threadIdx.x, g = l >> 2, t = l & 3, a[4], b[2];\n"
                 "    float d[4] = {0.0f, 0.0f, 0.0f, 0.0f};\n"
                 "    for (unsigned i = 0; i < 4; i++)\n"
                 "        a[i] = __float_as_uint(x[(g + (i & 1) * 8) * 8 + t + (i >> 1) * 4]);\n"
                 "    for (unsigned i = 0; i < 2; i++) b[i] = __float_as_uint(x[128 + (t + i * 4) * 8 + g]);\n"
                 "    tern_mma_m16n8k8_tf32(d, a, b, d);\n"
                 "    for (unsigned i = 0; i < 4; i++) y[(g + (i >> 1) * 8) * 8 + t * 2 + (i & 1)] = d[i];\n"
                 "}\n",
                 32, x, 192, want);
}

/* a * b + c: two roundings with --fmad=false, one without, as NVRTC's default is. */
static void test_contraction(void **state)
{
    (void)state;
    NEED_STAND_IN();
    static const char text[] = "extern \"C\" __global__ void k(const float *x, float *y) {\n"
                               "    y[0] = x[0] * x[1] + x[2]; y[1] = __fmaf_rn(x[0], x[1], x[2]); y[2] = 0.0f;\n"
                               "}\n";
    const float x[3] = {1.0f + 0x1p-12f, 1.0f + 0x1p-12f, -1.0f};
    const float two = (float)((volatile float){(1.0f + 0x1p-12f) * (1.0f + 0x1p-12f)}) - 1.0f;
    const float want[3] = {two, fmaf(x[0], x[1], x[2]), 0};
    assert_true(want[0] != want[1]);
    check_kernel(text, 1, x, 3, want);
    static const char *const options[] = {"--gpu-architecture=sm_80", NULL};
    size_t bytes = 0;
    void *module = NULL, *function = NULL;
    float y[2];
    char *cubin = cuda_stand_in_compile(text, options, &bytes, NULL);
    const CUdeviceptr in = cuda_stand_in_array(x, sizeof x), out = cuda_stand_in_array(NULL, 12);
    OK(cu->load(&module, cubin));
    OK(cu->function(&function, module, "k"));
    OK(cuda_stand_in_run(function, 1, in, out));
    OK(cu->read(y, out, sizeof y));
    assert_true(y[0] == want[1] && y[1] == want[1]);
    free(cubin);
    OK(cu->free(in));
    OK(cu->free(out));
    OK(cu->unload(module));
}

/* -------------------------------------------------------------------- order */

/* Work runs when it is waited for, not before: a host that does not wait sees the old bytes. */
static void test_nothing_is_early(void **state)
{
    (void)state;
    NEED_STAND_IN();
    void *event = NULL;
    uint32_t *host = NULL;
    CUdeviceptr x = cuda_stand_in_array(NULL, 16);
    OK(cu->host_allocate((void **)&host, 32, 0));
    OK(cu->event_create(&event, 0));
    host[0] = 1, host[4] = 7;
    OK(cu->write_async(x, host, 16, cuda_stream));
    OK(cu->read_async(host + 4, x, 16, cuda_stream));
    OK(cu->event_record(event, cuda_stream));
    host[0] = 2; /* the copy has not read it yet */
    assert_int_equal(host[4], 7);
    assert_int_equal(cu->event_query(event), CU_NOT_READY);
    OK(cu->event_synchronize(event));
    assert_int_equal(host[4], 2);
    assert_int_equal(cu->event_query(event), CU_OK);
    OK(cu->event_destroy(event));
    OK(cu->host_free(host));
    OK(cu->free(x));
}

/* Two streams: what a third waited for is done, what it did not is not; the newest goes first. */
static void test_streams_need_events(void **state)
{
    (void)state;
    NEED_STAND_IN();
    void *other = NULL, *event = NULL;
    uint32_t value[4];
    CUdeviceptr x = cuda_stand_in_array(NULL, 16);
    OK(cu->stream_create(&other, CU_STREAM_NON_BLOCKING));
    OK(cu->event_create(&event, 0));
    OK(cu->fill_async(x, 1, 4, cuda_stream));
    OK(cu->fill_async(x, 2, 4, other)); /* without a wait: before the older one */
    OK(cu->synchronize());
    OK(cu->read(value, x, 16));
    assert_int_equal(value[0], 1);
    OK(cu->fill_async(x, 3, 4, cuda_stream));
    OK(cu->event_record(event, cuda_stream));
    OK(cu->stream_wait(other, event, 0));
    OK(cu->fill_async(x, 4, 4, other));
    OK(cu->stream_synchronize(other));
    OK(cu->read(value, x, 16));
    assert_int_equal(value[0], 4);
    OK(cu->event_destroy(event));
    OK(cu->stream_destroy(other));
    OK(cu->free(x));
}

/* x filled by one node, copied by a kernel's node; the edge between them given or left out. */
static float run_graph(void *function, bool edge, CUdeviceptr x, CUdeviceptr y)
{
    void *graph = NULL, *fill = NULL, *copy = NULL, *exec = NULL, *arguments[] = {&x, &y};
    const CUDA_MEMSET_NODE_PARAMS what = {.to = x, .value = 0x40400000u, .element_bytes = 4, .width = 4, .height = 1};
    const CUDA_KERNEL_NODE_PARAMS kernel = {
        .function = function, .grid = {1, 1, 1}, .block = {1, 1, 1}, .parameters = arguments};
    float y0[4];
    OK(cu->graph_create(&graph, 0));
    OK(cu->graph_fill(&fill, graph, NULL, 0, &what, cuda_context));
    OK(cu->graph_kernel(&copy, graph, &fill, edge ? 1 : 0, &kernel));
    OK(cu->graph_instantiate(&exec, graph, 0));
    OK(cu->graph_destroy(graph));
    OK(cu->fill_async(x, 0, 4, cuda_stream));
    OK(cu->graph_launch(exec, cuda_stream));
    OK(cu->stream_synchronize(cuda_stream));
    OK(cu->read(y0, y, 16));
    OK(cu->exec_destroy(exec));
    return y0[0];
}

static void test_graphs_need_edges(void **state)
{
    (void)state;
    NEED_STAND_IN();
    void *module = NULL, *function = cuda_stand_in_load(CUDA_KERNEL("y[0] = x[0];"), "k", &module);
    const CUdeviceptr x = cuda_stand_in_array(NULL, 16), y = cuda_stand_in_array(NULL, 16);
    assert_true(run_graph(function, true, x, y) == 3.0f);
    assert_true(run_graph(function, false, x, y) == 0.0f);
    OK(cu->free(x));
    OK(cu->free(y));
    OK(cu->unload(module));
}

static void test_graph_events(void **state)
{
    (void)state;
    NEED_STAND_IN();
    void *graph = NULL, *exec = NULL, *nodes[3], *events[2];
    float ms = -1;
    CUdeviceptr x = cuda_stand_in_array(NULL, 1 << 20);
    const CUDA_MEMSET_NODE_PARAMS what = {.to = x, .value = 1, .element_bytes = 4, .width = 1 << 18, .height = 1};
    for (int i = 0; i < 2; i++) OK(cu->event_create(&events[i], 0));
    OK(cu->graph_create(&graph, 0));
    OK(cu->graph_event(&nodes[0], graph, NULL, 0, events[0]));
    OK(cu->graph_fill(&nodes[1], graph, &nodes[0], 1, &what, cuda_context));
    OK(cu->graph_event(&nodes[2], graph, &nodes[1], 1, events[1]));
    OK(cu->graph_instantiate(&exec, graph, 0));
    OK(cu->graph_destroy(graph));
    OK(cu->graph_launch(exec, cuda_stream));
    assert_int_equal(cu->event_elapsed(&ms, events[0], events[1]), CU_NOT_READY);
    OK(cu->stream_synchronize(cuda_stream));
    OK(cu->event_elapsed(&ms, events[0], events[1]));
    assert_true(ms > 0);
    for (int i = 0; i < 2; i++) OK(cu->event_destroy(events[i]));
    OK(cu->exec_destroy(exec));
    OK(cu->free(x));
}

/* ------------------------------------------------------------------- wishes */

static void test_failures_by_number(void **state)
{
    (void)state;
    NEED_STAND_IN();
    CUdeviceptr x = 0, y = 0;
    (void)cu->fail_call(2, CU_OUT_OF_MEMORY);
    OK(cu->allocate(&x, 16));
    assert_int_equal(cu->allocate(&y, 16), CU_OUT_OF_MEMORY);
    assert_string_equal(cu->failed_call(), "cuMemAlloc_v2");
    assert_int_equal(y, 0);
    OK(cu->allocate(&y, 16));
    assert_int_equal(cu->fail_call(1, CU_UNKNOWN), 3);
    assert_int_equal(cu->free(x), CU_UNKNOWN);
    assert_int_equal(cu->free(x), CU_INVALID_VALUE); /* it is gone all the same */
    OK(cu->free(y));
    (void)cu->fail_call(1, CU_ECC_UNCORRECTABLE);
    assert_int_equal(cu->synchronize(), CU_ECC_UNCORRECTABLE);
    assert_int_equal(cu->synchronize(), CU_ECC_UNCORRECTABLE); /* the context is lost */
    cuda_stream = NULL;
}

static void test_leaks_are_counted(void **state)
{
    (void)state;
    NEED_STAND_IN();
    void *event = NULL;
    CUdeviceptr x = cuda_stand_in_array(NULL, 16);
    assert_int_equal(cu->live(), 3); /* context, cuda_stream, memory */
    OK(cu->event_create(&event, 0));
    assert_int_equal(cu->live(), 4);
    OK(cu->event_destroy(event));
    OK(cu->free(x));
}

static void test_hang(void **state)
{
    (void)state;
    NEED_STAND_IN();
    void *event = NULL;
    CUdeviceptr x = cuda_stand_in_array(NULL, 16);
    OK(cu->event_create(&event, 0));
    cu->hang(2);
    OK(cu->fill_async(x, 1, 4, cuda_stream));
    OK(cu->stream_synchronize(cuda_stream)); /* the first one ends */
    OK(cu->fill_async(x, 2, 4, cuda_stream));
    OK(cu->event_record(event, cuda_stream));
    for (int i = 0; i < 100; i++) assert_int_equal(cu->event_query(event), CU_NOT_READY);
    assert_int_equal(cu->stream_synchronize(cuda_stream), CU_LAUNCH_TIMEOUT);
    cuda_stand_in_expect_report("never ends");
    cu->hang(0);
    OK(cu->stream_synchronize(cuda_stream));
    OK(cu->event_destroy(event));
    OK(cu->free(x));
}

/* What a child process finds; its exit status. */
static int child_main(const char *mode)
{
    int count = -1, major = 0, devices[2] = {0};
    char pci[2][16] = {"", ""};
    CUuuid uuid;
    cu = cuda_stand_in_find();
    const int result = cu->init(0);
    if (strcmp(mode, "host-read") == 0) {
        CUdeviceptr x = 0;
        volatile int value = 0;
        if (result || cu->retain(&cuda_context, 0) || cu->set_current(cuda_context) || cu->allocate(&x, 16)) return 1;
        (void)signal(SIGSEGV, SIG_DFL);
        value = *(int *)(uintptr_t)x; /* must not come back */
        return 2 + (value == 12345);
    }
    if (strcmp(mode, "report") == 0) { /* a process with a report that nobody asked for */
        CUdeviceptr x = 0;
        if (result || cu->retain(&cuda_context, 0) || cu->set_current(cuda_context) || cu->allocate(&x, 16)) return 1;
        cu->hang(1);
        if (cu->fill_async(x, 0, 4, NULL) || cu->stream_synchronize(NULL) != CU_LAUNCH_TIMEOUT) return 1;
        return 0;
    }
    if (strcmp(mode, "none") == 0) return result == CU_NO_DEVICE ? 0 : 1;
    if (strcmp(mode, "stub") == 0) return result == CU_STUB_LIBRARY ? 0 : 1;
    if (result || cu->device_count(&count) || count != 2) return 1;
    for (int i = 0; i < 2; i++)
        if (cu->device_get(&devices[i], i) || cu->device_pci(pci[i], sizeof pci[i], devices[i])) return 2;
    if (cu->device_uuid(&uuid, 0) || uuid.bytes[15] != 2) return 3;
    if (cu->device_attribute(&major, CU_CAPABILITY_MAJOR, devices[1]) || major != 12) return 4;
    return strcmp(pci[0], "0000:03:00.0") == 0 && strcmp(pci[1], "0000:02:00.0") == 0 ? 0 : 5;
}

/* This program again with more variables ("NAME=value", NULL at the end); its wait status. */
static int run_child(const char *mode, const char *const *more)
{
    char *arguments[] = {"test_stand_in_cuda", (char *)(uintptr_t)mode, NULL}, *variables[512];
    size_t count = 0;
    pid_t child;
    int result = 0;
    for (char **v = environ; *v && count < 500; v++) variables[count++] = *v;
    for (; more && *more; more++) variables[count++] = (char *)(uintptr_t)*more;
    variables[count] = NULL;
    assert_int_equal(posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, variables), 0);
    assert_int_equal(waitpid(child, &result, 0), child);
    return result;
}

static void test_environment(void **state)
{
    (void)state;
    NEED_STAND_IN();
    static const char *const two[] = {"TERN_STANDIN_CUDA_DEVICES=3", "TERN_STANDIN_CUDA_CAPABILITY=80,120",
                                      "CUDA_VISIBLE_DEVICES=2,1,9,0", NULL}; /* ends at the unknown one */
    static const char *const none[] = {"CUDA_VISIBLE_DEVICES=-1", NULL};
    static const char *const stub[] = {"TERN_STANDIN_CUDA_INIT=34", NULL};
    assert_int_equal(run_child("two", two), 0);
    assert_int_equal(run_child("none", none), 0);
    assert_int_equal(run_child("stub", stub), 0);
}

static void test_host_cannot_read_device_memory(void **state)
{
    (void)state;
    NEED_STAND_IN();
    const int result = run_child("host-read", NULL);
    assert_true(WIFSIGNALED(result) && WTERMSIG(result) == SIGSEGV);
}

static void test_reports_fail_a_process(void **state)
{
    (void)state;
    NEED_STAND_IN();
    const int result = run_child("report", NULL);
    assert_true(WIFEXITED(result));
    assert_int_equal(WEXITSTATUS(result), 86);
}

int main(int argc, char **argv)
{
    if (argc > 1) return child_main(argv[1]);
    const struct CMUnitTest tests[] = {
        IN_CONTEXT(test_barriers),
        IN_CONTEXT(test_shuffles),
        IN_CONTEXT(test_matrix_products),
        IN_CONTEXT(test_tf32),
        IN_CONTEXT(test_contraction),
        IN_CONTEXT(test_nothing_is_early),
        IN_CONTEXT(test_streams_need_events),
        IN_CONTEXT(test_graphs_need_edges),
        IN_CONTEXT(test_graph_events),
        IN_CONTEXT(test_failures_by_number),
        IN_CONTEXT(test_leaks_are_counted),
        IN_CONTEXT(test_hang),
        IN_CONTEXT(test_environment),
        IN_CONTEXT(test_host_cannot_read_device_memory),
        IN_CONTEXT(test_reports_fail_a_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
