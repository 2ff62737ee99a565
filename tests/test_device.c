/* SPDX-License-Identifier: Apache-2.0 */
/* test_device.c - plug-ins found and refused, devices named, `auto`, hints. Runs on the null backend and on stand-ins,
 * so that nothing depends on the machine; what needs another environment runs in a child. */
#include "tests/test.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/null/null.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "core/device/device.h"
#include "core/device/hints.h"
#include "core/device/plugin.h"
#include "core/device/registry.h"

#define PLUGINS TERN_BINARY_DIR "/tests/plugins"

static char logged[4096];

static void keep_log(void *context, int32_t level, const char *message)
{
    (void)context;
    (void)level;
    size_t used = strlen(logged);
    snprintf(logged + used, sizeof logged - used, "%s\n", message);
}

static const tern_null_hooks *null_hooks_now(void)
{
    const tern_backend *backend = NULL;
    TEST_OK(tern_registry_get("null", &backend));
    return tern_null_hooks_of(backend);
}

static int reset(void **state)
{
    (void)state;
    null_hooks_now()->reset();
    logged[0] = 0;
    return 0;
}

/* ---------------------------------------------------------------- plug-ins */

static void test_faulty_plugins(void **state)
{
    (void)state;
    const tern_backend *backend = NULL;
    char versions[80];
    snprintf(versions, sizeof versions, "was built for plug-in version %u, this tern has version %u",
             TERN_BACKEND_ABI + 1, TERN_BACKEND_ABI);
    TEST_ERROR(tern_plugin_find("wrong_abi", &backend), TERN_ERROR_DRIVER, versions);
    TEST_ERROR(tern_plugin_find("incomplete", &backend), TERN_ERROR_DRIVER, "lacks a required function");
    TEST_ERROR(tern_plugin_find("no_entry", &backend), TERN_ERROR_DRIVER, "is not a tern plug-in");
    TEST_ERROR(tern_plugin_find("absent", &backend), TERN_ERROR_NOT_FOUND, PLUGINS);
    assert_null(backend);
}

static void test_current_directory_is_never_searched(void **state)
{
    (void)state;
    char before[4096];
    const tern_backend *backend = NULL;
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(PLUGINS), 0);
    assert_int_equal(setenv("TERN_BACKEND_PATH", ".:plugins::", 1), 0);
    tern_status status = tern_plugin_find("wrong_abi", &backend);
    assert_int_equal(setenv("TERN_BACKEND_PATH", PLUGINS, 1), 0);
    assert_int_equal(chdir(before), 0);
    assert_int_equal(status, TERN_ERROR_NOT_FOUND);
    assert_non_null(strstr(logged, "\".\" is not an absolute path and is ignored"));
    assert_non_null(strstr(logged, "\"plugins\" is not an absolute path"));
}

/* Six backends are searched for in one bad path. */
static void test_a_relative_folder_is_complained_of_once(void **state)
{
    (void)state;
    const tern_backend *backend = NULL;
    assert_int_equal(setenv("TERN_BACKEND_PATH", "here", 1), 0);
    for (int i = 0; i < 3; i++) assert_int_equal(tern_plugin_find("absent", &backend), TERN_ERROR_NOT_FOUND);
    assert_int_equal(setenv("TERN_BACKEND_PATH", PLUGINS, 1), 0);
    const char *first = strstr(logged, "\"here\" is not an absolute path");
    assert_non_null(first);
    assert_null(strstr(first + 1, "\"here\" is not"));
}

/* In a child: libtern by a relative path, then another current directory; 0 if its plug-ins are found. */
static int child_loads_library_by_relative_path(void)
{
    tern_status (*open_device)(const char *name, tern_device **out_device);
    tern_device *device = NULL;
    unsetenv("TERN_BACKEND_PATH");
    if (chdir(TERN_BINARY_DIR) != 0) return 2;
    void *library = dlopen("lib/libtern.so", RTLD_NOW | RTLD_LOCAL);
    void *symbol = library ? dlsym(library, "tern_device_open") : NULL;
    if (!symbol || chdir("/") != 0) return 3;
    memcpy(&open_device, &symbol, sizeof open_device);
    return open_device("null", &device) == TERN_OK ? 0 : 4;
}

