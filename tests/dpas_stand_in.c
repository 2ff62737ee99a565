/* SPDX-License-Identifier: Apache-2.0 */
/* dpas_stand_in.c - see dpas_stand_in.h. */
#include "tests/dpas_stand_in.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/status.h"
#include "core/kernel/lowered.h"

#define KERNEL_START "KERNEL(tern_" /* its use; the word is defined before */

/* Before the kernel. A function has no local memory of its own, so the exchange is the kernel's. */
static const char words[] =
    "#if SUBGROUP == 8u\n"
    "#define DPAS_ROW int\n"
    "#define DPAS_ROW_LANES vstore8(a_, 0, dpas_rows + LOCAL * 8u)\n"
    "#define DPAS_A(r, k) ((uint)dpas_rows[(LOCAL - LANE + (k) / 2u) * 8u + (r)] >> (k) % 2u * 16u & 0xffffu)\n"
    "#else\n"
    "#define DPAS_ROW short\n"
    "#define DPAS_ROW_LANES vstore8(a_, 0, dpas_rows + LOCAL * 8u)\n"
    "#define DPAS_A(r, k) ((uint)dpas_rows[(LOCAL - LANE + (k)) * 8u + (r)] & 0xffffu)\n"
    "#endif\n"
    "#ifdef FRAGMENT_F16\n"
    "#define DPAS_VALUE(bits) f16_to_f32(bits)\n"
    "#else\n"
    "#define DPAS_VALUE(bits) as_float((bits) << 16)\n"
    "#endif\n"
    "#undef FRAGMENT_MULTIPLY_ADD\n"
    "#define FRAGMENT_MULTIPLY_ADD(sum, a, b) { \\\n"
    "    FRAGMENT_ROWS a_ = a; \\\n"
    "    uint b_[8]; \\\n"
    "    float sum_[8]; \\\n"
    "    DPAS_ROW_LANES; \\\n"
    "    vstore8(as_uint8(b), 0, b_); \\\n"
    "    vstore8(sum, 0, sum_); \\\n"
    "    barrier(CLK_LOCAL_MEM_FENCE); \\\n"
    "    for (uint r_ = 0; r_ < 8; r_++) \\\n"
    "        for (uint k_ = 0; k_ < 16; k_++) \\\n"
    "            sum_[r_] = fma(DPAS_VALUE(DPAS_A(r_, k_)), \\\n"
    "                           DPAS_VALUE(b_[k_ / 2] >> k_ % 2 * 16 & 0xffffu), sum_[r_]); \\\n"
    "    barrier(CLK_LOCAL_MEM_FENCE); \\\n"
    "    sum = vload8(0, sum_); \\\n"
    "}\n"
    "#undef SUBGROUP_BARRIER\n"
    "#define SUBGROUP_BARRIER barrier(CLK_LOCAL_MEM_FENCE)\n";
static const char exchange[] = " SHARED(DPAS_ROW, dpas_rows, 8u * GROUP_SIZE)";

tern_status dpas_render(const tern_kernel_desc *desc, tern_dialect dialect, bool addresses, tern_source *out_source)
{
    tern_status status;
    if (dialect != TERN_DIALECT_OPENCL || desc->variant.fragment.subgroup <= 1)
        return tern_error(TERN_ERROR_UNSUPPORTED, "the stand-in for DPAS is for OpenCL's kernels by fragments");
    TERN_TRY(tern_render(desc, dialect, addresses, out_source));
    char *start = strstr(out_source->text, KERNEL_START);
    const char *comma = start ? strchr(start, ',') : NULL;
    const size_t bytes = out_source->bytes + sizeof words + sizeof exchange;
    char *text = malloc(bytes);
    if (!comma || !text) {
        free(text), free(out_source->text);
        return tern_error(TERN_ERROR_INTERNAL, "there is no kernel in the text, or no memory");
    }
    out_source->bytes = (size_t)snprintf(text, bytes, "%.*s%s%.*s%s%s", (int)(start - out_source->text),
                                         out_source->text, words, (int)(comma + 1 - start), start, exchange, comma + 1);
    free(out_source->text);
    out_source->text = text;
fail:
    return status;
}
