/* SPDX-License-Identifier: Apache-2.0 */
/* test_data.c - the split, the shuffle, the batches, the counting sort and the loader's thread. */
#include "tests/test.h"

#include <stdlib.h>

#include "core/graph/graph.h"
#include "core/train/loader.h"

/* A corpus whose byte i is a hash of i, so that a window shows where it came from. */
static tern_text make_text(uint64_t bytes)
{
    tern_text text = {.byte_count = bytes, .bytes = malloc(bytes)};
    assert_non_null(text.bytes);
    for (uint64_t i = 0; i < bytes; i++) text.bytes[i] = (unsigned char)((i * 2654435761u) >> 13);
    return text;
}

static const tern_data_options usual = {.context = 16, .batch = 4, .vocab = 256, .val_split = 0.1, .seed = 3};

static void test_permutation_is_one(void **state)
{
    (void)state;
    static const uint64_t counts[] = {1, 2, 3, 4, 5, 17, 64, 1000, 4097};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (uint32_t seed = 0; seed < 3; seed++) {
            const uint32_t key[2] = {seed, 77};
            unsigned char *seen = calloc(counts[c], 1);
            assert_non_null(seen);
            for (uint64_t i = 0; i < counts[c]; i++) {
                uint64_t to = tern_permute_index(i, counts[c], key);
                assert_true(to < counts[c]);
                assert_int_equal(seen[to]++, 0);
            }
            free(seen);
        }
    /* Huge counts work without memory, and neighbours land far apart. */
    const uint32_t key[2] = {1, 2};
    const uint64_t huge = (uint64_t)1 << 40;
    uint64_t a = tern_permute_index(0, huge, key), b = tern_permute_index(1, huge, key);
    assert_true(a < huge && b < huge && (a > b ? a - b : b - a) > 1000000);
}

static void test_epoch_covers_windows_once(void **state)
{
    (void)state;
    tern_text text = make_text(10007);
    tern_data data;
    TEST_OK(tern_data_init(&text, &usual, &data));
    assert_int_equal(data.val_bytes, 1000);
    assert_int_equal(data.train_bytes, 9007);
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        unsigned char *seen = calloc(data.train_bytes, 1);
        assert_non_null(seen);
        uint64_t first = UINT64_MAX;
        for (uint64_t i = 0; i < data.windows; i++) {
            uint64_t start = tern_data_window(&data, epoch * data.windows + i);
            assert_true(start + usual.context < data.train_bytes); /* the last label is a training byte */
            assert_int_equal(seen[start]++, 0);
            if (start < first) first = start;
        }
        for (uint64_t i = 0; i < data.windows; i++) assert_int_equal(seen[first + i * usual.context], 1);
        free(seen);
    }
    free(text.bytes);
}

static void test_shuffle_depends_on_seed_and_epoch_only(void **state)
{
    (void)state;
    tern_text text = make_text(5000);
    tern_data a, b, c;
    tern_data_options other = usual, batched = usual;
    other.seed = 4;
    batched.batch = 7;
    TEST_OK(tern_data_init(&text, &usual, &a));
    TEST_OK(tern_data_init(&text, &other, &b));
    TEST_OK(tern_data_init(&text, &batched, &c));
    uint32_t same_seed = 0, same_epoch = 0;
    for (uint64_t i = 0; i < 200; i++) {
        assert_int_equal(tern_data_window(&a, i), tern_data_window(&c, i)); /* whatever the batch */
        same_seed += tern_data_window(&a, i) == tern_data_window(&b, i);
        same_epoch += tern_data_window(&a, i) == tern_data_window(&a, i + a.windows);
    }
    assert_true(same_seed < 20 && same_epoch < 20);
    free(text.bytes);
}

static void test_batch_contents(void **state)
{
    (void)state;
    tern_text text = make_text(3000);
    tern_data data;
    tern_batch batch;
    TEST_OK(tern_data_init(&text, &usual, &data));
    TEST_OK(tern_batch_create(&usual, &batch));
    tern_data_fill(&data, 40, &batch);
    assert_int_equal(batch.sample, 40);
    for (uint32_t b = 0; b < usual.batch; b++) {
        uint64_t start = tern_data_window(&data, 40 + b);
        for (uint32_t t = 0; t < usual.context; t++) {
            assert_int_equal(batch.ids[b * usual.context + t], text.bytes[start + t]);
            assert_int_equal(batch.labels[b * usual.context + t], text.bytes[start + t + 1]);
        }
    }
    /* order: positions grouped by id, ascending within a group */
    assert_int_equal(batch.offsets[0], 0);
    assert_int_equal(batch.offsets[usual.vocab], usual.batch * usual.context);
    for (uint32_t v = 0; v < usual.vocab; v++)
        for (uint32_t i = batch.offsets[v]; i < batch.offsets[v + 1]; i++) {
            assert_int_equal(batch.ids[batch.order[i]], v);
            if (i > batch.offsets[v]) assert_true(batch.order[i] > batch.order[i - 1]);
        }
    tern_batch_finish(&batch);
    free(text.bytes);
}

