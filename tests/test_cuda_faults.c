/* SPDX-License-Identifier: Apache-2.0 */
/* test_cuda_faults.c - the CUDA plug-in on the stand-in driver (tests/stand_ins/cuda), where something is missing or
 * fails.
 *
 *     absence   no driver, a stub, one that does not start, no card, an old compiler: each in a child process, each one
 *               sentence
 *     faults    every driver call of a whole life (load to unload) fails once: right status, a sentence with the call
 *               and its code, nothing left, a lost device stays lost
 *     hang      work that never completes is told, and the plug-in still closes
 *
 * The stand-in itself counts what is left and reports what must not happen; a report fails the test. */
#include "tests/test.h"

#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/backend.h"
#include "core/base/log.h"
#include "core/base/status.h"
#include "core/base/time.h"
#include "core/device/plugin.h"
#include "tests/cuda_stand_in.h"

#define COUNT   256u
#define GROUP   64u
#define WAIT_NS 60000000000ull

extern char **environ;

static const tern_backend *backend;

static void no_log(void *context, int32_t level, const char *message) { (void)context, (void)level, (void)message; }

/* False: the reason is printed. */
static bool find_plugin(void)
{
    if (backend) return true;
    cu = cuda_stand_in_find();
    if (!cu) return false;
    if (tern_plugin_find("cuda", &backend) >= 0) return true;
    print_message("%s\n", tern_error_message());
    backend = NULL;
    return false;
}

#define NEED_PLUGIN()                                                                                                  \
    if (!find_plugin()) TEST_SKIP("the CUDA plug-in or its stand-ins were not built")

static void expect_no_report(void)
{
    char report[600];
    if (cu->reports(report, sizeof report)) fail_msg("the stand-in reports: %s", report);
}

/* ------------------------------------------------------------------- a life */

/* y[i] = a x[i] + b for i < n; words n, a, b. */
static tern_status render(const tern_kernel_desc *desc, tern_dialect dialect, bool addresses, tern_source *out_source)
{
    static const char text[] = "struct words { unsigned n, a, b; };\n"
                               "extern \"C\" __global__ void affine(const unsigned *x, unsigned *y, words w) {\n"
                               "    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;\n"
                               "    if (i < w.n) y[i] = w.a * x[i] + w.b;\n"
                               "}\n";
    (void)desc, (void)addresses;
    if (dialect != TERN_DIALECT_CUDA) return tern_error(TERN_ERROR_INVALID, "dialect %d", (int)dialect);
    *out_source = (tern_source){.text = strdup(text), .bytes = sizeof text - 1, .entry = "affine"};
    return out_source->text ? TERN_OK : tern_error_memory("a kernel's text", sizeof text);
}

static tern_kernel_desc affine_desc(void)
{
    tern_kernel_desc desc = {.kind = TERN_KERNEL_TAPE,
                             .label = "affine",
                             .tensor_count = 2,
                             .word_count = 3,
                             .variant = {.group = {GROUP, 1, 1}},
                             .render = render};
    desc.tensors[0] = (tern_tape_tensor){.dtype = TERN_U32, .mode = TERN_ACCESS_READ};
    desc.tensors[1] = (tern_tape_tensor){.dtype = TERN_U32, .mode = TERN_ACCESS_READ | TERN_ACCESS_WRITE};
    return desc;
}

/* How far a life got, for its end. */
typedef struct life {
    tern_backend_device *device;
    tern_backend_buffer *x, *y;
    tern_backend_kernel *kernel;
    tern_backend_program *program;
    tern_device_info info;
} life;

static tern_argument whole(tern_backend_buffer *buffer, uint32_t mode)
{
    return (tern_argument){.buffer = buffer, .bytes = 4 * COUNT, .mode = mode};
}

/* Twice 3 x + 1 in place, then a copy for the host, in two submissions. */
static tern_status make_program(life *l)
{
    const uint32_t wait = 0, cut = 1;
    tern_step steps[2] = {
        {.kind = TERN_STEP_DISPATCH,
         .label = "affine",
         .kernel = l->kernel,
         .argument_count = 2,
         .arguments = {whole(l->x, TERN_ACCESS_READ), whole(l->x, TERN_ACCESS_READ | TERN_ACCESS_WRITE)},
         .word_count = 3,
         .words = {COUNT, 3, 1},
         .groups = {COUNT / GROUP, 1, 1}},
        {.kind = TERN_STEP_COPY,
         .label = "copy",
         .wait_count = 1,
         .waits = &wait,
         .argument_count = 2,
         .arguments = {whole(l->x, TERN_ACCESS_READ), whole(l->y, TERN_ACCESS_WRITE)}},
    };
    const tern_program_desc desc = {.label = "life", .step_count = 2, .steps = steps, .cut_count = 1, .cuts = &cut};
    return backend->program_create(l->device, &desc, &l->program);
}

