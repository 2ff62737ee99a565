/* SPDX-License-Identifier: Apache-2.0 */
/* check_compare.c - judges one output of a case: right to within its bound, and the same bits twice.
 *
 *     integers, and what is not finite    equal to the reference
 *     f32                 ||got - reference||  <=  TOLERANCE max(||reference||, SHARE ||sum of |terms| ||)
 *     f16, bf16           ||got - exact||      <=  max(2 ||reference - exact||, ulp ||exact||, the bound of f32)
 *
 * where `exact` is the reference without any rounding to 16 bit and ulp the distance of numbers at 1 in that dtype: a
 * device may round differently than the reference, not worse than twice as much.
 * Invariant: NaN where the reference has none fails, since every test is written !(error <= bound). */
#include "core/cli/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"

typedef struct judged { /* one output */
    const tern_tensor *x;
    const char *name;
    int64_t count;
    const double *reference, *exact; /* exact NULL: the reference is meant */
} judged;

static double number_at(const tern_tensor *x, const unsigned char *bytes, int64_t i)
{
    switch (x->dtype) {
    case TERN_F32: return (double)((const float *)(const void *)bytes)[i];
    case TERN_F16: return (double)tern_f16_to_f32(((const uint16_t *)(const void *)bytes)[i]);
    case TERN_BF16: return (double)tern_bf16_to_f32(((const uint16_t *)(const void *)bytes)[i]);
    case TERN_I32: return (double)((const int32_t *)(const void *)bytes)[i];
    case TERN_U16: return (double)((const uint16_t *)(const void *)bytes)[i];
    case TERN_U8: return (double)bytes[i];
    default: return (double)((const uint32_t *)(const void *)bytes)[i];
    }
}

/* What is compared with: the exact value, unless rounding made it infinite or NaN; rounded to f32, so that what
 * overflows there is infinite here. */
static double wanted_at(const judged *j, int64_t i)
{
    const bool is_float = tern_dtype(j->x->dtype)->is_float;
    const double rounded = is_float ? (double)(float)j->reference[i] : j->reference[i];
    return j->exact && is_float && isfinite(rounded) ? (double)(float)j->exact[i] : rounded;
}

/* 0 where both are the same infinity or both NaN. */
static double error_of(double got, double wanted)
{
    return got == wanted || (isnan(got) && isnan(wanted)) ? 0 : fabs(got - wanted);
}

static double norm_of(const double *values, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        if (isfinite((double)(float)values[i])) sum += values[i] * values[i];
    return sqrt(sum);
}

/* TOLERANCE * max(||reference||, SHARE ||sum of |terms| ||). A tensor that is another one's elements in another order
 * has its norms. */
static tern_status f32_bound(const tern_check_pair *p, const judged *j, double *out_bound)
{
    const tern_tensor *x = j->x;
    while (x->op == TERN_OP_RESHAPE || x->op == TERN_OP_PERMUTE) x = x->in[0];
    const int64_t count = tern_count(x);
    double *terms = malloc((size_t)count * sizeof *terms);
    if (!terms) return tern_error_memory("the magnitudes", (size_t)count * sizeof *terms);
    tern_status status = tern_reference_magnitude(p->reference, x, terms);
    double norm = fmax(p->c->least, norm_of(tern_reference_data(p->reference, x), count));
    if (status >= 0) norm = fmax(norm, TERN_CHECK_SHARE * norm_of(terms, count));
    *out_bound = (p->c->tolerance > 0 ? p->c->tolerance : TERN_CHECK_TOLERANCE) * norm;
    free(terms);
    return status;
}

static double half_bound(const tern_check_pair *p, const judged *j)
{
    const double ulp = p->c->dtype == TERN_F16 ? 0x1p-10 : 0x1p-7;
    double sum = 0;
    for (int64_t i = 0; i < j->count; i++) {
        const double error = error_of((double)(float)j->reference[i], wanted_at(j, i));
        sum += error * error;
    }
    return fmax(2 * sqrt(sum), ulp * fmax(p->c->least, norm_of(j->exact, j->count)));
}

static tern_status allowed_error(const tern_check_pair *p, const judged *j, double *out_bound)
{
    tern_status status;
    *out_bound = 0; /* integers are exact */
    if (!tern_dtype(j->x->dtype)->is_float) return TERN_OK;
    TERN_TRY(f32_bound(p, j, out_bound));
    if (j->exact) *out_bound = fmax(*out_bound, half_bound(p, j));
fail:
    return status;
}

static void fail_output(tern_check_result *r, bool gradient, const char *name, const char *what)
{
    if (!r->value_failed && !r->gradient_failed) snprintf(r->reason, sizeof r->reason, "%s: %s", name, what);
    if (gradient)
        r->gradient_failed = true;
    else
        r->value_failed = true;
}

tern_status tern_check_compare(const tern_check_pair *p, const unsigned char *first, const unsigned char *second,
                               tern_check_result *result)
{
    const tern_tensor *x = p->graph->outputs[p->output].tensor;
    const judged j = {x, p->graph->outputs[p->output].name, tern_count(x), tern_reference_data(p->reference, x),
                      p->exact ? tern_reference_data(p->exact, x) : NULL};
    double bound, sum = 0, worst = -1;
    int64_t at = 0;
    char text[256];
    const bool gradient = strncmp(j.name, "d.", 2) == 0;
    tern_status status = allowed_error(p, &j, &bound);
    if (status < 0) return status;
    for (int64_t i = 0; i < j.count; i++) {
        const double error = error_of(number_at(x, first, i), wanted_at(&j, i));
        sum += error * error;
        if (isnan(worst) || error <= worst) continue; /* NaN is the worst, the first of them is told */
        worst = error;
        at = i;
    }
    result->tensors++;
    if (!(sqrt(sum) <= bound)) {
        snprintf(text, sizeof text, "error %.3g, allowed %.3g; element %lld of %lld is %.9g, the reference has %.9g",
                 sqrt(sum), bound, (long long)at, (long long)j.count, number_at(x, first, at), wanted_at(&j, at));
        fail_output(result, gradient, j.name, text);
    }
    if (memcmp(first, second, tern_dtype_bytes(x->dtype, (uint64_t)j.count)) != 0)
        fail_output(result, gradient, j.name, "the second run gave other bits than the first");
    return TERN_OK;
}
