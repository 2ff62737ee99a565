/* SPDX-License-Identifier: Apache-2.0 */
/* test_stand_in_level_zero.c - that the Level Zero stand-in catches what it is there to catch.
 *
 *     right      copies, a kernel, copies back through the real loader: the numbers, nothing left, no complaint
 *     order      the same without a barrier, an event or a wait: wrong numbers, every time
 *     memory     touched by the host, left by a kernel, freed too early
 *     refusals   arguments, modules, limits, lists and queue groups, handles that are stale
 *     faults     a call that fails, a device that is lost, one that hangs
 *
 * What it is not: a test of the plug-in; that is test_level_zero_faults. */
#include "tests/test.h"

#if __has_include(<level_zero/ze_api.h>)

#include <dlfcn.h>
#include <level_zero/ze_api.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/base/file.h"
#include "tests/level_zero_fixture.h"

#define N     1000u
#define GROUP 64u
#define MS    1000000ull

/* ------------------------------------------------------------ loader, device */

#define CALLS(CALL)                                                                                                    \
    CALL(zeInit)                                                                                                       \
    CALL(zeDriverGet)                                                                                                  \
    CALL(zeDeviceGet)                                                                                                  \
    CALL(zeDeviceGetProperties)                                                                                        \
    CALL(zeDeviceGetCommandQueueGroupProperties)                                                                       \
    CALL(zeContextCreate)                                                                                              \
    CALL(zeContextDestroy)                                                                                             \
    CALL(zeMemAllocDevice)                                                                                             \
    CALL(zeMemAllocHost)                                                                                               \
    CALL(zeMemFree)                                                                                                    \
    CALL(zeModuleCreate)                                                                                               \
    CALL(zeModuleDestroy)                                                                                              \
    CALL(zeModuleGetNativeBinary)                                                                                      \
    CALL(zeModuleBuildLogGetString)                                                                                    \
    CALL(zeModuleBuildLogDestroy)                                                                                      \
    CALL(zeKernelCreate)                                                                                               \
    CALL(zeKernelDestroy)                                                                                              \
    CALL(zeKernelSetGroupSize)                                                                                         \
    CALL(zeKernelSetArgumentValue)                                                                                     \
    CALL(zeCommandQueueCreate)                                                                                         \
    CALL(zeCommandQueueDestroy)                                                                                        \
    CALL(zeCommandQueueExecuteCommandLists)                                                                            \
    CALL(zeCommandQueueSynchronize)                                                                                    \
    CALL(zeCommandListCreate)                                                                                          \
    CALL(zeCommandListCreateImmediate)                                                                                 \
    CALL(zeCommandListDestroy)                                                                                         \
    CALL(zeCommandListClose)                                                                                           \
    CALL(zeCommandListReset)                                                                                           \
    CALL(zeCommandListAppendLaunchKernel)                                                                              \
    CALL(zeCommandListAppendMemoryCopy)                                                                                \
    CALL(zeCommandListAppendMemoryFill)                                                                                \
    CALL(zeCommandListAppendBarrier)                                                                                   \
    CALL(zeFenceCreate)                                                                                                \
    CALL(zeFenceDestroy)                                                                                               \
    CALL(zeFenceReset)                                                                                                 \
    CALL(zeFenceHostSynchronize)                                                                                       \
    CALL(zeEventPoolCreate)                                                                                            \
    CALL(zeEventPoolDestroy)                                                                                           \
    CALL(zeEventCreate)                                                                                                \
    CALL(zeEventDestroy)                                                                                               \
    CALL(zeEventHostReset)                                                                                             \
    CALL(zeEventHostSynchronize)                                                                                       \
    CALL(zeEventQueryStatus)                                                                                           \
    CALL(zeEventQueryKernelTimestamp)

#define MEMBER(name) __typeof__(name) *name;
static struct {
    CALLS(MEMBER)
} ze;

static const level_zero_stand_in *stand_in;
static ze_driver_handle_t driver;
static ze_device_handle_t device;
static ze_context_handle_t context;
static char spirv_path[600], why_not[400] = "";

#define OK(call) assert_int_equal(ze.call, ZE_RESULT_SUCCESS)

