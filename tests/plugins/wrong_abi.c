/* SPDX-License-Identifier: Apache-2.0 */
/* wrong_abi.c - a plug-in from another version of tern, for tests/test_device.c. */
#include "core/backend.h"

const tern_backend *tern_backend_get(void)
{
    static const tern_backend table = {.abi = TERN_BACKEND_ABI + 1, .name = "wrong_abi"};
    return &table;
}
