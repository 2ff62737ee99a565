/* SPDX-License-Identifier: Apache-2.0 */
/* test_text_trainer.c - the whole of a run: what is refused, what is saved, and sampling from it.
 *
 * Trains on the cpu backend; limits come from null. No GPU. */
#include "core/base/file.h"
#include "core/models/gpt2_text.h"
#include "core/train/sample.h"
#include "core/train/text_trainer.h"
#include "tests/test.h"
#include "tests/train_fixture.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#define STEPS 200 /* of the run that is saved */

static char folder[] = "/tmp/tern-trainer-XXXXXX";
static char corpus[64]; /* a text file in it */

/* ----------------------------------------------------------------- refusals */

static void test_batch_that_cannot_fit(void **state)
{
    (void)state;
    tern_device *device = test_open_device("null", 0);
    tern_gpt2_options model = test_tiny;
    tern_setup *setup = NULL;
    tern_setup_memory memory;
    model.batch = 13;
    tern_setup_options options = test_setup_options(&model);
    TEST_OK(tern_setup_create_fitting(device, &options, &setup));
    tern_setup_measure(setup, &memory);
    tern_setup_destroy(setup);
    device->info.memory_free_bytes = memory.total; /* 13 fits exactly */
    TEST_OK(tern_setup_create_fitting(device, &options, &setup));
    tern_setup_destroy(setup);
    options.batch = 50;
    TEST_ERROR(tern_setup_create_fitting(device, &options, &setup), TERN_ERROR_DEVICE_MEMORY,
               "the largest batch that fits is 13");
    assert_null(setup);
    assert_non_null(strstr(tern_error_message(), "a batch of 50 needs"));
    device->info.memory_free_bytes = 1000;
    TEST_ERROR(tern_setup_create_fitting(device, &options, &setup), TERN_ERROR_DEVICE_MEMORY,
               "not even a batch of 1 fits");
    tern_device_close(device);
}

static void refuse(tern_device *device, const tern_text_options *options, const char *sentence)
{
    tern_text_trainer *trainer = (tern_text_trainer *)&trainer;
    TEST_ERROR(tern_text_trainer_create(device, options, &trainer), TERN_ERROR_INVALID, sentence);
    assert_null(trainer);
}

static void test_trainer_refusals(void **state)
{
    (void)state;
    tern_device *device = test_open_device("null", 0);
    const char *path = corpus;
    tern_text_options good, o;
    tern_text_options_init(&good);
    tern_gpt2_options shape = test_tiny;
    tern_gpt2_text(&shape, &good.model);
    good.data_paths = &path;
    good.data_count = 1;
    o = good;
    shape.heads = 3;
    refuse(device, &o, "3 heads do not divide a width of 16");
    shape.heads = test_tiny.heads;
    o = good;
    o.model.kind = NULL;
    refuse(device, &o, "no model was given");
    o = good;
    o.data_count = 0;
    refuse(device, &o, "no data were given");
    o = good;
    shape.context = shape.positions = 5000;
    tern_gpt2_text(&shape, &o.model);
    refuse(device, &o, "the data have 3600 bytes, but a context of 5000 needs at least 5001");
    shape = test_tiny;
    o = good;
    o.optimizer.beta1 = 1.5;
    refuse(device, &o, "beta1 is 1.5");
    o = good;
    o.schedule.min_lr = 1;
    refuse(device, &o, "learning rate");
    o = good;
    o.accumulate = 0;
    refuse(device, &o, "accumulate is 0");
    tern_device_close(device);
}

/* ------------------------------------------------------------------- folder */

