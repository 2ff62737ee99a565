/* SPDX-License-Identifier: Apache-2.0 */
/* data.c - the examples' my_next: made-up images of ten classes, so that no data set is needed.
 *
 * Class c is a brighter bar at the columns 2 c + 4 and 2 c + 5 of a 28 x 28 image of noise. The data end after
 * $MY_BATCHES batches (0 or unset: never), the last of them half full. */
#include <stdint.h>
#include <stdlib.h>

int64_t my_next(float *images, int32_t *labels, int64_t most);

static uint32_t random_bits(void)
{
    static uint32_t state = 1;
    state = state * 1664525u + 1013904223u;
    return state >> 8;
}

int64_t my_next(float *images, int32_t *labels, int64_t most)
{
    static long batch;
    const char *text = getenv("MY_BATCHES");
    const long batches = text ? atol(text) : 0;
    if (batches > 0 && batch == batches) return 0;
    batch++;
    const int64_t count = batches > 0 && batch == batches ? most / 2 : most;
    for (int64_t i = 0; i < count; i++) {
        labels[i] = (int32_t)(random_bits() % 10);
        for (int row = 0; row < 28; row++)
            for (int column = 0; column < 28; column++) {
                const float noise = (float)random_bits() / 16777216.0f;
                const float bar = column / 2 == labels[i] + 2 ? 0.15f : 0.0f;
                images[i * 784 + row * 28 + column] = noise + bar - 0.5f;
            }
    }
    return count;
}
