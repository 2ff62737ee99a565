/* SPDX-License-Identifier: Apache-2.0 */
/* test_vulkan.c - the Vulkan plug-in at work, everything under core and synchronization validation.
 *
 * After each test the layer must have been silent; test_missing_wait shows that it would have spoken. What every
 * backend promises is tested in the conformance suite; here stands what only this plug-in has: two forms of arguments,
 * barriers, limits that a driver does not enforce. Faults and caches: test_vulkan_faults.c. */
#include "tests/test.h"
#include "tests/vulkan_fixture.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/time.h"

#define READ    TERN_ACCESS_READ
#define WRITE   TERN_ACCESS_WRITE
#define LONG_NS 60000000000ull

typedef struct fixture {
    const tern_backend *backend;
    const vulkan_plugin *plugin;
    tern_backend_device *device;
    tern_device_info info;
    uint64_t messages;
} fixture;

static int open_device(void **state, bool timestamps)
{
    static fixture f;
    f = (fixture){.plugin = vulkan_plugin_find()};
    *state = NULL;
    if (!f.plugin) return 0; /* the test skips, with the sentence */
    f.backend = f.plugin->backend;
    f.messages = f.plugin->validation_messages();
    const tern_open_options options = {.validate = true, .timestamps = timestamps};
    if (f.backend->device_info(0, &f.info) < 0 || f.backend->open(0, &options, &f.device) < 0) {
        print_error("%s\n", tern_error_message());
        return 1;
    }
    vulkan_pin_drivers();
    *state = &f;
    return 0;
}

static int setup(void **state) { return open_device(state, false); }

static int setup_with_timestamps(void **state) { return open_device(state, true); }

/* Fails where something was left allocated or the layer has spoken. */
static int teardown(void **state)
{
    fixture *f = *state;
    if (!f) return 0;
    const uint64_t left = f->backend->allocated_bytes(f->device);
    f->backend->close(f->device);
    const uint64_t messages = f->plugin->validation_messages() - f->messages;
    if (left) print_error("%llu bytes were left allocated\n", (unsigned long long)left);
    if (messages) print_error("%llu validation messages\n", (unsigned long long)messages);
    return left || messages ? 1 : 0;
}

static fixture *need_device(void **state)
{
    if (!*state) TEST_SKIP("%s", tern_error_message());
    return *state;
}

static tern_backend_buffer *make_buffer(const fixture *f, uint64_t bytes, tern_buffer_kind kind)
{
    tern_backend_buffer *buffer = NULL;
    TEST_OK(f->backend->buffer_create(f->device, bytes, kind, &buffer));
    return buffer;
}

static tern_backend_kernel *make_kernel(const fixture *f, vulkan_kernel_name name)
{
    tern_backend_kernel *kernel = NULL;
    const tern_kernel_desc desc = vulkan_kernel_desc(name);
    TEST_OK(f->backend->kernel_create(f->device, &desc, &kernel));
    return kernel;
}

static void write_indices(const fixture *f, tern_backend_buffer *buffer, uint32_t count)
{
    uint32_t *data = malloc(count * sizeof *data);
    assert_non_null(data);
    for (uint32_t i = 0; i < count; i++) data[i] = i;
    TEST_OK(f->backend->buffer_write(f->device, buffer, 0, data, count * sizeof *data));
    free(data);
}

/* The u32 at offset + 4 i is a i + b for i < count. */
static void check_affine(const fixture *f, tern_backend_buffer *buffer, uint64_t offset, uint32_t count, uint32_t a,
                         uint32_t b)
{
    uint32_t *data = malloc(count * sizeof *data);
    assert_non_null(data);
    TEST_OK(f->backend->buffer_read(f->device, buffer, offset, data, count * sizeof *data));
    for (uint32_t i = 0; i < count; i++)
        if (data[i] != a * i + b) fail_msg("element %u is %u, wanted %u", i, data[i], a * i + b);
    free(data);
}

/* ------------------------------------------------------------------ memory */

