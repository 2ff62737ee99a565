/* SPDX-License-Identifier: Apache-2.0 */
/* test_cuda_compiler.c - which NVRTC the CUDA plug-in takes, on the stand-ins: each case in a child process with an
 * environment of its own.
 *
 *     old        from before cubins: alone told apart, beside a newer one passed over
 *     python     in a package of Python's: virtual environment, conda, the user's own
 *
 * A real toolkit of the machine may be found too; so the stand-in says that it is a newer one. Which places there are
 * is the plug-in's table; how one is expanded, test_plugin_search's. */
#include "tests/test.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/device/plugin.h"
#include "tests/cuda_life.h"

#define OLD_NVRTC TERN_BINARY_DIR "/stand_ins/cuda_old/libnvrtc.so"

/* The compiler that was taken, as `tern devices` tells it, must have this in its line. */
static int child_main(const char *wanted)
{
    const tern_open_options options = {0};
    const tern_backend *backend = NULL;
    tern_backend_device *device = NULL;
    char notes[1024];
    tern_log_set(cuda_life_no_log, NULL);
    if (tern_plugin_find("cuda", &backend) < 0 || backend->load() < 0) return 1;
    const tern_status opened = backend->open(0, &options, &device);
    if (strcmp(wanted, "none") == 0) {
        const char *said = tern_error_message();
        return opened == TERN_ERROR_NOT_FOUND && strstr(said, "sm_80") && strstr(said, OLD_NVRTC) ? 0 : 2;
    }
    if (opened < 0 || backend->device_notes(0, notes, sizeof notes) < 0) return 3;
    backend->close(device);
    if (strstr(notes, wanted)) return 0;
    (void)fprintf(stderr, "wanted %s: %s\n", wanted, notes);
    return 4;
}

/* An NVRTC from before cubins: alone it is told apart; beside a newer one, found first, it is passed over. */
static void test_old_compiler(void **state)
{
    (void)state;
    NEED_CUDA_LIFE();
    static const char *const alone[] = {"TERN_NVRTC_LIBRARY=" TERN_BINARY_DIR "/stand_ins/cuda_old/libnvrtc.so",
                                        "TERN_STANDIN_NVRTC_VERSION=11.0", NULL};
    static const char *const beside[] = {
        "TERN_NVRTC_LIBRARY=", "LD_LIBRARY_PATH=" TERN_BINARY_DIR "/stand_ins/cuda_old",
        "CUDA_HOME=" TERN_BINARY_DIR "/stand_ins/cuda_home", NULL};
    assert_int_equal(cuda_life_child("none", alone), 0);
    assert_int_equal(cuda_life_child("NVRTC", beside), 0);
}

/* ------------------------------------------------------------------ python */

static void make_folders(const char *path)
{
    char part[400];
    for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        (void)snprintf(part, sizeof part, "%.*s", (int)(slash - path), path);
        (void)mkdir(part, 0700);
    }
}

static void remove_folder(const char *path)
{
    char command[400];
    (void)snprintf(command, sizeof command, "rm -r '%s'", path);
    assert_int_equal(system(command), 0); /* NOLINT: a folder of our own */
}

/* The stand-in at root/packages/..., and nothing else but what the variable `name` leads to. */
static void test_a_python_package(void **state)
{
    (void)state;
    static const struct {
        const char *variable, *file;
    } trees[] = {
        {"HOME", ".local/lib/python3.11/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12"},
        {"HOME", ".local/lib/python3.13/site-packages/nvidia/cu13/lib/libnvrtc.so.13"},
        {"VIRTUAL_ENV", "lib/python3.12/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12"},
        {"CONDA_PREFIX", "lib/python3.10/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12"},
        {"CONDA_PREFIX", "lib/libnvrtc.so.12"},
    };
    NEED_CUDA_LIFE();
    for (size_t i = 0; i < sizeof trees / sizeof *trees; i++) {
        char root[] = "/tmp/tern-python-XXXXXX", file[300], variable[120];
        assert_non_null(mkdtemp(root));
        (void)snprintf(file, sizeof file, "%s/%s", root, trees[i].file);
        (void)snprintf(variable, sizeof variable, "%s=%s", trees[i].variable, root);
        make_folders(file);
        assert_int_equal(symlink(CUDA_STAND_IN_NVRTC, file), 0);
        const char *const environment[] = {variable, /* first of two of a name, so the one that counts */
                                           "VIRTUAL_ENV=",
                                           "CONDA_PREFIX=",
                                           "CUDA_HOME=",
                                           "CUDA_PATH=",
                                           "TERN_NVRTC_LIBRARY=",
                                           "TERN_STANDIN_NVRTC_VERSION=13.9",
                                           NULL};
        const int result = cuda_life_child(file, environment);
        remove_folder(root);
        if (result != 0) fail_msg("%s in %s: %d", trees[i].file, trees[i].variable, result);
    }
}

int main(int argc, char **argv)
{
    (void)setenv("TERN_CUDA_LIBRARY", CUDA_STAND_IN_DRIVER, 0);
    (void)setenv("TERN_NVRTC_LIBRARY", CUDA_STAND_IN_NVRTC, 0);
    if (argc > 1) return child_main(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_old_compiler),
        cmocka_unit_test(test_a_python_package),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
