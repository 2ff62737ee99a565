/* SPDX-License-Identifier: Apache-2.0 */
/* queue.c - queues: when submitted commands run and in which order, and how the host waits for them.
 *
 *     submit ── kept ──(host waits or polls)──> run, newest queue first, in each queue the latest command that may run
 *
 * A command may run when its wait events are signalled and every BARRIER, FENCED and WAIT before it is done; BARRIER
 * and FENCED need all before them to be done too. That is all the order that the specification promises: not between
 * the commands of a list, not between the lists of a queue, not between queues. So a missing barrier, event or wait
 * gives wrong numbers here at once, where a card would give them one day.
 *
 *     TERN_STANDIN_ZE_STRICT=1    0: commands run when they are submitted, in their order
 *     TERN_STANDIN_ZE_ORDER       reverse (the default), forward, or a number that seeds a random choice
 *     TERN_STANDIN_ZE_HANG=0      1: nothing ever runs, nothing is ever signalled
 *
 * A poll (timeout 0) that finds the work undone says so once more, and then the work runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/stand_ins/level_zero/stand_in.h"

#define STUCK_NS 10000000000ull /* of a wait without end that nothing ends */

static standin_queue *queues; /* newest first */
static bool fault;            /* a command could not be run: the device is lost */
static uint64_t random_state;

static bool strict(void) { return standin_number("STRICT", 1) != 0; }
static bool hangs(void) { return standin_number("HANG", 0) != 0; }
bool standin_queue_is_lost(void) { return fault || hangs() || *tern_standin_ze_failed_name(); }

/* ------------------------------------------------------------------ running */

static bool is_event(const standin_event *event)
{
    if (event->object.kind == STANDIN_EVENT) return true;
    (void)standin_complain(STANDIN_OK, "a command runs that names an event which was destroyed");
    return !(fault = true);
}

static bool is_ready(const standin_command *command)
{
    for (uint32_t i = 0; i < command->wait_count; i++)
        if (!is_event(command->waits[i]) || !command->waits[i]->done) return false;
    return true;
}

static bool same_memory(const void *address, uint64_t id)
{
    const standin_memory *m = standin_memory_of(address);
    if (m && m->id == id) return true;
    (void)standin_complain(STANDIN_OK, "a copy or fill runs after its memory was freed");
    return false;
}

/* Twice as much each time: buffers of gibibytes are zeroed this way. */
static void fill(const standin_command *c)
{
    size_t done = c->pattern_bytes;
    if (c->bytes) memcpy(c->target, c->pattern, done);
    while (done < c->bytes) {
        const size_t more = done < c->bytes - done ? done : c->bytes - done;
        memcpy(c->target + done, c->target, more);
        done += more;
    }
}

static bool perform(const standin_queue *queue, const standin_command *c)
{
    switch (c->op) {
    case STANDIN_LAUNCH: return standin_kernel_run(c->kernel, c->values, queue->device, c->group, &c->groups);
    case STANDIN_COPY:
        if (!same_memory(c->target, c->target_id) || !same_memory(c->source, c->source_id)) return false;
        memcpy(c->target, c->source, c->bytes);
        return true;
    case STANDIN_FILL:
        if (!same_memory(c->target, c->target_id)) return false;
        fill(c);
        return true;
    case STANDIN_FENCED:
        if (c->fence && c->fence->object.kind != STANDIN_FENCE) {
            (void)standin_complain(STANDIN_OK, "a fence was destroyed before it was signalled");
            return false;
        }
        if (c->fence) c->fence->done = true;
        return true;
    default: return true;
    }
}

static void run(standin_queue *queue, standin_entry *entry)
{
    const standin_command *c = entry->command;
    const uint64_t start = standin_device_ticks();
    if (!perform(queue, c) || (c->signal && !is_event(c->signal))) {
        fault = true;
        return;
    }
    if (c->signal) {
        c->signal->start = start;
        c->signal->end = standin_device_ticks();
        c->signal->done = c->op != STANDIN_RESET;
    }
    entry->done = true;
    if (entry->list) entry->list->pending--;
    if (c->op == STANDIN_FENCED) free((void *)(uintptr_t)c); /* the queue's own */
}

/* Which of two commands that both may run is taken: true for the later one. */
static bool takes_later(void)
{
    const char *order = standin_setting("ORDER", "reverse");
    if (!strict() || strcmp(order, "forward") == 0) return false;
    if (strcmp(order, "reverse") == 0) return true;
    if (!random_state) random_state = strtoull(order, NULL, 0) * 2 + 1;
    random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
    return random_state >> 63;
}

