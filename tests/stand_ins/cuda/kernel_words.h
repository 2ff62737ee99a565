/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_words.h - the words of CUDA C++ that tern's kernels use, for g++; libnvrtc.so puts it before every text.
 *
 * Not a CUDA header: what shaders/dialect/cuda.h does not use is not here. Includes nothing, so that a kernel takes a
 * tenth of a second. Fragment layouts are those of the PTX ISA, "Matrix Fragments for mma.m16n8k16" and "ldmatrix".
 * Products are exact and sums go k = 0, 1, ... in f32; a tensor core adds in another order and rounding. */
#define TERN_CUDA_STAND_IN 1
register tern_thread *tern_self __asm__("r15");

#define __global__ __attribute__((noinline))
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__    __attribute__((noinline))
#define __launch_bounds__(...)
#define __shared__       static __attribute__((section("tern_shared")))
#define __constant__     static const
#define __align__(bytes) __attribute__((aligned(bytes)))
#define threadIdx        (tern_self->thread)
#define blockIdx         (tern_self->block)
#define blockDim         (tern_self->block_size)
#define gridDim          (tern_self->grid)
#define warpSize         32
/* extern __shared__ type name[] has no counterpart here: a pointer to what the launch asked for. */
#define TERN_DYNAMIC_SHARED(type, name) type *name = (type *)tern_self->dynamic_shared

static inline float __uint_as_float(unsigned bits)
{
    float x;
    __builtin_memcpy(&x, &bits, 4);
    return x;
}
static inline unsigned __float_as_uint(float x)
{
    unsigned bits;
    __builtin_memcpy(&bits, &x, 4);
    return bits;
}
static inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
static inline float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
static inline float __fsqrt_rn(float x) { return __builtin_sqrtf(x); }
static inline float sqrtf(float x) { return __builtin_sqrtf(x); }
static inline float rsqrtf(float x) { return 1.0f / __builtin_sqrtf(x); }
static inline float floorf(float x) { return __builtin_floorf(x); }
static inline float fabsf(float x) { return __builtin_fabsf(x); }
static inline unsigned umin(unsigned a, unsigned b) { return a < b ? a : b; }
static inline unsigned umax(unsigned a, unsigned b) { return a > b ? a : b; }
template <class T> static inline T min(T a, T b) { return a < b ? a : b; }
template <class T> static inline T max(T a, T b) { return a > b ? a : b; }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }

/* ------------------------------------------------------------ 16-bit floats */

static inline float tern_f16_load(unsigned short bits)
{
    _Float16 half;
    __builtin_memcpy(&half, &bits, 2);
    return (float)half;
}
static inline float tern_bf16_load(unsigned short bits) { return __uint_as_float((unsigned)bits << 16); }

/* ---------------------------------------------------------- barriers, warps */

#define __syncthreads()       tern_self->runtime->barrier(tern_self, __LINE__)
#define __syncwarp(...)       ((void)tern_self->runtime->exchange(tern_self, &tern_self->linear, 4, __LINE__))
#define __threadfence_block() __asm__ volatile("" ::: "memory")
#define __threadfence()       __atomic_thread_fence(__ATOMIC_SEQ_CST)

#define TERN_LANE (tern_self->linear & 31u)
template <class T> static inline T tern_shuffle(unsigned mask, T value, unsigned from, int line)
{
    if (mask != 0xffffffffu) tern_self->runtime->fail(tern_self, "a shuffle that leaves lanes out", line);
    T result;
    const unsigned char *lanes = tern_self->runtime->exchange(tern_self, &value, sizeof value, line);
    __builtin_memcpy(&result, lanes + 64u * (from & 31u), sizeof result);
    return result;
}
#define __shfl_sync(mask, value, lane)     tern_shuffle(mask, value, lane, __LINE__)
#define __shfl_xor_sync(mask, value, bits) tern_shuffle(mask, value, TERN_LANE ^ (unsigned)(bits), __LINE__)
#define __shfl_down_sync(mask, value, by)                                                                              \
    tern_shuffle(mask, value, TERN_LANE + (unsigned)(by) > 31u ? TERN_LANE : TERN_LANE + (unsigned)(by), __LINE__)
