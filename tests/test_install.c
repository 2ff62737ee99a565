/* SPDX-License-Identifier: Apache-2.0 */
/* test_install.c - what users get: the installed tree, programs built outside of ours against it, another language.
 *
 *     cmake --install ──> prefix ──┬── header alone, C11, C++17, C++20       symbols of the library
 *                                  ├── docs/examples/train.* by pkg-config
 *                                  ├── the same by find_package
 *                                  └── ctypes
 *
 * Everything lies in one temporary folder. Compilers, flags (sanitizers) and the build folder come from
 * cmake/TernTests.cmake. */
#include <stdlib.h>
#include <unistd.h>

#include "core/base/file.h"
#include "tests/test.h"
#include "tests/train_fixture.h"

#define BATCHES "802" /* of 64; 200 windows of 4 and one that is not full */

static char folder[] = "/tmp/tern-install-XXXXXX";

/* The shell's exit code; all output in <folder>/log. */
static int run(const char *format, ...)
{
    char command[4096], line[4300];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(command, sizeof command, format, arguments);
    va_end(arguments);
    assert_true(length > 0 && (size_t)length < sizeof command);
    snprintf(line, sizeof line, "cd %s && ( %s ) >log 2>&1 </dev/null", folder, command);
    return system(line);
}

/* A file of the folder; free() it. */
static char *read_text(const char *name)
{
    char path[128], *text = NULL;
    size_t bytes;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    TEST_OK(tern_file_read(path, 0, &text, &bytes));
    return text;
}

