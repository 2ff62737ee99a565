/* SPDX-License-Identifier: Apache-2.0 */
/* init.c - initial weights, made on the host so that every device starts from the same bits.
 *
 * Element e of a parameter takes word pair e mod 4 of philox(counter = {e / 4, hash(name), DOMAIN, 0}, key = seed).
 * Normal numbers: Box-Muller, r = sqrt(-2 ln u), u in (0, 1], in double and rounded once. Two words make two numbers.
 * Source: Box, Muller, "A note on the generation of random normal deviates", 1958. */
#include <math.h>

#include "core/base/hash.h"
#include "core/base/philox.h"
#include "core/train/store.h"

#define DOMAIN_INIT 0x7u /* counters of the shuffle and of dropout differ in this word */

static void normal_pair(uint32_t a, uint32_t b, double out[2])
{
    const double turn = 6.283185307179586476925;
    double u = ((double)a + 1.0) * 0x1p-32; /* (0, 1] */
    double angle = turn * ((double)b * 0x1p-32), radius = sqrt(-2.0 * log(u));
    out[0] = radius * cos(angle);
    out[1] = radius * sin(angle);
}

/* Four consecutive values of a unit distribution. */
static void four(int32_t init, const uint32_t words[4], double out[4])
{
    if (init == TERN_INIT_NORMAL) {
        normal_pair(words[0], words[1], out);
        normal_pair(words[2], words[3], out + 2);
        return;
    }
    for (int i = 0; i < 4; i++) out[i] = (double)(words[i] >> 8) * 0x1p-23 - 1.0; /* [-1, 1), exact in f32 */
}

void tern_store_initial(const tern_store_parameter *parameter, uint64_t seed, float *out, uint64_t count)
{
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t name = tern_hash_label(parameter->name);
    const bool random = parameter->init == TERN_INIT_NORMAL || parameter->init == TERN_INIT_UNIFORM;
    for (uint64_t start = 0; start < count; start += 4) {
        const uint32_t counter[4] = {(uint32_t)(start / 4), name, DOMAIN_INIT, (uint32_t)(start / 4 >> 32)};
        uint32_t words[4];
        double values[4] = {0, 0, 0, 0};
        if (random) {
            tern_philox(counter, key, words);
            four(parameter->init, words, values);
        }
        for (uint64_t i = 0; i < 4 && start + i < count; i++)
            out[start + i] = parameter->init == TERN_INIT_ONES ? 1.0f : (float)(parameter->scale * values[i]);
    }
}
