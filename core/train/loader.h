/* SPDX-License-Identifier: Apache-2.0 */
/* loader.h - text batches prepared by a thread (feeder.h) while the device computes.
 *
 *     thread: fill ──> [ slot | slot | slot ] ──> tern_loader_next ... tern_loader_release
 *
 * What it is not: it decides nothing; batch number i is tern_data_fill(i B) whatever the timing.
 * Invariant: a slot is written only by the thread while free and read only by the caller while taken; waiting is
 * bounded by the thread's own work, since filling a batch does no input or output. */
#ifndef TERN_TRAIN_LOADER_H
#define TERN_TRAIN_LOADER_H

#include "core/train/data.h"

typedef struct tern_loader tern_loader;

/* Starts at sample number `first_sample`. data must outlive the loader. */
TERN_MUST_USE tern_status tern_loader_create(const tern_data *data, uint64_t first_sample, tern_loader **out_loader);
/* Stops the thread; NULL allowed. */
void tern_loader_destroy(tern_loader *loader);
/* The next batch; the caller may read it until tern_loader_release. One batch is taken at a time. */
TERN_MUST_USE tern_status tern_loader_next(tern_loader *loader, const tern_batch **out_batch);
void tern_loader_release(tern_loader *loader);

#endif
