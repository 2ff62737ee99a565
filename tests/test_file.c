/* SPDX-License-Identifier: Apache-2.0 */
/* test_file.c - files that are there whole or not at all, full disks, and tern's folder of caches. */
#include "tests/test.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/cache.h"
#include "core/base/file.h"
#include "core/base/status.h"

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/tern-file-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    return system(command);
}

static char *in_folder(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int count_files(void)
{
    int count = 0;
    DIR *directory = opendir(folder);
    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory));) count += entry->d_name[0] != '.';
    closedir(directory);
    return count;
}

static void test_file_round_trip(void **state)
{
    (void)state;
    char *data = NULL;
    size_t bytes = 0;
    struct stat info;
    const mode_t mask = umask(027);
    umask(mask);
    TEST_OK(tern_file_write(in_folder("a"), "hello", 5));
    TEST_OK(tern_file_read(in_folder("a"), 0, &data, &bytes));
    assert_int_equal(bytes, 5);
    assert_string_equal(data, "hello");
    free(data);
    TEST_OK(tern_file_write(in_folder("a"), "", 0)); /* replaces */
    TEST_OK(tern_file_read(in_folder("a"), 10, &data, &bytes));
    assert_int_equal(bytes, 0);
    free(data);
    assert_int_equal(stat(in_folder("a"), &info), 0);
    assert_int_equal(info.st_mode & 0777, 0666 & ~mask);
    TEST_OK(tern_file_read("/proc/self/status", 0, &data, &bytes)); /* says that it has 0 bytes */
    assert_non_null(strstr(data, "Pid:"));
    free(data);
    assert_int_equal(count_files(), 1);
}

static void test_file_errors(void **state)
{
    (void)state;
    char *data = NULL;
    size_t bytes = 0;
    TEST_OK(tern_file_write(in_folder("a"), "hello", 5));
    TEST_ERROR(tern_file_read(in_folder("b"), 0, &data, &bytes), TERN_ERROR_NOT_FOUND, "/b\": No such file");
    TEST_ERROR(tern_file_read(folder, 0, &data, &bytes), TERN_ERROR_IO, "Is a directory");
    TEST_ERROR(tern_file_read(in_folder("a"), 4, &data, &bytes), TERN_ERROR_IO,
               "has 5 bytes or more; at most 4 are expected");
    assert_null(data);
    TEST_ERROR(tern_file_write(in_folder("none/a"), "x", 1), TERN_ERROR_IO, "its folder must exist");
    TEST_ERROR(tern_file_write(in_folder("a/b"), "x", 1), TERN_ERROR_IO, "part of the path is a file");
    TEST_ERROR(tern_file_write("/proc/tern", "x", 1), TERN_ERROR_IO, "/proc/tern");
    TEST_ERROR(tern_directory_create(in_folder("a/b")), TERN_ERROR_IO, "cannot make the folder");
    TEST_ERROR(tern_directory_create(""), TERN_ERROR_INVALID, "empty");
}

static void test_file_abandoned(void **state)
{
    (void)state;
    char *data = NULL;
    size_t bytes = 0;
    tern_file_writer *writer = NULL;
    TEST_OK(tern_file_write(in_folder("a"), "old", 3));
    TEST_OK(tern_file_begin(in_folder("a"), &writer));
    TEST_OK(tern_file_append(writer, "new", 3));
    tern_file_abandon(writer);
    tern_file_abandon(NULL);
    TEST_OK(tern_file_read(in_folder("a"), 0, &data, &bytes));
    assert_string_equal(data, "old");
    free(data);
    TEST_OK(tern_file_begin(in_folder("a"), &writer));
    TEST_OK(tern_file_append(writer, "new", 3));
    TEST_OK(tern_file_append(writer, "er", 2));
    TEST_OK(tern_file_commit(writer));
    TEST_OK(tern_file_read(in_folder("a"), 0, &data, &bytes));
    assert_string_equal(data, "newer");
    free(data);
    assert_int_equal(count_files(), 1);
}

/* A full disk, played by the limit on file size: the old file stays, no temporary is left. */
static void test_file_full_disk(void **state)
{
    (void)state;
    static char large[1 << 16];
    struct rlimit old, small;
    char *data = NULL;
    size_t bytes = 0;
    TEST_OK(tern_file_write(in_folder("a"), "old", 3));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = (struct rlimit){.rlim_cur = 5000, .rlim_max = old.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    const tern_status status = tern_file_write(in_folder("a"), large, sizeof large);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, SIG_DFL);
    TEST_ERROR(status, TERN_ERROR_IO, "after 5000 bytes: File too large");
    TEST_OK(tern_file_read(in_folder("a"), 0, &data, &bytes));
    assert_string_equal(data, "old");
    free(data);
    assert_int_equal(count_files(), 1);
}