#define __shfl_up_sync(mask, value, by)                                                                                \
    tern_shuffle(mask, value, TERN_LANE < (unsigned)(by) ? TERN_LANE : TERN_LANE - (unsigned)(by), __LINE__)

/* ----------------------------------------------------------- matrix products */

/* Of d = a b + c with 16 x K times K x 8, lane l holds d at rows l / 4 and l / 4 + 8, columns 2 (l % 4) and the next.
 * mine: this lane's A_COUNT elements of a, then those of b, as f32. A_AT and B_AT: (lane, place) of an element. */
template <unsigned K, unsigned A_COUNT, class AT>
static inline void tern_mma(float *d, const float *mine, unsigned count, const float *c, AT at, int line)
{
    const float *all = (const float *)tern_self->runtime->exchange(tern_self, mine, 4u * count, line);
    float sums[4];
    for (unsigned i = 0; i < 4; i++) {
        const unsigned row = (TERN_LANE >> 2) + (i >= 2 ? 8u : 0u), column = (TERN_LANE & 3u) * 2u + (i & 1u);
        float sum = c[i];
        for (unsigned k = 0; k < K; k++) sum += all[at.a(row, k)] * all[at.b(k, column) + A_COUNT];
        sums[i] = sum;
    }
    for (unsigned i = 0; i < 4; i++) d[i] = sums[i];
}

struct tern_at_16 { /* f16 and bf16, K = 16: pairs along k in a register */
    static unsigned a(unsigned row, unsigned k)
    {
        return 16u * ((row & 7u) * 4u + ((k & 7u) >> 1)) + ((row >> 3) + ((k >> 3) << 1)) * 2u + (k & 1u);
    }
    static unsigned b(unsigned k, unsigned column)
    {
        return 16u * (column * 4u + ((k & 7u) >> 1)) + (k >> 3) * 2u + (k & 1u);
    }
};

struct tern_at_tf32 { /* K = 8: one element in a register */
    static unsigned a(unsigned row, unsigned k)
    {
        return 16u * ((row & 7u) * 4u + (k & 3u)) + (row >> 3) + (k >> 2) * 2u;
    }
    static unsigned b(unsigned k, unsigned column) { return 16u * (column * 4u + (k & 3u)) + (k >> 2); }
};

template <class LOAD>
static inline void tern_mma_16(float *d, const unsigned *a, const unsigned *b, const float *c, LOAD load, int line)
{
    float mine[12];
    for (unsigned i = 0; i < 12; i++) {
        const unsigned word = i < 8 ? a[i >> 1] : b[(i - 8) >> 1];
        mine[i] = load((unsigned short)(i & 1u ? word >> 16 : word));
    }
    tern_mma<16, 8>(d, mine, 12, c, tern_at_16(), line);
}

/* d[4], a[4], b[2], c[4]; d may be c. */
#define tern_mma_m16n8k16_f16(d, a, b, c)  tern_mma_16(d, a, b, c, tern_f16_load, __LINE__)
#define tern_mma_m16n8k16_bf16(d, a, b, c) tern_mma_16(d, a, b, c, tern_bf16_load, __LINE__)
#define tern_mma_m16n8k8_tf32(d, a, b, c)  tern_mma_8(d, a, b, c, __LINE__)

/* To nearest, ties away from zero; what is not finite stays. */
static inline unsigned tern_round_tf32(unsigned bits)
{
    return (bits & 0x7f800000u) == 0x7f800000u ? bits : (bits + 0x1000u) & 0xffffe000u;
}

/* The unit reads 19 bits of each f32. */
static inline void tern_mma_8(float *d, const unsigned *a, const unsigned *b, const float *c, int line)
{
    float mine[6];
    for (unsigned i = 0; i < 6; i++) mine[i] = __uint_as_float((i < 4 ? a[i] : b[i - 4]) & 0xffffe000u);
    tern_mma<8, 4>(d, mine, 6, c, tern_at_tf32(), line);
}

