/* SPDX-License-Identifier: Apache-2.0 */
/* test_trainer_files.c - the public trainer's tensors by name, its files, and going on from them in every precision. On
 * cpu. */
#include <stdlib.h>

#include "core/base/dtype.h"
#include "tests/test.h"
#include "tests/trainer_fixture.h"

static void test_read_and_write(void **state)
{
    (void)state;
    classifier f;
    float fc1[FC1], logits[BATCH * CLASSES], again[BATCH * CLASSES];
    uint16_t half[FC1];
    double loss;
    classifier_start(&f, BATCH, 0, NULL);
    TEST_ERROR(tern_trainer_read(f.trainer, "logits", TERN_F32, logits, sizeof logits), TERN_ERROR_NOT_FOUND,
               "has run yet");
    classifier_fc1(&f, fc1);
    for (size_t i = 0; i < FC1; i++) fc1[i] = (float)i / 8 - 3;
    TEST_OK(tern_trainer_write(f.trainer, "fc1.weight", TERN_F32, fc1, sizeof fc1));
    TEST_OK(tern_trainer_read(f.trainer, "fc1.weight", TERN_F16, half, sizeof half));
    for (size_t i = 0; i < FC1; i++) assert_int_equal(half[i], tern_f32_to_f16(fc1[i]));
    TEST_OK(tern_trainer_read(f.trainer, "fc1.weight", TERN_BF16, half, sizeof half));
    for (size_t i = 0; i < FC1; i++) assert_int_equal(half[i], tern_f32_to_bf16(fc1[i]));
    TEST_OK(tern_trainer_write(f.trainer, "fc1.weight", TERN_BF16, half, sizeof half));
    classifier_fc1(&f, fc1);
    for (size_t i = 0; i < FC1; i++) assert_true(fc1[i] == tern_bf16_to_f32(half[i]));
    TEST_OK(classifier_evaluate(&f, BATCH, &loss, NULL));
    TEST_OK(tern_trainer_read(f.trainer, "logits", TERN_F32, logits, sizeof logits));
    double mean = 0;
    for (size_t i = 0; i < BATCH; i++) {
        double sum = 0;
        for (size_t k = 0; k < CLASSES; k++) sum += exp((double)logits[i * CLASSES + k]);
        mean += (log(sum) - (double)logits[i * CLASSES + (size_t)f.y[i]]) / BATCH;
    }
    TEST_NEAR(mean, loss, 1e-5 * loss);
    TEST_OK(classifier_step(&f, BATCH, NULL)); /* no dropout: the micro-batch made the same logits */
    TEST_OK(tern_trainer_read(f.trainer, "logits", TERN_F32, again, sizeof again));
    for (size_t i = 0; i < BATCH * CLASSES; i++) TEST_NEAR(again[i], logits[i], 1e-5);
    TEST_ERROR(tern_trainer_read(f.trainer, "fc9", TERN_F32, fc1, sizeof fc1), TERN_ERROR_NOT_FOUND, "\"fc9\"");
    TEST_ERROR(tern_trainer_read(f.trainer, "fc1.weight", TERN_U8, fc1, sizeof fc1), TERN_ERROR_INVALID,
               "cannot be had as u8");
    TEST_ERROR(tern_trainer_read(f.trainer, "fc1.weight", TERN_F32, fc1, 12), TERN_ERROR_INVALID,
               "(16, 12) has 768 bytes as f32, but 12 were given");
    TEST_ERROR(tern_trainer_write(f.trainer, "logits", TERN_F32, logits, sizeof logits), TERN_ERROR_INVALID,
               "is an output");
    classifier_stop(&f);
}

static void clean(const char *folder)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

