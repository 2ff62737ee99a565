/* SPDX-License-Identifier: Apache-2.0 */
/* check.c - the cases of `tern check` of one dtype, as many as the time allows.
 *
 * They are taken in strides over the whole list, so that a part of it is a part of every kind of operation. A device
 * that computes wrongly makes the section "failed": its speeds mean nothing. */
#include "bench/device/device.h"

#include "core/base/dtype.h"
#include "core/base/time.h"
#include "core/cli/check.h"

#include <stdio.h>
#include <string.h>

#define STRIDE 17 /* a prime, so that neighbours in the list are not all of one operation */
#define NAMED  8  /* failures that are named */
#define SEED   1

typedef struct tally {
    uint32_t cases, passed, failed, skipped, left_out, tensors;
    char first[768];
    cJSON *names;
} tally;

static bool is_chosen(const tern_check_case *c, int32_t dtype)
{
    const bool is_float = c->dtype == TERN_F32 || tern_dtype_is_16bit_float(c->dtype);
    return dtype ? c->dtype == dtype : !is_float;
}

static void count(tally *t, const tern_check_case *c, const tern_check_result *result)
{
    t->tensors += result->tensors;
    if (!result->value_failed && !result->gradient_failed) {
        t->passed += !result->skipped;
        t->skipped += result->skipped;
        return;
    }
    if (t->failed++ == 0) snprintf(t->first, sizeof t->first, "%s %s: %s", c->op, c->name, result->reason);
    if (t->failed > NAMED) return;
    char name[160];
    snprintf(name, sizeof name, "%s %s %s", c->op, c->name, tern_dtype(c->dtype)->name);
    cJSON_AddItemToArray(t->names, cJSON_CreateString(name));
}

/* Returns false when the device is gone, so that no further case makes sense. */
static bool run_case(const device_task *task, const tern_check_case *c, tally *t)
{
    tern_check_result result;
    const tern_status status = tern_check_run(task->device, c, SEED, &result);
    if (status < 0) {
        result.value_failed = true;
        snprintf(result.reason, sizeof result.reason, "%s", tern_error_message());
    }
    count(t, c, &result);
    return status != TERN_ERROR_DEVICE_LOST && status != TERN_ERROR_TIMEOUT;
}

static void run_cases(const device_task *task, tally *t)
{
    bool going = true;
    const uint64_t start = tern_time_ns();
    for (uint32_t turn = 0; turn < STRIDE; turn++) {
        size_t position = 0;
        tern_check_case c;
        for (uint32_t i = 0; tern_check_next(&position, &c);) {
            if (!is_chosen(&c, task->dtype) || i++ % STRIDE != turn) continue;
            t->cases++;
            going = going && 1e-9 * (double)(tern_time_ns() - start) < task->seconds;
            if (going)
                going = run_case(task, &c, t);
            else
                t->left_out++;
        }
    }
}

tern_status device_measure_check(const device_task *task, cJSON *section)
{
    char reason[1024];
    cJSON *figure = device_add_figure(section, "cases");
    tally t = {.names = cJSON_AddArrayToObject(figure, "failures")};
    run_cases(task, &t);
    cJSON_AddNumberToObject(figure, "cases", t.cases);
    cJSON_AddNumberToObject(figure, "passed", t.passed);
    cJSON_AddNumberToObject(figure, "failed", t.failed);
    cJSON_AddNumberToObject(figure, "skipped", t.skipped);
    cJSON_AddNumberToObject(figure, "left_out", t.left_out);
    cJSON_AddNumberToObject(figure, "tensors", t.tensors);
    if (t.failed == 0 && t.passed > 0) return TERN_OK;
    snprintf(reason, sizeof reason, "%u of %u cases failed, the first: %s", t.failed, t.cases - t.left_out, t.first);
    if (t.failed == 0) return tern_error(TERN_ERROR_UNSUPPORTED, "no case could be run");
    cJSON_AddStringToObject(section, "status", "failed");
    cJSON_AddStringToObject(section, "reason", reason);
    return TERN_OK;
}
