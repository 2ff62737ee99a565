/* SPDX-License-Identifier: Apache-2.0 */
/* test_command_resume.c - what a user sees of checkpoints: `tern train` killed at any moment, stopped by a signal, on a
 * full disk, told to go on.
 *
 *     start ── kill ── resume ── kill ── resume ... end        same weights as    start ── end
 *
 * The moments of the kills are drawn as parts of the time that a short run takes here; no result depends on them. On
 * the cpu. No GPU. */
#include "core/base/file.h"
#include "core/base/time.h"
#include "core/train/checkpoints.h"
#include "core/train/run.h"
#include "tests/command.h"
#include "tests/resume_fixture.h"
#include "tests/test.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
#define KILLS 30 /* a process starts in a second there */
#else
#define KILLS 200
#endif
#define STEPS 60 /* of the run that is killed */

/* A step has 3 micro-batches; a checkpoint is made after every 4, so inside of steps mostly. */
static const char *flags(const char *run, int steps, const char *more)
{
    static char line[1024];
    snprintf(
        line, sizeof line,
        "train --data %s/corpus.txt --backend cpu --threads 2 --layers 1 --width 16 --heads 2 --context 8 --batch 2 "
        "--accumulate 3 --dropout 0.1 --lr 0.01 --seed 5 --log-every 1 --steps %d --out %s %s",
        resume_folder, steps, run, more);
    return line;
}

#define SAVES "--save-every-micro 4 --eval-every 7"

static char *read_text(const char *run, const char *name)
{
    char path[512], *text = NULL;
    size_t bytes = 0;
    snprintf(path, sizeof path, "%s/%s", run, name);
    TEST_OK(tern_file_read(path, 0, &text, &bytes));
    return text;
}

/* The run's steps are 1 .. steps, each once, in order, and a last object. */
static void expect_metrics(const char *run, int steps)
{
    char *text = read_text(run, "metrics.jsonl");
    int lines = 0;
    for (const char *c = text; *c; c++) lines += *c == '\n';
    assert_int_equal(lines, steps + 1);
    for (int i = 0; i < steps; i++) assert_true(command_number(text, i, "step") == i + 1);
    assert_true(command_number(text, -1, "steps") == steps);
    free(text);
}

static void expect_ok(const command_result *r)
{
    if (r->code != 0) fail_msg("exit code %d: %s", r->code, r->err);
}

/* ----------------------------------------------------------------------- kill */

typedef struct killed {
    uint32_t seed;
    uint64_t span_ns; /* kills come within it */
    int kills, resumed, finished;
} killed;

/* Whether there is a checkpoint; one that there was must not be gone, and all that is there must be whole. */
static bool has_checkpoint(const char *run, bool had)
{
    tern_checkpoint *checkpoint = NULL;
    const tern_status status = tern_checkpoints_open(run, &checkpoint);
    tern_checkpoint_close(checkpoint);
    if (status < 0 && (status != TERN_ERROR_NOT_FOUND || had)) fail_msg("after a kill: %s", tern_error_message());
    const char *warnings = resume_warnings();
    if (warnings[0]) fail_msg("after a kill: %s", warnings);
    return status >= 0;
}

/* One run, killed again and again until it ends or the kills are used up; then it is let end. */
static void run_killed(killed *k, const char *run, const char *whole)
{
    for (bool had = false, ended = false; !ended;) {
        k->seed = k->seed * 1664525u + 1013904223u;
        const uint64_t ns = 1 + (uint64_t)((double)k->span_ns * (k->seed >> 8) * 0x1p-24);
        command_kill_after(k->kills < KILLS ? ns : 0);
        const command_result *r = command_run(flags(run, STEPS, SAVES " --resume auto"));
        if (r->code != 128 + 9) expect_ok(r);
        k->kills += r->code != 0;
        k->resumed += strstr(r->err, "resume  after ") != NULL;
        if (strstr(r->err, "within tolerance")) fail_msg("not to the bit: %s", r->err);
        ended = r->code == 0;
        had = has_checkpoint(run, had);
    }
    k->finished++;
    resume_expect_equal(run, whole);
    expect_metrics(run, STEPS);
    assert_int_equal(tern_run_look(run), TERN_RUN_SAVED);
}

