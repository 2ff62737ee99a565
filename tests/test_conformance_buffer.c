/* SPDX-License-Identifier: Apache-2.0 */
/* test_conformance_buffer.c - memory, as core/backend.h promises it, on every backend. */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/conformance.h"

static const tern_buffer_kind kinds[] = {TERN_BUFFER_DEVICE, TERN_BUFFER_UPLOAD, TERN_BUFFER_READBACK};

static tern_backend_buffer *create(const conformance *c, uint64_t bytes, tern_buffer_kind kind)
{
    tern_backend_buffer *buffer = NULL;
    TEST_OK(c->backend->buffer_create(c->handle, bytes, kind, &buffer));
    assert_non_null(buffer);
    return buffer;
}

static void buffers_are_zero(const conformance *c)
{
    static const uint64_t sizes[] = {1, 3, 4, 63, 4096, 1000001};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t k = 0; k < 3; k++) {
            /* A dirty one of the same size first, so that the allocator has something to hand out again. */
            uint8_t *data = malloc(sizes[s]);
            assert_non_null(data);
            memset(data, 0xee, sizes[s]);
            tern_backend_buffer *dirty = create(c, sizes[s], kinds[k]);
            TEST_OK(c->backend->buffer_write(c->handle, dirty, 0, data, sizes[s]));
            c->backend->buffer_destroy(c->handle, dirty);
            tern_backend_buffer *buffer = create(c, sizes[s], kinds[k]);
            TEST_OK(c->backend->buffer_read(c->handle, buffer, 0, data, sizes[s]));
            for (uint64_t i = 0; i < sizes[s]; i++)
                if (data[i] != 0)
                    fail_msg("kind %d of %llu bytes: byte %llu is 0x%02x", (int)kinds[k], (unsigned long long)sizes[s],
                             (unsigned long long)i, data[i]);
            c->backend->buffer_destroy(c->handle, buffer);
            free(data);
        }
}

static void writes_land_at_their_offset(const conformance *c)
{
    enum { BYTES = 8192 };
    uint8_t expected[BYTES] = {0}, data[BYTES], now[BYTES];
    for (size_t i = 0; i < BYTES; i++) data[i] = (uint8_t)(i * 7 + 1);
    for (size_t k = 0; k < 3; k++) {
        static const struct {
            size_t offset, bytes;
        } writes[] = {{0, 4}, {1, 1}, {7, 33}, {4096, 4096}, {8191, 1}, {100, 0}};
        tern_backend_buffer *buffer = create(c, BYTES, kinds[k]);
        memset(expected, 0, BYTES);
        for (size_t w = 0; w < sizeof writes / sizeof *writes; w++) {
            TEST_OK(c->backend->buffer_write(c->handle, buffer, writes[w].offset, data + w, writes[w].bytes));
            memcpy(expected + writes[w].offset, data + w, writes[w].bytes);
        }
        TEST_OK(c->backend->buffer_read(c->handle, buffer, 0, now, BYTES));
        assert_memory_equal(now, expected, BYTES);
        TEST_OK(c->backend->buffer_read(c->handle, buffer, 4090, now, 13));
        assert_memory_equal(now, expected + 4090, 13);
        c->backend->buffer_destroy(c->handle, buffer);
    }
}

static void ranges_past_the_end_are_refused(const conformance *c)
{
    uint8_t data[64] = {0};
    for (size_t k = 0; k < 3; k++) {
        tern_backend_buffer *buffer = create(c, 64, kinds[k]);
        TEST_ERROR(c->backend->buffer_write(c->handle, buffer, 60, data, 8), TERN_ERROR_INVALID, "64");
        TEST_ERROR(c->backend->buffer_read(c->handle, buffer, 65, data, 0), TERN_ERROR_INVALID, "65");
        TEST_ERROR(c->backend->buffer_read(c->handle, buffer, UINT64_MAX - 3, data, 8), TERN_ERROR_INVALID, "64");
        c->backend->buffer_destroy(c->handle, buffer);
    }
}

