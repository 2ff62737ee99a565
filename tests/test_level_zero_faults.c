/* SPDX-License-Identifier: Apache-2.0 */
/* test_level_zero_faults.c - the Level Zero plug-in where something is missing, fails or hangs; on the stand-in driver.
 *
 *     absence   loader, driver, device: `tern devices` says in one line what is missing and what to do
 *     faults    every driver call of a whole life (load to unload) fails once, with kernels compiled, found in the
 *               cache, and on a device that has only immediate lists: right status, a sentence that names call and
 *               code, a lost device stays lost, nothing is left behind
 *     no more   what had begun when a transfer or submission failed has ended when the error is told
 *     lost      a device that is lost for good from any call on: an error, and the life ends
 *     hang      a device that never finishes: the wait ends when it should
 *
 * What it is not: a test of results; test_conformance_* run on the stand-in too. */
#include "tests/test.h"

#include <dirent.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/base/status.h"
#include "core/device/plugin.h"
#include "tests/command.h"
#include "tests/level_zero_fixture.h"
#include "tests/opencl_scenario.h"

#define SECOND_NS 1000000000ull

enum { RESULT_LOST = 0x70000001, RESULT_HOST_MEMORY = 0x70000002, RESULT_DEVICE_MEMORY = 0x70000003 };

static const level_zero_stand_in *stand_in;
static const tern_backend *backend;
static char cache[400];

static int set_up(void **state)
{
    (void)state;
    const char *why = "";
    stand_in = level_zero_stand_in_find(LEVEL_ZERO_STAND_IN, &why);
    if (tern_plugin_find("level_zero", &backend) < 0) backend = NULL;
    if (!stand_in) print_message("%s\n", why);
    if (!backend) print_message("%s\n", tern_error_message());
    (void)snprintf(cache, sizeof cache, TERN_BINARY_DIR "/level_zero_cache_XXXXXX");
    if (!mkdtemp(cache)) return -1;
    /* Only tern's own cache is emptied: PoCL keeps its, as it does elsewhere. */
    return setenv("TERN_TEST_CACHE", TERN_BINARY_DIR "/cache", 1) |
           setenv("POCL_CACHE_DIR", TERN_BINARY_DIR "/cache/pocl", 1) | setenv("XDG_CACHE_HOME", cache, 1);
}

static void need_both(void)
{
    if (!stand_in) TEST_SKIP("the Level Zero stand-in is not built");
    if (!backend) TEST_SKIP("there is no Level Zero plug-in");
}

/* Empties tern's cache of Level Zero kernels; the folders stay. */
static void clear_cache(void)
{
    char folder[500], file[1000];
    (void)snprintf(folder, sizeof folder, "%s/tern/level_zero", cache);
    DIR *open = opendir(folder);
    for (struct dirent *entry; open && (entry = readdir(open));) {
        (void)snprintf(file, sizeof file, "%s/%s", folder, entry->d_name);
        if (entry->d_name[0] != '.') (void)unlink(file);
    }
    if (open) closedir(open);
}

static int tear_down(void **state)
{
    (void)state;
    char folder[500];
    clear_cache();
    (void)snprintf(folder, sizeof folder, "%s/tern/level_zero", cache);
    (void)rmdir(folder);
    (void)snprintf(folder, sizeof folder, "%s/tern", cache);
    (void)rmdir(folder);
    (void)rmdir(cache);
    return 0;
}

/* ----------------------------------------------------------------- absence */

/* What `tern devices` says with one more variable: it ends well, with a line that has all parts. */
static void check_devices(const char *name, const char *value, const char *const *parts, size_t count)
{
    command_environment(name, value);
    const command_result *result = command_run("devices");
    command_environment(name, NULL);
    if (result->code >= 128) fail_msg("%s=%s: tern devices ended by a signal: %s", name, value, result->err);
    for (size_t i = 0; i < count; i++)
        if (!strstr(result->out, parts[i])) fail_msg("%s=%s: no \"%s\" in: %s", name, value, parts[i], result->out);
}

