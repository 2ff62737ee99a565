/* SPDX-License-Identifier: Apache-2.0 */
/* test_checkpoints.c - the checkpoints of a run's folder: which stay, which is taken, what damage, a kill or a full
 * disk does, and the metrics beside them. On the cpu. No GPU. */
#include "tests/resume_fixture.h"
#include "tests/test.h"
#include "tests/train_fixture.h"

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/base/sealed.h"

static tern_device *cpu;

static tern_text_trainer *start(void)
{
    const tern_text_options options = resume_options(1000);
    return resume_start(cpu, &options);
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* The names in a folder, sorted, each followed by a blank. */
static const char *list(const char *folder)
{
    static char text[2048];
    char *names[64];
    size_t count = 0, used = 0;
    DIR *listed = opendir(folder);
    if (!listed) return "(none)";
    for (const struct dirent *entry; (entry = readdir(listed)) && count < 64;)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) names[count++] = strdup(entry->d_name);
    closedir(listed);
    if (count > 0) qsort(names, count, sizeof *names, by_name);
    text[0] = 0;
    for (size_t i = 0; i < count; i++) {
        used += (size_t)snprintf(text + used, sizeof text - used, "%s ", names[i]);
        free(names[i]);
    }
    return text;
}

static const char *list_checkpoints(const char *run)
{
    char path[256];
    snprintf(path, sizeof path, "%s/checkpoints", run);
    return list(path);
}

static char *read_text(const char *folder, const char *name)
{
    char path[512], *text = NULL;
    size_t bytes = 0;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    TEST_OK(tern_file_read(path, 0, &text, &bytes));
    return text;
}

static tern_status save(tern_text_trainer *trainer, const char *run, double val, bool spoilt, uint32_t keep)
{
    const tern_text_save how = {.keep = keep, .val_loss = val, .spoilt = spoilt};
    TEST_OK(tern_directory_create(run));
    return tern_text_trainer_save(trainer, run, &how);
}

/* The position of the one that would be taken. */
static uint64_t newest(const char *run)
{
    tern_checkpoint *checkpoint = NULL;
    TEST_OK(tern_checkpoints_open(run, &checkpoint));
    const uint64_t place = checkpoint->position.attempt * 100 + checkpoint->position.micros;
    tern_checkpoint_close(checkpoint);
    return place;
}

/* -------------------------------------------------------------------- keeping */

static void test_last_few_and_best(void **state)
{
    (void)state;
    static const double vals[] = {5, 4, 3, NAN, 3.5, 4, 2.5, 2.75, NAN};
    static const char *const kept[] = {
        "00001-step-1 ",
        "00001-step-1 00002-step-2 ",
        "00002-step-2 00003-step-3 ",
        "00003-step-3 00004-step-4 ",
        "00003-step-3 00004-step-4 00005-step-5 ",
        "00003-step-3 00005-step-5 00006-step-6 ",
        "00006-step-6 00007-step-7 ",
        "00007-step-7 00008-step-8 ",
        "00007-step-7 00008-step-8 00009-step-9 ",
    };
    struct stat top, inside;
    char path[512];
    const char *run = resume_path("kept");
    tern_text_trainer *trainer = start();
    assert_true(isnan(tern_checkpoints_best_loss(run)));
    for (size_t i = 0; i < sizeof vals / sizeof *vals; i++) {
        resume_advance(trainer, RESUME_ACCUMULATE);
        TEST_OK(save(trainer, run, vals[i], false, 2));
        assert_string_equal(list_checkpoints(run), kept[i]);
    }
    assert_true(tern_checkpoints_best_loss(run) == 2.5);
    assert_int_equal(newest(run), 900);
    assert_string_equal(list(run), "checkpoints config.json model.safetensors run.json ");
    char *text = read_text(run, "run.json");
    assert_non_null(strstr(text, "\"checkpoint\":\t\"checkpoints/00009-step-9\""));
    assert_non_null(strstr(text, "\"best_checkpoint\":\t\"checkpoints/00007-step-7\""));
    assert_non_null(strstr(text, "\"best_val_loss\":\t2.5"));
    free(text);
    snprintf(path, sizeof path, "%s/model.safetensors", run); /* no second copy of the weights */
    assert_int_equal(stat(path, &top), 0);
    snprintf(path, sizeof path, "%s/checkpoints/00009-step-9/model.safetensors", run);
    assert_int_equal(stat(path, &inside), 0);
    assert_int_equal(top.st_ino, inside.st_ino);
    resume_advance(trainer, 2); /* inside the next step */
    TEST_OK(save(trainer, run, NAN, false, 1));
    assert_string_equal(list_checkpoints(run), "00007-step-7 00010-step-9+2 ");
    assert_int_equal(newest(run), 902);
    tern_text_trainer_destroy(trainer);
    assert_string_equal(resume_warnings(), "");
}

