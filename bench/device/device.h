/* SPDX-License-Identifier: Apache-2.0 */
/* device.h - what bench/on_gpu measures on one device, the file that it writes, and the page made of such files.
 *
 *     facts.c      the machine, each backend's devices ──┐
 *     copy.c       bandwidth                             │
 *     matmul.c     products of GPT-2     ── replay.c     ├── result.c: one file of sections ── schema.c ── page.c
 *     attention.c  forward and backward                  │   docs/hardware.md
 *     step.c       a training step                       │
 *     check.c      right or wrong                       ──┘
 *     main.c       the command; bench/on_gpu calls it once for each section
 *
 * A section is a process of its own, so that what a driver does to it costs no other. What it is not: tuned for any
 * card. It replays what tern would run. Invariant: a section says "ok", "skipped" or "failed", the last two with a
 * sentence that says why. */
#ifndef TERN_BENCH_DEVICE_H
#define TERN_BENCH_DEVICE_H

#include "core/device/device.h"

#include <cjson/cJSON.h>

#define DEVICE_SCHEMA "tern-on-gpu-1"

/* ---------------------------------------------------------------- measuring */

typedef struct device_task {
    tern_device *device; /* opened with timestamps where the section wants them */
    int32_t dtype;       /* TERN_F32, TERN_F16, TERN_BF16; 0: integers (check only) */
    double seconds;      /* to be spent, roughly */
    bool small;          /* sizes for a CPU that plays a GPU */
} device_task;

/* Adds its figures to the section. May set "status" and "reason" itself; else they follow from the status returned:
 * TERN_ERROR_UNSUPPORTED and TERN_ERROR_DEVICE_MEMORY are "skipped", every other error is "failed". */
typedef tern_status (*device_measure)(const device_task *task, cJSON *section);
tern_status device_measure_check(const device_task *task, cJSON *section);
tern_status device_measure_copy(const device_task *task, cJSON *section);
tern_status device_measure_matmul(const device_task *task, cJSON *section);
tern_status device_measure_attention(const device_task *task, cJSON *section);
tern_status device_measure_step(const device_task *task, cJSON *section);

typedef struct device_section {
    const char *kind;
    device_measure measure;
    bool timestamps; /* open the device for them; a training step does not, since they may slow it */
} device_section;
extern const device_section device_sections[];
extern const uint32_t device_section_count;
const device_section *device_section_find(const char *kind); /* NULL: none of that name */

/* A figure of the section with "what" in it, to be filled; NULL when out of memory. */
cJSON *device_add_figure(cJSON *section, const char *what);
/* "timestamps" or "wall clock"; wall clock wins where a section has both. */
void device_set_timing(cJSON *section, bool timestamps);

/* ------------------------------------------------------------------- replay */

/* A graph's program, recorded once per slot, its leaves filled with numbers in [-1, 1). */
typedef struct replay replay;
TERN_MUST_USE tern_status replay_create(tern_device *device, const tern_graph *graph, replay **out_replay);
void replay_destroy(replay *r);

typedef struct replay_times {
    uint32_t repeats;                         /* replays measured */
    uint32_t launches;                        /* of one replay */
    bool timestamps;                          /* by_kind is the device's own clock */
    double wall;                              /* seconds of one replay, back to back, median */
    double by_kind[TERN_KERNEL_KIND_COUNT];   /* seconds of the launches of a kind in one replay, median; 0 without
                                                 timestamps */
    uint32_t count[TERN_KERNEL_KIND_COUNT];   /* launches of that kind in one replay */
    char variant[TERN_KERNEL_KIND_COUNT][48]; /* of the kind's first launch */
} replay_times;
/* Replays for about `seconds`, at least REPLAY_LEAST times after two that do not count. */
TERN_MUST_USE tern_status replay_time(replay *r, double seconds, replay_times *out_times);
double device_median(double *values, size_t count); /* sorts them */

/* -------------------------------------------------------------------- facts */

/* {"name", "devices": [...]} or, with no device, "missing": why. Loads that backend's driver and no other. */
TERN_MUST_USE tern_status device_backend_facts(const char *name, cJSON **out_backend);
TERN_MUST_USE tern_status device_machine_facts(cJSON **out_machine);

/* ------------------------------------------------------------------- result */

/* Reads a file of this schema. TERN_ERROR_FORMAT naming the file. */
TERN_MUST_USE tern_status device_result_read(const char *path, cJSON **out_result);
/* Replaces the file as a whole. */
TERN_MUST_USE tern_status device_result_write(const char *path, const cJSON *result);
/* Puts a section behind the file's others. */
TERN_MUST_USE tern_status device_result_put(const char *path, cJSON *section);

/* Every field that the schema asks for, with its type and range. TERN_ERROR_FORMAT with a sentence that names file and
 * field: "x.json: sections[3].figures[0].seconds is -1, but must be at least 0". text: the file's, zero-terminated.
 * out_result may be NULL. */
TERN_MUST_USE tern_status device_result_check(const char *path, const char *text, cJSON **out_result);

/* "card", "software", "CPU" or "stand-in": what such a device's figures are figures of. */
const char *device_ran_on(const char *kind, const char *name);

/* docs/hardware.md from all files of this schema in a folder, in the order of their names; other files are passed over
 * by their "schema". free() *out_text. */
TERN_MUST_USE tern_status device_page(const char *folder, char **out_text);

#endif
