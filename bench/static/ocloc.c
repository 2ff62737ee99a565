/* SPDX-License-Identifier: Apache-2.0 */
/* ocloc.c - Intel's offline compiler for Arc: OpenCL C in, a zebin out, whose .ze_info and instructions are read.
 *
 *     OpenCL C ── libocloc (libigdfcl, libigc) ── zebin ─┬─ .ze_info   simd_size, grf_count, spills, slm, has_dpas
 *                                                        └─ .text.*    8 or 16 bytes an instruction, opcode in bits 0-6
 *
 * The libraries may lie in build/vendor (cmake/vendor.sh) instead of the system: they are opened by path in the order
 * of their needs, so that libocloc finds them by name. Opcodes: Intel's PRM of DG2, volume 7; bit 29 marks the short
 * form. */
#include "bench/static/static.h"

#include "core/base/ocloc.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tern_ocloc ocloc;

static void *open_in_folder(const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/ocloc/lib/%s", static_vendor_folder(), name);
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    return library ? library : dlopen(name, RTLD_NOW | RTLD_GLOBAL);
}

static void read_version(char *out_version, size_t bytes)
{
    char path[4096], version[64] = "";
    snprintf(path, sizeof path, "%s/ocloc/version", static_vendor_folder());
    FILE *file = fopen(path, "r");
    if (file && !fgets(version, sizeof version, file)) version[0] = 0;
    if (file) fclose(file);
    version[strcspn(version, "\n")] = 0;
    snprintf(out_version, bytes, "ocloc%s%s", version[0] ? " " : "", version);
}

/* ------------------------------------------------------------------ reading */

/* The number after "key:" in the YAML text of .ze_info, summed over its kernels; 0 when it is not there. */
static uint32_t value(const char *text, size_t bytes, const char *key)
{
    uint32_t sum = 0;
    const size_t length = strlen(key);
    const char *end = text + bytes;
    for (const char *at = text; (at = memmem(at, (size_t)(end - at), key, length)) != NULL;) {
        at += length;
        while (at < end && *at == ' ') at++;
        uint32_t number = 0;
        for (; at < end && *at >= '0' && *at <= '9'; at++) number = 10 * number + (uint32_t)(*at - '0');
        sum += number;
    }
    return sum;
}

/* Memory per hardware thread, from entries "type: scratch, usage: spill_fill_space, size: 64", for registers that did
 * not fit; per lane, from "type: global, usage: private_space", for arrays that did not. */
static void read_memory(const char *text, size_t bytes, static_figures *figures)
{
    static const char start[] = "per_thread_memory_buffers:", stop[] = "\nkernels_misc_info:";
    const char *end = text + bytes, *at = memmem(text, bytes, start, sizeof start - 1);
    if (!at) return;
    const char *next = memmem(at, (size_t)(end - at), stop, sizeof stop - 1);
    if (next) end = next;
    while ((at = memmem(at, (size_t)(end - at), "type:", 5)) != NULL) {
        const char *entry = at + 5;
        next = memmem(entry, (size_t)(end - entry), "type:", 5);
        const size_t length = (size_t)((next ? next : end) - entry);
        uint32_t *figure = memmem(entry, length, "private_space", 13) ? &figures->private_bytes : &figures->spills;
        *figure += value(entry, length, " size:");
        at = next ? next : end;
    }
}

static const struct {
    uint32_t opcode;
    bool matrix;
    const char *name;
} opcodes[] = {{0x59, true, "dpas"}, {0x5a, true, "dpasw"}, {0x5b, false, "mad"}, {0x31, false, "send"}};

static void count_instructions(const unsigned char *code, size_t bytes, static_figures *figures)
{
    for (size_t at = 0; at + 8 <= bytes;) {
        uint32_t word;
        memcpy(&word, code + at, sizeof word);
        at += word >> 29 & 1 ? 8 : 16;
        if (word == 0) continue; /* padding between kernels */
        figures->instructions++;
        for (size_t k = 0; k < sizeof opcodes / sizeof *opcodes; k++) {
            if ((word & 0x7f) != opcodes[k].opcode) continue;
            static_figures_count(figures, opcodes[k].name, 1);
            figures->matrix += opcodes[k].matrix;
        }
    }
}

