/* SPDX-License-Identifier: Apache-2.0 */
/* test_trainer_feed.c - what goes into the public trainer: staged slots, a feeding thread, and what is refused. On cpu.
 */
#include <sys/wait.h>
#include <unistd.h>

#include "core/graph/graph.h"
#include "tests/test.h"
#include "tests/trainer_fixture.h"

static void test_stage(void **state)
{
    (void)state;
    classifier f, g;
    float a[FC1], b[FC1];
    classifier_start(&f, BATCH, 0.2, NULL);
    classifier_start(&g, BATCH, 0.2, NULL);
    for (uint32_t i = 0; i < 4; i++) {
        const int64_t examples = i == 2 ? 3 : BATCH;
        void *x = NULL;
        size_t bytes = 0;
        classifier_fill(i, f.x, f.y, BATCH);
        memcpy(g.y, f.y, sizeof f.y);
        TEST_OK(classifier_step(&f, examples, NULL));
        TEST_OK(tern_trainer_stage(g.trainer, "x", &x, &bytes));
        assert_int_equal(bytes, sizeof f.x);
        memcpy(x, f.x, sizeof f.x);
        if (i == 1) { /* an evaluation in between leaves the staged bytes alone */
            double loss;
            TEST_OK(classifier_evaluate(&g, BATCH, &loss, NULL));
        }
        const tern_feed feeds[] = {{"x", NULL, 0}, {"y", g.y, sizeof g.y}};
        TEST_OK(tern_trainer_step(g.trainer, feeds, 2, examples, NULL));
        TEST_ERROR(tern_trainer_step(g.trainer, feeds, 2, examples, NULL), TERN_ERROR_INVALID, "fed without data");
    }
    classifier_fc1(&f, a);
    classifier_fc1(&g, b);
    assert_memory_equal(a, b, sizeof a);
    classifier_stop(&f);
    classifier_stop(&g);
}

typedef struct source {
    uint32_t calls, last; /* the last call gives 3 examples; after it the end, or an error */
    int64_t after;
} source;

static int64_t next(void *context, const tern_feed_slot *slots, size_t count, int64_t most)
{
    source *s = context;
    if (count != 2 || strcmp(slots[0].name, "x") != 0 || strcmp(slots[1].name, "y") != 0 || most != BATCH) return 1000;
    if (s->calls > s->last) return s->after;
    classifier_fill(s->calls, slots[0].data, slots[1].data, BATCH);
    return s->calls++ == s->last ? 3 : most;
}

static void test_feed_callback(void **state)
{
    (void)state;
    classifier f, g;
    float a[FC1], b[FC1];
    tern_report r = {.struct_bytes = sizeof r};
    source s = {.last = 10};
    classifier_start(&f, BATCH, 0, NULL);
    classifier_start(&g, BATCH, 0, NULL);
    TEST_ERROR(tern_trainer_step(f.trainer, NULL, 0, 0, &r), TERN_ERROR_INVALID, "no feed callback");
    TEST_OK(tern_trainer_feed_with(f.trainer, next, &s));
    for (uint32_t i = 0; i <= 10; i++) {
        TEST_OK(tern_trainer_step(f.trainer, NULL, 0, 0, &r));
        assert_true(!r.ended && r.step == i + 1);
        classifier_fill(i, g.x, g.y, BATCH);
        TEST_OK(classifier_step(&g, i == 10 ? 3 : BATCH, NULL));
    }
    for (int i = 0; i < 2; i++) {
        TEST_OK(tern_trainer_step(f.trainer, NULL, 0, 0, &r));
        assert_true(r.ended && !r.updated && r.step == 11 && r.examples == 83);
    }
    classifier_fc1(&f, a);
    classifier_fc1(&g, b);
    assert_memory_equal(a, b, sizeof a);
    /* a callback's failure comes with the next batch that it owes, and stays; the trainer itself is well */
    s = (source){.last = 0, .after = TERN_ERROR_IO};
    TEST_OK(tern_trainer_feed_with(f.trainer, next, &s));
    TEST_OK(tern_trainer_step(f.trainer, NULL, 0, 0, &r));
    for (int i = 0; i < 2; i++)
        TEST_ERROR(tern_trainer_step(f.trainer, NULL, 0, 0, &r), TERN_ERROR_IO,
                   "the feed callback failed: input or output failed");
    s = (source){.last = 0, .after = 9};
    TEST_OK(tern_trainer_feed_with(f.trainer, next, &s));
    TEST_OK(tern_trainer_step(f.trainer, NULL, 0, 0, &r));
    TEST_ERROR(tern_trainer_step(f.trainer, NULL, 0, 0, &r), TERN_ERROR_INVALID, "returned 9 examples");
    TEST_OK(tern_trainer_feed_with(f.trainer, NULL, NULL));
    TEST_OK(classifier_step(&f, BATCH, &r));
    classifier_stop(&f);
    classifier_stop(&g);
}

