/* SPDX-License-Identifier: Apache-2.0 */
/* isa_baseline.c - the vector loops for the instruction set that the compiler targets by default (SSE2 on x86-64), and
 * the choice between the three sets at run time. */
#define TERN_ISA_LEVEL 0
#define TERN_ISA_NAME  baseline
#include "backends/cpu/isa_table.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <stdlib.h>

#if defined(__x86_64__)
/* Not every compiler's __builtin_cpu_supports knows the name. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

const tern_cpu_isa *tern_cpu_isa_choose(void)
{
#if defined(__x86_64__)
    const char *wanted = getenv("TERN_CPU_ISA");
    int level = 2;
    if (wanted && strcmp(wanted, "avx2") == 0) level = 1;
    if (wanted && strcmp(wanted, "baseline") == 0) level = 0;
    if (level >= 2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return &tern_cpu_isa_avx512;
    if (level >= 1 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c())
        return &tern_cpu_isa_avx2;
#endif
    return &tern_cpu_isa_baseline;
}

size_t tern_cpu_attention_floats(uint32_t D)
{
    const size_t Dp = ((size_t)D + 15) / 16 * 16, rows = TERN_ATTENTION_ROWS;
    return 6 * rows * Dp + 2 * rows * rows + 2 * rows;
}
