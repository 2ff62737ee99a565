/* SPDX-License-Identifier: Apache-2.0 */
/* glsl.h - the kernel language in GLSL 4.50 (Vulkan). docs/kernel-language.md explains the words.
 *
 * The renderer prints #version, the extensions, ARGUMENT declarations and GROUP_SIZE before this text.
 * `precise` is what glslang turns into NoContraction: every floating-point local is a REAL, never a bare float, and a
 * function returns a REAL it has assigned, because precise does not reach through a return expression. */
#define FN
#define REAL              precise float
#define UNROLL            [[unroll]]
#define NO_UNROLL         [[dont_unroll]]
#define STRUCT(name, members) struct name { members };

#define KERNEL(name, shared_arrays)                                                                                    \
    layout(local_size_x = GROUP_SIZE, local_size_y = 1, local_size_z = 1) in;                                          \
    shared_arrays void main() {
#define KERNEL_END        }
#define SHARED(type, name, count) shared type name[count];
#define BARRIER           barrier()
#define GROUP             (gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x)
#define LOCAL             gl_LocalInvocationID.x

#define F32(x)            float(x)
#define I32(x)            int(x)
#define U32(x)            uint(x)
#define AS_F32(x)         uintBitsToFloat(x)
#define AS_U32(x)         floatBitsToUint(x)
#define FMA(a, b, c)      fma(a, b, c)
#define SQRT(x)           sqrt(x)
#define RSQRT(x)          inversesqrt(x)
#define FLOOR(x)          floor(x)
#define ABS(x)            abs(x)
#define MIN_U32(a, b)     min(a, b)

uint multiply_high(uint a, uint b) {
    uint high, low;
    umulExtended(a, b, high, low);
    return high;
}

/* Storage to registers and back. t is the array, i the element. */
#define LOAD_f32(t, i)    (t[i])
#define LOAD_i32(t, i)    (t[i])
#define LOAD_u32(t, i)    (t[i])
#define LOAD_u8(t, i)     uint(t[i])
#define LOAD_u16(t, i)    uint(t[i])
#define LOAD_f16(t, i)    f16_to_f32(uint(t[i]))
#define LOAD_bf16(t, i)   AS_F32(uint(t[i]) << 16)
#define STORE_f32(t, i, x)  t[i] = (x)
#define STORE_i32(t, i, x)  t[i] = (x)
#define STORE_u32(t, i, x)  t[i] = (x)
#define STORE_u8(t, i, x)   t[i] = uint8_t(x)
#define STORE_u16(t, i, x)  t[i] = uint16_t(x)
#define STORE_f16(t, i, x)  t[i] = uint16_t(f32_to_f16(x))
#define STORE_bf16(t, i, x) t[i] = uint16_t(f32_to_bf16(x))

/* One float: these devices have lanes, and no template that is WIDE is chosen for them. */
#define WIDTH             1u
#define WIDE              REAL
#define WIDE_OF(x)        (x)
#define WIDE_LOAD(array, i) array[i]
#define WIDE_STORE(array, i, x) array[i] = x
