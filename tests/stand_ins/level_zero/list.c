/* SPDX-License-Identifier: Apache-2.0 */
/* list.c - command lists: what may be recorded, and the commands with everything as it was when they were appended.
 *
 *     open ── append ... ── close ──> executed as often as wanted ── reset ──> open
 *     immediate: appended is submitted; each command is kept until the list is destroyed
 *
 *     TERN_STANDIN_ZE_IMMEDIATE_ONLY=1   regular lists and queues are an unsupported feature */
#include <stdlib.h>
#include <string.h>

#include "tests/stand_ins/level_zero/stand_in.h"

static bool immediate_only(void) { return standin_number("IMMEDIATE_ONLY", 0) != 0; }

static uint32_t group_count(void) { return standin_number("COPY_GROUP", 1) ? STANDIN_GROUPS : 1; }

/* ----------------------------------------------------------------- commands */

static void free_command(standin_command *command)
{
    free(command->values);
    free(command->waits);
    free(command);
}

static void clear(standin_list *list)
{
    for (size_t i = 0; i < list->count; i++) free_command(list->commands[i]);
    list->count = 0;
}

static bool add(standin_list *list, standin_command *command)
{
    if (list->count == list->capacity) {
        const size_t capacity = list->capacity ? 2 * list->capacity : 16;
        standin_command **commands = realloc(list->commands, capacity * sizeof *commands);
        if (!commands) return false;
        list->commands = commands;
        list->capacity = capacity;
    }
    list->commands[list->count++] = command;
    return true;
}

static ze_result_t take_waits(standin_command *command, uint32_t count, ze_event_handle_t *handles)
{
    if (!count) return STANDIN_OK;
    NEED(handles);
    command->waits = calloc(count, sizeof *command->waits);
    if (!command->waits) return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    for (uint32_t i = 0; i < count; i++) {
        FIND(standin_event, event, handles[i], STANDIN_EVENT);
        command->waits[i] = event;
    }
    command->wait_count = count;
    return STANDIN_OK;
}

/* An immediate list with nothing to do forgets what it did. */
static void forget_done(standin_list *list)
{
    if (list->queue && list->pending == 0) clear(list);
}

/* Copies the command into the list; what it points to becomes the list's, or is freed on failure. */
static ze_result_t append(ze_command_list_handle_t handle, const standin_command *made, ze_event_handle_t signal,
                          uint32_t wait_count, ze_event_handle_t *waits)
{
    standin_list *list = standin_find(handle, STANDIN_LIST);
    standin_command *command = list ? malloc(sizeof *command) : NULL;
    ze_result_t result = list ? STANDIN_OK : ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (list && list->closed)
        result = standin_complain(ZE_RESULT_ERROR_INVALID_ARGUMENT, "a command is appended to a closed list");
    if (!result && !command) result = ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    if (!result) {
        *command = *made;
        if (signal && !(command->signal = standin_find(signal, STANDIN_EVENT)))
            result = ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
        if (!result) result = take_waits(command, wait_count, waits);
        if (!result) forget_done(list);
        if (!result && !add(list, command)) result = ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        if (result) free(command->waits);
    }
    if (result) {
        free(made->values);
        free(command);
        return result;
    }
    if (!list->queue) return STANDIN_OK;
    result = standin_queue_push(list->queue, command, list);
    return result ? result : standin_queue_submitted(list->queue);
}

/* ------------------------------------------------------------------ appends */

