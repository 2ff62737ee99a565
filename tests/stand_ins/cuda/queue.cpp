/* SPDX-License-Identifier: Apache-2.0 */
/* queue.cpp - operations, streams, events, and the thread that is all devices' engine.
 *
 * Nothing runs until a query or a wait asks for it, and then only that and what it depends on, the newest ready
 * operation first. So whatever a program reads without having waited for it is not there, and what it did not order
 * runs in the wrong order. The first query of an operation says NOT_READY even if it could be done at once. What it is
 * not: a GPU's freedom. A real device also runs two things at once and starts unasked; the order here is one of those
 * allowed, chosen to be unkind. Invariant: operations of one stream run in order; the null stream waits for, and is
 * waited for by, every stream that was not made non-blocking. */
#include "driver.h"

#include <thread>

namespace stand_in
{
namespace
{

bool is_ready(const Operation &op)
{
    for (const Op &other : op.after)
        if (!other->is_done) return false;
    return op.is_asked && !op.hangs;
}

/* The newest operation that may run. */
Op pick()
{
    for (auto it = state.pending.rbegin(); it != state.pending.rend(); ++it)
        if (is_ready(*it->second)) return it->second;
    return nullptr;
}

void run(std::unique_lock<std::mutex> &lock, const Op &op)
{
    const bool skip = op->context->error != 0; /* the context is dead: nothing more runs in it */
    std::function<int()> work = std::move(op->work);
    state.running = op->context;
    lock.unlock();
    const int result = skip || !work ? CU_OK : work();
    work = nullptr;
    lock.lock();
    state.running = nullptr;
    if (result && !op->context->error) op->context->error = result;
    op->time = now_ms();
    op->is_done = true;
    op->after.clear();
    state.pending.erase(op->number);
    state.finished.notify_all();
}

void engine()
{
    std::unique_lock<std::mutex> lock(state.lock);
    for (;;) {
        const Op op = pick();
        if (op)
            run(lock, op);
        else
            state.wake.wait(lock);
    }
}

void start_engine()
{
    static bool is_started;
    if (is_started) return;
    is_started = true;
    std::thread(engine).detach();
}

void ask(const Op &op)
{
    std::vector<Operation *> open = {op.get()};
    while (!open.empty()) {
        Operation *next = open.back();
        open.pop_back();
        if (next->is_done || next->is_asked) continue;
        next->is_asked = true;
        for (const Op &other : next->after) open.push_back(other.get());
    }
    state.wake.notify_all();
}

bool never_ends(const Op &op)
{
    std::vector<const Operation *> open = {op.get()};
    while (!open.empty()) {
        const Operation *next = open.back();
        open.pop_back();
        if (next->is_done) continue;
        if (next->hangs) return true;
        for (const Op &other : next->after) open.push_back(other.get());
    }
    return false;
}

/* Success once done; the first question is answered NOT_READY whatever the device could do. */
int query(Context *context, const Op &op)
{
    if (!op) return CU_OK;
    const bool first = !op->is_queried && !op->is_done;
    op->is_queried = true;
    ask(op);
    if (first || !op->is_done) return CU_NOT_READY;
    return context->error;
}

} // namespace

Op enqueue(Stream *stream, std::function<int()> work, const std::vector<Op> &more_after)
{
    start_engine();
    Context *context = stream->context;
    Op op = std::make_shared<Operation>();
    op->context = context;
    op->work = std::move(work);
    op->number = ++state.operations;
    op->hangs = op->number >= state.hang_from;
    op->after = more_after;
    if (stream->last) op->after.push_back(stream->last);
    if (stream == &context->null_stream) {
        for (Stream *other : context->streams)
            if (other->blocks && other->last) op->after.push_back(other->last);
    } else if (stream->blocks && context->null_stream.last) {
        op->after.push_back(context->null_stream.last);
    }
    for (auto it = op->after.begin(); it != op->after.end();)
        it = !*it || (*it)->is_done ? op->after.erase(it) : it + 1;
    stream->last = op;
    state.pending[op->number] = op;
    return op;
}

Stream *stream_of(void *handle)
{
    if (!handle || handle == (void *)1) return &current_context->null_stream; /* 1: CU_STREAM_LEGACY */
    Stream *stream = (Stream *)handle;
    return current_context->streams.count(stream) ? stream : nullptr;
}

int finish(Call &call, const Op &op, const char *what)
{
    if (!op) return CU_OK;
    Context *context = op->context;
    ask(op);
    while (!op->is_done) {
        if (context->error) return context->error;
        if (never_ends(op)) {
            report(format("%s waits for work that never ends", what));
            return CU_LAUNCH_TIMEOUT;
        }
        state.finished.wait(call.lock);
    }
    return context->error;
}

int finish_all(Call &call, Context *context, const char *what)
{
    for (;;) {
        Op next;
        for (auto &pending : state.pending)
            if (pending.second->context == context) next = pending.second;
        if (!next) return context->error;
        const int result = finish(call, next, what);
        if (result) return result;
    }
}

/* The context is going: what has not run never will. */
void sweep_streams(Context *context)
{
    for (auto it = state.pending.begin(); it != state.pending.end();) {
        const bool goes = it->second->context == context;
        if (goes) it->second->is_done = true, it->second->work = nullptr, it->second->after.clear();
        it = goes ? state.pending.erase(it) : std::next(it);
    }
    for (Stream *stream : context->streams) delete stream;
    for (Event *event : context->events) delete event;
    context->streams.clear();
    context->events.clear();
    context->null_stream.last = nullptr;
}

} // namespace stand_in

