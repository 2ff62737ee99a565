/* SPDX-License-Identifier: Apache-2.0 */
/* hash.h - FNV-1a, 64 and 32 bits: kernel keys, labels, file checksums. Not for untrusted keys.
 * Source: Fowler, Noll, Vo, "The FNV non-cryptographic hash algorithm", IETF draft eastlake-fnv. */
#ifndef TERN_BASE_HASH_H
#define TERN_BASE_HASH_H

#include "core/tern.h"

#define TERN_HASH_START 0xcbf29ce484222325ull

/* Continues `start` (TERN_HASH_START for the first piece) over `bytes` bytes: hashing in pieces equals hashing at once.
 */
TERN_API uint64_t tern_hash(uint64_t start, const void *data, size_t bytes);
/* 32-bit hash of a label, the one that keys its random numbers. */
TERN_API uint32_t tern_hash_label(const char *label);

#endif
