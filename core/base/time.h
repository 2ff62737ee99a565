/* SPDX-License-Identifier: Apache-2.0 */
/* time.h - the monotonic clock, sleeps and patience, in nanoseconds. */
#ifndef TERN_BASE_TIME_H
#define TERN_BASE_TIME_H

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

/* Nanoseconds since an arbitrary start; never goes back. */
static inline uint64_t tern_time_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* At least `ns` nanoseconds, signals notwithstanding. */
static inline void tern_sleep_ns(uint64_t ns)
{
    struct timespec left = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) continue;
}

/* Between two looks at whether work has ended, that long after it began. Sleeps grow with the time waited: short work
 * is seen at once, long work costs no CPU. 10 us is about what a sleep costs anyway; 500 us is lost in any work long
 * enough to get there. */
static inline void tern_poll_sleep(uint64_t waited_ns)
{
    const uint64_t ns = waited_ns / 8;
    tern_sleep_ns(ns < 10000 ? 10000 : ns > 500000 ? 500000 : ns);
}

/* How long a plug-in itself waits before it takes a device for lost: `seconds`, or the 1 to 3600 that the environment's
 * variable says, for tests with a driver that hangs. */
static inline uint64_t tern_patience_ns(const char *variable, uint32_t seconds)
{
    const char *text = getenv(variable);
    const unsigned long asked = text ? strtoul(text, NULL, 10) : 0;
    return (asked > 0 && asked <= 3600 ? asked : seconds) * UINT64_C(1000000000);
}

#endif
