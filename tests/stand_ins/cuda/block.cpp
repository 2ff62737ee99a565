/* SPDX-License-Identifier: Apache-2.0 */
/* block.cpp - the threads of a block, one after another, changing places where one has to wait.
 *
 *     scheduler ──start──> carrier: thread 0, thread 1, ... as long as none waits        (a kernel without a barrier: a
 *         ^                   │ thread i waits at a barrier or in its warp                plain loop on one stack)
 *         └───────────────────┘ its stack stays; the next carrier goes on with i + 1
 *
 * Each thread that waits keeps a stack of its own; a switch is six registers. Odd blocks run their threads backwards,
 * and shared memory starts as NaN, so that what only works in one order shows. Invariant: one block at a time, because
 * __shared__ arrays are statics of the kernel's module.
 * What it is not: concurrency. Two threads never run at once, so races between barriers show only through the order.
 *
 * Wrong programs end the kernel with a sentence: barriers at different lines, a thread that leaves while others wait,
 * lanes that never meet, addresses outside every allocation (the segment fault is caught), a full stack. */
#include "block.h"

#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <ucontext.h>
#include <vector>

#include "cuda_abi.h"

extern "C" {
void tern_standin_switch(void **save, void *to);
void tern_standin_enter(tern_thread *self, void (*call)(void **), void **arguments);
void tern_standin_jump(void *to);
}
__asm__(".text\n"
        ".hidden tern_standin_switch\n.hidden tern_standin_enter\n.hidden tern_standin_jump\n"
        ".globl tern_standin_switch\ntern_standin_switch:\n"
        " pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
        " movq %rsp, (%rdi)\n movq %rsi, %rdi\n"
        ".globl tern_standin_jump\ntern_standin_jump:\n"
        " movq %rdi, %rsp\n popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n ret\n"
        ".globl tern_standin_enter\ntern_standin_enter:\n"
        " pushq %r15\n movq %rdi, %r15\n movq %rdx, %rdi\n call *%rsi\n popq %r15\n ret\n");

namespace stand_in
{
namespace
{

constexpr unsigned MAX_THREADS = 1024, LANES = 32;
constexpr size_t STACK_BYTES = 256 << 10, STACK_GUARD = 4096;

enum class State : unsigned char { waiting_to_start, running, at_barrier, in_warp, done };

struct Copy {
    void *to;
    const void *from;
    unsigned bytes;
};

struct Thread : tern_thread {
    void *stack_pointer;
    State state;
    int line;
    uint64_t generation; /* of what it waits for */
    std::vector<Copy> copies;
    std::vector<size_t> groups; /* ends of committed groups in copies */
};

struct Warp {
    unsigned lanes, arrived, gone;
    int line;
    uint64_t generation;
    alignas(64) unsigned char slots[2][LANES][64];
};

/* All that a running kernel has; one per OS thread that runs kernels, kept from launch to launch. */
struct Block {
    const Launch *launch;
    unsigned count, next, live, arrived, gone;
    int line;
    uint64_t generation;
    bool backwards;
    void *scheduler;
    char *stacks;
    Thread *running;
    std::string wrong;
    int result;
    Thread threads[MAX_THREADS];
    Warp warps[MAX_THREADS / LANES];

