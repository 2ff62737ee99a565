/* SPDX-License-Identifier: Apache-2.0 */
/* arena.c - the device memory of transient values, and the kernels built for the programs that use it.
 *
 *     plan micro   [##########][#####     ]
 *     plan eval    [######    ][########  ]
 *     arena        [##########][########  ]     per block the larger: the programs never run at the same moment
 *
 * Invariant: tern_arena_bytes is exactly what was asked of buffer_create, so that a run's peak equals the plan to the
 * byte. */
#include "core/plan/arena.h"

#include <stdlib.h>

static void measure_blocks(tern_arena *arena, const tern_plan *const *plans, uint32_t plan_count)
{
    for (uint32_t p = 0; p < plan_count; p++)
        for (uint32_t b = 0; b < plans[p]->block_count; b++)
            if (plans[p]->block_bytes[b] > arena->block_bytes[b]) arena->block_bytes[b] = plans[p]->block_bytes[b];
}

tern_status tern_arena_create(tern_device *device, const tern_plan *const *plans, uint32_t plan_count,
                              tern_arena **out_arena)
{
    tern_status status = TERN_OK;
    tern_arena *arena = calloc(1, sizeof *arena);
    if (!arena) return tern_error_memory("the arena", sizeof *arena);
    arena->device = device;
    arena->kernels.device = device;
    for (uint32_t p = 0; p < plan_count; p++)
        if (plans[p]->block_count > arena->block_count) arena->block_count = plans[p]->block_count;
    arena->blocks = calloc(arena->block_count + 1u, sizeof(tern_backend_buffer *));
    arena->block_bytes = calloc(arena->block_count + 1u, sizeof *arena->block_bytes);
    if (!arena->blocks || !arena->block_bytes) {
        status = tern_error_memory("the arena", (arena->block_count + 1u) * 16u);
        goto fail;
    }
    measure_blocks(arena, plans, plan_count);
    for (uint32_t b = 0; b < arena->block_count; b++) {
        status = device->backend->buffer_create(device->handle, arena->block_bytes[b], TERN_BUFFER_DEVICE,
                                                &arena->blocks[b]);
        if (status < 0) {
            (void)tern_error_prefix(status, "arena block %u of %u (%llu bytes)", b + 1u, arena->block_count,
                                    (unsigned long long)arena->block_bytes[b]);
            goto fail;
        }
    }
    *out_arena = arena;
    return TERN_OK;
fail:
    tern_arena_destroy(arena);
    return status;
}

void tern_arena_destroy(tern_arena *arena)
{
    if (!arena) return;
    tern_kernel_cache_finish(&arena->kernels);
    for (uint32_t b = 0; arena->blocks && b < arena->block_count; b++)
        if (arena->blocks[b]) arena->device->backend->buffer_destroy(arena->device->handle, arena->blocks[b]);
    free(arena->blocks);
    free(arena->block_bytes);
    free(arena);
}

uint64_t tern_arena_bytes(const tern_arena *arena)
{
    uint64_t bytes = 0;
    for (uint32_t b = 0; b < arena->block_count; b++) bytes += arena->block_bytes[b];
    return bytes;
}
