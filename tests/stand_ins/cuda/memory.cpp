/* SPDX-License-Identifier: Apache-2.0 */
/* memory.cpp - device addresses that no host may touch, guards around allocations, copies and fills.
 *
 *     device range  (PROT_NONE for ever: what the host is told)      host range = device range + SPAN
 *     ...|guard| allocation |guard|...                               ...|no page|guard| allocation |guard|no page|...
 *
 * A device address is only ever told, never mapped: reading it on the host faults. Kernels get the same address in the
 * host range, where allocations have pages of their own, 256 bytes in, with guard bytes to both ends, looked at when
 * the memory is freed. Addresses are not used again until the range is through, so stale pointers fault too. Memory
 * starts as NaN (0xff). */
#include "driver.h"

#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

namespace stand_in
{
namespace
{

constexpr uint64_t SPAN = 256ull << 30, PAGE = 4096, ALIGNMENT = 256;
constexpr unsigned char POISON = 0xff, GUARD = 0xa5;

uint64_t range_start; /* of device addresses; 0: not yet reserved */
uint64_t range_cursor;

bool reserve_range()
{
    if (range_start) return true;
    void *range = mmap(nullptr, 2 * SPAN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) return false;
    range_start = range_cursor = (uint64_t)range;
    return true;
}

/* Pages of an allocation: [address - ALIGNMENT, that + pages). */
uint64_t pages_of(uint64_t bytes) { return (bytes + 2 * ALIGNMENT + PAGE - 1) / PAGE * PAGE; }

/* The next free run of addresses behind the cursor, once around. */
uint64_t find_place(uint64_t pages)
{
    const uint64_t needed = pages + 2 * PAGE;
    for (int round = 0; round < 2; round++) {
        while (range_cursor + needed <= range_start + SPAN) {
            auto next = state.allocations.lower_bound(range_cursor);
            if (next == state.allocations.end() || next->first - ALIGNMENT >= range_cursor + needed) {
                const uint64_t place = range_cursor + PAGE;
                range_cursor += needed;
                return place;
            }
            range_cursor = next->first - ALIGNMENT + pages_of(next->second.bytes) + PAGE;
        }
        range_cursor = range_start;
    }
    return 0;
}

/* Offset of the first guard byte that was overwritten, relative to the allocation; false: none was. */
bool find_damage(uint64_t address, uint64_t bytes, long long *out_offset)
{
    const unsigned char *host = (const unsigned char *)(address + SPAN);
    const long long end = (long long)(pages_of(bytes) - ALIGNMENT);
    for (long long i = -(long long)ALIGNMENT; i < end; i++) {
        if (i == 0) i = (long long)bytes;
        if (host[i] != GUARD) return *out_offset = i, true;
    }
    return false;
}

void release(uint64_t address, const Allocation &allocation)
{
    long long offset = 0;
    if (find_damage(address, allocation.bytes, &offset))
        report(format("a kernel wrote outside an allocation of %llu bytes, at offset %lld of it",
                      (unsigned long long)allocation.bytes, offset));
    (void)mmap((void *)(address - ALIGNMENT + SPAN), pages_of(allocation.bytes), PROT_NONE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    allocation.context->device->used_bytes -= allocation.bytes;
}

std::map<uint64_t, Allocation>::iterator allocation_of(uint64_t address)
{
    auto next = state.allocations.upper_bound(address);
    if (next == state.allocations.begin()) return state.allocations.end();
    --next;
    return address <= next->first + next->second.bytes ? next : state.allocations.end();
}

uint64_t host_block_end(uint64_t address)
{
    for (const Device *device : state.devices)
        if (device->context)
            for (const auto &block : device->context->host_blocks)
                if (address >= (uint64_t)block.first && address < (uint64_t)block.first + block.second)
                    return (uint64_t)block.first + block.second;
    return 0;
}

void unmap_host(void *block, uint64_t bytes) { (void)munmap(block, (bytes + PAGE - 1) / PAGE * PAGE + PAGE); }

} // namespace

bool is_device_address(uint64_t address)
{
    return range_start && address >= range_start && address < range_start + 2 * SPAN;
}

bool is_pinned(const void *address, uint64_t bytes)
{
    const uint64_t end = host_block_end((uint64_t)address);
    return end && (uint64_t)address + bytes <= end;
}

char *resolve(uint64_t address, uint64_t bytes)
{
    if (is_pinned((const void *)address, bytes)) return (char *)address;
    auto found = allocation_of(address);
    if (found == state.allocations.end() || address + bytes > found->first + found->second.bytes) return nullptr;
    return (char *)(address + SPAN);
}

bool resolve_pointer(uint64_t address, uint64_t *out_host)
{
    char *host = address ? resolve(address, 0) : nullptr;
    *out_host = (uint64_t)host;
    return address == 0 || host;
}

/* Either side of a copy: an allocation, or the program's own memory. */
bool is_accessible(uint64_t address, uint64_t bytes)
{
    return resolve(address, bytes) || (address && !is_device_address(address));
}

std::function<int()> copy_work(uint64_t to, uint64_t from, uint64_t bytes)
{
    return [=]() -> int {
        char *host_to = nullptr, *host_from = nullptr;
        {
            std::unique_lock<std::mutex> lock(state.lock);
            host_to = is_device_address(to) ? resolve(to, bytes) : (char *)to;
            host_from = is_device_address(from) ? resolve(from, bytes) : (char *)from;
            if (!host_to || !host_from)
                return report("a copy from or to device memory that was freed before it ran"), CU_ILLEGAL_ADDRESS;
        }
        memmove(host_to, host_from, bytes);
        return CU_OK;
    };
}

std::function<int()> fill_work(uint64_t to, uint32_t value, uint32_t element_bytes, uint64_t count)
{
    return [=]() -> int {
        char *host = nullptr;
        {
            std::unique_lock<std::mutex> lock(state.lock);
            host = resolve(to, count * element_bytes);
            if (!host) return report("a fill of device memory that was freed before it ran"), CU_ILLEGAL_ADDRESS;
        }
        for (uint64_t i = 0; element_bytes > 1 && i < count; i++)
            memcpy(host + i * element_bytes, &value, element_bytes);
        if (element_bytes == 1) memset(host, (int)(value & 0xff), count);
        return CU_OK;
    };
}

/* leaks: what is still there counts as lost. */
void sweep_memory(Context *context, bool leaks)
{
    for (auto it = state.allocations.begin(); it != state.allocations.end();) {
        if (it->second.context != context) {
            ++it;
            continue;
        }
        if (leaks) state.leaked++;
        release(it->first, it->second);
        it = state.allocations.erase(it);
    }
    for (const auto &block : context->host_blocks) unmap_host(block.first, block.second);
    context->host_blocks.clear();
}

} // namespace stand_in

using namespace stand_in;

/* -------------------------------------------------------------- allocations */

EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    ENTRY("cuMemGetInfo_v2", context);
    if (!free_bytes || !total_bytes) return CU_INVALID_VALUE;
    const Device &device = *current_context->device;
    *total_bytes = device.memory_bytes;
    *free_bytes = device.memory_bytes - device.used_bytes;
    return CU_OK;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *out_address, size_t bytes)
{
    ENTRY("cuMemAlloc_v2", context);
    Device &device = *current_context->device;
    if (!out_address || bytes == 0) return CU_INVALID_VALUE;
    if (bytes > device.memory_bytes - device.used_bytes || !reserve_range()) return CU_OUT_OF_MEMORY;
    const uint64_t pages = pages_of(bytes), place = find_place(pages);
    if (!place || mprotect((void *)(place + SPAN), pages, PROT_READ | PROT_WRITE)) return CU_OUT_OF_MEMORY;
    const uint64_t address = place + ALIGNMENT;
    memset((void *)(place + SPAN), GUARD, ALIGNMENT);
    memset((void *)(address + SPAN), POISON, bytes);
    memset((void *)(address + SPAN + bytes), GUARD, pages - ALIGNMENT - bytes);
    state.allocations[address] = {current_context, bytes};
    device.used_bytes += bytes;
    *out_address = address;
    return CU_OK;
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr address)
{
    ENTRY_DESTROY("cuMemFree_v2");
    if (address == 0) return call.error;
    auto found = state.allocations.find(address);
    if (found == state.allocations.end() || found->second.context != current_context) return CU_INVALID_VALUE;
    if (const int wrong = finish_all(call, current_context, "cuMemFree_v2")) return wrong;
    found = state.allocations.find(address);
    if (found == state.allocations.end()) return CU_INVALID_VALUE;
    release(address, found->second);
    state.allocations.erase(found);
    return call.error;
}

