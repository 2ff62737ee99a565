/* SPDX-License-Identifier: Apache-2.0 */
/* test_cuda_context.c - the CUDA plug-in beside other users of the driver in one process, on the stand-in driver.
 *
 *     thread      its current context (another card's, or none) is the same after every entry
 *     threads     one device, used by several at once, objects destroyed by another than made them
 *     reset       another library resets the card: a loss, told apart, after which it can be opened again
 *     fork        a child gets errors, for devices of its parent and for new ones; its parent goes on
 *
 * Two devices; the plug-in works on the first, the second is the other library's. */
#include "tests/test.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/base/status.h"
#include "tests/cuda_life.h"

static const tern_backend *backend;

/* ------------------------------------------------------------------ thread */

static void expect_current(const void *wanted, const char *after)
{
    void *now = NULL;
    OK(cu->get_current(&now));
    if (now != wanted) fail_msg("after %s the thread's context is %p, it was %p", after, now, wanted);
}

#define STILL(entry)                                                                                                   \
    do {                                                                                                               \
        entry;                                                                                                         \
        expect_current(mine, #entry);                                                                                  \
    } while (0)

/* Every entry, with `mine` the thread's own context. */
static void live_beside(void *mine)
{
    cuda_life l = {0};
    tern_kernel_desc desc = cuda_life_kernel();
    tern_backend_kernel *kernel = NULL;
    tern_backend_buffer *buffer = NULL;
    uint64_t ticket = 0, ns[2];
    uint32_t word = 0;
    OK(cu->set_current(mine));
    STILL(TEST_OK(cuda_life_set_up(&l, 0)));
    STILL(TEST_OK(backend->buffer_create(l.device, 64, TERN_BUFFER_DEVICE, &buffer)));
    STILL(TEST_OK(backend->buffer_write(l.device, buffer, 0, &word, sizeof word)));
    STILL(TEST_OK(backend->buffer_read(l.device, buffer, 0, &word, sizeof word)));
    STILL(TEST_ERROR(backend->buffer_read(l.device, buffer, 64, &word, 4), TERN_ERROR_INVALID, "of a buffer of 64"));
    STILL(backend->buffer_destroy(l.device, buffer));
    STILL(TEST_OK(backend->kernel_create(l.device, &desc, &kernel)));
    STILL(backend->kernel_destroy(l.device, kernel));
    STILL(TEST_OK(backend->program_submit(l.device, l.program, &ticket)));
    STILL(TEST_OK(backend->wait(l.device, ticket, CUDA_LIFE_WAIT_NS)));
    STILL(TEST_OK(backend->program_times(l.device, l.program, ns)));
    STILL(TEST_ERROR(backend->wait(l.device, ticket + 9, 1), TERN_ERROR_INVALID, "never given"));
    STILL(cuda_life_end(&l));
}

static void test_the_thread_keeps_its_context(void **state)
{
    (void)state;
    void *other = NULL;
    NEED_CUDA_LIFE();
    backend = cuda_life_backend;
    OK(cu->init(0));
    OK(cu->retain(&other, 1));
    live_beside(other);
    live_beside(NULL);
    OK(cu->release(1));
    assert_int_equal(cu->live(), 0);
    cuda_life_expect_no_report();
}

/* The plug-in's own card may be the other library's too: its context lives on. */
static void test_a_shared_context_lives_on(void **state)
{
    (void)state;
    void *same = NULL;
    size_t free_bytes = 0, bytes = 0;
    NEED_CUDA_LIFE();
    backend = cuda_life_backend;
    OK(cu->init(0));
    OK(cu->retain(&same, 0));
    live_beside(same);
    OK(cu->memory_info(&free_bytes, &bytes));
    OK(cu->release(0));
    assert_int_equal(cu->live(), 0);
    cuda_life_expect_no_report();
}

/* ------------------------------------------------------------------ threads */

#define THREADS 4
#define ROUNDS  40

typedef struct worker {
    pthread_t thread;
    tern_backend_device *device;
    uint32_t number;
    tern_backend_buffer *left; /* for another thread to destroy */
    char wrong[512];
} worker;

static tern_status work(worker *w)
{
    tern_status status = TERN_OK;
    uint32_t data[300], back[300];
    TERN_TRY(backend->buffer_create(w->device, sizeof data, TERN_BUFFER_DEVICE, &w->left));
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < 300; i++) data[i] = w->number << 24 | round << 16 | i;
        TERN_TRY(backend->buffer_write(w->device, w->left, 0, data, sizeof data));
        TERN_TRY(backend->buffer_read(w->device, w->left, 0, back, sizeof back));
        if (memcmp(data, back, sizeof data) != 0)
            return tern_error(TERN_ERROR_INTERNAL, "thread %u, round %u: other bytes came back", w->number, round);
    }
fail:
    return status;
}

static void *work_main(void *context)
{
    worker *w = context;
    if (work(w) < 0) (void)snprintf(w->wrong, sizeof w->wrong, "%s", tern_error_message());
    return NULL;
}