static void test_library_by_relative_path(void **state)
{
    (void)state;
    int result = 0;
    const pid_t child = fork();
    if (child == 0) _exit(child_loads_library_by_relative_path());
    assert_true(child > 0 && waitpid(child, &result, 0) == child && WIFEXITED(result));
    assert_int_equal(WEXITSTATUS(result), 0);
}

static void test_unknown_backend(void **state)
{
    (void)state;
    tern_device *device = (tern_device *)8;
    TEST_ERROR(tern_device_open("metal:0", &device), TERN_ERROR_NOT_FOUND,
               "there is no backend \"metal\"; choose auto, cuda, level_zero, vulkan, opencl, cpu, null");
    assert_null(device);
    TEST_ERROR(tern_device_open("", &device), TERN_ERROR_NOT_FOUND, "there is no backend \"\"");
    TEST_ERROR(tern_device_open(NULL, &device), TERN_ERROR_INVALID, "name is NULL");
    TEST_ERROR(tern_device_open("cpu", NULL), TERN_ERROR_INVALID, "out_device is NULL");
}

static void test_backends_are_listed_in_the_order_of_auto(void **state)
{
    (void)state;
    static const char *const order[] = {"cuda", "level_zero", "vulkan", "opencl", "cpu", "null"};
    uint32_t count = 0;
    const tern_backend_entry *entries = tern_backends(&count);
    assert_int_equal(count, sizeof order / sizeof *order);
    for (uint32_t i = 0; i < count; i++) {
        assert_string_equal(entries[i].name, order[i]);
        if (entries[i].status < 0 || entries[i].device_count == 0) assert_true(strlen(entries[i].message) > 10);
    }
    assert_int_equal(entries[1].device_count, 2); /* the stand-in */
    assert_int_equal(entries[5].status, TERN_OK);
}

/* -------------------------------------------------------------------- auto */

static void test_auto_takes_the_discrete_gpu(void **state)
{
    (void)state;
    tern_device *device = NULL;
    const tern_backend *cuda = NULL;
    if (tern_registry_get("cuda", &cuda) == TERN_OK) TEST_SKIP("a CUDA plug-in is here and comes before the stand-in");
    TEST_OK(tern_device_open("auto", &device));
    assert_string_equal(tern_device_name(device), "level_zero: stand-in discrete");
    assert_non_null(strstr(logged, "auto chose level_zero: stand-in discrete"));
    tern_device_close(device);
    TEST_OK(tern_device_open("level_zero", &device)); /* the bare name: the same choice */
    assert_string_equal(tern_device_name(device), "level_zero: stand-in discrete");
    tern_device_close(device);
    TEST_OK(tern_device_open("level_zero:0", &device));
    assert_string_equal(tern_device_name(device), "level_zero: stand-in integrated");
    tern_device_close(device);
}

/* In a child without the stand-in, before any driver has been started: 0 if `auto` gave the CPU or a real GPU. */
static int child_opens_auto(void)
{
    tern_device *device = NULL;
    unsetenv("TERN_BACKEND_PATH");
    if (tern_device_open("auto", &device) < 0) {
        fprintf(stderr, "auto: %s\n", tern_error_message());
        return 2;
    }
    const tern_device_kind kind = device->info.kind;
    const bool said = strstr(logged, "auto chose ") && strstr(logged, tern_device_name(device));
    tern_device_close(device);
    if (!said) return 3;
    return kind == TERN_DEVICE_CPU || kind >= TERN_DEVICE_INTEGRATED_GPU ? 0 : 4;
}

static int auto_code; /* of that child, run by main */

static void test_auto_never_takes_a_software_gpu(void **state)
{
    (void)state;
    assert_int_equal(auto_code, 0);
}

/* ------------------------------------------------------------------- names */

