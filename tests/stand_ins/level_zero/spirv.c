/* SPDX-License-Identifier: Apache-2.0 */
/* spirv.c - reads a kernel's outside from a SPIR-V module, in one pass over its instructions.
 *
 *     OpEntryPoint ── function ── OpFunctionParameter... ── type ──> kind and bytes of each argument
 *     OpExecutionMode ── LocalSize, SubgroupSize
 *
 * A struct by value is a pointer parameter with the attribute ByVal; its bytes are those of what it points to. */
#include "tests/stand_ins/level_zero/spirv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC        0x07230203u
#define HEADER_WORDS 5u
#define MAX_IDS      (1u << 22)
#define MAX_DEPTH    16u /* of types inside types */

enum { /* the numbers of the specification */
       OP_ENTRY_POINT = 15,
       OP_EXECUTION_MODE = 16,
       OP_CAPABILITY = 17,
       OP_TYPE_INT = 21,
       OP_TYPE_FLOAT = 22,
       OP_TYPE_VECTOR = 23,
       OP_TYPE_ARRAY = 28,
       OP_TYPE_STRUCT = 30,
       OP_TYPE_POINTER = 32,
       OP_CONSTANT = 43,
       OP_FUNCTION = 54,
       OP_FUNCTION_PARAMETER = 55,
       OP_DECORATE = 71,
       MODEL_KERNEL = 6,
       MODE_LOCAL_SIZE = 17,
       MODE_SUBGROUP_SIZE = 35,
       DECORATION_PACKED = 10,
       DECORATION_PARAMETER = 38,
       PARAMETER_BY_VALUE = 2,
       CLASS_CONSTANT = 0,
       CLASS_LOCAL = 4,
       CLASS_GLOBAL = 5,
       CAPABILITY_F16 = 9,
       CAPABILITY_F64 = 10
};

typedef struct reader {
    const uint32_t *words;
    size_t count;
    uint32_t ids;
    const uint32_t **definitions; /* of types and constants, by id; NULL: not seen */
    bool *by_value, *packed;      /* by id */
    standin_spirv *out;
} reader;

static standin_spirv_kernel *find_kernel(standin_spirv *spirv, uint32_t function)
{
    for (uint32_t i = 0; i < spirv->kernel_count; i++)
        if (spirv->kernels[i].function == function) return &spirv->kernels[i];
    return NULL;
}

/* Bytes of a type as the host lays it out, and its alignment; 0: not a type that a host passes. */
static size_t type_bytes(const reader *r, uint32_t id, unsigned depth, size_t *out_alignment)
{
    const uint32_t *type = id < r->ids ? r->definitions[id] : NULL;
    size_t bytes = 0, alignment = 1;
    if (!type || depth > MAX_DEPTH) return 0;
    const uint32_t length = type[0] >> 16;
    switch (type[0] & 0xFFFF) {
    case OP_TYPE_INT:
    case OP_TYPE_FLOAT: bytes = alignment = type[2] / 8; break;
    case OP_TYPE_POINTER: bytes = alignment = 8; break;
    case OP_TYPE_VECTOR:
        bytes = type_bytes(r, type[2], depth + 1, &alignment) * (type[3] == 3 ? 4 : type[3]);
        alignment = bytes;
        break;
    case OP_TYPE_ARRAY: {
        const uint32_t *length_constant = type[3] < r->ids ? r->definitions[type[3]] : NULL;
        bytes = type_bytes(r, type[2], depth + 1, &alignment) * (length_constant ? length_constant[3] : 0);
        break;
    }
    case OP_TYPE_STRUCT:
        for (uint32_t i = 2; i < length; i++) {
            size_t one = 1;
            const size_t member = type_bytes(r, type[i], depth + 1, &one);
            if (!member) return 0;
            if (r->packed[id]) one = 1;
            bytes = (bytes + one - 1) / one * one + member;
            if (one > alignment) alignment = one;
        }
        bytes = (bytes + alignment - 1) / alignment * alignment;
        break;
    default: break;
    }
    *out_alignment = alignment;
    return bytes;
}

static standin_argument argument_of(const reader *r, uint32_t type_id, uint32_t parameter)
{
    size_t alignment;
    const uint32_t *type = type_id < r->ids ? r->definitions[type_id] : NULL;
    standin_argument argument = {.kind = STANDIN_ARGUMENT_UNKNOWN};
    if (type && (type[0] & 0xFFFF) == OP_TYPE_POINTER) {
        if (r->by_value[parameter])
            argument = (standin_argument){STANDIN_ARGUMENT_VALUE, type_bytes(r, type[3], 0, &alignment)};
        else if (type[2] == CLASS_LOCAL)
            argument.kind = STANDIN_ARGUMENT_LOCAL;
        else if (type[2] == CLASS_GLOBAL || type[2] == CLASS_CONSTANT)
            argument.kind = STANDIN_ARGUMENT_POINTER;
    } else if (type) {
        argument = (standin_argument){STANDIN_ARGUMENT_VALUE, type_bytes(r, type_id, 0, &alignment)};
    }
    if (argument.kind == STANDIN_ARGUMENT_VALUE && !argument.bytes) argument.kind = STANDIN_ARGUMENT_UNKNOWN;
    return argument;
}

/* The string that starts at a word, if it ends within the instruction. */
static bool read_name(const uint32_t *word, size_t words, char *out, size_t bytes)
{
    const char *text = (const char *)word;
    const size_t length = strnlen(text, 4 * words);
    if (length == 4 * words || length >= bytes) return false;
    memcpy(out, text, length + 1);
    return true;
}

