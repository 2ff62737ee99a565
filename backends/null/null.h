/* SPDX-License-Identifier: Apache-2.0 */
/* null.h - the null backend's hooks for tests: what it was asked, and how it should fail.
 *
 * The null backend computes nothing: device buffers have no bytes (reads give zeros), upload and read-back buffers are
 * host memory, programs are checked when recorded and only counted when submitted. So a training set-up of any size can
 * be built, counted and broken at every call in turn, in microseconds.
 *
 *     tern_device_open("null", &device);
 *     const tern_null_hooks *null = tern_null_hooks_of(device->backend);
 *     null->fail_call(3, TERN_ERROR_DRIVER);   the third call from now fails
 *     ... null->counts(&c); assert c.leaks == 0
 *
 * Without a test: TERN_NULL_FAIL_CALL=n[:status] in the environment makes the n-th call since load fail. */
#ifndef TERN_NULL_NULL_H
#define TERN_NULL_NULL_H

#include "core/backend.h"

typedef struct tern_null_counts {
    uint64_t calls;                     /* entries of the table that can fail */
    uint64_t program_submits;           /* calls of program_submit */
    uint64_t submissions;               /* 1 + cuts for each */
    uint64_t dispatches, copies, fills; /* in submitted programs */
    uint64_t waits;
    uint64_t in_flight_peak; /* submitted and not yet waited for */
    uint64_t kernels_created, buffers_created, programs_created;
    uint64_t devices, buffers, kernels, programs; /* alive now */
    uint64_t bytes, bytes_peak;                   /* in buffers alive */
    uint64_t leaks;                               /* objects alive when their device was closed */
    uint64_t misuses;                             /* destroyed while a program still uses them */
} tern_null_counts;

#define TERN_NULL_DEVICES 4

/* What the null driver pretends to be. */
typedef struct tern_null_device {
    uint32_t count; /* of devices, at most TERN_NULL_DEVICES */
    tern_device_info info[TERN_NULL_DEVICES];
    bool declines_epilogues;
} tern_null_device;

typedef struct tern_null_hooks {
    void (*counts)(tern_null_counts *out_counts);
    /* Counters to zero (what is alive stays counted), no failure planned, default device. */
    void (*reset)(void);
    /* The n-th call from now (1: the next) fails with `status`, once; TERN_ERROR_DEVICE_LOST is latched by its device.
     * n 0: none. */
    void (*fail_call)(uint64_t n, tern_status status);
    /* The default settings (one device with generous limits; four alike are filled in), to be changed and given to
     * set_device, which is for devices listed or opened from then on; NULL there restores the defaults. */
    void (*get_device)(tern_null_device *out_device);
    void (*set_device)(const tern_null_device *device);
} tern_null_hooks;

/* The table that tern_backend_get returns is the first member of this. */
typedef struct tern_null_backend {
    tern_backend backend;
    const tern_null_hooks *hooks;
} tern_null_backend;

/* backend: the null backend's table and no other. */
static inline const tern_null_hooks *tern_null_hooks_of(const tern_backend *backend)
{
    return ((const tern_null_backend *)(const void *)backend)->hooks;
}

#endif
