/* SPDX-License-Identifier: Apache-2.0 */
/* test_cuda_faults.c - the CUDA plug-in on the stand-in driver (tests/stand_ins/cuda), where something is missing or
 * fails.
 *
 *     absence   no driver, a stub, one that does not start, no card, one where nobody may compute: each in a child
 * process, each one sentence faults    every driver call of a whole life (load to unload) fails once: right status, a
 * sentence with the call and its code, nothing left, a lost device stays lost hang      work that never completes is
 * told, and the plug-in still closes
 *
 * The stand-in itself counts what is left and reports what must not happen; a report fails the test. */
#include "tests/test.h"

#include <stdlib.h>

#include "core/base/log.h"
#include "core/base/status.h"
#include "core/base/time.h"
#include "core/device/plugin.h"
#include "tests/cuda_life.h"

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

static void check_lost(cuda_life *l)
{
    uint32_t word = 0;
    tern_backend_buffer *more = NULL;
    TEST_ERROR(cuda_life_backend->buffer_create(l->device, 64, TERN_BUFFER_DEVICE, &more), TERN_ERROR_DEVICE_LOST,
               "lost");
    assert_null(more);
    if (l->x) TEST_ERROR(cuda_life_backend->buffer_read(l->device, l->x, 0, &word, 4), TERN_ERROR_DEVICE_LOST, "lost");
}

/* One life whose call-th call fails. False: it has fewer calls. */
static bool check_fault(uint64_t call, int code, tern_status expected)
{
    cuda_life l = {0};
    char name[128];
    (void)cu->fail_call(call, code);
    const tern_status status = cuda_life_run(&l);
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
    cuda_life_end(&l);
    (void)snprintf(name, sizeof name, "%s", cu->failed_call());
    const int64_t left = cu->live();
    (void)cu->fail_call(0, 0);
    if (left != 0)
        fail_msg("%lld objects are left after call %llu, %s, failed with %d", (long long)left, (unsigned long long)call,
                 name, code);
    cuda_life_expect_no_report();
    return name[0] != 0;
}

static void test_every_call_fails_once(void **state)
{
    (void)state;
    NEED_CUDA_LIFE();
    static const struct {
        int code;
        tern_status status;
    } faults[] = {{CU_OUT_OF_MEMORY, TERN_ERROR_DEVICE_MEMORY},
                  {CU_NOT_SUPPORTED, TERN_ERROR_DRIVER},
                  {CU_ILLEGAL_ADDRESS, TERN_ERROR_DEVICE_LOST}};
    tern_log_set(cuda_life_no_log, NULL);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        uint64_t call = 1;
        while (check_fault(call, faults[i].code, faults[i].status)) call++;
        print_message("%llu calls failed with %d\n", (unsigned long long)call - 1, faults[i].code);
        assert_true(call > 100);
    }
    cuda_life l = {0};
    TEST_OK(cuda_life_run(&l)); /* and all is well again */
    cuda_life_end(&l);
    assert_int_equal(cu->live(), 0);
    tern_log_set(NULL, NULL);
}

static tern_status entry_create(cuda_life *l)
{
    tern_backend_buffer *buffer = NULL;
    const tern_status status = cuda_life_backend->buffer_create(l->device, 64, TERN_BUFFER_DEVICE, &buffer);
    cuda_life_backend->buffer_destroy(l->device, buffer);
    return status;
}

static tern_status entry_write(cuda_life *l)
{
    const uint32_t word = 7;
    return cuda_life_backend->buffer_write(l->device, l->x, 0, &word, sizeof word);
}

static tern_status entry_read(cuda_life *l)
{
    uint32_t word = 0;
    return cuda_life_backend->buffer_read(l->device, l->x, 0, &word, sizeof word);
}

static tern_status entry_submit(cuda_life *l)
{
    uint64_t ticket = 0;
    return cuda_life_backend->program_submit(l->device, l->program, &ticket);
}

/* Whatever of it failed: the caller may free or reuse its memory, and the next the device's staging memory. */
static void test_what_failed_runs_no_more(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        tern_status (*call)(cuda_life *);
    } entries[] = {{"create", entry_create}, {"write", entry_write}, {"read", entry_read}, {"submit", entry_submit}};
    cuda_life l = {0};
    NEED_CUDA_LIFE();
    tern_log_set(cuda_life_no_log, NULL);
    TEST_OK(cuda_life_set_up(&l, 0));
    for (size_t e = 0; e < sizeof entries / sizeof *entries; e++)
        for (uint64_t call = 1;; call++) {
            (void)cu->fail_call(call, CU_NOT_SUPPORTED);
            const tern_status status = entries[e].call(&l);
            const char *failed = cu->failed_call();
            const uint64_t pending = cu->pending();
            if (status < 0 && pending != 0)
                fail_msg("%s: %s failed, and %llu operations still run", entries[e].name, failed,
                         (unsigned long long)pending);
            (void)cu->fail_call(0, 0);
            if (!*failed) break;
        }
    cuda_life_end(&l);
    cuda_life_expect_no_report();
    tern_log_set(NULL, NULL);
}

