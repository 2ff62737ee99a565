/* SPDX-License-Identifier: Apache-2.0 */
/* test_null.c - the null backend keeps core/backend.h: refuses every wrong program, counts what runs, fails any call on
 * demand without leaking. Core's other tests trust it for that. */
#include "tests/test.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/null/null.h"
#include "core/device/device.h"

static tern_device *device;
static const tern_backend *null;
static const tern_null_hooks *hooks;
static tern_backend_device *handle;

static int open_null(void **state)
{
    (void)state;
    if (tern_device_open("null", &device) < 0) return -1;
    null = device->backend;
    handle = device->handle;
    hooks = tern_null_hooks_of(null);
    hooks->reset();
    return 0;
}

static int close_null(void **state)
{
    (void)state;
    tern_null_counts counts;
    tern_device_close(device);
    device = NULL;
    hooks->counts(&counts);
    const uint64_t alive = counts.devices + counts.buffers + counts.kernels + counts.programs + counts.bytes;
    return alive + counts.leaks + counts.misuses != 0;
}

/* A kernel with one tensor read and one written, f32 both, one word. */
static tern_kernel_desc copy_kernel(void)
{
    tern_kernel_desc desc = {.kind = TERN_KERNEL_TAPE, .label = "copy", .tensor_count = 2, .word_count = 1};
    desc.tensors[0] = (tern_tape_tensor){TERN_F32, TERN_ACCESS_READ};
    desc.tensors[1] = (tern_tape_tensor){TERN_F32, TERN_ACCESS_WRITE};
    desc.tape.dim_count = 1;
    return desc;
}

typedef struct fixture {
    tern_backend_buffer *a, *b;
    tern_backend_kernel *kernel;
    tern_step steps[3]; /* fill a; b := kernel(a); copy b to a */
    uint32_t wait[2];
    tern_program_desc desc;
} fixture;

static tern_status make(fixture *f)
{
    const tern_kernel_desc kernel = copy_kernel();
    tern_status status;
    memset(f, 0, sizeof *f);
    if ((status = null->buffer_create(handle, 1024, TERN_BUFFER_DEVICE, &f->a)) < 0) return status;
    if ((status = null->buffer_create(handle, 1024, TERN_BUFFER_READBACK, &f->b)) < 0) return status;
    if ((status = null->kernel_create(handle, &kernel, &f->kernel)) < 0) return status;
    f->wait[1] = 1;
    f->steps[0] = (tern_step){.kind = TERN_STEP_FILL,
                              .label = "fill",
                              .argument_count = 1,
                              .arguments = {{f->a, 0, 1024, TERN_ACCESS_WRITE}}};
    f->steps[1] = (tern_step){.kind = TERN_STEP_DISPATCH,
                              .label = "dispatch",
                              .wait_count = 1,
                              .waits = &f->wait[0],
                              .kernel = f->kernel,
                              .argument_count = 2,
                              .word_count = 1,
                              .words = {256},
                              .groups = {1, 1, 1},
                              .arguments = {{f->a, 0, 1024, TERN_ACCESS_READ}, {f->b, 0, 1024, TERN_ACCESS_WRITE}}};
    f->steps[2] = (tern_step){.kind = TERN_STEP_COPY,
                              .label = "copy",
                              .wait_count = 1,
                              .waits = &f->wait[1],
                              .argument_count = 2,
                              .arguments = {{f->b, 0, 512, TERN_ACCESS_READ}, {f->a, 512, 512, TERN_ACCESS_WRITE}}};
    f->desc = (tern_program_desc){.label = "test", .step_count = 3, .steps = f->steps};
    return TERN_OK;
}

static void destroy(fixture *f)
{
    null->kernel_destroy(handle, f->kernel);
    null->buffer_destroy(handle, f->b);
    null->buffer_destroy(handle, f->a);
}

/* ------------------------------------------------------------------ counts */