static void test_save_and_load(void **state)
{
    (void)state;
    classifier f, g;
    char folder[] = "/tmp/tern-library-XXXXXX", path[96], other[96];
    float a[FC1], b[FC1];
    double loss[2];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    snprintf(other, sizeof other, "%s/deep/er", folder);
    classifier_start(&f, BATCH, 0, NULL);
    for (int i = 0; i < 5; i++) TEST_OK(classifier_step(&f, BATCH, NULL));
    TEST_OK(tern_trainer_save(f.trainer, folder));
    TEST_OK(tern_trainer_save(f.trainer, other));
    tern_train_options o;
    tern_train_options_init(&o, sizeof o);
    o.seed = 3;
    classifier_start(&g, BATCH, 0, &o);
    TEST_OK(tern_trainer_load(g.trainer, path, 0));
    classifier_fc1(&f, a);
    classifier_fc1(&g, b);
    assert_memory_equal(a, b, sizeof a);
    TEST_OK(classifier_evaluate(&f, BATCH, &loss[0], NULL));
    TEST_OK(classifier_evaluate(&g, BATCH, &loss[1], NULL));
    assert_true(loss[0] == loss[1]);
    /* a graph with one parameter more, and one of another shape */
    for (int wider = 0; wider < 2; wider++) {
        tern_graph *graph = NULL;
        tern_trainer *t = NULL;
        TEST_OK(tern_graph_create(&graph));
        tern_tensor *x = tern_input_2d(graph, "x", TERN_F32, 2, WIDTH);
        tern_loss(tern_linear(tern_linear(x, "fc1", wider ? 17 : 16), "fc3", 2), NULL);
        TEST_OK(tern_trainer_create(f.device, graph, NULL, &t));
        if (wider)
            TEST_ERROR(tern_trainer_load(t, path, TERN_LOAD_PARTIAL), TERN_ERROR_INVALID,
                       "\"fc1.weight\" has the shape (16, 12), but the graph's parameter (17, 12)");
        else
            TEST_ERROR(tern_trainer_load(t, path, 0), TERN_ERROR_NOT_FOUND, "holds no tensor \"fc3.weight\"");
        TEST_OK(tern_trainer_read(t, "fc1.bias", TERN_F32, a, wider ? 68 : 64));
        for (int i = 0; i < 16; i++) assert_true(a[i] == 0); /* nothing was written */
        if (!wider) {
            TEST_OK(tern_trainer_load(t, path, TERN_LOAD_PARTIAL));
            TEST_OK(tern_trainer_read(t, "fc1.weight", TERN_F32, a, sizeof a));
            assert_memory_equal(a, b, sizeof a);
        }
        tern_trainer_destroy(t);
        tern_graph_destroy(graph);
    }
    TEST_ERROR(tern_trainer_load(g.trainer, "/nowhere.safetensors", 0), TERN_ERROR_IO, "/nowhere.safetensors");
    TEST_ERROR(tern_trainer_load(g.trainer, path, 6), TERN_ERROR_INVALID, "load flags are 0x6");
    TEST_ERROR(tern_trainer_save(g.trainer, "/proc/nowhere"), TERN_ERROR_IO, "/proc/nowhere");
    TEST_OK(classifier_step(&g, BATCH, NULL)); /* files that fail leave the trainer well */
    classifier_stop(&f);
    classifier_stop(&g);
    clean(folder);
}

