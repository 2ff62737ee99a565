/* SPDX-License-Identifier: Apache-2.0 */
/* control.h - what libtern_ze.so exports beside a driver's tables: how a test fails a call, loses the device and sees
 * what was left behind or done wrong. Found with dlsym; the driver must be loaded already (dlopen it first and keep it,
 * so that its counters outlive the loader). README.md lists the environment variables that do the same. */
#ifndef TERN_TESTS_STAND_INS_LEVEL_ZERO_CONTROL_H
#define TERN_TESTS_STAND_INS_LEVEL_ZERO_CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STANDIN_EXPORT __attribute__((visibility("default")))

/* Makes the call-th driver call from now return `result` (a ze_result_t) without doing anything; a call that destroys
 * does destroy and then returns it. for_good: so does every later call; with ZE_RESULT_ERROR_DEVICE_LOST, a device that
 * stays lost. call 0: none, and a lost device is well again. Returns the calls counted since the last time. */
STANDIN_EXPORT uint64_t tern_standin_ze_fail_call(uint64_t call, uint32_t result, bool for_good);
/* The entry point that the last such failure was given to ("zeMemAllocDevice"), "" if none since it was asked for. */
STANDIN_EXPORT const char *tern_standin_ze_failed_name(void);
/* Objects and allocations that exist now. */
STANDIN_EXPORT uint64_t tern_standin_ze_live(void);
/* The same by kind: "2 kernels, 1 event"; "nothing". */
STANDIN_EXPORT void tern_standin_ze_live_text(char *out_text, size_t bytes);
/* Commands that were given to a queue and have not run. */
STANDIN_EXPORT uint64_t tern_standin_ze_pending(void);
/* How often the host did what the specification forbids, and the last sentence about it ("" if never). */
STANDIN_EXPORT uint64_t tern_standin_ze_complaints(void);
STANDIN_EXPORT const char *tern_standin_ze_complaint(void);

#endif