static void test_counts(void **state)
{
    (void)state;
    fixture f;
    tern_null_counts counts;
    tern_backend_program *program = NULL;
    uint64_t ticket = 0, times[3] = {1, 1, 1};
    const uint32_t cuts[] = {1, 2};
    TEST_OK(make(&f));
    f.desc.cut_count = 2;
    f.desc.cuts = cuts;
    TEST_OK(null->program_create(handle, &f.desc, &program));
    assert_int_equal(null->submission_count(handle, program), 3);
    assert_int_equal(null->allocated_bytes(handle), 2048);
    for (uint64_t i = 1; i <= 3; i++) {
        TEST_OK(null->program_submit(handle, program, &ticket));
        assert_int_equal(ticket, i);
    }
    TEST_ERROR(null->program_times(handle, program, times), TERN_ERROR_INVALID, "has not finished");
    TEST_OK(null->wait(handle, 3, 1000000));
    TEST_OK(null->program_times(handle, program, times));
    assert_int_equal(times[0] + times[1] + times[2], 0);
    TEST_ERROR(null->wait(handle, 4, 1000000), TERN_ERROR_INVALID, "ticket 4; the last one given was 3");
    hooks->counts(&counts);
    assert_int_equal(counts.program_submits, 3);
    assert_int_equal(counts.submissions, 9);
    assert_int_equal(counts.dispatches, 3);
    assert_int_equal(counts.copies, 3);
    assert_int_equal(counts.fills, 3);
    assert_int_equal(counts.in_flight_peak, 3);
    assert_int_equal(counts.waits, 2);
    assert_int_equal(counts.buffers, 2);
    assert_int_equal(counts.kernels, 1);
    assert_int_equal(counts.programs, 1);
    assert_int_equal(counts.bytes_peak, 2048);
    null->program_destroy(handle, program);
    destroy(&f);
}

static void test_transfers(void **state)
{
    (void)state;
    fixture f;
    char bytes[16] = "0123456789abcde", back[16] = "";
    void *address = NULL;
    TEST_OK(make(&f));
    TEST_OK(null->buffer_write(handle, f.b, 1008, bytes, 16));
    TEST_OK(null->buffer_read(handle, f.b, 1008, back, 16));
    assert_string_equal(back, bytes);
    TEST_OK(null->buffer_map(handle, f.b, &address));
    assert_memory_equal((char *)address + 1008, bytes, 16);
    assert_int_equal(((char *)address)[0], 0);
    TEST_OK(null->buffer_write(handle, f.a, 0, bytes, 16));
    TEST_OK(null->buffer_read(handle, f.a, 0, back, 16));
    assert_int_equal(back[0], 0); /* device buffers have no bytes */
    TEST_ERROR(null->buffer_map(handle, f.a, &address), TERN_ERROR_INVALID, "cannot be mapped");
    TEST_ERROR(null->buffer_read(handle, f.b, 1009, back, 16), TERN_ERROR_INVALID, "[1009, +16) in a buffer of 1024");
    TEST_ERROR(null->buffer_write(handle, f.b, UINT64_MAX, bytes, 16), TERN_ERROR_INVALID, "in a buffer of 1024");
    destroy(&f);
}

static void test_memory_limits(void **state)
{
    (void)state;
    tern_null_device settings;
    tern_device *small = NULL;
    tern_backend_buffer *buffer = NULL, *second = NULL;
    hooks->get_device(&settings);
    settings.info[0].memory_bytes = 1 << 20;
    settings.info[0].max_allocation_bytes = 700000;
    settings.info[0].max_buffer_bytes = 800000;
    hooks->set_device(&settings);
    TEST_OK(tern_device_open("null", &small));
    TEST_ERROR(null->buffer_create(small->handle, 700001, TERN_BUFFER_DEVICE, &buffer), TERN_ERROR_UNSUPPORTED,
               "700001 bytes; the device allows 700000");
    TEST_ERROR(null->buffer_create(small->handle, 0, TERN_BUFFER_DEVICE, &buffer), TERN_ERROR_INVALID, "0 bytes");
    assert_null(buffer);
    TEST_OK(null->buffer_create(small->handle, 700000, TERN_BUFFER_DEVICE, &buffer));
    TEST_ERROR(null->buffer_create(small->handle, 400000, TERN_BUFFER_DEVICE, &second), TERN_ERROR_DEVICE_MEMORY,
               "400000 bytes; 348576 of 1048576 are free");
    null->buffer_destroy(small->handle, buffer);
    TEST_OK(null->buffer_create(small->handle, 400000, TERN_BUFFER_DEVICE, &second));
    null->buffer_destroy(small->handle, second);
    tern_device_close(small);
}

