/* SPDX-License-Identifier: Apache-2.0 */
/* data.h - batches of next-token prediction from one array of byte tokens.
 *
 *     corpus [0 .......................................... split .......... n)
 *             training: shuffled windows, endless           validation: windows in order, once
 *
 *     window at s:  ids = corpus[s .. s + T)   labels = corpus[s + 1 .. s + T]
 *
 * The split: the last `val_split` of the whole corpus is held out; no training window touches it, labels included.
 * The shuffle: sample i of the run belongs to epoch i / N and is window p(i mod N) of it, where p is a keyed Feistel
 * permutation of [0, N) and the epoch also shifts all windows by a random start. So any sample is computed from (seed,
 * i) alone: nothing is stored, and a resumed run continues exactly where it was. What it is not: no thread (loader.h)
 * and no file (formats/text.h). Invariant: tern_data_fill reads inside its own part only. */
#ifndef TERN_TRAIN_DATA_H
#define TERN_TRAIN_DATA_H

#include "core/formats/text.h"

/* The label of a position that does not count. */
#define TERN_LABEL_IGNORE (-100)

typedef struct tern_data_options {
    uint32_t context, batch;
    uint32_t vocab;   /* tokens are below it; bytes above are an error */
    double val_split; /* [0, 1): fraction held out; 0: no validation */
    uint64_t seed;
} tern_data_options;

typedef struct tern_data {
    const tern_text *text;
    tern_data_options options;
    uint64_t train_bytes, val_bytes;
    uint64_t windows;     /* of one training epoch */
    uint64_t shift_range; /* an epoch's first window starts in [0, shift_range) */
    uint64_t val_batches; /* 0 without validation */
} tern_data;

/* One micro-batch, (B, T) row-major; order and offsets are the stable counting sort of the ids (tern_input_sort). */
typedef struct tern_batch {
    int32_t *ids, *labels;
    uint32_t *order, *offsets; /* B T and vocab + 1 */
    uint64_t sample;           /* number of its first sample in the run */
} tern_batch;

/* Checks the options against the corpus, which must outlive *data; on failure *data is untouched. */
TERN_MUST_USE tern_status tern_data_init(const tern_text *text, const tern_data_options *options, tern_data *data);
/* Where sample `sample` of the run starts in the corpus. */
uint64_t tern_data_window(const tern_data *data, uint64_t sample);
/* Training samples sample .. sample + B - 1. */
void tern_data_fill(const tern_data *data, uint64_t sample, tern_batch *batch);
/* Validation batch `index` < val_batches; rows beyond the last window have TERN_LABEL_IGNORE everywhere. */
void tern_data_fill_validation(const tern_data *data, uint64_t index, tern_batch *batch);

TERN_MUST_USE tern_status tern_batch_create(const tern_data_options *options, tern_batch *out_batch);
void tern_batch_finish(tern_batch *batch);

/* A permutation of [0, count) chosen by `key`: position of `index` < count. */
uint64_t tern_permute_index(uint64_t index, uint64_t count, const uint32_t key[2]);

#endif
