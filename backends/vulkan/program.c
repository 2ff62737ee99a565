/* SPDX-License-Identifier: Apache-2.0 */
/* program.c - checks a program and records it, once, into one command buffer per part.
 *
 *     part 0:  barrier with all before, step, step, | step, ...   "|": a barrier, where a step waits for one since the
 *     cut ─────────────────────────────────────────                last barrier; one barrier serves all of them
 *     part 1:  barrier with all before, step, ...,  barrier to the host
 *
 * Not the place where anything is submitted. Invariant: a step whose waits lie before the last barrier needs none, for
 * the barrier made every earlier write visible; so a program has at most as many barriers as its longest chain of
 * waits. */
#include "backends/vulkan/internal.h"

#include "core/base/dtype.h"

#include <stdlib.h>
#include <string.h>

#define STEP_STAGES (VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT)
#define STEP_WRITES (VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT)
#define STEP_ACCESS (STEP_WRITES | VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_TRANSFER_READ_BIT)

/* How a dispatch passes its tensors. */
typedef struct step_form {
    const vulkan_pipeline *pipeline; /* NULL: a copy or a fill */
    bool addresses;
} step_form;

typedef struct recorder {
    tern_backend_device *device;
    tern_backend_program *program;
    const tern_program_desc *desc;
    step_form *forms;
    VkCommandBuffer commands; /* the part being recorded */
    uint32_t barrier;         /* steps before this one are visible */
    uint32_t query;           /* next timestamp */
} recorder;

/* ----------------------------------------------------------------- checking */

static tern_status check_argument(const tern_step *step, uint32_t index, uint32_t unit)
{
    const tern_argument *a = &step->arguments[index];
    if (!a->buffer)
        return tern_error(TERN_ERROR_INVALID, "step %s: argument %u has no buffer; bind it", step->label, index);
    if (a->bytes == 0 || a->offset > a->buffer->bytes || a->bytes > a->buffer->bytes - a->offset)
        return tern_error(
            TERN_ERROR_INVALID,
            "step %s: argument %u, %llu bytes at %llu, is empty or passes the end of its buffer of %llu bytes",
            step->label, index, (unsigned long long)a->bytes, (unsigned long long)a->offset,
            (unsigned long long)a->buffer->bytes);
    if (a->offset % unit != 0)
        return tern_error(TERN_ERROR_INVALID, "step %s: argument %u starts at byte %llu, no multiple of %u",
                          step->label, index, (unsigned long long)a->offset, unit);
    return TERN_OK;
}

static tern_status check_dispatch(const tern_backend_device *device, const tern_step *step)
{
    tern_status status = TERN_OK;
    if (!step->kernel) return tern_error(TERN_ERROR_INVALID, "step %s dispatches no kernel", step->label);
    const tern_kernel_desc *kernel = &step->kernel->desc;
    if (step->argument_count != kernel->tensor_count || step->word_count != kernel->word_count)
        return tern_error(TERN_ERROR_INVALID, "step %s has %u arguments and %u words and its kernel %s takes %u and %u",
                          step->label, step->argument_count, step->word_count, kernel->label, kernel->tensor_count,
                          kernel->word_count);
    for (uint32_t i = 0; i < step->argument_count; i++)
        TERN_TRY(check_argument(step, i, tern_dtype(kernel->tensors[i].dtype)->bytes));
    for (int i = 0; i < 3; i++)
        if (step->groups[i] == 0 || step->groups[i] > device->card.info.max_groups[i])
            return tern_error(
                TERN_ERROR_UNSUPPORTED,
                "step %s: %u work-groups on axis %d are outside 1 to %u (maxComputeWorkGroupCount); fold them over y",
                step->label, step->groups[i], i, device->card.info.max_groups[i]);
fail:
    return status;
}

