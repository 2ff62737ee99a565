/* SPDX-License-Identifier: Apache-2.0 */
/* draw.c - picks a token from logits: temperature and top-k, in double on the host. */
#include <math.h>
#include <stdlib.h>

#include "core/base/status.h"
#include "core/train/sample.h"

typedef struct candidate {
    float logit;
    uint32_t index;
} candidate;

static int by_logit(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

tern_status tern_sample_draw(const float *logits, uint32_t count, const tern_sample_options *options, double u,
                             uint32_t *out_index)
{
    double total = 0, sum = 0;
    for (uint32_t i = 0; i < count; i++)
        if (!isfinite(logits[i]))
            return tern_error(TERN_ERROR_INVALID, "logit %u is %g; the model's weights are broken", i,
                              (double)logits[i]);
    candidate *all = malloc(count * sizeof *all);
    if (!all) return tern_error_memory("the candidates of a token", count * sizeof *all);
    for (uint32_t i = 0; i < count; i++) all[i] = (candidate){logits[i], i};
    qsort(all, count, sizeof *all, by_logit);
    const uint32_t kept = options->temperature == 0                      ? 1
                          : options->top_k > 0 && options->top_k < count ? options->top_k
                                                                         : count;
    const double heat = options->temperature > 0 ? options->temperature : 1;
    for (uint32_t i = 0; i < kept; i++) total += exp(((double)all[i].logit - (double)all[0].logit) / heat);
    *out_index = all[kept - 1].index;
    for (uint32_t i = 0; i < kept; i++) {
        sum += exp(((double)all[i].logit - (double)all[0].logit) / heat);
        if (u * total < sum) {
            *out_index = all[i].index;
            break;
        }
    }
    free(all);
    return TERN_OK;
}
