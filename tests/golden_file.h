/* SPDX-License-Identifier: Apache-2.0 */
/* golden_file.h - numbers that a script computed once: blocks "problem run tensor count" and their values, as text. */
#ifndef TERN_TESTS_GOLDEN_FILE_H
#define TERN_TESTS_GOLDEN_FILE_H

#include <stddef.h>

typedef struct test_golden {
    char problem[32], run[32], tensor[32];
    size_t count;
    double *values;
} test_golden;

typedef struct test_golden_file {
    test_golden *items;
    size_t count;
} test_golden_file;

/* Fails the test when the file is missing or broken. */
void test_golden_read(const char *path, test_golden_file *out_file);
void test_golden_finish(test_golden_file *file);
/* NULL: no such block. */
const test_golden *test_golden_find(const test_golden_file *file, const char *problem, const char *run,
                                    const char *tensor);

#endif
