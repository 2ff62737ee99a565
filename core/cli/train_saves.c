/* SPDX-License-Identifier: Apache-2.0 */
/* train_saves.c - see train_saves.h. */
#include "core/cli/train_saves.h"

#include <math.h>

#include "core/base/time.h"
#include "core/train/checkpoints.h"

#define RETRY_NS 60000000000ull /* after a failed save */

static void wind(tern_train_saves *s, bool failed)
{
    const double ns = s->flags->save_minutes * 60e9;
    const uint64_t wait = ns < 9e18 ? (uint64_t)ns : (uint64_t)9e18;
    s->next_ns = 0;
    if (ns > 0) s->next_ns = tern_time_ns() + (failed && wait > RETRY_NS ? RETRY_NS : wait);
}

void tern_train_saves_start(tern_train_saves *s, const tern_train_flags *flags, tern_text_trainer *trainer,
                            tern_progress *progress, bool in_place)
{
    *s = (tern_train_saves){.flags = flags, .trainer = trainer, .progress = progress, .best = NAN};
    if (in_place) {
        tern_text_info info;
        tern_text_trainer_info(trainer, &info);
        s->best = tern_checkpoints_best_loss(flags->out);
        s->any = true;
        s->step = info.steps_done;
        s->micro = info.micros_done;
    }
    wind(s, false);
}

bool tern_train_saves_due(tern_train_saves *s, uint64_t step)
{
    const tern_train_flags *f = s->flags;
    s->micros++;
    if (!f->out) return false;
    return (step > 0 && f->save_every > 0 && step % (uint64_t)f->save_every == 0) ||
           (f->save_every_micro > 0 && s->micros % (uint64_t)f->save_every_micro == 0) ||
           (s->next_ns > 0 && tern_time_ns() >= s->next_ns);
}

bool tern_train_saves_best(tern_train_saves *s, double val)
{
    if (!s->flags->out || !isfinite(val) || val >= s->best) return false;
    s->best = val;
    return true;
}

/* Reasons that may be gone the next time. */
static bool is_passing(tern_status status) { return status == TERN_ERROR_IO || status == TERN_ERROR_MEMORY; }

tern_status tern_train_saves_make(tern_train_saves *s, double val, bool spoilt, bool last)
{
    tern_text_info info;
    const tern_text_save how = {
        .flags_json = s->flags->text, .keep = (uint32_t)s->flags->keep, .val_loss = val, .spoilt = spoilt};
    tern_text_trainer_info(s->trainer, &info);
    if (!s->flags->out || (s->any && s->step == info.steps_done && s->micro == info.micros_done)) return TERN_OK;
    const uint64_t begin = tern_time_ns();
    tern_status status = tern_text_trainer_save(s->trainer, s->flags->out, &how);
    tern_progress_pause(s->progress, tern_time_ns() - begin);
    wind(s, status < 0);
    if (status >= 0) {
        s->any = true;
        s->step = info.steps_done;
        s->micro = info.micros_done;
    }
    if (status >= 0 || last || !is_passing(status)) return status;
    tern_progress_say(s->progress, "tern: no checkpoint was made after step %llu: %s; the run goes on and tries again",
                      (unsigned long long)info.steps_done, tern_error_message());
    return TERN_OK;
}
