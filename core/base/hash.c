/* SPDX-License-Identifier: Apache-2.0 */
/* hash.c - FNV-1a: x = (x ^ byte) * prime, for each byte. */
#include "core/base/hash.h"

#define FNV64_PRIME 0x100000001b3ull
#define FNV32_START 0x811c9dc5u
#define FNV32_PRIME 0x01000193u

uint64_t tern_hash(uint64_t start, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    uint64_t hash = start;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ p[i]) * FNV64_PRIME;
    return hash;
}

uint32_t tern_hash_label(const char *label)
{
    uint32_t hash = FNV32_START;
    for (const char *p = label; *p; p++) hash = (hash ^ (unsigned char)*p) * FNV32_PRIME;
    return hash;
}
