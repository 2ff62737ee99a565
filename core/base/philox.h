/* SPDX-License-Identifier: Apache-2.0 */
/* philox.h - Philox4x32-10, the counter-based generator behind every random number in tern.
 * Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
 *
 * A random tensor's element e of the whole window is
 *     philox(counter = {lo(e), hi(e), tern_hash_label(label), 0}, key = tern_philox_step_key(seed, step))[0]
 * with e = sample_base * (elements per example) + index inside this micro-batch. So the same bits come
 * back in recompute, after resume, for any split into micro-batches and on every backend. */
#ifndef TERN_BASE_PHILOX_H
#define TERN_BASE_PHILOX_H

#include "core/tern.h"

TERN_API void tern_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);
/* The two key words of one optimizer step: philox(counter = {lo(step), hi(step), 0, 0}, key = {lo(seed),
 * hi(seed)})[0..1]. */
TERN_API void tern_philox_step_key(uint64_t seed, uint64_t step, uint32_t out_key[2]);

#endif
