/* SPDX-License-Identifier: Apache-2.0 */
/* spirv.h - what a SPIR-V module says about its kernels: names, arguments with their sizes, required group.
 *
 * Not a validator: it reads the handful of instructions that describe a kernel's outside and believes the rest.
 * Source: the Khronos SPIR-V specification 1.2, sections 2.3 (physical layout) and 3 (binary form). */
#ifndef TERN_TESTS_STAND_INS_LEVEL_ZERO_SPIRV_H
#define TERN_TESTS_STAND_INS_LEVEL_ZERO_SPIRV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum standin_argument_kind {
    STANDIN_ARGUMENT_VALUE = 0,
    STANDIN_ARGUMENT_POINTER, /* to global or constant memory */
    STANDIN_ARGUMENT_LOCAL,   /* shared memory of a size that the host gives */
    STANDIN_ARGUMENT_UNKNOWN
} standin_argument_kind;

typedef struct standin_argument {
    standin_argument_kind kind;
    size_t bytes; /* VALUE */
} standin_argument;

typedef struct standin_spirv_kernel {
    char name[96];
    uint32_t function;
    uint32_t argument_count;
    standin_argument *arguments;
    uint32_t required_group[3]; /* 0: any */
    uint32_t required_subgroup; /* 0: any */
} standin_spirv_kernel;

typedef struct standin_spirv {
    uint32_t kernel_count;
    standin_spirv_kernel *kernels;
    uint32_t version; /* major << 16 | minor << 8 */
    bool f16, f64;    /* arithmetic that it declares */
} standin_spirv;

/* False: *out_why says what is wrong with it, and nothing is kept. */
bool standin_spirv_read(const void *code, size_t bytes, standin_spirv *out, const char **out_why);
void standin_spirv_free(standin_spirv *spirv);

#endif
