/* SPDX-License-Identifier: Apache-2.0 */
/* test_plugin_search.c - places of libraries as core/base/plugin_search.h expands them, in a folder made for it. */
#include "tests/test.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/plugin_search.h"

static char root[40];
static char seen[4000]; /* the visited, each with a newline, `root` cut off */
static int count;

static void visit(void *context, const char *path)
{
    assert_ptr_equal(context, &count);
    const size_t length = strlen(root);
    if (strncmp(path, root, length) == 0) path += length + 1;
    strncat(seen, path, sizeof seen - strlen(seen) - 2);
    strcat(seen, "\n");
    count++;
}

static void expect(const char *place, const char *wanted)
{
    seen[0] = 0;
    count = 0;
    tern_search(&place, 1, visit, &count);
    assert_string_equal(seen, wanted);
}

static void file_make(const char *name)
{
    char path[200];
    (void)snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *file = fopen(path, "w");
    if (!file) fail_msg("%s", path);
    (void)fclose(file);
}

static void folder_make(const char *name)
{
    char path[200];
    (void)snprintf(path, sizeof path, "%s/%s", root, name);
    assert_int_equal(mkdir(path, 0700), 0);
}

static int set_up(void **state)
{
    (void)state;
    char name[40];
    (void)strcpy(root, "/tmp/tern-search-XXXXXX");
    if (!mkdtemp(root)) return 1;
    folder_make("a1"), folder_make("a2"), folder_make("od[d]*"), folder_make("many");
    file_make("a1/x.so.2"), file_make("a1/x.so"), file_make("a2/x.so"), file_make("od[d]*/x.so");
    for (int i = 0; i < 50; i++) {
        (void)snprintf(name, sizeof name, "many/x.so.%02d", i);
        file_make(name);
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    char command[80];
    (void)snprintf(command, sizeof command, "rm -r %s", root);
    return system(command); /* NOLINT: a folder of our own */
}

static void test_places(void **state)
{
    (void)state;
    char odd[80];
    (void)unsetenv("TERN_TEST_PLACE");
    expect("x.so", "x.so\n"); /* the loader's to find */
    expect("$TERN_TEST_PLACE/a1/x.so", "");
    (void)setenv("TERN_TEST_PLACE", "", 1);
    expect("$TERN_TEST_PLACE/a1/x.so", "");
    (void)setenv("TERN_TEST_PLACE", root, 1);
    expect("$TERN_TEST_PLACE/a*/x.so*", "a1/x.so\na1/x.so.2\na2/x.so\n");
    expect("$TERN_TEST_PLACE/b*/x.so*", "");
    expect("$TERN_TEST_PLACE/a1/y.so", "");
    (void)snprintf(odd, sizeof odd, "%s/od[d]*", root); /* the user's folder is no pattern */
    (void)setenv("TERN_TEST_PLACE", odd, 1);
    expect("$TERN_TEST_PLACE/x.so*", "od[d]*/x.so\n");
}

static void test_is_bounded(void **state)
{
    (void)state;
    char *longest = malloc(5000);
    assert_non_null(longest);
    memset(longest, 'x', 4999);
    longest[4999] = 0;
    const char *const places[] = {"$TERN_TEST_PLACE/many/x*", "$TERN_TEST_PLACE/a2/x*"};
    (void)setenv("TERN_TEST_PLACE", root, 1);
    seen[0] = 0;
    count = 0;
    tern_search(places, 2, visit, &count);
    assert_int_equal(count, TERN_SEARCH_FILES + 1);
    assert_non_null(strstr(seen, "many/x.so.31\na2/x.so\n"));
    (void)setenv("TERN_TEST_PLACE", longest, 1);
    expect("$TERN_TEST_PLACE/x.so", "");
    expect(longest, "");
    free(longest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_places), cmocka_unit_test(test_is_bounded)};
    return cmocka_run_group_tests_name("plugin_search", tests, set_up, tear_down);
}