static void set_three_devices(void)
{
    static const struct {
        const char *name, *uuid, *pci;
        tern_device_kind kind;
    } cards[] = {
        {"Arc A770 Graphics", "00000000-1111-2222-3333-44444444aaaa", "0000:03:00.0", TERN_DEVICE_INTEGRATED_GPU},
        {"GeForce RTX 3090", "00000000-1111-2222-3333-44444444bbbb", "0000:04:00.0", TERN_DEVICE_DISCRETE_GPU},
        {"Arc A770 Graphics", "00000000-1111-2222-3333-44444444aaaa", "0000:03:00.0", TERN_DEVICE_INTEGRATED_GPU},
        {"Arc A380 Graphics", "", "0001:03:00.0", TERN_DEVICE_DISCRETE_GPU},
    };
    tern_null_device settings;
    null_hooks_now()->get_device(&settings);
    settings.count = 4;
    for (int i = 0; i < 4; i++) {
        snprintf(settings.info[i].name, sizeof settings.info[i].name, "%s", cards[i].name);
        snprintf(settings.info[i].uuid, sizeof settings.info[i].uuid, "%s", cards[i].uuid);
        snprintf(settings.info[i].pci, sizeof settings.info[i].pci, "%s", cards[i].pci);
        settings.info[i].kind = cards[i].kind;
    }
    null_hooks_now()->set_device(&settings);
}

static void test_names(void **state)
{
    (void)state;
    static const struct {
        const char *name, *title;
    } good[] = {
        {"null:0", "null: Arc A770 Graphics"},
        {"null:1", "null: GeForce RTX 3090"},
        {"null:2", "null: Arc A380 Graphics"},
        {"null:a770", "null: Arc A770 Graphics"},
        {"null:3090", "null: GeForce RTX 3090"},
        {"null:0000:04:00.0", "null: GeForce RTX 3090"},
        {"null:03:00.0", "null: Arc A770 Graphics"},
        {"null:0001:03:00.0", "null: Arc A380 Graphics"},
        {"null:00000000-1111-2222-3333-44444444BBBB", "null: GeForce RTX 3090"},
        {"null:0000000011112222333344444444bbbb", "null: GeForce RTX 3090"},
        {"null", "null: GeForce RTX 3090"}, /* the first discrete one */
    };
    static const struct {
        const char *name, *part;
    } bad[] = {
        {"null:3", "null has no device \"3\"; it has 0: Arc A770 Graphics, 1: GeForce RTX 3090, 2: Arc A380 Graphics;"},
        {"null:titan", "null has no device \"titan\"; it has 0: Arc"},
        {"null:", "null has no device \"\""},
        {"null:arc", "\"arc\" fits 2 devices of null; name one by its number: 0: Arc"},
        {"null:99999999999999999999999", "null has no device \"99999"},
    };
    tern_device *device = NULL;
    set_three_devices();
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        TEST_OK(tern_device_open(good[i].name, &device));
        assert_string_equal(tern_device_name(device), good[i].title);
        tern_device_close(device);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        TEST_ERROR(tern_device_open(bad[i].name, &device), TERN_ERROR_NOT_FOUND, bad[i].part);
        assert_null(device);
    }
}

static void test_one_card_twice_is_one_device(void **state)
{
    (void)state;
    const tern_backend *backend = NULL;
    tern_device_listing *list = NULL;
    uint32_t count = 0;
    set_three_devices();
    TEST_OK(tern_registry_get("null", &backend));
    TEST_OK(tern_device_list(backend, &list, &count));
    assert_int_equal(count, 3);
    assert_int_equal(list[1].index, 1);
    assert_int_equal(list[2].index, 3); /* the plug-in's number */
    free(list);
}

static void test_no_device(void **state)
{
    (void)state;
    tern_null_device settings;
    tern_device *device = NULL;
    null_hooks_now()->get_device(&settings);
    settings.count = 0;
    null_hooks_now()->set_device(&settings);
    TEST_ERROR(tern_device_open("null", &device), TERN_ERROR_NOT_FOUND,
               "null has no device: the null driver was told to have no device");
    TEST_ERROR(tern_device_open("null:0", &device), TERN_ERROR_NOT_FOUND, "null has no device");
}

static void test_failing_driver(void **state)
{
    (void)state;
    static const char *const entries[] = {"device_count", "device_info",
                                          "device_info"}; /* open asks for the info itself */
    tern_device *device = NULL;
    tern_null_counts counts;
    for (uint64_t n = 1; n <= 3; n++) {
        null_hooks_now()->fail_call(n, TERN_ERROR_TIMEOUT);
        TEST_ERROR(tern_device_open("null", &device), TERN_ERROR_TIMEOUT, entries[n - 1]);
        assert_null(device);
    }
    TEST_OK(tern_device_open("null", &device));
    tern_device_close(device);
    tern_device_close(NULL);
    null_hooks_now()->counts(&counts);
    assert_int_equal(counts.devices, 0);
}

