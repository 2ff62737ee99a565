/* SPDX-License-Identifier: Apache-2.0 */
/* sync.c - fences and events: made, signalled, waited for, and the times that events keep.
 *
 * An event stays signalled until it is reset, so that a list which is replayed without resetting its events does not
 * wait for them: the order of its commands is then free, and the numbers come out wrong, as they should. */
#include <stdlib.h>
#include <string.h>

#include "tests/stand_ins/level_zero/stand_in.h"

#define TIMER_MASK 0xFFFFFFFFull /* kernelTimestampValidBits */

/* ------------------------------------------------------------------- fences */

ENTRY(zeFenceCreate)(ze_command_queue_handle_t handle, const ze_fence_desc_t *desc, ze_fence_handle_t *out_fence)
{
    ENTER(zeFenceCreate);
    NEED(desc);
    NEED(out_fence);
    FIND(standin_queue, queue, handle, STANDIN_QUEUE);
    standin_fence *fence = standin_create(STANDIN_FENCE, sizeof *fence, queue);
    if (!fence) return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    fence->queue = queue;
    fence->done = desc->flags & (uint32_t)ZE_FENCE_FLAG_SIGNALED;
    *out_fence = (ze_fence_handle_t)(void *)fence;
    return STANDIN_OK;
}

ENTRY(zeFenceDestroy)(ze_fence_handle_t handle)
{
    STANDIN_HOLD;
    FIND(standin_fence, fence, handle, STANDIN_FENCE);
    standin_destroy(fence);
    LEAVE(zeFenceDestroy);
}

ENTRY(zeFenceHostSynchronize)(ze_fence_handle_t handle, uint64_t timeout_ns)
{
    ENTER(zeFenceHostSynchronize);
    FIND(standin_fence, fence, handle, STANDIN_FENCE);
    return standin_wait(&fence->done, NULL, timeout_ns, "zeFenceHostSynchronize");
}

ENTRY(zeFenceQueryStatus)(ze_fence_handle_t handle)
{
    ENTER(zeFenceQueryStatus);
    FIND(standin_fence, fence, handle, STANDIN_FENCE);
    return standin_wait(&fence->done, NULL, 0, "zeFenceQueryStatus");
}

ENTRY(zeFenceReset)(ze_fence_handle_t handle)
{
    ENTER(zeFenceReset);
    FIND(standin_fence, fence, handle, STANDIN_FENCE);
    fence->done = false;
    return STANDIN_OK;
}

/* ------------------------------------------------------------------- events */

ENTRY(zeEventPoolCreate)
(ze_context_handle_t handle, const ze_event_pool_desc_t *desc, uint32_t device_count, ze_device_handle_t *devices,
 ze_event_pool_handle_t *out_pool)
{
    ENTER(zeEventPoolCreate);
    NEED(desc);
    NEED(out_pool);
    FIND(standin_context, context, handle, STANDIN_CONTEXT);
    for (uint32_t i = 0; i < device_count; i++)
        if (!devices || !standin_device_find(devices[i])) return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!desc->count) return ZE_RESULT_ERROR_INVALID_SIZE;
    standin_pool *pool = standin_create(STANDIN_POOL, sizeof *pool, context);
    if (!pool) return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    pool->flags = desc->flags;
    pool->count = desc->count;
    pool->events = calloc(desc->count, sizeof *pool->events);
    if (!pool->events) {
        standin_destroy(pool);
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    *out_pool = (ze_event_pool_handle_t)(void *)pool;
    return STANDIN_OK;
}

ENTRY(zeEventPoolDestroy)(ze_event_pool_handle_t handle)
{
    STANDIN_HOLD;
    FIND(standin_pool, pool, handle, STANDIN_POOL);
    if (!standin_may_destroy(&pool->object, "zeEventPoolDestroy")) return ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE;
    free(pool->events);
    pool->events = NULL;
    standin_destroy(pool);
    LEAVE(zeEventPoolDestroy);
}

ENTRY(zeEventCreate)(ze_event_pool_handle_t handle, const ze_event_desc_t *desc, ze_event_handle_t *out_event)
{
    ENTER(zeEventCreate);
    NEED(desc);
    NEED(out_event);
    FIND(standin_pool, pool, handle, STANDIN_POOL);
    if (desc->index >= pool->count || pool->events[desc->index])
        return standin_complain(ZE_RESULT_ERROR_INVALID_ARGUMENT, "event %u of a pool of %u is %s", desc->index,
                                pool->count, desc->index < pool->count ? "in use" : "not there");
    standin_event *event = standin_create(STANDIN_EVENT, sizeof *event, pool);
    if (!event) return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    event->pool = pool;
    event->index = desc->index;
    pool->events[desc->index] = event;
    *out_event = (ze_event_handle_t)(void *)event;
    return STANDIN_OK;
}

ENTRY(zeEventDestroy)(ze_event_handle_t handle)
{
    STANDIN_HOLD;
    FIND(standin_event, event, handle, STANDIN_EVENT);
    event->pool->events[event->index] = NULL;
    standin_destroy(event);
    LEAVE(zeEventDestroy);
}

/* The host may touch only events of a pool that it sees. */
static ze_result_t check_visible(const standin_event *event, const char *name)
{
    if (event->pool->flags & (uint32_t)ZE_EVENT_POOL_FLAG_HOST_VISIBLE) return STANDIN_OK;
    return standin_complain(ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT, "%s: the event's pool is not host visible",
                            name);
}

static ze_result_t set_event(ze_event_handle_t handle, bool done, const char *name)
{
    FIND(standin_event, event, handle, STANDIN_EVENT);
    const ze_result_t result = check_visible(event, name);
    if (!result) event->done = done;
    return result;
}

ENTRY(zeEventHostSignal)(ze_event_handle_t handle)
{
    ENTER(zeEventHostSignal);
    return set_event(handle, true, "zeEventHostSignal");
}

ENTRY(zeEventHostReset)(ze_event_handle_t handle)
{
    ENTER(zeEventHostReset);
    return set_event(handle, false, "zeEventHostReset");
}

static ze_result_t wait_event(ze_event_handle_t handle, uint64_t timeout_ns, const char *name)
{
    FIND(standin_event, event, handle, STANDIN_EVENT);
    const ze_result_t result = check_visible(event, name);
    return result ? result : standin_wait(&event->done, NULL, timeout_ns, name);
}

ENTRY(zeEventHostSynchronize)(ze_event_handle_t handle, uint64_t timeout_ns)
{
    ENTER(zeEventHostSynchronize);
    return wait_event(handle, timeout_ns, "zeEventHostSynchronize");
}

ENTRY(zeEventQueryStatus)(ze_event_handle_t handle)
{
    ENTER(zeEventQueryStatus);
    return wait_event(handle, 0, "zeEventQueryStatus");
}

ENTRY(zeEventQueryKernelTimestamp)(ze_event_handle_t handle, ze_kernel_timestamp_result_t *out)
{
    ENTER(zeEventQueryKernelTimestamp);
    NEED(out);
    FIND(standin_event, event, handle, STANDIN_EVENT);
    if (!(event->pool->flags & (uint32_t)ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP))
        return standin_complain(ZE_RESULT_ERROR_INVALID_ARGUMENT, "the event's pool keeps no timestamps");
    if (!event->done) return ZE_RESULT_NOT_READY;
    out->global.kernelStart = out->context.kernelStart = event->start & TIMER_MASK;
    out->global.kernelEnd = out->context.kernelEnd = event->end & TIMER_MASK;
    return STANDIN_OK;
}