static tern_status set_up(life *l)
{
    tern_status status = TERN_OK;
    const tern_open_options options = {.timestamps = true};
    const tern_kernel_desc kernel = affine_desc();
    uint32_t devices = 0, data[COUNT];
    TERN_TRY(backend->load());
    TERN_TRY(backend->device_count(&devices));
    TERN_TRY(backend->device_info(0, &l->info));
    TERN_TRY(backend->open(0, &options, &l->device));
    TERN_TRY(backend->buffer_create(l->device, sizeof data, TERN_BUFFER_DEVICE, &l->x));
    TERN_TRY(backend->buffer_create(l->device, sizeof data, TERN_BUFFER_READBACK, &l->y));
    for (uint32_t i = 0; i < COUNT; i++) data[i] = i;
    TERN_TRY(backend->buffer_write(l->device, l->x, 0, data, sizeof data));
    TERN_TRY(backend->kernel_create(l->device, &kernel, &l->kernel));
    TERN_TRY(make_program(l));
fail:
    return status;
}

static tern_status live(life *l)
{
    tern_status status = TERN_OK;
    uint32_t data[COUNT];
    uint64_t ticket = 0, ns[2];
    TERN_TRY(set_up(l));
    for (int round = 0; round < 2; round++) TERN_TRY(backend->program_submit(l->device, l->program, &ticket));
    TERN_TRY(backend->wait(l->device, ticket, WAIT_NS));
    TERN_TRY(backend->program_times(l->device, l->program, ns));
    TERN_TRY(backend->buffer_read(l->device, l->x, 0, data, sizeof data));
    for (uint32_t i = 0; i < COUNT; i++)
        if (data[i] != 9 * i + 4) return tern_error(TERN_ERROR_INTERNAL, "element %u is %u", i, data[i]);
    TERN_TRY(backend->buffer_read(l->device, l->y, 0, data, sizeof data));
    if (data[COUNT - 1] != 9 * (COUNT - 1) + 4) return tern_error(TERN_ERROR_INTERNAL, "the copy is wrong");
fail:
    return status;
}

static void end(life *l)
{
    if (l->device) {
        backend->program_destroy(l->device, l->program);
        backend->kernel_destroy(l->device, l->kernel);
        backend->buffer_destroy(l->device, l->x);
        backend->buffer_destroy(l->device, l->y);
        assert_int_equal(backend->allocated_bytes(l->device), 0);
        backend->close(l->device);
    }
    backend->unload();
    *l = (life){0};
}

/* ------------------------------------------------------------------- faults */

/* Calls whose failure does not fail the entry that made them: what undoes (logged), and what only informs. */
static bool may_be_survived(const char *call)
{
    static const char *const names[] = {"Destroy",         "Free",
                                        "Unload",          "Release",
                                        "cuCtxSetCurrent", "cuCtxGetCurrent",
                                        "cuMemGetInfo",    "cuDevicePrimaryCtxRetain",
                                        "cuModule"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strstr(call, names[i])) return true;
    return false;
}

/* The sentence must name the call (without the version of its interface) and the code. After one that may be survived
 * it is something later that fails, of which the loss is told. */
static void check_sentence(const char *call, int code)
{
    char name[128], number[16];
    (void)snprintf(name, sizeof name, "%s", call);
    char *version = strstr(name, "_v");
    if (version) *version = 0;
    (void)snprintf(number, sizeof number, "%d)", code);
    const char *said = tern_error_message();
    if (may_be_survived(call) && (strstr(said, "lost") || strstr(said, number))) return;
    if (!strstr(said, name) || !strstr(said, number))
        fail_msg("the sentence names not both %s and %d: %s", name, code, said);
}

