/* SPDX-License-Identifier: Apache-2.0 */
/* train_skips.h - the end of a run whose steps are not finite any more, and what it says.
 *
 *     report ... report ── skips in a row >= --max-skips ──> stop ──> the tensor, the micro-batch, the command again
 *
 * A skipped step changed nothing, so such a run is saved like any other. */
#ifndef TERN_CLI_TRAIN_SKIPS_H
#define TERN_CLI_TRAIN_SKIPS_H

#include "core/cli/train_flags.h"
#include "core/cli/train_progress.h"

/* Names the first tensor that is not finite in the report's window, on stderr, or why it cannot be named; and the
 * command that shows it again, made of argv. */
void tern_train_skips_say(tern_progress *progress, tern_text_trainer *trainer, const tern_step_report *report, int argc,
                          char **argv);

#endif