/* A diverged run's last state is kept for whoever wants to look at it, but it neither is taken nor displaces a good
 * one. */
static void test_spoilt(void **state)
{
    (void)state;
    char path[512];
    tern_checkpoint *checkpoint = NULL;
    const char *run = resume_path("spoilt");
    tern_text_trainer *trainer = start();
    for (int i = 0; i < 3; i++) {
        resume_advance(trainer, RESUME_ACCUMULATE);
        TEST_OK(save(trainer, run, NAN, i > 0, 1));
    }
    assert_string_equal(list_checkpoints(run), "00001-step-1 00002-step-2 00003-step-3 ");
    assert_int_equal(newest(run), 100);
    const char *said = resume_warnings();
    assert_non_null(strstr(said, "00003-step-3 is of a run that diverged"));
    assert_non_null(strstr(said, "00001-step-1 is taken instead"));
    snprintf(path, sizeof path, "%s/checkpoints/00003-step-3", run); /* by its own name it is taken */
    TEST_OK(tern_checkpoints_open(path, &checkpoint));
    assert_true(checkpoint->spoilt);
    tern_checkpoint_close(checkpoint);
    resume_advance(trainer, RESUME_ACCUMULATE);
    TEST_OK(save(trainer, run, NAN, false, 1));
    assert_string_equal(list_checkpoints(run), "00004-step-4 ");
    tern_text_trainer_destroy(trainer);
}

/* --------------------------------------------------------------------- damage */

static void spoil(const char *file, bool cut)
{
    struct stat info;
    assert_int_equal(stat(file, &info), 0);
    assert_true(info.st_size > 2);
    if (cut) {
        assert_int_equal(truncate(file, info.st_size / 2), 0);
        return;
    }
    FILE *f = fopen(file, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, info.st_size / 2, SEEK_SET), 0);
    const int old = fgetc(f);
    assert_int_equal(fseek(f, info.st_size / 2, SEEK_SET), 0);
    assert_int_not_equal(fputc(old ^ 1, f), EOF);
    assert_int_equal(fclose(f), 0);
}

/* Each file of the newest, cut or with one bit changed: it is named, and the older checkpoint is taken. */
static void test_damage(void **state)
{
    (void)state;
    static const char *const files[] = {"model.safetensors", "state.safetensors", "state.json", "config.json",
                                        "checksums"};
    char path[512], run_name[32];
    for (int cut = 0; cut < 2; cut++)
        for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
            snprintf(run_name, sizeof run_name, "damaged-%d-%zu", cut, i);
            const char *run = resume_path(run_name);
            tern_text_trainer *trainer = start();
            resume_advance(trainer, RESUME_ACCUMULATE);
            resume_save(trainer, run_name);
            resume_advance(trainer, 1);
            resume_save(trainer, run_name);
            tern_text_trainer_destroy(trainer);
            assert_int_equal(newest(run), 101);
            assert_string_equal(resume_warnings(), "");
            snprintf(path, sizeof path, "%s/checkpoints/00002-step-1+1/%s", run, files[i]);
            spoil(path, cut);
            assert_int_equal(newest(run), 100);
            const char *said = resume_warnings();
            if (!strstr(said, files[i]) || !strstr(said, "damaged") || !strstr(said, "00001-step-1 is taken instead"))
                fail_msg("%s: %s", files[i], said);
        }
}