/* Two kernels, one past the end of its buffer: out[i] = a * x[i] + b, as tern's own take their arguments. */
static const char *const source =
    "typedef struct { uint n, a, b; } words;\n"
    "kernel void affine(global const uint *x, uint ox, global uint *y, uint oy, words w) {\n"
    "    uint i = get_global_id(0);\n"
    "    if (i < w.n) y[oy + i] = w.a * x[ox + i] + w.b;\n"
    "}\n"
    "kernel void wild(global uint *y, uint far) { y[get_global_id(0) + far] = 1; }\n";

/* The kernels as SPIR-V, by the compilers on the PATH; false: why_not says what is missing. */
static bool compile(void)
{
    char base[400], command[2000];
    (void)snprintf(base, sizeof base, "%s/stand_in_level_zero_%ld", TERN_BINARY_DIR, (long)getpid());
    (void)snprintf(spirv_path, sizeof spirv_path, "%s.spv", base);
    (void)snprintf(command, sizeof command, "%s.cl", base);
    if (tern_file_write(command, source, strlen(source)) < 0) return false;
    (void)snprintf(
        command, sizeof command,
        "for v in 14 15 16 17 18 19 20; do if clang-$v --version >/dev/null 2>&1 && llvm-spirv-$v --version >/dev/null "
        "2>&1; then "
        "clang-$v --target=spir64-unknown-unknown -cl-std=CL2.0 -O2 -Xclang -finclude-default-header -emit-llvm "
        "-x cl -c %s.cl -o %s.bc && llvm-spirv-$v --spirv-max-version=1.2 %s.bc -o %s.spv && break; fi; done; "
        "rm -f %s.cl %s.bc; test -s %s.spv",
        base, base, base, base, base, base, base);
    const bool done = system(command) == 0;
    if (!done)
        (void)snprintf(why_not, sizeof why_not,
                       "no clang and llvm-spirv of one version (14 to 20) to make SPIR-V with");
    return done;
}

static bool open_device(void)
{
    uint32_t one = 1;
    void *loader = dlopen("libze_loader.so.1", RTLD_NOW | RTLD_LOCAL);
    const ze_context_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    bool complete = loader != NULL;
#define FIND(name)                                                                                                     \
    if (complete) {                                                                                                    \
        void *entry = dlsym(loader, #name);                                                                            \
        memcpy(&ze.name, &entry, sizeof entry);                                                                        \
        complete = entry != NULL;                                                                                      \
    }
    CALLS(FIND)
    if (!complete) (void)snprintf(why_not, sizeof why_not, "no libze_loader.so.1 (package libze1)");
    return complete && ze.zeInit(ZE_INIT_FLAG_GPU_ONLY) == 0 && ze.zeDriverGet(&one, &driver) == 0 &&
           ze.zeDeviceGet(driver, &one, &device) == 0 && ze.zeContextCreate(driver, &desc, &context) == 0;
}

static void set_up(void)
{
    static bool tried, ready;
    const char *why = "";
    if (!tried) {
        tried = true;
        stand_in = level_zero_stand_in_find(LEVEL_ZERO_STAND_IN, &why);
        if (!stand_in) (void)snprintf(why_not, sizeof why_not, "%s", why);
        ready = stand_in && open_device() && compile();
    }
    if (!ready) TEST_SKIP("%s", why_not[0] ? why_not : "zeInit found no device: is PoCL there?");
    stand_in->fail_call(0, 0, false);
}

/* -------------------------------------------------------------------- pieces */

static ze_result_t try_module(ze_module_format_t format, const void *code, size_t bytes, const char *flags,
                              ze_module_handle_t *out_module, char *out_log, size_t log_bytes)
{
    ze_module_build_log_handle_t log = NULL;
    const ze_module_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_MODULE_DESC,
                                   .format = format,
                                   .inputSize = bytes,
                                   .pInputModule = code,
                                   .pBuildFlags = flags};
    const ze_result_t result = ze.zeModuleCreate(context, device, &desc, out_module, &log);
    out_log[0] = 0;
    if (log) {
        assert_int_equal(ze.zeModuleBuildLogGetString(log, &log_bytes, out_log), 0);
        assert_int_equal(ze.zeModuleBuildLogDestroy(log), 0);
    }
    return result;
}

