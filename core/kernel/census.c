/* SPDX-License-Identifier: Apache-2.0 */
/* census.c - see census.h. */
#include "core/kernel/census.h"

#include <string.h>

/* What a contraction multiplies: operands 0 and 1; scatter-add adds up operand 0. */
static int32_t operand_dtype(const tern_kernel_desc *desc)
{
    const int32_t first = desc->tensors[0].dtype;
    if (desc->kind == TERN_KERNEL_SCATTER_ADD || desc->tensors[1].dtype == first) return first;
    return TERN_F32;
}

void tern_lowered_census(const tern_lowered *lowered, tern_census *out_census)
{
    memset(out_census, 0, (TERN_U32 + 1) * sizeof *out_census);
    for (uint32_t i = 0; i < lowered->launch_count; i++) {
        const tern_kernel_desc *desc = lowered->kernels[lowered->launches[i].kernel];
        if (desc->kind != TERN_KERNEL_TAPE) out_census[operand_dtype(desc)].contractions++;
    }
    for (uint32_t i = 0; i < lowered->value_count; i++) {
        const tern_value *value = &lowered->values[i];
        if (value->storage != TERN_STORAGE_TRANSIENT) continue;
        out_census[value->dtype].tensors++;
        out_census[value->dtype].bytes += value->bytes;
    }
}
