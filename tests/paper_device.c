/* SPDX-License-Identifier: Apache-2.0 */
/* paper_device.c - see paper_device.h. */
#include "tests/paper_device.h"

const tern_device_info paper_device = {.name = "paper",
                                       .memory_bytes = 1ull << 34,
                                       .max_allocation_bytes = 1ull << 32,
                                       .max_buffer_bytes = 1ull << 32,
                                       .max_binding_bytes = 1ull << 32,
                                       .max_groups = {1u << 30, 65535, 65535},
                                       .max_group_size = 1024,
                                       .shared_bytes = 32768,
                                       .subgroup_min = 32,
                                       .subgroup_max = 32,
                                       .offset_alignment = 256,
                                       .features = TERN_FEATURE_BUFFER_ADDRESS | TERN_FEATURE_STORAGE_16 |
                                                   TERN_FEATURE_STORAGE_8};
