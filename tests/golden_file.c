/* SPDX-License-Identifier: Apache-2.0 */
/* golden_file.c - see golden_file.h. */
#include "tests/golden_file.h"
#include "tests/test.h"

#include <stdlib.h>

static void read_block(FILE *in, const char *path, test_golden *item)
{
    item->values = calloc(item->count, sizeof *item->values);
    assert_non_null(item->values);
    for (size_t i = 0; i < item->count; i++)
        if (fscanf(in, "%lf", &item->values[i]) != 1)
            fail_msg("%s: value %zu of %s %s %s is missing", path, i, item->problem, item->run, item->tensor);
}

void test_golden_read(const char *path, test_golden_file *out_file)
{
    char line[256];
    FILE *in = fopen(path, "r");
    if (!in) fail_msg("cannot open %s", path);
    memset(out_file, 0, sizeof *out_file);
    assert_non_null(fgets(line, sizeof line, in)); /* the comment */
    for (;;) {
        test_golden item = {.count = 0};
        const int read = fscanf(in, "%31s %31s %31s %zu", item.problem, item.run, item.tensor, &item.count);
        if (read == EOF) break;
        if (read != 4 || item.count == 0 || item.count > 1u << 20) fail_msg("%s: a block's head is broken", path);
        read_block(in, path, &item);
        out_file->items = realloc(out_file->items, (out_file->count + 1) * sizeof *out_file->items);
        assert_non_null(out_file->items);
        out_file->items[out_file->count++] = item;
    }
    fclose(in);
    assert_true(out_file->count > 0);
}

void test_golden_finish(test_golden_file *file)
{
    for (size_t i = 0; i < file->count; i++) free(file->items[i].values);
    free(file->items);
}

const test_golden *test_golden_find(const test_golden_file *file, const char *problem, const char *run,
                                    const char *tensor)
{
    for (size_t i = 0; i < file->count; i++) {
        const test_golden *item = &file->items[i];
        if (strcmp(item->problem, problem) == 0 && strcmp(item->run, run) == 0 && strcmp(item->tensor, tensor) == 0)
            return item;
    }
    return NULL;
}