#define DEVICES(name, value, ...)                                                                                      \
    check_devices(name, value, (const char *const[]){__VA_ARGS__},                                                     \
                  sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

static void test_absence(void **state)
{
    (void)state;
    need_both();
    DEVICES("TERN_STANDIN_ZE_DEVICES", "2", "Level Zero stand-in 0", "Level Zero stand-in 1");
    DEVICES("TERN_LEVEL_ZERO_LIBRARY", "/nonexistent/libze_loader.so.1", "libze1");
    DEVICES("ZE_ENABLE_ALT_DRIVERS", "/nonexistent/driver.so", "0x78000001");
    command_environment("ZE_ENABLE_ALT_DRIVERS", LEVEL_ZERO_STAND_IN);
    DEVICES("TERN_STANDIN_ZE_FAIL_CALL", "1:0x78000001", "0x78000001");
    DEVICES("TERN_STANDIN_ZE_FAIL_CALL", "1:0x70000001", "level_zero");
    DEVICES("TERN_STANDIN_ZE_DEVICES", "0", "level_zero: not usable: Level Zero");
}

/* ------------------------------------------------------------------ a life */

static opencl_scenario scenario; /* device NULL: none */

/* Load to result; what it leaves is end_life's. */
static tern_status live(void)
{
    tern_status status;
    tern_device_info info;
    uint32_t count = 0;
    scenario = (opencl_scenario){.backend = backend};
    TERN_TRY(backend->load());
    TERN_TRY(backend->device_count(&count));
    if (count == 0) return tern_error(TERN_ERROR_NOT_FOUND, "no device: %s", tern_error_message());
    TERN_TRY(backend->device_info(0, &info));
    TERN_TRY(opencl_scenario_run(&scenario, 0, true));
fail:
    return status;
}

static void end_life(void)
{
    opencl_scenario_end(&scenario);
    backend->unload();
}

/* After a test that failed half way: the next one begins with nothing there. */
static int end_test(void **state)
{
    (void)state;
    if (!stand_in || !backend) return 0;
    (void)unsetenv("TERN_STANDIN_ZE_HANG");
    (void)unsetenv("TERN_STANDIN_ZE_IMMEDIATE_ONLY");
    stand_in->fail_call(0, 0, false);
    end_life();
    return 0;
}

/* Calls whose failure costs nothing that was asked for: what is destroyed is gone, a cache goes without, a name too. */
static bool is_optional(const char *call)
{
    static const char *const optional[] = {"Destroy",  "zeMemFree",           "NativeBinary",
                                           "BuildLog", "PciGetPropertiesExt", "zeDriverGetExtensionProperties"};
    for (size_t i = 0; i < sizeof optional / sizeof *optional; i++)
        if (strstr(call, optional[i])) return true;
    return false;
}

static tern_status expected_status(uint32_t result)
{
    return result == RESULT_LOST            ? TERN_ERROR_DEVICE_LOST
           : result == RESULT_HOST_MEMORY   ? TERN_ERROR_MEMORY
           : result == RESULT_DEVICE_MEMORY ? TERN_ERROR_DEVICE_MEMORY
                                            : TERN_ERROR_DRIVER;
}

static void check_sentence(const char *call, uint64_t number, uint32_t result, tern_status status)
{
    char code[16];
    const char *sentence = tern_error_message();
    (void)snprintf(code, sizeof code, "0x%x", result);
    if (!strstr(sentence, call) || !strstr(sentence, code))
        fail_msg("call %llu, %s, failing with %s: %s: %s", (unsigned long long)number, call, code,
                 tern_status_name(status), sentence);
}

/* A device that was lost is lost, although the driver is well again. */
static void check_latched(void)
{
    uint32_t word = 0;
    if (!scenario.device || !scenario.x) return;
    TEST_ERROR(backend->buffer_read(scenario.device, scenario.x, 0, &word, 4), TERN_ERROR_DEVICE_LOST, "");
    TEST_ERROR(backend->buffer_write(scenario.device, scenario.x, 0, &word, 4), TERN_ERROR_DEVICE_LOST, "");
    uint64_t ticket = 0;
    if (scenario.program)
        TEST_ERROR(backend->program_submit(scenario.device, scenario.program, &ticket), TERN_ERROR_DEVICE_LOST, "");
}

static void check_nothing_left(uint64_t number, const char *call, uint64_t complaints)
{
    char left[200];
    stand_in->live_text(left, sizeof left);
    if (strcmp(left, "nothing") != 0)
        fail_msg("call %llu, %s: left behind: %s", (unsigned long long)number, call, left);
    if (stand_in->complaints() != complaints)
        fail_msg("call %llu, %s: the driver complains: %s", (unsigned long long)number, call, stand_in->complaint());
}

/* One life in which call `number` fails; false when there is no such call. A cached binary that the driver refuses is
 * compiled again, unless the device is lost. */
static bool fail_once(uint64_t number, uint32_t result, bool cached)
{
    char call[64];
    const uint64_t complaints = stand_in->complaints();
    stand_in->fail_call(number, result, false);
    const tern_status status = live();
    (void)snprintf(call, sizeof call, "%s", stand_in->failed_name());
    if (!call[0] && status < 0) fail_msg("nothing failed, and yet: %s", tern_error_message());
    const bool refused = cached && result != RESULT_LOST && strcmp(call, "zeModuleCreate") == 0;
    if (call[0] && status == TERN_OK && !is_optional(call) && !refused)
        fail_msg("call %llu, %s, failed and nobody noticed", (unsigned long long)number, call);
    if (status < 0) check_sentence(call, number, result, status);
    const bool found_nothing = status == TERN_ERROR_NOT_FOUND && !scenario.device; /* the driver is as good as absent */
    if (status < 0 && status != expected_status(result) && !found_nothing)
        fail_msg("call %llu, %s, failing with 0x%x: %s: %s", (unsigned long long)number, call, result,
                 tern_status_name(status), tern_error_message());
    if (status == TERN_ERROR_DEVICE_LOST) check_latched();
    end_life();
    if (!call[0]) (void)snprintf(call, sizeof call, "%s", stand_in->failed_name()); /* it failed in the end */
    check_nothing_left(number, call, complaints);
    return call[0];
}

static void fail_every_call(uint32_t result, bool cached, const char *way)
{
    uint64_t number = 1;
    for (bool failed = true; failed; number++) {
        if (!cached) clear_cache();
        failed = fail_once(number, result, cached);
    }
    stand_in->fail_call(0, 0, false);
    print_message("    %s: %llu calls failed with 0x%x\n", way, (unsigned long long)number - 2, result);
    assert_true(number > 60);
}

static void test_every_call_fails_once(void **state)
{
    (void)state;
    static const uint32_t results[] = {RESULT_LOST, RESULT_HOST_MEMORY, RESULT_DEVICE_MEMORY, 0x7ffffffe};
    need_both();
    TEST_OK(live()); /* the cache is full now */
    end_life();
    for (size_t i = 0; i < sizeof results / sizeof *results; i++) fail_every_call(results[i], true, "cached");
    fail_every_call(RESULT_LOST, false, "compiled");
    (void)setenv("TERN_STANDIN_ZE_IMMEDIATE_ONLY", "1", 1);
    fail_every_call(RESULT_LOST, true, "immediate lists");
    (void)unsetenv("TERN_STANDIN_ZE_IMMEDIATE_ONLY");
    TEST_OK(live()); /* and all is well again */
    end_life();
}

static tern_status entry_create(void)
{
    tern_backend_buffer *buffer = NULL;
    const tern_status status = backend->buffer_create(scenario.device, 64, TERN_BUFFER_DEVICE, &buffer);
    backend->buffer_destroy(scenario.device, buffer);
    return status;
}

static tern_status entry_write(void)
{
    const uint32_t word = 7;
    return backend->buffer_write(scenario.device, scenario.x, 0, &word, sizeof word);
}

static tern_status entry_read(void)
{
    uint32_t word = 0;
    return backend->buffer_read(scenario.device, scenario.x, 0, &word, sizeof word);
}

static tern_status entry_submit(void)
{
    uint64_t ticket = 0;
    return backend->program_submit(scenario.device, scenario.program, &ticket);
}

/* Each entry with each of its calls failing: what it had begun has ended when it says that it failed, since the caller
 * may free or reuse its memory then, and the next transfer the device's. */
static void fail_entries(void)
{
    static const struct {
        const char *name;
        tern_status (*call)(void);
    } entries[] = {{"create", entry_create}, {"write", entry_write}, {"read", entry_read}, {"submit", entry_submit}};
    const uint64_t complaints = stand_in->complaints();
    stand_in->fail_call(0, 0, false);
    TEST_OK(live());
    for (size_t e = 0; e < sizeof entries / sizeof *entries; e++)
        for (uint64_t call = 1;; call++) {
            stand_in->fail_call(call, 0x7ffffffe, false);
            const tern_status status = entries[e].call();
            const bool failed = *stand_in->failed_name();
            if (status < 0 && stand_in->pending())
                fail_msg("%s: %s failed, and %llu commands still run", entries[e].name, stand_in->failed_name(),
                         (unsigned long long)stand_in->pending());
            stand_in->fail_call(0, 0, false);
            if (!failed) break;
        }
    end_life();
    check_nothing_left(0, "entries that failed", complaints);
}

static void test_what_failed_runs_no_more(void **state)
{
    (void)state;
    need_both();
    fail_entries();
    (void)setenv("TERN_STANDIN_ZE_IMMEDIATE_ONLY", "1", 1);
    fail_entries();
    (void)unsetenv("TERN_STANDIN_ZE_IMMEDIATE_ONLY");
}

static void test_lost_for_good(void **state)
{
    (void)state;
    need_both();
    uint64_t calls = 0;
    stand_in->fail_call(0, 0, false);
    TEST_OK(live());
    end_life();
    calls = stand_in->fail_call(0, 0, false);
    for (uint64_t number = 1; number <= calls; number++) {
        const uint64_t complaints = stand_in->complaints();
        stand_in->fail_call(number, RESULT_LOST, true);
        const tern_status status = live();
        if (status == TERN_OK && !is_optional(stand_in->failed_name()) && *stand_in->failed_name())
            fail_msg("lost since %s, and nobody noticed", stand_in->failed_name());
        end_life();
        stand_in->fail_call(0, 0, false);
        check_nothing_left(number, "a lost device", complaints);
    }
}

/* -------------------------------------------------------------------- hang */

static uint64_t now_ns(void)
{
    struct timespec time;
    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * SECOND_NS + (uint64_t)time.tv_nsec;
}

static void test_hang(void **state)
{
    (void)state;
    need_both();
    uint64_t ticket = 0;
    TEST_OK(live());
    (void)setenv("TERN_STANDIN_ZE_HANG", "1", 1);
    TEST_OK(backend->program_submit(scenario.device, scenario.program, &ticket));
    const uint64_t start = now_ns();
    TEST_ERROR(backend->wait(scenario.device, ticket, SECOND_NS / 2), TERN_ERROR_TIMEOUT, "0.5");
    assert_true(now_ns() - start < 5 * SECOND_NS);
    (void)unsetenv("TERN_STANDIN_ZE_HANG");
    TEST_OK(backend->wait(scenario.device, ticket, 60 * SECOND_NS)); /* it was only slow */
    end_life();
    check_nothing_left(0, "a device that hung", stand_in->complaints());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_absence, end_test),
        cmocka_unit_test_teardown(test_every_call_fails_once, end_test),
        cmocka_unit_test_teardown(test_what_failed_runs_no_more, end_test),
        cmocka_unit_test_teardown(test_lost_for_good, end_test),
        cmocka_unit_test_teardown(test_hang, end_test),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
