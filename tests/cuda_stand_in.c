/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_stand_in.c - see cuda_stand_in.h. */
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/test.h"

#include "tests/cuda_stand_in.h"

static void *symbol_of(void *library, const char *name)
{
    void *symbol = dlsym(library, name);
    if (!symbol) fail_msg("the stand-in has no %s", name);
    return symbol;
}

const cuda_stand_in *cuda_stand_in_find(void)
{
    static cuda_stand_in table;
    if (table.init) return &table;
    if (access(CUDA_STAND_IN_DRIVER, R_OK) != 0) {
        print_message("%s was not built\n", CUDA_STAND_IN_DRIVER);
        return NULL;
    }
    void *library = dlopen(CUDA_STAND_IN_DRIVER, RTLD_NOW | RTLD_LOCAL);
    if (!library) fail_msg("%s", dlerror());
#define FIELD(field, name, parameters) *(void **)&table.field = symbol_of(library, name);
    CUDA_STAND_IN_ENTRIES(FIELD)
#undef FIELD
    *(void **)&table.fail_call = symbol_of(library, "tern_standin_cuda_fail_call");
    *(void **)&table.failed_call = symbol_of(library, "tern_standin_cuda_failed_call");
    *(void **)&table.hang = symbol_of(library, "tern_standin_cuda_hang");
    *(void **)&table.live = symbol_of(library, "tern_standin_cuda_live");
    *(void **)&table.reports = symbol_of(library, "tern_standin_cuda_reports");
    return &table;
}

typedef struct compiler {
    int (*create)(void **, const char *, const char *, int, const char *const *, const char *const *);
    int (*compile)(void *, int, const char *const *);
    int (*log_size)(void *, size_t *);
    int (*log)(void *, char *);
    int (*cubin_size)(void *, size_t *);
    int (*cubin)(void *, char *);
    int (*destroy)(void **);
} compiler;

static const compiler *compiler_find(void)
{
    static compiler table;
    if (table.create) return &table;
    void *library = dlopen(CUDA_STAND_IN_NVRTC, RTLD_NOW | RTLD_LOCAL);
    if (!library) fail_msg("%s", dlerror());
    *(void **)&table.compile = symbol_of(library, "nvrtcCompileProgram");
    *(void **)&table.log_size = symbol_of(library, "nvrtcGetProgramLogSize");
    *(void **)&table.log = symbol_of(library, "nvrtcGetProgramLog");
    *(void **)&table.cubin_size = symbol_of(library, "nvrtcGetCUBINSize");
    *(void **)&table.cubin = symbol_of(library, "nvrtcGetCUBIN");
    *(void **)&table.destroy = symbol_of(library, "nvrtcDestroyProgram");
    *(void **)&table.create = symbol_of(library, "nvrtcCreateProgram");
    return &table;
}

char *cuda_stand_in_compile(const char *text, const char *const *options, size_t *out_bytes, char **out_log)
{
    const compiler *c = compiler_find();
    void *program = NULL;
    char *cubin = NULL;
    int count = 0;
    size_t log_bytes = 0;
    while (options && options[count]) count++;
    assert_int_equal(c->create(&program, text, "kernel.cu", 0, NULL, NULL), 0);
    const bool compiled = c->compile(program, count, options) == 0;
    assert_int_equal(c->log_size(program, &log_bytes), 0);
    if (out_log) {
        *out_log = malloc(log_bytes);
        assert_non_null(*out_log);
        assert_int_equal(c->log(program, *out_log), 0);
    }
    assert_int_equal(c->cubin_size(program, out_bytes), 0);
    assert_true(compiled ? *out_bytes > 0 : *out_bytes == 0);
    if (compiled) {
        cubin = malloc(*out_bytes);
        assert_non_null(cubin);
        assert_int_equal(c->cubin(program, cubin), 0);
    }
    assert_int_equal(c->destroy(&program), 0);
    return cubin;
}