/* ---------------------------------------------------------- wrong programs */

typedef void (*spoil)(fixture *f);

#define SPOIL(name, statement)                                                                                         \
    static void name(fixture *f) { statement; }
SPOIL(beyond_the_end, f->steps[1].arguments[1].offset = 4)
SPOIL(offset_overflows, f->steps[1].arguments[1].offset = UINT64_MAX - 3)
SPOIL(no_bytes, f->steps[1].arguments[0].bytes = 0)
SPOIL(odd_offset, (f->steps[1].arguments[0].offset = 2, f->steps[1].arguments[0].bytes = 512))
SPOIL(no_buffer, f->steps[1].arguments[0].buffer = NULL)
SPOIL(wrong_mode, f->steps[1].arguments[1].mode = TERN_ACCESS_READ)
SPOIL(missing_mode, f->steps[1].arguments[0].mode = 0)
SPOIL(one_argument, f->steps[1].argument_count = 1)
SPOIL(two_words, f->steps[1].word_count = 2)
SPOIL(no_kernel, f->steps[1].kernel = NULL)
SPOIL(no_groups, f->steps[1].groups[1] = 0)
SPOIL(many_groups, f->steps[1].groups[2] = 65536)
SPOIL(waits_for_itself, f->wait[1] = 2)
SPOIL(waits_for_later, f->wait[0] = 2)
SPOIL(unequal_copy, f->steps[2].arguments[1].bytes = 508)
SPOIL(uneven_copy, (f->steps[2].arguments[0].bytes = 510, f->steps[2].arguments[1].bytes = 510))
SPOIL(overlapping_copy, (f->steps[2].arguments[0].buffer = f->a, f->steps[2].arguments[0].offset = 256))
SPOIL(copy_from_nothing, f->steps[2].arguments[0].mode = TERN_ACCESS_WRITE)
SPOIL(copy_of_three, f->steps[2].argument_count = 3)
SPOIL(uneven_fill, f->steps[0].arguments[0].bytes = 1023)
SPOIL(reading_fill, f->steps[0].arguments[0].mode = 3)
SPOIL(fill_of_two, f->steps[0].argument_count = 2)
SPOIL(unknown_kind, f->steps[0].kind = (tern_step_kind)7)

static void test_wrong_programs(void **state)
{
    (void)state;
    static const struct {
        spoil spoil;
        tern_status status;
        const char *part;
    } cases[] = {
        {beyond_the_end, TERN_ERROR_INVALID, "step 1 \"dispatch\": argument 1 is bytes [4, +1024) of a buffer of 1024"},
        {offset_overflows, TERN_ERROR_INVALID, "argument 1 is bytes ["},
        {no_bytes, TERN_ERROR_INVALID, "argument 0 is bytes [0, +0)"},
        {odd_offset, TERN_ERROR_INVALID, "starts at byte 2, no multiple of its 4-byte element"},
        {no_buffer, TERN_ERROR_INVALID, "argument 0 has no buffer"},
        {wrong_mode, TERN_ERROR_INVALID, "argument 1 has access mode 1 where 2 is done"},
        {missing_mode, TERN_ERROR_INVALID, "argument 0 has access mode 0"},
        {one_argument, TERN_ERROR_INVALID, "1 arguments for the 2 tensors of kernel \"copy\""},
        {two_words, TERN_ERROR_INVALID, "2 words for the 1 of kernel"},
        {no_kernel, TERN_ERROR_INVALID, "without a kernel"},
        {no_groups, TERN_ERROR_INVALID, "0 groups on axis 1"},
        {many_groups, TERN_ERROR_UNSUPPORTED, "65536 groups on axis 2; the device takes 1 to 65535"},
        {waits_for_itself, TERN_ERROR_INVALID, "waits for step 2, which is not before it"},
        {waits_for_later, TERN_ERROR_INVALID, "step 1 \"dispatch\": it waits for step 2"},
        {unequal_copy, TERN_ERROR_INVALID, "a copy of 512 bytes to 508"},
        {uneven_copy, TERN_ERROR_INVALID, "a copy of 510 bytes to 510"},
        {overlapping_copy, TERN_ERROR_INVALID, "overlapping ranges"},
        {copy_from_nothing, TERN_ERROR_INVALID, "argument 0 has access mode 2 where 1 is done"},
        {copy_of_three, TERN_ERROR_INVALID, "a copy with 3 arguments"},
        {uneven_fill, TERN_ERROR_INVALID, "a fill of 1023 bytes"},
        {reading_fill, TERN_ERROR_INVALID, "argument 0 has access mode 3 where 2 is done"},
        {fill_of_two, TERN_ERROR_INVALID, "a fill with 2 arguments"},
        {unknown_kind, TERN_ERROR_INVALID, "unknown kind 7"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fixture f;
        tern_backend_program *program = NULL;
        TEST_OK(make(&f));
        cases[i].spoil(&f);
        TEST_ERROR(null->program_create(handle, &f.desc, &program), cases[i].status, cases[i].part);
        assert_null(program);
        destroy(&f);
    }
}

static void test_wrong_cuts(void **state)
{
    (void)state;
    static const uint32_t wrong[][2] = {{0, 1}, {1, 3}, {2, 1}, {1, 1}};
    fixture f;
    tern_backend_program *program = NULL;
    TEST_OK(make(&f));
    f.desc.cut_count = 2;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        f.desc.cuts = wrong[i];
        TEST_ERROR(null->program_create(handle, &f.desc, &program), TERN_ERROR_INVALID, "cuts must rise from 1 to 2");
    }
    destroy(&f);
}

