/* SPDX-License-Identifier: Apache-2.0 */
/* nvrtc.c - NVIDIA's compilers without a card: NVRTC makes a cubin, ptxas says registers and spills in its log, and the
 * cubin's instructions are counted.
 *
 *     CUDA C++ ── NVRTC ── PTX ── ptxas ─┬─ log     "Used 96 registers, ... 40 bytes spill stores"
 *                                        └─ cubin   .text.<kernel>: 16 bytes an instruction, the opcode in bits 0-8
 *
 * The options are those of backends/cuda. Opcodes are named as in NVIDIA's disassembler; their numbers hold from Volta
 * to Blackwell (bits 9-11 choose where operands come from and are left out). */
#include "bench/static/static.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct nvrtc_program_opaque *nvrtc_program;
static struct {
    int (*version)(int *, int *);
    int (*create)(nvrtc_program *, const char *, const char *, int, const char *const *, const char *const *);
    int (*compile)(nvrtc_program, int, const char *const *);
    int (*log_size)(nvrtc_program, size_t *);
    int (*log)(nvrtc_program, char *);
    int (*cubin_size)(nvrtc_program, size_t *);
    int (*cubin)(nvrtc_program, char *);
    int (*destroy)(nvrtc_program *);
} nvrtc;

static const struct {
    const char *name;
    size_t offset;
} symbols[] = {
#define SYMBOL(member, name)                                                                                           \
    {                                                                                                                  \
        name, offsetof(__typeof__(nvrtc), member)                                                                      \
    }
    SYMBOL(version, "nvrtcVersion"),        SYMBOL(create, "nvrtcCreateProgram"),
    SYMBOL(compile, "nvrtcCompileProgram"), SYMBOL(log_size, "nvrtcGetProgramLogSize"),
    SYMBOL(log, "nvrtcGetProgramLog"),      SYMBOL(cubin_size, "nvrtcGetCUBINSize"),
    SYMBOL(cubin, "nvrtcGetCUBIN"),         SYMBOL(destroy, "nvrtcDestroyProgram"),
#undef SYMBOL
};

/* A real one: the plug-in's stand-in is reached by LD_LIBRARY_PATH, so names without a folder come last. */
static void *open_library(void)
{
    char vendor[4096];
    snprintf(vendor, sizeof vendor, "%s/nvrtc/lib/libnvrtc.so*", static_vendor_folder());
    const char *const patterns[] = {vendor, "/usr/local/cuda*/lib*/libnvrtc.so.[0-9][0-9]",
                                    "/usr/local/cuda*/lib*/libnvrtc.so"};
    void *library = NULL;
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns && library == NULL; i++) {
        glob_t found;
        if (glob(patterns[i], 0, NULL, &found) != 0) continue;
        library = dlopen(found.gl_pathv[0], RTLD_NOW);
        globfree(&found);
    }
    return library ? library : dlopen("libnvrtc.so", RTLD_NOW);
}

static tern_status nvrtc_open(const static_target *target, tern_device *device, char *out_version, size_t bytes)
{
    int major, minor;
    void *library = open_library();
    (void)target;
    (void)device;
    if (!library)
        return tern_error(TERN_ERROR_NOT_FOUND, "no libnvrtc here; install the CUDA toolkit or run sh cmake/vendor.sh");
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *address = dlsym(library, symbols[i].name);
        if (!address)
            return tern_error(TERN_ERROR_NOT_FOUND, "libnvrtc lacks %s; use CUDA 11.2 or later", symbols[i].name);
        memcpy((char *)&nvrtc + symbols[i].offset, &address, sizeof address);
    }
    if (nvrtc.version(&major, &minor) != 0) return tern_error(TERN_ERROR_DRIVER, "nvrtcVersion failed");
    snprintf(out_version, bytes, "NVRTC %d.%d", major, minor);
    return TERN_OK;
}

/* The number before `words` in the log, summed over its lines: "40 bytes spill stores". */
static uint32_t logged(const char *log, const char *words)
{
    uint32_t sum = 0;
    for (const char *at = log; (at = strstr(at, words)) != NULL; at += strlen(words)) {
        const char *digits = at;
        while (digits > log && digits[-1] >= '0' && digits[-1] <= '9') digits--;
        sum += (uint32_t)strtoul(digits, NULL, 10);
    }
    return sum;
}