static void test_buffers(void **state)
{
    const fixture *f = need_device(state);
    const uint32_t count = 5u << 20; /* 20 MiB: three pieces of the staging buffer */
    tern_backend_buffer *buffer = make_buffer(f, 4ull * count + 3, TERN_BUFFER_DEVICE);
    uint32_t tail[3] = {1, 2, 3};
    assert_int_equal(f->backend->allocated_bytes(f->device), 4ull * count + 3);
    check_affine(f, buffer, 0, count, 0, 0);
    write_indices(f, buffer, count);
    check_affine(f, buffer, 0, count, 1, 0);
    TEST_OK(f->backend->buffer_read(f->device, buffer, 4ull * count, tail, 3));
    assert_int_equal(tail[0] & 0xffffffu, 0);
    TEST_OK(f->backend->buffer_write(f->device, buffer, 5, "abc", 3)); /* neither end on a word */
    TEST_OK(f->backend->buffer_read(f->device, buffer, 4, tail, 8));
    assert_memory_equal(tail, "\1abc\2\0\0\0", 8);
    TEST_ERROR(f->backend->buffer_write(f->device, buffer, 4ull * count, tail, 4), TERN_ERROR_INVALID,
               "passes the end");
    TEST_ERROR(f->backend->buffer_read(f->device, buffer, UINT64_MAX, tail, 2), TERN_ERROR_INVALID, "passes the end");
    void *map = NULL;
    TEST_ERROR(f->backend->buffer_map(f->device, buffer, &map), TERN_ERROR_INVALID, "no host address");
    assert_null(map);
    f->backend->buffer_destroy(f->device, buffer);
    buffer = make_buffer(f, 64, TERN_BUFFER_UPLOAD);
    TEST_OK(f->backend->buffer_map(f->device, buffer, &map));
    for (int i = 0; i < 64; i++) assert_int_equal(((unsigned char *)map)[i], 0);
    f->backend->buffer_destroy(f->device, buffer);
}

/* Limits that lavapipe itself lets pass: each refused by us, with the values. */
static void test_memory_limits(void **state)
{
    const fixture *f = need_device(state);
    tern_backend_buffer *buffer = NULL;
    char value[32];
    const uint64_t limit = f->info.max_buffer_bytes < f->info.max_allocation_bytes ? f->info.max_buffer_bytes
                                                                                   : f->info.max_allocation_bytes;
    snprintf(value, sizeof value, "%llu", (unsigned long long)limit);
    TEST_ERROR(f->backend->buffer_create(f->device, limit + 1, TERN_BUFFER_DEVICE, &buffer), TERN_ERROR_UNSUPPORTED,
               value);
    assert_null(buffer);
    snprintf(value, sizeof value, "%llu", (unsigned long long)f->info.max_buffer_bytes);
    TEST_ERROR(f->backend->buffer_create(f->device, UINT64_MAX - 64, TERN_BUFFER_DEVICE, &buffer),
               TERN_ERROR_UNSUPPORTED, value);
    TEST_ERROR(f->backend->buffer_create(f->device, 0, TERN_BUFFER_DEVICE, &buffer), TERN_ERROR_INVALID, "0 bytes");
    assert_null(buffer);
}

/* -------------------------------------------------------------- dispatches */

