/* SPDX-License-Identifier: Apache-2.0 */
/* level_zero_fixture.h - what the tests that use the Level Zero stand-in share: finding it, the hooks that it exports,
 * and this program run again as a child. */
#ifndef TERN_TESTS_LEVEL_ZERO_FIXTURE_H
#define TERN_TESTS_LEVEL_ZERO_FIXTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* tests/stand_ins/level_zero/control.h says what each does. */
typedef struct level_zero_stand_in {
    uint64_t (*fail_call)(uint64_t call, uint32_t result, bool for_good);
    const char *(*failed_name)(void);
    uint64_t (*live)(void);
    void (*live_text)(char *out_text, size_t bytes);
    uint64_t (*pending)(void);
    uint64_t (*complaints)(void);
    const char *(*complaint)(void);
} level_zero_stand_in;

#define LEVEL_ZERO_STAND_IN TERN_BINARY_DIR "/stand_ins/level_zero/libtern_ze.so"

/* Points the loader at the stand-in in this binary folder and finds its hooks; the library stays loaded. NULL, with a
 * sentence in *out_why, where it was not built. */
const level_zero_stand_in *level_zero_stand_in_find(const char *path, const char **out_why);

/* Runs this program again with an argument, in the environment as it is now; its stdout and stderr together are
 * out_text. Its exit status, 128 and more for a signal, -1 if it could not be run. */
int level_zero_run_self(const char *argument, char *out_text, size_t bytes);

#endif