/* Four 8 x 8 matrices of 16-bit elements; lane l names row l % 8 of matrix l / 8, and gets of matrix i two neighbours
 * in row l / 4 (transposed: in column l / 4). Rows are read when their lane arrives, as the instruction reads at once.
 */
static inline void tern_ldmatrix(unsigned *r, const void *row, bool transposed, int line)
{
    if ((unsigned long)row & 15u)
        tern_self->runtime->fail(tern_self, "ldmatrix: a row is not aligned to 16 bytes", line);
    const unsigned char *rows = tern_self->runtime->exchange(tern_self, row, 16, line);
    const unsigned major = TERN_LANE >> 2, minor = (TERN_LANE & 3u) * 2u;
    for (unsigned i = 0; i < 4; i++) {
        unsigned short pair[2];
        for (unsigned e = 0; e < 2; e++) {
            const unsigned y = transposed ? minor + e : major, x = transposed ? major : minor + e;
            __builtin_memcpy(&pair[e], rows + 64u * (8u * i + y) + 2u * x, 2);
        }
        r[i] = (unsigned)pair[0] | (unsigned)pair[1] << 16;
    }
}
#define tern_ldmatrix_x4(r, row)       tern_ldmatrix(r, row, false, __LINE__)
#define tern_ldmatrix_x4_trans(r, row) tern_ldmatrix(r, row, true, __LINE__)

/* 16 bytes from global to shared memory; beyond `bytes` zeros. */
#define tern_cp_async_16(to, from, bytes) tern_self->runtime->cp_async(tern_self, to, from, bytes, __LINE__)
#define tern_cp_async_commit()            tern_self->runtime->cp_async_commit(tern_self)
#define tern_cp_async_wait(groups_left)   tern_self->runtime->cp_async_wait(tern_self, groups_left)

/* --------------------------------------------------------------- the record */

extern char tern_shared_begin[] __asm__("__start_tern_shared") __attribute__((weak, visibility("hidden")));
extern char tern_shared_end[] __asm__("__stop_tern_shared") __attribute__((weak, visibility("hidden")));

template <class T> struct tern_is_pointer {
    enum { value = 0 };
};
template <class T> struct tern_is_pointer<T *> {
    enum { value = 1 };
};
template <class T> struct tern_is_pointer<T *__restrict__> {
    enum { value = 1 };
};

template <class... A> struct tern_signature {
    static constexpr tern_parameter parameters[sizeof...(A) + 1] = {
        {sizeof(A), alignof(A), tern_is_pointer<A>::value}..., {0, 0, 0}};
    template <int... I> struct places {
    };
    template <int... I> static void call(void (*kernel)(A...), void **arguments, places<I...>)
    {
        kernel(*(A *)arguments[I]...);
    }
    static void call(void (*kernel)(A...), void **arguments)
    {
        call(kernel, arguments, places<__integer_pack((int)sizeof...(A))...>());
    }
};
template <class... A> constexpr tern_parameter tern_signature<A...>::parameters[];
template <class... A> static tern_signature<A...> tern_signature_of(void (*)(A...));

#define TERN_STAND_IN_KERNEL(kernel) TERN_STAND_IN_RECORD(kernel) /* the name may be a macro */
#define TERN_STAND_IN_RECORD(kernel)                                                                                   \
    static void tern_call_##kernel(void **arguments)                                                                   \
    {                                                                                                                  \
        decltype(tern_signature_of(&kernel))::call(&kernel, arguments);                                                \
    }                                                                                                                  \
    extern "C" __attribute__((visibility("default"))) const tern_kernel_record tern_stand_in_kernel_##kernel = {       \
        #kernel,                                                                                                       \
        tern_call_##kernel,                                                                                            \
        sizeof decltype(tern_signature_of(&kernel))::parameters / sizeof(tern_parameter) - 1,                          \
        decltype(tern_signature_of(&kernel))::parameters,                                                              \
        tern_shared_begin,                                                                                             \
        tern_shared_end};
