/* SPDX-License-Identifier: Apache-2.0 */
/* dialect_check.h - a rendered kernel goes through every vendor-neutral compiler that is installed.
 *
 * GLSL with storage bindings and with device addresses: glslangValidator, then spirv-val for Vulkan 1.2, and every
 * floating-point sum and product must carry NoContraction. CUDA: NVRTC for sm_80. What is missing is skipped and said
 * once. */
#ifndef TERN_TESTS_DIALECT_CHECK_H
#define TERN_TESTS_DIALECT_CHECK_H

#include "core/backend.h"

/* False, with the compiler's words on stderr, when a dialect does not compile. */
bool dialect_check(const tern_kernel_desc *desc);

/* Devices that exist on paper, for choosing variants: */
typedef enum dialect_device {
    DEVICE_ONE_LANE = 0,
    DEVICE_LANES,
    DEVICE_GPU,
    DEVICE_SMALL_GPU,
    DEVICE_COUNT
} dialect_device;
void dialect_device_info(dialect_device device, tern_device_info *out_info);

#endif
