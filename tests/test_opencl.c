/* SPDX-License-Identifier: Apache-2.0 */
/* test_opencl.c - what only the OpenCL plug-in has: loaders without drivers, PoCL's limits, the disk cache, failing
 * calls.
 *
 * What a driver reads from the environment at its start is tested in children: this program runs itself with a mode as
 * argument. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/device/device.h"
#include "core/device/registry.h"
#include "tests/opencl_scenario.h"
#include "tests/test.h"

static char folder[256]; /* this run's own cache, removed at the end */

/* ---------------------------------------------------------------- children */

/* What a child says: its status, then what the mode prints, or the error sentence. */
typedef struct answer {
    int status;
    char text[4096];
} answer;

static int child_devices(const tern_backend *backend)
{
    uint32_t count = 0;
    const tern_status status = backend->device_count(&count);
    if (status == TERN_OK && count == 0) printf("%d 0 devices: %s\n", status, tern_error_message());
    for (uint32_t i = 0; i < count; i++) {
        opencl_scenario s = {.backend = backend};
        const tern_status ran = opencl_scenario_run(&s, i, false);
        opencl_scenario_end(&s);
        if (ran < 0) return printf("%d device %u of %u: %s\n", ran, i, count, tern_error_message()), 0;
    }
    tern_backend_device *device = NULL;
    const tern_status beyond = backend->open(count, NULL, &device);
    if (count) printf("%d %u devices ran; one more: %d %s\n", status, count, beyond, tern_error_message());
    return 0;
}

/* Allocation limits: one byte too many, exactly enough, and buffers until the device is full. */
static int child_limits(const tern_backend *backend)
{
    enum { MOST = 64 };
    tern_device_info info;
    tern_backend_device *device = NULL;
    tern_backend_buffer *buffers[MOST] = {NULL};
    char refused[1024];
    uint32_t count = 0;
    tern_status status;
    TERN_TRY(backend->device_info(0, &info));
    TERN_TRY(backend->open(0, NULL, &device));
    const tern_status large =
        backend->buffer_create(device, info.max_allocation_bytes + 1, TERN_BUFFER_DEVICE, &buffers[0]);
    snprintf(refused, sizeof refused, "%d %s", large, tern_error_message());
    while (count < MOST && (status = backend->buffer_create(device, info.max_allocation_bytes, TERN_BUFFER_DEVICE,
                                                            &buffers[count])) >= 0)
        count++;
    printf("0 memory %llu allocation %llu; %s; %u fit, then %d %s\n", (unsigned long long)info.memory_bytes,
           (unsigned long long)info.max_allocation_bytes, refused, count, status, tern_error_message());
    for (uint32_t i = 0; i < count; i++) backend->buffer_destroy(device, buffers[i]);
    backend->close(device);
    return 0;
fail:
    printf("%d %s\n", status, tern_error_message());
    return 0;
}

static int child_cache(const tern_backend *backend)
{
    tern_opencl_counts counts;
    opencl_scenario s = {.backend = backend};
    const tern_status status = opencl_scenario_run(&s, 0, false);
    if (status < 0)
        printf("%d %s\n", status, tern_error_message());
    else if (!opencl_counts(backend, &counts))
        printf("-13 no hooks\n");
    else
        printf("0 builds %llu hits %llu\n", (unsigned long long)counts.builds, (unsigned long long)counts.cache_hits);
    opencl_scenario_end(&s);
    return 0;
}

static int child_main(const char *mode)
{
    const tern_backend *backend = NULL;
    const tern_status status = tern_registry_get("opencl", &backend);
    if (status < 0) return printf("%d %s\n", status, tern_error_message()), 0;
    if (strcmp(mode, "devices") == 0) return child_devices(backend);
    if (strcmp(mode, "limits") == 0) return child_limits(backend);
    return child_cache(backend);
}