static void test_nothing_to_take(void **state)
{
    (void)state;
    char path[512];
    tern_checkpoint *checkpoint = NULL;
    const char *run = resume_path("all-damaged");
    TEST_ERROR(tern_checkpoints_open("/nowhere", &checkpoint), TERN_ERROR_NOT_FOUND, "/nowhere holds no checkpoint");
    tern_text_trainer *trainer = start();
    for (int i = 0; i < 2; i++) {
        resume_advance(trainer, RESUME_ACCUMULATE);
        resume_save(trainer, "all-damaged");
        snprintf(path, sizeof path, "%s/checkpoints/0000%d-step-%d/state.safetensors", run, i + 1, i + 1);
        spoil(path, true);
    }
    TEST_ERROR(tern_checkpoints_open(run, &checkpoint), TERN_ERROR_FORMAT, "none of the 2 checkpoints in ");
    assert_non_null(strstr(tern_error_message(), "00002-step-2/state.safetensors\" is damaged"));
    assert_null(checkpoint);
    snprintf(path, sizeof path, "%s/checkpoints/00001-step-1", run);
    TEST_ERROR(tern_checkpoints_open(path, &checkpoint), TERN_ERROR_FORMAT, "00001-step-1/state.safetensors");
    resume_advance(trainer, 1); /* the run itself is well, and the next checkpoint is good */
    resume_save(trainer, "all-damaged");
    assert_int_equal(newest(run), 201);
    tern_text_trainer_destroy(trainer);
}

/* A format of another version is said, not misread: the sums are right, the state is not this version's. */
static void test_other_version(void **state)
{
    (void)state;
    char path[512];
    tern_seal *seal = NULL;
    tern_checkpoint *checkpoint = NULL;
    const char *folder = resume_path("version");
    static const char text[] = "{\"format\": 7, \"tern\": \"9.9.9\", \"position\": {}}", bad[] = "{\"format\": 1}";
    TEST_OK(tern_seal_begin(folder, &seal));
    snprintf(path, sizeof path, "%s/state.json", tern_seal_folder(seal));
    TEST_OK(tern_file_write(path, text, sizeof text - 1));
    TEST_OK(tern_seal_commit(seal));
    TEST_ERROR(tern_checkpoints_open(folder, &checkpoint), TERN_ERROR_FORMAT, "has format 7, of tern 9.9.9");
    TEST_OK(tern_sealed_remove(folder));
    TEST_OK(tern_seal_begin(folder, &seal));
    snprintf(path, sizeof path, "%s/state.json", tern_seal_folder(seal));
    TEST_OK(tern_file_write(path, bad, sizeof bad - 1));
    TEST_OK(tern_seal_commit(seal));
    TEST_ERROR(tern_checkpoints_open(folder, &checkpoint), TERN_ERROR_FORMAT, "says no position");
}

/* -------------------------------------------------------------- disk and kills */

/* Files may grow to `most` bytes; 0: to any. */
static void limit_files(rlim_t most)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = most ? most : limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* At every size at which a save can break off: nothing saved before is lost, the run goes on, the next save is whole.
 */
static void test_no_room(void **state)
{
    (void)state;
    struct stat info;
    char path[512], before[2048], top[2048];
    const char *run = resume_path("full");
    tern_text_trainer *trainer = start(), *undisturbed = start();
    signal(SIGXFSZ, SIG_IGN);
    resume_advance(trainer, RESUME_ACCUMULATE);
    resume_save(trainer, "full");
    snprintf(path, sizeof path, "%s/checkpoints/00001-step-1/state.safetensors", run);
    assert_int_equal(stat(path, &info), 0);
    snprintf(before, sizeof before, "%s", list_checkpoints(run));
    snprintf(top, sizeof top, "%s", list(run));
    const rlim_t sizes[] = {1, 100, 1000, 4096, (rlim_t)info.st_size / 2, (rlim_t)info.st_size - 1};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        resume_advance(trainer, 1);
        limit_files(sizes[i]);
        const tern_status status = save(trainer, run, NAN, false, 1);
        limit_files(0);
        assert_int_equal(status, TERN_ERROR_IO);
        assert_string_equal(list_checkpoints(run), before); /* no half of one, hidden or not */
        assert_string_equal(list(run), top);
        assert_int_equal(newest(run), 100);
    }
    resume_save(trainer, "full");
    assert_int_equal(newest(run), 300);
    resume_advance(undisturbed, 3 * RESUME_ACCUMULATE);
    resume_save(undisturbed, "unfilled");
    resume_expect_equal(run, resume_path("unfilled"));
    tern_text_trainer_destroy(trainer);
    tern_text_trainer_destroy(undisturbed);
}

