/* SPDX-License-Identifier: Apache-2.0 */
/* train_optimizer.c - see train_optimizer.h. */
#include "core/cli/train_optimizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void tern_train_optimizer_init(tern_train_optimizer_flags *f, tern_cli_option out_rows[TERN_TRAIN_OPTIMIZER_ROWS])
{
    *f = (tern_train_optimizer_flags){.optimizer = tern_optimizers[TERN_OPTIMIZER_ADAMW].name,
                                      .moments = "f32",
                                      .masters = "f32",
                                      .momentum = NAN,
                                      .weight_decay = NAN};
    const tern_cli_option rows[TERN_TRAIN_OPTIMIZER_ROWS] = {
        {"optimizer", TERN_CLI_TEXT, &f->optimizer, "NAME", 0, 0, "adamw, adam, sgd, lion, adafactor or muon"},
        {"momentum", TERN_CLI_REAL, &f->momentum, "X", 0, 0.999999, "of sgd and muon (default the optimizer's)"},
        {"weight-decay", TERN_CLI_REAL, &f->weight_decay, "X", 0, 1000,
         "of matrices only (default the optimizer's, 0.1 for adamw)"},
        {"groups", TERN_CLI_TEXT, &f->groups, "RULES", 0, 0,
         "by parameter names, as '*.h.0.*:lr=0.1,decay=0;*.bias:frozen': lr is a factor, the first match decides"},
        {"moments", TERN_CLI_TEXT, &f->moments, "TYPE", 0, 0, "f32, or 8bit: one byte each, a scale per 256"},
        {"masters", TERN_CLI_TEXT, &f->masters, "TYPE", 0, 0,
         "f32 weights beside those of --precision, or none: 16-bit weights alone, rounded by chance"},
    };
    memcpy(out_rows, rows, sizeof rows);
}

/* Which of the two words: TERN_CLI_GO, or the exit code after saying that it is neither. */
static int either(const char *command, const char *flag, const char *text, const char *no, const char *yes,
                  bool *out_yes)
{
    *out_yes = strcmp(text, yes) == 0;
    if (*out_yes || strcmp(text, no) == 0) return TERN_CLI_GO;
    return tern_cli_misuse("%s: --%s is %s; it must be %s or %s", command, flag, text, no, yes);
}

int tern_train_optimizer_settle(const char *command, tern_train_optimizer_flags *f)
{
    tern_optimizer_kind kind;
    if (tern_optimizer_parse(f->optimizer, &kind) < 0)
        return tern_cli_misuse("%s: --optimizer: %s", command, tern_error_message());
    tern_optimizer_init(&f->numbers, kind);
    int code = either(command, "moments", f->moments, "f32", "8bit", &f->numbers.eight_bit);
    if (code == TERN_CLI_GO) code = either(command, "masters", f->masters, "f32", "none", &f->no_masters);
    if (code != TERN_CLI_GO) return code;
    if (isnan(f->weight_decay)) f->weight_decay = f->numbers.weight_decay;
    if (isnan(f->momentum)) f->momentum = f->numbers.momentum;
    f->numbers.weight_decay = f->weight_decay;
    f->numbers.momentum = f->momentum;
    if (tern_parameter_groups_parse(f->groups, &f->rules, &f->rule_count) < 0)
        return tern_cli_misuse("%s: --groups: %s", command, tern_error_message());
    return TERN_CLI_GO;
}

void tern_train_optimizer_finish(tern_train_optimizer_flags *f)
{
    free(f->rules);
    f->rules = NULL;
}
