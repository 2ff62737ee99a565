/* SPDX-License-Identifier: Apache-2.0 */
/* spirv.c - OpenCL C to SPIR-V, which is all that Level Zero takes.
 *
 *     libocloc.so (Intel's compiler, opened at run time)        text ──> SPIR-V, in this process
 *     else clang-N and llvm-spirv-N on PATH                     text ──> LLVM bitcode ──> SPIR-V, as processes
 *
 * Both halves of the second must be of one LLVM version. No shell; files live in a folder of their own that is removed;
 * a compiler that does not end is killed after a minute. Contraction is off in the text (a pragma) and again here. */
#include "backends/level_zero/level_zero.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/base/ocloc.h"
#include "core/base/process.h"

#define COMPILE_NS UINT64_C(60000000000)

static struct {
    pthread_mutex_t lock;
    bool looked;
    tern_ocloc ocloc;
    bool intel;
    char clang[512], translator[512]; /* paths; "" without */
} compiler = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ------------------------------------------------------------------ which one */

static void look(void)
{
    void *library = dlopen("libocloc.so", RTLD_NOW | RTLD_LOCAL);
    compiler.intel = library && tern_ocloc_find(library, &compiler.ocloc);
    if (compiler.intel) return;
    for (int version = 22; version >= 14; version--) {
        char name[32];
        snprintf(name, sizeof name, "llvm-spirv-%d", version);
        if (!tern_process_find(name, compiler.translator, sizeof compiler.translator)) continue;
        snprintf(name, sizeof name, "clang-%d", version);
        if (tern_process_find(name, compiler.clang, sizeof compiler.clang)) return;
    }
    if (!tern_process_find("llvm-spirv", compiler.translator, sizeof compiler.translator) ||
        !tern_process_find("clang", compiler.clang, sizeof compiler.clang))
        compiler.clang[0] = 0;
}

tern_status zero_compiler_find(char *out_text, size_t bytes)
{
    pthread_mutex_lock(&compiler.lock);
    if (!compiler.looked) look();
    compiler.looked = compiler.intel || compiler.clang[0]; /* what is missing may be installed meanwhile */
    const bool found = compiler.looked;
    pthread_mutex_unlock(&compiler.lock);
    if (!found)
        return tern_error(
            TERN_ERROR_NOT_FOUND,
            "Level Zero kernels need a compiler to SPIR-V, and there is none: install Intel's (libocloc) or "
            "clang-N and llvm-spirv-N of one version (apt install clang-14 llvm-spirv-14)");
    if (out_text && compiler.intel) snprintf(out_text, bytes, "libocloc.so");
    if (out_text && !compiler.intel) snprintf(out_text, bytes, "%s and %s", compiler.clang, compiler.translator);
    return TERN_OK;
}

bool zero_compiler_knows_dpas(void) { return zero_compiler_find(NULL, 0) >= 0 && compiler.intel; }

/* ------------------------------------------------------------------ Intel's */

static tern_status ocloc_compile(const char *label, const tern_source *source, char **out_spirv, size_t *out_bytes)
{
    static const char magic[] = {0x03, 0x02, 0x23, 0x07}; /* SPIR-V's first word, little-endian */
    const char *argv[] = {"ocloc",   "-file", TERN_OCLOC_SOURCE, "-spv_only",
                          "-device", "dg2",   "-options",        "-cl-std=CL1.2"};
    tern_ocloc_files files;
    tern_status status = TERN_OK;
    const int code =
        tern_ocloc_run(&compiler.ocloc, argv, sizeof argv / sizeof *argv, source->text, source->bytes, &files);
    const uint32_t file = code == 0 ? tern_ocloc_file(&files, magic, sizeof magic) : UINT32_MAX;
    *out_bytes = file == UINT32_MAX ? 0 : files.bytes[file];
    *out_spirv = *out_bytes ? malloc(*out_bytes) : NULL;
    if (*out_spirv)
        memcpy(*out_spirv, files.data[file], *out_bytes);
    else
        status = tern_error(TERN_ERROR_KERNEL, "kernel \"%s\" does not compile; libocloc (%d) says: %.4000s", label,
                            code, tern_ocloc_log(&files));
    tern_ocloc_release(&compiler.ocloc, &files);
    return status;
}

/* ------------------------------------------------------------------ LLVM's */

static tern_status llvm_error(const char *label, const char *program, int code, const char *log)
{
    char *text = NULL;
    size_t bytes = 0;
    if (code < 0)
        return tern_error(TERN_ERROR_KERNEL, "kernel \"%s\": %s does not start: %s", label, program, strerror(errno));
    if (tern_file_read(log, 65536, &text, &bytes) < 0) text = NULL;
    const tern_status status =
        tern_error(TERN_ERROR_KERNEL, "kernel \"%s\" does not compile; %s (exit status %d) says: %.4000s", label,
                   program, code, text ? text : "nothing");
    free(text);
    return status;
}

static tern_status llvm_compile(const char *label, const tern_source *source, char **out_spirv, size_t *out_bytes)
{
    const char *tmp = getenv("TMPDIR");
    char folder[300], text[340], bitcode[340], spirv[340], log[340];
    tern_status status;
    snprintf(folder, sizeof folder, "%s/tern-spirv-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(folder))
        return tern_error(TERN_ERROR_IO, "no folder for a compilation in %s: %s; set TMPDIR to one that can be written",
                          folder, strerror(errno));
    snprintf(text, sizeof text, "%s/kernel.cl", folder);
    snprintf(bitcode, sizeof bitcode, "%s/kernel.bc", folder);
    snprintf(spirv, sizeof spirv, "%s/kernel.spv", folder);
    snprintf(log, sizeof log, "%s/log", folder);
    /* clang-format off */
    char *const clang[] = {compiler.clang, "-x", "cl", "-cl-std=CL1.2", "--target=spir64-unknown-unknown", "-O2",
                           "-Xclang", "-disable-llvm-passes", "-ffp-contract=off", "-emit-llvm", "-c", "-o", bitcode,
                           text, NULL};
    /* clang-format on */
    char *const translator[] = {compiler.translator, "--spirv-max-version=1.2", "-o", spirv, bitcode, NULL};
    TERN_TRY(tern_file_write(text, source->text, source->bytes));
    int code = tern_process_run(clang, log, COMPILE_NS);
    if (code != 0) TERN_TRY(llvm_error(label, compiler.clang, code, log));
    code = tern_process_run(translator, log, COMPILE_NS);
    if (code != 0) TERN_TRY(llvm_error(label, compiler.translator, code, log));
    TERN_TRY(tern_file_read(spirv, (size_t)256 << 20, out_spirv, out_bytes));
fail:
    (void)unlink(text), (void)unlink(bitcode), (void)unlink(spirv), (void)unlink(log), (void)rmdir(folder);
    return status;
}

tern_status zero_spirv_compile(const char *label, const tern_source *source, char **out_spirv, size_t *out_bytes)
{
    const tern_status status = zero_compiler_find(NULL, 0);
    if (status < 0) return status;
    return compiler.intel ? ocloc_compile(label, source, out_spirv, out_bytes)
                          : llvm_compile(label, source, out_spirv, out_bytes);
}
