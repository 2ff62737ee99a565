/* SPDX-License-Identifier: Apache-2.0 */
/* precision.c - see precision.h. */
#include "core/train/precision.h"

#include "core/base/dtype.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int32_t dtype;
} precisions[] = {
    [TERN_PRECISION_AUTO] = {"auto", 0},
    [TERN_PRECISION_F32] = {"f32", TERN_F32},
    [TERN_PRECISION_BF16] = {"bf16", TERN_BF16},
    [TERN_PRECISION_F16] = {"f16", TERN_F16},
};
#define PRECISION_COUNT (int32_t)(sizeof precisions / sizeof *precisions)

tern_status tern_precision_parse(const char *text, int32_t *out_precision)
{
    for (int32_t i = 0; i < PRECISION_COUNT; i++) {
        *out_precision = i;
        if (strcmp(text, precisions[i].name) == 0) return TERN_OK;
    }
    return tern_error(TERN_ERROR_INVALID, "\"%.40s\" is no precision; use auto, f32, bf16 or f16", text);
}

static bool multiplies(const tern_device_info *info, int32_t dtype)
{
    for (uint32_t i = 0; i < info->matrix_count; i++)
        if (info->matrix[i].dtype == dtype && info->matrix[i].subgroup > 1) return true;
    return false;
}

/* Software GPUs and CPUs widen 16 bits to compute, whatever matrices they imitate: that saves memory and costs time.
 * bf16 goes before f16, since it needs no loss scaling. */
static void choose_automatically(const tern_device_info *info, tern_precision_choice *out)
{
    const bool stores = (info->features & TERN_FEATURE_STORAGE_16) != 0;
    const bool gpu = info->kind == TERN_DEVICE_INTEGRATED_GPU || info->kind == TERN_DEVICE_DISCRETE_GPU;
    const char *why = "which does not compute with 16 bits";
    out->dtype = TERN_F32;
    if (!gpu)
        why = "which gains no time from 16 bits";
    else if (!stores)
        why = "which does not store 16 bits";
    else if (multiplies(info, TERN_BF16))
        out->dtype = TERN_BF16, why = "whose matrix units multiply it";
    else if (multiplies(info, TERN_F16))
        out->dtype = TERN_F16, why = "whose matrix units multiply it and not bf16";
    else if (info->features & TERN_FEATURE_ARITHMETIC_F16)
        out->dtype = TERN_F16, why = "which computes with f16";
    snprintf(out->reason, sizeof out->reason, "%s, chosen for %s, %s", tern_dtype(out->dtype)->name, info->name, why);
}

tern_status tern_precision_choose(int32_t precision, const tern_device_info *info, tern_precision_choice *out_choice)
{
    *out_choice = (tern_precision_choice){.dtype = TERN_F32};
    if (precision < 0 || precision >= PRECISION_COUNT)
        return tern_error(TERN_ERROR_INVALID, "precision %d is no TERN_PRECISION_ value", precision);
    if (precision == TERN_PRECISION_AUTO) {
        choose_automatically(info, out_choice);
        return TERN_OK;
    }
    if (precision != TERN_PRECISION_F32 && !(info->features & TERN_FEATURE_STORAGE_16))
        return tern_error(TERN_ERROR_UNSUPPORTED, "precision %s needs 16-bit storage, which %s does not have; use f32",
                          precisions[precision].name, info->name);
    out_choice->dtype = precisions[precision].dtype;
    snprintf(out_choice->reason, sizeof out_choice->reason, "%s, as asked for", precisions[precision].name);
    return TERN_OK;
}
