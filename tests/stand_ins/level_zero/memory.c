/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c - allocations that show every misuse at once.
 *
 *     | no access | slack, 0xFF | data of `bytes` | slack, 0xFF | no access |
 *                                 ^ aligned, its end as near to the right page as the alignment lets it
 *
 * Fresh memory is 0xFF: NaN in every float type, and an index that leaves every buffer. A write into the slack is told
 * when the memory is freed, one beyond it faults. Device memory can be touched only while
 * commands run (standin_memory_open): a host that reads it faults, after a line that says so. Above POISON_BYTES only
 * both ends are poisoned, because an arena of gibibytes is never touched as a whole.
 *
 * TERN_STANDIN_ZE_RELAXED=0 takes the extension for allocations above 4 GiB away. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/stand_ins/level_zero/stand_in.h"

#define POISON       0xFF
#define POISON_BYTES (256ull << 20)
#define POISON_END   (16ull << 20)
#define ALIGNMENT    64u
#define LIMIT        (4ull << 30) /* what one allocation may have without the relaxed flag */

static standin_memory *memories;
static uint64_t last_id;

/* ------------------------------------------------------- touched by the host */

static struct sigaction before;

/* Says what was touched, then lets the fault happen again to whoever looked after it before. Takes no lock: the thread
 * that faults may hold it. */
static void on_fault(int number, siginfo_t *info, void *context)
{
    (void)context;
    const unsigned char *address = info->si_addr;
    for (const standin_memory *m = memories; m; m = m->next) {
        if (address < m->mapping || address >= m->mapping + m->mapping_bytes) continue;
        char line[200];
        const bool inside = address >= m->data && address < m->data + m->bytes;
        const int length = snprintf(
            line, sizeof line, "level_zero stand-in: %s allocation %llu of %zu bytes touched at byte %lld: %s\n",
            m->device ? "device" : "host", (unsigned long long)m->id, m->bytes, (long long)(address - m->data),
            inside ? "the host has no access to it" : "outside of it");
        (void)!write(STDERR_FILENO, line, (size_t)length);
        break;
    }
    (void)sigaction(number, &before, NULL);
}

static void watch_faults(void)
{
    static bool watching;
    const struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
    if (!watching) (void)sigaction(SIGSEGV, &action, &before);
    watching = true;
}

/* The pages between the guards. */
static unsigned char *room_of(const standin_memory *m, size_t *out_bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    *out_bytes = m->mapping_bytes - 2 * page;
    return m->mapping + page;
}

