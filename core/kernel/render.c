/* SPDX-License-Identifier: Apache-2.0 */
/* render.c - a kernel's whole text in one dialect: what tern_kernel_desc.render points to.
 *
 *     #version, extensions | GROUP_SIZE, arguments, LOADn / STOREn, WORDn | dialect/<name>.h | math.k | EPILOGUE,
 * template or tape
 *
 * Only this file knows how each API passes arguments (core/backend.h has the convention); templates and tapes see the
 * words LOADn(i), STOREn(i, x) and WORDn. What it is not: it compiles nothing. Invariant: equal descs (key) give equal
 * texts; the label is not in it. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/status.h"
#include "core/kernel/lowered.h"
#include "core/kernel/render_text.h"
#include "core/kernel/shaders.h"

/* -------------------------------------------------------------------- text */

void tern_text_add(tern_text *text, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int needed = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (needed < 0) text->failed = true;
    if (!text->failed && text->length + (size_t)needed + 1 > text->capacity) {
        size_t capacity = 2 * text->capacity + (size_t)needed + 1024;
        char *data = realloc(text->data, capacity);
        if (data == NULL)
            text->failed = true;
        else
            text->data = data, text->capacity = capacity;
    }
    if (!text->failed) {
        vsnprintf(text->data + text->length, (size_t)needed + 1, format, again);
        text->length += (size_t)needed;
    }
    va_end(again);
}

static const char *shader_text(const char *name)
{
    for (const tern_shader_file *file = tern_shader_files; file->name != NULL; file++)
        if (strcmp(file->name, name) == 0) return file->text;
    return NULL;
}

static void add_file(tern_text *text, const char *name)
{
    const char *content = shader_text(name);
    if (content != NULL)
        tern_text_add(text, "%s", content);
    else
        text->failed = true; /* cannot happen in a complete build: the files are embedded in it */
}

/* --------------------------------------------------------------- arguments */

typedef struct renderer {
    tern_text text;
    const tern_kernel_desc *desc;
    bool addresses;
    uint32_t column_mask; /* tensors that COLUMN stores read back */
} renderer;

static const char *dtype_word(const renderer *r, uint32_t tensor)
{
    const tern_dtype_info *info = tern_dtype(r->desc->tensors[tensor].dtype);
    return info != NULL ? info->name : "f32";
}

static bool reads(const renderer *r, uint32_t i)
{
    return (r->desc->tensors[i].mode & TERN_ACCESS_READ) != 0 || (r->column_mask >> i & 1u) != 0;
}

static bool writes(const renderer *r, uint32_t i) { return (r->desc->tensors[i].mode & TERN_ACCESS_WRITE) != 0; }

/* Storage types by dtype: 16-bit floats are stored as integers and converted by our own text. */
static const char *storage_type(uint8_t dtype, tern_dialect dialect)
{
    static const char *const names[3][4] = {{"float", "int", "uint8_t", "uint16_t"},
                                            {"float", "int", "uchar", "ushort"},
                                            {"float", "int", "unsigned char", "unsigned short"}};
    switch (dtype) {
    case TERN_F32: return names[dialect][0];
    case TERN_I32: return names[dialect][1];
    case TERN_U8: return names[dialect][2];
    case TERN_U32: return "uint";
    default: return names[dialect][3];
    }
}

static void add_glsl_extensions(renderer *r)
{
    bool bytes = false, shorts = false;
    for (uint32_t i = 0; i < r->desc->tensor_count; i++) {
        uint8_t dtype = r->desc->tensors[i].dtype;
        bytes = bytes || dtype == TERN_U8;
        shorts = shorts || dtype == TERN_U16 || dtype == TERN_F16 || dtype == TERN_BF16;
    }
    tern_text_add(&r->text, "#version 450\n#extension GL_EXT_control_flow_attributes : require\n");
    if (bytes) tern_text_add(&r->text, "#extension GL_EXT_shader_8bit_storage : require\n");
    if (shorts) tern_text_add(&r->text, "#extension GL_EXT_shader_16bit_storage : require\n");
    if (r->addresses) tern_text_add(&r->text, "#extension GL_EXT_buffer_reference : require\n");
    if (r->desc->variant.fragment.subgroup > 1)
        tern_text_add(&r->text, "#extension GL_KHR_cooperative_matrix : require\n"
                                "#extension GL_KHR_memory_scope_semantics : require\n"
                                "#extension GL_KHR_shader_subgroup_basic : require\n"
                                "#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require\n");
}

/* restrict only where a tensor is not updated in place. */
static const char *glsl_qualifiers(const renderer *r, uint32_t i)
{
    return !writes(r, i) ? "restrict readonly " : !reads(r, i) ? "restrict writeonly " : "";
}

