/* SPDX-License-Identifier: Apache-2.0 */
/* facts.h - what a checkpoint and the run that goes on from it must share, as JSON: {"batch": {"batch": 8}, ...}.
 *
 *     then   of the checkpoint   ──┐
 *     now    of the options      ──┴─ compare ──> the first difference, in one sentence with both values
 *
 * A group of facts has a row in facts.c: what to do about a difference, and which permission lifts it. What it is not:
 * the device, driver and kernels are no facts, a run may change them (checkpoint.h). Keys that only one side has are
 * no difference: they are of another version of tern. */
#ifndef TERN_TRAIN_FACTS_H
#define TERN_TRAIN_FACTS_H

#include <cjson/cJSON.h>

#include "core/train/setup.h"

/* Groups. */
#define TERN_FACTS_MODEL     "model"
#define TERN_FACTS_BATCH     "batch"
#define TERN_FACTS_RUN       "run"
#define TERN_FACTS_DATA      "data"
#define TERN_FACTS_OPTIMIZER "optimizer" /* which one: its states are of no use to another */
#define TERN_FACTS_UPDATE    "update"    /* its numbers */
#define TERN_FACTS_SCHEDULE  "schedule"
#define TERN_FACTS_PRECISION "precision" /* may change: masters are f32; then the bits do (checkpoint.h) */

enum { /* permissions */
       TERN_FACTS_ALLOW_DATA = 1,
       TERN_FACTS_ALLOW_SETTINGS = 2 /* update and schedule */
};

/* Each adds to facts[group], making the group; false when out of memory or facts is NULL. */
bool tern_facts_add_number(cJSON *facts, const char *group, const char *key, double value);
bool tern_facts_add_text(cJSON *facts, const char *group, const char *key, const char *value);
bool tern_facts_add_hex(cJSON *facts, const char *group, const char *key, uint64_t value); /* JSON has no 64 bits */
/* Micro-batch, optimizer and its numbers, what else the update does, precision. Reads the groups, so early. */
bool tern_facts_add_setup(cJSON *facts, const tern_setup_options *options);
bool tern_facts_add_precision(cJSON *facts, const tern_setup_options *options);

/* TERN_ERROR_INVALID naming `folder`, group, key and both values. */
TERN_MUST_USE tern_status tern_facts_compare(const char *folder, const cJSON *then, const cJSON *now, uint32_t allowed);

#endif
