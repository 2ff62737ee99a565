/* SPDX-License-Identifier: Apache-2.0 */
/* compiler.c - NVRTC, NVIDIA's run-time compiler: which of those on the machine, and text to cubin.
 *
 * Machines have several (a distribution's, toolkits', those in Python's packages), and the first found may be too old
 * for the card. So all are asked for their version and architectures, and of those that know the card's the newest that
 * is not of a later CUDA than the driver wins; a later one, whose cubins the driver may refuse, is the last resort.
 * TERN_NVRTC_LIBRARY names one, alone. Compiled is for the card's own architecture, to machine code: nothing is left to
 * the driver, whose compiler may be another. Contraction to fma is off (a build flag there), fast maths never on. */
#include "backends/cuda/cuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/hash.h"
#include "core/base/plugin_library.h"
#include "core/base/plugin_search.h"

/* In a site-packages: of nvidia-cuda-nvrtc-cu12 and the like, and of nvidia-cuda-nvrtc, whose folder is cu13. */
#define PYTHON(packages) packages "/nvidia/cu*/lib/libnvrtc.so*"
static const char *const places[] = {"libnvrtc.so",
                                     "libnvrtc.so.13",
                                     "libnvrtc.so.12",
                                     "libnvrtc.so.11.2",
                                     "libnvrtc.so.11.1",
                                     "$CUDA_HOME/lib*/libnvrtc.so*",
                                     "$CUDA_PATH/lib*/libnvrtc.so*",
                                     "/usr/local/cuda*/lib*/libnvrtc.so*",
                                     "/opt/cuda*/lib*/libnvrtc.so*",
                                     "$CONDA_PREFIX/lib/libnvrtc.so*",
                                     PYTHON("$VIRTUAL_ENV/lib/python3*/site-packages"),
                                     PYTHON("$CONDA_PREFIX/lib/python3*/site-packages"),
                                     PYTHON("$HOME/.local/lib/python3*/site-packages"),
                                     PYTHON("/usr/local/lib/python3*/*-packages"),
                                     PYTHON("/usr/lib/python3*/dist-packages")};

#define NVRTC_ERROR_COMPILATION 6
#define NVRTC_SYMBOLS(X)                                                                                               \
    X(nvrtcGetErrorString, const char *, (nvrtcResult))                                                                \
    X(nvrtcVersion, nvrtcResult, (int *, int *))                                                                       \
    X(nvrtcGetNumSupportedArchs, nvrtcResult, (int *))                                                                 \
    X(nvrtcGetSupportedArchs, nvrtcResult, (int *))                                                                    \
    X(nvrtcCreateProgram, nvrtcResult,                                                                                 \
      (nvrtcProgram *, const char *, const char *, int, const char *const *, const char *const *))                     \
    X(nvrtcCompileProgram, nvrtcResult, (nvrtcProgram, int, const char *const *))                                      \
    X(nvrtcGetProgramLogSize, nvrtcResult, (nvrtcProgram, size_t *))                                                   \
    X(nvrtcGetProgramLog, nvrtcResult, (nvrtcProgram, char *))                                                         \
    X(nvrtcGetCUBINSize, nvrtcResult, (nvrtcProgram, size_t *))                                                        \
    X(nvrtcGetCUBIN, nvrtcResult, (nvrtcProgram, char *))                                                              \
    X(nvrtcDestroyProgram, nvrtcResult, (nvrtcProgram *))

typedef struct compiler {
    void *library;
    char path[400];
    int version; /* 13000 is 13.0 */
#define FIELD(name, type, parameters) type(*name) parameters;
    NVRTC_SYMBOLS(FIELD)
#undef FIELD
} compiler;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the next two, and NVRTC itself while it starts */
static compiler chosen;
static char chosen_for[16]; /* the architecture; "": none chosen yet */

/* ------------------------------------------------------------------ which one */

static bool symbols_find(compiler *c)
{
#define ENTRY(name, type, parameters) {#name, offsetof(compiler, name)},
    static const tern_symbol symbols[] = {NVRTC_SYMBOLS(ENTRY)};
#undef ENTRY
    if (tern_symbols_find(c->library, symbols, sizeof symbols / sizeof *symbols, c)) return false;
    const char *path = tern_symbol_path(&c->nvrtcVersion, NULL); /* where the loader found it, for messages */
    if (path) snprintf(c->path, sizeof c->path, "%s", path);
    return true;
}

static bool knows(const compiler *c, const char *architecture)
{
    int count = 0, list[128];
    const int wanted = atoi(architecture + strlen("sm_"));
    if (c->nvrtcGetNumSupportedArchs(&count) != 0 || count < 1 || count > 128 || c->nvrtcGetSupportedArchs(list) != 0)
        return false;
    for (int i = 0; i < count; i++)
        if (list[i] == wanted) return true;
    return false;
}

/* Is a the better of two that know the architecture? */
static bool is_better(const compiler *a, const compiler *b)
{
    const int newest = cuda_driver_version() / 1000;
    const bool a_fits = a->version / 1000 <= newest, b_fits = b->version / 1000 <= newest;
    if (!b->library || a_fits != b_fits) return !b->library || a_fits;
    return a_fits ? a->version > b->version : a->version < b->version;
}

typedef struct search {
    const char *architecture;
    compiler best;
    char unfit[600]; /* about the last one that was not taken */
} search;

