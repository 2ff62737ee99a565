/* SPDX-License-Identifier: Apache-2.0 */
/* test_sealed.c - a folder is there whole or not at all, and a damaged file in it is named. No GPU. */
#include "core/base/file.h"
#include "core/base/sealed.h"
#include "tests/test.h"

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/tern-sealed-XXXXXX";
static char path[128]; /* of the sealed folder */

#define LARGE 3000000u /* bytes; more than one block, and no multiple of a word */

static void put(const char *where, const char *name, const void *data, size_t bytes)
{
    char file[256];
    snprintf(file, sizeof file, "%s/%s", where, name);
    TEST_OK(tern_file_write(file, data, bytes));
}

static unsigned char *large(void)
{
    unsigned char *data = malloc(LARGE + 5);
    assert_non_null(data);
    for (uint32_t i = 0; i < LARGE + 5; i++) data[i] = (unsigned char)(i * 2654435761u >> 24);
    return data;
}

static void make(void)
{
    tern_seal *seal = NULL;
    unsigned char *data = large();
    TEST_OK(tern_seal_begin(path, &seal));
    assert_int_not_equal(access(path, F_OK), 0); /* nobody sees it yet */
    put(tern_seal_folder(seal), "small", "abc", 3);
    put(tern_seal_folder(seal), "empty", "", 0);
    put(tern_seal_folder(seal), "large with blanks", data, LARGE + 5);
    TEST_OK(tern_seal_commit(seal));
    free(data);
}

/* Entries of the test's folder whose names begin with `prefix`. */
static int count(const char *prefix)
{
    int found = 0;
    DIR *listed = opendir(folder);
    assert_non_null(listed);
    for (const struct dirent *entry; (entry = readdir(listed));)
        found += strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
    closedir(listed);
    return found;
}

static void test_whole(void **state)
{
    (void)state;
    tern_seal *seal = NULL;
    make();
    TEST_OK(tern_sealed_check(path));
    put(path, "added later", "x", 1); /* nobody's business */
    TEST_OK(tern_sealed_check(path));
    assert_int_equal(count(".new-"), 0);
    TEST_OK(tern_seal_begin(path, &seal)); /* the name is taken: refused, and the old one stays */
    put(tern_seal_folder(seal), "small", "new", 3);
    TEST_ERROR(tern_seal_commit(seal), TERN_ERROR_IO, "cannot give the folder");
    TEST_OK(tern_sealed_check(path));
    assert_int_equal(count(".new-"), 0);
    TEST_OK(tern_sealed_remove(path));
    assert_int_not_equal(access(path, F_OK), 0);
    TEST_ERROR(tern_sealed_check(path), TERN_ERROR_NOT_FOUND, "checksums");
    TEST_ERROR(tern_seal_begin("/nowhere/at/all", &seal), TERN_ERROR_IO, "/nowhere/at/all");
    assert_null(seal);
}

