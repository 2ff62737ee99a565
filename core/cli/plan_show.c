/* SPDX-License-Identifier: Apache-2.0 */
/* plan_show.c - a plan as a table and as JSON; both hold the same numbers. */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/cli/plan.h"
#include "core/kernel/census.h"

#define ROW_COUNT 9

typedef struct row {
    const char *name, *key;
    uint64_t bytes;
} row;

static void memory_rows(const tern_cli_estimate *plan, row rows[ROW_COUNT])
{
    const tern_setup_memory *m = &plan->memory;
    const row filled[ROW_COUNT] = {
        {"weights", "weights", m->weights},
        {"16-bit weights", "low", m->low},
        {"gradients", "gradients", m->gradients},
        {"moments", "moments", m->moments},
        {"states", "states", m->states},
        {"arena (below)", "arena", m->arena},
        {"upload slots", "upload", m->upload},
        {"read-back slots", "readback", m->readback},
        {"total", "total", m->total},
    };
    memcpy(rows, filled, sizeof filled);
}

/* What lies in the arena when the micro program's peak is reached. */
static const struct {
    tern_value_kind kind;
    const char *name;
} arena_kinds[] = {
    {TERN_VALUE_INPUT, "inputs"},
    {TERN_VALUE_ACTIVATION, "activations"},
    {TERN_VALUE_GRADIENT, "gradients of activations"},
    {TERN_VALUE_SCRATCH, "scratch"},
};
#define ARENA_KIND_COUNT (sizeof arena_kinds / sizeof *arena_kinds)

static double share(uint64_t used, uint64_t limit) { return limit ? 100.0 * (double)used / (double)limit : 0; }

static void show_memory(const tern_cli_estimate *plan)
{
    row rows[ROW_COUNT];
    char text[24], other[24];
    memory_rows(plan, rows);
    printf("device memory\n");
    for (size_t i = 0; i < ROW_COUNT; i++)
        printf("  %-26s %12s  %15llu bytes\n", rows[i].name, tern_cli_bytes(rows[i].bytes, text),
               (unsigned long long)rows[i].bytes);
    printf("  %-26s %12s  %15llu bytes\n\n", "free", tern_cli_bytes(plan->memory.budget, text),
           (unsigned long long)plan->memory.budget);
    const tern_plan *micro = plan->setup->programs[TERN_PROGRAM_MICRO].plan;
    printf("arena at its fullest, in launch %u, %s\n", micro->peak_launch, tern_plan_peak_label(micro));
    for (size_t i = 0; i < ARENA_KIND_COUNT; i++)
        printf("  %-26s %12s  %15llu bytes\n", arena_kinds[i].name,
               tern_cli_bytes(plan->demand.bytes[arena_kinds[i].kind], text),
               (unsigned long long)plan->demand.bytes[arena_kinds[i].kind]);
    printf("\nlimit     %s binds: %s of %s, %.1f %%; the largest kernel argument is %s", plan->demand.limit_name,
           tern_cli_bytes(plan->demand.limit_used_bytes, text), tern_cli_bytes(plan->demand.limit_bytes, other),
           share(plan->demand.limit_used_bytes, plan->demand.limit_bytes), plan->demand.largest_range_name);
    printf(" with %s\n\n", tern_cli_bytes(plan->demand.largest_range_bytes, text));
}

/* Which dtypes the micro program multiplies and stores. */
static void show_dtypes(const tern_cli_estimate *plan)
{
    tern_census census[TERN_U32 + 1];
    tern_lowered_census(plan->setup->programs[TERN_PROGRAM_MICRO].lowered, census);
    printf("floats    %s\n", plan->precision.reason);
    for (int32_t dtype = TERN_F32; dtype <= TERN_BF16; dtype++) {
        char text[24];
        if (!census[dtype].contractions && !census[dtype].tensors) continue;
        printf("  %-4s  %5u contractions  %5u stored tensors, %s in all\n", tern_dtype(dtype)->name,
               census[dtype].contractions, census[dtype].tensors, tern_cli_bytes(census[dtype].bytes, text));
    }
    printf("\n");
}

static double predicted_step(const tern_cli_estimate *plan)
{
    return plan->setup->programs[TERN_PROGRAM_MICRO].plan->predicted_seconds +
           plan->setup->programs[TERN_PROGRAM_UPDATE].plan->predicted_seconds;
}

static double tokens_per_step(const tern_cli_estimate *plan) { return (double)plan->shape.batch * plan->shape.context; }

static void show_programs(const tern_cli_estimate *plan)
{
    printf("program   launches  submissions  arena used    predicted\n");
    for (int i = 0; i < TERN_PROGRAM_COUNT; i++) {
        const tern_program *program = &plan->setup->programs[i];
        char text[24];
        if (!program->plan) continue;
        printf("%-8s  %8u  %11u  %10s  %9.4g s\n", tern_program_names[i], program->lowered->launch_count,
               program->plan->cut_count + 1u, tern_cli_bytes(program->plan->live_peak_bytes, text),
               program->plan->predicted_seconds);
    }
    printf("\n%u launches per transformer block, forward and backward; %u kernels in all\n", plan->block_launches,
           plan->kernels);
    printf("predicted step %.4g s, %.0f tokens/s at best\n", predicted_step(plan),
           tokens_per_step(plan) / predicted_step(plan));
}