/* From any window on, also in a new trainer of another seed, training goes on to the same bits, dropout included. */
static void test_resume(void **state)
{
    (void)state;
    char folder[] = "/tmp/tern-library-XXXXXX", path[96];
    float fc1[2][FC1], other[FC1];
    tern_train_options o;
    tern_report r = {.struct_bytes = sizeof r};
    classifier f;
    assert_non_null(mkdtemp(folder));
    tern_train_options_init(&o, sizeof o);
    o.accumulate = 2;
    o.schedule = "cosine";
    o.steps = 20;
    o.lr = 1e-2;
    for (int round = 0; round < 2; round++) {
        int64_t given = 0;
        classifier_start(&f, BATCH, 0.3, &o);
        for (uint32_t i = 0; i < 40; i++) {
            classifier_fill(i, f.x, f.y, BATCH);
            TEST_OK(classifier_step(&f, BATCH - i % 3, &r));
            given += BATCH - i % 3;
            if (round == 0 || (i != 9 && i != 25 && i != 39)) continue;
            TEST_OK(tern_trainer_save(f.trainer, folder));
            classifier_stop(&f);
            o.seed = i; /* the checkpoint's counts */
            classifier_start(&f, BATCH, 0.3, &o);
            TEST_OK(tern_trainer_resume(f.trainer, folder, &r));
            assert_true(r.step == (i + 1) / 2 && r.reported == 0 && r.examples == given);
        }
        TEST_OK(tern_trainer_finish(f.trainer, &r));
        assert_int_equal(r.step, 20);
        classifier_fc1(&f, fc1[round]);
        if (round == 0) classifier_stop(&f);
    }
    assert_memory_equal(fc1[0], fc1[1], sizeof fc1[0]);
    /* a short window is ended by a save; a window that has begun is dropped by a resume */
    TEST_OK(classifier_step(&f, BATCH, &r));
    TEST_OK(tern_trainer_save(f.trainer, folder));
    classifier_fc1(&f, fc1[0]);
    TEST_OK(classifier_step(&f, BATCH, &r));
    assert_int_equal(r.step, 21);
    TEST_OK(tern_trainer_resume(f.trainer, folder, &r));
    assert_int_equal(r.step, 21);
    classifier_fc1(&f, other);
    assert_memory_equal(fc1[0], other, sizeof other);
    snprintf(path, sizeof path, "%s/model.safetensors", folder); /* its weights are the newest */
    TEST_OK(tern_trainer_load(f.trainer, path, 0));
    classifier_fc1(&f, other);
    assert_memory_equal(fc1[0], other, sizeof other);
    classifier_stop(&f);
    clean(folder);
}

/* 16 bits: they learn, keep their loss scale, and go on from a checkpoint to the same bits. */
static void test_precisions(void **state)
{
    (void)state;
    static const struct {
        int32_t precision, no_masters, eight_bit;
        double scale;
    } cases[] = {
        {TERN_PRECISION_BF16, 0, 0, 1},
        {TERN_PRECISION_F16, 0, 0, 4096},
        {TERN_PRECISION_BF16, 1, 1, 1},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        char folder[] = "/tmp/tern-library-XXXXXX";
        float fc1[2][FC1], logits[BATCH * CLASSES];
        double before = 0, after = 0;
        tern_report r = {.struct_bytes = sizeof r};
        tern_train_options o;
        classifier f;
        assert_non_null(mkdtemp(folder));
        tern_train_options_init(&o, sizeof o);
        o.precision = cases[c].precision;
        o.no_masters = cases[c].no_masters;
        o.eight_bit = cases[c].eight_bit;
        o.lr = 1e-2;
        for (int round = 0; round < 2; round++) {
            classifier_start(&f, BATCH, 0.1, &o);
            if (round == 1) TEST_OK(tern_trainer_resume(f.trainer, folder, &r));
            if (round == 0) classifier_fill(1000, f.x, f.y, BATCH);
            if (round == 0) TEST_OK(classifier_evaluate(&f, BATCH, &before, NULL));
            for (uint32_t i = round ? 100 : 0; i < 200; i++) {
                classifier_fill(i, f.x, f.y, BATCH);
                TEST_OK(classifier_step(&f, BATCH - i % 4, &r));
                if (round == 0 && i == 99) TEST_OK(tern_trainer_save(f.trainer, folder));
            }
            TEST_OK(tern_trainer_finish(f.trainer, &r));
            assert_true(r.step == 200 && r.skips == 0 && r.loss_scale == cases[c].scale);
            classifier_fc1(&f, fc1[round]);
            classifier_fill(1000, f.x, f.y, BATCH);
            TEST_OK(classifier_evaluate(&f, BATCH, &after, NULL));
            TEST_OK(tern_trainer_read(f.trainer, "logits", TERN_F32, logits, sizeof logits)); /* outputs stay f32 */
            classifier_stop(&f);
        }
        assert_memory_equal(fc1[0], fc1[1], sizeof fc1[0]);
        if (!(after < 0.8 * before)) fail_msg("case %zu: loss %g before and %g after", c, before, after);
        for (size_t i = 0; i < FC1 && cases[c].no_masters; i++)
            assert_true(fc1[0][i] == tern_bf16_to_f32(tern_f32_to_bf16(fc1[0][i])));
        clean(folder);
    }
}

