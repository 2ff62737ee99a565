/* SPDX-License-Identifier: Apache-2.0 */
/* train_resume.c - see train_resume.h. */
#include "core/cli/train_resume.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool same_folder(const char *a, const char *b)
{
    char *x = realpath(a, NULL), *y = realpath(b, NULL);
    const bool same = x && y && strcmp(x, y) == 0;
    free(x);
    free(y);
    return same;
}

/* The run in --out, which becomes this process's. anew: it may have been ended before it saved anything. */
static tern_status take_run(const char *out, bool anew, tern_train_origin *origin)
{
    tern_status status;
    TERN_TRY(tern_run_reopen(out, &origin->lock));
    origin->in_place = true;
    status = tern_checkpoints_open(out, &origin->checkpoint);
    if (status != TERN_ERROR_NOT_FOUND || !anew) return status;
    if (tern_run_look(out) == TERN_RUN_OLD || tern_run_has_weights(out))
        return tern_error(TERN_ERROR_INVALID,
                          "the run in %s has weights but no checkpoint, so it cannot be gone on with; give another "
                          "folder",
                          out);
    fprintf(stderr, "tern: the run in %s had saved nothing yet; it starts anew\n", out);
    return TERN_OK;
fail:
    return status;
}

static tern_status find(const tern_train_flags *f, tern_train_origin *origin)
{
    if (strcmp(f->resume, "never") == 0) return TERN_OK;
    if (strcmp(f->resume, "auto") == 0)
        return tern_run_look(f->out) == TERN_RUN_NOTHING ? TERN_OK : take_run(f->out, true, origin);
    if (f->out && same_folder(f->out, f->resume)) return take_run(f->out, false, origin);
    return tern_checkpoints_open(f->resume, &origin->checkpoint);
}

static tern_status check_steps(const tern_train_flags *f, tern_train_origin *origin)
{
    const tern_step_position *at = &origin->checkpoint->position;
    const uint64_t steps = (uint64_t)f->steps;
    if (at->attempt > steps || (at->attempt == steps && at->micros > 0))
        return tern_error(TERN_ERROR_INVALID, "%s has done %llu steps already, more than --steps %llu; give more",
                          origin->checkpoint->folder, (unsigned long long)at->attempt, (unsigned long long)steps);
    if (at->attempt < steps || (origin->in_place && !tern_run_has_ended(f->out))) return TERN_OK;
    fprintf(stderr, "tern: %s has done its %llu steps already; give more --steps to go on\n",
            origin->checkpoint->folder, (unsigned long long)steps);
    origin->complete = true;
    return TERN_OK;
}

tern_status tern_train_origin_find(const tern_train_flags *f, tern_train_origin *out_origin)
{
    tern_status status;
    *out_origin = (tern_train_origin){.lock = -1};
    TERN_TRY(find(f, out_origin));
    if (!out_origin->checkpoint) return TERN_OK;
    out_origin->resume = (tern_text_resume){
        .checkpoint = out_origin->checkpoint, .allow_other_data = f->allow_other_data, .new_settings = f->new_settings};
    TERN_TRY(check_steps(f, out_origin));
fail:
    return status;
}

void tern_train_origin_say(const tern_train_origin *origin, const tern_train_flags *f, const tern_text_info *info)
{
    if (!origin->checkpoint) return;
    char inside[48] = "";
    if (info->micros_done > 0) snprintf(inside, sizeof inside, " and %u micro-batches", info->micros_done);
    fprintf(stderr, "resume  after %llu steps%s, from %s, %s%s\n", (unsigned long long)info->steps_done, inside,
            origin->checkpoint->folder, info->tolerance[0] ? "within tolerance: " : "to the bit", info->tolerance);
    if (info->horizon != (uint64_t)f->steps)
        fprintf(stderr,
                "        the schedule stays that of %llu steps; --new-settings makes it one of %lld, from here on\n",
                (unsigned long long)info->horizon, (long long)f->steps);
}

void tern_train_origin_finish(tern_train_origin *origin)
{
    tern_checkpoint_close(origin->checkpoint);
    origin->checkpoint = NULL;
}
