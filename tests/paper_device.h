/* SPDX-License-Identifier: Apache-2.0 */
/* paper_device.h - a GPU's limits for tests that lower graphs and run nothing. */
#ifndef TERN_TESTS_PAPER_DEVICE_H
#define TERN_TESTS_PAPER_DEVICE_H

#include "core/backend.h"

/* 16 GiB, groups of 1024, sub-groups of 32, 16- and 8-bit storage, device addresses. */
extern const tern_device_info paper_device;

#endif
