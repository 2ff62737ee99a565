/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer_table.c - the bias-correction table, made in double on the host: Bi(t) = 1 / (1 - bi^t). */
#include <math.h>

#include "core/train/optimizer.h"

#define TABLE_MAX (1u << 20)

/* The first t whose beta^t < 2^-25: there 1 / (1 - beta^t) rounds to 1. A gather clamps later ones to the last row. */
static double rows_for(double beta) { return beta > 0 ? ceil(-25.0 * log(2.0) / log(beta)) + 1 : 1; }

uint32_t tern_optimizer_table_rows(const tern_optimizer *optimizer)
{
    double rows = fmax(rows_for(optimizer->beta1), rows_for(optimizer->beta2));
    return rows < TABLE_MAX ? (uint32_t)rows : TABLE_MAX;
}

void tern_optimizer_table_fill(const tern_optimizer *optimizer, uint32_t rows, float *out)
{
    for (uint32_t row = 0; row < rows; row++) {
        out[2 * row] = (float)(1.0 / (1.0 - pow(optimizer->beta1, row + 1.0)));
        out[2 * row + 1] = (float)(1.0 / (1.0 - pow(optimizer->beta2, row + 1.0)));
    }
}