static void add_glsl_arguments(renderer *r)
{
    const tern_kernel_desc *desc = r->desc;
    tern_text *text = &r->text;
    for (uint32_t i = 0; i < desc->tensor_count; i++) {
        const char *type = storage_type(desc->tensors[i].dtype, TERN_DIALECT_GLSL);
        if (r->addresses)
            tern_text_add(
                text,
                "layout(buffer_reference, std430, buffer_reference_align = %u) %sbuffer tensor%u { %s data[]; };\n",
                tern_dtype(desc->tensors[i].dtype)->bytes, glsl_qualifiers(r, i), i, type);
        else
            tern_text_add(text, "layout(set = 0, binding = %u, std430) %sbuffer tensor%u { %s t%u[]; };\n", i,
                          glsl_qualifiers(r, i), i, type, i);
    }
    tern_text_add(text, "layout(push_constant, std430) uniform arguments_block {\n");
    if (r->addresses)
        for (uint32_t i = 0; i < desc->tensor_count; i++) tern_text_add(text, "    tensor%u t%u;\n", i, i);
    for (uint32_t i = 0; i < desc->word_count; i++) tern_text_add(text, "    uint w%u;\n", i);
    if (!r->addresses)
        for (uint32_t i = 0; i < desc->tensor_count; i++) tern_text_add(text, "    uint o%u;\n", i);
    tern_text_add(text, "} arguments;\n");
    for (uint32_t i = 0; i < desc->word_count; i++) tern_text_add(text, "#define WORD%u arguments.w%u\n", i, i);
}

/* OpenCL and CUDA: one parameter list. */
static void add_c_arguments(renderer *r, tern_dialect dialect)
{
    const tern_kernel_desc *desc = r->desc;
    tern_text *text = &r->text;
    bool opencl = dialect == TERN_DIALECT_OPENCL;
    tern_text_add(text, "typedef struct arguments_block {\n");
    for (uint32_t i = 0; i < desc->word_count; i++) tern_text_add(text, "    unsigned int w%u;\n", i);
    tern_text_add(text, "} arguments_block;\n#define ARGUMENTS");
    for (uint32_t i = 0; i < desc->tensor_count; i++) {
        bool in_place = reads(r, i) && writes(r, i);
        const char *restricted = in_place ? "" : opencl ? "restrict " : "__restrict__ ";
        tern_text_add(text, " \\\n    %s%s%s *%st%u,", opencl ? "__global " : "", writes(r, i) ? "" : "const ",
                      storage_type(desc->tensors[i].dtype, dialect), restricted, i);
        if (opencl) tern_text_add(text, " const uint o%u,", i);
    }
    tern_text_add(text, " \\\n    const arguments_block arguments\n");
    for (uint32_t i = 0; i < desc->word_count; i++) tern_text_add(text, "#define WORD%u arguments.w%u\n", i, i);
}

static bool is_attention(const tern_kernel_desc *desc)
{
    return desc->kind == TERN_KERNEL_ATTENTION || desc->kind == TERN_KERNEL_ATTENTION_DQ ||
           desc->kind == TERN_KERNEL_ATTENTION_DKV;
}

/* Tensors before this one may be a fragment's operands: a and b, or q, k, v and do. */
static uint32_t fragment_operands(const tern_kernel_desc *desc) { return is_attention(desc) ? 4 : 2; }

static void add_access_words(renderer *r, tern_dialect dialect)
{
    bool offsets = dialect == TERN_DIALECT_OPENCL || (dialect == TERN_DIALECT_GLSL && !r->addresses);
    for (uint32_t i = 0; i < r->desc->tensor_count; i++) {
        char array[32], index[32];
        if (r->addresses)
            snprintf(array, sizeof array, "arguments.t%u.data", i);
        else
            snprintf(array, sizeof array, "t%u", i);
        const char *start = offsets ? (dialect == TERN_DIALECT_GLSL ? "arguments.o" : "o") : "";
        if (offsets)
            snprintf(index, sizeof index, "%s%u + (i)", start, i);
        else
            snprintf(index, sizeof index, "i");
        if (r->desc->variant.fragment.subgroup != 0 && i < fragment_operands(r->desc) && reads(r, i)) {
            /* As stored, and where. */
            const bool whole = r->desc->variant.fragment.dtype == TERN_F32;
            tern_text_add(&r->text, "#define RAW%u(i) %s(%s[%s])\n", i, whole ? "AS_U32" : "U32", array, index);
            if (dialect != TERN_DIALECT_GLSL) tern_text_add(&r->text, "#define AT%u(i) (%s + (%s))\n", i, array, index);
        }
        if (reads(r, i))
            tern_text_add(&r->text, "#define LOAD%u(i) LOAD_%s(%s, %s)\n", i, dtype_word(r, i), array, index);
        if (writes(r, i))
            tern_text_add(&r->text, "#define STORE%u(i, x) STORE_%s(%s, %s, x)\n", i, dtype_word(r, i), array, index);
    }
}