static void check_lost(life *l)
{
    uint32_t word = 0;
    tern_backend_buffer *more = NULL;
    TEST_ERROR(backend->buffer_create(l->device, 64, TERN_BUFFER_DEVICE, &more), TERN_ERROR_DEVICE_LOST, "lost");
    assert_null(more);
    if (l->x) TEST_ERROR(backend->buffer_read(l->device, l->x, 0, &word, 4), TERN_ERROR_DEVICE_LOST, "lost");
}

/* One life whose call-th call fails. False: it has fewer calls. */
static bool check_fault(uint64_t call, int code, tern_status expected)
{
    life l = {0};
    char name[128];
    (void)cu->fail_call(call, code);
    const tern_status status = live(&l);
    (void)snprintf(name, sizeof name, "%s", cu->failed_call());
    const bool failed = name[0] != 0;
    if (failed && status == TERN_OK && !may_be_survived(name)) fail_msg("call %s failed, and nobody said so", name);
    if (!failed && status != TERN_OK) fail_msg("nothing failed, and yet: %s", tern_error_message());
    if (failed && status != TERN_OK) {
        const tern_status right = strcmp(name, "cuInit") == 0 ? TERN_ERROR_NOT_FOUND : expected;
        if (status != right)
            fail_msg("%s failing with %d gave %s (%s)", name, code, tern_status_name(status), tern_error_message());
        check_sentence(name, code);
        if (right == TERN_ERROR_DEVICE_LOST && l.device) check_lost(&l);
    }
    end(&l);
    (void)snprintf(name, sizeof name, "%s", cu->failed_call());
    const int64_t left = cu->live();
    (void)cu->fail_call(0, 0);
    if (left != 0)
        fail_msg("%lld objects are left after call %llu, %s, failed with %d", (long long)left, (unsigned long long)call,
                 name, code);
    expect_no_report();
    return name[0] != 0;
}

static void test_every_call_fails_once(void **state)
{
    (void)state;
    NEED_PLUGIN();
    static const struct {
        int code;
        tern_status status;
    } faults[] = {{CU_OUT_OF_MEMORY, TERN_ERROR_DEVICE_MEMORY},
                  {CU_NOT_SUPPORTED, TERN_ERROR_DRIVER},
                  {CU_ILLEGAL_ADDRESS, TERN_ERROR_DEVICE_LOST}};
    tern_log_set(no_log, NULL);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        uint64_t call = 1;
        while (check_fault(call, faults[i].code, faults[i].status)) call++;
        print_message("%llu calls failed with %d\n", (unsigned long long)call - 1, faults[i].code);
        assert_true(call > 100);
    }
    life l = {0};
    TEST_OK(live(&l)); /* and all is well again */
    end(&l);
    assert_int_equal(cu->live(), 0);
    tern_log_set(NULL, NULL);
}

/* --------------------------------------------------------------------- hang */

/* The program never ends: wait says so when its time is over, and closing does not wait for it. */
static void test_a_hang_is_told(void **state)
{
    (void)state;
    NEED_PLUGIN();
    life l = {0};
    uint64_t ticket = 0;
    tern_backend_buffer *more = NULL;
    (void)setenv("TERN_CUDA_PATIENCE_S", "1", 1);
    tern_log_set(no_log, NULL);
    TEST_OK(set_up(&l));
    cu->hang(1);
    TEST_OK(backend->program_submit(l.device, l.program, &ticket));
    const uint64_t start = tern_time_ns();
    TEST_ERROR(backend->wait(l.device, ticket, 1000000000u), TERN_ERROR_TIMEOUT, "still running");
    TEST_ERROR(backend->buffer_create(l.device, 64, TERN_BUFFER_DEVICE, &more), TERN_ERROR_DEVICE_LOST, "no progress");
    assert_true(tern_time_ns() - start < 60u * 1000000000ull); /* 2 s of waiting on a machine of any load */
    check_lost(&l);
    end(&l);
    expect_no_report(); /* nothing was called that would never have returned */
    (void)unsetenv("TERN_CUDA_PATIENCE_S");
    tern_log_set(NULL, NULL);
}

/* ----------------------------------------------------------------- absence */

