/* SPDX-License-Identifier: Apache-2.0 */
/* test_conformance_program.c - programs on every backend: order, copies, fills, cuts, tickets, times, and their errors.
 */
#include <pthread.h>
#include <stdlib.h>

#include "tests/conformance.h"

enum { COUNT = 1000 };

/* x = a x + b over u32, in place: the result tells how often and in which order it ran. */
static void affine_tape(tape_maker *m, uint32_t a, uint32_t b)
{
    tape_maker_start(m, 1, 0, 1);
    const uint32_t x = tape_maker_tensor(m, TERN_U32, TERN_ACCESS_READ | TERN_ACCESS_WRITE);
    const uint16_t old = tape_maker_load(m, x, 1);
    const uint16_t product = conformance_op(m, TERN_TAPE_MUL, TERN_U32, 0, old, tape_maker_constant_u32(m, a), NO);
    tape_maker_store(m, x, 1,
                     conformance_op(m, TERN_TAPE_ADD, TERN_U32, 0, product, tape_maker_constant_u32(m, b), NO));
}

static tern_backend_kernel *affine_kernel(const conformance *c, uint32_t a, uint32_t b)
{
    tape_maker m;
    tern_kernel_desc desc;
    tern_backend_kernel *kernel = NULL;
    const uint32_t words[] = {COUNT};
    affine_tape(&m, a, b);
    conformance_tape_desc(c, &m, words, &desc);
    TEST_OK(c->backend->kernel_create(c->handle, &desc, &kernel));
    return kernel;
}

static tern_step affine_step(const conformance *c, tern_backend_kernel *kernel, tern_backend_buffer *x, uint64_t first,
                             uint32_t count)
{
    tape_maker m;
    tern_kernel_desc desc;
    tern_step step = {.kind = TERN_STEP_DISPATCH,
                      .label = "affine",
                      .kernel = kernel,
                      .argument_count = 1,
                      .word_count = 1,
                      .words = {count},
                      .arguments = {{x, 4 * first, 4ull * count, TERN_ACCESS_READ | TERN_ACCESS_WRITE}}};
    affine_tape(&m, 1, 1);
    conformance_tape_desc(c, &m, step.words, &desc);
    TEST_OK(tern_variant_groups(&desc, &c->device->info, step.words, step.groups));
    return step;
}

static tern_backend_buffer *device_buffer(const conformance *c, uint64_t bytes)
{
    tern_backend_buffer *buffer = NULL;
    TEST_OK(c->backend->buffer_create(c->handle, bytes, TERN_BUFFER_DEVICE, &buffer));
    return buffer;
}

static tern_backend_program *program(const conformance *c, const tern_step *steps, uint32_t count, const uint32_t *cuts,
                                     uint32_t cut_count)
{
    const tern_program_desc desc = {
        .label = "program", .step_count = count, .steps = steps, .cut_count = cut_count, .cuts = cuts};
    tern_backend_program *made = NULL;
    TEST_OK(c->backend->program_create(c->handle, &desc, &made));
    return made;
}

static uint64_t submit(const conformance *c, tern_backend_program *p)
{
    uint64_t ticket = 0;
    TEST_OK(c->backend->program_submit(c->handle, p, &ticket));
    return ticket;
}

static void expect_all(const conformance *c, tern_backend_buffer *x, uint32_t value)
{
    uint32_t now[COUNT];
    TEST_OK(c->backend->buffer_read(c->handle, x, 0, now, sizeof now));
    for (uint32_t i = 0; i < COUNT; i++)
        if (now[i] != value) fail_msg("element %u is %u, wanted %u", i, now[i], value);
}

/* ------------------------------------------------------------------- order */

enum { CHAIN = 24 };

/* fill x with 5, then x = 3 x + 1 and x = 7 x + 2 in turn, each waiting for the one before. */
static void chain(const conformance *c, tern_backend_kernel *const kernels[2], tern_backend_buffer *x,
                  tern_step steps[CHAIN + 1], uint32_t waits[CHAIN], uint32_t *out_expected)
{
    steps[0] = (tern_step){.kind = TERN_STEP_FILL,
                           .label = "fill",
                           .argument_count = 1,
                           .fill = 5,
                           .arguments = {{x, 0, 4 * COUNT, TERN_ACCESS_WRITE}}};
    *out_expected = 5;
    for (uint32_t i = 0; i < CHAIN; i++) {
        steps[i + 1] = affine_step(c, kernels[i % 2], x, 0, COUNT);
        waits[i] = i;
        steps[i + 1].wait_count = 1;
        steps[i + 1].waits = &waits[i];
        steps[i + 1].lane = i % 3;
        *out_expected = i % 2 ? *out_expected * 7 + 2 : *out_expected * 3 + 1;
    }
}

