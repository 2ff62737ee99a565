/* SPDX-License-Identifier: Apache-2.0 */
/* dtypes.c - which dtypes the own tensors of a contraction may have; a tape's and an epilogue's are the nest's matter.
 *
 * One letter per tensor: f  f32, f16 or bf16, each for itself     s  the same, but one dtype for all s
 *                        r  f32 alone (statistics of rows)        i  u32 or i32 */
#include <string.h>

#include "backends/cpu/cpu.h"
#include "core/base/dtype.h"

static const char *letters_of(const tern_kernel_desc *desc)
{
    switch (desc->kind) {
    case TERN_KERNEL_MATMUL: return "ff";
    case TERN_KERNEL_ATTENTION: return "ssssr";
    case TERN_KERNEL_ATTENTION_DQ: return "ssssrrs";
    case TERN_KERNEL_ATTENTION_DKV: return "ssssrrss";
    case TERN_KERNEL_SCATTER_ADD: return desc->sorted ? "fii" : "fi";
    default: return "";
    }
}

static const char *wanted(char letter)
{
    switch (letter) {
    case 'r': return "f32";
    case 'i': return "u32 or i32";
    default: return "f32, f16 or bf16";
    }
}

static bool is_allowed(char letter, uint8_t dtype)
{
    if (letter == 'i') return dtype == TERN_U32 || dtype == TERN_I32;
    return dtype == TERN_F32 || (letter != 'r' && (dtype == TERN_F16 || dtype == TERN_BF16));
}

tern_status tern_cpu_dtypes_check(const tern_kernel_desc *desc)
{
    const char *letters = letters_of(desc);
    if (desc->tensor_count < strlen(letters))
        return tern_error(TERN_ERROR_INVALID, "kernel \"%s\" has %u tensors; its kind needs %zu", desc->label,
                          desc->tensor_count, strlen(letters));
    for (uint32_t i = 0; letters[i]; i++) {
        const uint8_t dtype = desc->tensors[i].dtype;
        const tern_dtype_info *info = tern_dtype(dtype);
        const char *name = info ? info->name : "of an unknown dtype";
        if (!is_allowed(letters[i], dtype))
            return tern_error(TERN_ERROR_UNSUPPORTED, "tensor %u of \"%s\" is %s; it must be %s, so cast it before", i,
                              desc->label, name, wanted(letters[i]));
        if (letters[i] == 's' && dtype != desc->tensors[0].dtype)
            return tern_error(TERN_ERROR_UNSUPPORTED,
                              "tensor %u of \"%s\" is %s and its tensor 0 is %s; attention takes q, k, v, o and their "
                              "gradients of one dtype, so cast them before",
                              i, desc->label, name, tern_dtype(desc->tensors[0].dtype)->name);
    }
    return TERN_OK;
}