/* What a killed process leaves is not taken for anything, and goes when the folder is taken again. */
static void test_leftovers(void **state)
{
    (void)state;
    int lock = -1, second = -1;
    char path[512];
    const char *run = resume_path("killed");
    assert_int_equal(tern_run_look(run), TERN_RUN_NOTHING);
    TEST_OK(tern_run_prepare(run, 0, &lock));
    assert_int_equal(tern_run_look(run), TERN_RUN_UNSAVED);
    tern_text_trainer *trainer = start();
    resume_advance(trainer, RESUME_ACCUMULATE);
    resume_save(trainer, "killed");
    tern_text_trainer_destroy(trainer);
    assert_int_equal(tern_run_look(run), TERN_RUN_SAVED);
    TEST_ERROR(tern_run_reopen(run, &second), TERN_ERROR_INVALID, "another run is training into");
    assert_int_equal(second, -1);
    tern_run_release(run, lock);
    static const char *const folders[] = {"checkpoints/.new-123-4", "checkpoints/.old-123-5"};
    static const char *const files[] = {"checkpoints/.new-123-4/model.safetensors", "checkpoints/.old-123-5/checksums",
                                        "model.safetensors.tmp-123-4", "run.json.tmp-123-9"};
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", run, folders[i]);
        assert_int_equal(mkdir(path, 0777), 0);
    }
    for (size_t i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s", run, files[i]);
        TEST_OK(tern_file_write(path, "half", 4));
    }
    assert_int_equal(newest(run), 100);
    TEST_OK(tern_run_reopen(run, &lock));
    assert_string_equal(list(run), ".lock checkpoints config.json model.safetensors run.json ");
    assert_string_equal(list_checkpoints(run), "00001-step-1 ");
    tern_run_release(run, lock);
    TEST_ERROR(tern_run_prepare(run, 0, NULL), TERN_ERROR_INVALID, "give --resume auto to go on with it");
}

/* -------------------------------------------------------------------- metrics */

static void test_metrics_are_cut(void **state)
{
    (void)state;
    char path[512];
    const char *run = resume_path("metrics");
    static const char all[] = "{\"step\":1,\"loss\":5}\n{\"step\":2,\"loss\":4}\nrubbish\n{\"step\":3}\n"
                              "{\"steps\":3,\"train_loss\":1}\n{\"step\":4}\n{\"step\":5,\"lo";
    TEST_OK(tern_directory_create(run));
    TEST_OK(tern_run_cut(run, 3)); /* no file: nothing to do */
    snprintf(path, sizeof path, "%s/metrics.jsonl", run);
    TEST_OK(tern_file_write(path, all, sizeof all - 1));
    TEST_OK(tern_run_cut(run, 3));
    char *text = read_text(run, "metrics.jsonl");
    assert_string_equal(text, "{\"step\":1,\"loss\":5}\n{\"step\":2,\"loss\":4}\n{\"step\":3}\n");
    free(text);
    TEST_OK(tern_run_append(run, "{\"step\":4}"));
    TEST_OK(tern_run_cut(run, 4));
    text = read_text(run, "metrics.jsonl");
    assert_string_equal(text, "{\"step\":1,\"loss\":5}\n{\"step\":2,\"loss\":4}\n{\"step\":3}\n{\"step\":4}\n");
    free(text);
    TEST_OK(tern_run_cut(run, 0));
    text = read_text(run, "metrics.jsonl");
    assert_string_equal(text, "");
    free(text);
    assert_string_equal(list(run), "metrics.jsonl ");
}

static int set_up(void **state)
{
    cpu = test_open_device("cpu", 1);
    return resume_set_up(state);
}

static int tear_down(void **state)
{
    tern_device_close(cpu);
    return resume_tear_down(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_last_few_and_best),
        cmocka_unit_test(test_spoilt),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_nothing_to_take),
        cmocka_unit_test(test_other_version),
        cmocka_unit_test(test_no_room),
        cmocka_unit_test(test_leftovers),
        cmocka_unit_test(test_metrics_are_cut),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