ENTRY(zeCommandListAppendLaunchKernel)
(ze_command_list_handle_t handle, ze_kernel_handle_t kernel_handle, const ze_group_count_t *groups,
 ze_event_handle_t signal, uint32_t wait_count, ze_event_handle_t *waits)
{
    ENTER(zeCommandListAppendLaunchKernel);
    NEED(groups);
    FIND(standin_list, list, handle, STANDIN_LIST);
    FIND(standin_kernel, kernel, kernel_handle, STANDIN_KERNEL);
    const uint32_t count = kernel->info->argument_count;
    if (list->group != 0)
        return standin_complain(ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE,
                                "kernel %s is launched in a list that copies only", kernel->info->name);
    if (!kernel->group[0])
        return standin_complain(ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION,
                                "kernel %s is launched without a group size", kernel->info->name);
    for (uint32_t i = 0; i < count; i++)
        if (!kernel->values[i].set)
            return standin_complain(ZE_RESULT_ERROR_INVALID_ARGUMENT, "kernel %s is launched without its argument %u",
                                    kernel->info->name, i);
    standin_command command = {.op = STANDIN_LAUNCH, .kernel = kernel, .groups = *groups};
    memcpy(command.group, kernel->group, sizeof command.group);
    command.values = malloc((count + 1) * sizeof *command.values);
    if (!command.values) return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    memcpy(command.values, kernel->values, count * sizeof *command.values);
    return append(handle, &command, signal, wait_count, waits);
}

ENTRY(zeCommandListAppendMemoryCopy)
(ze_command_list_handle_t handle, void *target, const void *source, size_t bytes, ze_event_handle_t signal,
 uint32_t wait_count, ze_event_handle_t *waits)
{
    ENTER(zeCommandListAppendMemoryCopy);
    FIND(standin_list, list, handle, STANDIN_LIST);
    ze_result_t result = standin_memory_check(list->device, target, bytes, "a copy's destination");
    if (!result) result = standin_memory_check(list->device, source, bytes, "a copy's source");
    if (result) return result;
    const standin_command command = {.op = STANDIN_COPY,
                                     .target = target,
                                     .source = source,
                                     .bytes = bytes,
                                     .target_id = standin_memory_of(target)->id,
                                     .source_id = standin_memory_of(source)->id};
    if (command.target < command.source + bytes && command.source < command.target + bytes)
        return standin_complain(ZE_RESULT_ERROR_OVERLAPPING_REGIONS, "a copy of %zu bytes overlaps itself", bytes);
    return append(handle, &command, signal, wait_count, waits);
}

ENTRY(zeCommandListAppendMemoryFill)
(ze_command_list_handle_t handle, void *target, const void *pattern, size_t pattern_bytes, size_t bytes,
 ze_event_handle_t signal, uint32_t wait_count, ze_event_handle_t *waits)
{
    ENTER(zeCommandListAppendMemoryFill);
    NEED(pattern);
    FIND(standin_list, list, handle, STANDIN_LIST);
    if (!pattern_bytes || pattern_bytes & (pattern_bytes - 1) || pattern_bytes > STANDIN_MAX_PATTERN ||
        bytes % pattern_bytes)
        return standin_complain(ZE_RESULT_ERROR_INVALID_SIZE, "a fill of %zu bytes with a pattern of %zu", bytes,
                                pattern_bytes);
    const ze_result_t result = standin_memory_check(list->device, target, bytes, "a fill");
    if (result) return result;
    standin_command command = {.op = STANDIN_FILL,
                               .target = target,
                               .bytes = bytes,
                               .pattern_bytes = pattern_bytes,
                               .target_id = standin_memory_of(target)->id};
    memcpy(command.pattern, pattern, pattern_bytes);
    return append(handle, &command, signal, wait_count, waits);
}

ENTRY(zeCommandListAppendBarrier)
(ze_command_list_handle_t handle, ze_event_handle_t signal, uint32_t wait_count, ze_event_handle_t *waits)
{
    ENTER(zeCommandListAppendBarrier);
    return append(handle, &(standin_command){.op = STANDIN_BARRIER}, signal, wait_count, waits);
}

ENTRY(zeCommandListAppendSignalEvent)(ze_command_list_handle_t handle, ze_event_handle_t event)
{
    ENTER(zeCommandListAppendSignalEvent);
    NEED(event);
    return append(handle, &(standin_command){.op = STANDIN_SIGNAL}, event, 0, NULL);
}

ENTRY(zeCommandListAppendEventReset)(ze_command_list_handle_t handle, ze_event_handle_t event)
{
    ENTER(zeCommandListAppendEventReset);
    NEED(event);
    return append(handle, &(standin_command){.op = STANDIN_RESET}, event, 0, NULL);
}

