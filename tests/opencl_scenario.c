/* SPDX-License-Identifier: Apache-2.0 */
/* opencl_scenario.c - see opencl_scenario.h. The kernel's text is written here, so that nothing depends on core's
 * renderer. */
#include "tests/opencl_scenario.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/status.h"

enum { COUNT = OPENCL_SCENARIO_COUNT, BYTES = OPENCL_SCENARIO_BYTES };

/* ------------------------------------------------------------------ kernel */

/* x = 3 x + 1 */
static tern_status render_triple(const tern_kernel_desc *desc, tern_dialect dialect, bool addresses,
                                 tern_source *out_source)
{
    static const char text[] = "typedef struct { uint n; } words_t;\n"
                               "__kernel void triple(__global uint *x, uint x_offset, words_t w) {\n"
                               "    uint i = (uint)get_global_id(0);\n"
                               "    if (i < w.n) x[x_offset + i] = 3u * x[x_offset + i] + 1u;\n"
                               "}\n";
    (void)desc;
    if (dialect != TERN_DIALECT_OPENCL || addresses) return TERN_ERROR_INTERNAL;
    memset(out_source, 0, sizeof *out_source);
    out_source->text = strdup(text);
    if (!out_source->text) return TERN_ERROR_MEMORY;
    out_source->bytes = sizeof text - 1;
    strcpy(out_source->entry, "triple");
    return TERN_OK;
}

tern_kernel_desc opencl_triple_desc(void)
{
    return (tern_kernel_desc){.label = "triple",
                              .tensor_count = 1,
                              .tensors = {{TERN_U32, TERN_ACCESS_READ | TERN_ACCESS_WRITE}},
                              .word_count = 1,
                              .variant = {.group = {64, 1, 1}, .name = "triple"},
                              .render = render_triple};
}

tern_step opencl_triple_step(tern_backend_kernel *kernel, tern_backend_buffer *x)
{
    return (tern_step){.kind = TERN_STEP_DISPATCH,
                       .label = "triple",
                       .kernel = kernel,
                       .argument_count = 1,
                       .arguments = {{x, 0, BYTES, TERN_ACCESS_READ | TERN_ACCESS_WRITE}},
                       .word_count = 1,
                       .words = {COUNT},
                       .groups = {(COUNT + 63) / 64, 1, 1}};
}

static tern_status scenario_program(opencl_scenario *s)
{
    const uint32_t waits[] = {0, 1};
    tern_step steps[3] = {{.kind = TERN_STEP_COPY,
                           .label = "up",
                           .argument_count = 2,
                           .arguments = {{s->up, 0, BYTES, 1}, {s->x, 0, BYTES, 2}}},
                          opencl_triple_step(s->kernel, s->x),
                          {.kind = TERN_STEP_COPY,
                           .label = "down",
                           .argument_count = 2,
                           .arguments = {{s->x, 0, BYTES, 1}, {s->down, 0, BYTES, 2}}}};
    steps[1].wait_count = steps[2].wait_count = 1;
    steps[1].waits = &waits[0];
    steps[2].waits = &waits[1];
    const tern_program_desc desc = {
        .label = "scenario", .step_count = 3, .steps = steps, .cut_count = 1, .cuts = &waits[1]};
    return s->backend->program_create(s->device, &desc, &s->program);
}

/* Opens device `index`, runs the kernel on data that goes up and comes down, checks it. TERN_ERROR_INTERNAL: wrong
 * result. */
tern_status opencl_scenario_run(opencl_scenario *s, uint32_t index, bool timestamps)
{
    const tern_open_options options = {.timestamps = timestamps};
    const tern_kernel_desc desc = opencl_triple_desc();
    const tern_backend *backend = s->backend;
    tern_status status;
    void *in, *out;
    uint64_t ticket, ns[3];
    uint32_t last = 0;
    TERN_TRY(backend->open(index, &options, &s->device));
    TERN_TRY(backend->buffer_create(s->device, BYTES, TERN_BUFFER_UPLOAD, &s->up));
    TERN_TRY(backend->buffer_create(s->device, BYTES, TERN_BUFFER_DEVICE, &s->x));
    TERN_TRY(backend->buffer_create(s->device, BYTES, TERN_BUFFER_READBACK, &s->down));
    TERN_TRY(backend->buffer_map(s->device, s->up, &in));
    TERN_TRY(backend->buffer_map(s->device, s->down, &out));
    TERN_TRY(backend->kernel_create(s->device, &desc, &s->kernel));
    TERN_TRY(scenario_program(s));
    for (uint32_t i = 0; i < COUNT; i++) ((uint32_t *)in)[i] = i;
    TERN_TRY(backend->program_submit(s->device, s->program, &ticket));
    TERN_TRY(backend->wait(s->device, ticket, 60 * 1000000000ull));
    if (timestamps) TERN_TRY(backend->program_times(s->device, s->program, ns));
    for (uint32_t i = 0; i < COUNT; i++)
        if (((uint32_t *)out)[i] != 3 * i + 1) return tern_error(TERN_ERROR_INTERNAL, "element %u is wrong", i);
    TERN_TRY(backend->buffer_write(s->device, s->x, 4, &ticket, 4));
    TERN_TRY(backend->buffer_read(s->device, s->x, BYTES - 4, &last, 4));
    if (last != 3 * (COUNT - 1) + 1) return tern_error(TERN_ERROR_INTERNAL, "the last element is %u", last);
fail:
    return status;
}

void opencl_scenario_end(opencl_scenario *s)
{
    if (!s->device) return;
    s->backend->program_destroy(s->device, s->program);
    s->backend->kernel_destroy(s->device, s->kernel);
    s->backend->buffer_destroy(s->device, s->down);
    s->backend->buffer_destroy(s->device, s->x);
    s->backend->buffer_destroy(s->device, s->up);
    s->backend->close(s->device);
    *s = (opencl_scenario){.backend = s->backend};
}

/* The plug-in's hooks, through the module that its table lies in. */
bool opencl_counts(const tern_backend *backend, tern_opencl_counts *out_counts)
{
    Dl_info info;
    void *module = dladdr(backend, &info) ? dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD) : NULL;
    void *address = dlsym(module ? module : RTLD_DEFAULT, "tern_opencl_count"); /* linked in: no module of its own */
    void (*count)(tern_opencl_counts *);
    if (!address) return false;
    memcpy(&count, &address, sizeof count);
    count(out_counts);
    if (module) dlclose(module);
    return true;
}