static ze_module_handle_t load_module(void)
{
    char *code = NULL, log[4096];
    size_t bytes = 0;
    ze_module_handle_t module = NULL;
    TEST_OK(tern_file_read(spirv_path, 0, &code, &bytes));
    const ze_result_t result = try_module(ZE_MODULE_FORMAT_IL_SPIRV, code, bytes, NULL, &module, log, sizeof log);
    free(code);
    if (result) fail_msg("zeModuleCreate: 0x%x %s", (unsigned)result, log);
    return module;
}

static ze_kernel_handle_t load_kernel(ze_module_handle_t module, const char *name)
{
    ze_kernel_handle_t kernel = NULL;
    const ze_kernel_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_KERNEL_DESC, .pKernelName = name};
    OK(zeKernelCreate(module, &desc, &kernel));
    OK(zeKernelSetGroupSize(kernel, GROUP, 1, 1));
    return kernel;
}

static uint32_t *device_memory(size_t bytes)
{
    void *address = NULL;
    const ze_device_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    OK(zeMemAllocDevice(context, &desc, bytes, 64, device, &address));
    return address;
}

static uint32_t *host_memory(size_t bytes)
{
    void *address = NULL;
    const ze_host_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};
    OK(zeMemAllocHost(context, &desc, bytes, 64, &address));
    return address;
}

static void set_affine(ze_kernel_handle_t kernel, uint32_t *x, uint32_t *y, uint32_t a, uint32_t b)
{
    const uint32_t none = 0, words[3] = {N, a, b};
    OK(zeKernelSetArgumentValue(kernel, 0, sizeof x, &x));
    OK(zeKernelSetArgumentValue(kernel, 1, 4, &none));
    OK(zeKernelSetArgumentValue(kernel, 2, sizeof y, &y));
    OK(zeKernelSetArgumentValue(kernel, 3, 4, &none));
    OK(zeKernelSetArgumentValue(kernel, 4, sizeof words, words));
}

static ze_command_queue_handle_t make_queue(uint32_t group)
{
    ze_command_queue_handle_t queue = NULL;
    const ze_command_queue_desc_t desc = {
        .stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC, .ordinal = group, .mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS};
    OK(zeCommandQueueCreate(context, device, &desc, &queue));
    return queue;
}

static ze_command_list_handle_t make_list(uint32_t group)
{
    ze_command_list_handle_t list = NULL;
    const ze_command_list_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC,
                                         .commandQueueGroupOrdinal = group};
    OK(zeCommandListCreate(context, device, &desc, &list));
    return list;
}

/* Everything that one computation y = 3 (3 x + 1) + 1 on the device needs, and its results on the host. */
typedef struct work {
    ze_module_handle_t module;
    ze_kernel_handle_t kernel;
    uint32_t *in, *x, *y, *out;
    ze_command_queue_handle_t queue;
    ze_command_list_handle_t list;
    ze_fence_handle_t fence;
} work;

static void barrier(const work *w, bool wanted)
{
    if (wanted) OK(zeCommandListAppendBarrier(w->list, NULL, 0, NULL));
}

/* Recorded and closed; barriers only where wanted. */
static work record(bool barriers)
{
    const ze_group_count_t groups = {(N + GROUP - 1) / GROUP, 1, 1};
    const ze_fence_desc_t fence = {.stype = ZE_STRUCTURE_TYPE_FENCE_DESC};
    work w = {.module = load_module(), .in = host_memory(4 * N), .out = host_memory(4 * N)};
    w.kernel = load_kernel(w.module, "affine");
    w.x = device_memory(4 * N);
    w.y = device_memory(4 * N);
    w.queue = make_queue(0);
    w.list = make_list(0);
    OK(zeFenceCreate(w.queue, &fence, &w.fence));
    for (uint32_t i = 0; i < N; i++) w.in[i] = i;
    barrier(&w, barriers);
    OK(zeCommandListAppendMemoryCopy(w.list, w.x, w.in, 4 * N, NULL, 0, NULL));
    barrier(&w, barriers);
    set_affine(w.kernel, w.x, w.y, 3, 1);
    OK(zeCommandListAppendLaunchKernel(w.list, w.kernel, &groups, NULL, 0, NULL));
    barrier(&w, barriers);
    set_affine(w.kernel, w.y, w.x, 3, 1);
    OK(zeCommandListAppendLaunchKernel(w.list, w.kernel, &groups, NULL, 0, NULL));
    barrier(&w, barriers);
    OK(zeCommandListAppendMemoryCopy(w.list, w.out, w.x, 4 * N, NULL, 0, NULL));
    OK(zeCommandListClose(w.list));
    return w;
}