static void test_counting_sort_clamps(void **state)
{
    (void)state;
    const int32_t ids[6] = {2, 0, 9, 2, 1, 0}; /* 9 counts as the last row, 2 */
    uint32_t order[6], offsets[4];
    tern_counting_sort(ids, TERN_I32, 6, 3, order, offsets);
    assert_memory_equal(offsets, ((uint32_t[]){0, 2, 3, 6}), sizeof offsets);
    assert_memory_equal(order, ((uint32_t[]){1, 5, 4, 0, 2, 3}), sizeof order);
}

static void test_validation_is_whole_and_apart(void **state)
{
    (void)state;
    tern_text text = make_text(4300);
    tern_data data;
    tern_batch batch;
    uint64_t counted = 0;
    TEST_OK(tern_data_init(&text, &usual, &data));
    TEST_OK(tern_batch_create(&usual, &batch));
    const uint64_t windows = (data.val_bytes - 1) / usual.context;
    assert_int_equal(data.val_batches, (windows + usual.batch - 1) / usual.batch);
    assert_true(windows % usual.batch != 0); /* so the last batch is partial */
    for (uint64_t i = 0; i < data.val_batches; i++) {
        tern_data_fill_validation(&data, i, &batch);
        for (uint32_t k = 0; k < usual.batch * usual.context; k++) {
            if (batch.labels[k] == TERN_LABEL_IGNORE) continue;
            assert_int_equal(batch.ids[k], text.bytes[data.train_bytes + counted]);
            assert_int_equal(batch.labels[k], text.bytes[data.train_bytes + counted + 1]);
            counted++;
        }
    }
    assert_int_equal(counted, windows * usual.context);
    tern_batch_finish(&batch);
    free(text.bytes);
}

static void test_bad_data_options(void **state)
{
    (void)state;
    tern_text text = make_text(100);
    tern_data data = {.windows = 12345};
    tern_data_options o = {.context = 100, .batch = 1, .vocab = 256};
    TEST_ERROR(tern_data_init(&text, &o, &data), TERN_ERROR_INVALID,
               "have 100 bytes, but a context of 100 needs at least 101");
    o.context = 20;
    o.val_split = 0.1;
    TEST_ERROR(tern_data_init(&text, &o, &data), TERN_ERROR_INVALID, "leaves 10 of 100 bytes for validation");
    o.val_split = 0.9;
    TEST_ERROR(tern_data_init(&text, &o, &data), TERN_ERROR_INVALID, "leaves 10 of 100 bytes for training");
    o.val_split = 1;
    TEST_ERROR(tern_data_init(&text, &o, &data), TERN_ERROR_INVALID, "must lie in [0, 1)");
    o.val_split = (double)NAN;
    TEST_ERROR(tern_data_init(&text, &o, &data), TERN_ERROR_INVALID, "must lie in [0, 1)");
    o.val_split = 0;
    o.batch = 0;
    TEST_ERROR(tern_data_init(&text, &o, &data), TERN_ERROR_INVALID, "batch 0");
    o.batch = 1;
    o.vocab = 4;
    TEST_ERROR(tern_data_init(&text, &o, &data), TERN_ERROR_INVALID, "vocabulary ends at 3");
    assert_int_equal(data.windows, 12345);
    o.vocab = 256;
    o.context = 99; /* exactly one window */
    TEST_OK(tern_data_init(&text, &o, &data));
    assert_int_equal(data.windows, 1);
    for (uint64_t i = 0; i < 5; i++) assert_int_equal(tern_data_window(&data, i), 0);
    free(text.bytes);
}

static void test_loader_gives_the_same_batches(void **state)
{
    (void)state;
    tern_text text = make_text(3000);
    tern_data data;
    tern_batch expected;
    tern_loader *loader = NULL;
    const tern_batch *batch = NULL;
    TEST_OK(tern_data_init(&text, &usual, &data));
    TEST_OK(tern_batch_create(&usual, &expected));
    TEST_OK(tern_loader_create(&data, 8, &loader));
    for (uint64_t i = 0; i < 50; i++) {
        TEST_OK(tern_loader_next(loader, &batch));
        tern_data_fill(&data, 8 + i * usual.batch, &expected);
        assert_int_equal(batch->sample, expected.sample);
        assert_memory_equal(batch->ids, expected.ids, usual.batch * usual.context * sizeof *batch->ids);
        assert_memory_equal(batch->order, expected.order, usual.batch * usual.context * sizeof *batch->order);
        if (i == 7) TEST_ERROR(tern_loader_next(loader, &batch), TERN_ERROR_INVALID, "release it");
        tern_loader_release(loader);
        tern_loader_release(loader); /* releasing nothing does nothing */
    }
    tern_loader_destroy(loader);
    TEST_OK(tern_loader_create(&data, 0, &loader)); /* destroyed while its thread fills or waits */
    tern_loader_destroy(loader);
    tern_loader_destroy(NULL);
    tern_batch_finish(&expected);
    free(text.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_permutation_is_one),
        cmocka_unit_test(test_epoch_covers_windows_once),
        cmocka_unit_test(test_shuffle_depends_on_seed_and_epoch_only),
        cmocka_unit_test(test_batch_contents),
        cmocka_unit_test(test_counting_sort_clamps),
        cmocka_unit_test(test_validation_is_whole_and_apart),
        cmocka_unit_test(test_bad_data_options),
        cmocka_unit_test(test_loader_gives_the_same_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