static void test_wrong_kernels(void **state)
{
    (void)state;
    tern_kernel_desc desc;
    tern_backend_kernel *kernel = NULL;
#define WRONG_KERNEL(statement, status, part)                                                                          \
    desc = copy_kernel();                                                                                              \
    statement;                                                                                                         \
    TEST_ERROR(null->kernel_create(handle, &desc, &kernel), status, part);                                             \
    assert_null(kernel)
    WRONG_KERNEL(desc.kind = TERN_KERNEL_KIND_COUNT, TERN_ERROR_INVALID, "kernel \"copy\": it has the unknown kind");
    WRONG_KERNEL(desc.word_count = 2, TERN_ERROR_INVALID, "2 words where its kind and tape have 1");
    WRONG_KERNEL(desc.kind = TERN_KERNEL_MATMUL, TERN_ERROR_INVALID, "1 words where its kind and tape have 8");
    tern_tape_insn random = {.op = TERN_TAPE_PHILOX, .imm = 2};
    WRONG_KERNEL((desc.tape.insn = &random, desc.tape.insn_count = 1), TERN_ERROR_INVALID,
                 "1 words where its kind and tape have 3");
    WRONG_KERNEL(desc.tensor_count = 0, TERN_ERROR_INVALID, "0 tensors");
    WRONG_KERNEL(desc.tensor_count = 13, TERN_ERROR_INVALID, "13 tensors; 1 to 12");
    WRONG_KERNEL((desc.tensor_count = 12, desc.kind = TERN_KERNEL_ATTENTION, desc.word_count = 14), TERN_ERROR_INVALID,
                 "12 tensors and 14 words do not fit into 128 bytes");
    WRONG_KERNEL(desc.tensors[1].dtype = 99, TERN_ERROR_INVALID, "tensor 1 has dtype 99");
    WRONG_KERNEL(desc.tensors[0].mode = 4, TERN_ERROR_INVALID, "tensor 0 has dtype 1 and access mode 4");
    WRONG_KERNEL((desc.variant.group[0] = 1024, desc.variant.group[1] = 2, desc.variant.group[2] = 1),
                 TERN_ERROR_UNSUPPORTED, "2048 threads; the device allows 1024");
    WRONG_KERNEL(desc.variant.shared_bytes = 65536, TERN_ERROR_UNSUPPORTED,
                 "65536 bytes of shared memory; the device has 49152");
}

