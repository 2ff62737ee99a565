/* SPDX-License-Identifier: Apache-2.0 */
/* device.h - an opened device: a plug-in's table, its handle and the limits that the planner believes.
 *
 * Finds plug-ins (library directory/tern, then TERN_BACKEND_PATH, never the current directory; TERN_STATIC builds have
 * them inside), names devices ("vulkan:0", "vulkan:A770", UUID, PCI), merges one card seen twice by UUID. */
#ifndef TERN_DEVICE_DEVICE_H
#define TERN_DEVICE_DEVICE_H

#include "core/backend.h"
#include "core/base/status.h"

struct tern_device {
    const tern_backend *backend;
    tern_backend_device *handle;
    tern_device_info
        info; /* as queried, lowered by a limits profile where one was given, without tf32 unless allowed */
    uint32_t matrix_total; /* of info.matrix, tf32 shapes included: they stand last */
    char title[320];       /* "cpu: AMD EPYC (2 threads)" */
};

/* One backend as `tern devices` shows it. status < 0: message says what is missing and what to install. */
typedef struct tern_backend_entry {
    const char *name;
    const tern_backend *backend; /* NULL when its plug-in or driver is absent */
    tern_status status;
    char message[1024];
    uint32_t device_count; /* one UUID once; 0: message says why */
} tern_backend_entry;

/* All backends of backends.def in the order of `auto`, each tried once, at the first call. */
const tern_backend_entry *tern_backends(uint32_t *out_count);

/* A device of a loaded backend. Its place in the list is the number that names it ("vulkan:1"). */
typedef struct tern_device_listing {
    uint32_t index; /* the plug-in's own, for open and device_notes */
    tern_device_info info;
} tern_device_listing;
/* The backend's devices, those with one UUID (a card under two ICD files) once. free() *out_list. */
TERN_MUST_USE tern_status tern_device_list(const tern_backend *backend, tern_device_listing **out_list,
                                           uint32_t *out_count);

/* name as in tern_device_open; options NULL: defaults. */
TERN_MUST_USE tern_status tern_device_open_with(const char *name, const tern_open_options *options,
                                                tern_device **out_device);
/* A device that exists on paper only: info from a profile, for planning (`tern plan --limits`); backend is the null
 * backend. */
TERN_MUST_USE tern_status tern_device_open_paper(const char *profile, tern_device **out_device);

/* limits.c: built-in profiles lavapipe, arc-a770, rtx-3090, rtx-4090, a100, or a JSON file's path. Lowers *info. */
typedef struct tern_limits {
    char name[64];
    uint64_t memory_bytes, max_allocation_bytes, max_buffer_bytes, max_binding_bytes;
    uint32_t max_groups_x, max_group_size, shared_bytes;
    uint32_t lacks;            /* TERN_FEATURE_ bits that the card has not, whatever the device has */
    bool software;             /* no card but CPU threads */
    double submit_seconds;     /* no submission is predicted to run longer; default 0.5 */
    double flops, bytes_per_s; /* f32 rate and bandwidth, for predicted times; 0: unknown */
} tern_limits;
TERN_MUST_USE tern_status tern_limits_load(const char *name_or_path, tern_limits *out_limits);
/* What is believed of a device without a profile. */
void tern_limits_of(const tern_device_info *info, tern_limits *out_limits);
/* Lowers info's limits to the profile's (0 fields are left). */
void tern_limits_apply(const tern_limits *limits, tern_device_info *info);

#endif
