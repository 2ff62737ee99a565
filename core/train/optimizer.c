/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer.c - the table of kinds; names, customary numbers and the check of what a user gave. */
#include "core/train/optimizer.h"

#include <stdio.h>
#include <string.h>

#include "core/train/optimizer_build.h"

#define M TERN_MOMENT_M
#define V TERN_MOMENT_V

const tern_optimizer_info tern_optimizers[TERN_OPTIMIZER_COUNT] = {
    [TERN_OPTIMIZER_ADAMW] = {"adamw", M | V, true, false, tern_optimizer_build_adam},
    [TERN_OPTIMIZER_ADAM] = {"adam", M | V, true, false, tern_optimizer_build_adam},
    [TERN_OPTIMIZER_SGD] = {"sgd", M, false, false, tern_optimizer_build_sgd},
    [TERN_OPTIMIZER_LION] = {"lion", M, false, false, tern_optimizer_build_lion},
    [TERN_OPTIMIZER_ADAFACTOR] = {"adafactor", V, false, true, tern_optimizer_build_adafactor},
    [TERN_OPTIMIZER_MUON] = {"muon", M, true, true, tern_optimizer_build_muon},
};

static const tern_optimizer customary[TERN_OPTIMIZER_COUNT] = {
    [TERN_OPTIMIZER_ADAMW] = {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1},
    [TERN_OPTIMIZER_ADAM] = {.beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8},
    [TERN_OPTIMIZER_SGD] = {.momentum = 0.9},
    [TERN_OPTIMIZER_LION] = {.beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.1},
    [TERN_OPTIMIZER_ADAFACTOR] = {0},
    [TERN_OPTIMIZER_MUON] =
        {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1, .momentum = 0.95, .nesterov = true},
};

void tern_optimizer_init(tern_optimizer *out_optimizer, tern_optimizer_kind kind)
{
    *out_optimizer = customary[kind];
    out_optimizer->kind = (int32_t)kind;
}

tern_status tern_optimizer_parse(const char *name, tern_optimizer_kind *out_kind)
{
    char all[160] = "";
    size_t used = 0;
    for (int i = 0; i < TERN_OPTIMIZER_COUNT; i++) {
        if (strcmp(tern_optimizers[i].name, name) == 0) {
            *out_kind = (tern_optimizer_kind)i;
            return TERN_OK;
        }
        used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", i ? ", " : "", tern_optimizers[i].name);
    }
    return tern_error(TERN_ERROR_INVALID, "no optimizer is named \"%s\"; there are %s", name, all);
}

tern_status tern_optimizer_check(const tern_optimizer *o)
{
    if (o->kind < 0 || o->kind >= TERN_OPTIMIZER_COUNT)
        return tern_error(TERN_ERROR_INVALID, "optimizer %d does not exist; the kinds are 0 to %d", o->kind,
                          TERN_OPTIMIZER_COUNT - 1);
    const bool no_epsilon = !tern_optimizers[o->kind].epsilon;
    const struct {
        const char *name;
        double value;
        bool fine;
        const char *range;
    } checks[] = {
        {"beta1", o->beta1, o->beta1 >= 0 && o->beta1 < 1, "[0, 1)"},
        {"beta2", o->beta2, o->beta2 >= 0 && o->beta2 < 1, "[0, 1)"},
        {"epsilon", o->epsilon, no_epsilon || (o->epsilon > 0 && o->epsilon <= 1), "(0, 1]"},
        {"weight decay", o->weight_decay, o->weight_decay >= 0 && o->weight_decay <= 1e6, "[0, 1e6]"},
        {"momentum", o->momentum, o->momentum >= 0 && o->momentum < 1, "[0, 1)"},
    };
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
        if (!checks[i].fine)
            return tern_error(TERN_ERROR_INVALID, "%s is %g; it must lie in %s", checks[i].name, checks[i].value,
                              checks[i].range);
    if (o->kind == TERN_OPTIMIZER_ADAFACTOR && o->eight_bit)
        return tern_error(TERN_ERROR_INVALID,
                          "adafactor keeps a row and a column of each matrix instead of moments, so "
                          "8-bit moments save nothing; leave them off");
    return TERN_OK;
}

uint32_t tern_optimizer_moments(const tern_optimizer *optimizer, int32_t kind, bool matrix)
{
    if (kind == TERN_OPTIMIZER_ADAFACTOR && matrix) return 0;
    if (kind == TERN_OPTIMIZER_SGD && optimizer->momentum == 0) return 0;
    return tern_optimizers[kind].moments;
}
