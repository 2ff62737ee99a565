/* SPDX-License-Identifier: Apache-2.0 */
/* train_skips.c - see train_skips.h. */
#include "core/cli/train_skips.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Adds a blank and the word as a shell reads it to what was allocated; NULL when out of memory. */
static char *add_word(char *line, const char *word)
{
    char *quoted = line ? tern_cli_quote(word) : NULL;
    const size_t used = line ? strlen(line) : 0;
    char *longer = quoted ? realloc(line, used + strlen(quoted) + 2) : NULL;
    if (!longer) free(line);
    if (longer) sprintf(longer + used, " %s", quoted);
    free(quoted);
    return longer;
}

static const char *value_of(int argc, char **argv, const char *flag)
{
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], flag) == 0) return argv[i + 1];
    return NULL;
}

/* "tern train --data x ..." that runs into it again; free() it. Without --out, whose folder holds a run by now; a run
 * that went on from that folder's checkpoints does so again. NULL when out of memory. */
static char *repeat_command(int argc, char **argv)
{
    const char *out = value_of(argc, argv, "--out");
    char *line = strdup("tern");
    for (int i = 0; line && i < argc; i++) {
        const bool resumes = i > 0 && strcmp(argv[i - 1], "--resume") == 0 && strcmp(argv[i], "auto") == 0;
        if (i + 1 < argc && strcmp(argv[i], "--out") == 0)
            i++;
        else
            line = add_word(line, resumes && out ? out : argv[i]);
    }
    return line;
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
    char *command = repeat_command(argc, argv);
    if (command) tern_progress_say(p, "tern: to see it again: %s", command);
    free(command);
}