static tern_status check_step(const tern_backend_device *device, const tern_program_desc *desc, uint32_t index)
{
    tern_status status = TERN_OK;
    const tern_step *step = &desc->steps[index];
    for (uint32_t i = 0; i < step->wait_count; i++)
        if (step->waits[i] >= index)
            return tern_error(TERN_ERROR_INVALID, "step %u (%s) waits for step %u, which is not earlier", index,
                              step->label, step->waits[i]);
    if (step->kind == TERN_STEP_DISPATCH) return check_dispatch(device, step);
    const uint32_t count = step->kind == TERN_STEP_COPY ? 2 : 1;
    if (step->argument_count != count)
        return tern_error(TERN_ERROR_INVALID, "step %s has %u arguments; a copy has 2, a fill 1", step->label,
                          step->argument_count);
    for (uint32_t i = 0; i < count; i++) {
        TERN_TRY(check_argument(step, i, 4));
        if (step->arguments[i].bytes % 4 != 0)
            return tern_error(TERN_ERROR_INVALID, "step %s: %llu bytes are no multiple of 4", step->label,
                              (unsigned long long)step->arguments[i].bytes);
    }
    if (step->kind == TERN_STEP_COPY) {
        const tern_argument *a = &step->arguments[0], *b = &step->arguments[1];
        const bool overlap =
            a->buffer == b->buffer && a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
        if (a->bytes != b->bytes || overlap)
            return tern_error(TERN_ERROR_INVALID,
                              "step %s copies %llu bytes onto %llu%s; copies are of one size and do not overlap",
                              step->label, (unsigned long long)a->bytes, (unsigned long long)b->bytes,
                              overlap ? " that overlap them" : "");
    }
fail:
    return status;
}

static tern_status check_cuts(const tern_program_desc *desc)
{
    if (desc->step_count == 0) return tern_error(TERN_ERROR_INVALID, "program %s has no steps", desc->label);
    if (desc->cut_count + 1 >= 1u << VULKAN_PARTS_LOG2)
        return tern_error(TERN_ERROR_UNSUPPORTED, "program %s has %u cuts; at most %u fit", desc->label,
                          desc->cut_count, (1u << VULKAN_PARTS_LOG2) - 2);
    for (uint32_t i = 0; i < desc->cut_count; i++)
        if (desc->cuts[i] <= (i ? desc->cuts[i - 1] : 0) || desc->cuts[i] >= desc->step_count)
            return tern_error(TERN_ERROR_INVALID,
                              "program %s: cut %u before step %u is out of order or outside steps 1 to %u", desc->label,
                              i, desc->cuts[i], desc->step_count - 1);
    return TERN_OK;
}

/* --------------------------------------------------------------- descriptors */

/* A binding starts at a multiple of the device's alignment; what is left over travels as an element offset. */
static uint64_t binding_remainder(const tern_backend_device *device, const tern_argument *argument)
{
    uint64_t alignment = device->card.limits.minStorageBufferOffsetAlignment;
    if (alignment < 16) alignment = 16; /* a multiple of every element */
    return argument->offset % alignment;
}

static tern_status choose_form(tern_backend_device *device, const tern_step *step, step_form *out_form)
{
    const tern_device_info *info = &device->card.info;
    out_form->addresses = step->kernel->addresses_only;
    for (uint32_t i = 0; i < step->argument_count; i++) {
        const uint64_t range = step->arguments[i].bytes + binding_remainder(device, &step->arguments[i]);
        if (range <= info->max_binding_bytes || out_form->addresses) continue;
        if (!(info->features & TERN_FEATURE_BUFFER_ADDRESS))
            return tern_error(TERN_ERROR_UNSUPPORTED,
                              "step %s: argument %u of %llu bytes exceeds %llu (maxStorageBufferRange) and %s has no "
                              "buffer device addresses; use smaller tensors",
                              step->label, i, (unsigned long long)range, (unsigned long long)info->max_binding_bytes,
                              info->name);
        out_form->addresses = true;
    }
    return vulkan_kernel_form(device, step->kernel, out_form->addresses, &out_form->pipeline);
}

static tern_status create_descriptor_pool(recorder *r)
{
    tern_status status = TERN_OK;
    uint32_t sets = 0, descriptors = 0;
    for (uint32_t i = 0; i < r->desc->step_count; i++) {
        if (!r->forms[i].pipeline || r->forms[i].addresses) continue;
        sets++;
        descriptors += r->desc->steps[i].argument_count;
    }
    if (sets == 0) return TERN_OK;
    const VkDescriptorPoolSize size = {.type = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, .descriptorCount = descriptors};
    VkDescriptorPoolCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
        .maxSets = sets,
        .poolSizeCount = 1,
        .pPoolSizes = &size,
    };
    VULKAN_TRY(r->device, r->device->vk, CreateDescriptorPool, r->device->logical, &info, NULL,
               &r->program->descriptor_pool);
fail:
    return status;
}

/* --------------------------------------------------------------- recording */

static void record_barrier(recorder *r, VkPipelineStageFlags from, VkAccessFlags writes, VkPipelineStageFlags to,
                           VkAccessFlags access)
{
    const VkMemoryBarrier barrier = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER, .srcAccessMask = writes, .dstAccessMask = access};
    r->device->vk.CmdPipelineBarrier(r->commands, from, to, 0, 1, &barrier, 0, NULL, 0, NULL);
}