static void test_kill_at_any_moment(void **state)
{
    (void)state;
    char run[160];
    const char *whole = resume_path("never-killed");
    const uint64_t begin = tern_time_ns();
    expect_ok(command_run(flags(whole, STEPS, SAVES)));
    killed k = {.seed = 12345, .span_ns = tern_time_ns() - begin};
    while (k.kills < KILLS) {
        snprintf(run, sizeof run, "%s/killed-%d", resume_folder, k.finished);
        run_killed(&k, run, whole);
    }
    print_message("%d kills within %.0f ms, %d sessions resumed, %d runs ended\n", k.kills, (double)k.span_ns * 1e-6,
                  k.resumed, k.finished);
    assert_true(k.resumed > 0);
}

/* -------------------------------------------------------------------- signals */

static void test_interrupted_and_resumed(void **state)
{
    (void)state;
    char *text;
    const char *run = resume_path("interrupted"), *whole = resume_path("never-interrupted");
    expect_ok(command_run(flags(whole, 40, "--save-minutes 0")));
    command_interrupt_at("step 5/");
    const command_result *r = command_run(flags(run, 40, "--save-minutes 0 --resume auto"));
    if (r->code == 0) TEST_SKIP("40 steps were done before the signal came");
    assert_int_equal(r->code, 130);
    r = command_run(flags(run, 40, "--save-minutes 0 --resume auto"));
    expect_ok(r);
    assert_non_null(strstr(r->err, "/checkpoints/00001-step-"));
    assert_non_null(strstr(r->err, ", to the bit\n"));
    resume_expect_equal(run, whole);
    expect_metrics(run, 40);
    text = read_text(run, "run.json");
    assert_non_null(strstr(text, "\"checkpoint\":\t\"checkpoints/00002-step-40\""));
    free(text);
    r = command_run(flags(run, 40, "--resume auto")); /* nothing left to do is no failure: a script's line runs again */
    expect_ok(r);
    assert_non_null(strstr(r->err, "has done its 40 steps already"));
    expect_metrics(run, 40);
}

/* -------------------------------------------------------------------- options */

static void test_what_to_resume(void **state)
{
    (void)state;
    char more[512], path[512];
    const char *run = resume_path("first"), *branch = resume_path("branch");
    expect_ok(command_run(flags(run, 10, "--save-every 4 --keep 3 --resume auto"))); /* nothing there: a new run */
    command_refuses(flags(run, 20, ""), 1, "give --resume auto to go on with it");
    command_refuses(flags(run, 5, "--resume auto"), 1, "has done 10 steps already, more than --steps 5");
    command_refuses(flags(run, 20, "--resume auto --clip 2"), 1, "was trained with clip 1, but now it is 2");
    command_refuses(flags(run, 20, "--resume auto --width 32"), 1, "was trained with the model's n_embd 16, but now");
    command_refuses(flags(branch, 20, "--resume /nowhere"), 1, "/nowhere holds no checkpoint");
    command_refuses("train --data x --resume auto", 2, "--resume auto goes on with the run in --out; give --out");
    assert_int_equal(access(branch, F_OK), -1); /* nothing was made by what was refused */

    snprintf(more, sizeof more, "--resume %s/checkpoints/00001-step-4 --json",
             run); /* an older one, to another folder */
    const command_result *r = command_run(flags(branch, 10, more));
    expect_ok(r);
    assert_non_null(strstr(r->err, "resume  after 4 steps, from "));
    assert_true(command_number(r->out, 0, "step") == 5);
    assert_true(command_number(r->out, 0, "tokens") == 5 * 3 * 2 * 8);
    assert_true(command_number(r->out, -1, "steps") == 10);
    resume_expect_equal(branch, run);
    command_refuses(flags(run, 20, more), 1, "holds a run already"); /* not into the folder that has newer ones */

    snprintf(more, sizeof more, "--resume %s", run); /* its own folder by name is as good as auto */
    r = command_run(flags(run, 14, more));
    expect_ok(r);
    assert_non_null(strstr(r->err, "the schedule stays that of 10 steps; --new-settings makes it one of 14"));
    r = command_run(flags(run, 18, "--resume auto --new-settings --clip 2"));
    expect_ok(r);
    assert_null(strstr(r->err, "the schedule stays"));
    expect_metrics(run, 18);
    snprintf(path, sizeof path, "sample %s/checkpoints --backend cpu --tokens 3", run);
    command_refuses(path, 1, "config.json");
    snprintf(path, sizeof path, "sample %s/checkpoints/00005-step-18 --backend cpu --tokens 3", run);
    expect_ok(command_run(path));
}