static void submit(const work *w)
{
    OK(zeCommandQueueExecuteCommandLists(w->queue, 1, (ze_command_list_handle_t[]){w->list}, w->fence));
}

static bool is_right(const work *w)
{
    for (uint32_t i = 0; i < N; i++)
        if (w->out[i] != 9 * i + 4) return false;
    return true;
}

static void release(const work *w)
{
    (void)ze.zeFenceDestroy(w->fence);
    (void)ze.zeCommandListDestroy(w->list);
    (void)ze.zeCommandQueueDestroy(w->queue);
    if (w->kernel) (void)ze.zeKernelDestroy(w->kernel);
    (void)ze.zeModuleDestroy(w->module);
    uint32_t *const memory[] = {w->in, w->x, w->y, w->out};
    for (size_t i = 0; i < 4; i++)
        if (memory[i]) (void)ze.zeMemFree(context, memory[i]);
    char left[200];
    stand_in->live_text(left, sizeof left);
    assert_string_equal(left, "1 context");
}

#define COMPLAINS(expression, expected, part)                                                                          \
    do {                                                                                                               \
        const uint64_t before_ = stand_in->complaints();                                                               \
        assert_int_equal(expression, expected);                                                                        \
        assert_true(stand_in->complaints() > before_);                                                                 \
        if (!strstr(stand_in->complaint(), part)) fail_msg("\"%s\" lacks \"%s\"", stand_in->complaint(), part);        \
    } while (0)

/* --------------------------------------------------------------- right, order */

static void test_right(void **state)
{
    (void)state;
    set_up();
    const uint64_t complaints = stand_in->complaints();
    static const char *const orders[] = {"reverse", "forward", "1", "2", "3"};
    work w = record(true);
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        (void)setenv("TERN_STANDIN_ZE_ORDER", orders[i], 1);
        memset(w.out, 0, 4 * N);
        submit(&w);
        OK(zeFenceHostSynchronize(w.fence, 1000 * MS));
        OK(zeFenceReset(w.fence));
        assert_true(is_right(&w));
    }
    (void)unsetenv("TERN_STANDIN_ZE_ORDER");
    submit(&w); /* twice at once: the lists' own barriers hold them apart */
    submit(&w);
    OK(zeCommandQueueSynchronize(w.queue, 1000 * MS));
    assert_true(is_right(&w));
    release(&w);
    assert_int_equal(stand_in->complaints(), complaints);
}

static void test_missing_barrier(void **state)
{
    (void)state;
    set_up();
    work w = record(false);
    submit(&w);
    OK(zeFenceHostSynchronize(w.fence, 1000 * MS));
    assert_false(is_right(&w));
    assert_int_equal(w.out[0], UINT32_MAX); /* the copy out came first: poison */
    release(&w);
}

static void test_missing_wait(void **state)
{
    (void)state;
    set_up();
    work w = record(true);
    submit(&w);
    assert_int_equal(w.out[0], UINT32_MAX); /* nothing has run */
    assert_int_equal(ze.zeFenceHostSynchronize(w.fence, 0), ZE_RESULT_NOT_READY);
    OK(zeFenceHostSynchronize(w.fence, 0)); /* a poll is enough to go on */
    assert_true(is_right(&w));
    release(&w);
}

