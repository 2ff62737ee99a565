/* SPDX-License-Identifier: Apache-2.0 */
/* submit.c - submits recorded programs, waits for tickets, reads timestamps.
 *
 *     ticket t, parts 0 .. p - 1:   timeline  (t - 1) << 12 | 1, 2, ...  then, with the last part,  t << 12
 *
 * Each part is a submission of its own, so that the driver's watchdog sees short ones. A ticket is used up also when
 * its submission fails, since the timeline may only rise. A program runs once at a time: submitting it again waits. */
#include "backends/vulkan/internal.h"

#include <stdlib.h>

static tern_status wait_ticket(tern_backend_device *device, uint64_t ticket, uint64_t timeout_ns)
{
    return vulkan_timeline_wait(device, device->programs, ticket << VULKAN_PARTS_LOG2, timeout_ns);
}

/* Under device->lock. */
static tern_status submit_parts(tern_backend_device *device, tern_backend_program *program, uint64_t ticket)
{
    tern_status status = TERN_OK;
    const uint64_t before = (ticket - 1) << VULKAN_PARTS_LOG2;
    uint32_t part = 0;
    for (; part < program->part_count; part++) {
        const bool last = part + 1 == program->part_count;
        const uint64_t value = last ? ticket << VULKAN_PARTS_LOG2 : before + part + 1;
        TERN_TRY(vulkan_queue_submit(device, program->parts[part], device->programs, value));
        device->submitted = value;
    }
    return TERN_OK;
fail:
    /* The parts before the one that failed run: the program is idle on return, whatever its outputs hold. */
    if (part > 0) (void)vulkan_drain(device, device->programs, device->submitted);
    return status;
}

tern_status vulkan_program_submit(tern_backend_device *device, tern_backend_program *program, uint64_t *out_ticket)
{
    tern_status status = TERN_OK;
    TERN_TRY(vulkan_enter(device));
    if (program->ticket > 0) TERN_TRY(wait_ticket(device, program->ticket, VULKAN_PATIENCE_NS));
    (void)pthread_mutex_lock(&device->lock);
    const uint64_t ticket = ++device->ticket;
    status = submit_parts(device, program, ticket);
    (void)pthread_mutex_unlock(&device->lock);
    if (status < 0) return status;
    program->ticket = ticket;
    *out_ticket = ticket;
fail:
    return status;
}

tern_status vulkan_wait(tern_backend_device *device, uint64_t ticket, uint64_t timeout_ns)
{
    tern_status status = TERN_OK;
    TERN_TRY(vulkan_enter(device));
    (void)pthread_mutex_lock(&device->lock);
    const uint64_t last = device->ticket;
    (void)pthread_mutex_unlock(&device->lock);
    if (ticket == 0) return TERN_OK;
    if (ticket > last)
        return tern_error(TERN_ERROR_INVALID,
                          "ticket %llu was never given out, the last was %llu; wait for a ticket of program_submit",
                          (unsigned long long)ticket, (unsigned long long)last);
    TERN_TRY(wait_ticket(device, ticket, timeout_ns));
fail:
    return status;
}

void vulkan_program_destroy(tern_backend_device *device, tern_backend_program *program)
{
    if (!program) return;
    if (!vulkan_is_foreign(device) && !vulkan_drain(device, device->programs, program->ticket << VULKAN_PARTS_LOG2))
        return;
    vulkan_program_free(device, program);
}

tern_status vulkan_program_times(tern_backend_device *device, tern_backend_program *program, uint64_t *out_ns)
{
    tern_status status = TERN_OK;
    uint64_t *stamps = NULL;
    TERN_TRY(vulkan_enter(device));
    if (!program->queries)
        return tern_error(TERN_ERROR_UNSUPPORTED, "%s; measure on the host, or open the device with timestamps",
                          device->card.timestamp_bits ? "the device was opened without timestamps"
                                                      : "the device's queue has no timestamps");
    if (program->ticket == 0)
        return tern_error(TERN_ERROR_INVALID, "the program was never submitted; submit it and wait first");
    TERN_TRY(wait_ticket(device, program->ticket, VULKAN_PATIENCE_NS));
    stamps = calloc(program->query_count, sizeof *stamps);
    if (!stamps) return tern_error_memory("timestamps", program->query_count * sizeof *stamps);
    VULKAN_TRY(device, device->vk, GetQueryPoolResults, device->logical, program->queries, 0, program->query_count,
               program->query_count * sizeof *stamps, stamps, sizeof *stamps, VK_QUERY_RESULT_64_BIT);
    const uint32_t bits = device->card.timestamp_bits;
    const uint64_t mask = bits < 64 ? (1ull << bits) - 1 : UINT64_MAX; /* the counter wraps there */
    for (uint32_t i = 0; i < program->step_count; i++) {
        const uint32_t query = program->step_queries[i];
        const uint64_t ticks = (stamps[query] - stamps[query - 1]) & mask;
        out_ns[i] = (uint64_t)((double)ticks * (double)device->card.limits.timestampPeriod);
    }
fail:
    free(stamps);
    return status;
}

uint32_t vulkan_submission_count(tern_backend_device *device, tern_backend_program *program)
{
    (void)device;
    return program->part_count;
}
