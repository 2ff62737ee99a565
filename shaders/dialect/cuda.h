/* SPDX-License-Identifier: Apache-2.0 */
/* cuda.h - the kernel language in CUDA C++ for NVRTC, without any header. docs/kernel-language.md explains the words.
 *
 * The renderer prints ARGUMENTS and GROUP_SIZE before this text. Must be compiled with --fmad=false (contraction is a
 * build flag there, not a pragma) and never with --use_fast_math. The 1 in the launch bounds (groups that must fit a
 * multiprocessor) lets a kernel have the registers it needs: without it ptxas of CUDA 13 spills a few of matmul's and
 * attention's on every architecture, to fit one group more. */
typedef unsigned int uint;
#define FN                static __device__ __forceinline__
#define REAL              float
#define UNROLL            _Pragma("unroll")
#define NO_UNROLL         _Pragma("unroll 1")
#define STRUCT(name, members) struct name { members };

#define KERNEL(name, shared_arrays)                                                                                    \
    extern "C" __global__ void __launch_bounds__(GROUP_SIZE, 1) name(ARGUMENTS) {                                      \
    shared_arrays
#define KERNEL_END        }
#define SHARED(type, name, count) __shared__ __align__(16) type name[count];
#define BARRIER           __syncthreads()
#define GROUP             (blockIdx.x + blockIdx.y * gridDim.x)
#define LOCAL             threadIdx.x

#define F32(x)            ((float)(x))
#define I32(x)            ((int)(x))
#define U32(x)            ((uint)(x))
#define AS_F32(x)         __uint_as_float(x)
#define AS_U32(x)         __float_as_uint(x)
#define FMA(a, b, c)      __fmaf_rn(a, b, c)
#define SQRT(x)           __fsqrt_rn(x)
#define RSQRT(x)          rsqrtf(x)
#define FLOOR(x)          floorf(x)
#define ABS(x)            fabsf(x)
#define MIN_U32(a, b)     umin(a, b)
#define multiply_high(a, b) __umulhi(a, b)

#ifdef TERN_CUDA_STAND_IN /* compiled for the CPU: tests/stand_ins/cuda */
#define f16_load          tern_f16_load
#else
FN float f16_load(unsigned short bits) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}
#endif

/* Storage to registers and back. t is the pointer, i the element. */
#define LOAD_f32(t, i)    (t[i])
#define LOAD_i32(t, i)    (t[i])
#define LOAD_u32(t, i)    (t[i])
#define LOAD_u8(t, i)     ((uint)t[i])
#define LOAD_u16(t, i)    ((uint)t[i])
#define LOAD_f16(t, i)    f16_load(t[i])
#define LOAD_bf16(t, i)   AS_F32((uint)t[i] << 16)
#define STORE_f32(t, i, x)  t[i] = (x)
#define STORE_i32(t, i, x)  t[i] = (x)
#define STORE_u32(t, i, x)  t[i] = (x)
#define STORE_u8(t, i, x)   t[i] = (unsigned char)(x)
#define STORE_u16(t, i, x)  t[i] = (unsigned short)(x)
#define STORE_f16(t, i, x)  t[i] = (unsigned short)f32_to_f16(x)
#define STORE_bf16(t, i, x) t[i] = (unsigned short)f32_to_bf16(x)

/* One float: these devices have lanes, and no template that is WIDE is chosen for them. */
#define WIDTH             1u
#define WIDE              REAL
#define WIDE_OF(x)        (x)
#define WIDE_LOAD(array, i) array[i]
#define WIDE_STORE(array, i, x) array[i] = x
