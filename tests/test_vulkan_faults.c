/* SPDX-License-Identifier: Apache-2.0 */
/* test_vulkan_faults.c - the Vulkan plug-in where something is missing, damaged or fails.
 *
 *     absence   loader, driver, card: each in a child process with an environment of its own, each one clear sentence
 *     caches    found again, ignored when damaged
 *     faults    every Vulkan call of a whole life (load to unload) fails once: right status, nothing left, no hang
 *
 * Leaks are the sanitizer's to find (tests/lsan.supp lists what drivers keep). */
#include "tests/test.h"
#include "tests/vulkan_fixture.h"

#include <dirent.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/base/status.h"

#define COUNT      256u
#define WAIT_NS    60000000000ull
#define ICD_FOLDER "/usr/share/vulkan/icd.d"

extern char **environ;

/* ----------------------------------------------------------------- absence */

/* What a child process checks; 0: right. */
static int child_main(const char *mode)
{
    const vulkan_plugin *plugin = vulkan_plugin_table();
    uint32_t count = 99;
    if (!plugin) return 1;
    const tern_status status = plugin->backend->load();
    const char *sentence = tern_error_message();
    if (strcmp(mode, "no-loader") == 0)
        return status == TERN_ERROR_NOT_FOUND && strstr(sentence, "loader is not there") &&
                       strstr(sentence, "libvulkan1")
                   ? 0
                   : 2;
    if (strcmp(mode, "no-driver") == 0) {
        const bool right = status == TERN_ERROR_NOT_FOUND && strstr(sentence, "VK_ERROR_INCOMPATIBLE_DRIVER") &&
                           strstr(sentence, "install");
        return right && plugin->backend->load() == TERN_ERROR_NOT_FOUND ? 0 : 3; /* may be tried again */
    }
    if (status < 0 || plugin->backend->device_count(&count) < 0) {
        fprintf(stderr, "%s\n", tern_error_message());
        return 4;
    }
    const bool told = strstr(tern_error_message(), "none found a card") != NULL;
    plugin->backend->unload();
    if (strcmp(mode, "no-card") == 0) return count == 0 ? (told ? 0 : 5) : 77;
    return strcmp(mode, "two-files") == 0 && count == 1 ? 0 : 6;
}

/* True for what the child gets anew: the variable that is set for it and those that would overrule it. */
static bool is_replaced(const char *entry, const char *variable)
{
    return strncmp(entry, variable, strcspn(variable, "=") + 1) == 0 || strncmp(entry, "LSAN_OPTIONS=", 13) == 0 ||
           strncmp(entry, "VK_DRIVER_FILES=", 16) == 0;
}

/* Runs this program with an argument and one more variable; its exit status. */
static int run_child(const char *mode, const char *variable)
{
    char *arguments[] = {"test_vulkan_faults", (char *)(uintptr_t)mode, NULL}, *variables[256];
    size_t count = 0;
    for (char **v = environ; *v && count < 253; v++)
        if (!is_replaced(*v, variable)) variables[count++] = *v;
    variables[count++] = (char *)(uintptr_t)variable;
    /* Drivers keep memory when they are asked to leave so early; this program's own runs are checked for leaks. */
    variables[count++] = "LSAN_OPTIONS=detect_leaks=0";
    variables[count] = NULL;
    pid_t child;
    int result = 0;
    assert_int_equal(posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, variables), 0);
    assert_int_equal(waitpid(child, &result, 0), child);
    return WIFEXITED(result) ? WEXITSTATUS(result) : 128;
}

/* The first file of the folder of drivers whose name starts so. */
static bool find_icd(const char *prefix, char *out_path, size_t bytes)
{
    DIR *folder = opendir(ICD_FOLDER);
    bool found = false;
    for (struct dirent *entry; folder && !found && (entry = readdir(folder));) {
        found = strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
        if (found) (void)snprintf(out_path, bytes, "%s/%s", ICD_FOLDER, entry->d_name);
    }
    if (folder) closedir(folder);
    return found;
}

static void need_plugin(void)
{
    if (!vulkan_plugin_table()) TEST_SKIP("%s", tern_error_message());
}

static void test_no_loader(void **state)
{
    (void)state;
    need_plugin();
    assert_int_equal(run_child("no-loader", "TERN_VULKAN_LIBRARY=/nonexistent/libvulkan.so.1"), 0);
}

static void test_no_driver(void **state)
{
    (void)state;
    if (!vulkan_plugin_find()) TEST_SKIP("%s", tern_error_message());
    assert_int_equal(run_child("no-driver", "VK_ICD_FILENAMES=/nonexistent/icd.json"), 0);
}

static void test_no_card(void **state)
{
    (void)state;
    char path[512], variable[600];
    need_plugin();
    if (!find_icd("radeon", path, sizeof path)) TEST_SKIP("no radeon driver in %s to find no card with", ICD_FOLDER);
    (void)snprintf(variable, sizeof variable, "VK_ICD_FILENAMES=%s", path);
    const int result = run_child("no-card", variable);
    if (result == 77) TEST_SKIP("this machine has a Radeon card");
    assert_int_equal(result, 0);
}

