/* SPDX-License-Identifier: Apache-2.0 */
/* loader.c - the feeding thread of feeder.h, filling tern_batches; loader.h has the rules. */
#include "core/train/loader.h"

#include <stdlib.h>

#include "core/train/feeder.h"

#define SLOTS 4 /* ids, labels, order, offsets: the parts of a tern_batch */

struct tern_loader {
    const tern_data *data;
    tern_feeder *feeder;
    uint64_t filled;  /* next sample of the thread */
    uint64_t sample;  /* next sample of the caller */
    tern_batch batch; /* the one that is taken, in the feeder's memory */
    bool borrowed;
};

static int64_t fill(void *context, const tern_feed_slot *slots, size_t count, int64_t most)
{
    tern_loader *loader = context;
    (void)count;
    tern_batch batch = {slots[0].data, slots[1].data, slots[2].data, slots[3].data, loader->filled};
    tern_data_fill(loader->data, loader->filled, &batch);
    loader->filled += (uint64_t)most;
    return most;
}

tern_status tern_loader_create(const tern_data *data, uint64_t first_sample, tern_loader **out_loader)
{
    const size_t tokens = (size_t)data->options.batch * data->options.context * sizeof(int32_t);
    const tern_feed_slot slots[SLOTS] = {{"ids", NULL, tokens},
                                         {"labels", NULL, tokens},
                                         {"order", NULL, tokens},
                                         {"offsets", NULL, ((size_t)data->options.vocab + 1) * sizeof(uint32_t)}};
    tern_loader *loader = calloc(1, sizeof *loader);
    *out_loader = NULL;
    if (!loader) return tern_error_memory("the data loader", sizeof *loader);
    loader->data = data;
    loader->filled = loader->sample = first_sample;
    const tern_feeder_options options = {slots, SLOTS, data->options.batch, fill, loader};
    tern_status status = tern_feeder_create(&options, &loader->feeder);
    if (status < 0)
        free(loader);
    else
        *out_loader = loader;
    return status;
}

void tern_loader_destroy(tern_loader *loader)
{
    if (!loader) return;
    tern_feeder_destroy(loader->feeder);
    free(loader);
}

tern_status tern_loader_next(tern_loader *loader, const tern_batch **out_batch)
{
    tern_status status;
    const tern_feed *feeds;
    int64_t examples;
    if (loader->borrowed)
        return tern_error(TERN_ERROR_INVALID,
                          "the batch of sample %llu is still taken; release it before asking for the next",
                          (unsigned long long)loader->batch.sample);
    TERN_TRY(tern_feeder_next(loader->feeder, &feeds, &examples));
    loader->batch =
        (tern_batch){(int32_t *)(uintptr_t)feeds[0].data, (int32_t *)(uintptr_t)feeds[1].data,
                     (uint32_t *)(uintptr_t)feeds[2].data, (uint32_t *)(uintptr_t)feeds[3].data, loader->sample};
    loader->sample += (uint64_t)examples;
    loader->borrowed = true;
    *out_batch = &loader->batch;
fail:
    return status;
}

void tern_loader_release(tern_loader *loader)
{
    loader->borrowed = false;
    tern_feeder_release(loader->feeder);
}