static void waits_make_the_order(const conformance *c)
{
    tern_backend_kernel *kernels[2] = {affine_kernel(c, 3, 1), affine_kernel(c, 7, 2)};
    tern_backend_buffer *x = device_buffer(c, 4 * COUNT);
    tern_step steps[CHAIN + 1];
    uint32_t waits[CHAIN], expected;
    chain(c, kernels, x, steps, waits, &expected);
    tern_backend_program *p = program(c, steps, CHAIN + 1, NULL, 0);
    for (uint32_t round = 0; round < 3; round++) {
        conformance_wait(c, submit(c, p));
        expect_all(c, x, expected);
    }
    c->backend->program_destroy(c->handle, p);
    c->backend->buffer_destroy(c->handle, x);
    for (uint32_t k = 0; k < 2; k++) c->backend->kernel_destroy(c->handle, kernels[k]);
}

/* Nobody waits in between: what is read is the program's, and what is written comes after it. */
static void transfers_come_after_what_was_submitted(const conformance *c)
{
    tern_backend_kernel *kernels[2] = {affine_kernel(c, 3, 1), affine_kernel(c, 7, 2)};
    tern_backend_buffer *x = device_buffer(c, 4 * COUNT);
    tern_step steps[CHAIN + 1];
    uint32_t waits[CHAIN], expected, written[COUNT];
    chain(c, kernels, x, steps, waits, &expected);
    tern_backend_program *p = program(c, steps, CHAIN + 1, NULL, 0);
    for (uint32_t i = 0; i < COUNT; i++) written[i] = 11;
    for (uint32_t round = 0; round < 3; round++) {
        (void)submit(c, p);
        expect_all(c, x, expected);
        const uint64_t ticket = submit(c, p);
        TEST_OK(c->backend->buffer_write(c->handle, x, 0, written, sizeof written));
        conformance_wait(c, ticket);
        expect_all(c, x, 11);
    }
    c->backend->program_destroy(c->handle, p);
    c->backend->buffer_destroy(c->handle, x);
    for (uint32_t k = 0; k < 2; k++) c->backend->kernel_destroy(c->handle, kernels[k]);
}

static void cuts_change_nothing(const conformance *c)
{
    static const uint32_t cuts[][3] = {{1, 2, 3}, {5, 10, 24}, {12, 13, 20}};
    tern_backend_kernel *kernels[2] = {affine_kernel(c, 3, 1), affine_kernel(c, 7, 2)};
    tern_backend_buffer *x = device_buffer(c, 4 * COUNT);
    tern_step steps[CHAIN + 1];
    uint32_t waits[CHAIN], expected;
    chain(c, kernels, x, steps, waits, &expected);
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        tern_backend_program *p = program(c, steps, CHAIN + 1, cuts[i], 3);
        for (uint32_t round = 0; round < 2; round++) {
            conformance_wait(c, submit(c, p));
            expect_all(c, x, expected);
        }
        if (c->backend->submission_count) assert_in_range(c->backend->submission_count(c->handle, p), 1, 4);
        c->backend->program_destroy(c->handle, p);
    }
    c->backend->buffer_destroy(c->handle, x);
    for (uint32_t k = 0; k < 2; k++) c->backend->kernel_destroy(c->handle, kernels[k]);
}

/* Two programs on one buffer, submitted in turn without a wait: each sees what the one before left. */
static void programs_run_in_the_order_of_submission(const conformance *c)
{
    tern_backend_kernel *kernels[2] = {affine_kernel(c, 3, 1), affine_kernel(c, 7, 2)};
    tern_backend_buffer *x = device_buffer(c, 4 * COUNT);
    tern_backend_program *p[2];
    uint32_t expected = 0;
    uint64_t last = 0;
    for (uint32_t k = 0; k < 2; k++) {
        const tern_step step = affine_step(c, kernels[k], x, 0, COUNT);
        p[k] = program(c, &step, 1, NULL, 0);
    }
    for (uint32_t i = 0; i < 10; i++) { /* the same program twice in a row as well */
        const uint32_t k = i / 2 % 2;
        const uint64_t ticket = submit(c, p[k]);
        if (i > 0) assert_int_equal(ticket, last + 1);
        last = ticket;
        expected = k ? expected * 7 + 2 : expected * 3 + 1;
    }
    conformance_wait(c, last);
    conformance_wait(c, last - 5); /* long finished */
    expect_all(c, x, expected);
    for (uint32_t k = 0; k < 2; k++) {
        c->backend->program_destroy(c->handle, p[k]);
        c->backend->kernel_destroy(c->handle, kernels[k]);
    }
    c->backend->buffer_destroy(c->handle, x);
}