/* What a child process finds; 0: right. */
static int child_main(const char *mode)
{
    uint32_t count = 99;
    const tern_open_options options = {0};
    tern_backend_device *device = NULL;
    tern_device_info info;
    tern_log_set(no_log, NULL);
    if (tern_plugin_find("cuda", &backend) < 0) return 1;
    const tern_status status = backend->load();
    const char *said = tern_error_message();
    if (strcmp(mode, "missing") == 0)
        return status == TERN_ERROR_NOT_FOUND && strstr(said, "driver is missing") && strstr(said, "install") ? 0 : 2;
    if (strcmp(mode, "stub") == 0) return status == TERN_ERROR_NOT_FOUND && strstr(said, "stub") ? 0 : 3;
    if (strcmp(mode, "no-start") == 0)
        return status == TERN_ERROR_NOT_FOUND && strstr(said, "999") && strstr(said, "cuInit") ? 0 : 4;
    if (status < 0 || backend->device_count(&count) < 0) return 5;
    if (strcmp(mode, "no-card") == 0) {
        said = tern_error_message();
        return count == 0 && strstr(said, "no card") && strstr(said, "CUDA_VISIBLE_DEVICES") ? 0 : 6;
    }
    if (count == 0 || backend->device_info(0, &info) < 0) return 7;
    const tern_status opened = backend->open(0, &options, &device);
    if (strcmp(mode, "old-compiler") == 0)
        return opened == TERN_ERROR_NOT_FOUND && strstr(tern_error_message(), "sm_80") &&
                       strstr(tern_error_message(), "cuda_old")
                   ? 0
                   : 8;
    if (opened < 0) return 9;
    backend->close(device);
    return strcmp(mode, "second-compiler") == 0 ? 0 : 10;
}

/* True for a variable that the child gets anew. */
static bool is_replaced(const char *entry, const char *const *more)
{
    for (; *more; more++)
        if (strncmp(entry, *more, strcspn(*more, "=") + 1) == 0) return true;
    return false;
}

/* This program again with these variables; its exit status. */
static int run_child(const char *mode, const char *const *more)
{
    char *arguments[] = {"test_cuda_faults", (char *)(uintptr_t)mode, NULL}, *variables[512];
    size_t count = 0;
    pid_t child;
    int result = 0;
    for (char **v = environ; *v && count < 500; v++)
        if (!is_replaced(*v, more)) variables[count++] = *v;
    for (; *more; more++) variables[count++] = (char *)(uintptr_t)*more;
    variables[count] = NULL;
    assert_int_equal(posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, variables), 0);
    assert_int_equal(waitpid(child, &result, 0), child);
    return WIFEXITED(result) ? WEXITSTATUS(result) : 128;
}

static void test_absence(void **state)
{
    (void)state;
    NEED_PLUGIN();
    static const char *const missing[] = {"TERN_CUDA_LIBRARY=/nowhere/libcuda.so.1", NULL};
    static const char *const stub[] = {"TERN_STANDIN_CUDA_INIT=34", NULL};
    static const char *const no_start[] = {"TERN_STANDIN_CUDA_INIT=999", NULL};
    static const char *const no_card[] = {"CUDA_VISIBLE_DEVICES=-1", NULL};
    assert_int_equal(run_child("missing", missing), 0);
    assert_int_equal(run_child("stub", stub), 0);
    assert_int_equal(run_child("no-start", no_start), 0);
    assert_int_equal(run_child("no-card", no_card), 0);
}

/* An NVRTC from before cubins: alone it is told apart; beside a newer one, found first, it is passed over. */
static void test_old_compiler(void **state)
{
    (void)state;
    NEED_PLUGIN();
    static const char *const alone[] = {"TERN_NVRTC_LIBRARY=" TERN_BINARY_DIR "/stand_ins/cuda_old/libnvrtc.so",
                                        "TERN_STANDIN_NVRTC_VERSION=11.0", NULL};
    static const char *const beside[] = {
        "TERN_NVRTC_LIBRARY=", "LD_LIBRARY_PATH=" TERN_BINARY_DIR "/stand_ins/cuda_old",
        "CUDA_HOME=" TERN_BINARY_DIR "/stand_ins/cuda_home", NULL};
    assert_int_equal(run_child("old-compiler", alone), 0);
    assert_int_equal(run_child("second-compiler", beside), 0);
}

int main(int argc, char **argv)
{
    (void)setenv("TERN_CUDA_LIBRARY", CUDA_STAND_IN_DRIVER, 0);
    (void)setenv("TERN_NVRTC_LIBRARY", CUDA_STAND_IN_NVRTC, 0);
    if (argc > 1) return child_main(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_absence),
        cmocka_unit_test(test_old_compiler),
        cmocka_unit_test(test_every_call_fails_once),
        cmocka_unit_test(test_a_hang_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