/* Odd offsets, sentinels on both sides, five bindings of one buffer. */
static void run_forms(const fixture *f)
{
    enum { COUNT = 1000, FIRST = 7 };
    tern_backend_buffer *x = make_buffer(f, 4 * (COUNT + 2 * FIRST), TERN_BUFFER_DEVICE);
    tern_backend_buffer *y = make_buffer(f, 4 * (COUNT + 2 * FIRST), TERN_BUFFER_DEVICE);
    tern_backend_kernel *affine = make_kernel(f, VULKAN_KERNEL_AFFINE), *sum = make_kernel(f, VULKAN_KERNEL_SUM);
    write_indices(f, x, COUNT + 2 * FIRST);
    const uint32_t wait = 0;
    tern_step steps[3] = {
        {.kind = TERN_STEP_FILL,
         .label = "sentinels",
         .argument_count = 1,
         .arguments = {vulkan_argument(y, 0, COUNT + 2 * FIRST, WRITE)},
         .fill = 0xabcdef01u},
        vulkan_affine(affine, vulkan_argument(x, FIRST, COUNT, READ), vulkan_argument(y, FIRST, COUNT, WRITE), COUNT, 3,
                      5),
    };
    steps[1].wait_count = 1, steps[1].waits = &wait;
    TEST_OK(vulkan_run(f->backend, f->device, steps, 2));
    check_affine(f, y, 4 * FIRST, COUNT, 3, 3 * FIRST + 5);
    check_affine(f, y, 0, FIRST, 0, 0xabcdef01u);
    check_affine(f, y, 4 * (FIRST + COUNT), FIRST, 0, 0xabcdef01u);
    steps[0] = (tern_step){.kind = TERN_STEP_DISPATCH,
                           .label = "sum",
                           .kernel = sum,
                           .argument_count = 6,
                           .word_count = 1,
                           .words = {COUNT},
                           .groups = {COUNT / VULKAN_GROUP + 1, 1, 1}};
    for (uint32_t i = 0; i < 5; i++) steps[0].arguments[i] = vulkan_argument(x, i, COUNT, READ);
    steps[0].arguments[5] = vulkan_argument(y, 1, COUNT, WRITE);
    TEST_OK(vulkan_run(f->backend, f->device, steps, 1));
    check_affine(f, y, 4, COUNT, 5, 10);
    f->backend->kernel_destroy(f->device, affine);
    f->backend->kernel_destroy(f->device, sum);
    f->backend->buffer_destroy(f->device, x);
    f->backend->buffer_destroy(f->device, y);
}

static void test_bindings(void **state) { run_forms(need_device(state)); }

static int setup_with_addresses(void **state)
{
    setenv("TERN_VULKAN_ADDRESSES", "1", 1);
    const int failed = setup(state);
    unsetenv("TERN_VULKAN_ADDRESSES");
    return failed;
}

static void test_addresses(void **state) { run_forms(need_device(state)); }

/* A tensor past maxStorageBufferRange goes through addresses by itself, its groups past 65,535 folded over y. */
static void test_beyond_binding_range(void **state)
{
    const fixture *f = need_device(state);
    if (f->info.max_binding_bytes > 1ull << 28)
        TEST_SKIP("bindings of %llu bytes are too large to exceed in a test",
                  (unsigned long long)f->info.max_binding_bytes);
    if (!(f->info.features & TERN_FEATURE_BUFFER_ADDRESS)) TEST_SKIP("%s has no buffer device addresses", f->info.name);
    const uint32_t count = (uint32_t)(f->info.max_binding_bytes / 4) + 1000003;
    tern_backend_buffer *x = make_buffer(f, 4ull * count, TERN_BUFFER_DEVICE);
    tern_backend_buffer *y = make_buffer(f, 4ull * count, TERN_BUFFER_DEVICE);
    tern_backend_kernel *kernel = make_kernel(f, VULKAN_KERNEL_AFFINE);
    write_indices(f, x, count);
    const tern_step step =
        vulkan_affine(kernel, vulkan_argument(x, 0, count, READ), vulkan_argument(y, 0, count, WRITE), count, 7, 1);
    assert_true(step.groups[1] > 1);
    TEST_OK(vulkan_run(f->backend, f->device, &step, 1));
    check_affine(f, y, 0, count, 7, 1);
    f->backend->kernel_destroy(f->device, kernel);
    f->backend->buffer_destroy(f->device, x);
    f->backend->buffer_destroy(f->device, y);
}

/* ---------------------------------------------------------------- programs */

enum { CHAIN = 6, CHAIN_COUNT = 4096 };

/* b = 2a + 1, a = 2b + 1, ... from step `first` on: each step reads what the one before wrote and writes what it read.
 */
