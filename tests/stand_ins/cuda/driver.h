/* SPDX-License-Identifier: Apache-2.0 */
/* driver.h - what the files of the stand-in libcuda.so.1 share. See README.md for the whole.
 *
 *     driver.cpp  calls, failures      device.cpp  devices, contexts     memory.cpp  addresses, guards, copies
 *     queue.cpp   streams, events      module.cpp  cubins, launches      graph.cpp   graphs    block.cpp  threads
 *
 * One lock for everything, taken by Call for the length of a driver call and given back while it waits. Objects live in
 * the heap for good where a thread may still look at them; nothing has a destructor that runs at exit. */
#ifndef TERN_STAND_IN_DRIVER_H
#define TERN_STAND_IN_DRIVER_H

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "cuda_abi.h"
#include "kernel_abi.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace stand_in
{

struct Context;

/* One thing that a device does. Runs when something asks for it and all of `after` is done. */
struct Operation {
    Context *context = nullptr;
    std::vector<std::shared_ptr<Operation>> after;
    std::function<int()> work; /* a CUresult; runs without the lock */
    uint64_t number = 0;
    bool is_asked = false, is_queried = false, is_done = false, hangs = false;
    double time = 0; /* when it was done, ms */
};
typedef std::shared_ptr<Operation> Op;

struct Stream {
    Context *context;
    bool blocks; /* with the null stream */
    Op last;
};

struct Event {
    Context *context;
    bool has_time;
    Op op;
};

struct Allocation {
    Context *context;
    uint64_t bytes;
};

struct Device {
    int index, capability; /* index among all, before CUDA_VISIBLE_DEVICES */
    uint64_t memory_bytes, used_bytes = 0;
    Context *context = nullptr;
};

struct Module;
struct Graph;
struct GraphExec;

/* A primary context: everything that lives on a device. */
struct Context {
    Device *device;
    int retained = 0, error = 0; /* error: the sticky one */
    Stream null_stream;
    std::set<Stream *> streams;
    std::set<Event *> events;
    std::set<Module *> modules;
    std::map<void *, uint64_t> host_blocks;
};

struct State {
    std::mutex lock;
    std::condition_variable wake, finished; /* for the worker; for those who wait */
    bool is_ready = false;                  /* cuInit succeeded */
    int process = 0;
    std::vector<Device *> devices;              /* visible ones */
    std::map<uint64_t, Allocation> allocations; /* by device address */
    std::set<Graph *> graphs;
    std::set<GraphExec *> executables;
    std::map<uint64_t, Op> pending; /* by number */
    Context *running = nullptr;     /* whose operation runs now */
    uint64_t operations = 0, hang_from = UINT64_MAX;
    uint64_t calls = 0, fail_at = 0;
    int fail_result = 0;
    const char *failed_call = "";
    int64_t leaked = 0;
    uint64_t reports = 0, late_uploads = 0;
    std::string last_report;
};
extern State &state;
extern thread_local Context *current_context;

/* ------------------------------------------------------------- driver.cpp */

enum class Needs { nothing, driver, context };

/* First line of every entry: takes the lock, counts, injects the failure, tells what is wrong before the call. */
struct Call {
    Call(const char *name, Needs needs);
    ~Call();
    std::unique_lock<std::mutex> lock;
    int error = 0;
    bool is_injected = false;
};
#define ENTRY(name, needs)                                                                                             \
    Call call(name, Needs::needs);                                                                                     \
    if (call.error) return call.error
/* Of functions that destroy: an injected failure is told, but the object is gone. */
#define ENTRY_DESTROY(name)                                                                                            \
    Call call(name, Needs::context);                                                                                   \
    if (call.error && !call.is_injected) return call.error

void report(const std::string &sentence);
std::string format(const char *text, ...) __attribute__((format(printf, 1, 2)));
bool ends_context(int result);
double now_ms();
uint64_t number_of(const char *variable, uint64_t otherwise); /* of the environment */

/* ------------------------------------------------------------- device.cpp */

void find_devices(); /* fills state.devices */

/* -------------------------------------------------------------- queue.cpp */

Op enqueue(Stream *stream, std::function<int()> work, const std::vector<Op> &more_after = {});
Stream *stream_of(void *handle); /* NULL: the null stream; nullptr: not a stream of the current context */
/* Runs what op needs and waits; the context's error, or 702 with a report where it would never return. */
int finish(Call &call, const Op &op, const char *what);
int finish_all(Call &call, Context *context, const char *what);
void sweep_streams(Context *context);

/* ------------------------------------------------------------- memory.cpp */

/* Host address of device or pinned memory, nullptr where [address, address + bytes) is in no allocation. */
char *resolve(uint64_t address, uint64_t bytes);
/* For a kernel's pointer: true where it may be passed; null and one past the end are. */
bool resolve_pointer(uint64_t address, uint64_t *out_host);
bool is_device_address(uint64_t address);
bool is_pinned(const void *address, uint64_t bytes);
/* A copy or fill as work for a stream or graph; copy: either side may be host memory. */
std::function<int()> copy_work(uint64_t to, uint64_t from, uint64_t bytes);
std::function<int()> fill_work(uint64_t to, uint32_t value, uint32_t element_bytes, uint64_t count);
bool is_accessible(uint64_t address, uint64_t bytes);
void sweep_memory(Context *context, bool leaks);

/* ------------------------------------------------------------- module.cpp */

/* A launch with its arguments copied; 0 and *out_work, or what is wrong. */
int launch_work(void *function, const unsigned grid[3], const unsigned block[3], unsigned shared_bytes,
                void **parameters, void **extra, std::function<int()> *out_work);
void sweep_modules(Context *context);

/* -------------------------------------------------------------- graph.cpp */

size_t graphs_alive(); /* they belong to no context, and nothing sweeps them */

} // namespace stand_in

#endif
