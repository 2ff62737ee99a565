/* SPDX-License-Identifier: Apache-2.0 */
/* opencl.h - the kernel language in OpenCL C 1.2 (and Level Zero through SPIR-V). docs/kernel-language.md explains
 * the words.
 *
 * The renderer prints ARGUMENTS and GROUP_SIZE before this text. No build option may relax the arithmetic: fast maths
 * folds NaN tests away. */
#pragma OPENCL FP_CONTRACT OFF
#define FN                static inline
#define REAL              float
#define UNROLL            _Pragma("unroll")
#define NO_UNROLL         _Pragma("unroll 1")
#define STRUCT(name, members) typedef struct name { members } name;

#ifdef MATRIX_UNITS
#define KERNEL_SUBGROUP   __attribute__((intel_reqd_sub_group_size(SUBGROUP)))
#else
#define KERNEL_SUBGROUP
#endif
#define KERNEL(name, shared_arrays)                                                                                    \
    __kernel __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1))) KERNEL_SUBGROUP void name(ARGUMENTS) {            \
    shared_arrays
#define KERNEL_END        }
#define SHARED(type, name, count) __local type name[count];
#define BARRIER           barrier(CLK_LOCAL_MEM_FENCE)
#define GROUP             ((uint)get_group_id(0) + (uint)get_group_id(1) * (uint)get_num_groups(0))
#define LOCAL             ((uint)get_local_id(0))

#define F32(x)            ((float)(x))
#define I32(x)            ((int)(x))
#define U32(x)            ((uint)(x))
#define AS_F32(x)         as_float(x)
#define AS_U32(x)         as_uint(x)
#define FMA(a, b, c)      fma(a, b, c)
#define SQRT(x)           sqrt(x)
#define RSQRT(x)          rsqrt(x)
/* One instruction on these CPUs. PoCL's own floor ends in a bitwise select, which LLVM up to 22 miscompiles under a mask
 * of AVX-512 (core/base/jit.c has the fault). */
#ifdef __SSE4_1__
#define FLOOR(x)          __builtin_floorf(x)
#else
#define FLOOR(x)          floor(x)
#endif
#define ABS(x)            fabs(x)
#define MIN_U32(a, b)     min(a, b)
#define multiply_high(a, b) mul_hi(a, b)

/* Storage to registers and back. t is the pointer, i the element. */
#define LOAD_f32(t, i)    (t[i])
#define LOAD_i32(t, i)    (t[i])
#define LOAD_u32(t, i)    (t[i])
#define LOAD_u8(t, i)     ((uint)t[i])
#define LOAD_u16(t, i)    ((uint)t[i])
#define LOAD_f16(t, i)    vload_half(0, (__global const half *)(t + (i)))
#define LOAD_bf16(t, i)   AS_F32((uint)t[i] << 16)
#define STORE_f32(t, i, x)  t[i] = (x)
#define STORE_i32(t, i, x)  t[i] = (x)
#define STORE_u32(t, i, x)  t[i] = (x)
#define STORE_u8(t, i, x)   t[i] = (uchar)(x)
#define STORE_u16(t, i, x)  t[i] = (ushort)(x)
#define STORE_f16(t, i, x)  t[i] = (ushort)f32_to_f16(x)
#define STORE_bf16(t, i, x) t[i] = (ushort)f32_to_bf16(x)

/* A vector of WIDTH floats in a private array: what one work-item of a CPU works with. */
#define WIDTH             16u
#define WIDE              float16
#define WIDE_OF(x)        ((float16)(x))
#define WIDE_LOAD(array, i) vload16(0, array + (i))
#define WIDE_STORE(array, i, x) vstore16(x, 0, array + (i))