static void fill_chain(tern_step *steps, uint32_t first, uint32_t *waits, tern_backend_kernel *kernel,
                       tern_backend_buffer *a, tern_backend_buffer *b)
{
    for (uint32_t i = first; i < first + CHAIN; i++) {
        tern_backend_buffer *x = (i - first) % 2 ? b : a, *y = (i - first) % 2 ? a : b;
        steps[i] = vulkan_affine(kernel, vulkan_argument(x, 0, CHAIN_COUNT, READ),
                                 vulkan_argument(y, 0, CHAIN_COUNT, WRITE), CHAIN_COUNT, 2, 1);
        waits[i] = i - 1;
        if (i > 0) steps[i].wait_count = 1, steps[i].waits = &waits[i];
    }
}

static void test_hazards(void **state)
{
    const fixture *f = need_device(state);
    tern_backend_buffer *a = make_buffer(f, 4 * CHAIN_COUNT, TERN_BUFFER_DEVICE),
                        *b = make_buffer(f, 4 * CHAIN_COUNT, TERN_BUFFER_DEVICE);
    tern_backend_buffer *out = make_buffer(f, 4 * CHAIN_COUNT, TERN_BUFFER_READBACK),
                        *in = make_buffer(f, 4 * CHAIN_COUNT, TERN_BUFFER_UPLOAD);
    tern_backend_kernel *kernel = make_kernel(f, VULKAN_KERNEL_AFFINE);
    tern_step steps[CHAIN + 2];
    uint32_t waits[CHAIN + 2], *map = NULL;
    fill_chain(steps, 1, waits, kernel, a, b);
    steps[0] = (tern_step){
        .kind = TERN_STEP_COPY,
        .label = "upload",
        .argument_count = 2,
        .arguments = {vulkan_argument(in, 0, CHAIN_COUNT, READ), vulkan_argument(a, 0, CHAIN_COUNT, WRITE)}};
    steps[CHAIN + 1] = (tern_step){
        .kind = TERN_STEP_COPY,
        .label = "result",
        .argument_count = 2,
        .wait_count = 1,
        .waits = &waits[CHAIN + 1],
        .arguments = {vulkan_argument(a, 0, CHAIN_COUNT, READ), vulkan_argument(out, 0, CHAIN_COUNT, WRITE)}};
    waits[CHAIN + 1] = CHAIN;
    TEST_OK(f->backend->buffer_map(f->device, in, (void **)&map));
    for (uint32_t i = 0; i < CHAIN_COUNT; i++) map[i] = i;
    TEST_OK(vulkan_run(f->backend, f->device, steps, CHAIN + 2));
    TEST_OK(f->backend->buffer_map(f->device, out, (void **)&map));
    for (uint32_t i = 0; i < CHAIN_COUNT; i++) assert_int_equal(map[i], (i << CHAIN) + (1u << CHAIN) - 1);
    check_affine(f, out, 0, CHAIN_COUNT, 1u << CHAIN, (1u << CHAIN) - 1);
    f->backend->kernel_destroy(f->device, kernel);
    tern_backend_buffer *buffers[] = {a, b, in, out};
    for (int i = 0; i < 4; i++) f->backend->buffer_destroy(f->device, buffers[i]);
}

/* The same chain without its waits: were the layer not watching, the silence of all other tests would mean nothing. */
static void test_missing_wait(void **state)
{
    fixture *f = need_device(state);
    if (!vulkan_validation_is_installed()) TEST_SKIP("the validation layer is not installed");
    tern_backend_buffer *a = make_buffer(f, 4 * CHAIN_COUNT, TERN_BUFFER_DEVICE),
                        *b = make_buffer(f, 4 * CHAIN_COUNT, TERN_BUFFER_DEVICE);
    tern_backend_kernel *kernel = make_kernel(f, VULKAN_KERNEL_AFFINE);
    tern_step steps[CHAIN];
    uint32_t waits[CHAIN];
    fill_chain(steps, 0, waits, kernel, a, b);
    for (uint32_t i = 0; i < CHAIN; i++) steps[i].wait_count = 0;
    const uint64_t before = f->plugin->validation_messages();
    vulkan_log_quiet(true);
    const tern_status status = vulkan_run(f->backend, f->device, steps, CHAIN);
    vulkan_log_quiet(false);
    TEST_OK(status);
    const uint64_t after = f->plugin->validation_messages();
    assert_true(after > before);
    f->messages += after - before;
    f->backend->kernel_destroy(f->device, kernel);
    f->backend->buffer_destroy(f->device, a);
    f->backend->buffer_destroy(f->device, b);
}