/* Runs one command of the queue; false when none may run. */
static bool step(standin_queue *queue)
{
    standin_entry *pick = NULL;
    bool all_before = true;
    for (size_t i = queue->head; i < queue->count && !fault; i++) {
        standin_entry *entry = &queue->entries[i];
        if (entry->done) continue;
        const standin_op op = entry->command->op;
        const bool waits_for_all = op == STANDIN_BARRIER || op == STANDIN_FENCED;
        if ((!waits_for_all || all_before) && is_ready(entry->command) && (!pick || takes_later())) pick = entry;
        if (waits_for_all || op == STANDIN_WAIT) break;
        all_before = false;
    }
    if (!pick || fault) return false;
    run(queue, pick);
    while (queue->head < queue->count && queue->entries[queue->head].done) queue->head++;
    if (queue->head == queue->count) queue->head = queue->count = 0;
    return true;
}

static void drain(void)
{
    bool more = true;
    if (hangs()) return;
    standin_memory_open(true);
    while (more && !fault) {
        more = false;
        for (standin_queue *queue = queues; queue; queue = queue->next)
            while (!fault && step(queue)) more = true;
    }
    standin_memory_open(false);
}

/* ------------------------------------------------------------------ waiting */

ze_result_t standin_wait(const bool *flag, const standin_queue *queue, uint64_t timeout_ns, const char *name)
{
    const uint64_t start = standin_now();
    const bool polled = timeout_ns == 0;
    for (;;) {
        const bool before = flag ? *flag : standin_queue_empty(queue);
        if (!before) drain();
        if (fault) return ZE_RESULT_ERROR_DEVICE_LOST;
        if (before || (!polled && (flag ? *flag : standin_queue_empty(queue)))) return STANDIN_OK;
        const uint64_t waited = standin_now() - start;
        if (waited >= timeout_ns) return ZE_RESULT_NOT_READY;
        if (waited > STUCK_NS && timeout_ns == UINT64_MAX)
            return standin_complain(ZE_RESULT_ERROR_DEVICE_LOST, "%s waits without end for what nothing signals", name);
        standin_sleep();
    }
}

/* --------------------------------------------------------------- submitting */

standin_queue *standin_queue_new(void *parent, const standin_device *device, uint32_t group,
                                 ze_command_queue_mode_t mode)
{
    standin_queue *queue = standin_create(STANDIN_QUEUE, sizeof *queue, parent);
    if (!queue) return NULL;
    queue->device = device;
    queue->group = group;
    queue->synchronous = mode == ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS;
    queue->next = queues;
    queues = queue;
    return queue;
}

ze_result_t standin_queue_push(standin_queue *queue, const standin_command *command, standin_list *list)
{
    if (queue->count == queue->capacity) {
        const size_t capacity = queue->capacity ? 2 * queue->capacity : 64;
        standin_entry *entries = realloc(queue->entries, capacity * sizeof *entries);
        if (!entries) return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        queue->entries = entries;
        queue->capacity = capacity;
    }
    queue->entries[queue->count++] = (standin_entry){.command = command, .list = list};
    if (list) list->pending++;
    return STANDIN_OK;
}

ze_result_t standin_queue_submitted(standin_queue *queue)
{
    if (!strict() || queue->synchronous) drain();
    return fault ? ZE_RESULT_ERROR_DEVICE_LOST : STANDIN_OK;
}

bool standin_queue_empty(const standin_queue *queue) { return queue->head == queue->count; }

/* Drops an entry as if it had run. */
static void drop(standin_entry *entry)
{
    if (entry->done) return;
    entry->done = true;
    if (entry->list) entry->list->pending--;
    if (entry->command->op == STANDIN_FENCED) free((void *)(uintptr_t)entry->command);
}

void standin_queue_forget(standin_list *list)
{
    for (standin_queue *queue = queues; queue; queue = queue->next) {
        for (size_t i = queue->head; i < queue->count; i++)
            if (queue->entries[i].list == list) drop(&queue->entries[i]);
        while (queue->head < queue->count && queue->entries[queue->head].done) queue->head++;
    }
}

uint64_t tern_standin_ze_pending(void)
{
    STANDIN_HOLD;
    uint64_t count = 0;
    for (const standin_queue *queue = queues; queue; queue = queue->next)
        for (size_t i = queue->head; i < queue->count; i++) count += !queue->entries[i].done;
    return count;
}