static bool add_kernel(reader *r, const uint32_t *w, uint32_t length)
{
    standin_spirv *out = r->out;
    standin_spirv_kernel *kernels = realloc(out->kernels, (out->kernel_count + 1) * sizeof *kernels);
    if (!kernels) return false;
    out->kernels = kernels;
    kernels[out->kernel_count] = (standin_spirv_kernel){.function = w[2]};
    if (!read_name(w + 3, length - 3, kernels[out->kernel_count].name, sizeof kernels->name)) return false;
    out->kernel_count++;
    return true;
}

static bool add_argument(standin_spirv_kernel *kernel, standin_argument argument)
{
    standin_argument *grown = realloc(kernel->arguments, (kernel->argument_count + 1) * sizeof *grown);
    if (!grown) return false;
    kernel->arguments = grown;
    grown[kernel->argument_count++] = argument;
    return true;
}

/* Words that an instruction must have to be read here. */
static uint32_t least_words(uint32_t op)
{
    switch (op) {
    case OP_ENTRY_POINT: return 4;
    case OP_EXECUTION_MODE: return 3;
    case OP_CAPABILITY: return 2;
    case OP_TYPE_INT: return 4;
    case OP_TYPE_FLOAT: return 3;
    case OP_TYPE_VECTOR:
    case OP_TYPE_ARRAY:
    case OP_TYPE_POINTER:
    case OP_CONSTANT: return 4;
    case OP_TYPE_STRUCT: return 2;
    case OP_FUNCTION: return 5;
    case OP_FUNCTION_PARAMETER:
    case OP_DECORATE: return 3;
    default: return 1;
    }
}

static void read_mode(standin_spirv_kernel *kernel, const uint32_t *w, uint32_t length)
{
    if (!kernel) return;
    if (w[2] == MODE_LOCAL_SIZE && length >= 6) memcpy(kernel->required_group, w + 3, 12);
    if (w[2] == MODE_SUBGROUP_SIZE && length >= 4) kernel->required_subgroup = w[3];
}

/* One instruction; *current is the kernel whose parameters are being read. */
static bool read_instruction(reader *r, const uint32_t *w, uint32_t op, uint32_t length, standin_spirv_kernel **current)
{
    switch (op) {
    case OP_ENTRY_POINT: return w[1] != MODEL_KERNEL || add_kernel(r, w, length);
    case OP_EXECUTION_MODE: read_mode(find_kernel(r->out, w[1]), w, length); break;
    case OP_CAPABILITY:
        r->out->f16 |= w[1] == CAPABILITY_F16;
        r->out->f64 |= w[1] == CAPABILITY_F64;
        break;
    case OP_DECORATE:
        if (w[1] >= r->ids) return false;
        if (w[2] == DECORATION_PARAMETER && length >= 4 && w[3] == PARAMETER_BY_VALUE) r->by_value[w[1]] = true;
        if (w[2] == DECORATION_PACKED) r->packed[w[1]] = true;
        break;
    case OP_TYPE_INT:
    case OP_TYPE_FLOAT:
    case OP_TYPE_VECTOR:
    case OP_TYPE_ARRAY:
    case OP_TYPE_STRUCT:
    case OP_TYPE_POINTER:
    case OP_CONSTANT: {
        const uint32_t id = op == OP_CONSTANT ? w[2] : w[1];
        if (id >= r->ids) return false;
        r->definitions[id] = w;
        break;
    }
    case OP_FUNCTION: *current = find_kernel(r->out, w[2]); break;
    case OP_FUNCTION_PARAMETER:
        if (w[2] >= r->ids) return false;
        return !*current || add_argument(*current, argument_of(r, w[1], w[2]));
    default: break;
    }
    return true;
}

static const char *read_all(reader *r)
{
    standin_spirv_kernel *current = NULL;
    for (size_t at = HEADER_WORDS; at < r->count;) {
        const uint32_t op = r->words[at] & 0xFFFF, length = r->words[at] >> 16;
        if (!length || length > r->count - at || length < least_words(op)) return "an instruction is cut short";
        if (!read_instruction(r, r->words + at, op, length, &current)) return "an instruction names what there is not";
        at += length;
    }
    return r->out->kernel_count ? NULL : "it has no kernel";
}

bool standin_spirv_read(const void *code, size_t bytes, standin_spirv *out, const char **out_why)
{
    reader r = {.words = code, .count = bytes / 4, .out = out};
    *out = (standin_spirv){0};
    *out_why = bytes % 4 || r.count < HEADER_WORDS ? "it is shorter than a header"
               : r.words[0] != MAGIC               ? "the magic number is not SPIR-V's"
               : r.words[3] > MAX_IDS              ? "it has too many ids"
                                                   : NULL;
    if (*out_why) return false;
    r.ids = r.words[3];
    out->version = r.words[1];
    r.definitions = calloc(r.ids + 1, sizeof *r.definitions);
    r.by_value = calloc(r.ids + 1, sizeof *r.by_value);
    r.packed = calloc(r.ids + 1, sizeof *r.packed);
    *out_why = r.definitions && r.by_value && r.packed ? read_all(&r) : "there is no memory to read it";
    free(r.definitions);
    free(r.by_value);
    free(r.packed);
    if (*out_why) standin_spirv_free(out);
    return !*out_why;
}

void standin_spirv_free(standin_spirv *spirv)
{
    for (uint32_t i = 0; i < spirv->kernel_count; i++) free(spirv->kernels[i].arguments);
    free(spirv->kernels);
    *spirv = (standin_spirv){0};
}