/* Cut into three submissions, submitted over and over, two programs in flight. */
static void test_cuts_and_tickets(void **state)
{
    const fixture *f = need_device(state);
    tern_backend_buffer *a = make_buffer(f, 4 * CHAIN_COUNT, TERN_BUFFER_DEVICE),
                        *b = make_buffer(f, 4 * CHAIN_COUNT, TERN_BUFFER_DEVICE);
    tern_backend_kernel *kernel = make_kernel(f, VULKAN_KERNEL_AFFINE);
    tern_step steps[CHAIN];
    uint32_t waits[CHAIN], cuts[2] = {1, 4}, factor = 1;
    fill_chain(steps, 0, waits, kernel, a, b);
    tern_program_desc desc = {.label = "cut", .step_count = CHAIN, .steps = steps, .cut_count = 2, .cuts = cuts};
    tern_backend_program *programs[2] = {NULL, NULL};
    uint64_t tickets[2] = {0, 0}, last = 0;
    for (int i = 0; i < 2; i++) TEST_OK(f->backend->program_create(f->device, &desc, &programs[i]));
    assert_int_equal(f->backend->submission_count(f->device, programs[0]), 3);
    write_indices(f, a, CHAIN_COUNT);
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 2; i++) {
            TEST_OK(f->backend->program_submit(f->device, programs[i], &tickets[i]));
            if (last) assert_int_equal(tickets[i], last + 1);
            last = tickets[i];
            factor <<= CHAIN;
        }
    TEST_OK(f->backend->wait(f->device, tickets[1], LONG_NS));
    TEST_OK(f->backend->wait(f->device, tickets[0], 0)); /* earlier: finished too */
    check_affine(f, a, 0, CHAIN_COUNT, factor, factor - 1);
    TEST_ERROR(f->backend->wait(f->device, last + 1, LONG_NS), TERN_ERROR_INVALID, "never given out");
    cuts[1] = 1;
    tern_backend_program *none = NULL;
    TEST_ERROR(f->backend->program_create(f->device, &desc, &none), TERN_ERROR_INVALID, "out of order");
    assert_null(none);
    for (int i = 0; i < 2; i++) f->backend->program_destroy(f->device, programs[i]);
    f->backend->kernel_destroy(f->device, kernel);
    f->backend->buffer_destroy(f->device, a);
    f->backend->buffer_destroy(f->device, b);
}

