/* SPDX-License-Identifier: Apache-2.0 */
/* adamw.c - the host's part of AdamW: checking its numbers, and the bias-correction table in double. */
#include <math.h>

#include "core/train/update.h"

#define TABLE_MAX (1u << 20)

tern_status tern_adamw_check(const tern_adamw *adamw)
{
    const struct {
        const char *name;
        double value;
        bool fine;
        const char *range;
    } checks[] = {
        {"beta1", adamw->beta1, adamw->beta1 >= 0 && adamw->beta1 < 1, "[0, 1)"},
        {"beta2", adamw->beta2, adamw->beta2 >= 0 && adamw->beta2 < 1, "[0, 1)"},
        {"epsilon", adamw->epsilon, adamw->epsilon > 0 && adamw->epsilon <= 1, "(0, 1]"},
        {"weight decay", adamw->weight_decay, adamw->weight_decay >= 0 && adamw->weight_decay <= 1e6, "[0, 1e6]"},
        {"clip", adamw->clip, adamw->clip >= 0 && adamw->clip <= 1e30, "[0, 1e30]"},
    };
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
        if (!checks[i].fine)
            return tern_error(TERN_ERROR_INVALID, "%s is %g; it must lie in %s", checks[i].name, checks[i].value,
                              checks[i].range);
    return TERN_OK;
}

/* The first t whose beta^t < 2^-25: there 1 / (1 - beta^t) rounds to 1. A gather clamps later ones to the last row. */
static double rows_for(double beta) { return beta > 0 ? ceil(-25.0 * log(2.0) / log(beta)) + 1 : 1; }

uint32_t tern_adamw_table_rows(const tern_adamw *adamw)
{
    double rows = fmax(rows_for(adamw->beta1), rows_for(adamw->beta2));
    return rows < TABLE_MAX ? (uint32_t)rows : TABLE_MAX;
}

void tern_adamw_table_fill(const tern_adamw *adamw, uint32_t rows, float *out)
{
    for (uint32_t row = 0; row < rows; row++) {
        out[2 * row] = (float)(1.0 / (1.0 - pow(adamw->beta1, row + 1.0)));
        out[2 * row + 1] = (float)(1.0 / (1.0 - pow(adamw->beta2, row + 1.0)));
    }
}
