/* SPDX-License-Identifier: Apache-2.0 */
/* incomplete.c - a plug-in without a required function, for tests/test_device.c. */
#include "core/backend.h"

static tern_status load(void) { return TERN_OK; }

const tern_backend *tern_backend_get(void)
{
    static const tern_backend table = {.abi = TERN_BACKEND_ABI, .name = "incomplete", .load = load};
    return &table;
}
