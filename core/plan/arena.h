/* SPDX-License-Identifier: Apache-2.0 */
/* arena.h - the inside of tern_arena, for the executables that record into it. */
#ifndef TERN_PLAN_ARENA_H
#define TERN_PLAN_ARENA_H

#include "core/plan/kernel_cache.h"
#include "core/plan/plan.h"

struct tern_arena {
    tern_device *device;
    tern_backend_buffer **blocks;
    uint64_t *block_bytes;
    uint32_t block_count;
    tern_kernel_cache kernels;
};

#endif
