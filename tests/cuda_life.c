/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_life.c - see cuda_life.h. */
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "tests/test.h"

#include "core/base/status.h"
#include "core/device/plugin.h"
#include "tests/cuda_life.h"

extern char **environ;

const tern_backend *cuda_life_backend;

void cuda_life_no_log(void *context, int32_t level, const char *message) { (void)context, (void)level, (void)message; }

bool cuda_life_find(void)
{
    if (cuda_life_backend) return true;
    cu = cuda_stand_in_find();
    if (!cu) return false;
    if (tern_plugin_find("cuda", &cuda_life_backend) >= 0) return true;
    print_message("%s\n", tern_error_message());
    cuda_life_backend = NULL;
    return false;
}

void cuda_life_expect_no_report(void)
{
    char report[600];
    if (cu->reports(report, sizeof report)) fail_msg("the stand-in reports: %s", report);
}

/* ------------------------------------------------------------------- a life */

static tern_status render(const tern_kernel_desc *desc, tern_dialect dialect, bool addresses, tern_source *out_source)
{
    static const char text[] = "struct words { unsigned n, a, b; };\n"
                               "extern \"C\" __global__ void affine(const unsigned *x, unsigned *y, words w) {\n"
                               "    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;\n"
                               "    if (i < w.n) y[i] = w.a * x[i] + w.b;\n"
                               "}\n";
    (void)desc, (void)addresses;
    if (dialect != TERN_DIALECT_CUDA) return tern_error(TERN_ERROR_INVALID, "dialect %d", (int)dialect);
    *out_source = (tern_source){.text = strdup(text), .bytes = sizeof text - 1, .entry = "affine"};
    return out_source->text ? TERN_OK : tern_error_memory("a kernel's text", sizeof text);
}

tern_kernel_desc cuda_life_kernel(void)
{
    tern_kernel_desc desc = {.kind = TERN_KERNEL_TAPE,
                             .label = "affine",
                             .tensor_count = 2,
                             .word_count = 3,
                             .variant = {.group = {CUDA_LIFE_GROUP, 1, 1}},
                             .render = render};
    desc.tensors[0] = (tern_tape_tensor){.dtype = TERN_U32, .mode = TERN_ACCESS_READ};
    desc.tensors[1] = (tern_tape_tensor){.dtype = TERN_U32, .mode = TERN_ACCESS_READ | TERN_ACCESS_WRITE};
    return desc;
}

static tern_argument whole(tern_backend_buffer *buffer, uint32_t mode)
{
    return (tern_argument){.buffer = buffer, .bytes = 4 * CUDA_LIFE_COUNT, .mode = mode};
}

/* Twice 3 x + 1 in place, then a copy for the host, in two submissions. */
static tern_status make_program(cuda_life *l)
{
    const uint32_t wait = 0, cut = 1;
    tern_step steps[2] = {
        {.kind = TERN_STEP_DISPATCH,
         .label = "affine",
         .kernel = l->kernel,
         .argument_count = 2,
         .arguments = {whole(l->x, TERN_ACCESS_READ), whole(l->x, TERN_ACCESS_READ | TERN_ACCESS_WRITE)},
         .word_count = 3,
         .words = {CUDA_LIFE_COUNT, 3, 1},
         .groups = {CUDA_LIFE_COUNT / CUDA_LIFE_GROUP, 1, 1}},
        {.kind = TERN_STEP_COPY,
         .label = "copy",
         .wait_count = 1,
         .waits = &wait,
         .argument_count = 2,
         .arguments = {whole(l->x, TERN_ACCESS_READ), whole(l->y, TERN_ACCESS_WRITE)}},
    };
    const tern_program_desc desc = {.label = "life", .step_count = 2, .steps = steps, .cut_count = 1, .cuts = &cut};
    return cuda_life_backend->program_create(l->device, &desc, &l->program);
}

