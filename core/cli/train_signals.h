/* SPDX-License-Identifier: Apache-2.0 */
/* train_signals.h - what a signal does to a run: the first one ends it in order, the second one at once.
 *
 *     INT, TERM, HUP   first: the flag is set and it is said; second: the process ends with 128 + signal
 *     PIPE             ignored: a reader that went away is a failed write, which ends the run in order
 *     XFSZ             ignored: a file that may not grow is a failed write, as on a full disk
 *
 * A signal that was ignored when tern started (a job in the background, nohup) stays ignored. What it is not: it ends
 * no loop, it saves nothing (cli/train.c). */
#ifndef TERN_CLI_TRAIN_SIGNALS_H
#define TERN_CLI_TRAIN_SIGNALS_H

#include <signal.h>

/* The signal that came; 0: none yet. */
extern volatile sig_atomic_t tern_stop_signal;

void tern_signals_catch(void);

#endif