static void record_timestamp(recorder *r)
{
    if (r->program->queries)
        r->device->vk.CmdWriteTimestamp(r->commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, r->program->queries,
                                        r->query);
    r->query++;
}

/* steps: how many the part has. */
static tern_status begin_part(recorder *r, uint32_t part, uint32_t steps)
{
    tern_status status = TERN_OK;
    VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    r->commands = r->program->parts[part];
    VULKAN_TRY(r->device, r->device->vk, BeginCommandBuffer, r->commands, &begin);
    if (r->program->queries) r->device->vk.CmdResetQueryPool(r->commands, r->program->queries, r->query, steps + 1);
    record_barrier(r, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, VK_ACCESS_MEMORY_WRITE_BIT, STEP_STAGES, STEP_ACCESS);
    record_timestamp(r);
fail:
    return status;
}

static tern_status record_bindings(recorder *r, const tern_step *step, const vulkan_pipeline *pipeline)
{
    tern_status status = TERN_OK;
    const tern_backend_device *device = r->device;
    const tern_kernel_desc *kernel = &step->kernel->desc;
    VkDescriptorSet set;
    VkDescriptorSetAllocateInfo allocate = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
        .descriptorPool = r->program->descriptor_pool,
        .descriptorSetCount = 1,
        .pSetLayouts = &step->kernel->set_layout,
    };
    VULKAN_TRY(r->device, device->vk, AllocateDescriptorSets, device->logical, &allocate, &set);
    VkDescriptorBufferInfo buffers[TERN_TAPE_TENSORS];
    VkWriteDescriptorSet writes[TERN_TAPE_TENSORS];
    uint32_t push[VULKAN_PUSH_BYTES / 4], count = step->word_count;
    memcpy(push, step->words, count * sizeof *push);
    for (uint32_t i = 0; i < step->argument_count; i++) {
        const tern_argument *a = &step->arguments[i];
        const uint64_t remainder = binding_remainder(device, a);
        buffers[i] = (VkDescriptorBufferInfo){
            .buffer = a->buffer->handle, .offset = a->offset - remainder, .range = a->bytes + remainder};
        writes[i] = (VkWriteDescriptorSet){
            .sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
            .dstSet = set,
            .dstBinding = i,
            .descriptorCount = 1,
            .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
            .pBufferInfo = &buffers[i],
        };
        push[count++] = (uint32_t)(remainder / tern_dtype(kernel->tensors[i].dtype)->bytes);
    }
    device->vk.UpdateDescriptorSets(device->logical, step->argument_count, writes, 0, NULL);
    device->vk.CmdBindDescriptorSets(r->commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline->layout, 0, 1, &set, 0,
                                     NULL);
    device->vk.CmdPushConstants(r->commands, pipeline->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, 4 * count, push);
fail:
    return status;
}

static void record_addresses(recorder *r, const tern_step *step, const vulkan_pipeline *pipeline)
{
    unsigned char push[VULKAN_PUSH_BYTES];
    uint32_t bytes = 0;
    for (uint32_t i = 0; i < step->argument_count; i++, bytes += 8) {
        const uint64_t address = step->arguments[i].buffer->address + step->arguments[i].offset;
        memcpy(push + bytes, &address, 8);
    }
    memcpy(push + bytes, step->words, 4 * step->word_count);
    bytes += 4 * step->word_count;
    r->device->vk.CmdPushConstants(r->commands, pipeline->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, bytes, push);
}

static tern_status record_step(recorder *r, uint32_t index)
{
    tern_status status = TERN_OK;
    const vulkan_device_table *vk = &r->device->vk;
    const tern_step *step = &r->desc->steps[index];
    const tern_argument *a = step->arguments;
    const step_form *form = &r->forms[index];
    bool waits = false;
    for (uint32_t i = 0; i < step->wait_count; i++) waits = waits || step->waits[i] >= r->barrier;
    if (waits) {
        record_barrier(r, STEP_STAGES, STEP_WRITES, STEP_STAGES, STEP_ACCESS);
        r->barrier = index;
    }
    if (step->kind == TERN_STEP_COPY) {
        const VkBufferCopy region = {.srcOffset = a[0].offset, .dstOffset = a[1].offset, .size = a[0].bytes};
        vk->CmdCopyBuffer(r->commands, a[0].buffer->handle, a[1].buffer->handle, 1, &region);
    } else if (step->kind == TERN_STEP_FILL) {
        vk->CmdFillBuffer(r->commands, a[0].buffer->handle, a[0].offset, a[0].bytes, step->fill);
    } else {
        vk->CmdBindPipeline(r->commands, VK_PIPELINE_BIND_POINT_COMPUTE, form->pipeline->handle);
        if (form->addresses)
            record_addresses(r, step, form->pipeline);
        else
            TERN_TRY(record_bindings(r, step, form->pipeline));
        vk->CmdDispatch(r->commands, step->groups[0], step->groups[1], step->groups[2]);
    }
    r->program->step_queries[index] = r->query;
    record_timestamp(r);
fail:
    return status;
}