static void set_open(const standin_memory *m, bool open)
{
    size_t bytes;
    unsigned char *room = room_of(m, &bytes);
    if (m->type == ZE_MEMORY_TYPE_DEVICE) (void)mprotect(room, bytes, open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

void standin_memory_open(bool open)
{
    for (const standin_memory *m = memories; m; m = m->next) set_open(m, open);
}

/* ----------------------------------------------------------- an allocation */

static void poison(const standin_memory *m)
{
    size_t bytes;
    unsigned char *room = room_of(m, &bytes);
    memset(room, POISON, bytes <= POISON_BYTES ? bytes : POISON_END);
    if (bytes > POISON_BYTES) memset(room + bytes - POISON_END, POISON, POISON_END);
}

/* Bytes that live on the device, to hold the total. */
static uint64_t used_bytes(const standin_device *device)
{
    uint64_t sum = 0;
    for (const standin_memory *m = memories; m; m = m->next) sum += m->device == device ? m->bytes : 0;
    return sum;
}

static ze_result_t allocate(ze_context_handle_t handle, ze_memory_type_t type, const standin_device *device,
                            size_t bytes, size_t alignment, bool relaxed, void **out_address)
{
    FIND(standin_context, context, handle, STANDIN_CONTEXT);
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (!bytes || (bytes > LIMIT && !relaxed)) return ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
    if (alignment & (alignment - 1) || alignment > 65536) return ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT;
    if (alignment < ALIGNMENT) alignment = ALIGNMENT;
    const uint64_t total = standin_number("MEMORY_BYTES", 8ull << 30);
    if (device && bytes > total - used_bytes(device)) return ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
    const size_t extra = alignment > page ? alignment : 0;
    const size_t room = (bytes + extra + page - 1) / page * page;
    unsigned char *mapping = mmap(NULL, room + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED)
        return device ? ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY : ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    standin_memory *m = standin_create(STANDIN_MEMORY, sizeof *m, context);
    if (!m || mprotect(mapping + page, room, PROT_READ | PROT_WRITE)) {
        (void)munmap(mapping, room + 2 * page);
        if (m) standin_destroy(m);
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    m->mapping = mapping;
    m->mapping_bytes = room + 2 * page;
    m->data = (unsigned char *)(((uintptr_t)mapping + page + room - bytes) & ~(uintptr_t)(alignment - 1));
    m->bytes = bytes;
    m->type = type;
    m->device = device;
    m->id = ++last_id;
    poison(m);
    set_open(m, false);
    m->next = memories;
    memories = m;
    watch_faults();
    *out_address = m->data;
    return STANDIN_OK;
}

static bool asks_relaxed(const void *chain)
{
    const ze_base_desc_t *next = chain;
    while (next && next->stype != ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC) next = next->pNext;
    return next && standin_number("RELAXED", 1) &&
           ((const ze_relaxed_allocation_limits_exp_desc_t *)(const void *)next)->flags &
               (uint32_t)ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE;
}

ENTRY(zeMemAllocDevice)
(ze_context_handle_t context, const ze_device_mem_alloc_desc_t *desc, size_t bytes, size_t alignment,
 ze_device_handle_t handle, void **out_address)
{
    ENTER(zeMemAllocDevice);
    NEED(desc);
    NEED(out_address);
    const standin_device *device = standin_device_find(handle);
    if (!device) return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    return allocate(context, ZE_MEMORY_TYPE_DEVICE, device, bytes, alignment, asks_relaxed(desc->pNext), out_address);
}

ENTRY(zeMemAllocHost)
(ze_context_handle_t context, const ze_host_mem_alloc_desc_t *desc, size_t bytes, size_t alignment, void **out_address)
{
    ENTER(zeMemAllocHost);
    NEED(desc);
    NEED(out_address);
    return allocate(context, ZE_MEMORY_TYPE_HOST, NULL, bytes, alignment, asks_relaxed(desc->pNext), out_address);
}

ENTRY(zeMemAllocShared)
(ze_context_handle_t context, const ze_device_mem_alloc_desc_t *desc, const ze_host_mem_alloc_desc_t *host,
 size_t bytes, size_t alignment, ze_device_handle_t handle, void **out_address)
{
    ENTER(zeMemAllocShared);
    NEED(desc);
    NEED(host);
    NEED(out_address);
    const standin_device *device = standin_device_find(handle);
    if (!device) return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    return allocate(context, ZE_MEMORY_TYPE_SHARED, device, bytes, alignment, asks_relaxed(desc->pNext), out_address);
}

standin_memory *standin_memory_of(const void *address)
{
    const unsigned char *byte = address;
    for (standin_memory *m = memories; m; m = m->next)
        if (byte >= m->data && byte < m->data + m->bytes) return m;
    return NULL;
}

/* What lies around the data, between the guards, must be as it was. */
static void check_slack(const standin_memory *m)
{
    size_t bytes;
    const unsigned char *room = room_of(m, &bytes), *end = m->data + m->bytes;
    for (const unsigned char *byte = room; byte < room + bytes; byte++) {
        if (byte == m->data) byte = end;
        if (byte == room + bytes || *byte == POISON) continue;
        (void)standin_complain(STANDIN_OK, "allocation %llu of %zu bytes was written at byte %lld, outside of it",
                               (unsigned long long)m->id, m->bytes, (long long)(byte - m->data));
        return;
    }
}

ENTRY(zeMemFree)(ze_context_handle_t context_handle, void *address)
{
    STANDIN_HOLD;
    FIND(standin_context, context, context_handle, STANDIN_CONTEXT);
    standin_memory **place = &memories;
    while (*place && (*place)->data != address) place = &(*place)->next;
    standin_memory *m = *place;
    if (!m) return standin_complain(ZE_RESULT_ERROR_INVALID_ARGUMENT, "zeMemFree: %p is no allocation", address);
    set_open(m, true);
    check_slack(m);
    *place = m->next;
    (void)munmap(m->mapping, m->mapping_bytes);
    standin_destroy(m);
    LEAVE(zeMemFree);
}

/* ---------------------------------------------------------------- questions */

ENTRY(zeMemGetAllocProperties)
(ze_context_handle_t context_handle, const void *address, ze_memory_allocation_properties_t *out,
 ze_device_handle_t *out_device)
{
    ENTER(zeMemGetAllocProperties);
    NEED(out);
    FIND(standin_context, context, context_handle, STANDIN_CONTEXT);
    const standin_memory *m = standin_memory_of(address);
    out->type = m ? m->type : ZE_MEMORY_TYPE_UNKNOWN;
    out->id = m ? m->id : 0;
    out->pageSize = (uint64_t)sysconf(_SC_PAGESIZE);
    if (out_device) *out_device = m ? (ze_device_handle_t)(uintptr_t)m->device : NULL;
    return STANDIN_OK;
}

ENTRY(zeMemGetAddressRange)
(ze_context_handle_t context_handle, const void *address, void **out_base, size_t *out_bytes)
{
    ENTER(zeMemGetAddressRange);
    FIND(standin_context, context, context_handle, STANDIN_CONTEXT);
    const standin_memory *m = standin_memory_of(address);
    if (!m)
        return standin_complain(ZE_RESULT_ERROR_INVALID_ARGUMENT, "zeMemGetAddressRange: %p is no allocation", address);
    if (out_base) *out_base = m->data;
    if (out_bytes) *out_bytes = m->bytes;
    return STANDIN_OK;
}

ze_result_t standin_memory_check(const standin_device *device, const void *address, size_t bytes, const char *what)
{
    const standin_memory *m = standin_memory_of(address);
    if (!m)
        return standin_complain(ZE_RESULT_ERROR_INVALID_ARGUMENT, "%s: %p is in no allocation that lives", what,
                                address);
    if (m->device && m->device != device)
        return standin_complain(ZE_RESULT_ERROR_INVALID_ARGUMENT, "%s: the memory is device %u's, the list device %u's",
                                what, m->device->index, device->index);
    const size_t left = m->bytes - (size_t)((const unsigned char *)address - m->data);
    if (bytes > left)
        return standin_complain(ZE_RESULT_ERROR_INVALID_SIZE, "%s: %zu bytes, the allocation has %zu from there", what,
                                bytes, left);
    return STANDIN_OK;
}