tern_status cuda_life_set_up(cuda_life *l, uint32_t index)
{
    tern_status status = TERN_OK;
    const tern_open_options options = {.timestamps = true};
    const tern_kernel_desc kernel = cuda_life_kernel();
    uint32_t devices = 0, data[CUDA_LIFE_COUNT];
    TERN_TRY(cuda_life_backend->load());
    TERN_TRY(cuda_life_backend->device_count(&devices));
    TERN_TRY(cuda_life_backend->device_info(index, &l->info));
    TERN_TRY(cuda_life_backend->open(index, &options, &l->device));
    TERN_TRY(cuda_life_backend->buffer_create(l->device, sizeof data, TERN_BUFFER_DEVICE, &l->x));
    TERN_TRY(cuda_life_backend->buffer_create(l->device, sizeof data, TERN_BUFFER_READBACK, &l->y));
    for (uint32_t i = 0; i < CUDA_LIFE_COUNT; i++) data[i] = i;
    TERN_TRY(cuda_life_backend->buffer_write(l->device, l->x, 0, data, sizeof data));
    TERN_TRY(cuda_life_backend->kernel_create(l->device, &kernel, &l->kernel));
    TERN_TRY(make_program(l));
fail:
    return status;
}

tern_status cuda_life_run(cuda_life *l)
{
    tern_status status = TERN_OK;
    uint32_t data[CUDA_LIFE_COUNT];
    uint64_t ticket = 0, ns[2];
    TERN_TRY(cuda_life_set_up(l, 0));
    for (int round = 0; round < 2; round++) TERN_TRY(cuda_life_backend->program_submit(l->device, l->program, &ticket));
    TERN_TRY(cuda_life_backend->wait(l->device, ticket, CUDA_LIFE_WAIT_NS));
    TERN_TRY(cuda_life_backend->program_times(l->device, l->program, ns));
    TERN_TRY(cuda_life_backend->buffer_read(l->device, l->x, 0, data, sizeof data));
    for (uint32_t i = 0; i < CUDA_LIFE_COUNT; i++)
        if (data[i] != 9 * i + 4) return tern_error(TERN_ERROR_INTERNAL, "element %u is %u", i, data[i]);
    TERN_TRY(cuda_life_backend->buffer_read(l->device, l->y, 0, data, sizeof data));
    if (data[CUDA_LIFE_COUNT - 1] != 9 * (CUDA_LIFE_COUNT - 1) + 4)
        return tern_error(TERN_ERROR_INTERNAL, "the copy is wrong");
fail:
    return status;
}

void cuda_life_end(cuda_life *l)
{
    if (l->device) {
        cuda_life_backend->program_destroy(l->device, l->program);
        cuda_life_backend->kernel_destroy(l->device, l->kernel);
        cuda_life_backend->buffer_destroy(l->device, l->x);
        cuda_life_backend->buffer_destroy(l->device, l->y);
        assert_int_equal(cuda_life_backend->allocated_bytes(l->device), 0);
        cuda_life_backend->close(l->device);
    }
    cuda_life_backend->unload();
    *l = (cuda_life){0};
}

/* ------------------------------------------------------------------ child */

/* True for a variable that the child gets anew. */
static bool is_replaced(const char *entry, const char *const *more)
{
    for (; *more; more++)
        if (strncmp(entry, *more, strcspn(*more, "=") + 1) == 0) return true;
    return false;
}

int cuda_life_child(const char *mode, const char *const *more)
{
    char *arguments[] = {"test", (char *)(uintptr_t)mode, NULL}, *variables[512];
    size_t count = 0;
    pid_t child;
    int result = 0;
    for (char **v = environ; *v && count < 500; v++)
        if (!is_replaced(*v, more)) variables[count++] = *v;
    for (; *more; more++) variables[count++] = (char *)(uintptr_t)*more;
    variables[count] = NULL;
    assert_int_equal(posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, variables), 0);
    assert_int_equal(waitpid(child, &result, 0), child);
    return WIFEXITED(result) ? WEXITSTATUS(result) : 128;
}