static tern_status record_all(recorder *r)
{
    tern_status status = TERN_OK;
    const tern_program_desc *desc = r->desc;
    for (uint32_t part = 0; part < r->program->part_count; part++) {
        const uint32_t first = part ? desc->cuts[part - 1] : 0;
        const uint32_t end = part < desc->cut_count ? desc->cuts[part] : desc->step_count;
        TERN_TRY(begin_part(r, part, end - first));
        r->barrier = first;
        for (uint32_t i = first; i < end; i++) TERN_TRY(record_step(r, i));
        if (end == desc->step_count)
            record_barrier(r, STEP_STAGES, STEP_WRITES, VK_PIPELINE_STAGE_HOST_BIT, VK_ACCESS_HOST_READ_BIT);
        VULKAN_TRY(r->device, r->device->vk, EndCommandBuffer, r->commands);
    }
fail:
    return status;
}

static tern_status create_objects(recorder *r)
{
    tern_status status = TERN_OK;
    tern_backend_device *device = r->device;
    tern_backend_program *program = r->program;
    VkCommandPoolCreateInfo pool = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
        .queueFamilyIndex = device->card.queue_family,
    };
    VULKAN_TRY(device, device->vk, CreateCommandPool, device->logical, &pool, NULL, &program->command_pool);
    VkCommandBufferAllocateInfo parts = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
        .commandPool = program->command_pool,
        .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
        .commandBufferCount = program->part_count,
    };
    VULKAN_TRY(device, device->vk, AllocateCommandBuffers, device->logical, &parts, program->parts);
    TERN_TRY(create_descriptor_pool(r));
    VkQueryPoolCreateInfo queries = {
        .sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
        .queryType = VK_QUERY_TYPE_TIMESTAMP,
        .queryCount = program->query_count,
    };
    if (device->timestamps)
        VULKAN_TRY(device, device->vk, CreateQueryPool, device->logical, &queries, NULL, &program->queries);
fail:
    return status;
}

tern_status vulkan_program_create(tern_backend_device *device, const tern_program_desc *desc,
                                  tern_backend_program **out_program)
{
    tern_status status = TERN_OK;
    recorder r = {.device = device, .desc = desc};
    TERN_TRY(vulkan_enter(device));
    TERN_TRY(check_cuts(desc));
    for (uint32_t i = 0; i < desc->step_count; i++) TERN_TRY(check_step(device, desc, i));
    tern_backend_program *program = r.program = calloc(1, sizeof *program);
    r.forms = calloc(desc->step_count, sizeof *r.forms);
    if (program) {
        program->step_count = desc->step_count;
        program->part_count = desc->cut_count + 1;
        program->query_count = program->step_count + program->part_count;
        program->parts = calloc(program->part_count, sizeof *program->parts);
        program->step_queries = calloc(program->step_count, sizeof *program->step_queries);
    }
    if (!program || !r.forms || !program->parts || !program->step_queries) {
        status = tern_error_memory("a Vulkan program", desc->step_count * sizeof *r.forms);
        goto fail;
    }
    for (uint32_t i = 0; i < desc->step_count; i++)
        if (desc->steps[i].kind == TERN_STEP_DISPATCH) TERN_TRY(choose_form(device, &desc->steps[i], &r.forms[i]));
    TERN_TRY(create_objects(&r));
    TERN_TRY(record_all(&r));
    free(r.forms);
    *out_program = program;
    return TERN_OK;
fail:
    free(r.forms);
    vulkan_program_free(device, r.program);
    return status;
}

void vulkan_program_free(tern_backend_device *device, tern_backend_program *program)
{
    if (!program) return;
    const vulkan_device_table *vk = &device->vk;
    if (!vulkan_is_foreign(device)) {
        if (program->queries) vk->DestroyQueryPool(device->logical, program->queries, NULL);
        if (program->descriptor_pool) vk->DestroyDescriptorPool(device->logical, program->descriptor_pool, NULL);
        if (program->command_pool)
            vk->DestroyCommandPool(device->logical, program->command_pool, NULL); /* frees the parts too */
    }
    free(program->step_queries);
    free(program->parts);
    free(program);
}
