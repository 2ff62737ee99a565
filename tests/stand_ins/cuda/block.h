/* SPDX-License-Identifier: Apache-2.0 */
/* block.h - runs a kernel's blocks on the calling thread. See block.cpp. */
#ifndef TERN_STAND_IN_BLOCK_H
#define TERN_STAND_IN_BLOCK_H

#include <string>

#include "kernel_abi.h"

namespace stand_in
{

struct Launch {
    const tern_kernel_record *kernel;
    tern_uint3 grid, block;
    unsigned dynamic_shared_bytes;
    void **arguments; /* pointers already translated for the host */
};

/* Runs all blocks. Empty: done; else what the kernel did wrong; *out_result is its CUresult then. */
std::string run_kernel(const Launch &launch, int *out_result);

} // namespace stand_in

#endif
