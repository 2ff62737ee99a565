/* SPDX-License-Identifier: Apache-2.0 */
/* dialect_check.c - see dialect_check.h. */
#include "tests/dialect_check.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ------------------------------------------------------------------ Vulkan */

static bool installed(const char *program)
{
    char command[128];
    snprintf(command, sizeof command, "command -v %s >/dev/null 2>&1", program);
    return system(command) == 0;
}

static bool write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    if (file == NULL) return false;
    bool done = fputs(text, file) >= 0;
    return fclose(file) == 0 && done;
}

/* Each OpFAdd, OpFSub, OpFMul result of the listing must be decorated NoContraction. */
static bool is_uncontracted(const char *listing)
{
    char line[512];
    char *decorated = calloc(1, 1 << 20);
    bool right = true;
    FILE *file = fopen(listing, "r");
    while (file != NULL && decorated != NULL && fgets(line, sizeof line, file) != NULL) {
        unsigned id = 0;
        char op[64] = "";
        if (sscanf(line, " OpDecorate %%%u %63s", &id, op) == 2 && strcmp(op, "NoContraction") == 0 && id < 1 << 20)
            decorated[id] = 1;
        if (sscanf(line, " %%%u = %63s", &id, op) != 2 || id >= 1 << 20) continue;
        bool contractible = strcmp(op, "OpFAdd") == 0 || strcmp(op, "OpFSub") == 0 || strcmp(op, "OpFMul") == 0;
        if (contractible && !decorated[id]) right = false;
    }
    if (file == NULL || decorated == NULL) right = false;
    if (file != NULL) fclose(file);
    free(decorated);
    return right;
}

static bool check_glsl(const tern_kernel_desc *desc, bool addresses)
{
    static int has = -1;
    if (has < 0) {
        has = installed("glslangValidator") && installed("spirv-val") && installed("spirv-dis");
        if (!has) fprintf(stderr, "skipped: GLSL is not compiled (apt install glslang-tools spirv-tools)\n");
    }
    if (!has) return true;
    tern_source source = {0};
    if (desc->render(desc, TERN_DIALECT_GLSL, addresses, &source) < 0) {
        fprintf(stderr, "render: %s\n", tern_error_message());
        return false;
    }
    char base[64], command[512], path[80];
    snprintf(base, sizeof base, "/tmp/tern_dialect_%d", (int)getpid());
    snprintf(path, sizeof path, "%s.comp", base);
    snprintf(command, sizeof command,
             "glslangValidator -V --quiet --target-env vulkan1.2 -o %s.spv %s.comp >&2 && spirv-val --target-env "
             "vulkan1.2 %s.spv >&2 && "
             "spirv-dis --raw-id %s.spv -o %s.spvasm",
             base, base, base, base, base);
    bool right = write_file(path, source.text) && system(command) == 0;
    snprintf(path, sizeof path, "%s.spvasm", base);
    if (right && !is_uncontracted(path)) {
        fprintf(stderr, "a sum or product may be contracted to fma\n");
        right = false;
    }
    if (!right) fprintf(stderr, "GLSL (%s) failed:\n%s\n", addresses ? "addresses" : "bindings", source.text);
    snprintf(command, sizeof command, "rm -f %s.comp %s.spv %s.spvasm", base, base, base);
    if (system(command) != 0) fprintf(stderr, "could not remove %s.*\n", base);
    free(source.text);
    return right;
}

/* -------------------------------------------------------------------- CUDA */

typedef struct nvrtc_program_opaque *nvrtc_program;
static struct {
    int (*create)(nvrtc_program *, const char *, const char *, int, const char *const *, const char *const *);
    int (*compile)(nvrtc_program, int, const char *const *);
    int (*log_size)(nvrtc_program, size_t *);
    int (*log)(nvrtc_program, char *);
    int (*destroy)(nvrtc_program *);
} nvrtc;

