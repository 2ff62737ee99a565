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
    *(void **)&table.late_uploads = symbol_of(library, "tern_standin_cuda_late_uploads");
    *(void **)&table.pending = symbol_of(library, "tern_standin_cuda_pending");
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

/* ------------------------------------------------------------------ fixture */

const cuda_stand_in *cu;
void *cuda_context, *cuda_stream;

int cuda_stand_in_set_up(void **state)
{
    (void)state;
    cu = cuda_stand_in_find();
    if (!cu) return 0;
    OK(cu->init(0));
    OK(cu->retain(&cuda_context, 0));
    OK(cu->set_current(cuda_context));
    OK(cu->stream_create(&cuda_stream, CU_STREAM_NON_BLOCKING));
    return 0;
}

/* Nothing may be left, neither objects nor reports that the test did not take. */
int cuda_stand_in_tear_down(void **state)
{
    (void)state;
    char report[300];
    if (!cu) return 0;
    if (cuda_stream) (void)cu->stream_destroy(cuda_stream);
    OK(cu->release(0));
    const uint64_t reports = cu->reports(report, sizeof report);
    if (reports) fail_msg("%llu reports: %s", (unsigned long long)reports, report);
    assert_int_equal(cu->live(), 0);
    return 0;
}

/* Exactly one report, which contains part. */
void cuda_stand_in_expect_report(const char *part)
{
    char report[600];
    assert_int_equal(cu->reports(report, sizeof report), 1);
    if (!strstr(report, part)) fail_msg("the report lacks \"%s\": %s", part, report);
}

void *cuda_stand_in_load(const char *text, const char *name, void **out_module)
{
    static const char *const options[] = {"--gpu-architecture=sm_80", "--fmad=false", NULL};
    size_t bytes = 0;
    char *log = NULL, *cubin = cuda_stand_in_compile(text, options, &bytes, &log);
    void *function = NULL;
    if (!cubin) fail_msg("%s", log);
    free(log);
    OK(cu->load(out_module, cubin));
    free(cubin);
    OK(cu->function(&function, *out_module, name));
    return function;
}

CUdeviceptr cuda_stand_in_array(const void *data, size_t bytes)
{
    CUdeviceptr address = 0;
    OK(cu->allocate(&address, bytes));
    if (data) OK(cu->write(address, data, bytes));
    return address;
}

/* One block of `threads`, arguments x and y; what the wait for it returns. */
int cuda_stand_in_run(void *function, unsigned threads, CUdeviceptr x, CUdeviceptr y)
{
    void *arguments[] = {&x, &y};
    OK(cu->launch(function, 1, 1, 1, threads, 1, 1, 0, cuda_stream, arguments, NULL));
    return cu->stream_synchronize(cuda_stream);
}