static void test_binding_limit(void **state)
{
    (void)state;
    tern_null_device settings;
    tern_device *narrow = NULL;
    tern_backend_buffer *buffer = NULL;
    tern_backend_program *program = NULL;
    hooks->get_device(&settings);
    settings.info[0].max_binding_bytes = 1024;
    settings.info[0].features &= ~(uint32_t)TERN_FEATURE_BUFFER_ADDRESS;
    hooks->set_device(&settings);
    TEST_OK(tern_device_open("null", &narrow));
    TEST_OK(null->buffer_create(narrow->handle, 4096, TERN_BUFFER_DEVICE, &buffer));
    tern_step fill = {.kind = TERN_STEP_FILL,
                      .label = "fill",
                      .argument_count = 1,
                      .arguments = {{buffer, 2048, 1028, TERN_ACCESS_WRITE}}};
    const tern_program_desc desc = {.label = "narrow", .step_count = 1, .steps = &fill};
    TEST_ERROR(null->program_create(narrow->handle, &desc, &program), TERN_ERROR_UNSUPPORTED,
               "binds 1028 bytes; the device binds at most 1024");
    fill.arguments[0].bytes = 1024;
    TEST_OK(null->program_create(narrow->handle, &desc, &program));
    TEST_ERROR(null->program_create(handle, &desc, &program), TERN_ERROR_INVALID,
               "a buffer is used with a device that did not make it");
    null->program_destroy(narrow->handle, program);
    null->buffer_destroy(narrow->handle, buffer);
    tern_device_close(narrow);
}

/* ----------------------------------------------------------------- failures */

/* All entries once; the first failure's status. Cleans up whatever it reached. */
static tern_status run_everything(void)
{
    tern_status status;
    tern_device *own = NULL;
    fixture f = {0};
    tern_backend_program *program = NULL;
    uint64_t ticket, times[3];
    char bytes[4] = "", note[64];
    void *address;
    uint32_t count;
    tern_device_info info;
    status = null->load();
    if (status == TERN_OK) status = null->device_count(&count);
    if (status == TERN_OK) status = null->device_info(0, &info);
    if (status == TERN_OK) status = null->device_notes(0, note, sizeof note);
    if (status == TERN_OK) status = tern_device_open("null", &own);
    if (status < 0) return status;
    tern_backend_device *const outer = handle;
    handle = own->handle;
    status = make(&f);
    if (status == TERN_OK) status = null->buffer_write(handle, f.a, 0, bytes, 4);
    if (status == TERN_OK) status = null->buffer_read(handle, f.a, 0, bytes, 4);
    if (status == TERN_OK) status = null->buffer_map(handle, f.b, &address);
    if (status == TERN_OK) status = null->program_create(handle, &f.desc, &program);
    if (status == TERN_OK) status = null->program_submit(handle, program, &ticket);
    if (status == TERN_OK) status = null->wait(handle, ticket, 1);
    if (status == TERN_OK) status = null->program_times(handle, program, times);
    null->program_destroy(handle, program);
    destroy(&f);
    tern_device_close(own);
    handle = outer;
    return status;
}

static void test_every_call_fails_once(void **state)
{
    (void)state;
    tern_null_counts counts;
    hooks->reset();
    TEST_OK(run_everything());
    hooks->counts(&counts);
    const uint64_t calls = counts.calls;
    assert_true(calls >= 16);
    for (uint64_t n = 1; n <= calls; n++) {
        const tern_status planned = n % 2 ? TERN_ERROR_DRIVER : TERN_ERROR_DEVICE_LOST;
        hooks->reset();
        hooks->fail_call(n, planned);
        TEST_ERROR(run_everything(), planned, "as it was told to");
        hooks->counts(&counts);
        assert_int_equal(counts.devices, 1); /* the fixture's */
        assert_int_equal(
            counts.buffers + counts.kernels + counts.programs + counts.bytes + counts.leaks + counts.misuses, 0);
    }
    hooks->fail_call(calls + 1, TERN_ERROR_DRIVER);
    TEST_OK(run_everything());
    hooks->reset();
}

static void test_a_lost_device_stays_lost(void **state)
{
    (void)state;
    fixture f;
    uint64_t ticket;
    tern_backend_program *program = NULL, *second = NULL;
    tern_device *other = NULL;
    TEST_OK(make(&f));
    TEST_OK(null->program_create(handle, &f.desc, &program));
    hooks->fail_call(1, TERN_ERROR_DEVICE_LOST);
    TEST_ERROR(null->program_submit(handle, program, &ticket), TERN_ERROR_DEVICE_LOST, "program_submit");
    TEST_ERROR(null->wait(handle, 0, 1), TERN_ERROR_DEVICE_LOST, "lost device");
    TEST_ERROR(null->program_create(handle, &f.desc, &second), TERN_ERROR_DEVICE_LOST, "close it and open it again");
    TEST_OK(tern_device_open("null", &other)); /* another handle is not lost */
    tern_device_close(other);
    null->program_destroy(handle, program);
    destroy(&f);
}

