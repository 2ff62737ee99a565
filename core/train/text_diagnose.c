/* SPDX-License-Identifier: Apache-2.0 */
/* text_diagnose.c - a window of text again, micro-batch by micro-batch, until one shows what is not finite. */
#include "core/train/text_trainer_internal.h"

tern_status tern_text_trainer_diagnose(tern_text_trainer *t, const tern_step_report *report,
                                       tern_diagnosis *out_diagnosis, uint32_t *out_micro)
{
    tern_status status = TERN_OK;
    tern_feed feeds[TERN_TEXT_FEEDS];
    const uint32_t batch = t->options.model.batch, micros = t->options.accumulate;
    *out_diagnosis = (tern_diagnosis){0};
    for (*out_micro = 0; *out_micro < micros; ++*out_micro) {
        tern_data_fill(&t->data, (report->attempt * micros + *out_micro) * batch, &t->eval_batch);
        tern_text_feeds(t, &t->eval_batch, feeds);
        TERN_TRY(tern_stepper_diagnose(t->stepper, feeds, TERN_TEXT_FEEDS, report->attempt, *out_micro * batch,
                                       out_diagnosis));
        if (out_diagnosis->found) break;
    }
fail:
    return status;
}