/* While this thread submits, others move their own bytes through the device's staging memory. */
static void test_threads_share_a_device(void **state)
{
    (void)state;
    cuda_life l = {0};
    worker workers[THREADS] = {0};
    uint64_t ticket = 0;
    NEED_CUDA_LIFE();
    backend = cuda_life_backend;
    TEST_OK(cuda_life_set_up(&l, 0));
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i].device = l.device;
        workers[i].number = i;
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work_main, &workers[i]), 0);
    }
    for (uint32_t i = 0; i < 150; i++) { /* more than there are events */
        TEST_OK(backend->program_submit(l.device, l.program, &ticket));
        assert_int_equal(ticket, i + 1);
    }
    TEST_OK(backend->wait(l.device, ticket, CUDA_LIFE_WAIT_NS));
    TEST_OK(backend->wait(l.device, 1, CUDA_LIFE_WAIT_NS));
    for (uint32_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
        if (workers[i].wrong[0]) fail_msg("%s", workers[i].wrong);
        backend->buffer_destroy(l.device, workers[i].left);
    }
    cuda_life_end(&l);
    assert_int_equal(cu->live(), 0);
    assert_int_equal(cu->late_uploads(), 0);
    cuda_life_expect_no_report();
}

/* -------------------------------------------------------------------- reset */

/* Before anything here has loaded the plug-in, since that would be refused too: another library has started CUDA. */
static void test_a_child_cannot_start(void **state)
{
    (void)state;
    int result = 0;
    NEED_CUDA_LIFE();
    OK(cu->init(0));
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const tern_status status = cuda_life_backend->load();
        _exit(status == TERN_ERROR_NOT_FOUND && strstr(tern_error_message(), "was forked") ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFEXITED(result));
    assert_int_equal(WEXITSTATUS(result), 0);
}

static void test_a_reset_card_is_lost(void **state)
{
    (void)state;
    cuda_life l = {0};
    uint64_t ticket = 0;
    uint32_t word = 0;
    NEED_CUDA_LIFE();
    backend = cuda_life_backend;
    tern_log_set(cuda_life_no_log, NULL);
    TEST_OK(cuda_life_set_up(&l, 0));
    OK(cu->reset(0));
    const int64_t gone = cu->live(); /* the reset counts what it dropped */
    TEST_ERROR(backend->program_submit(l.device, l.program, &ticket), TERN_ERROR_DEVICE_LOST, "has reset the card");
    TEST_ERROR(backend->buffer_read(l.device, l.x, 0, &word, 4), TERN_ERROR_DEVICE_LOST, "lost by an earlier call");
    cuda_life_end(&l);
    TEST_OK(cuda_life_run(&l));
    cuda_life_end(&l);
    assert_true(cu->live() <= gone);
    cuda_life_expect_no_report();
    tern_log_set(NULL, NULL);
}

/* --------------------------------------------------------------------- fork */

static int child_main(cuda_life *l)
{
    const tern_open_options options = {0};
    tern_backend_device *device = NULL;
    tern_device_info info;
    uint64_t ticket = 0;
    uint32_t word = 0, count = 0;
    if (backend->program_submit(l->device, l->program, &ticket) != TERN_ERROR_INVALID) return 1;
    if (!strstr(tern_error_message(), "does not survive a fork")) return 2;
    if (backend->buffer_read(l->device, l->x, 0, &word, 4) != TERN_ERROR_INVALID) return 3;
    backend->program_destroy(l->device, l->program);
    backend->kernel_destroy(l->device, l->kernel);
    backend->buffer_destroy(l->device, l->x);
    backend->buffer_destroy(l->device, l->y);
    backend->close(l->device);
    if (backend->device_count(&count) != TERN_ERROR_INVALID) return 4;
    if (!strstr(tern_error_message(), "fork first")) return 5;
    if (backend->device_info(0, &info) != TERN_ERROR_INVALID) return 6;
    if (backend->open(0, &options, &device) != TERN_ERROR_INVALID || device) return 7;
    return 0;
}

static void test_a_forked_child_is_refused(void **state)
{
    (void)state;
    cuda_life l = {0};
    uint64_t ticket = 0;
    int result = 0;
    NEED_CUDA_LIFE();
    backend = cuda_life_backend;
    TEST_OK(cuda_life_set_up(&l, 0));
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(child_main(&l));
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFEXITED(result));
    assert_int_equal(WEXITSTATUS(result), 0);
    TEST_OK(backend->program_submit(l.device, l.program, &ticket));
    TEST_OK(backend->wait(l.device, ticket, CUDA_LIFE_WAIT_NS));
    cuda_life_end(&l);
    assert_int_equal(cu->live(), 0);
    cuda_life_expect_no_report();
}

int main(void)
{
    (void)setenv("TERN_CUDA_LIBRARY", CUDA_STAND_IN_DRIVER, 0);
    (void)setenv("TERN_NVRTC_LIBRARY", CUDA_STAND_IN_NVRTC, 0);
    (void)setenv("TERN_STANDIN_CUDA_DEVICES", "2", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_child_cannot_start),
        cmocka_unit_test(test_the_thread_keeps_its_context),
        cmocka_unit_test(test_a_shared_context_lives_on),
        cmocka_unit_test(test_threads_share_a_device),
        cmocka_unit_test(test_a_forked_child_is_refused),
        cmocka_unit_test(test_a_reset_card_is_lost), /* last: what it drops stays counted */
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