static void test_train_save_sample(void **state)
{
    (void)state;
    tern_device *device = test_open_device("cpu", 2);
    const char *path = corpus;
    char out[96], file[128];
    tern_text_options o;
    tern_gpt2_options shape = test_tiny, read;
    tern_text_model model;
    tern_text_trainer *trainer = NULL, *other = NULL;
    tern_step_report report;
    double first = 0, loss = 0, again = 0;
    int lock = -1, second = -1;
    const tern_text_save save = {.flags_json = "{\"steps\": 200}", .keep = 2, .val_loss = NAN};
    uint64_t tokens = 0;
    snprintf(out, sizeof out, "%s/deep/run", folder);
    tern_text_options_init(&o);
    shape.dropout = 0.05;
    tern_gpt2_text(&shape, &o.model);
    o.data_paths = &path;
    o.data_count = 1;
    o.accumulate = 2;
    o.schedule = (tern_schedule){.lr = 1e-2, .min_lr = 1e-3, .warmup = 5, .steps = STEPS};
    TEST_OK(tern_text_trainer_create(device, &o, &trainer));
    TEST_OK(tern_run_prepare(out, 1000, &lock));
    TEST_ERROR(tern_run_prepare(out, 0, &second), TERN_ERROR_INVALID, "another run is training into");
    assert_int_equal(second, -1);
    TEST_OK(tern_text_trainer_evaluate(trainer, 0, &first, &tokens));
    TEST_NEAR(first, log(256), 0.1);
    for (int i = 0; i < STEPS; i++) TEST_OK(tern_text_trainer_step(trainer, &report));
    TEST_OK(tern_text_trainer_finish(trainer, &report));
    assert_true(report.n == 96 && report.good_steps == STEPS);
    TEST_OK(tern_text_trainer_evaluate(trainer, 0, &loss, &tokens));
    assert_true(loss < 0.1);
    assert_int_equal(tokens, (360 - 1) / 12 * 12);
    static const volatile sig_atomic_t stop = 1;
    tern_text_trainer_watch(trainer, &stop);
    TEST_OK(tern_text_trainer_evaluate(trainer, 0, &again, &tokens));
    assert_true(isnan(again) && tokens == 0);
    tern_text_trainer_watch(trainer, NULL);

    TEST_OK(tern_text_trainer_save(trainer, out, &save));
    TEST_OK(tern_run_append(out, "{\"step\":1}"));
    TEST_OK(tern_run_append(out, "{\"step\":2}"));
    TEST_ERROR(tern_run_prepare(out, 0, NULL), TERN_ERROR_INVALID, "holds a run already");
    char *text = NULL;
    size_t bytes = 0;
    snprintf(file, sizeof file, "%s/metrics.jsonl", out);
    TEST_OK(tern_file_read(file, 0, &text, &bytes));
    assert_string_equal(text, "{\"step\":1}\n{\"step\":2}\n");
    tern_run_release(out, lock);
    snprintf(file, sizeof file, "%s/.lock", out);
    assert_int_not_equal(access(file, F_OK), 0);
    free(text);
    snprintf(file, sizeof file, "%s/run.json", out);
    TEST_OK(tern_file_read(file, 0, &text, &bytes));
    static const char *const parts[] = {"\"steps\":\t200", "\"backend\":\t\"cpu\"", "\"fingerprint\"", "\"checkpoint\"",
                                        "\"flags\""};
    for (size_t i = 0; i < 5; i++)
        if (!strstr(text, parts[i])) fail_msg("run.json lacks %s", parts[i]);
    assert_int_equal(text[bytes - 1], '\n');
    free(text);

    /* another trainer with these weights has the same validation loss, to the bit */
    o.seed = 99;
    TEST_OK(tern_text_trainer_create(device, &o, &other));
    snprintf(file, sizeof file, "%s/model.safetensors", out);
    TEST_OK(tern_text_trainer_load(other, file));
    TEST_OK(tern_text_trainer_evaluate(other, 0, &again, &tokens));
    assert_true(again == loss);
    tern_text_trainer_destroy(other);
    shape.width = 32;
    TEST_OK(tern_text_trainer_create(device, &o, &other));
    TEST_ERROR(tern_text_trainer_load(other, file), TERN_ERROR_INVALID, "another shape");
    tern_text_trainer_destroy(other);
    tern_text_trainer_destroy(trainer);

    /* the text repeats "abcdefghi...": the likeliest continuation goes on with it, also beyond the context */
    tern_sampler *sampler = NULL;
    const tern_sample_options greedy = {.temperature = 0};
    uint32_t token = 0;
    TEST_OK(tern_gpt2_text_read(out, &read, &model));
    TEST_OK(tern_sampler_create(device, &model, out, &sampler));
    TEST_ERROR(tern_sampler_next(sampler, &token), TERN_ERROR_INVALID, "no prompt");
    TEST_ERROR(tern_sampler_prompt(sampler, "", 0, &greedy), TERN_ERROR_INVALID, "empty");
    TEST_OK(tern_sampler_prompt(sampler, "abc", 3, &greedy));
    for (uint32_t i = 0; i < 30; i++) {
        TEST_OK(tern_sampler_next(sampler, &token));
        assert_int_equal(token, 'a' + (3 + i) % 18);
    }
    tern_sampler_destroy(sampler);
    TEST_ERROR(tern_gpt2_text_read(folder, &read, &model), TERN_ERROR_NOT_FOUND, "config.json");
    tern_device_close(device);
}

/* A file-size limit stands for a full disk: the line is cut short, and taken back. */
static void test_no_half_lines(void **state)
{
    (void)state;
    char file[128], *text = NULL;
    size_t bytes = 0;
    struct rlimit old, limited;
    TEST_OK(tern_run_append(folder, "{\"step\":1}"));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    limited = old;
    limited.rlim_cur = 15;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limited), 0);
    const tern_status status = tern_run_append(folder, "{\"step\":2}");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, handler);
    assert_int_equal(status, TERN_ERROR_IO);
    snprintf(file, sizeof file, "%s/metrics.jsonl", folder);
    TEST_OK(tern_file_read(file, 0, &text, &bytes));
    assert_string_equal(text, "{\"step\":1}\n");
    free(text);
    assert_int_equal(unlink(file), 0);
}

static void test_bad_folders(void **state)
{
    (void)state;
    TEST_ERROR(tern_run_prepare("", 0, NULL), TERN_ERROR_INVALID, "empty");
    TEST_ERROR(tern_run_prepare(corpus, 0, NULL), TERN_ERROR_IO, corpus);
    TEST_ERROR(tern_run_prepare("/proc/nowhere", 0, NULL), TERN_ERROR_IO, "/proc/nowhere");
    TEST_ERROR(tern_run_prepare(folder, UINT64_MAX, NULL), TERN_ERROR_IO, "bytes free, but a run writes");
    TEST_ERROR(tern_run_append("/proc", "{}"), TERN_ERROR_IO, "/proc/metrics.jsonl");
}

static int set_up(void **state)
{
    (void)state;
    char text[3600];
    for (size_t i = 0; i < sizeof text; i++) text[i] = (char)('a' + i % 18);
    if (!mkdtemp(folder)) return -1;
    snprintf(corpus, sizeof corpus, "%s/corpus.txt", folder);
    return tern_file_write(corpus, text, sizeof text) < 0 ? -1 : 0;
}

static int tear_down(void **state)
{
    (void)state;
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batch_that_cannot_fit), cmocka_unit_test(test_trainer_refusals),
        cmocka_unit_test(test_train_save_sample),     cmocka_unit_test(test_no_half_lines),
        cmocka_unit_test(test_bad_folders),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