/* Compute on one queue, the copy back on the other, an event between them; then without it. */
static void test_two_queues(void **state)
{
    (void)state;
    set_up();
    for (int with_event = 1; with_event >= 0; with_event--) {
        work w = record(true);
        const ze_event_pool_desc_t pool_desc = {.stype = ZE_STRUCTURE_TYPE_EVENT_POOL_DESC,
                                                .flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE |
                                                         ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP,
                                                .count = 1};
        const ze_event_desc_t event_desc = {.stype = ZE_STRUCTURE_TYPE_EVENT_DESC};
        ze_event_pool_handle_t pool = NULL;
        ze_event_handle_t event = NULL;
        ze_kernel_timestamp_result_t time;
        OK(zeEventPoolCreate(context, &pool_desc, 1, &device, &pool));
        OK(zeEventCreate(pool, &event_desc, &event));
        ze_command_list_handle_t done = make_list(0), copy = make_list(1);
        ze_command_queue_handle_t copies = make_queue(1);
        OK(zeCommandListAppendBarrier(done, event, 0, NULL));
        OK(zeCommandListClose(done));
        OK(zeCommandListAppendMemoryCopy(copy, w.in, w.x, 4 * N, NULL, with_event ? 1 : 0, with_event ? &event : NULL));
        OK(zeCommandListClose(copy));
        submit(&w);
        OK(zeCommandQueueExecuteCommandLists(w.queue, 1, &done, NULL));
        OK(zeCommandQueueExecuteCommandLists(copies, 1, &copy, NULL));
        OK(zeCommandQueueSynchronize(copies, 1000 * MS));
        OK(zeEventHostSynchronize(event, 1000 * MS));
        assert_int_equal(w.in[5] == 9 * 5 + 4, with_event);
        OK(zeEventQueryKernelTimestamp(event, &time));
        assert_true(time.global.kernelStart <= UINT32_MAX && time.global.kernelEnd <= UINT32_MAX);
        OK(zeCommandQueueDestroy(copies));
        OK(zeCommandListDestroy(copy));
        OK(zeCommandListDestroy(done));
        OK(zeEventDestroy(event));
        OK(zeEventPoolDestroy(pool));
        release(&w);
    }
}