static void host_buffers_map_and_copy(const conformance *c)
{
    enum { COUNT = 1 << 16, BYTES = COUNT * 4 };
    tern_backend_buffer *up = create(c, BYTES, TERN_BUFFER_UPLOAD), *down = create(c, BYTES, TERN_BUFFER_READBACK);
    tern_backend_buffer *middle = create(c, BYTES, TERN_BUFFER_DEVICE);
    void *in, *out, *again;
    TEST_OK(c->backend->buffer_map(c->handle, up, &in));
    TEST_OK(c->backend->buffer_map(c->handle, down, &out));
    const tern_step steps[] = {
        {.kind = TERN_STEP_COPY,
         .label = "up",
         .argument_count = 2,
         .arguments = {{up, 0, BYTES, TERN_ACCESS_READ}, {middle, 0, BYTES, TERN_ACCESS_WRITE}}},
        {.kind = TERN_STEP_COPY,
         .label = "down",
         .wait_count = 1,
         .waits = &(uint32_t){0},
         .argument_count = 2,
         .arguments = {{middle, 0, BYTES, TERN_ACCESS_READ}, {down, 0, BYTES, TERN_ACCESS_WRITE}}}};
    const tern_program_desc desc = {.label = "round trip", .step_count = 2, .steps = steps};
    tern_backend_program *program;
    TEST_OK(c->backend->program_create(c->handle, &desc, &program));
    for (uint32_t round = 1; round <= 3; round++) { /* the same addresses serve every submission */
        uint64_t ticket;
        for (uint32_t i = 0; i < COUNT; i++) ((uint32_t *)in)[i] = i * 2654435761u + round;
        TEST_OK(c->backend->program_submit(c->handle, program, &ticket));
        conformance_wait(c, ticket);
        assert_memory_equal(in, out, BYTES);
    }
    TEST_OK(c->backend->buffer_map(c->handle, up, &again));
    assert_ptr_equal(again, in);
    c->backend->program_destroy(c->handle, program);
    c->backend->buffer_destroy(c->handle, middle);
    c->backend->buffer_destroy(c->handle, down);
    c->backend->buffer_destroy(c->handle, up);
}

static void too_much_is_refused(const conformance *c)
{
    const tern_device_info *info = &c->device->info;
    const uint64_t sizes[] = {info->max_allocation_bytes + 1, info->memory_bytes + (1ull << 30), 1ull << 62};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        tern_backend_buffer *buffer =
            (tern_backend_buffer *)(uintptr_t)8; /* must be NULL or as it was, never a half-made one */
        char number[24];
        snprintf(number, sizeof number, "%llu", (unsigned long long)sizes[s]);
        if (sizes[s] <= info->max_allocation_bytes && sizes[s] <= info->memory_bytes) continue;
        const tern_status status = c->backend->buffer_create(c->handle, sizes[s], TERN_BUFFER_DEVICE, &buffer);
        /* A limit of the device may be told from memory that is taken. */
        if (status != TERN_ERROR_DEVICE_MEMORY &&
            !(status == TERN_ERROR_UNSUPPORTED && sizes[s] > info->max_allocation_bytes))
            fail_msg("%s bytes: %s (%s)", number, tern_status_name(status), tern_error_message());
        if (!strstr(tern_error_message(), number)) fail_msg("%s is not in: %s", number, tern_error_message());
        assert_true(buffer == NULL || buffer == (tern_backend_buffer *)(uintptr_t)8);
    }
}

static void allocated_bytes_count_what_was_asked(const conformance *c)
{
    if (!c->backend->allocated_bytes) TEST_SKIP("%s does not count its bytes", c->name);
    const uint64_t before = c->backend->allocated_bytes(c->handle);
    tern_backend_buffer *buffers[3];
    for (size_t k = 0; k < 3; k++) buffers[k] = create(c, 1000 + k, kinds[k]);
    assert_int_equal(c->backend->allocated_bytes(c->handle), before + 3003);
    tern_backend_buffer *refused = NULL;
    assert_true(c->backend->buffer_create(c->handle, 1ull << 62, TERN_BUFFER_DEVICE, &refused) < 0);
    assert_int_equal(c->backend->allocated_bytes(c->handle), before + 3003);
    for (size_t k = 0; k < 3; k++) c->backend->buffer_destroy(c->handle, buffers[k]);
    assert_int_equal(c->backend->allocated_bytes(c->handle), before);
}

