/* SPDX-License-Identifier: Apache-2.0 */
/* data.c - the split, the shuffle and the filling of batches; data.h says what they promise. */
#include "core/train/data.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/philox.h"
#include "core/graph/graph.h"

#define FEISTEL_ROUNDS 6

/* Domains of the random numbers drawn here, so that none is drawn twice. */
enum { DOMAIN_SHUFFLE = 0x5u, DOMAIN_SHIFT = 0x6u };

/* A Feistel network permutes [0, 2^(2h)), the smallest even power of two that covers the count; indices that land
 * outside are sent through again until they land inside ("cycle walking"), which keeps it a permutation of [0, count).
 * The domain is at most 4 counts large, so that the walk takes 4 steps on average. */
uint64_t tern_permute_index(uint64_t index, uint64_t count, const uint32_t key[2])
{
    uint32_t half = 1;
    while (half < 32 && (uint64_t)1 << 2 * half < count) half++;
    uint32_t mask = half == 32 ? UINT32_MAX : ((uint32_t)1 << half) - 1;
    do {
        uint32_t left = (uint32_t)(index >> half), right = (uint32_t)index & mask;
        for (uint32_t round = 0; round < FEISTEL_ROUNDS; round++) {
            uint32_t counter[4] = {right, round, DOMAIN_SHUFFLE, 0}, out[4];
            tern_philox(counter, key, out);
            uint32_t next = (left ^ out[0]) & mask;
            left = right;
            right = next;
        }
        index = (uint64_t)left << half | right;
    } while (index >= count);
    return index;
}

static tern_status check_part(const char *part, uint64_t bytes, uint64_t total, const tern_data_options *options)
{
    if (bytes > options->context) return TERN_OK;
    if (part[0] == 0)
        return tern_error(
            TERN_ERROR_INVALID,
            "the data have %llu bytes, but a context of %u needs at least %llu; lower the context or give more text",
            (unsigned long long)bytes, options->context, (unsigned long long)options->context + 1);
    return tern_error(TERN_ERROR_INVALID,
                      "a validation split of %g leaves %llu of %llu bytes for %s, but a context of %u needs at least "
                      "%llu; change the split, the context or the data",
                      options->val_split, (unsigned long long)bytes, (unsigned long long)total, part, options->context,
                      (unsigned long long)options->context + 1);
}

static tern_status check_tokens(const tern_text *text, uint32_t vocab)
{
    if (vocab >= 256) return TERN_OK;
    for (uint64_t i = 0; i < text->byte_count; i++)
        if (text->bytes[i] >= vocab)
            return tern_error(TERN_ERROR_INVALID,
                              "byte %llu of the data is %u, but the vocabulary ends at %u; use a vocabulary of 256",
                              (unsigned long long)i, text->bytes[i], vocab - 1);
    return TERN_OK;
}

tern_status tern_data_init(const tern_text *text, const tern_data_options *options, tern_data *data)
{
    tern_status status;
    tern_data made = {.text = text, .options = *options};
    if (options->context == 0 || options->batch == 0 || options->vocab == 0)
        return tern_error(TERN_ERROR_INVALID, "context %u, batch %u and vocabulary %u must all be at least 1",
                          options->context, options->batch, options->vocab);
    if ((uint64_t)options->context * options->batch > INT32_MAX)
        return tern_error(TERN_ERROR_INVALID,
                          "a batch of %u windows of %u tokens is too large; at most 2147483647 tokens fit",
                          options->batch, options->context);
    if (!(options->val_split >= 0 && options->val_split < 1))
        return tern_error(TERN_ERROR_INVALID, "the validation split is %g; it must lie in [0, 1)", options->val_split);
    TERN_TRY(check_part("", text->byte_count, text->byte_count, options));
    made.val_bytes = (uint64_t)((double)text->byte_count * options->val_split);
    if (options->val_split > 0) TERN_TRY(check_part("validation", made.val_bytes, text->byte_count, options));
    made.train_bytes = text->byte_count - made.val_bytes;
    TERN_TRY(check_part("training", made.train_bytes, text->byte_count, options));
    TERN_TRY(check_tokens(text, options->vocab));

    /* One window fewer than fits gives the epochs room to shift by a whole window, so that no boundary stays one. */
    uint64_t labels = made.train_bytes - 1;
    made.windows = labels / options->context;
    if (made.windows > 1) made.windows--;
    made.shift_range = labels - made.windows * options->context + 1;
    if (made.val_bytes > 0) {
        uint64_t windows = (made.val_bytes - 1) / options->context;
        made.val_batches = (windows + options->batch - 1) / options->batch;
    }
    *data = made;
    return TERN_OK;
fail:
    return status;
}

