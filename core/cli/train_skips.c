/* SPDX-License-Identifier: Apache-2.0 */
/* train_skips.c - see train_skips.h. */
#include "core/cli/train_skips.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "tern train --data x ..." as a shell reads it; free() it. NULL when out of memory. */
static char *join_command(int argc, char **argv)
{
    size_t used = 0;
    char *all = strdup("tern");
    for (int i = 0; all && i < argc; i++) {
        char *word = tern_cli_quote(argv[i]);
        used = strlen(all);
        char *longer = word ? realloc(all, used + strlen(word) + 2) : NULL;
        if (!longer) free(all);
        all = longer;
        if (all) sprintf(all + used, " %s", word);
        free(word);
    }
    return all;
}

void tern_train_skips_say(tern_progress *p, tern_text_trainer *trainer, const tern_step_report *report, int argc,
                          char **argv)
{
    tern_diagnosis diagnosis;
    char tensor[512], floor[64] = "";
    uint32_t micro = 0;
    if (report->at_floor)
        snprintf(floor, sizeof floor, " and the loss scale is at its floor, 2^%.0f", log2(report->scale));
    tern_progress_say(p, "tern: the last %u steps, up to step %llu, were not finite%s; the run stops",
                      report->skips_in_row, (unsigned long long)report->attempt + 1, floor);
    if (tern_text_trainer_diagnose(trainer, report, &diagnosis, &micro) < 0) {
        tern_progress_say(p, "tern: the tensor cannot be named: %s", tern_error_message());
    } else {
        tern_diagnosis_print(&diagnosis, tensor, sizeof tensor);
        if (diagnosis.found)
            tern_progress_say(p, "tern: the first tensor that is not finite is %s, in micro-batch %u of that step",
                              tensor, micro + 1);
        else
            tern_progress_say(p, "tern: of the last micro-batch %s, so a sum over the step overflowed", tensor);
    }
    char *command = join_command(argc, argv);
    if (command) tern_progress_say(p, "tern: to see it again: %s", command);
    free(command);
}