/* What was kept comes back; whatever is wrong with the file, it counts as absent and can be written again. */
static void test_cache_file(void **state)
{
    (void)state;
    static const char name[] = "x/tern/part/kind-00000000000000ab";
    char *xdg = getenv("XDG_CACHE_HOME") ? strdup(getenv("XDG_CACHE_HOME")) : NULL, *data = NULL, *file = NULL;
    size_t bytes = 0, whole = 0;
    setenv("XDG_CACHE_HOME", in_folder("x"), 1);
    TEST_ERROR(tern_cache_read("part", "kind", 0xab, &data, &bytes), TERN_ERROR_NOT_FOUND, "");
    tern_cache_write("part", "kind", 0xab, "binary", 6);
    TEST_OK(tern_file_read(in_folder(name), 0, &file, &whole));
    for (size_t damage = 0; damage <= whole + 2; damage++) { /* each byte changed, cut in half, empty, whole */
        char *copy = malloc(whole);
        assert_non_null(copy);
        memcpy(copy, file, whole);
        if (damage < whole) copy[damage] ^= 4;
        TEST_OK(tern_file_write(in_folder(name), copy, damage == whole ? whole / 2 : damage == whole + 1 ? 0 : whole));
        free(copy);
        data = NULL;
        const tern_status status = tern_cache_read("part", "kind", 0xab, &data, &bytes);
        assert_int_equal(status, damage == whole + 2 ? TERN_OK : TERN_ERROR_NOT_FOUND);
        if (status < 0) assert_null(data);
    }
    assert_int_equal(bytes, 6);
    assert_memory_equal(data, "binary", 6);
    free(data);
    TEST_OK(tern_file_write(in_folder("x/tern/part/kind-00000000000000ac"), file, whole));
    TEST_ERROR(tern_cache_read("part", "kind", 0xac, &data, &bytes), TERN_ERROR_NOT_FOUND,
               "damaged"); /* another key's */
    free(file);
    xdg ? setenv("XDG_CACHE_HOME", xdg, 1) : unsetenv("XDG_CACHE_HOME");
    free(xdg);
}

static void test_cache_directory(void **state)
{
    (void)state;
    char path[512], wanted[512];
    char *xdg = getenv("XDG_CACHE_HOME") ? strdup(getenv("XDG_CACHE_HOME")) : NULL;
    char *home = getenv("HOME") ? strdup(getenv("HOME")) : NULL,
         *tmp = getenv("TMPDIR") ? strdup(getenv("TMPDIR")) : NULL;
    TEST_OK(tern_file_write(in_folder("file"), "", 0));

    setenv("XDG_CACHE_HOME", in_folder("x"), 1);
    TEST_OK(tern_cache_directory("vulkan", path, sizeof path));
    assert_string_equal(path, in_folder("x/tern/vulkan"));
    assert_int_equal(access(path, W_OK), 0);
    TEST_OK(tern_cache_directory("vulkan", path, sizeof path)); /* it is there now */

    setenv("XDG_CACHE_HOME", "relative", 1);
    setenv("HOME", in_folder("h"), 1);
    TEST_OK(tern_cache_directory("a/b", path, sizeof path));
    assert_string_equal(path, in_folder("h/.cache/tern/a/b"));

    setenv("HOME", in_folder("file"), 1); /* not usable */
    setenv("TMPDIR", folder, 1);
    TEST_OK(tern_cache_directory("opencl", path, sizeof path));
    snprintf(wanted, sizeof wanted, "%s/tern-%u/opencl", folder, (unsigned)geteuid());
    assert_string_equal(path, wanted);

    snprintf(wanted, sizeof wanted, "%s/tern-%u", folder, (unsigned)geteuid());
    assert_int_equal(chmod(wanted, 0777), 0); /* others could put code there */
    TEST_ERROR(tern_cache_directory("opencl", path, sizeof path), TERN_ERROR_IO, "set XDG_CACHE_HOME");
    assert_int_equal(chmod(wanted, 0700), 0);
    TEST_ERROR(tern_cache_directory("opencl", path, 8), TERN_ERROR_IO, "no folder for caches");

    xdg ? setenv("XDG_CACHE_HOME", xdg, 1) : unsetenv("XDG_CACHE_HOME");
    home ? setenv("HOME", home, 1) : unsetenv("HOME");
    tmp ? setenv("TMPDIR", tmp, 1) : unsetenv("TMPDIR");
    free(xdg);
    free(home);
    free(tmp);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_file_round_trip, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_file_errors, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_file_abandoned, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_file_full_disk, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_cache_directory, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_cache_file, make_folder, remove_folder),
    };
    return cmocka_run_group_tests_name("file", tests, NULL, NULL);
}