/* One byte changed, anywhere. */
static void flip(const char *name, long at)
{
    char file[256];
    snprintf(file, sizeof file, "%s/%s", path, name);
    FILE *f = fopen(file, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    const int old = fgetc(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    assert_int_not_equal(fputc(old ^ 4, f), EOF);
    assert_int_equal(fclose(f), 0);
}

static void test_damage(void **state)
{
    (void)state;
    char file[256];
    make();
    for (long at = 0; at < (long)LARGE + 5; at = at * 7 + 1) { /* in full words, in the tail, in both blocks */
        flip("large with blanks", at);
        TEST_ERROR(tern_sealed_check(path), TERN_ERROR_FORMAT, "large with blanks\" is damaged: its checksum");
        flip("large with blanks", at);
        TEST_OK(tern_sealed_check(path));
    }
    flip("large with blanks", (long)LARGE + 4);
    TEST_ERROR(tern_sealed_check(path), TERN_ERROR_FORMAT, "large with blanks");
    flip("large with blanks", (long)LARGE + 4);
    for (long at = 0; at < 40; at++) { /* the list itself: its first line, a sum, a size, a name */
        flip("checksums", at);
        assert_int_equal(tern_sealed_check(path), TERN_ERROR_FORMAT);
        flip("checksums", at);
    }
    TEST_OK(tern_sealed_check(path));
    snprintf(file, sizeof file, "%s/small", path);
    assert_int_equal(truncate(file, 2), 0);
    TEST_ERROR(tern_sealed_check(path), TERN_ERROR_FORMAT, "small\" is damaged: it has 2 bytes instead of 3");
    assert_int_equal(unlink(file), 0);
    TEST_ERROR(tern_sealed_check(path), TERN_ERROR_FORMAT, "/small\"");
    put(path, "small", "abc", 3);
    TEST_OK(tern_sealed_check(path));
    snprintf(file, sizeof file, "%s/checksums", path);
    assert_int_equal(truncate(file, 30), 0);
    TEST_ERROR(tern_sealed_check(path), TERN_ERROR_FORMAT, "no list of checksums");
    static const char outside[] = "tern checksums 1\n0000000000000000 3 ../../etc/passwd\n";
    put(path, "checksums", outside, sizeof outside - 1);
    TEST_ERROR(tern_sealed_check(path), TERN_ERROR_FORMAT, "cannot be read");
    TEST_OK(tern_sealed_remove(path));
}

/* What a kill leaves is hidden, and goes with the next clean. */
static void test_leftovers(void **state)
{
    (void)state;
    tern_seal *seal = NULL, *abandoned = NULL;
    make();
    TEST_OK(tern_seal_begin(path, &abandoned));
    put(tern_seal_folder(abandoned), "x", "x", 1);
    tern_seal_abandon(abandoned);
    assert_int_equal(count(".new-"), 0);
    TEST_OK(tern_seal_begin(path, &seal)); /* killed here */
    put(tern_seal_folder(seal), "x", "x", 1);
    assert_int_equal(count(".new-"), 1);
    tern_sealed_clean(folder);
    assert_int_equal(count("."), 2); /* "." and ".." */
    TEST_OK(tern_sealed_check(path));
    tern_seal_abandon(seal); /* its folder is gone already */
    TEST_OK(tern_sealed_remove(path));
}

/* A file that cannot be written to its end: nothing stays, nothing old is touched. */
static void test_no_room(void **state)
{
    (void)state;
    char file[256], other[160];
    tern_seal *seal = NULL;
    struct rlimit old, small;
    unsigned char *data = large();
    make();
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = old;
    small.rlim_cur = 100000;
    signal(SIGXFSZ, SIG_IGN);
    snprintf(other, sizeof other, "%s/other", folder);
    TEST_OK(tern_seal_begin(other, &seal));
    snprintf(file, sizeof file, "%s/large", tern_seal_folder(seal));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    const tern_status status = tern_file_write(file, data, LARGE);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    TEST_ERROR(status, TERN_ERROR_IO, "after 100000 bytes");
    tern_seal_abandon(seal);
    assert_int_not_equal(access(other, F_OK), 0);
    assert_int_equal(count("."), 2);
    TEST_OK(tern_sealed_check(path));
    TEST_OK(tern_sealed_remove(path));
    free(data);
}

/* Two names of one content, replaced and never written into. */
static void test_link(void **state)
{
    (void)state;
    char from[160], to[160], *text = NULL;
    size_t bytes = 0;
    struct stat a, b;
    snprintf(from, sizeof from, "%s/from", folder);
    snprintf(to, sizeof to, "%s/to", folder);
    TEST_OK(tern_file_write(from, "one", 3));
    TEST_OK(tern_file_write(to, "old", 3));
    for (int i = 0; i < 2; i++) { /* the second time both names are one file already */
        TEST_OK(tern_file_link(from, to));
        TEST_OK(tern_file_read(to, 0, &text, &bytes));
        assert_string_equal(text, "one");
        free(text);
    }
    assert_int_equal(stat(from, &a) | stat(to, &b), 0);
    assert_int_equal(a.st_ino, b.st_ino);
    TEST_OK(tern_file_write(from, "two", 3));
    TEST_OK(tern_file_read(to, 0, &text, &bytes));
    assert_string_equal(text, "one");
    free(text);
    assert_int_equal(count("from"), 1);
    assert_int_equal(count("to"), 1); /* no temporary */
    TEST_ERROR(tern_file_link("/nowhere/x", to), TERN_ERROR_IO, "/nowhere/x");
    assert_int_equal(count("to"), 1);
    /* from another file system it is a copy */
    TEST_OK(tern_file_link("/proc/version", to));
    assert_int_equal(stat(to, &b), 0);
    assert_true(b.st_size > 0);
}

static int set_up(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/sealed", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),   cmocka_unit_test(test_damage), cmocka_unit_test(test_leftovers),
        cmocka_unit_test(test_no_room), cmocka_unit_test(test_link),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
