/* SPDX-License-Identifier: Apache-2.0 */
/* control.c - the null backend's counters, settings and planned failures. */
#include "backends/null/control.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static null_state state;

/* Limits that never bind, so that a test sees only those it sets. */
static const tern_device_info default_info = {
    .name = "null",
    .driver = "computes nothing",
    .kind = TERN_DEVICE_SOFTWARE_GPU,
    .features = TERN_FEATURE_STORAGE_16 | TERN_FEATURE_STORAGE_8 | TERN_FEATURE_ARITHMETIC_F16 |
                TERN_FEATURE_TIMESTAMPS | TERN_FEATURE_BUFFER_ADDRESS,
    .memory_bytes = 1ull << 40,
    .memory_free_bytes = 1ull << 40,
    .max_allocation_bytes = 1ull << 38,
    .max_buffer_bytes = 1ull << 38,
    .max_binding_bytes = 1ull << 38,
    .max_groups = {0x7fffffff, 65535, 65535},
    .max_group_size = 1024,
    .shared_bytes = 48 << 10,
    .subgroup_min = 32,
    .subgroup_max = 32,
    .offset_alignment = 256,
    .threads = 1,
};

static void set_defaults(tern_null_device *device)
{
    *device = (tern_null_device){.count = 1};
    for (int i = 0; i < TERN_NULL_DEVICES; i++) device->info[i] = default_info;
}

null_state *null_lock(void)
{
    pthread_mutex_lock(&lock);
    if (!state.ready) set_defaults(&state.device);
    state.ready = true;
    return &state;
}

void null_unlock(void) { pthread_mutex_unlock(&lock); }

tern_status null_enter(tern_backend_device *device, const char *entry)
{
    null_state *s = null_lock();
    bool fails = s->fail_in > 0 && --s->fail_in == 0;
    uint64_t call = ++s->counts.calls;
    tern_status planned = s->fail_status;
    if (fails && planned == TERN_ERROR_DEVICE_LOST && device) device->lost = true;
    bool lost = device && device->lost;
    null_unlock();
    if (device && device->pid != getpid())
        return tern_error(TERN_ERROR_INVALID,
                          "null: %s in a child process on its parent's device; open a device in the child", entry);
    if (fails)
        return tern_error(planned, "null: call %llu (%s) fails as it was told to", (unsigned long long)call, entry);
    if (lost) return tern_error(TERN_ERROR_DEVICE_LOST, "null: %s on a lost device; close it and open it again", entry);
    return TERN_OK;
}

tern_status null_same_device(const tern_backend_device *device, const tern_backend_device *owner, const char *what)
{
    if (owner == device) return TERN_OK;
    return tern_error(TERN_ERROR_INVALID, "null: a %s is used with a device that did not make it", what);
}

void null_forget(tern_backend_device *device)
{
    if (--device->objects == 0 && device->closed) free(device);
}

tern_status null_read_environment(void)
{
    const char *text = getenv("TERN_NULL_FAIL_CALL");
    if (!text) return TERN_OK;
    char *end = NULL;
    unsigned long long call = strtoull(text, &end, 10);
    long status = TERN_ERROR_DRIVER;
    if (end != text && *end == ':') status = strtol(end + 1, &end, 10);
    if (end == text || *end || *text == '-' || status >= 0 || status < TERN_ERROR_INTERNAL)
        return tern_error(TERN_ERROR_INVALID,
                          "TERN_NULL_FAIL_CALL is \"%s\"; give n or n:status with status from -1 to %d", text,
                          TERN_ERROR_INTERNAL);
    null_state *s = null_lock();
    s->fail_in = call;
    s->fail_status = (tern_status)status;
    null_unlock();
    return TERN_OK;
}

/* ------------------------------------------------------------------- hooks */

static void hook_counts(tern_null_counts *out_counts)
{
    *out_counts = null_lock()->counts;
    null_unlock();
}

static void hook_reset(void)
{
    null_state *s = null_lock();
    const tern_null_counts old = s->counts;
    s->counts = (tern_null_counts){.devices = old.devices,
                                   .buffers = old.buffers,
                                   .kernels = old.kernels,
                                   .programs = old.programs,
                                   .bytes = old.bytes,
                                   .bytes_peak = old.bytes};
    s->fail_in = 0;
    set_defaults(&s->device);
    null_unlock();
}

static void hook_fail_call(uint64_t n, tern_status status)
{
    null_state *s = null_lock();
    s->fail_in = n;
    s->fail_status = status;
    null_unlock();
}

static void hook_get_device(tern_null_device *out_device) { set_defaults(out_device); }

static void hook_set_device(const tern_null_device *device)
{
    null_state *s = null_lock();
    if (device)
        s->device = *device;
    else
        set_defaults(&s->device);
    null_unlock();
}

const tern_null_hooks null_hooks = {hook_counts, hook_reset, hook_fail_call, hook_get_device, hook_set_device};
