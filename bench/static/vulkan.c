/* SPDX-License-Identifier: Apache-2.0 */
/* vulkan.c - Mesa's compilers for AMD and NVIDIA, asked through the Vulkan plug-in itself.
 *
 *     kernel_create ── plug-in ── loader ── layer.c ── RADV or NVK over a kernel driver that is not there
 *                                              └── statistics and assembly, in a file ── figures
 *
 * Never submits work: over drm-shim it "succeeds" with wrong data. The environment must be set before the process
 * starts (static_record does), for the shim is preloaded. */
#include "bench/static/static.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static tern_status vulkan_open(const static_target *target, tern_device *device, char *out_version, size_t bytes)
{
    (void)target;
    if (!getenv("TERN_STATIC_PIPELINE"))
        return tern_error(TERN_ERROR_INTERNAL, "TERN_STATIC_PIPELINE is not set: the layer is not there");
    snprintf(out_version, bytes, "%s", device->info.driver);
    return TERN_OK;
}

/* What the drivers call the same thing. Bytes per unit: they count spilled registers, of 4 bytes. */
static const struct {
    const char *name;
    size_t offset;
    uint32_t unit;
} statistics[] = {
    {"VGPRs", offsetof(static_figures, registers), 1}, /* RADV */
    {"Spilled VGPRs", offsetof(static_figures, spills), 4},
    {"Spilled SGPRs", offsetof(static_figures, spills), 4},
    {"Scratch size", offsetof(static_figures, private_bytes), 1},
    {"LDS size", offsetof(static_figures, shared), 1},
    {"Instructions", offsetof(static_figures, instructions), 1},
    {"Number of GPRs", offsetof(static_figures, registers), 1}, /* NVK */
    {"Spills to memory", offsetof(static_figures, spills), 4},
    {"SLM size", offsetof(static_figures, private_bytes), 1},
    {"Instruction count", offsetof(static_figures, instructions), 1},
};

static void read_statistic(const char *line, static_figures *figures)
{
    char *name;
    const unsigned long number = strtoul(line, &name, 10);
    for (size_t i = 0; i < sizeof statistics / sizeof *statistics; i++) {
        uint32_t *figure = (uint32_t *)((char *)figures + statistics[i].offset);
        if (strcmp(name + 1, statistics[i].name) == 0) *figure += (uint32_t)number * statistics[i].unit;
    }
}

/* Mnemonics worth knowing, by their start; those of matrix units by their whole name. */
static const struct {
    const char *prefix;
    bool matrix;
} opcodes[] = {{"v_wmma", true}, {"v_fma", false}, {"v_dot", false}, {"ds_load", false}, {"scratch_", false},
               {"hmma", true},   {"ffma", false},  {"ldsm", false},  {"ldl", false},     {"stl", false}};

static void read_word(const char *word, static_figures *figures)
{
    for (size_t i = 0; i < sizeof opcodes / sizeof *opcodes; i++) {
        if (strncmp(word, opcodes[i].prefix, strlen(opcodes[i].prefix)) != 0) continue;
        static_figures_count(figures, opcodes[i].matrix ? word : opcodes[i].prefix, 1);
        figures->matrix += opcodes[i].matrix;
    }
}

static tern_status read_file(const char *path, static_figures *figures)
{
    char *line = NULL;
    size_t capacity = 0;
    bool any = false, assembly = false;
    FILE *file = fopen(path, "r");
    if (!file) return tern_error(TERN_ERROR_KERNEL, "no pipeline was seen: the layer is not active");
    while (getline(&line, &capacity, file) > 0) {
        line[strcspn(line, "\n")] = 0;
        if (strncmp(line, "subgroup ", 9) == 0) {
            figures->simd = (uint32_t)strtoul(line + 9, NULL, 10);
            any = true;
        } else if (strncmp(line, "stat ", 5) == 0) {
            read_statistic(line + 5, figures);
        } else if (strncmp(line, "text ", 5) == 0) {
            assembly = strstr(line, "ssembly") != NULL;
        } else if (assembly) {
            char *rest = NULL;
            for (char *word = strtok_r(line, " \t,", &rest); word; word = strtok_r(NULL, " \t,", &rest))
                read_word(word, figures);
        }
    }
    free(line);
    fclose(file);
    return any ? TERN_OK : tern_error(TERN_ERROR_KERNEL, "the driver says nothing about the pipeline");
}

static tern_status vulkan_compile(const static_target *target, tern_device *device, const tern_kernel_desc *desc,
                                  static_figures *out_figures)
{
    const char *path = getenv("TERN_STATIC_PIPELINE");
    tern_backend_kernel *kernel = NULL;
    (void)target;
    (void)unlink(path);
    tern_status status = device->backend->kernel_create(device->handle, desc, &kernel);
    if (status < 0) return status;
    *out_figures = (static_figures){0};
    status = read_file(path, out_figures);
    if (out_figures->shared == 0) out_figures->shared = desc->variant.shared_bytes; /* NVK does not say */
    device->backend->kernel_destroy(device->handle, kernel);
    return status;
}

const static_compiler_table static_vulkan = {vulkan_open, vulkan_compile};
