/* SPDX-License-Identifier: Apache-2.0 */
/* plan_fixture.c - see plan_fixture.h: the interpreting device and the reference. Programs: plan_programs.c. */
#include "tests/plan_fixture.h"

#include "core/base/hash.h"

#include <stdlib.h>
#include <string.h>

fixture_control fixture;

struct tern_backend_buffer {
    unsigned char *memory;
    uint64_t bytes;
    tern_buffer_kind kind;
};
struct tern_backend_kernel {
    uint64_t key;
};
struct tern_backend_program {
    tern_step *steps;
    uint32_t step_count, cut_count;
};
struct tern_backend_device {
    uint64_t tickets;
};
static struct tern_backend_device the_device;

/* ------------------------------------------------------------------ kernels */

typedef struct range {
    unsigned char *data;
    uint64_t bytes;
    uint32_t mode;
} range;

static void run_kernel(uint64_t key, uint32_t word_count, const uint32_t *words, const range *ranges, uint32_t count)
{
    uint64_t hash = tern_hash(TERN_HASH_START, &key, sizeof key);
    hash = tern_hash(hash, words, word_count * sizeof *words);
    for (uint32_t i = 0; i < count; i++)
        if (ranges[i].mode & TERN_ACCESS_READ) hash = tern_hash(hash, ranges[i].data, (size_t)ranges[i].bytes);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t noise = hash + i;
        for (uint64_t b = 0; (ranges[i].mode & TERN_ACCESS_WRITE) && b < ranges[i].bytes; b++) {
            noise = noise * 6364136223846793005u + 1442695040888963407u;
            ranges[i].data[b] = (unsigned char)(noise >> 56);
        }
    }
}

void fixture_fill(void *data, uint64_t bytes, uint32_t seed, const char *name)
{
    const range whole = {.data = data, .bytes = bytes, .mode = TERN_ACCESS_WRITE};
    run_kernel(tern_hash(TERN_HASH_START, name, strlen(name)), 1, &seed, &whole, 1);
}

/* ---------------------------------------------------------------- reference */

fixture_memory fixture_memory_create(const tern_lowered *lowered)
{
    fixture_memory memory = {.lowered = lowered, .data = calloc(lowered->value_count + 1u, sizeof(unsigned char *))};
    for (uint32_t v = 0; v < lowered->value_count; v++) memory.data[v] = calloc(1, (size_t)lowered->values[v].bytes);
    return memory;
}

void fixture_memory_run(fixture_memory *memory)
{
    for (uint32_t i = 0; i < memory->lowered->launch_count; i++) {
        const tern_launch *launch = &memory->lowered->launches[i];
        range ranges[TERN_TAPE_TENSORS];
        for (uint32_t a = 0; a < launch->operand_count; a++) {
            const tern_operand *o = &launch->operands[a];
            ranges[a] = (range){.data = memory->data[o->value] + o->offset, .bytes = o->bytes, .mode = o->mode};
        }
        run_kernel(memory->lowered->kernels[launch->kernel]->key, launch->word_count, launch->words, ranges,
                   launch->operand_count);
    }
}

void fixture_memory_free(fixture_memory *memory)
{
    for (uint32_t v = 0; v < memory->lowered->value_count; v++) free(memory->data[v]);
    free(memory->data);
}

/* ------------------------------------------------------------------- device */

static tern_status enter(const char *entry)
{
    if (++fixture.calls != fixture.fail_call) return TERN_OK;
    return tern_error(TERN_ERROR_DRIVER, "%s failed as planned", entry);
}

static tern_status buffer_create(tern_backend_device *device, uint64_t bytes, tern_buffer_kind kind,
                                 tern_backend_buffer **out_buffer)
{
    (void)device;
    tern_status status = enter("buffer_create");
    if (status < 0) return status;
    tern_backend_buffer *buffer = malloc(sizeof *buffer);
    *buffer = (tern_backend_buffer){.memory = calloc(1, (size_t)bytes), .bytes = bytes, .kind = kind};
    fixture.objects++;
    if (kind == TERN_BUFFER_DEVICE) fixture.device_bytes += bytes;
    *out_buffer = buffer;
    return TERN_OK;
}

static void buffer_destroy(tern_backend_device *device, tern_backend_buffer *buffer)
{
    (void)device;
    fixture.objects--;
    if (buffer->kind == TERN_BUFFER_DEVICE) fixture.device_bytes -= buffer->bytes;
    free(buffer->memory);
    free(buffer);
}

static tern_status buffer_write(tern_backend_device *device, tern_backend_buffer *buffer, uint64_t offset,
                                const void *data, uint64_t bytes)
{
    (void)device;
    tern_status status = enter("buffer_write");
    if (status >= 0) memcpy(buffer->memory + offset, data, (size_t)bytes);
    return status;
}

static tern_status buffer_read(tern_backend_device *device, tern_backend_buffer *buffer, uint64_t offset,
                               void *out_data, uint64_t bytes)
{
    (void)device;
    tern_status status = enter("buffer_read");
    if (status >= 0) memcpy(out_data, buffer->memory + offset, (size_t)bytes);
    return status;
}

static tern_status buffer_map(tern_backend_device *device, tern_backend_buffer *buffer, void **out_address)
{
    (void)device;
    tern_status status = enter("buffer_map");
    if (status >= 0) *out_address = buffer->memory;
    return status;
}

static tern_status kernel_create(tern_backend_device *device, const tern_kernel_desc *desc,
                                 tern_backend_kernel **out_kernel)
{
    (void)device;
    tern_status status = enter("kernel_create");
    if (status < 0) return status;
    *out_kernel = malloc(sizeof **out_kernel);
    (*out_kernel)->key = desc->key;
    fixture.objects++;
    return TERN_OK;
}