    unsigned at(unsigned turn) const { return backwards ? count - 1 - turn : turn; }
    [[noreturn]] void fail(int code, const std::string &what);
    void wait(Thread *self, State state, uint64_t current, int line);
    void finish(Thread *self);
    void schedule();
    void prepare(tern_uint3 block);
};

thread_local Block *block_of_this_thread;

std::string text(const char *format, ...)
{
    char buffer[300];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(buffer, sizeof buffer, format, arguments);
    va_end(arguments);
    return buffer;
}

std::string where(const Block &b, const Thread &t)
{
    return text("kernel %s, block (%u, %u, %u), thread (%u, %u, %u)", b.launch->kernel->name, t.block.x, t.block.y,
                t.block.z, t.thread.x, t.thread.y, t.thread.z);
}

/* Leaves the running thread for good: kernels have nothing to destroy. */
void Block::fail(int code, const std::string &what)
{
    if (wrong.empty()) wrong = where(*this, *running) + ": " + what, result = code;
    tern_standin_jump(scheduler);
    __builtin_unreachable();
}

void Block::wait(Thread *self, State state, uint64_t current, int at_line)
{
    self->state = state;
    self->generation = current;
    self->line = at_line;
    tern_standin_switch(&self->stack_pointer, scheduler);
    self->state = State::running;
}

/* ----------------------------------------------------- what kernels ask for */

void barrier(tern_thread *thread, int line)
{
    Block &b = *block_of_this_thread;
    Thread *self = static_cast<Thread *>(thread);
    if (b.gone > 0)
        b.fail(CU_LAUNCH_FAILED, text("a barrier at line %d that %u threads of the block left out", line, b.gone));
    if (b.arrived == 0) b.line = line;
    if (b.line != line)
        b.fail(CU_LAUNCH_FAILED,
               text("divergent barrier: this thread is at line %d, others wait at line %d", line, b.line));
    if (++b.arrived == b.count) {
        b.arrived = 0;
        b.generation++;
        return;
    }
    b.wait(self, State::at_barrier, b.generation, line);
}

const unsigned char *exchange(tern_thread *thread, const void *data, unsigned bytes, int line)
{
    Block &b = *block_of_this_thread;
    Thread *self = static_cast<Thread *>(thread);
    Warp &w = b.warps[self->linear / LANES];
    unsigned char(*slots)[64] = w.slots[w.generation & 1];
    if (w.gone > 0)
        b.fail(CU_LAUNCH_FAILED, text("a warp's operation at line %d that %u lanes left out", line, w.gone));
    if (w.arrived == 0) w.line = line;
    if (w.line != line)
        b.fail(CU_LAUNCH_FAILED, text("divergent warp: this lane is at line %d, others wait at line %d", line, w.line));
    memcpy(slots[self->linear % LANES], data, bytes);
    if (++w.arrived == w.lanes) {
        w.arrived = 0;
        w.generation++;
    } else {
        b.wait(self, State::in_warp, w.generation, line);
    }
    return slots[0];
}

void cp_async(tern_thread *thread, void *to, const void *from, unsigned bytes, int line)
{
    Thread *self = static_cast<Thread *>(thread);
    if (((uintptr_t)to | (uintptr_t)from) % 16 || bytes > 16)
        block_of_this_thread->fail(CU_MISALIGNED_ADDRESS, text("cp.async at line %d: not aligned to 16 bytes", line));
    self->copies.push_back({to, from, bytes});
}

void cp_async_commit(tern_thread *thread)
{
    Thread *self = static_cast<Thread *>(thread);
    self->groups.push_back(self->copies.size());
}

void cp_async_wait(tern_thread *thread, unsigned groups_left)
{
    Thread *self = static_cast<Thread *>(thread);
    if (self->groups.size() <= groups_left) return;
    const size_t groups = self->groups.size() - groups_left, end = self->groups[groups - 1];
    for (size_t i = 0; i < end; i++) {
        memset(self->copies[i].to, 0, 16);
        memcpy(self->copies[i].to, self->copies[i].from, self->copies[i].bytes);
    }
    self->copies.erase(self->copies.begin(), self->copies.begin() + (long)end);
    self->groups.erase(self->groups.begin(), self->groups.begin() + (long)groups);
    for (size_t &group : self->groups) group -= end;
}

void fail(tern_thread *, const char *what, int line)
{
    block_of_this_thread->fail(CU_LAUNCH_FAILED, text("%s (line %d)", what, line));
}

const tern_runtime runtime = {barrier, exchange, cp_async, cp_async_commit, cp_async_wait, fail};

/* ------------------------------------------------------------------- turns */

void Block::finish(Thread *self)
{
    Warp &w = warps[self->linear / LANES];
    self->state = State::done;
    live--, gone++, w.gone++;
    if (arrived > 0)
        fail(CU_LAUNCH_FAILED, text("the thread ends while %u wait at the barrier of line %d", arrived, line));
    if (w.arrived > 0)
        fail(CU_LAUNCH_FAILED, text("the lane ends while %u of its warp wait at line %d", w.arrived, w.line));
}

/* A carrier's whole life; leaves through the scheduler. */
void carry()
{
    Block &b = *block_of_this_thread;
    do {
        Thread *t = &b.threads[b.at(b.next++)];
        b.running = t;
        t->state = State::running;
        tern_standin_enter(t, b.launch->kernel->call, b.launch->arguments);
        b.finish(b.running = t);
    } while (b.next < b.count);
    tern_standin_jump(b.scheduler);
}

char *stack_of(const Block &b, unsigned index) { return b.stacks + (STACK_BYTES + STACK_GUARD) * index + STACK_GUARD; }

/* Stacks start at different cache sets, else every thread's locals fall into the same ones. */
void *new_stack(const Block &b, unsigned index)
{
    void **top = (void **)(stack_of(b, index) + STACK_BYTES - 64 - index % 16 * 128);
    *--top = nullptr; /* carry's own return address: none */
    *--top = (void *)carry;
    return top - 6;
}

bool is_ready(const Block &b, const Thread &t, unsigned turn)
{
    switch (t.state) {
    case State::waiting_to_start: return b.next == turn;
    case State::at_barrier: return t.generation != b.generation;
    case State::in_warp: return t.generation != b.warps[t.linear / LANES].generation;
    default: return false;
    }
}

void Block::schedule()
{
    while (live > 0 && wrong.empty()) {
        bool any = false;
        for (unsigned turn = 0; turn < count && wrong.empty(); turn++) {
            Thread &t = threads[at(turn)];
            if (!is_ready(*this, t, turn)) continue;
            any = true;
            running = &t;
            tern_standin_switch(&scheduler,
                                t.state == State::waiting_to_start ? new_stack(*this, t.linear) : t.stack_pointer);
        }
        for (unsigned turn = 0; turn < count && !any && wrong.empty(); turn++)
            if (threads[at(turn)].state != State::done) {
                wrong = where(*this, threads[at(turn)]) +
                        text(": waits at line %d for threads that wait elsewhere", threads[at(turn)].line);
                result = CU_LAUNCH_FAILED;
            }
    }
}

void Block::prepare(tern_uint3 position)
{
    const tern_uint3 size = launch->block;
    const tern_kernel_record &kernel = *launch->kernel;
    next = arrived = gone = 0;
    live = count;
    backwards = ((position.x + position.y + position.z) & 1) != 0;
    for (unsigned i = 0; i < count; i++) {
        Thread &t = threads[i];
        t.thread = {i % size.x, i / size.x % size.y, i / size.x / size.y};
        t.block = position;
        t.state = State::waiting_to_start;
        t.copies.clear();
        t.groups.clear();
    }
    for (unsigned i = 0; i * LANES < count; i++) {
        warps[i].lanes = count - i * LANES < LANES ? count - i * LANES : LANES;
        warps[i].arrived = warps[i].gone = 0;
    }
    if (kernel.shared_begin) memset(kernel.shared_begin, 0xff, (size_t)(kernel.shared_end - kernel.shared_begin));
    if (launch->dynamic_shared_bytes) memset(threads[0].dynamic_shared, 0xff, launch->dynamic_shared_bytes);
}

/* ------------------------------------------------------------------- faults */

struct sigaction previous_action;

/* A kernel's bad access becomes its failure; anyone else's goes where it would have gone. */
void on_fault(int number, siginfo_t *info, void *context)
{
    Block *b = block_of_this_thread;
    if (!b || !b->scheduler || !b->running) {
        sigaction(number, &previous_action, nullptr); /* the access is repeated and falls to that one */
        return;
    }
    const char *address = (const char *)info->si_addr, *end = b->stacks + (STACK_BYTES + STACK_GUARD) * MAX_THREADS;
    const bool stack = address >= b->stacks && address < end;
    if (b->wrong.empty())
        b->wrong =
            where(*b, *b->running) + (stack ? text(": its stack of %zu KiB is full", STACK_BYTES >> 10)
                                            : text(": touches %p, which is in no allocation", (const void *)address));
    b->result = stack ? CU_HARDWARE_STACK_ERROR : CU_ILLEGAL_ADDRESS;
    ucontext_t *machine = (ucontext_t *)context;
    machine->uc_mcontext.gregs[REG_RDI] = (greg_t)b->scheduler;
    machine->uc_mcontext.gregs[REG_RIP] = (greg_t)tern_standin_jump;
}

Block *make_block()
{
    constexpr size_t signal_bytes = 64 << 10;
    const size_t bytes = (STACK_BYTES + STACK_GUARD) * MAX_THREADS + signal_bytes;
    Block *b = new Block();
    b->stacks =
        (char *)mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (b->stacks == MAP_FAILED) abort(); /* a quarter of a GiB of addresses */
    for (unsigned i = 0; i < MAX_THREADS; i++) (void)mprotect(stack_of(*b, i) - STACK_GUARD, STACK_GUARD, PROT_NONE);
    stack_t alternative = {};
    alternative.ss_sp = b->stacks + bytes - signal_bytes;
    alternative.ss_size = signal_bytes;
    sigaltstack(&alternative, nullptr);
    return b;
}

void catch_faults()
{
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    struct sigaction now;
    sigaction(SIGSEGV, nullptr, &now);
    if (now.sa_sigaction == on_fault) return;
    sigaction(SIGSEGV, &action, &previous_action);
}

} // namespace

std::string run_kernel(const Launch &launch, int *out_result)
{
    if (!block_of_this_thread) block_of_this_thread = make_block();
    Block &b = *block_of_this_thread;
    catch_faults();
    b.launch = &launch;
    b.count = launch.block.x * launch.block.y * launch.block.z;
    b.wrong.clear();
    std::vector<float> dynamic((launch.dynamic_shared_bytes + 15) / 4 + 4);
    void *shared = (void *)(((uintptr_t)dynamic.data() + 15) & ~(uintptr_t)15);
    for (unsigned i = 0; i < b.count; i++) {
        Thread &t = b.threads[i];
        t.runtime = &runtime, t.linear = i, t.block_size = launch.block, t.grid = launch.grid,
        t.dynamic_shared = shared;
    }
    for (unsigned z = 0; z < launch.grid.z && b.wrong.empty(); z++)
        for (unsigned y = 0; y < launch.grid.y && b.wrong.empty(); y++)
            for (unsigned x = 0; x < launch.grid.x && b.wrong.empty(); x++) {
                b.prepare({x, y, z});
                b.schedule();
            }
    b.running = nullptr;
    if (!b.wrong.empty()) *out_result = b.result;
    return b.wrong;
}

} // namespace stand_in