void standin_queue_heal(bool lost)
{
    if (!lost && !fault) return;
    fault = false;
    for (standin_queue *queue = queues; queue; queue = queue->next) {
        for (size_t i = queue->head; i < queue->count; i++) drop(&queue->entries[i]);
        queue->head = queue->count = 0;
    }
}

void standin_queue_delete(standin_queue *queue)
{
    standin_queue **place = &queues;
    while (*place != queue) place = &(*place)->next;
    *place = queue->next;
    for (size_t i = queue->head; i < queue->count; i++) drop(&queue->entries[i]);
    free(queue->entries);
    queue->entries = NULL;
    standin_destroy(queue);
    if (!queues) fault = false; /* a device opened anew is well */
}

ENTRY(zeCommandQueueCreate)
(ze_context_handle_t context_handle, ze_device_handle_t device_handle, const ze_command_queue_desc_t *desc,
 ze_command_queue_handle_t *out_queue)
{
    ENTER(zeCommandQueueCreate);
    NEED(desc);
    NEED(out_queue);
    FIND(standin_context, context, context_handle, STANDIN_CONTEXT);
    const standin_device *device = standin_device_find(device_handle);
    const uint32_t groups = standin_number("COPY_GROUP", 1) ? STANDIN_GROUPS : 1;
    if (!device) return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (standin_number("IMMEDIATE_ONLY", 0)) return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
    if (desc->flags > 1) return ZE_RESULT_ERROR_INVALID_ENUMERATION;
    if (desc->ordinal >= groups || desc->index >= (desc->ordinal ? 1u : 4u))
        return standin_complain(ZE_RESULT_ERROR_INVALID_ARGUMENT, "there is no queue %u in a queue group %u",
                                desc->index, desc->ordinal);
    standin_queue *queue = standin_queue_new(context, device, desc->ordinal, desc->mode);
    if (!queue) return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    *out_queue = (ze_command_queue_handle_t)(void *)queue;
    return STANDIN_OK;
}

ENTRY(zeCommandQueueDestroy)(ze_command_queue_handle_t handle)
{
    STANDIN_HOLD;
    FIND(standin_queue, queue, handle, STANDIN_QUEUE);
    if (!standin_may_destroy(&queue->object, "zeCommandQueueDestroy")) return ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE;
    if (!standin_queue_empty(queue) && !standin_queue_is_lost())
        (void)standin_complain(STANDIN_OK, "zeCommandQueueDestroy: the queue has commands that have not run");
    standin_queue_delete(queue);
    LEAVE(zeCommandQueueDestroy);
}

static ze_result_t check_lists(const standin_queue *queue, uint32_t count, const ze_command_list_handle_t *handles)
{
    for (uint32_t i = 0; i < count; i++) {
        FIND(standin_list, list, handles[i], STANDIN_LIST);
        if (list->queue || list->group != queue->group || list->device != queue->device)
            return standin_complain(ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE,
                                    "list %u is immediate, or of another device or queue group", i);
        if (!list->closed)
            return standin_complain(ZE_RESULT_ERROR_INVALID_ARGUMENT, "list %u is executed before it is closed", i);
    }
    return STANDIN_OK;
}

ENTRY(zeCommandQueueExecuteCommandLists)
(ze_command_queue_handle_t handle, uint32_t count, ze_command_list_handle_t *lists, ze_fence_handle_t fence_handle)
{
    ENTER(zeCommandQueueExecuteCommandLists);
    NEED(count && lists);
    FIND(standin_queue, queue, handle, STANDIN_QUEUE);
    standin_fence *fence = fence_handle ? standin_find(fence_handle, STANDIN_FENCE) : NULL;
    if (fence_handle && (!fence || fence->queue != queue))
        return standin_complain(ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT, "the fence is of another queue");
    ze_result_t result = check_lists(queue, count, lists);
    for (uint32_t i = 0; i < count; i++) {
        standin_list *list = (void *)lists[i];
        for (size_t j = 0; j < list->count && !result; j++) result = standin_queue_push(queue, list->commands[j], list);
    }
    if (fence && !result) {
        standin_command *command = calloc(1, sizeof *command);
        if (!command) return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        *command = (standin_command){.op = STANDIN_FENCED, .fence = fence};
        result = standin_queue_push(queue, command, NULL);
    }
    return result ? result : standin_queue_submitted(queue);
}

ENTRY(zeCommandQueueSynchronize)(ze_command_queue_handle_t handle, uint64_t timeout_ns)
{
    ENTER(zeCommandQueueSynchronize);
    FIND(standin_queue, queue, handle, STANDIN_QUEUE);
    return standin_wait(NULL, queue, timeout_ns, "zeCommandQueueSynchronize");
}
