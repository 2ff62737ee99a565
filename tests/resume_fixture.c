/* SPDX-License-Identifier: Apache-2.0 */
/* resume_fixture.c - see resume_fixture.h. */
#include "tests/resume_fixture.h"

#include <stdlib.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/formats/safetensors.h"
#include "tests/test.h"

char resume_folder[64];
tern_gpt2_options resume_shape;
static char corpus[96];
static char warnings[4096];

static void keep_warning(void *context, int32_t level, const char *message)
{
    (void)context;
    const size_t used = strlen(warnings);
    if (level <= 1) snprintf(warnings + used, sizeof warnings - used, "%s\n", message);
}

const char *resume_warnings(void)
{
    static char told[sizeof warnings];
    memcpy(told, warnings, sizeof told);
    warnings[0] = 0;
    return told;
}

int resume_set_up(void **state)
{
    (void)state;
    snprintf(resume_folder, sizeof resume_folder, "%s/tern-resume-XXXXXX",
             access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : "/tmp");
    assert_non_null(mkdtemp(resume_folder));
    snprintf(corpus, sizeof corpus, "%s/corpus.txt", resume_folder);
    FILE *file = fopen(corpus, "w");
    assert_non_null(file);
    for (int i = 0; i < 60; i++) fprintf(file, "%d and %d are %d; the fox is quick.\n", i, i * i % 37, i + i * i % 37);
    assert_int_equal(fclose(file), 0);
    tern_log_set(keep_warning, NULL);
    return 0;
}

int resume_tear_down(void **state)
{
    (void)state;
    char command[128];
    tern_log_set(NULL, NULL);
    snprintf(command, sizeof command, "rm -rf %s", resume_folder);
    return system(command);
}

tern_text_options resume_options(uint64_t steps)
{
    static const char *paths[1];
    tern_text_options o;
    paths[0] = corpus;
    tern_text_options_init(&o);
    resume_shape = (tern_gpt2_options){1, 2, 16, 256, 8, 8, 2, 0.2, 1e-5};
    tern_gpt2_text(&resume_shape, &o.model);
    o.accumulate = RESUME_ACCUMULATE;
    o.data_paths = paths;
    o.data_count = 1;
    o.seed = 7;
    o.schedule = (tern_schedule){.lr = 1e-2, .min_lr = 1e-3, .warmup = 3, .steps = steps};
    return o;
}

tern_text_trainer *resume_start(tern_device *device, const tern_text_options *options)
{
    tern_text_trainer *trainer = NULL;
    TEST_OK(tern_text_trainer_create(device, options, &trainer));
    return trainer;
}

tern_text_trainer *resume_continue(tern_device *device, const tern_text_options *options, const char *run)
{
    tern_checkpoint *checkpoint = NULL;
    tern_text_options o = *options;
    tern_text_resume resume = o.resume ? *o.resume : (tern_text_resume){0};
    TEST_OK(tern_checkpoints_open(run, &checkpoint));
    resume.checkpoint = checkpoint;
    o.resume = &resume;
    tern_text_trainer *trainer = resume_start(device, &o);
    tern_checkpoint_close(checkpoint);
    return trainer;
}

void resume_advance(tern_text_trainer *trainer, uint32_t micros)
{
    bool ended;
    tern_step_report report;
    for (uint32_t i = 0; i < micros; i++) TEST_OK(tern_text_trainer_advance(trainer, &ended, &report));
}

const char *resume_path(const char *run)
{
    static char paths[4][128];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", resume_folder, run);
    return path;
}

const char *resume_save(tern_text_trainer *trainer, const char *run)
{
    const tern_text_save how = {.keep = 2, .val_loss = NAN};
    const char *path = resume_path(run);
    TEST_OK(tern_directory_create(path));
    TEST_OK(tern_text_trainer_save(trainer, path, &how));
    return path;
}

static tern_safetensors *open_newest(const char *run, const char *name)
{
    char path[512];
    tern_checkpoint *checkpoint = NULL;
    tern_safetensors *file = NULL;
    TEST_OK(tern_checkpoints_open(run, &checkpoint));
    snprintf(path, sizeof path, "%s/%s", checkpoint->folder, name);
    TEST_OK(tern_safetensors_open(path, &file));
    tern_checkpoint_close(checkpoint);
    return file;
}

void resume_expect_equal(const char *run_a, const char *run_b)
{
    static const char *const names[] = {"model.safetensors", "state.safetensors"};
    for (int n = 0; n < 2; n++) {
        tern_safetensors *a = open_newest(run_a, names[n]), *b = open_newest(run_b, names[n]);
        assert_true(a->count > 0);
        assert_int_equal(a->count, b->count);
        for (uint32_t i = 0; i < a->count; i++) {
            const tern_safetensor *x = &a->tensors[i], *y = tern_safetensors_find(b, x->name);
            if (!y || x->bytes != y->bytes || memcmp(a->data + x->offset, b->data + y->offset, x->bytes) != 0)
                fail_msg("%s: \"%s\" is not the same in %s and %s", names[n], x->name, run_a, run_b);
        }
        tern_safetensors_close(a);
        tern_safetensors_close(b);
    }
}

double resume_distance(const char *run_a, const char *run_b)
{
    double difference = 0, norm = 0;
    tern_safetensors *a = open_newest(run_a, "model.safetensors"), *b = open_newest(run_b, "model.safetensors");
    for (uint32_t i = 0; i < a->count; i++) {
        const tern_safetensor *x = &a->tensors[i], *y = tern_safetensors_find(b, x->name);
        assert_non_null(y);
        for (uint64_t e = 0; e < x->bytes / 4; e++) {
            float u, v;
            memcpy(&u, a->data + x->offset + 4 * e, sizeof u);
            memcpy(&v, b->data + y->offset + 4 * e, sizeof v);
            difference += ((double)u - (double)v) * ((double)u - (double)v);
            norm += (double)v * (double)v;
        }
    }
    tern_safetensors_close(a);
    tern_safetensors_close(b);
    return sqrt(difference / norm);
}
