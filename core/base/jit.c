/* SPDX-License-Identifier: Apache-2.0 */
/* jit.c - see jit.h. Not a compiler: it sets one variable of the environment.
 *
 * LLVM up to 22 chooses the wrong truth table for AVX-512's three-operand logic under a mask when an operand lies in
 * memory (github.com/llvm/llvm-project, issue 157929, repaired in July 2026). On such a CPU Mesa's software drivers
 * then compute, silently,
 *
 *     is_nan(x) ? x : as_float((as_uint(y) & 0x7fffffff) | (as_uint(x) & 0x80000000))      as      x & ~y
 *
 * and drop or mix elements under masks: tanh(inf) was 2, a dropout's mask and a matmul's epilogue were wrong. No text
 * of ours avoids it, because the masks of branches go through the same instruction. Mesa tells which LLVM it has only
 * after it was loaded, and reads the variable then; so the fact asked for is the CPU's. Other drivers do not read it:
 * PoCL, which has masks from selections only, is given a text that does not meet the fault (shaders/math.k). */
#include "core/base/jit.h"

#include <stdbool.h>
#include <stdlib.h>

#include "core/base/log.h"

static bool has_masked_logic(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx512vl") != 0;
#else
    return false;
#endif
}

void tern_jit_prepare(void)
{
    if (!has_masked_logic() || getenv("GALLIUM_OVERRIDE_CPU_CAPS")) return;
    if (setenv("GALLIUM_OVERRIDE_CPU_CAPS", "avx", 0) != 0)
        tern_log_write(TERN_LOG_WARNING, "no memory for a variable; software drivers may compute wrong values");
}