using namespace stand_in;

/* ------------------------------------------------------------------ streams */

static CUresult create_stream(const char *entry, Stream **out_stream, unsigned flags)
{
    ENTRY(entry, context);
    if (!out_stream || flags > CU_STREAM_NON_BLOCKING) return CU_INVALID_VALUE;
    *out_stream = new Stream{current_context, flags != CU_STREAM_NON_BLOCKING, nullptr};
    current_context->streams.insert(*out_stream);
    return CU_OK;
}
EXPORT CUresult cuStreamCreate(Stream **stream, unsigned flags)
{
    return create_stream("cuStreamCreate", stream, flags);
}
EXPORT CUresult cuStreamCreateWithPriority(Stream **stream, unsigned flags, int)
{
    return create_stream("cuStreamCreateWithPriority", stream, flags);
}

/* Work that was given to it still runs. */
EXPORT CUresult cuStreamDestroy_v2(void *handle)
{
    ENTRY_DESTROY("cuStreamDestroy_v2");
    Stream *stream = (Stream *)handle;
    if (!current_context->streams.erase(stream)) return CU_INVALID_HANDLE;
    delete stream;
    return call.error;
}

EXPORT CUresult cuStreamSynchronize(void *handle)
{
    ENTRY("cuStreamSynchronize", context);
    Stream *stream = stream_of(handle);
    if (!stream) return CU_INVALID_HANDLE;
    if (handle) return finish(call, stream->last, "cuStreamSynchronize");
    for (Stream *other : std::set<Stream *>(current_context->streams))
        if (other->blocks)
            if (const int result = finish(call, other->last, "cuStreamSynchronize")) return result;
    return finish(call, stream->last, "cuStreamSynchronize");
}

EXPORT CUresult cuStreamQuery(void *handle)
{
    ENTRY("cuStreamQuery", context);
    Stream *stream = stream_of(handle);
    return stream ? query(current_context, stream->last) : CU_INVALID_HANDLE;
}

EXPORT CUresult cuStreamWaitEvent(void *handle, Event *event, unsigned flags)
{
    ENTRY("cuStreamWaitEvent", context);
    Stream *stream = stream_of(handle);
    if (!stream || !event) return CU_INVALID_HANDLE;
    if (flags > 1) return CU_INVALID_VALUE;
    if (event->op) (void)enqueue(stream, nullptr, {event->op});
    return CU_OK;
}

/* ------------------------------------------------------------------- events */

EXPORT CUresult cuEventCreate(Event **out_event, unsigned flags)
{
    ENTRY("cuEventCreate", context);
    if (!out_event || flags > 7) return CU_INVALID_VALUE;
    *out_event = new Event{current_context, (flags & CU_EVENT_DISABLE_TIMING) == 0, nullptr};
    current_context->events.insert(*out_event);
    return CU_OK;
}

#define WITH_EVENT(event)                                                                                              \
    if (!current_context->events.count(event)) return CU_INVALID_HANDLE

EXPORT CUresult cuEventDestroy_v2(Event *event)
{
    ENTRY_DESTROY("cuEventDestroy_v2");
    WITH_EVENT(event);
    current_context->events.erase(event);
    delete event;
    return call.error;
}

EXPORT CUresult cuEventRecord(Event *event, void *handle)
{
    ENTRY("cuEventRecord", context);
    WITH_EVENT(event);
    Stream *stream = stream_of(handle);
    if (!stream) return CU_INVALID_HANDLE;
    event->op = enqueue(stream, nullptr);
    return CU_OK;
}

EXPORT CUresult cuEventQuery(Event *event)
{
    ENTRY("cuEventQuery", context);
    WITH_EVENT(event);
    return query(current_context, event->op);
}

EXPORT CUresult cuEventSynchronize(Event *event)
{
    ENTRY("cuEventSynchronize", context);
    WITH_EVENT(event);
    return finish(call, event->op, "cuEventSynchronize");
}

static CUresult elapsed(const char *entry, float *out_ms, Event *from, Event *to)
{
    ENTRY(entry, context);
    WITH_EVENT(from);
    WITH_EVENT(to);
    if (!out_ms) return CU_INVALID_VALUE;
    if (!from->has_time || !to->has_time || !from->op || !to->op) return CU_INVALID_HANDLE;
    if (!from->op->is_done || !to->op->is_done) return CU_NOT_READY;
    *out_ms = (float)(to->op->time - from->op->time);
    return CU_OK;
}
EXPORT CUresult cuEventElapsedTime(float *ms, Event *from, Event *to)
{
    return elapsed("cuEventElapsedTime", ms, from, to);
}
EXPORT CUresult cuEventElapsedTime_v2(float *ms, Event *from, Event *to)
{
    return elapsed("cuEventElapsedTime_v2", ms, from, to);
}