static void test_one_card_two_files(void **state)
{
    (void)state;
    char path[512], copy[600], variable[1400], *text = NULL;
    size_t bytes = 0;
    need_plugin();
    if (!find_icd("lvp", path, sizeof path)) TEST_SKIP("no lavapipe in %s", ICD_FOLDER);
    TEST_OK(tern_file_read(path, 0, &text, &bytes));
    (void)snprintf(copy, sizeof copy, "%s/second_icd_%ld.json", TERN_BINARY_DIR, (long)getpid());
    TEST_OK(tern_file_write(copy, text, bytes));
    free(text);
    (void)snprintf(variable, sizeof variable, "VK_ICD_FILENAMES=%s:%s", path, copy);
    const int result = run_child("two-files", variable);
    (void)unlink(copy);
    assert_int_equal(result, 0);
}

/* ------------------------------------------------------------------- a life */

/* How far a life goes on after load, and what it leaves for checking. */
typedef struct life {
    const tern_backend *backend;
    tern_backend_device *device;
    tern_backend_buffer *x, *y;
    tern_backend_kernel *kernel;
    tern_backend_program *program;
} life;

/* Load to result; each step of set-up and use once, twice where the second takes another path. */
static tern_status live(life *l)
{
    tern_status status = TERN_OK;
    const tern_backend *b = l->backend;
    const tern_open_options options = {.timestamps = true};
    const tern_kernel_desc kernel = vulkan_kernel_desc(VULKAN_KERNEL_AFFINE);
    const uint32_t wait = 0, cut = 1;
    uint32_t devices = 0, data[COUNT];
    uint64_t ticket = 0, ns[2];
    tern_device_info info;
    TERN_TRY(b->load());
    TERN_TRY(b->device_count(&devices));
    TERN_TRY(b->device_info(0, &info));
    TERN_TRY(b->open(0, &options, &l->device));
    TERN_TRY(b->buffer_create(l->device, sizeof data, TERN_BUFFER_DEVICE, &l->x));
    TERN_TRY(b->buffer_create(l->device, sizeof data, TERN_BUFFER_READBACK, &l->y));
    for (uint32_t i = 0; i < COUNT; i++) data[i] = i;
    TERN_TRY(b->buffer_write(l->device, l->x, 0, data, sizeof data));
    TERN_TRY(b->kernel_create(l->device, &kernel, &l->kernel));
    tern_step steps[2] = {
        vulkan_affine(l->kernel, vulkan_argument(l->x, 0, COUNT, TERN_ACCESS_READ),
                      vulkan_argument(l->x, 0, COUNT, TERN_ACCESS_READ | TERN_ACCESS_WRITE), COUNT, 3, 1),
        {.kind = TERN_STEP_COPY,
         .label = "copy",
         .wait_count = 1,
         .waits = &wait,
         .argument_count = 2,
         .arguments = {vulkan_argument(l->x, 0, COUNT, TERN_ACCESS_READ),
                       vulkan_argument(l->y, 0, COUNT, TERN_ACCESS_WRITE)}},
    };
    const tern_program_desc desc = {.label = "life", .step_count = 2, .steps = steps, .cut_count = 1, .cuts = &cut};
    TERN_TRY(b->program_create(l->device, &desc, &l->program));
    for (int round = 0; round < 2; round++) TERN_TRY(b->program_submit(l->device, l->program, &ticket));
    TERN_TRY(b->wait(l->device, ticket, WAIT_NS));
    if (info.features & TERN_FEATURE_TIMESTAMPS) TERN_TRY(b->program_times(l->device, l->program, ns));
    TERN_TRY(b->buffer_read(l->device, l->x, 0, data, sizeof data));
    for (uint32_t i = 0; i < COUNT; i++)
        if (data[i] != 9 * i + 4) return tern_error(TERN_ERROR_INTERNAL, "element %u is %u", i, data[i]);
    TERN_TRY(b->buffer_read(l->device, l->y, 0, data, sizeof data));
    if (data[COUNT - 1] != 9 * (COUNT - 1) + 4) return tern_error(TERN_ERROR_INTERNAL, "the copy is wrong");
fail:
    return status;
}

static void end(life *l)
{
    const tern_backend *b = l->backend;
    if (l->device) {
        b->program_destroy(l->device, l->program);
        b->kernel_destroy(l->device, l->kernel);
        b->buffer_destroy(l->device, l->x);
        b->buffer_destroy(l->device, l->y);
        assert_int_equal(b->allocated_bytes(l->device), 0);
        b->close(l->device);
    }
    b->unload();
    *l = (life){.backend = b};
}