static tern_status read_zebin(const void *elf, size_t bytes, static_figures *figures)
{
    size_t size = 0, code_bytes = 0;
    const char *info = static_elf_section(elf, bytes, ".ze_info", &size);
    const void *code = static_elf_section(elf, bytes, ".text.", &code_bytes);
    if (!info || !code) return tern_error(TERN_ERROR_KERNEL, "the binary of %zu bytes is no zebin", bytes);
    figures->registers = value(info, size, "grf_count:");
    figures->simd = value(info, size, "simd_size:");
    figures->shared = value(info, size, "slm_size:");
    read_memory(info, size, figures);
    count_instructions(code, code_bytes, figures);
    if (getenv("TERN_STATIC_VERBOSE")) fprintf(stderr, "%.*s\n", (int)size, info);
    const bool claims = tern_ocloc_has_dpas(info, size);
    if (claims != (figures->matrix > 0))
        return tern_error(TERN_ERROR_KERNEL, "has_dpas is %s and %u dpas are found", claims ? "true" : "false",
                          figures->matrix);
    return TERN_OK;
}

/* ---------------------------------------------------------------- compiling */

static tern_status read_outputs(const tern_ocloc_files *files, static_figures *figures)
{
    const uint32_t i = tern_ocloc_file(files, "\177ELF", 4);
    if (i != UINT32_MAX) return read_zebin(files->data[i], files->bytes[i], figures);
    return tern_error(TERN_ERROR_KERNEL, "ocloc gave no ELF file: %.400s", tern_ocloc_log(files));
}

static int run(const static_target *target, const char *text, size_t text_bytes, tern_ocloc_files *files)
{
    const char *arguments[] = {"ocloc",      "compile",  "-file",         TERN_OCLOC_SOURCE,   "-device",
                               target->name, "-options", "-cl-std=CL1.2", "-internal_options", "-cl-intel-allow-zebin"};
    return tern_ocloc_run(&ocloc, arguments, sizeof arguments / sizeof *arguments, text, text_bytes, files);
}

/* libocloc loads the rest of the compiler by itself and says only here that it cannot. */
static tern_status try_compiler(const static_target *target)
{
    static const char text[] = "kernel void k(global float *x) { *x = 1.0f; }";
    tern_status status = TERN_OK;
    tern_ocloc_files outputs;
    const int result = run(target, text, sizeof text - 1, &outputs);
    if (result != 0)
        status = tern_error(TERN_ERROR_NOT_FOUND,
                            "ocloc is here but does not work (error %d: %.300s); cmake/vendor.sh fetches one that fits "
                            "the system it runs on",
                            result, tern_ocloc_log(&outputs));
    tern_ocloc_release(&ocloc, &outputs);
    return status;
}

static tern_status ocloc_open(const static_target *target, tern_device *device, char *out_version, size_t bytes)
{
    /* Debian 12's names; what a newer one calls otherwise is found by the linker or is not needed. */
    static const char *const needed[] = {"libopencl-clang.so.14", "libigdgmm.so.12", "libiga64.so.1", "libigc.so.1",
                                         "libigdfcl.so.1"};
    (void)device;
#ifdef __SANITIZE_ADDRESS__ /* libocloc binds deeply, which AddressSanitizer ends the process for */
    return tern_error(TERN_ERROR_NOT_FOUND, "ocloc cannot be loaded under AddressSanitizer; use the preset ci");
#endif
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) (void)open_in_folder(needed[i]);
    void *library = open_in_folder("libocloc.so");
    if (!library)
        return tern_error(TERN_ERROR_NOT_FOUND, "no libocloc.so here; run sh cmake/vendor.sh (%s)", dlerror());
    if (!tern_ocloc_find(library, &ocloc)) return tern_error(TERN_ERROR_NOT_FOUND, "libocloc.so lacks oclocInvoke");
    read_version(out_version, bytes);
    return try_compiler(target);
}

static tern_status ocloc_compile(const static_target *target, tern_device *device, const tern_kernel_desc *desc,
                                 static_figures *out_figures)
{
    tern_status status;
    tern_source source = {0};
    tern_ocloc_files outputs;
    (void)device;
    TERN_TRY(desc->render(desc, TERN_DIALECT_OPENCL, false, &source));
    const int result = run(target, source.text, source.bytes, &outputs);
    *out_figures = (static_figures){0};
    status = result == 0 ? read_outputs(&outputs, out_figures)
                         : tern_error(TERN_ERROR_KERNEL, "ocloc error %d: %.800s", result, tern_ocloc_log(&outputs));
    tern_ocloc_release(&ocloc, &outputs);
fail:
    free(source.text);
    return status;
}

const static_compiler_table static_ocloc = {ocloc_open, ocloc_compile};