/* A slow step beside a quick one: the wait times out and the program goes on; the clock sees which was slow. */
static void test_timeout_and_timestamps(void **state)
{
    const fixture *f = need_device(state);
    tern_backend_buffer *z = make_buffer(f, 8 * VULKAN_GROUP, TERN_BUFFER_DEVICE);
    tern_backend_kernel *slow = make_kernel(f, VULKAN_KERNEL_SLOW), *affine = make_kernel(f, VULKAN_KERNEL_AFFINE);
    const uint32_t turns = 60000; /* llvmpipe leaves loops after 65,535 */
    const uint32_t groups = 256, count = groups * VULKAN_GROUP;
    tern_backend_buffer *y = make_buffer(f, 4 * count, TERN_BUFFER_DEVICE);
    tern_step steps[2] = {
        vulkan_affine(affine, vulkan_argument(z, 0, VULKAN_GROUP, READ),
                      vulkan_argument(z, VULKAN_GROUP, VULKAN_GROUP, WRITE), VULKAN_GROUP, 1, 1),
        {.kind = TERN_STEP_DISPATCH,
         .label = "slow",
         .kernel = slow,
         .argument_count = 1,
         .arguments = {vulkan_argument(y, 0, count, READ | WRITE)},
         .word_count = 1,
         .words = {turns},
         .groups = {groups, 1, 1}},
    };
    const tern_program_desc desc = {.label = "slow", .step_count = 2, .steps = steps};
    tern_backend_program *program = NULL;
    uint64_t ticket = 0, ns[2] = {0, 0};
    TEST_OK(f->backend->program_create(f->device, &desc, &program));
    TEST_ERROR(f->backend->program_times(f->device, program, ns), TERN_ERROR_INVALID, "never submitted");
    const uint64_t start = tern_time_ns();
    TEST_OK(f->backend->program_submit(f->device, program, &ticket));
    TEST_ERROR(f->backend->wait(f->device, ticket, 1000000), TERN_ERROR_TIMEOUT, "has not finished within 0.001 s");
    TEST_OK(f->backend->wait(f->device, ticket, LONG_NS));
    const uint64_t elapsed = tern_time_ns() - start;
    if (f->info.features & TERN_FEATURE_TIMESTAMPS) {
        TEST_OK(f->backend->program_times(f->device, program, ns));
        assert_true(ns[1] > ns[0] && ns[1] > 1000000 && ns[0] + ns[1] <= elapsed);
    }
    uint32_t expected = count - 1, got = 0;
    TEST_OK(f->backend->buffer_read(f->device, y, 4 * (count - 1), &got, 4));
    for (uint32_t k = 0; k < turns; k++) expected = expected * 1664525u + 1013904223u;
    assert_int_equal(got, expected);
    f->backend->program_destroy(f->device, program);
    f->backend->kernel_destroy(f->device, slow);
    f->backend->kernel_destroy(f->device, affine);
    f->backend->buffer_destroy(f->device, y);
    f->backend->buffer_destroy(f->device, z);
}

/* ------------------------------------------------------------------ misuse */

static void test_kernel_refusals(void **state)
{
    const fixture *f = need_device(state);
    tern_backend_kernel *kernel = NULL;
    tern_kernel_desc desc = vulkan_kernel_desc(VULKAN_KERNEL_BROKEN);
    TEST_ERROR(f->backend->kernel_create(f->device, &desc, &kernel), TERN_ERROR_KERNEL, "by hand 3");
    desc = vulkan_kernel_desc(VULKAN_KERNEL_AFFINE);
    desc.variant.group[0] = f->info.max_group_size + 1;
    TEST_ERROR(f->backend->kernel_create(f->device, &desc, &kernel), TERN_ERROR_UNSUPPORTED, "maxComputeWorkGroup");
    desc.variant.group[0] = VULKAN_GROUP;
    desc.variant.shared_bytes = f->info.shared_bytes + 4;
    TEST_ERROR(f->backend->kernel_create(f->device, &desc, &kernel), TERN_ERROR_UNSUPPORTED,
               "maxComputeSharedMemorySize");
    desc.variant.shared_bytes = 0;
    desc.tensor_count = TERN_TAPE_TENSORS;
    desc.word_count = 9;
    TEST_ERROR(f->backend->kernel_create(f->device, &desc, &kernel), TERN_ERROR_UNSUPPORTED, "132 bytes of 128");
    assert_null(kernel);
}

