/* SPDX-License-Identifier: Apache-2.0 */
/* isa_avx2.c - the vector loops for AVX2 with FMA and F16C; empty elsewhere than on x86-64.
 *
 * The target is set here and not by a build flag, so that no other file can be compiled with it by mistake. */
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c")
#endif
#define TERN_ISA_LEVEL 1
#define TERN_ISA_NAME  avx2
#include "backends/cpu/isa_table.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
typedef int tern_cpu_isa_avx2_absent; /* a translation unit must not be empty */
#endif