static void test_immediate(void **state)
{
    (void)state;
    set_up();
    const ze_command_queue_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                          .mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS};
    const ze_event_pool_desc_t pool_desc = {
        .stype = ZE_STRUCTURE_TYPE_EVENT_POOL_DESC, .flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE, .count = 1};
    const ze_event_desc_t event_desc = {.stype = ZE_STRUCTURE_TYPE_EVENT_DESC};
    const uint32_t seven = 7;
    ze_event_pool_handle_t pool = NULL;
    ze_event_handle_t event = NULL;
    ze_command_list_handle_t list = NULL;
    ze_command_queue_handle_t queue = NULL;
    const ze_command_list_desc_t list_desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC};
    (void)setenv("TERN_STANDIN_ZE_IMMEDIATE_ONLY", "1", 1);
    assert_int_equal(ze.zeCommandQueueCreate(context, device, &desc, &queue), ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
    assert_int_equal(ze.zeCommandListCreate(context, device, &list_desc, &list), ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
    (void)unsetenv("TERN_STANDIN_ZE_IMMEDIATE_ONLY");
    OK(zeEventPoolCreate(context, &pool_desc, 1, &device, &pool));
    OK(zeEventCreate(pool, &event_desc, &event));
    OK(zeCommandListCreateImmediate(context, device, &desc, &list));
    uint32_t *memory = host_memory(4 * N);
    OK(zeCommandListAppendMemoryFill(list, memory, &seven, 4, 4 * N, event, 0, NULL));
    assert_int_equal(memory[N - 1], UINT32_MAX);
    assert_int_equal(ze.zeEventQueryStatus(event), ZE_RESULT_NOT_READY);
    OK(zeEventHostSynchronize(event, 1000 * MS));
    assert_int_equal(memory[N - 1], 7);
    OK(zeCommandListDestroy(list));
    OK(zeEventDestroy(event));
    OK(zeEventPoolDestroy(pool));
    OK(zeMemFree(context, memory));
}

/* --------------------------------------------------------------------- memory */

/* What a child process does to be caught; it does not come back from it. */
static int child_main(const char *mode)
{
    set_up();
    const ze_group_count_t one = {1, 1, 1};
    if (strcmp(mode, "read") == 0) {
        const volatile uint32_t *memory = device_memory(400);
        return memory[3] == 77;
    }
    work w = record(true);
    ze_kernel_handle_t wild = load_kernel(w.module, "wild");
    const uint32_t far = N + 100; /* in the guard page */
    OK(zeKernelSetArgumentValue(wild, 0, sizeof w.y, &w.y));
    OK(zeKernelSetArgumentValue(wild, 1, 4, &far));
    ze_command_list_handle_t list = make_list(0);
    OK(zeCommandListAppendLaunchKernel(list, wild, &one, NULL, 0, NULL));
    OK(zeCommandListClose(list));
    OK(zeCommandQueueExecuteCommandLists(w.queue, 1, &list, NULL));
    OK(zeCommandQueueSynchronize(w.queue, 1000 * MS));
    return 0;
}

static void test_faulting_memory(void **state)
{
    (void)state;
    set_up();
    char said[8192];
    /* The sanitizer's report takes the signal's place where there is one. */
    int result = level_zero_run_self("read", said, sizeof said);
    assert_true(result != 0 && result != 77);
    if (!strstr(said, "device allocation") || !strstr(said, "at byte 12: the host has no access to it"))
        fail_msg("the host read device memory, and the child said: %s", said);
    result = level_zero_run_self("wild", said, sizeof said);
    if (result == 0 || !strstr(said, "device allocation") || !strstr(said, ": outside of it"))
        fail_msg("a kernel wrote past its buffer, and the child said: %s", said);
}

/* A word past the end: the guard page is farther away, the slack tells it. */
static void test_slack(void **state)
{
    (void)state;
    set_up();
    uint32_t *memory = host_memory(40);
    OK(zeMemFree(context, memory));
    memory = host_memory(40);
    *(volatile uint32_t *)(memory + 10) = 1;
    COMPLAINS(ze.zeMemFree(context, memory), ZE_RESULT_SUCCESS, "written at byte 40");
}

static void test_freed_memory(void **state)
{
    (void)state;
    set_up();
    work w = record(true);
    OK(zeMemFree(context, w.y));
    w.y = NULL;
    submit(&w);
    COMPLAINS(ze.zeFenceHostSynchronize(w.fence, 1000 * MS), ZE_RESULT_ERROR_DEVICE_LOST, "freed");
    assert_int_equal(ze.zeCommandQueueSynchronize(w.queue, 1000 * MS), ZE_RESULT_ERROR_DEVICE_LOST); /* still */
    release(&w);
}

/* ------------------------------------------------------------------- refusals */

static void test_arguments(void **state)
{
    (void)state;
    set_up();
    const ze_group_count_t groups = {1, 1, 1};
    const ze_kernel_desc_t unknown = {.stype = ZE_STRUCTURE_TYPE_KERNEL_DESC, .pKernelName = "nope"};
    uint32_t words[4] = {0}, *stack = words;
    ze_kernel_handle_t none = NULL;
    work w = record(true);
    ze_kernel_handle_t fresh = load_kernel(w.module, "affine");
    ze_command_list_handle_t list = make_list(0), copies = make_list(1);
    assert_int_equal(ze.zeKernelCreate(w.module, &unknown, &none), ZE_RESULT_ERROR_INVALID_KERNEL_NAME);
    assert_int_equal(ze.zeKernelSetArgumentValue(fresh, 9, 4, words), ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX);
    COMPLAINS(ze.zeKernelSetArgumentValue(fresh, 0, 4, &w.x), ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE,
              "set with 4");
    COMPLAINS(ze.zeKernelSetArgumentValue(fresh, 1, 8, words), ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE,
              "a value of 4 bytes, set with 8");
    COMPLAINS(ze.zeKernelSetArgumentValue(fresh, 4, 16, words), ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE,
              "a value of 12 bytes, set with 16");
    COMPLAINS(ze.zeKernelSetArgumentValue(fresh, 0, sizeof stack, &stack), ZE_RESULT_ERROR_INVALID_ARGUMENT,
              "in no allocation");
    COMPLAINS(ze.zeCommandListAppendLaunchKernel(list, fresh, &groups, NULL, 0, NULL), ZE_RESULT_ERROR_INVALID_ARGUMENT,
              "without its argument 0");
    assert_int_equal(ze.zeKernelSetGroupSize(fresh, 4096, 4, 1), ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION);
    COMPLAINS(ze.zeCommandListAppendLaunchKernel(copies, w.kernel, &groups, NULL, 0, NULL),
              ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE, "copies only");
    COMPLAINS(ze.zeCommandListAppendMemoryCopy(list, w.x, w.in, 4 * N + 4, NULL, 0, NULL), ZE_RESULT_ERROR_INVALID_SIZE,
              "4004 bytes");
    COMPLAINS(ze.zeCommandListAppendMemoryCopy(list, w.x, words, 16, NULL, 0, NULL), ZE_RESULT_ERROR_INVALID_ARGUMENT,
              "source");
    COMPLAINS(ze.zeCommandListAppendMemoryCopy(list, w.x, w.x + 1, 16, NULL, 0, NULL),
              ZE_RESULT_ERROR_OVERLAPPING_REGIONS, "overlaps");
    COMPLAINS(ze.zeCommandListAppendMemoryFill(list, w.x, words, 3, 12, NULL, 0, NULL), ZE_RESULT_ERROR_INVALID_SIZE,
              "pattern of 3");
    COMPLAINS(ze.zeCommandQueueExecuteCommandLists(w.queue, 1, &list, NULL), ZE_RESULT_ERROR_INVALID_ARGUMENT,
              "closed");
    COMPLAINS(ze.zeCommandListAppendBarrier(w.list, NULL, 0, NULL), ZE_RESULT_ERROR_INVALID_ARGUMENT, "closed list");
    COMPLAINS(ze.zeModuleDestroy(w.module), ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE, "2 objects");
    OK(zeKernelDestroy(fresh));
    COMPLAINS(ze.zeKernelDestroy(fresh), ZE_RESULT_ERROR_INVALID_NULL_HANDLE, "destroyed object");
    submit(&w);
    COMPLAINS(ze.zeCommandListReset(w.list), ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE, "have not run");
    OK(zeCommandQueueSynchronize(w.queue, 1000 * MS));
    OK(zeCommandListReset(w.list));
    OK(zeCommandListDestroy(list));
    OK(zeCommandListDestroy(copies));
    release(&w);
}

static void test_modules(void **state)
{
    (void)state;
    set_up();
    char *code = NULL, log[4096];
    size_t bytes = 0, native_bytes = 0;
    ze_module_handle_t module = NULL, other = NULL;
    TEST_OK(tern_file_read(spirv_path, 0, &code, &bytes));
    assert_int_equal(
        try_module(ZE_MODULE_FORMAT_IL_SPIRV, "garbage garbage garbage", 20, NULL, &other, log, sizeof log),
        ZE_RESULT_ERROR_MODULE_BUILD_FAILURE);
    assert_non_null(strstr(log, "magic number"));
    for (size_t cut = 20; cut < bytes; cut = cut * 2 / 4 * 4) /* never a crash, whatever is missing */
        if (try_module(ZE_MODULE_FORMAT_IL_SPIRV, code, cut, NULL, &other, log, sizeof log) == 0)
            OK(zeModuleDestroy(other));
    assert_int_equal(try_module(ZE_MODULE_FORMAT_IL_SPIRV, code, bytes, "-cl-fast", &other, log, sizeof log),
                     ZE_RESULT_ERROR_MODULE_BUILD_FAILURE);
    assert_non_null(strstr(log, "-cl-fast"));
    module = load_module();
    OK(zeModuleGetNativeBinary(module, &native_bytes, NULL));
    uint8_t *native = malloc(native_bytes);
    OK(zeModuleGetNativeBinary(module, &native_bytes, native));
    OK(zeModuleDestroy(module));
    assert_int_equal(try_module(ZE_MODULE_FORMAT_NATIVE, native, native_bytes, NULL, &module, log, sizeof log), 0);
    ze_kernel_handle_t kernel = load_kernel(module, "affine");
    OK(zeKernelDestroy(kernel));
    OK(zeModuleDestroy(module));
    native[native_bytes / 2] ^= 1;
    assert_int_equal(try_module(ZE_MODULE_FORMAT_NATIVE, native, native_bytes, NULL, &other, log, sizeof log),
                     ZE_RESULT_ERROR_INVALID_NATIVE_BINARY);
    assert_int_equal(try_module(ZE_MODULE_FORMAT_NATIVE, native, native_bytes - 1, NULL, &other, log, sizeof log),
                     ZE_RESULT_ERROR_INVALID_NATIVE_BINARY);
    free(native);
    free(code);
    assert_int_equal(stand_in->live(), 1);
}

static void test_limits(void **state)
{
    (void)state;
    set_up();
    void *address = NULL;
    uint32_t count = 0;
    const size_t large = (4ull << 30) + 4096;
    const ze_relaxed_allocation_limits_exp_desc_t relaxed = {.stype =
                                                                 ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC,
                                                             .flags = ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE};
    ze_device_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    assert_int_equal(ze.zeMemAllocDevice(context, &desc, large, 64, device, &address),
                     ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
    desc.pNext = &relaxed;
    OK(zeMemAllocDevice(context, &desc, large, 64, device, &address));
    work w = record(true);
    COMPLAINS(ze.zeKernelSetArgumentValue(w.kernel, 0, sizeof address, &address), ZE_RESULT_ERROR_INVALID_ARGUMENT,
              "build flag");
    OK(zeMemFree(context, address));
    release(&w);
    (void)setenv("TERN_STANDIN_ZE_RELAXED", "0", 1);
    assert_int_equal(ze.zeMemAllocDevice(context, &desc, large, 64, device, &address),
                     ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
    (void)unsetenv("TERN_STANDIN_ZE_RELAXED");
    (void)setenv("TERN_STANDIN_ZE_MEMORY_BYTES", "1000000", 1);
    assert_int_equal(ze.zeMemAllocDevice(context, &desc, 1000001, 64, device, &address),
                     ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
    (void)unsetenv("TERN_STANDIN_ZE_MEMORY_BYTES");
    (void)setenv("TERN_STANDIN_ZE_DEVICES", "3", 1);
    OK(zeDeviceGet(driver, &count, NULL));
    assert_int_equal(count, 3);
    (void)unsetenv("TERN_STANDIN_ZE_DEVICES");
    (void)setenv("TERN_STANDIN_ZE_COPY_GROUP", "0", 1);
    count = 0;
    OK(zeDeviceGetCommandQueueGroupProperties(device, &count, NULL));
    assert_int_equal(count, 1);
    (void)unsetenv("TERN_STANDIN_ZE_COPY_GROUP");
}

/* --------------------------------------------------------------------- faults */

static void test_failing_calls(void **state)
{
    (void)state;
    set_up();
    work w = record(true);
    ze_device_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES};
    stand_in->fail_call(2, ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, false);
    OK(zeDeviceGetProperties(device, &properties));
    assert_int_equal(ze.zeDeviceGetProperties(device, &properties), ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    assert_string_equal(stand_in->failed_name(), "zeDeviceGetProperties");
    OK(zeDeviceGetProperties(device, &properties));
    assert_int_equal(stand_in->fail_call(1, ZE_RESULT_ERROR_UNKNOWN, false), 3);
    assert_int_equal(ze.zeKernelDestroy(w.kernel), ZE_RESULT_ERROR_UNKNOWN); /* failed, and gone all the same */
    w.kernel = NULL;
    stand_in->fail_call(1, ZE_RESULT_ERROR_DEVICE_LOST, true);
    for (int i = 0; i < 3; i++)
        assert_int_equal(ze.zeDeviceGetProperties(device, &properties), ZE_RESULT_ERROR_DEVICE_LOST);
    stand_in->fail_call(0, 0, false);
    OK(zeDeviceGetProperties(device, &properties));
    release(&w);
}

static void test_hang(void **state)
{
    (void)state;
    set_up();
    work w = record(true);
    (void)setenv("TERN_STANDIN_ZE_HANG", "1", 1);
    submit(&w);
    for (int i = 0; i < 3; i++) assert_int_equal(ze.zeFenceHostSynchronize(w.fence, MS), ZE_RESULT_NOT_READY);
    (void)unsetenv("TERN_STANDIN_ZE_HANG");
    OK(zeFenceHostSynchronize(w.fence, 1000 * MS));
    assert_true(is_right(&w));
    release(&w);
}

static int remove_spirv(void **state)
{
    (void)state;
    if (spirv_path[0]) (void)unlink(spirv_path);
    if (context) (void)ze.zeContextDestroy(context);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1) return child_main(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right),        cmocka_unit_test(test_missing_barrier),
        cmocka_unit_test(test_missing_wait), cmocka_unit_test(test_two_queues),
        cmocka_unit_test(test_immediate),    cmocka_unit_test(test_faulting_memory),
        cmocka_unit_test(test_slack),        cmocka_unit_test(test_freed_memory),
        cmocka_unit_test(test_arguments),    cmocka_unit_test(test_modules),
        cmocka_unit_test(test_limits),       cmocka_unit_test(test_failing_calls),
        cmocka_unit_test(test_hang),
    };
    return cmocka_run_group_tests(tests, NULL, remove_spirv);
}

#else

int main(void)
{
    print_message("skipped: no Level Zero headers (libze-dev), so no stand-in\n");
    return 0;
}

#endif