static bool load_nvrtc(void)
{
    static const char *const patterns[] = {"/usr/local/cuda*/lib*/libnvrtc.so.[0-9][0-9]",
                                           "/usr/local/cuda*/lib*/libnvrtc.so"};
    void *library = dlopen("libnvrtc.so", RTLD_NOW);
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns && library == NULL; i++) {
        glob_t found;
        if (glob(patterns[i], 0, NULL, &found) != 0) continue;
        library = dlopen(found.gl_pathv[0], RTLD_NOW);
        globfree(&found);
    }
    if (library == NULL) return false;
    *(void **)&nvrtc.create = dlsym(library, "nvrtcCreateProgram");
    *(void **)&nvrtc.compile = dlsym(library, "nvrtcCompileProgram");
    *(void **)&nvrtc.log_size = dlsym(library, "nvrtcGetProgramLogSize");
    *(void **)&nvrtc.log = dlsym(library, "nvrtcGetProgramLog");
    *(void **)&nvrtc.destroy = dlsym(library, "nvrtcDestroyProgram");
    return nvrtc.create != NULL && nvrtc.compile != NULL && nvrtc.log_size != NULL && nvrtc.log != NULL &&
           nvrtc.destroy != NULL;
}

static bool check_cuda(const tern_kernel_desc *desc)
{
    static int has = -1;
    if (has < 0) {
        has = load_nvrtc();
        if (!has) fprintf(stderr, "skipped: CUDA C++ is not compiled (no libnvrtc; install the CUDA toolkit)\n");
    }
    if (!has) return true;
    tern_source source = {0};
    if (desc->render(desc, TERN_DIALECT_CUDA, false, &source) < 0) {
        fprintf(stderr, "render: %s\n", tern_error_message());
        return false;
    }
    static const char *const options[] = {"--gpu-architecture=sm_80", "--fmad=false", "--std=c++14"};
    nvrtc_program program = NULL;
    bool right =
        nvrtc.create(&program, source.text, "kernel.cu", 0, NULL, NULL) == 0 && nvrtc.compile(program, 3, options) == 0;
    size_t bytes = 0;
    if (!right && program != NULL && nvrtc.log_size(program, &bytes) == 0 && bytes > 0) {
        char *log = malloc(bytes);
        if (log != NULL && nvrtc.log(program, log) == 0) fprintf(stderr, "NVRTC: %s\n%s\n", log, source.text);
        free(log);
    }
    if (program != NULL) nvrtc.destroy(&program);
    free(source.text);
    return right;
}

bool dialect_check(const tern_kernel_desc *desc)
{
    return check_glsl(desc, false) && check_glsl(desc, true) && check_cuda(desc);
}

void dialect_device_info(dialect_device device, tern_device_info *out_info)
{
    static const struct {
        uint32_t features, group, shared, subgroup, threads;
    } devices[DEVICE_COUNT] = {
        [DEVICE_ONE_LANE] = {TERN_FEATURE_REGISTER_TILES, 4096, 1u << 20, 1, 2},
        [DEVICE_LANES] = {TERN_FEATURE_REGISTER_TILES | TERN_FEATURE_SUBGROUPS, 1024, 32768, 8, 2},
        [DEVICE_GPU] = {TERN_FEATURE_SUBGROUPS, 1024, 49152, 32, 4},
        [DEVICE_SMALL_GPU] = {TERN_FEATURE_SUBGROUPS, 128, 16384, 4, 8},
    };
    memset(out_info, 0, sizeof *out_info);
    snprintf(out_info->name, sizeof out_info->name, "paper device %d", (int)device);
    out_info->features =
        devices[device].features | TERN_FEATURE_RENDERS | TERN_FEATURE_STORAGE_16 | TERN_FEATURE_STORAGE_8;
    out_info->max_group_size = devices[device].group;
    out_info->shared_bytes = devices[device].shared;
    out_info->subgroup_min = out_info->subgroup_max = devices[device].subgroup;
    out_info->threads = devices[device].threads;
    for (int d = 0; d < 3; d++) out_info->max_groups[d] = 65535;
}
