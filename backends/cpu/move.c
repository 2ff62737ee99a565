/* SPDX-License-Identifier: Apache-2.0 */
/* move.c - element moves between memory (7 stored dtypes, any stride) and register vectors (f32, i32, u32).
 *
 * Floats from and to f32 registers are convert.h's, one set per instruction set; here is what is left. Contiguous
 * 4-byte moves are memcpy; 16-bit floats go through core/base/dtype.h, whose bits every backend must store. */
#include <string.h>

#include "backends/cpu/tape.h"
#include "core/base/dtype.h"

/* Values of 4 bytes keep their bits. */
static void move_words(uint32_t n, void *d, const void *s, int64_t stride)
{
    uint32_t *to = d;
    const uint32_t *from = s;
    if (stride == 1) {
        memcpy(to, from, n * sizeof(uint32_t));
        return;
    }
    for (uint32_t i = 0; i < n; i++) to[i] = from[(int64_t)i * stride];
}
static void put_words(uint32_t n, void *d, const void *s, int64_t stride)
{
    uint32_t *to = d;
    const uint32_t *from = s;
    if (stride == 1) {
        memcpy(to, from, n * sizeof(uint32_t));
        return;
    }
    for (uint32_t i = 0; i < n; i++) to[(int64_t)i * stride] = from[i];
}

/* stored type S to register type R and back: `load` and `store` are expressions of x. */
#define PAIR(name, S, R, load, store)                                                                                  \
    static void load_##name(uint32_t n, void *d, const void *s, int64_t stride)                                        \
    {                                                                                                                  \
        R *to = d;                                                                                                     \
        const S *from = s;                                                                                             \
        for (uint32_t i = 0; i < n; i++) {                                                                             \
            const S x = from[(int64_t)i * stride];                                                                     \
            to[i] = load;                                                                                              \
        }                                                                                                              \
    }                                                                                                                  \
    static void store_##name(uint32_t n, void *d, const void *s, int64_t stride)                                       \
    {                                                                                                                  \
        S *to = d;                                                                                                     \
        const R *from = s;                                                                                             \
        for (uint32_t i = 0; i < n; i++) {                                                                             \
            const R x = from[i];                                                                                       \
            to[(int64_t)i * stride] = store;                                                                           \
        }                                                                                                              \
    }
PAIR(i32_f32, int32_t, float, (float)x, (int32_t)x)
PAIR(u32_f32, uint32_t, float, (float)x, (uint32_t)x)
PAIR(u8_f32, uint8_t, float, (float)x, (uint8_t)x)
PAIR(u16_f32, uint16_t, float, (float)x, (uint16_t)x)
PAIR(u8_u32, uint8_t, uint32_t, x, (uint8_t)x)
PAIR(u16_u32, uint16_t, uint32_t, x, (uint16_t)x)
PAIR(f32_i32, float, int32_t, (int32_t)x, (float)x)
PAIR(f32_u32, float, uint32_t, (uint32_t)x, (float)x)
PAIR(f16_i32, uint16_t, int32_t, (int32_t)tern_f16_to_f32(x), tern_f32_to_f16((float)x))
PAIR(f16_u32, uint16_t, uint32_t, (uint32_t)tern_f16_to_f32(x), tern_f32_to_f16((float)x))
PAIR(bf16_i32, uint16_t, int32_t, (int32_t)tern_bf16_to_f32(x), tern_f32_to_bf16((float)x))
PAIR(bf16_u32, uint16_t, uint32_t, (uint32_t)tern_bf16_to_f32(x), tern_f32_to_bf16((float)x))

#define BOTH(name)                                                                                                     \
    {                                                                                                                  \
        load_##name, store_##name                                                                                      \
    }
#define WORDS                                                                                                          \
    {                                                                                                                  \
        move_words, put_words                                                                                          \
    }
/* [stored][register f32, i32, u32]; floats to f32 are the isa's. i32 and u32 registers hold u8 and u16 alike. */
static const struct {
    tern_cpu_move load, store;
} moves[TERN_U32 + 1][3] = {
    [TERN_F32] = {{NULL, NULL}, BOTH(f32_i32), BOTH(f32_u32)},
    [TERN_F16] = {{NULL, NULL}, BOTH(f16_i32), BOTH(f16_u32)},
    [TERN_BF16] = {{NULL, NULL}, BOTH(bf16_i32), BOTH(bf16_u32)},
    [TERN_I32] = {BOTH(i32_f32), WORDS, WORDS},
    [TERN_U8] = {BOTH(u8_f32), BOTH(u8_u32), BOTH(u8_u32)},
    [TERN_U16] = {BOTH(u16_f32), BOTH(u16_u32), BOTH(u16_u32)},
    [TERN_U32] = {BOTH(u32_f32), WORDS, WORDS},
};

static int register_index(uint32_t type)
{
    return type == TERN_F32 ? 0 : type == TERN_I32 ? 1 : type == TERN_U32 ? 2 : -1;
}

static bool is_float(uint32_t dtype) { return dtype >= TERN_F32 && dtype <= TERN_BF16; }

tern_cpu_move tern_cpu_move_load(const tern_cpu_isa *isa, uint32_t dtype, uint32_t type)
{
    const int r = register_index(type);
    if (dtype < TERN_F32 || dtype > TERN_U32 || r < 0) return NULL;
    return r == 0 && is_float(dtype) ? isa->widen[dtype] : moves[dtype][r].load;
}

tern_cpu_move tern_cpu_move_store(const tern_cpu_isa *isa, uint32_t type, uint32_t dtype)
{
    const int r = register_index(type);
    if (dtype < TERN_F32 || dtype > TERN_U32 || r < 0) return NULL;
    return r == 0 && is_float(dtype) ? isa->narrow[dtype] : moves[dtype][r].store;
}
