/* SPDX-License-Identifier: Apache-2.0 */
/* object.c - what handles point to: kind, parent, and how many there are.
 *
 * Destroyed objects are kept, as DEAD, until the process ends: their addresses are never given out again, so that a
 * handle used after destroy is always told. What is large in an object is freed with it. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/stand_ins/level_zero/stand_in.h"

static const char *const names[STANDIN_KINDS] = {
    "destroyed object", "context", "allocation", "module", "build log", "kernel", "list", "queue", "fence",
    "event pool",       "event"};
static uint64_t live[STANDIN_KINDS];
static standin_object *grave;

void *standin_create(standin_kind kind, size_t bytes, void *parent)
{
    standin_object *object = calloc(1, bytes);
    if (!object) return NULL;
    object->kind = kind;
    object->parent = parent;
    if (parent) object->parent->children++;
    live[kind]++;
    return object;
}

void *standin_find(const void *handle, standin_kind kind)
{
    const standin_object *object = handle;
    if (object && object->kind == kind) return (void *)(uintptr_t)handle;
    (void)standin_complain(STANDIN_OK, "a %s was asked for, the handle is %s%s", names[kind], object ? "a " : "NULL",
                           !object                        ? ""
                           : object->kind < STANDIN_KINDS ? names[object->kind]
                                                          : "stranger");
    return NULL;
}

bool standin_may_destroy(const standin_object *object, const char *name)
{
    if (!object->children) return true;
    (void)standin_complain(STANDIN_OK, "%s: %u objects made from this %s still exist", name, object->children,
                           names[object->kind]);
    return false;
}

void standin_destroy(void *pointer)
{
    standin_object *object = pointer;
    live[object->kind]--;
    if (object->parent) object->parent->children--;
    object->kind = STANDIN_DEAD;
    object->grave = grave;
    grave = object;
}

uint64_t tern_standin_ze_live(void)
{
    STANDIN_HOLD;
    uint64_t sum = 0;
    for (int kind = 0; kind < STANDIN_KINDS; kind++) sum += live[kind];
    return sum;
}

void tern_standin_ze_live_text(char *out_text, size_t bytes)
{
    STANDIN_HOLD;
    size_t used = (size_t)snprintf(out_text, bytes, "%s", tern_standin_ze_live() ? "" : "nothing");
    for (int kind = 0; kind < STANDIN_KINDS && used < bytes; kind++)
        if (live[kind])
            used += (size_t)snprintf(out_text + used, bytes - used, "%s%llu %s%s", used ? ", " : "",
                                     (unsigned long long)live[kind], names[kind], live[kind] > 1 ? "s" : "");
}