void tern_cli_plan_show(const tern_cli_estimate *plan)
{
    const tern_gpt2_options *s = &plan->shape;
    char parameters[24];
    printf("model     %s parameters: %u layers, width %u, %u heads, vocabulary %u\n",
           tern_cli_count(tern_gpt2_parameter_count(s), parameters), s->layers, s->width, s->heads, s->vocab);
    printf("step      %.0f tokens: %u window%s of %u\n", tokens_per_step(plan), s->batch, s->batch == 1 ? "" : "s",
           s->context);
    printf("device    %s\n\n", tern_device_name(plan->device));
    show_dtypes(plan);
    show_memory(plan);
    show_programs(plan);
    if (!plan->fits) printf("\ndoes not fit: %s\n", plan->refusal);
}

/* --------------------------------------------------------------------- JSON */

static bool add(cJSON *json, const char *name, double value)
{
    return json && cJSON_AddNumberToObject(json, name, value) != NULL;
}

static bool add_shape(cJSON *parent, const char *name, const tern_gpt2_options *s)
{
    cJSON *json = cJSON_AddObjectToObject(parent, name);
    return add(json, "layers", s->layers) && add(json, "width", s->width) && add(json, "heads", s->heads) &&
           add(json, "context", s->context) && add(json, "batch", s->batch) && add(json, "vocab", s->vocab) &&
           add(json, "parameters", (double)tern_gpt2_parameter_count(s));
}

static bool add_dtypes(cJSON *parent, const tern_cli_estimate *plan)
{
    tern_census census[TERN_U32 + 1];
    cJSON *precision = cJSON_AddObjectToObject(parent, "precision");
    if (!precision || !cJSON_AddStringToObject(precision, "dtype", tern_dtype(plan->precision.dtype)->name) ||
        !cJSON_AddStringToObject(precision, "reason", plan->precision.reason))
        return false;
    tern_lowered_census(plan->setup->programs[TERN_PROGRAM_MICRO].lowered, census);
    for (int32_t dtype = TERN_F32; dtype <= TERN_BF16; dtype++) {
        cJSON *json = cJSON_AddObjectToObject(precision, tern_dtype(dtype)->name);
        if (!add(json, "contractions", census[dtype].contractions) || !add(json, "tensors", census[dtype].tensors) ||
            !add(json, "bytes", (double)census[dtype].bytes))
            return false;
    }
    return true;
}

static bool add_memory(cJSON *parent, const tern_cli_estimate *plan)
{
    row rows[ROW_COUNT];
    cJSON *bytes = cJSON_AddObjectToObject(parent, "bytes");
    cJSON *peak = cJSON_AddObjectToObject(parent, "arena_peak_bytes");
    memory_rows(plan, rows);
    for (size_t i = 0; i < ROW_COUNT; i++)
        if (!add(bytes, rows[i].key, (double)rows[i].bytes)) return false;
    for (size_t i = 0; i < ARENA_KIND_COUNT; i++)
        if (!add(peak, arena_kinds[i].name, (double)plan->demand.bytes[arena_kinds[i].kind])) return false;
    const tern_plan *micro = plan->setup->programs[TERN_PROGRAM_MICRO].plan;
    cJSON *limit = cJSON_AddObjectToObject(parent, "limit");
    return add(bytes, "free", (double)plan->memory.budget) &&
           cJSON_AddStringToObject(parent, "peak_launch", tern_plan_peak_label(micro)) && limit &&
           cJSON_AddStringToObject(limit, "name", plan->demand.limit_name) &&
           add(limit, "used", (double)plan->demand.limit_used_bytes) &&
           add(limit, "bytes", (double)plan->demand.limit_bytes);
}

static bool add_programs(cJSON *parent, const tern_cli_estimate *plan)
{
    cJSON *list = cJSON_AddObjectToObject(parent, "programs");
    for (int i = 0; list && i < TERN_PROGRAM_COUNT; i++) {
        const tern_program *program = &plan->setup->programs[i];
        if (!program->plan) continue;
        cJSON *json = cJSON_AddObjectToObject(list, tern_program_names[i]);
        if (!add(json, "launches", program->lowered->launch_count) ||
            !add(json, "submissions", program->plan->cut_count + 1u) ||
            !add(json, "live_peak_bytes", (double)program->plan->live_peak_bytes) ||
            !add(json, "predicted_s", program->plan->predicted_seconds))
            return false;
    }
    return list && add(parent, "launches_per_block", plan->block_launches) && add(parent, "kernels", plan->kernels) &&
           add(parent, "predicted_step_s", predicted_step(plan)) &&
           add(parent, "predicted_tokens_per_s", tokens_per_step(plan) / predicted_step(plan));
}

tern_status tern_cli_plan_json(const tern_cli_estimate *plan)
{
    tern_status status = TERN_OK;
    char *text = NULL;
    cJSON *json = cJSON_CreateObject();
    bool complete = json && add_shape(json, "model", &plan->shape) &&
                    cJSON_AddStringToObject(json, "device", tern_device_name(plan->device)) &&
                    cJSON_AddBoolToObject(json, "fits", plan->fits) && add_dtypes(json, plan) &&
                    add_memory(json, plan) && add_programs(json, plan);
    if (complete && !plan->fits) complete = cJSON_AddStringToObject(json, "reason", plan->refusal) != NULL;
    if (complete && plan->has_nearest) complete = add_shape(json, "nearest", &plan->nearest);
    text = complete ? cJSON_Print(json) : NULL;
    if (!text)
        status = tern_error_memory("the plan's JSON", 4096);
    else
        printf("%s\n", text);
    cJSON_free(text);
    cJSON_Delete(json);
    return status;
}