/* A fault lets outputs be: what was not made is NULL still (calloc'd), what was made can be destroyed. */
static void check_fault(const vulkan_plugin *plugin, life *l, uint64_t call, int32_t result, tern_status expected,
                        bool *out_done)
{
    (void)plugin->fail_call(call, result);
    vulkan_log_quiet(true);
    const tern_status status = live(l);
    const uint64_t made = plugin->fail_call(0, 0);
    *out_done = made < call;
    if (made >= call && status != expected)
        fail_msg("call %llu failing with %d gave %s (%s)", (unsigned long long)call, result, tern_status_name(status),
                 tern_error_message());
    if (made < call && status != TERN_OK) fail_msg("nothing failed, and yet: %s", tern_error_message());
    if (made < call) (void)plugin->fail_call(call - made, result); /* falls into end */
    if (status == TERN_ERROR_DEVICE_LOST && l->device) {
        uint32_t word = 0;
        if (l->x) TEST_ERROR(l->backend->buffer_read(l->device, l->x, 0, &word, 4), TERN_ERROR_DEVICE_LOST, "lost");
    }
    end(l);
    vulkan_log_quiet(false);
    *out_done = *out_done && plugin->fail_call(0, 0) < call - made;
}

static void test_every_call_fails_once(void **state)
{
    (void)state;
    static const struct {
        int32_t result;
        tern_status status;
    } faults[] = {{-1, TERN_ERROR_MEMORY}, {-2, TERN_ERROR_DEVICE_MEMORY}, {-4, TERN_ERROR_DEVICE_LOST}};
    const vulkan_plugin *plugin = vulkan_plugin_find();
    if (!plugin) TEST_SKIP("%s", tern_error_message());
    life l = {.backend = plugin->backend};
    l.backend->unload();
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        uint64_t call = 1;
        for (bool done = false; !done; call++) check_fault(plugin, &l, call, faults[i].result, faults[i].status, &done);
        print_message("%llu calls failed with %d\n", (unsigned long long)call - 2, faults[i].result);
        assert_true(call > 40);
    }
    TEST_OK(live(&l)); /* and all is well again */
    end(&l);
}

/* ------------------------------------------------------------------- caches */

/* Flips a byte in the middle of every file of the folder, or cuts the file there. The number of files. */
static int damage_files(const char *path, bool cut)
{
    int count = 0;
    DIR *folder = opendir(path);
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        char name[1024], *data = NULL;
        size_t bytes = 0;
        if (entry->d_name[0] == '.') continue;
        (void)snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        TEST_OK(tern_file_read(name, 0, &data, &bytes));
        if (!cut) data[bytes - bytes / 4] ^= 1;
        TEST_OK(tern_file_write(name, data, cut ? bytes / 2 : bytes));
        free(data);
        count++;
    }
    closedir(folder);
    return count;
}

static void remove_folder(const char *base)
{
    char path[600], name[1024];
    (void)snprintf(path, sizeof path, "%s/tern/vulkan", base);
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        (void)snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        if (entry->d_name[0] != '.') (void)unlink(name);
    }
    if (folder) closedir(folder);
    (void)rmdir(path);
    (void)snprintf(path, sizeof path, "%s/tern", base);
    (void)rmdir(path);
    (void)rmdir(base);
}

/* One life with the counts before and after: how many texts were compiled and found, and whether the pipelines were. */
static void check_life(const vulkan_plugin *plugin, uint64_t compiled, uint64_t found, uint64_t pipelines)
{
    tern_vulkan_cache_counts before, after;
    life l = {.backend = plugin->backend};
    plugin->cache_counts(&before);
    TEST_OK(live(&l));
    plugin->cache_counts(&after);
    end(&l);
    assert_int_equal(after.compiled - before.compiled, compiled);
    assert_int_equal(after.found - before.found, found);
    assert_int_equal(after.pipelines_found, pipelines);
}

static void test_caches(void **state)
{
    (void)state;
    const vulkan_plugin *plugin = vulkan_plugin_find();
    if (!plugin) TEST_SKIP("%s", tern_error_message());
    char base[] = TERN_BINARY_DIR "/vulkan_cache_XXXXXX", path[600], old[1024] = "";
    const char *home = getenv("XDG_CACHE_HOME");
    if (home) (void)snprintf(old, sizeof old, "%s", home);
    assert_non_null(mkdtemp(base));
    (void)snprintf(path, sizeof path, "%s/tern/vulkan", base);
    (void)setenv("XDG_CACHE_HOME", base, 1);
    check_life(plugin, 1, 0, 0);
    check_life(plugin, 0, 1, 1);
    for (int cut = 0; cut < 2; cut++) {
        assert_int_equal(damage_files(path, cut), 2);
        check_life(plugin, 1, 0, 0);
        check_life(plugin, 0, 1, 1);
    }
    remove_folder(base);
    (void)setenv("XDG_CACHE_HOME", "/proc/nowhere", 1); /* no folder to write to: no cache, no error */
    (void)setenv("HOME", "/proc/nowhere", 1);
    (void)setenv("TMPDIR", "/proc/nowhere", 1);
    vulkan_log_quiet(true);
    check_life(plugin, 1, 0, 0);
    vulkan_log_quiet(false);
    if (home) (void)setenv("XDG_CACHE_HOME", old, 1);
}

int main(int argc, char **argv)
{
    if (argc > 1) return child_main(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_loader),
        cmocka_unit_test(test_no_driver),
        cmocka_unit_test(test_no_card),
        cmocka_unit_test(test_one_card_two_files),
        cmocka_unit_test(test_every_call_fails_once),
        cmocka_unit_test(test_caches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