/* Steps on ranges of one buffer that touch end to end: none may spill over, whatever runs first. */
static void independent_ranges_do_not_mix(const conformance *c)
{
    enum { PARTS = 10, EACH = COUNT / PARTS };
    tern_backend_kernel *kernel = affine_kernel(c, 3, 1);
    tern_backend_buffer *x = device_buffer(c, 4 * COUNT);
    tern_step steps[PARTS];
    uint32_t now[COUNT];
    for (uint32_t i = 0; i < PARTS; i++) {
        steps[i] = affine_step(c, kernel, x, i * EACH, EACH);
        steps[i].lane = i;
    }
    tern_backend_program *p = program(c, steps, PARTS - 1, NULL, 0); /* the last part stays zero */
    conformance_wait(c, submit(c, p));
    TEST_OK(c->backend->buffer_read(c->handle, x, 0, now, sizeof now));
    for (uint32_t i = 0; i < COUNT; i++)
        if (now[i] != (i < COUNT - EACH)) fail_msg("element %u is %u", i, now[i]);
    c->backend->program_destroy(c->handle, p);
    c->backend->buffer_destroy(c->handle, x);
    c->backend->kernel_destroy(c->handle, kernel);
}

/* ----------------------------------------------------------- copies, fills */

static void copies_and_fills_keep_to_their_range(const conformance *c)
{
    tern_backend_buffer *x = device_buffer(c, 4 * COUNT), *y = device_buffer(c, 4 * COUNT);
    uint32_t expected[2][COUNT], now[COUNT];
    for (uint32_t i = 0; i < COUNT; i++) {
        expected[0][i] = i * 2654435761u;
        expected[1][i] = ~i;
    }
    TEST_OK(c->backend->buffer_write(c->handle, x, 0, expected[0], sizeof now));
    TEST_OK(c->backend->buffer_write(c->handle, y, 0, expected[1], sizeof now));
    const uint32_t waits[] = {0, 1};
    const tern_step steps[] = {
        {.kind = TERN_STEP_FILL,
         .label = "fill",
         .argument_count = 1,
         .fill = 0x7fc0dead,
         .arguments = {{x, 4 * 33, 4 * 7, TERN_ACCESS_WRITE}}},
        {.kind = TERN_STEP_COPY,
         .label = "across",
         .wait_count = 1,
         .waits = waits,
         .argument_count = 2,
         .arguments = {{x, 4 * 31, 4 * 65, TERN_ACCESS_READ}, {y, 4 * 501, 4 * 65, TERN_ACCESS_WRITE}}},
        {.kind = TERN_STEP_COPY,
         .label = "within",
         .wait_count = 2,
         .waits = waits,
         .argument_count = 2,
         .arguments = {{y, 4 * 500, 4 * 100, TERN_ACCESS_READ}, {y, 0, 4 * 100, TERN_ACCESS_WRITE}}}};
    for (uint32_t i = 33; i < 40; i++) expected[0][i] = 0x7fc0dead;
    memcpy(expected[1] + 501, expected[0] + 31, 4 * 65);
    memcpy(expected[1], expected[1] + 500, 4 * 100);
    tern_backend_program *p = program(c, steps, 3, NULL, 0);
    conformance_wait(c, submit(c, p));
    TEST_OK(c->backend->buffer_read(c->handle, x, 0, now, sizeof now));
    assert_memory_equal(now, expected[0], sizeof now);
    TEST_OK(c->backend->buffer_read(c->handle, y, 0, now, sizeof now));
    assert_memory_equal(now, expected[1], sizeof now);
    c->backend->program_destroy(c->handle, p);
    c->backend->buffer_destroy(c->handle, y);
    c->backend->buffer_destroy(c->handle, x);
}

/* -------------------------------------------------------- waits, lifetimes */