/* Runs this program in `mode` with variables set ("NAME=value") or removed ("NAME"). */
static answer child_run(const char *mode, const char *const *environment, size_t count)
{
    answer result = {0};
    int ends[2], code = 0;
    size_t used = 0;
    ssize_t got;
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        for (size_t i = 0; i < count; i++) {
            char *text = strdup(environment[i]);
            if (!text || (strchr(text, '=') ? putenv(text) : unsetenv(text)) != 0) _exit(126);
        }
        alarm(120);
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        execl("/proc/self/exe", "test_opencl", mode, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    while ((got = read(ends[0], result.text + used, sizeof result.text - 1 - used)) > 0) used += (size_t)got;
    close(ends[0]);
    assert_int_equal(waitpid(child, &code, 0), child);
    if (!WIFEXITED(code) || WEXITSTATUS(code) != 0)
        fail_msg("child \"%s\": wait status 0x%x, said: %s", mode, (unsigned)code, result.text);
    result.status = atoi(result.text);
    return result;
}

#define CHILD(mode, ...)                                                                                               \
    child_run(mode, (const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

static void expect_part(const answer *a, const char *part)
{
    if (!strstr(a->text, part)) fail_msg("\"%s\" is not in: %s", part, a->text);
}

/* --------------------------------------------------------------- no driver */

static void no_icd_says_what_to_install(void **state)
{
    (void)state;
    const answer a = CHILD("devices", "OCL_ICD_VENDORS=/nonexistent");
    assert_int_equal(a.status, TERN_ERROR_NOT_FOUND);
    expect_part(&a, "pocl-opencl-icd");
    expect_part(&a, "OCL_ICD_VENDORS");
}

static void no_loader_says_what_to_install(void **state)
{
    (void)state;
    char path[512], variable[512];
    snprintf(path, sizeof path, "%s/libOpenCL.so.1", folder);
    TEST_OK(tern_file_write(path, "not a library", 13));
    snprintf(variable, sizeof variable, "LD_LIBRARY_PATH=%s", folder);
    const answer a = CHILD("devices", variable);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(a.status, TERN_ERROR_NOT_FOUND);
    expect_part(&a, "ocl-icd-libopencl1");
}

/* ------------------------------------------------------------ PoCL's knobs */

static void skip_without_device(const tern_backend *backend, tern_device_info *out_info)
{
    uint32_t count = 0;
    if (!backend) TEST_SKIP("no OpenCL device: %s", tern_error_message());
    TEST_OK(backend->device_count(&count));
    if (count == 0) TEST_SKIP("no OpenCL device: %s", tern_error_message());
    TEST_OK(backend->device_info(0, out_info));
}

static bool is_pocl(const tern_device_info *info) { return strstr(info->driver, "Portable Computing Language"); }

/* Failing calls too: rusticl starts nothing that was not flushed, so a failed clFlush shows only as lost progress. */
static void skip_without_pocl(const tern_backend *backend)
{
    tern_device_info info;
    skip_without_device(backend, &info);
    if (!is_pocl(&info)) TEST_SKIP("the first device is not PoCL's but %s", info.name);
}

/* PoCL's work-items are turns of a loop, whatever sub-group sizes it takes; rusticl's are lanes of a vector. */
static void lanes_are_the_hardware_s(void **state)
{
    tern_device_info info;
    skip_without_device(*state, &info);
    if (!is_pocl(&info) && !strstr(info.driver, "rusticl"))
        TEST_SKIP("what %s does with work-items is not known here", info.driver);
    assert_int_equal(info.subgroup_min, info.subgroup_max);
    assert_int_equal(info.features & TERN_FEATURE_SUBGROUPS, 0);
    if (is_pocl(&info))
        assert_int_equal(info.subgroup_max, 1);
    else
        assert_true(info.subgroup_max >= 4);
}

static void three_devices_are_three(void **state)
{
    skip_without_pocl(*state);
    const answer a = CHILD("devices", "POCL_DEVICES=pthread basic pthread");
    assert_int_equal(a.status, 0);
    expect_part(&a, "3 devices ran");
    expect_part(&a, "one more: -5"); /* TERN_ERROR_NOT_FOUND */
}

static void limits_are_refused_with_values(void **state)
{
    skip_without_pocl(*state);
    const answer a = CHILD("limits", "POCL_MEMORY_LIMIT=1");
    unsigned long long memory = 0, allocation = 0;
    char number[32];
    assert_int_equal(a.status, 0);
    assert_int_equal(sscanf(a.text, "0 memory %llu allocation %llu", &memory, &allocation), 2);
    assert_int_equal(memory, 1ull << 30);
    assert_int_equal(allocation, 256ull << 20);
    snprintf(number, sizeof number, "%llu bytes asked for", allocation + 1);
    expect_part(&a, number);
    expect_part(&a, "268435456 (CL_DEVICE_MAX_MEM_ALLOC_SIZE)");
    expect_part(&a, "4 fit, then -3"); /* TERN_ERROR_DEVICE_MEMORY */
    expect_part(&a, "0 of 1073741824 free");
}

/* PoCL refuses to start where it cannot keep its compiled kernels; the plug-in gives it a place. */
static void an_unusable_home_is_no_obstacle(void **state)
{
    char variable[512];
    skip_without_pocl(*state);
    snprintf(variable, sizeof variable, "TMPDIR=%s", folder);
    const answer a = CHILD("devices", "HOME=/nonexistent", "XDG_CACHE_HOME", "POCL_CACHE_DIR", variable);
    assert_int_equal(a.status, 0);
    expect_part(&a, "devices ran");
}

/* ------------------------------------------------------------------- cache */

/* The one file in the plug-in's cache below `folder`. */
static void cache_file(char *path, size_t bytes)
{
    char command[600];
    snprintf(command, sizeof command, "ls %s/tern/opencl/binary-*", folder);
    FILE *list = popen(command, "r");
    assert_non_null(list);
    assert_non_null(fgets(path, (int)bytes, list));
    pclose(list);
    path[strcspn(path, "\n")] = 0;
}

static void cache_clear(void)
{
    char command[600];
    snprintf(command, sizeof command, "rm -rf %s/tern", folder);
    assert_int_equal(system(command), 0);
}

static void expect_cache(const char *expected)
{
    const answer a = CHILD("cache");
    assert_int_equal(a.status, 0);
    expect_part(&a, expected);
}

static void the_cache_is_used_and_never_trusted(void **state)
{
    char path[512], *data;
    size_t bytes;
    tern_device_info info;
    skip_without_device(*state, &info);
    cache_clear();
    expect_cache("builds 1 hits 0");
    expect_cache("builds 0 hits 1");
    cache_file(path, sizeof path);
    TEST_OK(tern_file_read(path, 0, &data, &bytes));
    assert_true(bytes > 64);
    for (uint32_t damage = 0; damage < 5; damage++) {
        char *broken = malloc(bytes + 1);
        size_t length = bytes;
        assert_non_null(broken);
        memcpy(broken, data, bytes);
        if (damage == 0)
            broken[bytes / 2] ^= 0x10; /* the binary */
        else if (damage == 1)
            broken[0] ^= 1; /* the magic */
        else if (damage == 2)
            broken[9] ^= 1; /* the key */
        else if (damage == 3)
            length = bytes / 2; /* cut short */
        else
            length = 0; /* empty */
        TEST_OK(tern_file_write(path, broken, length));
        free(broken);
        expect_cache("builds 1 hits 0");
        expect_cache("builds 0 hits 1"); /* written again */
    }
    free(data);
}

/* ------------------------------------------------------------------ faults */

/* Fails where a call may fail without harm: the cache is optional. */
static bool is_optional(const char *call, bool cached)
{
    return strcmp(call, "clGetProgramInfo") == 0 || strcmp(call, "clCreateProgramWithBinary") == 0 ||
           (cached && strcmp(call, "clBuildProgram") == 0);
}

static void expect_latched(opencl_scenario *s)
{
    tern_backend_buffer *buffer = NULL;
    uint32_t word;
    TEST_ERROR(s->backend->buffer_create(s->device, 64, TERN_BUFFER_DEVICE, &buffer), TERN_ERROR_DEVICE_LOST,
               "open it again");
    if (s->x)
        TEST_ERROR(s->backend->buffer_read(s->device, s->x, 0, &word, 4), TERN_ERROR_DEVICE_LOST, "open it again");
}

static void every_call_fails(const tern_backend *backend, bool cached)
{
    uint32_t lost = 0, refused = 0;
    for (uint32_t n = 1;; n++) {
        tern_opencl_counts counts;
        opencl_scenario s = {.backend = backend};
        char number[16];
        if (!cached) cache_clear();
        snprintf(number, sizeof number, "%u", n);
        setenv("TERN_OPENCL_FAIL_CALL", number, 1);
        const tern_status status = opencl_scenario_run(&s, 0, true);
        assert_true(opencl_counts(backend, &counts));
        const bool fired = counts.failed_call != NULL;
        if (fired && status == TERN_OK && !is_optional(counts.failed_call, cached))
            fail_msg("call %u, %s, failed and nobody noticed", n, counts.failed_call);
        if (!fired && status < 0) fail_msg("nothing failed, but: %s", tern_error_message());
        if (status < 0 &&
            (!strstr(tern_error_message(), counts.failed_call) || !strstr(tern_error_message(), "CL_OUT_OF_RESOURCES")))
            fail_msg("call %u, %s: the sentence is: %s", n, counts.failed_call, tern_error_message());
        if (status < 0 && status != TERN_ERROR_DEVICE_LOST && status != TERN_ERROR_DEVICE_MEMORY)
            fail_msg("call %u, %s: %s", n, counts.failed_call, tern_status_name(status));
        if (status == TERN_ERROR_DEVICE_LOST) expect_latched(&s);
        lost += status == TERN_ERROR_DEVICE_LOST;
        refused += status == TERN_ERROR_DEVICE_MEMORY;
        unsetenv("TERN_OPENCL_FAIL_CALL");
        opencl_scenario_end(&s);
        assert_true(opencl_counts(backend, &counts));
        if (counts.objects != 0) fail_msg("call %u: %lld objects are left", n, (long long)counts.objects);
        if (!fired) break;
    }
    /* How many calls a life makes depends on how often it polls, so a planned failure may still be to come: opening the
     * device again, with none planned, is what takes it back. */
    opencl_scenario calm = {.backend = backend};
    TEST_OK(opencl_scenario_run(&calm, 0, false));
    opencl_scenario_end(&calm);
    print_message("    %u calls refused, %u lost the device\n", refused, lost);
    assert_true(lost > 5 && refused > 20);
}

static void every_driver_call_fails_once(void **state)
{
    skip_without_pocl(*state);
    every_call_fails(*state, false);
    every_call_fails(*state, true);
}

/* The calls of load: the backend may have no device then, but it says so and the process lives. */
static void every_call_of_load_fails_once(void **state)
{
    skip_without_pocl(*state);
    for (uint32_t n = 1; n <= 6; n++) {
        char variable[64];
        snprintf(variable, sizeof variable, "TERN_OPENCL_FAIL_CALL=%u", n);
        const answer a = CHILD("devices", variable);
        if (n == 1) expect_part(&a, "clGetPlatformIDs failed with CL_OUT_OF_RESOURCES");
        if (n == 3) expect_part(&a, "0 devices: the OpenCL platform \"Portable Computing Language\" has no device");
        assert_true(strlen(a.text) > 8);
    }
}

/* ------------------------------------------------------------------ errors */

static void wrong_steps_are_refused(void **state)
{
    skip_without_pocl(*state);
    opencl_scenario s = {.backend = *state};
    TEST_OK(opencl_scenario_run(&s, 0, false));
    const tern_step good = opencl_triple_step(s.kernel, s.x);
    const tern_program_desc desc = {.label = "wrong", .step_count = 1, .steps = (tern_step[1]){good}};
    tern_step *step = (tern_step *)(uintptr_t)desc.steps;
    tern_backend_program *program = NULL;
    const uint32_t self = 0;
#define REFUSED(status, part, ...)                                                                                     \
    do {                                                                                                               \
        *step = good;                                                                                                  \
        __VA_ARGS__;                                                                                                   \
        TEST_ERROR(s.backend->program_create(s.device, &desc, &program), status, part);                                \
        assert_null(program);                                                                                          \
    } while (0)
    REFUSED(TERN_ERROR_INVALID, "4000", step->arguments[0].offset = 4);
    REFUSED(TERN_ERROR_INVALID, "multiple of 4", step->arguments[0].offset = 2, step->arguments[0].bytes = 4);
    REFUSED(TERN_ERROR_INVALID, "no buffer", step->arguments[0].buffer = NULL);
    REFUSED(TERN_ERROR_INVALID, "upload", step->arguments[0].buffer = s.up);
    REFUSED(TERN_ERROR_INVALID, "2 arguments", step->argument_count = 2);
    REFUSED(TERN_ERROR_INVALID, "3 words", step->word_count = 3);
    REFUSED(TERN_ERROR_INVALID, "0 groups on axis 1", step->groups[1] = 0);
    REFUSED(TERN_ERROR_INVALID, "not before", step->wait_count = 1, step->waits = &self);
    const tern_argument first = {s.x, 0, 400, 3}, second = {s.x, 396, 400, 3}, shorter = {s.x, 800, 396, 3};
    REFUSED(TERN_ERROR_INVALID, "overlap", step->kind = TERN_STEP_COPY, step->argument_count = 2,
            step->arguments[0] = first, step->arguments[1] = second);
    REFUSED(TERN_ERROR_INVALID, "equal size", step->kind = TERN_STEP_COPY, step->argument_count = 2,
            step->arguments[0] = first, step->arguments[1] = shorter);
    REFUSED(TERN_ERROR_INVALID, "whole words", step->kind = TERN_STEP_FILL, step->arguments[0].bytes = 6);
#undef REFUSED
    opencl_scenario_end(&s);
}

static void a_text_with_other_arguments_is_refused(void **state)
{
    skip_without_pocl(*state);
    opencl_scenario s = {.backend = *state};
    tern_kernel_desc desc = opencl_triple_desc();
    tern_backend_kernel *kernel = NULL;
    TEST_OK(opencl_scenario_run(&s, 0, false));
    desc.tensor_count = 2;
    desc.tensors[1] = desc.tensors[0];
    TEST_ERROR(s.backend->kernel_create(s.device, &desc, &kernel), TERN_ERROR_KERNEL, "takes 3 arguments");
    assert_null(kernel);
    uint64_t ns[3];
    TEST_ERROR(s.backend->program_times(s.device, s.program, ns), TERN_ERROR_UNSUPPORTED, "timestamps");
    opencl_scenario_end(&s);
}

static int set_up(void **state)
{
    static const tern_backend *backend;
    snprintf(folder, sizeof folder, "%s/tern-opencl-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(folder)) return -1;
    setenv("XDG_CACHE_HOME", folder, 1);
    if (tern_registry_get("opencl", &backend) < 0) backend = NULL;
    *state = (void *)(uintptr_t)backend;
    return 0;
}

static int tear_down(void **state)
{
    char command[600];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

int main(int argc, char **argv)
{
    if (argc > 1) return child_main(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_icd_says_what_to_install),     cmocka_unit_test(no_loader_says_what_to_install),
        cmocka_unit_test(three_devices_are_three),         cmocka_unit_test(limits_are_refused_with_values),
        cmocka_unit_test(an_unusable_home_is_no_obstacle), cmocka_unit_test(the_cache_is_used_and_never_trusted),
        cmocka_unit_test(every_driver_call_fails_once),    cmocka_unit_test(every_call_of_load_fails_once),
        cmocka_unit_test(wrong_steps_are_refused),         cmocka_unit_test(a_text_with_other_arguments_is_refused),
        cmocka_unit_test(lanes_are_the_hardware_s),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