static void test_program_refusals(void **state)
{
    const fixture *f = need_device(state);
    tern_backend_buffer *x = make_buffer(f, 1024, TERN_BUFFER_DEVICE);
    tern_backend_kernel *kernel = make_kernel(f, VULKAN_KERNEL_AFFINE);
    const tern_argument low = vulkan_argument(x, 0, 64, READ), high = vulkan_argument(x, 128, 64, WRITE);
    const tern_step good = vulkan_affine(kernel, low, high, 64, 1, 0);
    const tern_step copy = {.kind = TERN_STEP_COPY, .label = "copy", .argument_count = 2, .arguments = {low, high}};
    const uint32_t itself = 0;
    tern_step bad = good;
    bad.arguments[1].offset = 1024 - 252;
    TEST_ERROR(vulkan_run(f->backend, f->device, &bad, 1), TERN_ERROR_INVALID, "passes the end");
    bad = good, bad.arguments[0].offset = 2;
    TEST_ERROR(vulkan_run(f->backend, f->device, &bad, 1), TERN_ERROR_INVALID, "no multiple of 4");
    bad = good, bad.word_count = 2;
    TEST_ERROR(vulkan_run(f->backend, f->device, &bad, 1), TERN_ERROR_INVALID, "2 words");
    bad = good, bad.groups[0] = 0;
    TEST_ERROR(vulkan_run(f->backend, f->device, &bad, 1), TERN_ERROR_UNSUPPORTED, "0 work-groups");
    bad = good, bad.wait_count = 1, bad.waits = &itself;
    TEST_ERROR(vulkan_run(f->backend, f->device, &bad, 1), TERN_ERROR_INVALID, "not earlier");
    if (f->info.max_groups[0] < UINT32_MAX) {
        bad = good, bad.groups[0] = f->info.max_groups[0] + 1;
        TEST_ERROR(vulkan_run(f->backend, f->device, &bad, 1), TERN_ERROR_UNSUPPORTED, "maxComputeWorkGroupCount");
    }
    bad = copy, bad.arguments[1].offset = 128;
    TEST_ERROR(vulkan_run(f->backend, f->device, &bad, 1), TERN_ERROR_INVALID, "overlap");
    bad = copy, bad.arguments[0].bytes = 252;
    TEST_ERROR(vulkan_run(f->backend, f->device, &bad, 1), TERN_ERROR_INVALID, "252 bytes onto 256");
    TEST_ERROR(vulkan_run(f->backend, f->device, &good, 0), TERN_ERROR_INVALID, "no steps");
    TEST_OK(vulkan_run(f->backend, f->device, &good, 1));
    f->backend->kernel_destroy(f->device, kernel);
    f->backend->buffer_destroy(f->device, x);
}

/* In a child every entry says so, and destroying there frees memory without touching the driver. */
static void test_fork(void **state)
{
    const fixture *f = need_device(state);
    tern_backend_buffer *x = make_buffer(f, 64, TERN_BUFFER_DEVICE);
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        tern_backend_buffer *y = NULL;
        uint32_t word = 0, count = 0;
        const bool right = f->backend->buffer_create(f->device, 64, TERN_BUFFER_DEVICE, &y) == TERN_ERROR_INVALID &&
                           strstr(tern_error_message(), "before a fork") && !y &&
                           f->backend->buffer_write(f->device, x, 0, &word, 4) == TERN_ERROR_INVALID &&
                           f->backend->wait(f->device, 1, 0) == TERN_ERROR_INVALID &&
                           f->backend->device_count(&count) == TERN_ERROR_INVALID;
        f->backend->buffer_destroy(f->device, x);
        f->backend->close(f->device);
        _exit(right ? 0 : 1);
    }
    int result = 0;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFEXITED(result));
    assert_int_equal(WEXITSTATUS(result), 0);
    f->backend->buffer_destroy(f->device, x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_buffers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_memory_limits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bindings, setup, teardown),
        cmocka_unit_test_setup_teardown(test_addresses, setup_with_addresses, teardown),
        cmocka_unit_test_setup_teardown(test_beyond_binding_range, setup, teardown),
        cmocka_unit_test_setup_teardown(test_hazards, setup, teardown),
        cmocka_unit_test_setup_teardown(test_missing_wait, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cuts_and_tickets, setup, teardown),
        cmocka_unit_test_setup_teardown(test_timeout_and_timestamps, setup_with_timestamps, teardown),
        cmocka_unit_test_setup_teardown(test_kernel_refusals, setup, teardown),
        cmocka_unit_test_setup_teardown(test_program_refusals, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fork, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
