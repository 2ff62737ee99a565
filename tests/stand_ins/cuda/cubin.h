/* SPDX-License-Identifier: Apache-2.0 */
/* cubin.h - the stand-in's "cubin": this header, then a shared object for the host. */
#ifndef TERN_STAND_IN_CUBIN_H
#define TERN_STAND_IN_CUBIN_H

#include <stdint.h>

#define TERN_CUBIN_MAGIC                                                                                               \
    {                                                                                                                  \
        'T', 'E', 'R', 'N', 'C', 'U', 'B', '1'                                                                         \
    }

struct tern_cubin_header {
    char magic[8];
    uint32_t architecture; /* 80 for sm_80: runs on 8.x with x >= 0, as real cubins do */
    uint32_t needs_fma;    /* compiled for a CPU with AVX2, FMA and F16C */
    uint64_t bytes;        /* of the shared object */
};

#endif
