/* SPDX-License-Identifier: Apache-2.0 */
/* storage.c - see storage.h. */
#include "core/kernel/storage.h"

#include "core/base/dtype.h"
#include "core/base/status.h"

/* What to do instead, by what a narrow dtype is used for. */
static const char *instead_of(uint8_t dtype)
{
    switch (dtype) {
    case TERN_F16:
    case TERN_BF16: return "train in f32 there (--precision f32)";
    default: return "store u32 there, or optimizer moments in f32";
    }
}

tern_status tern_storage_check(const tern_kernel_desc *desc, const tern_device_info *info)
{
    for (uint32_t i = 0; i < desc->tensor_count; i++) {
        const tern_dtype_info *dtype = tern_dtype(desc->tensors[i].dtype);
        if (!dtype)
            return tern_error(TERN_ERROR_INTERNAL, "tensor %u of kernel \"%s\" has the unknown dtype %u", i,
                              desc->label, desc->tensors[i].dtype);
        if (dtype->bytes >= 4) continue;
        const uint32_t needed = dtype->bytes == 2 ? TERN_FEATURE_STORAGE_16 : TERN_FEATURE_STORAGE_8;
        if ((info->features & needed) == 0)
            return tern_error(TERN_ERROR_UNSUPPORTED,
                              "\"%s\" keeps a tensor as %s, but device \"%s\" has no %u-bit storage; %s", desc->label,
                              dtype->name, info->name, 8 * dtype->bytes, instead_of(desc->tensors[i].dtype));
    }
    return TERN_OK;
}
