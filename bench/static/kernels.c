/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.c - the distinct kernels of a GPT-2 124M training run, planned for a card as `tern train` would.
 *
 *     setup ── micro, update, eval ── kernels, unique by key (the variant is in the key)
 *
 * What it is not: it builds none of them. Invariant: every kernel of the three programs is in the list once. */
#include "bench/static/static.h"

#include "core/models/gpt2.h"
#include "core/train/text_trainer.h"

#include <stdlib.h>

const char *const static_kind_names[TERN_KERNEL_KIND_COUNT] = {"tape",         "matmul",        "attention",
                                                               "attention dq", "attention dkv", "scatter add"};

static tern_status build(void *context, tern_graph *graph, uint32_t batch)
{
    tern_gpt2_options shape = *(const tern_gpt2_options *)context;
    shape.batch = batch;
    return tern_gpt2_build_loss(graph, &shape);
}

static void add(static_kernels *kernels, const tern_lowered *lowered, uint32_t program)
{
    for (uint32_t l = 0; l < lowered->launch_count; l++) {
        const tern_kernel_desc *desc = lowered->kernels[lowered->launches[l].kernel];
        uint32_t k = 0;
        while (k < kernels->count && kernels->list[k].desc->key != desc->key) k++;
        if (k == kernels->count) kernels->list[kernels->count++] = (static_kernel){.desc = desc};
        kernels->list[k].programs |= 1u << program;
        kernels->list[k].launches++;
    }
}

tern_status static_kernels_plan(tern_device *device, int32_t precision, static_kernels *out_kernels)
{
    tern_status status;
    tern_gpt2_options shape;
    tern_text_options train;
    uint32_t most = 0;
    *out_kernels = (static_kernels){0};
    TERN_TRY(tern_gpt2_preset("gpt2", &shape));
    tern_text_options_init(&train);
    const tern_setup_options options = {.model = {build, &shape},
                                        .batch = shape.batch,
                                        .optimizer = train.optimizer,
                                        .update = train.update,
                                        .evaluate = true,
                                        .precision = precision == TERN_F32 ? 0 : precision};
    TERN_TRY(tern_setup_create(device, &options, &out_kernels->setup));
    const tern_program *programs = out_kernels->setup->programs;
    for (uint32_t p = 0; p <= TERN_PROGRAM_EVAL; p++) most += programs[p].lowered->kernel_count;
    out_kernels->list = calloc(most, sizeof *out_kernels->list);
    if (!out_kernels->list) {
        status = tern_error_memory("the kernels", most * sizeof *out_kernels->list);
        goto fail;
    }
    for (uint32_t p = 0; p <= TERN_PROGRAM_EVAL; p++) add(out_kernels, programs[p].lowered, p);
    return TERN_OK;
fail:
    static_kernels_finish(out_kernels);
    return status;
}

void static_kernels_finish(static_kernels *kernels)
{
    free(kernels->list);
    tern_setup_destroy(kernels->setup);
    *kernels = (static_kernels){0};
}