/* --------------------------------------------------------------------- hang */

/* The program never ends: wait says so when its time is over, and closing does not wait for it. */
static void test_a_hang_is_told(void **state)
{
    (void)state;
    NEED_CUDA_LIFE();
    cuda_life l = {0};
    uint64_t ticket = 0;
    tern_backend_buffer *more = NULL;
    (void)setenv("TERN_CUDA_PATIENCE_S", "1", 1);
    tern_log_set(cuda_life_no_log, NULL);
    TEST_OK(cuda_life_set_up(&l, 0));
    cu->hang(1);
    TEST_OK(cuda_life_backend->program_submit(l.device, l.program, &ticket));
    const uint64_t start = tern_time_ns();
    TEST_ERROR(cuda_life_backend->wait(l.device, ticket, 100000000u), TERN_ERROR_TIMEOUT, "still running");
    TEST_ERROR(cuda_life_backend->buffer_create(l.device, 64, TERN_BUFFER_DEVICE, &more), TERN_ERROR_DEVICE_LOST,
               "no progress");
    assert_true(tern_time_ns() - start < 60u * 1000000000ull); /* 1.1 s of waiting on a machine of any load */
    check_lost(&l);
    cuda_life_end(&l);
    cuda_life_expect_no_report(); /* nothing was called that would never have returned */
    (void)unsetenv("TERN_CUDA_PATIENCE_S");
    tern_log_set(NULL, NULL);
}

/* ----------------------------------------------------------------- absence */

/* What a child process finds; 0: right. */
static int child_main(const char *mode)
{
    uint32_t count = 99;
    tern_log_set(cuda_life_no_log, NULL);
    if (tern_plugin_find("cuda", &cuda_life_backend) < 0) return 1;
    const tern_status status = cuda_life_backend->load();
    const char *said = tern_error_message();
    if (strcmp(mode, "missing") == 0)
        return status == TERN_ERROR_NOT_FOUND && strstr(said, "driver is missing") && strstr(said, "install") ? 0 : 2;
    if (strcmp(mode, "stub") == 0) return status == TERN_ERROR_NOT_FOUND && strstr(said, "stub") ? 0 : 3;
    if (strcmp(mode, "no-start") == 0)
        return status == TERN_ERROR_NOT_FOUND && strstr(said, "999") && strstr(said, "cuInit") ? 0 : 4;
    if (status < 0 || cuda_life_backend->device_count(&count) < 0) return 5;
    if (strcmp(mode, "no-card") == 0) {
        said = tern_error_message();
        return count == 0 && strstr(said, "no card") && strstr(said, "CUDA_VISIBLE_DEVICES") ? 0 : 6;
    }
    if (strcmp(mode, "prohibited") == 0) {
        const tern_open_options options = {0};
        tern_backend_device *device = NULL;
        tern_device_info info;
        if (count != 1 || cuda_life_backend->device_info(0, &info) < 0 || info.memory_bytes == 0) return 7;
        return cuda_life_backend->open(0, &options, &device) == TERN_ERROR_DRIVER && !device &&
                       strstr(tern_error_message(), "CUDA_ERROR_DEVICE_UNAVAILABLE (46)") &&
                       strstr(tern_error_message(), "nvidia-smi -q -d COMPUTE")
                   ? 0
                   : 8;
    }
    return 9;
}

static void test_absence(void **state)
{
    (void)state;
    NEED_CUDA_LIFE();
    static const char *const missing[] = {"TERN_CUDA_LIBRARY=/nowhere/libcuda.so.1", NULL};
    static const char *const stub[] = {"TERN_STANDIN_CUDA_INIT=34", NULL};
    static const char *const no_start[] = {"TERN_STANDIN_CUDA_INIT=999", NULL};
    static const char *const prohibited[] = {"TERN_STANDIN_CUDA_COMPUTE_MODE=2", NULL};
    static const char *const no_card[] = {"CUDA_VISIBLE_DEVICES=-1", NULL};
    assert_int_equal(cuda_life_child("missing", missing), 0);
    assert_int_equal(cuda_life_child("stub", stub), 0);
    assert_int_equal(cuda_life_child("no-start", no_start), 0);
    assert_int_equal(cuda_life_child("no-card", no_card), 0);
    assert_int_equal(cuda_life_child("prohibited", prohibited), 0);
}

int main(int argc, char **argv)
{
    (void)setenv("TERN_CUDA_LIBRARY", CUDA_STAND_IN_DRIVER, 0);
    (void)setenv("TERN_NVRTC_LIBRARY", CUDA_STAND_IN_NVRTC, 0);
    if (argc > 1) return child_main(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_absence),
        cmocka_unit_test(test_every_call_fails_once),
        cmocka_unit_test(test_what_failed_runs_no_more),
        cmocka_unit_test(test_a_hang_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
