/* SPDX-License-Identifier: Apache-2.0 */
/* test_plugin_device.c - what core/base gives to plug-ins, without a driver: who may enter, waits with an end, counted
 * buffers, transfers in pieces, limits of kernels, cuts, entries of a library. */
#include "tests/test.h"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/plugin_device.h"
#include "core/base/plugin_library.h"
#include "core/base/status.h"
#include "core/base/time.h"

#define BYTES 100u
#define PIECE 32u

/* A device and a buffer whose "driver" is this program. */
struct tern_backend_device {
    tern_plugin_device base;
    char staging[PIECE];
    uint32_t drained, moved, fail_at; /* counts; the move that fails, 0: none */
};
struct tern_backend_buffer {
    tern_buffer_shape shape;
    char memory[BYTES];
};

static tern_backend_device device_make(void)
{
    return (tern_backend_device){
        .base = {.api = "Test",
                 .pid = getpid(),
                 .patience_ns = 30000000,
                 .info = {.name = "card", .max_allocation_bytes = 1000, .memory_bytes = 1500, .shared_bytes = 64}}};
}

/* ------------------------------------------------------------------ entering */

static void test_entering(void **state)
{
    (void)state;
    tern_backend_device device = device_make();
    int result = 0;
    TEST_OK(tern_plugin_enter(&device.base));
    assert_true(tern_plugin_may_release(&device.base));
    const pid_t child = fork();
    if (child == 0) {
        const bool refused = tern_plugin_enter(&device.base) == TERN_ERROR_INVALID &&
                             strstr(tern_error_message(), "Test does not survive a fork") &&
                             !tern_plugin_may_release(&device.base);
        _exit(refused ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_int_equal(result, 0);
    atomic_store(&device.base.lost, true);
    TEST_ERROR(tern_plugin_enter(&device.base), TERN_ERROR_DEVICE_LOST, "card was lost");
    assert_true(tern_plugin_may_release(&device.base));
    atomic_store(&device.base.hung, true);
    assert_false(tern_plugin_may_release(&device.base));
}

/* ------------------------------------------------------------------- waiting */

static int look_until(void *context)
{
    int *left = context;
    return --*left <= 0;
}

static int look_never(void *context) { return (void)context, 0; }

static int look_fails(void *context) { return (void)context, (int)tern_error(TERN_ERROR_DRIVER, "look: broken"); }

static void test_waiting(void **state)
{
    (void)state;
    tern_backend_device device = device_make();
    int looks = 5;
    TEST_OK(tern_plugin_poll(&device.base, look_until, &looks, UINT64_MAX));
    assert_int_equal(looks, 0);
    looks = 1;
    TEST_OK(tern_plugin_poll(&device.base, look_until, &looks, 0)); /* a look comes first */
    TEST_ERROR(tern_plugin_poll(&device.base, look_never, NULL, 1000000), TERN_ERROR_TIMEOUT, "card: still running");
    TEST_ERROR(tern_plugin_finish(&device.base, look_fails, NULL), TERN_ERROR_DRIVER, "look: broken");
    TEST_OK(tern_plugin_enter(&device.base)); /* nothing of that is a loss */
    TEST_ERROR(tern_plugin_finish(&device.base, look_never, NULL), TERN_ERROR_DEVICE_LOST, "no progress");
    assert_true(atomic_load(&device.base.lost) && atomic_load(&device.base.hung));
}

/* Waits in slices, as the core does: their sum counts, for one ticket, and only where a patience was named. */
static void test_waiting_in_slices(void **state)
{
    (void)state;
    tern_backend_device device = device_make();
    tern_status status = TERN_ERROR_TIMEOUT;
    int looks = 1;
    for (int i = 0; i < 40; i++)
        TEST_ERROR(tern_plugin_wait(&device.base, 7, look_never, NULL, 1000000), TERN_ERROR_TIMEOUT, "ticket 7: card");
    device.base.work_patience_ns = UINT64_C(3600000000000);
    TEST_ERROR(tern_plugin_wait(&device.base, 8, look_never, NULL, 1000000), TERN_ERROR_TIMEOUT, "ticket 8: card");
    device.base.work_patience_ns = 30000000;
    TEST_OK(tern_plugin_wait(&device.base, 8, look_until, &looks, 1000000));
    int slices = 0;
    for (; status == TERN_ERROR_TIMEOUT; slices++)
        status = tern_plugin_wait(&device.base, 9, look_never, NULL, 1000000);
    assert_true(slices > 1);
    TEST_ERROR(status, TERN_ERROR_DEVICE_LOST, "no progress");
    assert_true(atomic_load(&device.base.lost) && atomic_load(&device.base.hung));
}

static void test_matrix_shapes(void **state)
{
    (void)state;
    for (uint32_t lanes = 4; lanes <= 32; lanes *= 2) {
        tern_device_info info = {.subgroup_min = lanes, .subgroup_max = 32};
        tern_plugin_list_dpas(&info);
        assert_int_equal(info.matrix_count, lanes == 8 || lanes == 16 ? 2 : 0);
        for (uint32_t i = 0; i < info.matrix_count; i++) {
            const tern_matrix_shape *shape = &info.matrix[i];
            assert_int_equal(shape->dtype, i ? TERN_F16 : TERN_BF16);
            assert_true(shape->m == 8 && shape->n == lanes && shape->k == 16 && shape->subgroup == lanes);
        }
    }
}

/* ------------------------------------------------------------------- buffers */

static void test_buffers_are_counted(void **state)
{
    (void)state;
    tern_backend_device device = device_make();
    tern_backend_buffer plain = {0}, upload = {0};
    char memory[8];
    void *address = NULL;
    TEST_ERROR(tern_plugin_buffer_take(&device.base, 0, TERN_BUFFER_DEVICE, &plain.shape), TERN_ERROR_INVALID,
               "0 bytes");
    TEST_ERROR(tern_plugin_buffer_take(&device.base, 1001, TERN_BUFFER_DEVICE, &plain.shape), TERN_ERROR_UNSUPPORTED,
               "1001");
    assert_int_equal(atomic_load(&device.base.allocated), 0);
    TEST_OK(tern_plugin_buffer_take(&device.base, 1000, TERN_BUFFER_DEVICE, &plain.shape));
    TEST_ERROR(tern_plugin_buffer_take(&device.base, 501, TERN_BUFFER_DEVICE, &upload.shape), TERN_ERROR_DEVICE_MEMORY,
               "501 bytes asked for, 500 of 1500 free");
    TEST_OK(tern_plugin_buffer_take(&device.base, 8, TERN_BUFFER_UPLOAD, &upload.shape));
    assert_int_equal(tern_plugin_allocated_bytes(&device), 1008);
    upload.shape.host = memory;
    TEST_ERROR(tern_plugin_buffer_map(&device, &plain, &address), TERN_ERROR_INVALID, "no host address");
    TEST_OK(tern_plugin_buffer_map(&device, &upload, &address));
    assert_ptr_equal(address, memory);
    tern_plugin_buffer_drop(&device.base, &plain.shape);
    tern_plugin_buffer_drop(&device.base, &upload.shape);
    assert_int_equal(atomic_load(&device.base.allocated), 0);
}

static tern_status drain(tern_backend_device *device) { return device->drained++, TERN_OK; }

static tern_status move(tern_backend_device *device, tern_backend_buffer *buffer, uint64_t offset, size_t bytes,
                        bool to_device)
{
    assert_true(offset + bytes <= BYTES && bytes <= PIECE);
    if (++device->moved == device->fail_at) return tern_error(TERN_ERROR_DRIVER, "move %u", device->moved);
    if (to_device)
        memcpy(buffer->memory + offset, device->staging, bytes);
    else
        memcpy(device->staging, buffer->memory + offset, bytes);
    return TERN_OK;
}

static void test_transfers(void **state)
{
    (void)state;
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    tern_backend_device device = device_make();
    tern_backend_buffer buffer = {.shape = {.bytes = BYTES, .kind = TERN_BUFFER_DEVICE}};
    const tern_plugin_staging staging = {device.staging, PIECE, &lock, drain, move};
    char data[BYTES], back[BYTES] = {0};
    for (size_t i = 0; i < BYTES; i++) data[i] = (char)i;
    TEST_OK(tern_plugin_transfer(&device, &buffer, &staging, 0, NULL, data, BYTES));
    assert_int_equal(device.moved, 4); /* 32 + 32 + 32 + 4 */
    assert_memory_equal(buffer.memory, data, BYTES);
    TEST_OK(tern_plugin_transfer(&device, &buffer, &staging, 3, back, NULL, 64));
    assert_int_equal(device.moved, 6);
    assert_memory_equal(back, data + 3, 64);
    assert_int_equal(back[64], 0);
    TEST_OK(tern_plugin_transfer(&device, &buffer, &staging, BYTES, back, NULL, 0));
    assert_int_equal(device.drained, 3);
    TEST_ERROR(tern_plugin_transfer(&device, &buffer, &staging, 1, back, NULL, BYTES), TERN_ERROR_INVALID,
               "bytes 1 to 101 of a buffer of 100");
    TEST_ERROR(tern_plugin_transfer(&device, &buffer, &staging, UINT64_MAX, back, NULL, 2), TERN_ERROR_INVALID,
               "of a buffer of 100");
    device.fail_at = device.moved + 2;
    memset(back, 77, sizeof back);
    TEST_ERROR(tern_plugin_transfer(&device, &buffer, &staging, 0, back, NULL, BYTES), TERN_ERROR_DRIVER, "move 8");
    assert_int_equal(back[PIECE], 77); /* nothing is taken from a piece that did not arrive */
    assert_int_equal(pthread_mutex_trylock(&lock), 0);
    buffer.shape.host = buffer.memory; /* a host buffer needs no piece */
    TEST_OK(tern_plugin_transfer(&device, &buffer, &staging, 0, back, NULL, BYTES));
    assert_memory_equal(back, data, BYTES);
    assert_int_equal(device.moved, 8);
}

/* ------------------------------------------------------------ kernels, programs */

static void test_fit(void **state)
{
    (void)state;
    const tern_backend_device device = device_make();
    tern_kernel_desc desc = {.label = "k", .variant = {.group = {8, 4, 1}, .name = "form"}};
    tern_kernel_fit fit = {.most_threads = 32, .shared_bytes = 64};
    TEST_OK(tern_kernel_fit_check(&device.base.info, &desc, &fit));
    fit.shared_bytes = 65;
    TEST_ERROR(tern_kernel_fit_check(&device.base.info, &desc, &fit), TERN_ERROR_UNSUPPORTED, "wants 65 bytes");
    fit = (tern_kernel_fit){.compiled = true, .most_threads = 31};
    TEST_ERROR(tern_kernel_fit_check(&device.base.info, &desc, &fit), TERN_ERROR_UNSUPPORTED,
               "\"k\" (form), as compiled, wants groups of 32 threads, the limit is 31");
    desc.variant.group[0] = UINT32_MAX;
    desc.variant.group[1] = 2; /* too many for 32 bits */
    fit.most_threads = 1024;
    TEST_ERROR(tern_kernel_fit_check(&device.base.info, &desc, &fit), TERN_ERROR_UNSUPPORTED, "8589934590 threads");
    desc.variant.group[0] = 0;
    TEST_ERROR(tern_kernel_fit_check(&device.base.info, &desc, &fit), TERN_ERROR_UNSUPPORTED, "groups of 0");
}

static tern_status finish_fails(tern_backend_device *device)
{
    device->drained++;
    return tern_error(TERN_ERROR_TIMEOUT, "another sentence");
}

static void test_what_failed_is_what_is_told(void **state)
{
    (void)state;
    tern_backend_device device = device_make();
    const tern_status failed = tern_error(TERN_ERROR_DRIVER, "the first sentence");
    TEST_ERROR(tern_plugin_finish_failed(&device, failed, finish_fails), TERN_ERROR_DRIVER, "the first sentence");
    assert_int_equal(device.drained, 1);
    atomic_store(&device.base.lost, true);
    TEST_ERROR(tern_plugin_finish_failed(&device, failed, finish_fails), TERN_ERROR_DRIVER, "the first sentence");
    assert_int_equal(device.drained, 1); /* a lost device has nothing to wait for */
}

static void test_times(void **state)
{
    (void)state;
    const tern_backend_device device = device_make();
    TEST_OK(tern_plugin_times_check(&device.base, true, "p", 1));
    TEST_ERROR(tern_plugin_times_check(&device.base, true, "p", 0), TERN_ERROR_INVALID, "\"p\" has not run");
    TEST_ERROR(tern_plugin_times_check(&device.base, false, "p", 1), TERN_ERROR_UNSUPPORTED, "without timestamps");
}

static void test_cuts(void **state)
{
    (void)state;
    uint32_t cuts[] = {0, 2, 2, 5};
    const tern_program_desc desc = {.label = "p", .step_count = 6, .cut_count = 4, .cuts = cuts};
    TEST_OK(tern_cuts_check(&desc));
    assert_int_equal(tern_part_end(&desc, 0), 2); /* a cut before the first step, or a second one, makes no part */
    assert_int_equal(tern_part_end(&desc, 2), 5);
    assert_int_equal(tern_part_end(&desc, 5), 6);
    cuts[3] = 1;
    TEST_ERROR(tern_cuts_check(&desc), TERN_ERROR_INVALID, "\"p\": cut 3 before step 1");
    cuts[3] = 6;
    TEST_ERROR(tern_cuts_check(&desc), TERN_ERROR_INVALID, "past its 6 steps");
}

/* ------------------------------------------------------------------- library */

static void test_symbols(void **state)
{
    (void)state;
    struct {
        int before;
        size_t (*length)(const char *);
        void *absent;
    } table = {7, NULL, NULL};
    const tern_symbol symbols[] = {{"strlen", 8}, {"tern_no_such_entry", 16}};
    assert_null(tern_symbols_find(RTLD_DEFAULT, symbols, 1, &table));
    assert_int_equal(table.length("four"), 4);
    assert_non_null(strstr(tern_symbol_path(&table.length, "?"), "lib"));
    assert_string_equal(tern_symbols_find(RTLD_DEFAULT, symbols, 2, &table), "tern_no_such_entry");
    assert_int_equal(table.before, 7);
    assert_string_equal(tern_symbol_path(&table.absent, "unknown"), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_entering),
        cmocka_unit_test(test_waiting),
        cmocka_unit_test(test_waiting_in_slices),
        cmocka_unit_test(test_matrix_shapes),
        cmocka_unit_test(test_buffers_are_counted),
        cmocka_unit_test(test_transfers),
        cmocka_unit_test(test_fit),
        cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_symbols),
        cmocka_unit_test(test_what_failed_is_what_is_told),
        cmocka_unit_test(test_times),
    };
    return cmocka_run_group_tests_name("plugin_device", tests, NULL, NULL);
}
