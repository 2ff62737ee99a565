/* SPDX-License-Identifier: Apache-2.0 */
/* census.h - what of a lowered graph is in which dtype: `tern plan` shows it. */
#ifndef TERN_KERNEL_CENSUS_H
#define TERN_KERNEL_CENSUS_H

#include "core/kernel/lowered.h"

typedef struct tern_census {
    uint32_t contractions; /* launches whose operands are of this dtype, f32 if one of them is */
    uint32_t tensors;      /* values between launches */
    uint64_t bytes;        /* theirs, added up: more than the arena holds at a time */
} tern_census;

/* out_census: TERN_U32 + 1 entries, by dtype. */
void tern_lowered_census(const tern_lowered *lowered, tern_census *out_census);

#endif