/* A child after fork has neither the device nor the feeding thread: errors and an end, no deadlock. */
static void test_fork(void **state)
{
    (void)state;
    classifier f;
    int code = -1;
    source s = {.last = 100};
    classifier_start(&f, BATCH, 0, NULL);
    TEST_OK(tern_trainer_feed_with(f.trainer, next, &s));
    TEST_OK(tern_trainer_step(f.trainer, NULL, 0, 0, NULL));
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(60); /* a deadlock ends by a signal */
        const tern_status fed = tern_trainer_step(f.trainer, NULL, 0, 0, NULL);
        const tern_status given = classifier_step(&f, BATCH, NULL);
        tern_trainer_destroy(f.trainer);
        _exit(fed < 0 && given < 0 ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &code, 0), child);
    if (!WIFEXITED(code) || WEXITSTATUS(code) != 0) fail_msg("the child ended with status 0x%x", (unsigned)code);
    TEST_OK(tern_trainer_step(f.trainer, NULL, 0, 0, NULL)); /* the parent's goes on */
    classifier_stop(&f);
}

static void test_refused_steps(void **state)
{
    (void)state;
    classifier f;
    double loss;
    float a[FC1], b[FC1];
    tern_report r = {.struct_bytes = sizeof r};
    classifier_start(&f, BATCH, 0, NULL);
    classifier_fc1(&f, a);
    const tern_feed x = {"x", f.x, sizeof f.x}, y = {"y", f.y, sizeof f.y}, z = {"z", f.y, 4};
    const tern_feed wrong = {"x", f.x, 100}, empty = {"y", NULL, 0}, unnamed = {NULL, f.x, sizeof f.x};
    const struct {
        tern_feed feeds[3];
        size_t count;
        int64_t examples;
        tern_status status;
        const char *part;
    } cases[] = {
        {{x, z}, 2, BATCH, TERN_ERROR_NOT_FOUND, "no input \"z\"; its inputs are \"x\", \"y\""},
        {{x, unnamed}, 2, BATCH, TERN_ERROR_NOT_FOUND, "no input \"\""},
        {{x}, 1, BATCH, TERN_ERROR_INVALID, "input \"y\" of 32 bytes is not fed"},
        {{x, y, x}, 3, BATCH, TERN_ERROR_INVALID, "input \"x\" is fed twice"},
        {{y, wrong}, 2, BATCH, TERN_ERROR_INVALID, "is fed 100 bytes; 384 are the whole batch of 8 and 384"},
        {{y, wrong}, 2, 3, TERN_ERROR_INVALID, "is fed 100 bytes; 384 are the whole batch of 8 and 144 the 3 examples"},
        {{x, y}, 2, 0, TERN_ERROR_INVALID, "0 examples were given; a batch holds 1 to 8"},
        {{x, y}, 2, 9, TERN_ERROR_INVALID, "9 examples were given"},
        {{x, y}, 2, -1, TERN_ERROR_INVALID, "-1 examples were given"},
        {{x, empty}, 2, BATCH, TERN_ERROR_INVALID, "input \"y\" is fed without data"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        TEST_ERROR(tern_trainer_step(f.trainer, cases[i].feeds, cases[i].count, cases[i].examples, &r), cases[i].status,
                   cases[i].part);
        TEST_ERROR(tern_trainer_evaluate(f.trainer, cases[i].feeds, cases[i].count, cases[i].examples, &loss, NULL),
                   cases[i].status, cases[i].part);
    }
    TEST_ERROR(tern_trainer_step(f.trainer, NULL, 2, BATCH, &r), TERN_ERROR_INVALID, "feeds is NULL");
    r.struct_bytes = 3;
    TEST_ERROR(classifier_step(&f, BATCH, &r), TERN_ERROR_INVALID, "struct_bytes is 3");
    TEST_ERROR(tern_trainer_step(NULL, NULL, 0, 0, NULL), TERN_ERROR_INVALID, "the trainer is NULL");
    void *data;
    TEST_ERROR(tern_trainer_stage(f.trainer, "q", &data, NULL), TERN_ERROR_NOT_FOUND, "no input \"q\"");
    TEST_ERROR(tern_trainer_stage(f.trainer, TERN_CONTROL_NAME, &data, NULL), TERN_ERROR_NOT_FOUND, "no input");
    classifier_fc1(&f, b);
    assert_memory_equal(a, b, sizeof a); /* nothing has run */
    TEST_OK(tern_trainer_finish(f.trainer, NULL));
    tern_trainer_destroy(NULL);
    classifier_stop(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stage),
        cmocka_unit_test(test_feed_callback),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_refused_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