/* Long enough that no device ends it within a microsecond. */
static tern_backend_program *long_program(const conformance *c, tern_backend_kernel *kernel, tern_backend_buffer *x,
                                          uint32_t count)
{
    enum { STEPS = 100 };
    tern_step steps[STEPS];
    uint32_t waits[STEPS];
    for (uint32_t i = 0; i < STEPS; i++) {
        steps[i] = affine_step(c, kernel, x, 0, count);
        waits[i] = i ? i - 1 : 0;
        steps[i].wait_count = i > 0;
        steps[i].waits = &waits[i];
    }
    return program(c, steps, STEPS, NULL, 0);
}

static void a_wait_ends_at_its_timeout(const conformance *c)
{
    enum { MANY = 1 << 20 };
    tern_backend_kernel *kernel = affine_kernel(c, 1, 1);
    tern_backend_buffer *x = device_buffer(c, 4 * MANY);
    tern_backend_program *p = long_program(c, kernel, x, MANY);
    const uint64_t ticket = submit(c, p);
    TEST_ERROR(c->backend->wait(c->handle, ticket, 1000), TERN_ERROR_TIMEOUT, "");
    conformance_wait(c, ticket);
    expect_all(c, x, 100);
    assert_true(c->backend->wait(c->handle, ticket + 1000, 1000000) < 0); /* never given */
    c->backend->program_destroy(c->handle, p);
    c->backend->buffer_destroy(c->handle, x);
    c->backend->kernel_destroy(c->handle, kernel);
}

static void destroy_waits_for_the_last_submission(const conformance *c)
{
    enum { MANY = 1 << 18 };
    tern_backend_kernel *kernel = affine_kernel(c, 1, 1);
    tern_backend_buffer *x = device_buffer(c, 4 * MANY);
    tern_backend_program *p = long_program(c, kernel, x, MANY);
    submit(c, p);
    submit(c, p);
    c->backend->program_destroy(c->handle, p);
    expect_all(c, x, 200);
    c->backend->buffer_destroy(c->handle, x);
    c->backend->kernel_destroy(c->handle, kernel);
}

static void steps_are_timed(const conformance *c)
{
    enum { MANY = 1 << 18, STEPS = 100 };
    if (!c->backend->program_times || !(c->device->info.features & TERN_FEATURE_TIMESTAMPS))
        TEST_SKIP("%s has no timestamps", c->name);
    tern_backend_kernel *kernel = affine_kernel(c, 1, 1);
    tern_backend_buffer *x = device_buffer(c, 4 * MANY);
    tern_backend_program *p = long_program(c, kernel, x, MANY);
    uint64_t ns[STEPS], sum = 0;
    conformance_wait(c, submit(c, p));
    for (uint32_t i = 0; i < STEPS; i++) ns[i] = UINT64_MAX;
    TEST_OK(c->backend->program_times(c->handle, p, ns));
    for (uint32_t i = 0; i < STEPS; i++) {
        if (ns[i] > 10000000000ull) fail_msg("step %u took %llu ns", i, (unsigned long long)ns[i]);
        sum += ns[i];
    }
    assert_true(sum > 0);
    c->backend->program_destroy(c->handle, p);
    c->backend->buffer_destroy(c->handle, x);
    c->backend->kernel_destroy(c->handle, kernel);
}

typedef struct worker {
    const conformance *c;
    uint32_t number;
    const char *failure;
} worker;

/* No cmocka in here: its failures may only happen on the test's own thread. */
static void *work(void *argument)
{
    worker *w = argument;
    const tern_backend *backend = w->c->backend;
    tern_backend_device *handle = w->c->handle;
    for (uint32_t round = 0; round < 30 && !w->failure; round++) {
        const uint32_t value = w->number * 1000 + round;
        uint32_t now[64] = {0};
        uint64_t ticket = 0;
        tern_backend_buffer *x = NULL;
        tern_backend_program *p = NULL;
        if (backend->buffer_create(handle, sizeof now, TERN_BUFFER_DEVICE, &x) < 0) {
            w->failure = "buffer_create";
            break;
        }
        const tern_step step = {.kind = TERN_STEP_FILL,
                                .label = "fill",
                                .argument_count = 1,
                                .fill = value,
                                .arguments = {{x, 0, sizeof now, TERN_ACCESS_WRITE}}};
        const tern_program_desc desc = {.label = "worker", .step_count = 1, .steps = &step};
        if (backend->program_create(handle, &desc, &p) < 0)
            w->failure = "program_create";
        else if (backend->program_submit(handle, p, &ticket) < 0)
            w->failure = "program_submit";
        else if (backend->wait(handle, ticket, 60ull * 1000000000ull) < 0)
            w->failure = "wait";
        else if (backend->buffer_read(handle, x, 0, now, sizeof now) < 0)
            w->failure = "buffer_read";
        for (uint32_t i = 0; i < 64 && !w->failure; i++)
            if (now[i] != value) w->failure = "another thread's value";
        backend->program_destroy(handle, p);
        backend->buffer_destroy(handle, x);
    }
    return NULL;
}

