/* SPDX-License-Identifier: Apache-2.0 */
/* philox.c - Philox4x32-10. One round multiplies two counter words by constants and swaps the halves:
 *
 *     (c0, c1, c2, c3) -> (hi(M1 c2) ^ c1 ^ k0,  lo(M1 c2),  hi(M0 c0) ^ c3 ^ k1,  lo(M0 c0));   k += (W0, W1)
 *
 * u32 arithmetic only, so that the same lines run in a kernel. */
#include "core/base/philox.h"

#define PHILOX_M0     0xd2511f53u
#define PHILOX_M1     0xcd9e8d57u
#define PHILOX_W0     0x9e3779b9u /* golden ratio */
#define PHILOX_W1     0xbb67ae85u /* sqrt(3) - 1 */
#define PHILOX_ROUNDS 10

void tern_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        uint64_t p0 = (uint64_t)PHILOX_M0 * c0, p1 = (uint64_t)PHILOX_M1 * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += PHILOX_W0;
        k1 += PHILOX_W1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

void tern_philox_step_key(uint64_t seed, uint64_t step, uint32_t out_key[2])
{
    const uint32_t counter[4] = {(uint32_t)step, (uint32_t)(step >> 32), 0, 0};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t bits[4];
    tern_philox(counter, key, bits);
    out_key[0] = bits[0];
    out_key[1] = bits[1];
}
