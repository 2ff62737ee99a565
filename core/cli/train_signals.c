/* SPDX-License-Identifier: Apache-2.0 */
/* train_signals.c - the handlers; train_signals.h has the rules. They call only what a handler may: write and _exit. */
#include "core/cli/train_signals.h"

#include <errno.h>
#include <stddef.h>
#include <unistd.h>

#define SAID "tern: stopping after this step (once more stops at once)\n"

volatile sig_atomic_t tern_stop_signal;

static volatile sig_atomic_t line_open; /* stderr is a terminal, whose line may hold progress */

static void on_signal(int number)
{
    const int error = errno;
    if (tern_stop_signal) _exit(128 + number); /* saved files are replaced whole, so the last save is intact */
    tern_stop_signal = number;
    if ((line_open && write(STDERR_FILENO, "\n", 1) < 0) || write(STDERR_FILENO, SAID, sizeof SAID - 1) < 0)
        line_open = 0; /* nobody reads */
    errno = error;
}

static void catch_one(int number, const struct sigaction *action)
{
    struct sigaction old;
    if (sigaction(number, NULL, &old) == 0 && old.sa_handler != SIG_IGN) sigaction(number, action, NULL);
}

void tern_signals_catch(void)
{
    struct sigaction stop = {.sa_handler = on_signal, .sa_flags = (int)SA_RESTART}, ignore = {.sa_handler = SIG_IGN};
    sigemptyset(&stop.sa_mask);
    sigemptyset(&ignore.sa_mask);
    tern_stop_signal = 0;
    line_open = isatty(STDERR_FILENO) == 1;
    catch_one(SIGINT, &stop);
    catch_one(SIGTERM, &stop);
    catch_one(SIGHUP, &stop);
    sigaction(SIGPIPE, &ignore, NULL);
    sigaction(SIGXFSZ, &ignore, NULL);
}