static void test_leaks_and_misuse_are_counted(void **state)
{
    (void)state;
    tern_null_counts counts;
    fixture f;
    tern_backend_program *program = NULL;
    TEST_OK(make(&f));
    TEST_OK(null->program_create(handle, &f.desc, &program));
    destroy(&f); /* too early: the program uses all three */
    hooks->counts(&counts);
    assert_int_equal(counts.misuses, 3);
    null->program_destroy(handle, program);

    tern_device *own = NULL;
    tern_backend_buffer *buffer = NULL;
    TEST_OK(tern_device_open("null", &own));
    TEST_OK(null->buffer_create(own->handle, 64, TERN_BUFFER_DEVICE, &buffer));
    tern_backend_device *const closed = own->handle;
    hooks->counts(&counts);
    assert_int_equal(counts.leaks, 0);
    tern_device_close(own);
    hooks->counts(&counts);
    assert_int_equal(counts.leaks, 1);
    null->buffer_destroy(closed, buffer); /* too late, yet safe */
    hooks->counts(&counts);
    assert_int_equal(counts.buffers, 0);
    hooks->reset();
}

static void test_child_after_fork(void **state)
{
    (void)state;
    fixture f;
    tern_backend_buffer *buffer = NULL;
    int result = 0;
    TEST_OK(make(&f));
    pid_t child = fork();
    if (child == 0) _exit(null->buffer_create(handle, 64, TERN_BUFFER_DEVICE, &buffer) == TERN_ERROR_INVALID ? 0 : 1);
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFEXITED(result) && WEXITSTATUS(result) == 0);
    TEST_OK(null->buffer_create(handle, 64, TERN_BUFFER_DEVICE, &buffer));
    null->buffer_destroy(handle, buffer);
    destroy(&f);
}

static void test_environment(void **state)
{
    (void)state;
    static const char *const wrong[] = {"", "x", "3:", "3:0", "3:7", "3:-99", "-1", "3:-9x"};
    uint32_t count;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        setenv("TERN_NULL_FAIL_CALL", wrong[i], 1);
        TEST_ERROR(null->load(), TERN_ERROR_INVALID, "give n or n:status with status from -1 to -13");
    }
    setenv("TERN_NULL_FAIL_CALL", "2:-10", 1); /* the first is load itself */
    TEST_OK(null->load());
    unsetenv("TERN_NULL_FAIL_CALL");
    TEST_ERROR(null->device_count(&count), TERN_ERROR_TIMEOUT, "call");
    TEST_OK(null->device_count(&count));
    setenv("TERN_NULL_FAIL_CALL", "1", 1);
    TEST_ERROR(null->load(), TERN_ERROR_DRIVER, "(load)");
    unsetenv("TERN_NULL_FAIL_CALL");
}

static void test_epilogues(void **state)
{
    (void)state;
    tern_null_device settings;
    const tern_kernel_desc desc = copy_kernel();
    assert_true(null->accepts_epilogue(handle, &desc));
    hooks->get_device(&settings);
    settings.declines_epilogues = true;
    hooks->set_device(&settings);
    assert_false(null->accepts_epilogue(handle, &desc));
}

int main(void)
{
#define NULL_TEST(name) cmocka_unit_test_setup_teardown(name, open_null, close_null)
    const struct CMUnitTest tests[] = {NULL_TEST(test_counts),
                                       NULL_TEST(test_transfers),
                                       NULL_TEST(test_memory_limits),
                                       NULL_TEST(test_wrong_programs),
                                       NULL_TEST(test_wrong_cuts),
                                       NULL_TEST(test_wrong_kernels),
                                       NULL_TEST(test_binding_limit),
                                       NULL_TEST(test_every_call_fails_once),
                                       NULL_TEST(test_a_lost_device_stays_lost),
                                       NULL_TEST(test_leaks_and_misuse_are_counted),
                                       NULL_TEST(test_child_after_fork),
                                       NULL_TEST(test_environment),
                                       NULL_TEST(test_epilogues)};
    return cmocka_run_group_tests_name("null", tests, NULL, NULL);
}
