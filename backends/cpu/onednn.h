/* SPDX-License-Identifier: Apache-2.0 */
/* onednn.h - one f32 matmul tile on oneDNN, v2 or v3; without the library every create gives NULL and matmul.c uses its
 * own loops. */
#ifndef TERN_CPU_ONEDNN_H
#define TERN_CPU_ONEDNN_H

#include "core/base/status.h"

typedef struct tern_cpu_onednn tern_cpu_onednn;

typedef struct tern_cpu_onednn_shape {
    uint32_t M, N, K, tile_m, tile_n; /* all tiles have the tile's size but the last of each axis */
    uint32_t a_ld, b_ld, c_ld;
    bool a_transposed, b_transposed;
    bool add;         /* C += instead of C = */
    uint32_t threads; /* how many may run it at the same time */
} tern_cpu_onednn_shape;

/* "oneDNN 2.6.3", or "" without it. */
const char *tern_cpu_onednn_version(void);
/* Prepares the up to four tile sizes of a matmul. *out_onednn is NULL with TERN_OK where oneDNN is absent, would not
 * pay or is known to be wrong. */
TERN_MUST_USE tern_status tern_cpu_onednn_create(const tern_cpu_onednn_shape *shape, tern_cpu_onednn **out_onednn);
void tern_cpu_onednn_destroy(tern_cpu_onednn *onednn);
size_t tern_cpu_onednn_scratch(const tern_cpu_onednn *onednn);
/* last_m, last_n: the tile is the shorter one at the end of that axis. Pointers are the tile's first elements. */
void tern_cpu_onednn_run(const tern_cpu_onednn *onednn, bool last_m, bool last_n, const float *a, const float *b,
                         float *c, void *scratch);

#endif
