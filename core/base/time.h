/* SPDX-License-Identifier: Apache-2.0 */
/* time.h - the monotonic clock and a sleep, in nanoseconds. */
#ifndef TERN_BASE_TIME_H
#define TERN_BASE_TIME_H

#include <errno.h>
#include <stdint.h>
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

#endif
