/* SPDX-License-Identifier: Apache-2.0 */
/* vulkan_fixture.c - see vulkan_fixture.h. */
#include "tests/vulkan_fixture.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/status.h"
#include "core/device/plugin.h"

static bool layer_is_missing, log_is_quiet;

static void log_line(void *context, int32_t level, const char *message)
{
    (void)context;
    if (strstr(message, "not validating")) layer_is_missing = true;
    if (level <= 1 && !log_is_quiet) fprintf(stderr, "log: %s\n", message);
}

void vulkan_log_quiet(bool quiet) { log_is_quiet = quiet; }

bool vulkan_validation_is_installed(void) { return !layer_is_missing; }

/* The hook of that name in the file that holds the plug-in's table; the program itself where plug-ins are linked in. */
static void *find_hook(const tern_backend *backend, const char *name)
{
    Dl_info info;
    void *hook = dlsym(RTLD_DEFAULT, name);
    if (hook || !dladdr((const void *)backend, &info)) return hook;
    void *library = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    if (!library) return NULL;
    hook = dlsym(library, name);
    dlclose(library); /* the plug-in itself stays, see plugin.c */
    return hook;
}

const vulkan_plugin *vulkan_plugin_table(void)
{
    static vulkan_plugin plugin;
    if (plugin.backend) return &plugin;
    tern_log_set(log_line, NULL);
    const tern_backend *backend;
    if (tern_plugin_find("vulkan", &backend) < 0) return NULL;
    const struct {
        const char *name;
        void *target;
    } hooks[] = {
        {"tern_vulkan_validation_messages", &plugin.validation_messages},
        {"tern_vulkan_fail_call", &plugin.fail_call},
        {"tern_vulkan_cache_counts_get", &plugin.cache_counts},
    };
    for (size_t i = 0; i < sizeof hooks / sizeof *hooks; i++) {
        void *hook = find_hook(backend, hooks[i].name);
        if (!hook) {
            (void)tern_error(TERN_ERROR_INTERNAL, "the Vulkan plug-in does not export %s", hooks[i].name);
            return NULL;
        }
        memcpy(hooks[i].target, &hook, sizeof hook);
    }
    plugin.backend = backend;
    return &plugin;
}

