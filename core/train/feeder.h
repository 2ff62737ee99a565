/* SPDX-License-Identifier: Apache-2.0 */
/* feeder.h - a thread that calls a feed callback ahead of the training loop.
 *
 *     thread: callback ──> [ batch | batch | batch ] ──> tern_feeder_next ... tern_feeder_release
 *
 * What it is not: it knows no graph and no device, only names and sizes. loader.h feeds text through it.
 * Invariants: a batch is written only by the thread while free and read only by the caller while taken; batches come in
 * the callback's order; its end or its error comes after the batches before it and stays. In a child after fork, which
 * has no such thread, next is an error and destroy waits for nothing. */
#ifndef TERN_TRAIN_FEEDER_H
#define TERN_TRAIN_FEEDER_H

#include "core/base/status.h"

typedef struct tern_feeder tern_feeder;

typedef struct tern_feeder_options {
    const tern_feed_slot *slots; /* names, which must outlive the feeder, and sizes; data is not looked at */
    uint32_t slot_count;
    int64_t most; /* examples in a batch */
    tern_feed_callback callback;
    void *context;
} tern_feeder_options;

TERN_MUST_USE tern_status tern_feeder_create(const tern_feeder_options *options, tern_feeder **out_feeder);
/* Waits for a callback in work; NULL allowed. */
void tern_feeder_destroy(tern_feeder *feeder);
/* The next batch: slot_count feeds, readable until tern_feeder_release, and how many examples; 0 examples: the end. The
 * callback's error with its own sentence behind "the feed callback". */
TERN_MUST_USE tern_status tern_feeder_next(tern_feeder *feeder, const tern_feed **out_feeds, int64_t *out_examples);
void tern_feeder_release(tern_feeder *feeder);

#endif
