/* SPDX-License-Identifier: Apache-2.0 */
/* update_run.h - the update program alone, on a store of any options: the test writes gradients, one window follows.
 *
 * Parameters: "w" (40, 50) and "e" (300, 2), which decay, "b" (7) and "g" (600), which do not, and "f" (9), frozen. */
#ifndef TERN_TESTS_UPDATE_RUN_H
#define TERN_TESTS_UPDATE_RUN_H

#include "core/plan/session.h"
#include "core/train/store.h"
#include "core/train/update.h"

typedef struct update_run {
    tern_device *device;
    tern_graph *leaves, *graph;
    tern_store_layout *layout;
    tern_store *store;
    tern_session *session;
    uint32_t attempt; /* of the next window */
} update_run;

/* No clipping. Segments of one chunk unless options say otherwise. */
void update_run_start(update_run *run, tern_device *device, const tern_store_options *options);
void update_run_stop(update_run *run);
/* One window whose weights sum to n; the gradients were written to "acc.<parameter>". */
void update_run_window(update_run *run, float n, float lr);
/* The same gradient for all: acc.p[i] = amount * sin(i + shift), for every trainable parameter. */
void update_run_fill(update_run *run, float amount, float shift);
/* A whole leaf; free() it. */
void *update_run_read(const update_run *run, const char *name, uint64_t *out_bytes);
/* Everything that a skipped window must leave alone: slabs but acc, and the states named row. or column.; free() it. */
unsigned char *update_run_kept(const update_run *run, uint64_t *out_bytes);

#endif