#define MUST_RUN(...)                                                                                                  \
    do {                                                                                                               \
        if (run(__VA_ARGS__) != 0) fail_msg("%s failed:\n%s", #__VA_ARGS__, read_text("log"));                         \
    } while (0)

static bool has(const char *program) { return run("command -v %s", program) == 0; }

/* ---------------------------------------------------------------- installed */

static void test_tree(void **state)
{
    (void)state;
    static const char *const files[] = {
        "include/tern.h",
        "lib/libtern.so",
        "lib/libtern.so.0",
        "lib/tern/tern_cpu.so",
        "lib/pkgconfig/tern.pc",
        "lib/cmake/tern/tern-config.cmake",
        "bin/tern",
        "share/man/man1/tern.1",
        "lib/cmake/tern/tern-config-version.cmake",
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (!TEST_STATIC || !strstr(files[i], "tern_cpu")) MUST_RUN("test -f prefix/%s", files[i]);
    MUST_RUN("test \"$(prefix/bin/tern --version | tr -dc 0-9.)\" = %s", tern_version());
    MUST_RUN("prefix/bin/tern devices | grep -q cpu");
    if (!has("readelf")) TEST_SKIP("readelf is not installed, so the SONAME is not looked at");
    MUST_RUN("readelf -d prefix/lib/libtern.so | grep -q 'SONAME.*libtern.so.%d]'", TERN_VERSION_MAJOR);
}

static void test_header_alone(void **state)
{
    (void)state;
    MUST_RUN("echo '#include <tern.h>' | tee h.c >h.cc");
    MUST_RUN("%s -std=c11 -Wall -Wextra -Wpedantic -Wstrict-prototypes -Werror -Iprefix/include -fsyntax-only h.c",
             TEST_CC);
    MUST_RUN("%s -std=c++17 -Wall -Wextra -Wpedantic -Werror -Iprefix/include -fsyntax-only h.cc", TEST_CXX);
    MUST_RUN("%s -std=c++20 -Wall -Wextra -Wpedantic -Werror -Iprefix/include -fsyntax-only h.cc", TEST_CXX);
}

/* What is exported is named tern_, in libtern and plug-ins: nothing of the libraries inside them. libtern exports
 * tern.h's functions, all of them, and those of core/base that plug-ins call. */
static void test_symbols(void **state)
{
    (void)state;
    if (!has("nm")) TEST_SKIP("nm is not installed, so the exported symbols are not looked at");
    MUST_RUN("for p in prefix/lib/libtern.so $(ls prefix/lib/tern/*.so); do nm -D --defined-only $p; done | "
             "awk '{ print $NF }' >all; test -s all; ! grep -v '^tern_' all");
    MUST_RUN("nm -D --defined-only prefix/lib/libtern.so | awk '{ print $NF }' | sort -u >exported; test -s exported");
    MUST_RUN("cat prefix/include/tern.h %s/core/base/*.h | tr -c 'A-Za-z0-9_' '\\n' | grep '^tern_' | sort -u >known",
             TERN_SOURCE_DIR);
    if (!TEST_STATIC) /* whose plug-ins are in there */
        MUST_RUN("comm -23 exported known >unknown; cat unknown; ! test -s unknown");
    MUST_RUN(
        "tr '\\n' ' ' <prefix/include/tern.h | grep -oE 'TERN_API [^;(]*\\(' | grep -oE 'tern_[a-z0-9_]+ *\\($' | "
        "tr -d '( ' | sort -u >public; test $(wc -l <public) -gt 90; comm -13 exported public >absent; cat absent; "
        "! test -s absent");
}

/* ---------------------------------------------------------------- consumers */

/* The graph of docs/examples/train.c, on the library that this test holds. */
static tern_trainer *make_trainer(tern_device *device, uint64_t seed)
{
    tern_graph *graph = NULL;
    tern_trainer *trainer = NULL;
    tern_train_options o;
    tern_train_options_init(&o, sizeof o);
    o.seed = seed;
    TEST_OK(tern_graph_create(&graph));
    tern_tensor *x = tern_input_2d(graph, "x", TERN_F32, 64, 784), *y = tern_input_1d(graph, "y", TERN_I32, 64);
    tern_tensor *z = tern_linear(tern_gelu(tern_linear(x, "fc1", 500)), "fc2", 10);
    tern_loss(tern_cross_entropy(z, y, -1), NULL);
    TEST_OK(tern_trainer_create(device, graph, &o, &trainer));
    tern_graph_destroy(graph);
    return trainer;
}

/* Loss of what a program saved, on a batch like its own: class c is brighter at columns 2 c + 4 and 2 c + 5. */
static double saved_loss(tern_device *device, const char *name)
{
    static float x[64 * 784];
    static int32_t y[64];
    uint32_t seed = 77;
    double loss = NAN;
    char path[128];
    tern_trainer *trainer = make_trainer(device, 4);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    TEST_OK(tern_trainer_load(trainer, path, 0));
    for (int i = 0; i < 64; i++) {
        y[i] = i % 10;
        for (int k = 0; k < 784; k++) {
            seed = seed * 1664525u + 1013904223u;
            x[i * 784 + k] = (float)(seed >> 8) / 16777216.0f - 0.5f + (k % 28 / 2 == y[i] + 2 ? 0.15f : 0);
        }
    }
    const tern_feed feeds[] = {{"x", x, sizeof x}, {"y", y, sizeof y}};
    TEST_OK(tern_trainer_evaluate(trainer, feeds, 2, 64, &loss, NULL));
    tern_trainer_destroy(trainer);
    return loss;
}

/* Runs <folder>/<program> and looks at what it printed (C) and saved. */
static void check_program(const char *program, bool prints)
{
    tern_device *device = test_open_device("cpu", 2);
    MUST_RUN("rm -rf out; MY_BATCHES=" BATCHES " ./%s", program);
    char *text = read_text("log");
    double first = NAN, second = NAN;
    if (prints && sscanf(text, " 100 loss %lf 200 loss %lf", &first, &second) != 2) fail_msg("it printed: %s", text);
    if (prints && !(first < 1 && second < 1)) fail_msg("the loss did not fall: %s", text);
    free(text);
    assert_true(saved_loss(device, "pretrained.safetensors") > 2); /* log 10 is 2.3 */
    const double loss = saved_loss(device, "out/model.safetensors");
    if (!(loss < 1)) fail_msg("the loss of what %s saved is %g", program, loss);
    tern_device_close(device);
}

static void test_pkg_config(void **state)
{
    (void)state;
    if (!has("pkg-config")) TEST_SKIP("pkg-config is not installed");
    MUST_RUN("export PKG_CONFIG_PATH=$PWD/prefix/lib/pkgconfig; test $(pkg-config --modversion tern) = %s && "
             "%s -std=c11 -Wall -Wextra -Wpedantic -Werror -O1 %s train.c data.c $(pkg-config --cflags --libs tern) "
             "-Wl,-rpath,$PWD/prefix/lib -o train_c && "
             "%s -std=c++17 -Wall -Wextra -Wpedantic -Werror -O1 %s train.cpp data.cpp "
             "$(pkg-config --cflags --libs tern) -Wl,-rpath,$PWD/prefix/lib -o train_cpp",
             tern_version(), TEST_CC, TEST_FLAGS, TEST_CXX, TEST_FLAGS);
    check_program("train_c", true);
    check_program("train_cpp", false);
    /* an error is one sentence and an exit code */
    MUST_RUN("mv pretrained.safetensors away; ! ./train_c; mv away pretrained.safetensors");
    char *text = read_text("log");
    assert_non_null(strstr(text, "pretrained.safetensors"));
    free(text);
}

static void test_find_package(void **state)
{
    (void)state;
    MUST_RUN("%s -S . -B build -DCMAKE_PREFIX_PATH=$PWD/prefix -DCMAKE_C_COMPILER=%s -DCMAKE_CXX_COMPILER=%s "
             "-DCMAKE_C_FLAGS='%s' -DCMAKE_CXX_FLAGS='%s' && %s --build build",
             TEST_CMAKE, TEST_CC, TEST_CXX, TEST_FLAGS, TEST_FLAGS, TEST_CMAKE);
    check_program("build/train_c", true);
    /* the tree may be moved, and another minor version is refused */
    MUST_RUN("mv prefix elsewhere && rm -r build && %s -S . -B build -DCMAKE_PREFIX_PATH=$PWD/elsewhere "
             "-DCMAKE_C_COMPILER=%s -DCMAKE_CXX_COMPILER=%s -DCMAKE_C_FLAGS='%s' -DCMAKE_CXX_FLAGS='%s' && "
             "%s --build build && MY_BATCHES=5 build/train_cpp; code=$?; mv elsewhere prefix; exit $code",
             TEST_CMAKE, TEST_CC, TEST_CXX, TEST_FLAGS, TEST_FLAGS, TEST_CMAKE);
    MUST_RUN("sed -i 's/find_package(tern 0.1/find_package(tern 0.99/' CMakeLists.txt; "
             "! %s -S . -B other -DCMAKE_PREFIX_PATH=$PWD/prefix",
             TEST_CMAKE);
}

static void test_ctypes(void **state)
{
    (void)state;
    if (!has("python3")) TEST_SKIP("python3 is not installed");
    if (TEST_FLAGS[0]) TEST_SKIP("python3 is built without the sanitizers that libtern is built with");
    MUST_RUN("python3 %s/tests/consumer/smoke.py $PWD/prefix/lib/libtern.so", TERN_SOURCE_DIR);
    char *text = read_text("log");
    print_message("%s", text);
    free(text);
}

static int set_up(void **state)
{
    (void)state;
    char path[128];
    if (!mkdtemp(folder)) return -1;
    if (run("%s --install %s --prefix $PWD/prefix && cp %s/docs/examples/train.* %s/tests/consumer/* .", TEST_CMAKE,
            TERN_BINARY_DIR, TERN_SOURCE_DIR, TERN_SOURCE_DIR) != 0) {
        print_message("%s\n", read_text("log"));
        return -1;
    }
    tern_device *device = test_open_device("cpu", 2);
    tern_trainer *trainer = make_trainer(device, 1);
    TEST_OK(tern_trainer_save(trainer, folder));
    tern_trainer_destroy(trainer);
    tern_device_close(device);
    snprintf(path, sizeof path, "mv model.safetensors pretrained.safetensors");
    return run("%s", path);
}

static int tear_down(void **state)
{
    (void)state;
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tree),       cmocka_unit_test(test_header_alone), cmocka_unit_test(test_symbols),
        cmocka_unit_test(test_pkg_config), cmocka_unit_test(test_find_package), cmocka_unit_test(test_ctypes),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