static void test_threads_are_in_the_title(void **state)
{
    (void)state;
    tern_device *device = NULL;
    tern_null_device settings;
    const tern_open_options options = {.threads = 3};
    null_hooks_now()->get_device(&settings);
    settings.info[0].kind = TERN_DEVICE_CPU;
    null_hooks_now()->set_device(&settings);
    TEST_OK(tern_device_open_with("null:0", &options, &device));
    assert_string_equal(tern_device_name(device), "null: null (3 threads)");
    tern_device_close(device);
}

static void test_paper_device(void **state)
{
    (void)state;
    tern_device *device = NULL;
    TEST_OK(tern_device_open_paper("rtx-4090", &device));
    assert_string_equal(tern_device_name(device), "on paper: rtx-4090");
    assert_true(device->info.memory_bytes > 20ull << 30 && device->info.memory_bytes <= 24ull << 30);
    tern_device_close(device);
    TEST_ERROR(tern_device_open_paper("voodoo-2", &device), TERN_ERROR_NOT_FOUND, "voodoo-2");
    assert_null(device);
}

/* ---------------------------------------------------- drivers and the command */

/* Standard output and error of a command, which must exit with `code`. */
static void run_command(const char *command, int code, char *text, size_t bytes)
{
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t used = fread(text, 1, bytes - 1, pipe);
    text[used] = 0;
    int result = pclose(pipe);
    if (!WIFEXITED(result) || WEXITSTATUS(result) != code)
        fail_msg("%s: exit %d, wanted %d: %s", command, WEXITSTATUS(result), code, text);
}

static void test_missing_drivers_have_a_sentence(void **state)
{
    (void)state;
    static char text[65536];
    run_command("env -u TERN_BACKEND_PATH VK_ICD_FILENAMES=/nonexistent VK_DRIVER_FILES=/nonexistent "
                "OCL_ICD_VENDORS=/nonexistent"
                " " TERN_BINARY_DIR "/bin/tern devices --all 2>&1",
                0, text, sizeof text);
    static const char *const lines[] = {
        "cuda: not usable: ", "level_zero: not usable: ", "vulkan: not usable: ", "opencl: not usable: "};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        const char *line = strstr(text, lines[i]);
        if (!line) fail_msg("no line \"%s\" in: %s", lines[i], text);
        const char *end = strchr(line, '\n');
        assert_true(end && end - line > (long)strlen(lines[i]) + 20);
    }
    assert_non_null(strstr(text, "null\n  0: null (software GPU)\n"));
}

static void test_command(void **state)
{
    (void)state;
    static char text[65536];
    run_command(TERN_BINARY_DIR "/bin/tern --version 2>&1", 0, text, sizeof text);
    assert_string_equal(text, "tern 0.1.0\n");
    run_command(TERN_BINARY_DIR "/bin/tern fly 2>&1", 2, text, sizeof text);
    assert_memory_equal(text, "tern: there is no command \"fly\"; the commands are devices", 57);
    run_command(TERN_BINARY_DIR "/bin/tern help devices 2>&1", 0, text, sizeof text);
    assert_non_null(strstr(text, "Usage: tern devices [options]"));
    run_command(TERN_BINARY_DIR "/bin/tern devices --color 2>&1", 2, text, sizeof text);
    assert_non_null(strstr(text, "tern: devices: there is no option \"--color\""));
    run_command(TERN_BINARY_DIR "/bin/tern devices now 2>&1", 2, text, sizeof text);
    assert_non_null(strstr(text, "\"now\" is not an option"));
    run_command(TERN_BINARY_DIR "/bin/tern devices --all --json 2>/dev/null", 0, text, sizeof text);
    assert_non_null(strstr(text, "\"backends\":"));
    assert_non_null(strstr(text, "\"name\":\t\"null\""));
    run_command(TERN_BINARY_DIR "/bin/tern devices --all 2>&1 >/dev/full", 1, text, sizeof text);
    assert_non_null(strstr(text, "could not be written"));
}

/* ------------------------------------------------------------------- hints */