static void consider(void *context, const char *path)
{
    search *s = context;
    compiler c = {0};
    int major = 0, minor = 0;
    snprintf(c.path, sizeof c.path, "%s", path);
    c.library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE); /* unmapped, it leaves its memory behind */
    if (!c.library) return;
    if (!symbols_find(&c) || c.nvrtcVersion(&major, &minor) != 0) {
        snprintf(s->unfit, sizeof s->unfit, "%s is older than CUDA 11.2 or no NVRTC", c.path);
    } else if (c.version = 1000 * major + 10 * minor, !knows(&c, s->architecture)) {
        snprintf(s->unfit, sizeof s->unfit, "%s is NVRTC %d.%d, which does not know %s", c.path, major, minor,
                 s->architecture);
    } else if (is_better(&c, &s->best)) {
        if (s->best.library) dlclose(s->best.library);
        s->best = c;
        return;
    }
    dlclose(c.library);
}

/* A copy, since another thread may choose for a card of another architecture. */
static tern_status choose(const char *architecture, compiler *out_compiler)
{
    const char *path = getenv("TERN_NVRTC_LIBRARY");
    search s = {.architecture = architecture, .unfit = "no libnvrtc was found"};
    tern_status status = TERN_OK;
    pthread_mutex_lock(&lock);
    if (strcmp(chosen_for, architecture) != 0) {
        if (path && *path) {
            snprintf(s.unfit, sizeof s.unfit, "TERN_NVRTC_LIBRARY, %s, cannot be opened", path);
            consider(&s, path);
        } else {
            tern_search(places, sizeof places / sizeof *places, consider, &s);
        }
        if (s.best.library) { /* a former one stays open: another thread may be compiling with it */
            chosen = s.best;
            snprintf(chosen_for, sizeof chosen_for, "%s", architecture);
        } else {
            status = tern_error(TERN_ERROR_NOT_FOUND,
                                "no compiler for the card's architecture %s: %s; install a CUDA toolkit's NVRTC that "
                                "knows it, or pip's nvidia-cuda-nvrtc (driver: CUDA %d.%d), or name one in "
                                "TERN_NVRTC_LIBRARY",
                                architecture, s.unfit, cuda_driver_version() / 1000, cuda_driver_version() % 1000 / 10);
        }
    }
    *out_compiler = chosen;
    pthread_mutex_unlock(&lock);
    return status;
}

tern_status cuda_compiler_find(const char *architecture, uint64_t *out_hash)
{
    compiler c;
    struct stat file = {0};
    const tern_status status = choose(architecture, &c);
    if (status < 0) return status;
    (void)stat(c.path, &file);
    const int64_t build[] = {c.version, (int64_t)file.st_size, (int64_t)file.st_mtim.tv_sec};
    *out_hash = tern_hash(TERN_HASH_START, build, sizeof build);
    return TERN_OK;
}

void cuda_compiler_describe(const char *architecture, char *out_text, size_t bytes)
{
    compiler c;
    if (choose(architecture, &c) < 0)
        snprintf(out_text, bytes, "%s", tern_error_message());
    else
        snprintf(out_text, bytes, "NVRTC %d.%d (%s)", c.version / 1000, c.version % 1000 / 10, c.path);
}

/* ------------------------------------------------------------------ compile */

static tern_status nvrtc_result(const compiler *c, const char *label, const char *call, nvrtcResult code)
{
    if (code == 0) return TERN_OK;
    return tern_error(TERN_ERROR_KERNEL, "kernel \"%s\": %s: %s (%d), by %s", label, call, c->nvrtcGetErrorString(code),
                      code, c->path);
}

static tern_status log_error(const compiler *c, nvrtcProgram program, const char *label, const char *architecture)
{
    size_t bytes = 0;
    char *log = NULL;
    if (c->nvrtcGetProgramLogSize(program, &bytes) == 0 && (log = calloc(1, bytes + 1)) != NULL &&
        c->nvrtcGetProgramLog(program, log) != 0)
        log[0] = 0;
    const tern_status status =
        tern_error(TERN_ERROR_KERNEL, "kernel \"%s\" does not compile for %s; NVRTC %d.%d says: %s", label,
                   architecture, c->version / 1000, c->version % 1000 / 10, log && *log ? log : "nothing");
    free(log);
    return status;
}

tern_status cuda_compile(const char *architecture, const char *label, const char *text, char **out_cubin,
                         size_t *out_bytes)
{
    char target[48];
    const char *const options[] = {target, "--fmad=false"};
    nvrtcProgram program = NULL;
    compiler c;
    char *cubin = NULL;
    size_t bytes = 0;
    tern_status status;
    TERN_TRY(choose(architecture, &c));
#define NVRTC_TRY(name, ...) TERN_TRY(nvrtc_result(&c, label, #name, c.name(__VA_ARGS__)))
    snprintf(target, sizeof target, "--gpu-architecture=%s", architecture);
    NVRTC_TRY(nvrtcCreateProgram, &program, text, "kernel.cu", 0, NULL, NULL);
    const nvrtcResult code = c.nvrtcCompileProgram(program, 2, options);
    if (code == NVRTC_ERROR_COMPILATION) TERN_TRY(log_error(&c, program, label, architecture));
    TERN_TRY(nvrtc_result(&c, label, "nvrtcCompileProgram", code));
    NVRTC_TRY(nvrtcGetCUBINSize, program, &bytes);
    cubin = malloc(bytes ? bytes : 1);
    if (!cubin) TERN_TRY(tern_error_memory("a cubin", bytes));
    NVRTC_TRY(nvrtcGetCUBIN, program, cubin);
    *out_cubin = cubin;
    *out_bytes = bytes;
    cubin = NULL;
fail:
    free(cubin);
    if (program) (void)c.nvrtcDestroyProgram(&program);
    return status;
}