/* --------------------------------------------------------------- templates */

typedef struct template_info {
    const char *entry, *file;       /* file NULL: the tape is the kernel */
    const char *before;             /* a file that it needs first, or NULL */
    uint32_t first_epilogue_tensor; /* 0: no epilogue */
} template_info;

static const struct template_names {
    const char *entry, *shared, *registers, *packed;
    uint32_t part;
    const char *fragment;
} templates[TERN_KERNEL_KIND_COUNT] = {
    [TERN_KERNEL_TAPE] = {"tern_tape", NULL, NULL, NULL, 0, NULL},
    [TERN_KERNEL_MATMUL] = {"tern_matmul", "matmul_shared.k", "matmul_register.k", "matmul_packed.k", 0,
                            "matmul_fragment.k"},
    [TERN_KERNEL_ATTENTION] = {"tern_attention", "attention.k", NULL, "attention_packed.k", 0, "attention_fragment.k"},
    [TERN_KERNEL_ATTENTION_DQ] = {"tern_attention_dq", "attention_dq.k", NULL, "attention_packed.k", 1,
                                  "attention_dq_fragment.k"},
    [TERN_KERNEL_ATTENTION_DKV] = {"tern_attention_dkv", "attention_dkv.k", NULL, "attention_packed.k", 2,
                                   "attention_dkv_fragment.k"},
    [TERN_KERNEL_SCATTER_ADD] = {"tern_scatter_add", NULL, "scatter_add.k", NULL, 0, NULL},
};

static bool is_packed(const tern_kernel_desc *desc)
{
    return !desc->variant.shared_form && desc->variant.group[0] == 1 && templates[desc->kind].packed != NULL;
}

static bool has_fragments(const tern_kernel_desc *desc) { return desc->variant.fragment.subgroup != 0; }
static bool has_matrix_units(const tern_kernel_desc *desc) { return desc->variant.fragment.subgroup > 1; }

static template_info template_of(const tern_kernel_desc *desc)
{
    const struct template_names *names = &templates[desc->kind];
    template_info info = {.entry = names->entry};
    if (has_fragments(desc))
        info.file = names->fragment, info.before = "fragment_tile.k";
    else if (is_packed(desc))
        info.file = names->packed, info.before = "packed_tile.k";
    else if (desc->variant.shared_form)
        info.file = names->shared, info.before = is_attention(desc) ? "attention_tile.k" : NULL;
    else
        info.file = names->registers;
    if (desc->kind == TERN_KERNEL_MATMUL) info.first_epilogue_tensor = 2;
    if (desc->kind == TERN_KERNEL_SCATTER_ADD) info.first_epilogue_tensor = desc->sorted ? 3 : 2;
    return info;
}

static void add_fragment_parameters(tern_text *text, const tern_matrix_shape *f)
{
    tern_text_add(text, "#define FRAGMENT_M %uu\n#define FRAGMENT_N %uu\n#define FRAGMENT_K %uu\n", f->m, f->n, f->k);
    tern_text_add(text, "#define SUBGROUP %uu\n#define PACKED %uu\n#define FRAGMENT_%s\n", f->subgroup,
                  f->dtype == TERN_F32 ? 1 : 2,
                  f->dtype == TERN_F16    ? "F16"
                  : f->dtype == TERN_BF16 ? "BF16"
                                          : "F32");
    if (f->subgroup > 1) tern_text_add(text, "#define MATRIX_UNITS\n");
}

/* What a template bakes, as macros. */
static void add_parameters(tern_text *text, const tern_kernel_desc *desc)
{
    const tern_variant *v = &desc->variant;
    tern_text_add(text, "#define GROUP_SIZE %uu\n", v->group[0]);
    if (desc->kind == TERN_KERNEL_TAPE) return;
    const struct {
        const char *name;
        uint32_t value;
    } values[] = {
        {"TILE_M", v->tile_m},
        {"TILE_N", v->tile_n},
        {"TILE_K", v->tile_k},
        {"THREAD_M", v->thread_m},
        {"THREAD_N", v->thread_n},
        {"A_TRANSPOSED", desc->a_transposed},
        {"B_TRANSPOSED", desc->b_transposed},
        {"HEAD_DIM", desc->head_dim},
        {"CAUSAL", desc->causal},
        {"SORTED", desc->sorted},
        {"PART", templates[desc->kind].part},
    };
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        tern_text_add(text, "#define %s %u%s\n", values[i].name, values[i].value, i < 5 || i == 7 ? "u" : "");
    tern_text_add(text, "#define ENTRY %s\n", templates[desc->kind].entry);
    if (has_fragments(desc)) add_fragment_parameters(text, &v->fragment);
}

