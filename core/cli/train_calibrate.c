/* SPDX-License-Identifier: Apache-2.0 */
/* train_calibrate.c - see train_calibrate.h. */
#include "core/cli/train_calibrate.h"

#include <stddef.h>

void tern_train_calibrate_take(tern_train_calibrate *c, tern_text_trainer *trainer)
{
    tern_calibration latest;
    tern_stepper_calibration(tern_text_trainer_stepper(trainer), &latest);
    if (latest.valid) c->recent[latest.attempt % 2] = latest;
}

void tern_train_calibrate_attach(tern_train_calibrate *c, const tern_step_report *report, tern_progress *p)
{
    const tern_calibration *mine = &c->recent[report->attempt % 2];
    p->calibration = mine->valid && mine->attempt == report->attempt ? mine : NULL;
}

void tern_train_calibrate_judge(tern_train_calibrate *c, const tern_train_flags *f, const tern_step_report *report,
                                tern_progress *p)
{
    const tern_calibration *mine = p->calibration;
    const double limit = f->step.calibrate_limit;
    p->calibration = NULL;
    if (!mine || !(limit > 0) || report->skipped || (mine->loss_off <= limit && mine->norm_off <= limit)) return;
    c->stop = f->step.calibrate_stop;
    tern_progress_say(p, "tern: step %llu is further from f32 than --calibrate-limit %g; %s",
                      (unsigned long long)report->attempt + 1, limit,
                      c->stop ? "the run stops and is saved" : "lower --lr, or train with --precision f32");
}
