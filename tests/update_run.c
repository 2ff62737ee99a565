/* SPDX-License-Identifier: Apache-2.0 */
/* update_run.c - see update_run.h. */
#include "tests/update_run.h"
#include "tests/test.h"

#include <stdlib.h>

#include "core/base/philox.h"
#include "core/passes/accumulate.h"
#include "core/train/optimizer_build.h"

static tern_graph *leaf_graph(void)
{
    tern_graph *graph = NULL;
    TEST_OK(tern_graph_create(&graph));
    (void)tern_parameter(graph, "w", 2, (const int64_t[]){40, 50}, TERN_INIT_NORMAL, 0.5);
    (void)tern_parameter(graph, "b", 1, (const int64_t[]){7}, TERN_INIT_ONES, 0);
    (void)tern_parameter(graph, "e", 2, (const int64_t[]){300, 2}, TERN_INIT_NORMAL, 1);
    tern_parameter_freeze(tern_parameter(graph, "f", 1, (const int64_t[]){9}, TERN_INIT_UNIFORM, 2));
    (void)tern_parameter(graph, "g", 1, (const int64_t[]){600}, TERN_INIT_ONES, 0);
    TEST_OK(tern_graph_status(graph));
    return graph;
}

static void write_states(update_run *run)
{
    const float scale = 1;
    const tern_optimizer *o = &run->layout->options.optimizer;
    const uint32_t rows = tern_optimizer_table_rows(o);
    float *table = malloc(rows * 2 * sizeof *table);
    assert_non_null(table);
    tern_optimizer_table_fill(o, rows, table);
    TEST_OK(tern_store_write(run->store, TERN_STATE_TABLE, table, rows * 2 * sizeof *table));
    TEST_OK(tern_store_write(run->store, TERN_STATE_SCALE, &scale, sizeof scale));
    free(table);
}

void update_run_start(update_run *run, tern_device *device, const tern_store_options *options)
{
    tern_binding *bindings = NULL;
    uint32_t count = 0;
    const tern_update_options update = {.clip = 0};
    tern_store_options mine = *options;
    if (mine.segment_bytes == 0) mine.segment_bytes = TERN_STORE_CHUNK * sizeof(float);
    mine.training = true;
    *run = (update_run){.device = device, .leaves = leaf_graph()};
    TEST_OK(tern_store_layout_create(run->leaves, &device->info, &mine, &run->layout));
    TEST_OK(tern_graph_create(&run->graph));
    TEST_OK(tern_update_build(run->graph, run->layout, &update));
    TEST_OK(tern_store_layout_add(run->layout, run->graph));
    TEST_OK(tern_store_create(device, run->layout, 7, &run->store));
    write_states(run);
    TEST_OK(tern_store_bind(run->store, run->graph, &bindings, &count));
    const tern_session_options session = {.bindings = bindings, .binding_count = count};
    TEST_OK(tern_session_create(device, run->graph, &session, &run->session));
    free(bindings);
}

void update_run_stop(update_run *run)
{
    tern_session_destroy(run->session);
    tern_store_destroy(run->store);
    tern_store_layout_destroy(run->layout);
    tern_graph_destroy(run->graph);
    tern_graph_destroy(run->leaves);
}

void update_run_window(update_run *run, float n, float lr)
{
    uint32_t control[TERN_CONTROL_WORDS] = {0};
    tern_philox_step_key(5, run->attempt, &control[TERN_CONTROL_KEY0]);
    control[TERN_CONTROL_ATTEMPT] = run->attempt++;
    memcpy(&control[TERN_CONTROL_LR], &lr, sizeof lr);
    TEST_OK(tern_session_write(run->session, TERN_CONTROL_NAME, control, sizeof control));
    TEST_OK(tern_store_write(run->store, TERN_STATE_N, &n, sizeof n));
    TEST_OK(tern_session_run(run->session));
}

void update_run_fill(update_run *run, float amount, float shift)
{
    float values[2000];
    for (uint32_t i = 0; i < run->layout->parameter_count; i++) {
        char name[32];
        const tern_store_parameter *p = &run->layout->parameters[i];
        if (!run->layout->segments[p->segment].trainable) continue;
        for (uint64_t k = 0; k < p->count; k++) values[k] = amount * (float)sin((double)k + (double)shift);
        snprintf(name, sizeof name, "acc.%s", p->name);
        TEST_OK(tern_store_write(run->store, name, values, p->bytes));
    }
}

void *update_run_read(const update_run *run, const char *name, uint64_t *out_bytes)
{
    tern_binding at;
    TEST_OK(tern_store_find(run->store, name, &at));
    void *data = malloc(at.bytes);
    assert_non_null(data);
    TEST_OK(tern_store_read(run->store, name, data, at.bytes));
    *out_bytes = at.bytes;
    return data;
}

static void append(const update_run *run, const char *name, unsigned char **all, uint64_t *bytes)
{
    uint64_t more;
    void *one = update_run_read(run, name, &more);
    *all = realloc(*all, *bytes + more);
    assert_non_null(*all);
    memcpy(*all + *bytes, one, more);
    *bytes += more;
    free(one);
}

unsigned char *update_run_kept(const update_run *run, uint64_t *out_bytes)
{
    unsigned char *all = NULL;
    char name[48];
    *out_bytes = 0;
    for (int slab = 0; slab < TERN_SLAB_COUNT; slab++)
        for (uint32_t i = 0; i < run->layout->segment_count; i++) {
            if (slab == TERN_SLAB_ACC || tern_store_layout_count(run->layout, i, (tern_store_slab)slab) == 0) continue;
            snprintf(name, sizeof name, "slab.%s.%u", tern_store_slab_names[slab], i);
            append(run, name, &all, out_bytes);
        }
    for (uint32_t i = 0; i < run->layout->state_count; i++)
        if (strncmp(run->layout->states[i].name, "row.", 4) == 0 ||
            strncmp(run->layout->states[i].name, "column.", 7) == 0)
            append(run, run->layout->states[i].name, &all, out_bytes);
    return all;
}