/* A run that was killed before its first save starts anew; one that has weights only cannot go on. */
static void test_without_checkpoint(void **state)
{
    (void)state;
    char path[512];
    const char *run = resume_path("early"), *old = resume_path("old");
    TEST_OK(tern_directory_create(run));
    snprintf(path, sizeof path, "%s/metrics.jsonl", run);
    TEST_OK(tern_file_write(path, "{\"step\":1}\n{\"step\":2}\n", 22));
    const command_result *r = command_run(flags(run, 10, "--resume auto"));
    expect_ok(r);
    assert_non_null(strstr(r->err, "had saved nothing yet; it starts anew"));
    expect_metrics(run, 10);
    TEST_OK(tern_directory_create(old));
    snprintf(path, sizeof path, "%s/model.safetensors", old);
    TEST_OK(tern_file_write(path, "weights", 7));
    command_refuses(flags(old, 10, "--resume auto"), 1, "has weights but no checkpoint");
}

/* A damaged newest checkpoint costs what came after the one before, not the run. */
static void test_damaged(void **state)
{
    (void)state;
    char path[512];
    const char *run = resume_path("damaged"), *whole = resume_path("undamaged");
    expect_ok(command_run(flags(whole, 30, "")));
    expect_ok(command_run(flags(run, 12, "--save-every 5 --new-settings")));
    snprintf(path, sizeof path, "%s/checkpoints/00003-step-12/state.safetensors", run);
    assert_int_equal(truncate(path, 100), 0);
    const command_result *r = command_run(flags(run, 12, "--save-every 5 --resume auto"));
    expect_ok(r);
    assert_non_null(strstr(r->err, "tern: warning: "));
    assert_non_null(strstr(r->err, "00003-step-12/state.safetensors\" is damaged"));
    assert_non_null(strstr(r->err, "resume  after 10 steps"));
    expect_metrics(run, 12);
}

/* A kill between the last checkpoint and the last validation costs only the validation, which is made up for. */
static void test_end_is_made_up(void **state)
{
    (void)state;
    char path[512];
    const char *run = resume_path("endless");
    expect_ok(command_run(flags(run, 10, "")));
    char *text = read_text(run, "metrics.jsonl");
    const double val = command_number(text, -1, "val_loss");
    assert_true(val > 0);
    text[strlen(text) - 1] = 0;
    *(strrchr(text, '\n') + 1) = 0;
    snprintf(path, sizeof path, "%s/metrics.jsonl", run);
    TEST_OK(tern_file_write(path, text, strlen(text)));
    free(text);
    expect_ok(command_run(flags(run, 10, "--resume auto")));
    expect_metrics(run, 10);
    text = read_text(run, "metrics.jsonl");
    assert_true(command_number(text, -1, "val_loss") == val);
    free(text);
    snprintf(path, sizeof path, "test \"$(ls %s/checkpoints)\" = 00001-step-10", run); /* no second one of the same */
    assert_int_equal(system(path), 0);
}

/* ----------------------------------------------------------------------- disk */

