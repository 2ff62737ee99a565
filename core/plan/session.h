/* SPDX-License-Identifier: Apache-2.0 */
/* session.h - one graph on one device, everything private: the short way for `tern check`, tests and sampling.
 *
 * Parameters and states live in buffers of the session's own, zero at the start. */
#ifndef TERN_PLAN_SESSION_H
#define TERN_PLAN_SESSION_H

#include "core/plan/plan.h"

typedef struct tern_session tern_session;

typedef struct tern_session_options {
    bool guard, reverse, no_fuse;
    const tern_binding *bindings; /* leaves found here live in the caller's store instead */
    uint32_t binding_count;
    uint64_t arena_limit; /* refuse a plan whose arena needs more bytes, before anything is allocated; 0: no limit */
} tern_session_options;

/* options NULL: defaults. The graph must outlive the session. */
TERN_MUST_USE tern_status tern_session_create(tern_device *device, const tern_graph *graph,
                                              const tern_session_options *options, tern_session **out_session);
void tern_session_destroy(tern_session *session);
/* Feeds a leaf (input, parameter or state) by name; bytes must be exactly its size. Feeding "ids" also feeds
 * "ids.order" and "ids.offsets". */
TERN_MUST_USE tern_status tern_session_write(tern_session *session, const char *name, const void *data, uint64_t bytes);
/* Runs once and waits. */
TERN_MUST_USE tern_status tern_session_run(tern_session *session);
/* A named output, parameter or state. */
TERN_MUST_USE tern_status tern_session_read(tern_session *session, const char *name, void *out_data, uint64_t bytes);
const tern_plan *tern_session_plan(const tern_session *session);

#endif