static const struct {
    uint32_t opcode;
    bool matrix;
    const char *name;
} opcodes[] = {
    {0x03c, true, "HMMA"},    {0x037, true, "IMMA"},  {0x03f, true, "DMMA"}, {0x03b, false, "LDSM"},
    {0x1ae, false, "LDGSTS"}, {0x023, false, "FFMA"}, {0x183, false, "LDL"}, {0x187, false, "STL"},
};

static tern_status count_instructions(const char *cubin, size_t bytes, static_figures *figures)
{
    size_t size = 0;
    const unsigned char *code = static_elf_section(cubin, bytes, ".text.", &size);
    if (!code) return tern_error(TERN_ERROR_KERNEL, "the cubin of %zu bytes has no .text section", bytes);
    figures->instructions = (uint32_t)(size / 16);
    for (size_t i = 0; i + 16 <= size; i += 16) {
        const uint32_t opcode = ((uint32_t)code[i] | (uint32_t)code[i + 1] << 8) & 0x1ff;
        for (size_t k = 0; k < sizeof opcodes / sizeof *opcodes; k++) {
            if (opcode != opcodes[k].opcode) continue;
            static_figures_count(figures, opcodes[k].name, 1);
            figures->matrix += opcodes[k].matrix;
        }
    }
    return TERN_OK;
}

static tern_status read_cubin(nvrtc_program program, static_figures *figures)
{
    size_t bytes = 0;
    char *cubin = NULL;
    if (nvrtc.cubin_size(program, &bytes) != 0 || bytes == 0)
        return tern_error(TERN_ERROR_KERNEL, "NVRTC made no cubin");
    cubin = malloc(bytes);
    if (!cubin) return tern_error_memory("a cubin", bytes);
    const tern_status status = nvrtc.cubin(program, cubin) == 0
                                   ? count_instructions(cubin, bytes, figures)
                                   : tern_error(TERN_ERROR_KERNEL, "NVRTC does not give its cubin");
    free(cubin);
    return status;
}

/* free() it; NULL when there is none. */
static char *read_log(nvrtc_program program)
{
    size_t bytes = 0;
    char *log = nvrtc.log_size(program, &bytes) == 0 && bytes > 0 ? malloc(bytes) : NULL;
    if (log && nvrtc.log(program, log) == 0) return log;
    free(log);
    return NULL;
}

static tern_status nvrtc_compile(const static_target *target, tern_device *device, const tern_kernel_desc *desc,
                                 static_figures *out_figures)
{
    tern_status status;
    tern_source source = {0};
    nvrtc_program program = NULL;
    char *log = NULL, architecture[40];
    (void)device;
    snprintf(architecture, sizeof architecture, "--gpu-architecture=%s", target->name);
    const char *const options[] = {architecture, "--fmad=false", "--ptxas-options=-v"};
    TERN_TRY(desc->render(desc, TERN_DIALECT_CUDA, false, &source));
    const int result = nvrtc.create(&program, source.text, "kernel.cu", 0, NULL, NULL);
    const int compiled = result ? result : nvrtc.compile(program, sizeof options / sizeof *options, options);
    if (program) log = read_log(program);
    if (compiled != 0) {
        status = tern_error(TERN_ERROR_KERNEL, "NVRTC error %d: %.800s", compiled, log ? log : "no message");
        goto fail;
    }
    *out_figures = (static_figures){.simd = 32};
    out_figures->registers = log ? logged(log, " registers") : 0;
    out_figures->spills = log ? logged(log, " bytes spill stores") : 0;
    const uint32_t stack = log ? logged(log, " bytes stack frame") : 0; /* spills are in it */
    if (stack > out_figures->spills) out_figures->private_bytes = stack - out_figures->spills;
    out_figures->shared = log ? logged(log, " bytes smem") : 0;
    if (out_figures->registers == 0)
        status = tern_error(TERN_ERROR_KERNEL, "ptxas says no registers: %.400s", log ? log : "no log");
    else
        status = read_cubin(program, out_figures);
fail:
    free(log);
    if (program) nvrtc.destroy(&program);
    free(source.text);
    return status;
}

const static_compiler_table static_nvrtc = {nvrtc_open, nvrtc_compile};