/* Checkpoints that cannot be written end no run, but its end is an error; what could be written before stays. */
static void test_no_room(void **state)
{
    (void)state;
    const char *run = resume_path("no-room");
    command_limit_files(20000); /* state.safetensors is larger, metrics.jsonl is not */
    const command_result *r = command_run(flags(run, 6, "--save-every 2"));
    command_limit_files(0);
    assert_int_equal(r->code, 1);
    assert_non_null(strstr(r->err, "no checkpoint was made after step 2: cannot write "));
    assert_non_null(strstr(r->err, "no checkpoint was made after step 4: "));
    assert_non_null(strstr(r->err, "; the run goes on and tries again\n"));
    assert_non_null(strstr(r->err, "step 6/6"));
    assert_null(strstr(r->err, "saved in"));
    r = command_run(flags(run, 6, "--save-every 2 --resume auto")); /* the disk has room again */
    expect_ok(r);
    expect_metrics(run, 6);
}

/* The folder that this test's program was built into. */
static const char *build_folder(void)
{
    static char path[4096];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    assert_true(length > 0);
    path[length] = 0;
    for (int i = 0; i < 2; i++) *strrchr(path, '/') = 0;
    return path;
}

/* The same on a disk that really fills up, where this process may mount one: the run ends with an error, all that was
 * saved before is whole, and with more room it goes on from there. */
static void test_full_disk(void **state)
{
    (void)state;
    char script[4096], path[256], run[256];
    const char *f = resume_folder;
    snprintf(path, sizeof path, "%s/disk", f);
    assert_int_equal(mkdir(path, 0777), 0);
    snprintf(run, sizeof run, "%s/disk/run", f);
    if (system("unshare -m true 2>/dev/null") != 0) TEST_SKIP("no file system can be mounted here (unshare -m fails)");
    snprintf(script, sizeof script,
             "mount -t tmpfs -o size=4m tmpfs %s/disk || exit 77\n"
             "T='%s/bin/tern %s'\n"
             "$T --save-every 1 2>%s/one && exit 3\n"
             "cp -r %s %s/filled || exit 4\n"
             "mount -o remount,size=32m %s/disk || exit 77\n"
             "$T --resume auto 2>%s/two || exit 5\n"
             "cp -r %s %s/ended\n",
             f, build_folder(), flags(run, 60, "--keep 100 --eval-every 0"), f, run, f, f, f, run, f);
    snprintf(path, sizeof path, "%s/script.sh", f);
    TEST_OK(tern_file_write(path, script, strlen(script)));
    snprintf(path, sizeof path, "unshare -m sh %s/script.sh", f);
    const int code = WEXITSTATUS(system(path));
    if (code == 77) TEST_SKIP("no tmpfs can be mounted here");
    char *one = read_text(f, "one");
    if (code != 0) fail_msg("the script ended with %d; the run that filled the disk said: %s", code, one);
    if (!strstr(one, "no checkpoint was made after step ") || !strstr(one, "No space left on device"))
        fail_msg("the run that filled the disk said: %s", one);
    assert_non_null(strstr(one, "step 60/60"));
    free(one);
    const char *filled = resume_path("filled");
    assert_true(has_checkpoint(filled, true));
    snprintf(path, sizeof path, "test -z \"$(find %s -name '.new-*' -o -name '*.tmp-*')\"", filled);
    assert_int_equal(system(path), 0);
    expect_ok(command_run(flags(resume_path("roomy"), 60, "--eval-every 0")));
    resume_expect_equal(resume_path("ended"), resume_path("roomy"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kill_at_any_moment),
        cmocka_unit_test(test_interrupted_and_resumed),
        cmocka_unit_test(test_what_to_resume),
        cmocka_unit_test(test_without_checkpoint),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_end_is_made_up),
        cmocka_unit_test(test_no_room),
        cmocka_unit_test(test_full_disk),
    };
    return cmocka_run_group_tests(tests, resume_set_up, resume_tear_down);
}