uint64_t tern_data_window(const tern_data *data, uint64_t sample)
{
    uint64_t epoch = sample / data->windows;
    uint32_t key[2], out[4];
    tern_philox_step_key(data->options.seed, epoch, key);
    uint32_t counter[4] = {0, 0, DOMAIN_SHIFT, 0};
    tern_philox(counter, key, out);
    uint64_t shift = ((uint64_t)out[1] << 32 | out[0]) % data->shift_range;
    return shift + tern_permute_index(sample % data->windows, data->windows, key) * data->options.context;
}

static void fill_row(const tern_data *data, uint64_t start, tern_batch *batch, uint32_t row)
{
    const unsigned char *from = data->text->bytes + start;
    int32_t *ids = batch->ids + (size_t)row * data->options.context;
    int32_t *labels = batch->labels + (size_t)row * data->options.context;
    for (uint32_t t = 0; t < data->options.context; t++) {
        ids[t] = from[t];
        labels[t] = from[t + 1];
    }
}

static void sort_ids(const tern_data *data, tern_batch *batch)
{
    int64_t count = (int64_t)data->options.context * data->options.batch;
    tern_counting_sort(batch->ids, TERN_I32, count, data->options.vocab, batch->order, batch->offsets);
}

void tern_data_fill(const tern_data *data, uint64_t sample, tern_batch *batch)
{
    batch->sample = sample;
    for (uint32_t b = 0; b < data->options.batch; b++) fill_row(data, tern_data_window(data, sample + b), batch, b);
    sort_ids(data, batch);
}

void tern_data_fill_validation(const tern_data *data, uint64_t index, tern_batch *batch)
{
    uint32_t context = data->options.context, rows = data->options.batch;
    uint64_t windows = (data->val_bytes - 1) / context;
    batch->sample = index * rows;
    for (uint32_t b = 0; b < rows; b++) {
        uint64_t window = index * rows + b;
        if (window < windows) {
            fill_row(data, data->train_bytes + window * context, batch, b);
            continue;
        }
        memset(batch->ids + (size_t)b * context, 0, context * sizeof *batch->ids);
        for (uint32_t t = 0; t < context; t++) batch->labels[(size_t)b * context + t] = TERN_LABEL_IGNORE;
    }
    sort_ids(data, batch);
}

tern_status tern_batch_create(const tern_data_options *options, tern_batch *out_batch)
{
    size_t tokens = (size_t)options->context * options->batch;
    tern_batch batch = {0};
    batch.ids = calloc(tokens, sizeof *batch.ids);
    batch.labels = calloc(tokens, sizeof *batch.labels);
    batch.order = calloc(tokens, sizeof *batch.order);
    batch.offsets = calloc((size_t)options->vocab + 1, sizeof *batch.offsets);
    if (!batch.ids || !batch.labels || !batch.order || !batch.offsets) {
        tern_batch_finish(&batch);
        return tern_error_memory("a batch", tokens * 12 + (size_t)options->vocab * 4);
    }
    *out_batch = batch;
    return TERN_OK;
}

void tern_batch_finish(tern_batch *batch)
{
    free(batch->ids);
    free(batch->labels);
    free(batch->order);
    free(batch->offsets);
    memset(batch, 0, sizeof *batch);
}
