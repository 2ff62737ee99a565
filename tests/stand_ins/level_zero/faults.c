/* SPDX-License-Identifier: Apache-2.0 */
/* faults.c - where every entry point begins: the one lock, the call counter with its failures on demand, and what the
 * host is told off for.
 *
 *     TERN_STANDIN_ZE_FAIL_CALL=n[:result]   the n-th call of the process fails with result (0x7ffffffe if not given)
 *     TERN_STANDIN_ZE_LOST_CALL=n            from the n-th call on the device is lost, for good
 *
 * control.h does both from inside the process. A call is counted where it enters, or where it leaves if it destroys:
 * a failed destroy has destroyed, so that what is left afterwards is a leak of the host's. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/stand_ins/level_zero/stand_in.h"

static struct {
    bool started;
    uint64_t calls, fail_at; /* fail_at 0: none */
    uint32_t result;
    bool for_good;
    char failed[64];
    uint64_t complaints;
    char complaint[512];
} faults;

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

int standin_lock(void)
{
    (void)pthread_mutex_lock(&lock);
    return 0;
}

void standin_unlock(const int *hold)
{
    (void)hold;
    (void)pthread_mutex_unlock(&lock);
}

void standin_sleep(void)
{
    (void)pthread_mutex_unlock(&lock); /* waits hold it once: their entry's */
    (void)usleep(100);
    (void)pthread_mutex_lock(&lock);
}

const char *standin_setting(const char *name, const char *other)
{
    char variable[64];
    (void)snprintf(variable, sizeof variable, "TERN_STANDIN_ZE_%s", name);
    const char *value = getenv(variable);
    return value && *value ? value : other;
}

uint64_t standin_number(const char *name, uint64_t other)
{
    const char *value = standin_setting(name, NULL);
    return value ? strtoull(value, NULL, 0) : other;
}

/* The variables count from the process's first call. */
static void start(void)
{
    const char *one = standin_setting("FAIL_CALL", NULL), *colon = one ? strchr(one, ':') : NULL;
    const uint64_t lost = standin_number("LOST_CALL", 0);
    faults.started = true;
    faults.fail_at = lost ? lost : one ? strtoull(one, NULL, 0) : 0;
    faults.result = lost    ? (uint32_t)ZE_RESULT_ERROR_DEVICE_LOST
                    : colon ? (uint32_t)strtoul(colon + 1, NULL, 0)
                            : (uint32_t)ZE_RESULT_ERROR_UNKNOWN;
    faults.for_good = lost != 0;
}

ze_result_t standin_enter(const char *name)
{
    if (!faults.started) start();
    faults.calls++;
    const bool fails =
        faults.fail_at && (faults.for_good ? faults.calls >= faults.fail_at : faults.calls == faults.fail_at);
    if (!fails) return STANDIN_OK;
    if (!faults.failed[0]) (void)snprintf(faults.failed, sizeof faults.failed, "%s", name);
    return (ze_result_t)faults.result;
}

ze_result_t standin_complain(ze_result_t result, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(faults.complaint, sizeof faults.complaint, format, arguments);
    va_end(arguments);
    faults.complaints++;
    (void)fprintf(stderr, "level_zero stand-in: %s\n", faults.complaint);
    return result;
}

uint64_t tern_standin_ze_fail_call(uint64_t call, uint32_t result, bool for_good)
{
    STANDIN_HOLD;
    const uint64_t calls = faults.calls;
    const bool lost = faults.failed[0] && faults.result == (uint32_t)ZE_RESULT_ERROR_DEVICE_LOST;
    faults.started = true;
    faults.calls = 0;
    faults.fail_at = call;
    faults.result = result;
    faults.for_good = for_good;
    faults.failed[0] = 0;
    if (!call) standin_queue_heal(lost);
    return calls;
}

const char *tern_standin_ze_failed_name(void) { return faults.failed; }
uint64_t tern_standin_ze_complaints(void) { return faults.complaints; }
const char *tern_standin_ze_complaint(void) { return faults.complaint; }
