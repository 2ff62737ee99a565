/* SPDX-License-Identifier: Apache-2.0 */
/* storage.h - whether a device can hold what a kernel loads and stores.
 *
 * Registers are 32 bits wide everywhere; narrower tensors are storage, which a device has or has not
 * (TERN_FEATURE_STORAGE_16, _8). There is no silent replacement: a kernel that the device cannot hold is refused when
 * its variant is chosen, before the plan exists. */
#ifndef TERN_KERNEL_STORAGE_H
#define TERN_KERNEL_STORAGE_H

#include "core/backend.h"

/* TERN_ERROR_UNSUPPORTED, naming the op, the dtype, the device and what to do, when a tensor of the desc is narrower
 * than the device stores. */
TERN_MUST_USE tern_status tern_storage_check(const tern_kernel_desc *desc, const tern_device_info *info);

#endif