static void null_is_destroyed_quietly(const conformance *c)
{
    c->backend->buffer_destroy(c->handle, NULL);
    c->backend->kernel_destroy(c->handle, NULL);
    c->backend->program_destroy(c->handle, NULL);
    c->backend->close(NULL);
}

/* Every entry in a child after fork: an error, neither a deadlock nor a crash, and the parent goes on. */
static void a_child_gets_an_error(const conformance *c)
{
    tern_backend_buffer *buffer = create(c, 64, TERN_BUFFER_DEVICE);
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        uint8_t data[64] = {0};
        tern_backend_buffer *made = NULL;
        uint64_t ticket = 0;
        int wrong = 0;
        const tern_program_desc empty = {.label = "empty"};
        tern_backend_program *program = NULL;
        alarm(20);
        wrong |= (c->backend->buffer_create(c->handle, 64, TERN_BUFFER_DEVICE, &made) != TERN_ERROR_INVALID) << 0;
        wrong |= (c->backend->buffer_write(c->handle, buffer, 0, data, 64) != TERN_ERROR_INVALID) << 1;
        wrong |= (c->backend->buffer_read(c->handle, buffer, 0, data, 64) != TERN_ERROR_INVALID) << 2;
        wrong |= (c->backend->program_create(c->handle, &empty, &program) != TERN_ERROR_INVALID) << 3;
        wrong |= (c->backend->wait(c->handle, ticket, 1000) != TERN_ERROR_INVALID) << 4;
        c->backend->buffer_destroy(c->handle, buffer);
        _exit(wrong);
    }
    int code = 0;
    assert_int_equal(waitpid(child, &code, 0), child);
    if (!WIFEXITED(code)) fail_msg("the child died of signal %d", WTERMSIG(code));
    assert_int_equal(WEXITSTATUS(code), 0);
    uint32_t word = 7;
    TEST_OK(c->backend->buffer_write(c->handle, buffer, 0, &word, 4));
    c->backend->buffer_destroy(c->handle, buffer);
}

/* What core reads of a device must make sense before anything is planned for it. */
static void the_device_is_described(const conformance *c)
{
    const tern_device_info *info = &c->device->info;
    assert_true(info->name[0] && info->driver[0]);
    assert_true(info->memory_bytes > 0 && info->memory_free_bytes <= info->memory_bytes);
    assert_true(info->max_allocation_bytes > 0 && info->max_buffer_bytes > 0 && info->max_binding_bytes > 0);
    assert_true(info->offset_alignment >= 4 && (info->offset_alignment & (info->offset_alignment - 1)) == 0);
    assert_true(info->threads > 0 && info->max_group_size > 0);
    for (size_t d = 0; d < 3; d++) assert_true(info->max_groups[d] > 0);
    assert_true(info->subgroup_min <= info->subgroup_max);
    if (c->backend->device_notes) {
        char text[4096] = "";
        TEST_OK(c->backend->device_notes(0, text, sizeof text));
        assert_true(strlen(text) < sizeof text);
        TEST_OK(c->backend->device_notes(0, text, 16));
        assert_true(strlen(text) < 16);
    }
}

int main(void)
{
    static const conformance_case cases[] = {
        {"the device is described", the_device_is_described},
        {"buffers are zero", buffers_are_zero},
        {"writes land at their offset", writes_land_at_their_offset},
        {"ranges past the end are refused", ranges_past_the_end_are_refused},
        {"host buffers map and copy", host_buffers_map_and_copy},
        {"too much is refused", too_much_is_refused},
        {"allocated bytes count what was asked", allocated_bytes_count_what_was_asked},
        {"null is destroyed quietly", null_is_destroyed_quietly},
        {"a child gets an error", a_child_gets_an_error},
    };
    return conformance_main("buffer", cases, sizeof cases / sizeof *cases, NULL, 0);
}