ENTRY(zeCommandListAppendWaitOnEvents)(ze_command_list_handle_t handle, uint32_t count, ze_event_handle_t *events)
{
    ENTER(zeCommandListAppendWaitOnEvents);
    NEED(count);
    return append(handle, &(standin_command){.op = STANDIN_WAIT}, NULL, count, events);
}

/* ------------------------------------------------------------------- a life */

static ze_result_t make(ze_context_handle_t context_handle, ze_device_handle_t device_handle, uint32_t group,
                        standin_list **out)
{
    FIND(standin_context, context, context_handle, STANDIN_CONTEXT);
    const standin_device *device = standin_device_find(device_handle);
    if (!device) return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (group >= group_count())
        return standin_complain(ZE_RESULT_ERROR_INVALID_ARGUMENT, "there is no queue group %u", group);
    standin_list *list = standin_create(STANDIN_LIST, sizeof *list, context);
    if (!list) return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    list->device = device;
    list->group = group;
    *out = list;
    return STANDIN_OK;
}

ENTRY(zeCommandListCreate)
(ze_context_handle_t context, ze_device_handle_t device, const ze_command_list_desc_t *desc,
 ze_command_list_handle_t *out_list)
{
    ENTER(zeCommandListCreate);
    NEED(desc);
    NEED(out_list);
    standin_list *list = NULL;
    if (immediate_only()) return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
    if (desc->flags > 7) return ZE_RESULT_ERROR_INVALID_ENUMERATION;
    const ze_result_t result = make(context, device, desc->commandQueueGroupOrdinal, &list);
    *out_list = (ze_command_list_handle_t)(void *)list;
    return result;
}

ENTRY(zeCommandListCreateImmediate)
(ze_context_handle_t context, ze_device_handle_t device, const ze_command_queue_desc_t *desc,
 ze_command_list_handle_t *out_list)
{
    ENTER(zeCommandListCreateImmediate);
    NEED(desc);
    NEED(out_list);
    standin_list *list = NULL;
    if (desc->flags > 1) return ZE_RESULT_ERROR_INVALID_ENUMERATION;
    const ze_result_t result = make(context, device, desc->ordinal, &list);
    if (result) return result;
    list->queue = standin_queue_new(list, list->device, list->group, desc->mode);
    if (!list->queue) {
        standin_destroy(list);
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    *out_list = (ze_command_list_handle_t)(void *)list;
    return STANDIN_OK;
}

static ze_result_t check_idle(const standin_list *list, const char *name)
{
    if (!list->pending || standin_queue_is_lost()) return STANDIN_OK;
    return standin_complain(ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE, "%s: %llu commands of the list have not run", name,
                            (unsigned long long)list->pending);
}

ENTRY(zeCommandListDestroy)(ze_command_list_handle_t handle)
{
    STANDIN_HOLD;
    FIND(standin_list, list, handle, STANDIN_LIST);
    (void)check_idle(list, "zeCommandListDestroy"); /* told, and destroyed all the same: it is what was asked for */
    standin_queue_forget(list);
    if (list->queue) standin_queue_delete(list->queue);
    clear(list);
    free(list->commands);
    list->commands = NULL;
    standin_destroy(list);
    LEAVE(zeCommandListDestroy);
}

ENTRY(zeCommandListClose)(ze_command_list_handle_t handle)
{
    ENTER(zeCommandListClose);
    FIND(standin_list, list, handle, STANDIN_LIST);
    if (list->queue) return standin_complain(ZE_RESULT_ERROR_INVALID_ARGUMENT, "an immediate list is not closed");
    list->closed = true;
    return STANDIN_OK;
}

ENTRY(zeCommandListReset)(ze_command_list_handle_t handle)
{
    ENTER(zeCommandListReset);
    FIND(standin_list, list, handle, STANDIN_LIST);
    const ze_result_t result = check_idle(list, "zeCommandListReset");
    if (result) return result;
    clear(list);
    list->closed = false;
    return STANDIN_OK;
}
