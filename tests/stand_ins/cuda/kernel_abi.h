/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_abi.h - what a kernel compiled by the stand-in NVRTC and the stand-in driver know of each other.
 *
 *     libnvrtc.so:  this + kernel_words.h + the kernel's text + TERN_STAND_IN_KERNEL(name) -> g++ -> a shared object
 *     libcuda.so.1: loads it, finds tern_stand_in_kernel_<name>, calls record.call once per thread of a block
 *
 * Register r15 holds the running thread throughout a kernel (g++ -ffixed-r15), so that threadIdx costs one load and a
 * switch between threads carries it along. Includes nothing: it is compiled before every kernel. */
#ifndef TERN_STAND_IN_KERNEL_ABI_H
#define TERN_STAND_IN_KERNEL_ABI_H

struct tern_uint3 {
    unsigned x, y, z;
};

struct tern_thread;

/* What a kernel asks of the driver. A thread that waits lets the others of its block run. */
struct tern_runtime {
    void (*barrier)(tern_thread *self, int line);
    /* Leaves up to 64 bytes for the warp and waits for all of its lanes; the bytes of lane i are at 64 i then. They
     * stay until the next but one exchange. */
    const unsigned char *(*exchange)(tern_thread *self, const void *data, unsigned bytes, int line);
    /* Done as late as the text allows, in cp_async_wait, so that a missing wait is seen. */
    void (*cp_async)(tern_thread *self, void *to, const void *from, unsigned bytes, int line);
    void (*cp_async_commit)(tern_thread *self);
    void (*cp_async_wait)(tern_thread *self, unsigned groups_left);
    void (*fail)(tern_thread *self, const char *what, int line); /* does not return */
};

struct tern_thread {
    const tern_runtime *runtime;
    tern_uint3 thread, block, block_size, grid;
    unsigned linear; /* number in the block, x fastest */
    void *dynamic_shared;
};

struct tern_parameter {
    unsigned bytes, alignment, is_pointer;
};

struct tern_kernel_record {
    const char *name;
    void (*call)(void **arguments);
    unsigned parameter_count;
    const tern_parameter *parameters;
    char *shared_begin, *shared_end; /* the __shared__ arrays: one block runs at a time */
};

#endif