static CUresult allocate_host(const char *entry, void **out_block, size_t bytes)
{
    ENTRY(entry, context);
    if (!out_block || bytes == 0) return CU_INVALID_VALUE;
    const uint64_t pages = (bytes + PAGE - 1) / PAGE * PAGE;
    void *block = mmap(nullptr, pages + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) return CU_OUT_OF_MEMORY;
    (void)mprotect((char *)block + pages, PAGE, PROT_NONE);
    memset(block, POISON, pages);
    current_context->host_blocks[block] = bytes;
    *out_block = block;
    return CU_OK;
}
EXPORT CUresult cuMemAllocHost_v2(void **block, size_t bytes)
{
    return allocate_host("cuMemAllocHost_v2", block, bytes);
}
EXPORT CUresult cuMemHostAlloc(void **block, size_t bytes, unsigned flags)
{
    if (flags > 7) return CU_INVALID_VALUE;
    return allocate_host("cuMemHostAlloc", block, bytes);
}

EXPORT CUresult cuMemFreeHost(void *block)
{
    ENTRY_DESTROY("cuMemFreeHost");
    if (!current_context->host_blocks.count(block)) return CU_INVALID_VALUE;
    if (const int wrong = finish_all(call, current_context, "cuMemFreeHost")) return wrong;
    unmap_host(block, current_context->host_blocks[block]);
    current_context->host_blocks.erase(block);
    return call.error;
}

EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *out_address, void *block, unsigned flags)
{
    ENTRY("cuMemHostGetDevicePointer_v2", context);
    if (!out_address || flags || !is_pinned(block, 1)) return CU_INVALID_VALUE;
    *out_address = (CUdeviceptr)block;
    return CU_OK;
}

/* ---------------------------------------------------------- copies and fills */

/* host: which side is the program's memory. Pageable memory is read before the call returns, and written before. */
enum class Side { none, from, to };
static CUresult copy(const char *entry, uint64_t to, uint64_t from, size_t bytes, void *stream_handle, bool waits,
                     Side host)
{
    ENTRY(entry, context);
    Stream *stream = stream_of(stream_handle);
    if (!stream) return CU_INVALID_HANDLE;
    if (bytes == 0) return CU_OK;
    const bool to_is_good = host == Side::to ? is_accessible(to, bytes) : resolve(to, bytes) != nullptr;
    const bool from_is_good = host == Side::from ? is_accessible(from, bytes) : resolve(from, bytes) != nullptr;
    if (!to_is_good || !from_is_good) return CU_INVALID_VALUE;
    std::function<int()> work = copy_work(to, from, bytes);
    if (host == Side::from && !waits && !is_pinned((const void *)from, bytes)) {
        std::shared_ptr<std::string> staged(new std::string((const char *)from, bytes));
        work = [=]() { return copy_work(to, (uint64_t)staged->data(), bytes)(); };
    }
    const bool to_pageable = host == Side::to && !is_pinned((const void *)to, bytes);
    const Op op = enqueue(stream, work);
    return waits || to_pageable ? finish(call, op, entry) : CU_OK;
}

EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes)
{
    return copy("cuMemcpyHtoD_v2", to, (uint64_t)from, bytes, nullptr, true, Side::from);
}
EXPORT CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
    return copy("cuMemcpyDtoH_v2", (uint64_t)to, from, bytes, nullptr, true, Side::to);
}
EXPORT CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return copy("cuMemcpyDtoD_v2", to, from, bytes, nullptr, true, Side::none);
}
EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, void *stream)
{
    return copy("cuMemcpyHtoDAsync_v2", to, (uint64_t)from, bytes, stream, false, Side::from);
}
EXPORT CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, void *stream)
{
    return copy("cuMemcpyDtoHAsync_v2", (uint64_t)to, from, bytes, stream, false, Side::to);
}
EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, void *stream)
{
    return copy("cuMemcpyDtoDAsync_v2", to, from, bytes, stream, false, Side::none);
}

static CUresult fill(const char *entry, uint64_t to, uint32_t value, uint32_t element_bytes, size_t count, void *handle,
                     bool waits)
{
    ENTRY(entry, context);
    Stream *stream = stream_of(handle);
    if (!stream) return CU_INVALID_HANDLE;
    if (count == 0) return CU_OK;
    if (!resolve(to, count * element_bytes) || to % element_bytes) return CU_INVALID_VALUE;
    const Op op = enqueue(stream, fill_work(to, value, element_bytes, count));
    return waits ? finish(call, op, entry) : CU_OK;
}

EXPORT CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count)
{
    return fill("cuMemsetD8_v2", to, value, 1, count, nullptr, true);
}
EXPORT CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count)
{
    return fill("cuMemsetD32_v2", to, value, 4, count, nullptr, true);
}
EXPORT CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, void *stream)
{
    return fill("cuMemsetD8Async", to, value, 1, count, stream, false);
}
EXPORT CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, void *stream)
{
    return fill("cuMemsetD32Async", to, value, 4, count, stream, false);
}