static void test_resume_refused(void **state)
{
    (void)state;
    char folder[] = "/tmp/tern-library-XXXXXX", command[128];
    float before[FC1], after[FC1];
    tern_train_options o;
    classifier f;
    assert_non_null(mkdtemp(folder));
    classifier_start(&f, BATCH, 0, NULL);
    TEST_ERROR(tern_trainer_resume(f.trainer, folder, NULL), TERN_ERROR_NOT_FOUND, folder);
    TEST_ERROR(tern_trainer_resume(f.trainer, "", NULL), TERN_ERROR_INVALID, "name is empty");
    TEST_OK(classifier_step(&f, BATCH, NULL));
    TEST_OK(tern_trainer_save(f.trainer, folder));
    classifier_stop(&f);
    tern_train_options_init(&o, sizeof o);
    TEST_OK(tern_train_options_optimizer(&o, "lion"));
    classifier_start(&f, BATCH, 0, &o);
    classifier_fc1(&f, before);
    TEST_ERROR(tern_trainer_resume(f.trainer, folder, NULL), TERN_ERROR_INVALID, "lion");
    classifier_stop(&f);
    classifier_start(&f, BATCH - 1, 0, NULL);
    TEST_ERROR(tern_trainer_resume(f.trainer, folder, NULL), TERN_ERROR_INVALID, "batch");
    classifier_stop(&f);
    classifier_start(&f, BATCH, 0, NULL);
    snprintf(command, sizeof command, "for f in %s/checkpoints/*/state.safetensors; do echo x >>$f; done", folder);
    assert_int_equal(system(command), 0);
    TEST_ERROR(tern_trainer_resume(f.trainer, folder, NULL), TERN_ERROR_FORMAT, "state.safetensors");
    classifier_fc1(&f, after); /* none of it has changed the trainer or ended it */
    assert_memory_equal(before, after, sizeof after);
    TEST_OK(classifier_step(&f, BATCH, NULL));
    classifier_stop(&f);
    clean(folder);
}

static void test_diagnose(void **state)
{
    (void)state;
    classifier f;
    char phrase[160];
    float before[FC1], after[FC1], bias[16];
    tern_report r = {.struct_bytes = sizeof r};
    classifier_start(&f, BATCH, 0.2, NULL);
    const tern_feed feeds[] = {{"x", f.x, sizeof f.x}, {"y", f.y, sizeof f.y}};
    TEST_OK(tern_trainer_diagnose(f.trainer, feeds, 2, 5, phrase, sizeof phrase));
    assert_string_equal(phrase, "");
    for (int i = 0; i < 16; i++) bias[i] = 1e38f;
    TEST_OK(tern_trainer_write(f.trainer, "fc1.bias", TERN_F32, bias, sizeof bias));
    classifier_fc1(&f, before);
    for (int i = 0; i < 3; i++) TEST_OK(classifier_step(&f, BATCH, NULL));
    TEST_OK(tern_trainer_finish(f.trainer, &r));
    assert_true(r.skipped == 1 && r.skips == 3 && r.skips_in_row == 3);
    TEST_OK(tern_trainer_diagnose(f.trainer, feeds, 2, BATCH, phrase, sizeof phrase));
    if (!strstr(phrase, "forward") && !strstr(phrase, "backward")) fail_msg("\"%s\" names no tensor", phrase);
    TEST_ERROR(tern_trainer_diagnose(f.trainer, feeds, 1, BATCH, phrase, sizeof phrase), TERN_ERROR_INVALID,
               "is not fed");
    classifier_fc1(&f, after);
    assert_memory_equal(before, after, sizeof before);
    classifier_stop(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read_and_write), cmocka_unit_test(test_save_and_load),  cmocka_unit_test(test_resume),
        cmocka_unit_test(test_precisions),     cmocka_unit_test(test_resume_refused), cmocka_unit_test(test_diagnose),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