static void add_tape_kernel(tern_text *text, const tern_kernel_desc *desc)
{
    uint32_t arrays = desc->variant.row_per_thread ? 0 : tern_render_tape_arrays(&desc->tape);
    tern_text_add(text, "\nKERNEL(tern_tape, ");
    if (arrays > 0) tern_text_add(text, "SHARED(float, reduced, GROUP_SIZE * %uu)", arrays);
    tern_text_add(text, ")\n");
    tern_render_tape_body(text, desc);
    tern_text_add(text, "KERNEL_END\n");
}

static tern_status check_desc(const tern_kernel_desc *desc)
{
    if (desc->tensor_count > TERN_TAPE_TENSORS || desc->word_count > TERN_KERNEL_WORDS || desc->word_count == 0)
        return tern_error(TERN_ERROR_INTERNAL,
                          "kernel \"%s\" has %u tensors and %u words; at most %d and 1 to %d are allowed", desc->label,
                          desc->tensor_count, desc->word_count, TERN_TAPE_TENSORS, TERN_KERNEL_WORDS);
    if (desc->kind >= TERN_KERNEL_KIND_COUNT)
        return tern_error(TERN_ERROR_INTERNAL, "kernel \"%s\" has kind %d, which is none", desc->label,
                          (int)desc->kind);
    if (desc->variant.group[0] == 0)
        return tern_error(TERN_ERROR_INTERNAL, "kernel \"%s\" has no variant; call tern_variant_choose first",
                          desc->label);
    template_info info = template_of(desc);
    if (desc->kind != TERN_KERNEL_TAPE && info.file == NULL)
        return tern_error(TERN_ERROR_INTERNAL, "kernel \"%s\" has no template for variant %s", desc->label,
                          desc->variant.name);
    bool has_tape = info.file == NULL || info.first_epilogue_tensor > 0;
    if (has_tape && info.first_epilogue_tensor + desc->tape.tensor_count != desc->tensor_count)
        return tern_error(TERN_ERROR_INTERNAL, "kernel \"%s\" has %u tensors, but %u of its own and %u of its tape",
                          desc->label, desc->tensor_count, info.first_epilogue_tensor, desc->tape.tensor_count);
    return has_tape ? tern_tape_check(&desc->tape, info.file != NULL) : TERN_OK;
}

tern_status tern_render(const tern_kernel_desc *desc, tern_dialect dialect, bool addresses, tern_source *out_source)
{
    static const char *const headers[] = {"dialect/glsl.h", "dialect/opencl.h", "dialect/cuda.h"};
    static const char *const matrix[] = {"dialect/glsl_matrix.h", "dialect/opencl_matrix.h", "dialect/cuda_matrix.h"};
    tern_status status = check_desc(desc);
    if (status < 0) return status;
    renderer r = {.desc = desc, .addresses = addresses && dialect == TERN_DIALECT_GLSL};
    template_info info = template_of(desc);
    for (uint32_t i = 0; i < desc->tape.insn_count; i++)
        if (desc->tape.insn[i].op == TERN_TAPE_COLUMN)
            r.column_mask |= 1u << (info.first_epilogue_tensor + desc->tape.access[desc->tape.insn[i].access].tensor);
    if (dialect == TERN_DIALECT_GLSL) add_glsl_extensions(&r);
    add_parameters(&r.text, desc);
    if (dialect == TERN_DIALECT_GLSL)
        add_glsl_arguments(&r);
    else
        add_c_arguments(&r, dialect);
    add_file(&r.text, headers[dialect]);
    add_access_words(&r, dialect);
    add_file(&r.text, "math.k");
    if (info.first_epilogue_tensor > 0) tern_render_epilogue(&r.text, &desc->tape, info.first_epilogue_tensor);
    if (info.before != NULL) add_file(&r.text, info.before);
    if (has_fragments(desc)) add_file(&r.text, has_matrix_units(desc) ? matrix[dialect] : "fragment_registers.k");
    if (has_fragments(desc) && is_attention(desc)) add_file(&r.text, "attention_fragment_tile.k");
    if (info.file != NULL)
        add_file(&r.text, info.file);
    else
        add_tape_kernel(&r.text, desc);
    if (r.text.failed) {
        free(r.text.data);
        return tern_error_memory("a kernel's text", r.text.capacity);
    }
    out_source->text = r.text.data;
    out_source->bytes = r.text.length;
    snprintf(out_source->entry, sizeof out_source->entry, "%s", dialect == TERN_DIALECT_GLSL ? "main" : info.entry);
    return TERN_OK;
}