static void kernel_destroy(tern_backend_device *device, tern_backend_kernel *kernel)
{
    (void)device;
    fixture.objects--;
    free(kernel);
}

/* A wait must name an earlier step, an argument must lie inside of its buffer. */
static tern_status check_step(const tern_step *step, uint32_t index)
{
    for (uint32_t w = 0; w < step->wait_count; w++)
        if (step->waits[w] >= index)
            return tern_error(TERN_ERROR_INVALID, "step %u waits for %u", index, step->waits[w]);
    for (uint32_t a = 0; a < step->argument_count; a++)
        if (step->arguments[a].offset + step->arguments[a].bytes > step->arguments[a].buffer->bytes)
            return tern_error(TERN_ERROR_INVALID, "step %u '%s' leaves its buffer", index, step->label);
    return TERN_OK;
}

static tern_status program_create(tern_backend_device *device, const tern_program_desc *desc,
                                  tern_backend_program **out_program)
{
    (void)device;
    tern_status status = enter("program_create");
    for (uint32_t i = 0; status >= 0 && i < desc->step_count; i++) status = check_step(&desc->steps[i], i);
    if (status < 0) return status;
    tern_backend_program *program = malloc(sizeof *program);
    *program = (tern_backend_program){.steps = calloc(desc->step_count + 1u, sizeof(tern_step)),
                                      .step_count = desc->step_count,
                                      .cut_count = desc->cut_count};
    memcpy(program->steps, desc->steps, desc->step_count * sizeof(tern_step));
    fixture.objects++;
    *out_program = program;
    return TERN_OK;
}

static void program_destroy(tern_backend_device *device, tern_backend_program *program)
{
    (void)device;
    fixture.objects--;
    free(program->steps);
    free(program);
}

/* One byte beside the last range that the launch writes: what a kernel with an index fault does. */
static void overrun(const tern_step *step)
{
    for (uint32_t a = step->argument_count; a-- > 0;) {
        const tern_argument *to = &step->arguments[a];
        if (!(to->mode & TERN_ACCESS_WRITE)) continue;
        const int64_t at = (int64_t)to->offset + fixture.overrun + (fixture.overrun >= 0 ? (int64_t)to->bytes : 0);
        if (at >= 0 && at < (int64_t)to->buffer->bytes) to->buffer->memory[at] ^= 0x55;
        return;
    }
}

static void run_step(const tern_step *step)
{
    range ranges[TERN_TAPE_TENSORS];
    for (uint32_t a = 0; a < step->argument_count; a++) {
        const tern_argument *from = &step->arguments[a];
        ranges[a] = (range){.data = from->buffer->memory + from->offset, .bytes = from->bytes, .mode = from->mode};
    }
    switch (step->kind) {
    case TERN_STEP_COPY: memcpy(ranges[1].data, ranges[0].data, (size_t)ranges[0].bytes); return;
    case TERN_STEP_FILL:
        for (uint64_t i = 0; i + 4u <= ranges[0].bytes; i += 4u) memcpy(ranges[0].data + i, &step->fill, 4);
        return;
    case TERN_STEP_DISPATCH: break;
    }
    run_kernel(step->kernel->key, step->word_count, step->words, ranges, step->argument_count);
    if (fixture.overrun != INT64_MAX) overrun(step);
}

static tern_status program_submit(tern_backend_device *device, tern_backend_program *program, uint64_t *out_ticket)
{
    tern_status status = enter("program_submit");
    if (status < 0) return status;
    for (uint32_t i = 0; i < program->step_count; i++) run_step(&program->steps[i]);
    fixture.submissions += 1u + program->cut_count;
    *out_ticket = ++device->tickets;
    return TERN_OK;
}

static tern_status wait_for(tern_backend_device *device, uint64_t ticket, uint64_t timeout_ns)
{
    (void)timeout_ns;
    tern_status status = enter("wait");
    if (status < 0) return status;
    if (fixture.hang) return tern_error(TERN_ERROR_TIMEOUT, "hanging as planned");
    return ticket <= device->tickets
               ? TERN_OK
               : tern_error(TERN_ERROR_INVALID, "ticket %llu was never given", (unsigned long long)ticket);
}

static const tern_backend the_backend = {
    .abi = TERN_BACKEND_ABI,
    .name = "fixture",
    .buffer_create = buffer_create,
    .buffer_destroy = buffer_destroy,
    .buffer_write = buffer_write,
    .buffer_read = buffer_read,
    .buffer_map = buffer_map,
    .kernel_create = kernel_create,
    .kernel_destroy = kernel_destroy,
    .program_create = program_create,
    .program_destroy = program_destroy,
    .program_submit = program_submit,
    .wait = wait_for,
};

tern_device *fixture_device(void)
{
    fixture = (fixture_control){.overrun = INT64_MAX};
    the_device.tickets = 0;
    tern_device *device = calloc(1, sizeof *device);
    *device = (tern_device){.backend = &the_backend, .handle = &the_device, .title = "fixture: interpreter"};
    device->info = (tern_device_info){
        .name = "interpreter",
        .kind = TERN_DEVICE_DISCRETE_GPU,
        .memory_bytes = (uint64_t)8 << 30,
        .memory_free_bytes = (uint64_t)8 << 30,
        .max_allocation_bytes = (uint64_t)4 << 30,
        .max_buffer_bytes = (uint64_t)4 << 30,
        .max_binding_bytes = (uint64_t)1 << 30,
        .max_groups = {65535, 65535, 65535},
        .max_group_size = 1024,
        .offset_alignment = 256,
    };
    return device;
}