static void a_device_serves_several_threads(const conformance *c)
{
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    worker workers[THREADS];
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i] = (worker){c, i + 1, NULL};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (uint32_t i = 0; i < THREADS; i++)
        if (workers[i].failure) fail_msg("thread %u: %s", i, workers[i].failure);
}

/* ------------------------------------------------------------------ errors */

static tern_status render_rubbish(const tern_kernel_desc *desc, tern_dialect dialect, bool addresses,
                                  tern_source *out_source)
{
    static const char text[] = "this is no kernel; rubbish_word +++\n";
    (void)desc, (void)dialect, (void)addresses;
    memset(out_source, 0, sizeof *out_source);
    out_source->text = strdup(text);
    if (!out_source->text) return TERN_ERROR_MEMORY;
    out_source->bytes = sizeof text - 1;
    snprintf(out_source->entry, sizeof out_source->entry, "main");
    return TERN_OK;
}

static void a_kernel_that_does_not_build_says_why(const conformance *c)
{
    tape_maker m;
    tern_kernel_desc desc;
    tern_backend_kernel *kernel = NULL;
    const uint32_t words[] = {COUNT};
    if (!(c->device->info.features & TERN_FEATURE_RENDERS)) TEST_SKIP("%s compiles no text", c->name);
    affine_tape(&m, 11, 13);
    conformance_tape_desc(c, &m, words, &desc);
    desc.render = render_rubbish;
    desc.key ^= 0x5eed; /* another kernel, to whoever caches by key */
    TEST_ERROR(c->backend->kernel_create(c->handle, &desc, &kernel), TERN_ERROR_KERNEL, "conformance");
    assert_null(kernel);
    assert_non_null(strstr(tern_error_message(), "error")); /* the compiler's own words */
}

static void limits_of_a_group_are_checked(const conformance *c)
{
    tape_maker m;
    tern_kernel_desc desc;
    tern_backend_kernel *kernel = NULL;
    const uint32_t words[] = {COUNT};
    char limit[16];
    if (!(c->device->info.features & TERN_FEATURE_RENDERS)) TEST_SKIP("%s has no groups", c->name);
    affine_tape(&m, 17, 19);
    conformance_tape_desc(c, &m, words, &desc);
    desc.variant.group[0] = c->device->info.max_group_size * 2;
    desc.key ^= 0x5eed;
    snprintf(limit, sizeof limit, "%u", desc.variant.group[0]);
    TEST_ERROR(c->backend->kernel_create(c->handle, &desc, &kernel), TERN_ERROR_UNSUPPORTED, limit);
    assert_null(kernel);
    conformance_tape_desc(c, &m, words, &desc);
    desc.variant.shared_bytes = c->device->info.shared_bytes + 4;
    desc.key ^= 0x5eee;
    snprintf(limit, sizeof limit, "%u", c->device->info.shared_bytes);
    TEST_ERROR(c->backend->kernel_create(c->handle, &desc, &kernel), TERN_ERROR_UNSUPPORTED, limit);
    assert_null(kernel);
}

int main(void)
{
    static const conformance_case cases[] = {
        {"waits make the order", waits_make_the_order},
        {"transfers come after what was submitted", transfers_come_after_what_was_submitted},
        {"cuts change nothing", cuts_change_nothing},
        {"programs run in the order of submission", programs_run_in_the_order_of_submission},
        {"independent ranges do not mix", independent_ranges_do_not_mix},
        {"copies and fills keep to their range", copies_and_fills_keep_to_their_range},
        {"a wait ends at its timeout", a_wait_ends_at_its_timeout},
        {"destroy waits for the last submission", destroy_waits_for_the_last_submission},
        {"steps are timed", steps_are_timed},
        {"a device serves several threads", a_device_serves_several_threads},
        {"a kernel that does not build says why", a_kernel_that_does_not_build_says_why},
        {"limits of a group are checked", limits_of_a_group_are_checked},
    };
    return conformance_main("program", cases, sizeof cases / sizeof *cases, NULL, 0);
}