static int pin_library(struct dl_phdr_info *info, size_t bytes, void *context)
{
    (void)bytes;
    (void)context;
    if (strstr(info->dlpi_name, "libvulkan_") || strstr(info->dlpi_name, "VkLayer")) {
        void *library = dlopen(info->dlpi_name, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
        if (library) dlclose(library);
    }
    return 0;
}

void vulkan_pin_drivers(void) { (void)dl_iterate_phdr(pin_library, NULL); }

const vulkan_plugin *vulkan_plugin_find(void)
{
    const vulkan_plugin *plugin = vulkan_plugin_table();
    uint32_t count = 0;
    if (!plugin || plugin->backend->load() < 0 || plugin->backend->device_count(&count) < 0 || count == 0) return NULL;
    vulkan_pin_drivers();
    return plugin;
}

/* ------------------------------------------------------------------ kernels */

static const struct {
    uint32_t tensors, words;
    const char *body;
} kernels[] = {
    [VULKAN_KERNEL_AFFINE] = {2, 3, "if (i < w0) Y(1, i) = w1 * Y(0, i) + w2;"},
    [VULKAN_KERNEL_SLOW] =
        {1, 1, "uint s = Y(0, i) + i; for (uint k = 0; k < w0; k++) s = s * 1664525u + 1013904223u; Y(0, i) = s;"},
    [VULKAN_KERNEL_SUM] = {6, 1, "if (i < w0) Y(5, i) = Y(0, i) + Y(1, i) + Y(2, i) + Y(3, i) + Y(4, i);"},
    [VULKAN_KERNEL_BROKEN] = {1, 0, "this is not GLSL"},
};

static void print_arguments(FILE *out, const tern_kernel_desc *desc, bool addresses)
{
    for (uint32_t i = 0; i < desc->tensor_count; i++) {
        if (addresses)
            fprintf(out, "layout(buffer_reference, std430, buffer_reference_align = 4) buffer T%u { uint d[]; };\n", i);
        else
            fprintf(out, "layout(set = 0, binding = %u, std430) %s buffer T%u { uint d[]; } t%u;\n", i,
                    desc->tensors[i].mode == TERN_ACCESS_READ ? "readonly" : "", i, i);
    }
    fprintf(out, "layout(push_constant, std430) uniform P {\n");
    for (uint32_t i = 0; i < desc->tensor_count && addresses; i++) fprintf(out, "T%u t%u;\n", i, i);
    for (uint32_t i = 0; i < desc->word_count; i++) fprintf(out, "uint w%u;\n", i);
    for (uint32_t i = 0; i < desc->tensor_count && !addresses; i++) fprintf(out, "uint o%u;\n", i);
    fprintf(out, "};\n#define Y(n, i) %s\n", addresses ? "t##n.d[i]" : "t##n.d[o##n + (i)]");
}

static tern_status render(const tern_kernel_desc *desc, tern_dialect dialect, bool addresses, tern_source *out_source)
{
    size_t bytes = 0;
    char *text = NULL;
    if (dialect != TERN_DIALECT_GLSL)
        return tern_error(TERN_ERROR_INVALID, "dialect %d was asked of a GLSL kernel", (int)dialect);
    FILE *out = open_memstream(&text, &bytes);
    if (!out) return tern_error_memory("a kernel's text", 4096);
    fprintf(out, "#version 450\n%s", addresses ? "#extension GL_EXT_buffer_reference : require\n" : "");
    fprintf(out, "layout(local_size_x = %u) in;\n", VULKAN_GROUP);
    print_arguments(out, desc, addresses);
    fprintf(out,
            "void main() {\nuint i = (gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x) * %uu + "
            "gl_LocalInvocationID.x;\n%s\n}\n",
            VULKAN_GROUP, kernels[desc->head_dim].body);
    if (fclose(out) != 0) {
        free(text);
        return tern_error_memory("a kernel's text", bytes);
    }
    *out_source = (tern_source){.text = text, .bytes = bytes, .entry = "main"};
    return TERN_OK;
}

tern_kernel_desc vulkan_kernel_desc(vulkan_kernel_name name)
{
    tern_kernel_desc desc = {
        .kind = TERN_KERNEL_TAPE,
        .tensor_count = kernels[name].tensors,
        .word_count = kernels[name].words,
        .head_dim = (uint32_t)name, /* unused by tapes: tells render which text */
        .variant = {.group = {VULKAN_GROUP, 1, 1}},
        .render = render,
    };
    snprintf(desc.label, sizeof desc.label, "by hand %d", (int)name);
    for (uint32_t i = 0; i < desc.tensor_count; i++) desc.tensors[i] = (tern_tape_tensor){TERN_U32, TERN_ACCESS_READ};
    desc.tensors[desc.tensor_count - 1].mode = TERN_ACCESS_READ | TERN_ACCESS_WRITE;
    return desc;
}

/* ----------------------------------------------------------------- programs */

tern_argument vulkan_argument(tern_backend_buffer *buffer, uint64_t first, uint64_t count, uint32_t mode)
{
    return (tern_argument){.buffer = buffer, .offset = 4 * first, .bytes = 4 * count, .mode = mode};
}

tern_step vulkan_affine(tern_backend_kernel *kernel, tern_argument x, tern_argument y, uint32_t count, uint32_t a,
                        uint32_t b)
{
    const uint32_t groups = (count + VULKAN_GROUP - 1) / VULKAN_GROUP;
    const uint32_t wide = groups < 65535 ? groups : 65535;
    return (tern_step){
        .kind = TERN_STEP_DISPATCH,
        .label = "affine",
        .kernel = kernel,
        .argument_count = 2,
        .arguments = {x, y},
        .word_count = 3,
        .words = {count, a, b},
        .groups = {wide, (groups + wide - 1) / wide, 1},
    };
}

tern_status vulkan_run(const tern_backend *backend, tern_backend_device *device, const tern_step *steps, uint32_t count)
{
    tern_status status = TERN_OK;
    tern_backend_program *program = NULL;
    uint64_t ticket = 0;
    const tern_program_desc desc = {.label = "test", .step_count = count, .steps = steps};
    TERN_TRY(backend->program_create(device, &desc, &program));
    TERN_TRY(backend->program_submit(device, program, &ticket));
    TERN_TRY(backend->wait(device, ticket, 60000000000ull));
fail:
    backend->program_destroy(device, program);
    return status;
}
