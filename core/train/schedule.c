/* SPDX-License-Identifier: Apache-2.0 */
/* schedule.c - one function per kind over the way from warm-up to the last step; computed in double on the host. */
#include "core/train/schedule.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define DECAY_DEFAULT 0.2

static double cosine(const tern_schedule *s, double p)
{
    (void)s;
    return 0.5 * (1.0 + cos(3.14159265358979323846 * p));
}

static double constant(const tern_schedule *s, double p)
{
    (void)s;
    (void)p;
    return 1.0;
}

static double linear(const tern_schedule *s, double p)
{
    (void)s;
    return 1.0 - p;
}

static double wsd(const tern_schedule *s, double p)
{
    const double decay = s->decay > 0 ? s->decay : DECAY_DEFAULT;
    return p <= 1.0 - decay ? 1.0 : (1.0 - p) / decay;
}

const tern_schedule_info tern_schedules[TERN_SCHEDULE_COUNT] = {
    [TERN_SCHEDULE_COSINE] = {"cosine", cosine, "half a cosine down to the minimum"},
    [TERN_SCHEDULE_CONSTANT] = {"constant", constant, "no way down"},
    [TERN_SCHEDULE_LINEAR] = {"linear", linear, "a straight line down to the minimum"},
    [TERN_SCHEDULE_WSD] = {"wsd", wsd, "level, then a straight line down over the last part"},
};

tern_status tern_schedule_parse(const char *name, tern_schedule_kind *out_kind)
{
    char names[96] = "";
    for (int k = 0; k < TERN_SCHEDULE_COUNT; k++) {
        if (strcmp(name, tern_schedules[k].name) == 0) {
            *out_kind = (tern_schedule_kind)k;
            return TERN_OK;
        }
        const size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", k ? ", " : "", tern_schedules[k].name);
    }
    return tern_error(TERN_ERROR_NOT_FOUND, "there is no schedule \"%s\"; the schedules are %s", name, names);
}

tern_status tern_schedule_check(const tern_schedule *s)
{
    if (!((int)s->kind >= 0 && s->kind < TERN_SCHEDULE_COUNT))
        return tern_error(TERN_ERROR_INVALID, "schedule %d does not exist; the kinds are 0 to %d", (int)s->kind,
                          TERN_SCHEDULE_COUNT - 1);
    if (!(s->lr > 0 && s->lr <= 1e3 && s->min_lr >= 0 && s->min_lr <= s->lr))
        return tern_error(TERN_ERROR_INVALID,
                          "the learning rate %g must lie in (0, 1000], and its minimum %g between 0 and it", s->lr,
                          s->min_lr);
    if (!(s->decay >= 0 && s->decay <= 1))
        return tern_error(TERN_ERROR_INVALID, "the schedule's decay is %g; it must lie in [0, 1]", s->decay);
    return TERN_OK;
}

double tern_schedule_lr(const tern_schedule *s, uint64_t attempt)
{
    if (attempt < s->warmup) return s->lr * (double)(attempt + 1) / (double)s->warmup;
    if (s->kind == TERN_SCHEDULE_CONSTANT) return s->lr;
    if (attempt > 0 && attempt + 1 >= s->steps) return s->min_lr;
    if (attempt == s->warmup) return s->lr; /* also of a run of one step, which has no way down */
    const double p = (double)(attempt - s->warmup) / (double)(s->steps - 1 - s->warmup);
    return s->min_lr + (s->lr - s->min_lr) * tern_schedules[s->kind].shape(s, p);
}