static void test_hints(void **state)
{
    (void)state;
    char root[] = "/tmp/tern-hints-XXXXXX", path[256], text[512];
    tern_device_info card = {
        .name = "Arc A770", .pci = "0000:03:00.0", .kind = TERN_DEVICE_DISCRETE_GPU, .memory_bytes = 16ull << 30};
    static const char small[] = "0x00000000a0000000 0x00000000a0ffffff 0x0000000000140204\n0x0000000090000000 "
                                "0x000000009fffffff 0x000000000014220c\n";
    static const char large[] = "0x0000004000000000 0x00000043ffffffff 0x000000000014220c\n";
    assert_non_null(mkdtemp(root));
    assert_false(tern_hint_render_node(root, text, sizeof text));
    assert_false(tern_hint_small_bar(root, &card, text, sizeof text));

    snprintf(path, sizeof path, "%s/sys/bus/pci/devices/0000:03:00.0", root);
    TEST_OK(tern_directory_create(path));
    snprintf(path, sizeof path, "%s/sys/bus/pci/devices/0000:03:00.0/resource", root);
    TEST_OK(tern_file_write(path, small, sizeof small - 1));
    assert_true(tern_hint_small_bar(root, &card, text, sizeof text));
    assert_non_null(strstr(text, "Arc A770: the CPU sees 256 MiB of its 16384 MiB; turn on Resizable BAR"));
    card.kind = TERN_DEVICE_INTEGRATED_GPU;
    assert_false(tern_hint_small_bar(root, &card, text, sizeof text));
    card.kind = TERN_DEVICE_DISCRETE_GPU;
    TEST_OK(tern_file_write(path, large, sizeof large - 1));
    assert_false(tern_hint_small_bar(root, &card, text, sizeof text));

    snprintf(path, sizeof path, "%s/dev/dri", root);
    TEST_OK(tern_directory_create(path));
    snprintf(path, sizeof path, "%s/dev/dri/renderD128", root);
    TEST_OK(tern_file_write(path, "", 0));
    assert_false(tern_hint_render_node(root, text, sizeof text)); /* ours to use */
    assert_int_equal(chmod(path, 0), 0);
    const bool hinted = tern_hint_render_node(root, text, sizeof text);
    if (geteuid() == 0) /* root may open everything */
        assert_false(hinted);
    else
        assert_true(hinted && strstr(text, "renderD128 is there, but you may not use it: run `sudo usermod -aG "));
    snprintf(text, sizeof text, "rm -r '%s'", root);
    assert_int_equal(system(text), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_faulty_plugins, reset),
        cmocka_unit_test_setup(test_current_directory_is_never_searched, reset),
        cmocka_unit_test_setup(test_a_relative_folder_is_complained_of_once, reset),
        cmocka_unit_test_setup(test_library_by_relative_path, reset),
        cmocka_unit_test_setup(test_unknown_backend, reset),
        cmocka_unit_test_setup(test_auto_takes_the_discrete_gpu, reset),
        cmocka_unit_test_setup(test_auto_never_takes_a_software_gpu, reset),
        cmocka_unit_test_setup(test_backends_are_listed_in_the_order_of_auto, reset),
        cmocka_unit_test_setup(test_names, reset),
        cmocka_unit_test_setup(test_one_card_twice_is_one_device, reset),
        cmocka_unit_test_setup(test_no_device, reset),
        cmocka_unit_test_setup(test_failing_driver, reset),
        cmocka_unit_test_setup(test_threads_are_in_the_title, reset),
        cmocka_unit_test_setup(test_paper_device, reset),
        cmocka_unit_test_setup(test_missing_drivers_have_a_sentence, reset),
        cmocka_unit_test_setup(test_command, reset),
        cmocka_unit_test_setup(test_hints, reset),
    };
    tern_log_set(keep_log, NULL);
    pid_t child = fork();
    if (child == 0) _exit(child_opens_auto());
    int result = 0;
    auto_code = child > 0 && waitpid(child, &result, 0) == child && WIFEXITED(result) ? WEXITSTATUS(result) : -1;
    setenv("TERN_BACKEND_PATH", PLUGINS, 1);
    return cmocka_run_group_tests_name("device", tests, NULL, NULL);
}
